//! Servers as nodes on a real member of etcd that demands certificates.

use std::path::Path;

use client::Client;
use config::{ClientFlags, ServerFlags, Sources, Text};
use ops::status::{ServiceState, SessionState};
use ops::{Daemon as _, Serving as _};
use testkit::certs::{Authority, Flaw};
use tokio::time::{Duration, Instant, sleep};

use crate::Server;
use member::{Members, SOON, run};

#[path = "../../../etcd/tests/member.rs"]
#[allow(dead_code, reason = "the tests of the crate etcd use the rest")]
mod member;

const TOKEN: &str = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ";

async fn start(node: &str, directory: &str) -> Server {
    let text = format!(
        "listen: tcp://127.0.0.1:0\nworkers: 1\npublic_bind: 127.0.0.1\n\
         http: {{ listen: '127.0.0.1:0' }}\n\
         clients: [{{ name: home, token: {TOKEN}, allow: {{ http: '*' }} }}]\n\
         cluster: {{ name: test, node: {node}, zone: z, peers: {{ listen: tcp://127.0.0.1:1 }}, \
         directory: {directory} }}\n"
    );
    let text = Text { name: "server.yaml", text: &text };
    let config = config::load_server(Some(text), &ServerFlags::default(), &sources()).unwrap();
    Server::start(config.config, None).await.unwrap()
}

fn sources() -> Sources<'static> {
    Sources { env: &|_: &str| None, read: &|_: &Path| Err("no files".to_owned()) }
}

/// A process of the client at one of the servers.
async fn publish(server: &Server) -> Client {
    let text = format!(
        "servers: {}\nname: home\ntoken: {TOKEN}\nworkers: 1\nconnections: 1\n\
         retry: {{ min: 50ms, max: 200ms }}\n\
         services: [{{ name: web, target: 'tcp://127.0.0.1:1', public: 'http://app.example' }}]\n",
        server.listen()[0]
    );
    let text = Text { name: "client.yaml", text: &text };
    let config = config::load_client(Some(text), &ClientFlags::default(), &sources());
    Client::start(config.unwrap().config).await.unwrap()
}

/// Whether a server publishes the service.
async fn publishes(server: &Server) -> bool {
    let sessions = server.status().await.sessions;
    let mut services = sessions.iter().flat_map(|session| &session.services);
    services.any(|service| service.state == ServiceState::Up)
}

async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !is_so().await {
        assert!(begin.elapsed() < SOON, "{what}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until a node sees this number of nodes.
async fn sees(server: &Server, nodes: usize) {
    let begin = Instant::now();
    loop {
        let cluster = server.brief().await.cluster.unwrap();
        if cluster.member && cluster.nodes.len() == nodes {
            assert!(cluster.engine_heard_seconds.is_some() && cluster.nodes[0].zone.is_some());
            assert!(cluster.report.unwrap().contains("joined"));
            return;
        }
        assert!(begin.elapsed() < SOON, "{cluster:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn a_server_joins_over_tls_with_its_certificate_and_leaves_at_its_end() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new("of etcd").unwrap();
        let ca = authority.save(dir.path()).unwrap();
        // The gateway inside etcd presents the certificate of the server as that of a client.
        let peer = authority.peer(&["127.0.0.1"]).unwrap();
        let (certificate, key) = peer.save(dir.path(), "etcd").unwrap();
        let client = authority.client(&[], "a node", Flaw::None).unwrap();
        let own = client.save(dir.path(), "node").unwrap();
        let [certificate, key, ca] = [&certificate, &key, &ca].map(|path| path.to_str().unwrap());
        let mut members = Members::new(1, &["--client-cert-auth", "--trusted-ca-file", ca]);
        members.over_tls(certificate, key);
        members.begin(0);
        let address = members.settings(SOON).members.remove(0);
        let directory = format!(
            "{{ etcd: 'https://{address}', tls: {{ ca: '{ca}', cert: '{}', key: '{}' }} }}",
            own.0.display(),
            own.1.display()
        );
        let one = start("a", &directory).await;
        sees(&one, 1).await;
        let two = start("b", &directory).await;
        sees(&one, 2).await;
        sees(&two, 2).await;
        two.close().await;
        sees(&one, 1).await;
        // The records of a node that ended are void: the next process joins at once.
        let two = start("b", &directory).await;
        sees(&two, 2).await;
        two.close().await;
        one.close().await;
    });
}

#[test]
fn a_client_that_logs_in_at_another_node_takes_its_services_along() {
    run(async {
        let members = Members::start(1, &[]).await;
        let directory = format!("{{ etcd: 'http://{}' }}", members.settings(SOON).members[0]);
        let (a, b) = (start("a", &directory).await, start("b", &directory).await);
        sees(&a, 2).await;
        sees(&b, 2).await;
        let first = publish(&a).await;
        eventually("the first node publishes", async || publishes(&a).await).await;
        let second = publish(&b).await;
        eventually("the second node publishes", async || publishes(&b).await).await;
        eventually("the first node publishes no more", async || !publishes(&a).await).await;
        let has_yielded = async || {
            let sessions = first.status().await.sessions;
            sessions.iter().all(|session| session.state == SessionState::Superseded)
        };
        eventually("the first process has yielded", has_yielded).await;
        assert!(publishes(&b).await);
        second.close().await;
        // The record of the client is gone, and the first process asks again.
        eventually("the first process is back", async || publishes(&a).await).await;
        first.close().await;
        a.close().await;
        b.close().await;
    });
}
