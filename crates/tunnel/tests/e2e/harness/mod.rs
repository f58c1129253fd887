//! The stage of the end-to-end tests.
//!
//! | module | what |
//! |---|---|
//! | `tunnel` | a server and a client with their files: [`Setup`] describes, [`Running`] is alive |
//! | `daemon` | a child process with its log |
//! | `wire` | a TCP path between client and server that can be killed, frozen, slowed |
//! | `origin` | services of our own, a thread per connection |
//! | `bytes` | endless bytes that know their offset |
//! | `software` | nginx, sshd and other programs nobody here wrote |
//! | `port` | free ports, and who listens |

pub(crate) mod bytes;
mod daemon;
mod origin;
mod port;
mod software;
mod tunnel;
mod wire;

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

pub(crate) use daemon::{Daemon, run, tunnel};
pub(crate) use origin::{Origin, reset_on_drop};
pub(crate) use port::{free_port, is_listening, wait_listening};
pub(crate) use software::{Clock, Nginx, program, start_iperf3, start_sshd};
pub(crate) use tunnel::{Scheme, Setup, connect, try_connect};
pub(crate) use wire::Wire;

/// For what takes well under a second on an idle machine.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// For transfers of some hundred megabytes, interruptions included.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// Tests run beside each other, except those that measure.
static STAGE: RwLock<()> = RwLock::new(());

/// The right to run now.
#[derive(Debug)]
#[must_use]
pub(crate) enum Turn {
    Beside { _others: RwLockReadGuard<'static, ()> },
    Alone { _stage: RwLockWriteGuard<'static, ()> },
}

impl Turn {
    pub(crate) fn beside_others() -> Self {
        Self::Beside { _others: STAGE.read().unwrap_or_else(PoisonError::into_inner) }
    }

    pub(crate) fn alone() -> Self {
        Self::Alone { _stage: STAGE.write().unwrap_or_else(PoisonError::into_inner) }
    }
}

/// Asks until there is an answer. Panics with `what` at the deadline.
pub(crate) fn wait<T>(what: &str, deadline: Duration, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < deadline, "not within {deadline:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
