//! Error messages for users: each side shows one line with the problem, the place and the remedy.

use std::fs;
use std::net::TcpListener;
use std::time::Instant;

use crate::harness::{Origin, SOON, Scheme, Setup, bytes, free_port, run, try_connect, tunnel};

#[test]
fn a_wrong_token_is_told_on_both_sides() {
    for &scheme in Scheme::ALL {
        let origin = Origin::echo();
        let mut running = Setup::new(scheme).service("echo", origin.port()).start_server();
        running.edit_client(|text| {
            let token = text.split("token: \"").nth(1).unwrap().split('"').next().unwrap();
            let other: String = token.chars().rev().collect();
            text.replace(token, &other)
        });
        running.start_client();
        let address = format!("127.0.0.1:{}", running.server_port());
        running.client().wait_one_line(&["token", &address], SOON);
        running.server.wait_one_line(&["token", "home"], SOON);
        assert!(running.client().is_running(), "it may be mended on the other side");
    }
}

#[cfg(not(feature = "otlp"))]
#[test]
fn a_binary_that_cannot_push_metrics_refuses_the_key() {
    let mut running = Setup::new(Scheme::TCP).start_server();
    running.edit_client(|text| text + "otlp: { endpoint: \"http://127.0.0.1:4318\" }\n");
    running.start_client();
    assert_eq!(running.client().wait_end(SOON).code(), Some(2));
    let words = ["client.yaml:", "otlp: ", "built without OTLP (cargo build --features otlp)"];
    running.client().wait_one_line(&words, SOON);
}

#[test]
fn a_pin_that_does_not_match_is_told_on_both_sides() {
    let origin = Origin::echo();
    let mut running = Setup::new(Scheme::TLS).service("echo", origin.port()).start_server();
    running.edit_client(|text| {
        let start = text.find("sha256:").unwrap() + "sha256:".len();
        let (head, tail) = text.split_at(start);
        // Another key's hash of the same length.
        let swapped = if tail.starts_with('A') { "B" } else { "A" };
        format!("{head}{swapped}{}", &tail[1..])
    });
    running.start_client();
    let address = format!("127.0.0.1:{}", running.server_port());
    running.client().wait_one_line(&["pin", "sha256:", &address], SOON);
    // The server sees an alert and can only guess, but says from whom.
    running.server.wait_one_line(&["127.0.0.1", "certificate"], SOON);
}

#[test]
fn a_public_port_that_is_taken_is_told_on_both_sides() {
    let (origin, port) = (Origin::echo(), free_port());
    let _other_program = TcpListener::bind(("0.0.0.0", port)).unwrap();
    let setup = Setup::new(Scheme::TLS).service_on("echo", origin.port(), port);
    let mut running = setup.start_server();
    running.start_client();
    let port = port.to_string();
    running.client().wait_one_line(&["echo", &port, "use"], SOON);
    running.server.wait_one_line(&["home", &port, "use"], SOON);
}

#[test]
fn a_public_port_that_is_not_allowed_is_told_on_both_sides() {
    let (origin, port) = (Origin::echo(), free_port());
    let setup = Setup::new(Scheme::TLS).service("echo", origin.port());
    let mut running = setup.start_server();
    let public = running.public("echo").to_string();
    let port = port.to_string();
    running
        .edit_client(|text| text.replace(&format!("tcp://:{public}"), &format!("tcp://:{port}")));
    running.start_client();
    running.client().wait_one_line(&["echo", &port, "allow"], SOON);
    running.server.wait_one_line(&["home", &port, "allow"], SOON);
}

#[test]
fn a_forward_that_is_not_allowed_is_reset_and_told() {
    let origin = Origin::echo();
    let setup = Setup::new(Scheme::TLS).forward(origin.port());
    let mut running = setup.start_server();
    let forbidden = free_port();
    let allowed = format!("target: \"tcp://127.0.0.1:{}\"", origin.port());
    let other = format!("target: \"tcp://127.0.0.1:{forbidden}\"");
    running.edit_client(|text| text.replace(&allowed, &other));
    running.start_client();
    running.wait_ready();
    bytes::expect_refused(try_connect(running.local()));
    running.server.wait_line(&["home", &forbidden.to_string(), "allow"], SOON);
}

#[test]
fn every_problem_of_a_wrong_file_is_told_at_once_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("server.yaml");
    let text = "listen:\n  - tls://0.0.0.0:70000\nkeepalive: soon\nclients:\n  - name: home\n    \
                tokn: \"x\"\n";
    fs::write(&file, text).unwrap();
    for command in ["server", "check"] {
        let output = run(tunnel(&[command, "--config"]).arg(&file));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{command}: {said}");
        // Line and column of: the port, the duration, the unknown key.
        for place in ["server.yaml:2:5", "server.yaml:3:12", "server.yaml:6:5"] {
            assert!(said.contains(place), "{command} does not name {place}:\n{said}");
        }
        for word in ["70000", "keepalive", "tokn", "token"] {
            assert!(said.contains(word), "{command} does not name {word}:\n{said}");
        }
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let output = run(&mut tunnel(&["client", "--config", "/nowhere/client.yaml"]));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("/nowhere/client.yaml"), "{said}");
}

#[test]
fn tls_on_one_side_only_is_told_on_both_at_once() {
    let origin = Origin::echo();
    for (listening, dialling) in [("tls", "tcp"), ("tcp", "tls")] {
        let scheme = if listening == "tls" { Scheme::TLS } else { Scheme::TCP };
        let mut running = Setup::new(scheme).service("echo", origin.port()).start_server();
        let swap = (format!("{listening}://127"), format!("{dialling}://127"));
        running.edit_client(|text| text.replacen(&swap.0, &swap.1, 1));
        let started = Instant::now();
        running.start_client();
        let port = running.server_port();
        let dialled = format!("{dialling}://127.0.0.1:{port}: ");
        let (client, server) = match listening {
            "tls" => ("say tls:// here", "it must say tls:// here"),
            _ => ("this port of the server is tcp://", "the other side speaks tls"),
        };
        running.client().wait_one_line(&["warn", &dialled, client], SOON);
        running.server.wait_one_line(&["warn", "from 127.0.0.1", server], SOON);
        // Neither had to wait for the other's ten seconds.
        assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    }
}

#[test]
fn all_local_ports_that_are_taken_are_told_before_anything_is_published() {
    let origin = Origin::echo();
    let setup = Setup::new(Scheme::TLS).service("echo", origin.port());
    let mut running = setup.forward(origin.port()).forward(origin.port()).start_server();
    let yaml = fs::read_to_string(running.file("client.yaml")).unwrap();
    let taken: Vec<_> =
        yaml.lines().filter_map(|line| line.split("listen: \"tcp://").nth(1)).collect();
    let taken: Vec<_> = taken.iter().map(|rest| rest.split('"').next().unwrap()).collect();
    let _other_programs: Vec<_> = taken.iter().map(|at| TcpListener::bind(at).unwrap()).collect();
    assert_eq!(taken.len(), 2);
    running.start_client();
    assert_eq!(running.client().wait_end(SOON).code(), Some(1));
    for address in taken {
        running
            .client()
            .wait_one_line(&["tunnel: cannot listen", address, "in use", "ss -ltunp"], SOON);
    }
    assert!(!running.server.log().contains("has connected"), "{}", running.server.log());
}

#[test]
fn a_file_of_the_other_side_is_one_line() {
    let running = Setup::new(Scheme::TLS).start_server();
    for (role, other) in [("server", "client"), ("client", "server")] {
        let file = running.file(&format!("{other}.yaml"));
        let output = run(tunnel(&[role, "--config"]).arg(file));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains(&format!("hint: tunnel {other} --config ")), "{said}");
    }
}

#[test]
fn what_a_file_names_and_nobody_can_read_is_told_by_the_check() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("server.yaml");
    let text = "listen: tls://127.0.0.1:1\ntls: { cert: no.crt, key: no.key, client_ca: ca.crt }\n\
                clients:\n  - { name: home, token_file: home.token }\n";
    fs::write(&file, text).unwrap();
    let check = || {
        let output = run(tunnel(&["check", "--config"]).arg(&file));
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(check().contains("server.yaml:4:31: clients[0].token_file: "), "{}", check());
    let token = run(&mut tunnel(&["generate", "token"])).stdout;
    fs::write(dir.path().join("home.token"), token).unwrap();
    let said = check();
    for place in ["2:14: tls.cert: ", "2:27: tls.key: ", "2:46: tls.client_ca: "] {
        assert!(said.contains(&format!("server.yaml:{place}{}", dir.path().display())), "{said}");
    }
}

#[test]
fn a_token_under_the_key_of_its_file_is_not_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let token = String::from_utf8(run(&mut tunnel(&["generate", "token"])).stdout).unwrap();
    let token = token.trim();
    let file = dir.path().join("client.yaml");
    fs::write(&file, format!("servers: tls://a:1\nname: home\ntoken_file: {token}\n")).unwrap();
    let server = dir.path().join("server.yaml");
    let text = format!("listen: tls://[::]:1\nclients: [{{ name: a, token_file: /{token} }}]\n");
    fs::write(&server, text).unwrap();
    let flags = ["client", "--server", "tls://a:1", "--name", "a", "--token-file", token];
    for mut command in [
        {
            let mut command = tunnel(&["check", "--config"]);
            command.arg(&file);
            command
        },
        {
            let mut command = tunnel(&["check", "--config"]);
            command.arg(&server);
            command
        },
        tunnel(&flags),
    ] {
        let output = run(&mut command);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("cannot read the file: ") && !said.contains(token), "{said}");
    }
}

#[test]
fn a_misspelled_level_of_the_environment_is_refused_instead_of_silencing_the_log() {
    let mut running = Setup::new(Scheme::TLS).start_server();
    // It holds the state directory.
    running.server.kill();
    for (level, role) in [("inof", "server"), ("info,link=deep", "client"), ("loud", "demo")] {
        let mut command = tunnel(&[role]);
        if role != "demo" {
            command.arg("--config").arg(running.file(&format!("{role}.yaml")));
        }
        let output = run(command.env("TUNNEL_LOG", level));
        let said = String::from_utf8_lossy(&output.stderr);
        let word = level.rsplit('=').next().unwrap();
        assert!(said.contains(&format!("TUNNEL_LOG: `{word}` is no level")), "{role}: {said}");
        assert_eq!(output.status.code(), Some(2), "{role}: {said}");
    }
}

#[test]
fn a_password_in_an_address_is_led_to_basic_auth_and_not_repeated() {
    let dir = tempfile::tempdir().unwrap();
    for (flag, address) in [
        ("--publish", "http://ann:secret@app.example.com=3000"),
        ("--publish", "https://ann:secret@app.example.com=3000"),
        ("--publish", "tcp://ann:secret@:10022=22"),
        ("--publish", "10080=tcp://ann:secret@127.0.0.1:80"),
        ("--forward", "socks5://ann:secret@127.0.0.1:1080"),
    ] {
        let mut client = tunnel(&["client", "--server", "example.com", "--name", "home"]);
        client.args(["--token-file", "token", flag, address]).current_dir(dir.path());
        let output = run(&mut client);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        let line = said.lines().find(|line| line.starts_with(flag));
        let line = line.unwrap_or_else(|| panic!("{address}: {said}"));
        for word in ["an address has no user and no password", "hint: ", "basic_auth"] {
            assert!(line.contains(word), "{word}: {line}");
        }
        assert!(!said.contains("secret"), "{said}");
    }
}
