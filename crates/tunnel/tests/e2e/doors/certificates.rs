//! Certificates by ACME, from a real pebble.

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
