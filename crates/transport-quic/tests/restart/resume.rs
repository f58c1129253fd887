//! Tests of session tickets and 0-RTT.

use std::net::SocketAddr;
use std::path::Path;

use quinn::{Connection, ConnectionError, Endpoint};
use testkit::certs::{Authority, Flaw};
use tls::{self, Identity};
use tokio::time::timeout;
use transport_quic::Keys;

use crate::restart::process::{ALPN, Process, SOON, Setup, client, client_tls, echo, identity};

const ANYWHERE: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

/// Connects without a ticket and waits until the client has a ticket.
async fn first(endpoint: &Endpoint, server: &Process) -> Connection {
    let connecting = endpoint.connect(server.address, "localhost").unwrap();
    let connection = connecting.into_0rtt().err().expect("no ticket yet").await.unwrap();
    echo(&connection).await;
    connection
}

/// Connects and sends bytes with the first packet. Returns the connection, and whether the server
/// accepted the early data.
async fn early(endpoint: &Endpoint, server: &Process) -> (Connection, bool) {
    let connecting = endpoint.connect(server.address, "localhost").unwrap();
    let (connection, accepted) = connecting.into_0rtt().expect("a ticket");
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    send.write_all(b"early").await.unwrap();
    send.finish().unwrap();
    let accepted = timeout(SOON, accepted).await.unwrap();
    if accepted {
        assert_eq!(timeout(SOON, receive.read_to_end(10)).await.unwrap().unwrap(), b"early");
    }
    (connection, accepted)
}

#[tokio::test]
async fn a_client_resumes_with_0rtt_before_and_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::new(folder.path());
    let server = Process::start(&setup, SocketAddr::from(ANYWHERE));
    let endpoint = client(&client_tls(folder.path(), None));
    first(&endpoint, &server).await;
    assert!(early(&endpoint, &server).await.1);

    let server = Process::start(&Setup::new(folder.path()), server.kill());
    let (connection, accepted) = early(&endpoint, &server).await;
    assert!(accepted, "by the process after the one that gave the ticket");
    echo(&connection).await;

    let strange = Setup { keys: Keys::fleeting().unwrap(), ..setup };
    let server = Process::start(&strange, server.kill());
    let (connection, accepted) = early(&endpoint, &server).await;
    assert!(!accepted, "other keys");
    echo(&connection).await;
    server.kill();
}

#[tokio::test]
async fn a_server_that_lowered_a_limit_refuses_0rtt_and_loses_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::new(folder.path());
    let server = Process::start(&setup, SocketAddr::from(ANYWHERE));
    let endpoint = client(&client_tls(folder.path(), None));
    first(&endpoint, &server).await;
    let server = Process::start(&Setup { streams: 99, ..setup }, server.kill());
    let (connection, accepted) = early(&endpoint, &server).await;
    assert!(!accepted);
    echo(&connection).await;
    server.kill();
}

/// The setup of a server whose clients must show a certificate of one of these authorities.
fn trusting(folder: &Path, authorities: &[&Authority]) -> Setup {
    let bundle: String = authorities.iter().map(|one| one.pem.as_str()).collect();
    let path = folder.join("clients.pem");
    std::fs::write(&path, bundle).unwrap();
    Setup {
        tls: tls::server_config(&identity(folder), Some(&path), ALPN).unwrap(),
        trusted: tls::load_certificates(&path).unwrap(),
        ..Setup::new(folder)
    }
}

#[tokio::test]
async fn a_ticket_is_worth_nothing_when_the_authority_behind_it_was_removed() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (Authority::new("old").unwrap(), Authority::new("new").unwrap());
    let leaf = old.client(&[], "home", Flaw::None).unwrap();
    let (certificate, key) = leaf.save(folder.path(), "home").unwrap();
    let own = Identity::load(&certificate, &key).unwrap();
    let server = Process::start(&trusting(folder.path(), &[&old, &new]), ANYWHERE.into());
    let endpoint = client(&client_tls(folder.path(), Some(&own)));
    first(&endpoint, &server).await;
    let server = Process::start(&trusting(folder.path(), &[&new, &old]), server.kill());
    assert!(early(&endpoint, &server).await.1, "the same authorities");

    let server = Process::start(&trusting(folder.path(), &[&new]), server.kill());
    let (connection, accepted) = early(&endpoint, &server).await;
    assert!(!accepted);
    let refused = timeout(SOON, connection.closed()).await.unwrap();
    assert!(matches!(refused, ConnectionError::ConnectionClosed(_)), "{refused}");
    server.kill();
}
