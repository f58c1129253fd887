//! What a command finds in its working directory, and a client without any folder of its own.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use rustix::process::geteuid;
use testkit::stage::Daemon;

use crate::harness::{Origin, SOON, Scheme, Setup, binary, connect, run, tunnel};
use crate::reload::{echo, outcome};

/// A user of no file of this machine, as the image of a container has it.
const STRANGER: &str = "61234";

/// The command runs in `folder` and ends.
fn run_in(folder: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    outcome(run(tunnel(args).current_dir(folder).env("HOME", folder)))
}

#[test]
fn a_file_of_the_folder_is_found_and_said_and_else_it_is_said_what_was_looked_for() {
    let origin = Origin::echo();
    let mut running = Setup::new(Scheme::TLS).service("echo", origin.port()).start();
    running.client().terminate();
    running.client().wait_end(SOON);
    running.server.terminate();
    running.server.wait_end(SOON);
    let dir = running.dir().to_owned();
    let empty = dir.join("empty");
    fs::create_dir(&empty).unwrap();
    let here = empty.canonicalize().unwrap();

    // Both daemons start with the files of their folder, and say which.
    for role in ["server", "client"] {
        let (code, _, why) = run_in(&dir, &["check", &format!("{role}.yaml")]);
        assert_eq!(code, Some(0), "{why}");
    }
    let both = run_in(&dir, &["check"]);
    assert_eq!(both.0, Some(2), "{both:?}");
    assert!(both.2.contains("client.yaml and server.yaml are in this folder"), "{both:?}");
    let start = |role: &str| {
        let mut command = tunnel(&[role]);
        Daemon::start(&format!("{role} of the folder"), &dir, command.current_dir(&dir))
    };
    let mut server = start("server");
    server.wait_line(&["the configuration is ", "/server.yaml"], SOON);
    let mut client = start("client");
    client.wait_line(&["the configuration is ", "/client.yaml"], SOON);
    running.wait_echo(running.public("echo"));
    for daemon in [&mut client, &mut server] {
        daemon.terminate();
        daemon.wait_end(SOON);
    }
    // A single file is checked without a name.
    let one = dir.join("one");
    fs::create_dir(&one).unwrap();
    fs::copy(dir.join("client.yaml"), one.join("client.yaml")).unwrap();
    let (code, said, why) = run_in(&one, &["check"]);
    assert_eq!(code, Some(0), "{why}");
    assert!(said.starts_with("client home to tls://"), "{said}");
    assert!(why.contains("note: checking client.yaml"), "{why}");

    // Without a file, the error says what was looked for and where.
    for (args, names) in [
        (&["client"][..], "client.yaml"),
        (&["client", "--publish", "3000"], "client.yaml"),
        (&["check"], "client.yaml, server.yaml and proxy.yaml"),
    ] {
        let (code, _, why) = run_in(&empty, args);
        assert_eq!(code, Some(2), "{why}");
        let line = format!("no configuration file: looked for {names} in {}", here.display());
        assert!(why.contains(&line) && why.contains("hint: "), "{why}");
    }
    // Flags that describe a client need no file, and what is missing is said.
    let (code, _, why) = run_in(&one, &["client", "--server", "a.example"]);
    assert_eq!(code, Some(2), "{why}");
    assert!(why.contains("missing --name and --token-file"), "{why}");
    assert!(why.contains("without --server, client.yaml of this folder counts"), "{why}");
}

#[test]
fn a_client_starts_without_a_folder_that_it_can_write_to() {
    let origin = Origin::echo();
    let setup = Setup::new(Scheme::TCP).service("echo", origin.port());
    let running = setup.start_server();
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    let [program, file] = ["tunnel", "client.yaml"].map(|name| place.path().join(name));
    // The folder of the built binary may be closed to other users.
    fs::copy(binary(), &program).unwrap();
    let text = fs::read_to_string(running.file("client.yaml")).unwrap();
    let is_free = |line: &&str| !line.starts_with("control:") && !line.starts_with("state_dir:");
    let text: String = text.lines().filter(is_free).map(|line| format!("{line}\n")).collect();
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    // No home at all; a folder that takes no file; a folder of another user.
    for (name, home) in [("no home", None), ("no file", Some("/proc")), ("root's", Some("/root"))] {
        let mut command = Command::new("setpriv");
        if geteuid().is_root() {
            command.args(["--reuid", STRANGER, "--regid", STRANGER, "--clear-groups"]);
        }
        command.arg(&program).args(["client", "--config"]).arg(&file);
        for name in ["RUNTIME_DIRECTORY", "STATE_DIRECTORY", "NOTIFY_SOCKET", "HOME"] {
            command.env_remove(name);
        }
        command.env_remove("XDG_STATE_HOME").env_remove("XDG_RUNTIME_DIR");
        command.envs(home.map(|home| ("HOME", home))).current_dir("/");
        let mut client = Daemon::start(&format!("client, {name}"), running.dir(), &mut command);
        client.wait_line(&["control socket", "this process runs without it"], SOON);
        running.wait_echo(running.public("echo"));
        echo(&connect(running.public("echo")), 1);
        client.terminate();
        client.wait_end(SOON);
    }
    // A place that was asked for is needed.
    let mut command = tunnel(&["client", "--control", "/proc/c.sock", "--config"]);
    let (code, _, why) = outcome(run(command.arg(running.file("client.yaml"))));
    assert!(code == Some(1) && why.contains("control socket /proc/c.sock"), "{why}");
}
