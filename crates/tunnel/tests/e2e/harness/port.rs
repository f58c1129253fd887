//! Ports: free ones below the range the kernel gives to outgoing connections, and who listens,
//! read from `/proc` so that asking does not connect.

use std::fs;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use super::wait;

/// Below `ip_local_port_range` (32768 and up): an outgoing connection never takes one of these.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// A port nobody uses on any address.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Two runs at a time start at different places.
    let start = u16::try_from(std::process::id() % u32::from(COUNT / 64)).unwrap() * 64;
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + (u32::from(start) + u32::from(step)).rem_euclid(COUNT.into()) as u16;
        if TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port");
}

/// Whether a socket listens on this port, on any address.
pub(crate) fn is_listening(port: u16) -> bool {
    let listens = |line: &str| {
        let mut columns = line.split_whitespace().skip(1);
        let local = columns.next().and_then(|address| address.rsplit_once(':'));
        let state = columns.nth(1);
        // 0A: TCP_LISTEN.
        state == Some("0A")
            && local.is_some_and(|(_, hex)| u16::from_str_radix(hex, 16) == Ok(port))
    };
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .any(|table| fs::read_to_string(table).is_ok_and(|text| text.lines().any(listens)))
}

/// Waits until somebody listens on this port.
pub(crate) fn wait_listening(port: u16, deadline: Duration) {
    wait(&format!("somebody listens on port {port}"), deadline, || {
        is_listening(port).then_some(())
    });
}
