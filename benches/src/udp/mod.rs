//! `load udp`: datagrams per second to a `load origin udp`, and how many of them are lost.
//!
//! | module | what |
//! |---|---|
//! | [`packet`] | the datagrams |
//! | [`socket`] | batches of one system call |
//! | [`counter`] | the receiver's counts of a run |
//! | [`sink`] | the origin |
//! | `pace` | when a sender sends how much |
//! | `search` | the highest rate that gets through |
//!
//! Sender and receiver are processes of their own. The receiver counts, and the sender asks it
//! through the same path after the last datagram, so a rate is always that of datagrams that have
//! arrived: their number less one by the time from the first to the last.

pub mod counter;
mod pace;
pub mod packet;
mod search;
pub mod sink;
pub mod socket;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::failures::{Failures, Kind};
use crate::options::{Usage, Words};
use crate::report::rounded;
use counter::{Counts, FLOWS_MAX};
use pace::{Pace, TICK};
use packet::{HEAD, Head, LEAST};
use search::Shown;
use socket::{Buffer, Socket};

/// The largest payload of UDP over IPv4.
const PAYLOAD_MAX: usize = 65_507;

/// The share of the highest rate at which the loss is measured.
const CALM: f64 = 0.8;

/// The least time of an offer of a search.
const OFFER: Duration = Duration::from_millis(300);

/// The time for an answer, after which the question is asked again.
const PATIENCE: Duration = Duration::from_millis(100);

/// The time for the first answer: a daemon's limit for an attempt.
const READY: Duration = Duration::from_secs(10);

/// The time for what is under way when the sender ends. A datagram that comes later counts as lost.
const GRACE: Duration = Duration::from_secs(2);

/// The options of the program.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// A `load origin udp`.
    pub target: SocketAddr,
    /// The number of sockets that send by turns, each with a port of its own.
    pub flows: usize,
    /// Bytes of a datagram.
    pub payload: usize,
    /// How much is offered.
    pub offer: Offer,
    /// How long it is offered.
    pub length: Duration,
}

/// How much a sender offers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Offer {
    /// As much as it can.
    All,
    /// Datagrams per second, of all flows together.
    Rate(f64),
    /// Searches for the offer of which most gets through, measures the rate that it reaches, and
    /// then offers 80 % of that rate.
    Search,
}

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `udp`.
    pub program: &'static str,
    /// `reached` after a search; `end`.
    pub event: &'static str,
    /// The number of sockets.
    pub flows: usize,
    /// Bytes of a datagram.
    pub payload: usize,
    /// The rate that the best offer of a search has reached, datagrams per second.
    pub reached_per_s: Option<f64>,
    /// The last offer.
    #[serde(flatten)]
    pub offer: Offered,
    /// 1 if nothing arrived or the origin did not answer.
    pub errors: u64,
    /// The errors by kind.
    pub failures: BTreeMap<Kind, u64>,
}

/// What one offer showed.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Offered {
    /// The seconds in which datagrams were sent.
    pub seconds: f64,
    /// The rate that was wanted; `None`: as much as possible.
    pub wanted_per_s: Option<f64>,
    /// Datagrams that the system took.
    pub sent: u64,
    /// Datagrams that arrived.
    pub received: u64,
    /// `sent` less `received`.
    pub lost: u64,
    /// `lost` by `sent`.
    pub loss: f64,
    /// Datagrams that came after a later one of their flow.
    pub reordered: u64,
    /// Datagrams of another size.
    pub wrong: u64,
    /// Sent datagrams per second.
    pub sent_per_s: f64,
    /// Received datagrams per second.
    pub received_per_s: f64,
}

impl Options {
    /// `--target A --seconds S [--flows N] [--payload BYTES] [--rate PER_S | --search]`
    ///
    /// # Errors
    /// The options are unknown or out of range.
    pub fn read(words: &mut Words) -> Result<Self, Usage> {
        let flows = words.number("--flows", 1..=FLOWS_MAX, Some(1))?;
        crate::descriptors::require(flows)?;
        let is_search = words.flag("--search");
        let offer = match (is_search, words.has("--rate")) {
            (true, true) => return Err(Usage("--rate and --search exclude each other".to_owned())),
            (true, false) => Offer::Search,
            (false, false) => Offer::All,
            (false, true) => Offer::Rate(words.number("--rate", 1..=100_000_000, None)? as f64),
        };
        Ok(Self {
            target: words.address("--target")?,
            flows,
            payload: words.bytes("--payload", LEAST..=PAYLOAD_MAX, 1_200)?,
            offer,
            length: words.seconds("--seconds", None)?,
        })
    }
}

/// Runs the program. `tell` gets the report of a search before the last offer.
///
/// # Errors
/// About this machine: no socket. A target that does not answer is counted in the report.
pub fn run(options: &Options, mut tell: impl FnMut(&Report)) -> io::Result<Report> {
    let mut sender = Sender::new(options)?;
    let failures = Failures::default();
    let mut report = Report {
        program: "udp",
        event: "end",
        flows: options.flows,
        payload: options.payload,
        reached_per_s: None,
        offer: Offered::default(),
        errors: 0,
        failures: BTreeMap::new(),
    };
    let outcome = sender.ready().and_then(|()| match options.offer {
        Offer::All => sender.offer(None, options.length),
        Offer::Rate(rate) => sender.offer(Some(rate), options.length),
        Offer::Search => {
            let each = (options.length / 2).max(OFFER);
            let best = search::highest(|rate| {
                report.offer = sender.offer(rate, each)?;
                let Offered { sent_per_s, received_per_s, .. } = report.offer;
                io::Result::Ok(Shown { sent: sent_per_s, received: received_per_s })
            })?;
            report.offer = sender.offer(best, options.length)?;
            let reached = report.offer.received_per_s;
            report.reached_per_s = Some(reached);
            tell(&Report { event: "reached", ..report.clone() });
            sender.offer(Some(reached * CALM), options.length)
        }
    });
    match outcome {
        Ok(offer) => {
            report.offer = offer;
            if offer.received == 0 {
                failures.count(Kind::Timeout);
            } else if offer.wrong > 0 {
                failures.count(Kind::Wrong);
            }
        }
        Err(error) => failures.count(Kind::of(&error)),
    }
    report.errors = failures.total();
    report.failures = failures.by_kind();
    Ok(report)
}

/// The sender's sockets.
#[derive(Debug)]
struct Sender {
    target: SocketAddr,
    payload: usize,
    sockets: Vec<Socket>,
    /// Datagrams of one call.
    segments: usize,
    /// The datagrams of a call.
    datagrams: Vec<u8>,
    buffer: Buffer,
    questions: u64,
}

impl Sender {
    fn new(options: &Options) -> io::Result<Self> {
        let Options { target, flows, payload, .. } = *options;
        let sockets: Vec<_> =
            (0..flows).map(|_| Socket::connect(target)).collect::<io::Result<_>>()?;
        let segments = sockets.first().map_or(1, |socket| socket.segments(payload));
        let datagrams = vec![b'u'; payload * segments];
        let buffer = Buffer::default();
        Ok(Self { target, payload, sockets, segments, datagrams, buffer, questions: 0 })
    }

    /// Waits until the origin answers.
    fn ready(&mut self) -> io::Result<()> {
        let run = new_run();
        let start = Instant::now();
        while start.elapsed() < READY {
            match self.ask(run) {
                Ok(Some(_)) => return Ok(()),
                // The origin may be about to listen.
                Err(error) if error.kind() != io::ErrorKind::ConnectionRefused => {
                    return Err(error);
                }
                Ok(None) | Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// Sends for `length` and asks what has arrived.
    fn offer(&mut self, rate: Option<f64>, length: Duration) -> io::Result<Offered> {
        let run = new_run();
        let (sent, seconds) = self.send(run, rate, length)?;
        let counts = self.settled(run, sent)?;
        let Counts { received, reordered, wrong, nanos, .. } = counts;
        let lost = sent.saturating_sub(received);
        let time = nanos as f64 / 1e9;
        let received_per_s =
            if time > 0.0 { received.saturating_sub(1) as f64 / time } else { 0.0 };
        Ok(Offered {
            seconds: rounded(seconds),
            wanted_per_s: rate.map(rounded),
            sent,
            received,
            lost,
            loss: if sent > 0 { lost as f64 / sent as f64 } else { 0.0 },
            reordered,
            wrong,
            sent_per_s: rounded(sent as f64 / seconds),
            received_per_s: rounded(received_per_s),
        })
    }

    /// Sends bursts that go round the flows. Returns how many datagrams the system took, and in how
    /// many seconds.
    fn send(&mut self, run: u64, rate: Option<f64>, length: Duration) -> io::Result<(u64, f64)> {
        let start = Instant::now();
        let stop = start + length;
        let mut pace = rate.map(|rate| Pace::new(rate, start));
        let mut numbers = vec![0_u64; self.sockets.len()];
        let (mut turn, mut sent) = (0, 0);
        loop {
            let now = Instant::now();
            if now >= stop {
                return Ok((sent, (now - start).as_secs_f64()));
            }
            let mut due = pace.as_mut().map_or(self.segments as u64, |pace| pace.due(now));
            while due > 0 {
                let count = self.segments.min(usize::try_from(due).unwrap_or(usize::MAX));
                self.burst(run, turn, numbers[turn], count)?;
                numbers[turn] += count as u64;
                turn = (turn + 1) % numbers.len();
                due -= count as u64;
                sent += count as u64;
                if let Some(pace) = &mut pace {
                    pace.sent(count as u64);
                }
            }
            // What became due meanwhile waits for the next burst.
            if pace.is_some() {
                std::thread::sleep(TICK);
            }
        }
    }

    /// Sends `count` datagrams of a flow.
    fn burst(&mut self, run: u64, flow: usize, number: u64, count: usize) -> io::Result<()> {
        let Self { target, payload, sockets, datagrams, .. } = self;
        let datagrams = &mut datagrams[..*payload * count];
        let named = u32::try_from(flow).unwrap_or(u32::MAX);
        for (number, datagram) in (number..).zip(datagrams.chunks_mut(*payload)) {
            let kind = packet::Kind::Data;
            Head { kind, run, flow: named, number }.write(&mut datagram[..HEAD]);
        }
        sockets[flow].send(*target, datagrams, *payload)
    }

    /// The counts of a run, when everything has arrived or nothing more arrives.
    fn settled(&mut self, run: u64, sent: u64) -> io::Result<Counts> {
        let start = Instant::now();
        let mut last: Option<Counts> = None;
        loop {
            let answer = self.ask(run)?;
            if let Some(counts) = answer {
                if counts.received >= sent || last == Some(counts) {
                    return Ok(counts);
                }
                last = Some(counts);
                std::thread::sleep(PATIENCE / 2);
            }
            if start.elapsed() > GRACE {
                return last.ok_or_else(|| io::ErrorKind::TimedOut.into());
            }
        }
    }

    /// Asks once. `None`: there was no answer in time.
    fn ask(&mut self, run: u64) -> io::Result<Option<Counts>> {
        let Self { target, sockets, buffer, questions, .. } = self;
        *questions += 1;
        let question = Head::question(run, *questions);
        sockets[0].send(*target, &question, question.len())?;
        let deadline = Instant::now() + PATIENCE;
        let mut found = None;
        while found.is_none() {
            let more = sockets[0].receive(buffer, deadline, |_, answer| {
                let is_answer = Head::read(answer).is_some_and(|head| {
                    head.kind == packet::Kind::Answer
                        && head.run == run
                        && head.number == *questions
                });
                if is_answer {
                    found = packet::counts(answer);
                }
            })?;
            if !more {
                break;
            }
        }
        Ok(found)
    }
}

/// A number that no other run has.
fn new_run() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::hash::RandomState::new().build_hasher().finish()
}
