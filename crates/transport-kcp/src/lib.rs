//! The `kcp://` transport: a reliable stream and datagrams over UDP with forward error correction,
//! on the project's own packets (`kcp::own`), secured by TLS 1.3.
//!
//! [`KcpListener`] and [`KcpDialer`] make carriers. A carrier has one lane, and datagrams that
//! share the packets, the congestion control and the parity of the lane.
//!
//! # How a carrier comes to be
//!
//! ```text
//! client                                  server
//! Hello, padded to 1,200 bytes  -------->             keeps no state
//!                               <--------  Cookie     covers addresses, ids and time
//! Opening(cookie) + bootstrap packets -->             the first state of the server
//!        <---- TLS 1.3 as a byte stream over the bootstrap session ---->
//! sealed packets                <------->             keys exported from TLS
//! ```
//!
//! | question | file |
//! |---|---|
//! | how packets of the handshake look | `wire.rs` |
//! | what a server answers to a stranger | `cookie.rs`, `admit.rs` |
//! | how TLS runs, and what it yields | `shake.rs`, `secrets.rs` |
//! | what one connection is | `state.rs` (one end), `shared.rs` (who may touch it) |
//! | how datagrams reach connections, and packets the socket | `driver/`, `socket.rs` |
//! | what happens when the address of a client changes | `moving.rs` |
//! | how bytes go through | `lane.rs`, `datagrams.rs` |
//! | what a restarted server still knows | `keys.rs`, `files::peers` |
//! | settings of connections | `settings.rs` |
//!
//! One task per socket (`driver`) moves the datagrams of all its connections. The lane of a
//! connection may live on another thread; a mutex that is taken once per batch joins the two.

mod admit;
mod cookie;
mod datagrams;
mod dialer;
mod driver;
mod error;
mod keys;
mod lane;
mod listener;
mod moving;
mod secrets;
mod settings;
mod shake;
mod shared;
mod socket;
mod state;
mod watched;
mod wire;

pub use dialer::{KcpDialer, TlsClient};
pub use keys::{Keys, KeysError};
pub use listener::{KcpListener, KcpServer};
pub use settings::KcpSettings;

pub use files::peers::{PeerId, Peers, RecordedPeer};

pub use kcp::Control;
pub use kcp::own::fec::Protection;

/// `kcp://`: the project's own reliable UDP, secured by TLS 1.3.
pub const KCP: transport::Transport = transport::Transport::new("kcp").staying();
