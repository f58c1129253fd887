//! `load connections`: the rate of new connections with a fixed number of concurrent attempts. Each
//! connection gets one answer and closes; only the answer proves that the far end was connected.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::crew::{Crew, Member};
use crate::descriptors;
use crate::failures::{Failures, Kind};
use crate::histogram::{Histogram, Latency};
use crate::http::{self, Asker};
use crate::options::{Usage, Words};
use crate::report::rounded;
use crate::sources::{self, Sources};

/// The pause after a failed attempt, so that a target that refuses connections causes no busy loop.
const PAUSE: Duration = Duration::from_millis(10);

/// The options of the program.
#[derive(Clone, Debug)]
pub struct Options {
    /// An echo, or a web server with `http`.
    pub target: SocketAddr,
    /// The number of concurrent connections.
    pub concurrency: usize,
    /// The duration of the measurement.
    pub length: Duration,
    /// The number of source addresses.
    pub sources: usize,
    /// Whether to send a GET in place of one echoed byte.
    pub http: bool,
}

/// The result of a run. Times are in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `connections`.
    pub program: &'static str,
    /// The number of concurrent connections.
    pub concurrency: usize,
    /// The measured seconds.
    pub seconds: f64,
    /// Connections that got their answer within the measured time.
    pub connections: u64,
    /// Connections per second.
    pub connections_per_s: f64,
    /// The time from the start of the connect to the end of the answer.
    pub latency_us: Latency,
    /// Connections that failed, including connections without an answer at the end.
    pub errors: u64,
    /// The errors by kind.
    pub failures: BTreeMap<Kind, u64>,
}

impl Options {
    /// `--target A --seconds S [--concurrency C] [--http] [--sources N]`
    pub fn read(words: &mut Words) -> Result<Self, Usage> {
        let target = words.address("--target")?;
        let concurrency = words.number("--concurrency", 1..=10_000, Some(16))?;
        descriptors::require(concurrency)?;
        Ok(Self {
            target,
            concurrency,
            length: words.seconds("--seconds", None)?,
            sources: sources::option(words, target)?,
            http: words.flag("--http"),
        })
    }
}

#[derive(Debug)]
struct Shared {
    sources: Sources,
    /// The bytes of the HTTP request.
    request: Option<Vec<u8>>,
    latency: RefCell<Histogram>,
    failures: Failures,
}

/// Runs the program.
pub async fn run(options: &Options) -> Report {
    let shared = Rc::new(Shared {
        sources: Sources::new(options.target, options.sources),
        request: options.http.then(|| http::get(options.target, "/")),
        latency: RefCell::default(),
        failures: Failures::default(),
    });
    let mut crew = Crew::new();
    for _ in 0..options.concurrency {
        crew.add(|member| connect_again_and_again(Rc::clone(&shared), member));
    }
    let span = crew.start(options.length).await;
    shared.failures.add(Kind::Timeout, crew.finish(span).await);
    let latency = shared.latency.borrow();
    let seconds = options.length.as_secs_f64();
    Report {
        program: "connections",
        concurrency: options.concurrency,
        seconds,
        connections: latency.count(),
        connections_per_s: rounded(latency.count() as f64 / seconds),
        latency_us: latency.latency(),
        errors: shared.failures.total(),
        failures: shared.failures.by_kind(),
    }
}

async fn connect_again_and_again(shared: Rc<Shared>, mut member: Member) {
    member.prepare(async {}).await;
    let stop = member.start().await;
    let mut begin = Instant::now();
    while begin < stop {
        let outcome = shared.connect_once().await;
        let mut end = Instant::now();
        match outcome {
            Ok(()) if end <= stop => shared.latency.borrow_mut().record(end - begin),
            Ok(()) => {}
            Err(error) => {
                shared.failures.count(Kind::of(&error));
                tokio::time::sleep(PAUSE).await;
                end = Instant::now();
            }
        }
        begin = end;
    }
}

impl Shared {
    async fn connect_once(&self) -> io::Result<()> {
        let mut stream = self.sources.connect().await?;
        if let Some(request) = &self.request {
            return Asker::new(stream).ask(request).await.map(drop);
        }
        stream.write_all(b"x").await?;
        match stream.read_u8().await? {
            b'x' => Ok(()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}
