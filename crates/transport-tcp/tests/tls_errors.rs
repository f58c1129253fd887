//! Each way in which a TLS handshake fails has one exact line of text.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

use crate::setup;

use std::future::poll_fn;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;

use net::listen_group;
use rustls::{ClientConfig, ServerConfig};
use setup::{Ends, Material, dial, ends};
use testkit::certs::{Authority, Flaw, Leaf};
use tls::{Trust, client_config, server_config, server_name};
use transport::{ALPN, CarrierError, Dialer, Listener};
use transport_tcp::{TcpDialer, TcpListener, TlsClient};

fn server(material: &Material, leaf: &Leaf) -> Arc<ServerConfig> {
    server_config(&material.flawed(leaf), None, &[ALPN]).unwrap()
}

fn trusting(material: &Material, ca: &Authority) -> Arc<ClientConfig> {
    let trust = Trust::Authority(ca.save(material.folder()).unwrap());
    client_config(&trust, None, &[ALPN]).unwrap()
}

/// The client's error for a server that shows `leaf`, issued by the right authority, as
/// `a.example`.
async fn said_of(leaf: impl Fn(&Authority) -> Leaf) -> String {
    let (material, ca) = (Material::new(), Authority::new("Test CA").unwrap());
    let server = server(&material, &leaf(&ca));
    let Ends { dialled, .. } = ends(server, trusting(&material, &ca), "a.example").await;
    let error = dialled.unwrap_err();
    assert!(matches!(error, CarrierError::Certificate(_)), "{error:?}");
    assert!(!error.is_network());
    error.to_string()
}

#[tokio::test]
async fn an_expired_certificate_is_told_with_its_day() {
    let said = said_of(|ca| ca.flawed_server(&["a.example"], Flaw::Expired).unwrap()).await;
    assert_eq!(
        said,
        "the server's certificate expired on 2019-12-31; renew it, unless the clock here is wrong"
    );
}

#[tokio::test]
async fn a_certificate_of_the_future_is_told_with_its_day() {
    let said = said_of(|ca| ca.flawed_server(&["a.example"], Flaw::NotYetValid).unwrap()).await;
    assert_eq!(said, "the server's certificate is not valid before 2099-01-01; check the clocks");
}

#[tokio::test]
async fn a_wrong_name_is_told_with_the_right_ones() {
    let said = said_of(|ca| ca.server(&["b.example", "10.0.0.1"]).unwrap()).await;
    assert_eq!(
        said,
        "the server's certificate is for b.example, 10.0.0.1, not for a.example; dial that name, or \
         set `sni` beside the `url` under `servers`"
    );
}

#[tokio::test]
async fn an_unknown_authority_is_told() {
    let said = said_of(|_| Authority::new("Other").unwrap().server(&["a.example"]).unwrap()).await;
    assert_eq!(
        said,
        "the server's certificate is of an unknown authority; set `tls.ca` or `--ca` to the \
         authority's file, or `tls.pin` or `--pin` to the server's key"
    );
}

#[tokio::test]
async fn what_a_client_has_against_a_server_s_certificate_is_told_there_too() {
    let material = Material::new();
    let ca = Authority::new("Test CA").unwrap();
    let [stranger, namesake] = ["Other", "Test CA"].map(|name| Authority::new(name).unwrap());
    let name = &["a.example"];
    let cases = [
        (
            ca.flawed_server(name, Flaw::Expired),
            "it has expired or is not valid yet; renew the file of `tls.cert`, unless a clock is wrong",
        ),
        (
            ca.flawed_server(name, Flaw::NotYetValid),
            "it has expired or is not valid yet; renew the file of `tls.cert`, unless a clock is wrong",
        ),
        (
            ca.server(&["b.example"]),
            "it is not for the name that the client dials, most likely; issue one that is, or have \
             `sni` set there",
        ),
        (
            stranger.server(name),
            "it does not know the authority; `tls.ca` of the client must hold it, or `tls.pin` our \
             key",
        ),
        (
            namesake.server(name),
            "its authority has the name of one that is trusted, but another key",
        ),
        (
            ca.client(name, "a client", Flaw::None),
            "it is not made for servers (extended key usage); show one that is",
        ),
    ];
    for (leaf, why) in cases {
        let server = server(&material, &leaf.unwrap());
        let ends = ends(server, trusting(&material, &ca), "a.example").await;
        let said = ends.accepted.unwrap_err().to_string();
        assert_eq!(said, format!("the client refused our certificate: {why}"));
    }
}

#[tokio::test]
async fn an_authority_of_the_same_name_and_a_client_s_certificate_are_told_as_such() {
    let namesake = Authority::new("Test CA").unwrap();
    assert_eq!(
        said_of(|_| namesake.server(&["a.example"]).unwrap()).await,
        "the server's certificate is of an authority that has the name of one we trust, but another \
         key; was the authority made anew?"
    );
    assert_eq!(
        said_of(|ca| ca.client(&["a.example"], "a client", Flaw::None).unwrap()).await,
        "the server's certificate is not made for servers (extended key usage); issue one that is"
    );
}

/// The client trusts the certificate that the server shows, which is signed by its own key.
async fn self_signed(is_ca: bool) -> Ends {
    let (material, leaf) = (Material::new(), Leaf::self_signed("a.example", is_ca).unwrap());
    let server = server(&material, &leaf);
    let file = material.folder().join("own.pem");
    std::fs::write(&file, &leaf.certificate).unwrap();
    let client = client_config(&Trust::Authority(file), None, &[ALPN]).unwrap();
    ends(server, client, "a.example").await
}

#[tokio::test]
async fn a_self_signed_certificate_of_an_authority_is_told_with_what_to_do() {
    let Ends { dialled, accepted, .. } = self_signed(true).await;
    let said = dialled.unwrap_err().to_string();
    assert!(
        said.starts_with(
            "the server's certificate is the certificate of an authority (CA:TRUE), as a \
             self-signed certificate often is; pin its key by `tls.pin` or `--pin`, or make"
        ),
        "{said}"
    );
    assert!(said.contains("-addext basicConstraints=critical,CA:FALSE"), "{said}");
    let said = accepted.unwrap_err().to_string();
    assert!(said.contains("that of an authority (CA:TRUE); the client's log"), "{said}");
    // What the message recommends.
    self_signed(false).await.dialled.unwrap();
}

#[tokio::test]
async fn another_key_than_the_pinned_one_is_shown() {
    let material = Material::new();
    let (ours, theirs) = (material.own("ours"), material.own("theirs"));
    let client = client_config(&Trust::Pins(vec![theirs.pin()]), None, &[ALPN]).unwrap();
    let server = server_config(&ours, None, &[ALPN]).unwrap();
    let error = ends(server, client, "a.example").await.dialled.unwrap_err();
    let CarrierError::PinMismatch { presented } = error else { panic!("{error:?}") };
    assert_eq!(format!("sha256:{presented}"), ours.pin().to_string());
}

#[tokio::test]
async fn a_server_without_tls_is_told() {
    let other = "does not speak TLS on this port";
    for (answer, said) in [
        ("HTTP/1.1 400 Bad Request\r\n\r\n", other),
        ("SSH-2.0-OpenSSH_9.2\r\n", other),
        ("\0\0\0\0", other),
        ("TNL1\u{1}\0\0\u{20}", "this port of the server is tcp://, without TLS"),
    ] {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let other = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            stream.write_all(answer.as_bytes()).unwrap();
            stream
        });
        let error = dial(address, Material::new().any_client(), "a.example").await.unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
        drop(other.join());
    }
}

#[tokio::test]
async fn a_client_without_tls_is_told() {
    let material = Material::new();
    let server = server_config(&material.own("own"), None, &[ALPN]).unwrap();
    let socket = listen_group(SocketAddr::from(([127, 0, 0, 1], 0)), 1).unwrap().remove(0);
    let mut listener = TcpListener::new(socket, Some(server.into())).unwrap();
    let other = "TLS: the client does not speak TLS on this port";
    for (text, said) in [
        ("GET / HTTP/1.1\r\n\r\n", other),
        ("TRACE / HTTP/1.1\r\n\r\n", other),
        ("EHLO mail.example\r\n", other),
        ("TNL1", "TLS: the client dials this port as tcp://, without TLS: it must say tls:// here"),
    ] {
        let mut peer = std::net::TcpStream::connect(listener.local_addr()).unwrap();
        peer.write_all(text.as_bytes()).unwrap();
        let incoming = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
        let error = incoming.handshake().await.unwrap_err();
        assert_eq!(error.to_string(), said);
        // A browser shows what is wrong.
        let mut answer = String::new();
        peer.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        assert_eq!(head.starts_with("HTTP/1.1 400 "), text.contains(" HTTP/1.1"), "{answer}");
        assert!(head.is_empty() || head.contains(&format!("Content-Length: {}\r\n", body.len())));
    }
}

/// Records of a handshake message of 64 KiB, as rustls would accept it, of which the last byte is
/// missing.
fn unfinished_hello() -> Vec<u8> {
    let message = [&[1, 0, 0xff, 0xff][..], &[0; 0xffff - 1]].concat();
    let record = |part: &[u8]| {
        let length = u16::try_from(part.len()).unwrap().to_be_bytes();
        [&[22, 3, 1][..], &length, part].concat()
    };
    message.chunks(16 << 10).flat_map(record).collect()
}

#[tokio::test]
async fn a_client_hello_ends_within_16_kib() {
    let material = Material::new();
    let server = server_config(&material.own("own"), None, &[ALPN]).unwrap();
    let socket = listen_group(SocketAddr::from(([127, 0, 0, 1], 0)), 1).unwrap().remove(0);
    let mut listener = TcpListener::new(socket, Some(server.into())).unwrap();
    let mut peer = std::net::TcpStream::connect(listener.local_addr()).unwrap();
    peer.write_all(&unfinished_hello()).unwrap();
    let incoming = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
    let error = incoming.handshake().await.unwrap_err();
    assert_eq!(error.to_string(), "TLS: the ClientHello is longer than 16384 bytes");
}

#[tokio::test]
async fn a_missing_or_foreign_alpn_is_told() {
    let material = Material::new();
    let own = material.own("own");
    let trust = Trust::Pins(vec![own.pin()]);
    let (tunnel, other): (&[&[u8]], &[&[u8]]) = (&[ALPN], &[b"h2"]);
    let none: &[&[u8]] = &[];
    let no_alpn = "TLS: the server does not speak tunnel/1 on this port (no ALPN)";
    let refused = "TLS: the server wants another protocol inside TLS (ALPN); tls:// and wss:// are not \
                   the same";
    for (offered, said) in [(none, no_alpn), (other, refused)] {
        let server = server_config(&own, None, offered).unwrap();
        let client = client_config(&trust, None, tunnel).unwrap();
        let error = ends(server, client, "a.example").await.dialled.unwrap_err();
        assert_eq!(error.to_string(), said);
    }
    let server = server_config(&own, None, tunnel).unwrap();
    let client = client_config(&trust, None, none).unwrap();
    let error = ends(server, client, "a.example").await.accepted.unwrap_err();
    assert_eq!(error.to_string(), "TLS: the client does not speak tunnel/1 on this port (no ALPN)");
}

#[tokio::test]
async fn a_closed_port_is_the_weather() {
    let socket = listen_group(SocketAddr::from(([127, 0, 0, 1], 0)), 1).unwrap().remove(0);
    let address = socket.local_addr().unwrap();
    drop(socket);
    let config = Material::new().any_client();
    let tls = TlsClient { config, name: server_name("a.example").unwrap() };
    for dialer in [TcpDialer::new(None), TcpDialer::new(Some(tls))] {
        assert!(dialer.dial(address).await.unwrap_err().is_network());
    }
}
