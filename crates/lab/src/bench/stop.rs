//! Ctrl-C and SIGTERM set a flag. Every wait checks the flag, so that the run unwinds and each
//! owner ends its own processes.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use signal_hook::consts::{SIGINT, SIGTERM};

static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// The interval at which waits check the flag.
pub(super) const LOOK: Duration = Duration::from_millis(10);

/// From now on, the two signals set the flag instead of ending this process.
pub(super) fn listen() -> Result<()> {
    let flag = STOP.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(flag)).context("waiting for Ctrl-C")?;
    }
    Ok(())
}

/// Whether the run shall end.
pub(super) fn wanted() -> bool {
    STOP.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// An error if the run shall end.
pub(super) fn check() -> Result<()> {
    ensure!(!wanted(), "interrupted; nothing is left running");
    Ok(())
}

/// Sleeps, unless the run shall end.
pub(super) fn sleep(time: Duration) -> Result<()> {
    let start = Instant::now();
    loop {
        check()?;
        let left = time.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(LOOK));
    }
}
