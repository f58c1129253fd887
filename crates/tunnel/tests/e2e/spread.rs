//! A client with two paths to one server: links over both, standbys, and moves on command.

use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;
use testkit::stage::Running;
use testkit::wire::Entry;

use crate::harness::{
    LONG, Origin, SOON, Scheme, Setup, bytes, connect, free_port, run, tunnel, wait,
};

/// The bytes of a transfer in each direction.
const TOTAL: u64 = 60_000_000;

/// A server with `tls://` and `wss://`, and a client that reaches `tls://` over a wire.
fn two_paths(origin: &Origin, spread: &str, links: usize) -> (Running, [String; 2]) {
    let mut setup = Setup::new(Scheme::TLS).service("echo", origin.port()).wired_with(links);
    let second = format!("wss://127.0.0.1:{}/tunnel", free_port());
    setup.more_listen.push(second.clone());
    setup.client_lines.push_str(&format!("spread: {spread}\nworkers: 1\n"));
    setup.server_lines.push_str("workers: 1\n");
    let mut running = setup.start_server();
    running.edit_client(|text| text.replacen("\"]", &format!("\", \"{second}\"]"), 1));
    running.start_client();
    running.wait_ready();
    let first = format!("tls://127.0.0.1:{}", running.wire().port());
    (running, [first, second])
}

fn links(running: &Running, side: &str) -> Vec<Value> {
    let status = running.status(side).unwrap();
    status["sessions"][0]["links"].as_array().cloned().unwrap_or_default()
}

/// The transports of the active carrier and of the standby of each link of the client.
fn carriers(running: &Running) -> Vec<(String, Option<String>)> {
    let of = |link: &Value| {
        let transport = |is_standby: bool| {
            let carriers = link["carriers"].as_array()?;
            let mut carriers = carriers.iter();
            let is_it = |one: &&Value| one["standby"].as_bool().unwrap_or_default() == is_standby;
            Some(carriers.find(is_it)?["transport"].as_str()?.to_owned())
        };
        (transport(false).unwrap_or_default(), transport(true))
    };
    let mut all: Vec<_> = links(running, "client").iter().map(of).collect();
    all.sort();
    all
}

fn wait_carriers(running: &Running, wanted: &[(&str, &str)]) {
    wait(&format!("{wanted:?}"), SOON, || {
        let found = carriers(running);
        let is_it = found.len() == wanted.len()
            && found.iter().zip(wanted).all(|((active, standby), (first, second))| {
                active == first && standby.as_deref() == Some(*second)
            });
        is_it.then_some(())
    });
}

/// Sends and receives over an echo while `meanwhile` runs, and checks each byte.
fn transfer(port: u16, streams: usize, meanwhile: impl FnOnce()) {
    std::thread::scope(|scope| {
        for _ in 0..streams {
            let near: TcpStream = connect(port);
            near.set_read_timeout(Some(LONG)).unwrap();
            let far = near.try_clone().unwrap();
            scope.spawn(move || bytes::send(near, TOTAL));
            scope.spawn(move || bytes::expect(far, TOTAL));
        }
        meanwhile();
    });
}

#[test]
fn links_that_are_spread_by_stream_use_both_paths_and_survive_the_death_of_a_path() {
    let origin = Origin::echo();
    let (mut running, _) = two_paths(&origin, "by_stream", 2);
    wait_carriers(&running, &[("tls", "wss"), ("wss", "tls")]);
    transfer(running.public("echo"), 2, || {
        std::thread::sleep(Duration::from_millis(300));
        running.wire().entry(Entry::Refused);
        running.wire().kill();
    });
    let log = running.client().log();
    let line = "resumed over wss://127.0.0.1:";
    assert!(log.contains(line) && log.contains("and a standby was ready"), "{log}");
    assert!(!log.contains("has no connection"), "no stream waited for a dial: {log}");
}

#[test]
fn a_backup_carries_all_streams_when_the_first_path_dies() {
    let origin = Origin::echo();
    let (mut running, _) = two_paths(&origin, "backup", 2);
    wait_carriers(&running, &[("tls", "wss"), ("tls", "wss")]);
    transfer(running.public("echo"), 2, || {
        std::thread::sleep(Duration::from_millis(300));
        running.wire().entry(Entry::Refused);
        running.wire().kill();
    });
    let log = running.client().log();
    assert_eq!(log.matches("and a standby was ready link=").count(), 2, "{log}");
    assert!(!log.contains("has no connection"), "{log}");
}

#[test]
fn links_move_back_and_forth_on_command_under_a_transfer() {
    for spread in ["none", "by_stream"] {
        let origin = Origin::echo();
        let (running, [first, second]) = two_paths(&origin, spread, 2);
        running.wait_links(2);
        let moved = |args: &[&str]| {
            let mut command = tunnel(&["move", "--control"]);
            let output = run(command.arg(running.file("client.sock")).args(args));
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (output.status.code(), text(&output.stdout), text(&output.stderr))
        };
        transfer(running.public("echo"), 2, || {
            for turn in 0..6 {
                let (to, transport) =
                    if turn % 2 == 0 { (&second, "wss") } else { (&first, "tls") };
                let (exit, said, complaint) = moved(&["--to", to, "--json"]);
                assert_eq!((exit, complaint.as_str()), (Some(0), ""), "{said}");
                let said: Value = serde_json::from_str(&said).unwrap();
                let links = said["moved"].as_array().unwrap();
                assert_eq!(links.len(), 2, "{said}");
                assert!(links.iter().all(|link| link["to"] == to.as_str()), "{said}");
                assert_eq!(said["failed"].as_array().unwrap().len(), 0, "{said}");
                assert!(carriers(&running).iter().all(|(active, _)| active == transport));
            }
        });
        let (exit, said, complaint) = moved(&[]);
        assert_eq!((exit, complaint.as_str()), (Some(0), ""), "{said}");
        let line = format!("moved from {first} to {second}\n");
        assert_eq!(said.matches(&line).count(), 2, "{said}");
        let (_, said, _) = moved(&["--to", &second]);
        assert_eq!(said.matches(&format!("uses {second} already\n")).count(), 2, "{said}");
        let (exit, _, complaint) = moved(&["--to", "tls://192.0.2.1:1"]);
        let hint = format!(
            "no path `tls://192.0.2.1:1` (hint: the paths of this client are {first}, {second})"
        );
        assert!(exit == Some(1) && complaint.contains(&hint), "{complaint}");
        running.wire().entry(Entry::Refused);
        let (exit, said, complaint) = moved(&["--to", &first]);
        assert_eq!((exit, said.as_str()), (Some(1), ""), "{complaint}");
        assert_eq!(complaint.matches(&format!("stays: {first}: ")).count(), 2, "{complaint}");
        running.wait_echo(running.public("echo"));
        let complaint = {
            let mut command = tunnel(&["move", "--control"]);
            let output = run(command.arg(running.file("server.sock")));
            assert_eq!(output.status.code(), Some(1));
            String::from_utf8(output.stderr).unwrap()
        };
        assert!(complaint.contains("where `tunnel client` runs"), "{complaint}");
    }
}

#[test]
fn interactive_streams_take_the_path_with_the_least_round_trip() {
    let origin = Origin::echo();
    // The datagrams of the wire take 30 ms in each direction.
    let mut setup = Setup::new(Scheme::QUIC).service("echo", origin.port()).wired_with(2);
    let second = format!("wss://127.0.0.1:{}/tunnel", free_port());
    setup.more_listen.push(second.clone());
    setup.client_lines.push_str("spread: by_stream\nworkers: 1\n");
    setup.server_lines.push_str("workers: 1\n");
    let mut running = setup.start_server();
    running.wire().delay(Duration::from_millis(30));
    let text = format!("\", \"{second}\"]");
    running.edit_client(|all| {
        let all = all.replacen("\"]", &text, 1);
        all.replace("name: echo,", "name: echo, priority: interactive,")
    });
    running.start_client();
    running.wait_ready();
    wait_carriers(&running, &[("quic", "wss"), ("wss", "quic")]);
    let port = running.public("echo");
    running.wait_echo(port);
    let has_rtt = |link: &Value| link["carriers"][0]["rtt_micros"].is_number();
    wait("round trips", SOON, || links(&running, "server").iter().all(has_rtt).then_some(()));
    let visitors: Vec<_> = (0..6).map(|_| connect(port)).collect();
    wait("all streams on one path", SOON, || {
        let streams = |wanted: &str| {
            let all = links(&running, "server");
            let of = all.iter().filter(|link| {
                let carriers = link["carriers"].as_array().unwrap();
                carriers.iter().any(|one| one["transport"] == wanted && one["standby"] != true)
            });
            of.map(|link| link["streams"].as_u64().unwrap()).sum::<u64>()
        };
        (streams("wss") == 6 && streams("quic") == 0).then_some(())
    });
    drop(visitors);
}
