//! The order and timing of queries to the name servers, and the choice of the answer.
//!
//! Servers are queried in the order of resolv.conf(5), not all at once: with a VPN the first server
//! knows names that do not exist according to the second, and the second is often closer.
//!
//! * If a server refuses or cannot be reached, the next server is queried at once.
//! * If a server is silent for [`SILENCE`], the next server is queried, and a late answer of the
//!   first is still accepted. The first addresses win. A negative answer counts once each earlier
//!   server has refused or has been silent for the whole timeout.
//! * A silent server is remembered ([`Health`]). Until it answers again, it is queried together
//!   with the next server, which delays no visitor.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};

use super::failure::Trouble;
use super::wire::{DnsReply, Question};

/// The time after which the next server is queried if a server is silent. Recursive answers take up
/// to a second; a visitor notices longer delays.
pub(super) const SILENCE: Duration = Duration::from_secs(1);

/// The time in which a previously silent server may contradict a negative answer of another server.
const HOLD: Duration = Duration::from_millis(500);

/// The maximum number of lingering queries, whose answer only shows whether a server is alive.
const LINGERING: usize = 32;

/// A pending answer.
pub(in crate::resolve) type Answering =
    Pin<Box<dyn Future<Output = Result<DnsReply, Trouble>> + Send>>;

/// The transport of queries to servers.
pub(in crate::resolve) trait Exchange: Send + Sync + 'static {
    /// Queries a server until it answers. The caller sets the timeout.
    fn ask(&self, server: SocketAddr, question: &Question, by_tcp: bool) -> Answering;
}

/// The state of the servers.
#[derive(Debug, Default)]
pub(super) struct Health {
    servers: Mutex<HashMap<SocketAddr, Condition>>,
    lingering: AtomicUsize,
}

#[derive(Debug, Default)]
struct Condition {
    is_silent: bool,
    heard: Option<Instant>,
}

impl Health {
    /// Whether each of the servers was silent. If all were silent, none counts as silent.
    fn silent(&self, servers: &[SocketAddr]) -> Vec<bool> {
        let known = self.lock();
        let is_silent = |server| known.get(server).is_some_and(|condition| condition.is_silent);
        let silent: Vec<_> = servers.iter().map(is_silent).collect();
        if silent.iter().all(|silent| *silent) { vec![false; servers.len()] } else { silent }
    }

    fn heard(&self, server: SocketAddr) {
        let mut known = self.lock();
        let condition = known.entry(server).or_default();
        condition.heard = Some(Instant::now());
        if std::mem::take(&mut condition.is_silent) {
            tracing::debug!("the name server {server} answers again");
        }
    }

    /// Records that a query sent at this time was not answered. A server that has answered another
    /// query since then is alive, and only fails to answer this query.
    fn missed(&self, server: SocketAddr, asked: Instant) {
        let mut known = self.lock();
        let condition = known.entry(server).or_default();
        if condition.heard.is_none_or(|heard| heard < asked) && !condition.is_silent {
            condition.is_silent = true;
            tracing::debug!("the name server {server} is silent, so the next one is asked as well");
        }
    }

    /// Continues to wait for the answer of a server, to learn whether the server is alive.
    fn linger(self: &Arc<Self>, server: SocketAddr, answering: Answering, wait: Duration) {
        if self.lingering.fetch_add(1, Ordering::Relaxed) >= LINGERING {
            self.lingering.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let place = LingerPlace(Arc::clone(self));
        tokio::spawn(async move {
            if timeout(wait, answering).await.is_ok_and(|answer| speaks(&answer)) {
                place.0.heard(server);
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, Condition>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place among the lingering queries.
struct LingerPlace(Arc<Health>);

impl Drop for LingerPlace {
    fn drop(&mut self) {
        self.0.lingering.fetch_sub(1, Ordering::Relaxed);
    }
}

fn speaks(answer: &Result<DnsReply, Trouble>) -> bool {
    match answer {
        Ok(_) | Err(Trouble::Refusal(_) | Trouble::Lame | Trouble::Garbled) => true,
        Err(Trouble::Silent(_) | Trouble::Unreachable(_)) => false,
    }
}

/// The state of one server within a query.
enum ServerTurn {
    Waiting,
    Asked { since: Instant, answering: Answering },
    Answered(DnsReply),
    Failed(Trouble),
}

/// The progress of a query over the servers.
struct Round<'a, E> {
    exchange: &'a E,
    health: &'a Arc<Health>,
    question: &'a Question,
    wait: Duration,
    by_tcp: bool,
    servers: &'a [SocketAddr],
    /// Which servers were silent before.
    silent: Vec<bool>,
    turns: Vec<ServerTurn>,
    /// When the last server was queried.
    begun: Option<Instant>,
}

/// The chosen reply, and its server.
pub(super) type ServerReply = (SocketAddr, DnsReply);

/// Queries the servers, in order of precedence. `wait` is the timeout for each server.
///
/// # Errors
/// The trouble of each server, if none of them answers.
pub(super) async fn ask<E: Exchange>(
    exchange: &E,
    health: &Arc<Health>,
    servers: &[SocketAddr],
    question: &Question,
    (wait, by_tcp): (Duration, bool),
) -> Result<ServerReply, Vec<(SocketAddr, Trouble)>> {
    let mut round = Round {
        exchange,
        health,
        question,
        wait,
        by_tcp,
        servers,
        silent: health.silent(servers),
        turns: servers.iter().map(|_| ServerTurn::Waiting).collect(),
        begun: None,
    };
    let mut timer = Box::pin(sleep_until(Instant::now()));
    poll_fn(|cx| {
        loop {
            let now = Instant::now();
            round.listen(cx, now);
            if let Some(outcome) = round.choose(now) {
                return Poll::Ready(Ok(outcome));
            }
            if round.ask_next(now) {
                continue;
            }
            let Some(next) = round.due(now) else { return Poll::Ready(Err(round.failures())) };
            timer.as_mut().reset(next);
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    })
    .await
}

impl<E: Exchange> Round<'_, E> {
    /// Takes the available answers, and gives up servers that have timed out.
    fn listen(&mut self, cx: &mut Context<'_>, now: Instant) {
        for (turn, server) in self.turns.iter_mut().zip(self.servers) {
            let ServerTurn::Asked { since, answering } = turn else { continue };
            match answering.as_mut().poll(cx) {
                Poll::Ready(answer) => {
                    if speaks(&answer) {
                        self.health.heard(*server);
                    }
                    *turn = answer.map_or_else(ServerTurn::Failed, ServerTurn::Answered);
                }
                Poll::Pending if now >= *since + self.wait => {
                    self.health.missed(*server, *since);
                    *turn = ServerTurn::Failed(Trouble::Silent(self.wait));
                }
                Poll::Pending => {}
            }
        }
    }

    /// Chooses the answer, if it is final.
    fn choose(&mut self, now: Instant) -> Option<ServerReply> {
        let found = |turn: &ServerTurn| matches!(turn, ServerTurn::Answered(reply) if !reply.found.is_empty());
        let index = self.turns.iter().position(found).or_else(|| self.negative(now))?;
        let ServerTurn::Answered(reply) =
            std::mem::replace(&mut self.turns[index], ServerTurn::Waiting)
        else {
            return None;
        };
        for (turn, server) in self.turns.drain(..).zip(self.servers) {
            if let ServerTurn::Asked { since, answering } = turn {
                if now >= since + SILENCE {
                    self.health.missed(*server, since);
                }
                self.health.linger(*server, answering, self.wait);
            }
        }
        Some((self.servers[index], reply))
    }

    /// The server whose negative answer is final: no earlier server can contradict it.
    fn negative(&self, now: Instant) -> Option<usize> {
        for (index, turn) in self.turns.iter().enumerate() {
            match turn {
                ServerTurn::Failed(_) => {}
                ServerTurn::Asked { since, .. } if self.silent[index] && now >= *since + HOLD => {}
                ServerTurn::Answered(_) => return Some(index),
                ServerTurn::Waiting | ServerTurn::Asked { .. } => return None,
            }
        }
        None
    }

    /// Queries the next server if it is due.
    fn ask_next(&mut self, now: Instant) -> bool {
        let Some(next) = self.turns.iter().position(|turn| matches!(turn, ServerTurn::Waiting))
        else {
            return false;
        };
        let is_patient = self.turns.iter().zip(&self.silent).any(|(turn, silent)| match turn {
            ServerTurn::Asked { .. } => !silent,
            ServerTurn::Waiting | ServerTurn::Answered(_) | ServerTurn::Failed(_) => false,
        });
        if self.has_answer()
            || (is_patient && self.begun.is_some_and(|begun| now < begun + SILENCE))
        {
            return false;
        }
        let answering = self.exchange.ask(self.servers[next], self.question, self.by_tcp);
        self.turns[next] = ServerTurn::Asked { since: now, answering };
        self.begun = Some(now);
        true
    }

    fn has_answer(&self) -> bool {
        self.turns.iter().any(|turn| matches!(turn, ServerTurn::Answered(_)))
    }

    /// The next deadline. `None`: every server has failed.
    fn due(&self, now: Instant) -> Option<Instant> {
        let mut due = None::<Instant>;
        let mut note = |at: Instant| due = Some(due.map_or(at, |due| due.min(at)));
        let mut waits = false;
        for (turn, silent) in self.turns.iter().zip(&self.silent) {
            match turn {
                ServerTurn::Asked { since, .. } => {
                    note(*since + self.wait);
                    if *silent && now < *since + HOLD {
                        note(*since + HOLD);
                    }
                }
                ServerTurn::Waiting => waits = true,
                ServerTurn::Answered(_) | ServerTurn::Failed(_) => {}
            }
        }
        if waits && !self.has_answer() {
            self.begun.into_iter().for_each(|begun| note(begun + SILENCE));
        }
        due
    }

    fn failures(&mut self) -> Vec<(SocketAddr, Trouble)> {
        let turns = self.turns.drain(..).zip(self.servers);
        turns
            .filter_map(|(turn, server)| match turn {
                ServerTurn::Failed(trouble) => Some((*server, trouble)),
                ServerTurn::Waiting | ServerTurn::Asked { .. } | ServerTurn::Answered(_) => None,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
