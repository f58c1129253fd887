//! The servers of a client that an API or DNS names (`servers_from`, `srv`).
//!
//! ```text
//!   asking.rs   when to ask: at the start, periodically, without a live link; pure
//!   api.rs      one question to the API over HTTPS
//!   dns.rs      one question about SRV records
//!   follow.rs   the servers at the start, and the task that applies answers
//!   kept.rs     the last good answer in the state directory, for a start without the source
//!   trouble.rs  why there is no answer
//! ```
//!
//! A failed or empty answer changes nothing: the former servers stay. [`keep_asking`] is the task
//! that asks; it runs on a worker, because dialers stay on their thread.

mod api;
mod asking;
mod dns;
mod follow;
mod kept;
#[cfg(test)]
mod tests;
mod trouble;

use std::path::PathBuf;
use std::time::Duration;

use config::{FoundServer, FoundServers, Loaded, PathDefaults, ServersFrom, SrvName, Text};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use api::Api;
use asking::{Asking, Weight};
use dns::Services;
use kept::KeptAnswer;
use trouble::Trouble;

pub(crate) use asking::FirstQuestion;
pub(crate) use follow::{follow, with_first_servers};

/// The time after which DNS is asked again, unless the records live shorter: as the default of
/// `servers_from.every`.
const EVERY_OF_DNS: Duration = Duration::from_mins(5);

/// An answer that names servers.
#[derive(Debug)]
pub(crate) struct FoundAnswer {
    /// The servers in order of preference. At least one.
    pub(crate) servers: Vec<FoundServer>,
    /// The time after which the source wants to be asked again.
    pub(crate) every: Option<Duration>,
    /// The answer as it is kept: a document of JSON, as the API gives it.
    text: String,
}

/// Who names the servers of a client. The trait is there for tests in virtual time.
pub(crate) trait ServerSource {
    /// The source for people: a URL, or the name of a service.
    fn name(&self) -> &str;

    /// The time after which the source is asked again, unless the answer says another time.
    fn every(&self) -> Duration;

    /// Asks once.
    ///
    /// # Errors
    /// There is no answer, or it names no servers that this client can use.
    async fn ask(&mut self) -> Result<FoundAnswer, Trouble>;

    /// Keeps the answer for a start without the source.
    async fn keep(&mut self, found: &FoundAnswer);
}

/// A source of the configuration, and what is needed to read its answers.
#[derive(Debug)]
pub(crate) struct Finder {
    asked: FinderSource,
    defaults: PathDefaults,
    every: Duration,
    kept: KeptAnswer,
}

#[derive(Debug)]
enum FinderSource {
    Api(Api),
    Dns(Services),
}

impl Finder {
    /// Servers from an API. Reads the certificates that the settings name. `folder` is the state
    /// directory.
    pub(crate) fn of_api(
        from: &ServersFrom,
        defaults: PathDefaults,
        folder: Option<PathBuf>,
    ) -> anyhow::Result<Self> {
        let (asked, every) = (FinderSource::Api(Api::new(from)?), from.every.duration());
        Ok(Self { asked, defaults, every, kept: KeptAnswer::new(folder, from.url()) })
    }

    /// Servers from SRV records.
    pub(crate) fn of_dns(name: SrvName, defaults: PathDefaults, folder: Option<PathBuf>) -> Self {
        let kept = KeptAnswer::new(folder, name.to_string());
        let asked = FinderSource::Dns(Services::new(name));
        Self { asked, defaults, every: EVERY_OF_DNS, kept }
    }

    /// The servers of the last good answer of an earlier process. A file that cannot be read is
    /// ignored with a warning.
    pub(crate) fn former(&mut self) -> Option<Vec<FoundServer>> {
        let text = self.kept.read()?;
        match config::servers_of_answer(Text { name: kept::FILE, text: &text }, &self.defaults) {
            Ok(loaded) => Some(loaded.config.servers),
            Err(problems) => {
                let why = trouble::listed(&problems);
                tracing::warn!("the kept answer of {} is ignored: {why}", self.name());
                None
            }
        }
    }
}

impl ServerSource for Finder {
    fn name(&self) -> &str {
        self.kept.source()
    }

    fn every(&self) -> Duration {
        self.every
    }

    async fn ask(&mut self) -> Result<FoundAnswer, Trouble> {
        match &mut self.asked {
            FinderSource::Api(api) => {
                let text = api.ask().await?;
                let name = "its answer";
                let read = config::servers_of_answer(Text { name, text: &text }, &self.defaults);
                found(read, self.kept.source(), |_| text)
            }
            FinderSource::Dns(services) => {
                let (places, ttl) = services.ask().await?;
                let read = config::servers_of_records(services.name(), &places, &self.defaults);
                let found = found(read, self.kept.source(), dns::as_answer)?;
                Ok(FoundAnswer { every: Some(ttl.min(EVERY_OF_DNS)), ..found })
            }
        }
    }

    async fn keep(&mut self, found: &FoundAnswer) {
        if let Err(error) = self.kept.write(&found.text).await {
            tracing::warn!("the servers of {} cannot be kept: {error}", self.name());
        }
    }
}

/// The servers of an answer, with the text that is kept.
fn found(
    read: Result<Loaded<FoundServers>, Vec<config::Problem>>,
    source: &str,
    text: impl FnOnce(&[FoundServer]) -> String,
) -> Result<FoundAnswer, Trouble> {
    let loaded = read.map_err(Trouble::Answer)?;
    for warning in &loaded.warnings {
        tracing::debug!("{source}: {warning}");
    }
    let FoundServers { servers, every } = loaded.config;
    let text = text(&servers);
    Ok(FoundAnswer { servers, every: every.map(config::Span::duration), text })
}

/// Asks for ever, keeps each answer, and calls `found` with it. A notification of `outage` says
/// that no link of any server is live. `first`: the source was asked before.
pub(crate) async fn keep_asking(
    source: &mut impl ServerSource,
    outage: &Notify,
    first: Option<FirstQuestion>,
    mut found: impl AsyncFnMut(FoundAnswer),
) {
    let every = source.every();
    let mut asking = match first {
        Some(first) => Asking::after(every, first, draw()),
        None => Asking::new(every, Instant::now()),
    };
    loop {
        while !asking.poll_ask(Instant::now()) {
            let Some(due) = asking.poll_timeout() else { break };
            tokio::select! {
                () = sleep_until(due) => {}
                () = outage.notified() => asking.handle_outage(draw(), Instant::now()),
            }
        }
        let outcome = source.ask().await;
        let (now, name) = (Instant::now(), source.name());
        match outcome {
            Ok(answer) => {
                if asking.handle_answer(answer.every, draw(), now) {
                    tracing::info!("{name} names servers again");
                }
                source.keep(&answer).await;
                found(answer).await;
            }
            Err(trouble) => {
                let text = format!("{name} names no servers, so the former stay: {trouble}");
                match asking.handle_failure(trouble.kind(), draw(), now) {
                    Weight::Warning => tracing::warn!("{text}"),
                    Weight::Repeated => tracing::debug!("{text}"),
                }
            }
        }
    }
}

/// A random number from 0 to 1.
fn draw() -> f64 {
    f64::from(u32::from_ne_bytes(link::random())) / f64::from(u32::MAX)
}
