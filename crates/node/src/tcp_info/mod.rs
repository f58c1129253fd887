//! The statistics of the carriers' TCP connections: losses, retransmissions and bytes queued in the
//! kernel ([`net::tcp_info`]). The code sends one request per carrier, only for a status, and never
//! on a worker.
//!
//! The kernel's counts end with their connection. The sums of a [`Ledger`] do not: each query adds
//! the counts since the last query. So the sums never decrease and may be Prometheus counters, from
//! which rates are computed. The sums lack the counts between the last query and the end of a
//! connection.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use net::tcp_info::{Ends, Info, Kernel};
use ops::status::{Sent, Session, Tcp};
use tokio::sync::MutexGuard;
use tokio::task::yield_now;
use transport::Connection;

/// The number of requests between two yields to other tasks on this thread; 64 take half a
/// millisecond.
const AT_ONCE: usize = 64;

/// The maximum number of peers whose sums are kept. It is above the number of peers in a
/// configuration, and bounds the memory that clients with invented names can use.
const PEERS: usize = 16_384;

/// The TCP connections of carriers, by the serial of the link and the number of the carrier.
pub type Connections = HashMap<(u64, u32), Connection>;

/// The sums by transport.
type Sums = BTreeMap<String, Sent>;

/// The sums of all carriers so far, by peer and transport.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Held during a whole query, so that the later of two queries has the later counts.
    last: tokio::sync::Mutex<Last>,
    /// At most [`PEERS`].
    sums: Mutex<BTreeMap<String, Sums>>,
}

/// The counts of each live connection at the last query.
type Last = HashMap<Whose, Sent>;

/// The identity of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Whose {
    /// The kernel's cookie of its socket.
    Kernel(u64),
    /// A connection implemented in this process (QUIC, KCP): the serial of the link, and the number
    /// of the carrier.
    Ours(u64, u32),
}

/// A query in progress. It begins before the carriers are listed and ends with [`Look::fill`].
#[derive(Debug)]
pub struct Look<'a> {
    last: MutexGuard<'a, Last>,
    ledger: &'a Ledger,
}

impl Ledger {
    /// Begins a query. Waits for a concurrent query to finish.
    pub async fn look(&self) -> Look<'_> {
        Look { last: self.last.lock().await, ledger: self }
    }

    /// The sums for this peer, over all its sessions.
    pub fn sums(&self, peer: &str) -> Sums {
        let sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        sums.get(peer).cloned().unwrap_or_default()
    }

    fn add(&self, peer: &str, transport: &str, before: Option<Sent>, now: Sent) {
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        if !sums.contains_key(peer) {
            if sums.len() >= PEERS {
                return;
            }
            sums.insert(peer.to_owned(), Sums::new());
        }
        let Some(sums) = sums.get_mut(peer) else { return };
        add(sums.entry(transport.to_owned()).or_default(), before.unwrap_or_default(), now);
    }
}

impl Look<'_> {
    /// Queries the statistics of each carrier. `sessions` must be all sessions, because connections
    /// that are not among them are forgotten. `connections` has the TCP connection of each carrier
    /// that has one.
    pub async fn fill<'a>(
        mut self,
        sessions: impl Iterator<Item = &'a mut Session>,
        connections: &Connections,
    ) {
        let mut kernel = Kernel::open()
            .inspect_err(|error| tracing::debug!(%error, "no figures of TCP: no netlink"))
            .ok();
        let (mut asked, mut met) = (0, HashSet::new());
        for session in sessions {
            let peer = &session.peer;
            for link in &mut session.links {
                for carrier in &mut link.carriers {
                    if let Some(now) = carrier.driven() {
                        let own = Whose::Ours(link.serial, carrier.number);
                        let before = self.last.insert(own, now);
                        self.ledger.add(peer, &carrier.transport, before, now);
                        met.insert(own);
                    }
                    let connection = connections.get(&(link.serial, carrier.number));
                    let (Some(&connection), Some(asking)) = (connection, &mut kernel) else {
                        continue;
                    };
                    if asked > 0 && asked % AT_ONCE == 0 {
                        yield_now().await;
                    }
                    asked += 1;
                    let Connection { local, remote } = connection;
                    match asking.ask(Ends { local, remote }) {
                        Ok(Some((cookie, info))) => {
                            let tcp = figures(info);
                            // Recorded at once, because the caller may cancel at the next await.
                            let now = Sent::from(tcp);
                            let before = self.last.insert(Whose::Kernel(cookie), now);
                            self.ledger.add(peer, &carrier.transport, before, now);
                            met.insert(Whose::Kernel(cookie));
                            carrier.tcp = Some(tcp);
                        }
                        // The connection ended after it was listed.
                        Ok(None) => {}
                        Err(error) => {
                            tracing::debug!(%error, "no figures of TCP: the kernel does not tell");
                            kernel = None;
                        }
                    }
                }
            }
        }
        if met.is_empty() && asked > 0 {
            tracing::debug!("no figures of TCP: the kernel knows no carrier (no tcp_diag?)");
        }
        // Connections that were not seen have ended.
        self.last.retain(|cookie, _| met.contains(cookie));
    }
}

/// Queries the statistics of the sessions in `turn`, and of no additional session after `most`
/// requests. The sums of a ledger do not change. Returns the queried sessions, in order.
pub async fn ask_some(
    sessions: &mut BTreeMap<u64, Session>,
    connections: &Connections,
    turn: Vec<u64>,
    most: usize,
) -> Vec<u64> {
    if turn.is_empty() {
        return turn;
    }
    let mut kernel = match Kernel::open() {
        Ok(kernel) => kernel,
        Err(error) => {
            tracing::debug!(%error, "no figures of TCP: no netlink");
            return turn;
        }
    };
    let (mut asked, mut met) = (0, Vec::new());
    for id in turn {
        let links = sessions.get_mut(&id).map(|session| &mut session.links);
        for link in links.into_iter().flatten() {
            for carrier in &mut link.carriers {
                let connection = connections.get(&(link.serial, carrier.number));
                let Some(&Connection { local, remote }) = connection else { continue };
                if asked > 0 && asked % AT_ONCE == 0 {
                    yield_now().await;
                }
                asked += 1;
                match kernel.ask(Ends { local, remote }) {
                    Ok(found) => carrier.tcp = found.map(|(_, info)| figures(info)),
                    Err(error) => {
                        tracing::debug!(%error, "no figures of TCP: the kernel does not tell");
                    }
                }
            }
        }
        met.push(id);
        if asked >= most {
            break;
        }
    }
    met
}

/// The statistics in the form of the status.
const fn figures(info: Info) -> Tcp {
    Tcp {
        sent_segments: info.sent_segments,
        retransmitted_segments: info.retransmitted_segments,
        retransmitted_bytes: info.retransmitted_bytes,
        lost_segments: info.lost_segments,
        queue_bytes: info.unsent_bytes,
        window_segments: info.window_segments,
        bytes_per_second: info.bytes_per_second,
        rtt_micros: info.rtt_micros,
    }
}

/// Adds the counts between two queries of a connection.
fn add(sum: &mut Sent, before: Sent, now: Sent) {
    // The kernel counts segments in 32 bits, so the counter may wrap.
    let segments = |sum: &mut Option<u64>, before: Option<u64>, now: Option<u64>| {
        let Some(now) = now else { return };
        let more = now.wrapping_sub(before.unwrap_or(0)) & u64::from(u32::MAX);
        *sum = Some(sum.unwrap_or(0) + more);
    };
    segments(&mut sum.segments, before.segments, now.segments);
    let retransmitted = &mut sum.retransmitted_segments;
    segments(retransmitted, before.retransmitted_segments, now.retransmitted_segments);
    let count = |sum: &mut Option<u64>, before: Option<u64>, now: Option<u64>| {
        let Some(now) = now else { return };
        *sum = Some(sum.unwrap_or(0) + now.saturating_sub(before.unwrap_or(0)));
    };
    count(&mut sum.retransmitted_bytes, before.retransmitted_bytes, now.retransmitted_bytes);
    count(&mut sum.lost_packets, before.lost_packets, now.lost_packets);
    count(&mut sum.parity_packets, before.parity_packets, now.parity_packets);
    count(&mut sum.recovered_packets, before.recovered_packets, now.recovered_packets);
}
