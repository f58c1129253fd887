//! What `tunnel status` counts, and `tunnel log` shows.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use serde_json::Value;
use testkit::stage::Running;

use crate::harness::{Origin, SOON, Scheme, Setup, bytes, connect, run, tunnel, wait};
use crate::reload::outcome;

const ASKED: u64 = 1_000;
const ANSWERED: u64 = 1_000_000;

fn counts(status: &Value, list: &str) -> [Option<u64>; 2] {
    let service = &status["sessions"][0][list][0];
    ["bytes_in", "bytes_out"].map(|name| service[name].as_u64())
}

#[test]
fn both_ends_count_bytes_from_visitors_in_and_bytes_from_targets_out() {
    let origin = Origin::start(|stream| {
        bytes::expect(&stream, ASKED);
        bytes::send(&stream, ANSWERED);
    });
    let setup = Setup::new(Scheme::Tls).service("web", origin.port()).forward(origin.port());
    let running = setup.start();
    for port in [running.public("web"), running.local()] {
        let visitor = connect(port);
        bytes::send(&visitor, ASKED);
        bytes::expect(&visitor, ANSWERED);
        bytes::expect_end(&visitor);
    }
    for (role, list) in [("server", "services"), ("client", "services"), ("client", "forwards")] {
        wait(&format!("the {role} counts both ways of its {list}"), SOON, || {
            let status = running.status(role)?;
            let counted = counts(&status, list);
            let all = counted.iter().flatten().sum::<u64>() == ASKED + ANSWERED;
            assert!(!all || counted == [Some(ASKED), Some(ANSWERED)], "{role} {list}: {counted:?}");
            assert!(status["tasks"].as_u64() > Some(0), "{role}: {status}");
            all.then_some(())
        });
    }
}

/// One who watches sees what moves, and a program gets an object per line.
#[test]
fn a_watched_status_says_what_moves_per_second() {
    let origin = Origin::start(|mut stream| {
        let _ = std::io::copy(&mut std::io::repeat(7), &mut stream);
    });
    let running = Setup::new(Scheme::Tls).service("flood", origin.port()).start();
    let mut visitor = connect(running.public("flood"));
    let reading = std::thread::spawn(move || {
        let mut block = vec![0; 1 << 16];
        while visitor.read(&mut block).is_ok_and(|n| n > 0) {}
    });
    let watch = |more: &[&str]| {
        let mut command = tunnel(&["status", "--watch", "0.2", "--control"]);
        command.arg(running.file("server.sock")).args(more);
        command.stdout(Stdio::piped()).stdin(Stdio::null());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        (child, out.lines().map(Result::unwrap))
    };
    let (mut child, mut lines) = watch(&[]);
    let moving = lines
        .find(|line| line.trim_start().starts_with("flood") && !line.trim_end().ends_with("0 B"));
    println!("{moving:?}");
    assert!(moving.unwrap().trim_end().ends_with("iB"));
    child.kill().unwrap();
    child.wait().unwrap();

    let (mut child, mut lines) = watch(&["--json"]);
    let mut bytes = || -> u64 {
        let status: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
        status["sessions"][0]["services"][0]["bytes_out"].as_u64().unwrap()
    };
    let first = bytes();
    assert!((0..20).any(|_| bytes() > first), "nothing moves");
    child.kill().unwrap();
    child.wait().unwrap();
    drop(origin);
    drop(running);
    reading.join().unwrap();
}

#[test]
fn what_is_logged_is_shown_and_changed_while_it_runs() {
    let mut running = Setup::new(Scheme::Tls).start();
    running.wait_links(2);
    let log = |running: &Running, level: &[&str]| {
        let socket = running.file("server.sock");
        outcome(run(tunnel(&["log"]).args(level).arg("--control").arg(socket)))
    };
    let said = |text: &str| (Some(0), format!("{text}\n"), String::new());
    assert_eq!(log(&running, &[]), said("info"));
    assert_eq!(log(&running, &["link=debug,info"]), said("link=debug,info"));
    running.client().kill();
    running.server.wait_line(&["DEBUG", "carrier lost"], SOON);
    let (code, _, complaint) = log(&running, &["loud"]);
    assert_eq!(code, Some(2));
    assert!(complaint.contains("`loud` is no level"), "{complaint}");
    // The file's word counts again.
    assert_eq!(outcome(running.reload("server")).0, Some(0));
    assert_eq!(log(&running, &[]), said("info"));
}
