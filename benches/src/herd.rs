//! Thousands of real clients in one process. Each client keeps a link to the server and publishes
//! nothing. `load storm` and the end-to-end test of a server's restart use it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

use link::client::{Client, Report, StandbyPath, run};
use link::{Host, Link, Owner, Path, Retry, State};
use proto::control::ControlMessage;
use proto::greeting::{Features, Identity, Name, Token};
use proto::{InstanceId, LinkConfig, Open, ResetCode, Unlimited};
use tokio::task::AbortHandle;
use transport::{Inlet, Outlet};

use crate::server::Server;
use crate::turns::taking_turns;

/// Clients that run until this is dropped.
#[derive(Debug)]
pub struct Herd {
    tally: Rc<Told>,
    keepers: Vec<AbortHandle>,
}

/// The reports of all clients.
#[derive(Debug, Default)]
struct Told {
    live: Cell<usize>,
    failures: RefCell<Vec<Instant>>,
}

impl Herd {
    /// Starts one client for each name, all at once. Needs a local runtime.
    #[must_use]
    pub fn start(server: &Server, token: &Token, names: impl IntoIterator<Item = Name>) -> Self {
        let tally = Rc::<Told>::default();
        let dialer = taking_turns(&server.dialer);
        let server = Server { dialer, ..server.clone() };
        let keepers = names.into_iter().map(|name| keep(&server, token, name, &tally)).collect();
        Self { tally, keepers }
    }

    /// The number of clients with a live link.
    #[must_use]
    pub fn live(&self) -> usize {
        self.tally.live.get()
    }

    /// The times of the attempts that failed since the last call.
    #[must_use]
    pub fn take_failures(&self) -> Vec<Instant> {
        self.tally.failures.take()
    }

    /// Whether no client has given up.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.keepers.iter().all(|keeper| !keeper.is_finished())
    }
}

impl Drop for Herd {
    fn drop(&mut self) {
        self.keepers.iter().for_each(AbortHandle::abort);
    }
}

fn keep(server: &Server, token: &Token, name: Name, tally: &Rc<Told>) -> AbortHandle {
    let path = Path {
        url: server.url.clone(),
        dialer: Rc::new(Host {
            name: server.address.ip().to_string(),
            port: server.address.port(),
            dialer: Rc::clone(&server.dialer),
        }),
    };
    let client = Client {
        paths: vec![path],
        standby: StandbyPath::Nowhere,
        spreads: false,
        features: Features::ALONE,
        choice: None,
        name,
        identity: Identity::Token(token.clone()),
        instance: InstanceId(link::random()),
        logged_in: Arc::new(AtomicBool::new(false)),
        shares: Arc::default(),
        leaving: Arc::new(AtomicBool::new(false)),
        retry: Retry::default(),
        redial: Rc::default(),
        link: LinkConfig::default(),
        budget: Rc::new(Unlimited),
        serials: Arc::new(AtomicU64::new(1)),
    };
    let owner = Member { tally: Rc::clone(tally), live: Cell::new(None) };
    let tally = Rc::clone(tally);
    let report = move |report: Report<'_>| {
        if matches!(report, Report::Unreachable { .. }) {
            tally.failures.borrow_mut().push(Instant::now());
        }
    };
    let work = run(client, Rc::new(owner), Rc::new(|_| {}), Rc::new(report));
    tokio::task::spawn_local(work).abort_handle()
}

/// The owner of one client's links.
#[derive(Debug)]
struct Member {
    tally: Rc<Told>,
    /// The serial number of the live link.
    live: Cell<Option<u64>>,
}

impl Owner for Member {
    fn accept(&self, _link: &Link, _open: Open, inlet: Box<dyn Inlet>) -> Rc<dyn Outlet> {
        relay::refuse_stream(&*inlet, None, ResetCode::Unknown)
    }

    fn message(&self, _link: &Link, _message: ControlMessage) {}

    fn changed(&self, link: &Link, state: State) {
        let count = &self.tally.live;
        if state == State::Live {
            if self.live.replace(Some(link.serial())).is_none() {
                count.set(count.get() + 1);
            }
        } else if self.live.get() == Some(link.serial()) {
            self.live.set(None);
            count.set(count.get() - 1);
        }
    }
}
