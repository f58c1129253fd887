//! The handover of listening sockets to the next generation of the daemon, which receives them as
//! [`inherited`].
//!
//! ```text
//!   previous generation: Serving ──► HandedOver        accepts no more, its streams continue
//!   next generation:     Waiting ──► Serving           has bound everything, accepts from then on
//! ```
//!
//! A group of listeners is recorded when it is bound, by the inodes of its sockets. The owner of a
//! listener may close it at any time: only sockets that are still in the descriptor table of the
//! process (`/proc/self/fd`) are handed over.
//!
//! The port of a client that has not connected to this process yet is open in an older generation
//! and among the inherited sockets here, which are handed on to the next generation as well. A port
//! that is bound while the next generation starts is sent later over the visitor connection
//! ([`give_more`]).

pub(crate) mod bound;
pub(crate) mod stage;

use std::collections::{HashMap, HashSet};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

use crate::inherited::{self, Inherited, PER_MESSAGE, Place, ROUND};
use crate::udp;

pub use bound::note;
pub use stage::{handed_over, is_handed_over, is_serving, serving};

use bound::sockets;
use stage::Stage;

/// The byte of a message with descriptors.
const SOCKETS: u8 = b's';

/// The maximum time to wait until the next generation reads the visitor connection, which also
/// carries additional sockets.
const PATIENCE: Duration = Duration::from_secs(2);

/// The retry interval.
const PAUSE: Duration = Duration::from_millis(2);

/// The inodes of the sockets that were sent to the next generation.
static GIVEN: Mutex<Option<HashSet<u64>>> = Mutex::new(None);

/// The visitor connection, over which visitors are passed to the next generation.
static PASSED: Mutex<Option<UnixStream>> = Mutex::new(None);

/// Descriptors that are handed over in addition to the sockets: directory locks.
static KEPT: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());

/// Stops listeners of this process from accepting until [`serve`].
pub fn wait() {
    stage::set(Stage::Waiting);
}

/// Lets listeners of this process accept from now on.
pub fn serve() {
    udp::serve();
    stage::set(Stage::Serving);
}

/// Ends the listeners of this process: the next generation accepts from now on.
pub fn hand_over() {
    stage::set(Stage::HandedOver);
    udp::hand_over();
    inherited::let_go();
}

/// Closes the inherited sockets that this process has not bound, because visitors would wait in
/// their queues forever. Sockets that the service manager also has stay open. Returns the number of
/// closed sockets.
pub fn close_rest() -> usize {
    udp::forget_left();
    Inherited::close_rest()
}

/// Passes an accepted visitor to the next generation, which has the listeners. The caller closes
/// its own descriptor afterwards.
///
/// # Errors
/// There is no next generation, or a few hundred visitors are already queued for it
/// ([`io::ErrorKind::WouldBlock`]).
pub fn pass(visitor: impl AsFd) -> io::Result<()> {
    let way = PASSED.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(way) = way.as_ref().filter(|_| is_handed_over()) else {
        return Err(io::ErrorKind::NotConnected.into());
    };
    Ok(send(way, &[visitor.as_fd().as_raw_fd()], SOCKETS)?)
}

/// Includes this descriptor in handovers until the process ends.
///
/// # Errors
/// The process has no descriptor left.
pub fn keep(file: impl AsFd) -> io::Result<()> {
    let file = file.as_fd().try_clone_to_owned()?;
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(file);
    Ok(())
}

/// Sends all live listening sockets of this process, its inherited sockets that are not bound yet,
/// the kept descriptors and the visitor connection, each group in a message of one byte. Returns
/// the number of sockets. Blocks while the other end does not read.
///
/// # Errors
/// The descriptor table cannot be read, or the other end has closed.
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

/// Sends the next generation, over the visitor connection, the sockets that were bound since
/// [`give`], for example because a client has published a port. With `all`, every socket is sent
/// again, for a new process that replaces the ended process that had them. A message marks the end
/// of the sockets ([`inherited::more_came`]). Blocks for at most 2 s while the other end does not
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
    // The generations read carrier ports side by side, each from its own sockets.
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
    let mut groups = bound::live(&open);
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
            // The owner has closed the socket meanwhile.
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

/// Sends descriptors with one byte. The receiver checks each descriptor, so a number that was
/// reused for another file is harmless.
pub(crate) fn send(to: &UnixStream, descriptors: &[RawFd], byte: u8) -> nix::Result<()> {
    let rights = [ControlMessage::ScmRights(descriptors)];
    let rights = if descriptors.is_empty() { &[][..] } else { &rights[..] };
    let bytes = [byte];
    let bytes = [IoSlice::new(&bytes)];
    sendmsg::<()>(to.as_raw_fd(), &bytes, rights, MsgFlags::MSG_NOSIGNAL, None).map(drop)
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};

    use super::*;

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
