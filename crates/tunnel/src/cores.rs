//! Prevents core files: a core file contains tokens, keys and data of visitors, and may stay on the
//! disk for years.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Sets the soft limit of core files to 0, which systemd-coredump respects as well. The hard limit
/// stays, so that a developer can get a core file of the running process with `prlimit
/// --core=unlimited`. The process stays dumpable (prctl(2)). Otherwise its own user could not read
/// its descriptors and limits in /proc, and that user can read the files with the secrets anyway.
pub(crate) fn forbid() {
    let limit = Rlimit { current: Some(0), ..getrlimit(Resource::Core) };
    if let Err(error) = setrlimit(Resource::Core, limit) {
        tracing::warn!(%error, "a crash may leave a core file, with secrets in it: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_core_is_written_and_a_person_may_ask_for_one() {
        let before = getrlimit(Resource::Core);
        forbid();
        let after = getrlimit(Resource::Core);
        assert_eq!((after.current, after.maximum), (Some(0), before.maximum));
        setrlimit(Resource::Core, before).unwrap();
    }
}
