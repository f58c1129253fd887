//! Listening sockets that another process hands to this process: the previous generation, the
//! program that started it, or the service manager. Every bind of the daemon checks these sockets
//! first.
//!
//! ```text
//!   other process ──descriptors over a Unix socket (SCM_RIGHTS)──► Inherited
//!   service manager ──descriptors from 3 on (LISTEN_FDS)─────────►    │ by kind and address
//!   listen_group, udp_group, flow_group, Unix sockets ◄───────────────┘ a whole group in order
//! ```
//!
//! A port that changes its user within this process takes the same way ([`PassedOn`]).
//!
//! The sockets of one address form a group, and a group is given to one caller as a whole: the
//! kernel steers datagrams to a socket by its index in the group, which is the order in which the
//! sockets joined it, and a listener that is closed resets the connections in its queue.

mod held;
mod numbers;
mod passed;
mod place;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use rustix::fs::fstat;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SocketAddrUnix, recvmsg,
};
use tokio::io::Interest;
use tokio::sync::watch;

use crate::handover::bound;

use held::Held;
pub(crate) use held::unclaimed;
pub use held::{
    HeldSocket, Stored, close_unwanted, held, keep_stored, let_go, retire, store, take_unstored,
    unused,
};
pub use numbers::take_numbers;
pub use passed::PassedOn;
pub use place::Place;
pub(crate) use place::place;

/// The maximum number of descriptors per message in the kernel (`SCM_MAX_FD`).
pub(crate) const PER_MESSAGE: usize = 253;

/// The byte of the message that ends a round of additional sockets.
pub(crate) const ROUND: u8 = b'.';

/// The maximum number of sockets: 64 addresses with a socket for each of 256 workers.
const SOCKETS: usize = 64 * 256;

/// The sockets that this process inherited and that no caller has taken.
static INHERITED: Mutex<Inherited> = Mutex::new(Inherited(Vec::new()));

/// The number of rounds of additional sockets that the previous generation has completed.
static ROUNDS: LazyLock<watch::Sender<u64>> = LazyLock::new(watch::Sender::default);

/// Whether this process reads the visitor connection.
static READS: AtomicBool = AtomicBool::new(false);

/// Inherited sockets in the order in which they arrived.
#[derive(Debug)]
pub struct Inherited(Vec<Socket>);

#[derive(Debug)]
struct Socket {
    place: Place,
    descriptor: OwnedFd,
    /// Set if the service manager also has the socket. Then the socket outlives each listener of
    /// this process, and a listener gets a duplicate.
    held: Option<Held>,
    /// The offer of this process by which the socket is here ([`PassedOn`]).
    offer: Option<u64>,
}

impl Inherited {
    /// Receives sockets until the other end closes. Each message has arbitrary bytes and at most
    /// 253 descriptors. The sockets of a group arrive in the order in which they joined the group.
    /// A descriptor that is neither a listening socket nor a file is closed.
    ///
    /// # Errors
    /// The connection ends within a message, or there are too many sockets.
    pub fn receive(from: &UnixStream) -> io::Result<Self> {
        let (mut all, _) = Self::receive_until(from, false)?;
        all.0.retain(|socket| socket.place != Place::Visitors);
        Ok(all)
    }

    /// Receives sockets until a message without descriptors arrives, or the other end closes. Also
    /// returns at most 64 bytes of that message.
    ///
    /// # Errors
    /// As for [`Self::receive`].
    pub fn receive_before_text(from: &UnixStream) -> io::Result<(Self, Vec<u8>)> {
        Self::receive_until(from, true)
    }

    fn receive_until(from: &UnixStream, ends_at_text: bool) -> io::Result<(Self, Vec<u8>)> {
        let mut all = Vec::new();
        loop {
            let mut is_bare = true;
            let mut space =
                vec![std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PER_MESSAGE))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut bytes = [0; 64];
            let mut parts = [io::IoSliceMut::new(&mut bytes)];
            let message = recvmsg(from, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
            if message.flags.contains(ReturnFlags::CTRUNC) {
                return Err(io::Error::other("descriptors were lost on their way"));
            }
            for item in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(descriptors) = item {
                    is_bare = false;
                    all.extend(descriptors.filter_map(Socket::of));
                }
            }
            if all.len() > SOCKETS {
                return Err(io::Error::other(format!("more than {SOCKETS} sockets")));
            }
            if message.bytes == 0 || (ends_at_text && is_bare) {
                let text = bytes.get(..message.bytes).unwrap_or_default().to_vec();
                return Ok((Self(all), text));
            }
        }
    }

    /// Offers the sockets to the binds of this process.
    pub fn offer(self) {
        inherited().0.extend(self.0);
    }

    /// Offers sockets that arrived later. An address that this process already has is not changed.
    fn offer_more(self) {
        let mut all = inherited();
        let Some(place) = self.0.first().map(|socket| socket.place.clone()) else { return };
        if all.0.iter().any(|socket| socket.place == place) || bound::is_bound(&place) {
            return;
        }
        all.0.extend(self.0);
    }

    /// Closes the sockets that no caller has taken; see [`crate::handover::close_rest`].
    pub(crate) fn close_rest() -> usize {
        inherited().0.extract_if(.., |socket| socket.held.is_none()).count()
    }

    /// Takes the group of a place. `None`: there is no group.
    ///
    /// # Errors
    /// The group has another number of sockets than `count`.
    fn take(&mut self, wanted: &Place, count: usize) -> io::Result<Option<Vec<OwnedFd>>> {
        if self.holds(wanted) {
            return self.lend(wanted, count);
        }
        let found = self.0.iter().filter(|socket| socket.place == *wanted).count();
        if found == 0 {
            return Ok(None);
        }
        if found != count {
            return Err(differs(found, count));
        }
        let group = self.0.extract_if(.., |socket| socket.place == *wanted);
        Ok(Some(group.map(|socket| socket.descriptor).collect()))
    }
}

impl Socket {
    fn of(descriptor: OwnedFd) -> Option<Self> {
        Some(Self { place: place(&descriptor)?, descriptor, held: None, offer: None })
    }
}

pub(crate) fn differs(found: usize, count: usize) -> io::Error {
    let why = format!(
        "{found} sockets of this address were handed over, and {count} are needed: the number of \
         workers has to stay"
    );
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

fn inherited() -> MutexGuard<'static, Inherited> {
    INHERITED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The inherited group of TCP listeners of an address.
///
/// # Errors
/// The group has another number of sockets than `count`.
pub(crate) fn tcp(address: SocketAddr, count: usize) -> io::Result<Option<Vec<TcpListener>>> {
    let Some(group) = inherited().take(&Place::Tcp(address), count.max(1))? else {
        return Ok(None);
    };
    let group: Vec<TcpListener> = group.into_iter().map(TcpListener::from).collect();
    group.iter().try_for_each(|one| one.set_nonblocking(true))?;
    Ok(Some(group))
}

/// The inherited group of UDP sockets of an address.
///
/// # Errors
/// The group has another number of sockets than `count`.
pub(crate) fn udp(address: SocketAddr, count: usize) -> io::Result<Option<Vec<UdpSocket>>> {
    let Some(group) = inherited().take(&Place::Udp(address), count.max(1))? else {
        return Ok(None);
    };
    let group: Vec<UdpSocket> = group.into_iter().map(UdpSocket::from).collect();
    group.iter().try_for_each(|one| one.set_nonblocking(true))?;
    Ok(Some(group))
}

/// All inherited sockets of a UDP address, in order. A socket that the service manager also has is
/// duplicated.
///
/// # Errors
/// This process has no descriptor left.
pub(crate) fn udp_all(address: SocketAddr) -> io::Result<Vec<UdpSocket>> {
    let mut all = inherited();
    let wanted = Place::Udp(address);
    let mut group = Vec::new();
    for socket in all.0.iter_mut().filter(|socket| socket.place == wanted) {
        let duplicate = UdpSocket::from(socket.descriptor.try_clone()?);
        duplicate.set_nonblocking(true)?;
        if let Some(held) = &mut socket.held {
            held.lent = Some(duplicate.as_raw_fd());
        }
        group.push(duplicate);
    }
    all.0.retain(|socket| socket.place != wanted || socket.held.is_some());
    Ok(group)
}

/// The inherited descriptor of a file, with the lock that the other process has on the file.
///
/// # Errors
/// The file cannot be examined, or it was handed over twice.
pub fn file(same: impl AsFd) -> io::Result<Option<OwnedFd>> {
    let file = fstat(same)?;
    let group = inherited().take(&Place::File(file.st_dev, file.st_ino), 1)?;
    Ok(group.and_then(|mut group| group.pop()))
}

/// The visitors that the previous process passes on.
///
/// # Errors
/// The connection cannot be used by this thread's runtime, in which the call must be made.
pub fn visitors() -> io::Result<Option<Visitors>> {
    let Some(mut way) = inherited().take(&Place::Visitors, 1)? else { return Ok(None) };
    let Some(way) = way.pop().map(UnixStream::from) else { return Ok(None) };
    way.set_nonblocking(true)?;
    READS.store(true, Ordering::Relaxed);
    Ok(Some(Visitors(tokio::net::UnixStream::from_std(way)?)))
}

/// Completes when the previous generation has sent its additional sockets for the `nth` time, or at
/// once if this process does not read the visitor connection. Cancel-safe.
pub async fn more_came(nth: u64) {
    if READS.load(Ordering::Relaxed) {
        // Fails only if the sender is dropped, and the sender is static.
        drop(ROUNDS.subscribe().wait_for(|rounds| *rounds >= nth).await);
    }
}

/// The number of completed rounds, as counted by [`more_came`].
#[must_use]
pub fn rounds() -> u64 {
    *ROUNDS.borrow()
}

/// The visitors that a previous process has accepted but cannot serve. Listening sockets arrive
/// over the same connection, and are offered to the binds of this process.
#[derive(Debug)]
pub struct Visitors(tokio::net::UnixStream);

/// A message of the visitor connection.
enum Came {
    Visitor(TcpStream),
    Sockets(Inherited),
    /// The previous generation has sent all additional sockets.
    Round,
    End,
}

impl Visitors {
    /// The next visitor. `None`: the previous process has ended. Cancel-safe.
    pub async fn next(&self) -> Option<TcpStream> {
        loop {
            self.0.readable().await.ok()?;
            match self.0.try_io(Interest::READABLE, || self.take()) {
                Ok(Came::Visitor(visitor)) => return Some(visitor),
                Ok(Came::Sockets(more)) => more.offer_more(),
                Ok(Came::Round) => ROUNDS.send_modify(|rounds| *rounds += 1),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Ok(Came::End) | Err(_) => {
                    // Releases the waiters: no more rounds can arrive.
                    ROUNDS.send_replace(u64::MAX / 2);
                    return None;
                }
            }
        }
    }

    fn take(&self) -> io::Result<Came> {
        let mut space =
            [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PER_MESSAGE))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let mut parts = [io::IoSliceMut::new(&mut byte)];
        let got = recvmsg(&self.0, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        let mut descriptors = Vec::new();
        for item in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(more) = item {
                descriptors.extend(more);
            }
        }
        if got.bytes == 0 {
            return Ok(Came::End);
        }
        if byte == [ROUND] {
            return Ok(Came::Round);
        }
        if descriptors.first().is_some_and(|first| place(first).is_none()) {
            let visitor = descriptors.into_iter().next();
            return visitor
                .map(|visitor| Came::Visitor(visitor.into()))
                .ok_or_else(|| io::ErrorKind::WouldBlock.into());
        }
        // A message without descriptors was a visitor for which this process had no free
        // descriptor.
        Ok(Came::Sockets(Inherited(descriptors.into_iter().filter_map(Socket::of).collect())))
    }
}

/// The inherited listener of a Unix socket, which is non-blocking.
///
/// # Errors
/// More than one socket listens at the address.
pub fn unix(address: &SocketAddrUnix) -> io::Result<Option<UnixListener>> {
    let Some(mut group) = inherited().take(&Place::Unix(address.clone()), 1)? else {
        return Ok(None);
    };
    let listener = group.pop().map(UnixListener::from);
    listener.iter().try_for_each(|one| one.set_nonblocking(true))?;
    Ok(listener)
}
