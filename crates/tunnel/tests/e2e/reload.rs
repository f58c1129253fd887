//! `tunnel reload` and SIGHUP on a server: clients are added, changed and removed, and other
//! clients are not affected.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use testkit::stage::Running;

use crate::harness::{
    Nginx, Origin, SOON, Scheme, Setup, connect, free_port, program, run, try_connect, tunnel, wait,
};

/// Five times the second within which a client that was put out is out.
const OUT: Duration = Duration::from_secs(5);

pub(crate) fn token() -> String {
    String::from_utf8(run(&mut tunnel(&["generate", "token"])).stdout).unwrap().trim().to_owned()
}

/// A second entry under `clients`, at the end of the file.
fn guest(token: &str, port: u16) -> String {
    format!("  - {{ name: guest, token: \"{token}\", allow: {{ tcp: [\"{port}\"] }} }}\n")
}

/// Exit code, standard output and error of `tunnel reload`.
pub(crate) fn outcome(output: Output) -> (Option<i32>, String, String) {
    let [said, complaint] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (output.status.code(), said, complaint)
}

fn reload(running: &Running) -> (Option<i32>, String, String) {
    outcome(running.reload("server"))
}

/// Reloads, and expects just this to be different.
fn applies(running: &Running, line: &str) {
    assert_eq!(reload(running), (Some(0), format!("{line}\n"), String::new()));
}

pub(crate) fn echo(mut visitor: &TcpStream, byte: u8) {
    visitor.write_all(&[byte]).unwrap();
    let mut back = [0];
    visitor.read_exact(&mut back).unwrap();
    assert_eq!(back, [byte]);
}

/// The connection ends, in whatever way, within [`OUT`].
fn expect_gone(mut visitor: &TcpStream) {
    visitor.set_read_timeout(Some(OUT)).unwrap();
    match visitor.read(&mut [0]) {
        Ok(0) => {}
        Ok(_) => panic!("a byte that nobody sent"),
        Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset, "{e}"),
    }
}

#[test]
fn a_client_that_is_added_comes_in_and_one_that_is_removed_is_out_at_once() {
    for &scheme in Scheme::ALL {
        let origin = Origin::echo();
        let running = Setup::new(scheme).service("echo", origin.port()).start();
        let (public, port, token) = (running.public("echo"), free_port(), token());
        let stays = connect(public);
        echo(&stays, 1);
        let start_guest = || {
            running.start_another_client(|text| {
                let lines = text.lines().map(|line| match line {
                    _ if line.starts_with("token:") => format!("token: \"{token}\""),
                    _ if line.contains("public:") => {
                        line.replace(&public.to_string(), &port.to_string())
                    }
                    _ => line.replace("name: home", "name: guest"),
                });
                lines.collect::<Vec<_>>().join("\n")
            })
        };
        let stranger = start_guest();
        stranger.wait_line(&["wrong token"], SOON);
        drop(stranger);

        running.edit_server(|text| text + &guest(&token, port));
        applies(&running, "client guest added");
        let client = start_guest();
        client.wait_line(&["service echo is published at "], SOON);
        let visitor = connect(port);
        echo(&visitor, 2);

        running.edit_server(|text| text.replace(&guest(&token, port), ""));
        let start = Instant::now();
        applies(&running, "client guest removed: its connections end");
        expect_gone(&visitor);
        println!("{scheme:?}: out after {:?}", start.elapsed());
        wait("its port closes", OUT, || try_connect(port).is_err().then_some(()));
        client.wait_line(&["wrong token"], SOON);
        echo(&stays, 3);
    }
}

#[test]
fn a_token_is_rotated_and_the_old_one_is_worth_nothing() {
    let origin = Origin::echo();
    let mut running = Setup::new(Scheme::TLS).service("echo", origin.port()).start();
    let visitor = connect(running.public("echo"));
    echo(&visitor, 1);
    let text = std::fs::read_to_string(running.file("server.yaml")).unwrap();
    let old = text.lines().find(|line| line.contains("token:")).unwrap().trim().to_owned();
    let old_token = old.split('"').nth(1).unwrap();
    let new_token = token();
    running.edit_server(|text| {
        text.replace(&old, &format!("token: [\"{old_token}\", \"{new_token}\"]"))
    });
    applies(&running, "client home changed");
    echo(&visitor, 2);

    let both = format!("token: [\"{old_token}\", \"{new_token}\"]");
    running.edit_server(|text| text.replace(&both, &format!("token: \"{new_token}\"")));
    applies(&running, "client home changed: a credential is gone, it has to log in again");
    expect_gone(&visitor);
    running.client().wait_line(&["wrong token"], SOON);
    running.client().kill();
    running.edit_client(|text| text.replace(old_token, &new_token));
    running.start_client();
    running.wait_ready();
    running.wait_echo(running.public("echo"));
}

#[test]
fn rights_open_and_close_ports_and_forwards_under_the_links_that_there_are() {
    let origin = Origin::echo();
    let setup = Setup::new(Scheme::TLS).service("echo", origin.port()).forward(origin.port());
    let mut running = setup.start();
    let (public, local) = (running.public("echo"), running.local());
    let stays = connect(public);
    echo(&stays, 1);
    running.wait_echo(local);
    let original = std::fs::read_to_string(running.file("server.yaml")).unwrap();
    let allow = original.lines().find(|line| line.contains("allow:")).unwrap().to_owned();

    running.edit_server(|text| text.replace(&allow, "    allow: {}"));
    applies(&running, "client home changed");
    wait("the port closes", SOON, || try_connect(public).is_err().then_some(()));
    running.client().wait_line(&["echo is not published", "not allowed"], SOON);
    crate::harness::bytes::expect_refused(try_connect(local));
    // Whoever was inside stays.
    echo(&stays, 2);

    running.edit_server(|_| original);
    applies(&running, "client home changed");
    wait("the port opens", SOON, || try_connect(public).ok());
    running.wait_echo(public);
    running.wait_echo(local);
    echo(&stays, 3);
    let log = running.client().log();
    assert!(!log.contains("carrier lost") && !log.contains("client home ended"), "{log}");
}

#[test]
fn a_limit_counts_the_streams_that_live_and_ends_none_of_them() {
    let origin = Origin::echo();
    let running = Setup::new(Scheme::TCP).service("echo", origin.port()).start();
    let public = running.public("echo");
    let before = connect(public);
    echo(&before, 1);
    running
        .edit_server(|text| text.replace("    allow:", "    limits: { streams: 2 }\n    allow:"));
    applies(&running, "client home changed");
    let first = connect(public);
    echo(&first, 2);
    crate::harness::bytes::expect_refused(try_connect(public));
    echo(&before, 3);
    drop(first);
    running.wait_echo(public);
}

#[test]
fn a_wrong_file_changes_nothing_and_is_told_in_exit_code_log_and_status() {
    let origin = Origin::echo();
    let running = Setup::new(Scheme::TLS).service("echo", origin.port()).start();
    let visitor = connect(running.public("echo"));
    echo(&visitor, 1);
    let good = std::fs::read_to_string(running.file("server.yaml")).unwrap();
    running.edit_server(|text| text.replace("- name: home", "- name: other") + "typo: 1\n");
    let (code, said, complaint) = reload(&running);
    assert_eq!((code, said.as_str()), (Some(2), ""), "{complaint}");
    assert!(complaint.contains("server.yaml:") && complaint.contains("typo"), "{complaint}");
    running.server.wait_line(&["not reloaded, nothing has changed", "typo"], SOON);
    let reload_error =
        |running: &Running| running.status("server").unwrap()["reload_error"].clone();
    assert!(reload_error(&running).as_str().unwrap().contains("typo"));
    echo(&visitor, 2);
    running.wait_echo(running.public("echo"));

    // Found by its file all the same.
    running.edit_server(|text| text.replace("typo: 1", "slip: 1"));
    let file = running.file("server.yaml");
    let (code, said, complaint) = outcome(run(tunnel(&["reload", "--config"]).arg(file)));
    assert_eq!((code, said.as_str()), (Some(2), ""), "{complaint}");
    assert!(complaint.contains("slip"), "{complaint}");
    assert!(reload_error(&running).as_str().unwrap().contains("slip"));

    running.edit_server(|_| good);
    running.server.signal(Signal::HUP);
    running.server.wait_line(&["reloaded: nothing to apply"], SOON);
    assert!(reload_error(&running).is_null());
}

#[test]
fn keys_for_new_connections_are_applied_and_those_that_wait_for_a_restart_are_named() {
    let mut running = Setup::new(Scheme::TLS).start();
    running.wait_links(2);
    running.edit_server(|text| {
        text + "keepalive: 3s\ntrusted_proxies: [ 192.0.2.1 ]\nlog: { level: debug }\n\
                public_bind: 127.0.0.1\nmemory_budget: 64MiB\n"
    });
    let (code, said, complaint) = reload(&running);
    assert_eq!(code, Some(0), "{complaint}");
    let expected = "trusted_proxies changed for new connections\n\
                    keepalive changed for new connections\nlog.level changed\n";
    assert_eq!(said, expected);
    assert!(complaint.contains("restart: public_bind, memory_budget"), "{complaint}");
    running.client().kill();
    running.server.wait_line(&["DEBUG"], SOON);
    // They still wait, and there is nothing more to apply.
    let (_, said, complaint) = reload(&running);
    assert_eq!(said, "nothing to apply\n");
    assert!(complaint.contains("restart: public_bind, memory_budget"), "{complaint}");
    running.start_client();
    running.wait_links(2);
}

#[test]
fn twenty_reloads_under_load_fail_no_request() {
    let setup = Setup::new(Scheme::TLS);
    let nginx = Nginx::start(setup.dir(), "");
    let running = setup.service("web", nginx.port).start();
    let url = format!("http://127.0.0.1:{}/small", running.public("web"));
    // Longer than any machine needs for the rest; it is told when to stop.
    let mut load = Command::new(program("wrk"));
    load.args(["-t1", "-c50", "-d100s", &url]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut load = load.spawn().unwrap();
    let entry = guest(&token(), free_port());
    for round in 0..20 {
        if round % 2 == 0 {
            running.edit_server(|text| text + &entry);
            applies(&running, "client guest added");
        } else {
            running.edit_server(|text| text.replace(&entry, ""));
            applies(&running, "client guest removed: its connections end");
        }
        thread::sleep(Duration::from_millis(100));
    }
    assert!(load.try_wait().unwrap().is_none(), "all of it was under load");
    kill_process(Pid::from_child(&load), Signal::INT).unwrap();
    let output = load.wait_with_output().unwrap();
    let report = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && report.contains("requests in"), "{report}");
    // wrk prints these lines only when something went wrong.
    assert!(!report.contains("Socket errors") && !report.contains("Non-2xx"), "{report}");
}
