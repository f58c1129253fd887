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
//! `serve` is the daemon's end, `ask` the end of the command line, `place` says where sockets lie.

mod ask;
mod place;
mod serve;

use ops::Reloaded;
use ops::enrol::{Opened, Order};
use ops::measure::{Ping, Progress, Speed};
use ops::status::{Status, Streams};
use serde::{Deserialize, Serialize};

pub(crate) use ask::{
    Instance, enroll, kill, log, ping, reload, revoke, speedtest, status, stop, streams,
};
pub(crate) use place::{Place, running};
pub(crate) use serve::ControlSocket;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
enum Request {
    Status,
    Stop,
    Reload,
    Enroll(Order),
    /// At most so many; of one service, if it is named.
    Streams {
        service: Option<String>,
        limit: usize,
    },
    /// Reset a stream.
    Kill {
        link: u64,
        stream: u32,
    },
    /// Put out whom a code has let in.
    Revoke {
        name: String,
    },
    /// What shall be logged; without a filter only asks.
    Log {
        filter: Option<String>,
    },
    Ping {
        timeout_millis: u64,
    },
    Speedtest {
        millis: u64,
    },
}

/// Its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Status(Box<Status>),
    Stopping {
        pid: u32,
    },
    Reloaded(Reloaded),
    Opened(Opened),
    Revoked(bool),
    Streams(Streams),
    Killed(bool),
    /// What is logged from now on.
    Log {
        filter: String,
    },
    /// Every problem of the file.
    Wrong(Vec<String>),
    Pong(Ping),
    Progress(Progress),
    Speed(Box<Speed>),
    Error(String),
}
