//! `tunnel install` below another root directory, and the daemons as the installed units start
//! them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
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
    let runtime = root.join("run/tunnel").join(name);
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
fn another_version_at_the_place_of_the_program_is_told_with_both_versions() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    let mut own = tunnel(&["--version"]);
    let (_, own, _) = outcome(run(&mut own));
    let own = own.trim().strip_prefix("tunnel ").unwrap();
    let yaml = format!("servers: tls://127.0.0.1:1\nname: home\ntoken: \"{}\"\n", token());
    fs::write(dir.path().join("client.yaml"), yaml).unwrap();
    let install = |args: &[&str]| command("install", args, dir.path());
    let (exit, said, why) = install(&["client"]);
    assert_eq!(exit, Some(0), "{said}{why}");
    let program = root.join("usr/bin/tunnel");
    let put = |version: &str| {
        let mark = |version: &str| format!("This is tunnel, version {version};").into_bytes();
        let (mut bytes, own) = (fs::read(binary()).unwrap(), mark(own));
        let at = bytes.windows(own.len()).position(|part| part == own).expect("the version");
        bytes.splice(at..at + own.len(), mark(version));
        fs::write(&program, bytes).unwrap();
    };
    for (version, order) in [("0.0.9", "newer"), ("99.0.0", "older")] {
        put(version);
        let refusal = format!("is version {version}, and this program is {own}: {order}");
        let (exit, _, why) = install(&["client"]);
        assert!(exit == Some(1) && why.contains(&refusal) && why.contains("--force"), "{why}");
        let (exit, _, why) = install(&["client", "--force"]);
        assert!(exit == Some(0) && why.contains(&format!("{refusal}; it is replaced")), "{why}");
        assert!(fs::read(&program).unwrap() == fs::read(binary()).unwrap());
    }
}

fn token() -> String {
    outcome(run(&mut tunnel(&["generate", "token"]))).1.trim().to_owned()
}

#[test]
fn an_enrolled_client_and_its_server_run_as_installed_units() {
    let dir = tempfile::tempdir().unwrap();
    let (at, root) = (|name: &str| dir.path().join(name), dir.path().join("root"));
    fs::create_dir(&root).unwrap();
    let (port, public, later, origin) = (free_port(), free_port(), free_port(), Origin::echo());
    let listen = format!("tls://127.0.0.1:{port}");
    let allowed = [public, later].map(|port| port.to_string());
    let rights = ["--allow-tcp", &*allowed[0], "--allow-tcp", &*allowed[1]];
    let mut server = tunnel(&["server", "--listen", &listen, "--enroll", "home"]);
    server.args(rights).arg("--state-dir").arg(at("s")).env("HOME", dir.path());
    let mut server = Daemon::start("server by hand", dir.path(), &mut server);
    server.wait_line(&["listening"], SOON);
    let mut order = tunnel(&["enroll", "home", "--control"]);
    let (exit, said, why) = outcome(run(order.arg(at("s/server.sock")).args(rights)));
    assert_eq!(exit, Some(0), "{why}");
    let code = said.split_whitespace().find(|word| word.starts_with("enroll1.")).unwrap();
    let publish = format!("{public}={}", origin.port());
    let mut client =
        tunnel(&["client", "--enroll", code, "--server", &listen, "--publish", &publish]);
    client.arg("--config").arg(at("client.yaml")).arg("--control").arg(at("c.sock"));
    client.arg("--state-dir").arg(at("c")).env("HOME", dir.path());
    let mut client = Daemon::start("client by hand", dir.path(), &mut client);
    wait_listening(public, SOON);
    let more = format!("{later}={}", origin.port());
    let (exit, _, why) = outcome(run(tunnel(&["publish", &more, "--control"]).arg(at("c.sock"))));
    assert_eq!(exit, Some(0), "{why}");

    let install = |args: &[&str]| command("install", args, dir.path());
    let of_server = ["server", "--listen", &listen, "--state-dir", "s"];
    let (exit, _, why) = install(&of_server);
    assert!(exit == Some(1) && why.contains("stop it first: tunnel stop"), "{why}");
    // A plan is shown while the daemons run.
    for args in [&of_server[..], &["client", "--state-dir", "c"]] {
        let (exit, said, why) = install(&[args, &["--dry-run"]].concat());
        assert_eq!(exit, Some(0), "{why}");
        assert!(said.contains("$ systemctl enable --now tunnel-"), "{said}");
        let is_told = why.contains("before the installation: tunnel stop");
        assert_eq!(is_told, args[0] == "server", "{why}");
    }
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
    let of_client = ["client", "--state-dir", "c"];
    for args in [&of_client[..], &of_server] {
        let (exit, said, why) = install(args);
        assert!(exit == Some(0) && said.contains(" is installed"), "{said}{why}");
    }
    let (exit, said, why) = install(&of_client);
    assert!(exit == Some(0) && said.contains("already installed"), "{said}{why}");
    let yaml = fs::read_to_string(root.join("etc/tunnel/home.yaml")).unwrap();
    assert!(yaml.contains("${CREDENTIALS_DIRECTORY}/token") && !yaml.contains(&token), "{yaml}");
    assert_eq!(fs::read_to_string(root.join("etc/tunnel/home.token")).unwrap(), token);
    let state = root.join("var/lib/private/tunnel/main");
    // The pin of the server is in the name of the file with the published services.
    let of_client_state = fs::read_dir(root.join("var/lib/private/tunnel/home")).unwrap();
    let mut lists = of_client_state.map(|entry| entry.unwrap().path());
    let is_of_pin = |path: &PathBuf| path.display().to_string().contains("client-home@sha256-");
    let lists = lists.find(is_of_pin).unwrap();
    for (path, wanted) in [
        (root.join("etc/tunnel/home.yaml"), 0o644),
        (root.join("etc/tunnel/home.token"), 0o600),
        (root.join("usr/bin/tunnel"), 0o755),
        (state.join("key.pem"), 0o600),
        (state.join("clients/home.yaml"), 0o600),
        (state.clone(), 0o700),
        (lists, 0o600),
    ] {
        assert_eq!(mode(&path), wanted, "{}", path.display());
    }
    assert_eq!(fs::read(root.join("usr/bin/tunnel")).unwrap(), fs::read(binary()).unwrap());

    verify(&root, &["tunnel-server@main.service", "tunnel-client@home.service"]);

    let mut server = start(&root, "server", "main");
    server.wait_line(&["listening"], SOON);
    let client = start(&root, "client", "home");
    for port in [public, later] {
        wait_listening(port, SOON);
        echo(&connect(port), 7);
    }
    drop(client);

    // The installed server has put the client out, which the state from before does not know.
    let mut revoke = tunnel(&["enroll", "--revoke", "home", "--control"]);
    let (exit, _, why) = outcome(run(revoke.arg(root.join("run/tunnel/main/server.sock"))));
    assert_eq!(exit, Some(0), "{why}");
    let other = format!("tls://127.0.0.1:{}", free_port());
    let replaced = ["server", "--force", "--listen", &other, "--state-dir", "s"];
    let (exit, _, why) = install(&replaced);
    assert!(exit == Some(1) && why.contains("tunnel-server@main.service runs: process"), "{why}");
    let yaml = || fs::read_to_string(root.join("etc/tunnel/main.yaml")).unwrap();
    assert!(yaml().contains(&listen), "{}", yaml());
    server.terminate();
    server.wait_end(SOON);
    let (exit, _, why) = install(&replaced);
    assert!(exit == Some(0) && why.contains("; left in s: clients/home.yaml"), "{why}");
    assert!(yaml().contains(&other) && !state.join("clients/home.yaml").exists());

    let uninstall = |args: &[&str]| command("uninstall", args, dir.path());
    let (exit, _, why) = uninstall(&[]);
    let ways = "tunnel uninstall client --name home, tunnel uninstall server --name main";
    assert!(exit == Some(1) && why.contains(ways), "{why}");
    let (exit, said, why) = uninstall(&["client"]);
    assert!(
        exit == Some(0) && said.contains("stays") && said.contains("home.token"),
        "{said}{why}"
    );
    // The server is still installed, so what both share stays.
    assert!(root.join("etc/systemd/system/tunnel-server@.service").exists());
    let (exit, said, why) = uninstall(&["client", "--name", "home", "--purge"]);
    assert_eq!(exit, Some(0), "{said}{why}");
    assert!(!root.join("etc/tunnel/home.token").exists() && state.exists());
    let (exit, said, why) = uninstall(&["--purge"]);
    assert_eq!(exit, Some(0), "{said}{why}");
    assert!(files(&root.join("etc")).is_empty(), "{:?}", files(&root.join("etc")));
    for gone in ["etc/tunnel", "var/lib/private/tunnel"] {
        assert!(!root.join(gone).exists(), "{gone}");
    }
    assert!(files(&root.join("usr")).is_empty(), "{:?}", files(&root.join("usr")));
}

#[test]
fn a_file_with_variables_has_no_secret_and_a_changed_file_stays_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    let write = |proxy: &str| {
        let text = format!(
            "servers: tcp://a.example:1\nname: home\ntoken: {TOKEN}\nproxy: {proxy}\n\
             services: [3000, 22000=22]\n"
        );
        fs::write(dir.path().join("client.yaml"), text).unwrap();
    };
    let install = |args: &[&str]| command("install", args, dir.path());
    write("http://me:swordfish@${PROXY_HOST}:1");
    let (exit, _, why) = install(&[]);
    assert!(exit == Some(2) && why.contains("client.yaml:4:8: proxy: user and password"), "{why}");
    assert!(!why.contains("swordfish"), "{why}");
    assert_eq!(fs::read_dir(&root).unwrap().count(), 0);

    write("http://${PROXY_USER}:${PROXY_PASSWORD}@${PROXY_HOST}:1");
    let (exit, said, why) = install(&[]);
    assert_eq!(exit, Some(0), "{why}");
    assert!(why.contains("set PROXY_HOST, PROXY_PASSWORD, PROXY_USER: `systemctl edit"), "{why}");
    assert!(said.contains("to do: systemctl enable tunnel-client@home.service"), "{said}");
    // A warning of `tunnel check` on the installed file.
    assert!(why.contains("etc/tunnel/home.yaml:"), "{why}");
    for path in files(&root) {
        let content = fs::read(&path).unwrap();
        let holds = |text: &str| content.windows(text.len()).any(|at| at == text.as_bytes());
        assert!(!holds("swordfish"), "{}", path.display());
        assert_eq!(holds(TOKEN), path.ends_with("home.token"), "{}", path.display());
        assert!(!path.display().to_string().contains(".check"), "{}", path.display());
    }
    // A person has made settings of the unit, so it can start.
    let settings = root.join("etc/systemd/system/tunnel-client@home.service.d/override.conf");
    fs::write(&settings, "[Service]\nEnvironmentFile=/etc/tunnel/home.env\n").unwrap();
    let (exit, said, why) = install(&[]);
    assert!(exit == Some(0) && said.contains("enable --now tunnel-client@home"), "{said}{why}");
    verify(&root, &["tunnel-client@home.service"]);

    let page = root.join("usr/share/man/man1/tunnel.1");
    fs::write(&page, "of a package").unwrap();
    let uninstall = |args: &[&str]| command("uninstall", args, dir.path());
    let (exit, would, why) = uninstall(&["--dry-run"]);
    assert_eq!(exit, Some(0), "{why}");
    assert!(root.join("usr/bin/tunnel").exists());
    let (exit, said, why) = uninstall(&[]);
    assert!(exit == Some(0) && said.contains(&would.replace("would remove", "removed")), "{why}");
    assert!(said.contains(&format!("stays {}\n", page.display())), "{said}");
    assert_eq!(files(&root.join("usr")), [page]);
    assert!(settings.exists() && root.join("etc/tunnel/home.token").exists());
    let (exit, _, why) = uninstall(&[]);
    assert!(exit == Some(1) && why.contains("no instance is installed"), "{why}");
    // systemd does not know the unit any more, and would refuse to disable it.
    let (exit, said, why) = uninstall(&["client", "--name", "home", "--purge"]);
    assert!(exit == Some(0) && !said.contains("systemctl disable"), "{said}{why}");
    assert!(!root.join("etc/tunnel").exists());
}

const TOKEN: &str = "q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi";

/// Runs `tunnel install` or `tunnel uninstall` in a folder, with `root` in it as root directory.
/// Nothing of the machine is looked at.
fn command(verb: &str, args: &[&str], folder: &Path) -> (Option<i32>, String, String) {
    let mut command = tunnel(&[verb]);
    command.args(args).arg("--root").arg(folder.join("root")).current_dir(folder);
    command.env("STATE_DIRECTORY", folder.join("nothing")).env_remove("SUDO_UID");
    command.env("PROXY_USER", "me").env("PROXY_PASSWORD", "swordfish");
    outcome(run(command.env("PROXY_HOST", "127.0.0.1")))
}

/// Lets systemd read the installed units. The root directory gets what the units expect of the
/// system.
fn verify(root: &Path, units: &[&str]) {
    let system = root.join("lib/systemd/system");
    fs::create_dir_all(&system).unwrap();
    fs::create_dir_all(root.join("bin")).unwrap();
    for target in ["sysinit", "basic", "network-online", "shutdown"] {
        fs::write(system.join(format!("{target}.target")), "[Unit]\n").unwrap();
    }
    fs::copy("/bin/true", root.join("bin/kill")).unwrap();
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no", "--root"]).arg(root).args(units);
    let verified = verify.output().expect("systemd-analyze, which `cargo xtask test` installs");
    let said = String::from_utf8_lossy(&verified.stderr);
    assert!(verified.status.success() && said.is_empty(), "{said}");
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

/// The token in a file that an enrolment wrote.
fn config_token(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("token: ")).unwrap();
    line.trim_matches('"').to_owned()
}
