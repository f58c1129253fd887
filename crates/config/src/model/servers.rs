//! The servers of a client, and which of them a client uses.

use crate::key_table::KeyTable;
use crate::model::credentials::Token;
use crate::model::path::Path;
use crate::words::words;

/// The largest number of servers of a client. The client keeps links to each of them.
pub(crate) const SERVERS_MAX: usize = 64;

/// A server of a client, with the paths that lead to it.
#[derive(Clone, Debug, KeyTable)]
#[keys(rows)]
#[row(paths: "URL or map with the keys of a path, one or list", holds = Url,
    absent = "the path with `url`",
    text = "The paths to this server of several servers, in order of preference.")]
#[row(token_file: "path", absent = "instead of `token`", holds = TokenFile,
    text = "The file with the token with which the client logs in to this server of several.")]
pub struct ServerPaths {
    /// The name of this server in `services`, `forwards`, the status and the log.
    ///
    /// `None`: the client has this server alone, and the file gives only its paths.
    #[key("name", absent = "the host of its first path")]
    pub name: Option<String>,
    /// The token with which the client logs in to this server.
    ///
    /// `None`: the token of the client.
    #[key("text", absent = "`token` of the top", holds = Token)]
    pub token: Option<Token>,
    /// The paths to the server, in order of preference; at least one.
    #[key(flat, keys = Path)]
    pub paths: Vec<Path>,
}

impl ServerPaths {
    /// The name for people: the name, or the host of the first path.
    #[must_use]
    pub fn label(&self) -> String {
        let host = || self.paths.first().map(|path| path.endpoint.host.bare());
        self.name.clone().or_else(host).unwrap_or_default()
    }
}

impl PartialEq for ServerPaths {
    // The path of a token file is irrelevant; only the token counts.
    fn eq(&self, other: &Self) -> bool {
        let secret = |server: &Self| server.token.as_ref().map(|token| token.secret.clone());
        (&self.name, &self.paths) == (&other.name, &other.paths) && secret(self) == secret(other)
    }
}

impl Eq for ServerPaths {}

words! {
    /// Which of its servers a client uses.
    pub enum Policy: "policy" "of servers" {
        /// Services are published at every server. Forwards use the first server with a live link.
        #[default]
        All = "all",
        /// The first server with a live link has the services and the forwards.
        Failover = "failover",
        /// As [`Self::Failover`], in the order of the measured round-trip times.
        Nearest = "nearest",
    }
}

impl Policy {
    /// Whether the services are published at one server at a time.
    #[must_use]
    pub const fn is_single(self) -> bool {
        match self {
            Self::All => false,
            Self::Failover | Self::Nearest => true,
        }
    }
}
