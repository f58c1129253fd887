//! Direct paths between two clients: a carrier of a peer link that does not pass through the
//! server.
//!
//! ```text
//!   visitor                                         client of the service
//!   dial: trial, signals ──── peer link, relayed ───> first signal of a round: trial
//!         <──────────────── signals of both ───────>
//!         QUIC over the pair ──────────────────────> greeting, as on any carrier
//! ```
//!
//! The signals travel inside the peer link, so the server sees no address.
//! `transport_quic::punched` runs a trial; this module carries its signals, limits the number of
//! trials, and keeps for the status why there is no direct path.
//!
//! | module | content |
//! |---|---|
//! | `offer` | the side that has the service: answers the trials of a visitor |
//! | `seek` | the side that visits: the path that the keeper of the link dials |
//! | [`news`] | detects that the addresses of this machine have changed |
//! | `paths` | both sides: limits, paces and the outcomes of trials |
//! | `peers` | the shared state of connections over data channels |
//! | `signals` | both sides: the signals of a trial, inside the peer link |
//! | `failed` | both sides: why a trial yielded no carrier |
//! | [`ports`] | the ports that the router opened for trials |
//! | `channels` | both sides: WebRTC data channels instead of QUIC (`p2p: webrtc`) |

#[cfg(feature = "webrtc")]
pub(crate) mod channels;
#[cfg(not(feature = "webrtc"))]
#[path = "without.rs"]
pub(crate) mod channels;
pub(crate) mod failed;
pub mod news;
pub mod offer;
mod paths;
#[cfg(feature = "webrtc")]
mod peers;
#[cfg(not(feature = "webrtc"))]
#[path = "without_peers.rs"]
mod peers;
pub mod ports;
pub(crate) mod seek;
mod signals;

pub use failed::Failed;
pub use paths::{DirectPaths, settings};
