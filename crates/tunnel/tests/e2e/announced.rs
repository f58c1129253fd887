//! Visitors behind a load balancer that puts a header of the PROXY protocol in front of their
//! bytes: at published ports, at doors, at `mux://`, at forwards and at the entries of
//! `tunnel proxy`.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::Command;

use testkit::stage::{Daemon, Running};

use crate::harness::{
    LONG, Nginx, Origin, SOON, Scheme, Setup, bytes, free_port, program, run, tunnel, wait,
    wait_listening,
};
use crate::reload::echo;
use crate::udp::Echo;
use crate::visitors::visit_from;

/// haproxy with a listener for each pair of a port behind it and the header that it sends there.
fn haproxy(dir: &Path, behind: &[(u16, &str)]) -> (Daemon, Vec<u16>) {
    let mut conf = String::from(
        "global\n  maxconn 1000\ndefaults\n  mode tcp\n  timeout connect 10s\n  \
         timeout client 60s\n  timeout server 60s\n",
    );
    let mut ports = Vec::new();
    for (nth, (to, header)) in behind.iter().enumerate() {
        let at = free_port();
        writeln!(conf, "listen l{nth}\n  bind 127.0.0.1:{at}\n  server s 127.0.0.1:{to} {header}")
            .unwrap();
        ports.push(at);
    }
    let file = dir.join("haproxy.cfg");
    fs::write(&file, conf).unwrap();
    let mut command = Command::new(program("haproxy"));
    let process = Daemon::start("haproxy", dir, command.arg("-db").arg("-f").arg(file));
    ports.iter().for_each(|port| wait_listening(*port, SOON));
    (process, ports)
}

const HEADERS: [&str; 2] = ["send-proxy", "send-proxy-v2"];

/// nginx that takes the visitor's address from the header, and tells each visitor what it knows.
fn nginx(dir: &Path, port: u16) -> Nginx {
    let dir_text = dir.display();
    let locations = format!(
        "listen 127.0.0.1:{port} proxy_protocol; set_real_ip_from 127.0.0.1;\n\
         real_ip_header proxy_protocol; access_log {dir_text}/access.log combined;\n\
         location = /who {{ return 200 \"$remote_addr\"; }}"
    );
    Nginx::start(dir, &locations)
}

/// What nginx knows of a visitor from 127.0.0.`last` at this port.
fn who(last: u8, port: u16, host: &str) -> String {
    let mut socket = visit_from(last, port).unwrap();
    write!(socket, "GET /who HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    answer.lines().last().unwrap_or_default().to_owned()
}

/// The control of the access log: a line of the server has this visitor.
fn logged(running: &Running, visitor: &str) {
    running.server.wait_line(&["visitor", visitor], SOON);
}

#[test]
fn nginx_learns_the_visitor_of_haproxy_at_every_entrance() {
    let mut setup = Setup::new(Scheme::TLS);
    let (dir, origin) = (setup.dir().to_owned(), free_port());
    let _nginx = nginx(&dir, origin);
    let [port, door, mux, forward] = [(); 4].map(|()| free_port());
    setup.allow.push(port);
    setup.more_rights.push("http: [\"*\"]".to_owned());
    setup.more_listen.push(format!("{{ url: \"mux://127.0.0.1:{mux}\", accept_proxy: true }}"));
    let plain = Origin::echo();
    setup.more_targets.push(format!("127.0.0.1:{}", plain.port()));
    writeln!(
        setup.server_lines,
        "trusted_proxies: [127.0.0.1]\naccept_proxy: {{ tcp: [\"{port}\"] }}\n\
         http: {{ listen: [\"127.0.0.1:{door}\"], accept_proxy: true }}\nlog: {{ access: true }}"
    )
    .unwrap();
    let target = format!("target: \"tcp://127.0.0.1:{origin}\", proxy_protocol: v2");
    writeln!(
        setup.client_lines,
        "trusted_proxies: [127.0.0.1]\nlog: {{ access: true }}\nservices:\n  \
         - {{ name: few, {target}, public: \"tcp://:{port}\", deny_from: [127.0.0.9] }}\n  \
         - {{ name: web, {target}, public: \"http://a.example\", deny_from: [127.0.0.9] }}\n\
         forwards:\n  - {{ listen: \"tcp://127.0.0.1:{forward}\", target: \
         \"tcp://127.0.0.1:{}\", accept_proxy: true }}",
        plain.port()
    )
    .unwrap();
    let mut running = setup.start();
    wait("both services", SOON, || {
        (running.server.log().matches("is published at").count() >= 2).then_some(())
    });
    wait_listening(forward, SOON);
    let entrances = [port, door, mux, forward];
    let behind: Vec<_> =
        entrances.iter().flat_map(|to| HEADERS.map(|header| (*to, header))).collect();
    let (_haproxy, fronts) = haproxy(&dir, &behind);
    for (at, (to, header)) in fronts.iter().zip(&behind) {
        if *to == forward {
            echo(&visit_from(5, *at).unwrap(), 5);
            continue;
        }
        assert_eq!(who(5, *at, "a.example"), "127.0.0.5", "{to} {header}");
        // Lists compare the address of the header.
        let mut denied = visit_from(9, *at).unwrap();
        let _ = denied.write_all(b"GET /who HTTP/1.1\r\nHost: a.example\r\n\r\n");
        let mut answer = Vec::new();
        let _ = denied.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 403 "), "{answer}");
    }
    let log = fs::read_to_string(dir.join("access.log")).unwrap();
    assert_eq!(log.lines().filter(|line| line.starts_with("127.0.0.5 - ")).count(), 6, "{log}");
    logged(&running, "127.0.0.5");
    running.client().wait_line(&["visitor", "127.0.0.5"], SOON);
}

/// A service with an echo behind a header; 127.0.0.1 is a balancer, everybody else is none.
fn behind_a_balancer(origin: &Origin) -> (Running, u16) {
    let (mut setup, port) = (Setup::new(Scheme::TLS), free_port());
    writeln!(
        setup.server_lines,
        "trusted_proxies: [127.0.0.1]\naccept_proxy: {{ tcp: [\"{port}\"] }}"
    )
    .unwrap();
    setup = setup.service_on("echo", origin.port(), port);
    let running = setup.start_server();
    let mut running = running;
    running.start_client();
    wait_listening(port, SOON);
    running.server.wait_line(&["is published at"], SOON);
    (running, port)
}

#[test]
fn a_header_of_anybody_else_is_payload() {
    let origin = Origin::echo();
    let (running, port) = behind_a_balancer(&origin);
    let text = b"PROXY TCP4 203.0.113.9 127.0.0.1 1 2\r\nhello";
    let mut visitor = visit_from(7, port).unwrap();
    visitor.write_all(text).unwrap();
    let mut back = vec![0; text.len()];
    visitor.read_exact(&mut back).unwrap();
    assert_eq!(back, text);
    // A visitor that says nothing is served as well.
    let silent = visit_from(8, port).unwrap();
    echo(&silent, 8);
    assert!(!running.server.log().contains("203.0.113.9"));
}

#[test]
fn a_balancer_without_a_header_is_closed_and_a_slow_one_holds_up_nobody() {
    let origin = Origin::echo();
    let (running, port) = behind_a_balancer(&origin);
    let mut wrong = visit_from(1, port).unwrap();
    wrong.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    bytes::expect_reset(&wrong);
    running.server.wait_line(&["is closed", "no header of the PROXY protocol"], SOON);
    // These say nothing, or a part. Others are served meanwhile.
    let begin = std::time::Instant::now();
    let slow: Vec<_> = (0..50)
        .map(|nth| {
            let mut slow = visit_from(1, port).unwrap();
            slow.write_all(&b"PROXY TCP4 203.0.113.9 "[..nth % 20]).unwrap();
            slow
        })
        .collect();
    let mut served = visit_from(1, port).unwrap();
    served.write_all(b"PROXY TCP4 203.0.113.9 127.0.0.1 1 2\r\n").unwrap();
    echo(&served, 3);
    for slow in &slow {
        bytes::expect_reset(slow);
    }
    assert!(begin.elapsed().as_secs() >= 5, "a header is waited for");
    let refused = |running: &Running| {
        let status = running.status("server").unwrap();
        status["sessions"][0]["services"][0]["refused"].clone()
    };
    wait("the counters", SOON, || {
        let refused = refused(&running);
        (refused["timeout"] == 50 && refused["denied"] == 1).then_some(())
    });
    // A reload takes the key away: the same connection is served as it is.
    running.edit_server(|text| {
        let lines = text.lines().filter(|line| !line.starts_with("accept_proxy"));
        lines.flat_map(|line| [line, "\n"]).collect()
    });
    assert!(running.reload("server").status.success());
    echo(&visit_from(1, port).unwrap(), 4);
    echo(&served, 5);
}

/// A datagram behind a header of version 2 for a visitor at 203.0.113.`last`.
fn datagram(last: u8, payload: &[u8]) -> Vec<u8> {
    let head = b"\r\n\r\n\0\r\nQUIT\n\x21\x12\x00\x0c\xcb\x00\x71";
    let rest = [last, 127, 0, 0, 1, 0x9c, 0x40, 0, 53];
    [&head[..], &rest, payload].concat()
}

/// Several visitors over one socket of a balancer are flows of their own, and without a header a
/// datagram of the balancer goes nowhere. `denied` is a visitor that may not visit.
fn flows_behind_a_balancer(port: u16, origin: &Echo, denied: Option<u8>) {
    let balancer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    balancer.set_read_timeout(Some(LONG)).unwrap();
    balancer.connect(("127.0.0.1", port)).unwrap();
    let mut answer = [0; 2000];
    if let Some(last) = denied {
        balancer.send(&datagram(last, b"denied")).unwrap();
    }
    balancer.send(b"naked").unwrap();
    for round in 0..3 {
        for last in [1, 2, 3] {
            let payload = [last; 100].map(|byte| byte + round);
            balancer.send(&datagram(last, &payload)).unwrap();
            let size = balancer.recv(&mut answer).unwrap();
            assert_eq!(&answer[..size], payload, "without a header");
        }
    }
    assert_eq!(origin.peers().len(), 3, "each visitor has a flow");
    // Another address is no balancer: its header is payload.
    let other = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 7), 0)).unwrap();
    other.set_read_timeout(Some(LONG)).unwrap();
    other.connect(("127.0.0.1", port)).unwrap();
    let whole = datagram(1, b"payload");
    other.send(&whole).unwrap();
    let size = other.recv(&mut answer).unwrap();
    assert_eq!(&answer[..size], whole);
}

#[test]
fn datagrams_have_a_header_each() {
    let origin = Echo::start();
    let (mut setup, port) = crate::udp::one_service(Scheme::QUIC, origin.port());
    writeln!(
        setup.server_lines,
        "trusted_proxies: [127.0.0.1]\naccept_proxy: {{ udp: [\"{port}\"] }}"
    )
    .unwrap();
    setup.client_lines.push_str("deny_from: [203.0.113.66]\n");
    let running = crate::udp::start(setup, 1);
    flows_behind_a_balancer(port, &origin, Some(66));
    let status = running.status("server").unwrap();
    let dropped = &status["sessions"][0]["services"][0]["dropped"];
    assert_eq!((&dropped["no_header"], &dropped["denied"]), (&1.into(), &1.into()), "{status}");
}

/// Sends the header that it gets, and then returns what it gets.
fn tells_header() -> Origin {
    Origin::start(|mut stream| {
        let mut head = [0; 16];
        stream.read_exact(&mut head).unwrap();
        let mut rest = vec![0; usize::from(u16::from_be_bytes([head[14], head[15]]))];
        stream.read_exact(&mut rest).unwrap();
        stream.write_all(&[&head[..], &rest].concat()).unwrap();
    })
}

/// The first record of a TLS visitor of `name`: a ClientHello with its server name alone. `random`
/// is each of its random bytes.
pub(crate) fn client_hello(name: &str, random: u8) -> Vec<u8> {
    let sized = |bytes: &[u8]| [&u16::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat();
    let server_name = sized(&[&[0], &sized(name.as_bytes())[..]].concat());
    let extensions = sized(&[&[0, 0], &sized(&server_name)[..]].concat());
    let hello = [&[3, 3][..], &[random; 32], &[0, 0, 2, 0x13, 1, 1, 0], &extensions].concat();
    let handshake = [&[1, 0], &sized(&hello)[..]].concat();
    [&[22, 3, 1], &sized(&handshake)[..]].concat()
}

#[test]
fn targets_behind_a_tunnel_get_the_fields_of_a_balancer() {
    let mut setup = Setup::new(Scheme::TLS);
    let (dir, telling) = (setup.dir().to_owned(), tells_header());
    let [port, mux] = [(); 2].map(|()| free_port());
    setup.allow.push(port);
    setup.more_rights.push("tls: [\"*\"]".to_owned());
    setup.more_listen.push(format!("{{ url: \"mux://127.0.0.1:{mux}\", accept_proxy: true }}"));
    writeln!(
        setup.server_lines,
        "trusted_proxies: [127.0.0.1]\naccept_proxy: {{ tcp: [\"{port}\"] }}"
    )
    .unwrap();
    let target = format!("target: \"tcp://127.0.0.1:{}\", proxy_protocol: v2", telling.port());
    writeln!(
        setup.client_lines,
        "services:\n  - {{ name: raw, {target}, public: \"tcp://:{port}\" }}\n  \
         - {{ name: vpn, {target}, public: \"tls://vpn.example\" }}"
    )
    .unwrap();
    let running = setup.start();
    wait("both services", SOON, || {
        (running.server.log().matches("is published at").count() >= 2).then_some(())
    });
    let fields = "send-proxy-v2-ssl proxy-v2-options crc32c";
    let (_haproxy, fronts) = haproxy(&dir, &[(port, fields), (mux, fields)]);
    let header_at = |at: u16, first: &[u8]| {
        let (mut visitor, mut header) = (visit_from(6, at).unwrap(), Vec::new());
        visitor.write_all(first).unwrap();
        let _ = visitor.read_to_end(&mut header);
        header
    };
    for (at, first) in [(fronts[0], Vec::new()), (fronts[1], client_hello("vpn.example", 7))] {
        let header = header_at(at, &first);
        // The address of the visitor, the field about TLS, and no checksum of another header.
        assert_eq!(header.get(16..20), Some(&[127, 0, 0, 6][..]), "{header:?}");
        assert_eq!(header.get(28..), Some(&[0x20, 0, 5, 0, 0, 0, 0, 0][..]), "{header:?}");
    }
    // Fields of a balancer of our own: as many as fit, and one byte more.
    for (count, is_told) in [(509_u16, true), (510, false)] {
        let field = [&[0xe0][..], &count.to_be_bytes(), &vec![7; count.into()]].concat();
        let length = u16::try_from(12 + field.len()).unwrap().to_be_bytes();
        let head = [
            &b"\r\n\r\n\0\r\nQUIT\n\x21\x11"[..],
            &length,
            &[203, 0, 113, 9, 127, 0, 0, 1, 0, 9, 0, 7],
        ];
        let mut visitor = visit_from(1, port).unwrap();
        visitor.write_all(&[head.concat(), field.clone()].concat()).unwrap();
        let mut header = Vec::new();
        let _ = visitor.read_to_end(&mut header);
        assert_eq!(header.get(16..20), Some(&[203, 0, 113, 9][..]), "{header:?}");
        assert_eq!(&header[28..], if is_told { &field[..] } else { &[] }, "{count}");
    }
}

#[test]
fn a_proxy_believes_a_balancer_and_passes_its_fields_on() {
    let dir = tempfile::tempdir().unwrap();
    let [tcp, raw, udp, origin] = [(); 4].map(|()| free_port());
    let (datagrams, telling) = (Echo::start(), tells_header());
    let _nginx = nginx(dir.path(), origin);
    let file = dir.path().join("proxy.yaml");
    let at = |port: u16, target: u16, keys: &str| {
        format!(
            "  - {{ listen: \"tcp://127.0.0.1:{port}\", target: \"tcp://127.0.0.1:{target}\", \
             accept_proxy: true, proxy_protocol: v2{keys} }}\n"
        )
    };
    let text = format!(
        "control: {}\ntrusted_proxies: [127.0.0.1]\nproxies:\n{}{}  \
         - {{ listen: \"udp://127.0.0.1:{udp}\", target: \"udp://127.0.0.1:{}\", \
         accept_proxy: true }}\n",
        dir.path().join("proxy.sock").display(),
        at(tcp, origin, ", deny_from: [127.0.0.9]"),
        at(raw, telling.port(), ""),
        datagrams.port()
    );
    fs::write(&file, text).unwrap();
    let mut command = tunnel(&["proxy", "--workers", "2", "--config"]);
    let _proxy = Daemon::start("proxy", dir.path(), command.arg(&file));
    wait_listening(raw, SOON);
    let fields = "send-proxy-v2-ssl proxy-v2-options crc32c";
    let behind = [(tcp, HEADERS[0]), (tcp, HEADERS[1]), (raw, fields)];
    let (_haproxy, fronts) = haproxy(dir.path(), &behind);
    for at in &fronts[..2] {
        assert_eq!(who(6, *at, "a.example"), "127.0.0.6");
        let mut denied = visit_from(9, *at).unwrap();
        let _ = denied.write_all(b"GET / HTTP/1.0\r\n\r\n");
        let mut answer = Vec::new();
        let _ = denied.read_to_end(&mut answer);
        assert_eq!(answer, b"");
    }
    let mut header = Vec::new();
    visit_from(6, fronts[2]).unwrap().read_to_end(&mut header).unwrap();
    // The addresses of the visitor, the field about TLS, and no checksum of another header.
    assert_eq!(header[16..24], [127, 0, 0, 6, 127, 0, 0, 1], "{header:?}");
    assert_eq!(header[26..28], fronts[2].to_be_bytes(), "{header:?}");
    assert_eq!(header[28..31], [0x20, 0, 5], "{header:?}");
    assert_eq!(header.len(), 36, "{header:?}");
    flows_behind_a_balancer(udp, &datagrams, None);
    let checked = run(tunnel(&["check", "--config"]).arg(&file));
    let checked = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.contains("behind a PROXY header"), "{checked}");
}
