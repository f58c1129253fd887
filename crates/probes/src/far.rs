//! The far end of a measurement. It opens no socket, keeps no bytes, and is bounded in time. A
//! client serves echoes and tests of its own targets only (`targets::trial`), so a server cannot
//! cause more work at the client than a visitor does.
//!
//! One client at a time may test its speed, with at most [`STREAMS`] streams of the lowest
//! priority. So all clients together cost no more than that number of bulk transfers, and no two
//! tests disturb each other. An echo lasts one round trip and counts among the client's streams.

use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ops::measure::LONGEST;
use ops::tested::TestedTarget;
use proto::{Measure, ResetCode, Tally};
use relay::{Permit, Settings};
use tokio::time::timeout;
use transport::{Inlet, Outlet};

use super::busy::Look;
use super::near::STREAMS;
use super::send::{send_all, send_for};
use super::signals::Signals;
use super::{GRACE, TESTED};
use node::session::Session;
use targets::trial;

/// The maximum lifetime of an echo. A ping ends after one round trip.
const ECHO: Duration = Duration::from_secs(10);

/// The maximum number of bytes that an echo sends back.
const ECHO_BYTES: u64 = 1024;

/// The maximum number of open echoes of all peers together. It exceeds the number of links of about
/// a thousand clients, and the echoes use at most a few megabytes.
const ECHOES: u32 = 4096;

/// Serves a measurement for a client, on the thread of its link.
pub fn serve(
    measure: Measure,
    session: &Session,
    inlet: Box<dyn Inlet>,
    settings: &Rc<Settings>,
    permit: Permit,
) -> Rc<dyn Outlet> {
    let place = match measure {
        Measure::Echo => Slot::echo(),
        Measure::Sink | Measure::Source { .. } => Slot::test(session.id),
        // Only clients have services.
        Measure::Target { .. } => {
            return relay::refuse_stream(&*inlet, Some(settings), ResetCode::Denied);
        }
    };
    let Some(place) = place else {
        return relay::refuse_stream(&*inlet, Some(settings), ResetCode::Limit);
    };
    begin(measure, inlet, (place, Some(permit)))
}

/// Serves an echo for a server.
pub fn serve_echo(inlet: Box<dyn Inlet>) -> Rc<dyn Outlet> {
    match Slot::echo() {
        Some(place) => begin(Measure::Echo, inlet, (place, None)),
        None => relay::refuse_stream(&*inlet, None, ResetCode::Limit),
    }
}

/// Tests the targets of a service for a server: sends a space at once, by which the server measures
/// the round trip, and then the outcome as JSON.
pub fn serve_test(
    inlet: Box<dyn Inlet>,
    test: impl Future<Output = Vec<TestedTarget>> + 'static,
) -> Rc<dyn Outlet> {
    let signals = Rc::new(Signals::default());
    let outlet = Rc::<Signals>::clone(&signals);
    tokio::task::spawn_local(async move {
        let work = async {
            send_all(b" ", &*inlet, &signals).await?;
            let mut tested = test.await;
            let mut text = serde_json::to_vec(&tested).unwrap_or_default();
            while text.len() as u64 > TESTED && tested.pop().is_some() {
                text = serde_json::to_vec(&tested).unwrap_or_default();
            }
            send_all(&text, &*inlet, &signals).await?;
            inlet.finish();
            signals.end().await
        };
        if let Err(code) = bounded(trial::LIMIT + GRACE, work).await {
            inlet.reset(code);
            inlet.stop(code);
        }
    });
    outlet
}

/// Measures in a task. The task holds the slots until its end.
fn begin(
    measure: Measure,
    inlet: Box<dyn Inlet>,
    places: (Slot, Option<Permit>),
) -> Rc<dyn Outlet> {
    let signals = Rc::new(match measure {
        Measure::Echo => Signals::of_echo(),
        Measure::Sink | Measure::Source { .. } | Measure::Target { .. } => Signals::default(),
    });
    let outlet = Rc::<Signals>::clone(&signals);
    tokio::task::spawn_local(async move {
        let _held = places;
        let outcome = match measure {
            Measure::Echo => bounded(ECHO, echo(&*inlet, &signals)).await,
            Measure::Sink => bounded(LONGEST + GRACE, sink(&*inlet, &signals)).await,
            Measure::Source { millis } => {
                let span = Duration::from_millis(millis.into()).min(LONGEST);
                bounded(span + GRACE, source(span, &*inlet, &signals)).await
            }
            // Tests of targets are not begun here.
            Measure::Target { .. } => Err(ResetCode::Denied),
        };
        if let Err(code) = outcome {
            inlet.reset(code);
            inlet.stop(code);
        }
    });
    outlet
}

async fn bounded(
    limit: Duration,
    work: impl Future<Output = Result<(), ResetCode>>,
) -> Result<(), ResetCode> {
    timeout(limit, work).await.unwrap_or(Err(ResetCode::Timeout))
}

async fn echo(inlet: &dyn Inlet, signals: &Signals) -> Result<(), ResetCode> {
    loop {
        let bytes = signals.take_echo();
        if signals.received() > ECHO_BYTES {
            return Err(ResetCode::Limit);
        }
        send_all(&bytes, inlet, signals).await?;
        if let Some(code) = signals.aborted() {
            return Err(code);
        }
        if signals.has_finished() && bytes.is_empty() {
            inlet.finish();
            return Ok(());
        }
        if bytes.is_empty() {
            signals.wait().await;
        }
    }
}

async fn sink(inlet: &dyn Inlet, signals: &Signals) -> Result<(), ResetCode> {
    let look = Look::now();
    signals.end().await?;
    let (bytes, micros, busy) = (signals.received(), signals.micros(), look.busy());
    let tally = Tally { bytes, micros, busy, ..Tally::default() };
    send_all(&tally.encode(), inlet, signals).await?;
    inlet.finish();
    Ok(())
}

async fn source(span: Duration, inlet: &dyn Inlet, signals: &Rc<Signals>) -> Result<(), ResetCode> {
    let tally = send_for(span, inlet, signals, |_| {}).await?;
    send_all(&tally.encode(), inlet, signals).await?;
    inlet.finish();
    // The client finishes when it has all bytes; until then the stream counts.
    signals.end().await
}

/// A slot among the open measurements. Dropping it frees the slot.
#[derive(Debug)]
enum Slot {
    Echo,
    Test,
}

/// The number of open echoes.
static ECHOING: AtomicU32 = AtomicU32::new(0);

/// The id of the session that tests its speed, and the number of its streams.
static TESTING: Mutex<Option<(u64, usize)>> = Mutex::new(None);

fn testing() -> MutexGuard<'static, Option<(u64, usize)>> {
    TESTING.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Slot {
    fn echo() -> Option<Self> {
        if ECHOING.fetch_add(1, Ordering::Relaxed) >= ECHOES {
            ECHOING.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Self::Echo)
    }

    fn test(session: u64) -> Option<Self> {
        let mut testing = testing();
        let streams = match *testing {
            None => 0,
            Some((same, streams)) if same == session && streams < STREAMS => streams,
            Some(_) => return None,
        };
        *testing = Some((session, streams + 1));
        Some(Self::Test)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        match self {
            Self::Echo => {
                ECHOING.fetch_sub(1, Ordering::Relaxed);
            }
            Self::Test => {
                let mut testing = testing();
                *testing = testing.and_then(|(session, n)| (n > 1).then_some((session, n - 1)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echoes_are_bounded_and_their_places_come_back() {
        let all: Vec<_> = std::iter::from_fn(Slot::echo).collect();
        assert_eq!(all.len(), ECHOES as usize);
        drop(all);
        assert!(Slot::echo().is_some());
    }

    #[test]
    fn one_session_measures_at_a_time_with_few_streams() {
        let taken: Vec<_> = (0..STREAMS).map(|_| Slot::test(1).unwrap()).collect();
        assert!(Slot::test(1).is_none() && Slot::test(2).is_none());
        drop(taken);
        let other = Slot::test(2).unwrap();
        assert!(Slot::test(1).is_none());
        drop(other);
        assert!(Slot::test(1).is_some());
    }
}
