//! Peers that mean harm or do not know better.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use link::{End, GreetError, Settings, State};
use proto::greeting::Features;
use proto::{Attach, CarrierNumber, LinkConfig, Side, Unlimited, ViolationCode};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use transport::memory::MEMORY;
use transport::memory::{self, Faults, MemoryLane};
use transport::{Carrier, Lane, Peer};
use transport_tcp::TcpDialer;

use crate::rig::{
    Client, Killer, Party, Rules, Server, Tls, couple, path, plan, really, until, virtually,
};

async fn write(lane: &mut MemoryLane, bytes: &[u8]) {
    let mut frames = VecDeque::from([Bytes::copy_from_slice(bytes)]);
    while !frames.is_empty() {
        poll_fn(|cx| lane.poll_write(cx, &mut frames)).await.unwrap();
    }
}

/// A link whose peer is the test.
fn link_to(lane: MemoryLane) -> (link::Link, Rc<Party>) {
    let config = LinkConfig::default();
    let (budget, features) = (Rc::new(Unlimited), Features::OURS);
    let settings = Settings { side: Side::Server, config, budget, serial: 1, features };
    let owner = Party::new();
    let link = link::Link::new(settings, owner.clone());
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 9));
    let transport = MEMORY;
    let connection = None;
    let peer = Peer {
        address,
        transport,
        connection,
        watch: None,
        exporter: None,
        certificate_name: None,
        cipher: None,
        via: None,
    };
    let carrier = Carrier::single(peer, Box::new(lane));
    assert!(link.attach(CarrierNumber(1), Attach::New, carrier, BytesMut::new()));
    (link, owner)
}

/// All that comes until the end.
async fn read_to_end(lane: &mut MemoryLane) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let mut buf = BytesMut::with_capacity(1024);
        match poll_fn(|cx| lane.poll_read(cx, &mut buf)).await {
            Ok(0) => return all,
            Ok(_) => all.extend_from_slice(&buf),
            Err(error) => panic!("reset instead of an end: {error}"),
        }
    }
}

#[test]
fn a_peer_that_breaks_the_protocol_is_told_by_goaway() {
    let cases: [(&[u8], ViolationCode); 6] = [
        (b"SSH-2.0-OpenSSH_9.2\r\n", ViolationCode::UnknownKind),
        // The first letter is the kind of a datagram, and the next bytes are its length.
        (b"GET / HTTP/1.1\r\n\r\n", ViolationCode::BadLength),
        (&[0x02, 0xff, 0xff, 0xff, 0, 0, 0, 1], ViolationCode::BadLength),
        (&[0x02, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0, 7], ViolationCode::BadStream),
        // A control message of no known kind, and one that claims 16 MiB.
        (&[0x0c, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 0, 0, 0], ViolationCode::Malformed),
        (&[0x0c, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1, 255, 255, 255], ViolationCode::Malformed),
    ];
    for (bytes, code) in cases {
        virtually(async {
            let (mut near, far) = memory::pair(Faults::default());
            let (link, owner) = link_to(far);
            write(&mut near, bytes).await;
            let all = read_to_end(&mut near).await;
            let [.., high, low] = all[..] else { panic!("{all:?}") };
            assert_eq!(u16::from_be_bytes([high, low]), code.raw(), "{bytes:?} {all:?}");
            until("its end", || link.has_ended()).await;
            let states = owner.states.borrow().clone();
            let Some(State::Ended(End::Violation(violation))) = states.last() else {
                panic!("{states:?}")
            };
            assert_eq!(violation.code, code);
        });
    }
}

#[test]
fn a_peer_that_breaks_the_protocol_and_does_not_read_is_dropped_all_the_same() {
    virtually(async {
        let (mut near, far) = memory::pair(Faults::default());
        let (link, _owner) = link_to(far);
        let stuck = crate::rig::open(&link, "a", crate::rig::Appetite::ALL);
        let sender = stuck.clone();
        tokio::task::spawn_local(async move { sender.send_pattern(1 << 20).await });
        tokio::time::sleep(Duration::from_millis(10)).await;
        write(&mut near, b"garbage garbage garbage").await;
        until("its end", || link.has_ended()).await;
        assert!(stuck.is_over());
    });
}

/// Others have their turns between those in which a read full of frames of one byte is handed on.
#[test]
fn many_small_payloads_are_many_turns() {
    const FRAMES: u32 = 4_000;
    // All credit there is, normal class, a service of one letter and no visitor.
    let open = [1, 0, 0, 14, 0, 0, 0, 1, 0, 0, 0, 0, 0x40, 0, 0, 1, 1, 0, 0, 1, b'x', 0];
    let tiny = |at: u32| {
        let [_, _, high, low] = at.to_be_bytes();
        [2, 0, 0, 5, 0, 0, 0, 1, 0, 0, high, low, b'x']
    };
    let frames: Vec<u8> = (0..FRAMES).flat_map(tiny).collect();
    virtually(async move {
        let (mut near, far) = memory::pair(Faults::default());
        let (link, owner) = link_to(far);
        write(&mut near, &open).await;
        until("the stream", || owner.tap(0).is_some()).await;
        let tap = owner.tap(0).unwrap();
        // Takes a turn whenever there is one.
        let (seen, most) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let watching = {
            let (tap, seen, most) = (Rc::clone(&tap), Rc::clone(&seen), Rc::clone(&most));
            tokio::task::spawn_local(poll_fn(move |cx| {
                let now = tap.counted.get();
                most.set(most.get().max(now - seen.replace(now)));
                cx.waker().wake_by_ref();
                if now < FRAMES.into() { Poll::Pending } else { Poll::Ready(()) }
            }))
        };
        tap.keeps.set(false);
        write(&mut near, &frames).await;
        watching.await.unwrap();
        assert!((1..=512).contains(&most.get()), "{} payloads in one turn", most.get());
        assert!(!link.has_ended());
    });
}

#[test]
fn a_link_closed_by_violation_takes_no_other_with_it() {
    virtually(async {
        let (server, client, _) = couple().await;
        let (mut near, far) = memory::pair(Faults::default());
        let (link, _owner) = link_to(far);
        write(&mut near, &[0xff; 100]).await;
        until("its end", || link.has_ended()).await;
        assert!(client.live().await.is_live() && server.link().is_live());
    });
}

#[test]
fn a_captured_greeting_is_refused() {
    really(async {
        let tls = Tls::new();
        let (sealed, port) = tls.listen();
        let (bare, bare_port) = Tls::listen_bare();
        let server = Server::start(vec![sealed, bare], Rules::default());
        for (listening, is_tls) in [(port, true), (bare_port, false)] {
            let killer = Killer::start(listening).await;
            let dialer: Rc<dyn transport::Dialer> =
                if is_tls { tls.dialer() } else { Rc::new(TcpDialer::new(None)) };
            let client = Client::start(plan(vec![path(dialer, killer.port)]));
            client.live().await;
            tokio::time::sleep(Duration::from_millis(50)).await;
            let (captured, links) = (killer.heard(), server.links().len());
            let greeted = server.state.greeted.get();
            assert!(captured.len() > 100);
            // Bound to nothing but the server's nonce, and to the TLS session: both are new.
            let mut replay = TcpStream::connect(("127.0.0.1", listening)).await.unwrap();
            replay.write_all(&captured).await.unwrap();
            let mut answer = Vec::new();
            let reading = replay.read_to_end(&mut answer);
            let _ = tokio::time::timeout(Duration::from_secs(20), reading).await.unwrap();
            assert!(answer.len() < killer.answered() + 200);
            assert_eq!(server.links().len(), links);
            assert_eq!(server.state.greeted.get(), greeted);
        }
        let errors = server.state.errors.borrow();
        assert!(errors.iter().any(|error| error.refusal().is_some()), "{errors:?}");
    });
}

#[test]
fn garbage_http_and_oversize_claims_are_closed_at_once_and_answered_with_nothing_more() {
    really(async {
        let (bare, port) = Tls::listen_bare();
        let server = Server::start(vec![bare], Rules::default());
        let mut oversize = b"TNL1".to_vec();
        oversize.extend_from_slice(&[2, 0xff, 0xff, 0xff, 0xff, 0xff]);
        let endless = vec![b'x'; 100_000];
        let cases = [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), oversize, endless, vec![0; 64]];
        for (n, case) in cases.iter().enumerate() {
            let mut socket = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let _ = socket.write_all(case).await;
            let mut answer = Vec::new();
            let closed = socket.read_to_end(&mut answer);
            let _ = tokio::time::timeout(Duration::from_secs(5), closed).await.expect("closed");
            assert!(answer.len() <= 64, "{}", answer.len());
            until("its error", || server.state.errors.borrow().len() > n).await;
        }
        let errors = server.state.errors.borrow();
        assert!(!errors.iter().any(|error| matches!(error, GreetError::Timeout)), "{errors:?}");
    });
}

/// Both ends of a thousand connections are more than the usual 1,024 descriptors.
fn allow_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
}

/// Silent connections, on plain TCP and before the handshake of TLS.
const SILENT: usize = 500;

#[test]
fn a_thousand_silent_peers_do_not_delay_an_honest_one() {
    allow_descriptors();
    really(async {
        let tls = Tls::new();
        let (sealed, port) = tls.listen();
        let (bare, bare_port) = Tls::listen_bare();
        let server = Server::start(vec![sealed, bare], Rules::default());
        let mut silent = Vec::new();
        for port in [port, bare_port] {
            for n in 0..SILENT {
                let mut socket = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                if n % 2 == 0 {
                    // A peer that begins and then is silent.
                    socket
                        .write_all(if n % 4 == 0 { b"TNL1" } else { b"\x16\x03\x01" })
                        .await
                        .unwrap();
                }
                silent.push(socket);
            }
        }
        let begin = std::time::Instant::now();
        let client = Client::start(plan(vec![path(tls.dialer(), port)]));
        client.live().await;
        let took = begin.elapsed();
        println!("log-in beside {} silent peers: {took:?}", silent.len());
        assert!(took < Duration::from_secs(1), "{took:?}");
        // Each silent connection is closed after ten seconds; the client's link stays live.
        let closed = async {
            for socket in &mut silent {
                let mut answer = Vec::new();
                let _ = socket.read_to_end(&mut answer).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), closed).await.expect("all closed");
        assert!(client.live().await.is_live() && server.links().len() == 1);
    });
}

#[test]
fn a_greeting_that_trickles_is_cut_off_after_ten_seconds() {
    virtually(async {
        let (listener, dialer) = memory::laned_network(crate::LANES);
        let server = Server::start(vec![Box::new(listener)], Rules::default());
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        let carrier = transport::Dialer::dial(&dialer, address).await.unwrap();
        let mut lane = carrier.lane;
        let begin = tokio::time::Instant::now();
        for byte in b"TNL1\x02".iter().chain([0_u8; 60].iter()) {
            let mut frames = VecDeque::from([Bytes::copy_from_slice(&[*byte])]);
            if poll_fn(|cx| lane.poll_write(cx, &mut frames)).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        assert!(begin.elapsed() < Duration::from_secs(11), "{:?}", begin.elapsed());
        assert_eq!(server.state.errors.borrow().len(), 1);
    });
}
