//! The commands that a running daemon accepts. The control socket and the admin API offer the same
//! commands, from one table.
//!
//! ```text
//!   control socket: a line of JSON ─────────────┐
//!                                               ├─► Command ──► run ──► Answer, or an error
//!   admin API: method, path, body ──► TABLE ────┘                (a capability of the daemon)
//! ```
//!
//! | module | content |
//! |---|---|
//! | `table` | each command with its place in the API |
//! | `form` | bodies of requests, and what is wrong with them |
//! | `patch` | changes of the configuration as JSON |
//! | `run` | carries a command out |

mod form;
mod patch;
mod run;
mod table;

use serde::{Deserialize, Serialize};

use crate::clients::{Clients, Details, Held, HoldOrder, LimitOrder, Limits};
use crate::enrol::{Allowed, Opened, Order};
use crate::events::Event;
use crate::lists::ListChange;
use crate::measure::{Ping, Progress, Speed};
use crate::nat::NatReport;
use crate::reload::Reloaded;
use crate::requests::{RequestDetail, RequestFilter, SeenRequests};
use crate::revision::Checked;
use crate::share::{ShareOrder, Shared, Visit};
use crate::shown::Shown;
use crate::status::{Restarted, Status, StreamKind, Streams};
use crate::tested::Tested;
use crate::upgrade::{UpgradeOrder, Upgraded};
use crate::visit::{Invitation, InviteOrder, InvitedVisitor, Uninvited};
use crate::{ConsoleLink, Reconnected};

pub use form::{Form, Misread};
pub use patch::{Json, Patch, operations};
pub use run::{NoAnswer, NoFilter, PATIENCE, Request, TooMany, connect, run};
pub use table::{Entry, Given, Method, Reading, TABLE};

/// A command or a query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    Status,
    /// Starts the drain of the daemon. During the drain, or with `now`, the remaining streams are
    /// reset and the daemon ends.
    Stop {
        #[serde(default)]
        now: bool,
    },
    Reload,
    /// Continues in a new process of a binary. Only the control socket accepts this command: it
    /// starts a program of the sender's choice.
    Upgrade(UpgradeOrder),
    /// Ends daemons of `tunnel run`, all or the named daemon, and starts them again. With `now` the
    /// remaining streams are reset. Only the control socket accepts this command.
    Restart {
        #[serde(default)]
        name: Option<String>,
        #[serde(default)]
        now: bool,
    },
    /// Makes a link to the web console. Only the control socket accepts this command: the link
    /// gives access to its holder.
    Console,
    /// The configuration file without its secrets.
    Configuration,
    /// Reports the effects of a change of the configuration file.
    Foresee {
        #[serde(default)]
        operations: Patch,
        /// The whole text, instead of operations.
        #[serde(default)]
        text: Option<String>,
    },
    /// Changes the configuration file and applies it.
    Amend {
        #[serde(default)]
        operations: Patch,
        /// The whole text, instead of operations.
        #[serde(default)]
        text: Option<String>,
        /// The entity tag of the file for which the change was made.
        #[serde(default)]
        tag: Option<String>,
    },
    /// Restores the text before the last change.
    Undo,
    Enroll(Order),
    /// Adds rights to a client.
    Allow(Order),
    /// Removes rights from a client.
    Deny(Order),
    /// Changes the services and forwards of a client.
    Lists(ListChange),
    /// Publishes a service as long as the connection lasts, and reports the actions of its
    /// visitors. Only the control socket accepts this command.
    Share(ShareOrder),
    /// Lists the kept requests of visitors, without secrets.
    Requests(RequestFilter),
    /// One kept request in full.
    Request {
        id: u64,
        /// Whether its secrets are included.
        #[serde(default)]
        secrets: bool,
    },
    /// Sends a kept request to its target again.
    Replay {
        id: u64,
    },
    /// Makes a code for a visitor of a private service.
    Invite(InviteOrder),
    /// Lists the visitors of private services that were invited by codes.
    Visitors,
    /// Invalidates the tokens of such a visitor.
    Uninvite {
        visitor: String,
    },
    /// Changes limits of a client.
    Limit(LimitOrder),
    /// Puts a client on hold, or ends the hold.
    Hold(HoldOrder),
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
    /// Ends the carriers of a client's links, which then reconnect. On a server, `client` selects a
    /// client.
    Reconnect {
        #[serde(default)]
        client: Option<String>,
    },
    /// Ends the links of a client, with their streams.
    Kick {
        name: String,
    },
    /// Removes a client that was enrolled by a code.
    Revoke {
        name: String,
    },
    /// Sets the log filter. Without a filter, it only reads the current filter.
    Log {
        filter: Option<String>,
    },
    /// Turns the connection into the byte stream to a target on the server's side. The channel
    /// itself runs the command, because it owns the connection.
    Connect {
        target: String,
    },
    /// Reports changes from now on, until the listener leaves.
    Events,
    Ping {
        timeout_millis: u64,
    },
    Speedtest {
        millis: u64,
    },
    /// Tests the targets of a service; on a server, `client` names the client if several have a
    /// service of this name.
    Test {
        service: String,
        #[serde(default)]
        client: Option<String>,
    },
    /// Queries STUN servers for the NATs and firewalls between a client and other clients.
    Nat,
}

/// An answer of the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The target is connected: [`CONNECTED`](crate::connect::CONNECTED). Among events: a sign that
    /// the daemon is still running.
    Ok,
    Status(Box<Status>),
    Stopping {
        pid: u32,
        /// Whether the remaining streams are reset.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        now: bool,
    },
    Reloaded(Reloaded),
    /// `None`: the daemon was started from another file.
    Upgraded(Option<Upgraded>),
    Restarted(Restarted),
    Console(ConsoleLink),
    Configuration(Box<Shown>),
    Foreseen(Box<Checked>),
    Opened(Opened),
    Allowed(Allowed),
    Shared(Shared),
    Visit(Visit),
    Requests(SeenRequests),
    /// `None`: the request is no longer kept.
    Request(Option<Box<RequestDetail>>),
    Invitation(Invitation),
    Visitors(Vec<InvitedVisitor>),
    Uninvited(Uninvited),
    Limited(Limits),
    /// The hold in force; `None`: the client is no longer on hold.
    Held(Option<Held>),
    Clients(Clients),
    /// `None`: the server knows no client of this name.
    Client(Option<Box<Details>>),
    Revoked(bool),
    /// Whether the client was connected.
    Kicked(bool),
    Streams(Streams),
    Killed(bool),
    /// The numbers of links that reconnect.
    Reconnected(Reconnected),
    /// The log filter in force from now on.
    Log {
        filter: String,
    },
    /// All problems of the configuration file.
    Wrong(Vec<String>),
    Pong(Ping),
    Progress(Progress),
    Speed(Box<Speed>),
    Nat(NatReport),
    Tested(Box<Tested>),
    Event(Event),
    /// The number of events, or of visits, that were lost because the listener was slow.
    Lost(u64),
    Error(String),
}
