//! Certificates on both sides: which clients are accepted, and the messages of both sides after a
//! refusal.

use std::fs;
use std::path::Path;
use std::process::Command;

use testkit::certs::{Authority, Flaw, Leaf};

use crate::harness::{Origin, SOON, Scheme, Setup, run};

/// The files of both sides in `dir`: `ca.pem`, and a certificate with key for server and client.
fn make(dir: &Path) {
    let authority = Authority::new("a test's authority").unwrap();
    authority.save(dir).unwrap();
    authority.server(&["127.0.0.1"]).unwrap().save(dir, "server").unwrap();
    authority.client(&[], "home", Flaw::None).unwrap().save(dir, "client").unwrap();
}

/// The server shows its certificate; with `mutual`, clients must show theirs, too.
fn setup(mutual: bool) -> Setup {
    let mut setup = Setup::new(Scheme::TLS);
    let dir = setup.dir().display().to_string();
    make(setup.dir());
    let asks = if mutual { format!(", client_ca: {dir}/ca.pem") } else { String::new() };
    let server = format!("tls: {{ cert: {dir}/server.crt, key: {dir}/server.key{asks} }}\n");
    setup.server_lines.push_str(&server);
    let shows = if mutual {
        format!(", cert: {dir}/client.crt, key: {dir}/client.key")
    } else {
        String::new()
    };
    setup.client_tls = Some(format!("{{ ca: {dir}/ca.pem{shows} }}"));
    setup
}

#[test]
fn a_certificate_of_the_configured_authority_is_trusted() {
    let origin = Origin::echo();
    let running = setup(false).service("echo", origin.port()).start();
    running.wait_echo(running.public("echo"));
}

#[test]
fn a_certificate_of_another_authority_is_told_on_both_sides() {
    let origin = Origin::echo();
    let mut running = setup(false).service("echo", origin.port()).start_server();
    let stranger = Authority::new("somebody else").unwrap();
    fs::write(running.file("ca.pem"), stranger.pem).unwrap();
    running.start_client();
    let address = format!("127.0.0.1:{}", running.server_port());
    running.client().wait_one_line(&["unknown authority", "tls.ca", &address], SOON);
    running.server.wait_one_line(&["127.0.0.1", "certificate", "authority"], SOON);
}

#[test]
fn both_sides_show_certificates() {
    let origin = Origin::echo();
    let mut running = setup(true).wired().service("echo", origin.port()).start();
    let port = running.public("echo");
    running.wait_echo(port);
    // A resumed carrier shows them, too.
    running.wire().kill();
    running.wait_echo(port);
    running.client().wait_line(&["resumed over"], SOON);
}

#[test]
fn a_client_without_a_certificate_is_refused_and_told_on_both_sides() {
    let origin = Origin::echo();
    let mut running = setup(true).service("echo", origin.port()).start_server();
    running.edit_client(|text| {
        let (head, tail) = text.split_once(", cert: ").unwrap();
        format!("{head} }}{}", tail.split_once('}').unwrap().1)
    });
    running.start_client();
    let address = format!("127.0.0.1:{}", running.server_port());
    running.client().wait_one_line(&["client certificate", "tls.cert", &address], SOON);
    running.server.wait_one_line(&["127.0.0.1", "no certificate"], SOON);
    assert!(running.client().is_running(), "it may be mended on the other side");
}

#[test]
fn a_client_with_a_strangers_certificate_is_refused_and_told_on_both_sides() {
    let origin = Origin::echo();
    let mut running = setup(true).service("echo", origin.port()).start_server();
    let stranger = Authority::new("somebody else").unwrap();
    let leaf = stranger.client(&[], "home", Flaw::None).unwrap();
    leaf.save(running.dir(), "client").unwrap();
    running.start_client();
    let address = format!("127.0.0.1:{}", running.server_port());
    running.client().wait_one_line(&["certificate", "authority", &address], SOON);
    running.server.wait_one_line(&["127.0.0.1", "tls.client_ca"], SOON);
}

/// The command of certificates.md, and a client that trusts the certificate itself.
#[test]
fn the_self_signed_certificate_of_the_document_is_trusted_without_an_authority() {
    let document = include_str!("../../docs/certificates.md");
    let (_, command) = document.split_once("```\nopenssl req ").unwrap();
    let (command, _) = command.split_once("```").unwrap();
    let origin = Origin::echo();
    let mut setup = Setup::new(Scheme::TLS);
    let dir = setup.dir().display().to_string();
    let command = format!("openssl req {command}").replace("DNS:example.com", "IP:127.0.0.1");
    let made = run(Command::new("sh").args(["-ec", &command]).current_dir(setup.dir()));
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    setup
        .server_lines
        .push_str(&format!("tls: {{ cert: {dir}/server.crt, key: {dir}/server.key }}\n"));
    setup.client_tls = Some(format!("{{ ca: {dir}/server.crt }}"));
    let running = setup.service("echo", origin.port()).start();
    running.wait_echo(running.public("echo"));
}

/// The certificate that `openssl req -x509` makes where no extension is asked for.
#[test]
fn the_certificate_of_an_authority_is_refused_with_both_ways_out() {
    let mut setup = Setup::new(Scheme::TLS);
    let dir = setup.dir().display().to_string();
    Leaf::self_signed("a.example", true).unwrap().save(setup.dir(), "server").unwrap();
    setup
        .server_lines
        .push_str(&format!("tls: {{ cert: {dir}/server.crt, key: {dir}/server.key }}\n"));
    setup.client_tls = Some(format!("{{ ca: {dir}/server.crt }}"));
    let mut running = setup.start_server();
    running.start_client();
    let words = ["certificate of an authority (CA:TRUE)", "tls.pin", "CA:FALSE"];
    let line = running.client().wait_line(&words, SOON);
    assert!(!line.contains("CaUsedAsEndEntity"), "{line}");
    running.server.wait_one_line(&["that of an authority (CA:TRUE)"], SOON);
}
