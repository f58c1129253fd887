//! What a daemon tells systemd (`Type=notify`), at a socket of this test: ready, reloading, alive,
//! its main process, stopping.

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use testkit::stage::Daemon;

use crate::harness::{Origin, SOON, Scheme, Setup, connect, free_port, run, tunnel, wait};
use crate::manager::Manager;
use crate::upgrade::{Ended, upgraded};

/// A proxy of two workers, and its folder.
struct Proxy {
    dir: tempfile::TempDir,
    port: u16,
    _origin: Origin,
}

impl Proxy {
    fn new() -> Self {
        let (dir, port, origin) = (tempfile::tempdir().unwrap(), free_port(), Origin::echo());
        let text = format!(
            "control: {}\nworkers: 2\nproxies:\n  - {{ listen: \"tcp://127.0.0.1:{port}\", target: \
             \"tcp://127.0.0.1:{}\" }}\n",
            dir.path().join("proxy.sock").display(),
            origin.port()
        );
        fs::write(dir.path().join("proxy.yaml"), text).unwrap();
        Self { dir, port, _origin: origin }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, manager: &Manager) -> Command {
        let mut command = tunnel(&["proxy", "--config"]);
        command.arg(self.file("proxy.yaml")).env("HOME", self.dir.path());
        let (name, value) = manager.variable();
        command.env(name, value);
        command
    }

    fn start(&self, command: &mut Command) -> Daemon {
        Daemon::start("proxy", self.dir.path(), command)
    }

    fn manager(&self) -> Manager {
        Manager::at(&self.file("notify"))
    }
}

fn now() -> Duration {
    clock_gettime(ClockId::Monotonic).try_into().unwrap()
}

#[test]
fn each_step_of_a_daemon_is_told_at_a_path_and_at_an_abstract_name() {
    let abstract_name = format!("tunnel-notified-{}", std::process::id());
    for is_abstract in [false, true] {
        let proxy = Proxy::new();
        let manager = if is_abstract { Manager::named(&abstract_name) } else { proxy.manager() };
        let mut daemon = proxy.start(&mut proxy.command(&manager));
        let ready = manager.wait("READY", "1");
        // The listeners are bound: a connect needs no second attempt.
        TcpStream::connect(("127.0.0.1", proxy.port)).unwrap();
        assert_eq!(ready.pid, daemon.id());
        let status = ready.field("STATUS").unwrap().to_owned();
        assert!(status.contains("proxy"), "{status}");

        // A reload says when it began, and its end, also where nothing has changed.
        let text = fs::read_to_string(proxy.file("proxy.yaml")).unwrap();
        for text in [text.clone(), format!("{text}nonsense: 1\n")] {
            fs::write(proxy.file("proxy.yaml"), text).unwrap();
            let before = now();
            daemon.signal(Signal::HUP);
            let reloading = manager.wait("RELOADING", "1");
            let at: u64 = reloading.field("MONOTONIC_USEC").unwrap().parse().unwrap();
            let at = Duration::from_micros(at);
            assert!(at + Duration::from_micros(1) >= before && at <= now(), "{at:?}");
            assert!(reloading.field("READY").is_none());
            assert!(manager.next().says("READY", "1"));
        }

        let stays = connect(proxy.port);
        daemon.terminate();
        let stopping = manager.wait("STOPPING", "1");
        assert!(stopping.says("STATUS", "draining"));
        // `drain_timeout` of the file is the default.
        assert!(stopping.says("EXTEND_TIMEOUT_USEC", "120000000"), "{stopping:?}");
        drop(stays);
        assert!(daemon.wait_end(SOON).success());
        assert!(manager.rest().iter().all(|last| last.field("READY").is_none()));
    }
}

#[test]
fn a_daemon_whose_port_is_taken_is_never_ready() {
    let proxy = Proxy::new();
    let manager = proxy.manager();
    let _taken = std::net::TcpListener::bind(("127.0.0.1", proxy.port)).unwrap();
    let mut daemon = proxy.start(&mut proxy.command(&manager));
    assert!(!daemon.wait_end(SOON).success());
    assert!(manager.rest().iter().all(|said| said.field("READY").is_none()));
}

#[test]
fn server_and_client_are_ready_when_they_listen() {
    let origin = Origin::echo();
    let mut setup = Setup::new(Scheme::TLS).service("a", origin.port()).forward(origin.port());
    let managers =
        ["server", "client"].map(|role| Manager::at(&setup.dir().join(format!("{role}.notify"))));
    setup.server_env.push(managers[0].variable());
    setup.client_env.push(managers[1].variable());
    let running = setup.start();
    let summaries = [("server", "serving clients"), ("client", "client home")];
    for (manager, (role, summary)) in managers.iter().zip(summaries) {
        let control = manager
            .wait("X_TUNNEL_CONTROL", running.file(&format!("{role}.sock")).to_str().unwrap());
        let ready = manager.wait("READY", "1");
        assert_eq!(ready.pid, control.pid);
        assert!(ready.field("STATUS").unwrap().contains(summary), "{ready:?}");
    }
    TcpStream::connect(("127.0.0.1", running.server_port())).unwrap();
    TcpStream::connect(("127.0.0.1", running.local())).unwrap();
}

/// The watchdog's period of these tests. A third of it is the time in which a worker answers on a
/// busy machine.
const PERIOD: Duration = Duration::from_millis(1_800);

fn watched(command: &mut Command) -> &mut Command {
    command.env("WATCHDOG_USEC", PERIOD.as_micros().to_string())
}

/// A worker of a daemon that is stopped until this value is dropped, by the thread of the test.
struct Stuck(Pid);

impl Stuck {
    fn worker(daemon: &Daemon, name: &str) -> Self {
        let tasks = fs::read_dir(format!("/proc/{}/task", daemon.id())).unwrap();
        let task = tasks.map(Result::unwrap).find(|task| {
            let comm = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            comm.trim_end() == name
        });
        let number: i32 = task.unwrap().file_name().to_str().unwrap().parse().unwrap();
        let thread = Pid::from_raw(number);
        ptrace::seize(thread, ptrace::Options::empty()).unwrap();
        ptrace::interrupt(thread).unwrap();
        waitpid(thread, Some(WaitPidFlag::__WALL)).unwrap();
        Self(thread)
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        ptrace::detach(self.0, None).unwrap();
    }
}

#[test]
fn the_watchdog_is_fed_while_every_worker_answers() {
    let proxy = Proxy::new();
    let manager = proxy.manager();
    let mut daemon = proxy.start(watched(&mut proxy.command(&manager)));
    manager.wait("READY", "1");
    for _ in 0..3 {
        assert_eq!(manager.wait("WATCHDOG", "1").pid, daemon.id());
    }
    let count = |daemon: &Daemon| {
        daemon.log().lines().filter(|line| line.contains("a worker does not answer")).count()
    };
    assert_eq!(count(&daemon), 0, "{}", daemon.log());
    for worker in ["tunnel-w0", "tunnel-w1"] {
        let before = count(&daemon);
        let stuck = Stuck::worker(&daemon, worker);
        wait("a line about the worker", SOON, || (count(&daemon) > before).then_some(()));
        let seen = count(&daemon);
        let fed = manager.rest();
        wait("another line", SOON, || (count(&daemon) > seen + 1).then_some(()));
        // Two checks later nothing was sent, whatever was on its way before the first line.
        let later = manager.rest();
        assert!(later.is_empty(), "{fed:?}, then {later:?}");
        drop(stuck);
        manager.wait("WATCHDOG", "1");
    }
    // The daemon is watched until its last stream has ended.
    let stays = connect(proxy.port);
    wait("the stream", SOON, || {
        let status = run(tunnel(&["streams", "--json", "--control"]).arg(proxy.file("proxy.sock")));
        String::from_utf8(status.stdout).unwrap().contains("127.0.0.1").then_some(())
    });
    daemon.terminate();
    manager.wait("STOPPING", "1");
    for _ in 0..3 {
        manager.wait("WATCHDOG", "1");
    }
    drop(stays);
    assert!(daemon.wait_end(SOON).success());
}

/// The first feed follows the word that the daemon is ready at once, so an end of a reload shows
/// that there is none.
#[test]
fn the_watchdog_of_another_process_is_not_fed() {
    for (name, value) in [("WATCHDOG_PID", "1"), ("WATCHDOG_USEC", "0"), ("WATCHDOG_USEC", "x")] {
        let proxy = Proxy::new();
        let manager = proxy.manager();
        let daemon = proxy.start(watched(&mut proxy.command(&manager)).env(name, value));
        manager.wait("READY", "1");
        for _ in 0..2 {
            daemon.signal(Signal::HUP);
            assert!(manager.next().says("RELOADING", "1"));
            assert!(manager.next().says("READY", "1"));
        }
    }
}

#[test]
fn an_upgrade_tells_the_main_process_which_feeds_the_watchdog_from_then_on() {
    let proxy = Proxy::new();
    let manager = proxy.manager();
    let socket = proxy.file("proxy.sock");
    // systemd names the process that it has started. The shell becomes the daemon.
    let mut command = Command::new("/bin/sh");
    let wanted = proxy.command(&manager);
    command.args(["-c", "export WATCHDOG_PID=$$; exec \"$@\"", "sh"]);
    command.arg(wanted.get_program()).args(wanted.get_args());
    command.env_remove("LISTEN_FDS").env("NO_COLOR", "1");
    command.envs(wanted.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut former = proxy.start(watched(&mut command));
    manager.wait("READY", "1");
    assert_eq!(manager.wait("WATCHDOG", "1").pid, former.id());
    // A stream keeps the former process.
    let stays = connect(proxy.port);
    let _ended = Ended(socket.clone());
    let (_, pid) = upgraded(&socket);
    // Only the former process may say so: it is the main process until then.
    let main = manager.wait("MAINPID", &pid.to_string());
    assert_eq!(main.pid, former.id());
    let ready = manager.wait("READY", "1");
    assert_eq!(ready.pid, pid);
    for _ in 0..4 {
        assert_eq!(manager.wait("WATCHDOG", "1").pid, pid);
    }
    assert!(former.is_running());
    drop(stays);
    assert!(former.wait_end(SOON).success());
    // The end of the former process is not the end of the unit.
    let stopped = run(tunnel(&["stop", "--now", "--control"]).arg(&socket));
    assert!(stopped.status.success(), "{stopped:?}");
    wait("the end", SOON, || (!socket.exists()).then_some(()));
    let rest = manager.rest();
    let stopping: Vec<_> = rest.iter().filter(|said| said.says("STOPPING", "1")).collect();
    assert!(stopping.len() == 1 && stopping[0].pid == pid, "{rest:?}");
}

#[test]
fn an_upgrade_that_fails_names_no_other_main_process() {
    let proxy = Proxy::new();
    let manager = proxy.manager();
    let mut daemon = proxy.start(&mut proxy.command(&manager));
    manager.wait("READY", "1");
    let text = fs::read_to_string(proxy.file("proxy.yaml")).unwrap();
    fs::write(proxy.file("proxy.yaml"), format!("{text}nonsense: 1\n")).unwrap();
    let output = run(tunnel(&["upgrade", "--control"]).arg(proxy.file("proxy.sock")));
    assert_eq!(output.status.code(), Some(1));
    let rest = manager.rest();
    assert!(rest.iter().all(|said| said.field("MAINPID").is_none()), "{rest:?}");
    daemon.terminate();
    assert!(daemon.wait_end(SOON).success());
}
