//! Direct paths between two clients behind NAT, without any socket: time, datagrams and random
//! numbers come in as arguments.
//!
//! Two clients have a link that their server relays. Over that link each tells the other its
//! [`Candidate`]s ([`Signal`]), and an [`Attempt`] on either side finds a pair of addresses over
//! which UDP passes (ICE, RFC 8445, by the crate `is`).
//!
//! | question | module |
//! |---|---|
//! | which address may be a candidate, and which one is sent to | `candidate`, `host`, `filter` |
//! | how candidates look on the wire | `signal` |
//! | how a STUN server answers, and what its answer says | `stun` |
//! | what a NAT does with the port, and what is asked to know it | `nat`, `inquiry` |
//! | how the router is asked for a port | `mapper` |
//! | how often addresses that have not answered are sent to | `pace` |
//! | how a pair is found, how long it is used, and why none was found | `attempt` |

mod attempt;
mod candidate;
mod filter;
#[doc(hidden)]
pub mod fuzz;
mod host;
mod inquiry;
pub mod mapper;
mod nat;
mod pace;
mod signal;
pub mod stun;
#[cfg(test)]
mod testing;

pub use attempt::{
    Attempt, CONSENT, Datagram, Event, HOSTS, LIMIT, Pair, Purpose, QUERIES, Random, Role,
    Settings, Why,
};
pub use candidate::{Candidate, Kind, Kinds};
pub use filter::{Refused, is_private, refusal};
pub use host::OwnAddress;
pub use inquiry::{Asked, Inquiry, Port};
pub use nat::{Filtering, Mapping, Nat, Udp, expectation, prospect};
pub use pace::{Pace, Turn};
pub use signal::{
    Body, CANDIDATES, Credentials, DESCRIPTION_BYTES, Decline, Described, Offer, SIGNAL_BYTES,
    Signal, SignalError,
};
