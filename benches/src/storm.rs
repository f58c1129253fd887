//! `load storm`: very many clients that log in at once. Either they are lost here, in one moment,
//! and all come back as new processes would; or whoever started this restarts the server, which
//! they find out for themselves.

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

/// How often it is looked whether all are there; what is told is exact to this.
const LOOK: Duration = Duration::from_millis(10);

/// How the clients lose the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Here: all connections are dropped, and as many new clients of the same names start at once.
    Clients,
    /// There: somebody restarts the server once the first line was said.
    Server,
}

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whom they log in to.
    pub server: Server,
    /// The token of them all.
    pub token: Token,
    /// How many.
    pub clients: usize,
    /// Their names are this and a number from 0.
    pub prefix: String,
    /// How they lose the server.
    pub loss: Loss,
    /// How long each step may take.
    pub limit: Duration,
}

/// What is said when all are logged in, and again at the end.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `storm`.
    pub program: &'static str,
    /// `live` or `end`.
    pub event: &'static str,
    /// Clients that were asked for.
    pub clients: usize,
    /// Those that are logged in now.
    pub live: usize,
    /// Seconds that it took from the start, or from the first one back, until all of them were, or
    /// until the time was over.
    pub seconds: f64,
    /// Attempts that failed meanwhile: to be expected while the server is away.
    pub attempts_failed: usize,
    /// Clients that were not logged in when the time was over, or have given up.
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
        // While a link is replaced its successor is beside it.
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

/// Runs it; `tell` gets the report of the moment when all are logged in.
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
