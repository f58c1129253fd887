//! Targets over TLS and HTTP/2.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::stage::{Daemon, Running};

use super::tls::secure_nginx;
use super::{Doors, certificate, curl, published, talk};
use crate::harness::{SOON, Scheme, free_port, run, wait, wait_listening};
use crate::reload::outcome;

/// The pin of the certificate in a file, as `tunnel` writes it in its log.
fn pin(log: &str) -> &str {
    let at = log.find("pin: \"sha256:").expect(log) + "pin: \"".len();
    log[at..].split('"').next().unwrap()
}

#[test]
fn a_site_over_tls_is_verified_and_reached_on_every_path() {
    let mut doors = Doors::new(Scheme::TLS);
    let (http, tls, dir) = (doors.http, doors.tls, doors.setup.dir().to_owned());
    let (_nginx, port) = secure_nginx(&doors);
    certificate(&dir, "site", "DNS:site.example.com");
    let serving = format!("{0}/site.crt, key: {0}/site.key", dir.display());
    doors.setup.server_lines = doors.setup.server_lines.replace(
        "tls_routes: { ",
        &format!("tls_routes: {{ certificates: [{{ cert: {serving} }}], "),
    );
    let services = |tls: &str| {
        let mut lines = "services:\n".to_owned();
        for (public, keys) in [
            ("http://plain.example.com", ""),
            ("http://options.example.com", ", forwarded: true"),
            ("https://site.example.com", ", forwarded: false"),
        ] {
            let target = format!("target: \"https://127.0.0.1:{port}\"");
            writeln!(lines, "  - {{ public: \"{public}\", {target}{tls}{keys} }}").unwrap();
        }
        lines
    };
    doors.setup.client_lines.push_str(&services(""));
    let mut running = doors.setup.start();
    published(&running, 3);
    let site = dir.join("site.crt");
    let visit = |way: usize| {
        let ca = site.to_str().unwrap();
        let code: &[&str] = &["--write-out", " %{http_code}"];
        let (port, more): (_, &[&str]) = match way {
            0 => (http, &["http://plain.example.com/who"]),
            1 => (http, &["http://options.example.com/who"]),
            2 => (tls, &["--cacert", ca, "--http1.1", "https://site.example.com/who"]),
            _ => (tls, &["--cacert", ca, "--http2", "https://site.example.com/who"]),
        };
        let output = curl(port, &[code, more].concat());
        String::from_utf8(output.stdout).unwrap()
    };
    for way in 0..4 {
        let said = visit(way);
        assert!(said.ends_with(" 502"), "{said}");
    }
    let log = running.client().log();
    for part in ["is self-signed", "CN=test", "inner.example.com", "issued by itself"] {
        assert!(log.contains(part), "{part}: {log}");
    }
    let status = running.status("client").unwrap().to_string();
    assert!(status.contains("it shows a certificate that is self-signed"), "{status}");
    // The pin that the log shows, the file with the certificate itself, and nothing at all.
    let ca = format!(", target_tls: {{ ca: \"{}/inner.crt\" }}", dir.display());
    let pinned = format!(", target_tls: {{ pin: \"{}\" }}", pin(&log));
    let named = ca.replace(" }", ", server_name: inner.example.com }");
    for (settings, name) in [
        (&*pinned, ""),
        (&ca, ""),
        (&named, "inner.example.com"),
        (", target_tls: { insecure: true }", ""),
    ] {
        configure(&running, &services(settings));
        for way in 0..4 {
            assert_eq!(visit(way), format!("{name} TLSv1.3 http/1.1 200"), "{way}: {settings}");
        }
    }
    let warned = running.client().log();
    assert!(warned.contains("the certificate of the target is not verified"), "{warned}");
}

/// Replaces the services in the file of the client, and reloads it.
fn configure(running: &Running, services: &str) {
    let file = running.dir().join("client.yaml");
    let text = fs::read_to_string(&file).unwrap();
    let kept = text.lines().filter(|line| *line != "services:" && !line.starts_with("  - {"));
    let kept: String = kept.map(|line| format!("{line}\n")).collect();
    fs::write(&file, format!("{kept}{services}")).unwrap();
    let (code, said, complaint) = outcome(running.reload("client"));
    assert_eq!(code, Some(0), "{said}{complaint}");
}

/// The Python of an environment with grpcio.
fn python() -> PathBuf {
    const VARIABLE: &str = "GRPC_PYTHON";
    let python = std::env::var_os(VARIABLE);
    python.unwrap_or_else(|| panic!("{VARIABLE} is not set: cargo xtask test e2e")).into()
}

fn grpc(dir: &Path, args: &[&str]) -> Command {
    let script = dir.join("call.py");
    fs::write(&script, include_str!("calls.py")).unwrap();
    let mut command = Command::new(python());
    command.arg(script).args(args);
    command
}

#[test]
fn grpc_passes_with_trailers_streams_deadlines_and_cancelled_calls() {
    let mut doors = Doors::new(Scheme::TLS);
    let (http, tls, dir) = (doors.http, doors.tls, doors.setup.dir().to_owned());
    certificate(&dir, "grpc", "DNS:h2c.example.com,DNS:site.example.com");
    let file = |name: &str| dir.join(name).display().to_string();
    let (plain, secure) = (free_port(), free_port());
    let serve = |name: &str, port: u16, more: &[&str]| {
        let port_text = port.to_string();
        let args = [&["serve", &port_text][..], more].concat();
        let served = Daemon::start(name, &dir, &mut grpc(&dir, &args));
        wait_listening(port, SOON);
        served
    };
    let of_plain = serve("grpc-plain", plain, &[]);
    let of_secure = serve("grpc-secure", secure, &[&file("grpc.key"), &file("grpc.crt")]);
    let serving = format!("{}, key: {}", file("grpc.crt"), file("grpc.key"));
    doors.setup.server_lines = doors.setup.server_lines.replace(
        "tls_routes: { ",
        &format!("tls_routes: {{ certificates: [{{ cert: {serving} }}], "),
    );
    let services = format!(
        "services:\n\
         \x20 - {{ public: [\"http://h2c.example.com\", \"https://h2c.example.com\"], target: \"h2c://127.0.0.1:{plain}\" }}\n\
         \x20 - {{ public: [\"http://site.example.com\", \"https://site.example.com\"], target: \"https://127.0.0.1:{secure}\", \
         target_tls: {{ ca: \"{}\" }} }}\n",
        file("grpc.crt")
    );
    doors.setup.client_lines.push_str(&services);
    let running = doors.setup.start();
    published(&running, 2);
    for (name, target) in [("h2c.example.com", &of_plain), ("site.example.com", &of_secure)] {
        let certificate = file("grpc.crt");
        let mut calls = Vec::new();
        for (port, more) in [(http, &[][..]), (tls, &[&*certificate][..])] {
            let address = format!("127.0.0.1:{port}");
            let args = [&["call", &*address, name][..], more].concat();
            let output = run(&mut grpc(&dir, &args));
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(said.contains("all calls are right"), "{name} {port}: {output:?}");
            let given_up = said.lines().filter_map(|line| line.strip_prefix("given up: "));
            calls.extend(given_up.map(str::to_owned));
        }
        for (what, count) in [("deadline", 2), ("cancel", 2)] {
            let of_kind = calls.iter().filter(|call| call.starts_with(what));
            assert_eq!(of_kind.count(), count, "{calls:?}");
        }
        // The target learns of each call that nobody waits for any more.
        wait("the target hears of cancelled calls", SOON, || {
            let log = target.log();
            calls.iter().all(|call| log.contains(&format!("gone {call} after "))).then_some(())
        });
        assert!(!target.log().contains("after 20 s"), "{}", target.log());
    }
    // Programs over HTTP/1.1 reach a target over HTTP/2 as well. This one resets what is not gRPC.
    let said = talk(http, b"GET / HTTP/1.1\r\nHost: h2c.example.com\r\nConnection: close\r\n\r\n");
    assert!(said.contains("The target ended the stream of HTTP/2"), "{said}");
}
