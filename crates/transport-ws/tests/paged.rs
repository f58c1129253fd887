//! Payload of a server as pages: whole messages, also when a ping arrives amid a message, and when
//! the rest of a message has to be sent as bytes.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]
#![allow(dead_code, reason = "the other tests use the rest of the raw peer")]

use crate::raw;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use net::pages::{Pages, is_refusal, refuse_after};
use raw::{BINARY, DEADLINE, FIN, PING, PONG, REQUEST, frame, frames, shake};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use transport::Lane;

/// Bytes of a message of pages.
const SIZE: usize = 40_000;

/// Bytes of its head.
const HEAD: usize = 4;

fn pattern(seed: usize) -> Vec<u8> {
    (0..SIZE).map(|at| ((at * 7 + seed * 13 + at / 251) % 256) as u8).collect()
}

/// `bytes` in a pipe, as they come from a socket.
async fn paged(pair: &mut (TcpStream, TcpStream), bytes: &[u8]) -> Pages {
    let mut pages = Pages::take().unwrap();
    let (from, to) = pair;
    from.write_all(bytes).await.unwrap();
    let mut peeked = vec![0; bytes.len()];
    while to.peek(&mut peeked).await.unwrap() < bytes.len() {
        tokio::task::yield_now().await;
    }
    to.readable().await.unwrap();
    assert_eq!(pages.fill(to, bytes.len()).unwrap(), Some(bytes.len()));
    pages
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let from = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (from, listener.accept().await.unwrap().0)
}

/// Drains until the lane takes no more; true: all of it.
async fn drain_some(lane: &mut dyn Lane, pages: &mut Pages) -> bool {
    poll_fn(|cx| {
        while !pages.is_empty() {
            match lane.page_sink().unwrap().poll_drain(cx, pages) {
                Poll::Ready(n) => assert!(n.unwrap() > 0),
                Poll::Pending => return Poll::Ready(false),
            }
        }
        Poll::Ready(true)
    })
    .await
}

async fn write_all(lane: &mut dyn Lane, bytes: Bytes) {
    let mut queue = VecDeque::from([bytes]);
    while !queue.is_empty() {
        poll_fn(|cx| lane.poll_write(cx, &mut queue)).await.unwrap();
    }
    poll_fn(|cx| lane.poll_flush(cx)).await.unwrap();
}

#[tokio::test]
async fn a_message_of_pages_is_whole_whatever_comes_between() {
    for rest_is_bytes in [false, true] {
        let (carrier, mut peer, _) = shake(format!("{REQUEST}\r\n").as_bytes()).await;
        let (mut lane, mut pair) = (carrier.unwrap().lane, pair().await);
        let mut wanted = Vec::new();

        let mut queue = VecDeque::from([Bytes::from_static(b"head")]);
        let sink = lane.page_sink().unwrap();
        let taken = poll_fn(|cx| sink.poll_write_before(cx, &mut queue)).await.unwrap();
        assert_eq!((taken, queue.len()), (4, 0));
        wanted.push((BINARY, b"head".to_vec()));

        // Until the peer, which reads nothing, lets no more through.
        let mut pages = loop {
            let bytes = pattern(wanted.len());
            let mut pages = paged(&mut pair, &bytes).await;
            wanted.push((BINARY, bytes));
            if !drain_some(&mut *lane, &mut pages).await {
                break pages;
            }
        };
        assert!(wanted.len() > 2);

        peer.write_all(&frame(FIN | PING, b"now?")).await.unwrap();
        let (mut from, _to) = peer.split();
        let read = async {
            let mut all = Vec::new();
            while !all.ends_with(b"the end") {
                from.read_buf(&mut all).await.unwrap();
            }
            all
        };
        let write = async {
            let mut buf = BytesMut::with_capacity(1024);
            // The reader sees the ping, and may not answer amid the message.
            for _ in 0..10 {
                let _ = poll_fn(|cx| Poll::Ready(lane.poll_read(cx, &mut buf))).await;
                tokio::task::yield_now().await;
            }
            if rest_is_bytes {
                let mut rest = BytesMut::new();
                pages.copy_out(&mut rest).unwrap();
                write_all(&mut *lane, rest.freeze()).await;
            } else {
                while !pages.is_empty() {
                    let sink = lane.page_sink().unwrap();
                    poll_fn(|cx| sink.poll_drain(cx, &mut pages)).await.unwrap();
                }
            }
            write_all(&mut *lane, Bytes::from_static(b"the end")).await;
        };
        let both = async { tokio::join!(read, write).0 };
        let all = tokio::time::timeout(DEADLINE, both).await.unwrap();
        wanted.push((PONG, b"now?".to_vec()));
        wanted.push((BINARY, b"the end".to_vec()));
        let got = frames(&all);
        assert_eq!(got.len(), wanted.len());
        assert!(got == wanted, "rest_is_bytes: {rest_is_bytes}");
    }
}

#[test]
fn a_message_is_whole_whose_rest_the_system_refuses() {
    for after in [0, 1, HEAD, 1000, SIZE - 1] {
        // A refusal concerns all pipes of a thread.
        let case = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(refused(after));
        });
        assert!(case.join().is_ok(), "after {after} bytes");
    }
}

/// The system refuses a message of pages after `after` bytes, and the rest is sent as bytes.
async fn refused(after: usize) {
    let (carrier, mut peer, _) = shake(format!("{REQUEST}\r\n").as_bytes()).await;
    let (mut lane, mut pair) = (carrier.unwrap().lane, pair().await);
    let mut pages = paged(&mut pair, &pattern(0)).await;
    refuse_after(after);
    let write = async {
        let error = loop {
            let sink = lane.page_sink().unwrap();
            match poll_fn(|cx| sink.poll_drain(cx, &mut pages)).await {
                Ok(moved) => assert!(moved > 0),
                Err(error) => break error,
            }
        };
        assert!(is_refusal(&error), "{error}");
        assert_eq!(pages.len(), SIZE - after);
        let mut rest = BytesMut::new();
        pages.copy_out(&mut rest).unwrap();
        write_all(&mut *lane, rest.freeze()).await;
        write_all(&mut *lane, Bytes::from_static(b"the end")).await;
    };
    let read = async {
        let mut all = Vec::new();
        while !all.ends_with(b"the end") {
            peer.read_buf(&mut all).await.unwrap();
        }
        all
    };
    let both = async { tokio::join!(read, write).0 };
    let all = tokio::time::timeout(DEADLINE, both).await.unwrap();
    let wanted = vec![(BINARY, pattern(0)), (BINARY, b"the end".to_vec())];
    assert!(frames(&all) == wanted, "after {after} bytes");
}

#[tokio::test]
async fn a_lane_whose_message_is_cut_ends_without_a_close() {
    let (carrier, mut peer, _) = shake(format!("{REQUEST}\r\n").as_bytes()).await;
    let (mut lane, mut pair) = (carrier.unwrap().lane, pair().await);
    let pages = loop {
        let mut pages = paged(&mut pair, &pattern(0)).await;
        if !drain_some(&mut *lane, &mut pages).await {
            break pages;
        }
    };
    pages.discard();
    poll_fn(|cx| lane.poll_close(cx)).await.unwrap();
    drop(lane);
    let mut all = Vec::new();
    tokio::time::timeout(DEADLINE, peer.read_to_end(&mut all)).await.unwrap().unwrap();
    // A Close would be taken for bytes of the message.
    let size = HEAD + SIZE;
    let of_last = all.len() % size;
    let last = &all[all.len() - of_last..];
    assert!(of_last > HEAD && last[..2] == [FIN | BINARY, 126], "a cut message");
    assert!(last[HEAD..] == pattern(0)[..of_last - HEAD]);
}
