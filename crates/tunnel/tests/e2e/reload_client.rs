//! `tunnel reload` of a client: services and forwards are added, changed and removed. Links are
//! made anew where necessary, and no stream is affected.

use std::fs;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use testkit::certs::Authority;
use testkit::stage::Running;
use testkit::wire::Entry;

use crate::harness::{
    Iperf3, LONG, Nginx, Origin, SOON, Scheme, Setup, connect, free_port, program, run, start_sshd,
    try_connect, tunnel, wait,
};
use crate::reload::{echo, outcome};

fn reload(running: &Running) -> (Option<i32>, String, String) {
    outcome(running.reload("client"))
}

/// Reloads. Each line of the answer has to begin with one of these texts.
fn applies(running: &Running, lines: &[&str]) {
    let (code, said, complaint) = reload(running);
    assert_eq!((code, complaint.as_str()), (Some(0), ""), "{said}");
    assert_eq!(said.lines().count(), lines.len(), "{said}");
    for (line, begin) in said.lines().zip(lines) {
        assert!(line.starts_with(begin), "{said}");
    }
}

/// An origin that says which one it is and ends.
fn teller(byte: u8) -> Origin {
    Origin::start(move |mut stream: TcpStream| {
        drop(std::io::Write::write_all(&mut stream, &[byte]));
    })
}

fn tag_at(port: u16) -> Option<u8> {
    let mut byte = [0];
    std::io::Read::read_exact(&mut try_connect(port).ok()?, &mut byte).ok()?;
    Some(byte[0])
}

#[test]
fn services_come_change_and_go_beside_one_that_does_not_notice() {
    for &scheme in Scheme::ALL {
        let (origin, one, two) = (Origin::echo(), teller(1), teller(2));
        let mut setup = Setup::new(scheme).service("echo", origin.port());
        let port = free_port();
        setup.allow.push(port);
        let mut running = setup.start();
        let public = running.public("echo");
        let stays = connect(public);
        echo(&stays, 1);

        let entry = |origin: &Origin| {
            let target = origin.port();
            format!(
                "  - {{ name: more, target: \"tcp://127.0.0.1:{target}\", public: \"tcp://:{port}\" }}\n"
            )
        };
        running.edit_client(|text| text + &entry(&one));
        applies(&running, &["more -> tcp://"]);
        running.client().wait_line(&["service more is published at "], SOON);
        assert_eq!(tag_at(port), Some(1), "{scheme:?}");

        running.edit_client(|text| text.replace(&entry(&one), &entry(&two)));
        applies(&running, &["more -> tcp://"]);
        assert_eq!(tag_at(port), Some(2), "{scheme:?}");

        running.edit_client(|text| text.replace(&entry(&two), ""));
        applies(&running, &["more is published no more"]);
        wait("its port closes", SOON, || try_connect(port).is_err().then_some(()));
        running.client().wait_line(&["service more is published no more"], SOON);
        let services = running.status("client").unwrap()["sessions"][0]["services"].clone();
        assert_eq!(services.as_array().unwrap().len(), 1, "{services}");
        echo(&stays, 2);
        running.wait_echo(public);
        let log = running.client().log();
        assert!(!log.contains("carrier lost") && !log.contains("takes its place"), "{log}");
    }
}

#[test]
fn forwards_open_turn_and_close_where_they_are() {
    let (origin, one, two) = (Origin::echo(), teller(1), teller(2));
    let setup = Setup::new(Scheme::TLS)
        .service("echo", origin.port())
        .forward(origin.port())
        .forward(one.port())
        .forward(two.port());
    let running = setup.start();
    let (local, other) = (running.local(), running.local_to(one.port()));
    let stays = connect(local);
    echo(&stays, 1);
    assert_eq!(tag_at(other), Some(1));

    // To another target: the listener stays, and so does who is inside.
    let (from, to) = (format!("127.0.0.1:{}\" }}", one.port()), two.port());
    running.edit_client(|text| text.replace(&from, &format!("127.0.0.1:{to}\" }}")));
    applies(&running, &["forward tcp://"]);
    assert_eq!(tag_at(other), Some(2));
    let status = running.status("client").unwrap()["sessions"][0]["forwards"].to_string();
    assert!(!status.contains(&one.port().to_string()), "{status}");

    // Another address, and a Unix socket, whose mode changes then.
    let (place, front) = (free_port(), running.file("front"));
    running.edit_client(|text| {
        text.replace(&format!("127.0.0.1:{other}\""), &format!("127.0.0.1:{place}\""))
            + &format!(
                "  - {{ listen: \"unix://{}\", target: \"tcp://127.0.0.1:{to}\" }}\n",
                front.display()
            )
    });
    let closed = format!("forward tcp://127.0.0.1:{other} closed");
    applies(&running, &["forward tcp://", "forward unix://", &closed]);
    assert_eq!(tag_at(place), Some(2));
    assert!(try_connect(other).is_err(), "the old address is closed");
    let mode =
        || std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&front).unwrap().permissions());
    assert_eq!(mode() & 0o777, 0o600);
    running.edit_client(|text| text.replace("/front\"", "/front\", mode: 0660"));
    applies(&running, &["forward unix://"]);
    assert_eq!(mode() & 0o777, 0o660);

    // To all addresses with the same port: who is inside stays.
    let inside = connect(local);
    echo(&inside, 1);
    let (one, all) = (format!("\"tcp://127.0.0.1:{local}\""), format!("\"tcp://0.0.0.0:{local}\""));
    running.edit_client(|text| text.replace(&one, &all));
    applies(&running, &["forward tcp://", "forward tcp://"]);
    echo(&connect(local), 3);
    echo(&inside, 4);
    running.edit_client(|text| text.replace(&all, &one));
    applies(&running, &["forward tcp://", "forward tcp://"]);
    echo(&connect(local), 5);
    echo(&inside, 6);

    // One that cannot be bound: nothing of it happens.
    let taken = Origin::echo();
    let good = fs::read_to_string(running.file("client.yaml")).unwrap();
    running.edit_client(|text| {
        text.replace(&format!("127.0.0.1:{place}\""), &format!("127.0.0.1:{}\"", taken.port()))
            .replace("name: echo", "name: other")
    });
    let (code, said, complaint) = reload(&running);
    assert_eq!((code, said.as_str()), (Some(1), ""), "{complaint}");
    assert!(complaint.contains("cannot listen"), "{complaint}");
    assert_eq!(tag_at(place), Some(2));
    let services = running.status("server").unwrap()["sessions"][0]["services"].to_string();
    assert!(services.contains("echo") && !services.contains("other"), "{services}");
    running.edit_client(|_| good);
    applies(&running, &["nothing to apply"]);
    echo(&stays, 2);
}

/// What a client's links are made of is different: its streams go on, those that come take others.
#[test]
fn new_links_are_made_and_the_old_ones_end_with_their_last_stream() {
    for &scheme in Scheme::ALL {
        let origin = Origin::echo();
        let setup = Setup::new(scheme).service("echo", origin.port()).forward(origin.port());
        let running = setup.start();
        running.wait_links(2);
        let (public, local) = (running.public("echo"), running.local());
        let (visitor, forwarded) = (connect(public), connect(local));
        echo(&visitor, 1);
        echo(&forwarded, 2);
        running.edit_client(|text| {
            format!("connections: 3\nwindow: {{ initial: 32KiB, max: 1MiB }}\n{text}")
        });
        applies(
            &running,
            &["connections changed for new connections", "window changed for new connections"],
        );
        running.wait_links(3);
        echo(&visitor, 3);
        echo(&forwarded, 4);
        running.wait_echo(public);
        running.wait_echo(local);
        let sessions = |running: &Running| {
            running.status("client").unwrap()["sessions"].as_array().unwrap().len()
        };
        assert_eq!(sessions(&running), 2, "the old links are still there");
        drop((visitor, forwarded));
        wait("the old links to end", SOON, || (sessions(&running) == 1).then_some(()));
        running.wait_links(3);
        running.wait_echo(public);
    }
}

/// Links that wait for a carrier are not given up: what they carry goes on when there is one again.
#[test]
fn a_reload_while_every_carrier_is_lost_resets_nothing_and_is_told_when_there_is_one() {
    let (origin, more) = (Origin::echo(), teller(1));
    let mut setup = Setup::new(Scheme::TLS).wired().service("echo", origin.port());
    let port = free_port();
    setup.allow.push(port);
    let running = setup.start();
    let visitor = connect(running.public("echo"));
    echo(&visitor, 1);
    running.wire().entry(Entry::Refused);
    running.wire().kill();
    wait("the links to stall", SOON, || {
        let links = running.status("client")?["sessions"][0]["links"].clone();
        links.as_array()?.iter().all(|link| link["state"] == "stalled").then_some(())
    });
    let good = fs::read_to_string(running.file("client.yaml")).unwrap();
    running.edit_client(|text| format!("window: {{ initial: 32KiB }}\n{text}"));
    let (code, said, complaint) = reload(&running);
    assert_eq!((code, said.as_str()), (Some(1), ""), "{complaint}");
    assert!(complaint.contains("no connection"), "{complaint}");
    let target = more.port();
    running.edit_client(|_| {
        good + &format!(
            "  - {{ name: more, target: \"tcp://127.0.0.1:{target}\", public: \"tcp://:{port}\" }}\n"
        )
    });
    applies(&running, &["more: the server has not answered yet"]);
    running.wire().entry(Entry::Open);
    echo(&visitor, 2);
    wait("the new service", SOON, || (tag_at(port)? == 1).then_some(()));
}

#[test]
fn what_leads_nowhere_is_refused_and_the_links_that_work_stay() {
    let origin = Origin::echo();
    let mut running = Setup::new(Scheme::TLS).service("echo", origin.port()).start();
    running.wait_links(2);
    let visitor = connect(running.public("echo"));
    echo(&visitor, 1);
    let good = fs::read_to_string(running.file("client.yaml")).unwrap();
    let token = String::from_utf8(run(&mut tunnel(&["generate", "token"])).stdout).unwrap();
    running.edit_client(|text| {
        let lines = text.lines().map(|line| match line.strip_prefix("token:") {
            Some(_) => format!("token: \"{}\"", token.trim()),
            None => line.to_owned(),
        });
        lines.collect::<Vec<_>>().join("\n") + "\n"
    });
    let (code, said, complaint) = reload(&running);
    assert_eq!((code, said.as_str()), (Some(1), ""), "{complaint}");
    assert!(
        complaint.contains("no connection") && complaint.contains("wrong token"),
        "{complaint}"
    );
    running.client().wait_line(&["not reloaded, nothing has changed", "wrong token"], SOON);
    echo(&visitor, 2);
    running.wait_echo(running.public("echo"));
    running.edit_client(|_| good);
    applies(&running, &["nothing to apply"]);
    running.wait_links(2);
    // Told once, and the attempts have ended with it.
    thread::sleep(Duration::from_secs(2));
    assert_eq!(running.client().log().matches("wrong token").count(), 1);
    let state = running.status("client").unwrap()["sessions"][0]["state"].clone();
    assert_eq!(state, "up");
}

#[test]
fn the_level_of_the_log_changes_and_other_keys_wait_for_a_restart() {
    let origin = Origin::echo();
    let mut running = Setup::new(Scheme::TLS).service("echo", origin.port()).start();
    running.wait_links(2);
    running.edit_client(|text| format!("log: {{ level: debug }}\nworkers: 5\n{text}"));
    let (code, said, complaint) = reload(&running);
    assert_eq!((code, said.as_str()), (Some(0), "log.level changed\n"), "{complaint}");
    assert!(complaint.contains("restart: workers"), "{complaint}");
    running.edit_client(|text| text.replace("retry", "# retry") + "# no difference\n");
    running.client().signal(Signal::HUP);
    running
        .client()
        .wait_line(&["reloaded: nothing to apply; waiting for a restart: workers"], SOON);
    running.client().signal(Signal::TERM);
    running.client().wait_line(&["DEBUG"], SOON);
}

#[test]
fn how_quic_sends_counts_for_new_links_and_its_buffers_wait_for_a_restart() {
    let origin = Origin::echo();
    let running = Setup::new(Scheme::QUIC).service("echo", origin.port()).start();
    running.wait_links(2);
    // Of all connections, as both ends found them out.
    let wait_mtus = |what, are_so: &dyn Fn(u64) -> bool| {
        wait(what, SOON, || {
            let mtus = ["server", "client"].map(|role| mtus(&running, role)).concat();
            (mtus.len() == 4 && mtus.into_iter().all(are_so)).then_some(())
        });
    };
    wait_mtus("packets as large as the route takes", &|mtu| mtu > 1_400);
    let quic = "quic: { congestion: cubic, mtu: 1400, send_buffer: 1MiB }\n";
    running.edit_client(|text| format!("{quic}{text}"));
    running.edit_server(|text| format!("{quic}{text}"));
    let changed =
        "quic.congestion changed for new connections\nquic.mtu changed for new connections\n";
    for role in ["server", "client"] {
        let (code, said, complaint) = outcome(running.reload(role));
        assert_eq!((code, said.as_str()), (Some(0), changed), "{role}: {complaint}");
        assert!(complaint.contains("restart: quic.send_buffer"), "{role}: {complaint}");
    }
    running.wait_echo(running.public("echo"));
    wait_mtus("packets as large as they may be now", &|mtu| (1_300..=1_400).contains(&mtu));
}

/// The largest payloads of a role's connections over QUIC.
fn mtus(running: &Running, role: &str) -> Vec<u64> {
    let status = running.status(role).unwrap();
    let links = status["sessions"][0]["links"].as_array().into_iter().flatten();
    let carriers = links.flat_map(|link| link["carriers"].as_array().into_iter().flatten());
    carriers.filter_map(|carrier| carrier["quic"]["mtu"].as_u64()).collect()
}

#[test]
fn certificates_that_were_renewed_are_shown_and_believed_without_a_reload() {
    let origin = Origin::echo();
    let mut setup = Setup::new(Scheme::TLS);
    let dir = setup.dir().to_owned();
    let make = |host: &str| {
        let authority = Authority::new("a test's authority").unwrap();
        authority.save(&dir).unwrap();
        authority.server(&[host]).unwrap().save(&dir, "server").unwrap();
    };
    make("127.0.0.1");
    let at = dir.display();
    setup.server_lines = format!("tls: {{ cert: {at}/server.crt, key: {at}/server.key }}\n");
    setup.client_tls = Some(format!("{{ ca: {at}/ca.pem }}"));
    let mut running = setup.service("echo", origin.port()).start();
    running.wait_links(2);
    let visitor = connect(running.public("echo"));
    echo(&visitor, 1);

    // Half of a pair: told once, nothing changes.
    let key = fs::read(dir.join("server.key")).unwrap();
    fs::write(dir.join("server.key"), "no key").unwrap();
    running.server.wait_line(&["the former certificates stay in use", "server.key"], LONG);
    fs::write(dir.join("server.key"), key).unwrap();
    running.server.wait_line(&["new connections get the new ones"], LONG);

    make("127.0.0.1");
    wait("both to have seen it", LONG, || {
        let seen = |log: String| log.matches("new connections get the new ones").count();
        (seen(running.server.log()) >= 2 && seen(running.client().log()) >= 1).then_some(())
    });
    running.wait_links(2);
    echo(&visitor, 2);
    running.wait_echo(running.public("echo"));
    let log = running.client().log();
    assert!(log.matches("connected to").count() >= 4, "{log}");
}

#[test]
fn a_file_that_is_watched_needs_no_command() {
    let (origin, more) = (Origin::echo(), teller(1));
    let mut setup = Setup::new(Scheme::TLS).service("echo", origin.port());
    let port = free_port();
    setup.allow.push(port);
    let mut running = setup.start();
    running.wait_links(2);
    // Not before it is asked to.
    running.edit_client(|text| format!("watch: true\n{text}"));
    applies(&running, &["watch changed"]);
    let target = more.port();
    running.edit_client(|text| {
        text + &format!(
            "  - {{ name: more, target: \"tcp://127.0.0.1:{target}\", public: \"tcp://:{port}\" }}\n"
        )
    });
    running.client().wait_line(&["reloaded: more -> "], LONG);
    running.client().wait_line(&["service more is published at "], SOON);
    assert_eq!(tag_at(port), Some(1));
    running.edit_client(|text| text + "typo: 1\n");
    running.client().wait_line(&["not reloaded", "typo"], LONG);
    assert_eq!(tag_at(port), Some(1));
}

fn spawn(program_name: &str, args: &[&str]) -> Child {
    let mut command = Command::new(program(program_name));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Reliability 17: both roles, whatever they carry.
#[test]
fn twenty_reloads_of_both_under_wrk_iperf3_and_ssh_fail_nothing() {
    let setup = Setup::new(Scheme::TLS);
    let nginx = Nginx::start(setup.dir(), "");
    let iperf3 = Iperf3::start(setup.dir());
    let (sshd, _sshd, options) = start_sshd(setup.dir());
    let mut setup =
        setup.service("web", nginx.port).service("iperf", iperf3.port).service("ssh", sshd);
    let port = free_port();
    setup.allow.push(port);
    let running = setup.start();
    let url = format!("http://127.0.0.1:{}/small", running.public("web"));
    let [iperf, ssh] = ["iperf", "ssh"].map(|name| running.public(name).to_string());
    let mut ssh_args: Vec<&str> = options.iter().map(String::as_str).collect();
    ssh_args.extend(["-p", &ssh, "127.0.0.1", "for n in $(seq 30); do echo $n; sleep 1; done"]);
    // Five times what the reloads take.
    let mut load = [
        spawn("wrk", &["-t1", "-c50", "-d30s", &url]),
        spawn("iperf3", &["-c", "127.0.0.1", "-p", &iperf, "-t", "30", "-b", "200M"]),
        spawn("ssh", &ssh_args),
    ];
    let entry = format!(
        "  - {{ name: more, target: \"tcp://127.0.0.1:{iperf}\", public: \"tcp://:{port}\" }}\n"
    );
    for round in 0..20 {
        // Every fifth time the links as well.
        let connections = |round: i32| format!("connections: {}\n", 2 + round / 5 % 2);
        running.edit_client(|text| {
            let text = text.replace(&connections(round - 1), "");
            let text = if round % 2 == 0 { text + &entry } else { text.replace(&entry, "") };
            connections(round) + &text
        });
        let (code, said, complaint) = reload(&running);
        assert_eq!(code, Some(0), "{said}{complaint}");
        running.edit_server(|text| text + "# another file\n");
        assert_eq!(outcome(running.reload("server")).0, Some(0));
        thread::sleep(Duration::from_millis(100));
    }
    for child in &mut load {
        assert!(child.try_wait().unwrap().is_none(), "all of it was under load");
    }
    for child in load {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        // wrk prints these lines only when something went wrong.
        assert!(!said.contains("Socket errors") && !said.contains("Non-2xx"), "{said}");
        println!("{said}");
    }
    assert!(try_connect(port).is_err(), "the last one took it back");
}
