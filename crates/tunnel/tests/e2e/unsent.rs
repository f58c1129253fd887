//! What the log says where the system refuses to send the datagrams of a client: a plain line per
//! peer and reason, however many datagrams it refuses. The client runs in a network namespace of
//! its own, whose routes refuse them.

use std::process::Command;

use testkit::stage::Daemon;

use crate::harness::{LONG, binary, run, tunnel, wait};

/// Two addresses of a server: no route leads to the first, and a rule forbids the second.
const NOWHERE: &str = "quic://[2001:db8::1]:7000";
const FORBIDDEN: &str = "quic://192.0.2.1:7000";

/// A command in a namespace of its own.
fn apart() -> Command {
    let script = "ip link set lo up && ip route add prohibit 192.0.2.1 && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "sh", "-c", script, "sh"]);
    command
}

#[test]
fn datagrams_that_the_system_refuses_have_one_plain_line() {
    let trial = run(apart().arg("true"));
    if !trial.status.success() {
        let reason = String::from_utf8_lossy(&trial.stderr);
        assert!(std::env::var_os("CI").is_none(), "{reason}");
        println!("not shown here: {reason}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let token = run(&mut tunnel(&["generate", "token"])).stdout;
    std::fs::write(dir.path().join("token"), token).unwrap();
    let pin = format!("sha256:{}=", "A".repeat(43));
    let mut client = apart();
    client.arg(binary()).args(["client", "--name", "home", "--token-file", "token", "--pin", &pin]);
    client.args([
        "--server",
        NOWHERE,
        "--server",
        FORBIDDEN,
        "--forward",
        "127.0.0.1:0=127.0.0.1:1",
    ]);
    client.args(["--state-dir", "state"]).current_dir(dir.path()).env("NO_COLOR", "1");
    let mut client = Daemon::start("client", dir.path(), &mut client);
    // The text of the error is that of the C library: musl has "network unreachable".
    let no_route = "datagrams to [2001:db8::1]:7000 are not sent: this machine has no route to this \
                    IPv6 address (network ";
    let forbidden = "datagrams to 192.0.2.1:7000 are not sent: a firewall or another rule of this \
                     machine forbids it (permission denied)";
    client.wait_line(&[no_route], LONG);
    client.wait_line(&[forbidden], LONG);
    // Each attempt sends several datagrams.
    wait("the end of an attempt", LONG, || {
        (client.log().contains("cannot connect to")).then_some(())
    });
    let log = client.log();
    assert!(!log.contains("sendmsg"), "{log}");
    assert_eq!(log.matches("are not sent").count(), 2, "{log}");
    client.terminate();
    client.wait_end(LONG);
}
