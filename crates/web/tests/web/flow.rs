//! Streams of HTTP/2 do not interfere (RFC 9113 section 5.2), their windows grow with the path, and
//! what they hold is bounded.

use std::{cell::Cell, rc::Rc, time::Duration};

use proto::Budget as _;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream},
    sync::Notify,
    task::spawn_local,
    time::Instant,
};

use crate::{
    frames::{
        DATA, END_HEADERS, END_STREAM, HEADERS, PING, Peer, RST_STREAM, WINDOW_UPDATE, path,
        request,
    },
    memory::{Crowd, KIB, MIB},
    rig::{Client, Remote, Site, connect, head, ok, on_worker, send, settle},
};

const WINDOW: usize = 65_535;
const INITIAL_WINDOW_SIZE: u16 = 4;

fn speak(client: Client) -> Peer {
    Peer::new(client.io, &[])
}

/// Opens a stream for a body, and fills its window.
async fn wait_with(peer: &Peer, stream: u32, bytes: usize, size: usize) {
    peer.send(HEADERS, END_HEADERS, stream, &request("POST", &[])).await;
    peer.body(stream, bytes, size).await;
}

/// Takes a chunked body of so many bytes.
async fn drain(remote: &mut Remote, bytes: usize) {
    let mut left = bytes;
    while left > 0 {
        let mut size = String::new();
        while !size.ends_with("\r\n") {
            size.push(remote.io.read_u8().await.unwrap().into());
        }
        let length = usize::from_str_radix(size.trim_end(), 16).unwrap();
        let mut chunk = vec![0; length + 2];
        remote.io.read_exact(&mut chunk).await.unwrap();
        left -= length;
    }
}

#[test]
fn uploads_that_wait_leave_room_for_the_last_one() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let peer = speak(connect(&site));
        let mut waiting = Vec::new();
        for nth in 0..127 {
            wait_with(&peer, 2 * nth + 1, WINDOW, 16_384).await;
            // The target takes no byte of the body.
            waiting.push(a.accept().await);
        }
        settle().await;
        let last = 2 * 127 + 1;
        peer.send(HEADERS, END_HEADERS, last, &request("POST", &[])).await;
        let mut target = a.accept().await;
        head(&mut target.io).await;
        for _ in 0..40 {
            peer.body(last, 30_000, 16_384).await;
            drain(&mut target, 30_000).await;
        }
        send(&mut target.io, &ok("last")).await;
        settle().await;
        assert!(peer.is_ok(last), "{:?}", peer.seen(last));
        // The others go on as soon as their target does.
        for (nth, target) in waiting.iter_mut().enumerate() {
            let stream = 2 * u32::try_from(nth).unwrap() + 1;
            head(&mut target.io).await;
            drain(target, WINDOW).await;
            settle().await;
            peer.send(DATA, END_STREAM, stream, b"end").await;
            drain(target, 3).await;
            send(&mut target.io, &ok("x")).await;
            settle().await;
            assert!(peer.is_ok(stream), "stream {stream}: {:?}", peer.seen(stream));
        }
    });
}

#[test]
fn frames_of_one_byte_that_wait_cost_a_byte_and_hold_up_nobody() {
    on_worker(async {
        let crowd = Crowd::new(64 * MIB);
        let client = crowd.visitor(web::Protocol::H2).unwrap();
        let peer = speak(client);
        let mut waiting = Vec::new();
        for nth in 0..8 {
            wait_with(&peer, 2 * nth + 1, 20_000, 1).await;
            waiting.push(crowd.target.accept().await);
        }
        settle().await;
        assert!(crowd.purse.used() < 8 * 112 * KIB, "{}", crowd.purse.used());
        peer.send(HEADERS, END_HEADERS | END_STREAM, 101, &request("GET", &[])).await;
        crowd.target.accept().await.serve(&ok("x")).await;
        settle().await;
        assert!(peer.is_ok(101), "{:?}", peer.seen(101));
        head(&mut waiting[0].io).await;
        drain(&mut waiting[0], 20_000).await;
    });
}

/// The time in which an upload of `size` bytes passes a path of 700 Mbit/s with a round trip of
/// 100 ms, and the target has answered.
async fn upload(size: usize, is_h2: bool) -> Duration {
    let site = Site::new();
    let a = site.plain("a.example");
    let mut client = connect(&site);
    let io = std::mem::replace(&mut client.io, tokio::io::duplex(1).0);
    let mut near = path(io, 87_500_000, Duration::from_millis(50));
    let begin = Instant::now();
    let served = spawn_local(async move {
        let mut target = a.accept().await;
        head(&mut target.io).await;
        let mut left = size;
        let mut piece = vec![0; 64 * 1024];
        while left > 0 {
            let most = left.min(piece.len());
            left -= target.io.read(&mut piece[..most]).await.unwrap();
        }
        send(&mut target.io, &ok("done")).await;
        target
    });
    let length = size.to_string();
    let mut peer = None;
    if is_h2 {
        let started = Peer::new(near, &[]);
        let fields = request("POST", &[("content-length", &length)]);
        started.send(HEADERS, END_HEADERS, 1, &fields).await;
        let mut sent = 0;
        while sent < size {
            let window = WINDOW + usize::try_from(started.seen(1).granted).unwrap() - sent;
            let part = window.min(16_384).min(size - sent);
            if part == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            } else {
                started.body(1, part, 16_384).await;
                sent += part;
            }
        }
        while !started.is_ok(1) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        peer = Some(started);
    } else {
        let head =
            format!("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: {length}\r\n\r\n");
        near.write_all(head.as_bytes()).await.unwrap();
        let piece = vec![b'x'; 64 * 1024];
        let mut left = size;
        while left > 0 {
            let part = left.min(piece.len());
            near.write_all(&piece[..part]).await.unwrap();
            left -= part;
        }
        crate::rig::head(&mut near).await;
    }
    let time = begin.elapsed();
    served.await.unwrap();
    drop((peer, client));
    time
}

#[test]
fn an_upload_on_a_long_path_is_as_fast_as_over_http1() {
    on_worker(async {
        let size = 128 << 20;
        let (h1, h2) = (upload(size, false).await, upload(size, true).await);
        let ratio = h1.as_secs_f64() / h2.as_secs_f64();
        assert!(ratio > 0.8, "{h2:?} over HTTP/2, {h1:?} over HTTP/1.1");
    });
}

/// The time in which a download and an upload of 4 MiB each pass beside a stream that nobody reads
/// in either direction.
async fn beside(stalled: bool) -> (Duration, u64) {
    const SIZE: usize = 4 << 20;
    let crowd = Crowd::new(256 * MIB);
    let mut client = crowd.visitor(web::Protocol::H2).unwrap();
    let io = std::mem::replace(&mut client.io, tokio::io::duplex(1).0);
    let near = path(io, 12_500_000, Duration::from_millis(10));
    let peer = Rc::new(Peer::new(near, &[(INITIAL_WINDOW_SIZE, 65_535)]));
    let mut held = Vec::new();
    if stalled {
        for stream in [1, 3, 5] {
            wait_with(&peer, stream, WINDOW, 16_384).await;
            let mut remote = crowd.target.accept().await;
            head(&mut remote.io).await;
            send(&mut remote.io, "HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n").await;
            let (mut reader, mut writer) = tokio::io::split(remote.io);
            held.push(spawn_local(async move {
                while writer.write_all(&[7; 16 << 10]).await.is_ok() {}
                let _ = reader.read(&mut [0]).await;
            }));
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    let begin = Instant::now();
    peer.send(HEADERS, END_HEADERS | END_STREAM, 101, &request("GET", &[])).await;
    peer.send(WINDOW_UPDATE, 0, 101, &(1u32 << 30).to_be_bytes()).await;
    let mut remote = crowd.target.accept().await;
    let served = spawn_local(async move {
        head(&mut remote.io).await;
        send(&mut remote.io, &format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n")).await;
        for _ in 0..SIZE / 16384 {
            remote.io.write_all(&[7; 16384]).await.unwrap();
        }
        remote
    });
    let length = SIZE.to_string();
    peer.send(HEADERS, END_HEADERS, 103, &request("POST", &[("content-length", &length)])).await;
    let mut remote = crowd.target.accept().await;
    let taken = spawn_local(async move {
        head(&mut remote.io).await;
        let mut body = vec![0; SIZE];
        remote.io.read_exact(&mut body).await.unwrap();
        remote
    });
    let mut sent = 0;
    while sent < SIZE {
        let window = WINDOW + usize::try_from(peer.seen(103).granted).unwrap() - sent;
        let part = window.min(16_384).min(SIZE - sent);
        if part == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        } else {
            peer.body(103, part, 16_384).await;
            sent += part;
        }
    }
    served.await.unwrap();
    taken.await.unwrap();
    while peer.seen(101).body < SIZE {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let time = begin.elapsed();
    let peak = crowd.purse.peak.get();
    held.iter().for_each(tokio::task::JoinHandle::abort);
    (time, peak)
}

#[test]
fn streams_keep_their_rate_beside_a_reader_that_never_reads() {
    on_worker(async {
        let ((alone, base), (beside, peak)) = (beside(false).await, beside(true).await);
        let ratio = alone.as_secs_f64() / beside.as_secs_f64();
        assert!(ratio >= 0.9, "{beside:?} beside streams that stall, {alone:?} alone");
        // Each stream that stalls holds a window that has grown once, and blocks of its answer.
        assert!(peak < base + 3 * 1600 * KIB, "{peak} bytes beside them, {base} alone");
    });
}

#[test]
fn a_thousand_slow_uploads_stay_within_the_budget_and_never_stop_a_newcomer() {
    on_worker(async {
        for budget in [16 * MIB, 64 * MIB, 256 * MIB] {
            let crowd = Crowd::new(budget);
            let mut peers = Vec::new();
            let mut targets = Vec::new();
            for _ in 0..8 {
                let Some(client) = crowd.visitor(web::Protocol::H2) else { break };
                let peer = Peer::new(client.io, &[]);
                settle().await;
                for nth in 0..125 {
                    wait_with(&peer, 2 * nth + 1, 16_384, 1024).await;
                    settle().await;
                    while crowd.target.count.get() > u32::try_from(targets.len()).unwrap() {
                        targets.push(crowd.target.accept().await);
                    }
                }
                peers.push((peer, client.served));
            }
            let (peak, refused) = (crowd.purse.peak.get(), crowd.refused.get());
            assert!(peak <= budget, "{peak} bytes of {budget}");
            assert!(
                crowd.serves_a_newcomer().await,
                "budget {budget}: {} in use",
                crowd.purse.used()
            );
            // Each upload that was admitted can end.
            let admitted = targets.len();
            for target in &mut targets {
                head(&mut target.io).await;
                drain(target, 16_384).await;
                send(&mut target.io, &ok("x")).await;
            }
            settle().await;
            let streams = (0..125).map(|nth| 2 * nth + 1);
            let answered = peers
                .iter()
                .flat_map(|(peer, _)| streams.clone().filter(|&stream| peer.is_ok(stream)));
            assert_eq!(answered.count(), admitted, "budget {budget}");
            println!(
                "budget {} MiB: {admitted} of 1000 uploads at a time, {} KiB at most, {refused} got 503",
                budget / MIB,
                peak / KIB
            );
            let least =
                [30, 300, 1000][[16, 64, 256].iter().position(|n| n * MIB == budget).unwrap()];
            assert!(admitted >= least, "budget {budget}: {admitted}");
            drop((peers, targets));
            settle().await;
            assert_eq!(crowd.purse.used(), 0);
        }
    });
}

#[test]
fn more_than_the_window_ends_the_connection_with_a_flow_control_error() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let peer = speak(connect(&site));
        wait_with(&peer, 1, WINDOW + 1, 16_384).await;
        let _waiting = a.accept().await;
        settle().await;
        assert_eq!(*peer.goaway.borrow(), Some(3), "FLOW_CONTROL_ERROR");
    });
}

#[test]
fn an_upload_that_the_visitor_gives_up_breaks_at_the_target_and_gives_its_memory_back() {
    on_worker(async {
        let crowd = Crowd::new(256 * MIB);
        let peer = Peer::new(crowd.visitor(web::Protocol::H2).unwrap().io, &[]);
        settle().await;
        let before = crowd.purse.used();
        wait_with(&peer, 1, 40_000, 16_384).await;
        let mut target = crowd.target.accept().await;
        settle().await;
        assert!(crowd.purse.used() >= before + 64 * KIB);
        peer.send(RST_STREAM, 0, 1, &8u32.to_be_bytes()).await;
        let mut rest = Vec::new();
        let _ = target.io.read_to_end(&mut rest).await;
        assert!(!rest.ends_with(b"0\r\n\r\n"), "the body has no end");
        drop(target);
        settle().await;
        assert!(crowd.purse.used() <= before + 24 * KIB, "{} of {before}", crowd.purse.used());
    });
}

#[test]
fn an_answer_before_the_end_of_an_upload_ends_the_stream_without_an_error() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let peer = speak(connect(&site));
        wait_with(&peer, 1, 10_000, 10_000).await;
        let mut target = a.accept().await;
        head(&mut target.io).await;
        drain(&mut target, 10_000).await;
        send(&mut target.io, &ok("enough")).await;
        settle().await;
        let seen = peer.seen(1);
        assert!(peer.is_ok(1) && seen.ended && seen.body == 6, "{seen:?}");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(peer.seen(1).reset, Some(0), "NO_ERROR");
        // The connection goes on.
        peer.send(HEADERS, END_HEADERS | END_STREAM, 3, &request("GET", &[])).await;
        a.accept().await.serve(&ok("x")).await;
        settle().await;
        assert!(peer.is_ok(3));
    });
}

#[test]
fn as_many_cookies_as_a_browser_keeps_pass_as_one_field() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let peer = speak(connect(&site));
        let cookies: Vec<_> =
            (0..180).map(|nth| format!("name{nth:03}={}", "v".repeat(100))).collect();
        let fields: Vec<_> = cookies.iter().map(|cookie| ("cookie", cookie.as_str())).collect();
        let block = request("GET", &fields);
        // A frame of 16 KiB does not hold them.
        let (first, rest) = block.split_at(16_000);
        peer.send(HEADERS, END_STREAM, 1, first).await;
        peer.send(9, END_HEADERS, 1, rest).await;
        let mut target = a.accept().await;
        let seen = target.serve(&ok("x")).await;
        let expected = format!("Cookie: {}\r\n", cookies.join("; "));
        assert!(seen.contains(&expected), "{seen}");
        settle().await;
        assert!(peer.is_ok(1));
    });
}

/// One direction of a path.
#[derive(Default)]
struct Valve {
    is_shut: Cell<bool>,
    moved: Notify,
}

impl Valve {
    fn set(&self, is_shut: bool) {
        self.is_shut.set(is_shut);
        self.moved.notify_one();
    }

    async fn pass(
        self: Rc<Self>,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
    ) {
        let mut piece = vec![0; 64 * 1024];
        loop {
            while self.is_shut.get() {
                self.moved.notified().await;
            }
            match from.read(&mut piece).await {
                Ok(length @ 1..) if to.write_all(&piece[..length]).await.is_ok() => {}
                _ => return,
            }
            // Time for the next piece to be shut out.
            tokio::time::sleep(Duration::from_micros(1)).await;
        }
    }
}

/// A visitor whose directions can be stopped: to the server, and from it.
fn stoppable(io: DuplexStream) -> (Peer, Rc<Valve>, Rc<Valve>) {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let ((up_from, down_to), (down_from, up_to)) = (tokio::io::split(far), tokio::io::split(io));
    let (up, down) = (Rc::<Valve>::default(), Rc::<Valve>::default());
    spawn_local(Rc::clone(&up).pass(up_from, up_to));
    spawn_local(Rc::clone(&down).pass(down_from, down_to));
    (Peer::new(near, &[(INITIAL_WINDOW_SIZE, 1 << 30)]), up, down)
}

/// h2 answers a ping before it looks at the next frame, so the socket has to take the answer.
#[test]
fn an_upload_behind_a_ping_arrives_once_the_visitor_reads_its_download() {
    on_worker(async {
        for is_before in [true, false] {
            let crowd = Crowd::new(64 * MIB);
            let client = crowd.visitor(web::Protocol::H2).unwrap();
            let (peer, up, down) = stoppable(client.io);
            peer.send(HEADERS, END_HEADERS | END_STREAM, 1, &request("GET", &[])).await;
            let mut download = crowd.target.accept().await;
            peer.send(HEADERS, END_HEADERS, 3, &request("POST", &[("content-length", "5")])).await;
            let mut upload = crowd.target.accept().await;
            head(&mut upload.io).await;
            settle().await;
            down.set(true);
            spawn_local(async move {
                head(&mut download.io).await;
                let length = "HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n";
                send(&mut download.io, length).await;
                while download.io.write_all(&[7; 16 << 10]).await.is_ok() {}
            });
            settle().await;
            // Both frames come with one read.
            up.set(true);
            settle().await;
            if is_before {
                peer.send(DATA, END_STREAM, 3, b"hello").await;
                peer.send(PING, 0, 0, b"12345678").await;
            } else {
                peer.send(PING, 0, 0, b"12345678").await;
                peer.send(DATA, END_STREAM, 3, b"hello").await;
            }
            settle().await;
            up.set(false);
            settle().await;
            if !is_before {
                down.set(false);
            }
            let mut body = [0; 5];
            let read = upload.io.read_exact(&mut body);
            let read = tokio::time::timeout(Duration::from_secs(5), read).await;
            assert!(read.is_ok_and(|read| read.is_ok()), "before the ping: {is_before}");
            assert_eq!(&body, b"hello");
            down.set(false);
            send(&mut upload.io, &ok("x")).await;
            settle().await;
            assert!(peer.is_ok(3), "{:?}", peer.seen(3));
        }
    });
}

/// The bytes of such an upload count once.
#[test]
fn the_window_of_an_upload_behind_pings_grants_what_was_consumed() {
    const PART: usize = 16_000;
    on_worker(async {
        let crowd = Crowd::new(256 * MIB);
        let client = crowd.visitor(web::Protocol::H2).unwrap();
        let (peer, up, down) = stoppable(client.io);
        peer.send(HEADERS, END_HEADERS | END_STREAM, 1, &request("GET", &[])).await;
        let mut download = crowd.target.accept().await;
        peer.send(HEADERS, END_HEADERS, 3, &request("POST", &[])).await;
        let mut upload = crowd.target.accept().await;
        head(&mut upload.io).await;
        // Windows do not grow.
        crowd.purse.charge(crowd.purse.left() - 68 * MIB);
        spawn_local(async move {
            head(&mut download.io).await;
            let length = "HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n";
            send(&mut download.io, length).await;
            while download.io.write_all(&[7; 16 << 10]).await.is_ok() {}
        });
        let (mut sent, mut taken) = (0, 0);
        for round in 0..12 {
            down.set(true);
            settle().await;
            up.set(true);
            settle().await;
            // Some bytes stand in front of the ping, and are taken with those behind it.
            if round % 2 == 1 {
                peer.body(3, PART / 2, PART).await;
                peer.send(PING, 0, 0, b"12345678").await;
                peer.body(3, PART / 2, PART).await;
            } else {
                peer.send(PING, 0, 0, b"12345678").await;
                peer.body(3, PART, PART).await;
            }
            sent += PART;
            settle().await;
            up.set(false);
            settle().await;
            down.set(false);
            settle().await;
            // The next frame brings what is left.
            peer.body(3, 10, 10).await;
            sent += 10;
            settle().await;
            drain(&mut upload, sent - taken).await;
            taken = sent;
            settle().await;
            let granted = usize::try_from(peer.seen(3).granted).unwrap();
            assert!(granted <= sent, "{granted} bytes beyond the first window after {sent}");
            assert_eq!(*peer.goaway.borrow(), None);
        }
        let granted = usize::try_from(peer.seen(3).granted).unwrap();
        assert!(granted + WINDOW / 2 >= sent, "{granted} of {sent}");
    });
}
