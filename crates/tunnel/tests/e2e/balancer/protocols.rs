//! Datagrams, TLS at either side, and the header that tells the visitor's address.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::UdpSocket;
use std::process::{Command, Stdio};

use tempfile::TempDir;
use testkit::stage::Daemon;

use super::{Balancer, connect, echo, entry, letter, lettered};
use crate::harness::{LONG, Nginx, Origin, SOON, free_port, program, run, tunnel, wait};
use crate::udp::Echo;

/// A certificate for 127.0.0.1, and its authority.
pub(super) struct Certificate(TempDir);

impl Certificate {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let made = run(tunnel(&["generate", "certs", "-s", "127.0.0.1", "-o"]).arg(dir.path()));
        assert!(made.status.success(), "{made:?}");
        Self(dir)
    }

    fn file(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// The keys of an entry at which TLS ends.
    pub(super) fn keys(&self) -> String {
        format!(", tls: {{ cert: {}, key: {} }}", self.file("server.crt"), self.file("server.key"))
    }
}

#[test]
fn tls_ends_at_a_listener_and_begins_towards_a_target() {
    let certificate = Certificate::new();
    let [plain, secure] = [(); 2].map(|()| free_port());
    // The target speaks first: a layer that waited for the visitor would wait for ever.
    let origin = lettered(b'a');
    let at = |tail: &str| {
        format!("listen: \"tcp://127.0.0.1:{plain}\", target: \"tls://127.0.0.1:{secure}\"{tail}")
    };
    let ends = entry(secure, &[origin.port()], &certificate.keys());
    let trust = format!(", target_tls: {{ ca: {} }}", certificate.file("ca.crt"));
    let proxy = Balancer::start(plain, &[ends.clone(), at(&trust)]);
    let visitor = connect(plain);
    assert_eq!(letter(&visitor), b'a');
    echo(&visitor, &[7; 300_000]);
    // A client of other software.
    let mut client = Command::new(program("openssl"));
    client.args(["s_client", "-quiet", "-verify_return_error", "-CAfile"]);
    client.arg(certificate.file("ca.crt")).args(["-connect", &format!("127.0.0.1:{secure}")]);
    let mut client =
        client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut first = [0];
    client.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(first, *b"a");
    client.kill().unwrap();
    client.wait().unwrap();
    // A certificate that is not trusted is no target.
    proxy.reload(&[ends, at("")]);
    assert!(super::is_turned_away(plain));
    proxy.daemon.wait_line(&["is down", "certificate of an unknown authority"], SOON);
}

#[test]
fn half_a_connection_over_tls_goes_on() {
    let certificate = Certificate::new();
    let [plain, secure] = [(); 2].map(|()| free_port());
    let late = Origin::start(|mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        stream.write_all(&all).unwrap();
    });
    let ends = entry(secure, &[late.port()], &certificate.keys());
    let begins = format!(
        "listen: \"tcp://127.0.0.1:{plain}\", target: \"tls://127.0.0.1:{secure}\", \
         target_tls: {{ ca: {} }}",
        certificate.file("ca.crt")
    );
    let _proxy = Balancer::start(plain, &[ends, begins]);
    let mut visitor = connect(plain);
    visitor.write_all(&[9; 200_000]).unwrap();
    visitor.shutdown(std::net::Shutdown::Write).unwrap();
    let mut back = Vec::new();
    visitor.read_to_end(&mut back).unwrap();
    assert_eq!(back.len(), 200_000);
}

#[test]
fn nginx_sees_the_address_of_the_visitor() {
    let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
    let [v1, v2] = [(); 2].map(|()| free_port());
    let conf = format!(
        "worker_processes 1; error_log stderr crit; events {{ worker_connections 100; }}\n\
         http {{ access_log off; server {{ listen 127.0.0.1:{port} proxy_protocol;\n\
         location / {{ return 200 \"$proxy_protocol_addr:$proxy_protocol_port at \
         $proxy_protocol_server_addr:$proxy_protocol_server_port\"; }} }} }}\n"
    );
    let _nginx = Nginx::start_with(dir.path(), &conf, port);
    let with = |at: u16, version: &str| {
        entry(at, &[port], &format!(", proxy_protocol: {version}"))
            .replace("name: web", &format!("name: {version}"))
    };
    let _proxy = Balancer::start(v1, &[with(v1, "v1"), with(v2, "v2")]);
    for at in [v1, v2] {
        let mut visitor = connect(at);
        let own = visitor.local_addr().unwrap();
        visitor.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        visitor.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with(&format!("{own} at 127.0.0.1:{at}")), "{answer}");
    }
}

fn datagrams(port: u16, targets: &[u16], keys: &str) -> String {
    let list: Vec<_> = targets.iter().map(|port| format!("\"udp://127.0.0.1:{port}\"")).collect();
    format!("name: dns, listen: \"udp://127.0.0.1:{port}\", target: [{}]{keys}", list.join(", "))
}

fn asks(port: u16) -> UdpSocket {
    let visitor = UdpSocket::bind("127.0.0.1:0").unwrap();
    visitor.set_read_timeout(Some(LONG)).unwrap();
    visitor.connect(("127.0.0.1", port)).unwrap();
    visitor
}

fn answered(visitor: &UdpSocket, text: &[u8]) {
    visitor.send(text).unwrap();
    let mut answer = [0; 2_000];
    let length = visitor.recv(&mut answer).unwrap();
    assert_eq!(&answer[..length], text);
}

#[test]
fn a_flow_keeps_its_target_and_a_dead_target_costs_none() {
    let (port, dead) = (free_port(), free_port());
    let [a, b] = [Echo::start(), Echo::start()];
    let proxy = Balancer::start(port, &[datagrams(port, &[dead, a.port(), b.port()], "")]);
    let visitors: Vec<_> = (0..12).map(|_| asks(port)).collect();
    for round in 0..3_u8 {
        for visitor in &visitors {
            answered(visitor, &[round; 900]);
        }
    }
    let (of_a, of_b) = (a.peers().len(), b.peers().len());
    assert_eq!(of_a + of_b, 12, "each visitor has one flow");
    assert!(of_a > 0 && of_b > 0, "{of_a} {of_b}");
    let dns = proxy.entry(0);
    assert_eq!((&dns["flows"], &dns["targets"][0]["state"]), (&12.into(), &"down".into()), "{dns}");
    let listed = proxy.ask(&["streams", "--json"]);
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!((&listed["total"], &listed["list"][0]["kind"]), (&12.into(), &"flow".into()));
    assert_eq!(listed["list"][0]["bytes_in"], 2_700, "{listed}");
    // A target that leaves takes its flows along, and the visitors go on at the other target.
    proxy.reload(&[datagrams(port, &[b.port()], "")]);
    for visitor in &visitors {
        wait("an answer of the other target", LONG, || {
            visitor.set_read_timeout(Some(SOON / 20)).unwrap();
            visitor.send(b"again").unwrap();
            visitor.recv(&mut [0; 100]).ok()
        });
    }
    assert_eq!(b.peers().len(), 12, "flows of the target that stayed are the same");
}

#[test]
fn dnsmasq_answers_behind_a_balancer() {
    let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
    let servers = [1, 2].map(|n| {
        let at = free_port();
        let conf = dir.path().join(format!("dnsmasq{n}.conf"));
        let text = format!(
            "port={at}\nlisten-address=127.0.0.1\nbind-interfaces\nno-resolv\nno-hosts\n\
             pid-file\naddress=/small.test/192.0.2.{n}\n"
        );
        fs::write(&conf, text).unwrap();
        let mut command = Command::new(program("dnsmasq"));
        command.arg("--keep-in-foreground").arg(format!("--conf-file={}", conf.display()));
        (at, Daemon::start(&format!("dnsmasq{n}"), dir.path(), &mut command))
    });
    let keys = ", timeouts: { flow: 5s, flow_unanswered: 5s }";
    let dead = free_port();
    let _proxy =
        Balancer::start(port, &[datagrams(port, &[servers[0].0, dead, servers[1].0], keys)]);
    let mut seen = std::collections::BTreeSet::new();
    wait("both servers answer", LONG, || {
        let mut dig = Command::new(program("dig"));
        dig.args(["@127.0.0.1", "-p", &port.to_string(), "+time=5", "+tries=2", "+short"]);
        let answer = run(dig.args(["small.test", "A"]));
        seen.insert(String::from_utf8(answer.stdout).unwrap().trim().to_owned());
        (seen.contains("192.0.2.1") && seen.contains("192.0.2.2")).then_some(())
    });
}
