//! HTTP visitors behind a layer: the connection is handed back with its unread bytes, ends when it
//! is unused, and is aborted when the answer is doubtful.

use std::cell::{Cell, RefCell};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h1::Tracker;
use proto::{Open, Priority, Target};
use relay::{Http, Layered, Leaving, Onward, Why, serve_layered};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::task::spawn_local;
use tokio::time::{Instant, advance};

use crate::link::Opener;
use crate::rig::{Rig, hold, quiet, run, run_paused, until};

const IDLE: Duration = Duration::from_secs(75);

/// What came back from the stream.
#[derive(Debug, Default)]
struct Back {
    left: RefCell<Vec<(Why, Vec<u8>)>>,
    is_changed: Cell<bool>,
}

impl Onward for Back {
    fn onward(&self, leaving: Leaving) {
        assert!(leaving.socket.is_none());
        self.left.borrow_mut().push((leaving.why, leaving.rest.to_vec()));
    }

    fn is_current(&self) -> bool {
        !self.is_changed.get()
    }
}

struct Visited {
    visitor: DuplexStream,
    back: Rc<Back>,
    is_cut: Rc<Cell<bool>>,
}

/// A visitor whose first bytes were read already. Its layer takes few bytes at a time.
fn visit(rig: &Rig, first: &str, stop: impl Future<Output = ()> + 'static) -> Visited {
    let (visitor, far) = duplex(50);
    let (back, is_cut) = (Rc::<Back>::default(), Rc::<Cell<bool>>::default());
    let cut = Rc::clone(&is_cut);
    let layered = Layered::new(far, Bytes::new()).cut_by(move || cut.set(true));
    let onward = Rc::<Back>::clone(&back);
    let http = Http { tracker: Some(Tracker::new(None)), first: BytesMut::from(first), onward };
    let open = Open {
        target: Target::Service("test".into()),
        visitor: None,
        priority: Priority::default(),
        fields: None,
    };
    let opener = Opener(Rc::clone(&rig.link));
    serve_layered((layered, http, None), &opener, open, &rig.visitors, None, stop, IDLE).unwrap();
    Visited { visitor, back, is_cut }
}

/// A web server that sends `answer` for each request line, and reads on.
fn server(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            thread::spawn(move || {
                let (mut seen, mut piece) = (Vec::new(), [0; 1000]);
                while let Ok(size @ 1..) = socket.read(&mut piece) {
                    seen.extend_from_slice(&piece[..size]);
                    while let Some(end) = seen.windows(4).position(|four| four == b"\r\n\r\n") {
                        seen.drain(..end + 4);
                        let _ = socket.write_all(answer.as_bytes());
                    }
                }
            });
        }
    });
    address
}

const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

async fn read_answer(visitor: &mut DuplexStream) {
    let mut seen = vec![0; ANSWER.len()];
    visitor.read_exact(&mut seen).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&seen), ANSWER);
}

fn get(host: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

#[test]
fn a_request_for_another_host_leads_back_after_the_answers_before_it() {
    run(async {
        let rig = Rig::new(server(ANSWER));
        let both = get("a.example") + &get("b.example");
        let mut visited = visit(&rig, &both, std::future::pending());
        until(|| !visited.back.left.borrow().is_empty() || rig.targets.stats.bytes_in() > 0).await;
        read_answer(&mut visited.visitor).await;
        until(|| !visited.back.left.borrow().is_empty()).await;
        let left = visited.back.left.take();
        let other = Why::Other(Some("b.example".into()));
        assert_eq!(left, [(other, get("b.example").into_bytes())]);
        rig.settled().await;
        assert!(!visited.is_cut.get());
    });
}

#[test]
fn a_request_after_a_change_of_the_rules_leads_back() {
    run(async {
        let rig = Rig::new(server(ANSWER));
        let mut visited = visit(&rig, &get("a.example"), std::future::pending());
        read_answer(&mut visited.visitor).await;
        visited.back.is_changed.set(true);
        visited.visitor.write_all(get("a.example").as_bytes()).await.unwrap();
        until(|| !visited.back.left.borrow().is_empty()).await;
        assert_eq!(visited.back.left.take(), [(Why::Changed, get("a.example").into_bytes())]);
    });
}

#[test]
fn a_service_that_is_down_leads_back() {
    run(async {
        let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let rig = Rig::new(closed);
        let visited = visit(&rig, &get("a.example"), std::future::pending());
        until(|| !visited.back.left.borrow().is_empty()).await;
        assert!(matches!(visited.back.left.borrow()[..], [(Why::Down(_), _)]));
    });
}

#[test]
fn a_doubtful_answer_of_which_a_part_was_delivered_cuts_the_connection() {
    run(async {
        let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n";
        let rig = Rig::new(server(answer));
        let mut visited = visit(&rig, &get("a.example"), std::future::pending());
        let mut seen = Vec::new();
        let _ = visited.visitor.read_to_end(&mut seen).await;
        assert!(!String::from_utf8_lossy(&seen).contains("zz"));
        assert!(visited.is_cut.get());
        rig.settled().await;
    });
}

#[test]
fn a_connection_without_a_request_ends_after_the_idle_time() {
    run_paused(async {
        // The clock would also jump while the socket of the target works.
        let _held = hold();
        let rig = Rig::new(server(ANSWER));
        let Visited { mut visitor, is_cut, .. } =
            visit(&rig, &get("a.example"), std::future::pending());
        read_answer(&mut visitor).await;
        // The idle time begins.
        quiet().await;
        let start = Instant::now();
        let ended = Rc::<Cell<Option<Instant>>>::default();
        let end = Rc::clone(&ended);
        spawn_local(async move {
            assert_eq!(visitor.read(&mut [0]).await.unwrap(), 0);
            end.set(Some(Instant::now()));
        });
        let second = Duration::from_secs(1);
        for step in [IDLE - second, second, IDLE - second] {
            advance(step).await;
            quiet().await;
            let is_early = start.elapsed() < IDLE;
            assert!(!is_early || ended.get().is_none(), "it ended early");
        }
        advance(second).await;
        until(|| ended.get().is_some()).await;
        let after = ended.get().unwrap() - start;
        assert!(after >= IDLE && after <= 2 * IDLE, "{after:?}");
        assert!(!is_cut.get());
    });
}

#[test]
fn a_stop_waits_for_the_answer_in_progress() {
    run(async {
        let rig = Rig::new(server(ANSWER));
        // The stop comes before the first byte of the answer.
        let mut visited = visit(&rig, &get("a.example"), std::future::ready(()));
        read_answer(&mut visited.visitor).await;
        assert_eq!(visited.visitor.read(&mut [0]).await.unwrap(), 0);
        drop(visited.visitor);
        rig.settled().await;
    });
}
