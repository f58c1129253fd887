//! `load storm`: thousands of clients that log in at the same time. Either the program drops all
//! clients at one moment and starts new ones, or the parent process restarts the server and the
//! clients notice the loss.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use proto::greeting::{Name, Token};
use serde::Serialize;

use crate::descriptors;
use crate::herd::Herd;
use crate::options::{Usage, Words};
use crate::report::rounded;
use crate::server::Server;

/// The interval at which the number of clients is checked; it bounds the precision of the report.
const LOOK: Duration = Duration::from_millis(10);

/// How the clients lose the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The program drops all connections and starts as many new clients with the same names.
    Clients,
    /// The parent process restarts the server after the first line of output.
    Server,
}

/// The options of the program.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server to log in to.
    pub server: Server,
    /// The token of all clients.
    pub token: Token,
    /// The number of clients.
    pub clients: usize,
    /// A client's name is this prefix and a number from 0.
    pub prefix: String,
    /// How the clients lose the server.
    pub loss: Loss,
    /// The time limit of each step.
    pub limit: Duration,
}

/// The report when all clients are logged in, and again at the end.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `storm`.
    pub program: &'static str,
    /// `live` or `end`.
    pub event: &'static str,
    /// The requested number of clients.
    pub clients: usize,
    /// Clients that are logged in now.
    pub live: usize,
    /// Seconds until all clients were logged in or the time was over, counted from the start or
    /// from the first client that came back.
    pub seconds: f64,
    /// Attempts that failed meanwhile: they are expected while the server is away.
    pub attempts_failed: usize,
    /// Clients that were not logged in when the time was over, or that have given up.
    pub errors: usize,
}

impl Options {
    /// `--server URL --token-file F --clients N [--pin P|--ca FILE] [--prefix TEXT]
    /// [--loss clients|server] [--limit SECONDS]`
    pub fn read(words: &mut Words) -> Result<Self, Usage> {
        let server = Server::read(words)?;
        let file = words.text("--token-file");
        let file = file.ok_or_else(|| Usage("--token-file is missing".to_owned()))?;
        let text = fs::read_to_string(&file).map_err(|e| Usage(format!("{file}: {e}")))?;
        let token = Token::new(text.trim()).map_err(|e| Usage(format!("{file}: {e}")))?;
        let clients = words.number("--clients", 1..=100_000, None)?;
        // While a link is replaced, the new link exists beside the old link.
        descriptors::require(clients + clients / 4)?;
        let prefix = words.text("--prefix").unwrap_or_else(|| "c".to_owned());
        Name::new(&format!("{prefix}{clients}"))
            .map_err(|e| Usage(format!("--prefix {prefix}: {e}")))?;
        let losses = [("clients", Loss::Clients), ("server", Loss::Server)];
        Ok(Self {
            server,
            token,
            clients,
            prefix,
            loss: words.one_of("--loss", &losses, Some(Loss::Clients))?,
            limit: words.seconds("--limit", Some(60.0))?,
        })
    }
}

/// Runs the program; `tell` gets the report when all clients are logged in.
pub async fn run(options: &Options, tell: impl FnOnce(&Report)) -> io::Result<Report> {
    let herd = options.gather()?;
    let begin = Instant::now();
    options.wait(|| herd.live() == options.clients).await;
    let first = options.report("live", &herd, begin);
    tell(&first);
    if first.errors > 0 {
        return Ok(Report { event: "end", ..first });
    }
    let (herd, begin) = match options.loss {
        Loss::Clients => {
            drop(herd);
            (options.gather()?, Instant::now())
        }
        Loss::Server => {
            options.wait(|| herd.live() == 0).await;
            options.wait(|| herd.live() > 0).await;
            (herd, Instant::now())
        }
    };
    options.wait(|| herd.live() == options.clients).await;
    Ok(options.report("end", &herd, begin))
}

impl Options {
    fn gather(&self) -> io::Result<Herd> {
        let names = (0..self.clients).map(|n| Name::new(&format!("{}{n}", self.prefix)));
        let names: Result<Vec<_>, _> = names.collect();
        Ok(Herd::start(&self.server, &self.token, names.map_err(io::Error::other)?))
    }

    async fn wait(&self, condition: impl Fn() -> bool) {
        let end = Instant::now() + self.limit;
        while !condition() && Instant::now() < end {
            tokio::time::sleep(LOOK).await;
        }
    }

    fn report(&self, event: &'static str, herd: &Herd, begin: Instant) -> Report {
        let live = herd.live();
        let errors = if herd.is_whole() { self.clients - live } else { self.clients };
        Report {
            program: "storm",
            event,
            clients: self.clients,
            live,
            seconds: rounded(begin.elapsed().as_secs_f64()),
            attempts_failed: herd.take_failures().len(),
            errors,
        }
    }
}
