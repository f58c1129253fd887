//! `tunnel ping`, `tunnel speedtest` and `tunnel nat` against running daemons: figures, the limit
//! that was reached, and one clear line if nothing can be measured.

use std::io::Read;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use testkit::stage::Running;

use crate::harness::{LONG, Origin, SOON, Scheme, Setup, free_port, run, tunnel, wait};

fn command(running: &Running, role: &str, args: &[&str]) -> Command {
    let (name, rest) = args.split_first().unwrap();
    let mut command = tunnel(&[name, "--control"]);
    command.arg(running.file(&format!("{role}.sock"))).args(rest);
    command
}

/// On the client.
fn measure(running: &Running, args: &[&str]) -> Output {
    run(&mut command(running, "client", args))
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub(crate) fn json(running: &Running, args: &[&str]) -> Value {
    let output = measure(running, args);
    assert!(output.status.success(), "{}", err(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn ping_prints_a_round_trip_for_every_link_and_round() {
    for &scheme in Scheme::ALL {
        let origin = Origin::echo();
        let mut setup = Setup::new(scheme).service("echo", origin.port());
        setup.client_lines.push_str("connections: 3\n");
        let running = setup.start();
        running.wait_links(3);
        let output = measure(&running, &["ping", "-c", "2", "-i", "0.05"]);
        let said = out(&output);
        assert!(output.status.success(), "{said}{}", err(&output));
        for (seq, link) in [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)] {
            let start = format!("seq {seq}  link {link}  {} 127.0.0.1:", scheme.name);
            let line = said.lines().find(|line| line.starts_with(&start));
            assert!(line.is_some_and(|line| line.ends_with(" ms")), "{start}: {said}");
        }
        assert!(said.contains("6 sent, 6 came back; min/avg/max/mdev "), "{said}");

        let all = json(&running, &["ping", "-c", "1", "--json"]);
        assert_eq!((&all["sent"], &all["received"]), (&3.into(), &3.into()), "{all}");
        assert!(all["min_micros"].as_u64().unwrap() <= all["max_micros"].as_u64().unwrap());
        assert_eq!(all["pings"].as_array().unwrap().len(), 3);
    }
}

#[test]
fn ping_of_a_link_that_is_down_fails_with_the_reason() {
    let origin = Origin::echo();
    let mut running = Setup::new(Scheme::TLS).service("echo", origin.port()).wired().start();
    running.wait_links(1);
    // Silence first: the client does not know yet.
    running.wire().freeze();
    let output = measure(&running, &["ping", "-c", "1", "-W", "0.3"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(out(&output).contains("no answer within 300 ms"), "{}", out(&output));
    assert_eq!(err(&output), "tunnel: nothing came back from 127.0.0.1\n");

    running.server.kill();
    running.wire().kill();
    wait("the client notices", SOON, || {
        let output = measure(&running, &["ping", "-c", "1", "-W", "0.3"]);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(err(&output), "tunnel: nothing came back from 127.0.0.1\n");
        out(&output).contains("no connection").then_some(())
    });
}

const LIMITS: [&str; 5] = ["window", "cpu", "path", "memory", "unclear"];

#[test]
fn speedtest_gives_figures_up_and_down_and_names_a_limit() {
    for &scheme in Scheme::ALL {
        let origin = Origin::echo();
        let running = Setup::new(scheme).service("echo", origin.port()).start();
        running.wait_links(2);
        let speed = json(&running, &["speedtest", "--seconds", "1", "--json"]);
        println!("{scheme:?}: {speed:#}");
        for way in ["up", "down"] {
            let flow = &speed[way];
            // A debug build on a busy machine carries several times as much.
            assert!(flow["bits_per_second"].as_u64().unwrap() > 20_000_000, "{way}: {speed}");
            assert!(flow["bytes"].as_u64().unwrap() > 1_000_000, "{way}: {speed}");
            assert!(LIMITS.iter().any(|limit| flow["limit"] == *limit), "{way}: {speed}");
        }
        let output = measure(&running, &["speedtest", "--seconds", "2"]);
        let (said, news) = (out(&output), err(&output));
        assert!(output.status.success(), "{news}");
        for way in ["up    ", "down  "] {
            let line = said.lines().find(|line| line.starts_with(way)).unwrap();
            assert!(line.contains("bit/s, ") && line.contains("; limit: "), "{said}");
            // Plain lines: this is no terminal.
            assert!(news.lines().any(|line| line.starts_with(&format!("{way}1 s, "))), "{news}");
        }
        assert!(!news.contains(['\r', '\x1b']), "{news}");
        // Nothing is left of it.
        let streams = || running.status("server")?["sessions"][0]["links"][0]["streams"].as_u64();
        wait("no stream left", SOON, || (streams()? == 0).then_some(()));
    }
}

#[test]
fn a_test_goes_on_over_the_next_carrier() {
    let mut running = Setup::new(Scheme::TLS).wired().start();
    running.wait_links(1);
    let test = command(&running, "client", &["speedtest", "--seconds", "2", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    for _ in 0..3 {
        let passed = running.wire().passed();
        wait("bytes of the test", SOON, || {
            (running.wire().passed() > passed + 1_000_000).then_some(())
        });
        running.wire().kill();
    }
    let output = test.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(running.wire().kills() >= 3 && running.client().is_running());
}

#[test]
fn a_server_pings_its_clients_and_says_who_tests_the_speed() {
    let mut running = Setup::new(Scheme::TLS).start();
    running.wait_links(2);
    let output = run(&mut command(&running, "server", &["ping", "-c", "2", "-i", "0.05"]));
    let said = out(&output);
    assert!(output.status.success(), "{said}{}", err(&output));
    let line = said.lines().find(|line| line.starts_with("seq 2  link "));
    let is_good = |line: &str| line.contains("  home  tls 127.0.0.1:") && line.ends_with(" ms");
    assert!(line.is_some_and(is_good), "{said}");
    let output = run(&mut command(&running, "server", &["speedtest"]));
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("run it where `tunnel client` runs"), "{}", err(&output));

    running.client().terminate();
    running.client().wait_end(SOON);
    wait("nobody is left", SOON, || {
        let output = run(&mut command(&running, "server", &["ping", "-c", "1"]));
        assert_eq!(output.status.code(), Some(1));
        out(&output).contains("clients: no client is connected").then_some(())
    });
}

#[test]
fn a_server_that_does_not_allow_it_says_so_and_answers_pings_all_the_same() {
    let origin = Origin::echo();
    let mut running = Setup::new(Scheme::TLS).service("echo", origin.port()).start_server();
    let file = running.file("server.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("allow: {", "allow: { speedtest: false,")).unwrap();
    running.server.terminate();
    running.server.wait_end(SOON);
    running.start_server_again();
    running.start_client();
    running.wait_links(2);
    let output = measure(&running, &["speedtest", "--seconds", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("allow.speedtest"), "{}", err(&output));
    assert!(measure(&running, &["ping", "-c", "1"]).status.success());
}

/// A test of a minute that nobody will wait for.
struct LongTest(Child);

impl LongTest {
    fn start(running: &Running) -> Self {
        let mut command = command(running, "client", &["speedtest", "--seconds", "60"]);
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        // Its first news: it runs.
        child.stderr.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        Self(child)
    }
}

impl Drop for LongTest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn one_test_runs_at_a_time_and_ends_with_who_asked() {
    let origin = Origin::echo();
    let running = Setup::new(Scheme::TLS).service("echo", origin.port()).start();
    running.wait_links(2);
    let long = LongTest::start(&running);
    let second = measure(&running, &["speedtest", "--seconds", "1"]);
    assert_eq!(second.status.code(), Some(1));
    assert!(err(&second).contains("another speed test"), "{}", err(&second));
    drop(long);
    wait("the place is free again", SOON, || {
        measure(&running, &["speedtest", "--seconds", "1"]).status.success().then_some(())
    });
}

#[test]
fn nat_says_what_stands_in_front_of_a_client_or_what_the_server_needs() {
    let origin = Origin::echo();
    let mut setup = Setup::new(Scheme::QUIC).service("echo", origin.port());
    setup.server_lines.push_str(&format!("stun: {}\n", free_port()));
    // The router of this machine is none of ours to ask.
    setup.client_lines.push_str("p2p: { candidates: [host, reflexive] }\n");
    let running = setup.start();
    running.wait_echo(running.public("echo"));
    let all = wait("an answer of both ports", LONG, || {
        let output = measure(&running, &["nat", "--json"]);
        let all: Value = serde_json::from_slice(&output.stdout).ok()?;
        let servers = all["servers"].as_array()?;
        (servers.len() == 2 && servers.iter().all(|one| one["outer"].is_string())).then_some(all)
    });
    assert_eq!((&all["udp"], &all["ipv4"]["mapping"]), (&"passes".into(), &"none".into()), "{all}");
    assert_eq!(all["ipv4"]["filtering"], "open", "{all}");
    let paths: Vec<_> = all["peers"].as_array().unwrap().iter().map(|one| &one["path"]).collect();
    assert_eq!(paths, ["direct", "direct", "direct", "relayed"], "{all}");
    let output = measure(&running, &["nat"]);
    let said = out(&output);
    assert!(output.status.success() && said.starts_with("UDP passes\n"), "{said}");
    assert!(said.contains("none: the server sees this machine's own address"), "{said}");
    assert!(all["router"].is_null() && said.contains("the router was not asked"), "{said}");
    let output = run(&mut command(&running, "server", &["nat"]));
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("this is a server"), "{}", err(&output));

    // A server of TCP alone.
    let mut running = Setup::new(Scheme::TLS).service("echo", origin.port()).start();
    running.wait_echo(running.public("echo"));
    let output = measure(&running, &["nat"]);
    assert_eq!(output.status.code(), Some(1), "{}", out(&output));
    assert!(err(&output).contains("its file needs a `quic://` listener"), "{}", err(&output));
    running.client().kill();
    let file = running.file("client.yaml");
    let output = run(tunnel(&["nat", "--config"]).arg(&file));
    assert_eq!(output.status.code(), Some(1));
    let hint = format!("tunnel client --config {}", file.display());
    assert!(err(&output).contains(&hint), "{}", err(&output));
}
