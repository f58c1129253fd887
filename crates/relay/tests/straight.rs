//! Visitors of a default target: the same ends as those of a stream, and memory from the budget.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test fails by panicking, and its visitors are threads that may wait"
)]

use std::cell::Cell;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proto::{Bounds, Budget, Limits, ResetCode};
use relay::{
    Gate, Handler, Listening, Room, Settings, Socket, Straight, TargetAddr, Timeouts, listen,
};
use testkit::origins::Origin;
use tokio::time::{Instant, sleep};

const KIB: u64 = 1 << 10;

/// A budget that counts.
#[derive(Debug)]
struct Purse {
    total: u64,
    used: Cell<u64>,
}

impl Budget for Purse {
    fn draw(&self, bytes: u64) -> bool {
        let fits = bytes <= self.left();
        if fits {
            self.charge(bytes);
        }
        fits
    }

    fn charge(&self, bytes: u64) {
        self.used.set(self.used.get() + bytes);
    }

    fn release(&self, bytes: u64) {
        self.used.set(self.used.get().checked_sub(bytes).unwrap());
    }

    fn left(&self) -> u64 {
        self.total.saturating_sub(self.used.get())
    }

    fn total(&self) -> u64 {
        self.total
    }
}

struct Rig {
    address: SocketAddr,
    purse: Rc<Purse>,
    straight: Rc<Straight>,
    gate: Arc<Gate>,
    _listening: Listening,
}

#[derive(Debug)]
struct Door(Rc<Straight>, Arc<Gate>);

impl Handler for Door {
    fn handle(&self, socket: Socket, peer: Option<SocketAddr>) {
        self.0.serve(socket, peer, self.1.admit());
    }
}

impl Rig {
    fn new(target: SocketAddr, budget: u64, limit: u32, timeouts: Timeouts) -> Self {
        let purse = Rc::new(Purse { total: budget, used: Cell::new(0) });
        let target = TargetAddr::Tcp { host: target.ip().to_string(), port: target.port() };
        let gate = Gate::new(Some(limit));
        let of_settings = Some(Arc::clone(&gate));
        let settings = Settings { timeouts, gate: of_settings, ..Settings::default() };
        let settings = Rc::new(settings);
        let straight = Straight::new(target, settings, Rc::<Purse>::clone(&purse));
        let door = Rc::new(Door(Rc::clone(&straight), Arc::clone(&gate)));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let listening = listen(listener, door, Room::default()).unwrap();
        let address = listening.local_addr();
        Self { address, purse, straight, gate, _listening: listening }
    }

    async fn settled(&self) {
        until(|| self.straight.stats().live() == 0 && self.purse.used.get() == 0).await;
    }
}

async fn until(mut holds: impl FnMut() -> bool) {
    let mut turns = 0;
    while !holds() {
        turns += 1;
        assert!(turns < 20_000, "it never holds");
        // The clock may be paused, and other threads need real time.
        std::thread::sleep(Duration::from_millis(1));
        sleep(Duration::from_millis(10)).await;
    }
}

fn run(paused: bool, test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(paused);
    builder.build_local(tokio::runtime::LocalOptions::default()).unwrap().block_on(test);
}

/// A socket to the rig that sends until nothing more goes.
fn stuff(address: SocketAddr) -> TcpStream {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_nonblocking(true).unwrap();
    stuff_more(&mut socket);
    socket
}

fn stuff_more(socket: &mut TcpStream) -> usize {
    let mut sent = 0;
    while let Ok(size) = socket.write(&[7; 64 << 10]) {
        sent += size;
    }
    sent
}

/// Sends without end and reads nothing.
fn deaf_and_loud() -> Origin {
    Origin::source(1 << 40).unwrap()
}

#[test]
fn bytes_and_ends_pass_whole_however_short_memory_is() {
    for budget in [64 << 20, 5 * KIB] {
        run(false, async move {
            let origin = Origin::half_close_echo().unwrap();
            let rig = Rig::new(origin.address(), budget, 10, Timeouts::default());
            let address = rig.address;
            let visit = std::thread::spawn(move || {
                let mut socket = TcpStream::connect(address).unwrap();
                let sent: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
                let mut writer = socket.try_clone().unwrap();
                let bytes = sent.clone();
                let writing = std::thread::spawn(move || {
                    writer.write_all(&bytes).unwrap();
                    writer.shutdown(Shutdown::Write).unwrap();
                });
                let mut seen = Vec::new();
                socket.read_to_end(&mut seen).unwrap();
                writing.join().unwrap();
                assert!(seen == sent, "{} bytes of {}", seen.len(), sent.len());
            });
            until(|| visit.is_finished()).await;
            visit.join().unwrap();
            rig.settled().await;
            let stats = rig.straight.stats();
            assert_eq!((stats.opened(), stats.bytes_in()), (1, 3_000_000));
            assert_eq!(stats.bytes_out(), 3_000_000);
        });
    }
}

#[test]
fn what_waits_is_charged_and_bounded_by_the_budget() {
    run(false, async {
        let origin = deaf_and_loud();
        let rig = Rig::new(origin.address(), 1 << 20, 1000, Timeouts::default());
        let (mut visitors, stats) = (Vec::new(), rig.straight.stats());
        for count in 1..=40 {
            visitors.push(stuff(rig.address));
            // The newest are refused once the others have used the budget up.
            until(|| stats.opened() + stats.refused(ResetCode::Limit) == count).await;
        }
        assert!(stats.opened() >= 10, "{}", stats.opened());
        for _ in 0..50 {
            for socket in &mut visitors {
                let _ = stuff_more(socket);
            }
            sleep(Duration::from_millis(2)).await;
        }
        let used = rig.purse.used.get();
        assert!(used >= stats.opened() * 4 * KIB, "{used}");
        assert!(used <= 1 << 20, "{used}");
        drop(visitors);
        drop(origin);
        rig.settled().await;
    });
}

#[test]
fn bulk_moves_as_pages_and_what_is_short_takes_no_pipe() {
    run(false, async {
        let origin = Origin::half_close_echo().unwrap();
        let rig = Rig::new(origin.address(), 64 << 20, 10, Timeouts::default());
        let is_forced = std::env::var_os("TUNNEL_PAGES").is_some();
        for (total, is_bulk) in [(100_000_usize, false), (60_000_000, true)] {
            let address = rig.address;
            let visit = std::thread::spawn(move || {
                let mut socket = TcpStream::connect(address).unwrap();
                let mut writer = socket.try_clone().unwrap();
                let writing = std::thread::spawn(move || {
                    let bytes: Vec<u8> = (0..total).map(|n| (n % 251) as u8).collect();
                    writer.write_all(&bytes).unwrap();
                    writer.shutdown(Shutdown::Write).unwrap();
                });
                let mut seen = Vec::new();
                socket.read_to_end(&mut seen).unwrap();
                writing.join().unwrap();
                assert_eq!(seen.len(), total);
                assert!(seen.iter().enumerate().all(|(n, byte)| *byte == (n % 251) as u8));
            });
            until(|| visit.is_finished()).await;
            visit.join().unwrap();
            rig.settled().await;
            let (used, idle) = net::pages::pipes();
            assert_eq!(used, 0, "{total} bytes");
            // The forced rule takes a pipe for any bytes.
            if is_bulk || !is_forced {
                assert_eq!(idle > 0, is_bulk, "{total} bytes: {idle} idle pipes");
            }
        }
        let stats = rig.straight.stats();
        assert_eq!((stats.bytes_in(), stats.bytes_out()), (60_100_000, 60_100_000));
    });
}

#[test]
fn pages_that_wait_are_charged_and_given_back() {
    run(false, async {
        let origin = deaf_and_loud();
        let rig = Rig::new(origin.address(), 64 << 20, 10, Timeouts::default());
        // The visitor reads enough to show that the target is bulk, and then no more.
        let mut visitor = TcpStream::connect(rig.address).unwrap();
        visitor.set_nonblocking(true).unwrap();
        let (mut read, mut buffer) = (0, vec![0; 1 << 20]);
        until(|| {
            read += visitor.read(&mut buffer).unwrap_or(0);
            read >= 64 << 20
        })
        .await;
        until(|| net::pages::pipes().0 == 1).await;
        sleep(Duration::from_millis(200)).await;
        assert_eq!(net::pages::pipes().0, 1, "one pipe waits for the visitor");
        let used = rig.purse.used.get();
        assert!(used > 4 * KIB && used <= 4 * KIB + 2 * (256 + 64) * KIB, "{used}");
        let before = rig.straight.stats().bytes_out();
        until(|| {
            read += visitor.read(&mut buffer).unwrap_or(0);
            rig.straight.stats().bytes_out() > before + (16 << 20)
        })
        .await;
        drop((visitor, origin));
        rig.settled().await;
        assert_eq!(net::pages::pipes().0, 0);
    });
}

#[test]
fn what_moved_before_the_system_refuses_pages_is_counted_and_given_back() {
    run(false, async {
        const TOTAL: u64 = 100 << 20;
        let origin = Origin::source(TOTAL).unwrap();
        let rig = Rig::new(origin.address(), 64 << 20, 10, Timeouts::default());
        let mut visitor = TcpStream::connect(rig.address).unwrap();
        visitor.set_nonblocking(true).unwrap();
        let (mut read, mut buffer) = (0, vec![0; 1 << 20]);
        until(|| {
            read += visitor.read(&mut buffer).unwrap_or(0);
            read >= 64 << 20
        })
        .await;
        until(|| net::pages::pipes().0 == 1).await;
        sleep(Duration::from_millis(50)).await;
        net::pages::refuse_after(1000);
        let mut has_ended = false;
        until(|| {
            match visitor.read(&mut buffer) {
                Ok(0) => has_ended = true,
                Ok(n) => read += n,
                Err(_) => {}
            }
            has_ended
        })
        .await;
        assert_eq!((read as u64, rig.straight.stats().bytes_out()), (TOTAL, TOTAL));
        drop(visitor);
        rig.settled().await;
    });
}

/// Rates that hold for a moment, from another thread, as a reload sets them.
#[test]
fn a_rate_that_comes_and_goes_loses_no_byte() {
    run(false, async {
        let origin = Origin::half_close_echo().unwrap();
        let rig = Rig::new(origin.address(), 64 << 20, 10, Timeouts::default());
        let (address, gate) = (rig.address, Arc::clone(&rig.gate));
        let visit = std::thread::spawn(move || {
            let mut socket = TcpStream::connect(address).unwrap();
            let mut writer = socket.try_clone().unwrap();
            let writing = std::thread::spawn(move || {
                let bytes: Vec<u8> = (0..60_000_000_u32).map(|n| (n % 251) as u8).collect();
                writer.write_all(&bytes).unwrap();
                writer.shutdown(Shutdown::Write).unwrap();
            });
            let mut seen = Vec::new();
            socket.read_to_end(&mut seen).unwrap();
            writing.join().unwrap();
            assert_eq!(seen.len(), 60_000_000);
            assert!(seen.iter().enumerate().all(|(n, byte)| *byte == (n % 251) as u8));
        });
        let ends = Arc::new(AtomicBool::new(false));
        let until_end = Arc::clone(&ends);
        let changing = std::thread::spawn(move || {
            let rate = NonZeroU64::new(1 << 40);
            let all = Bounds { up: rate, down: rate, ..Bounds::default() };
            while !until_end.load(Ordering::Relaxed) {
                for all in [all, Bounds::default()] {
                    gate.set(&Limits { all, ..Limits::default() });
                    std::thread::sleep(Duration::from_micros(300));
                }
            }
        });
        until(|| visit.is_finished()).await;
        ends.store(true, Ordering::Relaxed);
        changing.join().unwrap();
        visit.join().unwrap();
        rig.settled().await;
        let stats = rig.straight.stats();
        assert_eq!((stats.bytes_in(), stats.bytes_out()), (60_000_000, 60_000_000));
    });
}

#[test]
fn a_visitor_beyond_the_limit_or_the_budget_is_reset_and_counted() {
    for (budget, limit) in [(1 << 20, 0), (4 * KIB, 10)] {
        run(false, async move {
            let origin = Origin::echo().unwrap();
            let rig = Rig::new(origin.address(), budget, limit, Timeouts::default());
            let mut visitor = TcpStream::connect(rig.address).unwrap();
            until(|| rig.straight.stats().refused(ResetCode::Limit) == 1).await;
            assert!(visitor.read(&mut [0; 10]).is_err());
            rig.settled().await;
        });
    }
}

#[test]
fn a_target_that_refuses_resets_its_visitor_and_is_counted_once() {
    run(false, async {
        let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let rig = Rig::new(closed, 1 << 20, 10, Timeouts::default());
        let mut visitor = TcpStream::connect(rig.address).unwrap();
        until(|| rig.straight.stats().refused(ResetCode::Refused) == 1).await;
        rig.settled().await;
        assert!(visitor.read(&mut [0; 10]).is_err());
    });
}

#[test]
fn a_connection_without_bytes_ends_after_its_time_out() {
    run(true, async {
        let origin = Origin::never_reader().unwrap();
        let timeouts = Timeouts { idle: Duration::from_secs(300), ..Timeouts::default() };
        let rig = Rig::new(origin.address(), 1 << 20, 10, timeouts);
        let begin = Instant::now();
        let _visitor = TcpStream::connect(rig.address).unwrap();
        until(|| rig.straight.stats().opened() == 1).await;
        sleep(Duration::from_secs(200)).await;
        assert_eq!(rig.straight.stats().live(), 1);
        sleep(Duration::from_secs(200)).await;
        rig.settled().await;
        assert!(begin.elapsed() >= Duration::from_secs(300));
    });
}

#[test]
fn a_connection_in_which_both_directions_are_stuck_ends_and_a_paused_one_does_not() {
    run(true, async {
        // A target that does not send: only the visitor's direction is stuck.
        let origin = Origin::never_reader().unwrap();
        let rig = Rig::new(origin.address(), 1 << 20, 10, Timeouts::default());
        let mut paused = stuff(rig.address);
        until(|| rig.straight.stats().opened() == 1).await;
        while stuff_more(&mut paused) > 0 {
            sleep(Duration::from_millis(5)).await;
        }
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(rig.straight.stats().live(), 1);
        drop((paused, origin));
        rig.settled().await;

        let origin = deaf_and_loud();
        let rig = Rig::new(origin.address(), 1 << 20, 10, Timeouts::default());
        let mut stuck = stuff(rig.address);
        until(|| rig.straight.stats().opened() == 1).await;
        while stuff_more(&mut stuck) > 0 {
            std::thread::sleep(Duration::from_millis(5));
            sleep(Duration::from_millis(5)).await;
        }
        let begin = Instant::now();
        until(|| rig.straight.stats().live() == 0).await;
        let took = begin.elapsed();
        assert!(took <= Duration::from_secs(120), "{took:?}");
        rig.settled().await;
    });
}
