//! The messages of the control socket: a question, and its answer.

use ops::Reloaded;
use ops::enrol::{Opened, Order};
use ops::measure::{Ping, Progress, Speed};
use ops::status::{Status, Streams};
use serde::{Deserialize, Serialize};

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub(crate) enum Request {
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
pub(crate) enum Answer {
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
