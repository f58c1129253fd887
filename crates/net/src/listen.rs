//! Groups of TCP listeners on one address, one listener per worker (`SO_REUSEPORT`). The kernel
//! distributes connections, so no worker has to pass a connection to another worker.
//!
//! An accept that fails because descriptors or memory ran out (`EMFILE`, `ENFILE`, `ENOBUFS`,
//! `ENOMEM`) leaves the connection in the queue and the socket readable. The caller must back off
//! after such an error, otherwise it spins.

use std::io;
use std::net::{SocketAddr, TcpListener};

use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};

use crate::options::SocketOptions;
use crate::socket::never_pace_loopback;
use crate::{bindable, handover, inherited};

/// The backlog of each listener, in connections; `somaxconn` limits it. After a restart thousands
/// of clients reconnect within seconds.
const BACKLOG: i32 = 4096;

/// Creates `count` non-blocking listeners on `address`, at least one. Port 0 selects one free port
/// for all of them. `[::]` also accepts IPv4, and only IPv4 if the kernel has no IPv6
/// ([`bindable`]).
///
/// The first listener binds and listens *without* `SO_REUSEPORT`. A port that another process holds
/// is therefore [`io::ErrorKind::AddrInUse`], even if the process belongs to the same user. Then
/// the first listener gets the option and the others join it. `SO_REUSEADDR` lets a restart bind
/// while old connections are in `TIME_WAIT`. A group of this address that the process has
/// [inherited] is used instead.
///
/// The listeners have the default options ([`SocketOptions::DEFAULT`]), which accepted connections
/// inherit.
pub fn listen_group(address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    listen_group_with(address, count, &SocketOptions::DEFAULT)
}

/// As [`listen_group`], with these options.
pub fn listen_group_with(
    address: SocketAddr,
    count: usize,
    options: &SocketOptions,
) -> io::Result<Vec<TcpListener>> {
    let group = bind_group(address, count, options)?;
    handover::note(&group);
    Ok(group)
}

fn bind_group(
    address: SocketAddr,
    count: usize,
    options: &SocketOptions,
) -> io::Result<Vec<TcpListener>> {
    let address = bindable(address)?;
    if let Some(group) = inherited::tcp(address, count)? {
        for one in &group {
            never_pace_loopback(one, address);
            options.at_bind(one, None)?;
        }
        return Ok(group);
    }
    let first = socket(address, options)?;
    first.bind(&address.into())?;
    first.listen(BACKLOG)?;
    if count < 2 {
        return Ok(vec![first.into()]);
    }
    first.set_reuse_port(true)?;
    let first = TcpListener::from(first);
    let bound = first.local_addr()?;
    let mut group = vec![first];
    for _ in 1..count {
        let next = socket(bound, options)?;
        next.set_reuse_port(true)?;
        next.bind(&bound.into())?;
        next.listen(BACKLOG)?;
        group.push(next.into());
    }
    Ok(group)
}

/// Whether an error of accept(2) concerns a connection that failed in the queue (section "Error
/// handling" there), so that the next accept may succeed at once. Any other error persists, for
/// example a lack of descriptors or memory: the caller must back off.
#[must_use]
pub fn died_in_queue(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(
            Errno::CONNABORTED
                | Errno::CONNRESET
                | Errno::INTR
                | Errno::PERM
                | Errno::PROTO
                | Errno::NOPROTOOPT
                | Errno::OPNOTSUPP
                | Errno::TIMEDOUT
                | Errno::NETDOWN
                | Errno::NETUNREACH
                | Errno::NONET
                | Errno::HOSTDOWN
                | Errno::HOSTUNREACH
        )
    )
}

fn socket(address: SocketAddr, options: &SocketOptions) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    never_pace_loopback(&socket, address);
    if let SocketAddr::V6(v6) = address {
        socket.set_only_v6(!v6.ip().is_unspecified())?;
    }
    // Accepted connections inherit the options, which saves calls for each of them.
    let socket = TcpListener::from(socket);
    options.at_bind(&socket, Some(&SocketOptions::UNSET))?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    fn local(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn a_group_shares_one_port() {
        let group = listen_group(local(0), 3).unwrap();
        let port = group[0].local_addr().unwrap().port();
        assert!(group.iter().all(|one| one.local_addr().unwrap().port() == port));
        TcpStream::connect(local(port)).unwrap();
    }

    #[test]
    fn a_port_taken_by_a_group_is_an_error() {
        let group = listen_group(local(0), 2).unwrap();
        let taken = group[0].local_addr().unwrap();
        for count in [1, 2] {
            let refused = listen_group(taken, count).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        }
    }

    #[test]
    fn the_unspecified_ipv6_address_takes_ipv4_too() {
        let Ok(group) = listen_group("[::]:0".parse().unwrap(), 2) else {
            return; // a machine without IPv6
        };
        TcpStream::connect(local(group[0].local_addr().unwrap().port())).unwrap();
    }
}
