//! `load requests`: each connection sends a request, waits for the answer and repeats, for a fixed
//! time. The connections are made first, each with one exchange that is not counted, and then start
//! together.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::crew::{Crew, Member};
use crate::descriptors;
use crate::failures::{Failures, Kind};
use crate::histogram::{Histogram, Latency};
use crate::http::{self, Asker};
use crate::options::{Usage, Words};
use crate::report::rounded;
use crate::sources::{self, Sources};

/// The pause before a failed connection is made again, so that a dead target causes no busy loop.
const PAUSE: Duration = Duration::from_millis(10);

/// The most bytes of one exchange with an echo.
const EXCHANGE_MAX: usize = 64 << 10;

/// The request and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// A GET of a path, HTTP/1.1 with keep-alive.
    Get(String),
    /// This number of bytes, which the target sends back.
    Echo(usize),
}

/// The options of the program.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address of the server.
    pub target: SocketAddr,
    /// The number of connections.
    pub connections: usize,
    /// The duration of the measurement.
    pub length: Duration,
    /// The number of source addresses.
    pub sources: usize,
    /// The request and its answer.
    pub exchange: Exchange,
}

/// The result of a run. Times are in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `requests`.
    pub program: &'static str,
    /// The requested number of connections.
    pub connections: usize,
    /// The measured seconds.
    pub seconds: f64,
    /// Exchanges completed within the measured time.
    pub requests: u64,
    /// Exchanges per second.
    pub requests_per_s: f64,
    /// The time from the first byte written to the last byte read.
    pub latency_us: Latency,
    /// Connections that the server closed as announced, and that were made again.
    pub reconnects: u64,
    /// All failures, including requests without an answer at the end.
    pub errors: u64,
    /// The errors by kind.
    pub failures: BTreeMap<Kind, u64>,
}

impl Options {
    /// `--target A --connections N --seconds S [--http | --echo BYTES] [--path P] [--sources N]`
    pub fn read(words: &mut Words) -> Result<Self, Usage> {
        let target = words.address("--target")?;
        let connections = words.number("--connections", 1..=100_000, Some(100))?;
        descriptors::require(connections)?;
        let is_http = words.flag("--http");
        let path = words.text("--path");
        let exchange = match words.text("--echo") {
            None => {
                let path = path.unwrap_or_else(|| "/".to_owned());
                if !path.starts_with('/') || path.contains(|c: char| !c.is_ascii_graphic()) {
                    return Err(Usage(format!("--path wants a path like /x, not `{path}`")));
                }
                Exchange::Get(path)
            }
            Some(_) if is_http || path.is_some() => {
                return Err(Usage("--echo goes neither with --http nor with --path".to_owned()));
            }
            Some(text) => Exchange::Echo(
                text.parse().ok().filter(|n| (1..=EXCHANGE_MAX).contains(n)).ok_or_else(|| {
                    Usage(format!("--echo wants 1 to {EXCHANGE_MAX} bytes, not `{text}`"))
                })?,
            ),
        };
        let length = words.seconds("--seconds", None)?;
        let sources = sources::option(words, target)?;
        Ok(Self { target, connections, length, sources, exchange })
    }
}

/// The state that the tasks share.
#[derive(Debug)]
struct Shared {
    sources: Sources,
    exchange: Exchange,
    /// The bytes of one request.
    request: Vec<u8>,
    latency: RefCell<Histogram>,
    reconnects: Cell<u64>,
    failures: Failures,
}

/// Runs the program.
pub async fn run(options: &Options) -> Report {
    let shared = Rc::new(Shared {
        sources: Sources::new(options.target, options.sources),
        exchange: options.exchange.clone(),
        request: match &options.exchange {
            Exchange::Get(path) => http::get(options.target, path),
            Exchange::Echo(size) => vec![b'x'; *size],
        },
        latency: RefCell::default(),
        reconnects: Cell::new(0),
        failures: Failures::default(),
    });
    let mut crew = Crew::new();
    for _ in 0..options.connections {
        crew.add(|member| ask(Rc::clone(&shared), member));
    }
    let span = crew.start(options.length).await;
    shared.failures.add(Kind::Timeout, crew.finish(span).await);
    let latency = shared.latency.borrow();
    let seconds = options.length.as_secs_f64();
    Report {
        program: "requests",
        connections: options.connections,
        seconds,
        requests: latency.count(),
        requests_per_s: rounded(latency.count() as f64 / seconds),
        latency_us: latency.latency(),
        reconnects: shared.reconnects.get(),
        errors: shared.failures.total(),
        failures: shared.failures.by_kind(),
    }
}

/// One connection, and its replacements.
async fn ask(shared: Rc<Shared>, mut member: Member) {
    let first = async {
        let mut talker = shared.connect().await?;
        Ok((talker.exchange(&shared.request).await?).then_some(talker))
    };
    let mut talker = shared.note(member.prepare(first).await).flatten();
    let stop = member.start().await;
    let mut begin = Instant::now();
    while begin < stop {
        let Some(talking) = &mut talker else {
            talker = shared.note(shared.connect().await);
            if talker.is_none() {
                tokio::time::sleep(PAUSE).await;
            }
            begin = Instant::now();
            continue;
        };
        let outcome = talking.exchange(&shared.request).await;
        let end = Instant::now();
        match shared.note(outcome) {
            Some(stays) => {
                if end <= stop {
                    shared.latency.borrow_mut().record(end - begin);
                }
                if !stays {
                    shared.reconnects.set(shared.reconnects.get() + 1);
                    talker = None;
                }
            }
            None => talker = None,
        }
        begin = end;
    }
}

impl Shared {
    async fn connect(&self) -> io::Result<Talker> {
        let stream = self.sources.connect().await?;
        Ok(match &self.exchange {
            Exchange::Get(_) => Talker::Http(Asker::new(stream)),
            Exchange::Echo(size) => Talker::Echo(stream, vec![0; *size].into_boxed_slice()),
        })
    }

    /// Counts the failure, if there is one.
    fn note<T>(&self, outcome: io::Result<T>) -> Option<T> {
        outcome.inspect_err(|error| self.failures.count(Kind::of(error))).ok()
    }
}

#[derive(Debug)]
enum Talker {
    Http(Asker),
    Echo(TcpStream, Box<[u8]>),
}

impl Talker {
    /// Returns whether the connection stays open afterwards.
    async fn exchange(&mut self, request: &[u8]) -> io::Result<bool> {
        match self {
            Self::Http(asker) => asker.ask(request).await,
            Self::Echo(stream, buffer) => {
                stream.write_all(request).await?;
                stream.read_exact(buffer).await?;
                Ok(true)
            }
        }
    }
}
