//! Addresses that come after the start, as VRRP, DHCP and VPNs bring them: the listeners open then.
//! The daemons run in a network namespace of their own, which gets the address when the test says
//! so. They look for it every 15 s.

use std::path::Path;
use std::process::Command;

use testkit::stage::Daemon;

use crate::harness::{LONG, binary, run, tunnel};

/// A command in a namespace of its own, which gets 192.0.2.77 (RFC 5737) once the file `go` is
/// there.
fn apart() -> Command {
    // The wait for the file ends with the daemon, whose process is that of the shell.
    let script = "ip link set lo up && { (while ! test -e go; do kill -0 $$ || exit; sleep 0.1; \
                  done; ip addr add 192.0.2.77/32 dev lo) >/dev/null 2>&1 & exec \"$@\"; }";
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "sh", "-c", script, "sh"]);
    command
}

/// Starts a role that waits for its address, and gives it the address. Returns the daemon.
fn late(dir: &Path, role: &str, file: &str, waits: &[&str]) -> Daemon {
    std::fs::write(dir.join("config.yaml"), file).unwrap();
    let mut command = apart();
    command.arg(binary()).args([role, "--config", "config.yaml", "--control", "control.sock"]);
    command.current_dir(dir).env("NO_COLOR", "1");
    let daemon = Daemon::start(role, dir, &mut command);
    for what in waits {
        daemon.wait_line(&[what, "192.0.2.77", "it is tried again every 15 s"], LONG);
    }
    std::fs::write(dir.join("go"), "").unwrap();
    daemon
}

#[test]
fn listeners_open_once_their_address_has_come() {
    let trial = run(Command::new("unshare").args(["--map-root-user", "--net", "true"]));
    if !trial.status.success() {
        let reason = String::from_utf8_lossy(&trial.stderr);
        assert!(std::env::var_os("CI").is_none(), "{reason}");
        println!("not shown here: {reason}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let token = run(&mut tunnel(&["generate", "token"])).stdout;
    std::fs::write(dir.path().join("token"), token).unwrap();
    let file = "state_dir: state\nproxies:\n  - { name: late, listen: 'tcp://192.0.2.77:4000', target: \
                'tcp://127.0.0.1:1' }\n  - { name: there, listen: 'tcp://127.0.0.1:4000', target: \
                'tcp://127.0.0.1:1' }\nadmin: { listen: '192.0.2.77:7070', token_file: token }\n";
    let proxy = late(dir.path(), "proxy", file, &["a proxy waits", "the admin API waits"]);
    proxy.wait_line(&["proxy there listens at tcp://127.0.0.1:4000"], LONG);
    proxy.wait_line(&["proxy late listens at tcp://192.0.2.77:4000"], LONG);
    proxy.wait_line(&["admin API on http://192.0.2.77:7070"], LONG);
    drop(proxy);

    let dir = tempfile::tempdir().unwrap();
    let file = "state_dir: state\nlisten: ['tcp://127.0.0.1:7000', 'tcp://192.0.2.77:7000', \
                'mux://192.0.2.77:7443', 'quic://192.0.2.77:7000']\nhttp: { listen: \
                '192.0.2.77:8080' }\nclients: [{ name: home, token: \
                q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ }]\n";
    let server = late(dir.path(), "server", file, &["a listener waits"]);
    let status = run(Command::new(binary())
        .args(["status", "--control", "control.sock"])
        .current_dir(dir.path()));
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(status.contains("tcp://192.0.2.77:7000"), "{status}");
    for url in [
        "clients on tcp://127.0.0.1:7000",
        "clients on tcp://192.0.2.77:7000",
        "clients on quic://192.0.2.77:7000",
        "visitors on mux://192.0.2.77:7443",
        "visitors on http://192.0.2.77:8080",
    ] {
        server.wait_line(&[&format!("listening for {url}")], LONG);
    }
    drop(server);

    let dir = tempfile::tempdir().unwrap();
    let file = "servers: 'tcp://127.0.0.1:7000'\nname: home\ntoken: \
                q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ\nstate_dir: state\nforwards:\n  - { listen: \
                'tcp://192.0.2.77:5000', target: 'tcp://127.0.0.1:1' }\n";
    let client = late(dir.path(), "client", file, &["a forward waits"]);
    client.wait_line(&["forward tcp://192.0.2.77:5000 listens"], LONG);
}
