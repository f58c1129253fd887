//! The daemons, the path between them, their clocks and names, and the effect of each fault on
//! them.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use testkit::stage::{Clock, Daemon, Running, Scheme, Setup, free_port, try_connect};
use testkit::wire::{Entry, Reach, Trouble, Way, Wire};

use super::ledger::Ledger;
use super::names::{ADDRESSES, NAME, Names};
use super::schedule::{Fault, Role};
use super::traffic::{Entrances, Origins};

/// The time that open streams get at SIGTERM; the configuration file has the same value.
const DRAIN: Duration = Duration::from_secs(3);

/// The time a process gets to exit after its drain: 5 times the need on a busy machine.
const GONE: Duration = Duration::from_secs(5);

/// The time until a visitor gets through after a start, or after the last reset that follows a
/// start: 5 times 2 s, and the longest stall.
const BACK: Duration = Duration::from_secs(19);

/// The time between resets while a process comes back: it falls into the process's first
/// handshakes.
const STUTTER: Duration = Duration::from_millis(70);

/// The longest wait for a visitor to get through; a longer wait is given up.
const BACK_AT_ALL: Duration = Duration::from_secs(90);

/// The time that streams may remain after the last visitor has left. A stream that waits for a path
/// that swallows everything is found by the second missed ping.
const LEFT: Duration = Duration::from_secs(30);

/// All parts that can break.
#[derive(Debug)]
pub(super) struct Field {
    running: Running,
    wires: [Wire; 2],
    /// The index of the wire to which the name leads.
    current: usize,
    names: Option<Names>,
    clocks: [Clock; 2],
    entrances: Entrances,
    ledger: Arc<Ledger>,
}

impl Field {
    pub(super) fn start(
        binary: &Path,
        scheme: Scheme,
        dir: &Path,
        origins: &Origins,
        ledger: &Arc<Ledger>,
    ) -> Result<Self> {
        let mut setup = Setup::kept(binary, scheme, dir);
        let port = free_port();
        let server = SocketAddr::from(([127, 0, 0, 1], setup.server_port()));
        let path = |index: usize| Wire::between((ADDRESSES[index], port).into(), server);
        let wires = [path(0).context("a path")?, path(1).context("a path")?];
        wires[1].entry(Entry::Refused);
        let names = Names::new(dir);
        let names = names.map_err(|e| ledger.pages().skipped.push(format!("other address: {e:#}")));
        let names = names.ok();
        let address = names.as_ref().map_or_else(
            || wires[0].address().to_string(),
            |names| {
                setup.client_starter = names.starter();
                format!("{NAME}:{port}")
            },
        );
        setup.server_url = Some(format!("{}://{address}{}", scheme.name, setup.server_path));
        let clocks = [Role::Server, Role::Client].map(|role| Clock::right(dir, role.name()));
        (setup.server_env, setup.client_env) = (clocks[0].env(), clocks[1].env());
        for lines in [&mut setup.server_lines, &mut setup.client_lines] {
            let drain = DRAIN.as_secs();
            lines.push_str(&format!(
                "keepalive: 2s\ndrain_timeout: {drain}s\nlog: {{ level: debug }}\n"
            ));
        }
        setup.client_lines.push_str("connections: 2\n");
        let setup = setup.service("web", origins.web()).service("ssh", origins.ssh());
        let setup = setup.service("echo", origins.echo());
        let running = setup.forward(origins.iperf()).forward(origins.echo()).start();
        let entrances = Entrances {
            web: running.public("web"),
            ssh: running.public("ssh"),
            echo: running.public("echo"),
            echo_forward: running.local_to(origins.echo()),
            iperf: running.local_to(origins.iperf()),
        };
        let ledger = Arc::clone(ledger);
        let field = Self { running, wires, current: 0, names, clocks, entrances, ledger };
        field.served(BACK_AT_ALL).context("no visitor gets through even before the first fault")?;
        Ok(field)
    }

    /// The addresses where visitors connect.
    pub(super) fn entrances(&self) -> Entrances {
        self.entrances
    }

    /// Applies a fault. Returns when the fault is over, if it has an end.
    pub(super) fn apply(&mut self, fault: Fault) {
        let name = fault.name();
        let what = format!("{fault:?}");
        match fault {
            Fault::Path(trouble) => {
                let reached = self.wires[self.current].suffer(trouble);
                self.ledger.fault(&name, &what, reached);
            }
            Fault::Clock(role, offset) => {
                self.clocks[role as usize].set(offset);
                self.ledger.fault(&name, &what, 0);
            }
            Fault::Name { silent } => self.move_name(silent, &name, &what),
            Fault::Kill(role, rebirth) => {
                self.ledger.fault(&name, &what, 0);
                self.ledger.died(Duration::ZERO);
                self.daemon(role).kill();
                thread::sleep(rebirth.away);
                self.start_again(role, &name, rebirth.stutters);
            }
            Fault::Terminate(role, rebirth) => {
                self.ledger.fault(&name, &what, 0);
                self.ledger.died(DRAIN);
                self.end(role);
                thread::sleep(rebirth.away);
                self.start_again(role, &name, rebirth.stutters);
            }
        }
    }

    fn move_name(&mut self, silent: bool, name: &str, what: &str) {
        let Some(names) = &self.names else { return };
        let (old, new) = (self.current, 1 - self.current);
        if let Err(e) = names.point_to(new) {
            self.ledger.fail(&self.ledger.mark(), &format!("the file of names: {e}"));
            return;
        }
        self.wires[new].entry(Entry::Open);
        self.wires[old].entry(if silent { Entry::Silent } else { Entry::Refused });
        let trouble = if silent {
            Trouble::Swallow(Reach::All, Way::Both)
        } else {
            Trouble::Reset(Reach::All)
        };
        let reached = self.wires[old].suffer(trouble);
        self.current = new;
        self.ledger.fault(name, what, reached);
    }

    /// Checks that neither daemon has ended by itself.
    pub(super) fn check(&mut self) {
        for role in [Role::Server, Role::Client] {
            if !self.daemon(role).is_running() {
                let complaint = format!("the {} has ended by itself", role.name());
                self.ledger.fail(&self.ledger.mark(), &complaint);
                self.ledger.died(Duration::ZERO);
                self.start_again(role, "died by itself", 0);
            }
        }
    }

    /// Ends the faults and sets the clocks right. Silent connections stay silent.
    pub(super) fn calm(&self) {
        self.clocks.iter().for_each(|clock| clock.set("+0"));
    }

    /// Checks that no traffic is left and that the logs hold no alarm, and that both daemons end on
    /// request.
    pub(super) fn finish(&mut self) {
        let mark = self.ledger.mark();
        for role in [Role::Server, Role::Client] {
            if let Err(complaint) = self.no_streams(role) {
                self.ledger.fail(&mark, &complaint);
            }
        }
        for role in [Role::Client, Role::Server] {
            self.end(role);
            let log = self.daemon(role).log();
            for line in log.lines().filter(|line| is_alarm(line)) {
                self.ledger.fail(&self.ledger.mark(), &format!("{} logged {line}", role.name()));
            }
        }
    }

    fn no_streams(&self, role: Role) -> Result<(), String> {
        let start = Instant::now();
        loop {
            let status = self.running.status(role.name()).unwrap_or_default();
            let sessions = status["sessions"].as_array().map_or(&[][..], Vec::as_slice);
            let links = sessions.iter().filter_map(|session| session["links"].as_array()).flatten();
            let left: Vec<_> = links.filter(|link| link["streams"] != 0).collect();
            if left.is_empty() && !sessions.is_empty() {
                return Ok(());
            }
            if start.elapsed() > LEFT {
                return Err(format!(
                    "{} s after the last visitor the {} still has streams: {left:?}",
                    LEFT.as_secs(),
                    role.name()
                ));
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn daemon(&mut self, role: Role) -> &mut Daemon {
        match role {
            Role::Server => &mut self.running.server,
            Role::Client => self.running.client(),
        }
    }

    /// Sends SIGTERM and waits for the process's end.
    fn end(&mut self, role: Role) {
        let (ledger, daemon) = (Arc::clone(&self.ledger), self.daemon(role));
        let mark = ledger.mark();
        daemon.terminate();
        let complaint = match ended_within(daemon, DRAIN + GONE) {
            Some(status) if status.success() => return,
            Some(status) => format!("the {} ended with {status} at SIGTERM", role.name()),
            None => format!("the {} has not ended at SIGTERM", role.name()),
        };
        ledger.fail(&mark, &complaint);
        daemon.kill();
    }

    fn start_again(&mut self, role: Role, fault: &str, stutters: u32) {
        let mark = self.ledger.mark();
        match role {
            Role::Server => self.running.start_server_again(),
            Role::Client => self.running.start_client(),
        }
        for _ in 0..stutters {
            thread::sleep(STUTTER);
            self.wires[self.current].suffer(Trouble::Reset(Reach::All));
        }
        let start = Instant::now();
        if self.served(BACK).is_err() {
            let complaint = format!("no visitor gets through {} s after {fault}", BACK.as_secs());
            self.ledger.fail(&mark, &complaint);
            if let Err(e) = self.served(BACK_AT_ALL) {
                self.ledger.fail(&mark, &e.to_string());
            }
        }
        self.ledger.serves_again(fault, start.elapsed());
    }

    /// Waits until visitors get an answer through the service and through the forward.
    fn served(&self, deadline: Duration) -> Result<()> {
        let start = Instant::now();
        for port in [self.entrances.echo, self.entrances.echo_forward] {
            while !answers(port) {
                anyhow::ensure!(start.elapsed() < deadline, "port {port} does not answer");
                thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }
}

/// Whether an echo comes back within a time that is harmless for a held visitor.
fn answers(port: u16) -> bool {
    let Ok(mut visitor) = try_connect(port) else { return false };
    let patience = visitor.set_read_timeout(Some(Duration::from_secs(2)));
    patience.is_ok() && visitor.write_all(b"?").is_ok() && visitor.read_exact(&mut [0]).is_ok()
}

fn ended_within(daemon: &mut Daemon, deadline: Duration) -> Option<ExitStatus> {
    let start = Instant::now();
    while daemon.is_running() {
        if start.elapsed() > deadline {
            return None;
        }
        thread::sleep(Duration::from_millis(10));
    }
    Some(daemon.wait_end(deadline))
}

/// Whether a log line reports a defect of `tunnel`.
fn is_alarm(line: &str) -> bool {
    line.contains("panicked") || line.contains(" ERROR ")
}
