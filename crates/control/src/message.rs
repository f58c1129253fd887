//! The messages of the control socket: requests and answers.

use ops::Reloaded;
use ops::clients::{Clients, Details, LimitOrder, Limits};
use ops::enrol::{Allowed, Opened, Order};
use ops::lists::ListChange;
use ops::measure::{Ping, Progress, Speed};
use ops::status::{Status, StreamKind, Streams};
use serde::{Deserialize, Serialize};

/// A request of the command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub(crate) enum Request {
    Status,
    Stop,
    Reload,
    Enroll(Order),
    /// Adds rights to a client.
    Allow(Order),
    /// Changes the services and forwards of a client.
    Lists(ListChange),
    /// Changes limits of a client.
    Limit(LimitOrder),
    /// Lists all clients that the server knows.
    Clients,
    /// One client in full.
    Client {
        name: String,
    },
    /// Lists at most `limit` streams and flows, of all services or of one.
    Streams {
        service: Option<String>,
        limit: usize,
    },
    /// Resets a stream, or ends a flow.
    Kill {
        link: u64,
        stream: u32,
        /// A daemon of an earlier version, which has no flows, ignores the field of a stream.
        #[serde(default)]
        kind: StreamKind,
    },
    /// Removes a client that was enrolled by a code.
    Revoke {
        name: String,
    },
    /// Sets the log filter. Without a filter, only reads the present filter.
    Log {
        filter: Option<String>,
    },
    /// Turns the connection into the byte stream to a target on the server's side.
    Connect {
        target: String,
    },
    Ping {
        timeout_millis: u64,
    },
    Speedtest {
        millis: u64,
    },
}

/// An answer of the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// The target is connected: [`CONNECTED`](ops::connect::CONNECTED).
    Ok,
    Status(Box<Status>),
    Stopping {
        pid: u32,
    },
    Reloaded(Reloaded),
    Opened(Opened),
    Allowed(Allowed),
    Limited(Limits),
    Clients(Clients),
    /// `None`: the server knows no client of this name.
    Client(Option<Box<Details>>),
    Revoked(bool),
    Streams(Streams),
    Killed(bool),
    /// The log filter in force from now on.
    Log {
        filter: String,
    },
    /// All problems of the configuration file.
    Wrong(Vec<String>),
    Pong(Ping),
    Progress(Progress),
    Speed(Box<Speed>),
    Error(String),
}
