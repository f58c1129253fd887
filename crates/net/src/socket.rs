//! TCP sockets that avoid unnecessary kernel work and system calls.
//!
//! Tokio clears the readiness of a socket when a call returns `WouldBlock`. With edge-triggered
//! epoll a short read or write means the same (epoll(7), question 9). This module then clears the
//! readiness, which saves one system call per request and one per response.
//!
//! Each TCP socket of the daemon has keepalive ([`keep_alive`]): a visitor or a target that
//! vanishes sends no FIN, and without probes an idle socket stays open forever.

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

/// Converts an IPv4-mapped IPv6 address to IPv4. A dual-stack listener sees IPv4 peers as mapped
/// addresses (RFC 4291 section 2.5.5.2), and no other part of the program expects that form.
#[must_use]
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The idle time after which the system probes the far end of a connection. Including the probes it
/// takes 4 min to detect that the far end has vanished: within the promised 5 min, and below the 5
/// min after which many NATs drop an idle connection.
pub const KEEPALIVE: Duration = Duration::from_secs(120);

/// The number of unanswered probes after which the system ends the connection, and their interval.
/// A path interruption of less than 2 min breaks no connection.
const PROBES: u32 = 8;
const PROBE_INTERVAL: Duration = Duration::from_secs(15);

/// Enables keepalive probes after the idle time `idle`, in whole seconds from 1 to 32,767 (tcp(7),
/// `TCP_KEEPIDLE`). Zero disables the probes. Accepted connections inherit the setting of the
/// listener.
///
/// `TCP_USER_TIMEOUT` is no substitute: it resets a far end that is alive but does not read.
pub fn keep_alive(socket: &impl AsFd, idle: Duration) -> io::Result<()> {
    let socket = SockRef::from(socket);
    if idle.is_zero() {
        return socket.set_keepalive(false);
    }
    let probes = TcpKeepalive::new().with_time(idle).with_interval(PROBE_INTERVAL);
    socket.set_tcp_keepalive(&probes.with_retries(PROBES))
}

/// Creates a socket that the caller connects to `address`. The socket has [`KEEPALIVE`].
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
/// [`io::ErrorKind::AddrNotAvailable`]: this machine has no free local port, which does not concern
/// the peer. Others are those of connect(2).
pub async fn connect(socket: TcpSocket, address: SocketAddr) -> io::Result<TcpStream> {
    socket.connect(address).await.map_err(|error| explained(error, address, local_address))
}

/// Distinguishes a lack of ports from a machine without an address of the family, for which the
/// system has the same error. UDP has separate ports, so a UDP socket shows whether there is an
/// address.
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

/// If the system's congestion control is BBR, a socket of a loopback address gets Reno, which every
/// process may choose (tcp(7), `tcp_allowed_congestion_control`). BBR finds the bottleneck of a
/// path by pacing its packets; a path within the machine has none, and the timers cost a tenth of
/// the daemons' CPU time (`benches/README.md`). Must be called before the socket connects or
/// listens, because pacing cannot be stopped later. Accepted connections inherit it.
pub(crate) fn never_pace_loopback(socket: &impl AsFd, address: SocketAddr) {
    if !address.ip().to_canonical().is_loopback() {
        return;
    }
    let socket = SockRef::from(socket);
    if socket.tcp_congestion().is_ok_and(|name| name.starts_with(b"bbr")) {
        // Failure is harmless, apart from the cost above.
        let _ = socket.set_tcp_congestion(b"reno");
    }
}

/// The limit of unsent bytes that the kernel buffers for a stream beyond the far end's window.
/// Without a limit it buffers 2.5 to 4 MB for a visitor or target that does not read, and 400 of
/// them push the machine into TCP memory pressure, in which every connection is slow: a concurrent
/// download of 200 MB took 60 to 100 s instead of 0.4 s.
///
/// Bytes in flight do not count, so the limit does not slow long paths. It costs a wake-up per half
/// of the limit while the far end reads more slowly than bytes arrive, so a stream that has moved
/// bytes gets the higher limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// 64 KiB, the largest loopback segment: for a stream that has not been seen to be read.
    Narrow,
    /// 384 KiB, for a stream in progress: a higher limit saves no time (decision 0076).
    Wide,
}

/// Limits the bytes that the kernel buffers for a stalled visitor or target; see [`Unsent`].
pub fn bound_unsent(socket: &impl AsFd, unsent: Unsent) {
    let bytes = match unsent {
        Unsent::Narrow => 64 << 10,
        Unsent::Wide => 384 << 10,
    };
    // Failure is harmless, apart from the cost above.
    let _ = SockRef::from(socket).set_tcp_notsent_lowat(bytes);
}

/// The maximum segment size of the far end if segments are limited. Linux gives a new socket a send
/// buffer of 20 segments of its peer's maximum size, whatever the peer reads: 2.6 MB at the 65,483
/// bytes of loopback, and programs on this machine that send to a stalled stream fill it
/// completely. With segments that fit into 32 KiB including the kernel's headroom, the buffer is
/// 0.65 MB. Paths that leave the machine have smaller segments anyway.
const SEGMENT: u32 = 32_000;

/// Sets or removes the limit of bytes that programs on this machine buffer in the kernel for a
/// stalled stream: see `SEGMENT`. With the limit a bulk stream over loopback costs a quarter more
/// CPU time. Effective only before the socket connects; connections that a listener accepts
/// afterwards inherit it.
pub fn bound_segments(socket: &impl AsFd, is_bounded: bool) {
    // Failure is harmless, apart from the cost above. Zero means no limit.
    let _ = setsockopt(socket, TcpMaxSeg, &if is_bounded { SEGMENT } else { 0 });
}

/// The receive buffer of a visitor or target whose bytes have not been accepted by the far side
/// yet: the default size of a new socket, but fixed. Without this limit the buffer of an unread
/// socket grows to several MiB, and a few hundred of them exhaust the TCP memory of the system. The
/// kernel doubles the value (socket(7)).
const UNREAD: usize = 128 << 10;

/// The option for the buffers that the kernel must not resize, since Linux 5.14.
const SO_BUF_LOCK: libc::c_int = 72;

/// The buffers of a socket with a fixed size: 1 is the send buffer, 2 the receive buffer.
#[derive(Clone, Copy, Debug)]
struct BufferLock;

setsockopt_impl!(BufferLock, libc::SOL_SOCKET, SO_BUF_LOCK, u32, SetStruct<'_, u32>);
getsockopt_impl!(BufferLock, libc::SOL_SOCKET, SO_BUF_LOCK, u32, GetStruct<u32>);

/// Keeps the receive buffer of a socket small until [`free_unread`]. No effect on a kernel that
/// could not undo it later.
pub fn bound_unread(socket: &impl AsFd) {
    static CAN_FREE: OnceLock<bool> = OnceLock::new();
    if *CAN_FREE.get_or_init(|| getsockopt(socket, BufferLock).is_ok()) {
        let _ = SockRef::from(socket).set_recv_buffer_size(UNREAD);
    }
}

/// Re-enables the auto-tuning of a socket's receive buffer.
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

/// As [`write()`], if more bytes follow: the kernel may wait for them to fill a segment (send(2),
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
    // The readiness is read before the call, so an event during the call is not lost.
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

    /// The idle time before the first probe, the interval and the number of probes, as set in the
    /// kernel; `None` without keepalive.
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
