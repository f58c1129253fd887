//! Certificates on both sides as `tunnel generate certs` makes them, and every refusal of a
//! certificate: each side logs one line with the problem, the place and the remedy. The clocks are
//! right, and the dates of the certificates are wrong.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use testkit::certs::{Authority, Flaw};
use testkit::stage::Daemon;

use crate::harness::{LONG, Origin, SOON, Scheme, Setup, connect, program, run, tunnel};
use crate::reload::outcome;

/// Runs it, which must succeed, and returns its standard output.
fn output(command: &mut Command) -> String {
    let output = run(command);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// `tunnel generate certs` with these words; what it said.
fn generate(dir: &Path, words: &str) -> String {
    let mut command = tunnel(&["generate", "certs", "-o"]);
    output(command.arg(dir).args(words.split_whitespace()))
}

/// The printed lines behind a heading with these words, up to the next empty line.
fn block(said: &str, heading: &str) -> String {
    let from = said.find(heading).unwrap_or_else(|| panic!("no {heading} in {said}"));
    let body = said[from..].split_once("\n\n").unwrap().1;
    format!("{}\n", body.split("\n\n").next().unwrap())
}

fn line<'a>(block: &'a str, start: &str) -> &'a str {
    block.lines().find(|line| line.starts_with(start)).unwrap()
}

/// Where a certificate is all the way from one daemon to the other.
const SCHEMES: [Scheme; 3] = [Scheme::TLS, Scheme::QUIC, Scheme::KCP];

/// A server and a client with generated certificates, by the printed lines.
fn generated(scheme: Scheme) -> Setup {
    let mut setup = Setup::new(scheme);
    // The second call finds the authority of the first.
    let first = generate(setup.dir(), "-s 127.0.0.1 ::1 localhost --client other");
    let second = generate(setup.dir(), "--client home");
    let server = block(&first, "In the file of the server");
    setup.server_lines.push_str(&format!("{}\n", line(&server, "tls:")));
    let client = block(&second, "In the file of client home");
    setup.client_tls = Some(line(&client, "tls:").strip_prefix("tls: ").unwrap().to_owned());
    setup
}

#[test]
fn a_service_is_served_with_generated_certificates_on_both_sides() {
    for scheme in SCHEMES {
        let origin = Origin::echo();
        let mut running = generated(scheme).wired().service("echo", origin.port()).start();
        let port = running.public("echo");
        running.wait_echo(port);
        running.wire().kill();
        running.wait_echo(port);
        running.client().wait_line(&["resumed over"], SOON);
    }
}

/// A file without its line of a token.
fn without_token(text: String) -> String {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("token: "));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_certificate_alone_is_an_identity_for_new_links_and_resumed_ones() {
    SCHEMES.into_iter().for_each(is_an_identity_alone);
}

fn is_an_identity_alone(scheme: Scheme) {
    let origin = Origin::echo();
    let mut running = generated(scheme).wired().service("echo", origin.port()).start_server();
    running.edit_server(without_token);
    let (code, said, complaint) = outcome(running.reload("server"));
    assert_eq!((code, complaint.as_str()), (Some(0), ""));
    assert!(said.contains("a credential is gone"), "{said}");
    running.edit_client(without_token);
    running.start_client();
    let port = running.public("echo");
    running.wait_echo(port);
    running.wire().kill();
    running.wait_echo(port);
    running.client().wait_line(&["resumed over"], SOON);

    // The name of another client, with a certificate that is good for its own.
    let mut other = running.start_another_client(|text| {
        text.replace("name: home", "name: other").replace("\"home\"", "\"other\"")
    });
    other.wait_line(&["certificate", "another name"], SOON);
    let end = |daemon: &mut Daemon| {
        daemon.kill();
        daemon.wait_end(SOON);
    };
    end(&mut other);
    // A token where none is wanted.
    let token = "token: q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi\n";
    let mut with_one = running.start_another_client(|text| format!("{text}{token}"));
    running.server.wait_line(&["client `home`", "by its certificate alone"], SOON);
    end(&mut with_one);

    // A token that is wanted where there is none.
    running.edit_server(|text| {
        text.replace(
            "clients:\n  - name: home\n",
            &format!("clients:\n  - name: home\n    {token}"),
        )
    });
    assert_eq!(outcome(running.reload("server")).0, Some(0));
    running.server.wait_line(&["client `home`", "has a token", "as well"], SOON);
    // Where TLS may end before the server a certificate proves nothing.
    let ours = format!("{}://", scheme.name);
    let mut plain = running.start_another_client(|text| text.replace(&ours, "wss://"));
    assert_eq!(plain.wait_end(SOON).code(), Some(2));
    plain.wait_line(&["token: missing", "a certificate alone is enough where"], SOON);
}

#[test]
fn a_generated_certificate_is_good_for_an_ipv6_address() {
    let origin = Origin::start_on("[::1]:0", drop);
    for scheme in SCHEMES {
        let mut running = generated(scheme).on_ipv6().service("six", origin.port()).start_server();
        running.start_client();
        let reads = format!("connected to {}://[::1]:", scheme.name);
        running.client().wait_line(&[&reads], SOON);
    }
}

#[test]
fn the_printed_lines_are_a_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let said = generate(dir.path(), "-s a.example ::1");
    fs::write(dir.path().join("home.token"), output(&mut tunnel(&["generate", "token"]))).unwrap();
    let server = format!("listen: tls://[::]:7000\n{}", block(&said, "In the file of the server"));
    let service = "services: [{ target: \"tcp://127.0.0.1:22\", public: \"tcp://:10022\" }]\n";
    let client = format!("{}{service}", block(&said, "In the file of client home"));
    for (name, text) in [("server.yaml", server), ("client.yaml", client)] {
        let file = dir.path().join(name);
        fs::write(&file, text).unwrap();
        let summary = output(tunnel(&["check", "--config"]).arg(&file));
        assert!(summary.contains("home"), "{summary}");
    }
}

#[test]
fn nothing_is_written_over_and_keys_are_private() {
    let dir = tempfile::tempdir().unwrap();
    generate(dir.path(), "-s a.example");
    let key = dir.path().join("home.key");
    let before = fs::read(&key).unwrap();
    for name in ["ca", "server", "home"] {
        let file = fs::metadata(dir.path().join(format!("{name}.key"))).unwrap();
        assert_eq!(file.permissions().mode() & 0o777, 0o600, "{name}");
    }
    let mut again = tunnel(&["generate", "certs", "--client", "home", "-o"]);
    let refused = run(again.arg(dir.path()));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1));
    assert!(said.contains("home.key") && said.contains("already there"), "{said}");
    assert_eq!(fs::read(key).unwrap(), before);
}

#[test]
fn openssl_takes_generated_certificates_in_its_strictest_mood() {
    let openssl = || Command::new(program("openssl"));
    let origin = Origin::echo();
    let running = generated(Scheme::TLS).service("echo", origin.port()).start();
    let verify = |words: &str| {
        let mut command = openssl();
        command.current_dir(running.dir()).args(["verify", "-x509_strict", "-CAfile", "ca.crt"]);
        output(command.args(words.split_whitespace()))
    };
    for name in ["-verify_ip 127.0.0.1", "-verify_ip ::1", "-verify_hostname localhost"] {
        assert!(verify(&format!("-purpose sslserver {name} server.crt")).contains("OK"));
    }
    let clients = verify("-purpose sslclient home.crt other.crt");
    assert_eq!(clients.matches(": OK").count(), 2, "{clients}");

    // A greeting comes from the server only if both certificates verified.
    let mut dial = openssl();
    dial.current_dir(running.dir()).args(["s_client", "-brief", "-verify_return_error"]);
    dial.args(["-connect", &format!("127.0.0.1:{}", running.server_port())]);
    dial.args(["-verify_ip", "127.0.0.1", "-alpn", "tunnel/1", "-CAfile", "ca.crt"]);
    dial.args(["-cert", "home.crt", "-key", "home.key", "-ign_eof"]);
    let answer = run(&mut dial);
    let said = String::from_utf8_lossy(&answer.stderr);
    assert!(said.contains("Verification: OK"), "{said}");
    assert!(answer.stdout.windows(4).any(|window| window == b"TNL1"), "{answer:?}");
}

#[test]
fn an_authority_that_openssl_made_issues_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let openssl = || {
        let mut command = Command::new(program("openssl"));
        command.current_dir(dir.path());
        command
    };
    let mut make = openssl();
    make.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "400", "-utf8"]);
    make.args(["-subj", "/O=Müller & Co/CN=Root", "-addext", "keyUsage=critical,keyCertSign"]);
    output(make.args(["-keyout", "ca.key", "-out", "ca.crt"]));
    let said = generate(dir.path(), "-s a.example --client home -y 5");
    assert_eq!(said.matches("when its authority ends").count(), 2, "{said}");
    assert!(!said.contains("new authority"), "{said}");
    for words in ["sslserver -verify_hostname a.example server.crt", "sslclient home.crt"] {
        let mut verify = openssl();
        verify.args(["verify", "-x509_strict", "-CAfile", "ca.crt", "-purpose"]);
        assert!(output(verify.args(words.split_whitespace())).contains(": OK"));
    }
}

/// Ready-made certificates of one authority for both sides, which a test makes wrong in one way.
pub(crate) fn made(scheme: Scheme, spoil: impl FnOnce(&Authority, &Path)) -> Setup {
    let mut setup = Setup::new(scheme);
    let authority = Authority::new("a test's authority").unwrap();
    let dir = setup.dir().to_owned();
    authority.save(&dir).unwrap();
    fs::write(dir.join("clients.pem"), &authority.pem).unwrap();
    authority.server(&["127.0.0.1"]).unwrap().save(&dir, "server").unwrap();
    authority.client(&[], "home", Flaw::None).unwrap().save(&dir, "client").unwrap();
    spoil(&authority, &dir);
    let tls = "tls: { cert: server.crt, key: server.key, client_ca: clients.pem }\n";
    setup.server_lines.push_str(tls);
    setup.client_tls = Some("{ ca: ca.pem, cert: client.crt, key: client.key }".to_owned());
    setup
}

/// Each side has one line with its words, and with where it happened.
fn assert_reported(
    spoil: impl Fn(&Authority, &Path),
    client_reads: &[&str],
    server_reads: &[&str],
) {
    for scheme in SCHEMES {
        let origin = Origin::echo();
        let mut running = made(scheme, &spoil).service("echo", origin.port()).start_server();
        running.start_client();
        let address = format!("{}://127.0.0.1:{}", scheme.name, running.server_port());
        let client_reads = [client_reads, &[address.as_str()]].concat();
        running.client().wait_one_line(&client_reads, SOON);
        running.server.wait_one_line(&[server_reads, &["from 127.0.0.1:"]].concat(), SOON);
        assert!(running.client().is_running(), "it may be mended on the other side");
    }
}

#[test]
fn a_server_s_certificate_that_expired() {
    let spoil = |ca: &Authority, dir: &Path| {
        ca.flawed_server(&["127.0.0.1"], Flaw::Expired).unwrap().save(dir, "server").unwrap();
    };
    assert_reported(
        spoil,
        &["the server's certificate expired on 2019-12-31", "renew"],
        &["refused our certificate", "expired or is not valid yet", "tls.cert"],
    );
}

#[test]
fn a_server_s_certificate_that_is_not_valid_yet() {
    let spoil = |ca: &Authority, dir: &Path| {
        ca.flawed_server(&["127.0.0.1"], Flaw::NotYetValid).unwrap().save(dir, "server").unwrap();
    };
    assert_reported(
        spoil,
        &["the server's certificate is not valid before 2099-01-01", "clock"],
        &["refused our certificate", "expired or is not valid yet", "clock"],
    );
}

#[test]
fn a_server_s_certificate_for_another_name() {
    let spoil = |ca: &Authority, dir: &Path| {
        ca.server(&["other.example"]).unwrap().save(dir, "server").unwrap();
    };
    assert_reported(
        spoil,
        &["the server's certificate is for other.example, not for 127.0.0.1", "sni"],
        &["refused our certificate", "not for the name that the client dials", "sni"],
    );
}

#[test]
fn a_server_s_certificate_of_another_authority() {
    let spoil = |_: &Authority, dir: &Path| {
        let stranger = Authority::new("somebody else").unwrap();
        stranger.server(&["127.0.0.1"]).unwrap().save(dir, "server").unwrap();
    };
    assert_reported(
        spoil,
        &["the server's certificate is of an unknown authority", "tls.ca"],
        &["refused our certificate", "does not know the authority", "tls.ca"],
    );
}

#[test]
fn a_client_s_certificate_that_expired() {
    let spoil = |ca: &Authority, dir: &Path| {
        ca.client(&[], "home", Flaw::Expired).unwrap().save(dir, "client").unwrap();
    };
    assert_reported(
        spoil,
        &["refused our client certificate", "expired or is not valid yet", "tls.cert"],
        &["the client's certificate expired on 2019-12-31", "renew"],
    );
}

#[test]
fn a_client_s_certificate_that_is_not_valid_yet() {
    let spoil = |ca: &Authority, dir: &Path| {
        ca.client(&[], "home", Flaw::NotYetValid).unwrap().save(dir, "client").unwrap();
    };
    assert_reported(
        spoil,
        &["refused our client certificate", "expired or is not valid yet", "clock"],
        &["the client's certificate is not valid before 2099-01-01", "clock"],
    );
}

#[test]
fn a_client_s_certificate_for_another_client() {
    let spoil = |ca: &Authority, dir: &Path| {
        ca.client(&[], "laptop", Flaw::None).unwrap().save(dir, "client").unwrap();
    };
    assert_reported(
        spoil,
        &["the client's certificate is for another name", "`name`", "`tls.cert`"],
        &["certificate of \"laptop\"", "for another name", "`name`"],
    );
}

#[test]
fn a_client_s_certificate_of_another_authority() {
    let spoil = |_: &Authority, dir: &Path| {
        let stranger = Authority::new("somebody else").unwrap();
        stranger.client(&[], "home", Flaw::None).unwrap().save(dir, "client").unwrap();
    };
    assert_reported(
        spoil,
        &["refused our client certificate", "`tls.client_ca`", "add it there"],
        &["the client's certificate is of an authority that is not in", "`tls.client_ca`"],
    );
}

#[test]
fn a_client_that_shows_a_server_s_certificate() {
    let spoil = |ca: &Authority, dir: &Path| {
        ca.server(&["home"]).unwrap().save(dir, "client").unwrap();
    };
    assert_reported(
        spoil,
        &["refused our client certificate", "not made for clients"],
        &["the client's certificate is not made for clients", "issue one that is"],
    );
}

#[test]
fn one_s_own_certificate_with_wrong_dates_is_told_at_the_start() {
    let setup = made(Scheme::TLS, |ca, dir| {
        ca.flawed_server(&["127.0.0.1"], Flaw::Expired).unwrap().save(dir, "server").unwrap();
        ca.client(&[], "home", Flaw::NotYetValid).unwrap().save(dir, "client").unwrap();
    });
    let origin = Origin::echo();
    let mut running = setup.service("echo", origin.port()).start_server();
    running.start_client();
    running.server.wait_one_line(&["server.crt: the certificate expired on 2019-12-31"], SOON);
    let early = "client.crt: the certificate is not valid before 2099-01-01; is the clock right?";
    running.client().wait_one_line(&[early], SOON);
}

#[test]
fn a_client_is_out_when_its_entry_is_removed_however_good_its_certificate() {
    for scheme in SCHEMES {
        let origin = Origin::echo();
        let mut running = made(scheme, |_, _| {}).service("echo", origin.port()).start();
        running.wait_echo(running.public("echo"));
        running.server.kill();
        let file = running.file("server.yaml");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("- name: home\n", "- name: somebody\n")).unwrap();
        running.start_server_again();
        let address = format!("{}://127.0.0.1:{}", scheme.name, running.server_port());
        let reads = ["unknown client name or wrong token", "`clients` of the server", &address];
        running.client().wait_one_line(&reads, SOON);
        let reads = ["client `home` from 127.0.0.1:", "no entry under `clients` has this name"];
        running.server.wait_one_line(&reads, SOON);
    }
}

#[test]
fn every_client_of_an_authority_is_out_when_it_is_taken_out_of_client_ca() {
    SCHEMES.into_iter().for_each(is_out_with_its_authority);
}

fn is_out_with_its_authority(scheme: Scheme) {
    let origin = Origin::echo();
    let next = Authority::new("the next authority").unwrap();
    let setup = made(scheme, |ca, dir| {
        // While certificates are replaced, both are good.
        fs::write(dir.join("clients.pem"), format!("{}{}", ca.pem, next.pem)).unwrap();
    });
    let mut running = setup.service("echo", origin.port()).start();
    running.wait_echo(running.public("echo"));
    running.server.kill();
    fs::write(running.file("clients.pem"), &next.pem).unwrap();
    running.start_server_again();
    let address = format!("{}://127.0.0.1:{}", scheme.name, running.server_port());
    let reads = ["refused our client certificate", "`tls.client_ca`", &address];
    running.client().wait_one_line(&reads, SOON);
    let reads = ["from 127.0.0.1:", "an authority that is not in the file of `tls.client_ca`"];
    running.server.wait_one_line(&reads, SOON);

    // With a certificate of the next one the same client is back.
    let leaf = next.client(&[], "home", Flaw::None).unwrap();
    leaf.save(running.dir(), "client").unwrap();
    running.client().kill();
    running.start_client();
    running.wait_echo(running.public("echo"));
}

/// Without a restart, and with a ticket of a session that the authority of before was good for.
#[test]
fn an_authority_that_a_reload_takes_away_lets_nobody_in_again() {
    for scheme in SCHEMES {
        let origin = Origin::echo();
        let setup = made(scheme, |_, _| {}).wired().service("echo", origin.port());
        let mut running = setup.start();
        running.wait_echo(running.public("echo"));
        let next = Authority::new("the next authority").unwrap();
        fs::write(running.file("clients.pem"), &next.pem).unwrap();
        assert_eq!(outcome(running.reload("server")).0, Some(0));
        running.wire().kill();
        // Without something to say a path of UDP that is gone is noticed late.
        connect(running.public("echo")).write_all(b"?").unwrap();
        running.client().wait_line(&["refused our client certificate", "`tls.client_ca`"], LONG);
        let reads = ["an authority that is not in the file of `tls.client_ca`"];
        running.server.wait_line(&reads, SOON);
        assert!(!running.client().log().contains("resumed over"), "{}", running.client().log());
    }
}

#[test]
fn a_client_that_shows_no_certificate_is_told_that_one_is_wanted() {
    for scheme in SCHEMES {
        let origin = Origin::echo();
        let mut setup = made(scheme, |_, _| {});
        setup.client_tls = Some("{ ca: ca.pem }".to_owned());
        let mut running = setup.service("echo", origin.port()).start_server();
        running.start_client();
        running.client().wait_one_line(&["certificate", "`tls.cert`"], SOON);
        running.server.wait_one_line(&["certificate", "from 127.0.0.1:"], SOON);
        assert!(running.client().is_running(), "it may be mended on the other side");
    }
}
