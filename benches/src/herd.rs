//! Thousands of real clients in one process. Each client keeps a link to its server and publishes
//! nothing, or one name of HTTP. `load storm` and the end-to-end tests of restarts use it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

use link::client::{Client, Report, StandbyPath, run};
use link::{Host, Link, Owner, Path, Retry, State};
use proto::control::{ControlMessage, Register, ServiceSpec, ServiceTerms};
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
    published: Cell<usize>,
    /// The streams that visitors opened.
    visits: Cell<usize>,
    refusals: RefCell<Vec<String>>,
    failures: RefCell<Vec<Instant>>,
}

impl Herd {
    /// Starts one client for each name, all at once. Needs a local runtime.
    #[must_use]
    pub fn start(server: &Server, token: &Token, names: impl IntoIterator<Item = Name>) -> Self {
        Self::start_at(slice::from_ref(server), token, names, None)
    }

    /// Starts one client for each name, all at once, at the servers in turn. The client `NAME`
    /// publishes `http://NAME.DOMAIN`, and refuses each visitor. Needs a local runtime.
    #[must_use]
    pub fn publish(
        servers: &[Server],
        token: &Token,
        names: impl IntoIterator<Item = Name>,
        domain: &str,
    ) -> Self {
        Self::start_at(servers, token, names, Some(domain))
    }

    fn start_at(
        servers: &[Server],
        token: &Token,
        names: impl IntoIterator<Item = Name>,
        domain: Option<&str>,
    ) -> Self {
        let tally = Rc::<Told>::default();
        let in_turn =
            |server: &Server| Server { dialer: taking_turns(&server.dialer), ..server.clone() };
        let servers: Vec<_> = servers.iter().map(in_turn).collect();
        let all = names.into_iter().zip(servers.iter().cycle());
        let keepers = all.map(|(name, server)| keep(server, token, name, domain, &tally)).collect();
        Self { tally, keepers }
    }

    /// The number of clients with a live link whose name is published.
    #[must_use]
    pub fn published(&self) -> usize {
        self.tally.published.get()
    }

    /// The number of streams that visitors have opened.
    #[must_use]
    pub fn visits(&self) -> usize {
        self.tally.visits.get()
    }

    /// The reasons of refused names since the last call.
    #[must_use]
    pub fn take_refusals(&self) -> Vec<String> {
        self.tally.refusals.take()
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

fn keep(
    server: &Server,
    token: &Token,
    name: Name,
    domain: Option<&str>,
    tally: &Rc<Told>,
) -> AbortHandle {
    let service = domain.map(|domain| ServiceSpec {
        public: vec![format!("http://{name}.{domain}")],
        name: name.clone(),
        terms: ServiceTerms::default(),
    });
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
    let owner = Member {
        tally: Rc::clone(tally),
        service,
        live: Cell::new(None),
        is_published: Cell::new(false),
    };
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
    service: Option<ServiceSpec>,
    /// The serial number of the live link.
    live: Cell<Option<u64>>,
    is_published: Cell<bool>,
}

impl Member {
    fn set_published(&self, is_published: bool) {
        let count = &self.tally.published;
        match (self.is_published.replace(is_published), is_published) {
            (false, true) => count.set(count.get() + 1),
            (true, false) => count.set(count.get() - 1),
            (true, true) | (false, false) => {}
        }
    }
}

impl Owner for Member {
    fn accept(&self, _link: &Link, _open: Open, inlet: Box<dyn Inlet>) -> Rc<dyn Outlet> {
        self.tally.visits.set(self.tally.visits.get() + 1);
        relay::refuse_stream(&*inlet, None, ResetCode::Unknown)
    }

    fn message(&self, link: &Link, message: ControlMessage) {
        let ControlMessage::Registered(registered) = message else { return };
        if self.live.get() != Some(link.serial()) {
            return;
        }
        let Some(result) = registered.results.first() else { return };
        self.set_published(result.outcome.is_ok());
        if let Err(error) = &result.outcome {
            self.tally.refusals.borrow_mut().push(error.to_string());
        }
    }

    fn changed(&self, link: &Link, state: State) {
        let count = &self.tally.live;
        if state == State::Live {
            if self.live.replace(Some(link.serial())).is_none() {
                count.set(count.get() + 1);
            }
            if let Some(service) = &self.service {
                let services = vec![service.clone()];
                let register = Register { generation: 1, services, ..Register::default() };
                // The first message of a link has room.
                let _ = link.send_message(&ControlMessage::Register(register));
            }
        } else if self.live.get() == Some(link.serial()) {
            self.live.set(None);
            count.set(count.get() - 1);
            self.set_published(false);
        }
    }
}
