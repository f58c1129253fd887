//! The figures that the kernel has of a TCP connection (`struct tcp_info`), as `ss -ti` shows them.
//!
//! The kernel is asked by netlink (`message`), because the socket option `TCP_INFO` needs unsafe
//! code, which is not allowed here. The kernel finds one connection by its two ends in a hash
//! table, in microseconds and without any privilege. Requests are for one connection and never a
//! dump, because a dump would walk through the sockets of all visitors.

mod message;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

use message::Answer;

/// The size of the receive buffer. It is above any answer: a header, a few attributes and
/// `tcp_info`, 408 bytes on Linux 6.18.
const ANSWER: usize = 4096;

/// The number of answers to other requests that are skipped. There is such an answer only when a
/// request was given up.
const STRANGE: usize = 4;

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The address on this machine.
    pub local: SocketAddr,
    /// The address of the far end.
    pub remote: SocketAddr,
}

/// The figures of a connection. `None`: the kernel is too old to tell, or the figure is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Segments that were sent and are not acknowledged (`tcpi_unacked`).
    pub unacked_segments: Option<u64>,
    /// The time since the far end acknowledged anything, in milliseconds (`tcpi_last_ack_recv`).
    /// The answer to a probe of a closed window counts.
    pub last_ack_millis: Option<u64>,
    /// Segments that count as lost.
    pub lost_segments: Option<u64>,
    /// The smoothed round-trip time in microseconds.
    pub rtt_micros: Option<u64>,
    /// The congestion window.
    pub window_segments: Option<u64>,
    /// Retransmissions so far.
    pub retransmitted_segments: Option<u64>,
    /// Bytes that wait to be sent (`tcpi_notsent_bytes`).
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

    /// The figures of a connection, and a number that no other socket has. `None`: there is no such
    /// connection. The kernel answers within the sending call, so the code does not wait.
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
