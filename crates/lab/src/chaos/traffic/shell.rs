//! ssh: lines at intervals, a file through a pipe, and rsync.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use testkit::stage::bytes::Complaint;
use testkit::stage::program;

use super::files::{self, Known};
use super::{DEADLINE, Job, job, succeed};

/// The number of lines, a tenth of a second apart.
const LINES: u32 = 40;

/// The rate of rsync in kilobytes per second: the file takes about three seconds.
const RSYNC_RATE: &str = "--bwlimit=8000";

/// The options for logging in.
#[derive(Clone, Debug)]
pub(super) struct Shell {
    port: String,
    options: Vec<String>,
    known: Known,
}

impl Shell {
    /// If an option is given twice, ssh uses the first: the time limit for the banner is the limit
    /// of all work here.
    pub(super) fn new(port: u16, options: &[String], known: Known) -> Self {
        let patience = ["-o".to_owned(), format!("ConnectTimeout={}", DEADLINE.as_secs())];
        let options = patience.into_iter().chain(options.iter().cloned()).collect();
        Self { port: port.to_string(), options, known }
    }

    fn ssh(&self, command: &str) -> Command {
        let mut ssh = Command::new(program("ssh"));
        ssh.args(&self.options).args(["-p", &self.port, "127.0.0.1", command]);
        ssh.stdin(std::process::Stdio::null());
        ssh
    }

    /// A terminal session: lines come at intervals.
    pub(super) fn typing(&self) -> Job {
        let shell = self.clone();
        let wanted: String = (1..=LINES).map(|n| format!("{n}\n")).collect();
        let command = format!("for n in $(seq {LINES}); do echo $n; sleep 0.1; done");
        job("ssh, 40 lines", move |_| {
            let output = succeed(&mut shell.ssh(&command))?;
            if output.stdout != wanted.as_bytes() {
                return Err(Complaint::Wrong("ssh printed other lines".to_owned()));
            }
            Ok(wanted.len() as u64)
        })
    }

    /// A file goes in, and its hash comes out.
    pub(super) fn pipe(&self, dir: &Path) -> Job {
        let (shell, log) = (self.clone(), dir.join("known"));
        job("ssh, 24 MB", move |_| {
            let file = File::open(&log).map_err(|e| Complaint::Wrong(e.to_string()))?;
            let output = succeed(shell.ssh("sha256sum").stdin(file))?;
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            if said.split(' ').next() != Some(&shell.known.hash) {
                return Err(Complaint::Wrong(format!("another hash: {}", said.trim())));
            }
            Ok(files::SIZE)
        })
    }

    /// To the server on even turns, back on odd turns.
    pub(super) fn rsync(&self, dir: &Path) -> Job {
        let shell = self.clone();
        let (there, back) = (dir.join("there"), dir.join("back"));
        job("rsync, 24 MB", move |turn| {
            let ssh = format!("ssh {} -p {}", shell.options.join(" "), shell.port);
            let mut rsync = Command::new(program("rsync"));
            rsync.args(["--whole-file", "--inplace", RSYNC_RATE, "-e", &ssh]);
            let far = |path: &Path| format!("127.0.0.1:{}", path.display());
            let (from, copy) = (&shell.known.path, if turn % 2 == 0 { &there } else { &back });
            // Remove the file of an earlier run.
            let _ = fs::remove_file(copy);
            if turn % 2 == 0 {
                rsync.arg(from).arg(far(copy));
            } else {
                rsync.arg(far(from)).arg(copy);
            }
            succeed(&mut rsync)?;
            files::check(copy)
        })
    }
}
