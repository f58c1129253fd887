//! Visitors whose stream is refused before a byte has reached a target.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener};
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use proto::{HEAD_ROOM, Open, Priority, ResetCode, Target};
use relay::{Retry, RetryHandler, Settings, Socket, serve_visitor};
use testkit::origins::Origin;
use transport::{Connector, Inlet, OpenError, Outlet};

use crate::link::Opener;
use crate::rig::{DEADLINE, Rig, receive, run, until};

/// A far side that the test plays itself.
#[derive(Debug, Default)]
struct Far {
    sent: RefCell<Vec<u8>>,
    is_taken: Cell<bool>,
    outlet: RefCell<Option<Rc<dyn Outlet>>>,
}

#[derive(Debug)]
struct FarInlet(Rc<Far>);

impl Inlet for FarInlet {
    fn room(&self) -> usize {
        16 << 10
    }

    fn send(&self, frame: &mut BytesMut) {
        self.0.sent.borrow_mut().extend_from_slice(&frame[HEAD_ROOM..]);
        frame.clear();
    }

    fn finish(&self) {}

    fn reset(&self, _: ResetCode) {}

    fn stop(&self, _: ResetCode) {}

    fn is_untaken(&self) -> bool {
        !self.0.is_taken.get()
    }

    fn consumed(&self, _: usize) {}
}

#[derive(Debug)]
struct ToFar(Rc<Far>);

impl Connector for ToFar {
    fn open(&self, _: Open, outlet: Rc<dyn Outlet>) -> Result<Box<dyn Inlet>, OpenError> {
        self.0.outlet.replace(Some(outlet));
        Ok(Box::new(FarInlet(Rc::clone(&self.0))))
    }
}

/// What the visitor of a refused stream handed with.
type Handed = Rc<RefCell<Option<(Socket, BytesMut, ResetCode)>>>;

#[derive(Debug)]
struct Taker(Handed);

/// What a target does no harm with if it gets it twice.
const REPEATABLE: &[u8] = b"GET /";

impl RetryHandler for Taker {
    fn is_worth_it(&self) -> bool {
        true
    }

    fn may_repeat(&self, sent: &[u8]) -> bool {
        sent == REPEATABLE
    }

    fn retry(self: Box<Self>, socket: Option<Socket>, first: BytesMut, why: ResetCode) {
        self.0.replace(Some((socket.unwrap(), first, why)));
    }
}

fn open() -> Open {
    let (target, priority) = (Target::Service("test".into()), Priority::default());
    Open { target, visitor: None, priority, fields: None }
}

/// A visitor of a stream that the test plays the far side of.
struct Scene {
    far: Rc<Far>,
    handed: Handed,
    visitor: std::net::TcpStream,
}

impl Scene {
    async fn new(first: &'static [u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let visitor = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        visitor.set_read_timeout(Some(DEADLINE)).unwrap();
        let (socket, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        let socket = tokio::net::TcpStream::from_std(socket).unwrap();
        let (far, handed) = (Rc::<Far>::default(), Handed::default());
        let retry = Retry { handler: Box::new(Taker(Rc::clone(&handed))), first: BytesMut::new() };
        let connector = ToFar(Rc::clone(&far));
        let settings = Rc::<Settings>::default();
        serve_visitor(
            (socket.into(), false),
            &connector,
            open(),
            &settings,
            None,
            None,
            Some(retry),
        )
        .unwrap();
        (&visitor).write_all(first).unwrap();
        until(|| far.sent.borrow().len() == first.len()).await;
        Self { far, handed, visitor }
    }

    fn outlet(&self) -> Rc<dyn Outlet> {
        self.far.outlet.borrow().clone().unwrap()
    }

    /// Lets the pump run, which is woken by then.
    async fn turn(&self) {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
}

#[test]
fn a_refused_visitor_goes_on_with_its_bytes_and_its_end() {
    run(async {
        let scene = Scene::new(b"POST ").await;
        (&scene.visitor).write_all(b"once").unwrap();
        until(|| scene.far.sent.borrow().len() == 9).await;
        scene.visitor.shutdown(Shutdown::Write).unwrap();
        scene.outlet().reset(ResetCode::Refused);
        scene.turn().await;
        let (socket, first, why) = scene.handed.take().expect("the visitor is handed over");
        assert_eq!((&first[..], why), (&b"POST once"[..], ResetCode::Refused));
        // The next far side gets all bytes once, followed by the end of the visitor.
        let origin = Origin::echo().unwrap();
        let rig = Rig::new(origin.address());
        let handed = Handed::default();
        let retry = Some(Retry { handler: Box::new(Taker(Rc::clone(&handed))), first });
        let opener = Opener(Rc::clone(&rig.link));
        serve_visitor((socket, false), &opener, open(), &rig.visitors, None, None, retry).unwrap();
        let mut visitor = scene.visitor;
        let read = move || {
            let mut echoed = Vec::new();
            visitor.read_to_end(&mut echoed).unwrap();
            echoed
        };
        assert_eq!(tokio::task::spawn_blocking(read).await.unwrap(), b"POST once");
        rig.settled().await;
        assert_eq!((rig.visitors.stats.bytes_in(), handed.take().is_none()), (9, true));
    });
}

#[test]
fn a_visitor_whose_bytes_may_have_reached_a_target_stays() {
    /// What the far side does before it resets the stream.
    type Before = fn(&Scene);
    let nothing: Before = |_| {};
    let answers: Before = |scene| {
        scene.outlet().deliver(&mut VecDeque::from([Bytes::from_static(b"220 ")]));
    };
    let takes: Before = |scene| {
        scene.far.is_taken.set(true);
        // The pump looks when the visitor sends more.
        (&scene.visitor).write_all(b"more").unwrap();
    };
    let cases: [(&[u8], Before, ResetCode); 6] = [
        (b"POST", answers, ResetCode::Refused),
        (b"", answers, ResetCode::Shutdown),
        (b"POST", takes, ResetCode::Refused),
        // The codes of connections that have ended.
        (b"POST", nothing, ResetCode::Aborted),
        (b"POST", nothing, ResetCode::Timeout),
        (b"POST", nothing, ResetCode::Shutdown),
    ];
    for (nth, (first, before, code)) in cases.into_iter().enumerate() {
        run(async move {
            let scene = Scene::new(first).await;
            before(&scene);
            if scene.far.is_taken.get() {
                until(|| scene.far.sent.borrow().len() == 8).await;
            }
            scene.turn().await;
            scene.outlet().reset(code);
            scene.turn().await;
            assert!(scene.handed.take().is_none(), "case {nth}");
            let visitor = scene.visitor;
            let end = tokio::task::spawn_blocking(move || receive(&visitor).map(drop));
            assert!(end.await.unwrap().is_err(), "case {nth}: the visitor is reset");
        });
    }
}

#[test]
fn more_bytes_than_are_kept_stay_with_their_stream() {
    static LONG: [u8; 17 << 10] = [7; 17 << 10];
    run(async {
        let scene = Scene::new(&LONG).await;
        scene.outlet().reset(ResetCode::Refused);
        scene.turn().await;
        assert!(scene.handed.take().is_none());
    });
}

#[test]
fn a_visitor_that_has_sent_nothing_leaves_a_link_that_ends_or_is_silent() {
    run(async {
        let scene = Scene::new(b"").await;
        scene.outlet().reset(ResetCode::Shutdown);
        scene.turn().await;
        assert_eq!(scene.handed.take().unwrap().2, ResetCode::Shutdown);
        let scene = Scene::new(b"").await;
        scene.outlet().silent();
        scene.turn().await;
        assert_eq!(scene.handed.take().unwrap().2, ResetCode::Timeout);
        let scene = Scene::new(b"x").await;
        scene.outlet().silent();
        scene.turn().await;
        assert!(scene.handed.take().is_none(), "its byte may have reached a target");
    });
}

#[test]
fn a_visitor_whose_bytes_may_be_repeated_leaves_a_link_that_ends_or_is_silent() {
    for is_reset in [true, false] {
        run(async move {
            let scene = Scene::new(REPEATABLE).await;
            // The target has them, and has not answered.
            scene.far.is_taken.set(true);
            scene.outlet().room();
            scene.turn().await;
            if is_reset {
                scene.outlet().reset(ResetCode::Shutdown);
            } else {
                scene.outlet().silent();
            }
            scene.turn().await;
            let (_, first, _) = scene.handed.take().expect("the visitor is handed over");
            assert_eq!(&first[..], REPEATABLE);
        });
    }
    run(async {
        let scene = Scene::new(REPEATABLE).await;
        scene.outlet().deliver(&mut VecDeque::from([Bytes::from_static(b"HTTP/1.1 200 ")]));
        scene.outlet().silent();
        scene.turn().await;
        assert!(scene.handed.take().is_none(), "the answer has begun");
    });
}
