//! Sockets that the service manager also holds: those of a socket unit, and those that this process
//! has stored with the manager so that a crash refuses no connection (`FDSTORE=1`).
//!
//! ```text
//!   LISTEN_FDS ──────────────► held ──lend──► a listener of the daemon, as a duplicate
//!   store, when bound ───────►  │
//!        manager ◄take_unstored─┤
//!        manager ◄──retire──────┘ the listener is closed, so the socket has to stop listening
//! ```
//!
//! A socket listens as long as any process has it open, and its visitors would wait for an accept
//! that never happens. So a stored socket whose listener is closed is shut down, which ends
//! listening for all its descriptors. A socket of a socket unit is not touched: the unit listens
//! whether or not the daemon runs.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::fstat;
use rustix::net::{Shutdown, shutdown};

use super::{Inherited, Place, Socket, differs, inherited, place};
use crate::handover::bound::TABLE;
use crate::handover::stage;

/// The maximum number of sockets that the manager stores for this process.
static LIMIT: AtomicUsize = AtomicUsize::new(0);

/// The maximum length of the name of a stored socket, in bytes (sd_pid_notify_with_fds(3)).
const NAME_MAX: usize = 255;

/// The state of a socket that the manager also has.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// The name under which this daemon stored it. `None`: it belongs to a socket unit.
    name: Option<String>,
    /// Whether the manager has it.
    is_stored: bool,
    /// The descriptor number of the duplicate that a listener of this process uses.
    pub(super) lent: Option<RawFd>,
}

/// The place and name of a held socket, for the next generation.
pub type HeldSocket = (String, Option<String>);

/// A group that the manager must store.
#[derive(Debug)]
pub struct Stored {
    /// The name under which the manager returns it.
    pub name: String,
    /// The sockets in the order in which they joined the group.
    pub sockets: Vec<OwnedFd>,
}

/// The name under which a socket is stored. `None`: the manager does not accept the name.
fn name(place: &Place) -> Option<String> {
    let text = place.to_string();
    let name = format!("tunnel-{}", text.replacen("://", "-", 1).replace(':', "_"));
    let is_fit = |byte: u8| (b' '..0x7f).contains(&byte);
    (name.len() <= NAME_MAX && name.bytes().all(is_fit)).then_some(name)
}

impl Socket {
    fn name(&self) -> Option<&str> {
        self.held.as_ref()?.name.as_deref()
    }

    /// Whether the manager also has the socket.
    fn is_stored(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.is_stored)
    }

    /// Whether a listener of this process has a duplicate.
    fn is_lent(&self) -> bool {
        let Some(number) = self.held.as_ref().and_then(|held| held.lent) else { return false };
        let Ok(own) = fstat(&self.descriptor) else { return false };
        let there = fs::read_link(format!("{TABLE}/{number}"));
        there.is_ok_and(|there| there.to_str() == Some(&format!("socket:[{}]", own.st_ino)))
    }

    /// Stops listening for all descriptors of the socket.
    fn silence(&self) {
        // If it fails, the socket is no longer listening.
        let _ = shutdown(&self.descriptor, Shutdown::Both);
    }
}

impl Inherited {
    /// The sockets of the service manager, with the names that it passed. Also returns a line for
    /// each descriptor that is not a listening socket.
    #[must_use]
    pub fn of_manager(sockets: Vec<(String, RawFd, OwnedFd)>) -> (Self, Vec<String>) {
        let (mut all, mut problems) = (Vec::new(), Vec::new());
        for (given, number, descriptor) in sockets {
            let place = place(&descriptor)
                .filter(|place| matches!(place, Place::Tcp(_) | Place::Udp(_) | Place::Unix(_)));
            let Some(place) = place else {
                let named = if given.is_empty() { String::new() } else { format!(" ({given})") };
                problems.push(format!("descriptor {number}{named} is no listening socket"));
                continue;
            };
            let stored = name(&place).filter(|name| *name == given);
            let held = Some(Held { name: stored, is_stored: true, lent: None });
            all.push(Socket { place, descriptor, held, offer: None });
        }
        (Self(all), problems)
    }

    /// Records which of these sockets the service manager also has, as reported by the previous
    /// generation.
    pub fn hold(&mut self, of_former: &[HeldSocket]) {
        for socket in &mut self.0 {
            let text = socket.place.to_string();
            if let Some((_, name)) = of_former.iter().find(|held| held.0 == text) {
                socket.held = Some(Held { name: name.clone(), is_stored: true, lent: None });
            }
        }
    }

    pub(super) fn holds(&self, wanted: &Place) -> bool {
        self.0.iter().any(|socket| socket.place == *wanted && socket.held.is_some())
    }

    /// Duplicates of the sockets of a place. If a TCP group has fewer sockets than workers, several
    /// workers accept from the same socket. `None`: a listener of this process has them.
    ///
    /// # Errors
    /// The number of sockets does not match, or this process has no descriptor left.
    pub(super) fn lend(
        &mut self,
        wanted: &Place,
        count: usize,
    ) -> io::Result<Option<Vec<OwnedFd>>> {
        let group = || self.0.iter().filter(|socket| socket.place == *wanted);
        if group().any(Socket::is_lent) {
            return Ok(None);
        }
        let found = group().count();
        let is_stored = group().all(|socket| socket.name().is_some());
        let may_share = !matches!(wanted, Place::Udp(_));
        if found > count && !stage::is_serving() {
            return Err(differs(found, count));
        }
        if (found < count && !may_share) || (found > count && !is_stored) {
            let why = format!(
                "{found} sockets of this address were handed over by the service manager, and \
                 {count} are needed (hint: name the address {count} times in the socket unit, with \
                 ReusePort=yes, or set workers: {found})"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        // The previous process had more workers. The kernel would distribute visitors to each
        // socket.
        let mut nth = 0;
        let surplus = self.0.extract_if(.., |socket| {
            nth += usize::from(socket.place == *wanted);
            socket.place == *wanted && nth > count
        });
        surplus.for_each(|socket| socket.silence());
        let mut group: Vec<_> =
            self.0.iter_mut().filter(|socket| socket.place == *wanted).collect();
        let mut lent = Vec::with_capacity(count);
        let sockets = found.min(count).max(1);
        for nth in 0..count {
            let Some(socket) = group.get_mut(nth % sockets) else { break };
            let duplicate = socket.descriptor.try_clone()?;
            if let Some(held) = &mut socket.held {
                held.lent = Some(duplicate.as_raw_fd());
            }
            lent.push(duplicate);
        }
        Ok(Some(lent))
    }
}

/// Enables [`store`] for at most this number of sockets.
pub fn keep_stored(limit: usize) {
    LIMIT.store(limit, Ordering::Relaxed);
}

/// Stores the listening sockets of one configured address, in the order in which they joined their
/// group, so that they outlive a crash. No effect unless [`keep_stored`] was called, or for sockets
/// that the manager already has.
pub fn store<S: AsFd>(group: &[S]) {
    let limit = LIMIT.load(Ordering::Relaxed);
    let Some(first) = group.first().filter(|_| limit > 0) else { return };
    let Ok(first) = first.as_fd().try_clone_to_owned() else { return };
    let Some(place) = place(&first).filter(|place| matches!(place, Place::Tcp(_) | Place::Unix(_)))
    else {
        return;
    };
    let Some(name) = name(&place) else { return };
    let mut all = inherited();
    if all.holds(&place) {
        return;
    }
    let stored = all.0.iter().filter(|socket| socket.name().is_some()).count();
    if stored + group.len() > limit {
        tracing::warn!(
            limit,
            "a crash will refuse connects at {place}: the service manager stores {limit} sockets \
             (hint: FileDescriptorStoreMax= of the unit)"
        );
        return;
    }
    let socket = |own: &S| {
        let descriptor = own.as_fd().try_clone_to_owned()?;
        let lent = Some(own.as_fd().as_raw_fd());
        let held = Some(Held { name: Some(name.clone()), is_stored: false, lent });
        io::Result::Ok(Socket { place: place.clone(), descriptor, held, offer: None })
    };
    match group.iter().map(socket).collect::<io::Result<Vec<_>>>() {
        Ok(sockets) => all.0.extend(sockets),
        Err(error) => tracing::warn!(%error, "a crash will refuse connects at {place}: {error}"),
    }
}

/// Returns the groups that the manager does not have yet, and marks them as stored.
pub fn take_unstored() -> Vec<Stored> {
    let mut groups: Vec<Stored> = Vec::new();
    for socket in &mut inherited().0 {
        let Some(Held { name: Some(name), is_stored: is_stored @ false, .. }) = &mut socket.held
        else {
            continue;
        };
        let Ok(duplicate) = socket.descriptor.try_clone() else { continue };
        *is_stored = true;
        match groups.iter_mut().find(|group| group.name == *name) {
            Some(group) => group.sockets.push(duplicate),
            None => groups.push(Stored { name: name.clone(), sockets: vec![duplicate] }),
        }
    }
    groups
}

/// Shuts down the stored sockets whose listeners are closed. Returns their names, which the manager
/// must remove.
pub fn retire() -> Vec<String> {
    let mut all = inherited();
    let live: Vec<Place> =
        all.0.iter().filter(|one| one.is_lent()).map(|one| one.place.clone()).collect();
    let is_over = |socket: &mut Socket| {
        socket.held.as_ref().is_some_and(|held| held.name.is_some() && held.lent.is_some())
            && !live.contains(&socket.place)
    };
    let over: Vec<Socket> = all.0.extract_if(.., is_over).collect();
    end(&over)
}

fn end(over: &[Socket]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for socket in over {
        socket.silence();
        names.extend(socket.name().map(str::to_owned));
    }
    names.dedup();
    names
}

/// Closes the sockets of the manager that no listener uses or will use. Returns their places, and
/// the names of the stored sockets among them, which the manager must remove.
pub fn close_unwanted(will_want: impl Fn(&Place) -> bool) -> (Vec<Place>, Vec<String>) {
    let mut all = inherited();
    let live: Vec<Place> =
        all.0.iter().filter(|one| one.is_lent()).map(|one| one.place.clone()).collect();
    let is_unwanted = |socket: &mut Socket| {
        socket.held.is_some() && !live.contains(&socket.place) && !will_want(&socket.place)
    };
    let unwanted: Vec<Socket> = all.0.extract_if(.., is_unwanted).collect();
    let mut places: Vec<Place> = unwanted.iter().map(|socket| socket.place.clone()).collect();
    places.dedup();
    let stored: Vec<Socket> =
        unwanted.into_iter().filter(|socket| socket.name().is_some()).collect();
    (places, end(&stored))
}

/// The addresses of socket units that no listener of this process uses.
#[must_use]
pub fn unused() -> Vec<Place> {
    let all = inherited();
    let mut places: Vec<Place> = Vec::new();
    for socket in &all.0 {
        let is_of_unit = socket.held.as_ref().is_some_and(|held| held.name.is_none());
        if is_of_unit && !socket.is_lent() && !places.contains(&socket.place) {
            places.push(socket.place.clone());
        }
    }
    places
}

/// The sockets that the manager has, for the next generation. The next generation stores the others
/// itself when it binds their addresses.
#[must_use]
pub fn held() -> Vec<HeldSocket> {
    let mut all: Vec<HeldSocket> = Vec::new();
    for socket in &inherited().0 {
        if socket.is_stored() {
            let one = (socket.place.to_string(), socket.name().map(str::to_owned));
            if !all.contains(&one) {
                all.push(one);
            }
        }
    }
    all
}

/// The descriptor numbers of the sockets that no listener of this process uses, by address: those
/// of a client that has not connected yet, and those of the manager that have no listener yet.
pub(crate) fn unclaimed() -> Vec<(Place, Vec<RawFd>)> {
    let all = inherited();
    let mut groups: Vec<(Place, Vec<RawFd>)> = Vec::new();
    for socket in &all.0 {
        // The visitor connection leads from the previous generation to this process.
        if socket.place == Place::Visitors || socket.is_lent() {
            continue;
        }
        let number = socket.descriptor.as_raw_fd();
        match groups.iter_mut().find(|group| group.0 == socket.place) {
            Some(group) => group.1.push(number),
            None => groups.push((socket.place.clone(), vec![number])),
        }
    }
    groups
}

/// Closes the sockets that no listener of this process uses, and the held sockets: the next
/// generation has them all. Otherwise, after the next generation closes a port, this process's
/// socket would accept connections that nobody serves.
pub fn let_go() {
    inherited().0.retain(|socket| socket.place == Place::Visitors);
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

    use super::*;

    fn anywhere() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    fn of_unit(sockets: Vec<OwnedFd>) -> (Inherited, Place) {
        let named = sockets.into_iter().map(|socket| ("main.socket".to_owned(), 3, socket));
        let (all, problems) = Inherited::of_manager(named.collect());
        assert_eq!(problems, Vec::<String>::new());
        let place = all.0[0].place.clone();
        (all, place)
    }

    #[test]
    fn a_socket_of_a_unit_serves_all_workers_of_one_listener_at_a_time() {
        let listener = TcpListener::bind(anywhere()).unwrap();
        let at = listener.local_addr().unwrap();
        let (mut all, place) = of_unit(vec![listener.into()]);
        for workers in [1, 3] {
            let lent = all.lend(&place, workers).unwrap().unwrap();
            assert_eq!(lent.len(), workers);
            assert!(all.lend(&place, workers).unwrap().is_none(), "a listener has it");
            let _visitor = TcpStream::connect(at).unwrap();
            for socket in lent {
                TcpListener::from(socket).set_nonblocking(true).unwrap();
            }
        }
        TcpStream::connect(at).expect("the unit listens whether a listener is there or not");
    }

    #[test]
    fn a_group_of_a_unit_with_another_number_of_sockets_is_refused() {
        let udp = |_| OwnedFd::from(UdpSocket::bind(anywhere()).unwrap());
        let (mut all, place) = of_unit(vec![udp(())]);
        let why = all.lend(&place, 2).unwrap_err().to_string();
        assert!(why.contains("1 sockets") && why.contains("workers: 1"), "{why}");
        assert_eq!(all.lend(&place, 1).unwrap().unwrap().len(), 1);
        let group = crate::listen_group(anywhere(), 2).unwrap();
        let (mut all, place) = of_unit(group.into_iter().map(OwnedFd::from).collect());
        assert!(all.lend(&place, 1).is_err(), "nobody would accept from the other one");
        assert_eq!(all.lend(&place, 2).unwrap().unwrap().len(), 2);
    }

    #[test]
    fn what_is_no_listening_socket_is_told_by_its_number() {
        let file = OwnedFd::from(tempfile::tempfile().unwrap());
        let listener = TcpListener::bind(anywhere()).unwrap();
        let stream = OwnedFd::from(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let named = vec![("config".to_owned(), 4, file), (String::new(), 5, stream)];
        let (all, problems) = Inherited::of_manager(named);
        assert!(all.0.is_empty());
        let wanted =
            ["descriptor 4 (config) is no listening socket", "descriptor 5 is no listening socket"];
        assert_eq!(problems, wanted);
    }

    #[test]
    fn a_stored_group_is_told_once_and_stops_listening_with_its_listener() {
        keep_stored(2);
        let [kept, large] = [2, 3].map(|count| crate::listen_group(anywhere(), count).unwrap());
        let at = kept[0].local_addr().unwrap();
        store(&large);
        store(&kept);
        store(&kept);
        assert!(held().is_empty(), "the manager has nothing yet");
        let given = take_unstored();
        let [group] = given.as_slice() else { panic!("{given:?}") };
        assert_eq!(group.name, format!("tunnel-tcp-127.0.0.1_{}", at.port()));
        assert_eq!(group.sockets.len(), 2);
        assert!(take_unstored().is_empty() && retire().is_empty());
        assert_eq!(held(), [(format!("tcp://{at}"), Some(group.name.clone()))]);
        drop(kept);
        TcpStream::connect(at).expect("the store keeps it until somebody looks");
        assert_eq!(retire(), [group.name.as_str()]);
        let refused = TcpStream::connect(at).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        assert!(held().is_empty());
        // The address can be bound even before the manager closes the stored socket.
        drop(crate::listen_group(at, 2).unwrap());
    }
}
