//! Visitors of HTTP/2, by hyper's client and by raw frames.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::{
    Method, Request, Response, StatusCode, Version,
    body::{Frame, Incoming},
    client::conn::http2::{self, SendRequest},
    ext::Protocol,
    rt::Executor,
};
use hyper_util::rt::TokioIo;
use proto::HttpOptions;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    task::spawn_local,
    time::Instant,
};

use crate::frames::{frame, request};
use crate::rig::{
    BUFFER, Client, Site, connect, connect_as, expect, field, head, ok, on_worker, rest, send,
    settle, visitor,
};

#[derive(Clone)]
struct Local;

impl<F: Future + 'static> Executor<F> for Local {
    fn execute(&self, future: F) {
        spawn_local(async move {
            future.await;
        });
    }
}

type Body = http_body_util::combinators::BoxBody<Bytes, std::io::Error>;

fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed()
}

fn full(text: &'static str) -> Body {
    Full::new(Bytes::from_static(text.as_bytes())).map_err(|never| match never {}).boxed()
}

async fn speak(client: Client) -> SendRequest<Body> {
    let io = TokioIo::new(client.io);
    let (sender, connection) = http2::handshake(Local, io).await.unwrap();
    spawn_local(connection);
    sender
}

fn get(uri: &str) -> Request<Body> {
    Request::builder().uri(uri).version(Version::HTTP_2).body(empty()).unwrap()
}

async fn text(response: Response<Incoming>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

#[test]
fn each_stream_is_routed_by_its_authority() {
    on_worker(async {
        let site = Site::new();
        let (a, b) = (site.plain("a.example"), site.plain("b.example"));
        let mut sender = speak(connect(&site)).await;
        let mut answers = Vec::new();
        for uri in ["http://A.example:80/1?q", "http://b.example/2", "http://x.example/3"] {
            sender.ready().await.unwrap();
            answers.push(spawn_local(sender.send_request(get(uri))));
        }
        // The second stream is answered before the first.
        let seen = b.accept().await.serve(&ok("from b")).await;
        assert_eq!(seen, "GET /2 HTTP/1.1\r\nHost: b.example\r\n\r\n");
        let seen = a.accept().await.serve(&ok("from a")).await;
        assert!(seen.starts_with("GET /1?q HTTP/1.1\r\nHost: "), "{seen}");
        let mut request = get("http://x.example/");
        *request.method_mut() = Method::HEAD;
        sender.ready().await.unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        assert_ne!(response.headers()["content-length"], "0");
        assert_eq!(text(response).await, "");
        let mut texts = Vec::new();
        for answer in answers {
            let response = answer.await.unwrap().unwrap();
            texts.push((response.status().as_u16(), text(response).await));
        }
        assert_eq!(texts[0], (200, "from a".into()));
        assert_eq!(texts[1], (200, "from b".into()));
        assert_eq!(texts[2].0, 404);
    });
}

#[test]
fn an_authority_beyond_the_certificate_gets_421() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        site.plain("b.example");
        *site.uncovered.borrow_mut() = Some("b.example".into());
        let tls = web::Visitor { secure: true, protocol: web::Protocol::H2, ..visitor() };
        let mut sender = speak(connect_as(&site, tls, web::Settings::default())).await;
        let response = sender.send_request(get("https://b.example/")).await.unwrap();
        assert_eq!(response.status(), StatusCode::MISDIRECTED_REQUEST);
        let answer = spawn_local(sender.send_request(get("https://a.example/")));
        a.accept().await.serve(&ok("covered")).await;
        assert_eq!(text(answer.await.unwrap().unwrap()).await, "covered");
    });
}

#[test]
fn a_host_field_may_not_contradict_the_authority() {
    on_worker(async {
        let site = Site::new();
        site.plain("a.example");
        site.plain("b.example");
        let mut sender = speak(connect(&site)).await;
        for host in ["b.example", "a.example:81"] {
            let mut request = get("http://a.example/");
            request.headers_mut().insert("host", host.parse().unwrap());
            let response = sender.send_request(request).await.unwrap();
            assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{host}");
        }
    });
}

#[test]
fn bodies_and_trailers_pass_in_both_directions() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut sender = speak(connect(&site)).await;
        let mut request = get("http://a.example/up");
        *request.method_mut() = Method::POST;
        request.headers_mut().insert("te", "trailers".parse().unwrap());
        request.headers_mut().insert("trailer", "x-sum".parse().unwrap());
        request.headers_mut().append("cookie", "a=1".parse().unwrap());
        request.headers_mut().append("cookie", "b=2".parse().unwrap());
        let frames = of_frames(vec![
            Frame::data(Bytes::from_static(b"abc")),
            Frame::trailers(
                [("x-sum".parse().unwrap(), "1".parse().unwrap())].into_iter().collect(),
            ),
        ]);
        *request.body_mut() = frames;
        let answer = spawn_local(sender.send_request(request));
        let mut target = a.accept().await;
        let seen = head(&mut target.io).await;
        assert_eq!(field(&seen, "te"), Some("trailers"), "{seen}");
        assert_eq!(field(&seen, "cookie"), Some("a=1; b=2"), "{seen}");
        expect(&mut target.io, "3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n").await;
        send(
            &mut target.io,
            "HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Own\r\nX-Own: 1\r\nTrailer: X-End\r\n\
             Transfer-Encoding: chunked\r\n\r\n3\r\nxyz\r\n0\r\nX-End: 2\r\n\r\n",
        )
        .await;
        let response = answer.await.unwrap().unwrap();
        assert!(response.headers().get("x-own").is_none());
        let body = response.into_body().collect().await.unwrap();
        assert_eq!(body.trailers().unwrap()["x-end"], "2");
        assert_eq!(body.to_bytes(), "xyz");
    });
}

/// A body of these frames.
fn of_frames(frames: Vec<Frame<Bytes>>) -> Body {
    struct Frames(std::collections::VecDeque<Frame<Bytes>>);
    impl hyper::body::Body for Frames {
        type Data = Bytes;
        type Error = std::io::Error;
        fn poll_frame(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
            std::task::Poll::Ready(self.0.pop_front().map(Ok))
        }
    }
    BodyExt::boxed(Frames(frames.into()))
}

#[test]
fn an_early_answer_is_whole() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut sender = speak(connect(&site)).await;
        let page = "x".repeat(BUFFER / 2);
        // More than the windows of HTTP/2 and the stream to the target take.
        let frames = (0..100).map(|_| Frame::data(Bytes::from(vec![b'y'; BUFFER]))).collect();
        let request =
            Request::post("http://a.example/").version(Version::HTTP_2).body(of_frames(frames));
        let asked = spawn_local(sender.send_request(request.unwrap()));
        let mut target = a.accept().await;
        head(&mut target.io).await;
        let early = format!("HTTP/1.1 413 x\r\nContent-Length: {}\r\n\r\n{page}", page.len());
        send(&mut target.io, &early).await;
        drop(target);
        let response = asked.await.unwrap().unwrap();
        assert_eq!(response.status(), 413);
        assert_eq!(text(response).await, page);
        // The other streams go on.
        let asked = spawn_local(sender.send_request(get("http://a.example/")));
        a.accept().await.serve(&ok("1")).await;
        assert_eq!(text(asked.await.unwrap().unwrap()).await, "1");
    });
}

#[test]
fn an_upload_is_reset_without_an_error_a_moment_after_its_early_answer() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let (mut sender, connection) = h2::client::handshake(connect(&site).io).await.unwrap();
        spawn_local(connection);
        // A target answers, and a page of the server itself.
        for host in ["a.example", "b.example"] {
            let request = Request::post(format!("http://{host}/")).body(()).unwrap();
            let (response, mut upload) = sender.send_request(request, false).unwrap();
            upload.send_data(Bytes::from_static(b"some"), false).unwrap();
            if host == "a.example" {
                let mut target = a.accept().await;
                target.serve("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno").await;
            }
            let mut body = response.await.unwrap().into_body();
            while let Some(piece) = body.data().await {
                body.flow_control().release_capacity(piece.unwrap().len()).unwrap();
            }
            let begin = Instant::now();
            let reason = std::future::poll_fn(|cx| upload.poll_reset(cx)).await.unwrap();
            assert_eq!(reason, h2::Reason::NO_ERROR, "{host}");
            assert_eq!(begin.elapsed(), Duration::from_secs(1), "{host}");
        }
    });
}

#[test]
fn a_request_that_cannot_be_repeated_has_a_connection_of_its_own() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut sender = speak(connect(&site)).await;
        let asked = spawn_local(sender.send_request(get("http://a.example/")));
        let mut kept = a.accept().await;
        kept.serve(&ok("1")).await;
        assert_eq!(text(asked.await.unwrap().unwrap()).await, "1");
        let post = Request::post("http://a.example/").version(Version::HTTP_2).body(full("abc"));
        let asked = spawn_local(sender.send_request(post.unwrap()));
        let mut fresh = a.accept().await;
        head(&mut fresh.io).await;
        expect(&mut fresh.io, "abc").await;
        send(&mut fresh.io, &ok("2")).await;
        assert_eq!(text(asked.await.unwrap().unwrap()).await, "2");
        // A request that may be repeated takes the kept one, and is sent again when that dies.
        let put = Request::put("http://a.example/").version(Version::HTTP_2).body(full("def"));
        let asked = spawn_local(sender.send_request(put.unwrap()));
        head(&mut fresh.io).await;
        expect(&mut fresh.io, "def").await;
        drop(fresh);
        let mut again = a.accept().await;
        head(&mut again.io).await;
        expect(&mut again.io, "def").await;
        send(&mut again.io, &ok("3")).await;
        assert_eq!(text(asked.await.unwrap().unwrap()).await, "3");
    });
}

#[test]
fn connections_to_a_target_are_reused_and_four_stay_idle() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut sender = speak(connect(&site)).await;
        let mut targets = Vec::new();
        let mut answers = Vec::new();
        for _ in 0..6 {
            sender.ready().await.unwrap();
            answers.push(spawn_local(sender.send_request(get("http://a.example/"))));
            targets.push(a.accept().await);
        }
        for (target, answer) in targets.iter_mut().zip(answers) {
            target.serve(&ok("x")).await;
            text(answer.await.unwrap().unwrap()).await;
        }
        // All of them take the next burst.
        let mut answers = Vec::new();
        for _ in 0..6 {
            sender.ready().await.unwrap();
            answers.push(spawn_local(sender.send_request(get("http://a.example/"))));
        }
        for target in targets.iter_mut().rev() {
            target.serve(&ok("y")).await;
        }
        for answer in answers {
            assert_eq!(text(answer.await.unwrap().unwrap()).await, "y");
        }
        // Then the two that were idle for the longest time are closed.
        let begin = Instant::now();
        let mut ended = 0;
        for target in &mut targets {
            let mut byte = [0];
            let read = target.io.read(&mut byte);
            let end = tokio::time::timeout(Duration::from_secs(3), read).await;
            ended += u32::from(end.is_ok_and(|read| read.unwrap() == 0));
        }
        assert_eq!(ended, 2);
        assert!(begin.elapsed() >= Duration::from_secs(1));
        // The last one takes the next request.
        let answer = spawn_local(sender.send_request(get("http://a.example/")));
        settle().await;
        assert_eq!(a.count.get(), 6);
        answer.abort();
    });
}

#[test]
fn a_stream_that_is_reset_ends_its_request_alone() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut sender = speak(connect(&site)).await;
        let lost = spawn_local(sender.send_request(get("http://a.example/lost")));
        let mut first = a.accept().await;
        head(&mut first.io).await;
        sender.ready().await.unwrap();
        let kept = spawn_local(sender.send_request(get("http://a.example/kept")));
        let mut second = a.accept().await;
        head(&mut second.io).await;
        lost.abort();
        assert_eq!(rest(&mut first.io).await, "");
        send(&mut second.io, &ok("kept")).await;
        assert_eq!(text(kept.await.unwrap().unwrap()).await, "kept");
    });
}

#[test]
fn a_target_that_dies_within_a_body_resets_the_stream() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut sender = speak(connect(&site)).await;
        let answer = spawn_local(sender.send_request(get("http://a.example/")));
        let mut target = a.accept().await;
        target.serve("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n").await;
        let response = answer.await.unwrap().unwrap();
        drop(target);
        assert!(response.into_body().collect().await.is_err());
    });
}

#[test]
fn a_visitor_that_does_not_read_stops_the_target() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut sender = speak(connect(&site)).await;
        let answer = spawn_local(sender.send_request(get("http://a.example/")));
        let mut target = a.accept().await;
        head(&mut target.io).await;
        send(&mut target.io, "HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n").await;
        let _unread = answer.await.unwrap().unwrap();
        let mut sent = 0;
        while let Ok(written) =
            tokio::time::timeout(Duration::from_secs(1), target.io.write(&[b'x'; 4096])).await
        {
            sent += written.unwrap();
        }
        // The window of hyper's client is 2 MiB.
        assert!(sent < 2 * BUFFER + 3 * 1024 * 1024, "{sent} bytes wait");
    });
}

#[test]
fn a_websocket_over_http2_becomes_an_upgrade() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut sender = speak(connect(&site)).await;
        // The settings of the server have to arrive first.
        sender.send_request(get("http://x.example/")).await.unwrap();
        let connect = || {
            let mut request = get("http://a.example/ws");
            *request.method_mut() = Method::CONNECT;
            request.headers_mut().insert("sec-websocket-version", "13".parse().unwrap());
            request.extensions_mut().insert(Protocol::from_static("websocket"));
            request
        };
        let answer = spawn_local(sender.send_request(connect()));
        let mut target = a.accept().await;
        let seen = head(&mut target.io).await;
        assert!(seen.starts_with("GET /ws HTTP/1.1\r\n"), "{seen}");
        assert_eq!(field(&seen, "connection"), Some("upgrade"), "{seen}");
        assert_eq!(field(&seen, "upgrade"), Some("websocket"), "{seen}");
        assert_eq!(field(&seen, "sec-websocket-version"), Some("13"), "{seen}");
        assert_eq!(field(&seen, "sec-websocket-key").map(str::len), Some(24), "{seen}");
        assert_eq!(field(&seen, "host"), Some("a.example"), "{seen}");
        send(
            &mut target.io,
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: y\r\nSec-WebSocket-Protocol: chat\r\n\r\nfirst",
        )
        .await;
        let response = answer.await.unwrap().unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["sec-websocket-protocol"], "chat");
        assert!(response.headers().get("sec-websocket-accept").is_none());
        let mut pipe = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
        let mut first = [0; 5];
        pipe.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"first");
        pipe.write_all(b"hello").await.unwrap();
        expect(&mut target.io, "hello").await;
        drop(target);
        assert_eq!(pipe.read(&mut first).await.unwrap(), 0);

        let answer = spawn_local(sender.send_request(connect()));
        a.accept().await.serve("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno").await;
        let response = answer.await.unwrap().unwrap();
        assert_eq!((response.status(), &*text(response).await), (StatusCode::FORBIDDEN, "no"));
    });
}

#[test]
fn a_plain_connect_gets_501() {
    on_worker(async {
        let site = Site::new();
        site.plain("a.example");
        let mut sender = speak(connect(&site)).await;
        let mut request = get("a.example:443");
        *request.method_mut() = Method::CONNECT;
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::NOT_IMPLEMENTED);
    });
}

#[test]
fn the_options_hold_for_streams() {
    on_worker(async {
        let site = Site::new();
        let options = HttpOptions {
            forwarded: true,
            basic_auth: vec!["anna:one".into()],
            ..HttpOptions::default()
        };
        let a = site.add("a.example", &options);
        let mut sender = speak(connect(&site)).await;
        let mut request = get("http://a.example/");
        *request.method_mut() = Method::PUT;
        *request.body_mut() = full("abc");
        request.headers_mut().insert("authorization", "Basic YW5uYTpvbmU=".parse().unwrap());
        request.headers_mut().insert("expect", "100-continue".parse().unwrap());
        let answer = spawn_local(sender.send_request(request));
        let mut target = a.accept().await;
        let seen = head(&mut target.io).await;
        assert_eq!(field(&seen, "x-forwarded-for"), Some("192.0.2.7"));
        assert_eq!(field(&seen, "x-forwarded-host"), Some("a.example"));
        assert_eq!(field(&seen, "authorization"), None);
        assert_eq!(field(&seen, "expect"), Some("100-continue"));
        expect(&mut target.io, "abc").await;
        send(&mut target.io, &ok("")).await;
        assert_eq!(answer.await.unwrap().unwrap().status(), 200);
        sender.ready().await.unwrap();
        let response = sender.send_request(get("http://a.example/")).await.unwrap();
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    });
}

#[test]
fn large_heads_get_431() {
    on_worker(async {
        let site = Site::new();
        site.plain("a.example");
        let mut sender = speak(connect(&site)).await;
        sender.send_request(get("http://x.example/")).await.unwrap();
        let mut request = get("http://a.example/");
        for _ in 0..101 {
            request.headers_mut().append("x", "1".parse().unwrap());
        }
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
        // The second is longer than the settings of the server permit.
        for length in [33_000, 60_000] {
            let mut request = get("http://a.example/");
            request.headers_mut().append("x", "1".repeat(length).parse().unwrap());
            let response = sender.send_request(request).await;
            let status = response.map(|response| response.status());
            assert!(
                !matches!(status, Ok(status) if status != StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
                "{length}: {status:?}"
            );
        }
    });
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// SETTINGS without a setting, and a ping.
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

/// Frames until the end of the connection: types and payloads.
async fn frames(client: &mut Client) -> Vec<(u8, Vec<u8>)> {
    let mut frames = Vec::new();
    let mut head = [0; 9];
    while client.io.read_exact(&mut head).await.is_ok() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        if client.io.read_exact(&mut payload).await.is_err() {
            break;
        }
        frames.push((head[3], payload));
    }
    frames
}

#[test]
fn the_preface_may_arrive_in_pieces_and_the_settings_bound_a_visitor() {
    on_worker(async {
        let site = Site::new();
        let mut client = connect(&site);
        for byte in PREFACE {
            client.io.write_all(&[*byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
        client.io.write_all(SETTINGS).await.unwrap();
        let mut head = [0; 9];
        client.io.read_exact(&mut head).await.unwrap();
        assert_eq!(head[3], 4, "the first frame is SETTINGS");
        let mut settings = vec![0; head[2] as usize];
        client.io.read_exact(&mut settings).await.unwrap();
        let value = |id: u16| {
            settings.chunks(6).find_map(|setting| {
                (setting[..2] == id.to_be_bytes())
                    .then(|| u32::from_be_bytes(setting[2..].try_into().unwrap()))
            })
        };
        assert_eq!(value(3), Some(128), "streams at a time");
        assert_eq!(value(4), Some(65_535), "window of a stream");
        assert_eq!(value(6), Some(48 * 1024), "size of a head");
        assert_eq!(value(8), Some(1), "extended CONNECT");
    });
}

/// Requests that are cancelled at once.
fn cancelled(streams: std::ops::Range<u32>) -> Vec<u8> {
    let mut all = Vec::new();
    for stream in streams.step_by(2) {
        all.extend(frame(1, 5, stream, &request("GET", &[])));
        all.extend(frame(3, 0, stream, &8u32.to_be_bytes()));
    }
    all
}

/// Maps, fields that search while a person types, and galleries do so.
#[test]
fn hundreds_of_cancelled_requests_end_themselves_and_no_other_request() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        let mut begin = PREFACE.to_vec();
        begin.extend(frame(4, 0, 0, &[]));
        begin.extend(frame(1, 5, 1, &request("GET", &[])));
        client.io.write_all(&begin).await.unwrap();
        let mut download = a.accept().await;
        head(&mut download.io).await;
        send(&mut download.io, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf").await;
        settle().await;
        client.io.write_all(&cancelled(3..1003)).await.unwrap();
        client.io.write_all(&frame(1, 5, 1003, &request("GET", &[]))).await.unwrap();
        settle().await;
        assert_eq!(a.count.get(), 2, "a request that was cancelled before it was looked at");
        a.accept().await.serve(&ok("later")).await;
        send(&mut download.io, "half").await;
        settle().await;
        client.stop();
        let frames = frames(&mut client).await;
        let of = |kind| frames.iter().filter(move |(own, _)| *own == kind);
        let mut bodies: Vec<_> = of(0).map(|(_, payload)| payload.as_slice()).collect();
        bodies.sort_unstable();
        assert_eq!(bodies.concat(), b"halfhalflater");
        assert!(of(7).all(|(_, away)| away[4..8] == [0; 4]), "{frames:?}");
    });
}

#[test]
fn a_flood_of_resets_ends_the_connection_in_order_and_then_at_once() {
    on_worker(async {
        let site = Site::new();
        site.plain("a.example");
        let mut client = connect(&site);
        client.io.write_all(PREFACE).await.unwrap();
        client.io.write_all(SETTINGS).await.unwrap();
        let flood = cancelled(1..10_000);
        let mut written = 0;
        // The server stops to read, or closes.
        while written < flood.len() {
            match tokio::time::timeout(Duration::from_secs(5), client.io.write(&flood[written..]))
                .await
            {
                Ok(Ok(length)) if length > 0 => written += length,
                _ => break,
            }
        }
        let begin = Instant::now();
        let frames = frames(&mut client).await;
        let mut codes = frames.iter().filter(|(kind, _)| *kind == 7).map(|(_, away)| away[7]);
        assert_eq!(codes.next(), Some(0), "NO_ERROR: {frames:?}");
        assert_eq!(codes.next_back(), Some(11), "ENHANCE_YOUR_CALM");
        assert!(begin.elapsed() < Duration::from_secs(60));
    });
}

#[test]
fn an_idle_connection_ends_after_5_minutes() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let client = connect(&site);
        let io = TokioIo::new(client.io);
        let (mut sender, connection) = http2::handshake(Local, io).await.unwrap();
        let connection = spawn_local(connection);
        let answer = spawn_local(sender.send_request(get("http://a.example/")));
        let mut target = a.accept().await;
        head(&mut target.io).await;
        tokio::time::sleep(Duration::from_secs(1000)).await;
        send(&mut target.io, &ok("slow")).await;
        assert_eq!(text(answer.await.unwrap().unwrap()).await, "slow");
        let begin = Instant::now();
        connection.await.unwrap().unwrap();
        assert_eq!(begin.elapsed(), Duration::from_secs(300));
        client.served.await.unwrap();
    });
}

#[test]
fn a_visitor_that_answers_no_ping_is_closed() {
    on_worker(async {
        let site = Site::new();
        let mut client = connect(&site);
        client.io.write_all(PREFACE).await.unwrap();
        client.io.write_all(SETTINGS).await.unwrap();
        let begin = Instant::now();
        let frames = frames(&mut client).await;
        assert!(frames.iter().any(|(kind, _)| *kind == 6), "a ping in {frames:?}");
        assert_eq!(begin.elapsed(), Duration::from_secs(80));
        client.served.await.unwrap();
    });
}

#[test]
fn a_visitor_that_is_gone_within_a_download_is_closed_as_well() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        let mut begin = PREFACE.to_vec();
        // Windows that hold the whole answer.
        begin.extend(frame(4, 0, 0, &[0, 4, 0x40, 0, 0, 0]));
        begin.extend(frame(8, 0, 0, &(1u32 << 30).to_be_bytes()));
        begin.extend(frame(1, 5, 1, &request("GET", &[])));
        client.io.write_all(&begin).await.unwrap();
        let mut target = a.accept().await;
        head(&mut target.io).await;
        let begin = Instant::now();
        send(&mut target.io, "HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n").await;
        while target.io.write_all(&[b'x'; 4096]).await.is_ok() {}
        assert_eq!(begin.elapsed(), Duration::from_secs(80), "the target is told");
        client.served.await.unwrap();
    });
}

#[test]
fn an_orderly_end_answers_the_current_streams() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        let (io, _) = tokio::io::duplex(1);
        let io = TokioIo::new(std::mem::replace(&mut client.io, io));
        let (mut sender, connection) = http2::handshake(Local, io).await.unwrap();
        let connection = spawn_local(connection);
        let answer = spawn_local(sender.send_request(get("http://a.example/")));
        let mut target = a.accept().await;
        head(&mut target.io).await;
        client.stop();
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(!client.served.is_finished());
        send(&mut target.io, &ok("last")).await;
        assert_eq!(text(answer.await.unwrap().unwrap()).await, "last");
        let begin = Instant::now();
        connection.await.unwrap().unwrap();
        assert_eq!(begin.elapsed(), Duration::ZERO);
        assert!(sender.is_closed());
    });
}

#[test]
fn a_target_over_http1_learns_that_a_body_is_empty() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut sender = speak(connect(&site)).await;
        for (method, length) in
            [("POST", Some("0")), ("PUT", Some("0")), ("PATCH", Some("0")), ("DELETE", None)]
        {
            let mut request = get("http://a.example/");
            *request.method_mut() = method.parse().unwrap();
            let answer = spawn_local(sender.send_request(request));
            let seen = a.accept().await.serve(&ok("")).await;
            assert_eq!(field(&seen, "content-length"), length, "{seen}");
            assert_eq!(field(&seen, "transfer-encoding"), None, "{seen}");
            assert_eq!(answer.await.unwrap().unwrap().status(), StatusCode::OK);
        }
    });
}

#[test]
fn options_hold_over_http2_as_over_http1() {
    on_worker(async {
        let site = Site::new();
        let to = proto::Redirect::new("https://{host}{uri}").unwrap();
        *site.redirect.borrow_mut() = Some(to);
        let options = HttpOptions {
            forwarded: true,
            host_rewrite: Some("localhost".into()),
            path: Some("/api".into()),
            strip_prefix: Some("/".into()),
            hsts: Some(60),
            ..HttpOptions::default()
        };
        let a = site.add("a.example", &options);
        let mut sender = speak(connect(&site)).await;
        let response = sender.send_request(get("http://a.example/x?y")).await.unwrap();
        assert_eq!(response.status(), StatusCode::PERMANENT_REDIRECT);
        assert_eq!(response.headers()["location"], "https://a.example/x?y");
        assert!(!response.headers().contains_key("strict-transport-security"));
        let tls = web::Visitor { secure: true, protocol: web::Protocol::H2, ..visitor() };
        let mut sender = speak(connect_as(&site, tls, web::Settings::default())).await;
        let mut request = get("https://a.example/api/v1?x");
        for (name, value) in [
            ("origin", "https://a.example"),
            ("x-real-ip", "203.0.113.9"),
            ("x-forwarded-for", "203.0.113.9"),
            ("true-client-ip", "203.0.113.9"),
        ] {
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        let answer = spawn_local(sender.send_request(request));
        let seen = a.accept().await.serve(&ok("")).await;
        assert!(seen.starts_with("GET /v1?x HTTP/1.1\r\n"), "{seen}");
        assert!(!seen.contains("203.0.113.9"), "{seen}");
        for (name, wanted) in [
            ("host", "localhost"),
            ("origin", "https://localhost"),
            ("x-real-ip", "192.0.2.7"),
            ("x-forwarded-for", "192.0.2.7"),
            ("x-forwarded-host", "a.example"),
            ("x-forwarded-prefix", "/api"),
        ] {
            assert_eq!(field(&seen, name), Some(wanted), "{name}");
        }
        let response = answer.await.unwrap().unwrap();
        assert_eq!(response.headers()["strict-transport-security"], "max-age=60");
    });
}
