//! Tests of steering, with the connection ids that quinn really sends.

use std::net::{SocketAddr, UdpSocket};

use crate::restart::process::{Process, Setup, client, client_tls, echo};

#[tokio::test]
async fn a_connection_stays_with_its_worker_whatever_port_its_client_gets() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup { workers: 4, ..Setup::new(folder.path()) };
    let server = Process::start(&setup, SocketAddr::from(([127, 0, 0, 1], 0)));
    let tls = client_tls(folder.path(), None);
    let mut used = [0; 4];
    for _ in 0..12 {
        let endpoint = client(&tls);
        let connection = endpoint.connect(server.address, "localhost").unwrap().await.unwrap();
        echo(&connection).await;
        let accepted = server.accepted.recv().unwrap();
        assert_eq!(usize::from(accepted.id[0]), accepted.worker);
        used[accepted.worker] += 1;
        for _ in 0..4 {
            endpoint.rebind(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
            echo(&connection).await;
        }
    }
    assert!(used.iter().filter(|&&connections| connections > 0).count() > 1, "{used:?}");
    server.kill();
}

#[tokio::test]
async fn a_client_that_was_told_its_worker_comes_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup { workers: 4, ..Setup::new(folder.path()) };
    let server = Process::start(&setup, SocketAddr::from(([127, 0, 0, 1], 0)));
    let tls = client_tls(folder.path(), None);
    for worker in [2, 0, 3, 1] {
        let endpoint = client(&tls);
        let crypto = transport_quic::client_crypto(&tls).unwrap();
        let mut config = quinn::ClientConfig::new(crypto);
        config.initial_dst_cid_provider(std::sync::Arc::new(move || {
            transport_quic::first_id_to(worker)
        }));
        let connecting = endpoint.connect_with(config, server.address, "localhost").unwrap();
        echo(&connecting.await.unwrap()).await;
        assert_eq!(server.accepted.recv().unwrap().worker, usize::from(worker));
    }
    server.kill();
}
