//! Tests of stateless resets.

use std::net::SocketAddr;
use std::time::Instant;

use net::udp::udp_group;
use quinn::ConnectionError;
use tokio::time::timeout;
use transport_quic::{Keys, PeerId, Peers, RecordedPeer, call_back};

use crate::restart::process::{Process, SOON, Setup, client, client_tls, echo};

const ANYWHERE: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

#[tokio::test]
async fn a_restarted_server_answers_a_live_client_with_a_reset_if_it_has_its_keys() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::new(folder.path());
    let again = Setup::new(folder.path());
    let strange = Setup { keys: Keys::fleeting().unwrap(), ..setup.clone() };
    for (next, known) in [(again, true), (strange, false)] {
        let server = Process::start(&setup, SocketAddr::from(ANYWHERE));
        let endpoint = client(&client_tls(folder.path(), None));
        let connection = endpoint.connect(server.address, "localhost").unwrap().await.unwrap();
        echo(&connection).await;
        let server = Process::start(&next, server.kill());
        connection.open_uni().await.unwrap().write_all(b"still there?").await.unwrap();
        let start = Instant::now();
        let ended = timeout(SOON, connection.closed()).await;
        assert_eq!(ended.ok(), known.then_some(ConnectionError::Reset));
        assert!(!known || start.elapsed().as_millis() < 1000, "{:?}", start.elapsed());
        server.kill();
    }
}

#[tokio::test]
async fn a_restarted_server_calls_back_who_was_connected_and_says_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup { workers: 2, ..Setup::new(folder.path()) };
    let server = Process::start(&setup, SocketAddr::from(ANYWHERE));
    let endpoint = client(&client_tls(folder.path(), None));
    let connection = endpoint.connect(server.address, "localhost").unwrap().await.unwrap();
    echo(&connection).await;

    let (peers, _) = Peers::take_all(folder.path(), "quic").unwrap();
    let accepted = server.accepted.recv().unwrap();
    assert_eq!(usize::from(accepted.id[0]), accepted.worker);
    let peer = endpoint.local_addr().unwrap();
    peers.connected(RecordedPeer {
        id: PeerId(accepted.id.as_ref().try_into().unwrap()),
        peer,
        port: server.address.port(),
    });
    let written = async {
        let file = folder.path().join("quic.peers");
        while !std::fs::read_to_string(&file).unwrap().contains(&accepted.id.to_string()) {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, written).await.unwrap();
    let address = server.kill();

    let keys = Keys::of(folder.path()).unwrap();
    let (_peers, left) = Peers::take_all(folder.path(), "quic").unwrap();
    let group = udp_group(address, 2).unwrap();
    assert_eq!(call_back(&group[1], &Keys::fleeting().unwrap(), &left).unwrap(), 1);
    let short = std::time::Duration::from_millis(300);
    assert!(timeout(short, connection.closed()).await.is_err(), "a reset of somebody else");
    assert_eq!(call_back(&group[0], &keys, &left).unwrap(), 1);
    let ended = timeout(SOON, connection.closed()).await;
    assert_eq!(ended.ok(), Some(ConnectionError::Reset));
}
