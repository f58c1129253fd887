//! The listening sockets that this process has bound, for the handover.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::os::fd::{AsFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::fstat;
use rustix::net::getsockname;
use rustix::net::sockopt::socket_type;

use crate::inherited::{self, Place};

/// The descriptor table of this process.
pub(crate) const TABLE: &str = "/proc/self/fd";

/// The listening sockets of this process: the inodes of each group, in the order in which the
/// sockets joined the group. The key is the socket type and the address in the form of the system.
static BOUND: Mutex<BTreeMap<Vec<u8>, Group>> = Mutex::new(BTreeMap::new());

/// The sockets of one address.
#[derive(Debug)]
struct Group {
    place: Option<Place>,
    inodes: Vec<u64>,
}

/// Records the listening sockets of one address, in the order in which they joined their group.
pub fn note<S: AsFd>(group: &[S]) {
    let Some(first) = group.first() else { return };
    let inode = |socket: &S| fstat(socket).ok().map(|socket| socket.st_ino);
    // TCP and UDP may have the same address.
    let (Ok(kind), Ok(address)) = (socket_type(first), getsockname(first)) else { return };
    let key = format!("{kind:?} {address:?}").into_bytes();
    let place = first.as_fd().try_clone_to_owned().ok();
    let place = place.and_then(|socket| inherited::place(&socket));
    bound().insert(key, Group { place, inodes: group.iter().filter_map(inode).collect() });
}

/// Whether this process listens at this address.
pub(crate) fn is_bound(place: &Place) -> bool {
    let Ok(open) = sockets() else { return false };
    let is_live = |group: &Group| group.inodes.iter().any(|inode| open.contains_key(inode));
    bound().values().any(|group| group.place.as_ref() == Some(place) && is_live(group))
}

/// The groups of this process, each with the descriptor numbers of its sockets that are `open`.
pub(super) fn live(open: &HashMap<u64, RawFd>) -> Vec<(Option<Place>, Vec<RawFd>)> {
    let number = |inode: &u64| open.get(inode).copied();
    let group = |group: &Group| {
        (group.place.clone(), group.inodes.iter().filter_map(number).collect::<Vec<_>>())
    };
    bound().values().map(group).collect()
}

fn bound() -> MutexGuard<'static, BTreeMap<Vec<u8>, Group>> {
    BOUND.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The open sockets of this process by inode.
pub(super) fn sockets() -> io::Result<HashMap<u64, RawFd>> {
    let mut all = HashMap::new();
    for entry in fs::read_dir(TABLE)? {
        let entry = entry?;
        // A descriptor that was closed meanwhile no longer has a link.
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let inode = target.to_str().and_then(|target| {
            target.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok()
        });
        let number = entry.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok());
        if let (Some(inode), Some(number)) = (inode, number) {
            all.insert(inode, number);
        }
    }
    Ok(all)
}
