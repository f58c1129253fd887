//! Probes a path on command while another path carries the link: the path is dialled and greeted,
//! and the connection ends. The server takes the carrier for a standby, which carries no stream, so
//! that neither the probe nor its end affects the link. A standby of the link is replaced at the
//! server, and dialled again.

use std::future::poll_fn;
use std::time::Duration;

use proto::LinkId;

use super::attempt::{Attempt, AttemptOutcome, Failed, JoinedLink, dismiss};
use super::error::DialError;
use super::keeper::Keeper;
use crate::inner::Link;
use crate::notices::Notice;
use crate::orders::{MoveError, ProbeOrder};

/// The time-out for the end of the connection of a probe.
const FAREWELL: Duration = Duration::from_secs(1);

/// The probe in progress, if any.
#[derive(Default)]
pub(super) struct Probing {
    order: Option<ProbeOrder>,
    /// The attempt of the probe.
    pub(super) attempt: Vec<Attempt>,
}

impl Link {
    /// Probes the path with this URL while another path carries the link. Returns the duration of a
    /// round trip. A link that changes its path probes nothing. Only a client probes paths.
    ///
    /// # Errors
    /// Why there is no result: [`MoveError::Failed`] if the path does not work, and
    /// [`MoveError::Unavailable`] if the path does not exist now.
    pub async fn probe(&self, to: &str) -> Result<Duration, MoveError> {
        if self.has_ended() {
            return Err(MoveError::Interrupted);
        }
        let (order, outcome) = ProbeOrder::new(to.to_owned());
        self.inner.orders.give_probe(order);
        self.inner.notices.add(Notice::ProbePath);
        outcome.await.unwrap_or(Err(MoveError::Interrupted))
    }
}

impl Probing {
    /// Begins a probe, if the link `is_free` for it. A probe in progress is given up.
    pub(super) fn begin(
        &mut self,
        order: ProbeOrder,
        is_free: bool,
        (keeper, link, known): (&Keeper, &Link, &JoinedLink),
    ) {
        let Some(path) = keeper.client.paths.iter().position(|path| path.url == order.to) else {
            let unknown = MoveError::Unknown(order.to.clone());
            return order.answer(Err(unknown));
        };
        self.cancel();
        let number = known.claim(1).next().filter(|_| is_free);
        let Some(number) = number else { return order.answer(Err(MoveError::Interrupted)) };
        self.attempt.push(keeper.try_standby(path, (link, known, number)));
        self.order = Some(order);
    }

    /// Gives the probe up.
    pub(super) fn cancel(&mut self) {
        self.attempt.clear();
        self.order = None;
    }

    /// Handles the end of the attempt: closes its connection, and answers the command.
    pub(super) async fn ended(&mut self, outcome: Result<AttemptOutcome, Failed>, link: LinkId) {
        let Some(order) = self.order.take() else { return };
        let failed = |why: String| MoveError::Failed { to: order.to.clone(), why };
        let probed = match outcome {
            Ok(AttemptOutcome::Greeted(connected)) if connected.accepted.link == link => {
                let mut connected = *connected;
                let round_trip = connected.round_trip;
                // The supervisor does not wait for the end of the connection.
                drop(tokio::task::spawn_local(async move {
                    let lane = &mut connected.carrier.lane;
                    let close = poll_fn(|cx| lane.poll_close(cx));
                    // The drop of the lane ends the connection in any case.
                    drop(tokio::time::timeout(FAREWELL, close).await);
                }));
                Ok(round_trip)
            }
            Ok(AttemptOutcome::Greeted(connected)) => {
                dismiss(*connected).await;
                Err(failed("this server has made another link".to_owned()))
            }
            Ok(AttemptOutcome::Forgotten) => {
                Err(failed("this server does not know the link".to_owned()))
            }
            Err((_, DialError::Carrier(error))) if !error.is_of_path() => {
                Err(MoveError::Unavailable { to: order.to.clone(), why: error.to_string() })
            }
            Err((_, error)) => Err(failed(error.to_string())),
        };
        order.answer(probed);
    }
}
