//! A proxy at a listener whose streams another side dials, and programs that speak with it.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;

use proto::{Open, Priority, ResetCode, Target};
use relay::{
    Allow, Caller, Connectors, Credentials, Destination, FlowStats, Handler, Links, Listening,
    Proxy, ProxyKind, Report, Room, Settings, Socket, TargetAddr, Timeouts, connect_stream, listen,
    serve_proxy,
};
use transport::{FlowConnector, FlowInlet, FlowOutlet, Inlet, OpenError, Outlet};

use crate::link::{Link, Opener};
use crate::rig::{FRAME, WINDOW, until, visit};

/// The far end of the streams of a proxy.
type Accept = Box<dyn Fn(Open, Box<dyn Inlet>) -> Rc<dyn Outlet>>;

pub(crate) struct ProxyRig {
    pub(crate) address: SocketAddr,
    pub(crate) link: Rc<Link>,
    pub(crate) near: Rc<Settings>,
    pub(crate) far: Rc<Settings>,
    pub(crate) opened: Rc<RefCell<Vec<Open>>>,
    pub(crate) flows: Rc<Flows>,
    pub(crate) ways: Rc<Ways>,
    /// The counters of UDP ASSOCIATE.
    pub(crate) counters: Rc<FlowStats>,
    pub(crate) accepted: Rc<Cell<u32>>,
    _listening: Listening,
}

/// What a rig may differ in.
pub(crate) struct Options {
    pub(crate) kind: ProxyKind,
    pub(crate) credentials: Option<Credentials>,
    pub(crate) timeouts: Timeouts,
    /// The port that the far end denies.
    pub(crate) denied: u16,
    pub(crate) reports: bool,
    /// Replaces the far end.
    pub(crate) accept: Option<Accept>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            kind: ProxyKind::Socks5,
            credentials: None,
            timeouts: Timeouts::default(),
            denied: 1,
            reports: true,
            accept: None,
        }
    }
}

impl ProxyRig {
    pub(crate) fn new(options: Options) -> Self {
        let Options { kind, credentials, timeouts, denied, reports, accept } = options;
        let settings = || Rc::new(Settings { timeouts, ..Settings::default() });
        let (near, far) = (settings(), settings());
        let opened = Rc::<RefCell<Vec<Open>>>::default();
        let (of_far, seen) = (Rc::clone(&far), Rc::clone(&opened));
        let accept = accept.unwrap_or_else(|| Box::new(dialler(of_far, denied)));
        let accept = Box::new(move |open: Open, inlet| {
            seen.borrow_mut().push(open.clone());
            accept(open, inlet)
        });
        let link = Link::new(WINDOW, FRAME, accept);
        let flows = Rc::<Flows>::default();
        let connectors = Connectors {
            streams: Rc::new(Opener(Rc::clone(&link))),
            flows: Rc::<Flows>::clone(&flows),
            reports,
        };
        let ways = Rc::new(Ways(RefCell::new(Some(connectors))));
        let links = Rc::<Ways>::clone(&ways);
        let counters = Rc::<FlowStats>::default();
        let (settings, stats) = (Rc::clone(&near), Rc::clone(&counters));
        let proxy = Proxy::new(kind, credentials, Priority::Normal, links, settings, stats);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let accepted = Rc::<Cell<u32>>::default();
        let programs = Rc::new(Programs { proxy, accepted: Rc::clone(&accepted) });
        let listening = listen(listener, programs, Room::default()).unwrap();
        let address = listening.local_addr();
        Self {
            address,
            link,
            near,
            far,
            counters,
            opened,
            flows,
            ways,
            accepted,
            _listening: listening,
        }
    }

    pub(crate) async fn visit<T: Send + 'static>(
        &self,
        f: impl FnOnce(TcpStream) -> T + Send + 'static,
    ) -> T {
        visit(self.address, f).await
    }

    /// Waits until neither side has a stream left.
    pub(crate) async fn settled(&self) {
        until(|| self.near.stats.live() == 0 && self.far.stats.live() == 0).await;
    }

    /// The targets of the streams that were opened.
    pub(crate) fn targets(&self) -> Vec<Target> {
        self.opened.borrow().iter().map(|open| open.target.clone()).collect()
    }
}

/// A far end that dials, as the server does.
fn dialler(settings: Rc<Settings>, denied: u16) -> impl Fn(Open, Box<dyn Inlet>) -> Rc<dyn Outlet> {
    move |open, inlet| {
        let (text, report) = match open.target {
            Target::Reported(text) => (text, Report::Connected),
            Target::Forward(text) => (text, Report::Nothing),
            other @ (Target::Service(_)
            | Target::Marked { .. }
            | Target::Measure(_)
            | Target::Private { .. }
            | Target::Hop(_)
            | Target::Ask(_)
            | Target::Detour(_)) => {
                panic!("{other:?}")
            }
        };
        let allow = Allow::new(
            move |to| !matches!(to, Destination::Name(_, port) | Destination::Tcp(_, port) if port == denied),
        );
        let caller = Caller { allow: Some(allow), report, ..Caller::default() };
        connect_stream(text.parse::<TargetAddr>().unwrap(), caller, inlet, &settings, None)
    }
}

/// The links of a rig: one, or none.
#[derive(Debug)]
pub(crate) struct Ways(pub(crate) RefCell<Option<Connectors>>);

impl Links for Ways {
    fn now(&self) -> Option<Connectors> {
        self.0.borrow().clone()
    }
}

#[derive(Debug)]
struct Programs {
    proxy: Rc<Proxy>,
    accepted: Rc<Cell<u32>>,
}

impl Handler for Programs {
    fn handle(&self, socket: Socket, peer: Option<SocketAddr>) {
        self.accepted.set(self.accepted.get() + 1);
        serve_proxy(socket, peer, &self.proxy, None, std::time::Duration::ZERO);
    }
}

/// Flows without a far end: the test is the far end.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    pub(crate) opened: RefCell<Vec<Rc<FakeFlow>>>,
}

pub(crate) struct FakeFlow {
    pub(crate) open: Open,
    pub(crate) outlet: Rc<dyn FlowOutlet>,
    pub(crate) sent: RefCell<Vec<Vec<u8>>>,
    pub(crate) is_open: Cell<bool>,
}

impl fmt::Debug for FakeFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FakeFlow({:?})", self.open.target)
    }
}

impl Flows {
    /// The number of flows that have not ended.
    pub(crate) fn live(&self) -> usize {
        self.opened.borrow().iter().filter(|flow| flow.is_open.get()).count()
    }

    pub(crate) fn nth(&self, n: usize) -> Rc<FakeFlow> {
        Rc::clone(&self.opened.borrow()[n])
    }

    pub(crate) fn count(&self) -> usize {
        self.opened.borrow().len()
    }
}

impl FakeFlow {
    /// The datagrams that arrived since the last call.
    pub(crate) fn received(&self) -> Vec<Vec<u8>> {
        self.sent.take()
    }

    pub(crate) fn end(&self, code: ResetCode) {
        self.is_open.set(false);
        self.outlet.close(code);
    }
}

impl FlowConnector for Flows {
    fn open_flow(
        &self,
        open: Open,
        outlet: Rc<dyn FlowOutlet>,
    ) -> Result<Box<dyn FlowInlet>, OpenError> {
        let sent = RefCell::default();
        let flow = Rc::new(FakeFlow { open, outlet, sent, is_open: Cell::new(true) });
        self.opened.borrow_mut().push(Rc::clone(&flow));
        Ok(Box::new(FakeFlowInlet(flow)))
    }
}

#[derive(Debug)]
struct FakeFlowInlet(Rc<FakeFlow>);

impl FlowInlet for FakeFlowInlet {
    fn send(&self, datagrams: &mut dyn Iterator<Item = &[u8]>) -> usize {
        self.0.sent.borrow_mut().extend(datagrams.map(<[u8]>::to_vec));
        0
    }

    fn close(&self, _code: ResetCode) {
        self.0.is_open.set(false);
    }
}

impl Drop for FakeFlowInlet {
    fn drop(&mut self) {
        self.0.is_open.set(false);
    }
}

/// The greeting, the choice of no password, and the request of SOCKS5 for an address.
pub(crate) fn socks5(mut socket: &TcpStream, to: SocketAddr) -> io::Result<u8> {
    socket.write_all(&[5, 1, 0])?;
    let mut choice = [0; 2];
    socket.read_exact(&mut choice)?;
    assert_eq!(choice, [5, 0]);
    socket.write_all(&request(1, to))?;
    reply(socket)
}

/// A request of SOCKS5.
pub(crate) fn request(command: u8, to: SocketAddr) -> Vec<u8> {
    let mut request = vec![5, command, 0];
    request.extend(address(to));
    request
}

/// An address as SOCKS5 writes it.
pub(crate) fn address(to: SocketAddr) -> Vec<u8> {
    let SocketAddr::V4(to) = to else { panic!("the origins of the tests have IPv4") };
    [&[1][..], &to.ip().octets(), &to.port().to_be_bytes()].concat()
}

/// Reads a reply of SOCKS5, and returns its code.
pub(crate) fn reply(mut socket: impl Read) -> io::Result<u8> {
    let mut reply = [0; 10];
    socket.read_exact(&mut reply)?;
    assert_eq!((reply[0], &reply[2..]), (5, &[0, 1, 0, 0, 0, 0, 0, 0][..]));
    Ok(reply[1])
}

/// A port that refuses connections while this value exists: it is bound, without a listener.
pub(crate) struct ClosedPort(socket2::Socket);

impl ClosedPort {
    pub(crate) fn new() -> Self {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        Self(socket)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap().as_socket().unwrap()
    }
}
