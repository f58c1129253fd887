//! The in-memory transport passes the conformance suite, and its faults work as documented.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::SocketAddr;

use bytes::Bytes;
use testkit::conformance::{Fixture, check, read_some, write_all};
use transport::memory::{Faults, network, pair};
use transport::{Dialer, Lane, Listener};

#[derive(Debug)]
struct Memory(Faults);

impl Fixture for Memory {
    fn make(&self) -> (Box<dyn Listener>, Box<dyn Dialer>) {
        let (listener, dialer) = network();
        dialer.set_faults(self.0);
        (Box::new(listener), Box::new(dialer))
    }

    fn shakes_hands(&self) -> bool {
        false
    }
}

#[test]
fn memory_conforms() {
    check(&Memory(Faults::default()));
}

#[test]
fn memory_conforms_when_reads_are_short() {
    check(&Memory(Faults { read_at_most: 1_000, ..Faults::default() }));
}

#[tokio::test(start_paused = true)]
async fn the_killer_strikes_at_every_offset_in_either_direction() {
    for n in 1..=100_u64 {
        for sent in [true, false] {
            let faults = Faults {
                kill_after_sent: sent.then_some(n),
                kill_after_received: (!sent).then_some(n),
                ..Faults::default()
            };
            let (mut a, mut b) = pair(faults);
            let (writer, reader) = if sent { (&mut a, &mut b) } else { (&mut b, &mut a) };
            let mut frames = VecDeque::from([Bytes::from(vec![7; 100])]);
            let taken = poll_fn(|cx| writer.poll_write(cx, &mut frames)).await.unwrap();
            assert_eq!(taken as u64, n);
            assert!(read_some(reader, 10).await.is_err());
            assert!(read_some(writer, 10).await.is_err());
            let mut frames = VecDeque::from([Bytes::from_static(b"x")]);
            assert!(write_all(reader, &mut frames).await.is_err());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_black_hole_swallows_everything_and_says_nothing() {
    let (mut a, mut b) = pair(Faults::default());
    a.breaker().black_hole();
    let mut frames = VecDeque::from([Bytes::from(vec![7; 1 << 20])]);
    write_all(&mut a, &mut frames).await.unwrap();
    drop(a);
    let hour = std::time::Duration::from_secs(3_600);
    assert!(tokio::time::timeout(hour, read_some(&mut b, 10)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_breaker_wakes_who_waits() {
    let (listener, dialer) = network();
    let mut listener = listener;
    let address: SocketAddr = listener.local_addr();
    let mut dialled = dialer.dial(address).await.unwrap();
    let incoming = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
    let _accepted = incoming.handshake().await.unwrap();
    let breaker = dialer.breakers().remove(0);
    let ((), read) = tokio::join!(
        async {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            breaker.kill();
        },
        read_some(&mut *dialled.lane, 10),
    );
    assert!(read.is_err());
}
