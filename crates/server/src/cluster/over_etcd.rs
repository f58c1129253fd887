//! Servers as nodes on a real member of etcd that demands certificates.

use std::path::Path;

use config::{ServerFlags, Sources, Text};
use ops::{Daemon as _, Serving as _};
use testkit::certs::{Authority, Flaw};
use tokio::time::{Duration, Instant, sleep};

use crate::Server;
use member::{Members, SOON, run};

#[path = "../../../etcd/tests/member.rs"]
#[allow(dead_code, reason = "the tests of the crate etcd use the rest")]
mod member;

async fn start(node: &str, directory: &str) -> Server {
    let text = format!(
        "listen: tcp://127.0.0.1:0\nworkers: 1\npublic_bind: 127.0.0.1\nclients: []\n\
         cluster: {{ name: test, node: {node}, zone: z, peers: {{ listen: tcp://127.0.0.1:1 }}, \
         directory: {directory} }}\n"
    );
    let text = Text { name: "server.yaml", text: &text };
    let read = |_: &Path| Err("no files".to_owned());
    let sources = Sources { env: &|_: &str| None, read: &read };
    let config = config::load_server(Some(text), &ServerFlags::default(), &sources).unwrap();
    Server::start(config.config, None).await.unwrap()
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
