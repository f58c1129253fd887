//! A system that is being started. Daemons end when the scene is dropped, so an error during the
//! start leaves no process behind.

use std::fs::File;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use testkit::stage::{free_port, is_listening};

use super::daemons::Daemons;
use super::running::{Login, Running};
use super::visitors::{Origin, Visitors};
use super::way::Way;
use xtask::site::Site;

/// The time limit for a daemon to listen: 5 times the need of the slowest on a busy machine.
const LISTENS: Duration = Duration::from_secs(15);

/// One of two proxies on a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hop {
    pub(super) name: &'static str,
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
}

/// The environment of a system's `start` function.
#[derive(Debug)]
pub(super) struct Scene<'a> {
    pub(super) site: &'a Site,
    pub(super) dir: &'a Path,
    pub(super) ways: Vec<Way>,
    /// The bytes that visitors send.
    pub(super) visitors: Visitors,
    /// The number of additional clients that a `tunnel` server must know.
    pub(super) clients: u32,
    /// The values for their login.
    pub(super) login: Option<Login>,
    pub(super) daemons: Daemons,
}

impl<'a> Scene<'a> {
    pub(super) fn new(
        site: &'a Site,
        dir: &'a Path,
        origins: &[Origin],
        clients: u32,
        visitors: Visitors,
    ) -> Self {
        let way =
            |origin: &Origin| Way { name: origin.name, entrance: free(), target: origin.address };
        let ways = origins.iter().map(way).collect();
        Self { site, dir, ways, visitors, clients, login: None, daemons: Daemons::default() }
    }

    /// For systems without a tunnel: the hops of the proxy where visitors connect, and of a second
    /// proxy behind it.
    pub(super) fn two_hops(&self) -> [(&'static str, Vec<Hop>); 2] {
        let halves = self.ways.iter().map(|&Way { name, entrance, target }| {
            let between = free();
            (Hop { name, from: entrance, to: between }, Hop { name, from: between, to: target })
        });
        let (first, second) = halves.unzip();
        [("server", first), ("client", second)]
    }

    /// Writes a file for the daemons and returns its path. Other users cannot read it, because it
    /// may hold a token.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.dir.join(name);
        let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }

    /// Starts a daemon; its log is `NAME.log`. Daemons of the visitors' side come first.
    pub(super) fn spawn(&mut self, name: &str, command: &mut Command) -> Result<()> {
        self.daemons.spawn(name, self.dir, command)
    }

    /// As [`Self::spawn`], for a daemon whose processor time and memory are not measured.
    pub(super) fn spawn_aside(&mut self, name: &str, command: &mut Command) -> Result<()> {
        self.daemons.spawn_aside(name, self.dir, command)
    }

    /// Waits until a daemon listens on this TCP port. The check makes no connection.
    pub(super) fn wait_listening(&mut self, address: SocketAddr) -> Result<()> {
        self.wait(address, |address| is_listening(address.port()))
    }

    /// As [`Self::wait_listening`], for a port that other sockets use on other addresses: it checks
    /// by connecting.
    pub(super) fn wait_accepting(&mut self, address: SocketAddr) -> Result<()> {
        self.wait(address, |address| TcpStream::connect(address).is_ok())
    }

    fn wait(&mut self, address: SocketAddr, is_there: impl Fn(SocketAddr) -> bool) -> Result<()> {
        let start = Instant::now();
        while !is_there(address) {
            self.daemons.check()?;
            ensure!(start.elapsed() < LISTENS, "nobody listens on {address} after {LISTENS:?}");
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    pub(super) fn into_running(self) -> Running {
        Running::new(self.ways, self.visitors, self.login, self.daemons)
    }
}

/// A loopback address with a free port.
pub(super) fn free() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}
