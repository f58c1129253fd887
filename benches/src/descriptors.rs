//! The limit of open descriptors: each connection needs a descriptor.

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::options::Usage;

/// The descriptors of a process besides its connections: standard streams, the runtime's
/// descriptors, and the libraries' files, with a margin.
const OWN: u64 = 64;

/// Raises the soft limit to the hard limit; the soft default is often 1,024.
pub fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        // If raising is not allowed, the old limit holds, and `require` reports it.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// Refuses a number of connections that does not fit into the present limit.
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
