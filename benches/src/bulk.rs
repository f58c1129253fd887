//! `load bulk`: streams of bytes into a sink or out of a source. Only bytes that have arrived
//! count. For a sink these are the bytes it has reported, not the bytes that this end wrote into
//! buffers on the way.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep_until, timeout};

use crate::crew::{Crew, Member, Span};
use crate::descriptors;
use crate::failures::{Failures, Kind};
use crate::options::{Usage, Words};
use crate::origin::{READ, WRITE_MAX};
use crate::report::rounded;
use crate::socks;
use crate::sources::Sources;

/// The direction of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// To the target, a sink.
    Up,
    /// From the target, a source.
    Down,
}

/// The options of the program.
#[derive(Clone, Debug)]
pub struct Options {
    /// A sink for `Up`, a source for `Down`.
    pub target: SocketAddr,
    /// The proxy that connects to the target, by SOCKS5.
    pub proxy: Option<SocketAddr>,
    /// The number of concurrent connections.
    pub streams: usize,
    /// Bytes of one write; for `Down`, of the source's writes.
    pub write: usize,
    /// The direction of the bytes.
    pub direction: Direction,
    /// The duration of the measurement.
    pub length: Duration,
}

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `bulk`.
    pub program: &'static str,
    /// `up` or `down`.
    pub direction: Direction,
    /// The number of concurrent connections.
    pub streams: usize,
    /// Bytes of one write.
    pub write: usize,
    /// The measured seconds.
    pub seconds: f64,
    /// Bytes that arrived.
    pub bytes: u64,
    /// 10^9 bits per second, all streams together.
    pub gbit_per_s: f64,
    /// The same rate for each whole second.
    pub by_second: Vec<f64>,
    /// Streams that could not connect, ended early, or moved no byte.
    pub errors: u64,
    /// The errors by kind.
    pub failures: BTreeMap<Kind, u64>,
}

impl Options {
    /// `--target A --seconds S [--socks5 PROXY] [--streams N] [--write BYTES] [--direction
    /// up|down]`
    pub fn read(words: &mut Words) -> Result<Self, Usage> {
        let streams = words.number("--streams", 1..=1000, Some(1))?;
        descriptors::require(streams)?;
        let directions = [("up", Direction::Up), ("down", Direction::Down)];
        Ok(Self {
            target: words.address("--target")?,
            proxy: words.optional_address("--socks5")?,
            streams,
            write: words.bytes("--write", 1..=WRITE_MAX, 128 << 10)?,
            direction: words.one_of("--direction", &directions, Some(Direction::Up))?,
            length: words.seconds("--seconds", None)?,
        })
    }
}

/// The progress of one stream.
#[derive(Debug, Default)]
struct Progress {
    bytes: Cell<u64>,
    /// The time of the count. For a source the count is always current.
    at: Cell<Option<Instant>>,
}

#[derive(Debug)]
struct Shared {
    sources: Sources,
    /// The target that the proxy is asked for.
    asked: Option<SocketAddr>,
    write: usize,
    direction: Direction,
    failures: Failures,
    streams: Vec<Progress>,
}

/// Runs the program.
pub async fn run(options: &Options) -> Report {
    let shared = Rc::new(Shared {
        sources: Sources::new(options.proxy.unwrap_or(options.target), 1),
        asked: options.proxy.map(|_| options.target),
        write: options.write,
        direction: options.direction,
        failures: Failures::default(),
        streams: (0..options.streams).map(|_| Progress::default()).collect(),
    });
    let mut crew = Crew::new();
    for index in 0..options.streams {
        crew.add(|member| stream(Rc::clone(&shared), index, member));
    }
    let span = crew.start(options.length).await;
    let by_second = shared.watch(span).await;
    let (bytes, bits_per_s) = shared.sum(span);
    shared.failures.add(Kind::Timeout, crew.finish(span).await);
    Report {
        program: "bulk",
        direction: options.direction,
        streams: options.streams,
        write: options.write,
        seconds: options.length.as_secs_f64(),
        bytes,
        gbit_per_s: rounded(bits_per_s / 1e9),
        by_second,
        errors: shared.failures.total(),
        failures: shared.failures.by_kind(),
    }
}

impl Shared {
    fn bytes(&self) -> u64 {
        self.streams.iter().map(|stream| stream.bytes.get()).sum()
    }

    /// The rate of each whole second, until the end.
    async fn watch(&self, span: Span) -> Vec<f64> {
        let mut rates = Vec::new();
        let (mut before, mut at) = (0, span.start + Duration::from_secs(1));
        while at <= span.stop {
            sleep_until(at.into()).await;
            let bytes = self.bytes();
            rates.push(rounded((bytes - before) as f64 * 8.0 / 1e9));
            (before, at) = (bytes, at + Duration::from_secs(1));
        }
        sleep_until(span.stop.into()).await;
        rates
    }

    /// The bytes, and the bits per second of all streams. Each stream's rate is over the time that
    /// its count covers.
    fn sum(&self, span: Span) -> (u64, f64) {
        let now = Instant::now();
        let rates = self.streams.iter().map(|stream| {
            let at = stream.at.get().unwrap_or(now);
            let seconds = at.saturating_duration_since(span.start).as_secs_f64();
            if seconds > 0.0 { stream.bytes.get() as f64 * 8.0 / seconds } else { 0.0 }
        });
        (self.bytes(), rates.sum())
    }
}

async fn stream(shared: Rc<Shared>, index: usize, mut member: Member) {
    let connect = async {
        let mut stream = shared.sources.connect().await?;
        if let Some(target) = shared.asked {
            socks::ask(&mut stream, target).await?;
        }
        Ok(stream)
    };
    let connected = member.prepare(connect).await;
    let stop = member.start().await;
    let progress = &shared.streams[index];
    let outcome = match (connected, shared.direction) {
        (Err(error), _) => Err(error),
        (Ok(stream), direction) => {
            let left = stop.saturating_duration_since(Instant::now());
            // The end of the time is no failure.
            let work = async {
                match direction {
                    Direction::Up => up(stream, shared.write, progress).await,
                    Direction::Down => down(stream, shared.write, progress).await,
                }
            };
            timeout(left, work).await.unwrap_or(Ok(()))
        }
    };
    match outcome {
        Err(error) => shared.failures.count(Kind::of(&error)),
        Ok(()) if progress.bytes.get() == 0 => shared.failures.count(Kind::Timeout),
        Ok(()) => {}
    }
}

/// Writes, and reads the sink's reports.
async fn up(stream: TcpStream, write: usize, progress: &Progress) -> io::Result<()> {
    let (mut reader, mut writer) = stream.into_split();
    let send = async {
        let bytes = vec![b'u'; write];
        loop {
            writer.write_all(&bytes).await?;
        }
    };
    let hear = async {
        loop {
            progress.bytes.set(reader.read_u64().await?);
            progress.at.set(Some(Instant::now()));
        }
    };
    tokio::select! {
        outcome = send => outcome,
        outcome = hear => outcome,
    }
}

async fn down(mut stream: TcpStream, write: usize, progress: &Progress) -> io::Result<()> {
    stream.write_u32(u32::try_from(write).unwrap_or(u32::MAX)).await?;
    let mut buffer = vec![0; READ];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => progress.bytes.set(progress.bytes.get() + n as u64),
        }
    }
}
