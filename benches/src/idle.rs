//! `load idle`: thousands of connections without traffic. Each passes a byte when it is made, which
//! proves that the far end is connected, and a byte at the end, which proves that the connection
//! was not lost. The program prints a line of JSON when all connections are open, and a line at the
//! end.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::crew::Crew;
use crate::descriptors;
use crate::failures::{Failures, Kind};
use crate::options::{Usage, Words};
use crate::report::rounded;
use crate::sources::{self, Sources};

/// The options of the program.
#[derive(Clone, Debug)]
pub struct Options {
    /// An echo.
    pub target: SocketAddr,
    /// The number of connections.
    pub connections: usize,
    /// The time without traffic.
    pub hold: Duration,
    /// The number of source addresses.
    pub sources: usize,
}

/// The report when all connections are open, and again at the end.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `idle`.
    pub program: &'static str,
    /// `open` or `end`.
    pub event: &'static str,
    /// The requested number of connections.
    pub connections: usize,
    /// Connections that passed a byte: when they were made, or again at the end.
    pub verified: usize,
    /// Seconds since the start.
    pub seconds: f64,
    /// Connections that have failed so far.
    pub errors: u64,
    /// The errors by kind.
    pub failures: BTreeMap<Kind, u64>,
}

impl Options {
    /// `--target ECHO --connections N --hold SECONDS [--sources N]`. The default is as many sources
    /// as the connections need.
    pub fn read(words: &mut Words) -> Result<Self, Usage> {
        let target = words.address("--target")?;
        let connections = words.number("--connections", 1..=1_000_000, None)?;
        descriptors::require(connections)?;
        let hold = words.seconds("--hold", None)?;
        let sources = sources::option_for(words, target, connections)?;
        Ok(Self { target, connections, hold, sources })
    }
}

#[derive(Debug)]
struct Shared {
    sources: Sources,
    open: RefCell<Vec<TcpStream>>,
    verified: Cell<usize>,
    failures: Failures,
}

/// Runs the program. `tell` gets the report when all connections are open; the final report is
/// returned.
pub async fn run(options: &Options, tell: impl FnOnce(&Report)) -> Report {
    let begin = Instant::now();
    let shared = Rc::new(Shared {
        sources: Sources::new(options.target, options.sources),
        open: RefCell::default(),
        verified: Cell::new(0),
        failures: Failures::default(),
    });
    let report = |event: &'static str| Report {
        program: "idle",
        event,
        connections: options.connections,
        verified: shared.verified.get(),
        seconds: rounded(begin.elapsed().as_secs_f64()),
        errors: shared.failures.total(),
        failures: shared.failures.by_kind(),
    };
    shared.for_each((0..options.connections).map(|_| shared.open())).await;
    tell(&report("open"));
    tokio::time::sleep(options.hold).await;
    shared.verified.set(0);
    let open = shared.open.take();
    shared.for_each(open.into_iter().map(|stream| shared.verify(stream))).await;
    report("end")
}

impl Shared {
    /// Runs the work of each connection, a limited number at a time, and keeps the connections.
    async fn for_each<F>(self: &Rc<Self>, works: impl Iterator<Item = F>)
    where
        F: Future<Output = io::Result<TcpStream>> + 'static,
    {
        let mut crew = Crew::new();
        for work in works {
            let shared = Rc::clone(self);
            crew.add(async move |member| match member.prepare(work).await {
                Ok(stream) => {
                    shared.verified.set(shared.verified.get() + 1);
                    shared.open.borrow_mut().push(stream);
                }
                Err(error) => shared.failures.count(Kind::of(&error)),
            });
        }
        let span = crew.start(Duration::ZERO).await;
        self.failures.add(Kind::Timeout, crew.finish(span).await);
    }

    fn open(self: &Rc<Self>) -> impl Future<Output = io::Result<TcpStream>> + use<> {
        let shared = Rc::clone(self);
        async move {
            let stream = shared.sources.connect().await?;
            shared.verify(stream).await
        }
    }

    fn verify(&self, mut stream: TcpStream) -> impl Future<Output = io::Result<TcpStream>> + use<> {
        async move {
            stream.write_all(b"i").await?;
            match stream.read_u8().await? {
                b'i' => Ok(stream),
                _ => Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }
}
