//! The source addresses of connections. One address has about 28,000 ports towards one target, and
//! a closed connection keeps its port for a while. All of 127.0.0.0/8 is loopback, so that a target
//! there can be reached from many addresses.

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tokio::net::{TcpSocket, TcpStream};

use crate::options::{Usage, Words};

/// The values of an address's last byte without 0 and 255.
const SOURCES_MAX: usize = 254;

/// Connections from one address before the next address is used. Beyond about 14,000 connections,
/// half of the ports, the kernel checks all used ports before it finds a free port: 18,000
/// connections took 36 s from one address, and 7 s from four.
const PER_SOURCE: usize = 5000;

/// Connects to one target, from each source address in turn.
#[derive(Debug)]
pub struct Sources {
    target: SocketAddr,
    count: usize,
    next: Cell<usize>,
}

impl Sources {
    /// With one source, the kernel chooses the address.
    #[must_use]
    pub const fn new(target: SocketAddr, count: usize) -> Self {
        Self { target, count, next: Cell::new(0) }
    }

    /// A new connection without Nagle's delay.
    pub async fn connect(&self) -> io::Result<TcpStream> {
        let stream = match self.turn() {
            None => TcpStream::connect(self.target).await?,
            Some(source) => {
                let socket = TcpSocket::new_v4()?;
                // A port whose last connection has just ended may be used again.
                socket.set_reuseaddr(true)?;
                socket.bind((source, 0).into())?;
                socket.connect(self.target).await?
            }
        };
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn turn(&self) -> Option<Ipv4Addr> {
        if self.count == 1 {
            return None;
        }
        let turn = self.next.get() % self.count;
        self.next.set(turn + 1);
        let last = u8::try_from(turn + 1).unwrap_or(u8::MAX);
        Some(Ipv4Addr::new(127, 0, 1, last))
    }
}

/// `--sources N`: the default is 1; more sources need a target on an IPv4 loopback address.
pub fn option(words: &mut Words, target: SocketAddr) -> Result<usize, Usage> {
    read(words, target, 1)
}

/// As [`option`], for connections that stay open: the default is as many sources as the connections
/// need.
pub(crate) fn option_for(
    words: &mut Words,
    target: SocketAddr,
    connections: usize,
) -> Result<usize, Usage> {
    let count = connections.div_ceil(PER_SOURCE).min(SOURCES_MAX);
    read(words, target, if is_loopback(target) { count } else { 1 })
}

fn read(words: &mut Words, target: SocketAddr, default: usize) -> Result<usize, Usage> {
    let count = words.number("--sources", 1..=SOURCES_MAX, Some(default))?;
    if count > 1 && !is_loopback(target) {
        return Err(Usage(format!("--sources wants a target in 127.0.0.0/8, not {target}")));
    }
    Ok(count)
}

fn is_loopback(target: SocketAddr) -> bool {
    matches!(target.ip(), IpAddr::V4(ip) if ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_take_turns() {
        let sources = Sources::new(([127, 0, 0, 1], 1).into(), 2);
        let turns: Vec<_> = (0..3).map(|_| sources.turn().unwrap().octets()[3]).collect();
        assert_eq!(turns, [1, 2, 1]);
        assert_eq!(Sources::new(([127, 0, 0, 1], 1).into(), 1).turn(), None);
    }
}
