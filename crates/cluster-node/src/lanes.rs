//! Requests to the engine: four lanes, so that renewals wait behind no claims, and claims behind
//! no look-ups. A lane carries out its requests in order, over connections of its own.
//!
//! The rules of the cluster want an answer to each request after 1 s at the latest, however many
//! members the client of the engine asks meanwhile. So a lane has a dead-line of its own, which
//! counts from the output of the node on. A request that has not left by then was certainly not
//! carried out.

use std::time::Duration;

use cluster::engine::NoReply;
use cluster::node::{EngineReply, EngineRequest, Lane, RequestId};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::{Instant, timeout_at};

use crate::engine::{EngineCaller, Unanswered};

/// The most time from a request of the node to its answer.
pub const ANSWER: Duration = Duration::from_secs(1);

/// The most requests that wait in a lane. A node has at most three requests of a lane under way,
/// and as many that it has given up with a former epoch.
const WAITING: usize = 16;

/// A request on its way.
#[derive(Debug)]
pub(crate) struct AskedRequest {
    id: RequestId,
    request: EngineRequest,
    until: Instant,
}

/// An answer, or the want of one.
pub(crate) type EngineAnswer = (RequestId, Result<EngineReply, Unanswered>);

/// The near ends of the lanes.
#[derive(Debug)]
pub(crate) struct Lanes {
    renewals: mpsc::Sender<AskedRequest>,
    claims: mpsc::Sender<AskedRequest>,
    look_ups: mpsc::Sender<AskedRequest>,
    blobs: mpsc::Sender<AskedRequest>,
}

/// The far ends of the lanes, in the order of [`Lanes`].
pub(crate) type LaneEnds = [mpsc::Receiver<AskedRequest>; 4];

impl Lanes {
    /// Empty lanes.
    pub(crate) fn new() -> (Self, LaneEnds) {
        let (renewals, first) = mpsc::channel(WAITING);
        let (claims, second) = mpsc::channel(WAITING);
        let (look_ups, third) = mpsc::channel(WAITING);
        let (blobs, fourth) = mpsc::channel(WAITING);
        (Self { renewals, claims, look_ups, blobs }, [first, second, third, fourth])
    }

    /// Sends a request, or returns the number of a request that has no room and does not leave.
    pub(crate) fn send(&self, id: RequestId, request: EngineRequest) -> Result<(), RequestId> {
        let lane = match &request {
            EngineRequest::Transact(lane, _) | EngineRequest::Grant(lane, _) => *lane,
            EngineRequest::KeepAlive(_) | EngineRequest::Revoke(_) => Lane::Renewals,
        };
        let lane = match lane {
            Lane::Renewals => &self.renewals,
            Lane::Claims => &self.claims,
            Lane::LookUps => &self.look_ups,
            Lane::Blobs => &self.blobs,
        };
        let asked = AskedRequest { id, request, until: Instant::now() + ANSWER };
        lane.try_send(asked).map_err(|error| match error {
            TrySendError::Full(asked) | TrySendError::Closed(asked) => asked.id,
        })
    }
}

/// Carries out the requests of a lane until nobody sends any. The end of a lease has no answer.
pub(crate) async fn lane<C: EngineCaller>(
    mut caller: C,
    mut asked: mpsc::Receiver<AskedRequest>,
    answers: mpsc::Sender<EngineAnswer>,
) {
    while let Some(AskedRequest { id, request, until }) = asked.recv().await {
        if let EngineRequest::Revoke(lease) = request {
            match timeout_at(until, caller.revoke(lease)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "a lease ends by itself"),
                Err(_) => caller.turn(),
            }
            continue;
        }
        let answer = if until <= Instant::now() {
            Err(late(NoReply::Refused))
        } else {
            match timeout_at(until, caller.ask(&request)).await {
                Ok(answer) => answer,
                Err(_) => {
                    caller.turn();
                    Err(late(NoReply::Unknown))
                }
            }
        };
        if answers.send((id, answer)).await.is_err() {
            return;
        }
    }
}

fn late(failure: NoReply) -> Unanswered {
    Unanswered { failure, reason: format!("no answer within {ANSWER:?}") }
}

#[cfg(test)]
mod tests {
    use cluster::engine::{Lease, Transaction};

    use super::*;

    /// An engine that answers nothing, and the number of its turns.
    struct Silent(mpsc::Sender<()>);

    impl EngineCaller for Silent {
        async fn ask(&mut self, _: &EngineRequest) -> Result<EngineReply, Unanswered> {
            std::future::pending().await
        }

        async fn revoke(&mut self, _: Lease) -> Result<(), Unanswered> {
            std::future::pending().await
        }

        fn turn(&mut self) {
            self.0.try_send(()).unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_request_is_answered_after_1_s_at_the_latest() {
        let (lanes, [renewals, ..]) = Lanes::new();
        let (turn, mut turns) = mpsc::channel(8);
        let (answers, mut answered) = mpsc::channel(1);
        tokio::spawn(lane(Silent(turn), renewals, answers));
        let start = Instant::now();
        lanes.send(RequestId(1), EngineRequest::KeepAlive(Lease(1))).unwrap();
        let beat = EngineRequest::Transact(Lane::Renewals, Transaction::default());
        lanes.send(RequestId(2), beat).unwrap();
        // What has not left was not carried out.
        for (id, failure) in [(1, NoReply::Unknown), (2, NoReply::Refused)] {
            let (found, answer) = answered.recv().await.unwrap();
            assert_eq!((found, answer.unwrap_err().failure), (RequestId(id), failure));
            assert_eq!(start.elapsed().as_millis() / 10, 100);
        }
        // The next request goes to another member.
        assert_eq!(turns.recv().await, Some(()));
        assert!(turns.try_recv().is_err());

        // Nobody waits for the end of a lease, and it holds up the next request for 1 s at most.
        lanes.send(RequestId(3), EngineRequest::Revoke(Lease(1))).unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
        lanes.send(RequestId(4), EngineRequest::KeepAlive(Lease(2))).unwrap();
        assert_eq!(answered.recv().await.map(|(id, _)| id), Some(RequestId(4)));
        assert_eq!(start.elapsed().as_millis() / 10, 250);
    }

    #[test]
    fn a_request_without_room_comes_back() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _entered = runtime.enter();
        let (lanes, _ends) = Lanes::new();
        let count = u64::try_from(WAITING).unwrap();
        for id in 0..count {
            lanes.send(RequestId(id), EngineRequest::KeepAlive(Lease(1))).unwrap();
        }
        let full = lanes.send(RequestId(count), EngineRequest::KeepAlive(Lease(1)));
        assert_eq!(full, Err(RequestId(count)));
        let other = EngineRequest::Transact(Lane::Claims, Transaction::default());
        assert_eq!(lanes.send(RequestId(99), other), Ok(()));
    }
}
