//! Public ports of UDP: rights, ports that the server chooses, ranges, ports of both protocols.

use std::fs;
use std::net::UdpSocket;

use super::{Echo, ask, one_service, services, start, visitor};
use crate::harness::{Origin, SOON, Scheme, Setup, connect, free_port, run, tunnel, wait};

/// Where a service is published, as the client logs it: the part behind the last colon.
fn published(log: &str, service: &str) -> Option<Vec<String>> {
    let line =
        log.lines().find(|line| line.contains(&format!("service {service} is published at")))?;
    let (_, at) = line.split_once("is published at ")?;
    Some(at.split([' ', ',']).filter(|word| word.contains("://")).map(str::to_owned).collect())
}

#[test]
fn a_udp_port_without_a_right_is_refused_with_the_command_that_helps() {
    let echo = Echo::start();
    let (mut setup, port) = one_service(Scheme::TLS, echo.port());
    // The right to the TCP port is none to the UDP port.
    setup.more_rights.clear();
    setup.allow.push(port);
    let mut running = setup.start();
    let line = running.client().wait_line(&["service echo is not published"], SOON);
    assert!(line.contains("allow.udp") && line.contains("--udp"), "{line}");
}

#[test]
fn the_server_chooses_a_udp_port_and_keeps_it() {
    let echo = Echo::start();
    let mut setup = Setup::new(Scheme::TLS);
    let first = free_port();
    setup.more_rights.push(format!("udp: [\"{first}-{}\"]", first + 3));
    let target = format!("udp://127.0.0.1:{}", echo.port());
    services(&mut setup, &[("any", "\"udp://:0\"", &target, "")]);
    let mut running = start(setup, 1);
    let port_of =
        |log: &str| -> Option<u16> { published(log, "any")?[0].rsplit_once(':')?.1.parse().ok() };
    // The link may be up before the service is published.
    let port = wait("its port", SOON, || port_of(&running.client().log()));
    assert!((first..=first + 3).contains(&port), "{}", running.client().log());
    ask(&visitor(port), b"chosen");
    running.client().terminate();
    running.client().wait_end(SOON);
    running.start_client();
    wait("the same port again", SOON, || {
        let log = running.client().log();
        (port_of(&log)? == port).then_some(())
    });
    ask(&visitor(port), b"kept");
}

#[test]
fn a_range_of_ports_leads_to_a_range_of_targets_or_to_one() {
    // Three neighbours whose ports follow each other. Each answers its port.
    let first = loop {
        let base = free_port();
        if (base + 1..base + 3).all(|port| UdpSocket::bind(("127.0.0.1", port)).is_ok()) {
            break base;
        }
    };
    let _echoes: Vec<_> = (first..first + 3)
        .map(|port| Echo::answering_on(port, move |_| Some(port.to_be_bytes().to_vec())))
        .collect();
    let mut setup = Setup::new(Scheme::TLS);
    // Six ports that follow each other.
    let many = loop {
        let ports: Vec<_> = (0..6).map(|_| free_port()).collect();
        if ports[5] == ports[0] + 5 {
            break ports[0];
        }
    };
    let all = many + 3;
    setup.more_rights.push(format!("udp: [\"{many}-{}\", \"{all}-{}\"]", many + 2, all + 2));
    services(
        &mut setup,
        &[
            (
                "each",
                &format!("\"udp://:{many}-{}\"", many + 2),
                &format!("udp://127.0.0.1:{first}-{}", first + 2),
                "",
            ),
            (
                "one",
                &format!("\"udp://:{all}-{}\"", all + 2),
                &format!("udp://127.0.0.1:{first}"),
                "",
            ),
        ],
    );
    let _running = start(setup, 2);
    let answer = |port: u16| {
        let visitor = visitor(port);
        wait("an answer", SOON, || {
            visitor.send(b"?").ok()?;
            let mut answer = [0; 2];
            visitor.recv(&mut answer).ok()?;
            Some(u16::from_be_bytes(answer))
        })
    };
    for n in 0..3 {
        assert_eq!(answer(many + n), first + n);
        assert_eq!(answer(all + n), first);
    }
}

#[test]
fn one_service_has_a_tcp_and_a_udp_port_and_each_visitor_its_protocol() {
    let echo = Echo::start_on(free_port());
    // The TCP port of the same number. A port that the system chooses for UDP may be one that a
    // TCP connection has.
    let origin = Origin::start_on(&format!("127.0.0.1:{}", echo.port()), |mut stream| {
        let mut reader = stream.try_clone().unwrap();
        let _ = std::io::copy(&mut reader, &mut stream);
    });
    assert_eq!(origin.port(), echo.port());
    let (mut setup, port) = (Setup::new(Scheme::QUIC), free_port());
    setup.more_rights.push(format!("udp: [\"{port}\"]"));
    setup.allow.push(port);
    let public = format!("[\"tcp://:{port}\", \"udp://:{port}\"]");
    services(&mut setup, &[("both", &public, &format!("tcp://127.0.0.1:{}", echo.port()), "")]);
    let running = start(setup, 1);
    running.wait_echo(port);
    ask(&visitor(port), b"over UDP");
    drop(connect(port));
}

#[test]
fn publish_and_enroll_take_udp_on_the_command_line() {
    let echo = Echo::start();
    let (mut setup, port) = (Setup::new(Scheme::TLS), free_port());
    setup.more_rights.push(format!("udp: [\"{port}\"]"));
    let mut running = setup.start();
    let socket = running.file("client.sock");
    let what = format!("udp://:{port}=udp://127.0.0.1:{}", echo.port());
    let output = run(tunnel(&["publish", &what]).arg("--control").arg(&socket));
    assert!(output.status.success(), "{output:?}");
    ask(&visitor(port), b"published by a command");
    // A change of the file does not take it away, and `--remove` does.
    fs::read_to_string(running.file("client.yaml")).unwrap();
    assert!(running.client().is_running());
}
