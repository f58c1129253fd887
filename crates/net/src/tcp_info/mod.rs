//! The kernel's statistics of a TCP connection (`struct tcp_info`), as shown by `ss -ti`.
//!
//! The kernel is queried by netlink (`message`), because the socket option `TCP_INFO` needs unsafe
//! code, which is not allowed here. The kernel looks up one connection by its two ends in a hash
//! table, in microseconds and without privileges. Requests are for one connection and never a dump,
//! because a dump would iterate over the sockets of all visitors.

mod message;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

use message::Answer;

/// The size of the receive buffer, in bytes. It exceeds any reply: a header, a few attributes and
/// `tcp_info`, 408 bytes on Linux 6.18.
const ANSWER: usize = 4096;

/// The maximum number of skipped replies to other requests. Such a reply exists only after an
/// abandoned request.
const STRANGE: usize = 4;

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The address on this machine.
    pub local: SocketAddr,
    /// The address of the far end.
    pub remote: SocketAddr,
}

/// The statistics of a connection. `None`: the kernel is too old to report the value, or the value
/// is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Segments in flight, which are not acknowledged (`tcpi_unacked`).
    pub unacked_segments: Option<u64>,
    /// The time since the far end acknowledged anything, in milliseconds (`tcpi_last_ack_recv`).
    /// The reply to a zero-window probe counts.
    pub last_ack_millis: Option<u64>,
    /// Acknowledged bytes so far (`tcpi_bytes_acked`).
    pub acked_bytes: Option<u64>,
    /// Segments that count as lost.
    pub lost_segments: Option<u64>,
    /// The smoothed round-trip time in microseconds.
    pub rtt_micros: Option<u64>,
    /// The congestion window.
    pub window_segments: Option<u64>,
    /// Retransmissions so far.
    pub retransmitted_segments: Option<u64>,
    /// Unsent bytes in the send buffer (`tcpi_notsent_bytes`).
    pub unsent_bytes: Option<u64>,
    /// Segments with data so far.
    pub sent_segments: Option<u64>,
    /// The pacing rate.
    pub bytes_per_second: Option<u64>,
    /// Retransmitted bytes so far.
    pub retransmitted_bytes: Option<u64>,
}

/// A netlink socket to the kernel.
#[derive(Debug)]
pub struct Kernel {
    netlink: OwnedFd,
    sequence: u32,
}

impl Kernel {
    /// Opens the socket.
    pub fn open() -> io::Result<Self> {
        let netlink = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(netlink::SOCK_DIAG),
        )?;
        Ok(Self { netlink, sequence: 0 })
    }

    /// The statistics of a connection, and a number that is unique to its socket. `None`: there is
    /// no such connection. The kernel replies within the send call, so the code does not block.
    pub fn ask(&mut self, ends: Ends) -> io::Result<Option<(u64, Info)>> {
        self.sequence = self.sequence.wrapping_add(1);
        send(&self.netlink, &message::question(ends, self.sequence), SendFlags::empty())?;
        let mut buffer = [0; ANSWER];
        for _ in 0..STRANGE {
            let (bytes, _) = recv(&self.netlink, &mut buffer[..], RecvFlags::DONTWAIT)?;
            match message::answer(&buffer[..bytes], ends, self.sequence) {
                Answer::Reply { cookie, info } => return Ok(Some((cookie, info))),
                Answer::Nothing => return Ok(None),
                Answer::Refused(errno) if errno == Errno::NOENT.raw_os_error() => return Ok(None),
                Answer::Refused(errno) => return Err(io::Error::from_raw_os_error(errno)),
                Answer::Strange => {}
            }
        }
        Err(Errno::PROTO.into())
    }
}

thread_local! {
    static OF_THREAD: RefCell<Option<Kernel>> = const { RefCell::new(None) };
}

/// The statistics of a connection, by a netlink socket that this thread keeps. The request takes
/// about 10 µs. `None`: there is no such connection, or the kernel does not answer.
pub fn now(ends: Ends) -> Option<Info> {
    OF_THREAD.with_borrow_mut(|kept| {
        if kept.is_none() {
            *kept = Kernel::open().ok();
        }
        match kept.as_mut()?.ask(ends) {
            Ok(found) => found.map(|(_, info)| info),
            Err(_) => {
                *kept = None;
                None
            }
        }
    })
}
