//! Connection attempts: the dial and greeting over one path, and rounds over all paths.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use proto::greeting::{
    Attach as Claim, AttachMode, Binding, ClientAccepted, ClientSetup, Features, LinkSecret,
    NONCE_LENGTH, Refusal, Versions,
};
use proto::{CarrierNumber, GoAwayReason, Head, Kind, LinkId, StreamId};
use tokio::time::Instant;
use transport::{Carrier, CarrierError, EarlyDataFn, LocalFuture};

use super::error::DialError;
use super::keeper::Keeper;
use crate::attach::Standing;
use crate::backoff::Failure;
use crate::dial::{Path, dial_early};
use crate::greet;
use crate::inner::Link;

/// The head start of a path before the next path is tried in parallel.
const PATH_STAGGER: Duration = Duration::from_secs(2);

/// The time-out for sending a close message of ten bytes.
const DISMISSAL: Duration = Duration::from_secs(1);

/// A greeted carrier and its path.
pub(super) struct Connected {
    pub(super) path: usize,
    pub(super) number: CarrierNumber,
    pub(super) carrier: Carrier,
    pub(super) accepted: ClientAccepted,
    /// The state of the link when the carrier was dialled. The early data of the server describes
    /// the link at that time.
    pub(super) since: Option<Standing>,
    pub(super) leftover: BytesMut,
    /// The duration of a round trip, as the greeting took it.
    pub(super) round_trip: Duration,
    /// For a round over all paths: why the preceding paths of the list were not used.
    pub(super) passed_over: Vec<String>,
}

/// The outcome of an attempt.
pub(super) enum AttemptOutcome {
    Greeted(Box<Connected>),
    /// The server no longer knows the link. This answer ends the round like a greeting: the other
    /// paths lead to the same server, which would give the same answer.
    Forgotten,
}

/// The first answer of a round, and the attempts that continue.
pub(super) type Won = (AttemptOutcome, Vec<Attempt>);

pub(super) type Attempt = LocalFuture<'static, Result<AttemptOutcome, Failed>>;

/// The link to which a carrier is attached.
pub(super) struct JoinedLink {
    pub(super) id: LinkId,
    pub(super) secret: LinkSecret,
    /// The highest carrier number of all attempts. Each attempt has a unique number, because the
    /// server may have greeted an attempt that the client abandoned.
    pub(super) claimed: Cell<u32>,
    /// Whether the next attempt may send early data. The attempt clears the flag, and a carrier
    /// that the server has accepted sets it again: a client whose early data is refused is not
    /// informed of the reason.
    pub(super) early: Cell<bool>,
}

impl JoinedLink {
    /// Allocates carrier numbers for `count` attempts of one round, the highest first. If two
    /// attempts are greeted at the same time, both sides keep the path that is first in the list.
    pub(super) fn claim(&self, count: usize) -> impl Iterator<Item = CarrierNumber> + use<> {
        let below = self.claimed.get();
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.claimed.set(below.saturating_add(count));
        (below..self.claimed.get()).rev().map(|number| CarrierNumber(number + 1))
    }
}

impl Keeper {
    /// Runs one round over all paths, each with a head start over the next path. The first answered
    /// attempt wins. An attempt that the server may have greeted already continues, because the
    /// server may use its carrier.
    pub(super) async fn connect(&self, link: Option<(&Link, &JoinedLink)>) -> Result<Won, Failed> {
        let count = self.client.paths.len();
        let mut numbers = link.map(|(_, known)| known.claim(count));
        let order = self.order();
        let ways = order.iter().enumerate();
        let ways = ways
            .map(|(place, path)| (place, *path, numbers.as_mut().and_then(Iterator::next)))
            .collect::<Vec<_>>();
        let running: Rc<RefCell<Vec<Option<Attempt>>>> = Rc::default();
        let errors: Rc<RefCell<Vec<(usize, String)>>> = Rc::default();
        let start = |(place, path, number): (usize, usize, Option<CarrierNumber>)| -> LocalFuture<'static, _> {
            let claim = link.zip(number).map(|((link, known), number)| (link, known, number));
            running.borrow_mut().push(Some(self.try_path(path, claim)));
            let (running, errors) = (Rc::clone(&running), Rc::clone(&errors));
            Box::pin(async move {
                // The slot of an attempt is empty while the attempt is polled.
                poll_fn(|cx| {
                    let taken = running.borrow_mut().get_mut(place).and_then(Option::take);
                    let Some(mut attempt) = taken else { return Poll::Pending };
                    let polled = attempt.as_mut().poll(cx);
                    if polled.is_pending()
                        && let Some(slot) = running.borrow_mut().get_mut(place)
                    {
                        *slot = Some(attempt);
                    }
                    if let Poll::Ready(Err((_, error))) = &polled {
                        errors.borrow_mut().push((path, error.to_string()));
                    }
                    polled.map_ok(|answer| (place, answer))
                })
                .await
            })
        };
        let outcome = net::race::race(ways, PATH_STAGGER, start, worse).await;
        let (winner, mut answer) = outcome.unwrap_or_else(|| {
            let error = CarrierError::Config("no path to the server".to_owned());
            Err((0, error.into()))
        })?;
        if let AttemptOutcome::Greeted(connected) = &mut answer {
            connected.passed_over = self.passed_over(order.iter().take(winner), &errors.borrow());
        }
        // Only attempts with a higher carrier number continue: these belong to better paths.
        let most = if link.is_some() { winner } else { count };
        let rest = running.take().into_iter().take(most).flatten().collect();
        Ok((answer, rest))
    }

    /// Returns why each of these paths, which precede the winner of a round, was not used.
    fn passed_over<'a>(
        &self,
        paths: impl Iterator<Item = &'a usize>,
        errors: &[(usize, String)],
    ) -> Vec<String> {
        let paths = paths.filter_map(|index| Some((index, self.client.paths.get(*index)?)));
        let why = |(index, path): (&usize, &Path)| {
            let error = errors.iter().find(|(of, _)| of == index).map(|(_, error)| error);
            match error {
                Some(error) => format!("{path:?} failed ({error})"),
                None => format!("{path:?} did not answer within {} s", PATH_STAGGER.as_secs()),
            }
        };
        paths.map(why).collect()
    }

    /// Dials and greets over one path. A link whose carrier answers sends no early data: the answer
    /// of the server would describe the link before the frames that arrive meanwhile.
    pub(super) fn try_path(
        &self,
        index: usize,
        link: Option<(&Link, &JoinedLink, CarrierNumber)>,
    ) -> Attempt {
        let is_cut_off = |link: &Link| !link.answers();
        let early = link.filter(|(link, known, _)| is_cut_off(link) && known.early.take());
        let early = early.map(|(link, ..)| link.clone());
        let mode = link.map(|(link, ..)| AttachMode::Replaces(link.last_carrier()));
        self.attempt(index, link.zip(mode), early)
    }

    /// Dials and greets a standby over one path. The carrier sends no early data, because early
    /// data makes a carrier the active carrier.
    pub(super) fn try_standby(
        &self,
        index: usize,
        link: (&Link, &JoinedLink, CarrierNumber),
    ) -> Attempt {
        self.attempt(index, Some((link, AttachMode::Adds)), None)
    }

    fn attempt(
        &self,
        index: usize,
        link: Option<((&Link, &JoinedLink, CarrierNumber), AttachMode)>,
        early: Option<Link>,
    ) -> Attempt {
        let path = self.client.paths.get(index).cloned();
        let client = self.client.clone();
        let choice = client.choice.clone();
        let since = link.map(|((link, ..), _)| link.standing());
        let claim = link.map(|((_, known, carrier), mode)| {
            (Claim { link: known.id, carrier, mode }, known.secret.clone())
        });
        Box::pin(async move {
            let Some(path) = path else {
                return Err((index, CarrierError::Config("no such path".to_owned()).into()));
            };
            let resumed = claim.is_some();
            let connected = async {
                let shares = client.shares.load(Ordering::Relaxed);
                let no_feature = Features(0);
                let features = client
                    .features
                    .with(if shares { Features::BESIDE } else { no_feature })
                    .with(if client.spreads { Features::SPREADS } else { no_feature });
                let mut setup = ClientSetup {
                    binding: Binding::None,
                    name: client.name,
                    identity: client.identity,
                    instance: client.instance,
                    takeover: !client.logged_in.load(Ordering::Relaxed),
                    attach: claim,
                    versions: Versions::OURS,
                    features,
                    nonce: crate::random::<NONCE_LENGTH>(),
                };
                let say = early.is_some().then(|| {
                    let setup = setup.clone();
                    let say: EarlyDataFn = Rc::new(move |client| setup.early_flight(client));
                    say
                });
                let (mut carrier, mut said) = dial_early(&path, say.as_ref()).await?;
                // The old carrier has recovered, and the server's answer may be older than this
                // change.
                if said.is_some() && early.is_some_and(|link| since != Some(link.standing())) {
                    (carrier, said) = dial_early(&path, None).await?;
                }
                setup.binding = greet::binding(&carrier.peer);
                // Without a binding the client waits for the nonce before it proves its name.
                let round_trips = if carrier.peer.exporter.is_some() { 1 } else { 2 };
                let began = Instant::now();
                let (accepted, leftover) =
                    greet::greet_server(&mut carrier, setup, said.as_ref()).await?;
                let round_trip = began.elapsed() / round_trips;
                let number = accepted.carrier;
                let passed_over = Vec::new();
                Ok(Connected {
                    path: index,
                    number,
                    carrier,
                    accepted,
                    since,
                    leftover,
                    round_trip,
                    passed_over,
                })
            };
            let outcome = connected.await;
            if let Some(choice) = &choice {
                choice.attempted(index, outcome.as_ref().map(drop));
            }
            match outcome {
                Ok(connected) => Ok(AttemptOutcome::Greeted(Box::new(connected))),
                Err(DialError::Greet(error))
                    if resumed && error.refusal() == Some(Refusal::UnknownLink) =>
                {
                    Ok(AttemptOutcome::Forgotten)
                }
                Err(error) => Err((index, error)),
            }
        })
    }
}

/// Closes a second link, which a slower path has made, so that the server does not keep it.
pub(super) async fn dismiss(mut connected: Connected) {
    let mut frame = BytesMut::new();
    frame.put_slice(&Head::new(Kind::GoAway, 0, 2, StreamId::CONTROL).encode());
    frame.put_u16(GoAwayReason::Closed.raw());
    let lane = &mut connected.carrier.lane;
    let goodbye = async {
        greet::write(&mut **lane, frame.freeze()).await?;
        poll_fn(|cx| lane.poll_close(cx)).await
    };
    if !matches!(tokio::time::timeout(DISMISSAL, goodbye).await, Ok(Ok(()))) {
        tracing::debug!("a second link was not told that it is one");
    }
}

/// Waits until one of the trials ends, removes it, and returns its outcome.
pub(super) async fn finished(trials: &mut Vec<Attempt>) -> Result<AttemptOutcome, Failed> {
    poll_fn(|cx| {
        for i in 0..trials.len() {
            if let Poll::Ready(outcome) = trials[i].as_mut().poll(cx) {
                drop(trials.swap_remove(i));
                return Poll::Ready(outcome);
            }
        }
        Poll::Pending
    })
    .await
}

/// A failure and the path that failed.
pub(super) type Failed = (usize, DialError);

/// Returns the more informative error: a refusal by the server is more informative than an
/// unreachable fallback.
fn worse(known: Failed, error: Failed) -> Failed {
    if error.1.failure() == Failure::Network { known } else { error }
}
