//! `load pulse`: requests at fixed times over one connection. A late answer delays no request, so a
//! loss on the path is counted for each request behind it, as an interactive user sees it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{sleep_until, timeout_at};

use crate::crew::{Crew, Member};
use crate::failures::{Failures, Kind};
use crate::histogram::{Histogram, Latency};
use crate::options::{Usage, Words};
use crate::sources::Sources;

/// The time for late answers: on a path that loses every fifth packet, a repetition of a repetition
/// takes a second. A later answer counts as an error.
const PATIENCE: Duration = Duration::from_millis(1_900);

/// The options of the program.
#[derive(Clone, Debug)]
pub struct Options {
    /// An echo.
    pub target: SocketAddr,
    /// The time in which requests are sent.
    pub length: Duration,
    /// The time between two requests.
    pub every: Duration,
    /// The bytes of a request, and of its answer.
    pub bytes: usize,
}

/// The result of a run. Times are in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `pulse`.
    pub program: &'static str,
    /// The seconds in which requests were sent.
    pub seconds: f64,
    /// The number of requests.
    pub requests: u64,
    /// The time from the moment at which a request was due to the last byte of its answer.
    pub latency_us: Latency,
    /// Requests without an answer, and 1 for a connection that failed.
    pub errors: u64,
    /// The failures of the connection by kind.
    pub failures: BTreeMap<Kind, u64>,
}

impl Options {
    /// `--target ECHO --seconds S [--every SECONDS] [--bytes N]`
    pub fn read(words: &mut Words) -> Result<Self, Usage> {
        let every = words.text("--every").map_or(Ok(0.05), |text| {
            text.parse().ok().filter(|every| (0.001..=10.0).contains(every)).ok_or_else(|| {
                Usage(format!("--every wants seconds from 0.001 to 10, not `{text}`"))
            })
        })?;
        Ok(Self {
            target: words.address("--target")?,
            length: words.seconds("--seconds", None)?,
            every: Duration::from_secs_f64(every),
            bytes: words.number("--bytes", 1..=65_536, Some(1_024))?,
        })
    }
}

#[derive(Debug, Default)]
struct Shared {
    requests: Cell<u64>,
    latency: RefCell<Histogram>,
    failures: Failures,
}

/// Runs the program.
pub async fn run(options: &Options) -> Report {
    let shared = Rc::<Shared>::default();
    let mut crew = Crew::new();
    let (options_of, shares) = (options.clone(), Rc::clone(&shared));
    crew.add(async move |member| {
        if let Err(error) = exchange(&options_of, &shares, member).await {
            shares.failures.count(Kind::of(&error));
        }
    });
    let span = crew.start(options.length).await;
    shared.failures.add(Kind::Timeout, crew.finish(span).await);
    let latency = shared.latency.borrow().latency();
    let requests = shared.requests.get();
    let unanswered = requests - latency.count.min(requests);
    Report {
        program: "pulse",
        seconds: options.length.as_secs_f64(),
        requests,
        errors: unanswered + u64::from(shared.failures.total() > 0 && unanswered == 0),
        latency_us: latency,
        failures: shared.failures.by_kind(),
    }
}

async fn exchange(options: &Options, shared: &Shared, mut member: Member) -> io::Result<()> {
    let sources = Sources::new(options.target, 1);
    let first = async {
        let mut stream = sources.connect().await?;
        let mut answer = vec![0; options.bytes];
        stream.write_all(&answer).await?;
        stream.read_exact(&mut answer).await?;
        Ok::<_, io::Error>(stream)
    };
    let mut stream = member.prepare(first).await?;
    let stop = member.start().await;
    // A late start of this task changes no number of requests.
    let begin = Instant::now();
    let count = options.length.div_duration_f64(options.every).ceil() as u32;
    let (mut reader, mut writer) = stream.split();
    let due = RefCell::new(VecDeque::new());
    let sending = async {
        let request = vec![b'p'; options.bytes];
        for at in (0..count).map(|turn| begin + options.every * turn) {
            sleep_until(at.into()).await;
            due.borrow_mut().push_back(at);
            shared.requests.set(shared.requests.get() + 1);
            writer.write_all(&request).await?;
        }
        writer.shutdown().await
    };
    let receiving = async {
        let mut answer = vec![0; options.bytes];
        loop {
            // The end comes after the last answer.
            match reader.read_exact(&mut answer).await {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                read => read?,
            };
            let asked = due.borrow_mut().pop_front().ok_or(io::ErrorKind::InvalidData)?;
            shared.latency.borrow_mut().record(asked.elapsed());
        }
    };
    let both = async { tokio::try_join!(sending, receiving).map(|((), ())| ()) };
    timeout_at((stop + PATIENCE).into(), both).await?
}
