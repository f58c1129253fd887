//! Datagrams over SOCKS5: which are taken, what replies look like, and when flows end.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use bytes::Bytes;
use proto::{ResetCode, Target};
use relay::DropReason;

use super::rig::{Options, ProxyRig, address, request};
use crate::rig::{DEADLINE, run, run_paused, until};

const DNS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 53);

/// A program with an association.
struct Program {
    connection: TcpStream,
    socket: UdpSocket,
    /// Where its datagrams go.
    relay: SocketAddr,
}

impl Program {
    async fn new(rig: &ProxyRig, announces: bool) -> Self {
        rig.visit(move |mut connection| {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            socket.set_read_timeout(Some(DEADLINE)).unwrap();
            let mine = socket.local_addr().unwrap();
            let announced = if announces { mine } else { (Ipv4Addr::UNSPECIFIED, 0).into() };
            let said = [&[5, 1, 0][..], &request(3, announced)].concat();
            connection.write_all(&said).unwrap();
            connection.read_exact(&mut [0; 2]).unwrap();
            let mut reply = [0; 10];
            connection.read_exact(&mut reply).unwrap();
            assert_eq!(&reply[..4], &[5, 0, 0, 1]);
            let ip = Ipv4Addr::new(reply[4], reply[5], reply[6], reply[7]);
            assert_eq!(ip, Ipv4Addr::LOCALHOST, "the address at which the connection arrived");
            let relay = (ip, u16::from_be_bytes([reply[8], reply[9]])).into();
            Self { connection, socket, relay }
        })
        .await
    }

    fn send(&self, address: &[u8], payload: &[u8]) {
        self.send_raw(&[&[0, 0, 0], address, payload].concat());
    }

    fn send_raw(&self, datagram: &[u8]) {
        self.socket.send_to(datagram, self.relay).unwrap();
    }

    fn receive(&self) -> Vec<u8> {
        let mut buffer = vec![0; 1 << 16];
        let (size, from) = self.socket.recv_from(&mut buffer).unwrap();
        assert_eq!(from, self.relay);
        buffer.truncate(size);
        buffer
    }
}

fn name(host: &str, port: u16) -> Vec<u8> {
    let length = u8::try_from(host.len()).unwrap();
    [&[3, length][..], host.as_bytes(), &port.to_be_bytes()].concat()
}

#[test]
fn each_destination_is_a_flow_and_a_reply_has_its_address() {
    run(async {
        let rig = ProxyRig::new(Options::default());
        let program = Program::new(&rig, true).await;
        assert_eq!(rig.near.stats.live(), 1);
        let by_name = name("example.com", 443);
        program.send(&address(DNS), b"question");
        program.send(&by_name, b"hello");
        program.send(&address(DNS), b"");
        until(|| rig.flows.count() == 2 && rig.counters.bytes_in() == 13).await;
        let (dns, web) = (rig.flows.nth(0), rig.flows.nth(1));
        until(|| dns.sent.borrow().len() == 2).await;
        assert_eq!(dns.received(), [&b"question"[..], b""]);
        assert_eq!(web.received(), [b"hello"]);
        assert_eq!(dns.open.target, Target::Forward("udp://192.0.2.1:53".into()));
        assert_eq!(web.open.target, Target::Forward("udp://example.com:443".into()));
        assert_eq!(dns.open.visitor, Some(program.socket.local_addr().unwrap()));
        let large = vec![7; 60_000];
        for (flow, address, payload) in [
            (&dns, address(DNS), &b"answer"[..]),
            (&web, by_name.clone(), b""),
            (&web, by_name, &large),
        ] {
            flow.outlet.deliver(Bytes::copy_from_slice(payload));
            assert_eq!(program.receive(), [&[0, 0, 0], &address[..], payload].concat());
        }
        let counters = &rig.counters;
        assert_eq!((counters.live(), counters.opened()), (2, 2));
        assert_eq!((counters.datagrams_in(), counters.datagrams_out()), (3, 3));
        assert_eq!(counters.bytes_out(), 60_006);
        assert_eq!(dns.outlet.counted_in(), counters.identity());
        drop(program);
        until(|| rig.flows.live() == 0 && rig.counters.live() == 0).await;
        rig.settled().await;
        assert_eq!(rig.counters.drops().count(), 0);
    });
}

#[test]
fn the_association_ends_with_its_connection() {
    run(async {
        let rig = ProxyRig::new(Options::default());
        let program = Program::new(&rig, true).await;
        program.send(&address(DNS), b"x");
        until(|| rig.flows.live() == 1).await;
        let Program { connection, socket, relay } = program;
        (&connection).write_all(b"nothing that means anything").unwrap();
        socket.send_to(&[&[0, 0, 0], &address(DNS)[..], b"y"].concat(), relay).unwrap();
        until(|| rig.flows.nth(0).sent.borrow().len() == 2).await;
        drop(connection);
        until(|| rig.flows.live() == 0).await;
        rig.settled().await;
    });
}

#[test]
fn strangers_fragments_and_malformed_datagrams_open_nothing() {
    run(async {
        let rig = ProxyRig::new(Options::default());
        let program = Program::new(&rig, true).await;
        let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let good = [&[0, 0, 0], &address(DNS)[..], b"x"].concat();
        stranger.send_to(&good, program.relay).unwrap();
        for fragment in [1, 0x81] {
            program.send_raw(&[&[0, 0, fragment], &address(DNS)[..], b"x"].concat());
        }
        for bad in [&b""[..], b"\0\0\0", b"\0\0\0\x01\x7f\0\0\x01", b"\0\0\0\x02abcdefg"] {
            program.send_raw(bad);
        }
        program.send(&name("a b", 53), b"x");
        program.send(&name("", 53), b"x");
        program.send(&address((Ipv4Addr::LOCALHOST, 0).into()), b"x");
        program.send(&address(DNS), b"last");
        until(|| rig.flows.count() > 0).await;
        assert_eq!(rig.flows.count(), 1);
        assert_eq!(rig.flows.nth(0).received(), [b"last"]);
        let drops: Vec<_> = rig.counters.drops().collect();
        assert_eq!(drops, [(DropReason::Denied, 1), (DropReason::Failed, 9)]);
    });
}

#[test]
fn without_an_announced_port_each_port_of_the_program_has_its_own_flows() {
    run(async {
        let rig = ProxyRig::new(Options::default());
        let program = Program::new(&rig, false).await;
        let other = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        other.set_read_timeout(Some(DEADLINE)).unwrap();
        program.send(&address(DNS), b"one");
        until(|| rig.flows.count() == 1).await;
        other.send_to(&[&[0, 0, 0], &address(DNS)[..], b"two"].concat(), program.relay).unwrap();
        until(|| rig.flows.count() == 2).await;
        rig.flows.nth(1).outlet.deliver(Bytes::from_static(b"reply"));
        rig.flows.nth(0).outlet.deliver(Bytes::from_static(b"first"));
        let mut buffer = [0; 100];
        let size = other.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[10..size], b"reply");
        assert_eq!(&program.receive()[10..], b"first");
    });
}

#[test]
fn the_flow_that_was_used_least_recently_goes_first() {
    run(async {
        let rig = ProxyRig::new(Options::default());
        let program = Program::new(&rig, true).await;
        for n in 0..300_u16 {
            // The first destination stays in use.
            program.send(&address((Ipv4Addr::new(192, 0, 2, 1), 1).into()), b"x");
            program.send(&address((Ipv4Addr::new(192, 0, 2, 2), 1000 + n).into()), b"x");
            until(|| rig.flows.count() == usize::from(n) + 2).await;
        }
        assert_eq!(rig.flows.live(), 256);
        assert!(rig.flows.nth(0).is_open.get());
        assert!(!rig.flows.nth(1).is_open.get() && !rig.flows.nth(45).is_open.get());
        assert!(rig.flows.nth(46).is_open.get());
        assert_eq!((rig.counters.live(), rig.counters.evicted()), (256, 45));
    });
}

#[test]
fn a_flow_in_use_does_not_go_for_a_new_one() {
    run_paused(async {
        let rig = ProxyRig::new(Options::default());
        let program = Program::new(&rig, true).await;
        let send = |n: u16| {
            program.send(&address((Ipv4Addr::new(192, 0, 2, 2), 1000 + n).into()), b"x");
        };
        for n in 0..256 {
            send(n);
            let flow = usize::from(n);
            until(|| rig.flows.count() > flow).await;
            rig.flows.nth(flow).outlet.deliver(Bytes::from_static(b"answer"));
            send(n);
            until(|| rig.flows.nth(flow).sent.borrow().len() == 2).await;
        }
        send(256);
        until(|| rig.counters.dropped(DropReason::SourceLimit) == 1).await;
        assert_eq!((rig.flows.live(), rig.counters.evicted()), (256, 0));
        tokio::time::advance(Duration::from_secs(1)).await;
        send(256);
        until(|| rig.flows.count() == 257).await;
        assert!(!rig.flows.nth(0).is_open.get());
    });
}

/// Lets time pass, a second at a time.
async fn pass(seconds: u64) {
    for _ in 0..seconds {
        tokio::time::advance(Duration::from_secs(1)).await;
        tokio::task::yield_now().await;
    }
}

#[test]
fn an_idle_flow_ends_sooner_without_an_answer() {
    run_paused(async {
        let rig = ProxyRig::new(Options::default());
        let program = Program::new(&rig, true).await;
        program.send(&address(DNS), b"x");
        program.send(&name("a", 1), b"x");
        until(|| rig.flows.count() == 2).await;
        rig.flows.nth(0).outlet.deliver(Bytes::from_static(b"answer"));
        pass(25).await;
        assert_eq!(rig.flows.live(), 2);
        pass(11).await;
        assert!(rig.flows.nth(0).is_open.get() && !rig.flows.nth(1).is_open.get());
        pass(70).await;
        assert_eq!(rig.flows.live(), 1);
        pass(20).await;
        assert_eq!(rig.flows.live(), 0);
        assert_eq!((rig.counters.live(), rig.counters.idle()), (0, 2));
        assert_eq!(rig.near.stats.live(), 1, "the association itself stays");
        drop(program.connection);
    });
}

#[test]
fn a_refused_destination_is_asked_for_again_only_after_a_pause() {
    run_paused(async {
        let rig = ProxyRig::new(Options::default());
        let program = Program::new(&rig, true).await;
        program.send(&address(DNS), b"x");
        until(|| rig.flows.count() == 1).await;
        rig.flows.nth(0).end(ResetCode::Denied);
        for _ in 0..10 {
            program.send(&address(DNS), b"x");
        }
        program.send(&name("a", 1), b"x");
        until(|| rig.flows.count() == 2).await;
        assert_eq!(rig.flows.nth(1).open.target, Target::Forward("udp://a:1".into()));
        tokio::time::advance(Duration::from_secs(2)).await;
        program.send(&address(DNS), b"again");
        until(|| rig.flows.count() == 3).await;
        assert_eq!(rig.flows.nth(2).received(), [b"again"]);
        // The datagram that the refusal met, and those that came in the pause.
        assert_eq!(rig.counters.drops().collect::<Vec<_>>(), [(DropReason::Denied, 11)]);
    });
}
