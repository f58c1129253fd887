//! The commands that a running daemon accepts. The control socket and the admin API offer the same
//! commands, from one table.
//!
//! ```text
//!   control socket: a line of JSON ─────────────┐
//!                                               ├─► a type ──► run ──► its answer, or an error
//!   admin API: method, path, body ──► TABLE ────┘               (a capability of the daemon)
//! ```
//!
//! A command is a type that implements [`Command`]. The type says once what the command is called,
//! which fields it has, where the API has it, what it needs of the daemon, what it answers, and
//! which status code the answer has. Both channels, the command line and the tests ask the type.
//!
//! | module | content |
//! |---|---|
//! | `contract` | what a command is |
//! | `table` | the list of all commands |
//! | `life` | commands: the daemon itself |
//! | `configuration` | commands: the configuration file and its keys |
//! | `clients` | commands: the clients of a server |
//! | `cluster` | commands: the cluster of which a server is a node |
//! | `services` | commands: the services of a client, and their visitors |
//! | `traffic` | commands: streams, links and connections to targets |
//! | `records` | commands: log, events, requests of visitors |
//! | `measure` | commands: measurements |
//! | `context` | what a command needs in order to run |
//! | `line` | the lines of the control socket |
//! | `fields` | reads the fields of a type from JSON and texts |
//! | `route`, `form`, `response` | requests of the API, what is wrong with them, and responses |
//! | `patch` | changes of the configuration as JSON |

mod clients;
mod cluster;
mod configuration;
mod context;
mod contract;
mod fields;
mod form;
mod life;
mod line;
mod measure;
mod patch;
mod records;
mod response;
mod route;
mod services;
mod table;
mod traffic;

pub use clients::{Allow, Deny, Enroll, Kick, ListClients, Revoke, ShowClient};
pub use cluster::{ListClusterClients, Locate, Rekey, ShowCluster};
pub use configuration::{Amend, ConfigKey, Foresee, ListKeys, ReadConfig, Undo};
pub use context::{Context, News, NoAnswer, PATIENCE};
pub use contract::{About, Command};
pub use form::{Form, Misread};
pub use life::{OpenConsole, ReadStatus, Reload, Restart, Stop, Stopping};
pub use line::{DaemonLine, FailedCommand, request};
pub use measure::{PingLinks, ProbeNat, TestSpeed};
pub use patch::{Json, Patch, operations};
pub use records::{FollowEvents, LogFilter, NoFilter, Replay, SetLog, ShowRequest, TooMany};
pub use response::ApiResponse;
pub use route::{ApiRoute, Given, Method};
pub use services::{ListVisitors, TestService, Uninvite};
pub use table::{AnyAnswer, AnyCommand, Entry, NotUnderstood, TABLE, read_line};
pub use traffic::{Connect, Kill, ListStreams, MoveLinks, Reconnect};
