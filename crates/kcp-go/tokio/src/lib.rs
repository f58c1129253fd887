//! KCP on tokio: streams and listeners, compatible with kcp-go on the wire, over a packet socket
//! that the caller supplies.
//!
//! The protocol is the crate `kcp-go`, which has no socket and no clock; the encryption is the
//! crate `kcp-go-crypto`, or any other [`Seal`](kcp_go::envelope::Seal).
//!
//! ```
//! use std::sync::Arc;
//!
//! use kcp_go::envelope::Null;
//! use kcp_go::session;
//! use kcp_go::wire::Conversation;
//! use kcp_tokio::{Config, Listener, Stream, Udp};
//! use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let conversation = Conversation(0x1234_5678); // at random
//! let config = Config::new(session::Config::new(conversation));
//! let local = "127.0.0.1:0".parse().unwrap();
//!
//! let listener = Listener::bind(Udp::bind(local).await?, config.clone(), Arc::new(Null))?;
//! let (socket, peer) = (Udp::bind(local).await?, listener.address());
//! let mut client = Stream::connect(socket, peer, conversation, config, Arc::new(Null))?;
//!
//! client.write_all(b"hello").await?;
//! let (mut server, _) = listener.accept().await?;
//! let mut hello = [0; 5];
//! server.read_exact(&mut hello).await?;
//! client.shutdown().await?; // waits until all is acknowledged
//! # assert_eq!(&hello, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! # Map
//!
//! | module or type | content |
//! |---|---|
//! | [`Stream`] | one session: bytes, messages, datagrams beside them, deadlines, the end |
//! | [`Listener`] | many sessions on one socket, and what peers may cost ([`Limits`]) |
//! | [`Driver`] | the task behind both: one for each socket, one timer for all its sessions |
//! | [`PacketSocket`], [`Udp`] | the socket: the system's, or any other |
//! | [`Counters`] | what a socket and its sessions have sent, received, refused |
//! | `shared`, `hub` | what a driver shares with its streams and its listener |
//!
//! # One task, and locks
//!
//! A driver owns its socket and reads, sends and waits for all sessions. A session is shared with
//! its stream behind a lock of its own, because users of a library expect streams that move between
//! threads. The lock is held for one read, one write or one burst, never over a system call, and
//! has two users at most. A driver that is polled on the thread of its streams
//! ([`Listener::with_driver`]) never waits for it.
//!
//! # Defaults
//!
//! | setting | default | kcp-go |
//! |---|---|---|
//! | [`session.datagram`](kcp_go::session::Config::datagram) | 1,350 bytes | 1,400 |
//! | [`session.encode`](kcp_go::session::Config::encode), the FEC that is sent | none | none |
//! | [`session.decode`](kcp_go::session::Config::decode), the FEC that comes | found | found |
//! | [`session.rate`](kcp_go::session::Config::rate) | as the control says | none |
//! | [`session.budget`](kcp_go::session::Config::budget) of repairs | as much as fresh bytes | none |
//! | [`engine.send_window`](kcp_go::engine::Config::send_window) | 1,024 segments | 32 |
//! | [`engine.receive_window`](kcp_go::engine::Config::receive_window) | 1,024 segments | 32 |
//! | [`engine.stream`](kcp_go::engine::Config::stream) | bytes | messages |
//! | [`engine.interval`](kcp_go::engine::Config::interval) | 10 ms | 100 ms |
//! | [`engine.control`](kcp_go::engine::Config::control) | BBR | a window (`nc = 0`) |
//! | [`engine.dead_after`](kcp_go::engine::Config::dead_after) | 30 s | never |
//! | [`linger`](Config::linger) | 5 s | what was not sent is lost |
//! | [`limits.sessions`](Limits::sessions) | 4,096 | none |
//! | [`limits.backlog`](Limits::backlog) | 128 | 128 |
//! | [`limits.per_source`](Limits::per_source) | 32 new sessions per second | none |
//! | [`limits.idle`](Limits::idle) | 5 min | never |
//! | [`limits.quiet`](Limits::quiet) | 10 s | a session is replaced at once |
//! | nonces that are remembered, for each socket | 65,536 where the envelope authenticates | none |
//!
//! A client that rests for longer than `idle` has to send something from time to time: KCP has no
//! keepalive, a datagram beside the stream ([`Stream::send_oob`]) is one.

mod config;
mod counters;
mod driver;
mod end;
mod hub;
mod listener;
mod random;
mod shared;
mod socket;
mod stream;
mod wait;

pub use config::{Config, Limits};
pub use counters::Counters;
pub use driver::Driver;
pub use end::is_transient;
pub use listener::Listener;
pub use socket::{Arrival, PacketSocket, Run, Udp};
pub use stream::Stream;
