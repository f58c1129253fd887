use std::io::{Read as _, Write as _};

use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, Connection, ServerConnection, SupportedProtocolVersion,
};

use super::*;
use crate::verify::KeyVerifier;
use crate::{Trust, client_config, fleeting, server_config};

const NONE: Cpu =
    Cpu { aes: false, clmul: false, avx2: false, vaes: false, vpclmul: false, avx512: false };
const AES: Cpu = Cpu { aes: true, clmul: true, ..NONE };
const AVX2: Cpu = Cpu { avx2: true, ..AES };
const VAES: Cpu = Cpu { vaes: true, vpclmul: true, ..AVX2 };
const ALL: Cpu = Cpu { avx512: true, ..VAES };

#[test]
fn the_library_and_the_order_follow_the_cpu() {
    let (aws_lc, ring) = (Backend::AwsLc, Backend::Ring);
    for (name, cpu, backend, prefers_aes) in [
        ("Core 2: no AES", NONE, aws_lc, false),
        ("a guest with AES and without PCLMULQDQ", Cpu { clmul: false, ..AES }, aws_lc, false),
        ("Sandy Bridge: AES over 128 bits", AES, aws_lc, true),
        ("Haswell, Zen 2: AVX2", AVX2, aws_lc, true),
        ("Skylake-X: AVX-512 without VAES", Cpu { avx512: true, ..AVX2 }, aws_lc, true),
        ("Zen 3: VAES with AVX2", VAES, ring, true),
        ("Alder Lake: VAES with AVX2", VAES, ring, true),
        ("a guest with VAES and without AVX2", Cpu { avx2: false, ..VAES }, aws_lc, true),
        ("a guest with VAES and without VPCLMULQDQ", Cpu { vpclmul: false, ..VAES }, aws_lc, true),
        ("Ice Lake: VAES with AVX-512", ALL, aws_lc, true),
        ("Zen 4: VAES with AVX-512", ALL, aws_lc, true),
        ("Graviton, Apple M1: AES and PMULL of ARMv8", AES, aws_lc, true),
        ("Raspberry Pi 4: ARMv8 without AES", NONE, aws_lc, false),
    ] {
        let suites = Suites::of(cpu);
        assert_eq!(suites, Suites { aes: backend, prefers_aes }, "{name}");
        assert_eq!(suites.backend(CipherSuite::TLS13_AES_256_GCM_SHA384), backend, "{name}");
        let first = suites.provider().cipher_suites[0].suite();
        assert_eq!(first == CipherSuite::TLS13_AES_128_GCM_SHA256, prefers_aes, "{name}");
    }
}

/// The suites by the names of IANA, without what all names share.
fn names(cpu: Cpu) -> Vec<String> {
    let name = |suite: &SupportedCipherSuite| {
        let name = suite.suite().as_str().unwrap();
        name.replace("TLS_ECDHE_", "").replace("_WITH", "").replace("_POLY1305_SHA256", "")
    };
    Suites::of(cpu).provider().cipher_suites.iter().map(name).collect()
}

#[test]
fn all_suites_are_there_in_the_order_of_preference() {
    let with = [
        "TLS13_AES_128_GCM_SHA256",
        "TLS13_AES_256_GCM_SHA384",
        "TLS13_CHACHA20",
        "ECDSA_AES_128_GCM_SHA256",
        "RSA_AES_128_GCM_SHA256",
        "ECDSA_AES_256_GCM_SHA384",
        "RSA_AES_256_GCM_SHA384",
        "ECDSA_CHACHA20",
        "RSA_CHACHA20",
    ];
    assert_eq!(names(VAES), with);
    assert_eq!(names(ALL), with);
    let without = [2, 0, 1, 7, 8, 3, 4, 5, 6].map(|n| with[n]);
    assert_eq!(names(NONE), without);
}

#[test]
fn key_exchange_and_signatures_are_those_of_aws_lc() {
    let whole = aws_lc_rs::default_provider();
    let groups = |provider: &CryptoProvider| -> Vec<_> {
        provider.kx_groups.iter().map(|group| group.name()).collect()
    };
    for cpu in [NONE, VAES, ALL] {
        let ours = Suites::of(cpu).provider();
        assert_eq!(groups(&ours), groups(&whole));
        assert_eq!(groups(&ours)[0], rustls::NamedGroup::X25519MLKEM768);
        let schemes = ours.signature_verification_algorithms.supported_schemes();
        assert_eq!(schemes, whole.signature_verification_algorithms.supported_schemes());
    }
}

/// Shakes hands over `version` and sends a byte each way; returns the suite.
fn agreed(client: Cpu, server: Cpu, version: &'static SupportedProtocolVersion) -> CipherSuite {
    let (client, server) = (Suites::of(client), Suites::of(server));
    let identity = fleeting(&["a.example".to_owned()]).unwrap();
    let verifier: Arc<dyn ServerCertVerifier> =
        Arc::new(KeyVerifier::of_pins(vec![identity.pin()]));
    let client = ClientConfig::builder_with_provider(Arc::new(client.provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    let shown = rustls::sign::SingleCertAndKey::from(identity.certified());
    let mut config = ServerConfig::builder_with_provider(Arc::new(server.provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(shown));
    server.order(&mut config);
    shake(Arc::new(client), Arc::new(config))
}

fn shake(client: Arc<ClientConfig>, server: Arc<ServerConfig>) -> CipherSuite {
    let name = ServerName::try_from("a.example").unwrap();
    let mut client = Connection::from(ClientConnection::new(client, name).unwrap());
    let mut server = Connection::from(ServerConnection::new(server).unwrap());
    let pass = |from: &mut Connection, to: &mut Connection| {
        let mut wire = Vec::new();
        while from.wants_write() {
            from.write_tls(&mut wire).unwrap();
        }
        let mut wire = &wire[..];
        while !wire.is_empty() {
            to.read_tls(&mut wire).unwrap();
            to.process_new_packets().unwrap();
        }
    };
    while client.is_handshaking() || server.is_handshaking() {
        pass(&mut client, &mut server);
        pass(&mut server, &mut client);
    }
    client.writer().write_all(b"1").unwrap();
    server.writer().write_all(b"2").unwrap();
    pass(&mut client, &mut server);
    pass(&mut server, &mut client);
    let mut heard = [[0], [0]];
    server.reader().read_exact(&mut heard[0]).unwrap();
    client.reader().read_exact(&mut heard[1]).unwrap();
    assert_eq!(heard, [*b"1", *b"2"]);
    let both = [client, server].map(|end| end.negotiated_cipher_suite().unwrap().suite());
    assert_eq!(both[0], both[1]);
    both[0]
}

#[test]
fn a_cpu_without_aes_gets_chacha20_at_either_end() {
    let aes = [
        CipherSuite::TLS13_AES_128_GCM_SHA256,
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ];
    let chacha = [
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ];
    for (n, version) in [&TLS13, &TLS12].into_iter().enumerate() {
        // `VAES` and `ALL`: both libraries, against each other and against themselves.
        for client in [NONE, VAES, ALL] {
            for server in [NONE, VAES, ALL] {
                let wanted = if client == NONE || server == NONE { chacha[n] } else { aes[n] };
                assert_eq!(agreed(client, server, version), wanted, "{client:?} {server:?}");
            }
        }
    }
}

/// With two libraries compiled in, rustls panics where it has to guess a provider.
#[test]
fn configurations_need_no_default_provider() {
    let identity = fleeting(&["a.example".to_owned()]).unwrap();
    let server = server_config(&identity, None, &[]).unwrap();
    let trust = Trust::Pins(vec![identity.pin()]);
    let client = client_config(&trust, None, &[]).unwrap();
    let wanted = provider().cipher_suites[0].suite();
    assert_eq!(shake(client, server), wanted);
    assert!(CryptoProvider::get_default().is_none());
}

#[test]
fn the_status_has_the_names_of_iana() {
    let named = |n: usize| cipher(provider().cipher_suites[n]).suite;
    let mut names = [named(0), named(1), named(2)];
    names.sort_unstable();
    let all = ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];
    assert_eq!(names, all);
    let backend = |n: usize| cipher(provider().cipher_suites[n]).backend;
    assert!((0..3).all(|n| ["aws-lc", "ring"].contains(&backend(n))));
}
