//! Very many clients lose their server at once, and it comes back.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use link::client::{Client, Report, run as keep};
use link::{Link, Owner, Path, Retry, State};
use proto::control::ControlMessage;
use proto::greeting::{Identity, Name, Token};
use proto::{InstanceId, LinkConfig, Open, ResetCode, Unlimited};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::runtime::{Builder, LocalOptions};
use tokio::time::sleep;
use transport::{Inlet, Outlet};

use crate::harness::{Scheme, Setup, run, tunnel};
use crate::peer::dialer;

/// Clients, where the limit of descriptors allows: both ends of a link are one here and one in the
/// server.
const CLIENTS: usize = 5000;

/// Five times the minute that the design allows: here all the clients share one thread, and the
/// machine has other work.
const BACK: Duration = Duration::from_secs(300);

/// What all clients have told.
#[derive(Debug, Default)]
struct Herd {
    live: Cell<usize>,
    failures: RefCell<Vec<Instant>>,
}

/// The owner of one client's links.
#[derive(Debug)]
struct Member {
    herd: Rc<Herd>,
    live: Cell<Option<u64>>,
}

impl Owner for Member {
    fn accept(&self, _link: &Link, _open: Open, inlet: Box<dyn Inlet>) -> Rc<dyn Outlet> {
        relay::refuse_stream(&*inlet, None, ResetCode::Unknown)
    }

    fn message(&self, _link: &Link, _message: ControlMessage) {}

    fn changed(&self, link: &Link, state: State) {
        let count = &self.herd.live;
        if state == State::Live {
            if self.live.replace(Some(link.serial())).is_none() {
                count.set(count.get() + 1);
            }
        } else if self.live.get() == Some(link.serial()) {
            self.live.set(None);
            count.set(count.get() - 1);
        }
    }
}

/// Raises the limit, and says how many clients fit.
fn clients() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    // The reserve of the server, and whatever else is open here.
    let fit = limit.current.map_or(CLIENTS, |limit| usize::try_from(limit).unwrap() * 3 / 4);
    fit.min(CLIENTS)
}

async fn until(what: &str, limit: Duration, condition: impl Fn() -> bool) -> Duration {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        sleep(Duration::from_millis(20)).await;
    }
    start.elapsed()
}

#[test]
fn five_thousand_clients_come_back_to_a_server_that_was_restarted() {
    for scheme in Scheme::ALL {
        let count = clients();
        let token = String::from_utf8(run(&mut tunnel(&["generate", "token"])).stdout).unwrap();
        let token = token.trim();
        let mut setup = Setup::alone(scheme);
        for n in 0..count {
            writeln!(setup.server_lines, "  - {{ name: c{n}, token: \"{token}\" }}").unwrap();
        }
        let mut running = setup.start_server();
        let (dialer, port) = (dialer(&running), running.server_port());
        let url = format!("{}://127.0.0.1:{port}", scheme.name());
        let herd = Rc::<Herd>::default();
        let mut builder = Builder::new_current_thread();
        let runtime = builder.enable_all().build_local(LocalOptions::default()).unwrap();
        runtime.block_on(async {
            let keepers: Vec<_> = (0..count)
                .map(|n| {
                    let path = Path {
                        url: url.clone(),
                        host: "127.0.0.1".to_owned(),
                        port,
                        dialer: Rc::clone(&dialer),
                    };
                    let client = Client {
                        paths: vec![path],
                        name: Name::new(&format!("c{n}")).unwrap(),
                        identity: Identity::Token(Token::new(token).unwrap()),
                        instance: InstanceId(link::random()),
                        logged_in: Arc::new(AtomicBool::new(false)),
                        leaving: Arc::new(AtomicBool::new(false)),
                        retry: Retry::default(),
                        link: LinkConfig::default(),
                        budget: Rc::new(Unlimited),
                        serial: 1,
                        serials: 1,
                    };
                    let owner = Member { herd: Rc::clone(&herd), live: Cell::new(None) };
                    let told = Rc::clone(&herd);
                    let report = move |report: Report<'_>| {
                        if matches!(report, Report::Unreachable { .. }) {
                            told.failures.borrow_mut().push(Instant::now());
                        }
                    };
                    let work = keep(client, Rc::new(owner), Rc::new(|_| {}), Rc::new(report));
                    tokio::task::spawn_local(work)
                })
                .collect();
            let took = until("all are there", BACK, || herd.live.get() == count).await;
            let (cpu, open) = (running.server.cpu(), running.server.descriptors());
            println!("{scheme:?}: {count} logged in within {took:?}: {cpu:?} of CPU, {open} open");

            running.server.kill();
            until("all have lost it", BACK, || herd.live.get() == 0).await;
            sleep(Duration::from_secs(5)).await;
            herd.failures.borrow_mut().clear();
            let begin = Instant::now();
            sleep(Duration::from_secs(3)).await;
            let buckets = herd.failures.borrow().iter().fold([0usize; 15], |mut buckets, at| {
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
            while herd.live.get() < count {
                assert!(start.elapsed() < BACK, "{} of {count} are back", herd.live.get());
                sleep(Duration::from_millis(100)).await;
                widest = widest.max(running.server.descriptors());
            }
            let (cpu, took) = (running.server.cpu(), start.elapsed());
            println!("{scheme:?}: all back within {took:?}: {cpu:?} of CPU, at most {widest} open");
            // One for each, its successor beside it for a moment, and what a daemon has of its own.
            assert!(widest < 2 * count as u64 + 100, "{widest} descriptors");
            // Two handshakes each, the first to hear that the link is forgotten: 12 s in a build for tests.
            assert!(cpu < Duration::from_secs(60), "{cpu:?}");
            assert!(keepers.iter().all(|keeper| !keeper.is_finished()), "nobody gave up");
            keepers.iter().for_each(tokio::task::JoinHandle::abort);
        });
        assert!(running.server.is_running());
    }
}
