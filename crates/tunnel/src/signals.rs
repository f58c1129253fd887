//! SIGTERM and SIGINT: the first signal starts a drain, and the second ends the daemon immediately.
//! SIGHUP starts a reload, except where it means that the terminal was closed.

use std::fs::File;
use std::io::{self, IsTerminal as _, stderr};
use std::time::{Duration, Instant};
use std::{env, mem};

use ops::{Life, Phase, term};
use rustix::process::Signal as Signalled;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::parent;
use crate::supervise::SUPERVISOR;

/// Two equal signals within this time count as one, where they may arrive in two ways.
const DOUBLE: Duration = Duration::from_millis(500);

/// The signals that control a daemon. They are caught from the creation of this value on.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    terminal: Terminal,
}

/// Whether this process has a controlling terminal, as far as is known.
#[derive(Debug)]
struct Terminal(bool);

impl Terminal {
    /// The present state. Standard streams are less reliable: they may be redirected to files.
    fn is_there() -> bool {
        File::open("/dev/tty").is_ok()
    }

    /// Records the present state. Returns whether the terminal has disappeared since the last
    /// record.
    const fn is_lost(&mut self, is_there: bool) -> bool {
        mem::replace(&mut self.0, is_there) && !is_there
    }
}

/// The parts that continue after the terminal is closed.
const GOES_ON: &str = "goes on without the terminal: `tunnel status` shows the process, and \
                       `tunnel stop` ends it";

impl Signals {
    /// Starts to catch the signals. Must be called inside a Tokio runtime.
    pub(crate) fn catch() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            terminal: Terminal(Terminal::is_there()),
        })
    }

    /// Tells a user who starts the daemon manually what closing the terminal does.
    pub(crate) fn tell_terminal(&self) {
        if self.terminal.0 && stderr().is_terminal() && env::var_os(SUPERVISOR).is_none() {
            term::err(format_args!("Ctrl-C stops it; closing the terminal does not: it {GOES_ON}"));
        }
    }

    /// Turns signals into phases and reload requests of `life`. Never returns.
    pub(crate) async fn steer(mut self, life: Life) {
        let mut last: Option<(Signalled, Instant)> = None;
        loop {
            let (name, signal) = tokio::select! {
                _ = self.terminate.recv() => ("SIGTERM", Signalled::TERM),
                _ = self.interrupt.recv() => ("SIGINT", Signalled::INT),
                _ = self.hangup.recv() => ("SIGHUP", Signalled::HUP),
            };
            if signal == Signalled::HUP && self.terminal.is_lost(Terminal::is_there()) {
                tracing::warn!(signal = "SIGHUP", "the terminal was closed; this daemon {GOES_ON}");
                continue;
            }
            // The service manager may send a signal to all processes of a unit, and the parent
            // process forwards its own.
            let is_double = parent::is_there()
                && last.is_some_and(|(before, at)| before == signal && at.elapsed() < DOUBLE);
            if is_double {
                continue;
            }
            last = Some((signal, Instant::now()));
            // The process that has replaced this one tells it to stop.
            if parent::forward(signal) {
                continue;
            }
            if signal == Signalled::HUP {
                life.reload();
                continue;
            }
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

    #[test]
    fn a_terminal_is_lost_once() {
        let mut terminal = Terminal(true);
        assert!(!terminal.is_lost(true), "a reload");
        assert!(terminal.is_lost(false));
        assert!(!terminal.is_lost(false), "a reload of a daemon without a terminal");
        assert!(!Terminal(false).is_lost(false));
    }

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
