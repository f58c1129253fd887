//! The `webrtc://` transport: WebRTC data channels, for browsers, for programs with a WebRTC
//! library, and between daemons.
//!
//! [`Offerer`] and [`Answerer`] make connections from two texts that the caller transfers. A tunnel
//! gets a carrier of one lane; any other program opens a channel for each stream ([`Channels`]).
//!
//! # How a connection is established
//!
//! ```text
//! offerer                                   answerer
//! Offerer::new: sockets, addresses
//! offer()                      -- text -->  Answerer::new: sockets, addresses
//! connect(answer)              <-- text --  answer(), connect()
//!        <---- ICE checks between all pairs of addresses ---->
//!        <---- DTLS 1.2; both certificates are those of the texts ---->
//!        <---- SCTP; the offerer opens a channel ---->
//! ```
//!
//! | question | file |
//! |---|---|
//! | which parts of a session description are parsed and written | `sdp.rs` |
//! | to which addresses of an unauthenticated peer this end sends | `candidate.rs` |
//! | how offer and answer become a connection, and what binds a greeting to it | `signal.rs` |
//! | when a connection ends, and what limits it | `connection.rs`, `peers.rs`, `settings.rs` |
//! | which datagrams are accepted from which address | `gate.rs` |
//! | the hop limits of the first checks of the answerer | `opening.rs` |
//! | how bytes become messages, and messages bytes | `lane.rs`, `shared.rs` (both sides), `channel.rs`; how many wait: `ahead.rs` |
//! | what a program without a tunnel opens | `channels.rs`, `stream.rs` |
//! | what the library runs on | `runtime.rs`, `socket.rs`; how fast it sends checks: `pace.rs` |
//!
//! The library `webrtc` implements ICE, DTLS and SCTP. Its tasks run on the worker that made the
//! connection; the lane may be on another thread.

mod ahead;
mod candidate;
mod channel;
mod channels;
mod connection;
mod error;
#[doc(hidden)]
pub mod fuzz;
mod gate;
mod lane;
mod opening;
mod pace;
mod peers;
mod runtime;
mod sdp;
mod settings;
mod shared;
mod signal;
mod socket;
mod stream;

pub use candidate::{Admission, Candidate, Kind, MAX_CANDIDATES};
pub use channels::{Channel, Channels};
pub use connection::Closer;
pub use error::SignalError;
pub use peers::Peers;
pub use sdp::MAX_DESCRIPTION;
pub use settings::WebrtcSettings;
pub use signal::{Answerer, Arrived, First, Interfaces, Offerer};
pub use stream::ChannelStream;

/// `webrtc://`: data channels. The worker that makes a connection drives it.
pub const WEBRTC: transport::Transport = transport::Transport::new("webrtc").staying();
