//! Ports: free ports below the range that the kernel gives to outgoing connections, and a check for
//! listeners. The check reads `/proc`, so that it makes no connection.

use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use super::wait;

/// Below `ip_local_port_range` (32768 and up): an outgoing connection never uses such a port.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// `FIRST+COUNT`: the ports reserved for this process, if a runner starts processes in parallel.
const PORTS: &str = "TUNNEL_TEST_PORTS";

/// A port that no socket uses on any address.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let (first, count) = range();
    // A port that the last process of this range used may still have connections that are closing.
    let start = (std::process::id() % u32::from(count)) * 64;
    for _ in 0..count {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = first + ((start + u32::from(step)) % u32::from(count)) as u16;
        if is_free(port) {
            return port;
        }
    }
    panic!("no free port");
}

fn is_free(port: u16) -> bool {
    // A listener only at ::1 does not conflict with 0.0.0.0. A machine without IPv6 has no such
    // listener.
    let is_used_v6 = || {
        let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port));
        listener.is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
    };
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
        && UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
        && !is_used_v6()
}

fn range() -> (u16, u16) {
    let Ok(given) = std::env::var(PORTS) else { return (FIRST, COUNT) };
    let numbers = given.split_once('+').and_then(|(first, count)| {
        Some((first.parse().ok()?, count.parse().ok().filter(|count| *count > 0)?))
    });
    numbers.unwrap_or_else(|| panic!("{PORTS}: {given} is not FIRST+COUNT"))
}

/// Whether a TCP socket listens on this port, or any UDP socket is bound to it, on any address.
/// The network is that of the calling thread, which may have entered a namespace.
pub fn is_listening(port: u16) -> bool {
    ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"].iter().any(|table| {
        let Ok(table) = File::open(table) else { return false };
        let mut lines = BufReader::new(table).lines().skip(1).map_while(Result::ok);
        lines.any(|line| local_port(&line) == Some(port))
    }) || listens_by_tcp(port)
}

fn listens_by_tcp(port: u16) -> bool {
    ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"].iter().any(|table| {
        let Ok(table) = File::open(table) else { return false };
        let lines = BufReader::new(table).lines().skip(1).map_while(Result::ok);
        // The kernel shows listeners first. The rest may be both ends of 18,000 visitors, and
        // reading them takes seconds on a busy machine.
        lines.map_while(|line| listener(&line)).any(|listens_on| listens_on == port)
    })
}

/// The port of a line, if the line is about a listening socket.
fn listener(line: &str) -> Option<u16> {
    // 0A: TCP_LISTEN.
    (line.split_whitespace().nth(3)? == "0A").then(|| local_port(line))?
}

/// The local port of a line.
fn local_port(line: &str) -> Option<u16> {
    let (_, port) = line.split_whitespace().nth(1)?.rsplit_once(':')?;
    u16::from_str_radix(port, 16).ok()
}

/// Waits until a socket listens on this port.
pub fn wait_listening(port: u16, deadline: Duration) {
    wait(&format!("somebody listens on port {port}"), deadline, || {
        is_listening(port).then_some(())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_with_a_listener_at_the_loopback_of_ipv6_is_not_free() {
        let port = free_port();
        assert!(is_free(port));
        let Ok(listener) = TcpListener::bind((Ipv6Addr::LOCALHOST, port)) else { return };
        assert!(!is_free(port));
        drop(listener);
        assert!(is_free(port));
    }
}
