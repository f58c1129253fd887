//! Idle connections come to rest: their tasks end, and everything else stays as it was.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and the kernel has a clock of its own"
)]

use std::cell::Cell;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use proto::{Bounds, Budget, Limits};
use relay::{
    Caller, ConnectionTable, Gate, Handler, Listening, Permit, Room, Settings, Socket, TargetAddr,
    Timeouts, connect_stream, listen, serve_here,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};

const KIB: u64 = 1 << 10;

/// What a connection is charged for.
const AWAKE: u64 = 4 * KIB;
const AT_REST: u64 = KIB;

/// A budget that counts.
#[derive(Debug, Default)]
struct Purse(Cell<u64>);

impl Budget for Purse {
    fn draw(&self, bytes: u64) -> bool {
        self.charge(bytes);
        true
    }

    fn charge(&self, bytes: u64) {
        self.0.set(self.0.get() + bytes);
    }

    fn release(&self, bytes: u64) {
        self.0.set(self.0.get().checked_sub(bytes).unwrap());
    }

    fn left(&self) -> u64 {
        self.total() - self.0.get()
    }

    fn total(&self) -> u64 {
        1 << 30
    }
}

#[derive(Debug)]
struct Door {
    target: SocketAddr,
    near: Rc<Settings>,
    far: Rc<Settings>,
    gate: Arc<Gate>,
    table: Rc<ConnectionTable>,
}

impl Handler for Door {
    fn handle(&self, socket: Socket, peer: Option<SocketAddr>) {
        let permit: Permit = self.gate.admit().unwrap();
        let target =
            TargetAddr::Tcp { host: self.target.ip().to_string(), port: self.target.port() };
        serve_here((socket, false), peer, &self.near, permit, &self.table, |inlet| {
            connect_stream(target, Caller::default(), inlet, &self.far, None)
        });
    }
}

/// A listener in front of a target.
struct Rig {
    origin: TcpListener,
    address: SocketAddr,
    purse: Rc<Purse>,
    door: Rc<Door>,
    _listening: Listening,
}

impl Rig {
    async fn new(timeouts: Timeouts) -> Self {
        let origin = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let purse = Rc::<Purse>::default();
        let budget: Rc<dyn Budget> = Rc::<Purse>::clone(&purse);
        let gate = Gate::new(Some(9));
        let near = Settings {
            timeouts,
            budget: Some(budget),
            gate: Some(Arc::clone(&gate)),
            ..Settings::default()
        };
        let far = Settings {
            timeouts: timeouts.without_limits(),
            gate: Some(Arc::clone(&gate)),
            ..Settings::default()
        };
        let target = origin.local_addr().unwrap();
        let (near, far, table) = (Rc::new(near), Rc::new(far), Rc::default());
        let door = Rc::new(Door { target, near, far, gate, table });
        let socket = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let listening = listen(socket, Rc::<Door>::clone(&door), Room::default()).unwrap();
        Self { origin, address: listening.local_addr(), purse, door, _listening: listening }
    }

    /// A visitor and its target, between which bytes have passed in both directions.
    async fn pair(&self) -> (TcpStream, TcpStream) {
        let mut visitor = TcpStream::connect(self.address).await.unwrap();
        let mut target = self.origin.accept().await.unwrap().0;
        pass(&mut visitor, &mut target, b"question").await;
        pass(&mut target, &mut visitor, b"answer").await;
        (visitor, target)
    }

    /// A pair that has come to rest.
    async fn resting(&self) -> (TcpStream, TcpStream) {
        let pair = self.pair().await;
        self.comes_to_rest().await;
        pair
    }

    async fn comes_to_rest(&self) {
        assert_eq!(self.purse.0.get(), AWAKE, "it is awake first");
        // The system acknowledges bytes after at most 200 ms of its own time (TCP_DELACK_MAX).
        std::thread::sleep(Duration::from_millis(250));
        let begin = Instant::now();
        self.until(|| self.purse.0.get() == AT_REST).await;
        let took = begin.elapsed();
        assert!(took <= Duration::from_secs(46), "{took:?}");
        assert_eq!(self.door.near.stats.live(), 1);
        assert_eq!(self.door.far.stats.live(), 1);
        assert_eq!(self.door.gate.live(), 1);
        assert_eq!(self.door.table.len(), 1);
    }

    async fn until(&self, mut holds: impl FnMut() -> bool) {
        let limit = Duration::from_secs(120);
        let wait = async {
            while !holds() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(limit, wait).await.unwrap();
    }

    /// The connection is over, and everything was given back.
    async fn is_over(&self) {
        self.until(|| self.purse.0.get() == 0).await;
        self.until(|| self.door.near.stats.live() == 0 && self.door.far.stats.live() == 0).await;
        assert_eq!(self.door.gate.live(), 0);
        assert!(self.door.table.is_empty());
    }
}

async fn pass(from: &mut TcpStream, to: &mut TcpStream, bytes: &[u8]) {
    from.write_all(bytes).await.unwrap();
    let mut got = vec![0; bytes.len()];
    to.read_exact(&mut got).await.unwrap();
    assert_eq!(got, bytes);
}

async fn is_reset(socket: &mut TcpStream) {
    let error = socket.read(&mut [0; 9]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

fn run(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(true);
    builder.build_local(tokio::runtime::LocalOptions::default()).unwrap().block_on(test);
}

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

#[test]
fn bytes_wake_a_connection_and_it_comes_to_rest_again() {
    run(async {
        let rig = Rig::new(Timeouts::default()).await;
        let (mut visitor, mut target) = rig.pair().await;
        let (awake, begin) = (tasks(), Instant::now());
        let number = rig.door.table.list(0, 9)[0].0;
        rig.comes_to_rest().await;
        assert!(begin.elapsed() > Duration::from_secs(14), "not while it may be in use");
        // Two pumps and their watch end, and one task is for all that rest.
        rig.until(|| tasks() == awake - 2).await;
        let listed = rig.door.table.list(0, 9).pop().unwrap();
        let entry = listed.1.unwrap();
        assert_eq!((listed.0, entry.bytes_in, entry.bytes_out), (number, 8, 6));
        assert_eq!(entry.visitor, Some(visitor.local_addr().unwrap()));

        pass(&mut target, &mut visitor, b"the target may begin").await;
        assert_eq!(rig.purse.0.get(), AWAKE);
        pass(&mut visitor, &mut target, b"and the visitor answers").await;
        let entry = rig.door.table.list(0, 9).pop().unwrap();
        assert_eq!(entry.0, number);
        assert_eq!(entry.1.unwrap().bytes_in, 31);
        assert_eq!(rig.door.near.stats.opened(), 1, "it is the same connection");

        rig.comes_to_rest().await;
        pass(&mut visitor, &mut target, &[7; 8 << 10]).await;
        drop((visitor, target));
        rig.is_over().await;
        // The tasks of all connections of the worker do not outlive them.
        sleep(Duration::from_secs(40)).await;
        assert_eq!(tasks(), awake - 3, "two pumps, and their watch");
    });
}

#[test]
fn an_end_wakes_a_connection_and_the_other_direction_goes_on() {
    run(async {
        let rig = Rig::new(Timeouts::default()).await;
        let (mut visitor, mut target) = rig.resting().await;
        visitor.shutdown().await.unwrap();
        assert_eq!(target.read(&mut [0; 9]).await.unwrap(), 0);
        pass(&mut target, &mut visitor, b"the last word").await;
        drop(target);
        assert_eq!(visitor.read(&mut [0; 9]).await.unwrap(), 0);
        rig.is_over().await;
    });
}

#[test]
fn a_reset_wakes_a_connection() {
    run(async {
        let rig = Rig::new(Timeouts::default()).await;
        for of_target in [false, true] {
            let (mut visitor, mut target) = rig.resting().await;
            let (from, to) = match of_target {
                true => (target, &mut visitor),
                false => (visitor, &mut target),
            };
            from.set_zero_linger().unwrap();
            drop(from);
            is_reset(to).await;
            rig.is_over().await;
        }
    });
}

#[test]
fn a_connection_at_rest_is_closed_by_its_number() {
    run(async {
        let rig = Rig::new(Timeouts::default()).await;
        let (mut visitor, mut target) = rig.resting().await;
        let number = rig.door.table.list(0, 9)[0].0;
        assert!(rig.door.table.abort(number));
        is_reset(&mut visitor).await;
        is_reset(&mut target).await;
        rig.is_over().await;
        assert!(!rig.door.table.abort(number));
    });
}

#[test]
fn time_outs_end_a_connection_that_was_at_rest() {
    let never = Timeouts::default();
    let time = Duration::from_secs(600);
    for timeouts in [
        Timeouts { idle: time, ..never },
        Timeouts { idle_up: time, ..never },
        Timeouts { idle_down: time, ..never },
        Timeouts { total: time, ..never },
    ] {
        run(async {
            let rig = Rig::new(timeouts).await;
            let begin = Instant::now();
            let (mut visitor, mut target) = rig.resting().await;
            is_reset(&mut visitor).await;
            is_reset(&mut target).await;
            let took = begin.elapsed();
            // A watchdog is exact to a quarter of its time.
            assert!(took >= time - Duration::from_secs(1), "{timeouts:?}: {took:?}");
            assert!(took <= time + time / 4 + Duration::from_secs(1), "{timeouts:?}: {took:?}");
            rig.is_over().await;
        });
    }
}

#[test]
fn a_byte_at_rest_puts_an_idle_time_out_off() {
    run(async {
        let time = Duration::from_secs(600);
        let rig = Rig::new(Timeouts { idle: time, ..Timeouts::default() }).await;
        let (mut visitor, mut target) = rig.resting().await;
        sleep(Duration::from_secs(400)).await;
        assert_eq!(rig.purse.0.get(), AT_REST);
        let begin = Instant::now();
        pass(&mut visitor, &mut target, b"not idle").await;
        is_reset(&mut visitor).await;
        let took = begin.elapsed();
        assert!(took >= time - Duration::from_secs(1), "{took:?}");
    });
}

#[test]
fn a_connection_with_a_short_time_out_or_with_bytes_that_wait_stays_awake() {
    run(async {
        let minute = Timeouts { idle: Duration::from_secs(60), ..Timeouts::default() };
        let rig = Rig::new(minute).await;
        let _pair = rig.pair().await;
        sleep(Duration::from_secs(50)).await;
        assert_eq!(rig.purse.0.get(), AWAKE);
    });
    run(async {
        let rig = Rig::new(Timeouts::default()).await;
        let (mut visitor, mut target) = rig.pair().await;
        // Nobody reads at the target.
        while let Ok(sent) = timeout(Duration::from_secs(1), visitor.write(&[7; 64 << 10])).await {
            sent.unwrap();
        }
        sleep(Duration::from_secs(90)).await;
        assert!(rig.purse.0.get() > AWAKE);
        drop(visitor);
        let mut all = Vec::new();
        target.read_to_end(&mut all).await.unwrap();
        assert!(all.len() > 64 << 10, "{}", all.len());
    });
}

#[test]
fn rates_hold_for_a_connection_that_wakes() {
    run(async {
        let rig = Rig::new(Timeouts::default()).await;
        let (mut visitor, mut target) = rig.resting().await;
        let all = Bounds { up: std::num::NonZeroU64::new(64 << 10), ..Bounds::default() };
        rig.door.gate.set(&Limits { all, ..Limits::default() });
        let begin = Instant::now();
        let (sending, mut got) = (vec![7; 640 << 10], vec![0; 640 << 10]);
        let (sent, read) = tokio::join!(visitor.write_all(&sending), target.read_exact(&mut got));
        sent.unwrap();
        read.unwrap();
        let took = begin.elapsed();
        assert!(took > Duration::from_secs(9) && took < Duration::from_secs(11), "{took:?}");
    });
}

#[test]
fn the_end_of_the_worker_resets_connections_at_rest() {
    let sockets = Cell::new(None);
    run(async {
        let rig = Rig::new(Timeouts::default()).await;
        let (visitor, target) = rig.resting().await;
        sockets.set(Some([visitor, target].map(|socket| socket.into_std().unwrap())));
    });
    run(async {
        for socket in sockets.take().unwrap() {
            is_reset(&mut TcpStream::from_std(socket).unwrap()).await;
        }
    });
}
