//! The address of a listening socket: the key by which sockets are handed over and inherited.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, fstat};
use rustix::net::sockopt::{socket_acceptconn, socket_type};
use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix, SocketType, getsockname};

/// Where a socket listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A TCP listener.
    Tcp(SocketAddr),
    /// A UDP socket.
    Udp(SocketAddr),
    /// A listening Unix stream socket.
    Unix(SocketAddrUnix),
    /// A file, by device and inode: the lock of a directory.
    File(u64, u64),
    /// The visitor connection, over which the other process passes visitors.
    Visitors,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(at) => write!(f, "tcp://{at}"),
            Self::Udp(at) => write!(f, "udp://{at}"),
            Self::Unix(at) => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                match (at.path_bytes(), at.abstract_name()) {
                    (Some(path), _) => write!(f, "unix://{}", text(path)),
                    (None, Some(name)) => write!(f, "unix://@{}", text(name)),
                    (None, None) => write!(f, "unix://"),
                }
            }
            Self::File(device, inode) => write!(f, "file {inode} of device {device}"),
            Self::Visitors => write!(f, "connection"),
        }
    }
}

/// The listening address of a descriptor, or the identity of its file; `None`: neither.
pub(crate) fn place(socket: &OwnedFd) -> Option<Place> {
    if let Some(file) = fstat(socket).ok().filter(|file| is_regular(file.st_mode)) {
        return Some(Place::File(file.st_dev, file.st_ino));
    }
    let kind = socket_type(socket).ok()?;
    let address = getsockname(socket).ok()?;
    let listens = || socket_acceptconn(socket).is_ok_and(|listens| listens);
    if address.address_family() == AddressFamily::UNIX {
        if kind != SocketType::STREAM {
            return None;
        }
        let address = SocketAddrUnix::try_from(address).ok();
        return if listens() { address.map(Place::Unix) } else { Some(Place::Visitors) };
    }
    let address = ip(address)?;
    if kind == SocketType::STREAM {
        listens().then_some(Place::Tcp(address))
    } else {
        (kind == SocketType::DGRAM).then_some(Place::Udp(address))
    }
}

fn ip(address: SocketAddrAny) -> Option<SocketAddr> {
    SocketAddr::try_from(address).ok()
}

fn is_regular(mode: u32) -> bool {
    FileType::from_raw_mode(mode) == FileType::RegularFile
}
