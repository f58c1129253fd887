//! The buffer sizes of UDP sockets. Datagrams that do not fit are lost, and each loss lowers the
//! rate of a connection.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, OnceLock, PoisonError};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::UdpGroSegment;
use rustix::net::sockopt::{
    set_socket_recv_buffer_size, set_socket_recv_buffer_size_force, set_socket_send_buffer_size,
    set_socket_send_buffer_size_force, socket_recv_buffer_size, socket_send_buffer_size,
};
use socket2::{Domain, Protocol, Socket, Type};

/// The requested sizes: 1 Gbit/s for the 30 ms that a worker may be busy elsewhere. The kernel uses
/// memory only while datagrams are queued.
pub const WANTED: Buffers = Buffers { receive: 4 << 20, send: 4 << 20 };

/// The buffer sizes of a socket, in bytes of payload. The kernel doubles a requested size to
/// account for its own overhead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// The receive buffer, in bytes.
    pub receive: usize,
    /// The send buffer, in bytes.
    pub send: usize,
}

/// The smallest sizes granted to a socket of this process; the limit of the system is the same for
/// all.
static LEAST: Mutex<Option<Buffers>> = Mutex::new(None);

/// Whether the warning about small buffers was logged.
static WARNED: AtomicBool = AtomicBool::new(false);

/// The smallest sizes granted to a socket of this process; `None` before the first call of
/// [`raise`].
pub fn granted() -> Option<Buffers> {
    *LEAST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Requests the sizes `wanted` from the kernel. A process with `CAP_NET_ADMIN` may exceed the
/// limits of the system; other processes may not. Returns the granted sizes. If they are smaller
/// than `wanted`, one warning per process names the setting to change.
pub fn raise(socket: &impl AsFd, wanted: Buffers) -> io::Result<Buffers> {
    ask(socket, wanted)?;
    let granted = Buffers::of(socket)?;
    let mut least = LEAST.lock().unwrap_or_else(PoisonError::into_inner);
    *least = Some(least.map_or(granted, |least| least.least(granted)));
    drop(least);
    granted.warn(wanted);
    Ok(granted)
}

/// As [`raise`], but neither records nor logs the granted sizes: for sockets that need less than
/// [`WANTED`].
pub(super) fn ask(socket: &impl AsFd, wanted: Buffers) -> io::Result<()> {
    if set_socket_recv_buffer_size_force(socket, wanted.receive).is_err() {
        set_socket_recv_buffer_size(socket, wanted.receive)?;
    }
    if set_socket_send_buffer_size_force(socket, wanted.send).is_err() {
        set_socket_send_buffer_size(socket, wanted.send)?;
    }
    Ok(())
}

/// The idle socket of [`keep_joining`].
static JOINS: OnceLock<Option<Socket>> = OnceLock::new();

/// Keeps one socket with UDP_GRO (udp(7)) open for the lifetime of the process. When the first
/// socket of the machine sets the option, and when the last such socket closes, the kernel patches
/// its code and stops all cores meanwhile. quinn creates and closes such a socket for each endpoint
/// to detect the option. On two busy shared cores that took 80 % of a client's time in 2,000 dials.
pub fn keep_joining() {
    JOINS.get_or_init(|| {
        // An IPv6 socket counts for both families. It is not bound and receives nothing.
        let socket = Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP));
        let socket =
            socket.or_else(|_| Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)));
        let socket = socket.ok()?;
        setsockopt(&socket, UdpGroSegment, &true).ok()?;
        Some(socket)
    });
}

/// Turns UDP_GRO (udp(7)) off: the kernel no longer coalesces datagrams received by this socket.
pub fn take_one_by_one(socket: &UdpSocket) -> io::Result<()> {
    setsockopt(socket, UdpGroSegment, &false).map_err(io::Error::from)
}

/// Turns UDP_GRO on again: a read gets coalesced datagrams, up to 64 KiB.
pub fn take_joined(socket: &impl AsFd) -> io::Result<()> {
    setsockopt(socket, UdpGroSegment, &true).map_err(io::Error::from)
}

impl Buffers {
    /// The current sizes of a socket.
    fn of(socket: &impl AsFd) -> io::Result<Self> {
        let receive = socket_recv_buffer_size(socket)? / 2;
        Ok(Self { receive, send: socket_send_buffer_size(socket)? / 2 })
    }

    /// The smaller of both sizes, per direction.
    fn least(self, other: Self) -> Self {
        Self { receive: self.receive.min(other.receive), send: self.send.min(other.send) }
    }

    /// The command to raise the limits if the kernel granted less than `wanted`.
    fn hint(&self, wanted: Self) -> Option<String> {
        let short = [
            ("net.core.rmem_max", self.receive, wanted.receive),
            ("net.core.wmem_max", self.send, wanted.send),
        ];
        let settings: Vec<String> = short
            .into_iter()
            .filter(|&(_, granted, wanted)| granted < wanted)
            .map(|(name, _, wanted)| format!("{name}={wanted}"))
            .collect();
        (!settings.is_empty()).then(|| format!("sysctl -w {}", settings.join(" ")))
    }

    /// Logs a warning if the sizes are smaller than `wanted`, once per process.
    fn warn(&self, wanted: Self) {
        if let Some(hint) = self.hint(wanted)
            && !WARNED.swap(true, Relaxed)
        {
            let Self { receive, send } = self;
            tracing::warn!(
                receive,
                send,
                "UDP sockets got smaller buffers than they need, fast transfers will lose packets: \
                 {hint}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_has_what_was_granted_and_at_least_what_it_had() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let before = Buffers::of(&socket).unwrap();
        let granted = raise(&socket, WANTED).unwrap();
        assert_eq!(granted, Buffers::of(&socket).unwrap());
        assert!(granted.receive >= before.receive.min(WANTED.receive), "{before:?} {granted:?}");
        assert!(granted.receive <= WANTED.receive && granted.send <= WANTED.send, "{granted:?}");
    }

    #[test]
    fn the_hint_is_the_command_that_helps() {
        assert_eq!(WANTED.hint(WANTED), None);
        let little = WANTED.least(Buffers { receive: 212_992, ..WANTED });
        assert_eq!(little.hint(WANTED).unwrap(), "sysctl -w net.core.rmem_max=4194304");
        let both = little.least(Buffers { send: 1, ..WANTED });
        assert_eq!(
            both.hint(WANTED).unwrap(),
            "sysctl -w net.core.rmem_max=4194304 net.core.wmem_max=4194304"
        );
    }
}
