//! Tests of the sums with the running kernel.

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use net::tcp_info::{Ends, Kernel};
use ops::status::{Carrier, Kcp, Link};
use transport::Connection;

use super::*;

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

fn ends(stream: &TcpStream) -> Connection {
    Connection { local: stream.local_addr().unwrap(), remote: stream.peer_addr().unwrap() }
}

fn ask(kernel: &mut Kernel, of: Connection) -> io::Result<Option<(u64, Info)>> {
    kernel.ask(Ends { local: of.local, remote: of.remote })
}

fn session(connections: &[Connection]) -> (Session, Connections) {
    let carrier = |number| Carrier { number, transport: "tcp".into(), ..Carrier::default() };
    let carriers = (0..).zip(connections).map(|(number, _)| carrier(number)).collect();
    let link = Link { carriers, ..Link::default() };
    let connections = (0..).zip(connections).map(|(number, ends)| ((link.serial, number), *ends));
    let connections = connections.collect();
    (Session { peer: "home".into(), links: vec![link], ..Session::default() }, connections)
}

#[tokio::test]
async fn the_kernel_tells_what_is_sent_and_what_waits() {
    let (mut near, far) = pair();
    // A kernel without tcp_diag gives no figures, so there is nothing to test.
    let mut kernel = Kernel::open().unwrap();
    if ask(&mut kernel, ends(&near)).unwrap().is_none() {
        return;
    }
    // More bytes than the far end takes, because it never reads.
    near.set_nonblocking(true).unwrap();
    while near.write(&[0; 65_536]).is_ok() {}
    let ledger = Ledger::default();
    let (mut status, connections) = session(&[ends(&near), ends(&far)]);
    ledger.look().await.fill([&mut status].into_iter(), &connections).await;
    let figures = status.links[0].carriers.iter().map(|c| c.tcp.unwrap()).collect::<Vec<_>>();
    assert!(figures[0].queue_bytes > Some(100_000), "{figures:?}");
    assert!(figures[0].sent_segments > Some(0), "{figures:?}");
    assert_eq!((figures[1].queue_bytes, figures[1].sent_segments), (Some(0), Some(0)));
    let first = ledger.sums("home")["tcp"];
    assert_eq!(first.segments, figures[0].sent_segments);
    // A second look counts nothing twice, and the end of the connection takes nothing away.
    ledger.look().await.fill([&mut status].into_iter(), &connections).await;
    assert!(ledger.sums("home")["tcp"].segments < first.segments.map(|n| n * 2), "{first:?}");
    let (gone, before) = (ends(&near), ledger.sums("home"));
    drop((near, far));
    assert_eq!(ask(&mut kernel, gone).unwrap(), None);
    let (mut status, connections) = session(&[gone]);
    ledger.look().await.fill([&mut status].into_iter(), &connections).await;
    assert_eq!(ledger.sums("home"), before);
    assert!(ledger.last.lock().await.is_empty());
}

#[test]
fn sums_grow_by_what_was_counted_since_the_last_look_and_never_fall() {
    let tcp = |sent: u64, again: u64, bytes| Sent {
        segments: Some(sent),
        retransmitted_segments: Some(again),
        retransmitted_bytes: bytes,
        ..Sent::default()
    };
    let (ledger, top) = (Ledger::default(), u64::from(u32::MAX));
    let sums = || ledger.sums("home").remove("tls").unwrap();
    ledger.add("home", "tls", None, tcp(top, 2, None));
    assert_eq!((sums().segments, sums().retransmitted_bytes), (Some(top), None));
    // The 32-bit counter wraps.
    ledger.add("home", "tls", Some(tcp(top, 2, None)), tcp(4, 3, Some(10)));
    assert_eq!(sums().segments, Some(top + 5));
    assert_eq!(sums().retransmitted_segments, Some(3));
    // Another connection starts at zero.
    ledger.add("home", "tls", None, tcp(1, 0, Some(0)));
    assert_eq!(sums().segments, Some(top + 6));
    assert_eq!(sums().retransmitted_bytes, Some(10));
    assert!(ledger.sums("away").is_empty());
}

#[tokio::test]
async fn repairs_of_a_connection_that_this_process_drives_are_summed() {
    let ledger = Ledger::default();
    let look = async |lost, recovered| {
        let kcp = Kcp {
            sent_packets: 1000,
            lost_packets: lost,
            retransmitted_packets: 2,
            parity_packets: 30,
            recovered_packets: recovered,
            ..Kcp::default()
        };
        let (transport, kcp) = ("kcp".into(), Some(kcp));
        let carriers = vec![Carrier { transport, kcp, ..Carrier::default() }];
        let links = vec![Link { carriers, ..Link::default() }];
        let mut status = Session { peer: "home".into(), links, ..Session::default() };
        ledger.look().await.fill([&mut status].into_iter(), &Connections::new()).await;
    };
    look(20, 7).await;
    look(25, 9).await;
    let expected = Sent {
        segments: Some(1000),
        retransmitted_segments: Some(2),
        retransmitted_bytes: None,
        lost_packets: Some(25),
        parity_packets: Some(30),
        recovered_packets: Some(9),
    };
    assert_eq!(ledger.sums("home")["kcp"], expected);
}
