//! The limit of open descriptors: every visitor takes one or two.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit to the hard one (the soft default of 1,024 is for programs that use
/// `select`, which we do not). Returns the limit now in force; `None` is unlimited.
pub(crate) fn raise_limit() -> Option<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let before = limit.current;
        limit.current = limit.maximum;
        if let Err(e) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(error = %e, limit = before, "the limit of open files stays");
            return before;
        }
    }
    limit.current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        assert_eq!(raise_limit(), getrlimit(Resource::Nofile).maximum);
        assert_eq!(getrlimit(Resource::Nofile).current, getrlimit(Resource::Nofile).maximum);
    }
}
