//! The role of a daemon.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The role of a daemon. Names of sockets and states of daemons begin with the name of the role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// `tunnel server`.
    #[default]
    Server,
    /// `tunnel client`.
    Client,
    /// `tunnel proxy`.
    Proxy,
    /// `tunnel run`, which supervises daemons of the other roles.
    Run,
}

impl Role {
    /// `server`, `client`, `proxy` or `run`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
            Self::Proxy => "proxy",
            Self::Run => "run",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
