//! The bytes of every pair of an entrance and a home, by each kind of visitor: much in both
//! directions at once, the end of one direction, a reset, a slow reader, and datagrams.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use testkit::stage::{LONG, bytes};

use crate::clients::{ONE, Start};
use crate::stage::{NODES, Stage};
use crate::visitor::{Kind, client_hello, connect};

/// The datagrams of each pair, and how many of a hundred may get lost on a busy machine.
const DATAGRAMS: u16 = 200;
const LOST: u16 = 5;

/// The client has its home at each node once, and is visited at each node.
pub(crate) fn of_all_pairs() {
    let size: u64 = crate::setting::<u64>("TUNNEL_CLUSTER_MB", 100) * 1_000_000;
    let stage = Stage::new("bytes", 3, &[]);
    for home in &NODES[..3] {
        let (client, homes, by) = ("one", 1, &[*home][..]);
        let process = stage.clients.start(Start { client, homes, wanted: ONE, by });
        assert_eq!(stage.wait_homes("one", 1), [*home]);
        stage.wait_served(ONE, &NODES[..3], Some(process.generation), LONG);
        for entrance in &NODES[..3] {
            let at = stage.lan.address(entrance);
            for kind in [Kind::Tcp, Kind::Sni, Kind::Http] {
                let begun = Instant::now();
                both_ways(kind, at, size);
                let took = begun.elapsed().as_secs_f64();
                println!(
                    "{entrance} to {home}: {kind:?}, {:.0} MB/s each way",
                    size as f64 / 1e6 / took
                );
                if kind != Kind::Http {
                    half_closed(kind, at);
                    reset(kind, at);
                    slow_reader(kind, at);
                }
            }
            println!("{entrance} to {home}: {} datagrams came back", datagrams(at));
        }
        stage.wait_served(ONE, &NODES[..3], Some(process.generation), LONG);
    }
    stage.judge();
}

/// A stream to the origin, which was told what to do.
fn open(kind: Kind, at: Ipv4Addr, word: &str) -> TcpStream {
    let mut stream = connect(ONE.at(kind, at)).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.set_write_timeout(Some(LONG)).unwrap();
    let first = if kind == Kind::Sni { client_hello(ONE.name) } else { Vec::new() };
    stream.write_all(&[&first, word.as_bytes()].concat()).unwrap();
    stream
}

/// Sends so many bytes, and compares those that come back meanwhile.
fn both_ways(kind: Kind, at: Ipv4Addr, size: u64) {
    let word = if kind == Kind::Http {
        format!(
            "POST /x HTTP/1.1\r\nHost: {}\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n",
            ONE.name
        )
    } else {
        "E\n".to_owned()
    };
    let stream = open(kind, at, &word);
    let sending = stream.try_clone().unwrap();
    let sender = thread::spawn(move || {
        bytes::send(&sending, size);
        // A request is complete by its length.
        if kind != Kind::Http {
            sending.shutdown(Shutdown::Write).unwrap();
        }
    });
    if kind == Kind::Http {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            (&stream).read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        assert!(head.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&head));
    }
    bytes::expect(&stream, size);
    bytes::expect_end(&stream);
    sender.join().unwrap();
}

/// The visitor ends its direction first, and reads on.
fn half_closed(kind: Kind, at: Ipv4Addr) {
    let stream = open(kind, at, "E\n");
    bytes::send(&stream, 8_000);
    stream.shutdown(Shutdown::Write).unwrap();
    bytes::expect(&stream, 8_000);
    bytes::expect_end(&stream);
}

/// The origin resets the connection, and the visitor does not take that for an end.
fn reset(kind: Kind, at: Ipv4Addr) {
    let mut stream = open(kind, at, "R\n");
    stream.write_all(b"x").unwrap();
    bytes::expect_reset(&stream);
}

/// The visitor reads nothing for a while; nothing is lost meanwhile.
fn slow_reader(kind: Kind, at: Ipv4Addr) {
    const SIZE: u64 = 8_000_000;
    let stream = open(kind, at, "E\n");
    let sending = stream.try_clone().unwrap();
    let sender = thread::spawn(move || {
        bytes::send(&sending, SIZE);
        sending.shutdown(Shutdown::Write).unwrap();
    });
    thread::sleep(Duration::from_millis(500));
    bytes::expect(&stream, SIZE);
    bytes::expect_end(&stream);
    sender.join().unwrap();
}

/// Returns how many datagrams came back; each of them is as it was sent.
fn datagrams(at: Ipv4Addr) -> u16 {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect(SocketAddr::new(at.into(), ONE.port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let (mut came, mut buf) = (0, [0; 1500]);
    for number in 0..DATAGRAMS {
        let size = 8 + usize::from(number) * 6;
        let filled = u8::try_from(number % 251).unwrap();
        let mut datagram = vec![filled; size];
        datagram[..3].copy_from_slice(&[b'E', number.to_be_bytes()[0], number.to_be_bytes()[1]]);
        socket.send(&datagram).unwrap();
        while let Ok(length) = socket.recv(&mut buf) {
            let sent = u16::from_be_bytes([buf[1], buf[2]]);
            assert_eq!(length, 8 + usize::from(sent) * 6, "the length of datagram {sent}");
            let rest = u8::try_from(sent % 251).unwrap();
            assert!(
                buf[3..length].iter().all(|byte| *byte == rest),
                "the bytes of datagram {sent}"
            );
            came += 1;
            if sent == number {
                break;
            }
        }
    }
    assert!(came >= DATAGRAMS * (100 - LOST) / 100, "{came} of {DATAGRAMS} datagrams came back");
    came
}
