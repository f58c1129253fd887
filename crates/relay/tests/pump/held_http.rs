//! HTTP visitors behind a layer. The test acts as their service, all in memory, so that the order
//! of events and the clock are exact.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h1::Tracker;
use proto::{Budget, HEAD_ROOM, Open, Priority, ResetCode, Target};
use relay::{Http, Layered, Leaving, Onward, Settings, Why, serve_layered};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex, split};
use tokio::task::{spawn_local, yield_now};
use tokio::time::Instant;
use transport::{Connector, Inlet, OpenError, Outlet};

use crate::link::{Link, Opener};
use crate::rig::{FRAME, WINDOW, run_paused};

const IDLE: Duration = Duration::from_secs(75);

/// Bytes that the layer of a visitor holds.
const LAYER: usize = 50;

/// The service, which answers only when the test requests it.
#[derive(Default)]
struct Service {
    inlet: RefCell<Option<Box<dyn Inlet>>>,
    seen: Cell<usize>,
}

impl Service {
    fn send(&self, text: &str) {
        let mut frame = BytesMut::zeroed(HEAD_ROOM);
        frame.extend_from_slice(text.as_bytes());
        self.inlet.borrow().as_ref().unwrap().send(&mut frame);
    }

    fn stop(&self) {
        self.inlet.borrow().as_ref().unwrap().stop(ResetCode::Aborted);
    }
}

#[derive(Debug)]
struct Far(Rc<Service>);

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Service that has seen {} bytes", self.seen.get())
    }
}

/// A link that keeps the ends of its streams, as one without a carrier does.
#[derive(Debug)]
struct Keeping(Opener, RefCell<Vec<Rc<dyn Outlet>>>);

impl Connector for Keeping {
    fn open(&self, open: Open, outlet: Rc<dyn Outlet>) -> Result<Box<dyn Inlet>, OpenError> {
        self.1.borrow_mut().push(Rc::clone(&outlet));
        self.0.open(open, outlet)
    }
}

impl Outlet for Far {
    fn deliver(&self, pieces: &mut VecDeque<Bytes>) -> usize {
        let bytes = pieces.drain(..).map(|piece| piece.len()).sum();
        self.0.seen.set(self.0.seen.get() + bytes);
        bytes
    }

    fn finish(&self) {
        // A service that has read the end ends, too.
        self.0.inlet.borrow().as_ref().unwrap().finish();
    }

    fn reset(&self, _code: ResetCode) {}

    fn stop(&self, _code: ResetCode) {}

    fn room(&self) {}
}

#[derive(Debug, Default)]
struct Back(RefCell<Vec<(Why, Vec<u8>)>>);

impl Onward for Back {
    fn onward(&self, leaving: Leaving) {
        self.0.borrow_mut().push((leaving.why, leaving.rest.to_vec()));
    }

    fn is_current(&self) -> bool {
        true
    }
}

struct Visited {
    visitor: DuplexStream,
    service: Rc<Service>,
    back: Rc<Back>,
    /// Dropped with the layer.
    layer: Weak<()>,
    _link: Keeping,
}

fn visit(first: &str) -> Visited {
    visit_by(first, Rc::default())
}

fn visit_by(first: &str, settings: Rc<Settings>) -> Visited {
    let service = Rc::<Service>::default();
    let far = Rc::clone(&service);
    let link = Link::new(
        WINDOW,
        FRAME,
        Box::new(move |_, inlet| {
            *far.inlet.borrow_mut() = Some(inlet);
            Rc::new(Far(Rc::clone(&far)))
        }),
    );
    let (visitor, end) = duplex(LAYER);
    let kept = Rc::new(());
    let layer = Rc::downgrade(&kept);
    let layered = Layered::new(end, Bytes::new()).cut_by(move || drop(Rc::clone(&kept)));
    let back = Rc::<Back>::default();
    let onward = Rc::<Back>::clone(&back);
    let http = Http { tracker: Some(Tracker::new(None)), first: BytesMut::from(first), onward };
    let open = Open {
        target: Target::Service("test".into()),
        visitor: None,
        priority: Priority::default(),
        fields: None,
    };
    let stop = std::future::pending();
    let link = Keeping(Opener(link), RefCell::default());
    serve_layered((layered, http, None), &link, open, &settings, None, stop, IDLE).unwrap();
    Visited { visitor, service, back, layer, _link: link }
}

async fn turns() {
    for _ in 0..200 {
        yield_now().await;
    }
}

const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

fn get(host: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

#[test]
fn no_byte_is_lost_that_belongs_to_the_next_host() {
    run_paused(async {
        let Visited { visitor, service, back, .. } = visit(&get("a.example"));
        turns().await;
        assert_eq!(service.seen.get(), get("a.example").len());
        // The answer waits for the visitor, which has the next request on its way.
        let body = "x".repeat(3_000);
        service.send(&format!("HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n{body}"));
        let head = "POST / HTTP/1.1\r\nHost: b.example\r\nContent-Length: 2000\r\n\r\n";
        let next = format!("{head}{}", "y".repeat(2_000));
        let (mut reader, mut writer) = split(visitor);
        let taken = Rc::<Cell<usize>>::default();
        let (count, bytes) = (Rc::clone(&taken), next.clone());
        let writing = spawn_local(async move {
            for byte in bytes.as_bytes() {
                if writer.write_all(&[*byte]).await.is_err() {
                    return;
                }
                count.set(count.get() + 1);
            }
        });
        turns().await;
        // The service takes no more bytes of this visitor, like a service that has closed its
        // connection.
        service.stop();
        turns().await;
        let mut answer = vec![0; 3_000];
        while reader.read_exact(&mut answer).await.is_ok() && !answer.ends_with(b"xx") {}
        turns().await;
        drop(reader);
        writing.await.unwrap();
        let left = back.0.take();
        let [(Why::Other(host), rest)] = &left[..] else { panic!("{left:?}") };
        assert_eq!(host.as_deref(), Some("b.example"));
        assert!(next.as_bytes().starts_with(rest), "{} bytes", rest.len());
        let lost = taken.get().saturating_sub(rest.len() + LAYER);
        assert_eq!(lost, 0, "of {} bytes {} are kept", taken.get(), rest.len());
    });
}

#[test]
fn a_head_that_stays_incomplete_ends_the_connection() {
    run_paused(async {
        let Visited { visitor, service, .. } = visit(&get("a.example"));
        turns().await;
        service.send(ANSWER);
        let (mut reader, mut writer) = split(visitor);
        let mut seen = vec![0; ANSWER.len()];
        reader.read_exact(&mut seen).await.unwrap();
        // A byte before each look at the connection.
        spawn_local(async move {
            for byte in get("a.example").into_bytes() {
                if writer.write_all(&[byte]).await.is_err() {
                    return;
                }
                tokio::time::sleep(IDLE - Duration::from_secs(1)).await;
            }
        });
        let start = Instant::now();
        assert_eq!(reader.read(&mut [0]).await.unwrap(), 0);
        assert!(start.elapsed() <= 3 * IDLE, "{:?}", start.elapsed());
    });
}

#[test]
fn the_layer_ends_with_the_connection_and_not_with_the_stream() {
    run_paused(async {
        let Visited { visitor, service, back, layer, _link } = visit(&get("a.example"));
        turns().await;
        service.send(ANSWER);
        drop(visitor);
        turns().await;
        // The link keeps the stream as long as the service holds its end.
        assert!(layer.upgrade().is_none(), "the layer is dropped");
        assert_eq!(Rc::strong_count(&back), 1, "what leads back is dropped");
        drop(service);
    });
}

/// A budget that other threads have used up at a single look.
#[derive(Debug, Default)]
struct Fickle {
    is_short: Cell<bool>,
}

impl Budget for Fickle {
    fn draw(&self, _: u64) -> bool {
        true
    }

    fn charge(&self, _: u64) {}

    fn release(&self, _: u64) {}

    fn left(&self) -> u64 {
        if self.is_short.take() { 0 } else { self.total() }
    }

    fn total(&self) -> u64 {
        1 << 30
    }
}

#[test]
fn a_visitor_that_leaves_for_want_of_memory_leaves_although_there_is_memory_again() {
    run_paused(async {
        let budget = Rc::<Fickle>::default();
        let of_visit: Rc<dyn Budget> = Rc::<Fickle>::clone(&budget);
        let settings = Settings { budget: Some(of_visit), ..Settings::default() };
        let Visited { mut visitor, service, back, .. } =
            visit_by(&get("a.example"), Rc::new(settings));
        turns().await;
        service.send(ANSWER);
        let mut seen = vec![0; ANSWER.len()];
        visitor.read_exact(&mut seen).await.unwrap();
        // A head of 10 KB that is not complete.
        let head = format!("GET / HTTP/1.1\r\nHost: a.example\r\nX: {}", "x".repeat(10_000));
        visitor.write_all(&head.as_bytes()[..5_000]).await.unwrap();
        turns().await;
        budget.is_short.set(true);
        let rest = head.as_bytes()[5_000..].to_vec();
        spawn_local(async move {
            let _ = visitor.write_all(&rest).await;
            std::future::pending::<()>().await;
        });
        turns().await;
        let left = back.0.take();
        let [(Why::Down(ResetCode::Limit), rest)] = &left[..] else { panic!("{left:?}") };
        assert!(head.as_bytes().starts_with(rest) && rest.len() > 8_000, "{} bytes", rest.len());
    });
}
