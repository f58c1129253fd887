//! Behaviour of the transports over UDP: properties of UDP paths, and the obligations of a killed
//! server to its clients; and of `quic://` alone. Promises of all transports are tested with all
//! transports elsewhere.

use std::ffi::OsString;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::stage::Running;

use crate::harness::{
    LONG, Origin, SOON, Scheme, Setup, bytes, connect, is_listening, run, side_by_side, wait,
    wait_listening,
};

pub(crate) const MB: u64 = 1_000_000;

pub(crate) const OVER_UDP: [Scheme; 2] = [Scheme::QUIC, Scheme::KCP];

/// Sends as much as it then expects.
pub(crate) fn both_ways(total: u64) -> Origin {
    Origin::start(move |stream| {
        bytes::send(&stream, total);
        bytes::expect(&stream, total);
        stream.shutdown(Shutdown::Write).unwrap();
        bytes::expect_end(&stream);
    })
}

/// The other end of [`both_ways`]: a download, then an upload.
pub(crate) fn down_and_up(port: u16, total: u64) {
    let visitor = connect(port);
    bytes::expect(&visitor, total);
    bytes::send(&visitor, total);
    bytes::expect_end(&visitor);
}

/// Waits until so many more bytes have passed.
pub(crate) fn wait_passed(running: &Running, more: u64) {
    let wanted = running.wire().passed() + more;
    wait("bytes pass", LONG, || (running.wire().passed() >= wanted).then_some(()));
}

/// The carriers of all links of the only client, and how often one was resumed.
pub(crate) fn carriers(running: &Running) -> (Vec<[Value; 2]>, Value) {
    let status = running.status("server").unwrap();
    let session = &status["sessions"][0];
    let links = session["links"].as_array().unwrap();
    let of_link = |link: &Value| {
        let carriers = link["carriers"].as_array().unwrap();
        carriers.iter().map(|one| [link["serial"].clone(), one["number"].clone()]).collect()
    };
    let all: Vec<Vec<_>> = links.iter().map(of_link).collect();
    (all.concat(), session["resumes"].clone())
}

/// A server that was killed, and the same one again; how long a visitor then waited.
fn killed_and_started_again(running: &mut Running, meanwhile: impl FnOnce(&Running)) -> Duration {
    let port = running.public("echo");
    running.wait_echo(port);
    running.server.kill();
    wait("the public port is gone", SOON, || (!is_listening(port)).then_some(()));
    meanwhile(running);
    running.start_server_again();
    wait_listening(running.server_port(), SOON);
    let listening = Instant::now();
    running.wait_echo(port);
    assert!(running.client().is_running());
    listening.elapsed()
}

#[test]
fn a_server_that_was_killed_calls_its_idle_client_back() {
    side_by_side(&OVER_UDP, |scheme| {
        let origin = Origin::echo();
        let mut setup = Setup::new(scheme).service("echo", origin.port());
        setup.client_lines.push_str("connections: 1\n");
        let mut running = setup.start();
        running.wait_echo(running.public("echo"));
        let peers = running.file(&format!("state/{}.peers", scheme.name));
        let is_written = || fs::read_to_string(&peers).is_ok_and(|text| text.contains("127.0.0.1"));
        wait("the client is written down", SOON, || is_written().then_some(()));
        let took = killed_and_started_again(&mut running, |_| ());
        println!("called back: served {took:?} after the server listened");
        // 2 s on an idle machine.
        assert!(took < SOON, "{took:?}");
        running.server.wait_one_line(&["before this one", "called back", "connections=1"], SOON);
    });
}

/// What a reset tells it is lost; its next ping is answered by one.
#[test]
fn an_idle_client_that_is_not_called_back_learns_it_by_its_keep_alive() {
    side_by_side(&OVER_UDP, |scheme| {
        let origin = Origin::echo();
        let mut setup = Setup::new(scheme).service("echo", origin.port());
        for lines in [&mut setup.server_lines, &mut setup.client_lines] {
            lines.push_str("keepalive: 2s\n");
        }
        let mut running = setup.start();
        let took = killed_and_started_again(&mut running, |running| {
            fs::remove_file(running.file(&format!("state/{}.peers", scheme.name))).unwrap();
        });
        println!("not called back: served {took:?} after the server listened");
        assert!(took < SOON, "{took:?}");
        assert!(!running.server.log().contains("called back"));
    });
}

/// 0-RTT with daemons: the first packet of the new connection says whose it is. Of the flights that
/// this saves, and of who sends such a packet again, tells `link/tests/link/early`.
#[test]
fn a_client_whose_path_died_comes_back_by_the_first_packet() {
    let origin = Origin::echo();
    let mut setup = Setup::new(Scheme::QUIC).service("echo", origin.port()).wired();
    setup.client_lines.push_str("keepalive: 1s\nlog: { level: debug }\n");
    let mut running = setup.start();
    let mut visitor = connect(running.public("echo"));
    let mut expect_echo = |said: &[u8]| {
        visitor.write_all(said).unwrap();
        let mut heard = vec![0; said.len()];
        visitor.read_exact(&mut heard).unwrap();
        assert_eq!(heard, said);
    };
    expect_echo(b"before");
    running.wire().kill();
    expect_echo(b"while nobody knew of the loss");
    running.client().wait_one_line(&["streams go on", "carrier=2 ", "early=true"], SOON);
    expect_echo(b"after");
}

/// A way off the machine, where daemons send as they do to their users: by BBR. (On one as short as
/// loopback CUBIC keeps little under way.)
pub(crate) const FAR: Duration = Duration::from_millis(5);

#[test]
fn five_percent_of_loss_both_ways_cost_no_byte() {
    side_by_side(&OVER_UDP, |scheme| {
        let origin = both_ways(10 * MB);
        let running = Setup::new(scheme).service("bulk", origin.port()).wired();
        let mut running = running.start_server();
        running.wire().delay(FAR);
        running.wire().lose(50);
        running.start_client();
        running.wait_ready();
        let start = Instant::now();
        down_and_up(running.public("bulk"), 10 * MB);
        println!("10 MB each way at 5 % of loss: {:?}", start.elapsed());
        origin.wait_one(LONG);
    });
}

/// There are lanes for 256 at first, and who opens streams learns a round trip later that there are
/// more: the others begin without and change to one amid their upload.
#[test]
fn streams_for_which_there_are_no_lanes_at_first_lose_no_byte_when_these_come() {
    const VISITORS: usize = 600;
    const FARTHER: Duration = Duration::from_millis(100);
    const EACH: u64 = MB / 4;
    let origin = Origin::start(|mut stream| {
        stream.read_exact(&mut [0]).unwrap();
        bytes::expect(&stream, EACH);
        bytes::send(&stream, EACH);
        stream.shutdown(Shutdown::Write).unwrap();
        bytes::expect_end(&stream);
    });
    let mut setup = Setup::new(Scheme::QUIC).service("bulk", origin.port()).wired();
    for lines in [&mut setup.server_lines, &mut setup.client_lines] {
        lines.push_str("workers: 1\n");
    }
    let mut running = setup.start_server();
    running.wire().delay(FARTHER);
    running.wire().lose(10);
    running.start_client();
    running.wait_ready();
    let start = Instant::now();
    // All say something before any of them says more.
    let greet = |_| {
        let mut visitor = connect(running.public("bulk"));
        visitor.write_all(b"1").unwrap();
        visitor
    };
    let visitors: Vec<_> = (0..VISITORS).map(greet).collect();
    println!("{VISITORS} greeted in {:?}", start.elapsed());
    thread::scope(|scope| {
        for visitor in visitors {
            scope.spawn(move || {
                bytes::send(&visitor, EACH);
                bytes::expect(&visitor, EACH);
                bytes::expect_end(&visitor);
            });
        }
    });
    println!("all served after {:?}", start.elapsed());
    for _ in 0..VISITORS {
        origin.wait_one(LONG);
    }
}

/// UDP payload of a path of 1,280 bytes over IPv4: longer ones vanish, and nobody is told.
const NARROW: usize = 1_280 - 28;

#[test]
fn a_black_hole_for_long_datagrams_costs_no_byte() {
    side_by_side(&OVER_UDP, |scheme| {
        let origin = both_ways(10 * MB);
        for from_the_start in [true, false] {
            let running = Setup::new(scheme).service("bulk", origin.port()).wired();
            let mut running = running.start_server();
            running.wire().delay(FAR);
            if from_the_start {
                running.wire().longest_datagram(NARROW);
            }
            running.start_client();
            running.wait_ready();
            let port = running.public("bulk");
            let start = Instant::now();
            let visitor = thread::spawn(move || down_and_up(port, 10 * MB));
            if !from_the_start {
                wait_passed(&running, 3 * MB);
                running.wire().longest_datagram(NARROW);
            }
            visitor.join().unwrap();
            origin.wait_one(LONG);
            println!("from the start: {from_the_start}: {:?}", start.elapsed());
            let carriers = carriers(&running);
            assert_eq!(carriers.1, 0, "{scheme:?} finds it out by itself: {carriers:?}");
        }
    });
}

/// By a user who may not go beyond the system's limits: two sockets each, and one line that says
/// what to do.
#[test]
fn smaller_buffers_than_wanted_are_told_once_with_the_command_that_helps() {
    let words = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"];
    // Who may not give rights away has not got this one.
    let may = run(Command::new(words[0]).args(&words[1..]).arg("true")).status.success();
    let starter: Vec<OsString> = words.map(Into::into).into_iter().filter(|_| may).collect();
    let origin = Origin::echo();
    let mut setup = Setup::new(Scheme::QUIC).service("echo", origin.port());
    (setup.server_starter, setup.client_starter) = (starter.clone(), starter);
    for lines in [&mut setup.server_lines, &mut setup.client_lines] {
        lines.push_str("workers: 2\nquic: { receive_buffer: 64MiB }\n");
    }
    let mut running = setup.start();
    running.wait_links(2);
    running.wait_echo(running.public("echo"));
    let granted = fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap();
    if granted.trim().parse::<u64>().unwrap() >= 64 << 20 {
        // A machine that was told so before: nothing is owed.
        let logs = running.server.log() + &running.client().log();
        return assert!(!logs.contains("net.core.rmem_max"), "{logs}");
    }
    let hint = ["UDP sockets got smaller buffers", "sysctl -w net.core.rmem_max=67108864"];
    running.server.wait_one_line(&hint, SOON);
    running.client().wait_one_line(&hint, SOON);
}

#[test]
fn five_hundred_visitors_at_once_are_answered_on_default_settings() {
    const COUNT: usize = 500;
    let origin = Origin::echo();
    let running = Setup::new(Scheme::QUIC).service("echo", origin.port()).start();
    let mut visitors: Vec<_> = (0..COUNT).map(|_| connect(running.public("echo"))).collect();
    for turn in 0..2u8 {
        for (number, visitor) in visitors.iter_mut().enumerate() {
            visitor.write_all(&[turn, number as u8]).unwrap();
        }
        for (number, visitor) in visitors.iter_mut().enumerate() {
            let mut answer = [0; 2];
            visitor.read_exact(&mut answer).unwrap_or_else(|e| panic!("visitor {number}: {e}"));
            assert_eq!(answer, [turn, number as u8]);
        }
    }
}
