//! The command port of a daemon: the questions and commands that a running `tunnel` accepts.
//!
//! The control socket, the admin API and signals ask a [`Daemon`]; the daemon's frame drives a
//! [`Role`], which is a server or a client of crate `node`. Questions and answers are plain data.
//!
//! | module | what |
//! |---|---|
//! | `daemon` | both traits |
//! | `status` | the answer of `tunnel status`, and how a terminal shows it |
//! | `measure` | what `tunnel ping` and `tunnel speedtest` tell |
//! | `enrol` | orders for a code, and the code |
//! | `reload`, `loaded`, `shown` | a configuration read, put in force, and shown |
//! | `life` | running, draining, ending |
//! | `state`, `socket_file` | where a daemon's files lie, and its Unix sockets |
//! | `term`, `token` | text for a person, and a new token |

mod daemon;
pub mod enrol;
mod life;
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
