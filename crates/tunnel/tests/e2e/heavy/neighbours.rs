//! Bad neighbours: slow readers, silent peers, invalid data, and a very large number of idle
//! visitors.

use std::collections::HashSet;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use testkit::stage::Running;
use tokio::runtime::{Builder, LocalOptions};

use crate::harness::{
    LONG, Nginx, Origin, Over, SOON, Scheme, Setup, bytes, connect, free_port, program, run, wait,
};
use crate::peer::dialer;

const MB: u64 = 1_000_000;

/// Never stops sending.
fn endless() -> Origin {
    Origin::start(|mut stream| {
        let block = vec![7; 64 << 10];
        // A visitor that never reads ends with the test.
        while stream.write_all(&block).is_ok() {}
    })
}

/// Seconds for 200 MB.
fn fetch(port: u16) -> f64 {
    let start = Instant::now();
    let visitor = connect(port);
    bytes::expect(&visitor, 200 * MB);
    bytes::expect_end(&visitor);
    start.elapsed().as_secs_f64()
}

/// A stalled stream costs its credit (16 MiB at most), not the others' rate.
#[test]
fn readers_that_hardly_read_slow_nobody_and_cost_their_credit() {
    for &scheme in Scheme::ALL {
        let (endless, good) = (endless(), Origin::start(|stream| bytes::send(&stream, 200 * MB)));
        let mut setup = Setup::alone(scheme);
        setup.client_lines.push_str("connections: 1\n");
        let setup = setup.service("endless", endless.port()).service("good", good.port());
        let mut running = setup.start();
        let port = running.public("good");
        let alone = fetch(port).min(fetch(port));
        let before = [running.server.resident(), running.client().resident()];

        let never: Vec<_> = (0..3).map(|_| connect(running.public("endless"))).collect();
        let mut slow = connect(running.public("endless"));
        let stop = AtomicBool::new(false);
        let beside = std::thread::scope(|scope| {
            scope.spawn(|| {
                // 1 B/s would be ten bytes in this test; ten times as fast is as stalled.
                while !stop.load(Ordering::Relaxed) && slow.read_exact(&mut [0]).is_ok() {
                    std::thread::sleep(Duration::from_millis(100));
                }
            });
            let beside = fetch(port).min(fetch(port));
            stop.store(true, Ordering::Relaxed);
            beside
        });
        let after = [running.server.resident(), running.client().resident()];
        println!("{scheme:?}: alone {alone:.2} s, beside {beside:.2} s; {before:?} -> {after:?}");
        // At least 90 % of the rate is the bench's figure; here five times the loss, and the
        // moment in which the stalled ones fill their windows.
        assert!(beside < alone * 2.0 + 0.5, "alone {alone:.2} s, beside {beside:.2} s");
        for (before, after) in before.into_iter().zip(after) {
            let grown = after.saturating_sub(before);
            assert!(grown < 4 * (16 << 20) + (16 << 20), "four stalled streams cost {grown} bytes");
        }
        drop(never);
    }
}

/// Whoever types does not wait for whoever fetches; and the same while something is sent.
#[test]
fn an_echo_beside_bulk_streams_is_quick() {
    for &scheme in Scheme::ALL {
        let (echo, source) = (Origin::echo(), endless());
        let sink = Origin::start(|stream| drop(std::io::copy(&mut &stream, &mut std::io::sink())));
        let mut setup = Setup::alone(scheme).service("echo", echo.port());
        setup.client_lines.push_str("connections: 1\n");
        let setup = setup.service("source", source.port()).service("sink", sink.port());
        let running = setup.start();
        let mut visitor = connect(running.public("echo"));
        visitor.set_nodelay(true).unwrap();
        for kind in ["source", "sink"] {
            let bulk = connect(running.public(kind));
            let passed = AtomicU64::new(0);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut block = vec![7; 64 << 10];
                    let mut pass = || match kind {
                        "source" => (&bulk).read(&mut block),
                        _ => (&bulk).write(&block),
                    };
                    while let Ok(size @ 1..) = pass() {
                        passed.fetch_add(size as u64, Ordering::Relaxed);
                    }
                });
                wait("the bulk stream flows", SOON, || {
                    (passed.load(Ordering::Relaxed) > 50 * MB).then_some(())
                });
                let echo = |_| {
                    // A moment in which the bulk stream has the path for itself.
                    std::thread::sleep(Duration::from_millis(3));
                    let before = passed.load(Ordering::Relaxed);
                    let took = round_trip(&mut visitor);
                    (took, passed.load(Ordering::Relaxed) - before)
                };
                let (mut took, mut overtook): (Vec<_>, Vec<_>) = (0..300).map(echo).unzip();
                bulk.shutdown(Shutdown::Both).unwrap();
                took.sort();
                overtook.sort();
                let times = [150, 297, 299].map(|at| took[at]);
                let before = [150, 297, 299].map(|at| overtook[at]);
                println!(
                    "{scheme:?} beside a {kind}: median, p99, worst {times:?}; meanwhile {before:?} bytes"
                );
                // A p99 of 5 ms is the bench's figure, and four busy processes on two cores that
                // others want as well have no such thing. Whoever waits behind a window (16 MiB)
                // waits for all of it at any speed. TCP's own buffers hold up to half of that.
                let most = if scheme == Scheme::QUIC { 6 * MB } else { 12 * MB };
                assert!(before[0] < most && before[1] < 3 * most, "{overtook:?}");
                assert!(times[2] < SOON, "{took:?}");
            });
            assert!(passed.into_inner() > 100 * MB, "the bulk stream went on");
        }
    }
}

/// One byte there and back.
fn round_trip(visitor: &mut TcpStream) -> Duration {
    let start = Instant::now();
    visitor.write_all(b"?").unwrap();
    visitor.read_exact(&mut [0]).unwrap();
    start.elapsed()
}

#[test]
fn an_honest_login_is_quick_behind_1000_silent_peers_on_every_port() {
    for &scheme in Scheme::ALL {
        let origin = Origin::echo();
        let setup = Setup::alone(scheme).service("echo", origin.port());
        let mut running = setup.start_server();
        let before = running.server.resident();
        let crowd = |port| (0..1000).map(|_| connect(port)).collect::<Vec<_>>();
        let carriers = match scheme {
            Scheme::QUIC => Crowd::Udp(say_initials(&running, 1000)),
            Scheme::KCP => Crowd::Udp(open_kcp(&running, 1000)),
            _ => Crowd::Tcp(crowd(running.server_port())),
        };
        let start = Instant::now();
        running.start_client();
        running.wait_ready();
        let took = start.elapsed();
        let each = running.server.resident().saturating_sub(before) / 1000;
        println!("{scheme:?}: {each} bytes for each silent peer");
        assert!(each < 64 << 10, "{each} bytes");
        println!("{scheme:?}: process start, login and registration took {took:?}");
        // 100 ms is the bench's figure for the login; this is with the start of a process.
        assert!(took < Duration::from_secs(2), "took {took:?}");

        let public = running.public("echo");
        let visitors = crowd(public);
        let start = Instant::now();
        running.wait_echo(public);
        let took = start.elapsed();
        println!("{scheme:?}: a visitor behind 1000 others waited {took:?}");
        assert!(took < Duration::from_secs(2), "a visitor waited {took:?}");
        running.client().kill();
        running.start_client();
        running.wait_echo(public);
        drop((carriers, visitors));
    }
}

#[test]
fn a_login_and_a_visitor_are_quick_behind_1000_silent_peers_at_each_door() {
    let origin = Origin::start(|mut socket| {
        let _ = socket.read(&mut [0; 1000]);
        let _ = socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    });
    let mut setup = Setup::alone(Scheme::TLS);
    let ports: [u16; 3] = std::array::from_fn(|_| free_port());
    let [http, tls, mux] = ports;
    setup.more_rights.push("http: \"*\"".to_owned());
    setup.more_listen.push(format!("mux://127.0.0.1:{mux}/tunnel"));
    setup.server_lines = format!(
        "http: {{ listen: \"127.0.0.1:{http}\" }}\n\
         tls_routes: {{ listen: \"127.0.0.1:{tls}\" }}\n"
    );
    let (port, at) = (origin.port(), "http://a.example.com");
    setup.client_lines = format!("services: [\"{at}={port}\"]\n");
    setup.server_url = Some(format!("tls://127.0.0.1:{mux}"));
    let mut running = setup.start_server();
    let before = running.server.resident();
    let crowd: Vec<_> = ports.iter().flat_map(|port| (0..1000).map(|_| connect(*port))).collect();
    let start = Instant::now();
    running.start_client();
    running.server.wait_line(&["is published at"], SOON);
    let ask = |port: u16| {
        let mut socket = connect(port);
        socket.set_read_timeout(Some(LONG)).unwrap();
        socket.write_all(b"GET / HTTP/1.1\r\nHost: a.example.com\r\n\r\n").unwrap();
        let mut answer = [0; "HTTP/1.1 200".len()];
        socket.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
    };
    ask(http);
    ask(mux);
    let took = start.elapsed();
    let each = running.server.resident().saturating_sub(before) / 3000;
    println!(
        "doors: {each} bytes for each silent peer; process start, login, 2 visitors: {took:?}"
    );
    assert!(each < 8 << 10, "{each} bytes");
    assert!(took < Duration::from_secs(3), "took {took:?}");
    drop(crowd);
}

/// Who is there and says no more.
#[expect(dead_code, reason = "it is held, and nothing else")]
enum Crowd {
    Tcp(Vec<TcpStream>),
    Udp(Vec<UdpSocket>),
}

/// From so many addresses one good Initial each, the first datagram of a handshake.
fn say_initials(running: &Running, count: usize) -> Vec<UdpSocket> {
    let door = ([127, 0, 0, 1], running.server_port());
    let say = |initial: Vec<u8>| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(&initial, SocketAddr::from(door)).unwrap();
        socket
    };
    initials(running, count).into_iter().map(say).collect()
}

/// From so many addresses a handshake of kcp:// that begins: the address is proved by a cookie, and
/// no byte of TLS follows. The layouts are those of `transport-kcp/src/wire.rs`.
fn open_kcp(running: &Running, count: usize) -> Vec<UdpSocket> {
    let door = ([127, 0, 0, 1], running.server_port());
    let open = |number: usize| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(SocketAddr::from(door)).unwrap();
        socket.set_read_timeout(Some(SOON)).unwrap();
        let mut hello = [0; 1_200];
        (hello[0], hello[9]) = (0x40, 1);
        hello[10..18].copy_from_slice(&number.to_be_bytes());
        socket.send(&hello).unwrap();
        let mut cookie = [0; 64];
        assert_eq!(socket.recv(&mut cookie).unwrap(), 38);
        let (client, server, proof) = (&cookie[1..9], &cookie[10..18], &cookie[18..38]);
        let opening = [&[0x42][..], server, client, proof, &[0x52], server, &[0; 40]].concat();
        socket.send(&opening).unwrap();
        socket
    };
    (0..count).map(open).collect()
}

/// Made by our own dialer for a server that does not answer.
fn initials(running: &Running, count: usize) -> Vec<Vec<u8>> {
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
    nobody.set_read_timeout(Some(SOON)).unwrap();
    let (address, dialer) = (nobody.local_addr().unwrap(), dialer(running));
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_all().build_local(LocalOptions::default()).unwrap();
    let (mut buf, mut known) = (vec![0; 65_535], HashSet::new());
    let one = |_| {
        let dialling = dialer.dial(address);
        // What the socket of the dial had to say.
        runtime.block_on(async {
            drop(tokio::time::timeout(Duration::from_millis(2), dialling).await);
        });
        loop {
            let n = nobody.recv(&mut buf).unwrap();
            // The id of the destination (RFC 9000 section 17.2) is another for each dial. A second
            // datagram to it is the end of one that was given up.
            if known.insert(buf[6..6 + usize::from(buf[5])].to_vec()) {
                return buf[..n].to_vec();
            }
        }
    };
    (0..count).map(one).collect()
}

#[test]
fn garbage_is_closed_and_costs_few_lines() {
    let garbage: [&[u8]; 8] = [
        // What could be QUIC: of another version, of this one, and with a short head.
        &[0xff; 1_200],
        b"\xc0\x00\x00\x00\x01\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x44\xd0",
        b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n",
        // A TLS record that claims more than TLS allows.
        b"\x16\x03\x01\xff\xff\x01\x00\xff\xfb\x03\x03",
        // Wrong magic, and the right one with the largest lengths.
        b"XXXX\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"TNL1\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        &[0xff; 8192],
    ];
    for &scheme in Scheme::ALL {
        let origin = Origin::echo();
        let mut running = Setup::new(scheme).service("echo", origin.port()).start();
        let (lines, memory) = (running.server.log().lines().count(), running.server.resident());
        for _ in 0..50 {
            for bytes in garbage {
                if scheme.over == Over::Udp {
                    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                    socket.send_to(bytes, ("127.0.0.1", running.server_port())).unwrap();
                    continue;
                }
                let mut stream = connect(running.server_port());
                // It may close before everything is written.
                drop(stream.write_all(bytes));
                drop(stream.shutdown(Shutdown::Write));
                wait_closed(&mut stream);
            }
        }
        let more = running.server.log().lines().count() - lines;
        assert!(more <= 60, "400 bad connections wrote {more} lines");
        let grown = running.server.resident().saturating_sub(memory);
        assert!(grown < 16 << 20, "grown by {grown} bytes");
        assert!(running.client().is_running());
        running.wait_echo(running.public("echo"));
    }
}

/// Nothing of what a peer sees before it is authenticated matters, but that it ends.
fn wait_closed(stream: &mut TcpStream) {
    let mut scratch = [0; 4096];
    while stream.read(&mut scratch).is_ok_and(|size| size > 0) {}
}

/// Memory of 18,000 visitors that are connected and say nothing, in each daemon.
#[test]
fn an_idle_visitor_costs_at_most_2_kib_in_each_daemon() {
    for scheme in [Scheme::TLS, Scheme::QUIC, Scheme::KCP] {
        idle_visitors_cost_at_most(2 << 10, scheme, |_| {});
    }
}

/// Over QUIC who has spoken has a lane each way, which costs more than all else; some of it comes
/// back when the lanes rest.
#[test]
fn a_visitor_over_quic_that_has_spoken_costs_at_most_5_kib_in_each_daemon() {
    idle_visitors_cost_at_most(5 << 10, Scheme::QUIC, |visitors| {
        for visitor in &mut *visitors {
            visitor.write_all(b"GET /small HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        }
        visitors.iter_mut().for_each(read_answer);
    });
}

/// An answer that more may follow.
fn read_answer(visitor: &mut TcpStream) {
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"hello from nginx\n") {
        visitor.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
}

fn idle_visitors_cost_at_most(most: u64, scheme: Scheme, speak: impl Fn(&mut [TcpStream])) {
    // What the daemons, nginx and this process hold stays below the limit of 20,000 descriptors.
    let (_, hard) = raise_descriptor_limit();
    let count = usize::try_from(hard).unwrap().saturating_sub(2_000).min(18_000);
    assert!(count >= 1_000, "a limit of {hard} descriptors is too low to measure anything");

    let setup = Setup::alone(scheme);
    let nginx = Nginx::start(setup.dir(), "keepalive_timeout 1h;");
    let mut running = setup.service("web", nginx.port).start();
    let port = running.public("web");
    let status = format!("http://127.0.0.1:{}/status", nginx.port);
    // Buffers and tables that stay are not the visitors'.
    drop(visitors(port, 500));
    wait_active(&status, |active| active < 50);

    let before = [running.server.resident(), running.client().resident()];
    let mut idle = visitors(port, count);
    wait_active(&status, |active| active >= count);
    speak(&mut idle);
    let after = [running.server.resident(), running.client().resident()];
    for (role, (before, after)) in ["server", "client"].iter().zip(before.into_iter().zip(after)) {
        let each = after.saturating_sub(before) / count as u64;
        println!(
            "{scheme:?} {role}: {each} bytes for each of {count} idle visitors ({before} -> {after})"
        );
        assert!(each <= most, "{scheme:?} {role}: {each} bytes per idle visitor");
    }

    // They are alive.
    for visitor in &mut idle {
        visitor.write_all(b"GET /small HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    }
    for mut visitor in idle {
        let mut answer = String::new();
        visitor.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("hello from nginx\n"), "{answer}");
    }
}

/// Half a request each, silence, and then the one byte that completes it: nginx holds the other
/// ends, so that neither it nor the daemons nor this process needs two descriptors per stream.
#[test]
fn ten_thousand_idle_streams_each_pass_their_next_byte() {
    const COUNT: usize = 10_000;
    let (_, hard) = raise_descriptor_limit();
    let count = usize::try_from(hard).unwrap().saturating_sub(2_000).min(COUNT);
    assert!(count >= 1_000, "a limit of {hard} descriptors is too low to measure anything");
    for scheme in [Scheme::TCP, Scheme::QUIC, Scheme::KCP] {
        idle_streams_each_pass_their_next_byte(scheme, count);
    }
}

/// On default settings.
fn idle_streams_each_pass_their_next_byte(scheme: Scheme, count: usize) {
    let setup = Setup::alone(scheme);
    let nginx = Nginx::start(setup.dir(), "");
    let mut running = setup.service("web", nginx.port).start();
    let request = b"GET /small HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let (last, head) = request.split_last().unwrap();

    let start = Instant::now();
    let mut idle = visitors(running.public("web"), count);
    for visitor in &mut idle {
        visitor.write_all(head).unwrap();
    }
    let status = format!("http://127.0.0.1:{}/status", nginx.port);
    wait_active(&status, |active| active >= count);
    let opened = start.elapsed();
    // Longer than the quiet time after which a stream gives everything back.
    std::thread::sleep(Duration::from_secs(1));

    let start = Instant::now();
    for visitor in &mut idle {
        visitor.write_all(&[*last]).unwrap();
    }
    for (number, mut visitor) in idle.into_iter().enumerate() {
        let mut answer = String::new();
        visitor.read_to_string(&mut answer).unwrap_or_else(|e| panic!("stream {number}: {e}"));
        assert!(answer.ends_with("hello from nginx\n"), "stream {number}: {answer}");
    }
    println!(
        "{scheme:?}: {count} streams opened in {opened:?}, one more byte each in {:?}",
        start.elapsed()
    );
    assert!(running.client().is_running());
}

pub(super) fn visitors(port: u16, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| connect(port)).collect()
}

/// Waits until nginx says that so many connections are open.
pub(super) fn wait_active(status: &str, enough: impl Fn(usize) -> bool) {
    wait("nginx has as many connections", LONG, || {
        let answer = run(Command::new(program("curl")).args(["--silent", "--fail", status]));
        let text = String::from_utf8(answer.stdout).unwrap();
        let active =
            text.lines().next()?.strip_prefix("Active connections:")?.trim().parse().ok()?;
        enough(active).then_some(())
    });
}

/// This process holds the visitors. Its children inherit the limit.
pub(super) fn raise_descriptor_limit() -> (u64, u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
    (limit.current.unwrap_or(u64::MAX), hard)
}
