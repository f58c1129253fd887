//! A client's wiring: links to the server on all workers, services dialled for streams that come
//! in, forwards as entrances.

mod owner;
mod published;
mod register;
#[cfg(test)]
mod tests;
mod trouble;

use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use arc_swap::ArcSwap;
use config::ClientConfig;
use link::client::Client as Keeper;
use link::{Lease, ProcessBudget, Retry};
use proto::greeting::{Identity, Name, Token};
use proto::{InstanceId, LinkConfig, Priority, Target};
use relay::{Gate, Timeouts};
use tokio::sync::mpsc;

use crate::daemon::Role;
use crate::entrance::{self, Entrance};
use crate::life::Life;
use crate::listeners::{self, Listeners};
use crate::measure::{self, Meter, Ping, Progress, Speed};
use crate::session::{Session, State, Worker, Workers};
use crate::status::{self, SendFuture, Status, StatusSource};
use crate::transports::{self, Way};
use crate::{memory, survey, term, workers};
use owner::ClientOwner;
use published::Published;

/// Links when nothing is configured: one per worker, and at least two, so that a lost packet on one
/// carrier does not hold up all streams.
const LINKS_MIN: usize = 2;

/// A running client.
#[derive(Debug)]
pub(crate) struct Client {
    workers: Workers,
    shared: Arc<Shared>,
    started: Instant,
}

/// What all of a client's parts share.
#[derive(Debug)]
struct Shared {
    config: ClientConfig,
    session: Arc<Session>,
    published: Published,
    entrances: Vec<u64>,
    /// This process is on its way out: nothing is published, no link begins.
    leaving: Arc<AtomicBool>,
    /// Of the set of services that is registered.
    generation: AtomicU64,
}

/// Starts workers, links and the listeners of forwards.
pub(crate) async fn start(config: ClientConfig, _life: Life) -> anyhow::Result<Arc<dyn Role>> {
    Ok(Arc::new(Client::start(config).await?))
}

impl Client {
    pub(crate) async fn start(config: ClientConfig) -> anyhow::Result<Self> {
        let link = memory::link_config(&config.common);
        Self::start_with(config, link).await
    }

    /// With links of other settings than those of the configuration.
    pub(crate) async fn start_with(config: ClientConfig, link: LinkConfig) -> anyhow::Result<Self> {
        let count = config.common.workers.unwrap_or_else(workers::automatic);
        let ways: anyhow::Result<Vec<Way>> =
            config.servers.iter().map(|path| Way::new(path, &config.common)).collect();
        let ways = ways?;
        let name = Name::new(&config.name).context("name")?;
        let token = Token::new(config.token.secret.reveal()).context("token")?;
        let session = Session::new(server_name(&ways), count.get());

        // Before anything is registered, and all of them: who cannot have a port mends it first.
        let forwards = config.forwards.iter().map(|forward| bind(forward, count, &session));
        let forwards = transports::all_bound(forwards)?;
        let budget = ProcessBudget::new(memory::budget(&config.common));
        let workers = Workers::start(count, move |_| State::new(memory::lease(&budget, count)))
            .context("starting workers")?;
        let mut entrances = Vec::new();
        for (entrance, sockets) in forwards {
            entrance::open_everywhere(workers.handles(), &entrance, sockets).await?;
            tracing::info!("forward {} listening", entrance.name);
            entrances.push(entrance.id);
        }
        let server = server_name(&ways).to_owned();
        let published = Published::new(server);
        let links =
            config.connections.map_or_else(|| count.get().max(LINKS_MIN), NonZeroUsize::get);
        let leaving = Arc::new(AtomicBool::new(false));
        let generation = AtomicU64::new(register::FIRST);
        let shared =
            Arc::new(Shared { config, session, published, entrances, leaving, generation });

        let mut instance = [0; 16];
        getrandom::fill(&mut instance).context("random bytes")?;
        let who = Who {
            name,
            token,
            instance: InstanceId(instance),
            logged_in: Arc::new(AtomicBool::new(false)),
        };
        for n in 0..links {
            let handle = &workers.handles()[n % count.get()];
            let (shared, who, ways) = (Arc::clone(&shared), who.clone(), ways.clone());
            let numbers = (n as u64 + 1, links as u64);
            handle.run(move |worker| keep_link(worker, &shared, who, &ways, link, numbers)).await?;
        }
        let handles = Arc::clone(workers.handles());
        let told = Arc::clone(&shared);
        workers.handles()[0]
            .run(move |_| drop(tokio::task::spawn_local(register::insist(handles, told))))
            .await?;
        Ok(Self { workers, shared, started: Instant::now() })
    }
}

#[derive(Clone)]
struct Who {
    name: Name,
    token: Token,
    instance: InstanceId,
    logged_in: Arc<AtomicBool>,
}

/// Starts the task that keeps one link for ever.
fn keep_link(
    worker: &Rc<Worker>,
    shared: &Arc<Shared>,
    who: Who,
    ways: &[Way],
    link: LinkConfig,
    (serial, serials): (u64, u64),
) {
    let config = &shared.config;
    let keeper = Keeper {
        paths: ways.iter().map(Way::path).collect(),
        name: who.name,
        identity: Identity::Token(who.token),
        instance: who.instance,
        logged_in: who.logged_in,
        leaving: Arc::clone(&shared.leaving),
        retry: Retry { min: config.retry_min.duration(), max: config.retry_max.duration() },
        link,
        budget: Rc::<Lease>::clone(&worker.state.budget),
        serial,
        serials,
    };
    let owner = ClientOwner::new(Rc::clone(worker), Arc::clone(shared));
    let begun = Rc::clone(&owner);
    let told = Rc::clone(&owner);
    tokio::task::spawn_local(link::client::run(
        keeper,
        owner,
        Rc::new(move |link| begun.begin(link)),
        Rc::new(move |report| told.report(&report)),
    ));
}

fn server_name(ways: &[Way]) -> &str {
    ways.first().map_or("", Way::host)
}

fn bind(
    forward: &config::Forward,
    count: NonZeroUsize,
    session: &Arc<Session>,
) -> anyhow::Result<(Arc<Entrance>, Listeners)> {
    let (address, listeners) = listeners::bind(&forward.listen, count)?;
    let entrance = Entrance {
        id: entrance::next_id(),
        name: format!("{address} -> {}", forward.target),
        address,
        target: Target::Forward(forward.target.to_string()),
        priority: Priority::Normal,
        session: ArcSwap::new(Arc::clone(session)),
        gate: ArcSwap::new(Gate::new(None)),
        timeouts: Timeouts::default(),
    };
    Ok((Arc::new(entrance), listeners))
}

impl StatusSource for Client {
    fn meter(&self) -> Option<&dyn Meter> {
        Some(self)
    }

    fn status(&self) -> SendFuture<'_, Status> {
        Box::pin(async {
            let shared = &self.shared;
            let mut sessions = survey::sessions(self.workers.handles()).await;
            let mut session =
                sessions.remove(&shared.session.id).unwrap_or_else(|| status::Session {
                    peer: shared.session.name.clone(),
                    state: "connecting".to_owned(),
                    ..status::Session::default()
                });
            if let Some(error) = shared.published.trouble() {
                session.state = error;
            }
            let live = shared.session.live() > 0;
            session.services = shared.published.services(&shared.config.services, live);
            for forward in &mut session.forwards {
                shared.published.reached(live).clone_into(&mut forward.state);
            }
            let counts = owner::counts(self.workers.handles()).await;
            for service in &mut session.services {
                if let Some(count) = counts.iter().find(|count| count.name == service.name) {
                    service.streams = count.streams;
                    service.streams_total = count.streams_total;
                    service.bytes_in = count.bytes_in;
                    service.bytes_out = count.bytes_out;
                }
            }
            Status {
                role: "client".to_owned(),
                name: shared.config.name.clone(),
                uptime_seconds: self.started.elapsed().as_secs(),
                state: "running".to_owned(),
                tasks: survey::tasks(self.workers.handles()).await,
                memory: survey::memory(self.workers.handles()).await,
                sessions: vec![session],
                ..Status::default()
            }
        })
    }
}

impl Meter for Client {
    fn ping(&self, patience: Duration) -> SendFuture<'_, Ping> {
        Box::pin(async move {
            let shared = &self.shared;
            let ping = measure::ping_links(self.workers.handles(), &shared.session, patience).await;
            Ping { trouble: shared.published.trouble(), ..ping }
        })
    }

    fn speedtest(
        &self,
        span: Duration,
        news: mpsc::Sender<Progress>,
    ) -> SendFuture<'_, Result<Speed, String>> {
        let test = measure::speedtest(self.workers.handles(), &self.shared.session, span, news);
        Box::pin(test)
    }
}

impl Role for Client {
    fn summary(&self) -> String {
        let config = &self.shared.config;
        let count = |n: usize, word| term::count(u64::try_from(n).unwrap_or(u64::MAX), word);
        format!(
            "client {} of {}: {}, {}",
            config.name,
            self.shared.session.name,
            count(config.services.len(), "service"),
            count(config.forwards.len(), "forward")
        )
    }

    fn alive(&self, limit: Duration) -> SendFuture<'_, bool> {
        Box::pin(self.workers.answer(limit))
    }

    fn drain(&self) -> SendFuture<'_, ()> {
        Box::pin(async {
            self.shared.leaving.store(true, Ordering::Relaxed);
            for &id in &self.shared.entrances {
                entrance::close_everywhere(self.workers.handles(), id).await;
            }
            register::withdraw(self.workers.handles(), &self.shared).await;
            survey::drain_links(self.workers.handles()).await;
        })
    }

    fn close(&self) -> SendFuture<'_, ()> {
        Box::pin(async {
            survey::say_goodbye(self.workers.handles()).await;
            self.workers.stop().await;
        })
    }
}
