//! Offers at a door for HTTP, at hosts that no service has.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use super::{OFFERS, Program, Visit, echoes, http, run};
use crate::harness::{LONG, Origin, Scheme, Setup, free_port, wait};
use crate::private::{Stage, private};

/// The stage with a door, an `echo` of `home`, and a site `app.test` of `home`.
fn stage(echo: u16, site: u16, lines: &str) -> (Stage, u16) {
    let (mut setup, door) = (Setup::new(Scheme::TLS), free_port());
    setup.more_rights.push("http: [\"*\"]".to_owned());
    let services = [
        private("echo", &format!("tcp://127.0.0.1:{echo}")),
        format!("name: site, target: \"tcp://127.0.0.1:{site}\", public: \"http://app.test\""),
    ];
    let lines = format!("http: {{ listen: [\"127.0.0.1:{door}\"] }}\n{lines}");
    let mut stage = Stage::with(setup, "home/*", &services, &lines);
    stage.home().wait_line(&["is published at"], LONG);
    stage.running.edit_server(|text| format!("{OFFERS}{text}"));
    assert!(stage.running.reload("server").status.success());
    (stage, door)
}

#[test]
fn a_program_visits_by_an_offer_at_a_door_for_http() {
    let origin = Origin::echo();
    let (mut stage, door) = stage(origin.port(), 9, "");
    let preflight = http(door, "OPTIONS", "/webrtc/home/echo", &[("Origin", "null")], "");
    assert_eq!(preflight.status, 204);
    assert_eq!(preflight.field("access-control-allow-origin"), Some("*"));
    let long = "v".repeat(16_385);
    let sdp = ("Content-Type", "application/sdp");
    for (method, path, fields, body, status) in [
        ("POST", "/webrtc/home/echo", &[sdp][..], "v=0\r\n", 401),
        ("POST", "/webrtc/home/echo", &[], "v=0\r\n", 415),
        ("POST", "/webrtc/home/echo", &[sdp], &long, 413),
        ("GET", "/webrtc/home/echo", &[], "", 405),
        ("POST", "/webrtc-other", &[sdp], "v=0\r\n", 404),
        ("DELETE", "/webrtc/sessions/0123", &[], "", 404),
    ] {
        assert_eq!(http(door, method, path, fields, body).status, status, "{method} {path}");
    }
    run(async {
        let mut visit = Visit::new(door).await;
        assert!(echoes(&mut visit.stream).await);
        let gone = visit.location.clone();
        let end = tokio::task::spawn_blocking(move || http(door, "DELETE", &gone, &[], "").status);
        assert_eq!(end.await.unwrap(), 200);
    });
    stage.home().wait_line(&["the visit of client laptop at echo by WebRTC has ended"], LONG);
    // No offers at a server that does not say so.
    stage.running.edit_server(|text| text.replace(OFFERS, ""));
    assert!(stage.running.reload("server").status.success());
    wait("offers end with a reload", LONG, || {
        (http(door, "POST", "/webrtc/home/echo", &[sdp], "v").status == 404).then_some(())
    });
}

/// A request, and the status line and the body of its answer on a connection that stays.
fn ask(stream: &mut TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let (mut read, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let length = stream.read(&mut piece).unwrap();
        assert!(length > 0, "{request}: {}", String::from_utf8_lossy(&read));
        read.extend(&piece[..length]);
        let text = String::from_utf8_lossy(&read);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let head = head.to_ascii_lowercase();
        let named = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
        if body.len() >= named.unwrap_or("0").parse().unwrap() {
            return text.into_owned();
        }
    }
}

/// A site that answers all requests with a body that ends as those of this test do.
fn answer_mine(mut socket: TcpStream) {
    let (mut read, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(length @ 1..) = socket.read(&mut piece) {
        read.extend(&piece[..length]);
        if read.ends_with(b"v=0") {
            read.clear();
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmine";
            let _ = socket.write_all(answer);
        }
    }
}

/// A reverse proxy sends requests of many visitors over one connection.
#[test]
fn an_offer_may_follow_other_requests_and_a_service_keeps_all_paths_of_its_host() {
    let (site, echo) = (Origin::start(answer_mine), Origin::echo());
    let (stage, door) = stage(echo.port(), site.port(), "");
    let mut stream = TcpStream::connect(("127.0.0.1", door)).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let offer = |host: &str| {
        format!(
            "POST /webrtc/home/echo HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/sdp\r\n\
             Content-Length: 3\r\n\r\nv=0"
        )
    };
    let own = ask(&mut stream, &offer("app.test"));
    assert!(own.starts_with("HTTP/1.1 200") && own.ends_with("mine"), "{own}");
    let other = ask(&mut stream, &offer("tunnel.test"));
    assert!(other.starts_with("HTTP/1.1 401") && other.contains("Bearer"), "{other}");
    let own = ask(&mut stream, &offer("app.test"));
    assert!(own.ends_with("mine"), "{own}");
    drop(stage);
}

#[test]
fn offers_at_a_door_come_over_tls_or_from_this_machine() {
    let origin = Origin::echo();
    let (stage, door) = stage(origin.port(), 9, "trusted_proxies: [127.0.0.1]\n");
    let status = |fields: &[(&str, &str)]| {
        let sdp = [("Content-Type", "application/sdp")];
        let answer = http(door, "POST", "/webrtc/home/echo", &[&sdp, fields].concat(), "v=0");
        (answer.status, answer.body)
    };
    let foreign = ("X-Forwarded-For", "203.0.113.9");
    let (plain, text) = status(&[foreign]);
    assert!(plain == 403 && text.contains("over TLS"), "{plain} {text}");
    assert_eq!(status(&[foreign, ("X-Forwarded-Proto", "https")]).0, 401);
    let response = Program::default().offer(door, "v=0\r\n");
    assert_eq!(
        response.status, 503,
        "the proofs are right, and the text is no offer: {response:?}"
    );
    drop(stage);
}
