//! The rig of the tests in this folder: a listener for visitors and a dialler of targets, joined by
//! a link in memory, all on one thread with real sockets at both ends.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use proto::{Open, Priority, ResetCode, Target};
use relay::{
    Caller, DialError, Gate, Handler, Layer, Listening, Room, Settings, Socket, TargetAddr,
    Targets, Timeouts, connect_stream, listen, open_error_code, refuse_socket, serve_visitor,
};
use std::sync::Arc;
use testkit::origins::{Digest, Pattern};

use super::link::{Link, Opener};

/// The deadline of a test, far longer than any test takes, so that only a hang reaches it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The usual credit and frame size of a link.
pub(crate) const WINDOW: usize = 256 << 10;
pub(crate) const FRAME: usize = 64 << 10;

pub(crate) struct Rig {
    pub(crate) address: SocketAddr,
    pub(crate) link: Rc<Link>,
    pub(crate) visitors: Rc<Settings>,
    pub(crate) targets: Rc<Settings>,
    /// The handler for a further listener that leads to the same target.
    pub(crate) door: Rc<dyn Handler>,
    _listening: Listening,
}

impl Rig {
    pub(crate) fn new(target: SocketAddr) -> Self {
        Self::with(target, WINDOW, FRAME, Timeouts::default(), None)
    }

    pub(crate) fn with(
        target: SocketAddr,
        window: usize,
        frame: usize,
        timeouts: Timeouts,
        gate: Option<Arc<Gate>>,
    ) -> Self {
        let target = TargetAddr::Tcp { host: target.ip().to_string(), port: target.port() };
        Self::to(target, window, frame, timeouts, gate)
    }

    pub(crate) fn to(
        target: TargetAddr,
        window: usize,
        frame: usize,
        timeouts: Timeouts,
        gate: Option<Arc<Gate>>,
    ) -> Self {
        Self::behind(None, target, (window, frame), timeouts, gate)
    }

    /// A rig with a layer above the sockets of targets.
    pub(crate) fn above(layer: Rc<dyn Layer>, target: SocketAddr) -> Self {
        let target = TargetAddr::Tcp { host: target.ip().to_string(), port: target.port() };
        Self::of(
            Caller::default(),
            Above(target, layer),
            (WINDOW, FRAME),
            Timeouts::default(),
            None,
        )
    }

    /// A rig whose target gets this header before the bytes of each stream.
    pub(crate) fn behind(
        header: Option<Bytes>,
        targets_of: impl Targets + Clone,
        sizes: (usize, usize),
        timeouts: Timeouts,
        gate: Option<Arc<Gate>>,
    ) -> Self {
        let caller = Caller { header, ..Caller::default() };
        Self::of(caller, targets_of, sizes, timeouts, gate)
    }

    fn of(
        caller: Caller,
        targets_of: impl Targets + Clone,
        (window, frame): (usize, usize),
        timeouts: Timeouts,
        gate: Option<Arc<Gate>>,
    ) -> Self {
        let settings = || Rc::new(Settings { timeouts, ..Settings::default() });
        let (visitors, targets) = (settings(), settings());
        let of_targets = Rc::clone(&targets);
        let accept = Box::new(move |_open: Open, inlet| {
            connect_stream(targets_of.clone(), caller.clone(), inlet, &of_targets, None)
        });
        let link = Link::new(window, frame, accept);
        let (opener, settings) = (Opener(Rc::clone(&link)), Rc::clone(&visitors));
        let door: Rc<dyn Handler> = Rc::new(Visitors { opener, settings, gate });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let listening = listen(listener, Rc::clone(&door), Room::default()).unwrap();
        let address = listening.local_addr();
        Self { address, link, visitors, targets, door, _listening: listening }
    }

    /// Runs `f` on a thread of its own with a connection to the rig.
    pub(crate) async fn visit<T: Send + 'static>(
        &self,
        f: impl FnOnce(std::net::TcpStream) -> T + Send + 'static,
    ) -> T {
        visit(self.address, f).await
    }

    /// Waits until neither side has a stream left.
    pub(crate) async fn settled(&self) {
        until(|| self.visitors.stats.live() == 0 && self.targets.stats.live() == 0).await;
    }
}

/// A target with a layer above its socket.
#[derive(Clone)]
struct Above(TargetAddr, Rc<dyn Layer>);

impl Targets for Above {
    fn first(&self) -> TargetAddr {
        self.0.clone()
    }

    fn next(&self, _failed: &[DialError]) -> Option<TargetAddr> {
        None
    }

    fn layer(&self, _target: &TargetAddr) -> Option<Rc<dyn Layer>> {
        Some(Rc::clone(&self.1))
    }
}

#[derive(Debug)]
struct Visitors {
    opener: Opener,
    settings: Rc<Settings>,
    gate: Option<Arc<Gate>>,
}

impl Handler for Visitors {
    fn handle(&self, socket: Socket, peer: Option<SocketAddr>) {
        let permit = match &self.gate {
            None => None,
            Some(gate) => match gate.admit() {
                Some(permit) => Some(permit),
                None => return refuse_socket(socket, &self.settings, ResetCode::Limit),
            },
        };
        let open = Open {
            target: Target::Service("test".into()),
            visitor: peer,
            priority: Priority::default(),
            fields: None,
        };
        let served =
            serve_visitor((socket, false), &self.opener, open, &self.settings, permit, None, None);
        if let Err((socket, error)) = served {
            refuse_socket(socket, &self.settings, open_error_code(error));
        }
    }
}

/// Runs a test on the same kind of runtime as a worker's.
pub(crate) fn run(test: impl Future<Output = ()>) {
    on_runtime(tokio::runtime::Builder::new_current_thread().enable_all(), test);
}

/// Runs a test with a paused clock, which jumps over every wait.
pub(crate) fn run_paused(test: impl Future<Output = ()>) {
    on_runtime(tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true), test);
}

fn on_runtime(builder: &mut tokio::runtime::Builder, test: impl Future<Output = ()>) {
    let runtime = builder.build_local(tokio::runtime::LocalOptions::default()).unwrap();
    runtime.block_on(test);
}

pub(crate) async fn visit<T: Send + 'static>(
    address: SocketAddr,
    f: impl FnOnce(std::net::TcpStream) -> T + Send + 'static,
) -> T {
    let visit = move || {
        let socket = std::net::TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        socket.set_write_timeout(Some(DEADLINE)).unwrap();
        f(socket)
    };
    tokio::task::spawn_blocking(visit).await.unwrap()
}

/// Polls `condition` in real time, also under a paused clock.
pub(crate) async fn until(condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < DEADLINE, "the condition did not come true");
        tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(2))).await.unwrap();
    }
}

/// Holds a paused clock, which does not jump while a blocking task runs, until the value is
/// dropped.
pub(crate) fn hold() -> Sender<()> {
    let (held, holds) = channel();
    drop(tokio::task::spawn_blocking(move || holds.recv()));
    held
}

/// Lets the tasks do what is due, under a clock that is held.
pub(crate) async fn quiet() {
    for _ in 0..10 {
        tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(2))).await.unwrap();
    }
}

/// Writes the first `length` bytes of the pattern.
pub(crate) fn send(mut socket: impl Write, length: u64) -> io::Result<()> {
    let pattern = Pattern;
    let mut sent = 0;
    while sent < length {
        let data = pattern.at(sent, length - sent);
        socket.write_all(data)?;
        sent += data.len() as u64;
    }
    Ok(())
}

/// Reads to the end of the socket.
pub(crate) fn receive(mut socket: impl Read) -> io::Result<Digest> {
    let mut digest = Digest::default();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match socket.read(&mut buffer)? {
            0 => return Ok(digest),
            n => digest.update(&buffer[..n]),
        }
    }
}

/// Sends and receives at the same time; half-closes the socket after sending.
pub(crate) fn exchange(socket: &std::net::TcpStream, length: u64) -> io::Result<Digest> {
    let sending = socket.try_clone()?;
    let sender = std::thread::spawn(move || {
        send(&sending, length)?;
        sending.shutdown(Shutdown::Write)
    });
    let received = receive(socket)?;
    sender.join().unwrap()?;
    Ok(received)
}

/// Closes the socket with RST.
pub(crate) fn reset(socket: std::net::TcpStream) {
    socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO)).unwrap();
}
