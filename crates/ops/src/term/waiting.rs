//! The progress line of a command that waits for a daemon: what it waits for, and since when. It is
//! shown only on a terminal; a pipe or a file receives nothing of it.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{Screen, err, width};

/// Most commands end sooner, and a line that appears only for a moment is distracting.
const PATIENCE: Duration = Duration::from_secs(2);

/// The interval of updates of the line.
const EVERY: Duration = Duration::from_secs(1);

/// Shows on standard error, if it is a terminal, what a command waits for. The line appears after 2
/// s, is updated each second, and is removed on drop.
#[derive(Debug)]
pub struct Waiting {
    /// Permanent lines. `None` without a terminal.
    says: Option<Sender<String>>,
    thread: Option<JoinHandle<()>>,
}

impl Waiting {
    /// Starts waiting. `what` has no full stop: `upgrading process 17`.
    pub fn begin(what: &str) -> Self {
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        if is_dumb || !stderr().is_terminal() {
            return Self { says: None, thread: None };
        }
        let (says, heard) = channel::<String>();
        let what = what.to_owned();
        // Only this thread writes to the terminal in the meantime.
        let thread = thread::spawn(move || {
            let begin = Instant::now();
            let (mut next, mut is_shown) = (PATIENCE, false);
            let clear = |is_shown: &mut bool| {
                if std::mem::take(is_shown) {
                    draw("");
                }
            };
            loop {
                match heard.recv_timeout(next.saturating_sub(begin.elapsed())) {
                    Ok(text) => {
                        clear(&mut is_shown);
                        err(text);
                    }
                    Err(RecvTimeoutError::Timeout) => {
                        draw(&line(&what, begin.elapsed(), Screen::of_stderr()));
                        (next, is_shown) = (begin.elapsed() + EVERY, true);
                    }
                    Err(RecvTimeoutError::Disconnected) => return clear(&mut is_shown),
                }
            }
        });
        Self { says: Some(says), thread: Some(thread) }
    }

    /// Shows `what` while `work` runs. The line is removed before this returns.
    pub fn during<T>(what: &str, work: impl FnOnce() -> T) -> T {
        let _waiting = Self::begin(what);
        work()
    }

    /// Writes a permanent line, as [`err`] does.
    pub fn say(&self, text: &str) {
        // The thread lives as long as this value.
        match &self.says {
            Some(says) => drop(says.send(text.to_owned())),
            None => err(text),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.says = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already reported.
            let _ = thread.join();
        }
    }
}

/// Overwrites the previous line. A failed write to standard error cannot be reported.
fn draw(line: &str) {
    drop(write!(stderr(), "\r\x1b[K{line}").and_then(|()| stderr().flush()));
}

/// A line that fits the screen: a longer line could not be overwritten completely.
fn line(what: &str, since: Duration, screen: Screen) -> String {
    let text = format!("{what}, {} s", since.as_secs());
    let room = screen.columns().map_or(usize::MAX, |columns| columns - 1);
    width::cut(&text, room, width::Keep::Start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_since_when_and_fits_the_screen() {
        let since = Duration::from_millis(12_900);
        assert_eq!(line("upgrading", since, Screen::PLAIN), "upgrading, 12 s");
        let narrow = line("upgrading the daemon of a file", since, Screen::narrow(20));
        assert_eq!(narrow, "upgrading the daem…");
        // Each of these characters takes two columns.
        assert_eq!(line("隧道隧道隧道隧道隧道", since, Screen::narrow(20)), "隧道隧道隧道隧道隧…");
    }

    #[test]
    fn without_a_terminal_lines_are_written_as_they_are() {
        // The standard error of a test is captured, or a pipe.
        let waiting = Waiting { says: None, thread: None };
        waiting.say("stopping");
    }
}
