//! The constant traffic through the tunnel: a thread for each kind of work does one piece after the
//! other.

mod files;
mod iperf;
mod shell;
mod visitors;
mod web;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};
use testkit::stage::bytes::Complaint;
use testkit::stage::{Daemon, Nginx, Origin, run_within, start_sshd};

use super::ledger::Ledger;
use iperf::Iperf;

/// The longest time for one piece of work. A piece takes some seconds, and the longest pause that
/// faults cause is about ten seconds. A longer wait is a hang, and a death does not excuse it.
const DEADLINE: Duration = Duration::from_secs(90);

/// The pause between two pieces, and after a failed piece, so that an absent server is not asked
/// without pause.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_FAILED: Duration = Duration::from_millis(700);

/// The servers behind the tunnel.
#[derive(Debug)]
pub(super) struct Origins {
    dir: PathBuf,
    nginx: Nginx,
    sshd: (u16, Daemon, Vec<String>),
    iperf: Arc<Mutex<Iperf>>,
    iperf_port: u16,
    echo: Origin,
}

/// The public and local ports that visitors use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entrances {
    pub(super) web: u16,
    pub(super) ssh: u16,
    pub(super) echo: u16,
    pub(super) echo_forward: u16,
    pub(super) iperf: u16,
}

impl Origins {
    pub(super) fn start(dir: &Path) -> Self {
        let (iperf_port, iperf) = Iperf::start(dir);
        Self {
            dir: dir.to_owned(),
            nginx: Nginx::start(dir, ""),
            sshd: start_sshd(dir),
            iperf: Arc::new(Mutex::new(iperf)),
            iperf_port,
            echo: Origin::echo(),
        }
    }

    pub(super) fn web(&self) -> u16 {
        self.nginx.port
    }

    pub(super) fn ssh(&self) -> u16 {
        self.sshd.0
    }

    pub(super) fn iperf(&self) -> u16 {
        self.iperf_port
    }

    pub(super) fn echo(&self) -> u16 {
        self.echo.port()
    }
}

/// One kind of work. The function takes the turn, counted from 0, and returns bytes or a failure.
struct Job {
    kind: &'static str,
    /// Whether the work also opens connections after its start.
    opens_late: bool,
    piece: Box<dyn FnMut(u64) -> Result<u64, Complaint> + Send>,
}

fn job(
    kind: &'static str,
    piece: impl FnMut(u64) -> Result<u64, Complaint> + Send + 'static,
) -> Job {
    Job { kind, opens_late: false, piece: Box::new(piece) }
}

/// Threads that work until they are told to finish.
#[derive(Debug)]
pub(super) struct Traffic {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Traffic {
    pub(super) fn start(
        entrances: &Entrances,
        origins: &Origins,
        ledger: &Arc<Ledger>,
    ) -> Result<Self> {
        let Entrances { web, ssh, echo, echo_forward, iperf } = *entrances;
        let dir = &origins.dir;
        let secret = files::make(dir).context("a file to send")?;
        let shell = shell::Shell::new(ssh, &origins.sshd.2, secret);
        let server = Arc::clone(&origins.iperf);
        let both = move |turn: u64| if turn.is_multiple_of(2) { echo } else { echo_forward };
        let jobs = [
            web::downloads(web, dir)?,
            web::pages(web),
            shell.typing(),
            shell.pipe(dir),
            shell.rsync(dir),
            iperf::runs(iperf, server),
            job("echo, 6 MB", move |turn| visitors::bulk(both(turn))),
            job("echo, long", move |turn| visitors::talk(both(turn), turn)),
            job("echo, short", move |turn| visitors::brief(both(turn))),
        ];
        let over = Arc::new(AtomicBool::new(false));
        let threads = jobs.into_iter().map(|mut job| {
            let (over, ledger) = (Arc::clone(&over), Arc::clone(ledger));
            let work = move || {
                for turn in (0..).take_while(|_| !over.load(Ordering::Relaxed)) {
                    let mark = ledger.mark();
                    let outcome = (job.piece)(turn);
                    let pause = if outcome.is_ok() { PAUSE } else { PAUSE_FAILED };
                    ledger.work(job.kind, &mark, job.opens_late, outcome);
                    std::thread::sleep(pause);
                }
            };
            std::thread::Builder::new().name(job.kind.to_owned()).spawn(work)
        });
        let threads = threads.collect::<Result<_, _>>().context("starting a thread")?;
        Ok(Self { over, threads })
    }

    /// Lets every started piece of work finish.
    pub(super) fn finish(self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            // A panic of the thread has printed itself; the table shows the missing work.
            drop(thread.join());
        }
    }
}

/// Runs a program to its end; a status other than 0 is a broken connection.
fn succeed(command: &mut Command) -> Result<Output, Complaint> {
    let name = Path::new(command.get_program()).file_name().unwrap_or_default().to_owned();
    let name = name.to_string_lossy();
    let Some(output) = run_within(command, DEADLINE) else {
        return Err(Complaint::Wrong(format!("{name} hung for {} s", DEADLINE.as_secs())));
    };
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(Complaint::Broken(format!("{name}: {}: {}", output.status, said.trim())))
}
