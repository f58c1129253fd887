//! `load connections`: as many new connections per second as so many at once can make. Each
//! connects, gets one answer through, and closes; only the answer shows that the far end was there.

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

/// Before the next attempt after a failure: a target that refuses is not asked in a busy loop.
const PAUSE: Duration = Duration::from_millis(10);

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// An echo, or with `http` a web server.
    pub target: SocketAddr,
    /// Connections at once.
    pub concurrency: usize,
    /// For how long.
    pub length: Duration,
    /// From how many addresses.
    pub sources: usize,
    /// GET instead of one byte that comes back.
    pub http: bool,
}

/// What came out. Times are microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `connections`.
    pub program: &'static str,
    /// Connections at once.
    pub concurrency: usize,
    /// Seconds that were measured.
    pub seconds: f64,
    /// Connections that got their answer within that time.
    pub connections: u64,
    /// Those per second.
    pub connections_per_s: f64,
    /// From the beginning of the connect to the answer's end.
    pub latency_us: Latency,
    /// Connections that failed, those included that had no answer at the end.
    pub errors: u64,
    /// The same by kind.
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
    /// The request of HTTP.
    request: Option<Vec<u8>>,
    latency: RefCell<Histogram>,
    failures: Failures,
}

/// Runs it.
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
