//! Which name server is asked when, and whose answer counts.
//!
//! Servers are asked in the order of resolv.conf(5), and not all at once: with a VPN the first
//! server knows names of which the second says that they do not exist, and the second is often
//! nearer.
//!
//! * A server that refuses, or that cannot be reached, is followed by the next server at once.
//! * A server that is silent for [`SILENCE`] is followed by the next server, and goes on being
//!   listened to. The first addresses count. That there are none counts once each earlier server
//!   has refused or has been silent for the whole wait.
//! * A server that was silent is remembered ([`Health`]). It is then asked together with the next
//!   server, which costs no visitor anything, until it answers anything.

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

/// A server that is silent for this time is followed by the next one. Answers that a resolver has
/// to fetch take up to a second; a visitor notices more.
pub(super) const SILENCE: Duration = Duration::from_secs(1);

/// A server that was silent before has this time to contradict another server that knows no
/// address.
const HOLD: Duration = Duration::from_millis(500);

/// Questions whose answer nobody waits for any more, and which only tell whether a server lives.
const LINGERING: usize = 32;

/// An answer under way.
pub(in crate::resolve) type Answering =
    Pin<Box<dyn Future<Output = Result<DnsReply, Trouble>> + Send>>;

/// How a question reaches a server.
pub(in crate::resolve) trait Exchange: Send + Sync + 'static {
    /// Asks a server until it answers. The caller bounds the time.
    fn ask(&self, server: SocketAddr, question: &Question, by_tcp: bool) -> Answering;
}

/// What is known about the servers.
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
    /// Whether each of the servers was silent. Servers that are all silent are as good as each
    /// other.
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

    /// Notes that a question of this time was not answered. A server that has answered another
    /// question since then lives, and has only no answer to this one.
    fn missed(&self, server: SocketAddr, asked: Instant) {
        let mut known = self.lock();
        let condition = known.entry(server).or_default();
        if condition.heard.is_none_or(|heard| heard < asked) && !condition.is_silent {
            condition.is_silent = true;
            tracing::debug!("the name server {server} is silent, so the next one is asked as well");
        }
    }

    /// Goes on listening for the answer of a server, to know whether the server lives.
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

/// A place among the questions that linger.
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

/// One server within a question.
enum ServerTurn {
    Waiting,
    Asked { since: Instant, answering: Answering },
    Answered(DnsReply),
    Failed(Trouble),
}

/// A question on its way through the servers.
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
    /// When the last server was asked.
    begun: Option<Instant>,
}

/// The reply that counts, and the server that gave it.
pub(super) type ServerReply = (SocketAddr, DnsReply);

/// Asks the servers, which are in the order in which they count. `wait` bounds the answer of each.
///
/// # Errors
/// What each of the servers did, when none of them answers.
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
    /// Takes the answers that are there, and gives up servers whose time is over.
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

    /// The answer that counts.
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

    /// The server whose word counts that there is no address: no earlier server can contradict.
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

    /// Asks the next server if it is its turn.
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

    /// When time alone changes something. `None`: every server has failed.
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
