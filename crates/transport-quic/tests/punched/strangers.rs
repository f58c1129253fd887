//! Who has not proved that the peer signalled with it gets no answer of QUIC.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use punch::{Body, CANDIDATES, Candidate, Credentials, Kind, LIMIT, Nat, Offer, Signal};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use transport::Dialer as _;
use transport_quic::punched::{Begin, Failure};
use transport_quic::{QuicDialer, QuicSettings, TlsClient};

use crate::punched::ends::{carrying, publisher, puncher, run};

/// Time in which an answer on loopback would have arrived; a longer time only makes the test
/// stricter.
const MOMENT: Duration = Duration::from_millis(500);

#[test]
fn a_stranger_gets_no_handshake_no_version_and_no_reset() {
    run(async {
        let visitor = puncher().visitor(&Begin { round: 1, ..Begin::default() }).unwrap();
        let publisher = publisher(&puncher(), &visitor.signal().await);
        let address = SocketAddr::from(([127, 0, 0, 1], publisher.port().unwrap()));
        let tls = tls::peer_client_config(&[transport::ALPN]).unwrap();
        let name = tls::server_name(tls::PEER_NAME).unwrap();
        let tls = TlsClient { config: tls, name };
        let dialer = QuicDialer::new(&tls, QuicSettings::default(), net::udp::WANTED).unwrap();
        let dialled = timeout(MOMENT, dialer.dial(address));
        let accepted = timeout(MOMENT, publisher.accept());
        let (dialled, accepted) = tokio::join!(dialled, accepted);
        assert!(dialled.is_err(), "no answer at all: {dialled:?}");
        assert!(accepted.is_err(), "{accepted:?}");

        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        stranger.set_nonblocking(true).unwrap();
        // A packet of an unknown version and one of an unknown connection, which QUIC would answer,
        // and checks without a password.
        let mut version = vec![0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8];
        version.resize(1_200, 7);
        let mut unknown = vec![0x40];
        unknown.resize(100, 9);
        let check = punch::stun::request([1; 12]);
        for datagram in [&version[..], &unknown, &check] {
            stranger.send_to(datagram, address).unwrap();
        }
        sleep(MOMENT).await;
        assert!(stranger.recv(&mut [0; 2_000]).is_err(), "not one byte");
    });
}

/// A visitor may name the ports of a third machine, in many trials at once and one after the other.
#[test]
fn trials_with_one_peer_share_the_pace_at_addresses_that_do_not_answer() {
    run(async {
        tokio::time::pause();
        let third: Vec<_> =
            (0..CANDIDATES).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        let ports = third.iter().map(|socket| socket.local_addr().unwrap());
        let candidates =
            ports.enumerate().map(|(n, at)| Candidate::new(Kind::Host, at, n)).collect();
        let credentials = Credentials { ufrag: "x".repeat(8), password: "y".repeat(24) };
        let offer =
            Offer { credentials, candidates, nat: Nat::default(), more: false, opened: None };
        let (puncher, pace) = (puncher(), Arc::default());
        for round in 1..=3 {
            let signal = Signal { round, body: Body::Offer(offer.clone()) }.encode();
            let begin = Begin { round, pace: Arc::clone(&pace), ..Begin::default() };
            let trials: Vec<_> = (0..8).map(|_| puncher.publisher(&begin).unwrap()).collect();
            for trial in &trials {
                trial.handle_signal(&signal).unwrap();
            }
            sleep(LIMIT).await;
        }
        let mut got = 0;
        for socket in &third {
            socket.set_nonblocking(true).unwrap();
            while socket.recv(&mut [0; 2_000]).is_ok() {
                got += 1;
            }
        }
        // 20 in a second for 10 s, and then one in 3 s.
        assert!((150..=215).contains(&got), "{got} datagrams");
    });
}

#[test]
fn a_trial_without_a_peer_says_so_and_one_that_is_dropped_frees_its_port() {
    run(async {
        tokio::time::pause();
        let visitor = puncher().visitor(&Begin { round: 1, ..Begin::default() }).unwrap();
        let (says, _said) = mpsc::channel(64);
        let (_answers, mut heard) = mpsc::channel(64);
        let failed = carrying(&visitor, &says, &mut heard, visitor.dial()).await.unwrap_err();
        assert!(matches!(failed, Failure::NoPath(punch::Why::Silent)), "{failed}");
        tokio::time::resume();

        let address = SocketAddr::from(([127, 0, 0, 1], visitor.port().unwrap()));
        assert!(UdpSocket::bind(address).is_err());
        drop(visitor);
        while UdpSocket::bind(address).is_err() {
            sleep(Duration::from_millis(10)).await;
        }
    });
}
