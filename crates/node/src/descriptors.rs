//! The limit of open descriptors, and its shares. Every visitor takes one descriptor here and one
//! at the other end.

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError, Weak};

use arc_swap::ArcSwap;
use config::Net;
use ops::status;
use relay::shares::{Kind, Table};
use relay::{Holder, Room};
use rustix::process::{Resource, getrlimit, setrlimit};

/// The reserve is the part of the limit that visitors and targets leave to links, commands, name
/// resolution and files: the limit divided by `RESERVE_PART`, within the two bounds. A connection
/// attempt to the server, a few commands and name lookups take a dozen descriptors. To a large
/// server that restarts, a thousand clients reconnect while its old visitors are still connected.
const RESERVE_PART: u64 = 16;
const RESERVE_MIN: u64 = 32;
const RESERVE_MAX: u64 = 1024;

/// Room for fewer visitors than this is logged at startup, because one or two browsers use as many
/// connections.
const FEW: u64 = 256;

/// Raises the soft limit to the hard limit. The soft default of 1,024 is for programs that use
/// `select`, and this program does not. Returns the limit now in force; `None` is unlimited.
pub fn raise_limit() -> Option<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let before = limit.current;
        limit.current = limit.maximum;
        if let Err(e) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(error = %e, limit = before, "the limit of open files cannot be raised: {e}");
            return before;
        }
    }
    limit.current
}

/// The number of descriptors reserved for links, commands, name resolution and files.
pub fn kept() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    usize::try_from(limit.map_or(RESERVE_MAX, reserve)).unwrap_or(usize::MAX)
}

/// The descriptor numbers that sockets of visitors and targets may have.
pub fn room() -> Room {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return Room::default() };
    let number = |n| u32::try_from(n).unwrap_or(u32::MAX);
    Room::below(number(ceiling(limit)), number(wall(limit)))
}

/// The descriptors that clients, services and sources share. All roles of the process have one
/// table.
pub fn table() -> &'static Arc<Table> {
    static TABLE: OnceLock<Arc<Table>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let limit = getrlimit(Resource::Nofile).current;
        Table::new(limit.map_or(u32::MAX, |n| u32::try_from(ceiling(n)).unwrap_or(u32::MAX)))
    })
}

/// The shares of the services of a client process, by name.
#[derive(Debug, Default)]
pub struct Holders(Mutex<HashMap<String, Weak<Holder>>>);

impl Holders {
    /// The share of a service, common to all workers.
    pub fn of(&self, service: &str) -> Arc<Holder> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(holder) = known.get(service).and_then(Weak::upgrade) {
            return holder;
        }
        known.retain(|_, holder| holder.strong_count() > 0);
        let holder = Holder::new(table(), Kind::Own);
        known.insert(service.to_owned(), Arc::downgrade(&holder));
        holder
    }
}

/// The reverse proxies that the server trusts.
static TRUSTED: LazyLock<ArcSwap<Vec<Net>>> = LazyLock::new(ArcSwap::default);

/// Sets the trusted reverse proxies, which do not count as sources.
pub fn trust(proxies: &[Net]) {
    TRUSTED.store(Arc::new(proxies.to_vec()));
}

/// Whether the server trusts the reverse proxy at this address.
pub fn is_trusted(ip: IpAddr) -> bool {
    TRUSTED.load().iter().any(|net| net.contains(ip))
}

/// The source to whose share of the descriptors a connection from `peer` counts. `None` is not
/// limited: a Unix socket, a trusted reverse proxy, and 127.0.0.1 or ::1, from which an
/// unconfigured reverse proxy on this machine connects.
pub fn source(peer: Option<SocketAddr>) -> Option<IpAddr> {
    let ip = peer?.ip().to_canonical();
    let is_here = ip == Ipv4Addr::LOCALHOST || ip == Ipv6Addr::LOCALHOST;
    let is_source = !is_here && !TRUSTED.load().iter().any(|net| net.contains(ip));
    is_source.then_some(ip)
}

/// The number of descriptors that the listeners of published ports may use: half of the part for
/// visitors and targets, because a port is useless without visitors.
pub fn of_listeners() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(ceiling(limit) / 2).unwrap_or(usize::MAX))
}

/// The descriptor numbers that unauthenticated connections may have. They may use half of the
/// reserve.
pub(crate) fn room_of_strangers() -> Room {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return Room::default() };
    let wall = u32::try_from(wall(limit)).unwrap_or(u32::MAX);
    Room::below(wall, wall)
}

/// Logs the number of visitors for which descriptors are left: as a warning below 256, else as a
/// debug line.
pub fn tell_room() {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return };
    let visitors = ceiling(limit);
    if visitors < FEW {
        tracing::warn!(
            "room for about {visitors} visitors only: the limit of open files is {limit} \
             (ulimit -Hn, or LimitNOFILE of the unit)"
        );
    } else {
        tracing::debug!("room for about {visitors} visitors, the limit of open files is {limit}");
    }
}

/// The kernel's own count of open descriptors: the size of the directory, since Linux 6.2. `None`:
/// the kernel is older.
fn counted() -> Option<u64> {
    fs::metadata("/proc/self/fd").ok().map(|folder| folder.len()).filter(|count| *count > 0)
}

/// The number of open descriptors by listing the directory. This takes milliseconds when thousands
/// are open.
fn listed() -> u64 {
    let open = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    u64::try_from(open).unwrap_or(u64::MAX)
}

/// Counts the open descriptors for the status.
pub fn survey() -> status::Descriptors {
    let open = counted().unwrap_or_else(listed);
    let limit = getrlimit(Resource::Nofile).current;
    let room = limit.map(|limit| ceiling(limit).saturating_sub(open));
    status::Descriptors { open, limit, room }
}

fn reserve(limit: u64) -> u64 {
    (limit / RESERVE_PART).clamp(RESERVE_MIN, RESERVE_MAX).min(limit / 2)
}

fn ceiling(limit: u64) -> u64 {
    limit - reserve(limit)
}

fn wall(limit: u64) -> u64 {
    limit - reserve(limit) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        assert_eq!(raise_limit(), getrlimit(Resource::Nofile).maximum);
        assert_eq!(getrlimit(Resource::Nofile).current, getrlimit(Resource::Nofile).maximum);
    }

    #[test]
    fn the_kernel_counts_what_the_folder_lists() {
        if counted().is_none() {
            return;
        }
        let ends: Vec<_> = (0..1_000).map(|_| fs::File::open("/dev/null").unwrap()).collect();
        // Other tests of this process open and close descriptors meanwhile. The list also contains
        // the descriptor of the directory.
        let agree = || counted().is_some_and(|count| count >= 1_000 && count + 1 == listed());
        assert!((0..10_000).any(|_| agree()), "{:?} {}", counted(), listed());
        drop(ends);
    }

    #[test]
    fn a_part_is_kept_for_others_and_never_more_than_half() {
        for (limit, kept) in
            [(0, 0), (1, 0), (20, 10), (64, 32), (128, 32), (1024, 64), (20_000, 1024)]
        {
            assert_eq!(reserve(limit), kept, "{limit}");
        }
        assert_eq!(ceiling(1 << 20), (1 << 20) - 1024);
    }

    #[test]
    fn a_reverse_proxy_is_no_source() {
        let of = |text: &str| source(Some(SocketAddr::new(text.parse().unwrap(), 1)));
        trust(&["198.51.100.0/24".parse().unwrap()]);
        for text in ["198.51.100.7", "::ffff:198.51.100.7", "127.0.0.1", "::1"] {
            assert_eq!(of(text), None, "{text}");
        }
        assert_eq!(of("::ffff:192.0.2.1"), Some("192.0.2.1".parse().unwrap()));
        assert_eq!(of("127.0.0.2"), Some("127.0.0.2".parse().unwrap()));
        assert_eq!(source(None), None);
        trust(&[]);
        assert_eq!(of("198.51.100.7"), Some("198.51.100.7".parse().unwrap()));
    }

    #[test]
    fn what_is_open_is_counted() {
        // Other tests open and close files meanwhile, so a difference would say nothing.
        let files: Vec<_> = (0..200).map(|_| fs::File::open("/dev/null").unwrap()).collect();
        assert!(survey().open >= 200 && listed() >= 200);
        drop(files);
    }
}
