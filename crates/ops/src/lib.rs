//! The commands and queries that a running `tunnel` accepts, and their results.
//!
//! The control socket, the admin API and signals call a [`Daemon`]. The frame of the daemon drives
//! a [`Role`], which is a server or a client of crate `node`. Commands and results are plain data.
//!
//! | module | content |
//! |---|---|
//! | `daemon` | both traits |
//! | `status` | the result of `tunnel status`, and its text for a terminal |
//! | `measure` | the results of `tunnel ping` and `tunnel speedtest` |
//! | `clients` | the results of `tunnel clients`, and the changes of a client's entry |
//! | `connect` | the target of `tunnel connect`, and the line before its bytes |
//! | `enrol` | orders for a code, and the code |
//! | `loaded`, `reload` | a configuration that was read, and the outcome of a reload |
//! | `shown` | the configuration file as the admin API shows it |
//! | `life` | the phases running, draining, ending |
//! | `state`, `socket_file` | the directories of a daemon's files, and its Unix sockets |
//! | `term`, `token` | text for a person, and a new token |

pub mod clients;
pub mod connect;
mod daemon;
pub mod enrol;
mod life;
pub mod lists;
mod loaded;
pub mod measure;
mod reload;
pub mod shown;
pub mod socket_file;
pub mod state;
pub mod status;
pub mod term;
mod token;

pub use daemon::{Daemon, Role, SendFuture};
pub use life::{Life, Phase};
pub use loaded::{Loaded, WrongConfig};
pub use reload::Reloaded;
pub use token::token;
