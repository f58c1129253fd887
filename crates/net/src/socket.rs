//! TCP sockets that avoid unnecessary kernel work and system calls.
//!
//! Tokio clears the readiness of a socket when a call returns `WouldBlock`. With edge-triggered
//! epoll a short read or write means the same (epoll(7), question 9). This module then clears the
//! readiness, which saves one system call per request and one per response.
//!
//! The options of sockets are in [`crate::options`].

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use nix::libc;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::TcpMaxSeg;
use rustix::io::Errno;
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::{TcpSocket, TcpStream};

use crate::family::unreachable;
use crate::options::SocketOptions;
use crate::udp::local_address;

/// Converts an IPv4-mapped IPv6 address to IPv4. A dual-stack listener sees IPv4 peers as mapped
/// addresses (RFC 4291 section 2.5.5.2), and no other part of the program expects that form.
#[must_use]
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Creates a socket with these options that the caller connects to `address`.
pub fn dialling(address: SocketAddr, options: &SocketOptions) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv6() { TcpSocket::new_v6() } else { TcpSocket::new_v4() };
    let socket = socket.map_err(unreachable)?;
    never_pace_loopback(&socket, address);
    options.at_connect(&socket)?;
    Ok(socket)
}

/// Connects a socket of [`dialling`], which has these options.
///
/// # Errors
/// [`io::ErrorKind::AddrNotAvailable`]: this machine has no free local port, which does not concern
/// the peer. Others are those of connect(2).
pub async fn connect(
    socket: TcpSocket,
    address: SocketAddr,
    options: &SocketOptions,
) -> io::Result<TcpStream> {
    let from = |to| local_address(to, options);
    let explained = |error| options.told(explained(error, address, from));
    socket.connect(address).await.map_err(explained)
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

/// Makes a close of the socket a reset (RST), which drops the bytes that were not sent.
///
/// # Errors
/// A socket that rejects the option is broken.
pub fn reset_on_close(socket: &impl AsFd) -> io::Result<()> {
    SockRef::from(socket).set_linger(Some(Duration::ZERO))
}

/// Makes a close a clean end (FIN) again. When the call fails, the far end receives RST instead of
/// FIN, after all its bytes.
///
/// # Errors
/// A socket that rejects the option is broken.
pub fn end_on_close(socket: &impl AsFd) -> io::Result<()> {
    SockRef::from(socket).set_linger(None)
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
    use nix::sys::socket::getsockopt;

    use super::*;

    fn congestion(socket: &impl AsFd) -> String {
        let name = SockRef::from(socket).tcp_congestion().unwrap();
        String::from_utf8(name).unwrap().trim_end_matches('\0').to_owned()
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
            let Ok(socket) = dialling(address.parse().unwrap(), &SocketOptions::DEFAULT) else {
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
