//! Services with several targets: who gets which target, and what a target that fails costs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::stage::Running;

use crate::harness::{
    LONG, Nginx, Origin, SOON, Scheme, Setup, bytes, connect, free_port, program, run, try_connect,
    tunnel, wait, wait_listening,
};
use crate::udp::Echo;
use crate::visitors::visit_from;

/// An origin that greets each visitor with its own letter, and then returns what it gets.
fn lettered(letter: u8, port: u16) -> Origin {
    Origin::start_on(&format!("127.0.0.1:{port}"), move |mut stream: TcpStream| {
        if stream.write_all(&[letter]).is_ok() {
            drop(std::io::copy(&mut &stream, &mut &stream));
        }
    })
}

/// A service `web` with these targets and keys, at the returned port.
fn start(scheme: Scheme, targets: &str, keys: &str) -> (Running, u16) {
    let (mut setup, public) = (Setup::new(scheme), free_port());
    setup.allow.push(public);
    writeln!(
        setup.client_lines,
        "services:\n  - {{ name: web, public: \"tcp://:{public}\", target: {targets}{keys} }}"
    )
    .unwrap();
    let running = setup.start();
    wait_listening(public, SOON);
    (running, public)
}

fn letter(mut visitor: TcpStream) -> (TcpStream, u8) {
    let mut letter = [0];
    visitor.read_exact(&mut letter).unwrap();
    (visitor, letter[0])
}

/// How many of the visitors got which target.
fn counts(port: u16, visitors: usize) -> BTreeMap<char, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..visitors {
        let (_, letter) = letter(connect(port));
        *counts.entry(letter.into()).or_default() += 1;
    }
    counts
}

/// The targets of the service in the status: address, state, open visitors, all visitors.
fn targets(running: &Running) -> Vec<(String, String, u64, u64)> {
    let status = running.status("client").unwrap();
    let all = status["sessions"][0]["services"][0]["targets"].as_array().cloned();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let count = |value: &Value| value.as_u64().unwrap();
    let row = |one: &Value| {
        let counts = (count(&one["visitors"]), count(&one["visitors_total"]));
        (text(&one["target"]), text(&one["state"]), counts.0, counts.1)
    };
    all.unwrap_or_default().iter().map(row).collect()
}

fn is_in_state(running: &Running, n: usize, state: &str) {
    wait(&format!("target {n} is {state}"), LONG, || {
        (targets(running).get(n)?.1 == state).then_some(())
    });
}

#[test]
fn targets_take_turns_by_their_weights_and_the_status_has_their_load() {
    for &scheme in Scheme::ALL {
        let [a, b, c] = [(); 3].map(|()| free_port());
        let _origins = [(b'a', a), (b'b', b), (b'c', c)].map(|(l, port)| lettered(l, port));
        let list = format!(
            "[{{ url: \"tcp://127.0.0.1:{a}\", weight: 2 }}, \"127.0.0.1:{b}\", {{ url: {c}, \
             weight: 0 }}]"
        );
        let (running, public) = start(scheme, &list, "");
        let before = targets(&running);
        assert_eq!(counts(public, 9), BTreeMap::from([('a', 6), ('b', 3)]));
        let held = [connect(public), connect(public)].map(letter);
        wait("the status has the load", SOON, || {
            let all = targets(&running);
            let live: u64 = all.iter().map(|one| one.2).sum();
            let total: u64 = all.iter().map(|one| one.3).sum();
            let of_before: u64 = before.iter().map(|one| one.3).sum();
            (live == 2 && total - of_before == 11 && all[2].3 == 0).then_some(())
        });
        drop(held);
        let socket = running.file("client.sock");
        let text = run(tunnel(&["status", "--control"]).arg(socket));
        let text = String::from_utf8(text.stdout).unwrap();
        assert!(text.contains("3 targets") && text.contains("targets of"), "{text}");
    }
}

/// The outcome of a command to the client about a target or a service, as JSON.
fn ordered(running: &Running, command: &str, name: &str) -> Value {
    let socket = running.file("client.sock");
    let output = run(tunnel(&[command, name, "--json", "--control"]).arg(socket));
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_drained_target_keeps_its_streams_and_gets_no_new_ones() {
    let [a, b] = [(); 2].map(|()| free_port());
    let _origins = [(b'a', a), (b'b', b)].map(|(l, port)| lettered(l, port));
    let list = format!("[\"tcp://127.0.0.1:{a}\", \"tcp://127.0.0.1:{b}\"]");
    let (mut running, public) = start(Scheme::TLS, &list, "");
    let (mut held, letter) = letter(connect(public));
    let (drained, other) = if letter == b'a' { (a, 'b') } else { (b, 'a') };
    let outcome = ordered(&running, "drain", &format!("127.0.0.1:{drained}"));
    assert_eq!(outcome["targets"][0]["draining"], true, "{outcome}");
    running.client().wait_line(&["the control socket asked for the drain of tcp://"], SOON);
    assert_eq!(counts(public, 6), BTreeMap::from([(other, 6)]));
    let n = usize::from(drained == b);
    is_in_state(&running, n, "draining");
    // A reload that changes the weight ends no drain.
    running.edit_client(|text| {
        let heavy = format!("{{ url: \"tcp://127.0.0.1:{drained}\", weight: 9 }}");
        text.replace(&format!("\"tcp://127.0.0.1:{drained}\""), &heavy)
    });
    assert!(running.reload("client").status.success());
    assert_eq!(counts(public, 4), BTreeMap::from([(other, 4)]));
    let mut echo = [0; 5];
    held.write_all(b"still").unwrap();
    held.read_exact(&mut echo).unwrap();
    assert_eq!(&echo, b"still");

    // All targets: new visitors are refused, and the stream goes on.
    assert_eq!(ordered(&running, "drain", "web")["services"][0], "web");
    let status = running.status("client").unwrap();
    assert_eq!(status["sessions"][0]["services"][0]["state"], "draining", "{status}");
    bytes::expect_refused(try_connect(public));
    held.write_all(b"again").unwrap();
    held.read_exact(&mut echo).unwrap();
    assert_eq!(&echo, b"again");
    let unknown = running.file("client.sock");
    let unknown = run(tunnel(&["drain", "wbe", "--control"]).arg(unknown));
    let why = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(!unknown.status.success() && why.contains("known are: web, tcp://127.0.0.1:"), "{why}");

    ordered(&running, "undrain", "web");
    let counts = counts(public, 10);
    assert_eq!(counts.keys().collect::<String>(), "ab", "{counts:?}");
}

#[test]
fn a_target_that_refuses_costs_a_visitor_only_the_next_target() {
    for &scheme in Scheme::ALL {
        let [a, b] = [(); 2].map(|()| free_port());
        let _origin = lettered(b'b', b);
        let list = format!("[\"tcp://127.0.0.1:{a}\", \"tcp://127.0.0.1:{b}\"]");
        let (mut running, public) = start(scheme, &list, "");
        assert_eq!(counts(public, 5), BTreeMap::from([('b', 5)]));
        is_in_state(&running, 0, "down");
        running.client().wait_line(&["the target of service web is down: tcp://127.0.0.1:"], SOON);
        // The service itself serves, for both sides.
        for role in ["client", "server"] {
            let status = running.status(role).unwrap();
            assert_eq!(status["sessions"][0]["services"][0]["state"], "up", "{status}");
        }
    }
}

#[test]
fn a_check_brings_a_target_back_whose_share_then_grows() {
    let [a, b] = [(); 2].map(|()| free_port());
    let _b = lettered(b'b', b);
    let list = format!("[\"tcp://127.0.0.1:{a}\", \"tcp://127.0.0.1:{b}\"]");
    let keys = ", health: { interval: 1s, timeout: 1s }";
    let (running, public) = start(Scheme::TLS, &list, keys);
    is_in_state(&running, 0, "down");
    let _a = lettered(b'a', a);
    is_in_state(&running, 0, "returning");
    let counts = counts(public, 11);
    assert!(counts.contains_key(&'a') && counts[&'a'] < counts[&'b'], "{counts:?}");
}

#[test]
fn visitors_of_an_address_keep_their_target_and_only_those_of_a_removed_one_move() {
    let ports = [(); 3].map(|()| free_port());
    let _origins = [0, 1, 2].map(|n| lettered(b'a' + n as u8, ports[n]));
    let url = |port: u16| format!("\"tcp://127.0.0.1:{port}\"");
    let list = format!("[{}, {}, {}]", url(ports[0]), url(ports[1]), url(ports[2]));
    let (running, public) = start(Scheme::TLS, &list, ", balance: source_hash");
    let home = |last| letter(visit_from(last, public).unwrap()).1;
    let before: Vec<_> = (1..61).map(home).collect();
    assert_eq!(before, (1..61).map(home).collect::<Vec<_>>());
    for letter in *b"abc" {
        assert!(before.contains(&letter), "{before:?}");
    }
    running.edit_client(|text| text.replace(&format!(", {}]", url(ports[2])), "]"));
    assert!(running.reload("client").status.success());
    for (before, after) in before.into_iter().zip((1..61).map(home)) {
        assert!(before == after || (before == b'c' && after != b'c'), "{before} {after}");
    }
}

#[test]
fn a_target_that_a_reload_removes_keeps_its_visitors_and_gets_no_more() {
    for &scheme in Scheme::ALL {
        let [a, b, c] = [(); 3].map(|()| free_port());
        let _origins = [(b'a', a), (b'b', b), (b'c', c)].map(|(l, port)| lettered(l, port));
        let url = |port: u16| format!("\"tcp://127.0.0.1:{port}\"");
        let list = format!("[{}, {}]", url(a), url(b));
        let (running, public) = start(scheme, &list, ", balance: least_connections");
        let mut held = [connect(public), connect(public)].map(letter);
        // The visitors come at a time: either may be the first.
        let mut letters = held.each_ref().map(|one| one.1);
        letters.sort_unstable();
        assert_eq!(letters, *b"ab");
        running.edit_client(|text| text.replace(&list, &format!("[{}, {}]", url(b), url(c))));
        assert!(running.reload("client").status.success());
        let counts = counts(public, 3);
        assert!(counts.contains_key(&'c') && !counts.contains_key(&'a'), "{counts:?}");
        let row = targets(&running).pop().unwrap();
        assert_eq!((row.0, &*row.1, row.2), (format!("tcp://127.0.0.1:{a}"), "removed", 1));
        for (visitor, _) in &mut held {
            visitor.write_all(b"?").unwrap();
            visitor.read_exact(&mut [0]).unwrap();
        }
        drop(held);
        wait("the target is gone", SOON, || (targets(&running).len() == 2).then_some(()));
    }
}

#[test]
fn a_flow_goes_to_the_next_target_where_one_refuses() {
    for &scheme in Scheme::ALL {
        let (mut setup, public, echo) = (Setup::new(scheme), free_port(), Echo::start());
        setup.more_rights.push(format!("udp: [\"{public}\"]"));
        let list =
            format!("[\"udp://127.0.0.1:{}\", \"udp://127.0.0.1:{}\"]", free_port(), echo.port());
        writeln!(
            setup.client_lines,
            "services:\n  - {{ name: web, public: \"udp://:{public}\", target: {list} }}"
        )
        .unwrap();
        let running = crate::udp::start(setup, 1);
        for n in 0..4_u8 {
            let visitor = UdpSocket::bind("127.0.0.1:0").unwrap();
            visitor.set_read_timeout(Some(LONG)).unwrap();
            visitor.send_to(&[n; 40], ("127.0.0.1", public)).unwrap();
            let mut answer = [0; 64];
            let (length, _) = visitor.recv_from(&mut answer).unwrap();
            assert_eq!(answer[..length], [n; 40], "one datagram is enough");
        }
        is_in_state(&running, 0, "down");
        assert_eq!(echo.peers().len(), 4);
    }
}

/// nginx as one of several origins, at this port.
fn nginx(dir: &Path, port: u16) -> Nginx {
    fs::create_dir_all(dir).unwrap();
    let conf = format!(
        "worker_processes 1; error_log stderr crit; events {{ worker_connections 1000; }}\n\
         http {{ access_log off; keepalive_requests 100000000;\n\
         server {{ listen 127.0.0.1:{port}; location / {{ return 200 hello; }} }} }}\n"
    );
    Nginx::start_with(dir, &conf, port)
}

/// A number of a report of wrk behind this word.
fn number(report: &str, word: &str) -> u64 {
    let Some((_, rest)) = report.split_once(word) else { return 0 };
    rest.trim_start().split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

#[test]
fn an_origin_that_dies_and_returns_under_load_costs_the_requests_in_flight_there() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = [(); 2].map(|()| free_port());
    let first = nginx(&dir.path().join("a"), a);
    let _second = nginx(&dir.path().join("b"), b);
    let list = format!("[\"tcp://127.0.0.1:{a}\", \"tcp://127.0.0.1:{b}\"]");
    let keys = ", health: { interval: 1s, timeout: 1s }";
    let (running, public) = start(Scheme::TLS, &list, keys);
    let mut wrk = Command::new(program("wrk"));
    // Longer than any machine needs for the rest; it is told when to stop.
    wrk.args(["-t1", "-c20", "-d100s", "--timeout", "60s"]);
    let wrk = wrk.arg(format!("http://127.0.0.1:{public}/")).stdout(Stdio::piped()).spawn();
    let mut wrk = wrk.unwrap();
    wait("both serve", LONG, || targets(&running).iter().all(|one| one.2 > 5).then_some(()));
    drop(first);
    is_in_state(&running, 0, "down");
    wait("the other serves all", LONG, || (targets(&running)[1].2 >= 20).then_some(()));
    let _first = nginx(&dir.path().join("a"), a);
    is_in_state(&running, 0, "returning");
    assert!(wrk.try_wait().unwrap().is_none(), "all of it was under load");
    kill_process(Pid::from_child(&wrk), Signal::INT).unwrap();
    let report = String::from_utf8(wrk.wait_with_output().unwrap().stdout).unwrap();
    assert!(report.contains("Requests/sec") && !report.contains("Non-2xx"), "{report}");
    assert_eq!(number(&report, "errors: connect"), 0, "{report}");
    assert!(number(&report, ", read") <= 20, "{report}");
    assert_eq!(number(&report, "timeout"), 0, "{report}");
}

#[test]
fn a_check_over_http_keeps_visitors_away_from_a_target_that_is_not_well() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = [(); 2].map(|()| free_port());
    let ill = dir.path().join("ill");
    fs::create_dir_all(dir.path().join("a")).unwrap();
    let conf = format!(
        "worker_processes 1; error_log stderr crit; events {{ worker_connections 100; }}\n\
         http {{ access_log off; server {{ listen 127.0.0.1:{a}; location / {{ return 200 a; }}\n\
         location = /ok {{ if (-f {}) {{ return 503; }} return 204; }} }} }}\n",
        ill.display()
    );
    fs::write(&ill, "").unwrap();
    let _first = Nginx::start_with(&dir.path().join("a"), &conf, a);
    let _second = nginx(&dir.path().join("b"), b);
    let list = format!("[\"tcp://127.0.0.1:{a}\", \"tcp://127.0.0.1:{b}\"]");
    let keys = ", health: { interval: 1s, timeout: 1s, path: /ok }";
    let (mut running, public) = start(Scheme::TLS, &list, keys);
    is_in_state(&running, 0, "down");
    running.client().wait_line(&["is down", "answers the check with 503"], SOON);
    let before = targets(&running)[0].3;
    for _ in 0..5 {
        drop(connect(public));
    }
    wait("five visitors were served", LONG, || (targets(&running)[1].3 >= 5).then_some(()));
    assert_eq!(targets(&running)[0].3, before);
    fs::remove_file(&ill).unwrap();
    is_in_state(&running, 0, "returning");
}
