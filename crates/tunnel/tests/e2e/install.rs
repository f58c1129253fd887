//! `tunnel install` below another root directory, and the daemons as the installed units start them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use testkit::stage::Daemon;

use crate::harness::{Origin, SOON, binary, connect, free_port, run, tunnel, wait_listening};
use crate::reload::{echo, outcome};

/// Starts a daemon by the `ExecStart` of its installed unit, with what systemd provides: the
/// credentials of the drop-in and the folders.
fn start(root: &Path, role: &str, name: &str) -> Daemon {
    let units = root.join("etc/systemd/system");
    let unit = fs::read_to_string(units.join(format!("tunnel-{role}@.service"))).unwrap();
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let line = line.replace("%i", name);
    let words = line.split(' ').map(|word| match word.strip_prefix('/') {
        Some(path) => root.join(path).display().to_string(),
        None => word.to_owned(),
    });
    let words: Vec<_> = words.collect();
    let credentials = root.join("run/credentials").join(role);
    fs::create_dir_all(&credentials).unwrap();
    let settings = format!("tunnel-{role}@{name}.service.d/credentials.conf");
    for line in fs::read_to_string(units.join(settings)).unwrap().lines() {
        if let Some((id, path)) =
            line.strip_prefix("LoadCredential=").and_then(|l| l.split_once(':'))
        {
            fs::copy(root.join(&path[1..]), credentials.join(id)).unwrap();
        }
    }
    let runtime = root.join("run/tunnel").join(role);
    fs::create_dir_all(&runtime).unwrap();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).env("CREDENTIALS_DIRECTORY", credentials);
    command.env("RUNTIME_DIRECTORY", runtime);
    command.env("STATE_DIRECTORY", root.join("var/lib/private/tunnel").join(name));
    Daemon::start(role, root, &mut command)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn an_enrolled_client_and_its_server_run_as_installed_units() {
    let dir = tempfile::tempdir().unwrap();
    let (at, root) = (|name: &str| dir.path().join(name), dir.path().join("root"));
    fs::create_dir(&root).unwrap();
    let (port, public, origin) = (free_port(), free_port(), Origin::echo());
    let listen = format!("tls://127.0.0.1:{port}");
    let ports = public.to_string();
    let mut server =
        tunnel(&["server", "--listen", &listen, "--allow-tcp", &ports, "--enroll", "home"]);
    server.arg("--state-dir").arg(at("s")).env("HOME", dir.path());
    let mut server = Daemon::start("server by hand", dir.path(), &mut server);
    server.wait_line(&["listening"], SOON);
    let mut order = tunnel(&["enroll", "home", "--allow-tcp", &ports, "--control"]);
    let (exit, said, why) = outcome(run(order.arg(at("s/server.sock"))));
    assert_eq!(exit, Some(0), "{why}");
    let code = said.split_whitespace().find(|word| word.starts_with("enroll1.")).unwrap();
    let publish = format!("{public}={}", origin.port());
    let mut client =
        tunnel(&["client", "--enroll", code, "--server", &listen, "--publish", &publish]);
    client.arg("--config").arg(at("client.yaml")).arg("--control").arg(at("c.sock"));
    client.env("HOME", dir.path());
    let mut client = Daemon::start("client by hand", dir.path(), &mut client);
    wait_listening(public, SOON);

    let install = |args: &[&str]| {
        let mut command = tunnel(&["install"]);
        command.args(args).arg("--root").arg(&root).current_dir(dir.path()).env("HOME", dir.path());
        outcome(run(&mut command))
    };
    let of_server = ["server", "--listen", &listen, "--state-dir", "s"];
    let (exit, _, why) = install(&of_server);
    assert!(exit == Some(1) && why.contains("stop it first: tunnel stop"), "{why}");
    assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
    for daemon in [&mut client, &mut server] {
        daemon.terminate();
        daemon.wait_end(SOON);
    }

    let token = config_token(&at("client.yaml"));
    let (exit, said, why) = install(&["--dry-run"]);
    assert_eq!(exit, Some(0), "{why}");
    assert!(said.contains("0600 /etc/tunnel/home.token") && !said.contains(&token), "{said}");
    assert!(said.contains("$ systemctl enable --now tunnel-client@home.service"), "{said}");
    assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
    for args in [&[][..], &of_server] {
        let (exit, said, why) = install(args);
        assert!(exit == Some(0) && said.contains(" is installed"), "{said}{why}");
    }
    let (exit, said, why) = install(&[]);
    assert!(exit == Some(0) && said.contains("already installed"), "{said}{why}");
    let yaml = fs::read_to_string(root.join("etc/tunnel/home.yaml")).unwrap();
    assert!(yaml.contains("${CREDENTIALS_DIRECTORY}/token") && !yaml.contains(&token), "{yaml}");
    assert_eq!(fs::read_to_string(root.join("etc/tunnel/home.token")).unwrap(), token);
    let state = root.join("var/lib/private/tunnel/main");
    for (path, wanted) in [
        (root.join("etc/tunnel/home.yaml"), 0o644),
        (root.join("etc/tunnel/home.token"), 0o600),
        (root.join("usr/bin/tunnel"), 0o755),
        (state.join("key.pem"), 0o600),
        (state.join("clients/home.yaml"), 0o600),
        (state.clone(), 0o700),
    ] {
        assert_eq!(mode(&path), wanted, "{}", path.display());
    }
    assert_eq!(fs::read(root.join("usr/bin/tunnel")).unwrap(), fs::read(binary()).unwrap());

    let server = start(&root, "server", "main");
    server.wait_line(&["listening"], SOON);
    let client = start(&root, "client", "home");
    wait_listening(public, SOON);
    echo(&connect(public), 7);
    drop((client, server));

    let uninstall = |args: &[&str]| {
        let mut command = tunnel(&["uninstall"]);
        outcome(run(command.args(args).arg("--root").arg(&root)))
    };
    let (exit, said, why) = uninstall(&["client", "--name", "home"]);
    assert!(
        exit == Some(0) && said.contains("stays") && said.contains("home.token"),
        "{said}{why}"
    );
    // The server is still installed, so what both share stays.
    assert!(root.join("etc/systemd/system/tunnel-server@.service").exists());
    let (exit, said, why) = uninstall(&["client", "--name", "home", "--purge"]);
    assert_eq!(exit, Some(0), "{said}{why}");
    assert!(!root.join("etc/tunnel/home.token").exists() && state.exists());
    let (exit, said, why) = uninstall(&["server", "--name", "main", "--purge"]);
    assert_eq!(exit, Some(0), "{said}{why}");
    assert!(!state.exists() && !root.join("etc/systemd/system/tunnel-server@.service").exists());
    assert!(!root.join("usr/share/man/man1/tunnel.1").exists());
}

/// The token in a file that an enrolment wrote.
fn config_token(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("token: ")).unwrap();
    line.trim_matches('"').to_owned()
}
