//! How many bytes may wait in a UDP socket. What does not fit is lost, and every loss costs a
//! connection some of its rate.

use std::io;
use std::net::UdpSocket;
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

/// What to ask for in each direction: 1 Gbit/s for the 30 ms that a busy worker may be away. Memory
/// is used only while something waits there.
pub const WANTED: Buffers = Buffers { receive: 4 << 20, send: 4 << 20 };

/// What the kernel grants a socket, bytes of payload. (It counts what it needs to keep them as well,
/// and doubles a request for that.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// That have arrived.
    pub receive: usize,
    /// That are to leave.
    pub send: usize,
}

/// The least that any socket of this process was granted: what the system allows is the same for all.
static LEAST: Mutex<Option<Buffers>> = Mutex::new(None);

/// It is told once.
static TOLD: AtomicBool = AtomicBool::new(false);

/// What the sockets of this process were granted at least, once [`raise`] was called.
pub fn granted() -> Option<Buffers> {
    *LEAST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks for `wanted`: beyond the limits of the system where this process may (`CAP_NET_ADMIN`), else
/// up to them. Returns what was granted; if that is less it is told once, with the setting to change.
pub fn raise(socket: &UdpSocket, wanted: Buffers) -> io::Result<Buffers> {
    if set_socket_recv_buffer_size_force(socket, wanted.receive).is_err() {
        set_socket_recv_buffer_size(socket, wanted.receive)?;
    }
    if set_socket_send_buffer_size_force(socket, wanted.send).is_err() {
        set_socket_send_buffer_size(socket, wanted.send)?;
    }
    let granted = Buffers::of(socket)?;
    let mut least = LEAST.lock().unwrap_or_else(PoisonError::into_inner);
    *least = Some(least.map_or(granted, |least| least.least(granted)));
    drop(least);
    granted.warn(wanted);
    Ok(granted)
}

/// A socket that only is there, see [`keep_joining`].
static JOINS: OnceLock<Option<Socket>> = OnceLock::new();

/// Lets this process have one socket that takes joined datagrams (UDP_GRO, udp(7)), from now on: with
/// the first of the machine and when the last is closed the kernel patches its code and stops all
/// cores for it. quinn makes and closes one for each endpoint to see whether there is such a thing; on
/// two busy shared cores that was 80 % of a client's time in 2,000 dials.
pub fn keep_joining() {
    JOINS.get_or_init(|| {
        // One of IPv6 counts for both. It is bound to no port and gets nothing.
        let socket = Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP));
        let socket =
            socket.or_else(|_| Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)));
        let socket = socket.ok()?;
        setsockopt(&socket, UdpGroSegment, &true).ok()?;
        Some(socket)
    });
}

/// The kernel joins no datagrams any more that arrive at this socket (UDP_GRO, udp(7)).
pub fn take_one_by_one(socket: &UdpSocket) -> io::Result<()> {
    setsockopt(socket, UdpGroSegment, &false).map_err(io::Error::from)
}

impl Buffers {
    /// Those that a socket has now.
    fn of(socket: &UdpSocket) -> io::Result<Self> {
        let receive = socket_recv_buffer_size(socket)? / 2;
        Ok(Self { receive, send: socket_send_buffer_size(socket)? / 2 })
    }

    /// The smaller of both, of each direction.
    fn least(self, other: Self) -> Self {
        Self { receive: self.receive.min(other.receive), send: self.send.min(other.send) }
    }

    /// What to do when less was granted than `wanted`.
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

    /// Says so, once in a process.
    fn warn(&self, wanted: Self) {
        if let Some(hint) = self.hint(wanted)
            && !TOLD.swap(true, Relaxed)
        {
            let Self { receive, send } = self;
            tracing::warn!(
                receive,
                send,
                "UDP sockets got smaller buffers than they need, fast transfers will lose packets: {hint}"
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
