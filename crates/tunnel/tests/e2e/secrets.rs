//! Secrets do not leak: they are in no log at any level, no command line, no status and no core
//! file. Files with secrets are readable only by their owner.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use testkit::stage::Daemon;

use crate::harness::{Origin, SOON, Scheme, Setup, free_port, program, run, tunnel};

/// The token of a client's file.
fn token_of(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    text.split("token: \"").nth(1).unwrap().split('"').next().unwrap().to_owned()
}

/// The private key's own characters, a line each.
fn key_lines(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    let lines = text.lines().filter(|line| line.len() > 30 && !line.contains("---"));
    lines.map(str::to_owned).collect()
}

fn proc(daemon: &Daemon, file: &str) -> String {
    let bytes = fs::read(format!("/proc/{}/{file}", daemon.id())).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn secrets_are_in_no_log_status_or_command_line_and_no_core_is_written() {
    for (scheme, format) in [(Scheme::TLS, "text"), (Scheme::TCP, "json"), (Scheme::WSS, "text")] {
        let origin = Origin::echo();
        let mut setup = Setup::new(scheme).service("echo", origin.port());
        for lines in [&mut setup.server_lines, &mut setup.client_lines] {
            lines.push_str(&format!("log: {{ level: trace, format: {format} }}\n"));
        }
        let admin = "admin-Zt5RkW1xQ8bN4mVc7LpYs2HdJf9GaE3u";
        let api = free_port();
        let line = format!("admin: {{ listen: 127.0.0.1:{api}, token: {admin} }}\n");
        setup.server_lines.push_str(&line);
        // Nobody there either: what is told of it must not hold its key.
        let (hook, asked) = ("mellon-hook-key", free_port());
        let line = format!(
            "auth: {{ http: {{ url: \"http://127.0.0.1:{asked}/\", headers: {{ X-Key: {hook} }} }} }}\n"
        );
        setup.server_lines.push_str(&line);
        // A proxy that is not there: what is told of it must not hold its password.
        let proxy = format!("http://me:mellon-password@127.0.0.1:{}", free_port());
        let basic = "bWU6bWVsbG9uLXBhc3N3b3Jk";
        let header = "mellon-header";
        if scheme == Scheme::WSS {
            setup.client_lines.push_str(&format!("headers: {{ X-Key: {header} }}\n"));
        }
        // Where cores are allowed, as on a machine of developers.
        let script = "ulimit -c unlimited 2> /dev/null; exec \"$@\"";
        let starter = || ["sh", "-c", script, "sh"].map(Into::into).to_vec();
        (setup.server_starter, setup.client_starter) = (starter(), starter());
        let mut running = setup.start();
        running.wait_echo(running.public("echo"));
        let token = token_of(&running.file("client.yaml"));
        // One whose token is wrong, whose name is not, and the log-in of one process after another.
        let wrong = run(&mut tunnel(&["generate", "token"])).stdout;
        let wrong = String::from_utf8(wrong).unwrap().trim().to_owned();
        let other = running.start_another_client(|text| text.replace(&token, &wrong));
        other.wait_line(&["wrong token"], SOON);

        // The log is that of them all, the control socket is not.
        let apart =
            |text: String, by: &str| text.replace("/another.sock", &format!("/{by}/{by}.sock"));
        let stranger = running.start_another_client(|text| {
            apart(text, "stranger").replace("name: home", "name: nobody")
        });
        running.server.wait_line(&["auth.http", "nobody"], SOON);
        let through = |text| format!("{}proxy: \"{proxy}\"\n", apart(text, "proxied"));
        let proxied = running.start_another_client(through);
        proxied.wait_line(&["proxy", proxy.rsplit(':').next().unwrap()], SOON);

        let fixed = ["mellon-password", basic, header, hook, admin].map(str::to_owned);
        let mut secrets: Vec<_> = fixed.into_iter().chain([token, wrong]).collect();
        if scheme.tls {
            let state = fs::read_dir(running.file("state")).unwrap().flatten();
            let keys = state.map(|file| file.path()).filter(|path| {
                fs::read_to_string(path).is_ok_and(|text| text.contains("PRIVATE KEY"))
            });
            secrets.extend(keys.flat_map(|path| key_lines(&path)));
            assert!(secrets.len() > 5, "a key was made");
        }
        let mut shown = [&running.server, &other, &stranger, &proxied].map(Daemon::log).to_vec();
        shown.push(running.client().log());
        assert!(shown.iter().all(|log| log.contains("DEBUG")), "the logs are at their fullest");
        for role in ["server", "client"] {
            shown.push(running.status(role).unwrap().to_string());
            let check =
                run(tunnel(&["check", "--config"]).arg(running.file(&format!("{role}.yaml"))));
            shown
                .push(String::from_utf8_lossy(&[check.stdout, check.stderr].concat()).into_owned());
        }
        for path in [
            "/metrics",
            "/status",
            "/api/v1/status",
            "/api/v1/streams",
            "/api/v1/log",
            "/api/v1/config",
        ] {
            let mut curl = Command::new(program("curl"));
            let token = format!("Authorization: Bearer {admin}");
            curl.args(["--silent", "--include", "--fail", "--header", &token]);
            let answer = run(curl.arg(format!("http://127.0.0.1:{api}{path}")));
            assert!(answer.status.success(), "{path}");
            shown.push(String::from_utf8(answer.stdout).unwrap());
        }
        for daemon in [&running.server, &other] {
            shown.push(proc(daemon, "cmdline"));
            let limits = proc(daemon, "limits");
            let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
            assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
        }
        for text in &shown {
            for secret in &secrets {
                assert!(!text.contains(secret.as_str()), "{scheme:?}: a secret in {text}");
            }
        }
    }
}

#[test]
fn what_is_written_at_the_first_start_is_its_owner_s_alone() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let mut command = tunnel(&["server", "--listen", &format!("tls://127.0.0.1:{port}")]);
    command.env("HOME", dir.path()).arg("--state-dir").arg(dir.path().join("state"));
    let server = Daemon::start("server", dir.path(), &mut command);
    server.wait_line(&["serving clients"], SOON);
    let mut seen = 0;
    for file in fs::read_dir(dir.path().join("state")).unwrap().flatten() {
        let meta = file.metadata().unwrap();
        let mode = meta.permissions().mode() & 0o777;
        if meta.is_dir() {
            assert_eq!(mode & 0o077, 0, "{:?}", file.path());
        } else {
            assert_eq!(mode, 0o600, "{:?}", file.path());
            seen += 1;
        }
    }
    assert!(seen >= 3, "token, key and lock: {seen}");
    let mode = fs::metadata(dir.path().join("state")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    // It goes to a file here, and may go to a journal: no token there.
    let log = server.log();
    let tokens = fs::read_dir(dir.path().join("state")).unwrap().flatten().filter_map(|file| {
        let name = file.file_name().into_string().ok()?;
        name.contains("token").then(|| fs::read_to_string(file.path()).unwrap())
    });
    for token in tokens.chain([]) {
        assert!(!log.contains(token.trim()), "{log}");
    }
}

#[test]
fn a_start_warns_of_what_others_may_read_and_refuses_what_they_may_change() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let start = || {
        let address = format!("tls://127.0.0.1:{}", free_port());
        let mut command = tunnel(&["server", "--listen", &address, "--state-dir"]);
        command.env("HOME", dir.path()).arg(&state);
        command
    };
    let set = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let log = |name: &str| {
        let mut server = Daemon::start(name, dir.path(), &mut start());
        server.wait_line(&["serving clients"], SOON);
        server.terminate();
        server.wait_end(SOON);
        server.log()
    };
    let said = log("private");
    assert!(!said.contains("WARN"), "{said}");
    set(&state, 0o755);
    set(&state.join("key.pem"), 0o644);
    let said = log("exposed");
    let [folder, key] = [state.clone(), state.join("key.pem")].map(|p| p.display().to_string());
    for warning in [
        format!("the state directory {folder} has mode 0755, so other users may list its files"),
        format!("{key} holds a private key and others may read it (chmod 600)"),
    ] {
        assert_eq!(said.matches(&warning).count(), 1, "{warning}: {said}");
    }
    set(&state, 0o777);
    let output = run(&mut start());
    let said = String::from_utf8_lossy(&output.stderr);
    let problem = format!("{folder} has mode 0777, so other users could replace the keys in it");
    assert!(said.contains(&problem) && said.contains("chmod 700"), "{said}");
    assert_eq!(output.status.code(), Some(1), "{said}");
}

#[test]
fn no_command_that_is_recommended_shows_a_secret() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![root.join("README.md")];
    let mut folders =
        vec![root.join("examples"), root.join("systemd"), root.join("crates/tunnel/docs")];
    while let Some(folder) = folders.pop() {
        let found = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
        let (below, here): (Vec<_>, Vec<_>) = found.partition(|path| path.is_dir());
        folders.extend(below);
        files.extend(here);
    }
    // A screenshot has no text that a person copies.
    files.retain(|file| file.extension().is_none_or(|extension| extension != "png"));
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let shown =
            text.lines().find(|line| line.contains("--token ") || line.contains("--token="));
        assert_eq!(shown, None, "{}", file.display());
    }
}
