//! Addresses other than one port on all IPv4 addresses.

use std::io::{Read as _, Write as _};
use std::net::{Ipv6Addr, TcpStream};

use crate::harness::{
    LONG, Origin, SOON, Scheme, Setup, bytes, connect, free_port, program, run, side_by_side,
    tunnel,
};

const MB: u64 = 1_000_000;

const TOKEN: &str = "q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi";

#[test]
fn everything_can_be_on_ipv6() {
    for &scheme in Scheme::ALL {
        let origin = Origin::start_on("[::1]:0", |stream| {
            bytes::expect(&stream, MB);
            bytes::expect_end(&stream);
            bytes::send(&stream, MB);
        });
        let setup = Setup::new(scheme).on_ipv6().service("six", origin.port());
        let mut running = setup.forward(origin.port()).start();
        for port in [running.public("six"), running.local()] {
            let visitor = TcpStream::connect((Ipv6Addr::LOCALHOST, port)).unwrap();
            visitor.set_read_timeout(Some(LONG)).unwrap();
            bytes::send(&visitor, MB);
            visitor.shutdown(std::net::Shutdown::Write).unwrap();
            bytes::expect(&visitor, MB);
            bytes::expect_end(&visitor);
            origin.wait_one(SOON);
        }
        let reached = format!("tcp://[::1]:{}", running.public("six"));
        running.client().wait_line(&["service six is published at ", &reached], SOON);
    }
}

#[test]
fn a_port_that_the_server_chooses_is_told_and_stays_with_the_client() {
    let (origin, allowed) = (Origin::echo(), [free_port(), free_port()]);
    let mut setup = Setup::new(Scheme::TLS).service("echo", origin.port());
    setup.allow.extend(allowed);
    let mut running = setup.start_server();
    let fixed = running.public("echo");
    running.edit_client(|text| text.replace(&format!("tcp://:{fixed}"), "tcp://:0"));
    let port_of = |line: &str| line.rsplit(':').next().unwrap().trim().parse::<u16>().unwrap();

    running.start_client();
    let port =
        port_of(&running.client().wait_line(&["echo is published at tcp://127.0.0.1:"], SOON));
    assert!(port == fixed || allowed.contains(&port), "{port} is none of the allowed ports");
    running.wait_echo(port);

    // Its log goes on in the same file, so that the second answer is the last line of its kind.
    running.client().kill();
    running.start_client();
    let port_again = crate::harness::wait("the port is told again", SOON, || {
        let log = running.client().log();
        let lines: Vec<_> =
            log.lines().filter(|line| line.contains("echo is published at")).collect();
        (lines.len() == 2).then(|| port_of(lines[1]))
    });
    assert_eq!(port_again, port, "visitors know the port");
    let mut visitor = connect(port);
    visitor.write_all(b"?").unwrap();
    visitor.read_exact(&mut [0]).unwrap();
}

/// Port 81 is free and the first port of the rights.
#[test]
fn a_port_below_1024_is_not_chosen_where_the_client_may_have_others() {
    let (origin, other) = (Origin::echo(), free_port());
    let mut setup = Setup::new(Scheme::TLS).service_on("echo", origin.port(), 81);
    setup.allow.push(other);
    let mut running = setup.start_server();
    running.edit_client(|text| text.replace("tcp://:81\"", "tcp://:0\""));
    running.start_client();
    let line = running.client().wait_line(&["echo is published at tcp://127.0.0.1:"], SOON);
    assert!(line.trim_end().ends_with(&format!(":{other}")), "{line}");
    running.wait_echo(other);
}

/// Listeners of both families see IPv4 peers as IPv4-mapped addresses (RFC 4291, section 2.5.5.2).
#[test]
fn an_ipv4_address_is_shown_as_ipv4_by_listeners_of_both_families() {
    side_by_side(Scheme::ALL, |scheme| {
        let origin = Origin::echo();
        let [carriers, api] = [free_port(), free_port()];
        let mut setup = Setup::new(scheme).service("echo", origin.port()).forward(origin.port());
        let path = setup.server_path.clone();
        setup.more_listen.push(format!("{}://[::]:{carriers}{path}", scheme.name));
        setup.server_url = Some(format!("{}://127.0.0.1:{carriers}{path}", scheme.name));
        let log = "log: { level: debug, access: true }\n";
        setup.client_lines.push_str(log);
        setup
            .server_lines
            .push_str(&format!("{log}admin: {{ listen: \"[::]:{api}\", token: {TOKEN} }}\n"));
        let mut running = setup.start_server();
        let (public, local) = (running.public("echo"), running.local());
        let both = |text: String| {
            text.replace(&format!("tcp: [\"{public}\"]"), &format!("tcp: [\"[::]:{public}\"]"))
        };
        running.edit_server(both);
        assert!(running.reload("server").status.success());
        running.edit_client(|text| {
            let text = text.replace(&format!("tcp://:{public}"), &format!("tcp://[::]:{public}"));
            text.replace(&format!("tcp://127.0.0.1:{local}"), &format!("tcp://[::]:{local}"))
        });
        running.start_client();
        running.wait_echo(public);
        running.wait_echo(local);

        // A client that is refused, and a wrong token of the admin API.
        let mut stranger = running.start_another_client(|text| {
            text.replace("name: home", "name: other").split("services:").next().unwrap().to_owned()
        });
        running.server.wait_line(&["client `other`", "from 127.0.0.1"], SOON);
        stranger.kill();
        let curl = |token: &str, path: &str| {
            let mut curl = std::process::Command::new(program("curl"));
            curl.args(["--silent", "--show-error", "--max-time", "20", "--header"]);
            curl.arg(format!("Authorization: Bearer {token}"));
            let output = run(curl.arg(format!("http://127.0.0.1:{api}{path}")));
            String::from_utf8(output.stdout).unwrap()
        };
        curl("wrong", "/api/v1/status");
        running.server.wait_line(&["admin API", "127.0.0.1"], SOON);

        // Visitors that stay are in the lists of streams.
        let mut held = [public, local].map(connect);
        for visitor in &mut held {
            visitor.write_all(b"?").unwrap();
            visitor.read_exact(&mut [0]).unwrap();
        }
        let mut shown = vec![
            ("metrics".to_owned(), curl(TOKEN, "/metrics")),
            ("API status".to_owned(), curl(TOKEN, "/api/v1/status")),
            ("API streams".to_owned(), curl(TOKEN, "/api/v1/streams")),
            ("API clients".to_owned(), curl(TOKEN, "/api/v1/clients")),
        ];
        for role in ["server", "client"] {
            for command in
                [&["status"][..], &["status", "--json"], &["streams"], &["clients", "--json"]]
            {
                if role == "client" && command[0] == "clients" {
                    continue;
                }
                let socket = running.file(&format!("{role}.sock"));
                let output = run(tunnel(command).arg("--control").arg(socket));
                assert!(output.status.success(), "{role} {command:?}: {output:?}");
                let text = String::from_utf8(output.stdout).unwrap();
                shown.push((format!("{role}: {command:?}"), text));
            }
        }
        drop(held);
        running.server.wait_line(&["visitor left", "visitor=\"127.0.0.1:"], SOON);
        running.client().wait_line(&["visitor left", "visitor=\"127.0.0.1:"], SOON);
        shown.push(("log of the server".to_owned(), running.server.log()));
        shown.push(("log of the client".to_owned(), running.client().log()));
        for (what, text) in shown {
            assert!(text.contains("127.0.0.1") || what == "metrics", "{scheme:?}, {what}: {text}");
            let mapped = text.lines().find(|line| line.to_lowercase().contains("::ffff:"));
            assert_eq!(mapped, None, "{scheme:?}, {what}");
        }
    });
}
