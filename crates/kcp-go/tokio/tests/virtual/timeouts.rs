//! Nobody waits forever who does not want to.

use std::io::ErrorKind;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWriteExt as _;
use tokio::time::Instant;

use crate::{World, config, later, payload, within};

#[tokio::test(start_paused = true)]
async fn a_dead_peer_is_told_to_readers_and_writers() {
    let world = World::new(config(), 0.0);
    let _server = world.accept().await;
    world.to_server.cut(true);
    let begin = Instant::now();
    world.client.write_bytes(Bytes::from_static(b"?")).await.unwrap();
    let error = within(100, world.client.read_bytes(9)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(error.to_string(), "the peer has not answered for 30 s");
    let waited = begin.elapsed().as_secs_f64();
    assert!((29.0..32.0).contains(&waited), "{waited}");
    let error = world.client.write_bytes(payload(9)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_owes_nothing_is_not_dead() {
    let world = World::new(config(), 0.0);
    let server = world.accept().await;
    tokio::time::sleep(Duration::from_secs(200)).await;
    world.client.write_bytes(Bytes::from_static(b"still here")).await.unwrap();
    assert_eq!(within(10, server.read_bytes(99)).await.unwrap(), "still here");
}

#[tokio::test(start_paused = true)]
async fn deadlines_end_waits_at_their_time_and_can_be_moved() {
    let mut config = config();
    config.session.engine.send_window = 32;
    config.session.engine.receive_window = 32;
    let world = World::new(config, 0.0);
    let server = world.accept().await;

    let begin = Instant::now();
    world.client.set_read_deadline(later(2));
    for wanted in [2, 5] {
        let error = within(100, world.client.read_bytes(9)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let waited = begin.elapsed().as_secs_f64();
        assert!((waited - f64::from(wanted)).abs() < 0.01, "{waited}");
        world.client.set_read_deadline(later(3));
    }
    // It may be set while a task waits.
    world.client.set_read_deadline(None);
    let (read, ()) = tokio::join!(world.client.read_bytes(9), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.client.set_read_deadline(later(1));
    });
    assert_eq!(read.unwrap_err().kind(), ErrorKind::TimedOut);
    assert!((begin.elapsed().as_secs_f64() - 7.0).abs() < 0.01, "{:?}", begin.elapsed());

    // What has arrived is read, whatever the deadline.
    server.write_bytes(Bytes::from_static(b"late")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.client.read_bytes(9).await.unwrap(), "late");

    world.client.set_write_deadline(later(4));
    let begin = Instant::now();
    let error = within(100, world.client.write_bytes(payload(1 << 20))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!((begin.elapsed().as_secs_f64() - 4.0).abs() < 0.01, "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_acknowledgements_and_not_forever() {
    let mut world = World::new(config(), 0.0);
    let server = world.accept().await;
    let bytes = payload(100_000);
    world.client.write_bytes(bytes.clone()).await.unwrap();
    within(10, world.client.shutdown()).await.unwrap();
    assert!(crate::read(&server, bytes.len()).await == bytes, "it is there already");
    // The other direction stays open.
    server.write_bytes(Bytes::from_static(b"bye")).await.unwrap();
    assert_eq!(within(10, world.client.read_bytes(9)).await.unwrap(), "bye");

    let mut server = server;
    world.to_client.cut(true);
    server.write_bytes(Bytes::from_static(b"?")).await.unwrap();
    let begin = Instant::now();
    let error = within(100, server.shutdown()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!((begin.elapsed().as_secs_f64() - 5.0).abs() < 0.01, "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_silent_session_of_a_listener_ends() {
    let world = World::new(config(), 0.0);
    let server = world.accept().await;
    let error = within(310, server.read_bytes(9)).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (ErrorKind::TimedOut, "nothing has arrived for 300 s")
    );
    assert_eq!(world.listener.counters().sessions, 0);
}
