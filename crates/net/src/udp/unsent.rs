//! Logs that the system refuses to send QUIC and KCP datagrams: at most one line per peer and
//! reason in each interval. The datagrams count as lost on the path, because routes, devices and
//! firewalls may change; without the line the user sees only a timeout.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;

/// The minimum interval between two equal lines.
const EVERY: Duration = Duration::from_secs(600);

/// The maximum number of remembered pairs of peer and reason. Additional pairs are not logged:
/// peers of a server choose their addresses, and must not flood the log.
const MOST: usize = 64;

/// The log state of the whole process, because each dial has its own socket.
static LOGGED: LazyLock<Mutex<Logged>> = LazyLock::new(Mutex::default);

/// Reports that the system did not send a datagram to `peer`. A datagram that was too large is not
/// logged: connections send such datagrams to discover the path MTU.
pub fn unsent(peer: SocketAddr, error: &io::Error) {
    let errno = Errno::from_io_error(error);
    if errno == Some(Errno::MSGSIZE) {
        return;
    }
    let ip = peer.ip().to_canonical();
    let reason = errno.map_or(0, Errno::raw_os_error);
    let is_news = {
        let mut logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
        logged.is_news((ip, reason), Instant::now())
    };
    if !is_news {
        return;
    }
    let (to, why) = (SocketAddr::new(ip, peer.port()), why(errno, ip));
    let reason = errno.map_or_else(|| error.to_string(), |errno| plain(&errno.to_string()));
    // Another address of the server may be reachable.
    if is_unreachable(errno) {
        tracing::info!(source = %ip, "datagrams to {to} are not sent: {why} ({reason})");
    } else {
        tracing::warn!(source = %ip, "datagrams to {to} are not sent: {why} ({reason})");
    }
}

/// The text of an error without its number.
fn plain(text: &str) -> String {
    text.split(" (os error").next().unwrap_or(text).to_lowercase()
}

fn is_unreachable(errno: Option<Errno>) -> bool {
    [Errno::NETUNREACH, Errno::HOSTUNREACH, Errno::AFNOSUPPORT].map(Some).contains(&errno)
}

/// The reason in plain words.
fn why(errno: Option<Errno>, ip: IpAddr) -> &'static str {
    match errno {
        Some(Errno::NETUNREACH | Errno::AFNOSUPPORT) if ip.is_ipv6() => {
            "this machine has no route to this IPv6 address"
        }
        Some(Errno::NETUNREACH | Errno::AFNOSUPPORT) => "this machine has no route to this address",
        Some(Errno::HOSTUNREACH) => "the network finds no host at this address",
        Some(Errno::PERM | Errno::ACCESS) => {
            "a firewall or another rule of this machine forbids it"
        }
        Some(Errno::NOBUFS | Errno::NOMEM) => "the queue of the network device is full",
        Some(Errno::NETDOWN | Errno::NODEV | Errno::NXIO) => "the network device is down",
        Some(Errno::ADDRNOTAVAIL) => "this machine has lost the address that it sent from",
        _ => "the system refuses them",
    }
}

/// The time of the last line for each pair of peer and reason.
#[derive(Debug, Default)]
struct Logged(HashMap<(IpAddr, i32), Instant>);

impl Logged {
    fn is_news(&mut self, what: (IpAddr, i32), now: Instant) -> bool {
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < EVERY;
        if self.0.get(&what).is_some_and(is_recent) {
            return false;
        }
        if self.0.len() >= MOST {
            self.0.retain(|_, at| is_recent(at));
        }
        let is_news = self.0.len() < MOST || self.0.contains_key(&what);
        if is_news {
            self.0.insert(what, now);
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn ip(n: usize) -> IpAddr {
        Ipv4Addr::from(u32::try_from(n).unwrap()).into()
    }

    #[test]
    fn a_reason_is_told_once_in_a_while_per_peer_and_peers_cannot_fill_the_log() {
        let (mut logged, start) = (Logged::default(), Instant::now());
        assert!(logged.is_news((ip(0), 101), start));
        let after = start + EVERY - Duration::from_millis(1);
        assert!((0..1000).all(|_| !logged.is_news((ip(0), 101), after)));
        assert!(logged.is_news((ip(0), 1), after), "another reason");
        assert!(logged.is_news((ip(0), 101), start + EVERY));
        let lines = (1..1000).filter(|n| logged.is_news((ip(*n), 101), start + EVERY)).count();
        assert_eq!(lines, MOST - 2);
        assert_eq!(logged.0.len(), MOST);
        let later = start + EVERY * 3;
        assert!(logged.is_news((ip(1000), 101), later));
        assert_eq!(logged.0.len(), 1);
    }

    #[test]
    fn each_reason_has_words() {
        let of = |errno: Errno, ip: &str| {
            (why(Some(errno), ip.parse().unwrap()), plain(&errno.to_string()))
        };
        let (why, text) = of(Errno::NETUNREACH, "2001:db8::1");
        assert!(why.contains("no route to this IPv6 address"));
        assert_eq!(text, "network is unreachable");
        assert!(of(Errno::PERM, "192.0.2.1").0.contains("firewall"));
        assert!(of(Errno::NOBUFS, "192.0.2.1").0.contains("queue"));
        assert!(of(Errno::HOSTUNREACH, "192.0.2.1").0.contains("no host"));
        assert!(of(Errno::IO, "192.0.2.1").0.contains("refuses"));
    }
}
