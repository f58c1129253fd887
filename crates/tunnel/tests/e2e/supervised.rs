//! `tunnel run`: a daemon for each file of a folder. The daemons are proxies, whose visitors show
//! whether they serve.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::stage::Daemon;

use crate::harness::{Origin, SOON, free_port, is_listening, run, try_connect, tunnel, wait};

/// A folder of configurations, and the `tunnel run` of it.
struct Supervised {
    dir: tempfile::TempDir,
    daemon: Option<Daemon>,
}

impl Supervised {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("conf.d")).unwrap();
        Self { dir, daemon: None }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join("conf.d").join(name)
    }

    /// A proxy from a port to a target.
    fn proxy(&self, name: &str, port: u16, target: u16) {
        let path = self.file(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let text = format!(
            "proxies: [{{ listen: \"tcp://127.0.0.1:{port}\", target: \"tcp://127.0.0.1:{target}\" }}]\n\
             workers: 1\n"
        );
        fs::write(path, text).unwrap();
    }

    fn start(&mut self) {
        let folder = self.file("");
        let mut command = tunnel(&[Path::new("run"), "--config".as_ref(), &folder]);
        command.env("RUNTIME_DIRECTORY", self.dir.path().join("run"));
        self.daemon = Some(Daemon::start("run", self.dir.path(), &mut command));
        self.daemon.as_ref().unwrap().wait_line(&["daemon", "running"], SOON);
    }

    fn ask(&self, args: &[&str]) -> Output {
        run(tunnel(args).env("RUNTIME_DIRECTORY", self.dir.path().join("run")))
    }

    fn status(&self) -> Vec<Value> {
        let output = self.ask(&["status", "--json"]);
        let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        status["daemons"].as_array().cloned().unwrap_or_default()
    }

    /// Waits until the daemon is in this state. Returns what the status says of it.
    fn wait(&self, name: &str, state: &str) -> Value {
        wait(&format!("daemon {name} {state}"), SOON, || {
            self.status().into_iter().find(|one| one["name"] == name && one["state"] == state)
        })
    }
}

/// Whether a visitor of the port reaches an echo.
fn echoes(port: u16) -> bool {
    let Ok(mut stream) = try_connect(port) else { return false };
    stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let mut answer = [0; 4];
    stream.write_all(b"ping").is_ok()
        && stream.read_exact(&mut answer).is_ok()
        && &answer == b"ping"
}

fn kill(pid: &Value) {
    let pid = i32::try_from(pid.as_u64().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn each_file_is_a_daemon_which_starts_again_after_its_death() {
    let origin = Origin::echo();
    let [one, two, three] = [free_port(), free_port(), free_port()];
    let mut set = Supervised::new();
    set.proxy("one.yaml", one, origin.port());
    set.proxy("more/two.yml", two, origin.port());
    fs::write(set.file("bad.yaml"), "type: proxy\nproxies: [{}]\n").unwrap();
    set.start();
    let first = set.wait("one", "running");
    assert_eq!((&first["role"], &first["restarts"]), (&"proxy".into(), &0.into()));
    // `tunnel status` asks each daemon itself, and leaves out what does not answer.
    let listener = wait("the status of the daemon itself", SOON, || {
        let shown = set.wait("one", "running");
        shown["status"]["proxies"][0]["name"].as_str().map(str::to_owned)
    });
    assert_eq!(listener, format!("tcp-{one}"));
    let bad = set.wait("bad", "wrong");
    assert!(bad["state_text"].as_str().unwrap().contains("bad.yaml:2:11"), "{bad}");
    assert!(echoes(one) && echoes(two), "both serve");
    let text = String::from_utf8(set.ask(&["status"]).stdout).unwrap();
    assert!(text.contains("2 of 3 daemons running") && text.contains("more/two"), "{text}");

    // A daemon that dies starts again, and the others go on.
    let mut held = try_connect(two).unwrap();
    kill(&first["pid"]);
    let again = wait("the second process", SOON, || {
        set.status().into_iter().find(|now| {
            now["name"] == "one" && now["state"] == "running" && now["pid"] != first["pid"]
        })
    });
    assert_eq!(again["restarts"], 1);
    assert!(echoes(one));
    held.write_all(b"still").unwrap();
    let mut answer = [0; 5];
    held.read_exact(&mut answer).unwrap();
    drop(held);

    // A reload starts what is new and what is mended, changes what has changed, and ends the rest.
    set.proxy("bad.yaml", three, origin.port());
    set.proxy("one.yaml", one, free_port());
    fs::remove_file(set.file("more/two.yml")).unwrap();
    let reloaded = set.ask(&["reload"]);
    let lines = String::from_utf8(reloaded.stdout).unwrap();
    assert!(lines.contains("more/two stops") && lines.contains("one: proxy tcp-"), "{lines}");
    set.wait("bad", "running");
    assert!(echoes(three) && !echoes(one));
    wait("the end of a daemon without its file", SOON, || (!is_listening(two)).then_some(()));

    // `tunnel stop` ends one of them for good, and `tunnel restart` starts it.
    let file = set.file("bad.yaml");
    assert!(set.ask(&["stop", "--config", file.to_str().unwrap()]).status.success());
    set.wait("bad", "ended");
    assert!(set.ask(&["restart", "bad"]).status.success());
    set.wait("bad", "running");
    let before = set.wait("one", "running");
    assert!(set.ask(&["restart"]).status.success());
    wait("another process", SOON, || {
        (set.wait("one", "running")["pid"] != before["pid"]).then_some(())
    });
    let unknown = set.ask(&["restart", "none"]);
    let why = String::from_utf8(unknown.stderr).unwrap();
    assert!(
        !unknown.status.success() && why.contains("no daemon `none` (`tunnel run` has bad, one)"),
        "{why}"
    );

    // One stop for all.
    assert!(set.ask(&["stop"]).status.success());
    assert!(!is_listening(three) && !is_listening(one));
    assert!(set.daemon.as_mut().unwrap().wait_end(SOON).success());
    let left: Vec<_> = fs::read_dir(set.dir.path().join("run")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn the_daemons_end_with_their_supervisor() {
    let origin = Origin::echo();
    let port = free_port();
    let mut set = Supervised::new();
    set.proxy("one.yaml", port, origin.port());
    set.start();
    let first = set.wait("one", "running");
    set.daemon.as_mut().unwrap().kill();
    wait("the end of the daemon", SOON, || (!is_listening(port)).then_some(()));
    // The next one finds no trace of it.
    set.start();
    let second = set.wait("one", "running");
    assert_ne!(first["pid"], second["pid"]);
    assert!(echoes(port));
    // SIGTERM ends all, and SIGHUP reloads.
    set.proxy("two.yaml", free_port(), origin.port());
    set.daemon.as_ref().unwrap().signal(Signal::HUP);
    set.wait("two", "running");
    set.daemon.as_ref().unwrap().terminate();
    assert!(set.daemon.as_mut().unwrap().wait_end(SOON).success());
    assert!(!is_listening(port));
}
