//! The standard output of every command: a full disk is an error, a closed pipe is none, and a
//! command that prints again and again ends with its reader.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Read as _, pipe};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::harness::{LONG, Origin, Scheme, Setup, tunnel, wait};

/// Commands without a daemon.
const ALONE: &[&[&str]] = &[
    &["--help"],
    &["status", "--help"],
    &["--version"],
    &["generate", "token"],
    &["generate", "token", "-n"],
    &["generate", "config", "server"],
    &["generate", "config", "client"],
    &["generate", "completions", "bash"],
    &["generate", "man"],
    &["demo"],
    &["demo", "--once"],
];

/// Commands to a server.
const OF_SERVER: &[&[&str]] = &[
    &["status"],
    &["status", "--json"],
    &["status", "--watch=1"],
    &["streams"],
    &["streams", "--json"],
    &["log"],
    &["reload"],
    &["reload", "--json"],
    &["ping", "-c", "1"],
    &["ping", "-c", "1", "--json"],
    &["clients"],
    &["clients", "--json"],
    &["clients", "show", "home"],
    &["clients", "show", "home", "--json"],
    &["allow", "home", "--tcp", "10999"],
    &["deny", "home", "--tcp", "10999"],
    &["enroll", "away"],
    &["enroll", "far", "--json"],
];

/// Every command once, with what `output` makes its standard output. `judge` gets the exit code and
/// standard error.
fn every(output: impl Fn() -> Stdio, judge: impl Fn(&[&str], Option<i32>, &str)) {
    let origin = Origin::echo();
    let running = Setup::new(Scheme::TLS).service("echo", origin.port()).start();
    running.wait_echo(running.public("echo"));
    let of = |command: &mut Command, args: &[&str]| {
        let (exit, said) = ended(command.stdout(output()));
        judge(args, exit, &said);
    };
    for args in ALONE {
        of(tunnel(args).env("HOME", running.dir()), args);
    }
    let at = |role: &str| running.file(&format!("{role}.sock"));
    for args in OF_SERVER {
        of(tunnel(args).arg("--control").arg(at("server")), args);
    }
    for args in [&["check"][..], &["check", "--json"]] {
        of(tunnel(args).arg("--config").arg(running.file("client.yaml")), args);
    }
    for args in [&["publish", "10998=1", "--json"][..], &["unpublish", "tcp-10998"]] {
        // The service may be refused, which is exit code 1 as well.
        let (exit, said) = ended(tunnel(args).arg("--control").arg(at("client")).stdout(output()));
        assert!(!said.is_empty() || exit == Some(0), "{args:?}: {exit:?}");
    }
}

/// Runs a command whose standard output is chosen. Returns its exit code and standard error.
fn ended(command: &mut Command) -> (Option<i32>, String) {
    end_of(command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
}

fn end_of(mut child: Child) -> (Option<i32>, String) {
    let code = wait("the end of the command", LONG, || child.try_wait().unwrap()).code();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (code, said)
}

#[test]
fn a_result_that_a_full_disk_does_not_take_is_an_error() {
    let full = || OpenOptions::new().write(true).open("/dev/full").unwrap().into();
    every(full, |args, exit, said| {
        assert_eq!(exit, Some(1), "{args:?}: {said}");
        assert!(
            said.contains("tunnel: standard output: No space left on device"),
            "{args:?}: {said}"
        );
    });
}

#[test]
fn a_pipe_whose_reader_is_gone_ends_a_command_without_an_error() {
    let closed = || pipe().unwrap().1.into();
    every(closed, |args, exit, said| {
        assert_eq!(exit, Some(0), "{args:?}: {said}");
        assert!(!said.contains("tunnel: ") && !said.contains("panicked"), "{args:?}: {said}");
    });
}

/// Runs a command, leaves after its first line, and waits for its end.
fn leave(control: &Path, args: &[&str], has_line: bool) {
    let mut command = tunnel(args);
    command.arg("--control").arg(control).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    if has_line {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_ne!(line, "", "{args:?}");
    }
    drop(output);
    let (exit, said) = end_of(child);
    assert_eq!((exit, said.as_str()), (Some(0), ""), "{args:?}");
}

#[test]
fn a_command_that_prints_again_and_again_ends_with_its_reader() {
    let running = Setup::new(Scheme::TLS).start();
    running.wait_ready();
    for role in ["server", "client"] {
        let control = running.file(&format!("{role}.sock"));
        // The command sees the end of its reader before the next line.
        leave(&control, &["status", "--watch", "30"], true);
        leave(&control, &["status", "--json", "--watch", "30"], true);
        leave(&control, &["ping", "--count", "100", "--interval", "30"], true);
        // Nothing happens, so no event is printed.
        leave(&control, &["events"], false);
    }
}
