//! From which addresses connections are made. One address has about 28,000 ports towards one
//! target, and a closed connection keeps its port for a while; all of 127.0.0.0/8 is loopback, so
//! that a target there can be reached from many addresses.

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tokio::net::{TcpSocket, TcpStream};

use crate::options::{Usage, Words};

/// As many as the last byte of an address has without 0 and 255.
const SOURCES_MAX: usize = 254;

/// Connects to one target, from one address after the other.
#[derive(Debug)]
pub struct Sources {
    target: SocketAddr,
    count: usize,
    next: Cell<usize>,
}

impl Sources {
    /// With one the kernel chooses the address.
    #[must_use]
    pub const fn new(target: SocketAddr, count: usize) -> Self {
        Self { target, count, next: Cell::new(0) }
    }

    /// A connection without Nagle's delay.
    pub async fn connect(&self) -> io::Result<TcpStream> {
        let stream = match self.turn() {
            None => TcpStream::connect(self.target).await?,
            Some(source) => {
                let socket = TcpSocket::new_v4()?;
                // A port whose last connection has just ended may be taken again.
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

/// `--sources N`: 1 unless given; more only where the target is on an IPv4 loopback address.
pub fn option(words: &mut Words, target: SocketAddr) -> Result<usize, Usage> {
    let count = words.number("--sources", 1..=SOURCES_MAX, Some(1))?;
    let is_loopback = matches!(target.ip(), IpAddr::V4(ip) if ip.is_loopback());
    if count > 1 && !is_loopback {
        return Err(Usage(format!("--sources wants a target in 127.0.0.0/8, not {target}")));
    }
    Ok(count)
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
