//! Offers and answers: what binds both ends, what a stranger cannot do, and which connections end.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

use crate::setup;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use setup::{CLIENT_HELLO, pair, run, run_paused, settings};
use testkit::conformance::{Sum, pattern, read_some, write_all};
use tokio::sync::oneshot;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, sleep};
use transport::{Carrier, CarrierError, Dialer, Incoming, Listener};
use transport_webrtc::{
    Admission, Answerer, Arrived, First, Interfaces, Offerer, Peers, SignalError, WebrtcSettings,
};

/// A connected pair: who offered, and who answered.
async fn connected(settings: &WebrtcSettings) -> (Carrier, Carrier) {
    let (mut listener, dialer) = pair(settings);
    let address = listener.local_addr();
    let accepting = async {
        let incoming: Box<dyn Incoming> = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
        incoming.handshake().await.unwrap()
    };
    let (offerer, answerer) = tokio::join!(dialer.dial(address), accepting);
    (offerer.unwrap(), answerer)
}

async fn offerer(peers: &Peers) -> Offerer {
    Offerer::new(peers, First::Carrier, Interfaces::Announced).await.unwrap()
}

/// An offer whose peer is never heard of again.
async fn offer() -> String {
    offerer(&Peers::new(settings())).await.offer().to_owned()
}

/// The address that an offer or an answer names.
fn address(description: &str) -> SocketAddr {
    let line = description.lines().find(|line| line.starts_with("a=candidate:")).unwrap();
    let words: Vec<_> = line.split(' ').collect();
    format!("{}:{}", words[4], words[5]).parse().unwrap()
}

/// Waits until nobody is connected: closing takes a moment.
async fn emptied(peers: &Peers) {
    while peers.count() > 0 {
        sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn both_ends_have_one_binding_and_each_connection_its_own() {
    run(async {
        let (offerer, answerer) = connected(&settings()).await;
        assert!(offerer.peer.exporter.is_some());
        assert_eq!(offerer.peer.exporter, answerer.peer.exporter);
        let (other, _answerer) = connected(&settings()).await;
        assert_ne!(offerer.peer.exporter, other.peer.exporter, "certificates are fresh");
        assert!(offerer.peer.address.ip().is_loopback());
    });
}

#[test]
fn all_bytes_arrive_although_their_lane_is_dropped_at_once() {
    run(async {
        let (mut sender, mut receiver) = connected(&settings()).await;
        receiver.lane.authenticated();
        let total = 8 << 20;
        let writing = async {
            let bytes: Bytes = (0..total).map(|at| pattern(1, at)).collect();
            write_all(&mut *sender.lane, &mut VecDeque::from([bytes])).await.unwrap();
            poll_fn(|cx| sender.lane.poll_close(cx)).await.unwrap();
            drop(sender);
        };
        let reading = async {
            let mut sum = Sum::new(1);
            while sum.seen() < total {
                sum.add(&read_some(&mut *receiver.lane, 50_000).await.unwrap());
            }
            // The sender is gone for long.
            sleep(Duration::from_millis(300)).await;
            assert!(read_some(&mut *receiver.lane, 1).await.unwrap().is_empty(), "an end");
        };
        tokio::join!(writing, reading);
    });
}

#[test]
fn a_stranger_leaves_few_bytes_unread() {
    run(async {
        let (mut stranger, mut end) = connected(&settings()).await;
        let mut frames = VecDeque::from([Bytes::from(vec![1; 1 << 20])]);
        let _ = write_all(&mut *stranger.lane, &mut frames).await;
        let error = loop {
            sleep(Duration::from_millis(50)).await;
            if let Err(error) = read_some(&mut *end.lane, 100_000).await {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    });
}

#[test]
fn as_many_peers_are_admitted_as_the_limit_says() {
    run(async {
        let peers = Peers::new(WebrtcSettings { peers: 2, ..settings() });
        let first = offerer(&peers).await;
        let _second = offerer(&peers).await;
        let third = Answerer::new(&peers, &offer().await, Interfaces::Announced).await.unwrap_err();
        assert!(matches!(third, SignalError::Full(2)), "{third}");
        drop(first);
        while peers.count() > 1 {
            sleep(Duration::from_millis(5)).await;
        }
        offerer(&peers).await;
    });
}

#[test]
fn a_peer_that_does_not_come_is_given_up() {
    run(async {
        let peers =
            Peers::new(WebrtcSettings { half_open: Duration::from_millis(200), ..settings() });
        let answerer = Answerer::new(&peers, &offer().await, Interfaces::Announced).await.unwrap();
        let error = answerer.connect().await.unwrap_err();
        assert!(error.is_network(), "{error}");
        emptied(&peers).await;
        // The same if nobody waits for the connection.
        let _offerer = offerer(&peers).await;
        emptied(&peers).await;
    });
}

/// In virtual time, with the limit of the defaults.
#[test]
fn a_half_open_offer_ends_after_30_s() {
    run_paused(async {
        let peers = Peers::new(settings());
        let answerer = Answerer::new(&peers, &offer().await, Interfaces::Announced).await.unwrap();
        let begin = Instant::now();
        let limit = WebrtcSettings::default().half_open;
        assert_eq!(limit, Duration::from_secs(30));
        answerer.connect().await.unwrap_err();
        emptied(&peers).await;
        let elapsed = begin.elapsed();
        assert!(elapsed <= limit + Duration::from_secs(1), "{elapsed:?}");
    });
}

/// A peer may name an address of somebody else.
#[test]
fn checks_at_an_address_that_answers_nothing_end_after_10_s() {
    run_paused(async {
        let victim = UdpSocket::bind("127.0.0.1:0").unwrap();
        victim.set_nonblocking(true).unwrap();
        let peers = Peers::new(settings());
        let offer = offer_of(victim.local_addr().unwrap()).await;
        let answerer = Answerer::new(&peers, &offer, Interfaces::Announced).await.unwrap();
        let (begin, connecting) = (Instant::now(), spawn_local(answerer.connect()));
        let (mut count, mut last) = (0, Duration::ZERO);
        while peers.count() > 0 {
            sleep(Duration::from_millis(20)).await;
            while victim.recv(&mut [0; 2_000]).is_ok() {
                (count, last) = (count + 1, begin.elapsed());
            }
        }
        connecting.await.unwrap().unwrap_err();
        assert!((40..=52).contains(&count), "{count} checks");
        assert!(last <= Duration::from_secs(11), "{last:?}");
    });
}

/// The consent of RFC 7675: a peer that answers no check any more gets no bytes.
#[test]
fn a_peer_that_vanishes_is_given_up_within_30_s() {
    run_paused(async {
        let [offering, answering] = [(); 2].map(|()| Peers::new(settings()));
        let (offers, offered) = oneshot::channel();
        let (answers, answered) = oneshot::channel::<String>();
        // Its tasks and sockets are gone at once, and say nothing.
        let far = LocalSet::new();
        far.spawn_local(async move {
            let offerer = offerer(&offering).await;
            offers.send(offerer.offer().to_owned()).unwrap();
            let arrived = offerer.connect(&answered.await.unwrap()).await.unwrap();
            std::future::pending::<()>().await;
            drop(arrived);
        });
        let near = async {
            let offer = offered.await.unwrap();
            let answerer = Answerer::new(&answering, &offer, Interfaces::Announced).await.unwrap();
            answers.send(answerer.answer().to_owned()).unwrap();
            answerer.connect().await.unwrap()
        };
        let arrived = tokio::select! {
            arrived = near => arrived,
            () = far => panic!("it waits for ever"),
        };
        let Arrived::Carrier(mut carrier) = arrived else { panic!("a tunnel") };
        let begin = Instant::now();
        let error = read_some(&mut *carrier.lane, 1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        assert!(error.to_string().contains("nothing was heard"), "{error}");
        assert!(begin.elapsed() <= Duration::from_secs(31), "{:?}", begin.elapsed());
        emptied(&answering).await;
    });
}

#[test]
fn an_idle_connection_ends() {
    run(async {
        let idle = Duration::from_millis(300);
        let settings = WebrtcSettings { half_open: Duration::from_secs(5), idle, ..settings() };
        let (mut one, mut other) = connected(&settings).await;
        let errors = [
            read_some(&mut *one.lane, 1).await.unwrap_err(),
            read_some(&mut *other.lane, 1).await.unwrap_err(),
        ];
        let is_idle = |error: &std::io::Error| error.to_string().contains("idle for too long");
        assert!(errors.iter().any(is_idle), "{errors:?}");
    });
}

#[test]
fn a_peer_with_another_certificate_than_it_named_is_refused() {
    run(async {
        let settings = WebrtcSettings { half_open: Duration::from_secs(10), ..settings() };
        let [offering, answering] = [(); 2].map(|()| Peers::new(settings.clone()));
        let offerer = offerer(&offering).await;
        let answerer =
            Answerer::new(&answering, offerer.offer(), Interfaces::Announced).await.unwrap();
        let answer = answerer.answer();
        let at = answer.find("sha-256 ").unwrap() + "sha-256 ".len();
        let digit = if answer.as_bytes()[at] == b'0' { "1" } else { "0" };
        let forged = [&answer[..at], digit, &answer[at + 1..]].concat();
        let (offered, answered) = tokio::join!(offerer.connect(&forged), answerer.connect());
        offered.unwrap_err();
        answered.unwrap_err();
    });
}

#[test]
fn an_answer_that_is_none_is_refused_in_words() {
    run(async {
        let peers = Peers::new(settings());
        let error = offerer(&peers).await.connect("v=0\r\n").await.unwrap_err();
        assert!(matches!(error, CarrierError::Tls(_)), "{error}");
        assert!(error.to_string().contains("m=application"), "{error}");
        let offerer = offerer(&peers).await;
        let own = offerer.offer().to_owned();
        let error = offerer.connect(&own).await.unwrap_err();
        assert!(error.to_string().contains("a=setup"), "{error}");
        emptied(&peers).await;
    });
}

/// An offer that names `victim` as the address of the peer.
async fn offer_of(victim: SocketAddr) -> String {
    let offer = offer().await;
    let own = address(&offer);
    offer.replace(
        &format!("{} {}", own.ip(), own.port()),
        &format!("{} {}", victim.ip(), victim.port()),
    )
}

#[test]
fn an_address_that_is_not_admitted_gets_no_packet() {
    run(async {
        let victim = UdpSocket::bind("127.0.0.1:0").unwrap();
        victim.set_nonblocking(true).unwrap();
        let offer = offer_of(victim.local_addr().unwrap()).await;
        for (loopback, is_asked) in [(true, true), (false, false)] {
            let admission = Admission { loopback, private: false };
            let half_open = Duration::from_secs(1);
            let peers = Peers::new(WebrtcSettings { admission, half_open, ..settings() });
            let answerer = Answerer::new(&peers, &offer, Interfaces::Announced).await.unwrap();
            answerer.connect().await.unwrap_err();
            let mut buf = [0; 2_000];
            let mut count = 0;
            while victim.recv(&mut buf).is_ok() {
                count += 1;
            }
            assert_eq!(count > 0, is_asked, "{count} packets, loopback: {loopback}");
            // One check in 200 ms, at most 7.
            assert!(count <= 8, "{count}");
        }
    });
}

#[test]
fn a_hidden_interface_is_not_told() {
    run(async {
        let peers = Peers::new(settings());
        let offered = offerer(&peers).await;
        assert!(offered.offer().contains(" 127.0.0.1 "), "{}", offered.offer());
        let hidden = Offerer::new(&peers, First::Carrier, Interfaces::Hidden).await.unwrap();
        assert!(!hidden.offer().contains("a=candidate"), "{}", hidden.offer());
    });
}

#[test]
fn a_stranger_without_the_password_gets_no_handshake() {
    run(async {
        let peers = Peers::new(WebrtcSettings { half_open: Duration::from_secs(1), ..settings() });
        let answerer = Answerer::new(&peers, &offer().await, Interfaces::Announced).await.unwrap();
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        stranger.set_nonblocking(true).unwrap();
        let port = address(answerer.answer());
        // A Binding request of STUN without a name and without a password.
        let mut binding = [0; 20];
        binding[1] = 1;
        binding[4..8].copy_from_slice(&[0x21, 0x12, 0xa4, 0x42]);
        for _ in 0..5 {
            stranger.send_to(&CLIENT_HELLO, port).unwrap();
            stranger.send_to(&binding, port).unwrap();
        }
        answerer.connect().await.unwrap_err();
        let received = stranger.recv(&mut [0; 2_000]);
        assert_eq!(received.unwrap_err().kind(), ErrorKind::WouldBlock, "no answer at all");
    });
}

#[test]
fn an_address_that_the_peer_names_gets_checks_and_no_handshake() {
    run(async {
        let victim = UdpSocket::bind("127.0.0.1:0").unwrap();
        victim.set_nonblocking(true).unwrap();
        let peers = Peers::new(WebrtcSettings { half_open: Duration::from_secs(1), ..settings() });
        let offer = offer_of(victim.local_addr().unwrap()).await;
        let answerer = Answerer::new(&peers, &offer, Interfaces::Announced).await.unwrap();
        // As if the address were forged.
        for _ in 0..5 {
            victim.send_to(&CLIENT_HELLO, address(answerer.answer())).unwrap();
        }
        answerer.connect().await.unwrap_err();
        let mut buf = [0; 2_000];
        let mut count = 0;
        while victim.recv(&mut buf).is_ok() {
            assert_eq!(buf[..2], [0, 1], "a check");
            count += 1;
        }
        assert!(count > 0);
    });
}

#[test]
fn a_full_lane_makes_way_for_the_end_of_its_reader() {
    run(async {
        let (mut writer, reader) = connected(&settings()).await;
        let mut frames = VecDeque::from([Bytes::from(vec![1; 64 << 20])]);
        let writing = write_all(&mut *writer.lane, &mut frames);
        let leaving = async {
            sleep(Duration::from_millis(300)).await;
            drop(reader);
        };
        let (written, ()) = tokio::join!(writing, leaving);
        assert_eq!(written.unwrap_err().kind(), ErrorKind::ConnectionReset);
        let mut buf = BytesMut::with_capacity(1);
        poll_fn(|cx| writer.lane.poll_read(cx, &mut buf)).await.unwrap_err();
    });
}
