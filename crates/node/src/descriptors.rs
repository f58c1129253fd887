//! The limit of open descriptors. Every visitor takes one descriptor here and one at the other end.

use std::fs;

use ops::status;
use relay::Room;
use rustix::process::{Resource, getrlimit, setrlimit};

/// The reserve is the part of the limit that visitors and targets leave to links, commands, name
/// resolution and files: the limit divided by `RESERVE_PART`, within the two bounds. An attempt to
/// connect to the server, a few commands and names take a dozen descriptors. A large server that
/// restarts gets back the links of a thousand clients while its old visitors are still connected.
const RESERVE_PART: u64 = 16;
const RESERVE_MIN: u64 = 32;
const RESERVE_MAX: u64 = 1024;

/// Room for fewer visitors is logged at the start, because one or two browsers use this number.
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

/// The number of descriptors that visitors and targets leave to links, commands, name resolution
/// and files.
pub(crate) fn kept() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    usize::try_from(limit.map_or(RESERVE_MAX, reserve)).unwrap_or(usize::MAX)
}

/// The descriptor numbers that sockets of visitors and targets may have.
pub(crate) fn room() -> Room {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return Room::default() };
    let number = |n| u32::try_from(n).unwrap_or(u32::MAX);
    Room::below(number(ceiling(limit)), number(wall(limit)))
}

/// The number of descriptors that the listeners of published ports may use: half of the part that
/// visitors and targets have, because a port is of no use without visitors.
pub(crate) fn of_listeners() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(ceiling(limit) / 2).unwrap_or(usize::MAX))
}

/// The descriptor numbers that connections may have before they have logged in. They may use half
/// of the reserve.
pub(crate) fn room_of_strangers() -> Room {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return Room::default() };
    let wall = u32::try_from(wall(limit)).unwrap_or(u32::MAX);
    Room::below(wall, wall)
}

/// Logs the room for visitors: a warning when the room is for fewer than 256 visitors, else a debug
/// line.
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

/// Counts the open descriptors for the status. The count takes milliseconds when thousands are
/// open.
pub(crate) fn survey() -> status::Descriptors {
    let open = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let open = u64::try_from(open).unwrap_or(u64::MAX);
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
    fn a_part_is_kept_for_others_and_never_more_than_half() {
        for (limit, kept) in
            [(0, 0), (1, 0), (20, 10), (64, 32), (128, 32), (1024, 64), (20_000, 1024)]
        {
            assert_eq!(reserve(limit), kept, "{limit}");
        }
        assert_eq!(ceiling(1 << 20), (1 << 20) - 1024);
    }

    #[test]
    fn what_is_open_is_counted() {
        let before = survey().open;
        let _files: Vec<_> = (0..20).map(|_| fs::File::open("/dev/null").unwrap()).collect();
        // Other tests open and close files meanwhile.
        assert!(survey().open >= before.saturating_sub(10) + 10);
    }
}
