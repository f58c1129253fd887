//! A real member that demands certificates of its clients.

use std::io;
use std::path::Path;
use std::sync::Arc;

use cluster::engine::{NoReply, Transaction};
use etcd::{Connect, Connecting, Etcd, MemberStream, Reason};
use hyper_util::rt::TokioIo;
use testkit::certs::{Authority, Flaw};
use tls::{Identity, Trust};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::member::{Members, SOON, run};

/// Connections over TLS.
struct OverTls(TlsConnector);

impl std::fmt::Debug for OverTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OverTls")
    }
}

impl OverTls {
    fn new(ca: &Path, identity: Option<&Identity>) -> Self {
        let config = tls::client_config(&Trust::Authority(ca.to_owned()), identity, &[]).unwrap();
        Self(TlsConnector::from(Arc::clone(&config)))
    }
}

impl Connect for OverTls {
    fn connect<'a>(&'a self, _: usize, address: &'a str) -> Connecting<'a> {
        Box::pin(async move {
            let (host, _) = address.rsplit_once(':').ok_or(io::ErrorKind::InvalidInput)?;
            let name = tls::server_name(host).map_err(io::Error::other)?;
            let stream = TcpStream::connect(address).await?;
            let stream = self.0.connect(name, stream).await?;
            Ok(Box::new(TokioIo::new(stream)) as Box<dyn MemberStream>)
        })
    }
}

#[test]
fn a_member_that_demands_a_certificate_answers_those_who_have_one() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new("of etcd").unwrap();
        let ca = authority.save(dir.path()).unwrap();
        // The gateway inside etcd presents the certificate of the server as that of a client.
        let peer = authority.peer(&["127.0.0.1"]).unwrap();
        let (certificate, key) = peer.save(dir.path(), "etcd").unwrap();
        let client = authority.client(&[], "a node", Flaw::None).unwrap();
        let client = client.save(dir.path(), "node").unwrap();
        let identity = Identity::load(&client.0, &client.1).unwrap();

        let [certificate, key, roots] =
            [&certificate, &key, &ca].map(|path| path.to_str().unwrap());
        let mut members = Members::new(1, &["--client-cert-auth", "--trusted-ca-file", roots]);
        members.over_tls(certificate, key);
        members.begin(0);
        let settings = members.settings(SOON);
        let known =
            Etcd::new(settings.clone(), Box::new(OverTls::new(&ca, Some(&identity)))).unwrap();
        members.ready_for(&known, 0).await;
        let mut calls = known.calls();
        for _ in 0..2 {
            calls.transact(&Transaction::default()).await.unwrap();
        }

        let unknown = Etcd::new(settings, Box::new(OverTls::new(&ca, None))).unwrap();
        let error = unknown.calls().transact(&Transaction::default()).await.unwrap_err();
        // With TLS 1.3 the refusal comes after the handshake of the client, in the place of an
        // answer.
        assert!(matches!(error.reason, Reason::Broken(_) | Reason::Unreachable(_)), "{error}");
        assert!(matches!(error.failure, NoReply::Unknown | NoReply::Refused));
    });
}
