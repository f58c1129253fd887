//! The control socket: how `tunnel status` and `tunnel stop` talk to a running daemon.
//!
//! A Unix socket of mode 0600, so whoever can connect may command. Each question and each answer is
//! one line with a JSON object. A connection may ask several times.
//!
//! | question | answer |
//! |---|---|
//! | `{"command":"status"}` | `{"status":{…}}` |
//! | `{"command":"stop"}` | `{"stopping":{"pid":1}}` |
//! | `{"command":"ping","timeout_millis":2000}` | `{"pong":{…}}` |
//! | `{"command":"enroll","name":"home",…}` | `{"opened":{…}}` |
//! | `{"command":"revoke","name":"home"}` | `{"revoked":true}` |
//! | `{"command":"streams","limit":100}` | `{"streams":{…}}` |
//! | `{"command":"kill","link":3,"stream":17}` | `{"killed":true}` |
//! | `{"command":"log","filter":"debug"}` | `{"log":{"filter":"debug"}}` |
//! | `{"command":"reload"}` | `{"reloaded":{…}}`; where the file is wrong `{"wrong":["…"]}` |
//! | `{"command":"speedtest","millis":5000}` | several `{"progress":{…}}`, then `{"speed":{…}}` |
//! | anything else | `{"error":"…"}` |
//!
//! `serve` is the daemon's end, `ask` the end of the command line. `message` defines questions and
//! answers. `place` says where sockets lie.

mod ask;
mod message;
mod place;
mod serve;

pub use ask::{
    Instance, enroll, kill, log, ping, reload, revoke, speedtest, status, stop, streams,
};
pub use place::{Place, running};
pub use serve::ControlSocket;
