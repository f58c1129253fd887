//! The command line by itself.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::process::Command;

use crate::harness::{Origin, SOON, Scheme, Setup, binary, run, tunnel, wait};

/// Runs it, which must succeed, and returns its standard output.
fn output(command: &mut Command) -> String {
    let output = run(command);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_demo_fetches_once_through_itself_and_prints_a_throughput() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = tunnel(&["demo", "--once"]);
    // The demo needs no directory: an image of one file has none that its user can write to.
    let said = output(demo.env("HOME", home.path()).env("TMPDIR", "/dev/null"));
    println!("{said}");
    assert!(said.contains("http://127.0.0.1:"), "{said}");
    assert!(said.contains("bit/s") || said.contains("B/s"), "a throughput: {said}");
    // Nothing is left to open: the demo has ended.
    assert!(!said.contains("browser") && !said.contains("Ctrl-C"), "{said}");
    // The block in the README has the same lines, but for figures.
    let plain = |text: &str| -> Vec<String> {
        let no_figures = |line: &str| line.replace(|c: char| c.is_ascii_digit(), "");
        text.trim().lines().map(no_figures).collect()
    };
    let readme = include_str!("../../../../README.md");
    let (_, block) = readme.split_once("$ tunnel demo --once\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    assert_eq!(plain(block), plain(&said));
}

#[test]
fn the_example_for_systemd_is_checked_by_hand_as_its_head_says() {
    let dir = tempfile::tempdir().unwrap();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/systemd-server.yaml");
    let text = fs::read_to_string(example).unwrap();
    let token = dir.path().join("main.token");
    fs::write(dir.path().join("main.yaml"), &text).unwrap();
    fs::write(&token, output(&mut tunnel(&["generate", "token"]))).unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();

    let mut check = tunnel(&["check", "--config", "main.yaml"]);
    let refused = run(check.current_dir(dir.path()).env_remove("CREDENTIALS_DIRECTORY"));
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8(refused.stderr).unwrap();
    let hint = "environment variable CREDENTIALS_DIRECTORY is not set (hint: systemd sets it for a \
                unit; by hand: CREDENTIALS_DIRECTORY=FOLDER tunnel check --config FILE)";
    assert!(said.contains(hint), "{said}");

    let commands: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("#   ")).collect();
    assert_eq!(commands.len(), 2, "{commands:?}");
    let commands = commands.join("\n").replace("/etc/tunnel", &dir.path().display().to_string());
    std::os::unix::fs::symlink(binary(), dir.path().join("tunnel")).unwrap();
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-ec", &commands]).current_dir(dir.path()).env("PATH", path);
    let said = output(&mut shell);
    assert!(said.contains("client home: may publish 10000-10100;"), "{said}");
}

#[test]
fn the_demo_has_nothing_to_warn_of() {
    let home = tempfile::tempdir().unwrap();
    for level in ["", "debug"] {
        let mut demo = tunnel(&["demo", "--once"]);
        let output = run(demo.env("HOME", home.path()).env("TUNNEL_LOG", level));
        let log = String::from_utf8_lossy(&output.stderr);
        let bad = log.lines().find(|line| line.contains(" WARN ") || line.contains(" ERROR "));
        assert_eq!(bad, None, "{log}");
        // The level does reach the log, so that the assertion above sees lines.
        assert_eq!(log.contains(" INFO "), level == "debug", "{log}");
    }
}

#[test]
fn generated_tokens_are_long_and_never_the_same() {
    let tokens: Vec<_> = (0..2).map(|_| output(&mut tunnel(&["generate", "token"]))).collect();
    assert_ne!(tokens[0], tokens[1]);
    // 128 bits in base64 are 22 characters.
    assert!(tokens.iter().all(|token| token.trim().len() >= 22), "{tokens:?}");
}

#[test]
fn generated_files_pass_the_check() {
    let dir = tempfile::tempdir().unwrap();
    // The samples keep the secret beside the file.
    fs::write(dir.path().join("home.token"), output(&mut tunnel(&["generate", "token"]))).unwrap();
    for side in ["server", "client"] {
        let file = dir.path().join(format!("{side}.yaml"));
        fs::write(&file, output(&mut tunnel(&["generate", "config", side]))).unwrap();
        output(tunnel(&["check", "--config"]).arg(&file));
    }
}

#[test]
fn the_check_prints_what_would_run() {
    let origin = Origin::echo();
    let running = Setup::new(Scheme::TLS).service("echo", origin.port()).start();
    let server = output(tunnel(&["check", "--config"]).arg(running.file("server.yaml")));
    assert!(server.contains(&running.server_port().to_string()), "{server}");
    let client = output(tunnel(&["check", "--config"]).arg(running.file("client.yaml")));
    assert!(client.contains(&running.public("echo").to_string()), "{client}");
}

#[test]
fn ways_over_udp_are_checked_and_a_proxy_of_the_file_is_none_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("client.yaml");
    let text = "servers: [\"quic://a.example\", { url: \"tls://a.example\" }]\nname: home\n\
                token: q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ\nservices: []\n\
                quic: { congestion: cubic, mtu: 1400 }\n";
    fs::write(&file, text).unwrap();
    let check = || run(tunnel(&["check", "--config"]).arg(&file));
    let said = String::from_utf8(check().stdout).unwrap();
    let ways = "client home to quic://a.example:7000\nclient home to tls://a.example:7000\n";
    assert_eq!(said, ways);
    fs::write(&file, format!("{text}proxy: http://p.example:3128\n")).unwrap();
    let output = check();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("client.yaml:1:11: servers[0]: quic:// is UDP"), "{said}");
    assert!(said.contains("`proxy: none`") && !said.contains("servers[1]"), "{said}");
}

#[test]
fn a_client_prints_what_is_reachable_where_and_the_status_knows_it() {
    let origin = Origin::echo();
    let mut running = Setup::new(Scheme::TLS).service("echo", origin.port()).start();
    let public = format!("127.0.0.1:{}", running.public("echo"));
    running.client().wait_line(&["service echo is published at tcp://", &public], SOON);
    for role in ["server", "client"] {
        let socket = running.file(&format!("{role}.sock"));
        let kind = fs::metadata(&socket).unwrap();
        assert!(kind.file_type().is_socket());
        assert_eq!(kind.permissions().mode() & 0o777, 0o600, "only the owner may command");

        let json = output(tunnel(&["status", "--json", "--control"]).arg(&socket));
        let status: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(status["role"], role, "{json}");
        let text = output(tunnel(&["status", "--control"]).arg(&socket));
        assert!(text.contains("echo"), "{text}");
    }
}

#[test]
fn stop_ends_each_daemon_cleanly_and_its_socket_goes() {
    let origin = Origin::echo();
    let mut running = Setup::new(Scheme::TLS).service("echo", origin.port()).start();
    output(tunnel(&["stop", "--control"]).arg(running.file("client.sock")));
    assert!(running.client().wait_end(SOON).success());
    output(tunnel(&["stop", "--config"]).arg(running.file("server.yaml")));
    assert!(running.server.wait_end(SOON).success());
    for name in ["client.sock", "server.sock"] {
        wait(name, SOON, || (!running.file(name).exists()).then_some(()));
    }
    let gone = run(tunnel(&["status", "--control"]).arg(running.file("server.sock")));
    assert!(!gone.status.success(), "nobody answers any more");
}
