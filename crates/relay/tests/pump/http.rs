//! HTTP visitors: each request reaches the service of its host or none, and responses stay in
//! order.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use bytes::BytesMut;
use h1::{HeadSniffer, Looked, Tracker};
use proto::{Open, Priority, ResetCode, Target};
use relay::{
    Handler, Http, Leaving, Listening, Onward, Room, Settings, Socket, Timeouts, Why, listen,
    serve_visitor,
};
use testkit::origins::{Origin, Pattern};
use tokio::io::AsyncWriteExt;

use crate::link::Opener;
use crate::rig::{Rig, receive, run, send, until, visit};

/// A door that leads each visitor to the rig of its host.
#[derive(Debug, Default)]
struct Door {
    rigs: RefCell<HashMap<String, (Opener, Rc<Settings>)>>,
    /// Why connections left their stream.
    left: RefCell<Vec<Why>>,
    /// Grows when the rules change.
    generation: Rc<Cell<u64>>,
}

/// The door, as the connections of one generation see it.
#[derive(Debug)]
struct Since {
    door: Shared,
    generation: u64,
}

/// A door that is shared by its streams.
#[derive(Clone, Debug, Default)]
struct Shared(Rc<Door>);

impl Shared {
    fn lead(&self, host: &str, rig: &Rig) {
        let place = (Opener(Rc::clone(&rig.link)), Rc::clone(&rig.visitors));
        self.0.rigs.borrow_mut().insert(host.to_owned(), place);
    }

    fn listen(&self) -> Listening {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listen(listener, Rc::new(self.clone()), Room::default()).unwrap()
    }

    fn enter(&self, socket: Socket, peer: Option<SocketAddr>, host: &str, first: BytesMut) {
        let rigs = self.0.rigs.borrow();
        let Some((opener, settings)) = rigs.get(host) else {
            return say(socket, "404 Not Found");
        };
        let open = Open {
            target: Target::Service(host.into()),
            visitor: peer,
            priority: Priority::default(),
            fields: None,
        };
        let since = Since { door: self.clone(), generation: self.0.generation.get() };
        let http = Http { tracker: Some(Tracker::new(None)), first, onward: Rc::new(since) };
        serve_visitor((socket, false), opener, open, settings, None, Some(http), None).unwrap();
    }
}

impl Handler for Shared {
    fn handle(&self, socket: Socket, peer: Option<SocketAddr>) {
        let door = self.clone();
        tokio::task::spawn_local(async move {
            let mut sniffer = HeadSniffer::new(None);
            let looked = relay::look(&socket, |bytes| {
                Some(sniffer.look(bytes)).filter(|looked| *looked != Looked::More)
            });
            match looked.await.unwrap() {
                Some(Looked::Head(head)) => {
                    door.enter(socket, peer, &head.host.unwrap_or_default(), BytesMut::new());
                }
                Some(Looked::More | Looked::Http2 | Looked::Bad(_) | Looked::Not) | None => {
                    say(socket, "400 Bad Request");
                }
            }
        });
    }
}

impl Onward for Since {
    fn onward(&self, leaving: Leaving) {
        self.door.0.left.borrow_mut().push(leaving.why.clone());
        let Leaving { socket, visitor, rest, why } = leaving;
        let socket = socket.unwrap();
        match why {
            Why::Other(host) => self.door.enter(socket, visitor, &host.unwrap_or_default(), rest),
            Why::Changed => {
                let Looked::Head(head) = HeadSniffer::new(None).look(&rest) else {
                    panic!("no head is in front: {rest:?}");
                };
                self.door.enter(socket, visitor, &head.host.unwrap_or_default(), rest);
            }
            Why::Bad(_) => say(socket, "400 Bad Request"),
            Why::Down(_) => say(socket, "502 Bad Gateway"),
            Why::Doubt(_) => say(socket, "502 Doubt"),
        }
    }

    fn is_current(&self) -> bool {
        self.door.0.generation.get() == self.generation
    }
}

fn say(socket: Socket, status: &str) {
    let Socket::Tcp(mut socket) = socket else { return };
    let text = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    tokio::task::spawn_local(async move {
        let _ = socket.write_all(text.as_bytes()).await;
        let _ = socket.shutdown().await;
    });
}

/// A web server that answers each request with its own name and the request line. `after` is sent
/// after each response.
fn server(name: &'static str, after: &'static str) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            thread::spawn(move || answer_all(socket, name, after));
        }
    });
    address
}

fn answer_all(socket: TcpStream, name: &str, after: &str) -> std::io::Result<()> {
    let mut reader = BufReader::new(socket.try_clone()?);
    loop {
        let (mut line, mut length) = (String::new(), 0);
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        loop {
            let mut field = String::new();
            reader.read_line(&mut field)?;
            if let Some(value) = field.strip_prefix("Content-Length: ") {
                length = value.trim().parse().unwrap();
            }
            if field == "\r\n" {
                break;
            }
        }
        std::io::copy(&mut (&mut reader).take(length), &mut std::io::sink())?;
        let body = format!("{name}: {}\n", line.trim_end());
        let length = body.len();
        write!(&socket, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}{after}")?;
    }
}

fn get(host: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

/// The body of the next response, or its status if that is not 200.
fn response(reader: &mut impl BufRead) -> String {
    let (mut status, mut length) = (String::new(), 0);
    reader.read_line(&mut status).unwrap();
    loop {
        let mut field = String::new();
        reader.read_line(&mut field).unwrap();
        if let Some(value) = field.strip_prefix("Content-Length: ") {
            length = value.trim().parse().unwrap();
        }
        if field.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let status = status.trim_end();
    if status.ends_with(" 200 OK") {
        String::from_utf8(body).unwrap().trim_end().to_owned()
    } else {
        status.to_owned()
    }
}

/// A door to the servers `a` and `b`, each at a rig of its own.
fn two(after: &'static str) -> (Shared, [Rig; 2]) {
    let rigs = [Rig::new(server("a", after)), Rig::new(server("b", after))];
    let door = Shared::default();
    door.lead("a.example", &rigs[0]);
    door.lead("b.example", &rigs[1]);
    (door, rigs)
}

#[test]
fn a_kept_connection_reaches_the_service_of_each_request() {
    run(async {
        let (door, rigs) = two("");
        let listening = door.listen();
        visit(listening.local_addr(), |socket| {
            let mut reader = BufReader::new(socket.try_clone().unwrap());
            for (host, path) in [("a", "/1"), ("a", "/2"), ("b", "/3"), ("A", "/4"), ("b", "/5")] {
                write!(&socket, "{}", get(&format!("{host}.example"), path)).unwrap();
                let name = host.to_lowercase();
                assert_eq!(response(&mut reader), format!("{name}: GET {path} HTTP/1.1"));
            }
        })
        .await;
        assert_eq!(door.0.left.borrow().len(), 3);
        for rig in &rigs {
            rig.settled().await;
        }
        assert_eq!(rigs.each_ref().map(|rig| rig.visitors.stats.opened()), [2, 2]);
    });
}

#[test]
fn pipelined_requests_for_two_hosts_are_answered_in_their_order() {
    run(async {
        let (door, _rigs) = two("");
        let listening = door.listen();
        visit(listening.local_addr(), |socket| {
            let hosts = ["a", "a", "b", "b", "a", "c", "a"];
            let requests: String =
                hosts.iter().map(|host| get(&format!("{host}.example"), "/")).collect();
            (&socket).write_all(requests.as_bytes()).unwrap();
            let mut reader = BufReader::new(socket);
            for host in &hosts[..5] {
                assert_eq!(response(&mut reader), format!("{host}: GET / HTTP/1.1"));
            }
            // Nobody has the name, and the connection ends.
            assert_eq!(response(&mut reader), "HTTP/1.1 404 Not Found");
            assert_eq!(reader.read(&mut [0]).unwrap(), 0);
        })
        .await;
    });
}

#[test]
fn requests_arrive_one_byte_at_a_time() {
    run(async {
        let (door, _rigs) = two("");
        let listening = door.listen();
        visit(listening.local_addr(), |socket| {
            socket.set_nodelay(true).unwrap();
            let mut reader = BufReader::new(socket.try_clone().unwrap());
            let post = "POST /p HTTP/1.1\r\nHost: b.example\r\nContent-Length: 5\r\n\r\nhello";
            for (name, request) in [("a", get("a.example", "/x")), ("b", post.to_owned())] {
                for byte in request.as_bytes() {
                    (&socket).write_all(&[*byte]).unwrap();
                }
                assert!(response(&mut reader).starts_with(name));
            }
        })
        .await;
    });
}

#[test]
fn a_malformed_request_is_answered_after_the_responses_before_it() {
    run(async {
        let (door, rigs) = two("");
        let listening = door.listen();
        visit(listening.local_addr(), |socket| {
            let bad = "GET / HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n";
            write!(&socket, "{}{bad}", get("a.example", "/")).unwrap();
            let mut reader = BufReader::new(socket);
            assert_eq!(response(&mut reader), "a: GET / HTTP/1.1");
            assert_eq!(response(&mut reader), "HTTP/1.1 400 Bad Request");
            assert_eq!(reader.read(&mut [0]).unwrap(), 0);
        })
        .await;
        rigs[0].settled().await;
        assert_eq!(rigs[1].visitors.stats.opened(), 0);
    });
}

#[test]
fn bytes_for_which_nobody_asked_reach_no_visitor() {
    run(async {
        let poison = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
        let (door, rigs) = two(poison);
        let listening = door.listen();
        visit(listening.local_addr(), |socket| {
            write!(&socket, "{}", get("a.example", "/")).unwrap();
            let mut reader = BufReader::new(socket.try_clone().unwrap());
            assert_eq!(response(&mut reader), "a: GET / HTTP/1.1");
            let mut rest = Vec::new();
            // The connection ends, unless the next request left the service before the bytes came.
            let _ = write!(&socket, "{}", get("b.example", "/"));
            socket.shutdown(Shutdown::Write).unwrap();
            let _ = reader.read_to_end(&mut rest);
            let rest = String::from_utf8_lossy(&rest);
            assert!(!rest.contains("poison"), "{rest}");
        })
        .await;
        for rig in &rigs {
            rig.settled().await;
        }
    });
}

#[test]
fn a_service_that_is_down_is_a_page_and_other_services_are_not_delayed() {
    run(async {
        let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let rigs =
            [Rig::new(closed), Rig::new(silent.local_addr().unwrap()), Rig::new(server("b", ""))];
        let door = Shared::default();
        for (host, rig) in ["closed", "silent", "b"].iter().zip(&rigs) {
            door.lead(host, rig);
        }
        let listening = door.listen();
        visit(listening.local_addr(), move |socket| {
            write!(&socket, "{}", get("b", "/")).unwrap();
            let mut reader = BufReader::new(socket.try_clone().unwrap());
            assert_eq!(response(&mut reader), "b: GET / HTTP/1.1");
            write!(&socket, "{}", get("closed", "/")).unwrap();
            assert_eq!(response(&mut reader), "HTTP/1.1 502 Bad Gateway");
            // A target that takes the request and closes without a byte.
            let address = socket.peer_addr().unwrap();
            let socket = TcpStream::connect(address).unwrap();
            write!(&socket, "{}", get("silent", "/")).unwrap();
            drop(silent.accept().unwrap());
            assert_eq!(response(&mut BufReader::new(socket)), "HTTP/1.1 502 Bad Gateway");
        })
        .await;
        let left = door.0.left.borrow();
        assert!(left.contains(&Why::Down(ResetCode::Refused)), "{left:?}");
    });
}

#[test]
fn an_upgraded_connection_carries_bytes_both_ways() {
    run(async {
        let origin = Origin::start(|mut socket| async move {
            use tokio::io::AsyncReadExt;
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(socket.read_u8().await.unwrap());
            }
            let answer =
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";
            socket.write_all(answer.as_bytes()).await.unwrap();
            let mut all = Vec::new();
            socket.read_to_end(&mut all).await.unwrap();
            socket.write_all(&all).await.unwrap();
            socket.shutdown().await.unwrap();
            testkit::origins::Ended { received: Default::default(), clean: true }
        })
        .unwrap();
        let rig = Rig::new(origin.address());
        let door = Shared::default();
        door.lead("a.example", &rig);
        let listening = door.listen();
        let got = visit(listening.local_addr(), |socket| {
            let head =
                "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
            (&socket).write_all(head.as_bytes()).unwrap();
            let mut reader = BufReader::new(socket.try_clone().unwrap());
            assert_eq!(response(&mut reader), "HTTP/1.1 101 Switching Protocols");
            // These bytes would be a request for another host.
            (&socket).write_all(get("b.example", "/").as_bytes()).unwrap();
            send(&socket, 1_000_000).unwrap();
            socket.shutdown(Shutdown::Write).unwrap();
            let mut first = vec![0; get("b.example", "/").len()];
            reader.read_exact(&mut first).unwrap();
            receive(reader).unwrap()
        })
        .await;
        assert_eq!(got, Pattern.digest(1_000_000));
        rig.settled().await;
    });
}

#[test]
fn a_large_body_passes_and_the_next_request_is_found_behind_it() {
    run(async {
        let (door, _rigs) = two("");
        let listening = door.listen();
        visit(listening.local_addr(), |socket| {
            let mut reader = BufReader::new(socket.try_clone().unwrap());
            let length = 10_000_000;
            write!(
                &socket,
                "PUT /big HTTP/1.1\r\nHost: a.example\r\nContent-Length: {length}\r\n\r\n"
            )
            .unwrap();
            send(&socket, length).unwrap();
            write!(&socket, "{}", get("b.example", "/next")).unwrap();
            assert_eq!(response(&mut reader), "a: PUT /big HTTP/1.1");
            assert_eq!(response(&mut reader), "b: GET /next HTTP/1.1");
        })
        .await;
    });
}

#[test]
fn a_visitor_that_leaves_in_a_request_leaves_nothing_behind() {
    run(async {
        let (door, rigs) = two("");
        let listening = door.listen();
        for part in
            ["", "GET / HT", "GET / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 9\r\n\r\nhal"]
        {
            visit(listening.local_addr(), move |socket| {
                write!(&socket, "{}{part}", get("a.example", "/")).unwrap();
                let mut reader = BufReader::new(socket);
                assert_eq!(response(&mut reader), "a: GET / HTTP/1.1");
            })
            .await;
        }
        until(|| rigs[0].visitors.stats.live() == 0).await;
        rigs[0].settled().await;
    });
}

#[test]
fn a_request_after_a_change_of_the_rules_leaves_its_stream_and_is_judged_anew() {
    run(async {
        let (door, rigs) = two("");
        let listening = door.listen();
        let (generation, at) = (Rc::clone(&door.0.generation), listening.local_addr());
        let (ask, asked) = std::sync::mpsc::channel::<()>();
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let visit = visit(at, move |socket| {
            let mut reader = BufReader::new(socket.try_clone().unwrap());
            write!(&socket, "{}", get("a.example", "/1")).unwrap();
            assert_eq!(response(&mut reader), "a: GET /1 HTTP/1.1");
            // A part of the next header arrived before the change.
            write!(&socket, "GET /2 HTTP/1.1\r\nHo").unwrap();
            sender.send(()).unwrap();
            asked.recv().unwrap();
            let rest = "st: a.example\r\nContent-Length: 2\r\n\r\nhi";
            write!(&socket, "{rest}{}", get("a.example", "/3")).unwrap();
            assert_eq!(response(&mut reader), "a: GET /2 HTTP/1.1");
            assert_eq!(response(&mut reader), "a: GET /3 HTTP/1.1");
        });
        let change = async {
            until(|| receiver.try_recv().is_ok()).await;
            generation.set(1);
            ask.send(()).unwrap();
        };
        tokio::join!(visit, change);
        assert_eq!(*door.0.left.borrow(), [Why::Changed]);
        rigs[0].settled().await;
        assert_eq!(rigs.each_ref().map(|rig| rig.visitors.stats.opened()), [2, 0]);
    });
}

/// A server that reads one request and answers with these bytes. `keeps`: it does not close.
fn raw_server(answer: Vec<u8>, keeps: bool) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let answer = answer.clone();
            thread::spawn(move || {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    if socket.read(&mut byte).unwrap_or(0) == 0 {
                        return;
                    }
                    head.push(byte[0]);
                }
                for piece in answer.chunks(10_000) {
                    if socket.write_all(piece).is_err() {
                        return;
                    }
                }
                if keeps {
                    let _ = socket.read_to_end(&mut Vec::new());
                }
            });
        }
    });
    address
}

#[test]
fn a_doubtful_head_is_a_page_and_nothing_of_it_is_delivered() {
    run(async {
        let poison = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
        let large = format!("HTTP/1.1 200 OK\r\nX: {}\r\n", "x".repeat(70_000));
        let heads = ["HTTP/1.1 200 OK\nContent-Length: 2\n\nok", "no HTTP at all", &*large];
        for (head, keeps) in heads.into_iter().flat_map(|head| [(head, true), (head, false)]) {
            let rig = Rig::new(raw_server([head, poison].concat().into(), keeps));
            let door = Shared::default();
            door.lead("a.example", &rig);
            let listening = door.listen();
            visit(listening.local_addr(), |socket| {
                // The second request is not passed, and not answered.
                write!(&socket, "{}{}", get("a.example", "/"), get("a.example", "/")).unwrap();
                let mut all = Vec::new();
                let _ = (&socket).read_to_end(&mut all);
                let all = String::from_utf8_lossy(&all);
                // A service that resets first has given no answer.
                assert!(all.starts_with("HTTP/1.1 502 "), "{all}");
                assert!(!all.contains("poison") && all.matches("HTTP/1.1").count() == 1, "{all}");
            })
            .await;
            rig.settled().await;
        }
    });
}

#[test]
fn a_doubtful_body_is_cut_with_a_reset() {
    run(async {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let poison = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
        for (body, certain) in [("2\r\nok\r\n0\n\n", 8), ("x", 0)] {
            let rig = Rig::new(raw_server([head, body, poison].concat().into(), true));
            let door = Shared::default();
            door.lead("a.example", &rig);
            let listening = door.listen();
            visit(listening.local_addr(), move |socket| {
                write!(&socket, "{}", get("a.example", "/")).unwrap();
                let mut all = Vec::new();
                let error = (&socket).read_to_end(&mut all).unwrap_err();
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
                assert!([head, &body[..certain]].concat().as_bytes().starts_with(&all));
            })
            .await;
            rig.settled().await;
        }
    });
}

/// The behaviour of a service after its answer to a request whose body it does not read.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// The service closes the connection, which resets it.
    Closes,
    /// The service ends its direction and closes later.
    EndsAndCloses,
    /// The service ends its direction and reads on.
    EndsAndReads,
    /// The service keeps the connection and reads nothing.
    Waits,
}

/// A server that answers each request header at once.
fn early_server(then: Then) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    if socket.read(&mut byte).unwrap_or(0) == 0 {
                        return;
                    }
                    head.push(byte[0]);
                }
                let _ = socket.write_all(EARLY.as_bytes());
                match then {
                    Then::Closes => {}
                    Then::EndsAndCloses => {
                        let _ = socket.shutdown(Shutdown::Write);
                        thread::sleep(Duration::from_millis(50));
                    }
                    Then::EndsAndReads => {
                        let _ = socket.shutdown(Shutdown::Write);
                        let _ = socket.read_to_end(&mut Vec::new());
                    }
                    Then::Waits => thread::sleep(Duration::from_secs(3)),
                }
            });
        }
    });
    address
}

const EARLY: &str =
    "HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 5\r\n\r\nlarge";

/// More than the buffers of the path take.
const UPLOAD: usize = 24 << 20;

#[test]
fn an_early_answer_reaches_a_visitor_that_first_sends_its_whole_upload() {
    run(async {
        for then in [Then::Closes, Then::EndsAndCloses, Then::EndsAndReads, Then::Waits] {
            let rig = Rig::new(early_server(then));
            let door = Shared::default();
            door.lead("a.example", &rig);
            let listening = door.listen();
            visit(listening.local_addr(), move |mut socket| {
                write!(
                    &socket,
                    "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: {UPLOAD}\r\n\r\n"
                )
                .unwrap();
                socket.write_all(&vec![b'x'; UPLOAD]).unwrap_or_else(|e| panic!("{then:?}: {e}"));
                let mut all = vec![0; EARLY.len()];
                socket.read_exact(&mut all).unwrap_or_else(|e| panic!("{then:?}: {e}"));
                assert_eq!(String::from_utf8_lossy(&all), EARLY, "{then:?}");
            })
            .await;
            rig.settled().await;
        }
    });
}

/// The window of a stream may be smaller than a header, and held bytes are reported only once.
#[test]
fn a_large_head_in_pieces_arrives_whole() {
    run(async {
        let length = 3_000_000;
        let mut answer = format!("HTTP/1.1 200 OK\r\nX: {}\r\n", "x".repeat(60_000)).into_bytes();
        answer.extend(format!("Content-Length: {length}\r\n\r\n").into_bytes());
        let size = answer.len() + length;
        answer.resize(size, b'b');
        let target = raw_server(answer.clone(), false);
        let rig = Rig::with(target, 16 << 10, 8 << 10, Timeouts::default(), None);
        let door = Shared::default();
        door.lead("a.example", &rig);
        let listening = door.listen();
        visit(listening.local_addr(), move |socket| {
            write!(&socket, "{}", get("a.example", "/")).unwrap();
            socket.shutdown(Shutdown::Write).unwrap();
            let mut all = Vec::new();
            (&socket).read_to_end(&mut all).unwrap();
            assert_eq!((all.len(), all == answer), (size, true));
        })
        .await;
        rig.settled().await;
    });
}

/// A visitor that reads slowly has a part of a response in the queue of the stream when its next
/// request is for another host, or is malformed, or is answered doubtfully.
#[test]
fn a_connection_leaves_its_stream_after_the_last_byte_of_a_response() {
    run(async {
        let length = 8_000_000;
        let mut answer =
            format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").into_bytes();
        let head = answer.len();
        answer.resize(head + length, b'a');
        let doubtful = [&answer[..], b"HTTP/1.1 200 OK\nContent-Length: 0\n\n"].concat();
        let other = Rig::new(server("b", ""));
        for (next, answer, said) in [
            (get("b.example", "/"), &answer, "b: GET / HTTP/1.1"),
            ("GET / HTTP/1.1\r\n\r\n".to_owned(), &answer, "HTTP/1.1 400 Bad Request"),
            (get("a.example", "/2"), &doubtful, "HTTP/1.1 502 Doubt"),
        ] {
            let rig = Rig::new(raw_server(answer.clone(), true));
            let door = Shared::default();
            door.lead("a.example", &rig);
            door.lead("b.example", &other);
            let listening = door.listen();
            visit(listening.local_addr(), move |socket| {
                write!(&socket, "{}{next}", get("a.example", "/1")).unwrap();
                thread::sleep(Duration::from_millis(300));
                let mut reader = BufReader::new(socket);
                let mut first = vec![0; head + length];
                reader.read_exact(&mut first).unwrap();
                assert!(first[head..].iter().all(|byte| *byte == b'a'));
                assert_eq!(response(&mut reader), said);
            })
            .await;
        }
    });
}

#[test]
fn a_visitor_that_asks_for_the_end_gets_it_from_a_service_that_keeps_its_connection_open() {
    run(async {
        let (door, rigs) = two("");
        let listening = door.listen();
        visit(listening.local_addr(), |socket| {
            let mut reader = BufReader::new(socket.try_clone().unwrap());
            write!(&socket, "{}", get("a.example", "/1")).unwrap();
            assert_eq!(response(&mut reader), "a: GET /1 HTTP/1.1");
            write!(&socket, "GET /2 HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
                .unwrap();
            assert_eq!(response(&mut reader), "a: GET /2 HTTP/1.1");
            assert_eq!(reader.read(&mut [0]).unwrap(), 0, "the connection ends");
        })
        .await;
        rigs[0].settled().await;
    });
}
