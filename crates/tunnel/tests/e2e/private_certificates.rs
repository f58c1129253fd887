//! Private services whose visitors prove themselves by certificates of one authority in the place
//! of a token: what works, each refusal, and what a reload does.

use std::fs;
use std::path::Path;

use testkit::certs::{Authority, Flaw, Leaf};

use crate::harness::{
    LONG, Origin, SOON, Scheme, Setup, bytes, connect, free_port, run, try_connect, tunnel, wait,
};
use crate::private::{Stage, echoes, private_for, tcp};

/// A certificate of a client in the folder, as the keys `cert` and `key`.
fn saved(leaf: &Leaf, dir: &Path, name: &str) -> String {
    let (certificate, key) = leaf.save(dir, name).unwrap();
    format!("cert: {}, key: {}", certificate.display(), key.display())
}

fn client(authority: &Authority, name: &str) -> Leaf {
    authority.client(&[], name, Flaw::None).unwrap()
}

/// An authority in a folder of its own, and its file.
fn authority(dir: &Path, name: &str) -> (Authority, String) {
    let authority = Authority::new(name).unwrap();
    let folder = dir.join(name);
    fs::create_dir(&folder).unwrap();
    let file = authority.save(&folder).unwrap();
    (authority, file.display().to_string())
}

/// A private service for `laptop`, which shows a certificate.
fn certified(name: &str, target: &str, visitor_tls: &str) -> String {
    let service = private_for(name, target, "laptop");
    format!("{service}, visitor_tls: {{ {visitor_tls} }}")
}

fn forward(port: u16, service: &str, tls: &str) -> String {
    let listen = tcp(port);
    format!("  - {{ listen: \"{listen}\", target: \"service://{service}\", tls: {{ {tls} }} }}\n")
}

#[test]
fn certificates_of_one_authority_prove_both_clients_over_both_paths() {
    let dir = tempfile::tempdir().unwrap();
    let (authority, ca) = authority(dir.path(), "ours");
    let home = saved(&client(&authority, "home"), dir.path(), "home");
    // A name among the alternative names counts before the common name.
    let laptop = authority.client(&["laptop"], "somebody", Flaw::None).unwrap();
    let laptop = saved(&laptop, dir.path(), "laptop");
    let echo = Origin::echo();
    let services = [certified("echo", &tcp(echo.port()), &format!("ca: {ca}, {home}"))];
    let mut stage = Stage::new(Setup::new(Scheme::TLS), "home/*", &services);
    let local = free_port();
    let line = forward(local, "home/echo", &format!("ca: {ca}, {laptop}"));
    stage.visit(&format!("forwards:\n{line}"));
    let mut visitor = connect(local);
    assert!(echoes(&mut visitor));
    stage.laptop().wait_line(&["private service home/echo", "goes on over a direct path"], LONG);
    // The relayed carrier is dialled again, and stands by, when the server comes back.
    stage.running.server.kill();
    assert!(
        echoes(&mut visitor),
        "the direct path belongs to the link that the certificates began"
    );
    stage.running.start_server_again();
    stage.laptop().wait_line(&["is connected to", "again, after"], LONG);
    assert!(echoes(&mut visitor));
    let log = stage.home().log();
    assert_eq!(log.matches("visits the private service echo").count(), 1, "{log}");
}

#[test]
fn each_wrong_certificate_has_the_answer_of_a_wrong_token_and_its_reason_in_the_log_of_the_service()
{
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let ((ours, ca), (theirs, other_ca)) = (authority(dir, "ours"), authority(dir, "theirs"));
    let home = saved(&client(&ours, "home"), dir, "home");
    let laptop = saved(&client(&ours, "laptop"), dir, "laptop");
    let server = ours.server(&["laptop"]).unwrap();
    let cases = [
        ("authority", client(&theirs, "laptop"), "is of another authority"),
        ("expired", ours.client(&[], "laptop", Flaw::Expired).unwrap(), "has expired"),
        ("early", ours.client(&[], "laptop", Flaw::NotYetValid).unwrap(), "is not valid yet"),
        ("other", client(&ours, "office"), "is that of office"),
        ("server", server, "is not that of a client"),
    ];
    let echo = Origin::echo();
    let target = tcp(echo.port());
    let mut services: Vec<_> = cases
        .iter()
        .map(|(name, ..)| certified(name, &target, &format!("ca: {ca}, {home}")))
        .collect();
    // What the visitor refuses: an impostor with a certificate of somebody else, or of nobody
    // known.
    let office = saved(&client(&ours, "office"), dir, "office");
    let stranger = saved(&client(&theirs, "home"), dir, "stranger");
    services.push(certified("impostor", &target, &format!("ca: {ca}, {office}")));
    services.push(certified("stranger", &target, &format!("ca: {ca}, {stranger}")));
    // A token where a certificate is demanded, and the reverse.
    let token = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ";
    services.push(certified("token", &target, &format!("ca: {ca}, {home}")));
    services.push(private_for(
        "certificate",
        &target,
        &format!("{{ name: laptop, token: {token} }}"),
    ));
    let mut stage = Stage::new(Setup::new(Scheme::TLS), "home/*", &services);
    let ports: Vec<_> = (0..cases.len() + 4).map(|_| free_port()).collect();
    let mut lines = String::from("forwards:\n");
    for ((name, leaf, _), port) in cases.iter().zip(&ports) {
        let own = saved(leaf, dir, &format!("laptop-{name}"));
        lines += &forward(*port, &format!("home/{name}"), &format!("ca: {ca}, {own}"));
    }
    let last = &ports[cases.len()..];
    for (name, port) in ["impostor", "stranger", "certificate"].iter().zip(last) {
        lines += &forward(*port, &format!("home/{name}"), &format!("ca: {ca}, {laptop}"));
    }
    let with_token = tcp(last[3]);
    lines += &format!(
        "  - {{ listen: \"{with_token}\", target: \"service://home/token\", token: {token} }}\n"
    );
    stage.visit(&lines);
    ports.iter().for_each(|port| bytes::expect_refused(try_connect(*port)));
    for (name, _, why) in &cases {
        let service = format!("no visit of the private service home/{name}:");
        let said =
            stage.laptop().wait_line(&[&service, "client home refuses the certificate"], LONG);
        assert!(!said.contains(why), "the answer has no reason: {said}");
        stage.home().wait_line(&["laptop", &format!("private service {name}:"), why], LONG);
    }
    let untrusted = "client home is not trusted: its certificate";
    stage.laptop().wait_line(&["home/impostor", untrusted, "is that of office"], LONG);
    stage.home().wait_line(&["private service impostor:", "does not trust our certificate"], LONG);
    stage.laptop().wait_line(&["home/stranger", untrusted, "is of another authority"], LONG);
    stage.laptop().wait_line(&["home/certificate", untrusted, "is of another authority"], LONG);
    stage.home().wait_line(&["service certificate:", "does not trust our certificate"], LONG);
    stage.laptop().wait_line(&["home/token", "client home refuses the token"], LONG);
    stage.home().wait_line(&["private service token:", "it shows no certificate"], LONG);
    assert!(!other_ca.is_empty());
}

#[test]
fn a_reload_and_a_new_file_of_the_authority_end_visits_that_it_did_not_certify() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let ((ours, ca), (_, other_ca)) = (authority(dir, "ours"), authority(dir, "theirs"));
    let home = saved(&client(&ours, "home"), dir, "home");
    let laptop = saved(&client(&ours, "laptop"), dir, "laptop");
    let echo = Origin::echo();
    let service = |ca: &str| certified("echo", &tcp(echo.port()), &format!("ca: {ca}, {home}"));
    let mut stage = Stage::new(Setup::new(Scheme::TLS), "home/*", &[service(&ca)]);
    let local = free_port();
    let line = forward(local, "home/echo", &format!("ca: {ca}, {laptop}"));
    stage.visit(&format!("forwards:\n{line}"));
    let mut visitor = connect(local);
    assert!(echoes(&mut visitor));
    stage.publish(&[service(&ca)]);
    assert!(echoes(&mut visitor), "the same authority");
    stage.publish(&[service(&other_ca)]);
    wait("the end of the visit", LONG, || (!echoes(&mut visitor)).then_some(()));
    stage.home().wait_line(&["laptop may not visit the private service echo any more"], SOON);
    bytes::expect_refused(try_connect(local));
    // A broken file changes nothing, and says so.
    stage.publish(&[service(&ca)]);
    let mut visitor = wait("a visit", LONG, || {
        let mut visitor = try_connect(local).ok()?;
        echoes(&mut visitor).then_some(visitor)
    });
    let good = fs::read(&ca).unwrap();
    fs::write(&ca, "no certificate").unwrap();
    let output = stage.running.reload("client");
    assert!(!output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("visitor_tls") && said.contains(&ca), "{said}");
    assert!(echoes(&mut visitor));
    // The file is watched: another authority in it ends the visit without a command.
    fs::write(&ca, fs::read(&other_ca).unwrap()).unwrap();
    wait("the end of the visit", LONG, || (!echoes(&mut visitor)).then_some(()));
    fs::write(&ca, good).unwrap();
    wait("a visit", LONG, || echoes(try_connect(local).ok()?).then_some(()));
}

#[test]
fn a_check_says_what_is_wrong_with_the_certificates_of_visits() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (ours, ca) = authority(dir, "ours");
    let office = saved(&client(&ours, "office"), dir, "office");
    let file = dir.join("client.yaml");
    let check = |tls: &str| {
        let token = "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYzA1bC2dE3fG";
        let line = forward(2222, "home/ssh", tls);
        let text = format!("servers: tls://a\nname: laptop\ntoken: {token}\nforwards:\n{line}");
        fs::write(&file, text).unwrap();
        let output = run(tunnel(&["check", "--config"]).arg(&file));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said + &String::from_utf8_lossy(&output.stdout))
    };
    let (code, said) = check(&format!("ca: {ca}, {office}"));
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("forwards[0].tls.cert") && said.contains("has the name `office`"),
        "{said}"
    );
    let (code, said) = check(&format!("ca: {ca}"));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("`tls` without a certificate of this client"), "{said}");
    let (code, said) = check(&format!("ca: {}, {office}", dir.join("none.pem").display()));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("forwards[0].tls.ca") && said.contains("none.pem"), "{said}");
}
