//! What a socket refuses for the moment is sent again, and what it refuses forever is told.

use std::io::{self, ErrorKind};

use bytes::Bytes;
use kcp_tokio::Stream;

use crate::net::{Net, address, error};
use crate::{CLIENT, CONVERSATION, SERVER, World, config, path, payload, read, seal, within};

#[tokio::test(start_paused = true)]
async fn errors_of_the_moment_are_survived_and_counted() {
    let world = World::new(config(), 0.0);
    let server = world.accept().await;
    // ENOBUFS, EPERM, ECONNREFUSED, EAGAIN.
    let passing = || [105, 1, 111, 11].map(io::Error::from_raw_os_error);
    world.to_client.fail((0..5).flat_map(|_| passing()));
    let bytes = payload(300_000);
    world.client.write_bytes(bytes.clone()).await.unwrap();
    assert!(within(60, read(&server, bytes.len())).await == bytes);
    assert_eq!(world.to_client.errors(), 0);
    assert_eq!(world.client.refused(), 20);
    assert!(world.client.counters().engine.repeated_out > 0);
}

#[tokio::test(start_paused = true)]
async fn an_error_that_stays_ends_the_session_that_sends() {
    let world = World::new(config(), 0.0);
    let server = world.accept().await;
    world.to_client.fail([error(ErrorKind::InvalidInput)]);
    world.client.write_bytes(Bytes::from_static(b"?")).await.unwrap();
    let error = within(10, world.client.read_bytes(9)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(error.to_string(), "sending: made up");
    drop(server);
}

#[tokio::test(start_paused = true)]
async fn streams_fail_when_their_driver_is_dropped() {
    let net = Net::default();
    let (socket, _) = net.socket(address(CLIENT), path(0.0));
    let peer = address(SERVER);
    let (stream, driver) =
        Stream::with_driver(socket, peer, CONVERSATION, config(), seal()).unwrap();
    let driver = tokio::spawn(driver);
    tokio::task::yield_now().await;
    let (read, ()) = tokio::join!(stream.read_bytes(9), async { driver.abort() });
    assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionAborted);
    let error = stream.write_bytes(Bytes::from_static(b"?")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
}

#[tokio::test(start_paused = true)]
async fn a_driver_ends_after_its_last_stream() {
    let net = Net::default();
    let (socket, _) = net.socket(address(CLIENT), path(0.0));
    let peer = address(SERVER);
    let (stream, driver) =
        Stream::with_driver(socket, peer, CONVERSATION, config(), seal()).unwrap();
    let driver = tokio::spawn(driver);
    // Nobody is there to acknowledge it.
    stream.write_bytes(Bytes::from_static(b"?")).await.unwrap();
    drop(stream);
    within(6, driver).await.unwrap().unwrap();
}
