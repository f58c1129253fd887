//! The program of `tests/peer`, a session of kcp-go.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The variable that names the program.
const PROGRAM: &str = "KCP_PEER";

/// Longest wait for a line of the program.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running peer; it ends with this value.
#[derive(Debug)]
pub(crate) struct Peer {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Peer {
    /// Starts the program with these flags.
    pub(crate) fn start(flags: &[&str]) -> Self {
        let program = std::env::var_os(PROGRAM);
        let program =
            program.unwrap_or_else(|| panic!("{PROGRAM} is not set: cargo xtask test kcp-interop"));
        let mut command = Command::new(program);
        command.args(flags).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, input, lines }
    }

    /// Starts a listening peer. Returns its port, too.
    pub(crate) fn serve(flags: &[&str]) -> (Self, u16) {
        let peer = Self::start(flags);
        let port = peer.port();
        (peer, port)
    }

    /// Ends all sessions and listens on the same port with other numbers of shards.
    pub(crate) fn listen(&mut self, data: usize, parity: usize) {
        writeln!(self.input, "listen {data} {parity}").unwrap();
        self.port();
    }

    fn port(&self) -> u16 {
        self.next("port").parse().unwrap()
    }

    /// The next line, which has to begin with this word; what follows it.
    pub(crate) fn next(&self, word: &str) -> String {
        let line = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|e| panic!("{word}: {e}"));
        let rest = line.strip_prefix(word).unwrap_or_else(|| panic!("no {word:?}, but {line:?}"));
        rest.trim().to_owned()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
