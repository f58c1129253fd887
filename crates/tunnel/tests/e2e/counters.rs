//! The counters of `tunnel status`, and the output of `tunnel log`.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _};
use std::net::TcpStream;
use std::process::Stdio;

use serde_json::Value;
use testkit::stage::Running;

use crate::harness::{
    Origin, SOON, Scheme, Setup, bytes, connect, free_port, run, try_connect, tunnel, wait,
};
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
    let setup = Setup::new(Scheme::TLS).service("web", origin.port()).forward(origin.port());
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
    let running = Setup::new(Scheme::TLS).service("flood", origin.port()).start();
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
    let mut running = Setup::new(Scheme::TLS).start();
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

/// The list of `tunnel streams …` with these arguments.
fn streams(running: &Running, role: &str, args: &[&str]) -> Value {
    let control = running.file(&format!("{role}.sock"));
    let mut command = tunnel(&["streams", "--json", "--control"]);
    let (exit, said, complaint) = outcome(run(command.arg(control).args(args)));
    assert_eq!(exit, Some(0), "{complaint}");
    serde_json::from_str(&said).unwrap()
}

#[test]
fn streams_are_listed_at_both_ends_and_one_of_them_is_ended_by_its_number() {
    for role in ["server", "client"] {
        let origin = Origin::echo();
        let setup = Setup::new(Scheme::TLS).service("one", origin.port());
        let setup = setup.service("two", origin.port()).forward(origin.port());
        let running = setup.start();
        let visit = |port| {
            let visitor = connect(port);
            bytes::send(&visitor, ASKED);
            bytes::expect(&visitor, ASKED);
            visitor
        };
        let (first, second) = (visit(running.public("one")), visit(running.public("one")));
        let (other, forwarded) = (visit(running.public("two")), visit(running.local()));
        assert_eq!(streams(&running, role, &[])["total"], 4);
        let some = streams(&running, role, &["--limit", "1"]);
        assert_eq!((&some["total"], some["list"].as_array().unwrap().len()), (&4.into(), 1));
        let ones = streams(&running, role, &["--service", "one"]);
        assert_eq!(ones["total"], 2);
        for stream in ones["list"].as_array().unwrap() {
            let peer = if role == "server" { "home" } else { "127.0.0.1" };
            assert!(stream["peer"].as_str().unwrap().starts_with(peer), "{stream}");
            for counted in ["bytes_in", "bytes_out"] {
                assert_eq!(stream[counted], ASKED, "{stream}");
            }
        }
        if role == "client" {
            let forward = format!("tcp://127.0.0.1:{}", running.local());
            assert_eq!(streams(&running, role, &["--service", &forward])["total"], 1);
        }
        // On the server the socket is the visitor's; on the client it is known by its place.
        let sockets = [&first, &second].map(|v| v.local_addr().unwrap().to_string());
        let list = ones["list"].as_array().unwrap();
        let mine = list.iter().find(|stream| stream["socket"] == *sockets[0]);
        assert_eq!(mine.is_some(), role == "server", "{list:?}");
        let id = mine.unwrap_or(&list[0])["id"].as_str().unwrap().to_owned();

        let control = running.file(&format!("{role}.sock"));
        let kill = || {
            let mut command = tunnel(&["streams", "--kill", &id, "--control"]);
            outcome(run(command.arg(&control)))
        };
        assert_eq!(kill(), (Some(0), format!("{id} is reset\n"), String::new()));
        // A look at the error of a socket takes it away, so there is one for each.
        let ends = |visitor: &TcpStream| {
            visitor.set_nonblocking(true).unwrap();
            let found = visitor.peek(&mut [0]);
            visitor.set_nonblocking(false).unwrap();
            match found {
                Err(e) if e.kind() == ErrorKind::WouldBlock => None,
                Err(e) if e.kind() == ErrorKind::ConnectionReset => Some(()),
                other => panic!("a reset was due, not {other:?}"),
            }
        };
        let first_ended = wait("one of the two is reset", SOON, || {
            ends(&first).map(|()| true).or_else(|| ends(&second).map(|()| false))
        });
        assert!(first_ended || role == "client");
        let stays = if first_ended { second } else { first };
        for visitor in [&stays, &other, &forwarded] {
            bytes::send(visitor, ASKED);
            bytes::expect(visitor, ASKED);
        }
        assert_eq!(streams(&running, role, &[])["total"], 3);
        let (exit, _, complaint) = kill();
        assert_eq!(exit, Some(1));
        assert!(complaint.contains("no such stream or flow (any more)"), "{complaint}");
        let mut command = tunnel(&["streams", "--kill", "7", "--control"]);
        assert_eq!(run(command.arg(&control)).status.code(), Some(2));
    }
}

#[test]
fn who_was_turned_away_is_counted_with_the_reason() {
    let origin = Origin::echo();
    let setup =
        Setup::new(Scheme::TLS).service("closed", free_port()).service("open", origin.port());
    let running = setup.start();
    bytes::expect_refused(try_connect(running.public("closed")));
    wait("both ends count it", SOON, || {
        let counted = ["server", "client"].map(|role| {
            let status = running.status(role)?;
            let services = status["sessions"][0]["services"].as_array()?.clone();
            let closed = services.iter().find(|service| service["name"] == "closed")?;
            let open = services.iter().find(|service| service["name"] == "open")?;
            assert_eq!(open.get("refused"), None);
            closed["refused"]["refused"].as_u64()
        });
        (counted == [Some(1); 2]).then_some(())
    });
    let control = running.file("server.sock");
    let (_, said, _) = outcome(run(tunnel(&["status", "--control"]).arg(control)));
    assert!(said.contains("\n  refused by closed: 1 refused\n"), "{said}");
}
