//! The daemons of a started system, which run until they are dropped.

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Error, Result, bail};
use testkit::stage::Daemon;

use super::scene::Way;
use super::{HOST, Visitors, socks};

/// The number of last lines of a log in an error.
const LAST_LINES: usize = 8;

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
        let pids = daemons.0.iter().map(Daemon::id).collect();
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

/// The URL of a path for the visitors of a system.
pub(super) fn url(visitors: Visitors, address: SocketAddr, path: &str) -> String {
    let port = address.port();
    match visitors {
        Visitors::Any | Visitors::Socks => format!("http://{address}{path}"),
        Visitors::Http => format!("http://{HOST}:{port}{path}"),
        Visitors::Https => format!("https://{HOST}:{port}{path}"),
    }
}

/// Daemons in the order of their start. Each is killed by its process id when dropped.
#[derive(Debug, Default)]
pub(super) struct Daemons(Vec<Daemon>);

impl Daemons {
    /// Starts a daemon in `dir`; its log is `NAME.log`.
    pub(super) fn spawn(&mut self, name: &str, dir: &Path, command: &mut Command) -> Result<()> {
        let daemon = Daemon::try_start(name, dir, command.current_dir(dir));
        self.0.push(daemon.with_context(|| format!("starting {command:?}"))?);
        Ok(())
    }

    /// Checks that no daemon has ended.
    pub(super) fn check(&mut self) -> Result<()> {
        match self.0.iter_mut().find_map(|d| (!d.is_running()).then_some(d.name())) {
            Some(name) => bail!("{name} has ended by itself"),
            None => Ok(()),
        }
    }

    /// Adds the last lines of every log to the error.
    pub(super) fn with_logs(&self, error: Error) -> Error {
        let mut text = format!("{error:#}");
        for daemon in &self.0 {
            let log = daemon.log();
            let lines: Vec<_> = log.lines().collect();
            for line in &lines[lines.len().saturating_sub(LAST_LINES)..] {
                // Writing into a string cannot fail.
                let _ = write!(text, "\n  {}: {line}", daemon.name());
            }
        }
        Error::msg(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visitors_of_names_use_the_host() {
        let address = ([127, 0, 0, 1], 81).into();
        for (visitors, wanted) in [
            (Visitors::Any, "http://127.0.0.1:81/x"),
            (Visitors::Http, "http://bench.example.com:81/x"),
            (Visitors::Https, "https://bench.example.com:81/x"),
        ] {
            assert_eq!(url(visitors, address, "/x"), wanted);
        }
    }

    #[test]
    fn a_daemon_that_ends_is_named_and_its_last_lines_are_shown() {
        let dir = std::env::temp_dir().join(format!("daemons-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let mut daemons = Daemons::default();
        daemons.spawn("idle", &dir, Command::new("sleep").arg("60")).unwrap();
        daemons.check().unwrap();
        let mut short = Command::new("sh");
        daemons.spawn("short", &dir, short.args(["-c", "seq 1 20"])).unwrap();
        let error = testkit::stage::wait("its end", testkit::stage::SOON, || daemons.check().err());
        let text = daemons.with_logs(error).to_string();
        assert!(text.starts_with("short has ended by itself\n  short: 13\n"), "{text}");
        assert!(text.ends_with("\n  short: 20"), "{text}");
        assert!(daemons.spawn("none", &dir, &mut Command::new("/no/such/program")).is_err());
        drop(daemons);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
