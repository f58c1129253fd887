//! The clients of a server over time: a second enrolment, a renewed token, and `tunnel clients`.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use testkit::stage::{Daemon, Running};

use crate::enrol::{Said, allow, code, default_port, enroll, redeem, refused};
use crate::harness::{LONG, Origin, SOON, Scheme, Setup, connect, run, try_connect, tunnel, wait};
use crate::reload::{echo, outcome};

/// `tunnel clients …` of the running server.
fn clients(running: &Running, args: &[&str]) -> Said {
    let control = running.file("server.sock");
    outcome(run(tunnel(&["clients"]).args(args).arg("--control").arg(control)))
}

/// A client in the list of the server.
fn listed(running: &Running, name: &str) -> Option<Value> {
    let (exit, said, complaint) = clients(running, &["--json"]);
    assert_eq!((exit, complaint.as_str()), (Some(0), ""));
    let list: Value = serde_json::from_str(&said).unwrap();
    list["list"].as_array().unwrap().iter().find(|client| client["name"] == name).cloned()
}

/// An enrolled client with one service.
fn away(running: &Running, dir: &Path, origin: &Origin, public: u16) -> Daemon {
    let publish = format!("tcp://:{public}=tcp://127.0.0.1:{}", origin.port());
    let mut command = redeem(dir, &code(running, &["away"]), &["--publish", &publish]);
    let client = Daemon::start("away", dir, &mut command);
    wait("the service", SOON, || try_connect(public).ok());
    client
}

/// Adds limits and a comment to the file of the enrolled client. Returns the end of the file.
fn edit_by_hand(running: &Running) -> String {
    let file = running.file("state/clients/away.yaml");
    let added = "limits: { streams: 7 } # Mine.\n";
    fs::write(&file, fs::read_to_string(&file).unwrap() + added).unwrap();
    assert_eq!(outcome(running.reload("server")).1, "client away changed\n");
    added.to_owned()
}

fn token_of(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    let token = text.lines().find_map(|line| line.strip_prefix("token: ")).unwrap();
    token.split_whitespace().next().unwrap().trim_matches('"').to_owned()
}

#[test]
fn a_name_that_is_enrolled_is_refused_and_its_client_goes_on() {
    let (origin, dir) = (Origin::echo(), TempDir::new().unwrap());
    let running = Setup::new(Scheme::TLS).start_server();
    // A code that nobody has used is renewed.
    let void = code(&running, &["away"]);
    let public = default_port();
    let client = away(&running, dir.path(), &origin, public);
    let stays = connect(public);
    echo(&stays, 1);
    let other = TempDir::new().unwrap();
    assert!(refused(other.path(), &void, &[]).2.contains("not good (any more)"));

    edit_by_hand(&running);
    let file = running.file("state/clients/away.yaml");
    let before = fs::read_to_string(&file).unwrap();
    let (exit, said, complaint) = enroll(&running, &["away", "--allow-tcp", "22"]);
    assert_eq!((exit, said.as_str()), (Some(2), ""), "{complaint}");
    for way in [
        "`away` is enrolled already",
        "tunnel enroll --renew away",
        "tunnel enroll --revoke away",
        "tunnel allow away",
        "tunnel clients show away",
    ] {
        assert!(complaint.contains(way), "{complaint}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    echo(&stays, 2);
    assert!(!client.log().contains("wrong token"));
    for (args, word) in [
        (&["--renew", "nobody"][..], "no client `nobody` has come in by a code"),
        (&["--renew", "home"], "with its token, which no code renews"),
        (&["--renew", "away", "--allow-tcp", "22"], "tunnel allow NAME --tcp PORTS"),
    ] {
        let (exit, said, complaint) = enroll(&running, args);
        assert_eq!((exit, said.as_str()), (Some(2), ""), "{complaint}");
        assert!(complaint.contains(word), "{complaint}");
    }
}

#[test]
fn an_old_token_is_valid_until_the_renewed_one_is_used_and_then_void() {
    let (origin, dir) = (Origin::echo(), TempDir::new().unwrap());
    let mut running = Setup::new(Scheme::TLS).start_server();
    let public = default_port();
    let client = away(&running, dir.path(), &origin, public);
    let added = edit_by_hand(&running);
    let mine = dir.path().join("home.yaml");
    let text = fs::read_to_string(&mine).unwrap() + "# At home.\n";
    fs::write(&mine, &text).unwrap();
    let old = dir.path().join("old.yaml");
    fs::write(&old, &text).unwrap();

    // On another machine, where the client does not start.
    let other = dir.path().join("other");
    fs::create_dir(&other).unwrap();
    let copy = other.join("home.yaml");
    fs::copy(&mine, &copy).unwrap();
    let exchange = |code: &str| {
        let mut command = tunnel(&["client", "--enroll", code, "--config"]);
        command.arg(&copy).args(["--control", "/proc/none/c.sock"]).env("HOME", &other);
        outcome(run(&mut command))
    };
    let renew = || {
        let (exit, said, _) = enroll(&running, &["--renew", "away"]);
        assert_eq!(exit, Some(0));
        assert!(said.contains("rights and limits of the client stay"), "{said}");
        said.split_whitespace().find(|word| word.starts_with("enroll1.")).unwrap().to_owned()
    };
    let void = renew();
    let given = renew();
    let (exit, _, complaint) = exchange(&void);
    assert_eq!(exit, Some(1));
    assert!(complaint.contains("not good (any more)"), "{complaint}");
    assert_eq!(fs::read_to_string(&copy).unwrap(), text);
    let (_, _, complaint) = exchange(&given);
    assert!(complaint.contains("client `away` has a new token in"), "{complaint}");
    let (before, first) = (token_of(&old), token_of(&copy));
    assert_ne!(before, first);
    let expected = text.replace(&format!("\"{before}\""), &first);
    assert_eq!(fs::read_to_string(&copy).unwrap().replace('"', ""), expected.replace('"', ""));

    // Nobody uses this token, and another renewal replaces it.
    let again = renew();
    let (_, _, complaint) = exchange(&again);
    assert!(complaint.contains("has a new token in"), "{complaint}");
    assert_ne!(token_of(&copy), first);

    // The running client has the old token, also for a server that starts again.
    let stays = connect(public);
    echo(&stays, 1);
    assert_eq!(listed(&running, "away").unwrap()["renewal"], true);
    assert_eq!(outcome(running.reload("server")).1, "nothing to apply\n");
    echo(&stays, 2);
    running.server.kill();
    running.server.wait_end(SOON);
    running.start_server_again();
    running.server.wait_line(&["client away has connected"], SOON);
    wait("the service", SOON, || try_connect(public).ok());
    running.wait_echo(public);
    let (exit, said, _) = clients(&running, &["show", "away"]);
    assert_eq!(exit, Some(0));
    assert!(said.contains("token         renewed, and not used yet"), "{said}");
    assert!(said.contains("streams 7, ") && said.contains(&public.to_string()), "{said}");

    // The same process takes the new token, and its visitors notice nothing.
    let stays = connect(public);
    echo(&stays, 3);
    fs::copy(&copy, &mine).unwrap();
    let mut reload = tunnel(&["reload", "--control"]);
    let (exit, _, complaint) = outcome(run(reload.arg(dir.path().join("c.sock"))));
    assert_eq!(exit, Some(0), "{complaint}");
    running.server.wait_line(&["first log-in with the new token", "away"], SOON);
    echo(&stays, 4);
    let file = running.file("state/clients/away.yaml");
    let kept = fs::read_to_string(&file).unwrap();
    assert_eq!(kept.matches("scram-sha-256:").count(), 1, "{kept}");
    assert!(kept.starts_with("# Made by") && kept.ends_with(&added), "{kept}");
    assert_eq!(listed(&running, "away").unwrap()["renewal"], false);

    // The old token is void, also for a server that starts again.
    // In a folder of its own, as on another machine.
    let control = dir.path().join("old/c.sock");
    let mut command = tunnel(&["client", "--config"]);
    command.arg(&old).arg("--control").arg(&control).env("HOME", dir.path());
    let mut late = Daemon::start("old", dir.path(), &mut command);
    late.wait_line(&["wrong token"], SOON);
    running.server.kill();
    running.server.wait_end(SOON);
    running.start_server_again();
    running.server.wait_line(&["`away`", "wrong token"], SOON);
    running.server.wait_line(&["client away has connected"], SOON);
    wait("the service", SOON, || try_connect(public).ok());
    running.wait_echo(public);
    late.kill();
    late.wait_end(SOON);
    assert!(client.log().contains("connected to"));
    assert_eq!(outcome(running.reload("server")).1, "nothing to apply\n");
}

#[test]
fn a_renewal_beside_the_running_client_takes_effect_in_it() {
    let (origin, dir) = (Origin::echo(), TempDir::new().unwrap());
    let running = Setup::new(Scheme::TLS).start_server();
    let public = default_port();
    let mut client = away(&running, dir.path(), &origin, public);
    let stays = connect(public);
    echo(&stays, 1);
    let given = code(&running, &["--renew", "away"]);
    let (exit, said, complaint) = outcome(run(&mut redeem(dir.path(), &given, &[])));
    assert_eq!(exit, Some(0), "{complaint}");
    let pid = client.id();
    let taken = format!("the running client (process {pid}) has taken the token");
    assert!(complaint.contains(&taken), "{complaint}");
    assert_eq!(said, "token changed for new connections\n");
    running.server.wait_line(&["first log-in with the new token", "away"], SOON);
    echo(&stays, 2);
    assert_eq!(listed(&running, "away").unwrap()["renewal"], false);
    drop(stays);
    client.terminate();
    client.wait_end(LONG);
}

#[test]
fn a_reconnect_of_a_client_without_a_connection_dials_at_once() {
    let origin = Origin::echo();
    let mut running = Setup::new(Scheme::TLS).service("echo", origin.port()).start();
    running.wait_links(2);
    // Who is superseded waits for 30 s at least.
    let mut newer = running.start_another_client(|text| text);
    running.client().wait_line(&["newer process"], SOON);
    let state = |running: &Running| running.status("client").unwrap()["sessions"][0].clone();
    assert_eq!(state(&running)["state"], "superseded", "{}", state(&running));
    newer.terminate();
    newer.wait_end(LONG);
    let mut command = tunnel(&["reconnect", "--control"]);
    let (exit, said, complaint) = outcome(run(command.arg(running.file("client.sock"))));
    assert_eq!((exit, complaint.as_str()), (Some(0), ""), "{said}");
    assert!(said.ends_with("without a connection: the client dials at once\n"), "{said}");
    wait("the service", SOON, || (state(&running)["services"][0]["state"] == "up").then_some(()));
    running.wait_echo(running.public("echo"));
    // On the server there is no such pause.
    running.client().terminate();
    running.client().wait_end(LONG);
    let mut command = tunnel(&["reconnect", "home", "--control"]);
    let (exit, _, complaint) = outcome(run(command.arg(running.file("server.sock"))));
    assert_eq!(exit, Some(1), "{complaint}");
    assert!(complaint.contains("no link is connected now"), "{complaint}");
}

#[test]
fn a_denied_right_is_gone_at_once_and_its_service_with_it() {
    let (origin, dir) = (Origin::echo(), TempDir::new().unwrap());
    let running = Setup::new(Scheme::TLS).service("echo", origin.port()).start();
    let deny = |args: &[&str]| {
        let mut command = tunnel(&["deny", "--control"]);
        outcome(run(command.arg(running.file("server.sock")).args(args)))
    };
    // Of a client in the file of the server, and of an enrolled client.
    let public = default_port();
    let _client = away(&running, dir.path(), &origin, public);
    for (name, port) in [("home", running.public("echo")), ("away", public)] {
        running.wait_echo(port);
        let stays = connect(port);
        echo(&stays, 1);
        let port = port.to_string();
        let (exit, said, complaint) = deny(&[name, "--tcp", &port]);
        assert_eq!((exit, complaint.as_str()), (Some(0), ""), "{said}");
        assert!(said.starts_with(&format!("client `{name}` may ")), "{said}");
        let port = port.parse().unwrap();
        wait("the end of the service", SOON, || try_connect(port).err());
        running.server.wait_line(&[&format!("client {name}: rights were taken away")], SOON);
        let (exit, _, complaint) = deny(&[name, "--tcp", &port.to_string()]);
        assert_eq!(exit, Some(2), "{complaint}");
        let expected = format!("--tcp: client {name} has no right {port} (hint: ");
        assert!(complaint.contains(&expected), "{complaint}");
        assert_eq!(outcome(running.reload("server")).1, "nothing to apply\n");
        // An open stream goes on, until a command resets it.
        echo(&stays, 2);
        let list = |args: &[&str]| {
            let mut command = tunnel(&["streams", "--control"]);
            outcome(run(command.arg(running.file("server.sock")).args(args)))
        };
        let (_, text, _) = list(&[]);
        let own = stays.local_addr().unwrap().port();
        let line = text.lines().find(|line| line.contains(&format!(":{own}")));
        let line = line.unwrap_or_else(|| panic!("no stream of port {own}: {text}"));
        let (exit, _, complaint) = list(&["--kill", line.split_whitespace().next().unwrap()]);
        assert_eq!(exit, Some(0), "{complaint}");
        let mut rest = Vec::new();
        assert!(matches!((&stays).read_to_end(&mut rest), Ok(0) | Err(_)), "{rest:?}");
    }
    // The range of the enrolled client keeps its other ports.
    let kept = fs::read_to_string(running.file("state/clients/away.yaml")).unwrap();
    assert!(kept.contains(&format!("\"{}-10999\"", public + 1)), "{kept}");
}

#[test]
fn a_reconnect_dials_anew_and_streams_go_on() {
    for scheme in [Scheme::TLS, Scheme::QUIC, Scheme::KCP] {
        let origin = Origin::echo();
        let mut running = Setup::new(scheme).service("echo", origin.port()).start();
        let inside = connect(running.public("echo"));
        echo(&inside, 1);
        let reconnect = |running: &Running, side: &str, args: &[&str]| {
            let mut command = tunnel(&["reconnect", "--control"]);
            outcome(run(command.arg(running.file(&format!("{side}.sock"))).args(args)))
        };
        for (turn, (side, args)) in [("client", &[][..]), ("server", &["home"])].iter().enumerate()
        {
            let before = running.client().log().matches("resumed over").count();
            let (exit, said, complaint) = reconnect(&running, side, args);
            assert_eq!((exit, complaint.as_str()), (Some(0), ""), "{scheme:?} {side}");
            // A link of the client's start may still have no connection, which a second line says.
            assert!(said.contains("ended; the client dials anew\n"), "{said}");
            wait("new connections", LONG, || {
                let now = running.client().log().matches("resumed over").count();
                (now > before).then_some(())
            });
            echo(&inside, 2 + turn as u8);
        }
        for (side, args, why) in [
            ("server", &[][..], "name the client whose connections end"),
            ("server", &["nobody"], "the server knows no client `nobody`"),
            ("client", &["home"], "leave the name away"),
        ] {
            let (exit, _, complaint) = reconnect(&running, side, args);
            assert!(exit == Some(1) && complaint.contains(why), "{complaint}");
        }
    }
}

#[test]
fn another_machine_takes_over_by_a_renewal_and_the_first_one_is_out() {
    let (origin, dir) = (Origin::echo(), TempDir::new().unwrap());
    let running = Setup::new(Scheme::TLS).start_server();
    let public = default_port();
    let first = away(&running, dir.path(), &origin, public);
    let other = TempDir::new().unwrap();
    let publish = format!("tcp://:{public}=tcp://127.0.0.1:{}", origin.port());
    let given = code(&running, &["--renew", "away"]);
    let mut command = redeem(other.path(), &given, &["--publish", &publish]);
    let second = Daemon::start("second", other.path(), &mut command);
    running.server.wait_line(&["first log-in with the new token", "away"], SOON);
    first.wait_line(&["wrong token"], SOON);
    second.wait_line(&["connected to"], SOON);
    running.wait_echo(public);
}

#[test]
fn a_client_that_was_killed_is_listed_without_a_connection() {
    let mut running = Setup::new(Scheme::TLS).start();
    let pid = running.client().id();
    let is = |state: &str| {
        wait(state, SOON, || listed(&running, "home").filter(|client| client["state"] == *state))
    };
    is("connected");
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
    let home = is("stalled");
    assert!(home["stalled_seconds"].is_u64(), "{home}");
    assert!(home["state_text"].as_str().unwrap().starts_with("without a connection for"), "{home}");
}

#[test]
fn every_client_is_listed_also_one_that_is_away_and_one_that_was_refused() {
    let (origin, dir) = (Origin::echo(), TempDir::new().unwrap());
    let mut running = Setup::new(Scheme::TLS).service("echo", origin.port()).start();
    let public = default_port();
    let home = listed(&running, "home").unwrap();
    assert_eq!((&home["from"], &home["refused"]), (&"file".into(), &Value::Null));
    assert!(home["links"].as_u64() > Some(0), "{home}");
    assert!(home["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{home}");
    let mut client = away(&running, dir.path(), &origin, public);
    client.terminate();
    client.wait_end(SOON);
    let gone = wait("the end of its links", SOON, || {
        listed(&running, "away").filter(|client| client["away_seconds"].is_u64())
    });
    assert_eq!((&gone["from"], &gone["links"]), (&"enrolled".into(), &0.into()));
    assert!(gone["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{gone}");

    // Whoever claims a name that the server does not know leaves no trace.
    let wrong = "Zt5RkW1xQ8bN4mVc7LpYs2HdJf9GaE3u";
    let text = fs::read_to_string(running.file("client.yaml")).unwrap();
    let token = text.lines().find(|line| line.starts_with("token:")).unwrap().to_owned();
    let start = |name: &str| {
        running.start_another_client(|text| {
            text.replace(&token, &format!("token: {wrong}")).replace("name: home", name)
        })
    };
    for name in ["name: nobody", "name: home"] {
        let mut other = start(name);
        let who = name.replace("name: ", "client `") + "`";
        running.server.wait_line(&[&who, "did not log in"], SOON);
        other.kill();
        other.wait_end(SOON);
    }
    let home = listed(&running, "home").unwrap();
    assert!(home["refused"]["reason"].as_str().unwrap().starts_with("wrong token: "), "{home}");
    assert!(home["refused"]["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{home}");
    assert!(home["links"].as_u64() > Some(0), "{home}");
    assert_eq!(listed(&running, "nobody"), None);
    let (exit, said, _) = clients(&running, &[]);
    assert_eq!(exit, Some(0));
    let line = |name: &str| said.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(said.starts_with("2 clients, server started "), "{said}");
    assert!(
        line("home ").contains("connected, ") && line("home ").contains("wrong token"),
        "{said}"
    );
    assert!(line("away ").contains("enrolled  away for "), "{said}");
    assert!(
        line("away ").contains("publish 10000-10999, udp://10000-10999; reach nothing"),
        "{said}"
    );
    let (exit, said, _) = clients(&running, &["show", "home"]);
    assert_eq!(exit, Some(0));
    assert!(said.starts_with("home: connected, ") && said.contains("echo"), "{said}");
    let (exit, _, complaint) = clients(&running, &["show", "nobody"]);
    assert_eq!(exit, Some(1));
    assert!(complaint.contains("no client `nobody`"), "{complaint}");
    let control = running.file("client.sock");
    let (exit, _, complaint) = outcome(run(tunnel(&["clients", "--control"]).arg(control)));
    assert_eq!(exit, Some(1));
    assert!(complaint.contains("this is a client"), "{complaint}");

    // Nothing is known of the time before a start.
    running.server.kill();
    running.server.wait_end(SOON);
    running.start_server_again();
    running.wait_echo(running.public("echo"));
    let (_, said, _) = clients(&running, &[]);
    assert!(said.contains("away since the server's start"), "{said}");
}

#[test]
fn limits_change_at_once_where_the_client_is_named_and_comments_stay() {
    let (origin, dir) = (Origin::echo(), TempDir::new().unwrap());
    let running = Setup::new(Scheme::TLS).service("echo", origin.port()).start();
    let (public, of_file) = (default_port(), running.public("echo"));
    let _client = away(&running, dir.path(), &origin, public);
    let enrolled = running.file("state/clients/away.yaml");
    fs::write(&enrolled, fs::read_to_string(&enrolled).unwrap() + "# Mine.\n").unwrap();
    running.edit_server(|text| text.replace("clients:\n", "clients: # Mine.\n"));
    for (name, port, file) in
        [("away", public, enrolled), ("home", of_file, running.file("server.yaml"))]
    {
        let before = fs::read_to_string(&file).unwrap();
        for (args, word) in [
            (["--streams", "0"], "--streams: `0` is not a limit"),
            (["--new-per-second", "x"], "--new-per-second: `x` is not a limit"),
        ] {
            let (exit, said, complaint) =
                clients(&running, &[&["limit", name][..], &args[..]].concat());
            assert_eq!((exit, said.as_str()), (Some(2), ""), "{complaint}");
            assert!(complaint.contains(word), "{complaint}");
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), before);
        let stays = connect(port);
        echo(&stays, 1);
        let (exit, said, complaint) = clients(&running, &["limit", name, "--streams", "2"]);
        assert_eq!((exit, complaint.as_str()), (Some(0), ""));
        assert!(said.starts_with(&format!("client `{name}`: streams 2, ")), "{said}");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains("streams: 2") && text.contains("# Mine."), "{text}");
        running.server.wait_line(&["limits were changed", name, "streams 2"], SOON);
        let holds = wait("the second stream", SOON, || {
            let visitor = try_connect(port).ok()?;
            one_echo(&visitor).then_some(visitor)
        });
        let third = try_connect(port);
        assert!(!third.is_ok_and(|visitor| one_echo(&visitor)), "a third stream was admitted");
        let (exit, said, _) = clients(&running, &["limit", name, "--streams", "none"]);
        assert_eq!(exit, Some(0));
        assert!(said.contains("streams unlimited"), "{said}");
        assert!(!fs::read_to_string(&file).unwrap().contains("streams: 2"));
        running.wait_echo(port);
        drop((holds, stays));
    }
    let (exit, _, complaint) = clients(&running, &["limit", "nobody", "--ports", "1"]);
    assert_eq!(exit, Some(2));
    assert!(complaint.contains("no client `nobody`"), "{complaint}");
    assert_eq!(outcome(running.reload("server")).1, "nothing to apply\n");

    // The other two are the known commands by another name.
    let (exit, said, _) = clients(&running, &["allow", "away", "--tcp", "22"]);
    assert_eq!((exit, said), (Some(0), allow(&running, &["away", "--tcp", "22"]).1));
    let (exit, said, _) = clients(&running, &["revoke", "away"]);
    assert_eq!((exit, said.as_str()), (Some(0), "client away removed: its connections end\n"));
    wait("the end of the service", SOON, || try_connect(public).err());
    assert_eq!(listed(&running, "away"), None);
    assert_eq!(clients(&running, &["revoke", "away"]).0, Some(1));
}

/// Whether the tunnel answers this visitor.
fn one_echo(mut visitor: &std::net::TcpStream) -> bool {
    use std::io::{Read as _, Write as _};
    visitor.write_all(&[7]).is_ok() && visitor.read_exact(&mut [0]).is_ok()
}
