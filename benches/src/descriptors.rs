//! The limit of open descriptors: a connection takes one.

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::options::Usage;

/// What a process has open beside its connections: standard streams, the runtime's own, and the
/// libraries' files, with room.
const OWN: u64 = 64;

/// Raises the soft limit to the hard one; the soft default is often 1,024.
pub fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        // Where that is not allowed the old limit holds, and `require` speaks of it.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// Refuses so many connections where they do not fit into the limit now in force.
pub fn require(connections: usize) -> Result<(), Usage> {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return Ok(()) };
    let room = limit.saturating_sub(OWN);
    if connections as u64 <= room {
        return Ok(());
    }
    Err(Usage(format!(
        "{connections} connections do not fit: the limit of open descriptors (ulimit -Hn) is \
         {limit}, which leaves {room}; start several of these"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused() {
        raise_limit();
        assert_eq!(getrlimit(Resource::Nofile).current, getrlimit(Resource::Nofile).maximum);
        assert!(require(1).is_ok());
        if getrlimit(Resource::Nofile).current.is_some() {
            assert!(require(usize::MAX).is_err());
        }
    }
}
