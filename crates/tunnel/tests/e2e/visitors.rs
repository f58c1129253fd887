//! Who may visit a service, and how its target learns the visitor's address.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::path::Path;
use std::process::Command;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use testkit::stage::Running;

use crate::harness::{
    LONG, Nginx, Origin, SOON, Scheme, Setup, bytes, free_port, program, run, side_by_side, tunnel,
    wait, wait_listening,
};
use crate::reload::{echo, outcome};

/// Connects from 127.0.0.`last`.
pub(crate) fn visit_from(last: u8, port: u16) -> io::Result<TcpStream> {
    let kind = SocketType::STREAM;
    let socket = socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, last), 0))?;
    connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(LONG))?;
    stream.set_write_timeout(Some(LONG))?;
    Ok(stream)
}

fn is_let_in(last: u8, port: u16) {
    echo(&visit_from(last, port).unwrap(), last);
}

/// A service `few` of this target with these lines, at the returned port.
fn start(scheme: Scheme, target: &str, lines: &str) -> (Running, u16) {
    start_in(Setup::new(scheme), target, lines)
}

fn start_in(mut setup: Setup, target: &str, lines: &str) -> (Running, u16) {
    let public = free_port();
    setup.allow.push(public);
    let service =
        format!("services:\n  - {{ name: few, target: \"{target}\", public: \"tcp://:{public}\"");
    writeln!(setup.client_lines, "{service}, {lines} }}").unwrap();
    let running = setup.start();
    wait_listening(public, SOON);
    (running, public)
}

/// The number of visitors that the server turned away by their address.
fn turned_away(running: &Running) -> u64 {
    let status = running.status("server").unwrap();
    let few = &status["sessions"][0]["services"][0];
    assert_eq!(few["name"], "few", "{status}");
    few["refused"]["visitor_denied"].as_u64().unwrap_or(0)
}

#[test]
fn only_listed_visitors_are_let_in_and_a_reload_of_the_lists_touches_nobody_inside() {
    side_by_side(Scheme::ALL, |scheme| {
        let origin = Origin::echo();
        let lists = "allow_from: [127.0.0.0/30, \"2001:db8::/32\"], deny_from: 127.0.0.3";
        let target = format!("tcp://127.0.0.1:{}", origin.port());
        let (running, public) = start(scheme, &target, lists);
        let stays = visit_from(2, public).unwrap();
        echo(&stays, 1);
        is_let_in(1, public);
        bytes::expect_refused(visit_from(3, public));
        bytes::expect_refused(visit_from(4, public));
        wait("two are counted", SOON, || (turned_away(&running) == 2).then_some(()));
        let socket = running.file("server.sock");
        let text = run(tunnel(&["status", "--control"]).arg(&socket));
        let text = String::from_utf8(text.stdout).unwrap();
        assert!(text.contains("2 visitor_denied"), "{text}");

        running.edit_client(|text| text.replace("127.0.0.0/30", "127.0.0.4"));
        let (code, said, complaint) = outcome(running.reload("client"));
        assert_eq!((code, complaint.as_str()), (Some(0), ""), "{said}");
        is_let_in(4, public);
        bytes::expect_refused(visit_from(2, public));
        echo(&stays, 2);
        wait("three are counted", SOON, || (turned_away(&running) == 3).then_some(()));

        // A default of the file is for services without a list of their own.
        running.edit_client(|text| {
            let text = text.replace("allow_from: [127.0.0.4, \"2001:db8::/32\"], ", "");
            text + "allow_from: 127.0.0.2\n"
        });
        let (code, said, complaint) = outcome(running.reload("client"));
        assert_eq!((code, complaint.as_str()), (Some(0), ""), "{said}");
        is_let_in(2, public);
        bytes::expect_refused(visit_from(1, public));
        bytes::expect_refused(visit_from(4, public));
        echo(&stays, 3);

        // Three were served to their end; nobody else reached the target.
        (0..3).for_each(|_| origin.wait_one(SOON));
        drop(stays);
        origin.wait_one(SOON);
        let log = running.server.log();
        assert!(!log.contains("is published no more") && !log.contains("127.0.0.3"), "{log}");
    });
}

/// The file stands beside that of the server, and changes while the server runs.
#[test]
fn a_file_of_the_server_keeps_visitors_out_of_every_service() {
    let origin = Origin::echo();
    let mut setup = Setup::new(Scheme::TLS);
    let setup_dir = setup.dir().to_owned();
    let file = setup_dir.join("countries.csv");
    fs::write(&file, "network,country\n127.0.0.3,DE\n127.0.0.4,AT\n").unwrap();
    setup.server_lines.push_str("deny_from: \"@countries.csv:DE\"\nwatch: true\n");
    let target = format!("tcp://127.0.0.1:{}", origin.port());
    let (running, public) = start_in(setup, &target, "allow_from: 127.0.0.0/8");
    is_let_in(4, public);
    bytes::expect_refused(visit_from(3, public));
    wait("one is counted", SOON, || (turned_away(&running) == 1).then_some(()));

    fs::write(&file, "127.0.0.4 DE\n").unwrap();
    let visits = |last| {
        let stream = visit_from(last, public).ok()?;
        (&stream).write_all(b"x").ok()?;
        (&stream).read_exact(&mut [0]).ok()
    };
    wait("the file is read again", LONG, || visits(3));
    bytes::expect_refused(visit_from(4, public));
    let before = running.server.log();
    assert!(!before.contains("127.0.0.3"), "{before}");

    // A file that cannot be used changes nothing.
    fs::write(&file, "127.0.0.3\n").unwrap();
    let (code, said, complaint) = outcome(running.reload("server"));
    assert_ne!(code, Some(0), "{said}");
    assert!(complaint.contains("`countries.csv`: line 1 has no country"), "{complaint}");
    bytes::expect_refused(visit_from(4, public));

    // The repair of a file that only a refused configuration names is noticed.
    let (file, new) = (setup_dir.join("new.csv"), "deny_from: \"@new.csv\"");
    running.edit_server(|text| text.replace("deny_from: \"@countries.csv:DE\"", new));
    running.server.wait_line(&["not reloaded", "new.csv"], LONG);
    fs::write(&file, "127.0.0.5\n").unwrap();
    wait("the new file is read", LONG, || visits(4));
    bytes::expect_refused(visit_from(5, public));
}

#[test]
fn check_shows_who_may_visit() {
    let (running, _) = start(
        Scheme::TLS,
        "tcp://127.0.0.1:9",
        "allow_from: 10.0.0.0/8, deny_from: [10.0.0.66], proxy_protocol: v2",
    );
    let shown = run(tunnel(&["check", "--config"]).arg(running.file("client.yaml")));
    let text = String::from_utf8(shown.stdout).unwrap();
    let expected = "allow_from [10.0.0.0/8], deny_from [10.0.0.66], PROXY protocol v2";
    assert!(text.contains(expected), "{text}");
}

fn fetch(from: &str, url: &str) -> String {
    let mut curl = Command::new(program("curl"));
    curl.args(["--silent", "--show-error", "--fail", "--max-time", "60", "--interface", from]);
    let output = run(curl.arg(url));
    assert!(output.status.success(), "{url}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// nginx that takes the visitor's address from the header, over TCP and over a Unix socket, and
/// tells each visitor what it knows.
fn nginx(dir: &Path, port: u16) -> Nginx {
    let dir_text = dir.display();
    Nginx::start(
        dir,
        &format!(
            "listen 127.0.0.1:{port} proxy_protocol; listen unix:{dir_text}/back proxy_protocol;\n\
             set_real_ip_from 127.0.0.1; set_real_ip_from unix:; real_ip_header proxy_protocol;\n\
             access_log {dir_text}/access.log combined;\n\
             location = /who {{ return 200 \"$remote_addr of $proxy_protocol_addr at \
             $proxy_protocol_server_addr:$proxy_protocol_server_port\"; }}"
        ),
    )
}

#[test]
fn nginx_logs_the_visitor_s_address() {
    for &scheme in Scheme::ALL {
        for version in ["v1", "v2"] {
            for is_unix in [false, true] {
                let setup = Setup::new(scheme);
                let (dir, port) = (setup.dir().to_owned(), free_port());
                let _nginx = nginx(&dir, port);
                let target = if is_unix {
                    format!("unix://{}/back", dir.display())
                } else {
                    format!("tcp://127.0.0.1:{port}")
                };
                let lines = format!("proxy_protocol: {version}");
                let (_running, public) = start_in(setup, &target, &lines);
                // The client reaches the server at 127.0.0.1.
                assert_eq!(
                    fetch("127.0.0.5", &format!("http://127.0.0.1:{public}/who")),
                    format!("127.0.0.5 of 127.0.0.5 at 127.0.0.1:{public}"),
                    "{scheme:?} {version} {target}"
                );
                let logged = wait("a line of nginx", SOON, || {
                    let log = fs::read_to_string(dir.join("access.log")).ok()?;
                    log.contains("/who").then_some(log)
                });
                assert!(logged.starts_with("127.0.0.5 - "), "{logged}");
            }
        }
    }
}

/// Says its banner at once, as sshd does, and reads the header then. Sends all further bytes back
/// until the visitor ends, and checks that no second header comes.
fn speaks_first(mut stream: &TcpStream) {
    stream.write_all(b"220 ready\n").unwrap();
    let mut reader = BufReader::new(stream);
    let mut header = String::new();
    reader.read_line(&mut header).unwrap();
    assert!(header.starts_with("PROXY TCP4 127.0.0.6 127.0.0.1 "), "{header:?}");
    stream.write_all(header.as_bytes()).unwrap();
    io::copy(&mut reader, &mut stream).unwrap();
}

#[test]
fn a_target_that_speaks_first_gets_one_header_and_not_another_from_the_next_carrier() {
    for &scheme in Scheme::ALL {
        let origin = Origin::start(|stream| speaks_first(&stream));
        let target = format!("tcp://127.0.0.1:{}", origin.port());
        let setup = Setup::new(scheme).wired();
        let (running, public) = start_in(setup, &target, "proxy_protocol: v1");
        let stream = visit_from(6, public).unwrap();
        let visitor = stream.local_addr().unwrap().port();
        let mut reader = BufReader::new(&stream);
        let mut line = || {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            line
        };
        // The visitor has said nothing so far.
        assert_eq!(line(), "220 ready\n");
        assert_eq!(line(), format!("PROXY TCP4 127.0.0.6 127.0.0.1 {visitor} {public}\r\n"));
        (&stream).write_all(b"before\n").unwrap();
        assert_eq!(line(), "before\n");
        running.wire().kill();
        (&stream).write_all(b"after\n").unwrap();
        assert_eq!(line(), "after\n");
        wait("the counters", SOON, || {
            let status = running.status("client")?;
            let few = &status["sessions"][0]["services"][0];
            // Only the visitor's bytes count.
            (few["bytes_in"] == 13 && few["streams_total"] == 1).then_some(())
        });
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"");
        origin.wait_one(SOON);
    }
}
