//! `tunnel demo` while it runs: the link to the page by which a browser visits the origin, and the
//! link to its console. The page in a browser is in `tests/browser/visit.py`.

use std::collections::HashSet;
use std::fs;
use std::io::{Read as _, Write as _};

use tempfile::TempDir;
use testkit::stage::Daemon;

use crate::harness::{LONG, SOON, connect, free_port, program, run, tunnel, wait};

/// The local addresses of all sockets of a process, as the tables of the kernel write them, and
/// `true` for a socket of UDP.
fn sockets(process: u32) -> Vec<(String, bool)> {
    let own = fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let own: HashSet<_> = own
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok()?.to_str().map(str::to_owned))
        .collect();
    let mut found = Vec::new();
    for table in ["tcp", "tcp6", "udp", "udp6"] {
        let text = fs::read_to_string(format!("/proc/{process}/net/{table}")).unwrap();
        for line in text.lines().skip(1) {
            let fields: Vec<_> = line.split_whitespace().collect();
            if own.contains(&format!("socket:[{}]", fields[9])) {
                found.push((fields[1].to_owned(), table.starts_with("udp")));
            }
        }
    }
    found
}

/// The answer to a request for `/`, as far as it is text.
fn page(port: u16, host: &str) -> Option<String> {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(SOON)).ok()?;
    write!(stream, "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    Some(String::from_utf8_lossy(&answer).into_owned()).filter(|answer| !answer.is_empty())
}

#[test]
fn the_demo_has_a_page_for_one_visitor_by_a_code_and_no_socket_beyond_this_machine() {
    let (home, machine) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut command = tunnel(&["demo"]);
    // The demo writes no file, not even about the visitor that comes.
    command.env("HOME", home.path()).env("TMPDIR", "/dev/null");
    let mut demo = Daemon::start("demo", machine.path(), &mut command);
    let link = demo.wait_line(&["http://visit.demo.localhost:", "/#visit1."], LONG);
    let (place, code) = link.trim().split_once("/#").unwrap();
    let host = place.strip_prefix("http://").unwrap();
    let (_, port) = host.split_once(':').unwrap();
    let port = port.parse().unwrap();

    let answer = page(port, host).expect("the page");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("Content-Type: text/html"), "{answer}");
    // This port has the page and the link of a visit, and no other page.
    let other = page(port, "127.0.0.1").expect("an answer");
    assert!(!other.starts_with("HTTP/1.1 200"), "{other}");

    // The program visits by the same code.
    let local = free_port();
    let visit = |file: &str| {
        let mut command = tunnel(&["visit", code, "--config"]);
        command.arg(machine.path().join(file)).args(["--listen", &local.to_string()]);
        command.arg("--control").arg(machine.path().join("c.sock"));
        command.env("HOME", machine.path());
        command
    };
    let visitor = Daemon::start("visitor", machine.path(), &mut visit("client.yaml"));
    visitor.wait_line(&["client `guest` is enrolled"], SOON);
    let seen = wait("the origin, by a visit", LONG, || page(local, "web"));
    assert!(seen.contains("<h1>It came through the tunnel</h1>"), "{seen}");

    // The console of the server answers at its own port, and the key of its link is good once.
    let link = demo.wait_line(&["http://127.0.0.1:", "/#k="], SOON);
    let (place, key) = link.trim().split_once("/#k=").unwrap();
    let begin = || {
        let mut curl = std::process::Command::new(program("curl"));
        curl.args(["--silent", "--output", "/dev/null", "--write-out", "%{http_code}"]);
        curl.args(["--request", "POST", "--header", &format!("Authorization: Bearer {key}")]);
        String::from_utf8(run(curl.arg(format!("{place}/api/v1/sessions"))).stdout).unwrap()
    };
    assert_eq!([begin(), begin()], ["201", "401"]);

    let all = sockets(demo.id());
    assert!(all.len() > 4, "{all:?}");
    for (address, is_udp) in &all {
        assert!(address.starts_with("0100007F:") && !is_udp, "{all:?}");
    }
    // The code lets one visitor in.
    let refused = run(visit("second.yaml").arg("--no-start"));
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && why.contains("not good (any more)"), "{why}");
    drop(connect(local));
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0, "the demo has written a file");
    demo.terminate();
    assert!(demo.wait_end(SOON).success(), "{}", demo.log());
}
