//! Services and forwards of a client: short forms, flags beside a file, commands to the running
//! client, and what lasts.

use std::fs;
use std::io::Read as _;
use std::path::PathBuf;

use testkit::stage::{Daemon, Running};

use crate::harness::{
    Origin, SOON, Scheme, Setup, connect, free_port, run, try_connect, tunnel, wait,
};
use crate::reload::{echo, outcome};

type Said = (Option<i32>, String, String);

/// `tunnel COMMAND …` of the running client.
fn command(running: &Running, args: &[&str]) -> Said {
    let mut command = tunnel(&args[..1]);
    command.arg("--control").arg(running.file("client.sock")).args(&args[1..]);
    outcome(run(&mut command))
}

fn succeeds(running: &Running, args: &[&str]) -> String {
    let (code, said, complaint) = command(running, args);
    assert_eq!((code, complaint.as_str()), (Some(0), ""), "{args:?}: {said}");
    said
}

/// The port of the only address in a text.
fn port_in(said: &str) -> u16 {
    said.trim().rsplit(':').next().unwrap().parse().unwrap()
}

/// The kept lists of the client. Their file has the pin of the server in its name.
fn kept(running: &Running) -> PathBuf {
    let folder = running.file("client-state");
    let files = fs::read_dir(&folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    let is_it = |path: &PathBuf| {
        path.file_name().unwrap().to_str().unwrap().starts_with("client-home@sha256-")
    };
    files.into_iter().find(is_it).unwrap_or_else(|| folder.join("none"))
}

fn file_of(running: &Running) -> String {
    fs::read_to_string(running.file("client.yaml")).unwrap()
}

/// The names of the services in the status, and whether commands have added them.
fn services(running: &Running) -> Vec<(String, bool)> {
    let status = running.status("client").unwrap();
    let services = status["sessions"][0]["services"].as_array().unwrap().clone();
    let one = |service: &serde_json::Value| {
        (service["name"].as_str().unwrap().to_owned(), service["kept"] == true)
    };
    services.iter().map(one).collect()
}

#[test]
fn a_running_client_is_changed_by_commands_and_the_change_outlives_both_sides() {
    for scheme in [Scheme::TLS, Scheme::QUIC, Scheme::KCP] {
        let (origin, other) = (Origin::echo(), Origin::echo());
        let mut setup = Setup::new(scheme).service("echo", origin.port()).forward(other.port());
        let ports = [free_port(), free_port()];
        setup.allow.extend(ports);
        let mut running = setup.start();
        let before = file_of(&running);
        let inside = connect(running.public("echo"));
        echo(&inside, 1);

        // A port of the server's choice, and a port of ours; the file stays as it is.
        let own = other.port().to_string();
        let any = port_in(&succeeds(&running, &["publish", &own]));
        assert!(ports.contains(&any), "{any}");
        echo(&connect(any), 2);
        let fixed = ports.into_iter().find(|port| *port != any).unwrap();
        let pair = format!("{fixed}=127.0.0.1:{own}");
        assert_eq!(port_in(&succeeds(&running, &["publish", &pair])), fixed);
        let local = free_port();
        let pair = format!("{local}={own}");
        let said = succeeds(&running, &["forward", &pair]);
        assert!(said.starts_with(&format!("forward tcp://127.0.0.1:{local} -> ")), "{said}");
        echo(&connect(local), 3);
        let said = succeeds(&running, &["status"]);
        let mut added = [other.port(), fixed];
        added.sort_unstable();
        let line = format!("added at run time: tcp-{}, tcp-{}", added[0], added[1]);
        assert!(said.contains(&line), "{said}");
        assert!(said.contains(&format!("added at run time: tcp://127.0.0.1:{local}")), "{said}");
        assert_eq!(file_of(&running), before);

        // Removed entries of the file are removed for good as well.
        let said = succeeds(&running, &["unpublish", "echo"]);
        let file = running.file("client.yaml").display().to_string();
        let stays = format!("echo stays in {file}, and is left out from now on\n");
        assert_eq!(said, format!("echo is published no more\n{stays}"));
        let of_file = running.local().to_string();
        let said = succeeds(&running, &["unpublish", &of_file]);
        assert!(said.starts_with(&format!("forward tcp://127.0.0.1:{of_file} closed\n")), "{said}");
        echo(&inside, 4);
        drop(inside);

        running.client().terminate();
        running.client().wait_end(SOON);
        running.server.terminate();
        running.server.wait_end(SOON);
        running.start_server_again();
        running.start_client();
        wait("the chosen port", SOON, || try_connect(any).ok());
        running.wait_echo(any);
        running.wait_echo(fixed);
        running.wait_echo(local);
        assert!(try_connect(running.public("echo")).is_err());
        assert!(try_connect(running.local()).is_err());
        let names = [format!("tcp-{own}"), format!("tcp-{fixed}")];
        assert_eq!(services(&running), names.clone().map(|name| (name, true)));

        // `tunnel check` knows the state directory from the file.
        let checked = outcome(run(tunnel(&["check", "--config"]).arg(running.file("client.yaml"))));
        let line =
            format!("service tcp-{own}: tcp://:0 -> tcp://localhost:{own} (added at run time)");
        assert!(checked.1.contains(&line), "{checked:?}");
        assert!(!checked.1.contains("echo"), "{checked:?}");
        assert!(checked.2.contains("left out by `tunnel unpublish`: echo"), "{checked:?}");

        // Into the file, with its comments; then nothing is kept.
        running.edit_client(|text| format!("# Mine.\n{text}"));
        let (code, said, complaint) = command(&running, &["publish", "--save"]);
        assert_eq!((code, complaint.as_str()), (Some(0), ""), "{said}");
        assert!(said.contains(&format!("echo is removed from {file}\n")), "{said}");
        assert!(said.contains(&format!("tcp://127.0.0.1:{of_file} is removed from ")), "{said}");
        let text = file_of(&running);
        assert!(text.starts_with("# Mine.\n") && !text.contains("echo"), "{text}");
        assert!(text.contains(&names[0]) && text.contains(&names[1]), "{text}");
        assert!(!kept(&running).exists());
        let now: Vec<_> = services(&running);
        assert!(now.iter().all(|(_, kept)| !kept), "{now:?}");
        echo(&connect(any), 5);
        assert_eq!(succeeds(&running, &["reload"]), "nothing to apply\n");
    }
}

#[test]
fn a_refused_service_and_an_unknown_name_are_errors_that_say_what_to_do() {
    let origin = Origin::echo();
    let setup = Setup::new(Scheme::TLS).service("echo", origin.port());
    let running = setup.start();
    let denied = free_port();
    let pair = format!("{denied}={}", origin.port());
    let (code, _, complaint) = command(&running, &["publish", &pair]);
    assert_eq!(code, Some(1), "{complaint}");
    assert!(complaint.contains(&format!("tunnel allow home --tcp {denied}")), "{complaint}");

    // Another command is about its own services alone, and says again where a service is.
    let own = running.public("echo");
    let pair = format!("{own}={}", origin.port());
    let said = succeeds(&running, &["publish", &pair]);
    assert!(said.starts_with(&format!("tcp-{own} -> tcp://")), "{said}");
    let again = succeeds(&running, &["publish", &pair]);
    assert!(again.starts_with(&format!("tcp-{own} -> tcp://")), "{again}");
    let said = succeeds(&running, &["unpublish", &own.to_string()]);
    assert!(said.contains(&format!("tcp-{own} is published no more\n")), "{said}");

    // Why a target cannot be reached is in the status.
    let nowhere = running.file("nowhere.sock");
    succeeds(&running, &["publish", &format!("{own}=unix://{}", nowhere.display())]);
    drop(try_connect(own));
    wait("the reason", SOON, || {
        let said = succeeds(&running, &["status"]);
        said.contains("it cannot be reached: No such file or directory").then_some(())
    });
    let said = succeeds(&running, &["unpublish", &own.to_string()]);
    assert!(said.contains(&format!("tcp-{own} is published no more\n")), "{said}");

    // A reload says the same of a service in the file.
    let other = free_port();
    running.edit_client(|text| format!("{text}  - {other}={}\n", origin.port()));
    let (code, said, complaint) = command(&running, &["reload"]);
    assert_eq!(code, Some(1), "{said}");
    let line = format!("tcp-{other} is not published: tcp://:{other} is not allowed");
    assert!(complaint.contains(&line), "{complaint}");
    echo(&connect(running.public("echo")), 1);

    let (code, _, complaint) = command(&running, &["unpublish", "ecco", "echo"]);
    assert_eq!(code, Some(2), "{complaint}");
    assert!(complaint.contains("`ecco`") && complaint.contains("there is echo, "), "{complaint}");
    echo(&connect(running.public("echo")), 2);
    let (code, _, complaint) = command(&running, &["publish", "80=x y"]);
    assert_eq!(code, Some(2), "{complaint}");
    assert!(complaint.starts_with("--publish: services[0].target: "), "{complaint}");

    let mut server = tunnel(&["publish", "--control"]);
    server.arg(running.file("server.sock")).arg("3000");
    let (code, _, complaint) = outcome(run(&mut server));
    assert_eq!(code, Some(1));
    assert!(complaint.contains("this is a server"), "{complaint}");

    // What cannot be opened changes nothing.
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let pair = format!("{}=5201", taken.local_addr().unwrap().port());
    let (code, _, complaint) = command(&running, &["forward", &pair]);
    assert_eq!(code, Some(1), "{complaint}");
    assert!(!kept(&running).exists());
}

#[test]
fn an_entry_in_the_place_of_another_is_shown_and_the_other_comes_back_at_once() {
    let (origin, other) = (Origin::echo(), Origin::echo());
    let running = Setup::new(Scheme::TLS).service("echo", origin.port()).start();
    let (own, target) = (running.public("echo"), other.port());
    let shadow = format!(
        "tcp-{own} has the place of echo (tcp://:{own} -> tcp://127.0.0.1:{})",
        origin.port()
    );
    let pair = format!("{own}={target}");
    assert!(succeeds(&running, &["publish", &pair]).contains(&shadow));
    assert!(succeeds(&running, &["status"]).contains(&shadow));
    let checked = outcome(run(tunnel(&["check", "--config"]).arg(running.file("client.yaml"))));
    let hint = format!("{shadow} (hint: `tunnel unpublish tcp-{own}` brings it back)");
    assert!(checked.2.contains(&hint), "{checked:?}");
    assert!(checked.1.contains("(added at run time; in the place of echo ("), "{checked:?}");
    // The entry of the file changes, and stays behind.
    let again = Origin::echo();
    running.edit_client(|text| {
        text.replace(
            &format!("127.0.0.1:{}", origin.port()),
            &format!("127.0.0.1:{}", again.port()),
        )
    });
    let said = succeeds(&running, &["reload"]);
    assert!(said.contains(&format!("tcp-{own} has the place of echo (")), "{said}");

    // A refused service keeps nothing, and what it would have displaced is there.
    let denied = free_port();
    let (code, said, complaint) =
        command(&running, &["publish", &format!("{denied}={target}"), &pair]);
    assert_eq!(code, Some(1), "{said}");
    let hint = format!("nothing of tcp-{denied} is kept: once the server permits it");
    assert!(complaint.contains(&hint), "{complaint}");
    assert!(!fs::read_to_string(kept(&running)).unwrap().contains(&denied.to_string()));
    assert_eq!(services(&running), [(format!("tcp-{own}"), true)]);
    echo(&connect(own), 1);

    let said = succeeds(&running, &["unpublish", &own.to_string()]);
    assert!(said.contains("echo -> tcp://"), "{said}");
    assert!(said.contains("echo is the configured entry again\n"), "{said}");
    echo(&connect(own), 2);
    assert_eq!(services(&running), [("echo".to_owned(), false)]);
    assert!(!kept(&running).exists());
    assert_eq!(succeeds(&running, &["reload"]), "nothing to apply\n");
}

/// `tunnel client --config FILE …` in folders of its own.
fn beside(running: &Running, name: &str, args: &[&str]) -> Daemon {
    let mut command = tunnel(&["client", "--config"]);
    command.arg(running.file("client.yaml")).args(args);
    command.arg("--control").arg(running.file(&format!("{name}/c.sock")));
    Daemon::start(name, running.dir(), &mut command)
}

#[test]
fn flags_add_to_the_file_and_a_second_process_of_a_client_does_not_start() {
    let (origin, other) = (Origin::echo(), Origin::echo());
    let mut setup = Setup::new(Scheme::TLS).service("echo", origin.port());
    let port = free_port();
    setup.allow.push(port);
    let mut running = setup.start();
    let pair = format!("{port}={}", other.port());

    // Beside the running client, in the same folder.
    let mut second = tunnel(&["client", "--config"]);
    second.arg(running.file("client.yaml")).args(["--publish", &pair]);
    let (code, _, complaint) = outcome(run(&mut second));
    assert_eq!(code, Some(1), "{complaint}");
    let pid = running.client().id();
    assert!(complaint.contains(&format!("running on this machine already (process {pid})")));
    let socket = running.file("client.sock");
    assert!(complaint.contains(&format!("tunnel publish --control {}", socket.display())));
    running.wait_echo(running.public("echo"));
    assert!(!running.server.log().contains("newer process"), "{}", running.server.log());

    running.client().terminate();
    running.client().wait_end(SOON);
    let mut both = beside(&running, "both", &["--publish", &pair]);
    running.wait_echo(port);
    running.wait_echo(running.public("echo"));
    both.terminate();
    both.wait_end(SOON);
    let _alone = beside(&running, "alone", &["--only", "--publish", &pair]);
    running.wait_echo(port);
    assert!(try_connect(running.public("echo")).is_err());
}

#[test]
fn a_line_of_short_forms_is_a_whole_client_whose_entries_belong_to_the_pin() {
    let origin = Origin::echo();
    let mut setup = Setup::new(Scheme::TLS);
    let ports = [free_port(), free_port()];
    let port = ports[0];
    setup.allow.extend(ports);
    let running = setup.start_server();
    let token = running.file("home.token");
    let text = fs::read_to_string(running.file("server.yaml")).unwrap();
    let secret = text.lines().find_map(|line| line.trim().strip_prefix("token: ")).unwrap();
    fs::write(&token, secret.trim_matches('"')).unwrap();
    let state = running.file("short");
    let line = running.server.wait_line(&["clients pin it", "pin="], SOON);
    let pin = line.trim().rsplit("pin=").next().unwrap().to_owned();
    let start = |name: &str, host: &str| {
        let mut command = tunnel(&["client", "--name", "home", "--server"]);
        command.arg(format!("{host}:{}", running.server_port())).args(["--pin", &pin]);
        command.arg("--token-file").arg(&token);
        command.args(["--publish", &format!("{port}={}", origin.port()), "--state-dir"]);
        let client = Daemon::start(name, running.dir(), command.arg(&state));
        client.wait_line(&[&format!("service tcp-{port} is published at ")], SOON);
        client
    };
    let mut client = start("short", "127.0.0.1");
    let socket = state.join("client-home.sock");
    let pair = format!("{}={}", ports[1], origin.port());
    let mut publish = tunnel(&["publish", &pair, "--control"]);
    let said = outcome(run(publish.arg(&socket)));
    assert_eq!(said.0, Some(0), "{said:?}");
    client.terminate();
    client.wait_end(SOON);
    let _client = start("named", "localhost");
    running.wait_echo(ports[1]);
    let mut visitor = connect(port);
    echo(&visitor, 7);
    drop(visitor.shutdown(std::net::Shutdown::Write));
    assert_eq!(visitor.read(&mut [0]).unwrap(), 0);
}
