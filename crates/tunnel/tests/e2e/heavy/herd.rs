//! A very large number of clients lose their server at the same time, and the server returns.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use benches::herd::Herd;
use benches::server::Server;
use proto::greeting::{Name, Token};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::runtime::{Builder, LocalOptions};
use tokio::time::sleep;

use crate::harness::{Scheme, Setup, run, tunnel};
use crate::peer::dialer;

/// Clients, where the limit of descriptors allows: both ends of a link are one here and one in the
/// server.
const CLIENTS: usize = 5000;

/// Five times the minute that the design allows: here all the clients share one thread, and the
/// machine has other work.
pub(super) const BACK: Duration = Duration::from_secs(300);

/// Raises the limit, and says how many clients fit.
fn clients() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    // The reserve of the server, and whatever else is open here.
    let fit = limit.current.map_or(CLIENTS, |limit| usize::try_from(limit).unwrap() * 3 / 4);
    fit.min(CLIENTS)
}

pub(super) async fn until(what: &str, limit: Duration, condition: impl Fn() -> bool) -> Duration {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        sleep(Duration::from_millis(20)).await;
    }
    start.elapsed()
}

#[test]
fn five_thousand_clients_come_back_to_a_server_that_was_restarted() {
    for &scheme in Scheme::ALL {
        let count = clients();
        let token = String::from_utf8(run(&mut tunnel(&["generate", "token"])).stdout).unwrap();
        let token = token.trim();
        let mut setup = Setup::alone(scheme);
        for n in 0..count {
            writeln!(setup.server_lines, "  - {{ name: c{n}, token: \"{token}\" }}").unwrap();
        }
        let mut running = setup.start_server();
        let (dialer, port) = (dialer(&running), running.server_port());
        let server = Server {
            url: format!("{}://127.0.0.1:{port}", scheme.name),
            address: ([127, 0, 0, 1], port).into(),
            dialer,
        };
        let token = Token::new(token).unwrap();
        let mut builder = Builder::new_current_thread();
        let runtime = builder.enable_all().build_local(LocalOptions::default()).unwrap();
        runtime.block_on(async {
            let names = (0..count).map(|n| Name::new(&format!("c{n}")).unwrap());
            let herd = Herd::start(&server, &token, names);
            let took = until("all are there", BACK, || herd.live() == count).await;
            let (cpu, open) = (running.server.cpu(), running.server.descriptors());
            println!("{scheme:?}: {count} logged in within {took:?}: {cpu:?} of CPU, {open} open");

            running.server.kill();
            until("all have lost it", BACK, || herd.live() == 0).await;
            sleep(Duration::from_secs(5)).await;
            let _ = herd.take_failures();
            let begin = Instant::now();
            sleep(Duration::from_secs(3)).await;
            let buckets = herd.take_failures().iter().fold([0usize; 15], |mut buckets, at| {
                let bucket = (*at - begin).as_millis() as usize / 200;
                buckets[bucket.min(14)] += 1;
                buckets
            });
            println!("{scheme:?}: attempts by 200 ms: {buckets:?}");
            let mean = buckets.iter().sum::<usize>() / buckets.len();
            assert!(mean > count / 20, "they do try: {buckets:?}");
            let most = buckets.into_iter().max().unwrap_or(0);
            assert!(most < 4 * mean, "they come in step: {buckets:?}");

            running.start_server_again();
            let start = Instant::now();
            let mut widest = 0;
            while herd.live() < count {
                assert!(start.elapsed() < BACK, "{} of {count} are back", herd.live());
                sleep(Duration::from_millis(100)).await;
                widest = widest.max(running.server.descriptors());
            }
            let (cpu, took) = (running.server.cpu(), start.elapsed());
            println!("{scheme:?}: all back within {took:?}: {cpu:?} of CPU, at most {widest} open");
            // One for each, its successor beside it for a moment, and what a daemon has of its own.
            assert!(widest < 2 * count as u64 + 100, "{widest} descriptors");
            // Two handshakes each, the first to hear that the link is forgotten: 12 s in a build
            // for tests.
            assert!(cpu < Duration::from_secs(60), "{cpu:?}");
            assert!(herd.is_whole(), "nobody gave up");
        });
        assert!(running.server.is_running());
    }
}
