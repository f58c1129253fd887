//! A small memory budget: the memory of greedy visitors is bounded, and other visitors are served.

use std::io::Write as _;
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::{Fence, LONG, Nginx, Origin, Scheme, Setup, bytes, connect, program, run};

const MIB: u64 = 1 << 20;
const MB: u64 = 1_000_000;

/// Never stops sending.
fn endless() -> Origin {
    Origin::start(|mut stream| {
        let block = vec![7; 64 << 10];
        while stream.write_all(&block).is_ok() {}
    })
}

/// Takes connections and never reads a byte of them.
fn deaf() -> Origin {
    Origin::start(|stream| {
        std::thread::sleep(LONG);
        drop(stream);
    })
}

/// So many visitors that read nothing of an endless answer, and as many that send without end to
/// somebody who does not read.
fn greedy(unread: u16, sent: u16, count: usize) -> Vec<TcpStream> {
    let mut all: Vec<_> = (0..count).map(|_| connect(unread)).collect();
    let senders: Vec<_> = (0..count).map(|_| connect(sent)).collect();
    let block = vec![7; 64 << 10];
    for sender in &senders {
        sender.set_nonblocking(true).unwrap();
    }
    // Until the windows of all of them are full.
    for _ in 0..20 {
        for mut sender in &senders {
            while sender.write(&block).is_ok() {}
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    all.extend(senders);
    all
}

/// Five hundred bulk streams whose bytes nobody takes: they hold what the budget allows and no
/// more, and a transfer beside them is whole.
#[test]
fn five_hundred_never_readers_cost_the_budget_and_stop_nobody() {
    const BUDGET: u64 = 32 * MIB;
    for &scheme in Scheme::ALL {
        let (endless, deaf) = (endless(), deaf());
        let good = Origin::start(|stream| bytes::send(&stream, 200 * MB));
        let mut setup = Setup::alone(scheme)
            .service("unread", endless.port())
            .service("sent", deaf.port())
            .service("good", good.port());
        for lines in [&mut setup.server_lines, &mut setup.client_lines] {
            lines.push_str("memory_budget: 32MiB\n");
        }
        let mut running = setup.start();
        let before = [running.server.resident(), running.client().resident()];
        let greedy = greedy(running.public("unread"), running.public("sent"), 250);

        let start = Instant::now();
        let visitor = connect(running.public("good"));
        bytes::expect(&visitor, 200 * MB);
        bytes::expect_end(&visitor);
        let took = start.elapsed();
        let after = [running.server.resident(), running.client().resident()];
        println!("{scheme:?}: 200 MB in {took:?} beside them; {before:?} -> {after:?} bytes");
        for role in ["server", "client"] {
            println!("{role}: {}", running.status(role).unwrap()["memory"]);
        }
        for (before, after) in before.into_iter().zip(after) {
            let grown = after.saturating_sub(before);
            // An implicit window of 16 KiB cannot be refused to a stream that exists, and an
            // allocator does not fill its pages.
            let most = (BUDGET + 500 * (16 << 10)) * 5 / 4;
            assert!(grown <= most, "{grown} bytes with a budget of {BUDGET}");
        }
        drop(greedy);
        assert!(running.server.is_running() && running.client().is_running());
    }
}

/// Each daemon has 64 MiB, enforced by the kernel, and takes a quarter of it by itself.
#[test]
fn both_daemons_serve_everybody_within_64_mib() {
    for scheme in [Scheme::TLS, Scheme::QUIC, Scheme::KCP] {
        within_64_mib(scheme);
    }
}

fn within_64_mib(scheme: Scheme) {
    let fences = match (Fence::new(64 * MIB), Fence::new(64 * MIB)) {
        (Ok(server), Ok(client)) => [server, client],
        (Err(reason), _) | (_, Err(reason)) => {
            assert!(std::env::var_os("CI").is_none(), "{reason}");
            println!("not shown here: {reason}");
            return;
        }
    };
    let (endless, deaf) = (endless(), deaf());
    let good = Origin::start(|stream| bytes::send(&stream, 200 * MB));
    let mut setup = Setup::alone(scheme);
    setup.server_starter = fences[0].starter();
    setup.client_starter = fences[1].starter();
    let nginx = Nginx::start(setup.dir(), "");
    let mut running = setup
        .service("web", nginx.port)
        .service("unread", endless.port())
        .service("sent", deaf.port())
        .service("good", good.port())
        .start();

    let idle: Vec<_> = (0..2000).map(|_| connect(running.public("web"))).collect();
    let greedy = greedy(running.public("unread"), running.public("sent"), 100);
    let visitor = connect(running.public("good"));
    bytes::expect(&visitor, 200 * MB);
    bytes::expect_end(&visitor);
    let url = format!("http://127.0.0.1:{}/small", running.public("web"));
    let wrk = run(Command::new(program("wrk")).args(["-t1", "-c100", "-d3s", &url]));
    let answer = String::from_utf8(wrk.stdout).unwrap();
    assert!(answer.contains("Requests/sec"), "{answer}");
    assert!(!answer.contains("Socket errors") && !answer.contains("Non-2xx"), "{answer}");

    for fence in &fences {
        println!("{scheme:?}: peak {:?}, killed {:?}", fence.peak(), fence.kills());
        assert_eq!(fence.kills().unwrap_or(0), 0);
    }
    assert!(running.server.is_running() && running.client().is_running());
    drop((idle, greedy));
}
