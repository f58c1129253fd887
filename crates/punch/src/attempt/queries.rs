//! Binding requests to STUN servers.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::{Datagram, PACE, Purpose, Random};
use crate::stun::{self, Id};

/// Maximum number of servers that are queried.
pub const QUERIES: usize = 8;

/// The timeouts of each transmission; the last timeout ends the query. A path with a round trip of
/// 1 s still gets its response, and the sum is well within the timeout of an attempt.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_millis(1_000),
    Duration::from_millis(1_500),
];

#[derive(Debug, Default)]
pub(super) struct Queries(Vec<Query>);

#[derive(Debug)]
struct Query {
    server: SocketAddr,
    id: Id,
    sent: usize,
    next: Option<Instant>,
    seen: Option<SocketAddr>,
}

impl Queries {
    pub(super) fn new(
        now: Instant,
        servers: impl Iterator<Item = SocketAddr>,
        random: Random<'_>,
    ) -> Self {
        let mut queries: Vec<Query> = Vec::new();
        for server in servers {
            if queries.len() >= QUERIES || queries.iter().any(|query| query.server == server) {
                continue;
            }
            let mut id = Id::default();
            random(&mut id);
            let begins = now + PACE * u32::try_from(queries.len()).unwrap_or(0);
            queries.push(Query { server, id, sent: 0, next: Some(begins), seen: None });
        }
        Self(queries)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether no query is pending.
    pub(super) fn are_over(&self) -> bool {
        self.0.iter().all(|query| query.next.is_none())
    }

    /// Our mapped address, if this is the response to a query. A response must come from the
    /// queried server and have the transaction id of the query.
    pub(super) fn answered(&mut self, from: SocketAddr, datagram: &[u8]) -> Option<SocketAddr> {
        let (id, seen) = stun::answered(datagram)?;
        let query = self.0.iter_mut().find(|query| query.server == from && query.id == id)?;
        query.next = None;
        query.seen = Some(seen);
        Some(seen)
    }

    /// Our mapped addresses, as reported by servers.
    pub(super) fn seen(&self) -> impl Iterator<Item = SocketAddr> {
        self.0.iter().filter_map(|query| query.seen)
    }

    /// The servers that have responded, each with our mapped address, of one family: IPv4 if there
    /// are any.
    pub(super) fn answers(&self) -> Vec<(SocketAddr, SocketAddr)> {
        let all = || self.0.iter().filter_map(|query| Some((query.server, query.seen?)));
        let has_v4 = all().any(|(_, seen)| seen.is_ipv4());
        all().filter(|(_, seen)| seen.is_ipv4() == has_v4).collect()
    }

    /// Sends the queries that are due. Returns whether the last query has just ended.
    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        datagrams: &mut VecDeque<Datagram>,
    ) -> bool {
        let were_over = self.are_over();
        for query in &mut self.0 {
            let Some(due) = query.next.filter(|at| *at <= now) else { continue };
            query.next = PAUSES.get(query.sent).map(|pause| due.max(now) + *pause);
            query.sent += 1;
            if query.next.is_some() {
                let bytes = stun::request(query.id).to_vec();
                datagrams.push_back(Datagram {
                    to: query.server,
                    from: None,
                    purpose: Purpose::Other,
                    hops: None,
                    bytes,
                });
            }
        }
        !were_over && self.are_over()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.0.iter().filter_map(|query| query.next).min()
    }
}
