//! Checks that the data path allocates nothing in steady state. This program's allocator counts per
//! thread; the counts of the state machines are the same on every machine.
//!
//! Frames are kept for replay, so a sender needs memory until the peer's CREDIT arrives. The memory
//! is reused afterwards (`proto`'s store of a link, `net::pool` for large frames). Only a new
//! maximum of bytes in flight allocates, and on real sockets that maximum may come during the
//! count.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use allocation_counter::measure;
use benches::rig::{Links, Over, Path, Receiver};
use benches::runtime;
use bytes::BytesMut;
use proto::Side::{Client, Server};
use proto::StreamKey;

/// On the links' own clock, ten times the duration of a sweep of credits.
const EXCHANGES: usize = 20_000;

/// Exchanges over real sockets, and the allowed allocations for new maxima of bytes in flight: 4
/// were seen, and without reuse of memory there are thousands.
const VISITS: usize = 2000;
const RECORDS: u64 = 100;

/// The allocations of `calls` calls, after the same number of calls as a warm-up.
fn counted(calls: usize, mut call: impl FnMut()) -> u64 {
    (0..calls).for_each(|_| call());
    measure(|| (0..calls).for_each(|_| call())).count_total
}

fn exchange(
    links: &mut Links,
    (server, client): (StreamKey, StreamKey),
    size: usize,
    buffer: usize,
) {
    static PAYLOAD: [u8; 64 << 10] = [7; 64 << 10];
    assert!(links.send(Server, server, &PAYLOAD[..size], buffer));
    links.settle();
    assert!(links.send(Client, client, &PAYLOAD[..size], buffer));
    links.settle();
}

#[test]
fn receiving_and_consuming_allocates_nothing() {
    for size in [64, 4 << 10, 64 << 10] {
        let mut receiver = Receiver::default();
        // The reader's buffer, after some use.
        let mut buffer = BytesMut::with_capacity(2 * Receiver::frame_length(size));
        let mut receive = || {
            buffer.reserve(Receiver::frame_length(size));
            receiver.next_frame(size, &mut buffer);
            assert_eq!(receiver.receive(&mut buffer).len(), size);
        };
        assert_eq!(counted(EXCHANGES / 10, &mut receive), 0, "frames of {size} bytes");
    }
}

#[test]
fn frames_in_both_directions_of_one_stream_allocate_nothing() {
    let sizes = [
        (64, 16 << 10),
        (1400, 16 << 10),
        (4096, 16 << 10),
        (10_000, 16 << 10),
        (60_000, 64 << 10),
    ];
    for (size, buffer) in sizes {
        let mut links = Links::default();
        let stream = links.open();
        let count = counted(EXCHANGES, || exchange(&mut links, stream, size, buffer));
        assert_eq!(count, 0, "{size} bytes");
    }
}

#[test]
fn requests_on_very_many_streams_allocate_nothing() {
    for streams in [100, 1000] {
        let mut links = Links::default();
        let open: Vec<_> = (0..streams).map(|_| links.open()).collect();
        let mut turn = open.iter().cycle();
        let count =
            counted(EXCHANGES, || exchange(&mut links, *turn.next().unwrap(), 200, 16 << 10));
        assert_eq!(count, 0, "{streams} streams");
    }
}

#[test]
fn a_bulk_transfer_allocates_nothing() {
    let mut links = Links::default();
    let (stream, _) = links.open();
    let payload = vec![7; 32 << 10];
    let count = counted(EXCHANGES, || {
        // Fill the window, then the carrier.
        while links.send(Server, stream, &payload, 64 << 10) {}
        links.settle();
    });
    assert_eq!(count, 0);
}

/// An echo with a thread per connection, until the process ends.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            std::thread::spawn(move || {
                let socket = socket.unwrap();
                socket.set_nodelay(true).unwrap();
                let mut buffer = vec![0; 256 << 10];
                while let Ok(n @ 1..) = (&socket).read(&mut buffer) {
                    if (&socket).write_all(&buffer[..n]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// Whole exchanges over one connection.
fn visit(visitor: &mut TcpStream, size: usize, count: usize) {
    let (request, mut answer) = (vec![7; size], vec![0; size]);
    for _ in 0..count {
        visitor.write_all(&request).unwrap();
        visitor.read_exact(&mut answer).unwrap();
    }
}

/// The allocations of a visitor's exchanges over the whole path, after the same number as a
/// warm-up.
fn counted_visits(over: Over, size: usize) -> u64 {
    let runtime = runtime().unwrap();
    let path = runtime.block_on(Path::start(over, echo())).unwrap();
    let address = path.address();
    let (go, gone) = std::sync::mpsc::sync_channel(0);
    let (tell, mut ended) = tokio::sync::mpsc::channel(1);
    let visitor = std::thread::spawn(move || {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_nodelay(true).unwrap();
        while gone.recv().is_ok() {
            visit(&mut socket, size, VISITS);
            tell.blocking_send(()).unwrap();
        }
    });
    let mut round = || {
        go.send(()).unwrap();
        runtime.block_on(ended.recv()).unwrap();
    };
    round();
    let count = measure(round).count_total;
    drop(go);
    visitor.join().unwrap();
    runtime.block_on(async { drop(path) });
    count
}

#[test]
fn the_whole_path_between_two_sockets_allocates_nothing() {
    for over in [Over::Tcp, Over::WebSocket] {
        for size in [1, 200, 10_000, 100_000] {
            let count = counted_visits(over, size);
            let what = format!("{over:?}, {size} bytes");
            assert!(count <= RECORDS, "{what}: {count} allocations in {VISITS} exchanges");
        }
    }
}
