//! Both ends send pings when they are idle, and a flood of pings does not block other tasks.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]
#![allow(dead_code, reason = "the other tests use the rest of the raw peer")]

use crate::raw;

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use raw::{BINARY, DEADLINE, FIN, PING, REQUEST, frame, shake};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use transport::{Carrier, Dialer as _, Listener as _};
use transport_tcp::TcpDialer;
use transport_ws::{Request, Terms, WsDialer, WsListener};

/// Reads as long as it is polled, and discards the payload.
async fn wait(mut carrier: Carrier) {
    let mut buf = BytesMut::with_capacity(1024);
    let _ = poll_fn(|cx| carrier.lane.poll_read(cx, &mut buf)).await;
}

#[tokio::test]
async fn both_ends_ping_when_nothing_else_is_sent() {
    let still = Duration::from_millis(50);
    // The ends are real, and a tap between them records the frames.
    let tap = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let inner = transport_tcp::TcpListener::new(socket, None).unwrap();
    let mut listener = WsListener::new(inner, None, Terms::without_proxies(still));
    let to = listener.local_addr();
    let request = Request::new("/", "localhost", &[]).unwrap();
    let dialled =
        WsDialer::new(TcpDialer::new(None), request, still).dial(tap.local_addr().unwrap());
    let serve = async {
        let incoming = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
        wait(incoming.handshake().await.unwrap()).await;
    };
    let watch = async {
        let (near, _) = tap.accept().await.unwrap();
        let far = tokio::net::TcpStream::connect(to).await.unwrap();
        let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
            (near.into_split(), far.into_split());
        let first_ping = async |from: &mut tokio::net::tcp::OwnedReadHalf,
                                to: &mut tokio::net::tcp::OwnedWriteHalf| {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(from.read_u8().await.unwrap());
            }
            to.write_all(&head).await.unwrap();
            [from.read_u8().await.unwrap(), from.read_u8().await.unwrap()]
        };
        tokio::join!(
            first_ping(&mut from_client, &mut to_server),
            first_ping(&mut from_server, &mut to_client)
        )
    };
    let client = async { wait(dialled.await.unwrap()).await };
    let pings = tokio::select! {
        pings = watch => pings,
        ((), ()) = async { tokio::join!(serve, client) } => panic!("an end gave up"),
        () = tokio::time::sleep(DEADLINE) => panic!("no ping"),
    };
    // RFC 6455 section 5.1: the client masks its frames, and the server does not.
    assert_eq!(pings, ([FIN | PING, 0x80], [FIN | PING, 0]));
}

#[tokio::test]
async fn a_flood_of_pings_gives_up_its_turn_at_every_read() {
    const PINGS: usize = 10_000;
    let (carrier, mut peer, _) = shake(format!("{REQUEST}\r\n").as_bytes()).await;
    let mut lane = carrier.unwrap().lane;
    let flood = [frame(FIN | PING, b"").repeat(PINGS), frame(FIN | BINARY, b"end")].concat();
    let room = 4096;
    let (mut from, mut to) = peer.split();
    let send = async { to.write_all(&flood).await.unwrap() };
    // A task reads the answers, so that they do not block.
    let drain = async {
        let mut sink = [0; 4096];
        while from.read(&mut sink).await.is_ok_and(|n| n > 0) {}
    };
    let mut turns = 0;
    let receive = async {
        let mut buf = BytesMut::with_capacity(room);
        poll_fn(|cx| match lane.poll_read(cx, &mut buf) {
            Poll::Pending => {
                turns += 1;
                Poll::Pending
            }
            Poll::Ready(read) => Poll::Ready(read.unwrap()),
        })
        .await;
        assert_eq!(&buf[..], b"end");
    };
    let all = async {
        tokio::select! {
            ((), ()) = async { tokio::join!(send, receive) } => {}
            () = drain => panic!("the server hung up"),
        }
    };
    tokio::time::timeout(DEADLINE, all).await.unwrap();
    assert!(turns >= flood.len() / room, "{turns} turns for {} bytes", flood.len());
}
