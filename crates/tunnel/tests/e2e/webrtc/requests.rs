//! Offers by HTTP, and what becomes of them. The program is the library of this project.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{OFFERS, Program, Visit, echoes, http, run, stage, stage_with};
use crate::harness::{LONG, Origin, free_port, wait};
use crate::private::NO_ROUTER;

/// Another token.
const OTHER: &str = "Zt5RkW1xQ8bN4mVc7LpYs2HdJf9GaE3uXeWqBn6Tz0A";

#[test]
fn a_program_visits_by_webrtc_and_needs_no_server_any_more() {
    let origin = Origin::echo();
    let (mut stage, port) = stage("home/*", origin.port());
    run(async {
        let mut visit = Visit::new(port).await;
        assert!(echoes(&mut visit.stream).await);
        stage.running.server.kill();
        assert!(echoes(&mut visit.stream).await, "the bytes do not pass the server");
        let mut second = visit.open("echo").await;
        assert!(echoes(&mut second).await, "one channel for each stream");
        second.shutdown().await.unwrap();
        let mut rest = Vec::new();
        second.read_to_end(&mut rest).await.unwrap();
        assert!(rest.is_empty(), "an end is answered by an end");
        assert!(echoes(&mut visit.stream).await, "the other stream goes on");
        let mut refused = visit.open("other").await;
        assert!(!echoes(&mut refused).await, "a connection reaches one service");
    });
    stage.home().wait_line(&["client laptop visits", "echo by WebRTC"], LONG);
    stage.home().wait_line(&["the visit of client laptop at echo by WebRTC has ended"], LONG);
}

#[test]
fn delete_ends_a_connection_and_so_does_the_end_of_a_right() {
    let origin = Origin::echo();
    let (mut stage, port) = stage("home/*", origin.port());
    run(async {
        let mut first = Visit::new(port).await;
        let mut second = Visit::new(port).await;
        assert!(echoes(&mut first.stream).await && echoes(&mut second.stream).await);
        let gone = first.location.clone();
        let end = move || http(port, "DELETE", &gone, &[], "").status;
        let end = tokio::task::spawn_blocking(move || (end(), end()));
        assert_eq!(end.await.unwrap(), (200, 404), "an id ends one connection once");
        assert!(
            first.stream.read(&mut [0]).await.is_err(),
            "an end without an end mark is a reset"
        );
        assert!(echoes(&mut second.stream).await);
        stage.publish(&[crate::private::private("else", "tcp://127.0.0.1:9")]);
        assert!(second.stream.read(&mut [0]).await.is_err());
    });
    stage.home().wait_line(&["client laptop may not visit the private service echo"], LONG);
}

#[test]
fn the_end_of_the_client_of_the_service_is_a_reset() {
    let origin = Origin::echo();
    let (mut stage, port) = stage("home/*", origin.port());
    run(async {
        let mut visit = Visit::new(port).await;
        assert!(echoes(&mut visit.stream).await);
        stage.home().kill();
        assert!(visit.stream.read(&mut [0]).await.is_err());
    });
}

/// An offer that is none is enough: proofs are judged first.
#[test]
fn an_offer_without_the_right_proofs_is_refused_before_there_is_a_socket() {
    let origin = Origin::echo();
    let (mut stage, port) = stage("home/echo", origin.port());
    let good = Program::default();
    let offer = |program: Program<'_>| {
        let answer = program.offer(port, "v=0\r\n");
        (answer.status, answer.body)
    };
    let is = |program, status, words: &str| {
        let (code, body) = offer(program);
        assert!(code == status && body.contains(words), "{program:?}: {code} {body}");
    };
    is(Program { token: OTHER, ..good }, 401, "Authorization");
    is(Program { name: "nobody", ..good }, 401, "Authorization");
    is(Program { secret: OTHER, ..good }, 403, "refuses the proof");
    // The same answer without the right and without the service.
    is(Program { place: "home/ssh", ..good }, 404, "no such service");
    is(Program { place: "away/echo", ..good }, 404, "no such service");
    is(Program { place: "echo", ..good }, 404, "CLIENT/SERVICE");
    // The proofs are right, and the text is no offer.
    is(good, 503, "cannot take the offer");
    stage.home().wait_line(&["client laptop does not visit", "by WebRTC: wrong token"], LONG);
    // The brake of log-ins counts it.
    let words = ["`laptop` did not log in: wrong token for an offer of WebRTC"];
    stage.running.server.wait_line(&words, LONG);
    let lines = [("Content-Type", "application/sdp")];
    let response = http(port, "POST", "/webrtc/home/echo", &lines, "v=0\r\n");
    assert_eq!(response.status, 401);
    assert_eq!(response.field("www-authenticate"), Some("Bearer"));
}

#[test]
fn other_requests_get_what_http_has_for_them() {
    let (mut stage, port) = stage("home/*", 9);
    let status = |method: &str, path: &str, fields: &[(&str, &str)], body: &str| {
        http(port, method, path, fields, body).status
    };
    let sdp = ("Content-Type", "application/sdp");
    let preflight = http(port, "OPTIONS", "/webrtc/home/echo", &[("Origin", "null")], "");
    assert_eq!(preflight.status, 204);
    assert_eq!(preflight.field("access-control-allow-origin"), Some("*"));
    assert_eq!(status("GET", "/webrtc/home/echo", &[], ""), 405);
    assert_eq!(status("POST", "/webrtc/home/echo", &[("Content-Type", "text/plain")], "v"), 415);
    assert_eq!(status("POST", "/webrtc/home/echo", &[sdp], &"v".repeat(16_385)), 413);
    assert_eq!(status("POST", "/webrtc-other", &[sdp], "v"), 404);
    assert_eq!(status("POST", "/", &[sdp], "v"), 404);
    assert_eq!(status("DELETE", "/webrtc/sessions/0123", &[], ""), 404);
    // No offers at a server that does not say so.
    stage.running.edit_server(|text| text.replace(OFFERS, ""));
    assert!(stage.running.reload("server").status.success());
    wait("offers end with a reload", LONG, || {
        (status("POST", "/webrtc/home/echo", &[sdp], "v") == 404).then_some(())
    });
    stage.home().kill();
}

#[test]
fn offers_come_to_a_port_for_everything_too() {
    let origin = Origin::echo();
    let mux = free_port();
    let listen = format!("mux://127.0.0.1:{mux}/tunnel");
    let (mut stage, _) = stage_with("home/*", origin.port(), Some(listen));
    let response = Program::default().offer(mux, "v=0\r\n");
    assert_eq!(
        response.status, 503,
        "the proofs are right, and the text is no offer: {response:?}"
    );
    let stranger = Program { token: OTHER, ..Program::default() };
    assert_eq!(stranger.offer(mux, "v=0\r\n").status, 401);
    assert_eq!(http(mux, "GET", "/webrtcs", &[], "").status, 404);
    stage.home().kill();
}

#[test]
fn a_client_whose_links_stay_relayed_takes_no_offer() {
    let origin = Origin::echo();
    let (stage, port) = stage("home/*", origin.port());
    stage.running.edit_client(|text| text.replace(NO_ROUTER, "p2p: { candidates: [] }\n"));
    assert!(stage.running.reload("client").status.success());
    run(async {
        let offer = Visit::offer().await;
        let response = tokio::task::spawn_blocking(move || Program::default().offer(port, &offer));
        assert_eq!(response.await.unwrap().status, 503);
    });
}

#[test]
fn offers_of_strangers_take_no_place_and_those_of_programs_are_bounded() {
    let origin = Origin::echo();
    let (stage, port) = stage("home/*", origin.port());
    let limit = "p2p: { webrtc: { peers: 1 }, candidates: [host, reflexive] }\n";
    stage.running.edit_client(|text| text.replace(NO_ROUTER, limit));
    assert!(stage.running.reload("client").status.success());
    run(async {
        let mut visit = Visit::new(port).await;
        assert!(echoes(&mut visit.stream).await);
        let full = tokio::task::spawn_blocking(move || {
            let stranger = Program { secret: OTHER, ..Program::default() };
            (
                stranger.offer(port, "v=0\r\n").status,
                Program::default().offer(port, "v=0\r\n").status,
            )
        });
        assert_eq!(full.await.unwrap(), (403, 503));
        assert!(echoes(&mut visit.stream).await);
    });
}
