//! A flow goes on with the socket of the former flow of its visitor.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use net::source::Source;
use proto::ResetCode;
use proto::control::FlowTimes;
use relay::{
    DropReason, FlowBounds, FlowCaller, FlowEntry, FlowSettings, FlowTargets, FormerFlow, Gate,
    MovedSocket, Permit, TargetAddr, Visitor, connect_flow,
};
use tokio::net::UdpSocket;
use transport::{FlowInlet, FlowOutlet, LocalFuture};

use crate::rig::{is_silent, receive, run, target, until};

/// The far side of a flow.
#[derive(Debug, Default)]
struct Far {
    got: RefCell<Vec<Vec<u8>>>,
    closed: Cell<Option<ResetCode>>,
    /// The flow has told its directory that its link has ended.
    is_parked: Cell<bool>,
    /// The flow has left its directory.
    has_left: Cell<bool>,
}

#[derive(Debug)]
struct Inlet(Rc<Far>);

impl FlowInlet for Inlet {
    fn send(&self, datagrams: &mut dyn Iterator<Item = &[u8]>) -> usize {
        self.0.got.borrow_mut().extend(datagrams.map(<[u8]>::to_vec));
        0
    }

    fn close(&self, code: ResetCode) {
        self.0.closed.set(self.0.closed.get().or(Some(code)));
    }
}

#[derive(Debug)]
struct Entry(u64, Rc<Far>);

impl FlowEntry for Entry {
    fn id(&self) -> u64 {
        self.0
    }

    fn park(&self) {
        self.1.is_parked.set(true);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.1.has_left.set(true);
    }
}

/// The flows of a service on one worker.
struct Service {
    settings: Rc<FlowSettings>,
    flows: Rc<FlowTargets>,
    target: TargetAddr,
}

/// A flow with its far side.
struct Flow {
    outlet: Rc<dyn FlowOutlet>,
    far: Rc<Far>,
}

impl Service {
    fn new(at: SocketAddr, settings: FlowSettings) -> Self {
        let target = TargetAddr::Udp { host: at.ip().to_string(), port: at.port() };
        Self { settings: Rc::new(settings), flows: Rc::default(), target }
    }

    fn open(&self, id: u64, caller: FlowCaller) -> Flow {
        let far = Rc::<Far>::default();
        let inlet = Box::new(Inlet(Rc::clone(&far)));
        let entry: Option<Box<dyn FlowEntry>> = Some(Box::new(Entry(id, Rc::clone(&far))));
        let visitor = Visitor::At(([192, 0, 2, 7], 1).into());
        let caller = FlowCaller { visitor, entry, ..caller };
        let outlet = connect_flow(self.target.clone(), caller, inlet, &self.settings, &self.flows);
        Flow { outlet, far }
    }

    /// Opens a flow that goes on with the socket of the flow `former` of this worker.
    fn follow(&self, id: u64, former: u64) -> Flow {
        let flows = Rc::clone(&self.flows);
        self.open(id, after(async move { Ok((flows.release(former), None)) }))
    }

    fn live(&self) -> (u64, u32, usize) {
        (self.settings.stats.live(), self.settings.bounds.live(), self.flows.len())
    }
}

fn after(former: impl Future<Output = FormerFlow> + 'static) -> FlowCaller {
    let former: LocalFuture<'static, FormerFlow> = Box::pin(former);
    FlowCaller { former: Some(former), ..FlowCaller::default() }
}

impl Flow {
    fn send(&self, text: &'static str) {
        self.outlet.deliver(Bytes::from_static(text.as_bytes()));
    }

    /// Waits for the next answer.
    async fn hears(&self, text: &str) {
        until(|| !self.far.got.borrow().is_empty()).await;
        assert_eq!(self.far.got.borrow_mut().remove(0), text.as_bytes());
    }

    /// Sends a datagram that the target answers. Returns the address that the target sees.
    async fn talk(&self, target: &UdpSocket) -> SocketAddr {
        self.send("?");
        let (question, from) = receive(target).await;
        assert_eq!(question, b"?");
        target.send_to(b"!", from).await.unwrap();
        self.hears("!").await;
        from
    }
}

#[tokio::test]
async fn the_target_sees_the_same_port_and_its_answers_take_the_new_way() {
    run(async {
        let (target, at) = target().await;
        let service = Service::new(at, FlowSettings::default());
        let first = service.open(1, FlowCaller::default());
        let from = first.talk(&target).await;
        let second = service.follow(2, 1);
        assert_eq!(first.far.closed.get(), Some(ResetCode::Shutdown), "a quiet end");
        assert!(first.far.has_left.get());
        assert_eq!(second.talk(&target).await, from);
        assert_eq!(service.live(), (1, 1, 1));
        // What is left of the former flow touches nothing: a late datagram, the close of its link.
        first.send("late");
        assert_eq!(service.settings.stats.dropped(DropReason::Late), 1);
        first.outlet.close(ResetCode::Shutdown);
        drop(first);
        assert_eq!(second.talk(&target).await, from);
        // The visitor comes back.
        let third = service.follow(3, 2);
        assert_eq!(third.talk(&target).await, from);
        third.outlet.close(ResetCode::Timeout);
        assert!(third.far.has_left.get());
        assert_eq!(service.live(), (0, 0, 0));
        assert!(is_silent(&target).await);
    })
    .await;
}

#[tokio::test]
async fn a_flow_without_an_answer_moves_as_well() {
    run(async {
        let (target, at) = target().await;
        let service = Service::new(at, FlowSettings::default());
        let first = service.open(1, FlowCaller::default());
        first.send("one way");
        let (_, from) = receive(&target).await;
        let second = service.follow(2, 1);
        assert_eq!(second.talk(&target).await, from);
    })
    .await;
}

#[tokio::test]
async fn a_flow_that_moves_counts_once() {
    run(async {
        let (target, at) = target().await;
        let bounds = Arc::new(FlowBounds::new(1, 1));
        let settings = FlowSettings { bounds, ..FlowSettings::default() };
        let service = Service::new(at, settings);
        let gate = Gate::new(Some(1));
        let permit = gate.admit_from(None::<Source>);
        let first = service.open(1, FlowCaller { permit, ..FlowCaller::default() });
        let from = first.talk(&target).await;
        let second = service.follow(2, 1);
        assert_eq!(second.far.closed.get(), None);
        assert_eq!(second.talk(&target).await, from);
        assert_eq!((service.live(), gate.live()), ((1, 1, 1), 1));
        assert_eq!(service.settings.stats.evicted(), 0);
        second.outlet.close(ResetCode::Timeout);
        assert_eq!((service.live(), gate.live()), ((0, 0, 0), 0));
    })
    .await;
}

#[tokio::test]
async fn a_socket_that_is_gone_or_leads_elsewhere_is_no_reason_to_wait() {
    run(async {
        let (target, at) = target().await;
        let service = Service::new(at, FlowSettings::default());
        let gate = Gate::new(None);
        let permit = || gate.admit_from(None::<Source>);
        let admitted = permit();
        let anew = service.open(1, after(async move { Ok((None, admitted)) }));
        let from = anew.talk(&target).await;
        assert_eq!(gate.live(), 1);
        // A reload has changed the target of the service.
        let (other, elsewhere) = crate::rig::target().await;
        let mut moved = Service::new(elsewhere, FlowSettings::default());
        moved.flows = Rc::clone(&service.flows);
        let next = moved.follow(2, 1);
        assert_ne!(next.talk(&other).await, from);
        assert_eq!((service.flows.len(), gate.live()), (1, 1), "the permit stays");
        // A visitor that is not admitted.
        let refused = service.open(3, after(async { Err(ResetCode::Limit) }));
        assert_eq!(refused.far.closed.get(), Some(ResetCode::Limit));
        assert!(refused.far.has_left.get());
        drop((anew, next));
    })
    .await;
}

/// Moves a socket to another thread, and talks there.
fn talk_on_another_worker(
    moved: mpsc::Receiver<Option<MovedSocket>>,
    at: SocketAddr,
    answered: mpsc::Sender<()>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(run(async move {
        let service = Service::new(at, FlowSettings::default());
        let (give, given) = tokio::sync::oneshot::channel();
        let flow = service.open(2, after(async move { Ok((given.await.unwrap(), None)) }));
        // The socket is still on its way.
        flow.send("meanwhile");
        tokio::task::yield_now().await;
        assert_eq!(service.live(), (0, 0, 0));
        give.send(moved.recv().unwrap()).unwrap();
        flow.hears("waited").await;
        flow.hears("answer").await;
        assert_eq!(service.flows.len(), 1);
        flow.outlet.close(ResetCode::Timeout);
        answered.send(()).unwrap();
    }));
}

#[tokio::test]
async fn a_socket_moves_to_another_worker_and_loses_nothing_on_the_way() {
    run(async {
        let (target, at) = target().await;
        let service = Service::new(at, FlowSettings::default());
        let first = service.open(1, FlowCaller::default());
        let from = first.talk(&target).await;
        let (give, moved) = mpsc::channel();
        let (done, answered) = mpsc::channel();
        let there = std::thread::spawn(move || talk_on_another_worker(moved, at, done));
        let socket = service.flows.release(1);
        assert!(socket.is_some());
        assert_eq!(service.live().0, 0);
        assert_eq!(service.live().1, 1, "the socket has its place in the bounds with it");
        assert!(service.flows.release(1).is_none(), "a socket moves once");
        // An answer while the socket belongs to no worker.
        target.send_to(b"waited", from).await.unwrap();
        give.send(socket).unwrap();
        assert_eq!(receive(&target).await, (b"meanwhile".to_vec(), from));
        target.send_to(b"answer", from).await.unwrap();
        until(|| answered.try_recv().is_ok()).await;
        there.join().unwrap();
        assert_eq!(service.live(), (0, 0, 0));
    })
    .await;
}

#[tokio::test]
async fn a_socket_outlives_the_link_of_its_flow_until_the_visitor_comes_again() {
    run(async {
        let (target, at) = target().await;
        let service = Service::new(at, FlowSettings::default());
        let gate = Gate::new(Some(1));
        let permit: Option<Permit> = gate.admit_from(None::<Source>);
        let first = service.open(1, FlowCaller { permit, ..FlowCaller::default() });
        let from = first.talk(&target).await;
        first.outlet.close(ResetCode::Shutdown);
        assert!(first.far.is_parked.get() && !first.far.has_left.get());
        // The visitor is away, and counts for no limit of visitors. Its socket does.
        assert_eq!((service.live(), gate.live()), ((0, 1, 1), 0));
        target.send_to(b"nobody hears", from).await.unwrap();
        until(|| service.settings.stats.dropped(DropReason::Late) == 1).await;
        let second = service.follow(2, 1);
        assert_eq!(second.talk(&target).await, from);
        assert_eq!(service.live(), (1, 1, 1));

        // A visitor without an answer has no conversation that could go on.
        let other = service.open(3, FlowCaller::default());
        other.send("?");
        receive(&target).await;
        other.outlet.close(ResetCode::Shutdown);
        assert!(other.far.has_left.get() && !other.far.is_parked.get());
        // The end of the flow itself is no end of a link.
        second.outlet.close(ResetCode::Timeout);
        assert!(second.far.has_left.get());
        assert_eq!(service.live(), (0, 0, 0));
    })
    .await;
}

#[tokio::test]
async fn a_target_that_talks_to_itself_keeps_no_socket_alive() {
    run(async {
        let (target, at) = target().await;
        let times = FlowTimes { unanswered: 1, answered: 1 };
        let service = Service::new(at, FlowSettings { times, ..FlowSettings::default() });
        let flow = service.open(1, FlowCaller::default());
        let from = flow.talk(&target).await;
        flow.outlet.close(ResetCode::Shutdown);
        let started = std::time::Instant::now();
        while !flow.far.has_left.get() {
            assert!(started.elapsed() < Duration::from_secs(30), "the socket is kept");
            target.send_to(b"state of the game", from).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!((service.live(), service.settings.stats.idle()), ((0, 0, 0), 1));
    })
    .await;
}
