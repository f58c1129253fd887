//! Services by name: HTTP and TLS by name, TLS that ends at the server, and one port for
//! everything.

mod addresses;
mod away;
mod browser;
mod certificates;
mod conformance;
mod content;
mod ends;
mod hostile;
mod http;
mod http2;
mod kept_requests;
mod load;
mod mux;
mod options;
mod origin;
mod partly;
mod passwords;
mod redirects;
mod requests;
mod rules;
mod share;
mod status;
mod targets;
mod tls;
mod visitors;

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output};

use testkit::stage::Running;

use crate::harness::{LONG, SOON, Scheme, Setup, free_port, program, run, try_connect, wait};

/// A server with doors and its client.
struct Doors {
    setup: Setup,
    http: u16,
    tls: u16,
}

impl Doors {
    fn new(scheme: Scheme) -> Self {
        Self::with(scheme, "", "")
    }

    /// Doors with further keys of `http` and of `tls_routes`.
    fn with(scheme: Scheme, http_keys: &str, tls_keys: &str) -> Self {
        let (mut setup, http, tls) = (Setup::new(scheme), free_port(), free_port());
        setup.more_rights.push("http: [\"*\"], tls: [\"*\"]".to_owned());
        writeln!(
            setup.server_lines,
            "http: {{ listen: [\"127.0.0.1:{http}\"]{http_keys} }}\n\
             tls_routes: {{ listen: [\"127.0.0.1:{tls}\"]{tls_keys} }}"
        )
        .unwrap();
        Self { setup, http, tls }
    }

    /// Publishes loopback ports: a name, a target, and further keys.
    fn start(mut self, services: &[(&str, u16, &str)]) -> Running {
        let lines = &mut self.setup.client_lines;
        lines.push_str("services:\n");
        for (nth, (public, target, keys)) in services.iter().enumerate() {
            let target = format!("tcp://127.0.0.1:{target}");
            writeln!(
                lines,
                "  - {{ name: s{nth}, target: \"{target}\", public: \"{public}\"{keys} }}"
            )
            .unwrap();
        }
        let running = self.setup.start();
        published(&running, services.len());
        running
    }
}

/// Waits until this number of services is published.
fn published(running: &Running, count: usize) {
    wait("the services are published", SOON, || {
        let log = running.server.log();
        (log.matches("is published at").count() >= count).then_some(())
    });
}

/// curl with these arguments, for names that lead to `127.0.0.1:port`.
pub(crate) fn curl(port: u16, args: &[&str]) -> Output {
    let mut curl = Command::new(program("curl"));
    curl.args(["--silent", "--show-error", "--max-time", "60"]);
    curl.arg("--connect-to").arg(format!("::127.0.0.1:{port}"));
    run(curl.args(args))
}

/// The body of a successful request.
fn fetch(port: u16, args: &[&str]) -> String {
    let output = curl(port, args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The answer to these bytes until the server ends its direction.
fn talk(port: u16, bytes: &[u8]) -> String {
    let mut socket = connect(port);
    socket.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // A server that closes with unread bytes resets after its answer.
    let _ = socket.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn connect(port: u16) -> TcpStream {
    let socket = try_connect(port).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or(answer)
}

/// A certificate for these names, in the files `NAME.crt` and `NAME.key` of the folder.
pub(crate) fn certificate(dir: &Path, file: &str, names: &str) {
    let mut openssl = Command::new(program("openssl"));
    openssl.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
    ]);
    openssl.args(["-days", "30", "-subj", "/CN=test", "-addext"]);
    openssl.arg(format!("subjectAltName={names}"));
    openssl.arg("-keyout").arg(dir.join(format!("{file}.key")));
    openssl.arg("-out").arg(dir.join(format!("{file}.crt")));
    let made = run(&mut openssl);
    assert!(made.status.success(), "{made:?}");
}
