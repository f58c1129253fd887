//! The control socket: how `tunnel status` and `tunnel stop` talk to a running daemon.
//!
//! A Unix socket of mode 0600, so whoever can connect may command. One JSON object per line each
//! way: `{"command":"status"}` is answered by `{"status":{…}}`, `{"command":"stop"}` by
//! `{"stopping":{"pid":1}}`, `{"command":"ping","timeout_millis":2000}` by `{"pong":{…}}`,
//! `{"command":"enroll","name":"home",…}` by `{"opened":{…}}`, `{"command":"revoke","name":"home"}` by
//! `{"revoked":true}`, `{"command":"streams","limit":100}` by
//! `{"streams":{…}}`, `{"command":"kill","link":3,"stream":17}` by `{"killed":true}`, `{"command":"log","filter":"debug"}` by `{"log":{"filter":"debug"}}`, `{"command":"reload"}` by `{"reloaded":{…}}` or, where the file is wrong, `{"wrong":["…"]}`,
//! `{"command":"speedtest","millis":5000}` by some `{"progress":{…}}` and then `{"speed":{…}}`,
//! anything else by `{"error":"…"}`. A connection may ask several times.
//!
//! `serve` is the daemon's end, `ask` the end of the command line, `message` what they say, `place` says
//! where sockets lie.

mod ask;
mod message;
mod place;
mod serve;

pub use ask::{
    Instance, enroll, kill, log, ping, reload, revoke, speedtest, status, stop, streams,
};
pub use place::{Place, running};
pub use serve::ControlSocket;
