//! SIGTERM and SIGINT: the first signal starts a drain, and the second ends the daemon immediately.
//! SIGHUP starts a reload.

use std::io;

use ops::{Life, Phase};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that control a daemon. They are caught from the creation of this value on.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Starts to catch the signals. Must be called inside a Tokio runtime.
    pub(crate) fn catch() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Turns signals into phases and reload requests of `life`. Never returns.
    pub(crate) async fn steer(mut self, life: Life) {
        loop {
            let name = tokio::select! {
                _ = self.terminate.recv() => "SIGTERM",
                _ = self.interrupt.recv() => "SIGINT",
                _ = self.hangup.recv() => {
                    life.reload();
                    continue;
                }
            };
            if life.phase() == Phase::Running {
                tracing::info!(signal = name, "asked to stop by {name}");
                life.drain();
            } else {
                tracing::info!(signal = name, "stopping at once");
                life.end();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    #[tokio::test]
    async fn the_first_signal_drains_and_the_second_ends() {
        let life = Life::new();
        let signals = Signals::catch().unwrap();
        let steering = tokio::spawn(signals.steer(life.clone()));
        kill_process(getpid(), Signal::HUP).unwrap();
        life.reload_asked().await;
        assert_eq!(life.phase(), Phase::Running);
        kill_process(getpid(), Signal::TERM).unwrap();
        life.reached(Phase::Draining).await;
        assert_eq!(life.phase(), Phase::Draining);
        kill_process(getpid(), Signal::INT).unwrap();
        life.reached(Phase::Ending).await;
        steering.abort();
    }
}
