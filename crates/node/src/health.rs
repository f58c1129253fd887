//! Whether the target of a service or of a forward serves. The state is derived from dials for
//! visitors, and on a client also from the health checks that `health` configures.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ops::status::Down;
use proto::ResetCode;

/// The minimum interval between two log lines about the same target. A target that serves some
/// visitors and refuses others must not flood the log.
const QUIET: Duration = Duration::from_secs(10);

/// The time in which the share of a recovered target grows to 100 %, in milliseconds.
pub const SLOW_START: u64 = 30_000;

/// The initial share of a recovered target, in percent.
const FIRST_SHARE: u64 = 10;

/// The percentage of its share that a target gets at `now` if it recovered at `back`; both in
/// milliseconds of [`clock_millis`]. 0: it was not down.
pub fn percent_since(back: u64, now: u64) -> u64 {
    let since = now.saturating_sub(back);
    if back == 0 || since >= SLOW_START {
        return 100;
    }
    (100 * since / SLOW_START).max(FIRST_SHARE)
}

/// The state of one target, shared by all workers.
#[derive(Debug, Default)]
pub struct Health {
    /// 0 while the target serves or nothing is known. Otherwise the reset code, a bit for whether
    /// the failure has been logged, and the time since which the target is down.
    state: AtomicU64,
    /// The time of the last log line.
    last_line: AtomicU64,
    /// Details of the last failure that the code does not express.
    detail: Mutex<Option<Box<str>>>,
}

/// The reset code is in the upper 16 bits of the state, and the milliseconds of [`clock`] are in
/// the lower 47 bits.
const CODE_AT: u32 = 48;
const TOLD: u64 = 1 << 47;
const SINCE: u64 = TOLD - 1;

/// Why a target does not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    code: ResetCode,
    since: Duration,
}

impl Fault {
    /// The start of the fault, in milliseconds of [`clock_millis`].
    pub fn since_millis(self) -> u64 {
        u64::try_from(self.since.as_millis()).unwrap_or(u64::MAX)
    }

    /// The fault as part of a status.
    pub fn down(self) -> Down {
        Down {
            reason: reason(self.code).to_owned(),
            denied: self.code == ResetCode::Denied,
            seconds: clock().saturating_sub(self.since).as_secs(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(reason(self.code))
    }
}

/// The reason as the end of a sentence about a target.
fn reason(code: ResetCode) -> &'static str {
    match code {
        ResetCode::Refused => "it refuses connections",
        ResetCode::Timeout => "it does not answer",
        ResetCode::Denied => "it is not allowed",
        ResetCode::Unreachable
        | ResetCode::Aborted
        | ResetCode::Limit
        | ResetCode::Unknown
        | ResetCode::Shutdown
        | ResetCode::Internal
        | ResetCode::Moved
        | ResetCode::Other(_) => "it cannot be reached",
    }
}

/// The time since the first use of this clock, plus 1 ms: monotonic and never 0.
fn clock() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed() + Duration::from_millis(1)
}

/// The time in milliseconds, monotonic and never 0.
pub fn clock_millis() -> u64 {
    u64::try_from(clock().as_millis()).unwrap_or(u64::MAX) & SINCE
}

impl Health {
    /// The fault of the target; `None` while the target serves or nothing is known.
    pub fn fault(&self) -> Option<Fault> {
        fault(self.state.load(Ordering::Relaxed))
    }

    /// Records details of a failure that its code does not express; `None`: there are none.
    pub fn explain(&self, detail: Option<String>) {
        let mut kept = self.detail.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = detail.map(String::into_boxed_str);
    }

    /// The fault as part of a status.
    pub fn status(&self) -> Option<Down> {
        let down = self.fault()?.down();
        let detail = self.detail.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Some(match detail {
            Some(detail) => Down { reason: detail.into(), ..down },
            None => down,
        })
    }

    /// Records that the target serves. Returns how long it was down, if that was logged.
    pub fn up(&self) -> Option<Duration> {
        // The load suffices for almost all calls.
        if self.state.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let before = self.state.swap(0, Ordering::Relaxed);
        let since = fault(before).filter(|_| before & TOLD != 0)?.since;
        Some(clock().saturating_sub(since))
    }

    /// Records a failure with this reset code, if the code is about the target. Returns whether to
    /// log it.
    pub fn down(&self, code: ResetCode) -> bool {
        if !is_of_target(code) {
            return false;
        }
        let (now, code) = (clock_millis(), u64::from(code.raw()) << CODE_AT);
        let last_line = self.last_line.load(Ordering::Relaxed);
        let quiet = u64::try_from(QUIET.as_millis()).unwrap_or(u64::MAX);
        let is_line = last_line == 0 || now.saturating_sub(last_line) >= quiet;
        let first = code | now | if is_line { TOLD } else { 0 };
        let next = |old: u64| match old {
            0 => Some(first),
            old => Some(old & (TOLD | SINCE) | code).filter(|new| *new != old),
        };
        let is_news = self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) == Ok(0);
        if is_news && is_line {
            self.last_line.store(now, Ordering::Relaxed);
        }
        is_news && is_line
    }

    /// Clears the state, because the target may have changed.
    pub fn forget(&self) {
        self.state.store(0, Ordering::Relaxed);
    }
}

fn fault(state: u64) -> Option<Fault> {
    let code = u16::try_from(state >> CODE_AT).ok()?;
    let since = Duration::from_millis(state & SINCE);
    (state != 0).then(|| Fault { code: ResetCode::from_raw(code), since })
}

/// Whether the code means that the target does not serve.
const fn is_of_target(code: ResetCode) -> bool {
    matches!(
        code,
        ResetCode::Refused | ResetCode::Timeout | ResetCode::Unreachable | ResetCode::Denied
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_of_a_kind_and_the_recovery_are_news() {
        let health = Health::default();
        assert_eq!((health.fault(), health.up()), (None, None));
        assert!(!health.down(ResetCode::Limit) && !health.down(ResetCode::Aborted));
        assert!(health.down(ResetCode::Refused) && !health.down(ResetCode::Refused));
        let down = health.fault().unwrap().down();
        assert_eq!((&*down.reason, down.denied), ("it refuses connections", false));
        assert!(!health.down(ResetCode::Denied), "another reason is no line");
        assert!(health.fault().unwrap().down().denied);
        assert!(health.up().is_some() && health.up().is_none());
        assert_eq!(health.fault(), None);
        // A target that serves some visitors and refuses others.
        assert!(!health.down(ResetCode::Refused) && health.fault().is_some());
        assert!(health.up().is_none() && health.fault().is_none());
    }
}
