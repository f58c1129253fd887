//! A terminal that does not echo the typed characters. However the program ends, except by SIGKILL,
//! the terminal is restored.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{io, thread};

use nix::sys::signal::{SigSet, Signal as Caught, raise};
use rustix::process::Signal;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};

/// The signals that end a program and may come from another program.
const FATAL: [Caught; 4] = [Caught::SIGTERM, Caught::SIGHUP, Caught::SIGINT, Caught::SIGQUIT];

/// A silent terminal, until the value is dropped. In the meantime its special keys cause no
/// signals: they end the line. Signals of other programs wait until a separate thread has restored
/// the terminal.
pub(super) struct Hidden {
    /// The previous modes; taken on drop.
    before: Arc<Mutex<Option<Termios>>>,
    keys: Vec<(u8, Signal)>,
}

impl Hidden {
    pub(super) fn new() -> Self {
        let mut hidden = Self { before: Arc::default(), keys: Vec::new() };
        let Ok(before) = tcgetattr(io::stdin()) else { return hidden };
        let (mut silent, modes) = (before.clone(), before.local_modes);
        silent.local_modes.remove(LocalModes::ECHO | LocalModes::ISIG);
        for (key, signal, end) in [
            (SpecialCodeIndex::VINTR, Signal::INT, SpecialCodeIndex::VEOL),
            (SpecialCodeIndex::VQUIT, Signal::QUIT, SpecialCodeIndex::VEOL2),
        ] {
            let key = before.special_codes[key];
            // 0: there is no such key.
            if key != 0 && modes.contains(LocalModes::ISIG) {
                hidden.keys.push((key, signal));
                // Without line mode each byte arrives anyway.
                if modes.contains(LocalModes::ICANON) {
                    silent.special_codes[end] = key;
                }
            }
        }
        *lock(&hidden.before) = Some(before);
        // Set up before echo is turned off: otherwise a signal in between would leave it off.
        watch(Arc::clone(&hidden.before), silent.clone());
        if set(&silent).is_err() {
            lock(&hidden.before).take();
        }
        hidden
    }

    /// The keys that end the line, with the signals for which they stand.
    pub(super) fn keys(&self) -> &[(u8, Signal)] {
        &self.keys
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        if let Some(before) = lock(&self.before).take() {
            // A terminal that has disappeared shows nothing either.
            let _ = set(&before);
        }
        let _ = fatal().thread_unblock();
    }
}

fn set(modes: &Termios) -> rustix::io::Result<()> {
    tcsetattr(io::stdin(), OptionalActions::Flush, modes)
}

fn fatal() -> SigSet {
    FATAL.into_iter().collect()
}

fn lock(before: &Mutex<Option<Termios>>) -> MutexGuard<'_, Option<Termios>> {
    before.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Blocks the fatal signals in this thread, and starts a thread that takes them.
fn watch(before: Arc<Mutex<Option<Termios>>>, silent: Termios) {
    let take = move || {
        while let Ok(signal) = fatal().wait() {
            let before = lock(&before);
            if let Some(before) = &*before {
                let _ = set(before);
            }
            let only: SigSet = [signal].into_iter().collect();
            // Ends the program, unless the signal is ignored, as SIGHUP is under nohup.
            let _ = only.thread_unblock().and_then(|()| raise(signal));
            let _ = only.thread_block();
            if before.is_some() {
                let _ = set(&silent);
            }
        }
    };
    // Without the thread the signals end the program as usual.
    if fatal().thread_block().is_ok()
        && thread::Builder::new().name("signals".to_owned()).spawn(take).is_err()
    {
        let _ = fatal().thread_unblock();
    }
}
