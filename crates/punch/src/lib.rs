//! Direct paths between two clients behind NAT, without any socket: time, datagrams and random
//! numbers come in as arguments.
//!
//! Two clients have a link that their server relays. Over that link each announces its
//! [`Candidate`]s to the other ([`Signal`]), and an [`Attempt`] on either side finds a pair of
//! addresses over which UDP passes (ICE, RFC 8445, by the crate `is`).
//!
//! | question | module |
//! |---|---|
//! | which addresses are candidates, and which are refused | `candidate`, `host`, `filter` |
//! | what is the wire format of candidates | `signal` |
//! | how a STUN server responds, and how a response is decoded | `stun` |
//! | how a NAT behaves, and how its behaviour is detected | `nat`, `inquiry` |
//! | how a port of the router is mapped | `mapper` |
//! | how the rate of checks to unverified addresses is limited | `pace` |
//! | how a pair is found, how long it is used, and why an attempt fails | `attempt` |

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
