//! The measurements of earlier connections, by the address of the peer. A new connection starts
//! from it ([`congestion::Measured`], temporal sharing as in RFC 9040).
//!
//! A measurement is given to one connection only: several connections that return at once must not
//! add up to more than the path carried. A measurement of a path that another connection currently
//! uses is not given out.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use congestion::Measured;

/// The largest number of paths. The oldest is evicted for a new path.
const MOST: usize = 1_024;

/// A measurement expires after this time: paths change by the hour, and a peer that returns does so
/// within minutes.
const EXPIRES: Duration = Duration::from_secs(600);

/// The shortest interval between two records of a connection.
pub(crate) const EVERY: Duration = Duration::from_millis(50);

/// The path of a younger record is in use.
const IN_USE: Duration = Duration::from_millis(200);

/// The shortest interval between two searches of a full table for its oldest path. A server with
/// more clients than paths would otherwise search at each record of each connection.
const SEARCHED: Duration = Duration::from_millis(10);

/// The measured paths of a dialer, or of a listener. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct PastPaths(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    paths: HashMap<IpAddr, (Measured, Instant)>,
    /// When the oldest path was last searched.
    searched: Option<Instant>,
}

impl PastPaths {
    /// A connection has measured its path to `peer`.
    pub(crate) fn note(&self, peer: IpAddr, now: Instant, measured: Measured) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Table { paths, searched } = &mut *table;
        if paths.len() >= MOST && !paths.contains_key(&peer) {
            if searched.is_some_and(|at| now.saturating_duration_since(at) < SEARCHED) {
                // The connection measures again soon.
                return;
            }
            *searched = Some(now);
            let oldest = paths.iter().min_by_key(|(_, (_, at))| *at).map(|(peer, _)| *peer);
            oldest.map(|oldest| paths.remove(&oldest));
        }
        paths.insert(peer, (measured, now));
    }

    /// Takes the measurement of the path to `peer`.
    pub(crate) fn take(&self, peer: IpAddr, now: Instant) -> Option<Measured> {
        let paths = &mut self.0.lock().unwrap_or_else(PoisonError::into_inner).paths;
        let (measured, at) = *paths.get(&peer)?;
        let age = now.saturating_duration_since(at);
        if age < IN_USE {
            return None;
        }
        paths.remove(&peer);
        (age < EXPIRES).then_some(measured)
    }
}

impl fmt::Debug for PastPaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PastPaths").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const PATH: Measured =
        Measured { rate: 10e6, round_trip: Duration::from_millis(100), loss: 0.0 };
    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn a_measurement_is_taken_once_and_not_while_the_path_is_in_use() {
        let (paths, begin) = (PastPaths::default(), Instant::now());
        paths.note(PEER, begin, PATH);
        assert_eq!(paths.take(PEER, begin + IN_USE / 2), None, "in use");
        assert_eq!(paths.take(IpAddr::V4(Ipv4Addr::BROADCAST), begin + IN_USE), None);
        assert_eq!(paths.take(PEER, begin + IN_USE), Some(PATH));
        assert_eq!(paths.take(PEER, begin + IN_USE), None, "taken");
        paths.note(PEER, begin, PATH);
        assert_eq!(paths.take(PEER, begin + EXPIRES), None, "expired");
    }

    #[test]
    fn the_oldest_of_many_paths_is_forgotten() {
        let (paths, begin) = (PastPaths::default(), Instant::now());
        let peer = |number: usize| IpAddr::V4(Ipv4Addr::from(u32::try_from(number).unwrap()));
        for number in 0..=MOST {
            paths.note(peer(number), begin + Duration::from_millis(number as u64), PATH);
        }
        assert_eq!(paths.0.lock().unwrap().paths.len(), MOST);
        let now = begin + Duration::from_secs(10);
        assert_eq!(paths.take(peer(0), now), None);
        assert_eq!(paths.take(peer(1), now), Some(PATH));
    }

    #[test]
    fn a_full_table_is_not_searched_for_each_note() {
        let (paths, begin) = (PastPaths::default(), Instant::now());
        let peer = |number: usize| IpAddr::V4(Ipv4Addr::from(u32::try_from(number).unwrap()));
        for number in 0..=MOST {
            paths.note(peer(number), begin, PATH);
        }
        paths.note(peer(MOST + 1), begin + SEARCHED / 2, PATH);
        paths.note(peer(MOST + 2), begin + SEARCHED, PATH);
        let now = begin + Duration::from_secs(10);
        assert_eq!(paths.take(peer(MOST + 1), now), None, "too soon after the last search");
        assert_eq!(paths.take(peer(MOST + 2), now), Some(PATH));
    }
}
