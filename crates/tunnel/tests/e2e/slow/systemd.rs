//! The units of a real systemd, which boots in a container: installation, credentials, crash,
//! upgrade, watchdog, reload, socket unit, stop.

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

/// A server and a client, which `tunnel install` installs in the container. The server listens at
/// `quic://`, where the former process of an upgrade keeps its connections.
const INSTALLED: &str = r#"
of() { systemctl show -p "$2" --value "$1"; }
is() { if [ "$2" = "$3" ]; then echo "ok $1"; else echo "WRONG $1: $2 and not $3"; fi; }
visit() { curl -s --max-time 60 --retry 60 --retry-all-errors --retry-delay 1 --retry-max-time 60 \
  -o /dev/null -w '%{http_code}' "http://127.0.0.1:18003/"; }
once() { curl -s --max-time 60 -o /dev/null -w '%{http_code}' "http://127.0.0.1:18003/"; }
server=tunnel-server@main client=tunnel-client@home
cd /root || exit
listen='--listen quic://127.0.0.1:18004 --listen tls://127.0.0.1:18004'
/opt/tunnel server $listen --enroll home --allow-tcp 18003 --state-dir s &
until [ -S s/server.sock ]; do sleep 0.1; done
code=$(/opt/tunnel enroll home --allow-tcp 18003 --control s/server.sock |
  grep -o 'enroll1\.[^ ]*' | head -n 1)
/opt/tunnel client --enroll "$code" --server quic://127.0.0.1:18004 --publish 18003=18000 \
  --config client.yaml --control /tmp/c.sock --state-dir c &
is 'a visitor of the daemons by hand' "$(visit)" 200
/opt/tunnel stop --control /tmp/c.sock || echo 'WRONG stop of the client by hand'
/opt/tunnel stop --control s/server.sock || echo 'WRONG stop of the server by hand'
wait
/opt/tunnel install server $listen --state-dir s || echo 'WRONG installation of the server'
is 'the installed server' "$(of $server ActiveState)" active
is 'the program' "$(cmp /opt/tunnel /usr/bin/tunnel && echo alike)" alike
tunnel install client --state-dir c || echo 'WRONG installation of the client'
is 'the installed client' "$(of $client ActiveState)" active
is 'a visitor of the units' "$(visit)" 200
is 'the token is a credential' "$(ls /run/credentials/$client.service)" token
is 'only root reads the token' "$(stat -c '%a %U' /etc/tunnel/home.token)" '600 root'
is 'the file has no token' "$(grep -c "$(cat /etc/tunnel/home.token)" /etc/tunnel/home.yaml)" 0
is 'the user of the server' "$(ps -o user= -p "$(of $server MainPID)" | grep -c root)" 0
for unit in $server $client; do
  before=$(of $unit MainPID)
  socket=$(ls /run/tunnel/${unit#*@}/*.sock)
  # A download that lasts until the former process has nothing else to do.
  curl -s --max-time 60 --limit-rate 5M -o /tmp/got http://127.0.0.1:18003/large & download=$!
  until [ -s /tmp/got ]; do sleep 0.1; done
  tunnel upgrade --control "$socket" || echo "WRONG upgrade of $unit"
  until [ "$(of $unit MainPID)" != "$before" ]; do sleep 0.1; done
  is "a visitor after an upgrade of $unit" "$(once)" 200
  wait $download && cmp /tmp/got /etc/tunnel/large || echo "WRONG download over an upgrade of $unit"
  rm -f /tmp/got
  is "$unit after an upgrade" "$(of $unit ActiveState) $(of $unit NRestarts)" 'active 0'
  kill -9 "$(of $unit MainPID)"
  until [ "$(of $unit NRestarts)" = 1 ]; do sleep 0.1; done
  is "a visitor after a crash of $unit" "$(visit)" 200
  kill -STOP "$(of $unit MainPID)"
  until [ "$(of $unit NRestarts)" = 2 ]; do sleep 0.1; done
  is "a visitor after the watchdog of $unit" "$(visit)" 200
  systemctl reload $unit || echo "WRONG reload of $unit"
  is "a visitor after a reload of $unit" "$(visit)" 200
done
is 'an upgrade of all' "$(tunnel upgrade --all | grep -c 'serves in the place of')" 2
is 'a visitor after an upgrade of all' "$(visit)" 200
tunnel uninstall client --name home --purge || echo 'WRONG removal of the client'
is 'the removed client' "$(of $client ActiveState)" inactive
systemctl stop $server
is 'the stopped server' "$(of $server ActiveState) $(of $server Result)" 'inactive success'
tunnel uninstall server --name main --purge || echo 'WRONG removal of the server'
is 'what is left' "$(ls /etc/tunnel)" "large"
echo done
journalctl -b --no-pager -o cat -u 'tunnel-*' > /out/journal
"#;

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

fn add_proxies(root: &Path) {
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
}

/// Boots a container with this root, which runs this script. Returns the journal of the units.
/// `None`: this machine has no containers.
fn boot(make: impl FnOnce(&Path), script: &str, usr: &str) -> Option<String> {
    let absent = Command::new("systemd-nspawn").arg("--version").output().err();
    if let Some(reason) = absent {
        assert!(std::env::var_os("CI").is_none(), "systemd-nspawn: {reason}");
        println!("not shown here: systemd-nspawn: {reason}");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let (root, out) = (dir.path().join("root"), dir.path().join("out"));
    make_root(&root);
    make(&root);
    fs::create_dir(&out).unwrap();
    fs::write(out.join("trial.sh"), script).unwrap();
    let mut command = Command::new("systemd-nspawn");
    command.args(["--quiet", "--boot", "--private-network", "--register=no", "--keep-unit"]);
    command.args([usr, "--directory"]).arg(&root);
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
    Some(journal)
}

#[test]
fn the_units_live_through_crash_upgrade_watchdog_reload_and_stop_of_a_real_systemd() {
    let Some(journal) = boot(add_proxies, TRIAL, "--bind-ro=/usr") else { return };
    assert!(journal.contains("Watchdog timeout"), "{journal}");
}

#[test]
fn an_installed_server_and_client_live_through_the_same_with_a_real_systemd() {
    let make = |root: &Path| {
        fs::write(root.join("etc/tunnel/large"), vec![b'x'; 20 << 20]).unwrap();
        for role in ["server", "client"] {
            let settings = format!("etc/systemd/system/tunnel-{role}@.service.d");
            fs::create_dir_all(root.join(&settings)).unwrap();
            write(root, &format!("{settings}/test.conf"), "[Service]\nWatchdogSec=3\n");
        }
    };
    let script = format!("ip link set lo up\nsystemctl start origin\n{INSTALLED}");
    // The installation writes to /usr, and the container forgets it.
    let Some(journal) = boot(make, &script, "--overlay=/usr::/usr") else { return };
    for unit in ["tunnel-server@main", "tunnel-client@home"] {
        assert!(journal.contains(&format!("{unit}.service: Watchdog timeout")), "{journal}");
    }
}
