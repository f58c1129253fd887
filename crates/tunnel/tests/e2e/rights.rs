//! Identity and rights of a client: hashed tokens, limits of ports and of new streams, the prefix
//! of names.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use proto::control::{ControlMessage, Register, ServiceSpec, ServiceTerms};
use proto::greeting::Name;
use testkit::stage::Running;

use crate::floods::really;
use crate::harness::{Origin, SOON, Scheme, Setup, connect, run, try_connect, tunnel, wait};
use crate::peer::log_in;
use crate::reload::{echo, outcome};

/// `tunnel generate hash` of what comes in.
fn hash(token: &str) -> (Option<i32>, String, String) {
    let mut command: Command = tunnel(&["generate", "hash"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    writeln!(child.stdin.take().unwrap(), "{token}").unwrap();
    outcome(child.wait_with_output().unwrap())
}

fn token_of(running: &Running) -> String {
    let text = fs::read_to_string(running.file("server.yaml")).unwrap();
    let line = text.lines().find(|line| line.contains("token:")).unwrap();
    line.split('"').nth(1).unwrap().to_owned()
}

fn applies(running: &Running, line: &str) {
    assert_eq!(outcome(running.reload("server")), (Some(0), format!("{line}\n"), String::new()));
}

#[test]
fn a_server_that_keeps_a_hash_knows_the_client_by_it() {
    for scheme in [Scheme::TLS, Scheme::TCP] {
        let origin = Origin::echo();
        let mut running = Setup::new(scheme).service("echo", origin.port()).start();
        let stays = connect(running.public("echo"));
        echo(&stays, 1);
        let token = token_of(&running);
        let (code, hashed, complaint) = hash(&token);
        assert_eq!((code, complaint.as_str()), (Some(0), ""));
        let hashed = hashed.trim();
        assert!(!hashed.contains(&token));

        // It is the same secret, so nothing changes; and it opens the door after a restart, too.
        running.edit_server(|text| text.replace(&token, hashed));
        applies(&running, "nothing to apply");
        echo(&stays, 2);
        running.server.kill();
        running.server.wait_end(SOON);
        running.start_server_again();
        running.wait_echo(running.public("echo"));

        // A client has no use for it.
        let mut other = running.start_another_client(|text| text.replace(&token, hashed));
        assert_eq!(other.wait_end(SOON).code(), Some(2));
        other.wait_line(&["another.yaml", "token", "hash of a token"], SOON);
    }
    let (code, said, complaint) = hash("weak");
    assert_eq!((code, said.as_str()), (Some(2), ""));
    assert!(complaint.contains("too weak") && !complaint.contains("weak\""), "{complaint}");
    let mut command = tunnel(&["generate", "hash", "/no/such/file"]);
    let (code, _, complaint) = outcome(run(&mut command));
    assert_eq!(code, Some(1));
    assert!(complaint.contains("/no/such/file"), "{complaint}");
}

#[test]
fn a_client_has_no_more_ports_than_it_may() {
    let origin = Origin::echo();
    let setup = Setup::new(Scheme::TLS).service("one", origin.port()).service("two", origin.port());
    let mut running = setup.start_server();
    running.edit_server(|text| text.replace("    allow:", "    limits: { ports: 1 }\n    allow:"));
    applies(&running, "client home changed");
    running.start_client();
    running.client().wait_line(&["service one is published at "], SOON);
    running.client().wait_line(&["two is not published", "limits.ports"], SOON);
    running.server.wait_line(&["two", "limits.ports"], SOON);
    running.wait_echo(running.public("one"));
    assert!(try_connect(running.public("two")).is_err());
    let stays = connect(running.public("one"));
    echo(&stays, 1);
    running.edit_server(|text| text.replace("ports: 1", "ports: 2"));
    applies(&running, "client home changed");
    wait("the second port", SOON, || try_connect(running.public("two")).ok());
    running.wait_echo(running.public("two"));
    echo(&stays, 2);
}

#[test]
fn streams_that_come_too_fast_are_refused_and_later_ones_are_not() {
    let origin = Origin::echo();
    let running = Setup::new(Scheme::TCP).service("echo", origin.port()).start();
    let public = running.public("echo");
    let stays = connect(public);
    echo(&stays, 1);
    running.edit_server(|text| {
        text.replace("    allow:", "    limits: { new_per_second: 20 }\n    allow:")
    });
    applies(&running, "client home changed");
    let pass = || {
        let answered = |_: &u32| {
            let Ok(mut visitor) = try_connect(public) else { return false };
            let sent = visitor.write_all(&[7]);
            sent.is_ok() && std::io::Read::read_exact(&mut visitor, &mut [0]).is_ok()
        };
        (0..300).filter(answered).count()
    };
    let start = std::time::Instant::now();
    let passed = pass();
    // A second's worth, and what the time that it took is worth.
    let most = 20 + 20 * (start.elapsed().as_secs() as usize + 1);
    println!("{passed} of 300 within {:?}", start.elapsed());
    assert!((20..=most).contains(&passed), "{passed}");
    // The limit is a rate per second of real time.
    thread::sleep(Duration::from_secs(1));
    assert!(pass() >= 20);
    echo(&stays, 2);
}

#[test]
fn a_prefix_is_part_of_every_name() {
    let origin = Origin::echo();
    let mut setup = Setup::new(Scheme::TLS).service("echo", origin.port());
    setup.client_lines.push_str("id_prefix: home\n");
    let mut running = setup.start();
    running.client().wait_line(&["service home-echo is published at "], SOON);
    running.server.wait_line(&["published", "home-echo"], SOON);
    running.wait_echo(running.public("echo"));
    let service = running.status("server").unwrap()["sessions"][0]["services"][0]["name"].clone();
    assert_eq!(service, "home-echo");
}

#[test]
fn who_audits_reads_who_came_in_and_what_was_changed_and_nothing_else() {
    let origin = Origin::echo();
    let mut setup = Setup::new(Scheme::TCP).service("echo", origin.port()).service("no", 1);
    setup.server_env.push(("TUNNEL_LOG", "off,audit=info".into()));
    setup.server_lines.push_str("log: { format: json }\n");
    let running = setup.start();
    let visitor = connect(running.public("echo"));
    echo(&visitor, 1);
    let audited = |words: &[&str]| running.server.wait_line(words, SOON);
    audited(&["client home has connected", "\"client\":\"home\""]);
    audited(&["published at", "\"service\":\"echo\""]);
    let token = token_of(&running);
    let wrong = "Zt5RkW1xQ8bN4mVc7LpYs2HdJf9GaE3u";
    let mut other = running.start_another_client(|text| text.replace(&token, wrong));
    audited(&["did not log in: wrong token"]);
    other.kill();
    other.wait_end(SOON);
    running.edit_server(|text| text.replace("    allow:", "    limits: { ports: 1 }\n    allow:"));
    applies(&running, "client home changed");
    audited(&["reloaded: client home changed"]);
    audited(&["not published", "\"service\":\"no\""]);
    running.edit_server(|text| format!("{text}typo: 1\n"));
    assert_eq!(outcome(running.reload("server")).0, Some(2));
    audited(&["not reloaded", "typo"]);
    let control = running.file("server.sock");
    let mut kill = tunnel(&["streams", "--json", "--control"]);
    let list: serde_json::Value = serde_json::from_slice(&run(kill.arg(&control)).stdout).unwrap();
    let id = list["list"][0]["id"].as_str().unwrap();
    assert!(run(tunnel(&["streams", "--kill", id, "--control"]).arg(&control)).status.success());
    audited(&["was reset, as asked over the control socket"]);
    assert!(run(tunnel(&["enroll", "away", "--control"]).arg(&control)).status.success());
    audited(&["a code was made", "away"]);
    for line in running.server.log().lines() {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["target"], "audit", "{line}");
        let mine = visitor.local_addr().unwrap().to_string();
        assert!(!line.contains(&mine), "a visitor's address in {line}");
    }
}

#[test]
fn whoever_looks_for_a_stream_finds_its_way_through_both_logs() {
    let origin = Origin::echo();
    let mut setup = Setup::new(Scheme::TLS).service("echo", origin.port());
    for lines in [&mut setup.server_lines, &mut setup.client_lines] {
        lines.push_str("log: { level: debug, format: json }\n");
    }
    setup.client_lines.push_str("connections: 1\n");
    let mut running = setup.start();
    let visitor = connect(running.public("echo"));
    echo(&visitor, 1);
    let mine = visitor.local_addr().unwrap().to_string();
    let line = running.server.wait_line(&["stream opened", &mine], SOON);
    let opened: serde_json::Value = serde_json::from_str(&line).unwrap();
    let (link, stream) = (opened["link"].to_string(), opened["stream"].to_string());
    // The number of a stream is the same at both ends; each end has its own for the link.
    let there = running.client().wait_line(&["stream opened by the other side", &mine], SOON);
    let there: serde_json::Value = serde_json::from_str(&there).unwrap();
    assert_eq!(there["stream"].to_string(), stream);
    drop(visitor);
    let (link, stream) = (format!("\"link\":{link}"), format!("\"stream\":{stream}"));
    running.server.wait_line(&["stream closed", &link, &stream], SOON);
}

#[test]
fn a_host_is_published_by_a_client_that_may_have_it_and_by_no_other() {
    let token = String::from_utf8(run(&mut tunnel(&["generate", "token"])).stdout).unwrap();
    let token = token.trim().to_owned();
    let mut setup = Setup::new(Scheme::TLS);
    setup.server_lines = format!(
        "  - {{ name: web, token: \"{token}\", limits: {{ hosts: 1 }}, \
         allow: {{ http: [\"*.home.example.com\"], tls: ['/t[0-9]\\.example\\.com/'] }} }}\n\
         http: {{ listen: '127.0.0.1:0' }}\ntls_routes: {{ listen: '127.0.0.1:0' }}\n"
    );
    let running = setup.start_server();
    let asked = [
        ("first", "http://x.home.example.com"),
        ("second", "http://y.home.example.com"),
        ("else", "http://home.example.com"),
        ("sealed", "tls://x.home.example.com"),
    ];
    let service = |(name, public): (&str, &str)| ServiceSpec {
        name: Name::new(name).unwrap(),
        public: vec![public.to_owned()],
        terms: ServiceTerms::default(),
    };
    let services = asked.map(service).to_vec();
    let register = ControlMessage::Register(Register {
        generation: 1,
        services,
        leaving: false,
        standby: false,
    });
    really(async {
        let mut peer = log_in(&running, "web", &token).await;
        peer.tell(&register).await;
        peer.expect(1).await;
    });
    let at = ["service first of client web is published at http://x.home.example.com"];
    running.server.wait_line(&at, SOON);
    for (name, why) in [("second", "limits.hosts"), ("else", "allow.http"), ("sealed", "allow.tls")]
    {
        running.server.wait_line(&["not published", name, why], SOON);
    }
}
