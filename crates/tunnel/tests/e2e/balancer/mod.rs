//! `tunnel proxy`: a balancer without a tunnel.

mod errors;
mod load;
mod protocols;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;
use testkit::stage::Daemon;

use crate::admin::{Api, TOKEN};
use crate::harness::{
    LONG, Origin, SOON, connect, free_port, run, try_connect, tunnel, wait, wait_listening,
};

/// A proxy with its file.
struct Balancer {
    dir: TempDir,
    daemon: Daemon,
}

impl Balancer {
    /// Starts a proxy with these entries, each a flow map, and waits until the port listens.
    fn start(port: u16, entries: &[String]) -> Self {
        Self::start_with(port, entries, "")
    }

    /// As [`Self::start`], with further lines of the file.
    fn start_with(port: u16, entries: &[String], lines: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        write(&dir, entries, lines);
        let config = dir.path().join("proxy.yaml");
        let mut command = tunnel(&["proxy", "--workers", "2", "--config"]);
        let daemon = Daemon::start("proxy", dir.path(), command.arg(config));
        wait_listening(port, SOON);
        let proxy = Self { dir, daemon };
        wait("the control socket", SOON, || proxy.try_status());
        proxy
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("proxy.sock")
    }

    fn ask(&self, words: &[&str]) -> Output {
        run(tunnel(words).arg("--control").arg(self.socket()))
    }

    fn try_status(&self) -> Option<Value> {
        let output = self.ask(&["status", "--json"]);
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// An entry of the status.
    fn entry(&self, n: usize) -> Value {
        self.try_status().unwrap()["proxies"][n].clone()
    }

    /// Writes other entries into the file and reloads it.
    fn reload(&self, entries: &[String]) {
        write(&self.dir, entries, "");
        let output = self.ask(&["reload"]);
        assert!(output.status.success(), "{output:?}");
    }
}

fn write(dir: &TempDir, entries: &[String], lines: &str) {
    let list: String = entries.iter().map(|entry| format!("  - {{ {entry} }}\n")).collect();
    let control = dir.path().join("proxy.sock");
    let text = format!("proxies:\n{list}control: {}\n{lines}", control.display());
    fs::write(dir.path().join("proxy.yaml"), text).unwrap();
}

/// An entry `web` at the port, with the ports of its targets and further keys.
fn entry(port: u16, targets: &[u16], keys: &str) -> String {
    let list: Vec<_> = targets.iter().map(|port| format!("\"tcp://127.0.0.1:{port}\"")).collect();
    format!("name: web, listen: \"tcp://127.0.0.1:{port}\", target: [{}]{keys}", list.join(", "))
}

/// An origin that greets each visitor with its own letter, and then returns what it gets.
fn lettered(letter: u8) -> Origin {
    Origin::start(move |mut stream: TcpStream| {
        if stream.write_all(&[letter]).is_ok() {
            drop(std::io::copy(&mut &stream, &mut &stream));
        }
    })
}

fn letter(mut visitor: &TcpStream) -> u8 {
    let mut letter = [0];
    visitor.read_exact(&mut letter).unwrap();
    letter[0]
}

/// Whether a visitor gets nothing of a target that speaks first. The reset may come with the
/// connection.
fn is_turned_away(port: u16) -> bool {
    try_connect(port).and_then(|mut visitor| visitor.read(&mut [0])).ok() != Some(1)
}

/// How many of the visitors got which target.
fn counts(port: u16, visitors: usize) -> BTreeMap<char, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..visitors {
        *counts.entry(letter(&connect(port)).into()).or_default() += 1;
    }
    counts
}

/// Sends bytes and compares what returns.
fn echo(mut visitor: &TcpStream, text: &[u8]) {
    visitor.write_all(text).unwrap();
    let mut back = vec![0; text.len()];
    visitor.read_exact(&mut back).unwrap();
    assert_eq!(back, text);
}

#[test]
fn a_drained_entry_of_a_proxy_turns_visitors_away_until_the_drain_ends() {
    let (a, b, port) = (lettered(b'a'), lettered(b'b'), free_port());
    let proxy = Balancer::start(port, &[entry(port, &[a.port(), b.port()], "")]);
    let (held, of_a) = (connect(port), format!("tcp://127.0.0.1:{}", a.port()));
    letter(&held);
    assert!(proxy.ask(&["drain", &of_a]).status.success());
    assert_eq!(counts(port, 4), [('b', 4)].into());
    assert_eq!(proxy.entry(0)["targets"][0]["state"], "draining");
    assert!(proxy.ask(&["drain", "web"]).status.success());
    assert_eq!(proxy.entry(0)["state"], "draining");
    assert!(is_turned_away(port));
    echo(&held, b"still");
    assert!(proxy.ask(&["undrain", "web"]).status.success());
    assert_eq!(counts(port, 4), [('a', 2), ('b', 2)].into());
    assert_eq!(proxy.entry(0)["state"], "up");
}

#[test]
fn flags_alone_make_a_balancer_that_refuses_surplus_connections_at_once() {
    let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
    let origins = [lettered(b'a'), lettered(b'b')];
    let targets = origins.each_ref().map(|one| format!("tcp://127.0.0.1:{}", one.port()));
    let (listen, socket) = (format!("tcp://127.0.0.1:{port}"), dir.path().join("p.sock"));
    let mut command = tunnel(&["proxy", "--listen", &listen, "--target", &targets.join(",")]);
    command.args(["--balance", "source_hash", "--limit-connections", "3", "--control"]);
    let daemon = Daemon::start("proxy", dir.path(), command.arg(&socket));
    wait_listening(port, SOON);
    let held = [(); 3].map(|()| connect(port));
    let letters = held.each_ref().map(letter);
    assert!(letters.iter().all(|one| *one == letters[0]), "one address has one target");
    // Surplus connections hear of it at once, and are counted.
    for _ in 0..4 {
        assert!(is_turned_away(port));
    }
    let status = run(tunnel(&["status", "--json", "--control"]).arg(&socket));
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["role"], "proxy");
    let web = &status["proxies"][0];
    assert_eq!((&web["streams"], &web["refused"]["limit"]), (&3.into(), &4.into()), "{web}");
    assert_eq!(web["name"], format!("tcp-{port}"));
    drop(held);
    wait("a place is free", SOON, || {
        let mut visitor = try_connect(port).ok()?;
        visitor.read_exact(&mut [0]).ok()
    });
    drop(daemon);
}

#[test]
fn either_side_may_end_its_direction_and_go_on_reading() {
    let port = free_port();
    // A target that answers when the visitor has ended, as the system's echo of a whole file does.
    let late = Origin::start(|mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        stream.write_all(&all).unwrap();
    });
    // A target that ends first, and reads on.
    let early = Origin::start(|mut stream| {
        stream.write_all(b"first").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), 3_000_000);
    });
    let other = free_port();
    let second = entry(other, &[early.port()], "").replace("name: web", "name: early");
    let _proxy = Balancer::start(port, &[entry(port, &[late.port()], ""), second]);
    let sent: Vec<u8> = (0..3_000_000_u32).map(|n| n as u8).collect();
    let mut visitor = connect(port);
    visitor.write_all(&sent).unwrap();
    visitor.shutdown(Shutdown::Write).unwrap();
    let mut back = Vec::new();
    visitor.read_to_end(&mut back).unwrap();
    assert!(back == sent, "{} bytes", back.len());
    let mut visitor = connect(other);
    let mut first = Vec::new();
    visitor.read_to_end(&mut first).unwrap();
    assert_eq!(first, b"first");
    visitor.write_all(&sent).unwrap();
    drop(visitor);
    early.wait_one(LONG);
}

#[test]
fn a_target_that_refuses_costs_a_visitor_only_the_next_target() {
    let (port, dead, origin) = (free_port(), free_port(), lettered(b'b'));
    let proxy = Balancer::start(port, &[entry(port, &[dead, origin.port()], "")]);
    assert_eq!(counts(port, 5), BTreeMap::from([('b', 5)]));
    let web = proxy.entry(0);
    assert_eq!(web["targets"][0]["state"], "down", "{web}");
    assert_eq!(web["state"], "up", "{web}");
    proxy.daemon.wait_line(&["the target of proxy web is down: tcp://127.0.0.1:"], SOON);
}

#[test]
fn targets_and_limits_change_while_connections_go_on() {
    let port = free_port();
    let [a, b] = [lettered(b'a'), lettered(b'b')];
    let proxy = Balancer::start(port, &[entry(port, &[a.port()], "")]);
    let held = connect(port);
    assert_eq!(letter(&held), b'a');
    proxy.reload(&[entry(port, &[b.port()], ", limits: { connections: 2 }")]);
    echo(&held, b"still here");
    let second = connect(port);
    assert_eq!(letter(&second), b'b');
    assert!(is_turned_away(port), "two are the most");
    let other = free_port();
    let moved = entry(other, &[b.port()], "");
    proxy.reload(&[moved]);
    echo(&held, b"and still");
    echo(&second, b"this one too");
    wait_listening(other, SOON);
    assert_eq!(counts(other, 1), BTreeMap::from([('b', 1)]));
    assert!(try_connect(port).is_err(), "the listener is gone");
}

#[test]
fn connections_are_listed_counted_and_ended_by_commands() {
    let (port, api, origin) = (free_port(), Api(free_port()), lettered(b'a'));
    let lines = format!("admin: {{ listen: 127.0.0.1:{}, token: {TOKEN} }}\n", api.0);
    let mut proxy = Balancer::start_with(port, &[entry(port, &[origin.port()], "")], &lines);
    let held = [connect(port), connect(port)];
    for one in &held {
        assert_eq!(letter(one), b'a');
        echo(one, b"12345");
    }
    let text = String::from_utf8(proxy.ask(&["status"]).stdout).unwrap();
    assert!(text.contains("tunnel proxy ") && text.contains("2 connections"), "{text}");
    assert!(text.contains(&format!("tcp://127.0.0.1:{port}")), "{text}");
    let listed = proxy.ask(&["streams", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(listed["total"], 2);
    let of = |held: &TcpStream| {
        let own = held.local_addr().unwrap().to_string();
        let all = listed["list"].as_array().unwrap();
        all.iter().find(|one| one["socket"] == own).cloned().unwrap()
    };
    let first = of(&held[0]);
    assert_eq!((&first["service"], &first["bytes_in"]), (&"web".into(), &5.into()), "{first}");
    assert_eq!(first["bytes_out"], 6, "{first}");
    let killed = proxy.ask(&["streams", "--kill", first["id"].as_str().unwrap()]);
    assert!(killed.status.success(), "{killed:?}");
    assert_ne!((&held[0]).read(&mut [0]).ok(), Some(1));
    echo(&held[1], b"the second");
    let (code, page) = api.ask(&[], "/metrics");
    assert_eq!(code, 200);
    let line = page.lines().find(|line| {
        line.starts_with("tunnel_service_streams{") && line.contains("kind=\"proxy\"")
    });
    assert!(line.is_some_and(|line| line.contains("web") && line.ends_with(" 1")), "{page}");
    // The end of the daemon waits for the connection.
    proxy.daemon.terminate();
    proxy.daemon.wait_line(&["stopping: new visitors are refused"], SOON);
    wait("the listener is closed", SOON, || try_connect(port).is_err().then_some(()));
    echo(&held[1], b"until the end");
    drop(held);
    assert!(proxy.daemon.wait_end(LONG).success());
}

#[test]
fn the_sample_and_a_file_are_checked_and_another_role_refuses_them() {
    let dir = tempfile::tempdir().unwrap();
    let sample = run(&mut tunnel(&["generate", "config", "proxy"]));
    let file = dir.path().join("proxy.yaml");
    fs::write(&file, &sample.stdout).unwrap();
    let checked = run(tunnel(&["check"]).arg(&file));
    let text = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.status.success(), "{text}");
    assert!(text.starts_with("proxy iperf: tcp://[::]:5201 -> tcp://10.0.1.4:5201, "), "{text}");
    let other = run(tunnel(&["client", "--config"]).arg(&file));
    assert_eq!(other.status.code(), Some(2));
    let said = String::from_utf8(other.stderr).unwrap();
    assert!(said.contains("this is a proxy's file (hint: tunnel proxy --config"), "{said}");
    fs::write(&file, "proxies: [{ listen: tcp://:1, target: [tcp://a:1], balanc: x }]").unwrap();
    let wrong = run(tunnel(&["check"]).arg(&file));
    assert_eq!(wrong.status.code(), Some(2));
    let said = String::from_utf8(wrong.stderr).unwrap();
    assert!(said.contains("proxies[0].balanc: unknown key (hint: did you mean"), "{said}");
}
