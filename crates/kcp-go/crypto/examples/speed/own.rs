//! Two ends over the project's own packets, with keys that belong together.

use std::time::Instant;

use kcp::own::fec::Protection;
use kcp::own::wire::ConnectionId;
use kcp::own::{Config, Session};
use kcp_crypto::{Algorithm, DirectionKey, SealKeys};
use kcp_go::engine;

use crate::Failure;
use crate::end::{Case, MTU};

/// A session that seals with the key of direction `seal` and opens with the key of direction
/// `open`.
fn session(case: Case, [seal, open]: [u8; 2], now: Instant) -> Result<Session, Failure> {
    let id = |direction| ConnectionId([direction; 8]);
    let mut config = Config::new((id(open), id(seal)), u16::try_from(MTU)?);
    (config.send_window, config.receive_window) = (case.window, case.window);
    config.control = case.control;
    config.protection =
        if case.has_fec { Protection::Fixed { data: 10, parity: 3 } } else { Protection::Off };
    let key = |direction| DirectionKey::new(Algorithm::Aes128Gcm, &[direction; 16], [7; 12]);
    let keys = SealKeys { seal: key(seal)?, open: key(open)?, phase: false };
    Ok(Session::new(config, Box::new(keys), now))
}

pub(crate) fn pair(case: Case, now: Instant) -> Result<[Session; 2], Failure> {
    Ok([session(case, [1, 2], now)?, session(case, [2, 1], now)?])
}

/// The counters that a report shows, under their names in the engine.
pub(crate) fn counters(session: &Session) -> engine::Counters {
    let sum = session.counters();
    engine::Counters {
        datagrams_out: sum.packets_out,
        segments_in: sum.packets_in,
        repeated_out: sum.repeated_out,
        lost: sum.lost,
        probes: sum.probes,
        ..engine::Counters::default()
    }
}
