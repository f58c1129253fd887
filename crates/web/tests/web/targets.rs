//! Targets over HTTP/2, by h2's server.

use std::{rc::Rc, time::Duration};

use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream, server};
use http_body_util::{BodyExt as _, combinators::BoxBody};
use hyper::{
    Request, Response, StatusCode, Version,
    body::{Frame, Incoming},
    client::conn::http2::{self, SendRequest},
    header::HeaderMap,
    rt::Executor,
};
use hyper_util::rt::TokioIo;
use proto::{Budget as _, Compress, HttpOptions, TargetProtocol};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream},
    sync::mpsc,
    task::{AbortHandle, spawn_local},
    time::Instant,
};

use crate::{
    frames::{
        END_HEADERS, END_STREAM, GOAWAY, HEADERS, Peer, RST_STREAM, SETTINGS, frame, request,
    },
    memory::{Crowd, KIB, MIB},
    rig::{Client, Site, Target, connect, field, ok, on_worker, settle, status},
};

type Body = BoxBody<Bytes, std::io::Error>;

#[derive(Clone)]
struct Local;

impl<F: Future + 'static> Executor<F> for Local {
    fn execute(&self, future: F) {
        spawn_local(async move {
            future.await;
        });
    }
}

/// The frames of a body, as a test sends them.
struct Frames(mpsc::Receiver<Frame<Bytes>>);

impl hyper::body::Body for Frames {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.0.poll_recv(cx).map(|frame| frame.map(Ok))
    }
}

fn body() -> (mpsc::Sender<Frame<Bytes>>, Body) {
    let (sender, frames) = mpsc::channel(16);
    (sender, Frames(frames).boxed())
}

fn data(text: &'static str) -> Frame<Bytes> {
    Frame::data(Bytes::from_static(text.as_bytes()))
}

async fn speak(client: Client) -> SendRequest<Body> {
    let (sender, connection) = http2::handshake(Local, TokioIo::new(client.io)).await.unwrap();
    spawn_local(connection);
    sender
}

fn call(kind: &str, body: Body) -> Request<Body> {
    Request::post("http://a.example/pkg.Service/Call?x=1")
        .version(Version::HTTP_2)
        .header("content-type", kind)
        .header("te", "trailers")
        .header("grpc-timeout", "5S")
        .body(body)
        .unwrap()
}

type Accepted = (Request<RecvStream>, server::SendResponse<Bytes>);

/// A target over HTTP/2: each of its requests.
struct Served {
    requests: mpsc::Receiver<Accepted>,
    task: AbortHandle,
}

impl Served {
    async fn next(&mut self) -> Accepted {
        self.requests.recv().await.unwrap()
    }
}

async fn serve(target: &Target, builder: &server::Builder) -> Served {
    let io: DuplexStream = target.accept().await.io;
    let mut connection = builder.handshake::<_, Bytes>(io).await.unwrap();
    let (sender, requests) = mpsc::channel(16);
    let task = spawn_local(async move {
        while let Some(Ok(accepted)) = connection.accept().await {
            let _ = sender.send(accepted).await;
        }
    });
    Served { requests, task: task.abort_handle() }
}

fn site(protocol: TargetProtocol) -> (Rc<Site>, Rc<Target>) {
    let site = Site::new();
    let a = site.add("a.example", &HttpOptions { target: protocol, ..HttpOptions::default() });
    (site, a)
}

async fn read(stream: &mut RecvStream) -> String {
    let bytes = stream.data().await.unwrap().unwrap();
    stream.flow_control().release_capacity(bytes.len()).unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn answer(respond: &mut server::SendResponse<Bytes>) -> SendStream<Bytes> {
    let head = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
    respond.send_response(head, false).unwrap()
}

fn trailers(name: &'static str, value: &str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert(name, value.parse().unwrap());
    trailers
}

#[test]
fn a_call_streams_both_ways_and_ends_with_trailers() {
    on_worker(async {
        for protocol in [TargetProtocol::H2c, TargetProtocol::Https] {
            let (site, a) = site(protocol);
            let mut sender = speak(connect(&site)).await;
            let (frames, sent) = body();
            let asked = spawn_local(sender.send_request(call("application/grpc+proto", sent)));
            let mut target = serve(&a, &server::Builder::new()).await;
            let (request, mut respond) = target.next().await;
            let scheme = if protocol == TargetProtocol::Https { "https" } else { "http" };
            assert_eq!(
                request.uri().to_string(),
                format!("{scheme}://a.example/pkg.Service/Call?x=1")
            );
            assert_eq!(request.headers()["te"], "trailers");
            assert_eq!(request.headers()["grpc-timeout"], "5S");
            assert!(!request.headers().contains_key("host"));
            assert!(!request.headers().contains_key("connection"));
            let mut upload = request.into_body();
            let mut stream = answer(&mut respond);
            let response = asked.await.unwrap().unwrap();
            let mut answered = response.into_body();
            for text in ["one", "two"] {
                frames.try_send(data(text)).unwrap();
                assert_eq!(read(&mut upload).await, text);
                stream.send_data(Bytes::from_static(text.as_bytes()), false).unwrap();
                let frame = answered.frame().await.unwrap().unwrap();
                assert_eq!(frame.into_data().unwrap(), text);
            }
            frames.try_send(Frame::trailers(trailers("x-end", "1"))).unwrap();
            drop(frames);
            assert!(upload.data().await.is_none());
            assert_eq!(upload.trailers().await.unwrap().unwrap()["x-end"], "1");
            stream.send_trailers(trailers("grpc-status", "0")).unwrap();
            let frame = answered.frame().await.unwrap().unwrap();
            assert_eq!(frame.into_trailers().unwrap()["grpc-status"], "0");
            assert!(answered.frame().await.is_none());
        }
    });
}

#[test]
fn a_cancelled_call_is_a_reset_at_the_target_and_the_other_calls_go_on() {
    on_worker(async {
        let (site, a) = site(TargetProtocol::H2c);
        let mut sender = speak(connect(&site)).await;
        let mut calls = Vec::new();
        for _ in 0..3 {
            let (frames, sent) = body();
            frames.try_send(data("x")).unwrap();
            calls.push((frames, spawn_local(sender.send_request(call("application/grpc", sent)))));
        }
        let mut target = serve(&a, &server::Builder::new()).await;
        let mut accepted = Vec::new();
        for _ in 0..3 {
            let (request, respond) = target.next().await;
            let mut upload = request.into_body();
            assert_eq!(read(&mut upload).await, "x");
            accepted.push((upload, respond));
        }
        // One call is cancelled before its answer, one within it.
        let (_frames, asked) = calls.remove(0);
        asked.abort();
        let (mut upload, mut respond) = accepted.remove(0);
        let reset = std::future::poll_fn(|cx| respond.poll_reset(cx)).await.unwrap();
        assert_eq!(reset, Reason::CANCEL);
        assert!(upload.data().await.unwrap().is_err());
        let (_, asked) = calls.remove(0);
        let (_upload, mut respond) = accepted.remove(0);
        let mut stream = answer(&mut respond);
        let response = asked.await.unwrap().unwrap();
        drop(response);
        let reset = std::future::poll_fn(|cx| stream.poll_reset(cx)).await.unwrap();
        assert_eq!(reset, Reason::CANCEL);
        let (_, asked) = calls.remove(0);
        let (_upload, mut respond) = accepted.remove(0);
        let mut stream = answer(&mut respond);
        stream.send_trailers(trailers("grpc-status", "0")).unwrap();
        let answered = asked.await.unwrap().unwrap().into_body().collect().await.unwrap();
        assert_eq!(answered.trailers().unwrap()["grpc-status"], "0");
        assert_eq!(a.count.get(), 1);
    });
}

#[test]
fn a_reset_of_the_target_has_its_reason_at_the_visitor() {
    on_worker(async {
        let (site, a) = site(TargetProtocol::H2c);
        let mut sender = speak(connect(&site)).await;
        let (_frames, sent) = body();
        let asked = spawn_local(sender.send_request(call("application/grpc", sent)));
        let mut target = serve(&a, &server::Builder::new()).await;
        let (_request, mut respond) = target.next().await;
        let mut stream = answer(&mut respond);
        let mut answered = asked.await.unwrap().unwrap().into_body();
        stream.send_reset(Reason::ENHANCE_YOUR_CALM);
        let error = answered.frame().await.unwrap().unwrap_err();
        let source = std::error::Error::source(&error).unwrap().downcast_ref::<h2::Error>();
        assert_eq!(source.unwrap().reason(), Some(Reason::ENHANCE_YOUR_CALM));
    });
}

#[test]
fn a_target_that_goes_away_gets_no_further_request_and_the_current_ones_are_answered() {
    on_worker(async {
        let (site, a) = site(TargetProtocol::H2c);
        let mut client = connect(&site);
        client.send("GET /1 HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        let io = a.accept().await.io;
        let mut connection = server::handshake(io).await.unwrap();
        let (request, mut respond) = connection.accept().await.unwrap().unwrap();
        assert_eq!(request.uri().path(), "/1");
        connection.graceful_shutdown();
        let head = Response::builder().header("content-length", "0").body(()).unwrap();
        respond.send_response(head, true).unwrap();
        while let Some(Ok(_)) = connection.accept().await {}
        assert_eq!(client.status().await, 200);
        client.send("GET /2 HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        let mut target = serve(&a, &server::Builder::new()).await;
        let (request, mut respond) = target.next().await;
        assert_eq!(request.uri().path(), "/2");
        let head = Response::builder().header("content-length", "0").body(()).unwrap();
        respond.send_response(head, true).unwrap();
        assert_eq!(client.status().await, 200);
    });
}

/// RFC 9113 section 6.8: the request in progress ends on the old connection.
#[test]
fn a_request_that_a_target_leaves_behind_as_it_goes_away_is_repeated_on_a_new_connection() {
    on_worker(async {
        for method in ["GET", "POST"] {
            let (site, a) = site(TargetProtocol::H2c);
            let peer = Peer::new(connect(&site).io, &[]);
            peer.send(HEADERS, END_HEADERS | END_STREAM, 1, &request("GET", &[])).await;
            let mut old = a.accept().await.io;
            old.write_all(&frame(SETTINGS, 0, 0, b"")).await.unwrap();
            settle().await;
            peer.send(HEADERS, END_HEADERS | END_STREAM, 3, &request(method, &[])).await;
            settle().await;
            let away = [1u32.to_be_bytes(), 0u32.to_be_bytes()].concat();
            old.write_all(&frame(GOAWAY, 0, 0, &away)).await.unwrap();
            let mut target = serve(&a, &server::Builder::new()).await;
            let (asked, mut respond) = target.next().await;
            assert_eq!(asked.method(), method);
            respond.send_response(Response::new(()), true).unwrap();
            settle().await;
            assert!(peer.is_ok(3), "{:?}", peer.seen(3));
            assert!(!peer.seen(1).ended);
            old.write_all(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0x88])).await.unwrap();
            settle().await;
            assert!(peer.is_ok(1), "{:?}", peer.seen(1));
            assert_eq!(a.count.get(), 2);
        }
    });
}

/// h2 throws away what it has of an answer that nobody wants, and does not tell how much it was.
#[test]
fn an_answer_arrives_after_another_one_was_given_up_while_memory_is_short() {
    on_worker(async {
        let options = HttpOptions { target: TargetProtocol::H2c, ..HttpOptions::default() };
        let crowd = Crowd::of(&options, 64 * MIB);
        // The visitor takes no body.
        let peer = Peer::new(crowd.visitor(web::Protocol::H2).unwrap().io, &[(4, 0)]);
        settle().await;
        peer.send(HEADERS, END_HEADERS | END_STREAM, 1, &request("GET", &[])).await;
        let mut target = serve(&crowd.target, &server::Builder::new()).await;
        let (_, mut first) = target.next().await;
        peer.send(HEADERS, END_HEADERS | END_STREAM, 3, &request("GET", &[])).await;
        let (_, mut second) = target.next().await;
        let mut stream = answer(&mut first);
        stream.send_data(Bytes::from(vec![b'x'; 1024 * 1024]), true).unwrap();
        settle().await;
        crowd.purse.charge(crowd.purse.left() - 4 * MIB);
        let begin = Instant::now();
        peer.send(RST_STREAM, 0, 1, &8u32.to_be_bytes()).await;
        settle().await;
        second.send_response(Response::new(()), true).unwrap();
        while !peer.is_ok(3) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    });
}

/// What is read meanwhile is a little at a time.
#[test]
fn a_target_over_http2_is_slow_while_memory_is_short() {
    on_worker(async {
        let options = HttpOptions { target: TargetProtocol::H2c, ..HttpOptions::default() };
        let crowd = Crowd::of(&options, 64 * MIB);
        let peer = Peer::new(crowd.visitor(web::Protocol::H2).unwrap().io, &[(4, 0)]);
        settle().await;
        let mut target = None;
        let mut streams = Vec::new();
        for nth in 0..8 {
            peer.send(HEADERS, END_HEADERS | END_STREAM, 2 * nth + 1, &request("GET", &[])).await;
            if target.is_none() {
                target = Some(serve(&crowd.target, &server::Builder::new()).await);
            }
            let (_, mut respond) = target.as_mut().unwrap().next().await;
            streams.push(answer(&mut respond));
        }
        settle().await;
        crowd.purse.charge(crowd.purse.left() - 4 * MIB);
        let before = crowd.purse.used();
        for stream in &mut streams {
            stream.send_data(Bytes::from(vec![b'x'; 1024 * 1024]), true).unwrap();
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let more = crowd.purse.used() - before;
        assert!(more < 512 * KIB, "{more} bytes of 2 MiB after a second");
    });
}

#[test]
fn requests_that_wait_for_the_same_connection_fail_with_it() {
    on_worker(async {
        let (site, a) = site(TargetProtocol::H2c);
        let mut sender = speak(connect(&site)).await;
        a.dial.set(Duration::from_secs(10));
        let reason = "the target does not answer".into();
        *a.refusal.borrow_mut() = Some(web::OpenFailed { status: 504, reason });
        let begin = Instant::now();
        let mut calls = Vec::new();
        for _ in 0..5 {
            let (frames, sent) = body();
            drop(frames);
            calls.push(spawn_local(sender.send_request(call("application/grpc", sent))));
        }
        for asked in calls {
            assert_eq!(asked.await.unwrap().unwrap().status(), StatusCode::GATEWAY_TIMEOUT);
        }
        assert_eq!((a.count.get(), begin.elapsed()), (0, Duration::from_secs(10)));
        // A later request dials.
        let (frames, sent) = body();
        drop(frames);
        let asked = spawn_local(sender.send_request(call("application/grpc", sent)));
        let mut target = serve(&a, &server::Builder::new()).await;
        let (_request, mut respond) = target.next().await;
        answer(&mut respond).send_trailers(trailers("grpc-status", "0")).unwrap();
        assert_eq!(asked.await.unwrap().unwrap().status(), StatusCode::OK);
    });
}

#[test]
fn a_request_that_was_not_processed_is_repeated_with_its_body() {
    on_worker(async {
        let (site, a) = site(TargetProtocol::H2c);
        let mut client = connect(&site);
        let post = "POST /1 HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\n\r\nbody";
        client.send(post).await;
        let mut target = serve(&a, &server::Builder::new()).await;
        for _ in 0..5 {
            let (request, mut respond) = target.next().await;
            assert_eq!(read(&mut request.into_body()).await, "body");
            respond.send_reset(Reason::REFUSED_STREAM);
        }
        let (request, mut respond) = target.next().await;
        assert_eq!(read(&mut request.into_body()).await, "body");
        let head = Response::builder().header("content-length", "0").body(()).unwrap();
        respond.send_response(head, true).unwrap();
        assert_eq!(client.status().await, 200);
        // A target that refuses for ever is believed after seconds.
        client.send(post).await;
        let begin = Instant::now();
        let refusing = spawn_local(async move {
            loop {
                let (_, mut respond) = target.next().await;
                respond.send_reset(Reason::REFUSED_STREAM);
            }
        });
        let (head, body) = client.answer().await;
        assert_eq!(status(&head), 502);
        assert!(body.contains("refused stream"), "{body}");
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
        refusing.abort();
        assert_eq!(a.count.get(), 1);
    });
}

#[test]
fn a_reset_of_a_target_that_may_have_processed_a_request_is_no_reason_to_repeat_it() {
    on_worker(async {
        let (site, a) = site(TargetProtocol::H2c);
        let mut client = connect(&site);
        client.send("POST /2 HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n").await;
        let mut target = serve(&a, &server::Builder::new()).await;
        let (_, mut respond) = target.next().await;
        respond.send_reset(Reason::INTERNAL_ERROR);
        assert_eq!(client.status().await, 502);
        assert_eq!(a.count.get(), 1);
    });
}

/// The visitor has the body still, or knows what to do without it.
#[test]
fn a_refusal_of_a_request_whose_body_is_gone_is_passed_on_to_a_visitor_of_http2() {
    on_worker(async {
        let (site, a) = site(TargetProtocol::H2c);
        let peer = Peer::new(connect(&site).io, &[]);
        peer.send(HEADERS, END_HEADERS, 1, &request("POST", &[])).await;
        let mut target = serve(&a, &server::Builder::new()).await;
        let (asked, mut respond) = target.next().await;
        let mut upload = asked.into_body();
        let sending = peer.body(1, 200_000, 10_000);
        let reading = async {
            let mut read = 0;
            while read < 100_000 {
                let piece = upload.data().await.unwrap().unwrap();
                upload.flow_control().release_capacity(piece.len()).unwrap();
                read += piece.len();
            }
        };
        tokio::join!(sending, reading);
        respond.send_reset(Reason::REFUSED_STREAM);
        settle().await;
        assert_eq!(peer.seen(1).reset, Some(7), "REFUSED_STREAM: {:?}", peer.seen(1));
        assert!(peer.seen(1).heads.is_empty());
        assert_eq!(*peer.goaway.borrow(), None);
    });
}

#[test]
fn a_burst_on_a_new_connection_waits_for_the_limit_of_the_target() {
    on_worker(async {
        let (site, a) = site(TargetProtocol::H2c);
        let mut sender = speak(connect(&site)).await;
        let mut calls = Vec::new();
        for _ in 0..100 {
            let (frames, sent) = body();
            frames.try_send(data("x")).unwrap();
            drop(frames);
            calls.push(spawn_local(sender.send_request(call("application/grpc", sent))));
        }
        // The settings of the target arrive after the requests.
        let mut io = a.accept().await.io;
        settle().await;
        let mut begin = vec![0; 64 * 1024];
        let length = io.read(&mut begin).await.unwrap();
        let mut kinds = Vec::new();
        let mut rest = &begin[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len()..length];
        while let Some((head, _)) = rest.split_at_checked(9) {
            kinds.push(head[3]);
            rest = &rest[9 + u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize..];
        }
        let heads = kinds.iter().filter(|kind| **kind == HEADERS).count();
        assert_eq!(heads, 1, "requests before the settings: {kinds:?}");
        drop(io);
        drop(calls);

        let (site, a) = self::site(TargetProtocol::H2c);
        let mut sender = speak(connect(&site)).await;
        let mut calls = Vec::new();
        for _ in 0..100 {
            let (frames, sent) = body();
            frames.try_send(data("x")).unwrap();
            drop(frames);
            calls.push(spawn_local(sender.send_request(call("application/grpc", sent))));
        }
        let mut target = serve(&a, server::Builder::new().max_concurrent_streams(4)).await;
        for _ in 0..100 {
            let (request, mut respond) = target.next().await;
            assert_eq!(read(&mut request.into_body()).await, "x");
            answer(&mut respond).send_trailers(trailers("grpc-status", "0")).unwrap();
        }
        for asked in calls {
            assert_eq!(asked.await.unwrap().unwrap().status(), StatusCode::OK);
        }
        assert_eq!(a.count.get(), 1);
    });
}

#[test]
fn the_limit_of_streams_of_the_target_is_obeyed() {
    on_worker(async {
        let (site, a) = site(TargetProtocol::H2c);
        let mut sender = speak(connect(&site)).await;
        let mut calls = Vec::new();
        for _ in 0..5 {
            let (frames, sent) = body();
            drop(frames);
            calls.push(spawn_local(sender.send_request(call("application/grpc", sent))));
        }
        let mut target = serve(&a, server::Builder::new().max_concurrent_streams(2)).await;
        for _ in 0..5 {
            let (_request, mut respond) = target.next().await;
            let mut stream = answer(&mut respond);
            tokio::time::sleep(Duration::from_secs(1)).await;
            stream.send_trailers(trailers("grpc-status", "0")).unwrap();
        }
        for asked in calls {
            assert_eq!(asked.await.unwrap().unwrap().status(), StatusCode::OK);
        }
        assert_eq!(a.count.get(), 1);
    });
}

#[test]
fn a_slow_visitor_stops_its_own_stream_alone() {
    on_worker(async {
        let (site, a) = site(TargetProtocol::H2c);
        // A visitor of HTTP/2 that reads nothing of some answers.
        let (io, mut sender) = {
            let client = connect(&site);
            let (sender, connection) = http2::Builder::new(Local)
                .initial_connection_window_size(64 * 1024 * 1024)
                .handshake::<_, Body>(TokioIo::new(client.io))
                .await
                .unwrap();
            (spawn_local(connection), sender)
        };
        let mut slow = Vec::new();
        let mut target = None;
        for _ in 0..8 {
            let (frames, sent) = body();
            drop(frames);
            let asked = spawn_local(sender.send_request(call("application/grpc", sent)));
            if target.is_none() {
                target = Some(serve(&a, &server::Builder::new()).await);
            }
            let (_request, mut respond) = target.as_mut().unwrap().next().await;
            let mut stream = answer(&mut respond);
            stream.send_data(Bytes::from(vec![b'x'; 8 * 1024 * 1024]), true).unwrap();
            let response: Response<Incoming> = asked.await.unwrap().unwrap();
            slow.push((response, stream));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (frames, sent) = body();
        drop(frames);
        let asked = spawn_local(sender.send_request(call("application/grpc", sent)));
        let (_request, mut respond) = target.as_mut().unwrap().next().await;
        let mut stream = answer(&mut respond);
        stream.send_data(Bytes::from(vec![b'y'; 1024 * 1024]), true).unwrap();
        let quick = asked.await.unwrap().unwrap().into_body().collect().await.unwrap();
        assert_eq!(quick.to_bytes().len(), 1024 * 1024);
        io.abort();
    });
}

#[test]
fn an_idle_connection_ends() {
    on_worker(async {
        let (site, a) = site(TargetProtocol::H2c);
        let mut client = connect(&site);
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        let mut target = serve(&a, &server::Builder::new()).await;
        let (_, mut respond) = target.next().await;
        let head = Response::builder().header("content-length", "0").body(()).unwrap();
        respond.send_response(head, true).unwrap();
        assert_eq!(client.status().await, 200);
        tokio::time::sleep(Duration::from_secs(70)).await;
        assert!(target.requests.recv().await.is_none(), "the connection has ended");
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        let mut target = serve(&a, &server::Builder::new()).await;
        let (_, mut respond) = target.next().await;
        let head = Response::builder().header("content-length", "0").body(()).unwrap();
        respond.send_response(head, true).unwrap();
        assert_eq!(client.status().await, 200);
        target.task.abort();
    });
}

#[test]
fn only_grpc_needs_http2_at_a_target_over_tls() {
    on_worker(async {
        let (site, a) = site(TargetProtocol::Https);
        let mut client = connect(&site);
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        let mut target = a.accept().await;
        let seen = target.serve(&ok("1")).await;
        assert_eq!(field(&seen, "host"), Some("a.example"));
        assert_eq!(client.answer().await.1, "1");
        let mut sender = speak(connect(&site)).await;
        let (frames, sent) = body();
        drop(frames);
        let asked = spawn_local(sender.send_request(call("application/json", sent)));
        let seen = a.accept().await.serve(&ok("2")).await;
        assert!(seen.starts_with("POST /pkg.Service/Call?x=1 HTTP/1.1\r\n"), "{seen}");
        assert_eq!(asked.await.unwrap().unwrap().status(), StatusCode::OK);
    });
}

#[test]
fn a_switch_of_protocols_does_not_reach_a_target_over_http2() {
    on_worker(async {
        let (site, a) = site(TargetProtocol::H2c);
        let mut client = connect(&site);
        client
            .send("GET / HTTP/1.1\r\nHost: a.example\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
            .await;
        assert_eq!(client.status().await, 501);
        assert_eq!(a.count.get(), 0);
    });
}

#[test]
fn a_long_answer_of_a_target_over_http2_is_compressed_and_arrives_whole() {
    on_worker(async {
        let site = Site::new();
        let (target, compress) = (TargetProtocol::H2c, Compress::Public);
        let a = site.add("a.example", &HttpOptions { target, compress, ..HttpOptions::default() });
        let mut sender = speak(connect(&site)).await;
        let (frames, sent) = body();
        drop(frames);
        let mut request = call("text/plain", sent);
        request.headers_mut().insert("accept-encoding", "gzip".parse().unwrap());
        let asked = spawn_local(sender.send_request(request));
        let mut target = serve(&a, &server::Builder::new()).await;
        let (_, mut respond) = target.next().await;
        let head = Response::builder().header("content-type", "text/plain").body(()).unwrap();
        let mut stream = respond.send_response(head, false).unwrap();
        // More than every window, so what is read has to be counted.
        let piece = Bytes::from("0123456789abcdef".repeat(1024));
        for _ in 0..1_000 {
            stream.send_data(piece.clone(), false).unwrap();
        }
        stream.send_trailers(trailers("x-end", "1")).unwrap();
        let response = asked.await.unwrap().unwrap();
        assert_eq!(response.headers()["content-encoding"], "gzip");
        let whole = response.into_body().collect().await.unwrap();
        assert_eq!(whole.trailers().unwrap()["x-end"], "1");
        let mut decoder = flate2::write::GzDecoder::new(Vec::new());
        std::io::Write::write_all(&mut decoder, &whole.to_bytes()).unwrap();
        assert_eq!(decoder.finish().unwrap().len(), 1_000 * piece.len());
    });
}
