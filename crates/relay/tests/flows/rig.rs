//! The rig of the tests in this folder.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use net::udp::{Steering, flow_group};
use proto::ResetCode;
use relay::{
    Allow, DialError, DropReason, FlowCaller, FlowHandler, FlowSettings, FlowTargets,
    ListeningFlows, Permit, TargetAddr, Targets, connect_flow, listen_flows,
};
use tokio::net::UdpSocket;
use transport::{FlowInlet, FlowOutlet};

/// The deadline of a test, far longer than any test takes, so that only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(60);

/// Runs a test on one thread, as a worker does.
pub(crate) async fn run(test: impl Future<Output = ()>) {
    tokio::task::LocalSet::new().run_until(test).await;
}

/// Waits until `condition` holds.
pub(crate) async fn until(condition: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "the condition never held");
        tokio::task::yield_now().await;
    }
}

pub(crate) struct Rig {
    pub(crate) address: SocketAddr,
    pub(crate) visitors: Rc<FlowSettings>,
    pub(crate) targets: Rc<FlowSettings>,
    pub(crate) flows: Rc<FlowTargets>,
    pub(crate) link: Rc<Link>,
    pub(crate) listening: Option<ListeningFlows>,
}

/// Targets that stand in for the first target of each flow, in this order.
#[derive(Debug)]
pub(crate) struct StandIns {
    all: Vec<TargetAddr>,
    /// How many targets of the flow had failed, each time that a stand-in was wanted.
    pub(crate) asked: RefCell<Vec<usize>>,
    /// Whether the target answered, each time that the flow reported.
    pub(crate) reported: RefCell<Vec<bool>>,
    /// Another target answers, so a flow without an answer leaves.
    pub(crate) others_answer: Cell<bool>,
}

impl StandIns {
    pub(crate) fn of(all: &[SocketAddr]) -> Rc<Self> {
        let target =
            |at: &SocketAddr| TargetAddr::Udp { host: at.ip().to_string(), port: at.port() };
        let (asked, reported, others_answer) = Default::default();
        Rc::new(Self { all: all.iter().map(target).collect(), asked, reported, others_answer })
    }
}

impl Targets for StandIns {
    fn first(&self) -> TargetAddr {
        self.all[0].clone()
    }

    fn next(&self, failed: &[DialError]) -> Option<TargetAddr> {
        self.asked.borrow_mut().push(failed.len());
        self.all.get(failed.len() - 1).cloned()
    }

    fn note_answers(&self, answers: bool) -> bool {
        self.reported.borrow_mut().push(answers);
        !answers && self.others_answer.get()
    }
}

/// How a [`Rig`] is made.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) bind: &'static str,
    pub(crate) target: TargetAddr,
    pub(crate) allow: Option<Allow>,
    pub(crate) stand_ins: Option<Rc<StandIns>>,
    pub(crate) visitors: FlowSettings,
    pub(crate) targets: FlowSettings,
}

impl Plan {
    pub(crate) fn to(target: SocketAddr) -> Self {
        Self::to_host(&target.ip().to_string(), target.port())
    }

    pub(crate) fn to_host(host: &str, port: u16) -> Self {
        let target = TargetAddr::Udp { host: host.to_owned(), port };
        let (allow, stand_ins, visitors, targets) = Default::default();
        Self { bind: "127.0.0.1:0", target, allow, stand_ins, visitors, targets }
    }

    pub(crate) fn rig(self) -> Rig {
        let socket = flow_group(self.bind.parse().unwrap(), 1).unwrap().sockets.remove(0);
        self.rig_on(socket, None)
    }

    /// A rig on a socket of a group.
    pub(crate) fn rig_on(
        self,
        socket: std::net::UdpSocket,
        steering: Option<(Arc<Steering>, usize)>,
    ) -> Rig {
        let Self { bind: _, target, allow, stand_ins, visitors, targets } = self;
        let (visitors, targets) = (Rc::new(visitors), Rc::new(targets));
        let flows = Rc::<FlowTargets>::default();
        let link = Rc::new(Link {
            target,
            allow,
            stand_ins,
            targets: Rc::clone(&targets),
            flows: Rc::clone(&flows),
            opened: Cell::new(0),
            refuses: Cell::new(None),
            full: Cell::new(false),
            closed: RefCell::default(),
            outlets: RefCell::default(),
        });
        let handler = Rc::new(Opener(Rc::clone(&link)));
        let listening = listen_flows(socket, steering, handler, Rc::clone(&visitors)).unwrap();
        let address = listening.local_addr();
        Rig { address, visitors, targets, flows, link, listening: Some(listening) }
    }
}

impl Rig {
    /// A socket of a visitor, which has asked nothing yet.
    pub(crate) async fn visitor(&self) -> UdpSocket {
        self.visitor_from(Ipv4Addr::LOCALHOST).await
    }

    pub(crate) async fn visitor_from(&self, from: Ipv4Addr) -> UdpSocket {
        let visitor = UdpSocket::bind((from, 0)).await.unwrap();
        visitor.connect((Ipv4Addr::LOCALHOST, self.address.port())).await.unwrap();
        visitor
    }

    /// The number of datagrams that both sides dropped for this reason.
    pub(crate) fn dropped(&self, reason: DropReason) -> u64 {
        self.visitors.stats.dropped(reason) + self.targets.stats.dropped(reason)
    }

    /// The numbers of flows at both ends.
    pub(crate) fn live(&self) -> (u64, u64) {
        (self.visitors.stats.live(), self.targets.stats.live())
    }
}

/// Receives one datagram.
pub(crate) async fn receive(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut space = vec![0; 65_535];
    let got = tokio::time::timeout(DEADLINE, socket.recv_from(&mut space));
    let (size, from) = got.await.expect("a datagram arrives").unwrap();
    space.truncate(size);
    (space, from)
}

/// Whether no datagram waits in the socket, once all tasks have run.
pub(crate) async fn is_silent(socket: &UdpSocket) -> bool {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    socket.try_recv(&mut [0; 8]).is_err()
}

/// A target on a free port.
pub(crate) async fn target() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// The link: what one end sends, the other gets within the call.
#[derive(Debug)]
pub(crate) struct Link {
    target: TargetAddr,
    allow: Option<Allow>,
    stand_ins: Option<Rc<StandIns>>,
    targets: Rc<FlowSettings>,
    flows: Rc<FlowTargets>,
    pub(crate) opened: Cell<usize>,
    /// The visitors' side has no link.
    pub(crate) refuses: Cell<Option<ResetCode>>,
    /// The link drops what is sent.
    pub(crate) full: Cell<bool>,
    /// The codes with which flows were closed, by either end.
    pub(crate) closed: RefCell<Vec<ResetCode>>,
    /// The ends of the visitors.
    pub(crate) outlets: RefCell<Vec<Rc<dyn FlowOutlet>>>,
}

#[derive(Debug)]
struct Opener(Rc<Link>);

impl FlowHandler for Opener {
    fn open(
        &self,
        peer: SocketAddr,
        outlet: Rc<dyn FlowOutlet>,
    ) -> Result<(Box<dyn FlowInlet>, Option<Permit>), ResetCode> {
        let link = &self.0;
        if let Some(code) = link.refuses.get() {
            return Err(code);
        }
        link.opened.set(link.opened.get() + 1);
        link.outlets.borrow_mut().push(Rc::clone(&outlet));
        assert_eq!(outlet.peer(), Some(peer));
        let to_visitor = Rc::new(Half::new(link));
        let to_target = Rc::new(Half::new(link));
        to_visitor.to.replace(Some(outlet));
        let inlet = Box::new(Sending { half: to_visitor.clone(), back: to_target.clone() });
        let caller = FlowCaller {
            allow: link.allow.clone(),
            visitor: relay::Visitor::At(peer),
            stand_ins: link.stand_ins.clone().map(|targets| targets as Rc<dyn Targets>),
            ..FlowCaller::default()
        };
        let outlet = connect_flow(link.target.clone(), caller, inlet, &link.targets, &link.flows);
        if !to_target.is_closed.get() {
            to_target.to.replace(Some(outlet));
        }
        Ok((Box::new(Sending { half: to_target, back: to_visitor }), None))
    }
}

/// One direction of a flow.
#[derive(Debug)]
struct Half {
    link: Rc<Link>,
    to: RefCell<Option<Rc<dyn FlowOutlet>>>,
    is_closed: Cell<bool>,
}

impl Half {
    fn new(link: &Rc<Link>) -> Self {
        Self { link: Rc::clone(link), to: RefCell::default(), is_closed: Cell::new(false) }
    }
}

#[derive(Debug)]
struct Sending {
    half: Rc<Half>,
    /// The other direction, which ends with this one.
    back: Rc<Half>,
}

impl FlowInlet for Sending {
    fn send(&self, datagrams: &mut dyn Iterator<Item = &[u8]>) -> usize {
        let to = self.half.to.borrow().clone();
        let to = to.filter(|_| !self.half.link.full.get());
        let mut dropped = 0;
        for datagram in datagrams {
            match &to {
                Some(to) => to.deliver(Bytes::copy_from_slice(datagram)),
                None => dropped += 1,
            }
        }
        dropped
    }

    fn close(&self, code: ResetCode) {
        if self.half.is_closed.replace(true) {
            return;
        }
        self.back.is_closed.set(true);
        self.half.link.closed.borrow_mut().push(code);
        drop(self.back.to.take());
        if let Some(to) = self.half.to.take() {
            to.close(code);
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.close(ResetCode::Aborted);
    }
}
