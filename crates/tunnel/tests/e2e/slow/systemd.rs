//! The units of a real systemd, which boots in a container: crash, upgrade, watchdog, reload, socket
//! unit, stop.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use testkit::stage::run_within;

use crate::harness::binary;

/// How long boot, trial and power-off may take: thirty times as long as measured.
const BOOT: Duration = Duration::from_secs(300);

/// Folders and links of a root whose programs are those of this machine.
const FOLDERS: [&str; 12] = [
    "etc/systemd/system/multi-user.target.wants",
    "etc/tunnel",
    "proc",
    "sys",
    "dev",
    "run",
    "tmp",
    "var/lib",
    "var/log",
    "root",
    "opt",
    "usr",
];

/// The script that the container runs. A line begins with `ok` or with `WRONG`.
const TRIAL: &str = r#"
show() { systemctl show -p "$2" --value "tunnel-proxy@$1"; }
is() { if [ "$2" = "$3" ]; then echo "ok $1"; else echo "WRONG $1: $2 and not $3"; fi; }
visit() { curl -s --max-time 60 -o /dev/null -w '%{http_code}' "http://127.0.0.1:$1/"; }
ip link set lo up
systemctl start origin tunnel-proxy@main
until curl -s -o /dev/null http://127.0.0.1:18000/; do sleep 0.1; done
is 'a visitor' "$(visit 18001)" 200
until [ "$(show main NFileDescriptorStore)" = 2 ]; do sleep 0.1; done
kill -9 "$(show main MainPID)"
is 'a visitor after a crash' "$(visit 18001)" 200
is 'restarts' "$(show main NRestarts)" 1
is 'stored sockets' "$(show main NFileDescriptorStore)" 2
before=$(show main MainPID)
/opt/tunnel upgrade --control /run/tunnel/main/proxy.sock || echo 'WRONG upgrade'
until [ "$(show main MainPID)" != "$before" ]; do sleep 0.1; done
is 'a visitor after an upgrade' "$(visit 18001)" 200
is 'the unit after an upgrade' "$(show main ActiveState) $(show main NRestarts)" 'active 1'
is 'stored sockets after an upgrade' "$(show main NFileDescriptorStore)" 2
kill -9 "$(show main MainPID)"
is 'a visitor after an upgrade and a crash' "$(visit 18001)" 200
kill -STOP "$(show main MainPID)"
is 'a visitor of a daemon that does nothing' "$(visit 18001)" 200
is 'the watchdog' "$(show main NRestarts)" 3
systemctl reload tunnel-proxy@main || echo 'WRONG reload'
is 'a visitor after a reload' "$(visit 18001)" 200
is 'the unit after a reload' "$(show main ActiveState)" active
systemctl start tunnel-proxy@two.socket
is 'the unit before a visitor' "$(show two ActiveState)" inactive
is 'the visitor that starts it' "$(visit 18002)" 200
kill -9 "$(show two MainPID)"
is 'a visitor after its crash' "$(visit 18002)" 200
systemctl stop tunnel-proxy@two
is 'a visitor after its stop' "$(visit 18002)" 200
systemctl stop tunnel-proxy@main
is 'a visitor after a stop' "$(visit 18001)" 000
is 'stored sockets after a stop' "$(show main NFileDescriptorStore)" 0
echo done
journalctl -b --no-pager -o cat -u 'tunnel-proxy@*' > /out/journal
"#;

fn write(root: &Path, path: &str, text: &str) {
    fs::write(root.join(path), text).unwrap();
}

fn make_root(root: &Path) {
    FOLDERS.iter().for_each(|folder| fs::create_dir_all(root.join(folder)).unwrap());
    for name in ["bin", "sbin", "lib", "lib64"] {
        symlink(format!("usr/{name}"), root.join(name)).unwrap();
    }
    for file in ["etc/passwd", "etc/group", "etc/nsswitch.conf", "etc/os-release"] {
        fs::copy(Path::new("/").join(file), root.join(file)).unwrap();
    }
    write(root, "etc/machine-id", "");
    let unit = include_str!("../../../../../systemd/tunnel-proxy@.service");
    // As it is installed, with the program of this test, and a shorter wait for the watchdog.
    let unit = unit.replace("=/usr/bin/tunnel ", "=/opt/tunnel ");
    assert!(unit.contains("=/opt/tunnel ") && unit.contains("WatchdogSec=30"));
    let unit = unit.replace("WatchdogSec=30", "WatchdogSec=3");
    write(root, "etc/systemd/system/tunnel-proxy@.service", &unit);
    for (name, port) in [("main", 18_001), ("two", 18_002)] {
        let text = format!(
            "workers: 2\nproxies: [{{ listen: \"tcp://127.0.0.1:{port}\", target: \
             \"tcp://127.0.0.1:18000\" }}]\n"
        );
        write(root, &format!("etc/tunnel/{name}.yaml"), &text);
    }
    let socket = "[Socket]\nListenStream=127.0.0.1:18002\n";
    write(root, "etc/systemd/system/tunnel-proxy@two.socket", socket);
    let origin = "[Service]\nExecStart=/usr/bin/python3 -m http.server 18000 --bind 127.0.0.1 \
                  --directory /etc/tunnel\n";
    write(root, "etc/systemd/system/origin.service", origin);
    let trial = "[Service]\nType=oneshot\nExecStart=/bin/bash /out/trial.sh\n\
                 StandardOutput=file:/out/log\nStandardError=inherit\n\
                 ExecStopPost=/bin/systemctl --force poweroff\n";
    write(root, "etc/systemd/system/trial.service", trial);
    let units = root.join("etc/systemd/system");
    symlink("../trial.service", units.join("multi-user.target.wants/trial.service")).unwrap();
    symlink("/lib/systemd/system/multi-user.target", units.join("default.target")).unwrap();
}

#[test]
fn the_units_live_through_crash_upgrade_watchdog_reload_and_stop_of_a_real_systemd() {
    let absent = Command::new("systemd-nspawn").arg("--version").output().err();
    if let Some(reason) = absent {
        assert!(std::env::var_os("CI").is_none(), "systemd-nspawn: {reason}");
        println!("not shown here: systemd-nspawn: {reason}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (root, out) = (dir.path().join("root"), dir.path().join("out"));
    make_root(&root);
    fs::create_dir(&out).unwrap();
    fs::write(out.join("trial.sh"), TRIAL).unwrap();
    let mut command = Command::new("systemd-nspawn");
    command.args(["--quiet", "--boot", "--private-network", "--register=no", "--keep-unit"]);
    command.args(["--bind-ro=/usr", "--directory"]).arg(&root);
    command.arg(format!("--bind={}:/out", out.display()));
    command.arg(format!("--bind-ro={}:/opt/tunnel", binary().display()));
    if Path::new("/sys/fs/cgroup/systemd").exists() {
        // A machine with control groups of version 1.
        command.env("SYSTEMD_NSPAWN_UNIFIED_HIERARCHY", "0");
    }
    let console = run_within(command.stdin(Stdio::null()), BOOT).expect("the container powers off");
    let log = fs::read_to_string(out.join("log")).unwrap_or_default();
    let journal = fs::read_to_string(out.join("journal")).unwrap_or_default();
    let is_done = log.lines().any(|line| line == "done");
    println!("{log}");
    assert!(
        is_done && !log.contains("WRONG"),
        "{log}\n{journal}\n{}",
        String::from_utf8_lossy(&console.stdout)
    );
    assert!(journal.contains("Watchdog timeout"), "{journal}");
}
