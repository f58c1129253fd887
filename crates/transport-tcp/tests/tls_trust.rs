//! Which peers the two sides trust, what they learn about each other, and which files they accept.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

use crate::setup;

use std::collections::VecDeque;
use std::fs;
use std::future::poll_fn;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use rustls::ServerConfig;
use setup::{Ends, Material, ends};
use testkit::certs::{Authority, Flaw};
use testkit::conformance::read_some;
use tls::{Identity, Trust, client_config, server_config, server_name};
use transport::ALPN;

#[tokio::test]
async fn an_authority_vouches_for_names_and_addresses() {
    let (material, ca) = (Material::new(), Authority::new("Test CA").unwrap());
    let leaf = ca.server(&["a.example", "127.0.0.1", "::1"]).unwrap();
    let server = server_config(&material.identity(&leaf), None, &[ALPN]).unwrap();
    let trust = Trust::Authority(ca.save(material.folder()).unwrap());
    let client = client_config(&trust, None, &[ALPN]).unwrap();
    for name in ["a.example", "127.0.0.1", "[::1]", "a.example."] {
        let ends = ends(Arc::clone(&server), Arc::clone(&client), name).await;
        let (dialled, accepted) = (ends.dialled.unwrap(), ends.accepted.unwrap());
        assert!(dialled.peer.exporter.is_some());
        assert_eq!(dialled.peer.exporter, accepted.peer.exporter, "both ends export the same");
        assert_eq!(accepted.peer.certificate_name, None);
        let cipher = dialled.peer.cipher.unwrap();
        assert!(["aws-lc", "ring"].contains(&cipher.backend), "{cipher:?}");
        assert!(cipher.suite.starts_with("TLS_"), "{cipher:?}");
    }
}

#[tokio::test]
async fn each_connection_exports_its_own_material() {
    let material = Material::new();
    let own = material.own("own");
    let server = server_config(&own, None, &[ALPN]).unwrap();
    let client = client_config(&Trust::Pins(vec![own.pin()]), None, &[ALPN]).unwrap();
    let one = ends(Arc::clone(&server), Arc::clone(&client), "x").await.dialled.unwrap();
    let two = ends(server, client, "x").await.dialled.unwrap();
    assert_ne!(one.peer.exporter, two.peer.exporter);
}

#[tokio::test]
async fn one_of_several_pins_is_enough() {
    let material = Material::new();
    let (old, new) = (material.own("old"), material.own("new"));
    let trust = Trust::Pins(vec![old.pin(), new.pin()]);
    for identity in [old, new] {
        let server = server_config(&identity, None, &[ALPN]).unwrap();
        let client = client_config(&trust, None, &[ALPN]).unwrap();
        ends(server, client, "203.0.113.9").await.dialled.unwrap();
    }
}

/// A server that asks its clients for certificates.
fn asking(material: &Material, ca: &Authority) -> (Arc<ServerConfig>, Trust) {
    let own = material.own("own");
    let clients = ca.save(material.folder()).unwrap();
    let server = server_config(&own, Some(&clients), &[ALPN]).unwrap();
    (server, Trust::Pins(vec![own.pin()]))
}

#[tokio::test]
async fn a_client_certificate_gives_its_first_dns_name_else_its_common_name() {
    let (material, ca) = (Material::new(), Authority::new("Clients").unwrap());
    let (server, trust) = asking(&material, &ca);
    let cases = [
        (&["10.0.0.1", "home.example", "b"][..], "cn", "home.example"),
        (&[], "cn", "cn"),
        // A certificate without a name is the certificate of no client, which differs from no
        // certificate.
        (&[], "", ""),
    ];
    for (names, common_name, wanted) in cases {
        let leaf = ca.client(names, common_name, Flaw::None).unwrap();
        let identity = material.identity(&leaf);
        let client = client_config(&trust, Some(&identity), &[ALPN]).unwrap();
        let Ends { dialled, accepted } = ends(Arc::clone(&server), client, "x").await;
        dialled.unwrap();
        assert_eq!(accepted.unwrap().peer.certificate_name.as_deref(), Some(wanted));
    }
}

#[tokio::test]
async fn a_missing_client_certificate_is_told_on_both_sides() {
    let (material, ca) = (Material::new(), Authority::new("Clients").unwrap());
    let (server, trust) = asking(&material, &ca);
    let client = client_config(&trust, None, &[ALPN]).unwrap();
    let Ends { dialled, accepted } = ends(server, client, "x").await;
    assert_eq!(
        dialled.unwrap_err().to_string(),
        "the server asks for a client certificate; set `tls.cert` and `tls.key`, or `--cert` and \
         `--key`"
    );
    assert_eq!(
        accepted.unwrap_err().to_string(),
        "the client shows no certificate, and this server asks for one"
    );
}

#[tokio::test]
async fn a_refused_client_certificate_is_told_on_both_sides() {
    let (material, ca) = (Material::new(), Authority::new("Clients").unwrap());
    let (server, trust) = asking(&material, &ca);
    let stranger = Authority::new("Stranger").unwrap().client(&[], "cn", Flaw::None).unwrap();
    let namesake = Authority::new("Clients").unwrap().client(&[], "cn", Flaw::None).unwrap();
    let of_a_server = ca.server(&["cn"]).unwrap();
    let expired = ca.client(&[], "cn", Flaw::Expired).unwrap();
    let cases = [
        (
            stranger,
            "the server refused our client certificate: its authority is not in the file of \
             `tls.client_ca` of the server; add it there, or show a certificate of one that is",
            "the client's certificate is of an authority that is not in the file of \
             `tls.client_ca` or `--client-ca`; add it there if the client shall come in",
        ),
        (
            expired,
            "the server refused our client certificate: it has expired or is not valid yet; renew \
             the file of `tls.cert`, unless a clock is wrong",
            "the client's certificate expired on 2019-12-31; renew it, unless the clock here is wrong",
        ),
        (
            namesake,
            "the server refused our client certificate: its authority has the name of one that is \
             trusted, but another key",
            "the client's certificate is of an authority that has the name of one we trust, but \
             another key; was the authority made anew?",
        ),
        (
            of_a_server,
            "the server refused our client certificate: it is not made for clients (extended key \
             usage); show one that is",
            "the client's certificate is not made for clients (extended key usage); issue one that \
             is",
        ),
    ];
    for (leaf, by_client, by_server) in cases {
        let identity = material.flawed(&leaf);
        let client = client_config(&trust, Some(&identity), &[ALPN]).unwrap();
        let Ends { dialled, accepted } = ends(Arc::clone(&server), client, "x").await;
        assert_eq!(dialled.unwrap_err().to_string(), by_client);
        assert_eq!(accepted.unwrap_err().to_string(), by_server);
    }
}

#[tokio::test]
async fn an_end_without_close_notify_is_an_error() {
    let material = Material::new();
    let own = material.own("own");
    let server = server_config(&own, None, &[ALPN]).unwrap();
    let client = client_config(&Trust::Pins(vec![own.pin()]), None, &[ALPN]).unwrap();
    let Ends { dialled, accepted } = ends(server, client, "x").await;
    drop(accepted.unwrap());
    let error = read_some(&mut *dialled.unwrap().lane, 10).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
}

#[test]
fn files_are_told_by_name_and_fault() {
    let (material, ca) = (Material::new(), Authority::new("Test CA").unwrap());
    let good = ca.server(&["a.example"]).unwrap();
    let (crt, key) = good.save(material.folder(), "good").unwrap();
    let (other_crt, other_key) =
        ca.server(&["b.example"]).unwrap().save(material.folder(), "other").unwrap();
    let flawed = |flaw, name| {
        ca.flawed_server(&["a.example"], flaw).unwrap().save(material.folder(), name).unwrap()
    };
    let (late, late_key) = flawed(Flaw::Expired, "late");
    let (early, early_key) = flawed(Flaw::NotYetValid, "early");
    let empty = material.folder().join("empty.pem");
    fs::write(&empty, "nothing here\n").unwrap();
    let missing = material.folder().join("missing.pem");

    // The peer judges the dates: a machine whose clock is wrong starts all the same.
    for (crt, key, expected) in [
        (&crt, &key, None),
        (&late, &late_key, Some("the certificate expired on 2019-12-31; renew it")),
        (
            &early,
            &early_key,
            Some("the certificate is not valid before 2099-01-01; is the clock right?"),
        ),
    ] {
        assert_eq!(Identity::load(crt, key).unwrap().out_of_date().as_deref(), expected);
    }
    let cases = [
        (&missing, &key, &missing, "No such file or directory (os error 2)".to_owned()),
        (&crt, &missing, &missing, "No such file or directory (os error 2)".to_owned()),
        (&empty, &key, &empty, "no certificate in it (PEM)".to_owned()),
        (&key, &key, &key, "no certificate in it (PEM)".to_owned()),
        (&crt, &crt, &crt, "no private key in it (PEM)".to_owned()),
        (
            &crt,
            &other_key,
            &other_key,
            format!("the key does not belong to the certificate {}", crt.display()),
        ),
    ];
    for (certificate, key, at_fault, problem) in cases {
        let said = Identity::load(certificate, key).unwrap_err().to_string();
        assert_eq!(said, format!("{}: {problem}", at_fault.display()));
    }
    drop(other_crt);
}

#[test]
fn only_names_and_addresses_are_hosts() {
    for host in ["a.example", "10.0.0.1", "[2001:db8::1]", "2001:db8::1"] {
        server_name(host).unwrap();
    }
    let said = server_name("a b").unwrap_err().to_string();
    assert_eq!(said, "`a b` is neither a host name nor an IP address");
}

/// A client for a proxy that ends TLS with version 1.2: the bytes pass in both directions, nothing
/// is bound to the session, and a request for a certificate is answered.
#[tokio::test]
async fn a_client_that_may_speaks_tls_1_2_with_an_old_server() {
    let (material, ca) = (Material::new(), Authority::new("Test CA").unwrap());
    let file = ca.save(material.folder()).unwrap();
    let identity = material.identity(&ca.server(&["a.example"]).unwrap());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(tls::load_certificates(&file).unwrap().remove(0)).unwrap();
    let clients = rustls::server::WebPkiClientVerifier::builder_with_provider(
        Arc::new(roots),
        tls::provider(),
    );
    let mut server = ServerConfig::builder_with_provider(tls::provider())
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_client_cert_verifier(clients.build().unwrap())
        .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(identity.certified())));
    server.alpn_protocols = vec![ALPN.to_vec()];
    let server = Arc::new(server);
    let trust = Trust::Authority(file);
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) =
        ca.client(&["home"], "home", Flaw::None).unwrap().save(folder.path(), "home").unwrap();
    let own = Identity::load(&certificate, &key).unwrap();
    let client = |oldest| tls::client_config_from(oldest, &trust, Some(&own), &[ALPN]).unwrap();
    let refused = ends(Arc::clone(&server), client(tls::Oldest::Tls13), "a.example").await;
    let said = refused.dialled.unwrap_err().to_string();
    assert!(said.contains("min_version"), "{said}");
    let Ends { dialled, accepted } = ends(server, client(tls::Oldest::Tls12), "a.example").await;
    let (mut near, mut far) = (dialled.unwrap(), accepted.unwrap());
    assert_eq!((near.peer.exporter, far.peer.exporter), (None, None));
    assert_eq!(far.peer.certificate_name.as_deref(), Some("home"));
    let suite = near.peer.cipher.unwrap().suite;
    assert!(suite.starts_with("TLS_ECDHE_ECDSA_WITH_"), "{suite}");
    let sent = Bytes::from(vec![7; 100_000]);
    for turn in 0..2 {
        let (from, to) = if turn == 0 { (&mut near, &mut far) } else { (&mut far, &mut near) };
        let mut frames = VecDeque::from([sent.clone()]);
        let write = async {
            while !frames.is_empty() {
                poll_fn(|cx| from.lane.poll_write(cx, &mut frames)).await.unwrap();
            }
            poll_fn(|cx| from.lane.poll_flush(cx)).await.unwrap();
        };
        let read = async {
            let mut got = BytesMut::with_capacity(sent.len());
            while got.len() < sent.len() {
                got.reserve(sent.len() - got.len());
                poll_fn(|cx| to.lane.poll_read(cx, &mut got)).await.unwrap();
            }
            got
        };
        let ((), got) = tokio::join!(write, read);
        assert_eq!(got, sent);
    }
}
