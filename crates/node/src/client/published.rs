//! The state of a client's services according to the server. Each change is logged once, even if
//! several links report it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use ops::events::{Changed, Events};
use ops::status;
use proto::control::{Registered, ServiceErrorCode};

use super::outage::Outage;
use super::trouble::Trouble;

#[derive(Debug, Default)]
pub(super) struct Published {
    known: Mutex<Outcomes>,
    /// The generation of the latest registration that the server has answered.
    answered: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Outcomes {
    /// By service: its public addresses, or the reason of the refusal.
    services: HashMap<String, Result<Vec<String>, String>>,
    /// A service was refused for a reason that may pass.
    waits_for_more: bool,
    /// The reason for which the server is not reached, if there is one.
    trouble: Option<Trouble>,
    outage: Outage,
    events: Events,
}

impl Outcomes {
    /// Notes what became of a service. Logs the outcome if it is news.
    fn note(&mut self, name: &str, outcome: Result<Vec<String>, String>, server: &str) {
        if self.services.get(name) == Some(&outcome) {
            return;
        }
        match &outcome {
            Ok(at) => {
                tracing::info!(server, "service {name} is published at {}", at.join(", "));
            }
            Err(error) => tracing::error!(server, "service {name} is not published: {error}"),
        }
        self.events.tell(|| Changed::service(server, name, &outcome));
        self.services.insert(name.to_owned(), outcome);
    }
}

impl Published {
    /// `events` tells each change.
    pub(super) fn new(events: &Events) -> Self {
        let known = Outcomes { events: events.clone(), ..Outcomes::default() };
        Self { known: Mutex::new(known), answered: watch::Sender::default() }
    }

    fn known(&self) -> MutexGuard<'_, Outcomes> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies the answer of `server` to a registration, and logs the differences. `is_ours`: this
    /// client has a service of this name. Other names would stay here for good.
    pub(super) fn apply(
        &self,
        registered: &Registered,
        server: &str,
        is_ours: impl Fn(&str) -> bool,
    ) {
        let mut known = self.known();
        known.waits_for_more = registered
            .results
            .iter()
            .any(|result| result.outcome.as_ref().is_err_and(|error| may_pass(error.code)));
        for result in &registered.results {
            let name = result.name.as_str();
            if !is_ours(name) {
                continue;
            }
            let outcome: Result<Vec<String>, String> = match &result.outcome {
                Ok(at) => Ok(at.iter().map(|address| reachable(address, server)).collect()),
                Err(error) => Err(error.to_string()),
            };
            known.note(name, outcome, server);
        }
        drop(known);
        self.answered.send_if_modified(|latest| {
            let is_newer = registered.generation > *latest;
            *latest = registered.generation.max(*latest);
            is_newer
        });
    }

    /// Ready when the server has answered the registration of this generation, or a later one.
    pub(super) async fn answered(&self, generation: u64) {
        // Fails only when the sender is gone, but `self` holds the sender.
        drop(self.answered.subscribe().wait_for(|latest| *latest >= generation).await);
    }

    /// The answer of the server about a service: its addresses, or the reason of the refusal. `None`
    /// before the answer.
    pub(super) fn outcome(&self, service: &str) -> Option<Result<Vec<String>, String>> {
        self.known().services.get(service).cloned()
    }

    /// Notes a service that this client does not ask the server to publish, and logs the news.
    pub(super) fn refuse(&self, name: &str, why: &str, server: &str) {
        self.known().note(name, Err(why.to_owned()), server);
    }

    /// Forgets the services at `server` that are not in `services`.
    pub(super) fn forget_others(&self, services: &[config::Service], server: &str) {
        let known = &mut *self.known();
        known.services.retain(|name, at| {
            let stays = services.iter().any(|service| service.name == *name);
            if !stays && at.is_ok() {
                tracing::info!("service {name} is published no more");
                known.events.tell(|| Changed::withdrawn(server, name));
            }
            stays
        });
    }

    /// Whether another registration may succeed where the last one failed.
    pub(super) fn waits_for_more(&self) -> bool {
        self.known().waits_for_more
    }

    pub(super) fn note_trouble(&self, trouble: Option<Trouble>) {
        let mut known = self.known();
        if trouble.is_none() {
            known.outage.connected();
        }
        known.trouble = trouble;
    }

    pub(super) fn trouble(&self) -> Option<String> {
        self.known().trouble.as_ref().map(|trouble| trouble.text.clone())
    }

    /// What the log has to know about the absence of the server.
    pub(super) fn outage<T>(&self, use_it: impl FnOnce(&mut Outage) -> T) -> T {
        use_it(&mut self.known().outage)
    }

    /// The state of a service or forward that the server has accepted.
    pub(super) fn reached(&self, live: bool) -> &'static str {
        let superseded = self.known().trouble.as_ref().is_some_and(|trouble| trouble.superseded);
        match (superseded, live) {
            (true, _) => status::SUPERSEDED,
            (false, true) => status::UP,
            (false, false) => status::WAITING,
        }
    }

    /// The services for a status. `live`: a link carries visitors.
    pub(super) fn services(
        &self,
        services: &[config::Service],
        live: bool,
    ) -> Vec<status::Service> {
        let reached = self.reached(live);
        let known = self.known();
        services
            .iter()
            .map(|service| {
                let (address, state) = match known.services.get(&service.name) {
                    Some(Ok(at)) => (at.join(", "), reached.to_owned()),
                    Some(Err(error)) => (String::new(), error.clone()),
                    None => {
                        let wanted: Vec<_> =
                            service.public.iter().map(ToString::to_string).collect();
                        (wanted.join(", "), status::WAITING.to_owned())
                    }
                };
                status::Service {
                    name: service.name.clone(),
                    address,
                    target: service.target.to_string(),
                    state,
                    kept: service.kept,
                    ..status::Service::default()
                }
            })
            .collect()
    }
}

/// A public address as a visitor writes it: `tcp://:10022` gets the server's host.
fn reachable(address: &str, server: &str) -> String {
    match address.split_once("://:") {
        Some((scheme, port)) if server.contains(':') => format!("{scheme}://[{server}]:{port}"),
        Some((scheme, port)) => format!("{scheme}://{server}:{port}"),
        None => address.to_owned(),
    }
}

/// Whether the reason of a refusal may pass without a change of either configuration.
pub(crate) const fn may_pass(code: ServiceErrorCode) -> bool {
    match code {
        ServiceErrorCode::PortTaken | ServiceErrorCode::Limit | ServiceErrorCode::Internal => true,
        ServiceErrorCode::NotAllowed
        | ServiceErrorCode::BadAddress
        | ServiceErrorCode::NameTaken
        | ServiceErrorCode::Other(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use proto::control::ServiceResult;
    use proto::greeting::Name;

    use super::*;

    #[test]
    fn answers_about_services_that_this_client_does_not_have_fill_no_memory() {
        let published = Published::default();
        let result =
            |name: &str| ServiceResult { name: Name::new(name).unwrap(), outcome: Ok(Vec::new()) };
        for generation in 1..=100 {
            let results = vec![result("web"), result(&format!("x{generation}"))];
            published.apply(&Registered { generation, results }, "server", |name| name == "web");
        }
        assert_eq!(published.known().services.len(), 1);
    }
}
