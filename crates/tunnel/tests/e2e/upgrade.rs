//! `tunnel upgrade`: a daemon goes on in a new process. Streams that are open go on, every new
//! visitor is served, and a new process that cannot serve changes nothing.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use serde_json::Value;
use testkit::stage::{Daemon, Running};

use crate::harness::{
    Origin, SOON, Scheme, Setup, connect, free_port, run, side_by_side, tunnel, wait,
};

/// Ends the daemon at a control socket, whichever process it is by now.
pub(crate) struct Ended(pub(crate) PathBuf);

impl Drop for Ended {
    fn drop(&mut self) {
        if self.0.exists() {
            drop(run(tunnel(&["stop", "--now", "--control"]).arg(&self.0)));
        }
    }
}

pub(crate) fn upgrade(socket: &Path, more: &[&str]) -> Output {
    run(tunnel(&["upgrade", "--json", "--control"]).arg(socket).args(more))
}

/// Upgrades, and returns the ids of the former and of the new process.
pub(crate) fn upgraded(socket: &Path) -> (u32, u32) {
    let output = upgrade(socket, &[]);
    assert!(output.status.success(), "{output:?}");
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    let id = |key: &str| u32::try_from(status[key].as_u64().unwrap()).unwrap();
    (id("former_pid"), id("pid"))
}

/// Waits until no former process is left of the daemon at a control socket.
pub(crate) fn no_former(socket: &Path) {
    wait("the end of the former processes", SOON, || {
        let output = run(tunnel(&["status", "--json", "--control"]).arg(socket));
        let status: Value = serde_json::from_slice(&output.stdout).ok()?;
        status["former"].is_null().then_some(())
    });
}

pub(crate) fn pid(running: &Running, role: &str) -> u32 {
    u32::try_from(running.status(role).unwrap()["pid"].as_u64().unwrap()).unwrap()
}

fn echoes(mut stream: impl Read + Write, text: &[u8]) -> std::io::Result<()> {
    stream.write_all(text)?;
    let mut read = vec![0; text.len()];
    stream.read_exact(&mut read)?;
    assert_eq!(read, text);
    Ok(())
}

/// Visitors of an echo: one that stays and moves bytes all the time, and new ones one after
/// another.
pub(crate) struct Load {
    is_over: Arc<AtomicBool>,
    visits: Arc<AtomicU64>,
    blocks: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    pub(crate) fn start(port: u16) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let [visits, blocks] = [(); 2].map(|()| Arc::<AtomicU64>::default());
        let (over, count) = (Arc::clone(&is_over), Arc::clone(&visits));
        let visitors = thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let visitor = TcpStream::connect(("127.0.0.1", port));
                let visitor = visitor.expect("a connect is never refused");
                visitor.set_read_timeout(Some(SOON)).unwrap();
                echoes(&visitor, b"hello").expect("a new visitor is served");
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        let (over, count) = (Arc::clone(&is_over), Arc::clone(&blocks));
        let stays = connect(port);
        stays.set_read_timeout(Some(SOON)).unwrap();
        let bulk = thread::spawn(move || {
            let mut block = vec![0; 64 << 10];
            while !over.load(Ordering::Relaxed) {
                let number = count.fetch_add(1, Ordering::Relaxed);
                block.fill(number.to_le_bytes()[0]);
                echoes(&stays, &block).expect("an open stream goes on");
            }
        });
        Self { is_over, visits, blocks, threads: vec![visitors, bulk] }
    }

    /// Waits until both kinds of visitors have gone on for a while.
    pub(crate) fn goes_on(&self) {
        let [visits, blocks] = [&self.visits, &self.blocks].map(|n| n.load(Ordering::Relaxed));
        wait("visitors that go on", SOON, || {
            let failed = self.threads.iter().any(JoinHandle::is_finished);
            assert!(!failed, "a visitor has failed");
            let more = self.visits.load(Ordering::Relaxed) >= visits + 20
                && self.blocks.load(Ordering::Relaxed) >= blocks + 20;
            more.then_some(())
        });
    }

    pub(crate) fn end(mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

const ALL: [Scheme; 6] =
    [Scheme::TCP, Scheme::TLS, Scheme::WS, Scheme::WSS, Scheme::QUIC, Scheme::KCP];

#[test]
fn a_server_is_upgraded_twice_under_load() {
    side_by_side(&ALL, |scheme| {
        let echo = Origin::echo();
        let mut setup = Setup::new(scheme).service("a", echo.port()).forward(echo.port());
        setup.server_lines.push_str("workers: 2\n");
        let mut running = setup.start();
        let socket = running.file("server.sock");
        let _ended = Ended(socket.clone());
        running.wait_echo(running.public("a"));
        let loads = [running.public("a"), running.local()].map(Load::start);
        loads.iter().for_each(Load::goes_on);
        let (first, second) = upgraded(&socket);
        assert_eq!(first, running.server.id());
        loads.iter().for_each(Load::goes_on);
        assert!(running.server.is_running(), "its streams go on");
        let more = [running.public("a"), running.local()].map(Load::start);
        let (second_again, third) = upgraded(&socket);
        assert_eq!(second, second_again);
        loads.iter().chain(&more).for_each(Load::goes_on);
        assert_eq!(pid(&running, "server"), third);
        loads.into_iter().chain(more).for_each(Load::end);
        no_former(&socket);
        assert!(running.server.is_running(), "the first process stays as the parent");
        wait("one session of both links", SOON, || {
            let status = running.status("server")?;
            (status["sessions"].as_array()?.len() == 1).then_some(())
        });
    });
}

#[test]
fn a_client_is_upgraded_twice_under_load() {
    side_by_side(&ALL, |scheme| {
        let echo = Origin::echo();
        let mut running = Setup::new(scheme).service("a", echo.port()).forward(echo.port()).start();
        let socket = running.file("client.sock");
        let _ended = Ended(socket.clone());
        running.wait_echo(running.public("a"));
        let loads = [running.public("a"), running.local()].map(Load::start);
        loads.iter().for_each(Load::goes_on);
        let (first, _) = upgraded(&socket);
        assert_eq!(first, running.client().id());
        loads.iter().for_each(Load::goes_on);
        let more = [running.public("a"), running.local()].map(Load::start);
        let (_, third) = upgraded(&socket);
        loads.iter().chain(&more).for_each(Load::goes_on);
        assert_eq!(pid(&running, "client"), third);
        loads.into_iter().chain(more).for_each(Load::end);
        no_former(&socket);
        assert!(running.client().is_running(), "the first process stays as the parent");
    });
}

#[test]
fn a_proxy_is_upgraded_under_load() {
    let (dir, echo, port) = (tempfile::tempdir().unwrap(), Origin::echo(), free_port());
    let socket = dir.path().join("proxy.sock");
    let file = dir.path().join("proxy.yaml");
    let text = format!(
        "control: {}\nproxies:\n  - {{ listen: \"tcp://127.0.0.1:{port}\", target: \
         \"tcp://127.0.0.1:{}\" }}\n",
        socket.display(),
        echo.port()
    );
    fs::write(&file, text).unwrap();
    let mut command = tunnel(&["proxy", "--config"]);
    let mut proxy = Daemon::start("proxy", dir.path(), command.arg(&file).env("HOME", dir.path()));
    wait("the proxy", SOON, || TcpStream::connect(("127.0.0.1", port)).ok());
    let _ended = Ended(socket.clone());
    let load = Load::start(port);
    load.goes_on();
    let (first, _) = upgraded(&socket);
    assert_eq!(first, proxy.id());
    load.goes_on();
    load.end();
    no_former(&socket);
    assert!(proxy.is_running(), "the first process stays as the parent");
    echoes(connect(port), b"hello").unwrap();
}

/// Each side moves datagrams again, over a listener that both processes had.
#[test]
fn listeners_of_datagrams_go_over_as_well() {
    let (dir, echo, port) = (tempfile::tempdir().unwrap(), crate::udp::Echo::start(), free_port());
    let socket = dir.path().join("proxy.sock");
    let mut command = tunnel(&["proxy", "--control"]);
    command.arg(&socket).args(["--listen", &format!("udp://127.0.0.1:{port}")]);
    command.args(["--target", &format!("udp://127.0.0.1:{}", echo.port())]);
    command.env("HOME", dir.path());
    let mut proxy = Daemon::start("proxy", dir.path(), &mut command);
    let _ended = Ended(socket.clone());
    let comes_back = || {
        let visitor = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        visitor.connect(("127.0.0.1", port)).unwrap();
        visitor.set_read_timeout(Some(std::time::Duration::from_millis(500))).unwrap();
        wait("a datagram that comes back", SOON, || {
            visitor.send(b"datagram").ok()?;
            visitor.recv(&mut [0; 16]).ok()
        });
    };
    comes_back();
    upgraded(&socket);
    comes_back();
    no_former(&socket);
    assert!(proxy.is_running(), "the first process stays as the parent");
    comes_back();
}

fn script(at: &Path, text: &str) -> String {
    fs::write(at, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(at, fs::Permissions::from_mode(0o755)).unwrap();
    at.to_str().unwrap().to_owned()
}

#[test]
fn a_new_process_that_cannot_serve_changes_nothing() {
    let echo = Origin::echo();
    let mut running = Setup::new(Scheme::TLS).service("a", echo.port()).start();
    let socket = running.file("server.sock");
    let _ended = Ended(socket.clone());
    running.wait_echo(running.public("a"));
    let load = Load::start(running.public("a"));
    let [ends, hangs] = ["ends", "hangs"].map(|name| running.file(name));
    let fails = |more: &[&str], why: &str| {
        let output = upgrade(&socket, more);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(why) && said.contains("goes on as before"), "{said}");
        load.goes_on();
    };
    fails(
        &["--binary", &script(&ends, "exit 3")],
        "has ended (exit status: 3) before it was ready",
    );
    fails(
        &["--binary", &script(&hangs, "exec sleep 60"), "--timeout", "1"],
        "was not ready in 1 s",
    );
    fails(&["--binary", "/nonexistent/tunnel"], "/nonexistent/tunnel");
    let text = fs::read_to_string(running.file("server.yaml")).unwrap();
    let broken = |text: String| fs::write(running.file("server.yaml"), text).unwrap();
    broken(format!("{text}nonsense: 1\n"));
    fails(&[], "nonsense");
    broken(format!("{text}tls: {{ cert: /nonexistent/cert.pem, key: /nonexistent/key.pem }}\n"));
    fails(&[], "/nonexistent/cert.pem");
    // A port of another program, after the other listeners were bound.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap();
    broken(format!("{text}http: {{ listen: \"{at}\" }}\n"));
    fails(&[], "cannot listen on");
    broken(text);
    assert!(running.server.is_running());
    assert_eq!(pid(&running, "server"), running.server.id());
    // The daemon that goes on is whole: it reloads, and it can be upgraded.
    assert!(running.reload("server").status.success());
    upgraded(&socket);
    load.goes_on();
    load.end();
    no_former(&socket);
}

#[test]
fn a_stop_of_the_new_process_ends_the_former_process_as_well() {
    let echo = Origin::echo();
    let mut setup = Setup::new(Scheme::TLS).service("a", echo.port());
    setup.server_lines.push_str("drain_timeout: 1s\n");
    let mut running = setup.start();
    let socket = running.file("server.sock");
    let _ended = Ended(socket.clone());
    running.wait_echo(running.public("a"));
    let stays = connect(running.public("a"));
    echoes(&stays, b"hello").unwrap();
    upgraded(&socket);
    echoes(&stays, b"hello").unwrap();
    assert!(running.server.is_running());
    let stopped = run(tunnel(&["stop", "--control"]).arg(&socket));
    assert!(stopped.status.success(), "{stopped:?}");
    assert!(running.server.wait_end(SOON).success(), "{}", running.server.log());
    // The new process may end a moment after the former one.
    wait("the socket file goes with the last process", SOON, || (!socket.exists()).then_some(()));
}
