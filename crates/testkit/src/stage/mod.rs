//! The stage of tests with real processes: the end-to-end tests of `tunnel`, chaos and soak.
//!
//! | module | what |
//! |---|---|
//! | `setup` | [`Setup`]: a server and a client with their files |
//! | `running` | [`Running`]: both processes, and visitors |
//! | `daemon` | [`Daemon`]: a child process with its log |
//! | `origin` | [`Origin`]: services inside the test process, a thread per connection |
//! | `bytes` | endless bytes whose value depends on their offset |
//! | `software` | nginx, sshd and other third-party programs |
//! | `pebble` | [`Pebble`]: an ACME authority, and its DNS server |
//! | `fence` | a memory limit around a process |
//! | `port` | free ports, and whether a process listens on a port |
//!
//! A setup that fails and a check that fails both panic: the panic is the verdict of a test.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "in a test a panic is the verdict, and figures are for people"
)]

pub mod bytes;
mod daemon;
mod fence;
mod origin;
mod pebble;
mod port;
mod running;
mod setup;
mod software;

use std::fs::File;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

pub use config::{Over, Scheme};
pub use daemon::{Daemon, binary, run, run_within, tunnel};
pub use fence::Fence;
pub use origin::Origin;
pub use pebble::{CheckedPorts, NOWHERE, Pebble, REFUSED};
pub use port::{free_port, is_listening, wait_listening};
pub use running::{Running, connect, try_connect};
pub use setup::Setup;
pub use software::{Clock, Iperf3, Nginx, etcd, program, start_sshd, write_program};

/// Time limit of steps that take well under a second on an idle machine.
pub const SOON: Duration = Duration::from_secs(10);

/// Time limit of transfers of some hundred megabytes, interruptions included.
pub const LONG: Duration = Duration::from_secs(120);

/// Tests of one process run in parallel, except tests that measure.
static STAGE: RwLock<()> = RwLock::new(());

/// Does the same for tests of several processes: the variable names a file, and the file is locked.
const STAGE_FILE: &str = "TUNNEL_TEST_STAGE";

/// The right to run now.
#[derive(Debug)]
#[must_use]
pub(crate) struct StageLock {
    _stage: Stage,
    /// Closing the file releases the lock.
    _file: Option<File>,
}

#[derive(Debug)]
enum Stage {
    Beside { _others: RwLockReadGuard<'static, ()> },
    Alone { _stage: RwLockWriteGuard<'static, ()> },
}

impl StageLock {
    pub(crate) fn beside_others() -> Self {
        let others = STAGE.read().unwrap_or_else(PoisonError::into_inner);
        Self::locked(Stage::Beside { _others: others }, FlockOperation::LockShared)
    }

    pub(crate) fn alone() -> Self {
        let stage = STAGE.write().unwrap_or_else(PoisonError::into_inner);
        Self::locked(Stage::Alone { _stage: stage }, FlockOperation::LockExclusive)
    }

    fn locked(stage: Stage, how: FlockOperation) -> Self {
        let file = std::env::var_os(STAGE_FILE).map(|path| {
            let file = File::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            flock(&file, how).unwrap();
            file
        });
        Self { _stage: stage, _file: file }
    }
}

/// Calls `ask` until it returns an answer. Panics with `what` at the deadline.
pub fn wait<T>(what: &str, deadline: Duration, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < deadline, "not within {deadline:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
