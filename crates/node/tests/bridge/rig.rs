//! Processes of a test: each accepts or dials links, over carriers in memory or inside a stream.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use link::client::{StandbyPath, run};
use link::server::{Backlog, Greeted, Placement, Verifier, VerifierFuture, accept, log_in};
use link::{Link, Owner, Path, Retry, Settings, State};
use proto::control::ControlMessage;
use proto::greeting::{
    Features, Grant, Identity, LinkSecret, Name, StoredCredential, Terms, Token,
};
use proto::{InstanceId, LinkConfig, LinkId, Open, Priority, Side, Target, Unlimited};
use relay::{Duplex, StreamLane, accept_duplex, open_duplex};
use tokio::task::spawn_local;
use transport::memory::MemoryListener;
use transport::{
    Carrier, CarrierError, Dialled, EarlyDataFn, FlowInlet, FlowOutlet, Incoming, Inlet,
    LocalFuture, Outlet, PathDialer, Peer, Transport,
};

/// 256 bits, as `tunnel generate token` makes them.
const TOKEN: &str = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ";

/// The carrier that is a stream of another link.
const INNER: Transport = Transport::new("inner");

/// Windows do not grow, so the bytes that a bridge may hold are known.
pub(crate) const WINDOW: u64 = 256 << 10;

fn config() -> LinkConfig {
    LinkConfig { window_initial: WINDOW, window_max: WINDOW, ..LinkConfig::default() }
}

/// What a process does with a stream that its peer opens.
type Accept = dyn Fn(Open, Box<dyn Inlet>) -> Rc<dyn Outlet>;

pub(crate) struct Party {
    accept: Box<Accept>,
}

impl Party {
    pub(crate) fn new(
        accept: impl Fn(Open, Box<dyn Inlet>) -> Rc<dyn Outlet> + 'static,
    ) -> Rc<Self> {
        Rc::new(Self { accept: Box::new(accept) })
    }

    /// A process whose peer opens no stream.
    pub(crate) fn silent() -> Rc<Self> {
        Self::new(|open, _| panic!("a stream to {:?}", open.target))
    }

    /// Gives each stream of the peer to `serve`.
    pub(crate) fn serving(serve: impl Fn(Duplex) + 'static) -> Rc<Self> {
        Self::new(move |open, inlet| {
            let (outlet, stream) = accept_duplex(inlet, open.visitor.into(), &Rc::default(), None);
            serve(stream);
            outlet
        })
    }
}

impl fmt::Debug for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Party")
    }
}

impl Owner for Party {
    fn accept(&self, _: &Link, open: Open, inlet: Box<dyn Inlet>) -> Rc<dyn Outlet> {
        (self.accept)(open, inlet)
    }

    fn accept_flow(&self, _: &Link, _: Open, _: Box<dyn FlowInlet>) -> Option<Rc<dyn FlowOutlet>> {
        None
    }

    fn message(&self, _: &Link, _: ControlMessage) {}

    fn changed(&self, _: &Link, _: State) {}
}

/// A process that accepts links, whatever their carriers are.
pub(crate) struct Acceptor {
    owner: Rc<Party>,
    links: RefCell<HashMap<LinkId, (Link, LinkSecret, InstanceId)>>,
    ids: Cell<u64>,
    pub(crate) greeted: Cell<usize>,
}

impl Acceptor {
    pub(crate) fn new(owner: Rc<Party>) -> Rc<Self> {
        let (links, ids, greeted) = Default::default();
        Rc::new(Self { owner, links, ids, greeted })
    }

    /// Accepts carriers in memory.
    pub(crate) fn listen(self: &Rc<Self>, listener: MemoryListener) {
        let backlog = Everybody(Rc::clone(self));
        spawn_local(async move { accept(Box::new(listener), &backlog).await });
    }

    /// Takes a stream as a carrier.
    pub(crate) fn take_stream(self: &Rc<Self>, stream: Duplex) {
        Everybody(Rc::clone(self)).begin(Box::new(Inner(stream)));
    }

    fn new_link(&self, accepted: &proto::greeting::ServerAccepted) -> Link {
        let settings = Settings {
            side: Side::Server,
            config: config(),
            budget: Rc::new(Unlimited),
            serial: self.ids.get(),
            features: accepted.features,
        };
        Link::new(settings, Rc::clone(&self.owner) as Rc<dyn Owner>)
    }

    /// The link that has not ended. It may wait for its next carrier.
    pub(crate) fn link(&self) -> Option<Link> {
        let links = self.links.borrow();
        links.values().map(|(link, ..)| link.clone()).find(|link| !link.has_ended())
    }
}

/// Takes every connection.
struct Everybody(Rc<Acceptor>);

impl Backlog for Everybody {
    fn begin(&self, incoming: Box<dyn Incoming>) -> bool {
        let acceptor = Rc::clone(&self.0);
        spawn_local(async move {
            // A test may have killed the carrier during its greeting.
            let _ = log_in(incoming, &*acceptor, &*acceptor).await;
        });
        true
    }

    fn failed(&self, at: SocketAddr, error: &io::Error) {
        panic!("{at}: {error}");
    }
}

impl Placement for Acceptor {
    fn place(&self, greeted: Greeted) -> bool {
        self.greeted.set(self.greeted.get() + 1);
        let id = greeted.accepted.link;
        if let Some(secret) = greeted.accepted.secret.clone() {
            let entry = (self.new_link(&greeted.accepted), secret, greeted.grant.instance);
            self.links.borrow_mut().insert(id, entry);
        }
        let link = self.links.borrow().get(&id).map(|(link, ..)| link.clone());
        let Some(link) = link else { return false };
        // A later carrier may have been first.
        let _ = greeted.attach_to(&link);
        true
    }
}

impl Verifier for Acceptor {
    fn credentials<'a>(&'a self, _: &'a Name) -> VerifierFuture<'a, Vec<StoredCredential>> {
        Box::pin(async { Ok(vec![Token::new(TOKEN).unwrap().stored()]) })
    }

    fn certificate_suffices(&self, _: &Name) -> bool {
        false
    }

    fn link_secret(&self, _: &Name, instance: InstanceId, link: LinkId) -> Option<LinkSecret> {
        let links = self.links.borrow();
        let (link, secret, owner) = links.get(&link)?;
        (*owner == instance && !link.has_ended()).then(|| secret.clone())
    }

    fn decide<'a>(&'a self, _: &'a Grant, _: &'a Peer) -> VerifierFuture<'a, Terms> {
        let number = self.ids.get() + 1;
        self.ids.set(number);
        let mut random = [0; 12];
        random[..8].copy_from_slice(&number.to_be_bytes());
        let LinkConfig { resume_timeout, keepalive, .. } = config();
        let new_link = LinkId::compose([1, 2, 3, 4], random);
        Box::pin(async move { Ok(Terms { new_link, resume_timeout, keepalive }) })
    }
}

/// A connection that is a stream.
#[derive(Debug)]
struct Inner(Duplex);

impl Incoming for Inner {
    fn remote(&self) -> SocketAddr {
        SocketAddr::from(([0, 0, 0, 0], 0))
    }

    fn handshake(self: Box<Self>) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        Box::pin(async { Ok(inner(self.0)) })
    }
}

/// A carrier that is a stream.
fn inner(stream: Duplex) -> Carrier {
    let peer = Peer {
        address: SocketAddr::from(([0, 0, 0, 0], 0)),
        transport: INNER,
        connection: None,
        watch: None,
        exporter: None,
        certificate_name: None,
        cipher: None,
        via: None,
    };
    Carrier::single(peer, Box::new(StreamLane::new(stream)))
}

/// Dials carriers that are streams of another link.
#[derive(Debug)]
pub(crate) struct ThroughLink {
    pub(crate) link: Link,
    pub(crate) service: &'static str,
}

impl PathDialer for ThroughLink {
    fn dial(&self, _: Option<EarlyDataFn>) -> LocalFuture<'static, Dialled> {
        let open = to_service(self.service);
        let stream = open_duplex(&self.link, open, &Rc::default(), None);
        Box::pin(async { Ok((inner(stream.map_err(io::Error::other)?), None)) })
    }
}

pub(crate) fn to_service(name: &str) -> Open {
    Open {
        target: Target::Service(name.to_owned()),
        visitor: None,
        priority: Priority::Normal,
        fields: None,
    }
}

/// A process that keeps a link to an [`Acceptor`].
pub(crate) struct Dialler {
    current: Rc<RefCell<Option<Link>>>,
    /// Links had so far.
    pub(crate) links: Rc<Cell<usize>>,
}

impl Dialler {
    pub(crate) fn start(dialer: Rc<dyn PathDialer>, owner: Rc<Party>) -> Self {
        let plan = link::client::Client {
            paths: vec![Path { url: "memory://peer".to_owned(), dialer }],
            standby: StandbyPath::Nowhere,
            choice: None,
            spreads: false,
            features: Features::ALONE,
            name: Name::new("peer").unwrap(),
            identity: Identity::Token(Token::new(TOKEN).unwrap()),
            instance: InstanceId([7; 16]),
            logged_in: Arc::new(AtomicBool::new(false)),
            shares: Arc::default(),
            leaving: Arc::new(AtomicBool::new(false)),
            retry: Retry { min: Duration::from_millis(2), max: Duration::from_millis(10) },
            redial: Rc::default(),
            link: config(),
            budget: Rc::new(Unlimited),
            serials: Arc::new(AtomicU64::new(1)),
        };
        let (current, links) =
            (Rc::<RefCell<Option<Link>>>::default(), Rc::<Cell<usize>>::default());
        let on_link = {
            let (current, links) = (Rc::clone(&current), Rc::clone(&links));
            Rc::new(move |link: Option<&Link>| {
                links.set(links.get() + usize::from(link.is_some()));
                *current.borrow_mut() = link.cloned();
            })
        };
        spawn_local(run(
            plan,
            owner as Rc<dyn Owner>,
            on_link,
            Rc::new(|_: link::client::Report<'_>| {}),
        ));
        Self { current, links }
    }

    pub(crate) async fn live(&self) -> Link {
        until(|| self.current.borrow().as_ref().is_some_and(Link::is_live)).await;
        self.current.borrow().clone().unwrap()
    }
}

/// Waits for something that must come; two minutes of virtual time are far more than anything
/// takes.
pub(crate) async fn until(condition: impl Fn() -> bool) {
    for _ in 0..120_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("not within two minutes");
}
