//! The hot part of a daemon: workers, sessions, entrances, and the roles of server and client.
//!
//! `relay` and `link` meet here. This crate knows no command line and no file of the configuration:
//! the daemon passes a closure that reads these again ([`server::Source`], [`client::Source`]), and
//! stores the clients that have come in by a code behind a trait ([`server::Enrolled`]).
//!
//! | module | what |
//! |---|---|
//! | `workers` | threads with a runtime each |
//! | `session` | all links of one client process with one server |
//! | `entrance`, `listeners` | doors: addresses whose visitors become streams |
//! | `route` | which client, which service, and what is admitted |
//! | `transports` | from a URL to a listener or a dialer |
//! | `server`, `client` | the roles |
//! | `probes` | what `tunnel ping` and `tunnel speedtest` send |
//! | `survey`, `tcp_info` | what workers and kernel know, for the status |
//! | `descriptors`, `memory`, `identity` | limits of the process, and its certificate |

pub mod client;
pub mod descriptors;
mod entrance;
pub mod identity;
mod listeners;
mod memory;
mod probes;
mod route;
pub mod server;
mod session;
mod survey;
mod tcp_info;
pub mod transports;
mod workers;
