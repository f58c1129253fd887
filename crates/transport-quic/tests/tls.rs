//! Each end learns the identity of the other, and each kind of failure has the same text as over
//! TCP.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

use crate::setup;

use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;

use net::Current;
use rustls::{ClientConfig, ServerConfig};
use setup::{LOOPBACK, dialer, listener, run, server, shake};
use tempfile::TempDir;
use testkit::certs::{Authority, Flaw, Leaf};
use tls::{Identity, Trust, client_config, self_signed, server_config};
use transport::{ALPN, Carrier, CarrierError, Dialer, Listener};
use transport_quic::{QuicListener, QuicSettings};

type Outcome = Result<Carrier, CarrierError>;

/// Runs a handshake over loopback; returns the outcome for the client and for the server.
async fn ends(server: &Arc<ServerConfig>, client: Arc<ClientConfig>, name: &str) -> [Outcome; 2] {
    let settings = QuicSettings::default();
    let mut listener = listener(Arc::clone(server), &settings);
    let address = listener.local_addr();
    let (dialled, accepted) = shake(&mut listener, &dialer(client, name, &settings), address).await;
    [dialled, accepted]
}

/// Makes a self-signed identity in a folder of its own.
fn own() -> (TempDir, Identity) {
    let folder = tempfile::tempdir().unwrap();
    let identity = self_signed(folder.path(), &["a.example".into()]).unwrap();
    (folder, identity)
}

/// Loads `leaf` as an identity even if its dates are wrong: the files of a self-signed folder are
/// loaded without a check of dates.
fn identity(folder: &Path, leaf: &Leaf) -> Identity {
    std::fs::write(folder.join("cert.pem"), &leaf.certificate).unwrap();
    std::fs::write(folder.join("key.pem"), &leaf.key).unwrap();
    self_signed(folder, &[]).unwrap()
}

/// The errors of the client and the server when the server shows `leaf` as `a.example`.
async fn said_of(leaf: &Leaf, trusted: &Authority) -> [String; 2] {
    let folder = tempfile::tempdir().unwrap();
    let server = server_config(&identity(folder.path(), leaf), None, &[ALPN]).unwrap();
    let trust = Trust::Authority(trusted.save(folder.path()).unwrap());
    let client = client_config(&trust, None, &[ALPN]).unwrap();
    let [dialled, accepted] = ends(&server, client, "a.example").await;
    let error = dialled.unwrap_err();
    assert!(matches!(error, CarrierError::Certificate(_)), "{error:?}");
    [error.to_string(), accepted.unwrap_err().to_string()]
}

#[test]
fn what_is_wrong_with_a_server_s_certificate_is_told_at_both_ends() {
    run(async {
        let ca = Authority::new("Test CA").unwrap();
        let [stranger, namesake] = ["Other", "Test CA"].map(|name| Authority::new(name).unwrap());
        let name = &["a.example"];
        let renew = "it has expired or is not valid yet; renew the file of `tls.cert`, unless a clock \
                     is wrong";
        let cases = [
            (
                ca.flawed_server(name, Flaw::Expired),
                "the server's certificate expired on 2019-12-31; renew it, unless the clock here is \
                 wrong",
                renew,
            ),
            (
                ca.flawed_server(name, Flaw::NotYetValid),
                "the server's certificate is not valid before 2099-01-01; check the clocks",
                renew,
            ),
            (
                ca.server(&["b.example", "10.0.0.1"]),
                "the server's certificate is for b.example, 10.0.0.1, not for a.example; dial that \
                 name, or set `sni` beside the `url` under `servers`",
                "it is not for the name that the client dials, most likely; issue one that is, or \
                 have `sni` set there",
            ),
            (
                stranger.server(name),
                "the server's certificate is of an unknown authority; set `tls.ca` or `--ca` to the \
                 authority's file, or `tls.pin` or `--pin` to the server's key",
                "it does not know the authority; `tls.ca` of the client must hold it, or `tls.pin` \
                 our key",
            ),
            (
                namesake.server(name),
                "the server's certificate is of an authority that has the name of one we trust, but \
                 another key; was the authority made anew?",
                "its authority has the name of one that is trusted, but another key",
            ),
            (
                ca.client(name, "a client", Flaw::None),
                "the server's certificate is not made for servers (extended key usage); issue one \
                 that is",
                "it is not made for servers (extended key usage); show one that is",
            ),
        ];
        for (leaf, by_client, by_server) in cases {
            let [client, server] = said_of(&leaf.unwrap(), &ca).await;
            assert_eq!(client, by_client);
            assert_eq!(server, format!("the client refused our certificate: {by_server}"));
        }
    });
}

#[test]
fn another_key_than_the_pinned_one_is_shown() {
    run(async {
        let ((_ours, ours), (_theirs, theirs)) = (own(), own());
        let client = client_config(&Trust::Pins(vec![theirs.pin()]), None, &[ALPN]).unwrap();
        let server = server_config(&ours, None, &[ALPN]).unwrap();
        let [dialled, _] = ends(&server, client, "a.example").await;
        let CarrierError::PinMismatch { presented } = dialled.unwrap_err() else { panic!() };
        assert_eq!(format!("sha256:{presented}"), ours.pin().to_string());
    });
}

#[test]
fn an_authority_vouches_for_names_and_addresses_and_both_ends_export_the_same() {
    run(async {
        let (folder, ca) = (tempfile::tempdir().unwrap(), Authority::new("Test CA").unwrap());
        let leaf = ca.server(&["a.example", "127.0.0.1", "::1"]).unwrap();
        let server = server_config(&identity(folder.path(), &leaf), None, &[ALPN]).unwrap();
        let trust = Trust::Authority(ca.save(folder.path()).unwrap());
        let client = client_config(&trust, None, &[ALPN]).unwrap();
        let mut seen = Vec::new();
        for name in ["a.example", "127.0.0.1", "[::1]", "a.example."] {
            let [dialled, accepted] = ends(&server, Arc::clone(&client), name).await;
            let (dialled, accepted) = (dialled.unwrap().peer, accepted.unwrap().peer);
            assert_eq!(
                (dialled.transport, accepted.transport),
                (transport_quic::QUIC, transport_quic::QUIC)
            );
            let material = dialled.exporter.expect("QUIC always binds");
            assert_eq!(accepted.exporter, Some(material));
            assert_eq!(accepted.certificate_name, None);
            assert!(!seen.contains(&material), "each connection has its own");
            seen.push(material);
            let cipher = dialled.cipher.unwrap();
            assert!(["aws-lc", "ring"].contains(&cipher.backend), "{cipher:?}");
            assert_eq!(accepted.cipher, Some(cipher));
        }
        // With two libraries compiled in, rustls panics where it has to guess a provider.
        assert!(rustls::crypto::CryptoProvider::get_default().is_none());
    });
}

/// A server that asks its clients for certificates, and the trust of its clients.
fn asking(clients: &Authority) -> (TempDir, Arc<ServerConfig>, Trust) {
    let (folder, own) = own();
    let clients = clients.save(folder.path()).unwrap();
    let server = server_config(&own, Some(&clients), &[ALPN]).unwrap();
    (folder, server, Trust::Pins(vec![own.pin()]))
}

#[test]
fn a_client_certificate_gives_its_first_dns_name_else_its_common_name() {
    run(async {
        let ca = Authority::new("Clients").unwrap();
        let (_folder, server, trust) = asking(&ca);
        let cases = [
            (&["10.0.0.1", "home.example", "b"][..], "cn", "home.example"),
            (&[], "cn", "cn"),
            // A certificate without a name is the certificate of no client, which differs from no
            // certificate.
            (&[], "", ""),
        ];
        for (names, common_name, wanted) in cases {
            let folder = tempfile::tempdir().unwrap();
            let leaf = ca.client(names, common_name, Flaw::None).unwrap();
            let identity = identity(folder.path(), &leaf);
            let client = client_config(&trust, Some(&identity), &[ALPN]).unwrap();
            let [dialled, accepted] = ends(&server, client, "x").await;
            dialled.unwrap();
            assert_eq!(accepted.unwrap().peer.certificate_name.as_deref(), Some(wanted));
        }
    });
}

#[test]
fn a_missing_or_refused_client_certificate_is_told_at_both_ends() {
    run(async {
        let ca = Authority::new("Clients").unwrap();
        let (_folder, server, trust) = asking(&ca);
        let stranger = Authority::new("Stranger").unwrap().client(&[], "cn", Flaw::None).unwrap();
        let cases = [
            (
                None,
                "the server asks for a client certificate; set `tls.cert` and `tls.key`, or \
                 `--cert` and `--key`",
                "the client shows no certificate, and this server asks for one",
            ),
            (
                Some(stranger),
                "the server refused our client certificate: its authority is not in the file of \
                 `tls.client_ca` of the server; add it there, or show a certificate of one that is",
                "the client's certificate is of an authority that is not in the file of \
                 `tls.client_ca` or `--client-ca`; add it there if the client shall come in",
            ),
            (
                Some(ca.client(&[], "cn", Flaw::Expired).unwrap()),
                "the server refused our client certificate: it has expired or is not valid yet; \
                 renew the file of `tls.cert`, unless a clock is wrong",
                "the client's certificate expired on 2019-12-31; renew it, unless the clock here is \
                 wrong",
            ),
        ];
        for (leaf, by_client, by_server) in cases {
            let folder = tempfile::tempdir().unwrap();
            let identity = leaf.map(|leaf| identity(folder.path(), &leaf));
            let client = client_config(&trust, identity.as_ref(), &[ALPN]).unwrap();
            let [dialled, accepted] = ends(&server, client, "x").await;
            assert_eq!(dialled.unwrap_err().to_string(), by_client);
            assert_eq!(accepted.unwrap_err().to_string(), by_server);
        }
    });
}

#[test]
fn what_else_is_spoken_over_quic_is_told() {
    run(async {
        let (_folder, own) = own();
        let trust = Trust::Pins(vec![own.pin()]);
        let (tunnel, http): (&[&[u8]], &[&[u8]]) = (&[ALPN], &[b"h3"]);
        let none: &[&[u8]] = &[];
        let said = |end| {
            format!(
                "TLS: {end} does not speak tunnel/1 over QUIC on this port (ALPN); is it for HTTP/3?"
            )
        };
        for offered in [http, none] {
            let server = server_config(&own, None, offered).unwrap();
            let client = client_config(&trust, None, tunnel).unwrap();
            let [dialled, _] = ends(&server, client, "a.example").await;
            assert_eq!(dialled.unwrap_err().to_string(), said("the server"));
            let server = server_config(&own, None, tunnel).unwrap();
            let client = client_config(&trust, None, offered).unwrap();
            let [_, accepted] = ends(&server, client, "a.example").await;
            assert_eq!(accepted.unwrap_err().to_string(), said("the client"));
        }
    });
}

#[test]
fn a_server_of_other_versions_is_told() {
    run(async {
        let (_folder, own) = own();
        let client = client_config(&Trust::Pins(vec![own.pin()]), None, &[ALPN]).unwrap();
        let socket = tokio::net::UdpSocket::bind(LOOPBACK).await.unwrap();
        let address = socket.local_addr().unwrap();
        let answering = async {
            let mut buf = [0; 2_048];
            loop {
                let (n, peer) = socket.recv_from(&mut buf).await.unwrap();
                if n < 1_200 {
                    continue;
                }
                // Version Negotiation (RFC 9000 section 17.2.1) swaps the two connection ids.
                let ids = buf[5..].split_at(1 + usize::from(buf[5]));
                let source = &ids.1[..=usize::from(ids.1[0])];
                let versions = [0x6b, 0x33, 0x43, 0xcf];
                let packet = [&[0xc0, 0, 0, 0, 0], source, ids.0, &versions].concat();
                socket.send_to(&packet, peer).await.unwrap();
            }
        };
        let dialer = dialer(client, "a.example", &QuicSettings::default());
        let error = tokio::select! {
            done = dialer.dial(address) => done.unwrap_err(),
            () = answering => unreachable!(),
        };
        assert_eq!(
            error.to_string(),
            "TLS: the server speaks no version of QUIC that we do (version 1)"
        );
    });
}

#[test]
fn a_renewed_certificate_is_shown_to_the_next_client() {
    run(async {
        let ((_old, old), (_new, new)) = (own(), own());
        let settings = QuicSettings::default();
        let current = Current::from(server_config(&old, None, &[ALPN]).unwrap());
        let socket = UdpSocket::bind(LOOPBACK).unwrap();
        let mut listener = QuicListener::new(
            socket,
            net::udp::SteeringSlot::ALONE,
            &server(current.clone(), &settings),
        )
        .unwrap();
        let address = listener.local_addr();
        let knows = |identity: &Identity| {
            let client = client_config(&Trust::Pins(vec![identity.pin()]), None, &[ALPN]).unwrap();
            dialer(client, "a.example", &settings)
        };
        let (before, served) = shake(&mut listener, &knows(&old), address).await;
        current.replace(server_config(&new, None, &[ALPN]).unwrap());
        shake(&mut listener, &knows(&new), address).await.0.unwrap();
        let (refused, _) = shake(&mut listener, &knows(&old), address).await;
        assert!(matches!(refused.unwrap_err(), CarrierError::PinMismatch { .. }));
        let (mut before, mut served) = (before.unwrap().lane, served.unwrap().lane);
        let mut frames = [bytes::Bytes::from_static(b"goes on")].into();
        testkit::conformance::write_all(&mut *before, &mut frames).await.unwrap();
        let got = testkit::conformance::read_some(&mut *served, 100).await.unwrap();
        assert_eq!(&got[..], b"goes on");
    });
}
