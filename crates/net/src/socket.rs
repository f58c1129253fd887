//! TCP sockets without unnecessary work in the kernel and without unnecessary system calls.
//!
//! Tokio clears the readiness of a socket when a call returns `WouldBlock`. With edge-triggered
//! epoll a short read or write means the same (epoll(7), question 9). This module clears the
//! readiness then, which saves one system call per request and one per answer.
//!
//! Each TCP socket of the daemon has keepalive ([`keep_alive`]): a visitor or a target that
//! vanishes sends no FIN, and without probes an idle socket stays open for ever.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use nix::sys::socket::sockopt::{GetStruct, SetStruct, TcpMaxSeg};
use nix::sys::socket::{getsockopt, setsockopt};
use nix::{getsockopt_impl, libc, setsockopt_impl};
use rustix::io::Errno;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::Interest;
use tokio::net::{TcpSocket, TcpStream};

use crate::family::unreachable;
use crate::udp::local_address;

/// Converts an IPv4-mapped IPv6 address to IPv4. A listener of both families sees IPv4 peers as
/// mapped addresses (RFC 4291 section 2.5.5.2), and no other part of the program expects that form.
#[must_use]
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The silence after which the system probes the far end of a connection. Together with the probes
/// it is 4 min until a far end that vanished is noticed: within the 5 min that are promised, and
/// below the 5 min after which many NATs forget an idle connection.
pub const KEEPALIVE: Duration = Duration::from_secs(120);

/// Unanswered probes until the system ends the connection, and the time between two of them. A path
/// that is interrupted for less than 2 min costs no connection.
const PROBES: u32 = 8;
const PROBE_INTERVAL: Duration = Duration::from_secs(15);

/// Lets the system probe the far end of a connection after `idle` without a byte, in whole seconds
/// from 1 to 32,767 (tcp(7), `TCP_KEEPIDLE`). Zero switches the probes off. The connections that a
/// listener accepts inherit the setting of the listener.
///
/// `TCP_USER_TIMEOUT` is no substitute: it resets a far end that is alive and merely does not read.
pub fn keep_alive(socket: &impl AsFd, idle: Duration) -> io::Result<()> {
    let socket = SockRef::from(socket);
    if idle.is_zero() {
        return socket.set_keepalive(false);
    }
    let probes = TcpKeepalive::new().with_time(idle).with_interval(PROBE_INTERVAL);
    socket.set_tcp_keepalive(&probes.with_retries(PROBES))
}

/// Makes a socket that the caller connects to `address`. The socket has [`KEEPALIVE`].
pub fn dialling(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv6() { TcpSocket::new_v6() } else { TcpSocket::new_v4() };
    let socket = socket.map_err(unreachable)?;
    never_pace_loopback(&socket, address);
    keep_alive(&socket, KEEPALIVE)?;
    Ok(socket)
}

/// Connects a socket of [`dialling`].
///
/// # Errors
/// [`io::ErrorKind::AddrNotAvailable`]: this machine has no free local port, which says nothing of
/// the peer. Others are those of connect(2).
pub async fn connect(socket: TcpSocket, address: SocketAddr) -> io::Result<TcpStream> {
    socket.connect(address).await.map_err(|error| explained(error, address, local_address))
}

/// The system has one error for a lack of ports and for a machine without an address of the family.
/// UDP has other ports, so a socket of UDP tells whether there is an address.
fn explained(
    error: io::Error,
    address: SocketAddr,
    local_address: impl FnOnce(SocketAddr) -> io::Result<IpAddr>,
) -> io::Error {
    if Errno::from_io_error(&error) != Some(Errno::ADDRNOTAVAIL) {
        return error;
    }
    match local_address(address) {
        Ok(_) => io::Error::new(
            io::ErrorKind::AddrNotAvailable,
            "this machine has no free local port (net.ipv4.ip_local_port_range)",
        ),
        Err(_) => io::Error::new(
            io::ErrorKind::NetworkUnreachable,
            "this machine has no address from which a way leads there",
        ),
    }
}

/// Where the system's congestion control is BBR, a socket of a loopback address gets Reno, which
/// every process may choose (tcp(7), `tcp_allowed_congestion_control`). BBR finds the bottleneck of
/// a path by pacing its packets; a path that does not leave the machine has none, and the timers
/// cost a tenth of the daemons' processor time (`benches/README.md`). To be called before the
/// socket connects or listens: pacing that has begun goes on. What it accepts inherits it.
pub(crate) fn never_pace_loopback(socket: &impl AsFd, address: SocketAddr) {
    if !address.ip().to_canonical().is_loopback() {
        return;
    }
    let socket = SockRef::from(socket);
    if socket.tcp_congestion().is_ok_and(|name| name.starts_with(b"bbr")) {
        // Without it everything works, at the price above.
        let _ = socket.set_tcp_congestion(b"reno");
    }
}

/// The bytes that the system takes of a stream beyond what the far end's window holds. Without a
/// bound it takes 2.5 to 4 MB of a visitor or target that does not read, and 400 of them push the
/// machine into TCP memory pressure, in which every connection crawls: a fetch of 200 MB beside
/// them took 60 to 100 s in place of 0.4 s.
///
/// Bytes in flight do not count, so the bound slows no long path. It costs a wake-up for each half
/// of it while the far end takes bytes more slowly than they come, so a stream that has moved bytes
/// gets the wider one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// 64 KiB, the largest segment of loopback: of a stream that has not shown that it is read.
    Narrow,
    /// 384 KiB, of a stream that moves: more costs no less time (decision 0076).
    Wide,
}

/// Bounds what the system keeps for a visitor or target that stalls; see [`Unsent`].
pub fn bound_unsent(socket: &impl AsFd, unsent: Unsent) {
    let bytes = match unsent {
        Unsent::Narrow => 64 << 10,
        Unsent::Wide => 384 << 10,
    };
    // Without it everything works, at the price above.
    let _ = SockRef::from(socket).set_tcp_notsent_lowat(bytes);
}

/// The largest segment that the far end of a socket may send where segments are bounded. Linux
/// gives a new socket a send buffer of 20 of the segments that its peer accepts, whatever the peer
/// reads: 2.6 MB at the 65,483 bytes of loopback, and programs on this machine that send to a
/// stalled stream fill all of them. With segments that fit 32 KiB together with the head room of
/// the kernel the buffer is 0.65 MB. Paths that leave the machine have smaller segments anyway.
const SEGMENT: u32 = 32_000;

/// Bounds, or bounds no longer, what programs on this machine keep in the kernel while they send to
/// a stream that stalls: see `SEGMENT`. A bulk stream over loopback costs a quarter more processor
/// time with the bound. The call has an effect before the socket connects; connections that a
/// listener accepts afterwards inherit it.
pub fn bound_segments(socket: &impl AsFd, is_bounded: bool) {
    // Without it everything works, at the price above. Zero is no bound.
    let _ = setsockopt(socket, TcpMaxSeg, &if is_bounded { SEGMENT } else { 0 });
}

/// The receive buffer of a visitor or target whose bytes have not been taken by the far side yet:
/// the size that the system gives a new socket anyway, but it does not grow. Without this bound an
/// unread socket grows to several MiB, and a few hundred of them use up the memory that the system
/// has for TCP. The system doubles the value (socket(7)).
const UNREAD: usize = 128 << 10;

/// The option that tells which buffers the system may not resize, of Linux 5.14 and later.
const SO_BUF_LOCK: libc::c_int = 72;

/// The buffers of a socket that keep their size: 1 is the send buffer, 2 the receive buffer.
#[derive(Clone, Copy, Debug)]
struct BufferLock;

setsockopt_impl!(BufferLock, libc::SOL_SOCKET, SO_BUF_LOCK, u32, SetStruct<'_, u32>);
getsockopt_impl!(BufferLock, libc::SOL_SOCKET, SO_BUF_LOCK, u32, GetStruct<u32>);

/// Keeps the receive buffer of a socket small until [`free_unread`]. A system that could not free
/// it later is left alone.
pub fn bound_unread(socket: &impl AsFd) {
    static CAN_FREE: OnceLock<bool> = OnceLock::new();
    if *CAN_FREE.get_or_init(|| getsockopt(socket, BufferLock).is_ok()) {
        let _ = SockRef::from(socket).set_recv_buffer_size(UNREAD);
    }
}

/// Lets the system size the receive buffer of a socket by the speed of its path again.
pub fn free_unread(socket: &impl AsFd) {
    let _ = setsockopt(socket, BufferLock, &0);
}

/// Reads at most `limit` bytes into the spare capacity of `buf`. `None` means that no byte has
/// arrived, `Some(0)` that the stream has ended.
pub fn read(stream: &TcpStream, buf: &mut BytesMut, limit: usize) -> io::Result<Option<usize>> {
    let wanted = limit.min(buf.spare_capacity_mut().len());
    transfer(stream, Interest::READABLE, wanted, || stream.try_read_buf(&mut buf.limit(wanted)))
}

/// Writes `slices`, `total` bytes, with one call. `None` means that the socket is full.
pub fn write(
    stream: &TcpStream,
    slices: &[io::IoSlice<'_>],
    total: usize,
) -> io::Result<Option<usize>> {
    transfer(stream, Interest::WRITABLE, total, || match slices {
        [one] => stream.try_write(one),
        many => stream.try_write_vectored(many),
    })
}

/// As [`write()`], before further bytes: the system may wait for them to fill a segment (send(2),
/// `MSG_MORE`).
pub fn write_more(
    stream: &TcpStream,
    slices: &[io::IoSlice<'_>],
    total: usize,
) -> io::Result<Option<usize>> {
    transfer(stream, Interest::WRITABLE, total, || {
        let flags = libc::MSG_MORE | libc::MSG_NOSIGNAL;
        SockRef::from(stream).send_vectored_with_flags(slices, flags)
    })
}

fn transfer(
    stream: &TcpStream,
    interest: Interest,
    wanted: usize,
    call: impl FnOnce() -> io::Result<usize>,
) -> io::Result<Option<usize>> {
    let mut done = None;
    // The readiness is taken before the call: an event that arrives during it is kept.
    let outcome = stream.try_io(interest, || {
        let n = call()?;
        done = Some(n);
        if n < wanted && n > 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
    });
    match outcome {
        Err(e) if e.kind() != io::ErrorKind::WouldBlock => Err(e),
        Ok(()) | Err(_) => Ok(done),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn congestion(socket: &impl AsFd) -> String {
        let name = SockRef::from(socket).tcp_congestion().unwrap();
        String::from_utf8(name).unwrap().trim_end_matches('\0').to_owned()
    }

    /// The silence until the first probe, the interval and the number of probes, as the system has
    /// them; `None` without keepalive.
    fn probes(socket: &impl AsFd) -> Option<(u64, u64, u32)> {
        let socket = SockRef::from(socket);
        socket.keepalive().unwrap().then(|| {
            let seconds = |time: io::Result<Duration>| time.unwrap().as_secs();
            let times =
                (seconds(socket.tcp_keepalive_time()), seconds(socket.tcp_keepalive_interval()));
            (times.0, times.1, socket.tcp_keepalive_retries().unwrap())
        })
    }

    #[test]
    fn a_receive_buffer_keeps_its_size_until_it_is_freed() {
        let socket = TcpSocket::new_v4().unwrap();
        let lock = || getsockopt(&socket, BufferLock).unwrap();
        assert_eq!(lock(), 0);
        bound_unread(&socket);
        assert_eq!((lock(), SockRef::from(&socket).recv_buffer_size().unwrap()), (2, 2 * UNREAD));
        free_unread(&socket);
        assert_eq!(lock(), 0);
    }

    #[test]
    fn bounded_segments_bound_the_far_end_of_later_connections() {
        let group = crate::listen_group("127.0.0.1:0".parse().unwrap(), 1).unwrap();
        let address = group[0].local_addr().unwrap();
        let segment = || {
            let visitor = std::net::TcpStream::connect(address).unwrap();
            getsockopt(&visitor, TcpMaxSeg).unwrap()
        };
        let without = segment();
        bound_segments(&group[0], true);
        assert!(segment() <= SEGMENT && without > SEGMENT, "{without} without a bound");
        bound_segments(&group[0], false);
        assert_eq!(segment(), without);
    }

    #[test]
    fn what_is_dialled_and_what_a_listener_accepts_is_probed() {
        let dialled = dialling("127.0.0.1:1".parse().unwrap()).unwrap();
        assert_eq!(probes(&dialled), Some((120, 15, 8)));
        let group = crate::listen_group("127.0.0.1:0".parse().unwrap(), 2).unwrap();
        for listener in group {
            let _visitor = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            // Either listener of the group may have the connection.
            let Ok((accepted, _)) = listener.accept() else { continue };
            assert_eq!(probes(&accepted), Some((120, 15, 8)));
            keep_alive(&accepted, Duration::from_secs(30)).unwrap();
            assert_eq!(probes(&accepted), Some((30, 15, 8)));
            keep_alive(&accepted, Duration::ZERO).unwrap();
            assert_eq!(probes(&accepted), None);
            return;
        }
        panic!("nothing was accepted");
    }

    #[test]
    fn a_machine_without_free_ports_is_no_unreachable_peer() {
        let peer = "192.0.2.1:80".parse().unwrap();
        let of = |errno: Errno, way: fn(SocketAddr) -> io::Result<IpAddr>| {
            explained(errno.into(), peer, way).kind()
        };
        let (there, absent) = (
            (|_| Ok(IpAddr::from([192, 0, 2, 7]))) as fn(SocketAddr) -> io::Result<IpAddr>,
            (|_| Err(Errno::ADDRNOTAVAIL.into())) as fn(SocketAddr) -> io::Result<IpAddr>,
        );
        assert_eq!(of(Errno::ADDRNOTAVAIL, there), io::ErrorKind::AddrNotAvailable);
        assert_eq!(of(Errno::ADDRNOTAVAIL, absent), io::ErrorKind::NetworkUnreachable);
        assert_eq!(of(Errno::CONNREFUSED, there), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn only_what_stays_on_the_machine_is_never_paced() {
        let systems = congestion(&TcpSocket::new_v4().unwrap());
        let expected = if systems.starts_with("bbr") { "reno" } else { &systems };
        for (address, wanted) in [
            ("127.0.0.1:0", expected),
            ("[::ffff:127.0.0.1]:0", expected),
            ("192.0.2.1:0", &systems),
            ("0.0.0.0:0", &systems),
        ] {
            let Ok(socket) = dialling(address.parse().unwrap()) else {
                continue; // a machine without IPv6
            };
            assert_eq!(congestion(&socket), *wanted, "{address}");
        }
        let listener = crate::listen_group("127.0.0.1:0".parse().unwrap(), 1).unwrap().remove(0);
        let _visitor = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        listener.set_nonblocking(false).unwrap();
        assert_eq!(congestion(&listener.accept().unwrap().0), expected);
    }
}
