//! A started system, whose daemons run until it is dropped.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;

use anyhow::Result;

use super::daemons::Daemons;
use super::socks;
use super::visitors::{Visitors, url};
use super::way::Way;

/// A started system.
#[derive(Debug)]
pub(crate) struct Running {
    ways: Vec<Way>,
    visitors: Visitors,
    login: Option<Login>,
    pids: Vec<u32>,
    daemons: Daemons,
}

/// The values that a client of `tunnel` needs to log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Login {
    /// The server's URL: `tls://…` or `tcp://…`.
    pub(crate) server: String,
    pub(crate) token_file: PathBuf,
    /// The authority that certifies the server.
    pub(crate) authority: Option<PathBuf>,
}

impl Running {
    pub(super) fn new(
        ways: Vec<Way>,
        visitors: Visitors,
        login: Option<Login>,
        daemons: Daemons,
    ) -> Self {
        let pids = daemons.pids();
        Self { ways, visitors, login, pids, daemons }
    }

    /// The address where visitors of this origin connect.
    ///
    /// # Panics
    /// When the system was started without this origin.
    pub(crate) fn address(&self, origin: &str) -> SocketAddr {
        self.way(origin).entrance
    }

    fn way(&self, origin: &str) -> &Way {
        let found = self.ways.iter().find(|way| way.name == origin);
        found.unwrap_or_else(|| panic!("no origin was called {origin}"))
    }

    /// The proxy that visitors of this origin ask by SOCKS5, if they have to, and the address where
    /// they connect.
    ///
    /// # Panics
    /// As [`Self::address`].
    pub(crate) fn by_proxy(&self, origin: &str) -> (Option<SocketAddr>, SocketAddr) {
        let way = self.way(origin);
        match self.visitors {
            Visitors::Socks => (Some(way.entrance), way.target),
            Visitors::Any | Visitors::Http | Visitors::Https => (None, way.entrance),
        }
    }

    /// A new visitor of this origin, which takes bytes.
    ///
    /// # Panics
    /// As [`Self::address`].
    pub(super) fn visit(&self, origin: &str) -> Result<TcpStream> {
        let visitor = TcpStream::connect(self.address(origin))?;
        if let (Some(_), target) = self.by_proxy(origin) {
            socks::ask(&visitor, target)?;
        }
        Ok(visitor)
    }

    /// The URL of a path of this origin, which speaks HTTP.
    ///
    /// # Panics
    /// As [`Self::address`].
    pub(crate) fn url(&self, origin: &str, path: &str) -> String {
        url(self.visitors, self.address(origin), path)
    }

    /// The values for more clients of a `tunnel` server.
    pub(crate) const fn login(&self) -> Option<&Login> {
        self.login.as_ref()
    }

    /// The process ids of all daemons, visitors' side first. Empty for `direct`.
    pub(crate) fn pids(&self) -> &[u32] {
        &self.pids
    }

    /// Checks that no daemon has ended by itself.
    ///
    /// # Errors
    /// The name of the ended daemon, and the last lines of the logs.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.daemons.check().map_err(|error| self.daemons.with_logs(error))
    }
}
