//! The hand-over of listening sockets to the next generation of the daemon, which takes them as
//! [`inherited`].
//!
//! ```text
//!   former generation: Serving ──► HandedOver          accepts nothing more, its streams go on
//!   next generation:   Waiting ──► Serving             has bound everything, accepts from then on
//! ```
//!
//! A group of listeners is noted when it is bound, by the inodes of its sockets. The owner of a
//! listener may close it at any time: what is handed over is what the table of descriptors of the
//! process (`/proc/self/fd`) still has.
//!
//! A client that has not come to this process yet has its port in an older generation and among the
//! inherited sockets here, which go on to the next generation as well. A port that is bound while
//! the next generation starts follows on the way of visitors ([`give_more`]).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use rustix::fs::fstat;
use rustix::net::getsockname;
use rustix::net::sockopt::socket_type;
use tokio::sync::watch;

use crate::inherited::Place;
use crate::{inherited, udp};

/// Descriptors of one message. The kernel takes at most 253 (`SCM_MAX_FD`); a group is not split.
const PER_MESSAGE: usize = 253;

/// The byte of a message with descriptors.
const SOCKETS: u8 = b's';

/// The byte of the message after the last of further sockets.
pub(crate) const ROUND: u8 = b'.';

/// Longest wait until the next generation reads the way of visitors, on which further sockets go.
const PATIENCE: Duration = Duration::from_secs(2);

/// The pause before another try.
const PAUSE: Duration = Duration::from_millis(2);

/// The table of descriptors of this process.
pub(crate) const TABLE: &str = "/proc/self/fd";

/// How far the hand-over is, seen from this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// The former generation serves. This process binds and accepts nothing.
    Waiting,
    Serving,
    /// The next generation serves.
    HandedOver,
}

static STAGE: LazyLock<watch::Sender<Stage>> = LazyLock::new(|| watch::Sender::new(Stage::Serving));

/// The listening sockets of this process: the inodes of each group, in the order in which the
/// sockets joined the group. The key is the kind and the address in the form of the system.
static BOUND: Mutex<BTreeMap<Vec<u8>, Group>> = Mutex::new(BTreeMap::new());

/// The inodes of the sockets that the next generation has.
static GIVEN: Mutex<Option<HashSet<u64>>> = Mutex::new(None);

/// The way on which visitors pass to the next generation.
static PASSED: Mutex<Option<UnixStream>> = Mutex::new(None);

/// Descriptors that are handed over beside the sockets: the locks of folders.
static KEPT: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());

/// The sockets of one address.
#[derive(Debug)]
struct Group {
    place: Option<Place>,
    inodes: Vec<u64>,
}

/// Listeners of this process accept nothing until [`serve`].
pub fn wait() {
    STAGE.send_replace(Stage::Waiting);
}

/// Listeners of this process accept from now on.
pub fn serve() {
    udp::serve();
    STAGE.send_replace(Stage::Serving);
}

/// The next generation accepts from now on. Listeners of this process end.
pub fn hand_over() {
    STAGE.send_replace(Stage::HandedOver);
    udp::hand_over();
    inherited::let_go();
}

/// Gives an accepted visitor to the next generation, which has the listeners. The caller closes its
/// descriptor after that.
///
/// # Errors
/// There is no next generation, or it has a few hundred visitors that it has not taken yet
/// ([`io::ErrorKind::WouldBlock`]).
pub fn pass(visitor: impl AsFd) -> io::Result<()> {
    let way = PASSED.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(way) = way.as_ref().filter(|_| is_handed_over()) else {
        return Err(io::ErrorKind::NotConnected.into());
    };
    Ok(send(way, &[visitor.as_fd().as_raw_fd()], SOCKETS)?)
}

/// Whether this process is the generation that serves, to which the socket files belong.
#[must_use]
pub fn is_serving() -> bool {
    *STAGE.borrow() == Stage::Serving
}

/// Whether the next generation accepts.
#[must_use]
pub fn is_handed_over() -> bool {
    *STAGE.borrow() == Stage::HandedOver
}

/// Ready when listeners of this process may accept. Cancel-safe.
pub async fn serving() {
    reached(Stage::Serving).await;
}

/// Ready when the next generation accepts. Cancel-safe.
pub async fn handed_over() {
    reached(Stage::HandedOver).await;
}

async fn reached(stage: Stage) {
    // Fails only when the sender is gone, and the sender is static.
    drop(STAGE.subscribe().wait_for(|now| *now >= stage).await);
}

/// Notes the listening sockets of one address, in the order in which they joined their group.
pub fn note<S: AsFd>(group: &[S]) {
    let Some(first) = group.first() else { return };
    let inode = |socket: &S| fstat(socket).ok().map(|socket| socket.st_ino);
    // TCP and UDP may have the same address.
    let (Ok(kind), Ok(address)) = (socket_type(first), getsockname(first)) else { return };
    let key = format!("{kind:?} {address:?}").into_bytes();
    let place = first.as_fd().try_clone_to_owned().ok();
    let place = place.and_then(|socket| inherited::place(&socket));
    bound().insert(key, Group { place, inodes: group.iter().filter_map(inode).collect() });
}

/// Whether this process listens at this address.
pub(crate) fn is_bound(place: &Place) -> bool {
    let Ok(open) = sockets() else { return false };
    let is_live = |group: &Group| group.inodes.iter().any(|inode| open.contains_key(inode));
    bound().values().any(|group| group.place.as_ref() == Some(place) && is_live(group))
}

/// Hands this descriptor over as well, until the process ends.
///
/// # Errors
/// The process has no descriptor left.
pub fn keep(file: impl AsFd) -> io::Result<()> {
    let file = file.as_fd().try_clone_to_owned()?;
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(file);
    Ok(())
}

fn bound() -> MutexGuard<'static, BTreeMap<Vec<u8>, Group>> {
    BOUND.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends all live listening sockets of this process, those that it has inherited and that nothing
/// has bound yet, the kept descriptors and the way of visitors, each group in a message of one
/// byte. Returns the number of sockets. Blocks while the other end does not read.
///
/// # Errors
/// The table of descriptors cannot be read, or the other end is gone.
pub fn give(to: &UnixStream) -> io::Result<usize> {
    let mut given = HashSet::new();
    let count = give_groups(to, &mut given, |_| true)?;
    let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    for file in kept.iter() {
        send(to, &[file.as_raw_fd()], SOCKETS)?;
    }
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    send(to, &[theirs.as_raw_fd()], SOCKETS)?;
    *PASSED.lock().unwrap_or_else(PoisonError::into_inner) = Some(ours);
    *GIVEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(given);
    Ok(count)
}

/// Sends the next generation, on the way of visitors, the sockets that have come since [`give`]: a
/// client has published a port meanwhile. With `all`, every socket is sent again: the next
/// generation begins another one after the end of the one that had them. A message tells the end of
/// the sockets ([`inherited::more_came`]). Blocks for at most 2 s while the other end does not
/// read.
///
/// # Errors
/// There is no next generation, or it does not read.
pub fn give_more(all: bool) -> io::Result<usize> {
    let way = PASSED.lock().unwrap_or_else(PoisonError::into_inner);
    let way = way.as_ref().map(UnixStream::try_clone).transpose()?;
    let way = way.ok_or(io::ErrorKind::NotConnected)?;
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let given = given.get_or_insert_default();
    if all {
        given.clear();
    }
    // The generations read the ports of carriers side by side, each by sockets of its own.
    let count = give_groups(&way, given, |place| !udp::is_of_carriers(place))?;
    patiently(|| send(&way, &[], ROUND))?;
    Ok(count)
}

/// Sends each group of sockets that is not among `given`.
fn give_groups(
    to: &UnixStream,
    given: &mut HashSet<u64>,
    is_wanted: impl Fn(&Place) -> bool,
) -> io::Result<usize> {
    let open = sockets()?;
    let mut groups: Vec<(Option<Place>, Vec<RawFd>)> = Vec::new();
    for group in bound().values() {
        let live: Vec<RawFd> =
            group.inodes.iter().filter_map(|inode| open.get(inode).copied()).collect();
        groups.push((group.place.clone(), live));
    }
    let by_number: HashMap<RawFd, u64> =
        open.iter().map(|(inode, number)| (*number, *inode)).collect();
    let unclaimed = inherited::unclaimed().into_iter();
    groups.extend(unclaimed.map(|(place, group)| (Some(place), group)));
    let mut count = 0;
    for (place, group) in groups {
        let inode = |number: &RawFd| by_number.get(number).copied();
        let is_known = group.iter().filter_map(inode).any(|inode| given.contains(&inode));
        let is_wanted = place.as_ref().is_none_or(&is_wanted);
        if group.is_empty() || group.len() > PER_MESSAGE || is_known || !is_wanted {
            continue;
        }
        match patiently(|| send(to, &group, SOCKETS)) {
            Ok(()) => {
                count += group.len();
                given.extend(group.iter().filter_map(inode));
            }
            // The owner has closed it meanwhile.
            Err(error)
                if Errno::from_raw(error.raw_os_error().unwrap_or_default()) == Errno::EBADF => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

/// Repeats a call while the other end of a non-blocking connection does not read.
fn patiently(send: impl Fn() -> nix::Result<()>) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        match send() {
            Err(Errno::EAGAIN) if Instant::now() < until => thread::sleep(PAUSE),
            done => return Ok(done?),
        }
    }
}

/// The receiver looks at each descriptor, so a number that means another file by now does no harm.
pub(crate) fn send(to: &UnixStream, descriptors: &[RawFd], byte: u8) -> nix::Result<()> {
    let rights = [ControlMessage::ScmRights(descriptors)];
    let rights = if descriptors.is_empty() { &[][..] } else { &rights[..] };
    let bytes = [byte];
    let bytes = [IoSlice::new(&bytes)];
    sendmsg::<()>(to.as_raw_fd(), &bytes, rights, MsgFlags::MSG_NOSIGNAL, None).map(drop)
}

/// The open sockets of this process by inode.
fn sockets() -> io::Result<HashMap<u64, RawFd>> {
    let mut all = HashMap::new();
    for entry in fs::read_dir(TABLE)? {
        let entry = entry?;
        // A descriptor that was closed meanwhile has no link any more.
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let inode = target.to_str().and_then(|target| {
            target.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok()
        });
        let number = entry.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok());
        if let (Some(inode), Some(number)) = (inode, number) {
            all.insert(inode, number);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};

    use super::*;
    use crate::inherited::Inherited;

    #[tokio::test]
    async fn live_listeners_and_kept_files_are_given_and_closed_listeners_are_not() {
        let at = SocketAddr::from(([127, 0, 0, 1], 0));
        let [kept, closed] = [2, 1].map(|count| crate::listen_group(at, count).unwrap());
        let [kept_at, closed_at] =
            [&kept, &closed].map(|group: &Vec<TcpListener>| group[0].local_addr().unwrap());
        drop(closed);
        let lock = tempfile::tempfile().unwrap();
        keep(&lock).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        assert!(give(&ours).unwrap() >= 2);
        io::Write::write_all(&mut &ours, b"text").unwrap();
        let (all, text) = Inherited::receive_before_text(&theirs).unwrap();
        assert_eq!(text, b"text");
        all.offer();
        drop(kept);
        assert_eq!(inherited::tcp(kept_at, 2).unwrap().unwrap().len(), 2);
        assert!(inherited::tcp(closed_at, 1).unwrap().is_none());
        assert!(inherited::file(&lock).unwrap().is_some());
        assert!(inherited::visitors().unwrap().is_some());
    }
}
