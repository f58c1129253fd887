//! A server requests a test of the targets of a service from a client: a stream like that of a
//! ping, with a different answer.

use std::rc::Rc;
use std::time::{Duration, Instant};

use link::Link;
use ops::tested::TestedTarget;
use proto::greeting::Name;
use proto::{Measure, ResetCode};
use tokio::sync::oneshot;
use tokio::time::timeout;
use transport::{Connector, Inlet};

use super::TESTED;
use super::near::ask_for;
use super::signals::Signals;
use node::session::{Handle, Worker};
use targets::trial;

/// The time that the path to the client and back may take in addition to the test.
const WAY: Duration = Duration::from_secs(5);

/// The round trip over the link in microseconds, and the targets.
type Outcome = Result<(u64, Vec<TestedTarget>), String>;

/// Requests a test over a live link of this session.
///
/// # Errors
/// One line of text: there is no link, the client refuses, or its answer cannot be read.
pub async fn ask_client(handles: &[Handle], session: u64, service: Name) -> Outcome {
    for handle in handles {
        let name = service.clone();
        let asked = handle.call(move |worker| ask(worker, session, name)).await;
        let Some(answer) = asked.ok().flatten() else { continue };
        return match timeout(trial::LIMIT + WAY, answer).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err("the link ended".to_owned()),
            Err(_) => Err("the client does not answer".to_owned()),
        };
    }
    Err("the client has no connection now".to_owned())
}

fn ask(worker: &Rc<Worker>, session: u64, service: Name) -> Option<oneshot::Receiver<Outcome>> {
    let mut links = worker.state.all_links().into_iter();
    let is_fit = |link: &Link| link.is_live() && !link.is_going_away();
    let (_, link) = links.find(|(of, link)| of.id == session && is_fit(link))?;
    let (reply, answer) = oneshot::channel();
    tokio::task::spawn_local(async move {
        // The caller may have left.
        let _ = reply.send(question(&link, service).await);
    });
    Some(answer)
}

async fn question(link: &Link, service: Name) -> Outcome {
    let signals = Rc::new(Signals::of_echo());
    let begin = Instant::now();
    let inlet = link.open(ask_for(Measure::Target { service }), Rc::<Signals>::clone(&signals));
    let inlet: Box<dyn Inlet> = inlet.map_err(|error| error.to_string())?;
    inlet.finish();
    let mut text = Vec::new();
    loop {
        text.append(&mut signals.take_echo());
        // The answer of a peer is bounded here, because the peer is not trusted.
        if text.len() as u64 > TESTED + 1 {
            inlet.stop(ResetCode::Limit);
            return Err("the client answers more than can be".to_owned());
        }
        if let Some(code) = signals.aborted() {
            return Err(refusal(code));
        }
        if signals.has_finished() {
            break;
        }
        signals.wait().await;
    }
    let round_trip = signals.first().map_or(Duration::ZERO, |at| at.duration_since(begin));
    let targets = serde_json::from_slice(&text)
        .map_err(|_| "the answer of the client cannot be read".to_owned())?;
    Ok((u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX), targets))
}

fn refusal(code: ResetCode) -> String {
    match code {
        ResetCode::Unknown | ResetCode::Denied => {
            "the client does not test it: its version is older, or it has no such service"
                .to_owned()
        }
        ResetCode::Limit => "the client tests as many services as it can; try again".to_owned(),
        ResetCode::Aborted
        | ResetCode::Refused
        | ResetCode::Timeout
        | ResetCode::Unreachable
        | ResetCode::Shutdown
        | ResetCode::Internal
        | ResetCode::Moved
        | ResetCode::Other(_) => code.to_string(),
    }
}
