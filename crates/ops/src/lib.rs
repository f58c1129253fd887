//! The commands and queries that a running `tunnel` accepts, and their results.
//!
//! The control socket, the admin API and signals call a [`Daemon`] and its capabilities. The frame
//! of the daemon drives a [`Serving`], which is a role of crate `node`. Commands and
//! results are plain data.
//!
//! | module | content |
//! |---|---|
//! | `daemon` | the traits: a daemon, its capabilities, and its serving part |
//! | `role` | server, client, proxy, or the supervisor of daemons |
//! | `status` | the result of `tunnel status`, and its text for a terminal |
//! | `figures` | the figures of a status that are metrics, in one table |
//! | `command` | the commands, in one table for control socket and API |
//! | `nat` | the result of `tunnel nat` |
//! | `measure` | the results of `tunnel ping` and `tunnel speedtest` |
//! | `moving` | the result of `tunnel move` |
//! | `busy` | the busiest streams |
//! | `clients` | the results of `tunnel clients`, and the changes of a client's entry |
//! | `cluster` | the results of `tunnel where` and `tunnel cluster` |
//! | `hold` | a client on hold |
//! | `connect` | the target of `tunnel connect`, and the line before its bytes |
//! | `events` | what changes, as a stream |
//! | `enrol` | orders for a code, and the code |
//! | `future` | the type of what a daemon does in its own time |
//! | `delta` | repeated queries: what has changed since the previous one |
//! | `log` | the last lines of the log |
//! | `lists` | changes of a running client's services and forwards |
//! | `loaded`, `reload` | a configuration that was read, and the outcome of a reload |
//! | `requests` | the requests of visitors that a client keeps for a look |
//! | `share` | a service that lives as long as a command |
//! | `qr` | QR codes of texts |
//! | `revision` | a change of the configuration file before it is made |
//! | `setup` | the set-up page of a start without parameters |
//! | `shown` | the configuration file as the admin API shows it |
//! | `life` | the phases running, draining, ending |
//! | `state`, `socket_file` | the directories of a daemon's files, and its Unix sockets |
//! | `term`, `token` | text for a person, and a new token |
//! | `targets` | the targets that a daemon dials itself |
//! | `tested` | the result of `tunnel test` |
//! | `upgrade` | the change to another binary without an interruption |
//! | `visit` | invitations to private services, and their codes |

mod busy;
pub mod clients;
pub mod cluster;
pub mod command;
pub mod connect;
mod daemon;
mod delta;
pub mod enrol;
pub mod events;
pub mod figures;
mod future;
mod hold;
mod life;
pub mod lists;
mod loaded;
pub mod log;
pub mod measure;
pub mod moving;
pub mod nat;
pub mod qr;
mod reload;
pub mod requests;
pub mod revision;
mod role;
pub mod setup;
pub mod share;
pub mod shown;
pub mod socket_file;
pub mod state;
pub mod status;
pub mod targets;
pub mod term;
pub mod tested;
mod token;
pub mod upgrade;
pub mod visit;

pub use busy::{BusyStream, BusyStreams, rate};
pub use daemon::{
    Carried, Certificates, Clients, ClusterView, Connector, Console, ConsoleLink, Daemon,
    Enrolment, Entries, Foreseen, Inviter, Lists, ListsInForce, Log, Mover, Reconnected, Requests,
    Serving, Settings, Sharer, Supervision, Traffic, Visitors,
};
pub use delta::{ClientChanges, Cursor, StatusDelta};
pub use future::SendFuture;
pub use life::{Life, Phase};
pub use loaded::{Loaded, WrongConfig};
pub use reload::{Published, Reloaded};
pub use role::Role;
pub use token::{random, token};

/// The target of audit events in the log: accepted and refused log-ins, granted and refused rights,
/// and changes at run time.
pub const AUDIT: &str = "audit";
