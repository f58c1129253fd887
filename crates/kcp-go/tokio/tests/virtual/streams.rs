//! What is written arrives, whatever the path does.

use std::io::{ErrorKind, IoSlice};
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use kcp_go::fec::Ratio;
use kcp_tokio::Stream;
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::{World, config, payload, read, within};

/// Sends `length` bytes in both directions at once.
async fn exchange(world: &World, length: usize) {
    let server = world.accept().await;
    let bytes = payload(length);
    let both = async {
        let (up, down) = (bytes.clone(), bytes.clone());
        tokio::join!(
            world.client.write_bytes(up),
            server.write_bytes(down),
            async {
                assert!(read(&server, length).await == bytes, "to the server");
            },
            async {
                assert!(read(&world.client, length).await == bytes, "to the client");
            }
        )
    };
    let (up, down, (), ()) = within(600, both).await;
    up.and(down).unwrap();
}

#[tokio::test(start_paused = true)]
async fn bytes_arrive_in_both_directions() {
    for loss in [0.0, 0.1, 0.3] {
        exchange(&World::new(config(), loss), 1 << 20).await;
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_arrive_with_fec() {
    let mut config = config();
    config.session.encode = Ratio::new(10, 3);
    let world = World::new(config, 0.1);
    exchange(&world, 1 << 20).await;
    let counters = world.client.counters();
    assert!(counters.parity_out > 0 && counters.fec.rebuilt > 0, "{counters:?}");
}

#[tokio::test(start_paused = true)]
async fn the_traits_of_tokio_carry_the_same_bytes() {
    let world = World::new(config(), 0.05);
    let mut server = world.accept().await;
    let World { mut client, .. } = world;
    let bytes = payload(300_000);
    let sent = bytes.clone();
    let writer = tokio::spawn(async move {
        client.write_all(&sent[..200_000]).await.unwrap();
        client.flush().await.unwrap();
        client.write_all(&sent[200_000..]).await.unwrap();
        client.shutdown().await.unwrap();
        let error = client.write_all(b"more").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    });
    let mut received = vec![0; bytes.len()];
    within(100, server.read_exact(&mut received)).await.unwrap();
    assert!(received == bytes);
    within(100, writer).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_gathered_write_is_one_write() {
    let world = World::new(config(), 0.0);
    let server = world.accept().await;
    let bufs = [IoSlice::new(b"abc"), IoSlice::new(b""), IoSlice::new(b"defg")];
    let mut client: &Stream = &world.client;
    let written = std::future::poll_fn(|cx| Pin::new(&mut client).poll_write_vectored(cx, &bufs));
    assert_eq!(written.await.unwrap(), 7);
    assert_eq!(within(10, read(&server, 7)).await, b"abcdefg");
}

#[tokio::test(start_paused = true)]
async fn messages_keep_their_boundaries() {
    let mut config = config();
    config.session.engine.stream = false;
    let world = World::new(config, 0.1);
    world.client.send(payload(40_000)).await.unwrap();
    let (mut server, _) = within(60, world.listener.accept()).await.unwrap();
    for length in [1, 1_400, 100_000] {
        world.client.send(payload(length)).await.unwrap();
    }
    for length in [40_000, 1, 1_400] {
        assert!(within(60, server.recv()).await.unwrap() == payload(length), "{length}");
    }
    // A short buffer gets a long message in pieces.
    let mut received = vec![0; 100_000];
    within(60, server.read_exact(&mut received)).await.unwrap();
    assert!(received == payload(100_000));
    world.client.flushed().await.unwrap();
    for unfit in [Bytes::new(), payload(400_000)] {
        let error = within(60, world.client.send(unfit)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}

#[tokio::test(start_paused = true)]
async fn datagrams_beside_the_stream_reach_a_waiting_reader() {
    let world = World::new(config(), 0.0);
    let server = world.accept().await;
    let received = async {
        let received = server.recv_oob().await.unwrap();
        server.send_oob(received).unwrap();
        world.client.recv_oob().await.unwrap()
    };
    world.client.send_oob(Bytes::from_static(b"aside")).unwrap();
    assert_eq!(within(10, received).await, "aside");
    let error = world.client.send_oob(payload(1_400)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

#[tokio::test(start_paused = true)]
async fn a_writer_waits_while_the_reader_does() {
    let mut config = config();
    config.session.engine.send_window = 64;
    config.session.engine.receive_window = 64;
    let world = World::new(config, 0.0);
    let server = world.accept().await;
    let bytes = payload(1 << 20);
    let written =
        tokio::time::timeout(Duration::from_secs(20), world.client.write_bytes(bytes.clone()));
    written.await.unwrap_err();
    let taken = world.client.counters().engine.bytes_out;
    assert!(taken <= 64 * 1_400, "a window of the reader: {taken}");
    // Both windows are full: nothing more fits.
    let mut rest = bytes.slice(1..2);
    let blocked = tokio::time::timeout(
        Duration::from_secs(1),
        std::future::poll_fn(|cx| world.client.poll_write_bytes(cx, &mut rest)),
    );
    blocked.await.unwrap_err();
    let first = within(60, read(&server, 100_000)).await;
    assert!(first == bytes[..100_000]);
}

#[tokio::test(start_paused = true)]
async fn a_socket_that_takes_nothing_delays_and_loses_nothing() {
    let world = World::new(config(), 0.0);
    let server = world.accept().await;
    world.to_client.fill(true);
    let bytes = payload(500_000);
    world.client.write_bytes(bytes.clone()).await.unwrap();
    let sent = world.to_client.sent();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(world.to_client.sent(), sent);
    // Time passes all the same.
    world.client.set_read_deadline(crate::later(3));
    let error = within(4, world.client.read_bytes(9)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    world.to_client.fill(false);
    assert!(within(60, read(&server, bytes.len())).await == bytes);
}

#[tokio::test(start_paused = true)]
async fn what_was_written_before_a_drop_arrives() {
    let world = World::new(config(), 0.2);
    let server = world.accept().await;
    let World { client, net: _net, listener: _listener, .. } = world;
    let bytes = payload(200_000);
    client.write_bytes(bytes.clone()).await.unwrap();
    drop(client);
    assert!(within(60, read(&server, bytes.len())).await == bytes);
}
