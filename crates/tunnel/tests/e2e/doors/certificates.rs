//! Certificates by ACME, from a real pebble, and of files.

use std::fs;
use std::time::Instant;

use testkit::certs::Authority;
use testkit::stage::{CheckedPorts, Pebble};

use super::origin::Web;
use super::{Doors, fetch};
use crate::harness::{LONG, Scheme, wait};

#[test]
fn names_get_certificates_and_keep_them_over_a_restart() {
    let mut doors = Doors::new(Scheme::TLS);
    let (http, tls, dir) = (doors.http, doors.tls, doors.setup.dir().to_owned());
    let authority = Authority::new("of pebble's own API").unwrap();
    let ca = authority.save(&dir).unwrap();
    let leaf = authority.server(&["127.0.0.1"]).unwrap();
    let ports = CheckedPorts { http, tls };
    let pebble = Pebble::start(&dir, (&leaf.certificate, &leaf.key), &ca, ports);
    let acme = format!(
        ", acme: {{ directory: \"{}\", email: a@example.com, ca: \"{}\", accept_terms: true }}",
        pebble.directory,
        ca.display()
    );
    doors.setup.server_lines = doors.setup.server_lines.replacen(
        &format!("tls_routes: {{ listen: [\"127.0.0.1:{tls}\"]"),
        &format!("tls_routes: {{ listen: [\"127.0.0.1:{tls}\"]{acme}"),
        1,
    );
    let web = Web::start(&dir, "web");
    let mut running = doors
        .start(&[("https://a.example.com", web.port, ""), ("https://b.example.com", web.port, "")]);
    fs::write(dir.join("root.crt"), pebble.root()).unwrap();
    let root = dir.join("root.crt");
    let root = root.to_str().unwrap().to_owned();
    let began = Instant::now();
    let is_served = |host: &str| {
        let url = format!("https://{host}.example.com/");
        let got = super::curl(tls, &["--cacert", &root, &url]);
        got.status.success().then_some(())
    };
    for host in ["a", "b"] {
        wait("the name has a certificate", LONG, || is_served(host));
    }
    println!("two certificates in {:?}", began.elapsed());
    let orders = pebble.orders();
    running.server.terminate();
    running.server.wait_end(LONG);
    running.start_server_again();
    wait("the name is served again", LONG, || is_served("a"));
    assert!(
        fetch(tls, &["--cacert", &root, "https://b.example.com/"]).contains("\"name\": \"web\"")
    );
    assert_eq!(pebble.orders(), orders, "a kept certificate is not ordered again");
}

/// A wildcard that a program proves by dns-01, beside an account for the other names.
#[test]
fn a_wildcard_is_proved_by_the_program_of_dns_01() {
    let mut doors = Doors::new(Scheme::TLS);
    let (http, tls, dir) = (doors.http, doors.tls, doors.setup.dir().to_owned());
    let authority = Authority::new("of pebble's own API").unwrap();
    let ca = authority.save(&dir).unwrap();
    let leaf = authority.server(&["127.0.0.1"]).unwrap();
    let ports = CheckedPorts { http, tls };
    let pebble = Pebble::start(&dir, (&leaf.certificate, &leaf.key), &ca, ports);
    let hook = Pebble::hook(&dir);
    let account = format!(
        "directory: \"{}\", ca: \"{}\", accept_terms: true",
        pebble.directory,
        ca.display()
    );
    let acme = format!(
        ", acme: [{{ {account}, names: \"*.home.example.com\", account: dns, \
          dns: {{ exec: \"{}\", wait: 0s }} }}, {{ {account} }}]",
        hook.display()
    );
    doors.setup.server_lines = doors.setup.server_lines.replacen(
        &format!("tls_routes: {{ listen: [\"127.0.0.1:{tls}\"]"),
        &format!("tls_routes: {{ listen: [\"127.0.0.1:{tls}\"]{acme}"),
        1,
    );
    let web = Web::start(&dir, "web");
    let running = doors.start(&[
        ("https://*.home.example.com", web.port, ""),
        ("https://b.example.com", web.port, ""),
    ]);
    fs::write(dir.join("root.crt"), pebble.root()).unwrap();
    let root = dir.join("root.crt");
    let root = root.to_str().unwrap();
    for host in ["a.home.example.com", "other.home.example.com", "b.example.com"] {
        wait("the name has a certificate", LONG, || {
            let got = super::curl(tls, &["--cacert", root, &format!("https://{host}/")]);
            got.status.success().then_some(())
        });
    }
    let status = running.status("server").unwrap();
    for (host, challenge) in [("*.home.example.com", "dns-01"), ("b.example.com", "tls-alpn-01")] {
        let all = status["certificates"].as_array().unwrap();
        let one = all.iter().find(|one| one["host"] == host).unwrap();
        assert_eq!(one["challenge"], challenge, "{status}");
        let [renewed, expires] = ["renews_seconds", "expires_seconds"].map(|key| &one[key]);
        assert!(renewed.as_i64().unwrap() < expires.as_i64().unwrap(), "{status}");
    }
    let calls = fs::read_to_string(dir.join("calls")).unwrap();
    assert!(calls.contains("cleanup _acme-challenge.home.example.com. "), "{calls}");
}
