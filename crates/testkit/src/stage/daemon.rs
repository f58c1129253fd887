//! A child process whose output goes to a file. The process ends when its test ends.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{LONG, wait};

/// The binary under test: the file that `TUNNEL_TEST_BINARY` names, else `tunnel` of the build that
/// contains this test program.
pub fn binary() -> PathBuf {
    std::env::var_os("TUNNEL_TEST_BINARY").map_or_else(own_binary, PathBuf::from)
}

/// `tunnel` of the build that contains this test program.
pub(super) fn own_binary() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.parent().and_then(Path::parent).unwrap().join("tunnel")
}

/// The command `tunnel` with these arguments, without any configuration of this machine.
pub fn tunnel<S: AsRef<std::ffi::OsStr>>(binary: &Path, args: &[S]) -> Command {
    let mut command = Command::new(binary);
    command.args(args).env_remove("STATE_DIRECTORY").env_remove("RUNTIME_DIRECTORY");
    command.env_remove("NOTIFY_SOCKET").env_remove("RUST_LOG").env("NO_COLOR", "1");
    command
}

/// Runs a command to its end and returns its output. The command is killed when it takes longer
/// than [`LONG`].
pub fn run(command: &mut Command) -> Output {
    run_within(command.stdin(Stdio::null()), LONG)
        .unwrap_or_else(|| panic!("{command:?} did not end in {LONG:?}"))
}

/// As [`run`], with the caller's deadline and standard input. `None` when the command was killed.
pub fn run_within(command: &mut Command, deadline: Duration) -> Option<Output> {
    let (out, err) = (Stdio::piped(), Stdio::piped());
    let child = command.stdout(out).stderr(err).spawn();
    let child = child.unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let pid = Pid::from_child(&child);
    let (report, output) = sync_channel(1);
    std::thread::spawn(move || report.send(child.wait_with_output()));
    output.recv_timeout(deadline).map(Result::unwrap).ok().or_else(|| {
        // The process still runs, so the number still belongs to it.
        kill_process(pid, Signal::KILL).unwrap();
        None
    })
}

/// Whether a line contains all these words, in any case.
fn holds(line: &str, words: &[&str]) -> bool {
    let line = line.to_lowercase();
    words.iter().all(|word| line.contains(&word.to_lowercase()))
}

/// A running child.
#[derive(Debug)]
pub struct Daemon {
    name: String,
    child: Child,
    /// An open file, so that the log can be shown after its folder was removed.
    log: File,
}

impl Daemon {
    /// Starts a child; standard output and standard error append to `NAME.log` in `dir`.
    pub fn start(name: &str, dir: &Path, command: &mut Command) -> Self {
        Self::try_start(name, dir, command).unwrap_or_else(|e| panic!("{command:?}: {e}"))
    }

    /// As [`Self::start`], for programs that continue after a failure.
    ///
    /// # Errors
    /// The system's error about the log file or the program.
    pub fn try_start(name: &str, dir: &Path, command: &mut Command) -> io::Result<Self> {
        let path = dir.join(format!("{name}.log"));
        let log = File::options().create(true).read(true).append(true).open(path)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log.try_clone()?);
        Ok(Self { name: name.to_owned(), child: command.spawn()?, log })
    }

    /// The name of the child's log.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Everything that this child, and earlier children with the same name, printed.
    pub fn log(&self) -> String {
        let mut text = Vec::new();
        let mut piece = vec![0; 64 << 10];
        // Reads by position: the writers share the file's offset and move it.
        loop {
            let n = self.log.read_at(&mut piece, text.len() as u64).unwrap();
            if n == 0 {
                break;
            }
            text.extend_from_slice(&piece[..n]);
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The first line that contains all these words, in any case.
    pub fn wait_line(&self, words: &[&str], deadline: Duration) -> String {
        wait(&format!("{} prints a line with {words:?}", self.name), deadline, || {
            self.log().lines().find(|line| holds(line, words)).map(str::to_owned)
        })
    }

    /// As [`Self::wait_line`], and checks that no second line contains the words.
    pub fn wait_one_line(&self, words: &[&str], deadline: Duration) {
        let line = self.wait_line(words, deadline);
        let log = self.log();
        let count = log.lines().filter(|line| holds(line, words)).count();
        assert_eq!(count, 1, "{words:?} in {log}");
        println!("{line}");
    }

    /// Resident memory in bytes, without pages that are only mapped from files.
    pub fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() * 1024
    }

    /// The number of open descriptors of the child.
    #[must_use]
    pub fn descriptors(&self) -> u64 {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count() as u64
    }

    /// The processor time that the child has used. The system counts it in clock ticks of 10 ms.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        // The name may hold any character (proc(5)): count after the name, to fields 14 and 15 of
        // the line.
        let fields = stat.rsplit_once(')').unwrap().1;
        let ticks = fields.split_whitespace().skip(11).take(2);
        let ticks: u64 = ticks.map(|field| field.parse::<u64>().unwrap()).sum();
        Duration::from_millis(ticks * 10)
    }

    /// The child's process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether the child still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for the child's end.
    pub fn wait_end(&mut self, deadline: Duration) -> ExitStatus {
        let what = format!("{} ends", self.name);
        wait(&what, deadline, || self.child.try_wait().unwrap())
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Sends any signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Sends SIGKILL, and waits until the kernel has cleaned up.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The child may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
        if std::thread::panicking() {
            eprintln!("--- {} ---\n{}", self.name, self.log());
        }
    }
}
