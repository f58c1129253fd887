//! The control interfaces of this daemon, which no target may reach: the ports of its admin API,
//! its control sockets, the directories of these sockets and of the state, and the processes of the
//! daemon itself, which never call it.
//!
//! The check of the configuration covers targets that are written literally. Names, links and
//! addresses that resolve to the same endpoint are detected here, when a target is dialled: ports
//! by the dialled address, sockets by device and inode.
//!
//! The list is searched once per dial, and has a few entries.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{PoisonError, RwLock};

use crate::own::is_own;

/// Device and inode of a file.
type Identity = (u64, u64);

/// A control interface of the daemon, or one of its processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Port(SocketAddr),
    Socket(Identity),
    Folder(Identity),
    Process(u32),
}

static GUARDED: RwLock<Vec<Access>> = RwLock::new(Vec::new());

/// Keeps an access guarded. Dropping the value releases it, unless another generation of the daemon
/// has taken over.
#[derive(Debug)]
#[must_use = "the access is guarded as long as this value lives"]
pub struct Guard(Access);

impl Guard {
    fn new(access: Access) -> Self {
        GUARDED.write().unwrap_or_else(PoisonError::into_inner).push(access);
        Self(access)
    }

    /// Guards the port of a listener at `at`.
    pub fn port(at: SocketAddr) -> Self {
        Self::new(Access::Port(at))
    }

    /// Guards the socket file at a path.
    ///
    /// # Errors
    /// The file does not exist or cannot be examined.
    pub fn socket(path: &Path) -> io::Result<Self> {
        Ok(Self::new(Access::Socket(identity(path)?)))
    }

    /// Guards all sockets below a directory.
    ///
    /// # Errors
    /// The directory does not exist or cannot be examined.
    pub fn folder(path: &Path) -> io::Result<Self> {
        Ok(Self::new(Access::Folder(identity(path)?)))
    }

    /// Registers a process of the daemon.
    pub fn process(id: u32) -> Self {
        Self::new(Access::Process(id))
    }

    /// Guards the access until the process ends.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Otherwise another generation of the daemon listens there.
        if crate::handover::is_serving() {
            release(self.0);
        }
    }
}

fn release(access: Access) {
    let mut all = GUARDED.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(at) = all.iter().position(|one| *one == access) {
        all.swap_remove(at);
    }
}

/// Removes an ended process of the daemon: the system may reuse its id for another process.
pub fn process_ended(id: u32) {
    release(Access::Process(id));
}

/// The processes of this daemon.
#[must_use]
pub fn own_processes() -> Vec<u32> {
    let all = GUARDED.read().unwrap_or_else(PoisonError::into_inner);
    let id = |access: &Access| match access {
        Access::Process(id) => Some(*id),
        Access::Port(_) | Access::Socket(_) | Access::Folder(_) => None,
    };
    all.iter().filter_map(id).collect()
}

/// Whether a process belongs to this daemon.
#[must_use]
pub fn is_own_process(id: u32) -> bool {
    any(|access| matches!(access, Access::Process(own) if *own == id))
}

/// Whether a connection to this address reaches a guarded port.
#[must_use]
pub fn leads_to_port(to: SocketAddr) -> bool {
    any(|access| matches!(access, Access::Port(at) if reaches(*at, to)))
}

/// Whether a connection to the socket at this path reaches a guarded socket, also through a link or
/// another mount.
#[must_use]
pub fn leads_to_socket(path: &Path) -> bool {
    let of = |kind: fn(&Access) -> Option<Identity>| -> Vec<Identity> {
        let all = GUARDED.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(kind).collect()
    };
    // The list is copied before a file is examined: a hanging disk must not hold the lock.
    let sockets = of(|access| match access {
        Access::Socket(identity) => Some(*identity),
        Access::Port(_) | Access::Folder(_) | Access::Process(_) => None,
    });
    if !sockets.is_empty() && identity(path).is_ok_and(|found| sockets.contains(&found)) {
        return true;
    }
    let folders = of(|access| match access {
        Access::Folder(identity) => Some(*identity),
        Access::Port(_) | Access::Socket(_) | Access::Process(_) => None,
    });
    !folders.is_empty() && is_below(path, &folders)
}

/// Whether a path resolves to a place below one of the directories.
fn is_below(path: &Path, folders: &[Identity]) -> bool {
    let Ok(real) = fs::canonicalize(path) else { return false };
    let mut above = real.ancestors().skip(1);
    above.any(|folder| identity(folder).is_ok_and(|found| folders.contains(&found)))
}

fn any(is: impl Fn(&Access) -> bool) -> bool {
    GUARDED.read().unwrap_or_else(PoisonError::into_inner).iter().any(is)
}

fn identity(path: &Path) -> io::Result<Identity> {
    let file = fs::metadata(path)?;
    Ok((file.dev(), file.ino()))
}

/// Whether a connection to an address reaches a listener.
fn reaches(listener: SocketAddr, to: SocketAddr) -> bool {
    if listener.port() != to.port() {
        return false;
    }
    // A connection to the unspecified address goes to loopback (ip(7), ipv6(7)).
    let to = match to.ip().to_canonical() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    let is_here = || to.is_loopback() || is_own(to);
    match listener.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => to.is_ipv4() && is_here(),
        // A listener on all IPv6 addresses also accepts IPv4.
        IpAddr::V6(ip) if ip.is_unspecified() => is_here(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip.to_canonical() == to,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn every_form_of_an_address_that_reaches_the_listener_is_seen() {
        let reach = |listener: &str, to: &str| {
            reaches(format!("{listener}:7").parse().unwrap(), format!("{to}:7").parse().unwrap())
        };
        for (listener, to, wanted) in [
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "0.0.0.0", true),
            ("127.0.0.1", "[::ffff:127.0.0.1]", true),
            ("127.0.0.1", "[::ffff:0.0.0.0]", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("127.0.0.1", "[::1]", false),
            ("[::1]", "[::]", true),
            ("[::1]", "127.0.0.1", false),
            ("0.0.0.0", "127.9.9.9", true),
            ("0.0.0.0", "192.0.2.1", false),
            ("[::]", "127.0.0.2", true),
            ("[::]", "[::1]", true),
            ("[::ffff:127.0.0.1]", "127.0.0.1", true),
        ] {
            assert_eq!(reach(listener, to), wanted, "{listener} {to}");
        }
        let other = "127.0.0.1:8".parse().unwrap();
        assert!(!reaches("127.0.0.1:7".parse().unwrap(), other));
    }

    #[test]
    fn a_socket_is_seen_through_links_and_free_when_its_guard_has_gone() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let _listeners = ["own", "other"].map(|name| UnixListener::bind(at(name)).unwrap());
        symlink("own", at("link")).unwrap();
        fs::hard_link(at("own"), at("hard")).unwrap();
        let guard = Guard::socket(&at("own")).unwrap();
        for (name, wanted) in
            [("own", true), ("link", true), ("hard", true), ("other", false), ("absent", false)]
        {
            assert_eq!(leads_to_socket(&at(name)), wanted, "{name}");
        }
        drop(guard);
        assert!(!leads_to_socket(&at("own")));
        assert!(Guard::socket(&at("absent")).is_err());
    }

    #[test]
    fn a_folder_is_guarded_with_all_that_is_below_it() {
        let dir = tempfile::tempdir().unwrap();
        let (own, beside) = (dir.path().join("own"), dir.path().join("beside"));
        fs::create_dir_all(own.join("deep")).unwrap();
        let _listeners =
            [own.join("deep/a"), beside.clone()].map(|path| UnixListener::bind(path).unwrap());
        symlink(&own, dir.path().join("link")).unwrap();
        let _guard = Guard::folder(&own).unwrap();
        assert!(leads_to_socket(&own.join("deep/a")));
        assert!(leads_to_socket(&dir.path().join("link/deep/a")));
        assert!(!leads_to_socket(&beside));
    }

    #[test]
    fn a_process_is_own_until_it_ends() {
        let id = u32::MAX - 7;
        let guard = Guard::process(id);
        assert!(is_own_process(id));
        guard.keep();
        assert!(is_own_process(id) && !is_own_process(id - 1));
        assert!(own_processes().contains(&id));
        process_ended(id);
        assert!(!is_own_process(id));
    }
}
