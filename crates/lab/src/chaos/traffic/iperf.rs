//! iperf3 through a forward, in alternating directions.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use testkit::stage::bytes::Complaint;
use testkit::stage::{Iperf3, program, run_within};

use super::{DEADLINE, Job, job};

/// The bytes of a run, at 10 MB/s.
const BYTES: u64 = 24 << 20;

/// The iperf3 server. A broken run can leave it in a state that refuses the next run.
#[derive(Debug)]
pub(super) struct Iperf {
    dir: PathBuf,
    port: u16,
    server: Option<Iperf3>,
}

impl Iperf {
    pub(super) fn start(dir: &Path) -> (u16, Self) {
        let server = Iperf3::start(dir);
        let port = server.port;
        (port, Self { dir: dir.to_owned(), port, server: Some(server) })
    }

    fn start_again(&mut self) {
        // End the old server before the start of the new one: they share the port.
        drop(self.server.take());
        self.server = Some(Iperf3::start_on(&self.dir, self.port));
    }

    /// Restarts a busy server. The client's run may be over while the server has not heard of it,
    /// and waiting for the server would waste time.
    fn make_idle(&mut self) {
        if !self.server.as_ref().is_some_and(Iperf3::is_idle) {
            self.start_again();
        }
    }
}

pub(super) fn runs(port: u16, server: Arc<Mutex<Iperf>>) -> Job {
    let mut job = job("iperf3, 24 MiB", move |turn| {
        let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
        server.make_idle();
        let outcome = run_once(port, turn % 2 == 1);
        if outcome.is_err() {
            server.start_again();
        }
        outcome
    });
    // iperf3 opens a control connection, and later a second connection for the data.
    job.opens_late = true;
    job
}

fn run_once(port: u16, reverse: bool) -> Result<u64, Complaint> {
    let mut command = Command::new(program("iperf3"));
    let (port, bytes) = (port.to_string(), BYTES.to_string());
    command.args(["-c", "127.0.0.1", "-p", &port, "-n", &bytes, "-b", "80M", "-J"]);
    if reverse {
        command.arg("-R");
    }
    let Some(output) = run_within(&mut command, DEADLINE) else {
        return Err(Complaint::Wrong(format!("iperf3 hung for {} s", DEADLINE.as_secs())));
    };
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    if !output.status.success() || report.get("error").is_some() {
        return Err(Complaint::Broken(format!("iperf3: {}: {}", output.status, report["error"])));
    }
    let sent = report["end"]["sum_sent"]["bytes"].as_u64().unwrap_or(0);
    if sent < BYTES {
        return Err(Complaint::Wrong(format!("iperf3 sent {sent} bytes: {}", report["end"])));
    }
    Ok(sent)
}
