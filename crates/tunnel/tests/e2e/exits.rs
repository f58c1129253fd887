//! The exit code of every command: help, wrong usage, no daemon, success and refusal. The codes are
//! those of the manual (`docs/troubleshooting.md`) and of `tunnel --help`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::harness::{Origin, Scheme, Setup, run, tunnel};

/// The commands that ask a daemon, with arguments that are right.
const ASKING: &[(&str, &[&str])] = &[
    ("status", &[]),
    ("streams", &[]),
    ("log", &[]),
    ("ping", &["-c", "1"]),
    ("speedtest", &["--seconds", "1"]),
    ("nat", &[]),
    ("test", &["echo"]),
    ("drain", &["echo"]),
    ("undrain", &["echo"]),
    ("requests", &[]),
    ("enroll", &["laptop"]),
    ("allow", &["home", "--tcp", "10999"]),
    ("deny", &["home", "--tcp", "10999"]),
    ("publish", &["3000"]),
    ("unpublish", &["echo"]),
    ("forward", &["1=2"]),
    ("share", &["3000"]),
    ("connect", &["10.0.0.5:22"]),
    ("visit", &["--list"]),
    ("clients", &[]),
    ("clients show", &["home"]),
    ("clients allow", &["home", "--tcp", "10999"]),
    ("clients limit", &["home", "--streams", "9"]),
    ("clients hold", &["home"]),
    ("clients kick", &["home"]),
    ("clients revoke", &["home"]),
    ("where", &["home"]),
    ("cluster status", &[]),
    ("cluster clients", &[]),
    ("cluster dns", &["app.example.com"]),
    ("cluster rekey", &[]),
    ("events", &[]),
    ("console", &[]),
    ("reload", &[]),
    ("upgrade", &[]),
    ("restart", &[]),
    ("reconnect", &[]),
    ("move", &[]),
    ("stop", &[]),
];

/// The commands without a running daemon.
const ALONE: &[&str] = &[
    "server",
    "client",
    "proxy",
    "run",
    "demo",
    "check",
    "generate certs",
    "generate config",
    "generate token",
    "generate hash",
    "generate password",
    "generate completions",
    "generate man",
    "import",
    "install",
    "uninstall",
];

/// Commands that have only commands below them.
const GROUPS: &[&str] = &["generate", "cluster"];

/// The exit code, and what was said.
fn exit(dir: &Path, args: &[&str]) -> (Option<i32>, String) {
    let mut command: Command = tunnel(args);
    command.current_dir(dir).env("HOME", dir).env_remove("SSLKEYLOGFILE");
    let output = run(&mut command);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), format!("{}{}", text(&output.stdout), text(&output.stderr)))
}

fn words<'a>(command: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    command.split(' ').chain(more.iter().copied()).collect()
}

/// A command that is added without a row here fails.
#[test]
fn every_command_has_a_row() {
    let dir = tempfile::tempdir().unwrap();
    let (code, said) = exit(dir.path(), &["generate", "man", "-o", "pages"]);
    assert_eq!(code, Some(0), "{said}");
    let pages = fs::read_dir(dir.path().join("pages")).unwrap().map(|page| {
        let name = page.unwrap().file_name().into_string().unwrap();
        let name = name.strip_suffix(".1").unwrap();
        name.strip_prefix("tunnel-").unwrap_or_default().replace('-', " ")
    });
    let there: BTreeSet<_> = pages.filter(|name| !name.is_empty()).collect();
    let rows = ASKING.iter().map(|(name, _)| *name).chain(ALONE.iter().copied());
    let rows: BTreeSet<_> = rows.chain(GROUPS.iter().copied()).map(str::to_owned).collect();
    assert_eq!(there, rows);
}

#[test]
fn help_is_a_success_and_an_unknown_option_is_wrong_usage() {
    let dir = tempfile::tempdir().unwrap();
    let all = ASKING.iter().map(|(name, _)| *name).chain(ALONE.iter().copied());
    for command in all.chain(GROUPS.iter().copied()) {
        let (code, said) = exit(dir.path(), &words(command, &["--help"]));
        assert_eq!(code, Some(0), "{command} --help: {said}");
        let (code, said) = exit(dir.path(), &words(command, &["--no-such-option"]));
        assert_eq!(code, Some(2), "{command}: {said}");
        assert!(said.contains("--no-such-option"), "{command}: {said}");
    }
    let (code, said) = exit(dir.path(), &["no-such-command"]);
    assert_eq!(code, Some(2), "{said}");
}

#[test]
fn a_daemon_that_does_not_answer_is_a_failure_that_names_its_socket() {
    let dir = tempfile::tempdir().unwrap();
    for (command, args) in ASKING {
        let args = [args, &["--control", "gone.sock"][..]].concat();
        let (code, said) = exit(dir.path(), &words(command, &args));
        assert_eq!(code, Some(1), "{command}: {said}");
        assert!(said.contains("gone.sock"), "{command}: {said}");
    }
}

#[test]
fn what_works_is_a_success_and_what_is_refused_a_failure() {
    let origin = Origin::echo();
    let running = Setup::new(Scheme::TLS).service("echo", origin.port()).start();
    running.wait_echo(running.public("echo"));
    let dir = running.dir().to_owned();
    let client = running.file("client.sock").display().to_string();
    let server = running.file("server.sock").display().to_string();
    let target = format!("127.0.0.1:{}", origin.port());
    let mut others = Vec::new();
    for (socket, line, wanted) in [
        (&client, "status", 0),
        (&server, "status --json", 0),
        (&client, "streams", 0),
        (&client, "streams --kill 9/9", 1),
        (&client, "log", 0),
        (&client, "log loud", 2),
        (&client, "ping -c 1", 0),
        (&client, "test echo", 0),
        (&client, "test nothing", 1),
        (&client, "requests", 0),
        (&client, "requests 9", 1),
        (&client, "speedtest --seconds 1", 0),
        // A server measures for its clients alone.
        (&server, "speedtest --seconds 1", 1),
        (&server, "clients", 0),
        (&client, "clients", 1),
        (&server, "clients show home", 0),
        (&server, "clients show nobody", 1),
        (&server, "clients limit home --streams 99", 0),
        (&server, "clients limit nobody --streams 99", 2),
        (&server, "clients hold home", 0),
        (&server, "clients hold home --off", 0),
        (&server, "clients revoke home", 2),
        (&server, "clients kick nobody", 1),
        (&server, "allow home --tcp 10999", 0),
        (&server, "allow home --tcp 0", 2),
        (&server, "allow nobody --tcp 10999", 2),
        (&server, "clients allow home --tcp 10998", 0),
        (&server, "deny home --tcp 10998-10999", 0),
        (&server, "enroll laptop", 0),
        (&server, "enroll home", 2),
        (&client, "enroll laptop", 1),
        // The client has no right to the port, or to the target.
        (&client, "publish 9=3000", 1),
        (&client, "unpublish nothing", 2),
        (&client, &format!("connect {target}"), 1),
        (&client, "connect nowhere", 2),
        (&client, "restart", 1),
        (&client, "reconnect", 0),
        // It has one path.
        (&client, "move", 1),
        (&server, "move", 1),
        (&server, "reconnect home", 0),
        (&server, "reconnect nobody", 1),
        (&client, "reload", 0),
        (&client, "stop", 0),
        (&client, "status", 1),
        (&server, "stop --now", 0),
    ] {
        if line == "reconnect home" {
            // The client has dialled anew after its own `reconnect`.
            running.wait_echo(running.public("echo"));
        }
        let mut args: Vec<_> = line.split(' ').collect();
        args.extend(["--control", socket]);
        let (code, said) = exit(&dir, &args);
        if code != Some(wanted) {
            others.push(format!("{line}: {code:?} and not {wanted}: {said}"));
        }
    }
    assert!(others.is_empty(), "{others:#?}");
}

#[test]
fn files_are_judged_by_what_is_wrong_with_them() {
    let (dir, taken) = (tempfile::tempdir().unwrap(), Origin::echo());
    let file = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    file("wrong.yaml", "listen: tls://[::]\nworker: 2\n");
    file("wrong-client.yaml", "servers: tsl://a\n");
    file("wrong-proxy.yaml", "proxies: []\n");
    let port = taken.port();
    let token = "q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi";
    let at = "state_dir: state\ncontrol: c.sock\n";
    file(
        "taken.yaml",
        &format!("listen: tcp://127.0.0.1:{port}\nclients: [{{name: a, token: {token}}}]\n{at}"),
    );
    file(
        "taken-proxy.yaml",
        &format!(
            "proxies: [{{listen: 'tcp://127.0.0.1:{port}', target: 'tcp://127.0.0.1:1'}}]\n{at}"
        ),
    );
    file(
        "taken-client.yaml",
        &format!(
            "servers: tcp://127.0.0.1:1\nname: a\ntoken: {token}\n{at}forwards: [{{listen: \
             'tcp://127.0.0.1:{port}', target: 'tcp://127.0.0.1:1'}}]\n"
        ),
    );
    file("right.yaml", &format!("listen: tls://[::]\nclients: []\n{at}"));
    file("frpc.toml", "serverAddr = \"a.example\"\nserverPort = 7000\nnoSuchKey = 1\n");
    file("unknown.txt", "no configuration of any program\n");
    let mut others = Vec::new();
    for (line, wanted) in [
        ("check right.yaml", 0),
        ("check wrong.yaml", 2),
        ("server --config wrong.yaml", 2),
        ("server --config taken.yaml", 1),
        ("client --config wrong-client.yaml", 2),
        ("client --config taken-client.yaml", 1),
        ("proxy --config wrong-proxy.yaml", 2),
        ("proxy --config taken-proxy.yaml", 1),
        ("run --config no-such-folder", 2),
        ("demo --once", 0),
        ("generate token", 0),
        ("generate config server", 0),
        ("generate config relay", 2),
        ("generate completions bash", 0),
        ("generate man", 0),
        ("generate certs -s a.example -o certs", 0),
        // It overwrites nothing.
        ("generate certs -s a.example -o certs", 1),
        ("generate hash no-such-file", 1),
        ("import frpc.toml -o new", 3),
        ("import unknown.txt -o other", 2),
        ("import no-such-file -o other", 1),
        ("install client --root root --config wrong-client.yaml", 2),
        ("uninstall client --root root", 1),
    ] {
        let (code, said) = exit(dir.path(), &line.split(' ').collect::<Vec<_>>());
        if code != Some(wanted) {
            others.push(format!("{line}: {code:?} and not {wanted}: {said}"));
        }
    }
    assert!(others.is_empty(), "{others:#?}");
}

#[test]
fn the_manual_the_help_and_the_program_have_the_same_codes() {
    let dir = tempfile::tempdir().unwrap();
    let (_, help) = exit(dir.path(), &["--help"]);
    let (_, block) = help.split_once("Exit codes:\n").unwrap();
    let (block, _) = block.split_once("\n\n").unwrap();
    let codes: Vec<_> =
        block.lines().map(|line| line.split_whitespace().next().unwrap().to_owned()).collect();
    let manual = include_str!("../../docs/troubleshooting.md");
    let (_, table) = manual.split_once("| exit code | meaning |\n|---|---|\n").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    let rows: Vec<_> =
        table.lines().map(|line| line.split('|').nth(1).unwrap().trim().to_owned()).collect();
    assert_eq!(codes, rows);
    assert_eq!(codes, ["0", "1", "2", "3"]);
}
