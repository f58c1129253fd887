//! The log in systemd's journal. A real journald runs with a `/run` in the test's folder, and the
//! daemons see that `/run` through a mount namespace.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;
use testkit::stage::Daemon;

use crate::harness::{Origin, SOON, Scheme, Setup, binary, program, run, wait};
use crate::reload::outcome;

/// Whoever is started by these words has this folder as its `/run`.
fn within(run: &Path) -> Vec<OsString> {
    let script = "mount --bind \"$1\" /run && shift && exec \"$@\"";
    let words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"];
    words.map(OsString::from).into_iter().chain([run.into()]).collect()
}

struct Journald {
    run: PathBuf,
    dir: PathBuf,
}

impl Journald {
    /// `None`, and why is printed, where this user may not have a namespace.
    fn new(dir: &Path) -> Option<Self> {
        let run_dir = dir.join("run");
        fs::create_dir_all(run_dir.join("log/journal")).unwrap();
        let starter = within(&run_dir);
        let trial = run(Command::new(&starter[0]).args(&starter[1..]).arg("true"));
        if !trial.status.success() {
            let reason = String::from_utf8_lossy(&trial.stderr).into_owned();
            assert!(std::env::var_os("CI").is_none(), "{reason}");
            println!("not shown here: {reason}");
            return None;
        }
        Some(Self { run: run_dir, dir: dir.to_owned() })
    }

    fn start(&self) -> Daemon {
        let socket = self.run.join("systemd/journal/socket");
        // That of an earlier one says nothing.
        drop(fs::remove_file(&socket));
        let starter = within(&self.run);
        let mut command = Command::new(&starter[0]);
        command.args(&starter[1..]).arg("/lib/systemd/systemd-journald");
        let daemon = Daemon::start("journald", &self.dir, &mut command);
        wait("journald listens", SOON, || socket.exists().then_some(()));
        daemon
    }

    /// Entries with all these fields, each as an object.
    fn entries(&self, fields: &[&str]) -> Vec<Value> {
        let mut journalctl = Command::new(program("journalctl"));
        journalctl.arg("--directory").arg(self.run.join("log/journal"));
        let output = run(journalctl.args(["--quiet", "--output", "json"]).args(fields));
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn wait_entry(&self, fields: &[&str], text: &str) -> Value {
        wait(&format!("an entry with {fields:?}: {text}"), SOON, || {
            let entries = self.entries(fields);
            entries.into_iter().find(|entry| message(entry).contains(text))
        })
    }
}

fn message(entry: &Value) -> &str {
    entry["MESSAGE"].as_str().unwrap_or_default()
}

#[test]
fn events_are_entries_with_fields_and_a_journal_may_hang_go_and_come_back() {
    let origin = Origin::echo();
    let mut setup = Setup::new(Scheme::TCP).service("echo", origin.port());
    let Some(journal) = Journald::new(setup.dir()) else { return };
    let mut journald = journal.start();
    setup.client_lines.push_str("log: { format: journald, level: trace }\nconnections: 1\n");
    setup.client_starter = within(&journal.run);
    let mut running = setup.start();
    running.wait_echo(running.public("echo"));
    journal
        .wait_entry(&["SYSLOG_IDENTIFIER=tunnel", "PRIORITY=6"], "service echo is published at ");
    let stream = journal.wait_entry(&["LINK=1", "STREAM=2"], "stream");
    println!("{stream}");
    assert_eq!(stream["PRIORITY"], "7");
    assert_eq!(stream["TARGET"], "link::dispatch");
    assert!(message(&stream).contains(" link=1 stream=2"), "{stream}");
    assert_eq!(running.client().log(), "", "nothing of it on standard error");
    let file = fs::read_to_string(running.file("client.yaml")).unwrap();
    let token = file.split("token: \"").nth(1).unwrap().split('"').next().unwrap();
    let all = journal.entries(&[]);
    assert!(all.len() > 5 && !all.iter().any(|entry| entry.to_string().contains(token)));

    // Its queue is full after some ten entries.
    journald.signal(Signal::STOP);
    for _ in 0..30 {
        running.wait_echo(running.public("echo"));
    }
    running.client().wait_line(&["takes no lines"], SOON);
    journald.signal(Signal::CONT);
    assert_eq!(outcome(running.reload("client")).0, Some(0));
    journal.wait_entry(&["TARGET=audit"], "reloaded: nothing to apply");

    journald.kill();
    running.edit_client(|text| text.replace("level: trace", "level: info"));
    assert_eq!(outcome(running.reload("client")).0, Some(0));
    running.client().wait_line(&["reloaded: ", "log.level"], SOON);
    let _journald = journal.start();
    running.client().terminate();
    assert!(running.client().wait_end(SOON).success());
    journal.wait_entry(&["SYSLOG_IDENTIFIER=tunnel"], "stopped");
}

#[test]
fn lines_of_standard_error_have_their_priority_where_that_is_the_journal() {
    let origin = Origin::echo();
    let mut setup = Setup::new(Scheme::TCP).service("echo", origin.port());
    let Some(journal) = Journald::new(setup.dir()) else { return };
    let _journald = journal.start();
    // As systemd starts a service.
    let script = "JOURNAL_STREAM=$(stat --dereference --format %d:%i /proc/self/fd/2) exec \"$@\"";
    let words = ["systemd-cat", "--identifier", "as-a-unit", "sh", "-c", script, "sh"];
    setup.client_starter =
        within(&journal.run).into_iter().chain(words.map(OsString::from)).collect();
    let mut running = setup.start();
    let entry = journal.wait_entry(
        &["SYSLOG_IDENTIFIER=as-a-unit", "PRIORITY=6"],
        "service echo is published at ",
    );
    println!("{entry}");
    assert_eq!(entry["_TRANSPORT"], "stdout");
    assert!(message(&entry).trim_start().starts_with("INFO"), "no time, no number: {entry}");
    running.server.kill();
    let entry = journal.wait_entry(&["SYSLOG_IDENTIFIER=as-a-unit", "PRIORITY=4"], "WARN");
    println!("{entry}");
    // What goes wrong before there is a log is as visible.
    running.client().kill();
    running.edit_client(|text| text + "nonsense: 1\ntypo: 2\n");
    running.start_client();
    assert_eq!(running.client().wait_end(SOON).code(), Some(2));
    for key in ["nonsense: unknown key", "typo: unknown key"] {
        journal.wait_entry(&["SYSLOG_IDENTIFIER=as-a-unit", "PRIORITY=3"], key);
    }
}

#[test]
fn a_variable_inherited_from_a_unit_does_not_make_standard_error_the_journal() {
    let mut setup = Setup::new(Scheme::TCP);
    setup.server_env.push(("JOURNAL_STREAM", "8:12345".into()));
    let running = setup.start_server();
    let line = running.server.wait_line(&["serving clients"], SOON);
    assert!(line.starts_with("20") && line.contains("INFO"), "{line}");
}

#[test]
fn a_journal_that_is_not_there_and_one_beside_a_file_are_told_before_anything_starts() {
    let setup = Setup::new(Scheme::TCP);
    let Some(nothing) = Journald::new(setup.dir()) else { return };
    let running = setup.start_server();
    let run_in = within(&nothing.run);
    let start = |lines: &str, flags: &[&str]| {
        let mut command = Command::new(&run_in[0]);
        let file = running.file("other.yaml");
        let text = fs::read_to_string(running.file("client.yaml")).unwrap();
        fs::write(&file, text + lines).unwrap();
        command.args(&run_in[1..]).arg(binary()).args(["client", "--config"]);
        outcome(run(command.arg(file).args(flags)))
    };
    let (code, _, said) = start("log: { format: journald }\n", &[]);
    assert_eq!(code, Some(1), "{said}");
    for word in ["log.format journald: ", "/run/systemd/journal/socket: No such file", "(hint: "] {
        assert!(said.contains(word), "{said}");
    }
    let (code, _, said) = start("log: { format: journald, file: x }\n", &[]);
    assert_eq!((code, said.contains("log.file: ")), (Some(2), true), "{said}");
    let (code, _, said) = start("log: { file: x }\n", &["--log-format", "journald"]);
    assert_eq!((code, said.contains("--log-format journald: `log.file`")), (Some(2), true));
}
