//! Checks what a handshake reports about its cipher, that accepting does not wait for a handshake,
//! and that a handshake with a silent peer ends.

use std::future::poll_fn;
use std::io::{Read as _, Write as _};
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};
use transport::Listener;

use super::{Fixture, connect};

/// The number of silent peers that connect before an honest peer.
const SILENT: usize = 1_000;

/// The transports whose carriers have TLS.
const WITH_TLS: [&str; 5] = ["tls", "wss", "quic", "kcp", "direct"];

pub(super) async fn cipher(fixture: &dyn Fixture) {
    let (dialled, accepted) = connect(fixture).await;
    let has_tls = WITH_TLS.contains(&dialled.peer.transport.name());
    let suite = dialled.peer.cipher.map(|cipher| cipher.suite);
    assert_eq!(suite.is_some(), has_tls, "{suite:?} over {}", dialled.peer.transport);
    // Both ends are in one process, so the library is the same as well.
    assert_eq!(dialled.peer.cipher, accepted.peer.cipher);
}

pub(super) async fn silent_peers(fixture: &dyn Fixture) {
    let (mut listener, dialer) = fixture.make();
    let address = listener.local_addr();
    let Some(first) = fixture.silent(address) else {
        // No silent peer is possible: connecting is the handshake.
        connect(fixture).await;
        return;
    };
    raise_descriptor_limit();
    let mut peers = vec![first];
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..SILENT {
        let incoming = poll_fn(|cx| listener.poll_accept(cx)).await.expect("accept");
        tasks.spawn_local(incoming.handshake());
        peers.push(fixture.silent(address).expect("another silent peer"));
    }
    let honest = tokio::task::spawn_local(async move { dialer.dial(address).await });
    let served = tokio::task::spawn_local(async move {
        // The last silent peer is accepted first, then the honest peer.
        let _last = poll_fn(|cx| listener.poll_accept(cx)).await.expect("accept");
        let incoming = poll_fn(|cx| listener.poll_accept(cx)).await.expect("accept");
        incoming.handshake().await
    });
    honest.await.expect("the dialer's task").expect("an honest handshake completes");
    served.await.expect("the acceptor's task").expect("an honest handshake completes");
}

/// Both ends of the silent connections are in this process, and the usual soft limit is 1,024
/// descriptors.
fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("the soft limit may be as high as the hard one");
}

pub(super) async fn dropped(fixture: &dyn Fixture) {
    let (mut listener, _dialer) = fixture.make();
    let Some(mut peer) = fixture.silent(listener.local_addr()) else { return };
    let incoming = poll_fn(|cx| listener.poll_accept(cx)).await.expect("accept");
    let handshake = incoming.handshake();
    let _ = tokio::time::timeout(Duration::from_millis(20), handshake).await;
    peer.set_read_timeout(Some(Duration::from_secs(10))).expect("a deadline");
    let end = peer.read(&mut [0; 16]);
    assert!(matches!(end, Ok(0) | Err(_)), "the connection must be closed");
    assert!(
        end.err().is_none_or(|error| error.kind() != std::io::ErrorKind::WouldBlock),
        "the connection must be closed, not forgotten"
    );
}

/// Sends HTTP, noise and an endless flood of zeroes: each must give an error after a bounded number
/// of bytes.
pub(super) async fn garbage(fixture: &dyn Fixture) {
    if !fixture.shakes_hands() {
        return;
    }
    let zeroes = vec![0; 4 << 20];
    let mut record = vec![22, 3, 1, 0x40, 0];
    record.resize(4 << 20, 1);
    let noises: [&[u8]; 4] =
        [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"SSH-2.0-x\r\n", &zeroes, &record];
    for noise in noises {
        let (mut listener, _dialer) = fixture.make();
        let Some(mut peer) = fixture.silent(listener.local_addr()) else { return };
        let noise = noise.to_vec();
        let shouting = tokio::task::spawn_blocking(move || {
            // Fails when the other side has closed the connection.
            let _ = peer.write_all(&noise);
            peer
        });
        let incoming = accept(&mut *listener).await;
        incoming.handshake().await.expect_err("garbage is no handshake");
        drop(shouting.await);
    }
}

async fn accept(listener: &mut dyn Listener) -> Box<dyn transport::Incoming> {
    poll_fn(|cx| listener.poll_accept(cx)).await.expect("accept")
}
