//! A client: the real keeper of a link, and what it reported.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use link::client::{Report, StandbyPath, run};
use link::{Host, Link, Path, Retry};
use proto::greeting::{Features, Identity, Name, Token};
use proto::{InstanceId, LinkConfig, Unlimited};
use tokio::task::AbortHandle;
use transport::memory::MEMORY;
use transport::memory::{Faults, MemoryDialer};
use transport::{Carrier, CarrierError, Connection, Dialer, LocalFuture, Transport, Watch};

use super::{Party, until};

/// 256 bits, as `tunnel generate token` makes them.
pub(crate) const TOKEN: &str = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ";

/// What a client is like; change it before it starts.
type Plan = link::client::Client;

/// A client of these paths with quick retries.
pub(crate) fn plan(paths: Vec<Path>) -> Plan {
    Plan {
        paths,
        standby: StandbyPath::Nowhere,
        choice: None,
        spreads: false,
        features: Features::ALONE,
        name: Name::new("client-1").unwrap(),
        identity: Identity::Token(Token::new(TOKEN).unwrap()),
        instance: InstanceId([7; 16]),
        logged_in: Arc::new(AtomicBool::new(false)),
        shares: Arc::default(),
        leaving: Arc::new(AtomicBool::new(false)),
        retry: Retry { min: Duration::from_millis(2), max: Duration::from_millis(10) },
        redial: Rc::default(),
        link: LinkConfig::default(),
        budget: Rc::new(Unlimited),
        serials: Arc::new(AtomicU64::new(1)),
    }
}

/// A path to a port of this machine.
pub(crate) fn path(dialer: Rc<dyn Dialer>, port: u16) -> Path {
    let url = format!("{}://127.0.0.1:{port}", dialer.transport());
    Path { url, dialer: Rc::new(Host { name: "127.0.0.1".to_owned(), port, dialer }) }
}

/// A path in memory.
pub(crate) fn direct(dialer: &MemoryDialer) -> Path {
    path(Rc::new(dialer.clone()), 1)
}

/// A dialer whose connections have each their own fault.
#[derive(Debug)]
pub(crate) struct Scripted {
    inner: MemoryDialer,
    faults: RefCell<VecDeque<Faults>>,
    /// Every connection after the listed ones.
    pub(crate) others: Cell<Faults>,
    /// The duration of a dial.
    pub(crate) delay: Cell<Duration>,
    pub(crate) is_down: Cell<bool>,
    /// The path does not exist.
    pub(crate) is_away: Cell<bool>,
    /// The number of dials without an answer, before the others.
    pub(crate) silent: Cell<u32>,
    pub(crate) dials: Cell<usize>,
    /// The statistics of its connections, if any.
    pub(crate) watch: RefCell<Option<Arc<dyn Watch>>>,
    /// The ends of its connections, if they are known.
    pub(crate) connection: Cell<Option<Connection>>,
}

impl Scripted {
    pub(crate) fn new(inner: &MemoryDialer, faults: impl Into<VecDeque<Faults>>) -> Rc<Self> {
        Rc::new(Self {
            inner: inner.clone(),
            faults: RefCell::new(faults.into()),
            others: Cell::new(Faults::default()),
            delay: Cell::new(Duration::ZERO),
            is_down: Cell::new(false),
            is_away: Cell::new(false),
            silent: Cell::new(0),
            dials: Cell::new(0),
            watch: RefCell::default(),
            connection: Cell::default(),
        })
    }
}

impl Dialer for Scripted {
    fn dial(&self, address: SocketAddr) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        self.dials.set(self.dials.get() + 1);
        if self.is_down.get() {
            let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
            return Box::pin(std::future::ready(Err(refused.into())));
        }
        if self.is_away.get() {
            let away = CarrierError::Unavailable("not there".to_owned());
            return Box::pin(std::future::ready(Err(away)));
        }
        if let Some(left) = self.silent.get().checked_sub(1) {
            self.silent.set(left);
            return Box::pin(std::future::pending());
        }
        let faults = self.faults.borrow_mut().pop_front().unwrap_or_else(|| self.others.get());
        let (inner, delay) = (self.inner.clone(), self.delay.get());
        let (watch, connection) = (self.watch.borrow().clone(), self.connection.get());
        Box::pin(async move {
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            inner.set_faults(faults);
            let mut carrier = inner.dial(address).await?;
            carrier.peer.watch = watch;
            carrier.peer.connection = connection;
            Ok(carrier)
        })
    }

    fn transport(&self) -> Transport {
        MEMORY
    }
}

pub(crate) struct Client {
    pub(crate) owner: Rc<Party>,
    current: Rc<RefCell<Option<Link>>>,
    /// Links had so far.
    pub(crate) links: Rc<Cell<usize>>,
    /// Ports connected to, and whether by a resume.
    pub(crate) connected: Rc<RefCell<Vec<(u16, bool)>>>,
    /// Why each of them has another path than before.
    reasons: Rc<RefCell<Vec<Option<String>>>>,
    /// What failed, in words, and the pause after it.
    pub(crate) failures: Rc<RefCell<Vec<(String, Duration)>>>,
    /// The pauses after failed attempts with a better path, in seconds.
    pub(crate) not_better: Rc<RefCell<Vec<u64>>>,
    task: AbortHandle,
}

impl Client {
    pub(crate) fn start(plan: Plan) -> Self {
        let owner = Party::new();
        let current = Rc::new(RefCell::new(None));
        let links = Rc::new(Cell::new(0));
        let connected = Rc::new(RefCell::new(Vec::new()));
        let failures = Rc::new(RefCell::new(Vec::new()));
        let reasons = Rc::<RefCell<Vec<_>>>::default();
        let not_better = Rc::<RefCell<Vec<_>>>::default();
        let on_link = {
            let (current, links) = (Rc::clone(&current), Rc::clone(&links));
            Rc::new(move |link: Option<&Link>| {
                links.set(links.get() + usize::from(link.is_some()));
                *current.borrow_mut() = link.cloned();
            })
        };
        let report = {
            let (connected, failures) = (Rc::clone(&connected), Rc::clone(&failures));
            let (reasons, not_better) = (Rc::clone(&reasons), Rc::clone(&not_better));
            Rc::new(move |report: Report<'_>| match report {
                Report::Connected { path, resumed, reason, .. } => {
                    reasons.borrow_mut().push(reason.map(|reason| reason.to_string()));
                    let (_, port) = path.url.rsplit_once(':').unwrap();
                    connected.borrow_mut().push((port.parse().unwrap(), resumed));
                }
                Report::Unreachable { error, pause, .. } => {
                    failures.borrow_mut().push((error.to_string(), pause));
                }
                Report::NotBetter { pause, .. } => not_better.borrow_mut().push(pause.as_secs()),
            })
        };
        let keeper = run(plan, Rc::clone(&owner) as Rc<dyn link::Owner>, on_link, report);
        let task = tokio::task::spawn_local(keeper).abort_handle();
        Self { owner, current, links, connected, reasons, failures, not_better, task }
    }

    pub(crate) fn link(&self) -> Option<Link> {
        self.current.borrow().clone()
    }

    /// Why the last carrier has another path than the carrier before it.
    pub(crate) fn reason(&self) -> String {
        self.reasons.borrow().last().cloned().flatten().unwrap_or_default()
    }

    /// The link in use, once frames flow.
    pub(crate) async fn live(&self) -> Link {
        until("a live link", || self.link().is_some_and(|link| link.is_live())).await;
        self.link().unwrap()
    }

    pub(crate) fn stop(&self) {
        self.task.abort();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop();
    }
}
