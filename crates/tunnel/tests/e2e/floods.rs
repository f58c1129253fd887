//! Floods from a client that has logged in. The server ends them with a code or limits its answers,
//! its memory stays bounded, and other clients are not affected.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use bytes::Bytes;
use proto::Kind;
use proto::control::{ControlMessage, Register, ServiceSpec, ServiceTerms};
use proto::greeting::Name;
use testkit::stage::Running;
use tokio::runtime::{Builder, LocalOptions};

use crate::harness::{LONG, Origin, SOON, Scheme, Setup, connect, free_port, run, tunnel, wait};
use crate::peer::{frame, log_in, open, open_frame};

const MIB: u64 = 1 << 20;

/// What a flood may cost beyond what the daemon had before: answers that wait (2 MiB), targets that
/// are being dialled (some thousand of a KiB or two), buffers, and the allocator's ways.
const MOST: u64 = 32 * MIB;

/// A server with a client that behaves and the token of one that does not; it may reach `target`.
pub(crate) fn stage(scheme: Scheme, target: u16) -> (Running, String, Origin) {
    let echo = Origin::echo();
    let token = String::from_utf8(run(&mut tunnel(&["generate", "token"])).stdout).unwrap();
    let token = token.trim().to_owned();
    let mut setup = Setup::new(scheme).service("echo", echo.port());
    setup.client_lines.push_str("connections: 2\n");
    setup.server_lines = format!(
        "  - {{ name: flood, token: \"{token}\", allow: {{ forward: [\"127.0.0.1:{target}\"] }} }}\n"
    );
    let running = setup.start();
    running.wait_links(2);
    (running, token, echo)
}

pub(crate) fn really(work: impl Future<Output = ()>) {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(async { tokio::time::timeout(LONG, work).await.expect("in time") });
}

/// QUIC runs in tasks of this runtime: what was written leaves while nothing else is done.
async fn breathe() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}

/// What the server held before a flood, and a visitor of the client that behaves.
struct Watch {
    before: u64,
    visitor: std::net::TcpStream,
}

impl Watch {
    fn begin(running: &Running) -> Self {
        running.wait_echo(running.public("echo"));
        let mut visitor = connect(running.public("echo"));
        // Until it is answered it may wait in the backlog, and its descriptor is yet to come.
        visitor.write_all(b"?").unwrap();
        visitor.read_exact(&mut [0]).unwrap();
        Self { before: running.server.resident(), visitor }
    }

    /// The others are served, and the flood is paid for.
    fn look(&mut self, running: &Running, what: &str) {
        let start = Instant::now();
        self.visitor.write_all(b"?").unwrap();
        self.visitor.read_exact(&mut [0]).unwrap();
        let took = start.elapsed();
        let grown = running.server.resident().saturating_sub(self.before);
        println!("{what}: {} KiB more, an echo in {took:?}", grown >> 10);
        assert!(grown < MOST, "{what}: {grown} bytes");
        assert!(took < Duration::from_secs(2), "{what}: {took:?}");
    }
}

fn opens(body: &[u8], from: u32, count: u32) -> Bytes {
    (from..from + count).flat_map(|n| open_frame(n, body)).collect()
}

#[test]
fn a_flood_of_streams_is_refused_and_cut_off_when_no_answer_is_read() {
    for &scheme in Scheme::ALL {
        let (running, token, _echo) = stage(scheme, 1);
        let mut watch = Watch::begin(&running);
        really(async {
            // Services are the server's to ask for: each is refused, and nothing is kept of it,
            // though this peer acknowledges nothing. Those who read go on.
            let body = open(0, "x");
            let mut peer = log_in(&running, "flood", &token).await;
            for n in 0..20 {
                peer.write(opens(&body, n * 10_000, 10_000), true).await.unwrap();
                peer.expect(u64::from(n) * 20_000).await;
                watch.look(&running, &format!("{scheme:?}: {} streams refused", (n + 1) * 10_000));
            }
            peer.expect(400_000).await;
            assert_eq!(peer.goaway, None, "a burst is no flood");
            // And those who do not read are cut off; a code would not reach them.
            let mut deaf = log_in(&running, "flood", &token).await;
            let mut n = 0;
            while deaf.write(opens(&body, n * 10_000, 10_000), false).await.is_ok() {
                n += 1;
                breathe().await;
                assert!(n < 100, "{n} times 10,000 streams and no end");
            }
            println!("{scheme:?}: cut off after {n} times 10,000");
        });
        running.server.wait_one_line(&["the peer broke the protocol", "flood"], SOON);
        watch.look(&running, "after the streams");
    }
}

/// Lanes of streams that are never opened, some with a byte of a head only: there are no more of
/// them than of a peer with no stream, each is small, and what comes on the first lane wakes none.
#[test]
fn lanes_that_belong_to_no_stream_are_few_and_small() {
    let (running, token, _echo) = stage(Scheme::QUIC, 1);
    let mut watch = Watch::begin(&running);
    really(async {
        // The newest takes the place of the one before.
        for _ in 0..3 {
            let mut peer = log_in(&running, "flood", &token).await;
            let (mut lanes, mut stream) = (Vec::new(), 1_000_001);
            // Longer than a server needs to allow more.
            for _ in 0..50 {
                let claim = || {
                    stream += 2;
                    // As much as is read ahead of an OPEN: with more a peer soon has used up what
                    // it may leave unread, and shut itself up.
                    let frame = Bytes::from(frame(Kind::Data, stream, &[7; 2_000]));
                    if stream % 4 == 1 { frame.slice(..1) } else { frame }
                };
                lanes.extend(peer.open_lanes(claim).await);
                breathe().await;
            }
            println!("{} lanes of one connection", lanes.len());
            assert!(lanes.len() <= 1_000, "{} lanes without a stream", lanes.len());
            watch.look(&running, "lanes without a stream");
            let pings: Bytes = frame(Kind::Ping, 0, &[7; 8]).repeat(10_000).into();
            peer.write(pings, true).await.unwrap();
            watch.look(&running, "pings beside them");
        }
    });
}

#[test]
fn a_flood_of_pings_is_answered_as_they_can_be_read() {
    for &scheme in Scheme::ALL {
        let (running, token, _echo) = stage(scheme, 1);
        let mut watch = Watch::begin(&running);
        let pings: Bytes = frame(Kind::Ping, 0, &[7; 8]).repeat(100_000).into();
        really(async {
            let mut peer = log_in(&running, "flood", &token).await;
            for n in 1..=20 {
                peer.write(pings.clone(), false).await.unwrap();
                watch.look(&running, &format!("{scheme:?}: {n}00,000 pings"));
            }
            // One answer at least, and never one for each.
            peer.write(frame(Kind::Ping, 0, &[8; 8]).into(), true).await.unwrap();
            peer.expect(1).await;
            assert!(peer.frames < 1_000_000, "{} answers", peer.frames);
            assert_eq!(peer.goaway, None);
        });
    }
}

#[test]
fn streams_opened_and_reset_without_end_cost_neither_memory_nor_descriptors() {
    for &scheme in Scheme::ALL {
        let origin = Origin::echo();
        let (running, token, _echo) = stage(scheme, origin.port());
        let mut watch = Watch::begin(&running);
        let body = open(1, &format!("tcp://127.0.0.1:{}", origin.port()));
        let before = running.server.descriptors();
        really(async {
            let mut peer = log_in(&running, "flood", &token).await;
            for n in 0..20u32 {
                let burst: Vec<u8> = (n * 1000..(n + 1) * 1000)
                    .flat_map(|n| {
                        let id = 2 * n + 1;
                        let end = [
                            frame(Kind::Open, id, &body),
                            frame(Kind::Reset, id, &[0, 1]),
                            frame(Kind::Stop, id, &[0, 1]),
                        ];
                        end.concat()
                    })
                    .collect();
                peer.write(burst.into(), true).await.unwrap();
                watch.look(&running, &format!("{scheme:?}: {}000 opened and reset", n + 1));
                let open = running.server.descriptors();
                assert!(open < before + 2000, "{open} descriptors");
            }
            assert_eq!(peer.goaway, None);
            wait("the descriptors come back", SOON, || {
                (running.server.descriptors() <= before + 1).then_some(())
            });
        });
    }
}

#[test]
fn frames_of_one_byte_cost_what_their_bytes_cost() {
    for &scheme in Scheme::ALL {
        // Takes nothing, so that all of it has to lie somewhere.
        let deaf = Origin::start(|stream| {
            std::thread::sleep(LONG);
            drop(stream);
        });
        let (running, token, _echo) = stage(scheme, deaf.port());
        let mut watch = Watch::begin(&running);
        let body = open(1, &format!("tcp://127.0.0.1:{}", deaf.port()));
        really(async {
            let mut peer = log_in(&running, "flood", &token).await;
            peer.write(opens(&body, 0, 20), true).await.unwrap();
            // The window that every stream has: 16 KiB, a byte a frame.
            for at in 0..(16u32 << 10) {
                let tiny = (0..20u32)
                    .flat_map(|n| {
                        let body = [&at.to_be_bytes()[..], b"x"].concat();
                        frame(Kind::Data, 2 * n + 1, &body)
                    })
                    .collect::<Vec<u8>>();
                peer.write(tiny.into(), true).await.unwrap();
            }
            watch.look(&running, &format!("{scheme:?}: 327,680 frames of a byte"));
            assert_eq!(peer.goaway, None, "it is within its credit");
        });
        watch.look(&running, &format!("{scheme:?}: after them"));
    }
}

#[test]
fn registrations_without_end_fill_no_log() {
    for &scheme in Scheme::ALL {
        let (running, token, _echo) = stage(scheme, 1);
        let mut watch = Watch::begin(&running);
        really(async {
            let mut peer = log_in(&running, "flood", &token).await;
            for generation in 1..=30 {
                let services = (0..200).map(|n| ServiceSpec {
                    name: Name::new(&format!("s{generation}-{n}")).unwrap(),
                    public: vec!["tcp://:22".to_owned()],
                    terms: ServiceTerms::default(),
                });
                let register = Register {
                    generation,
                    services: services.collect(),
                    leaving: false,
                    standby: false,
                };
                peer.tell(&ControlMessage::Register(register)).await;
            }
            // An answer to the last one, at least.
            let start = Instant::now();
            while !running.status("server").unwrap().to_string().contains("s30-199") {
                assert!(start.elapsed() < SOON, "all are refused");
                breathe().await;
            }
        });
        let lines = running.server.log().matches("not published").count();
        println!("{scheme:?}: {lines} lines about 6,000 refused services");
        assert!(lines > 0 && lines < 1100, "{lines} lines");
        watch.look(&running, "after the registrations");
    }
}

/// Each registration replaces all names, so each of them is news twice.
#[test]
fn names_that_come_and_go_without_end_fill_no_log_and_what_is_left_out_is_counted() {
    let echo = Origin::echo();
    let token = String::from_utf8(run(&mut tunnel(&["generate", "token"])).stdout).unwrap();
    let token = token.trim().to_owned();
    let mut setup = Setup::new(Scheme::ALL[0]).service("echo", echo.port());
    setup.server_lines = format!(
        "  - {{ name: flood, token: \"{token}\", allow: {{ http: \"*.example\" }} }}\n\
         http: {{ listen: [\"127.0.0.1:{}\"] }}\n",
        free_port()
    );
    let running = setup.start();
    let left_out = || running.status("server").unwrap()["log_lines_left_out"].as_u64().unwrap();
    really(async {
        let mut peer = log_in(&running, "flood", &token).await;
        for generation in 1..=20 {
            let services = (0..100).map(|n| ServiceSpec {
                name: Name::new(&format!("s{n}")).unwrap(),
                public: vec![format!("http://g{generation}-{n}.example")],
                terms: ServiceTerms::default(),
            });
            let register = Register {
                generation,
                services: services.collect(),
                leaving: false,
                standby: false,
            };
            peer.tell(&ControlMessage::Register(register)).await;
            // The next registration takes the place of one that waits.
            let start = Instant::now();
            let last = format!("g{generation}-99.example");
            while !running.status("server").unwrap().to_string().contains(&last) {
                assert!(start.elapsed() < SOON, "{last} is published");
                breathe().await;
            }
        }
    });
    let lines = running.server.log().lines().filter(|line| line.contains("flood")).count();
    // 1,200, and a line per second.
    assert!((1_000..1_200 + 60).contains(&lines), "{lines} lines");
    assert!(left_out() > 2_000, "{}", left_out());
    running.wait_echo(running.public("echo"));
}
