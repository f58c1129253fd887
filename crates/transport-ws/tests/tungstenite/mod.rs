//! Both ends of `ws://` and `wss://` against tokio-tungstenite, which shares no code with them: its
//! client against our listener, and our dialer against its server. `autobahn.rs` and `client.rs`
//! test rules that this library cannot break.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

mod closes;
mod limits;
mod masks;
mod messages;
mod peer;
mod pings;
mod transfers;
