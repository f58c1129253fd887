//! Many sessions on one driver, and what they cost while nothing happens.

use std::time::Duration;

use bytes::Bytes;
use kcp_go::wire::Conversation;
use kcp_tokio::{Listener, Stream};

use crate::net::{Net, address};
use crate::{SERVER, config, path, payload, read, seal, within};

const SESSIONS: u16 = 1_000;

/// A listener with two sessions per client socket would have the same address twice, so that each
/// session has a socket of its own at the far end.
async fn crowd() -> (Listener, Vec<(Stream, Stream)>) {
    let mut config = config();
    config.limits.backlog = usize::from(SESSIONS);
    config.limits.idle = Duration::from_secs(1_000_000);
    let net = Net::default();
    let (socket, _) = net.socket(address(SERVER), path(0.0));
    let listener = Listener::bind(socket, config.clone(), seal()).unwrap();
    let mut pairs = Vec::new();
    for n in 0..SESSIONS {
        let (socket, _) = net.socket(address(100 + n), path(0.0));
        let conversation = Conversation(u32::from(n));
        let client = Stream::connect(socket, address(SERVER), conversation, config.clone(), seal());
        let client = client.unwrap();
        client.write_bytes(Bytes::from_static(b"!")).await.unwrap();
        let (server, _) = within(10, listener.accept()).await.unwrap();
        assert_eq!(server.read_bytes(9).await.unwrap(), "!");
        pairs.push((client, server));
    }
    (listener, pairs)
}

#[tokio::test(start_paused = true)]
async fn a_thousand_sessions_share_a_driver() {
    let (listener, pairs) = crowd().await;
    let mut tasks = Vec::new();
    for (n, (client, server)) in pairs.into_iter().enumerate() {
        tasks.push(tokio::spawn(async move {
            let bytes = payload(10_000 + n);
            client.write_bytes(bytes.clone()).await.unwrap();
            let received = read(&server, bytes.len()).await;
            server.write_bytes(received.into()).await.unwrap();
            assert!(read(&client, bytes.len()).await == bytes, "{n}");
        }));
    }
    for task in tasks {
        within(600, task).await.unwrap();
    }
    // All streams are gone.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let counters = listener.counters();
    assert_eq!((counters.sessions, counters.begun), (0, u64::from(SESSIONS)));
    let bytes: u64 = (0..u64::from(SESSIONS)).map(|n| 10_001 + n).sum();
    assert_eq!(counters.all.engine.bytes_in, bytes);
}

#[tokio::test(start_paused = true)]
async fn idle_sessions_wake_nobody() {
    let (listener, pairs) = crowd().await;
    // Acknowledgements leave, and sessions give memory back.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let before = listener.counters().turns;
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    let turns = listener.counters().turns - before;
    assert_eq!(turns, 0, "turns of a driver with {} idle sessions in an hour", pairs.len());
}
