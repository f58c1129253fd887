//! `load echo`: the time for one byte there and back, alone or beside a bulk transfer. The transfer
//! has a thread of its own, so that its work on this machine is not part of the latency.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::bulk::{self, Direction};
use crate::crew::{Crew, Member};
use crate::failures::{Failures, Kind};
use crate::histogram::{Histogram, Latency};
use crate::options::{Usage, Words, parse_address};
use crate::sources::Sources;

/// The transfer starts this much earlier and ends this much later, so that it covers the first and
/// the last byte.
const MARGIN: Duration = Duration::from_millis(300);

/// The options of the program.
#[derive(Clone, Debug)]
pub struct Options {
    /// An echo.
    pub target: SocketAddr,
    /// The bulk transfer beside the echo.
    pub bulk: Option<bulk::Options>,
    /// The duration of the measurement.
    pub length: Duration,
    /// The pause between an answer and the next byte.
    pub pause: Duration,
}

/// The result of a run. Times are in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `echo`.
    pub program: &'static str,
    /// The measured seconds.
    pub seconds: f64,
    /// The number of bytes that came back.
    pub exchanges: u64,
    /// The time from the write of a byte to the end of its read.
    pub latency_us: Latency,
    /// 1 if the echo failed: a failed connection is not made again.
    pub errors: u64,
    /// The errors by kind.
    pub failures: BTreeMap<Kind, u64>,
    /// The report of the bulk transfer.
    pub bulk: Option<bulk::Report>,
}

impl Options {
    /// `--target ECHO --seconds S [--bulk none|source:A|sink:A] [--streams N] [--pause SECONDS]`
    pub fn read(words: &mut Words) -> Result<Self, Usage> {
        let length = words.seconds("--seconds", None)?;
        let streams = words.number("--streams", 1..=1000, Some(1))?;
        let beside = match words.text("--bulk").as_deref() {
            None | Some("none") => None,
            Some(text) => {
                let (kind, address) = text.split_once(':').unwrap_or((text, ""));
                let direction = match kind {
                    "sink" => Direction::Up,
                    "source" => Direction::Down,
                    _ => {
                        let wants = "--bulk wants none, sink:ADDRESS or source:ADDRESS";
                        return Err(Usage(format!("{wants}, not `{text}`")));
                    }
                };
                let target = parse_address("--bulk", address)?;
                let length = length + 2 * MARGIN;
                Some(bulk::Options {
                    target,
                    proxy: None,
                    streams,
                    write: 128 << 10,
                    direction,
                    length,
                })
            }
        };
        let pause = words.text("--pause").map_or(Ok(0.0), |text| {
            text.parse()
                .ok()
                .filter(|pause| (0.0..=10.0).contains(pause))
                .ok_or_else(|| Usage(format!("--pause wants seconds from 0 to 10, not `{text}`")))
        })?;
        let pause = Duration::from_secs_f64(pause);
        Ok(Self { target: words.address("--target")?, bulk: beside, length, pause })
    }
}

#[derive(Debug, Default)]
struct Shared {
    latency: RefCell<Histogram>,
    failures: Failures,
}

/// Runs the program. The error is about this machine: no thread, or no runtime.
pub async fn run(options: &Options) -> io::Result<Report> {
    let beside = options.bulk.clone().map(|options| {
        std::thread::Builder::new()
            .name("bulk".to_owned())
            .spawn(move || -> io::Result<_> { Ok(crate::runtime()?.block_on(bulk::run(&options))) })
    });
    let beside = beside.transpose()?;
    if beside.is_some() {
        tokio::time::sleep(MARGIN).await;
    }
    let shared = Rc::<Shared>::default();
    let mut crew = Crew::new();
    let (sources, pause) = (Sources::new(options.target, 1), options.pause);
    let shares = Rc::clone(&shared);
    crew.add(async move |member| {
        if let Err(error) = exchange(&sources, pause, &shares.latency, member).await {
            shares.failures.count(Kind::of(&error));
        }
    });
    let span = crew.start(options.length).await;
    shared.failures.add(Kind::Timeout, crew.finish(span).await);
    let bulk =
        beside.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
    let latency = shared.latency.borrow().latency();
    Ok(Report {
        program: "echo",
        seconds: options.length.as_secs_f64(),
        exchanges: latency.count,
        latency_us: latency,
        errors: shared.failures.total(),
        failures: shared.failures.by_kind(),
        bulk: bulk.transpose()?,
    })
}

async fn exchange(
    sources: &Sources,
    pause: Duration,
    latency: &RefCell<Histogram>,
    mut member: Member,
) -> io::Result<()> {
    let first = async {
        let mut stream = sources.connect().await?;
        there_and_back(&mut stream).await?;
        Ok::<_, io::Error>(stream)
    };
    let mut stream = member.prepare(first).await?;
    let stop = member.start().await;
    let mut begin = Instant::now();
    while begin < stop {
        there_and_back(&mut stream).await?;
        let mut end = Instant::now();
        latency.borrow_mut().record(end - begin);
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
            end = Instant::now();
        }
        begin = end;
    }
    Ok(())
}

async fn there_and_back(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(b"e").await?;
    match stream.read_u8().await? {
        b'e' => Ok(()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
