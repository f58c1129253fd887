//! The `webrtc://` transport: data channels of WebRTC, for browsers, for programs with a library of
//! WebRTC, and between daemons.
//!
//! [`Offerer`] and [`Answerer`] make connections out of two texts that the caller carries. A tunnel
//! gets a carrier of one lane; any other program opens a channel for each stream ([`Channels`]).
//!
//! # How a connection comes to be
//!
//! ```text
//! offerer                                   answerer
//! Offerer::new: sockets, addresses
//! offer()                      -- text -->  Answerer::new: sockets, addresses
//! connect(answer)              <-- text --  answer(), connect()
//!        <---- checks of ICE between all pairs of addresses ---->
//!        <---- DTLS 1.2; both certificates are those of the texts ---->
//!        <---- SCTP; the offerer opens a channel ---->
//! ```
//!
//! | question | file |
//! |---|---|
//! | what is read of a session description, and what is written | `sdp.rs` |
//! | which addresses of a stranger are sent to | `candidate.rs` |
//! | how offer and answer become a connection, and what binds a greeting to it | `signal.rs` |
//! | when a connection ends, and what limits it | `connection.rs`, `peers.rs`, `settings.rs` |
//! | which datagrams are taken from whom | `gate.rs` |
//! | how far the first checks of the end that answers go | `opening.rs` |
//! | how bytes become messages, and messages bytes | `lane.rs`, `shared.rs` (both sides), `channel.rs`; how many wait: `ahead.rs` |
//! | what a program without a tunnel opens | `channels.rs`, `stream.rs` |
//! | what the library runs on | `runtime.rs`, `socket.rs`; how fast it asks strangers: `pace.rs` |
//!
//! The library `webrtc` does ICE, DTLS and SCTP. Its tasks run on the worker that made the
//! connection; the lane may live on another thread.

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
