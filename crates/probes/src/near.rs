//! The client's end of a speed test: streams over its live links, on the workers that own them.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use link::Link;
use proto::{Measure, Open, Priority, ResetCode, TALLY, Tally, Target};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{interval, timeout};
use transport::{Connector, Inlet};

use super::busy;
use super::busy::Look;
use super::send::send_for;
use super::signals::Signals;
use super::{GRACE, verdict};
use node::session::{Handle, Session, Worker};
use ops::measure::{Direction, Flow, Progress, Speed};

/// The maximum number of streams of a speed test, each on a different worker. Four streams suffice
/// for any path in common use.
pub(super) const STREAMS: usize = 4;

/// The period of progress reports.
const NEWS: Duration = Duration::from_millis(250);

/// The period at which a worker adds its received bytes to the shared counter.
const NOTE: Duration = Duration::from_millis(100);

type Answer<T> = oneshot::Receiver<Result<T, String>>;

pub(super) fn ask_for(measure: Measure) -> Open {
    let priority = match measure {
        Measure::Echo | Measure::Target { .. } => Priority::Interactive,
        Measure::Sink | Measure::Source { .. } => Priority::Bulk,
    };
    Open { target: Target::Measure(measure), visitor: None, priority, fields: None }
}

/// Why the server did not measure, as text.
pub(super) fn refusal(code: ResetCode) -> String {
    match code {
        ResetCode::Denied => "the server does not allow it (allow.speedtest)".to_owned(),
        ResetCode::Limit => "the server is busy with another test, or this client is at its limit \
                             of streams; try again"
            .to_owned(),
        ResetCode::Unknown => "the server does not know how: it is older".to_owned(),
        ResetCode::Timeout => "it took too long".to_owned(),
        code @ (ResetCode::Aborted
        | ResetCode::Refused
        | ResetCode::Unreachable
        | ResetCode::Shutdown
        | ResetCode::Internal
        | ResetCode::Moved
        | ResetCode::Other(_)) => code.to_string(),
    }
}

/// Whether a speed test is running. Two concurrent tests would disturb each other.
static TESTING: AtomicBool = AtomicBool::new(false);

struct TestLock;

impl TestLock {
    fn take() -> Option<Self> {
        (!TESTING.swap(true, Ordering::Acquire)).then_some(Self)
    }
}

impl Drop for TestLock {
    fn drop(&mut self) {
        TESTING.store(false, Ordering::Release);
    }
}

/// Tests the upload, then the download. The error is one line of text.
pub async fn speedtest(
    handles: &[Handle],
    session: &Arc<Session>,
    span: Duration,
    news: mpsc::Sender<Progress>,
) -> Result<Speed, String> {
    let Some(_turn) = TestLock::take() else {
        return Err("another speed test of this client runs".to_owned());
    };
    let (up, links) = one_way(handles, session, Direction::Up, span, &news).await?;
    let (down, _) = one_way(handles, session, Direction::Down, span, &news).await?;
    Ok(Speed { peer: session.name.clone(), links, up, down })
}

/// The results of one stream of a test.
#[derive(Clone, Copy, Debug)]
struct Ended {
    near: Tally,
    far: Tally,
    round_trip: Option<Duration>,
}

/// Tests one direction over the participating links. Also returns the number of these links.
async fn one_way(
    handles: &[Handle],
    session: &Arc<Session>,
    direction: Direction,
    span: Duration,
    news: &mpsc::Sender<Progress>,
) -> Result<(Flow, usize), String> {
    let counted = Arc::new(AtomicU64::new(0));
    let mut answers = Vec::new();
    for handle in handles {
        if answers.len() == STREAMS {
            break;
        }
        let (session, counted) = (Arc::clone(session), Arc::clone(&counted));
        let start =
            handle.call(move |worker| start(worker, &session, direction, span, counted)).await;
        answers.extend(start.ok().flatten());
    }
    if answers.is_empty() {
        return Err(format!("no connection to {}", session.name));
    }
    let begin = Instant::now();
    let tell = async {
        let mut ticks = interval(NEWS);
        loop {
            ticks.tick().await;
            let progress = Progress {
                direction,
                elapsed_millis: millis(begin.elapsed()),
                span_millis: millis(span),
                bytes: counted.load(Ordering::Relaxed),
            };
            if news.send(progress).await.is_err() {
                return;
            }
        }
    };
    let wait = async {
        let mut ended = Vec::new();
        for answer in answers {
            ended.push(answer.await.map_err(|_| "the link ended".to_owned())??);
        }
        Ok::<_, String>(ended)
    };
    let ended = tokio::select! {
        ended = timeout(span + GRACE, wait) => {
            ended.map_err(|_| "the test did not come to its end in time".to_owned())??
        }
        () = tell => return Err("nobody waits for the outcome".to_owned()),
    };
    Ok((flow(&ended, direction), ended.len()))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn flow(ended: &[Ended], direction: Direction) -> Flow {
    let seen = |ended: &Ended| {
        let (sender, receiver) = match direction {
            Direction::Up => (ended.near, ended.far),
            Direction::Down => (ended.far, ended.near),
        };
        let Tally { bytes, micros, .. } = receiver;
        verdict::Seen { tally: sender, bytes, micros, round_trip: ended.round_trip }
    };
    let streams: Vec<_> = ended.iter().map(seen).collect();
    let bytes = streams.iter().map(|seen| seen.bytes).fold(0, u64::saturating_add);
    let micros = streams.iter().map(|seen| seen.micros).max().unwrap_or(0);
    let bits = u128::from(bytes) * 8 * 1_000_000 / u128::from(micros.max(1));
    let busiest = |of: fn(&Ended) -> Tally| {
        ended.iter().map(|ended| of(ended).busy).filter(|busy| *busy != busy::UNKNOWN).max()
    };
    let (here, there) = (busiest(|ended| ended.near), busiest(|ended| ended.far));
    Flow {
        bytes,
        micros,
        bits_per_second: u64::try_from(bits).unwrap_or(u64::MAX),
        limit: verdict::limit(&streams, here.max(there)),
        client_busy_percent: here.map(|busy| busy / 10),
        server_busy_percent: there.map(|busy| busy / 10),
    }
}

/// Starts a stream on a live link of this worker, if it has one.
fn start(
    worker: &Rc<Worker>,
    session: &Session,
    direction: Direction,
    span: Duration,
    counted: Arc<AtomicU64>,
) -> Option<Answer<Ended>> {
    let link = worker.state.live_link(session)?;
    let (mut reply, answer) = oneshot::channel();
    tokio::task::spawn_local(async move {
        let outcome = tokio::select! {
            outcome = run(&link, direction, span, &counted) => outcome,
            // The caller has left; dropping the stream aborts it.
            () = reply.closed() => return,
        };
        let _ = reply.send(outcome);
    });
    Some(answer)
}

async fn run(
    link: &Link,
    direction: Direction,
    span: Duration,
    counted: &AtomicU64,
) -> Result<Ended, String> {
    let signals = Rc::new(Signals::default());
    let measure = match direction {
        Direction::Up => Measure::Sink,
        Direction::Down => {
            Measure::Source { millis: u32::try_from(span.as_millis()).unwrap_or(u32::MAX) }
        }
    };
    let inlet = link
        .open(ask_for(measure), Rc::<Signals>::clone(&signals))
        .map_err(|error| error.to_string())?;
    let near = match direction {
        Direction::Up => {
            let count = |bytes| {
                counted.fetch_add(bytes, Ordering::Relaxed);
            };
            let near = send_for(span, &*inlet, &signals, count).await.map_err(refusal)?;
            inlet.finish();
            signals.end().await.map_err(refusal)?;
            near
        }
        Direction::Down => receive(&*inlet, &signals, counted).await.map_err(refusal)?,
    };
    let far = signals.tally().ok_or("the server's count is missing")?;
    Ok(Ended { near, far, round_trip: link.round_trip() })
}

/// Receives the bytes of a source until their end.
async fn receive(
    inlet: &dyn Inlet,
    signals: &Signals,
    counted: &AtomicU64,
) -> Result<Tally, ResetCode> {
    let look = Look::now();
    let counted_before = Cell::new(0);
    let tell = async {
        let mut ticks = interval(NOTE);
        loop {
            ticks.tick().await;
            let received = signals.received();
            counted.fetch_add(received - counted_before.replace(received), Ordering::Relaxed);
        }
    };
    tokio::select! {
        end = signals.end() => end?,
        never = tell => match never {},
    }
    inlet.finish();
    let bytes = signals.received().saturating_sub(TALLY as u64);
    Ok(Tally { bytes, micros: signals.micros(), busy: look.busy(), ..Tally::default() })
}
