//! Tests with captured answers of a kernel (Linux 6.18), with truncated, changed and invented
//! answers, and with the running kernel.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};

use ops::status::{Carrier, Kcp, Link};
use proptest::prelude::*;

use super::message::{self, Answer};
use super::*;

fn connection(local: &str, remote: &str) -> Connection {
    Connection { local: local.parse().unwrap(), remote: remote.parse().unwrap() }
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// The answer to request 7: a connection over loopback that has lost nothing.
const TOLD: &str = "
    98010000 14000000 07000000 57500000 02010000 a732c825 7f000001 00000000 00000000 00000000 7f000001 00000000
    00000000 00000000 00000000 02000000 00000000 00000000 00000000 00000000 00000000 68540000 05000800 00000000
    08000f00 00000000 0c001500 01000000 00000000 06001600 52000000 1c010200 01000000 0007aa01 e01c0300 00000000
    008a0000 18020000 00000000 00000000 00000000 00000000 00000000 08000000 00000000 08000000 08000000 ffff0000
    d7ff0000 1f000000 11000000 ffffff7f 0b000000 cbff0000 03000000 00000000 d7ff0000 00000000 c4157839 06000000
    ffffffff ffffffff e9030000 00000000 00000000 00000000 03000000 02000000 00000000 0a000000 00000000 01000000
    004092d2 00000000 00000000 00000000 00000000 00000000 00000000 00000000 02000000 00000000 e8030000 00000000
    00000000 00000000 00000000 00000000 00000000 00140100 00000100 00000000 00000000 00000000 00000000 00000000
    00000000 00000000 00000000 00000000 00000000 00000000";

/// The answer to request 9: `ENOENT`, followed by the header of the request.
const NO_SUCH: &str = "
    24000000 02000001 09000000 57500000 feffffff 48000000 14000100 09000000 00000000";

const NEAR: &str = "127.0.0.1:42802";
const FAR: &str = "127.0.0.1:51237";

/// The offset of `tcp_info` in [`TOLD`].
const INFO: usize = 88 + 8 + 8 + 12 + 8 + 4;

fn told(bytes: &[u8]) -> Tcp {
    let answer = message::answer(bytes, connection(NEAR, FAR), 7);
    let Answer::Told { cookie: 2, tcp } = answer else { panic!("{answer:?}") };
    tcp
}

#[test]
#[cfg(target_endian = "little")]
fn a_question_is_what_the_kernel_expects() {
    let asked = message::question(connection(NEAR, FAR), 7);
    let expected = "
        48000000 14000100 07000000 00000000 02 06 02 00 ffffffff a732 c825
        7f000001 00000000 00000000 00000000 7f000001 00000000 00000000 00000000
        00000000 ffffffff ffffffff";
    assert_eq!(asked[..], unhex(expected)[..]);
    // An IPv6 socket that speaks IPv4.
    let mapped = connection("[::ffff:127.0.0.1]:42802", "[::ffff:127.0.0.1]:51237");
    assert_eq!(message::question(mapped, 7), asked);
    let local: SocketAddr = "[fe80::1%3]:1".parse().unwrap();
    let scoped = Connection { local, remote: "[fe80::2]:2".parse().unwrap() };
    let expected = "
        48000000 14000100 07000000 00000000 0a 06 02 00 ffffffff 0001 0002
        fe800000 00000000 00000000 00000001 fe800000 00000000 00000000 00000002
        03000000 ffffffff ffffffff";
    assert_eq!(message::question(scoped, 7)[..], unhex(expected)[..]);
}

#[test]
#[cfg(target_endian = "little")]
fn an_answer_gives_the_figures_of_this_connection_only() {
    let mut bytes = unhex(TOLD);
    let figures = Tcp {
        sent_segments: Some(1),
        retransmitted_segments: Some(0),
        retransmitted_bytes: Some(0),
        lost_segments: Some(0),
        queue_bytes: Some(0),
        window_segments: Some(11),
        bytes_per_second: Some(3_532_800_000),
        rtt_micros: Some(31),
    };
    assert_eq!(told(&bytes), figures);
    for (at, value) in [(32, 1_u8), (100, 2), (144, 3), (156, 4), (208, 5)] {
        bytes[INFO + at] = value;
    }
    let figures = Tcp {
        sent_segments: Some(4),
        retransmitted_segments: Some(2),
        retransmitted_bytes: Some(5),
        lost_segments: Some(1),
        queue_bytes: Some(3),
        ..figures
    };
    assert_eq!(told(&bytes), figures);

    let answer = |bytes: &[u8], near, far, n| message::answer(bytes, connection(near, far), n);
    assert_eq!(answer(&bytes, NEAR, FAR, 8), Answer::Strange);
    assert_eq!(answer(&bytes, NEAR, "127.0.0.1:51238", 7), Answer::Nothing);
    assert_eq!(answer(&bytes, "127.0.0.1:42803", FAR, 7), Answer::Nothing);
    assert_eq!(answer(&unhex(NO_SUCH), NEAR, FAR, 9), Answer::Refused(2));
    // A socket that listens where the connection was.
    bytes[17] = 10;
    assert_eq!(answer(&bytes, NEAR, FAR, 7), Answer::Nothing);
}

/// The size of `tcp_info`: 104 bytes in Linux 2.6.37, 136 in 4.2, about 192 in 4.9.
#[test]
#[cfg(target_endian = "little")]
fn what_an_older_kernel_does_not_tell_is_absent_and_not_zero() {
    let cut = |length: usize| {
        let mut bytes = unhex(TOLD);
        bytes.truncate(INFO + length);
        let all = u32::try_from(bytes.len()).unwrap();
        bytes[..4].copy_from_slice(&all.to_ne_bytes());
        bytes[INFO - 4..INFO - 2]
            .copy_from_slice(&u16::try_from(length + 4).unwrap().to_ne_bytes());
        told(&bytes)
    };
    let oldest = cut(104);
    assert_eq!(oldest.retransmitted_segments, Some(0));
    assert_eq!((oldest.queue_bytes, oldest.sent_segments), (None, None));
    assert_eq!(cut(148).queue_bytes, Some(0));
    assert_eq!(cut(147).queue_bytes, None);
    let older = cut(192);
    assert_eq!((older.sent_segments, older.retransmitted_bytes), (Some(1), None));
    assert_eq!(cut(0), Tcp::default());
}

proptest! {
    #[test]
    fn no_bytes_do_any_harm(bytes in proptest::collection::vec(any::<u8>(), 0..600), n in any::<u32>()) {
        let _ = message::answer(&bytes, connection(NEAR, FAR), n);
    }

    #[test]
    fn no_answer_that_was_tampered_with_does_any_harm(
        changes in proptest::collection::vec((0..408_usize, any::<u8>()), 0..8),
        length in 0..=408_usize,
    ) {
        let mut bytes = unhex(TOLD);
        for (at, value) in changes {
            bytes[at] = value;
        }
        let _ = message::answer(&bytes[..length], connection(NEAR, FAR), 7);
    }
}

fn pair() -> (TcpStream, TcpStream) {
    between("127.0.0.1:0", Ipv4Addr::LOCALHOST.into()).unwrap()
}

fn between(listen: &str, to: IpAddr) -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind(listen)?;
    let near = TcpStream::connect((to, listener.local_addr()?.port()))?;
    Ok((near, listener.accept()?.0))
}

#[test]
fn connections_of_ipv6_are_found_and_those_of_ipv4_at_a_socket_of_ipv6() {
    let mut kernel = Kernel::open().unwrap();
    let (near, _far) = pair();
    if kernel.ask(ends(&near)).unwrap().is_none() {
        return; // a kernel without tcp_diag
    }
    let (v4, v6) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
    for (listen, to) in [("[::1]:0", v6), ("[::]:0", v6), ("[::]:0", v4)] {
        let Ok((near, far)) = between(listen, to) else {
            continue; // a machine without IPv6
        };
        let cookies = [&near, &far].map(|end| kernel.ask(ends(end)).unwrap().unwrap().0);
        assert_ne!(cookies[0], cookies[1], "{listen} {to}");
    }
}

fn ends(stream: &TcpStream) -> Connection {
    Connection { local: stream.local_addr().unwrap(), remote: stream.peer_addr().unwrap() }
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
    if kernel.ask(ends(&near)).unwrap().is_none() {
        return;
    }
    // More bytes than the far end takes, because it never reads.
    near.set_nonblocking(true).unwrap();
    while near.write(&[0; 65_536]).is_ok() {}
    let ledger = Ledger::default();
    let (mut told, connections) = session(&[ends(&near), ends(&far)]);
    ledger.look().await.fill([&mut told].into_iter(), &connections).await;
    let figures = told.links[0].carriers.iter().map(|c| c.tcp.unwrap()).collect::<Vec<_>>();
    assert!(figures[0].queue_bytes > Some(100_000), "{figures:?}");
    assert!(figures[0].sent_segments > Some(0), "{figures:?}");
    assert_eq!((figures[1].queue_bytes, figures[1].sent_segments), (Some(0), Some(0)));
    let first = ledger.sums("home")["tcp"];
    assert_eq!(first.segments, figures[0].sent_segments);
    // A second look counts nothing twice, and the end of the connection takes nothing away.
    ledger.look().await.fill([&mut told].into_iter(), &connections).await;
    assert!(ledger.sums("home")["tcp"].segments < first.segments.map(|n| n * 2), "{first:?}");
    let (gone, before) = (ends(&near), ledger.sums("home"));
    drop((near, far));
    assert_eq!(kernel.ask(gone).unwrap(), None);
    let (mut told, connections) = session(&[gone]);
    ledger.look().await.fill([&mut told].into_iter(), &connections).await;
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
        let mut told = Session { peer: "home".into(), links, ..Session::default() };
        ledger.look().await.fill([&mut told].into_iter(), &Connections::new()).await;
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
