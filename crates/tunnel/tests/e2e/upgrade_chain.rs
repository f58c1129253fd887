//! Upgrades that follow each other: a client that sleeps over them, a next process that dies, an
//! idle link of a visit, and process 1 of a container.

use std::ffi::OsString;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::stage::Running;

use crate::harness::{Origin, SOON, Scheme, Setup, connect, free_port, program, run, tunnel, wait};
use crate::private::{Stage, private, relayed, tcp};
use crate::upgrade::{Ended, no_former, upgraded};

/// A visitor that has got its byte back.
pub(crate) fn echoed(mut stream: &TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(SOON))?;
    stream.write_all(b"x")?;
    stream.read_exact(&mut [0])
}

fn status(socket: &Path) -> Option<Value> {
    let output = run(tunnel(&["status", "--json", "--control"]).arg(socket));
    serde_json::from_slice(&output.stdout).ok()
}

fn kill(pid: u64) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

/// The process that answers at a control socket, once it is another one than `before`.
fn another(socket: &Path, before: u64) -> u64 {
    wait("another process that serves", SOON, || {
        status(socket)?["pid"].as_u64().filter(|pid| *pid != before)
    })
}

/// A visitor of the process that serves. One that comes before the client has its links there is of
/// the former process.
pub(crate) fn held(running: &Running, socket: &Path) -> TcpStream {
    wait("a visitor of the process that serves", SOON, || {
        let visitor = TcpStream::connect(("127.0.0.1", running.public("a"))).ok()?;
        echoed(&visitor).ok()?;
        let service = &status(socket)?["sessions"][0]["services"][0];
        (service["streams_total"].as_u64()? > 0).then_some(visitor)
    })
}

fn served_again(running: &Running) {
    wait("a visitor is served", SOON, || {
        let visitor = TcpStream::connect(("127.0.0.1", running.public("a"))).ok()?;
        echoed(&visitor).ok()
    });
}

#[test]
fn a_next_process_that_dies_is_replaced_while_a_client_sleeps() {
    let echo = Origin::echo();
    let mut running = Setup::new(Scheme::TLS).service("a", echo.port()).start();
    let socket = running.file("server.sock");
    let _ended = Ended(socket.clone());
    running.wait_echo(running.public("a"));
    let stays = connect(running.public("a"));
    echoed(&stays).unwrap();
    // The client has not moved when the next upgrade comes, and when the next process dies.
    running.client().signal(Signal::STOP);
    upgraded(&socket);
    let (_, third) = upgraded(&socket);
    let third = u64::from(third);
    kill(third);
    let fourth = another(&socket, third);
    kill(fourth);
    another(&socket, fourth);
    running.client().signal(Signal::CONT);
    served_again(&running);
    echoed(&stays).expect("an open stream goes on");
    // The process between has no stream, and may have ended.
    wait("the former process with the open stream in the status", SOON, || {
        (!status(&socket)?["former"].as_array()?.is_empty()).then_some(())
    });
    drop(stays);
    no_former(&socket);
    served_again(&running);
}

#[test]
fn former_processes_that_are_too_many_or_too_old_end_with_their_streams() {
    let echo = Origin::echo();
    let mut setup = Setup::new(Scheme::TLS).service("a", echo.port());
    setup.server_lines.push_str("drain_timeout: 1s\nupgrade: { former_max: 1 }\n");
    let running = setup.start();
    let socket = running.file("server.sock");
    let _ended = Ended(socket.clone());
    running.wait_echo(running.public("a"));
    let is_over = |mut visitor: &TcpStream| {
        visitor.set_read_timeout(Some(SOON)).unwrap();
        match visitor.read(&mut [0]) {
            Ok(read) => read == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    };
    let former = || {
        let former = status(&socket)?["former"].as_array().cloned().unwrap_or_default();
        Some(former.iter().map(|one| one["pid"].as_u64().unwrap()).collect::<Vec<_>>())
    };
    let oldest = held(&running, &socket);
    upgraded(&socket);
    let newer = held(&running, &socket);
    let (second, _) = upgraded(&socket);
    assert!(is_over(&oldest), "the oldest former process ends");
    wait("the end of the oldest former process", SOON, || {
        (former()? == [u64::from(second)]).then_some(())
    });
    echoed(&newer).expect("a former process within the bounds stays");
    running.edit_server(|text| text.replace("former_max: 1", "former_max: 1, former_for: 1s"));
    assert!(running.reload("server").status.success());
    assert!(is_over(&newer), "a former process that is too old ends");
    no_former(&socket);
    served_again(&running);
}

#[test]
fn a_client_s_next_process_that_dies_is_replaced() {
    let echo = Origin::echo();
    let mut running =
        Setup::new(Scheme::TLS).service("a", echo.port()).forward(echo.port()).start();
    let socket = running.file("client.sock");
    let _ended = Ended(socket.clone());
    running.wait_echo(running.public("a"));
    let stays = connect(running.public("a"));
    echoed(&stays).unwrap();
    let (_, next) = upgraded(&socket);
    served_again(&running);
    kill(next.into());
    another(&socket, next.into());
    served_again(&running);
    running.wait_echo(running.local());
    echoed(&stays).expect("an open stream goes on");
    drop(stays);
    no_former(&socket);
    assert!(running.client().is_running());
    served_again(&running);
}

#[test]
fn a_process_that_is_watched_stays_and_no_signal_ends_it_while_it_becomes_the_parent() {
    let echo = Origin::echo();
    let mut running = Setup::new(Scheme::TLS).service("a", echo.port()).start();
    let socket = running.file("server.sock");
    running.wait_echo(running.public("a"));
    let environment = format!("/proc/{}/environ", running.server.id());
    let is_parent = || {
        let text = fs::read(&environment).unwrap_or_default();
        text.split(|byte| *byte == 0).any(|one| one.starts_with(b"TUNNEL_PARENT_OF="))
    };
    upgraded(&socket);
    // A reload from outside, again and again: the process passes it on, before and after.
    wait("the small parent", SOON, || {
        running.server.signal(Signal::HUP);
        is_parent().then_some(())
    });
    (0..100).for_each(|_| running.server.signal(Signal::HUP));
    served_again(&running);
    assert!(running.server.is_running(), "{}", running.server.log());
    running.server.signal(Signal::TERM);
    assert!(running.server.wait_end(SOON).success(), "{}", running.server.log());
}

#[test]
fn a_link_of_a_visit_that_nobody_uses_keeps_no_former_process() {
    let echo = Origin::echo();
    let services = [private("echo", &tcp(echo.port()))];
    let mut stage = Stage::new(Setup::new(Scheme::TLS), "home/echo", &services);
    let local = free_port();
    stage.visit(&format!("forwards:\n{}", relayed(&tcp(local), "home/echo")));
    let visited = || {
        wait("a visit", SOON, || {
            let visitor = TcpStream::connect(("127.0.0.1", local)).ok()?;
            echoed(&visitor).ok()
        });
    };
    visited();
    let mut ended = Vec::new();
    // The server, the client with the service, and the client that visits it.
    let sockets = ["server.sock", "client.sock"].map(|name| stage.running.file(name));
    for socket in sockets.into_iter().chain([stage.another_socket()]) {
        ended.push(Ended(socket.clone()));
        visited();
        upgraded(&socket);
        no_former(&socket);
        visited();
    }
}

/// Runs a command in the namespace of a process.
fn inside(process: u64, words: &[&str]) -> std::process::Output {
    let mut command = Command::new(program("nsenter"));
    command.args(["--target", &process.to_string(), "--pid", "--mount"]);
    run(command.args(words))
}

fn children(process: u64) -> Option<Vec<u64>> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).ok()?;
    Some(text.split_whitespace().map(|pid| pid.parse().unwrap()).collect())
}

#[test]
fn process_1_of_a_container_is_upgraded_and_reaps_orphans() {
    let words = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let mut trial = Command::new(program("unshare"));
    if !run(trial.args(&words[1..]).arg("true")).status.success() {
        assert!(std::env::var_os("CI").is_none(), "this machine permits no namespace of processes");
        return;
    }
    let echo = Origin::echo();
    let mut setup = Setup::new(Scheme::TLS).service("a", echo.port());
    setup.server_starter = words.map(OsString::from).into();
    let mut running = setup.start();
    let socket = running.file("server.sock");
    let outer = running.server.id();
    running.wait_echo(running.public("a"));
    let first = children(outer.into()).unwrap()[0];
    let stays = connect(running.public("a"));
    echoed(&stays).unwrap();
    // `sh` leaves its children to process 1.
    let orphans = "for n in 1 2 3; do (sleep 0.1 &); done";
    assert!(inside(first, &["sh", "-c", orphans]).status.success());
    let is_dead = |pid: &u64| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.contains(") Z ")
    };
    wait("the end of the orphans", SOON, || {
        let children = children(first)?;
        (children.len() == 1 && !children.iter().any(is_dead)).then_some(())
    });
    let binary = testkit::stage::binary();
    let upgrade = [binary.to_str().unwrap(), "upgrade", "--control", socket.to_str().unwrap()];
    let output = inside(first, &upgrade);
    assert!(output.status.success(), "{output:?}");
    served_again(&running);
    echoed(&stays).unwrap();
    drop(stays);
    wait("the former process ends", SOON, || (children(first)?.len() == 1).then_some(()));
    served_again(&running);
    let process_1 = Pid::from_raw(i32::try_from(first).unwrap()).unwrap();
    kill_process(process_1, Signal::TERM).unwrap();
    assert!(running.server.wait_end(SOON).success(), "{}", running.server.log());
}
