//! The state of a client's services according to the server. Each change is logged once, even if
//! several links report it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use ops::events::{Changed, Events};
use ops::share::open_password;
use ops::status::{self, ServiceState, SessionState, Told};
use proto::control::{Registered, ServiceError, ServiceErrorCode, ServiceResult};

use super::outage::Outage;
use super::trouble::Trouble;

#[derive(Debug, Default)]
pub(super) struct Published {
    known: Mutex<Outcomes>,
    /// The generation of the latest registration that the server has answered.
    answered: watch::Sender<u64>,
}

/// Why a service, or one of its addresses, is not published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reason {
    text: String,
    /// The server cannot decide now, and publishes later by itself.
    waits: bool,
}

impl Reason {
    fn of(error: &ServiceError) -> Self {
        Self { text: error.to_string(), waits: error.code == ServiceErrorCode::Waits }
    }

    /// The state of the service in a status.
    fn state(&self) -> Told<ServiceState> {
        let state = if self.waits { ServiceState::Waiting } else { ServiceState::Refused };
        Told::because(state, self)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The outcome of the registration of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Its public addresses, or the reason why it has none.
    pub(super) at: Result<Vec<String>, Reason>,
    /// The refused addresses of a service with several, each with its reason.
    pub(super) refused: Vec<(String, Reason)>,
}

impl Outcome {
    /// The outcome of a service whose addresses are all refused for one reason.
    fn refused(why: &str) -> Self {
        let reason = Reason { text: why.to_owned(), waits: false };
        Self { at: Err(reason), refused: Vec::new() }
    }

    /// Whether the server publishes the service, or one of its addresses, later by itself.
    pub(super) fn waits(&self) -> bool {
        let whole = self.at.as_ref().err().filter(|_| self.refused.is_empty());
        whole.into_iter().chain(self.refused.iter().map(|(_, why)| why)).any(|why| why.waits)
    }

    /// Whether the server publishes no address of the service, now or later by itself.
    pub(super) fn is_refused(&self) -> bool {
        self.at.is_err() && !self.waits()
    }

    /// The addresses that are not published, with one line for each reason, and whether the server
    /// publishes the address later by itself.
    pub(super) fn failures(&self, service: &str) -> Vec<(bool, String)> {
        match &self.at {
            Err(why) if self.refused.is_empty() => {
                vec![(why.waits, format!("{service} is not published: {why}"))]
            }
            Ok(_) | Err(_) => {
                let line = |at| format!("{service} is not published at {at}: ");
                let each = self.refused.iter();
                each.map(|(at, why)| (why.waits, format!("{}{why}", line(at)))).collect()
            }
        }
    }
}

#[derive(Debug, Default)]
struct Outcomes {
    services: HashMap<String, Outcome>,
    /// A service was refused for a reason that may pass.
    waits_for_more: bool,
    /// Why the server is unreachable, if it is.
    trouble: Option<Trouble>,
    outage: Outage,
    events: Events,
}

impl Outcomes {
    /// Records the outcome of a service, whose visitors need a password if `asks`. Logs the outcome
    /// if it has changed.
    fn note(&mut self, name: &str, outcome: Outcome, server: &str, asks: bool) {
        if self.services.get(name) == Some(&outcome) {
            return;
        }
        if outcome.at.as_ref().is_ok_and(|at| *at == [status::PRIVATE]) {
            tracing::info!(server, "service {name} is private: clients of the server visit it");
        } else if let Ok(at) = &outcome.at {
            tracing::info!(server, "service {name} is published at {}", at.join(", "));
            if let Some(why) = open_password(at).filter(|_| asks) {
                tracing::warn!(server, "service {name}: {why}");
            }
        }
        for (_, line) in outcome.failures(name) {
            tracing::error!(server, "service {line}");
        }
        let refused = outcome.refused.iter().map(|(at, why)| (&**at, why));
        self.events.tell(|| Changed::service(server, name, &outcome.at, refused));
        self.services.insert(name.to_owned(), outcome);
    }
}

impl Published {
    /// `events` reports each change.
    pub(super) fn new(events: &Events) -> Self {
        let known = Outcomes { events: events.clone(), ..Outcomes::default() };
        Self { known: Mutex::new(known), answered: watch::Sender::default() }
    }

    fn known(&self) -> MutexGuard<'_, Outcomes> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies the answer of `server` to a registration, and logs the differences. Visitors reach
    /// the server at `host`. `ours`: whether visitors of the service of this name need a password;
    /// `None` where this client has no such service. Entries of other names would never be removed.
    pub(super) fn apply(
        &self,
        registered: &Registered,
        (server, host): (&str, &str),
        ours: impl Fn(&str) -> Option<bool>,
    ) {
        let mut known = self.known();
        let mut errors = registered.results.iter().flat_map(ServiceResult::errors);
        known.waits_for_more = errors.any(|error| error.code.may_pass());
        for ServiceResult { name, outcome, refused } in &registered.results {
            let name = name.as_str();
            let Some(asks) = ours(name) else { continue };
            let at = match outcome {
                // Only private services have no address.
                Ok(at) if at.is_empty() => Ok(vec![status::PRIVATE.to_owned()]),
                Ok(at) => Ok(at.iter().map(|address| reachable(address, host)).collect()),
                Err(error) => Err(Reason::of(error)),
            };
            let refused = refused.iter();
            let refused =
                refused.map(|one| (one.address.clone(), Reason::of(&one.error))).collect();
            known.note(name, Outcome { at, refused }, server, asks);
        }
        drop(known);
        self.answered.send_if_modified(|latest| {
            let is_newer = registered.generation > *latest;
            *latest = registered.generation.max(*latest);
            is_newer
        });
    }

    /// Waits until the server has answered the registration of this generation, or a later one.
    pub(super) async fn answered(&self, generation: u64) {
        // Fails only when the sender is dropped, but `self` holds the sender.
        drop(self.answered.subscribe().wait_for(|latest| *latest >= generation).await);
    }

    /// Whether the server has answered the registration of this generation, or a later one.
    pub(super) fn has_answered(&self, generation: u64) -> bool {
        *self.answered.borrow() >= generation
    }

    /// The answer of the server about a service. `None` before the answer.
    pub(super) fn outcome(&self, service: &str) -> Option<Outcome> {
        self.known().services.get(service).cloned()
    }

    /// Whether the server has published a service.
    pub(super) fn has(&self, service: &str) -> bool {
        self.known().services.get(service).is_some_and(|outcome| outcome.at.is_ok())
    }

    /// Records a service that this client does not ask the server to publish, and logs a change.
    pub(super) fn refuse(&self, name: &str, why: &str, server: &str) {
        self.known().note(name, Outcome::refused(why), server, false);
    }

    /// Forgets the services at `server` that are not in `services`.
    pub(super) fn forget_others(&self, services: &[&config::Service], server: &str) {
        let known = &mut *self.known();
        known.services.retain(|name, outcome| {
            let stays = services.iter().any(|service| service.name == *name);
            if !stays && outcome.at.is_ok() {
                tracing::info!(server, "service {name} is published no more at {server}");
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

    pub(super) fn trouble(&self) -> Option<Trouble> {
        self.known().trouble.clone()
    }

    /// Whether the server has refused this process because a newer process has the services.
    pub(super) fn is_superseded(&self) -> bool {
        let known = self.known();
        known.trouble.as_ref().is_some_and(|trouble| trouble.state == SessionState::Superseded)
    }

    /// Calls `use_it` with the state of the outage.
    pub(super) fn outage<T>(&self, use_it: impl FnOnce(&mut Outage) -> T) -> T {
        use_it(&mut self.known().outage)
    }

    /// The state of a service or forward that the server has accepted.
    pub(super) fn reached(&self, live: bool) -> ServiceState {
        let known = self.known();
        let trouble = known.trouble.as_ref().map(|trouble| trouble.state);
        // A refusal of one link may arrive after another link was admitted again.
        match (live, trouble == Some(SessionState::Superseded)) {
            (true, _) => ServiceState::Up,
            (false, true) => ServiceState::Superseded,
            (false, false) => ServiceState::Waiting,
        }
    }

    /// The services for a status: an entry for the published addresses of a service, followed by an
    /// entry for each refused address. `live`: a link carries visitors.
    pub(super) fn services(
        &self,
        services: &[&config::Service],
        live: bool,
    ) -> Vec<status::Service> {
        let reached = self.reached(live);
        let known = self.known();
        let mut all = Vec::with_capacity(services.len());
        for service in services {
            let entry = |address: String, state: Told<ServiceState>| status::Service {
                name: service.name.clone(),
                address,
                target: service.aims(),
                state,
                kept: service.kept,
                ..status::Service::default()
            };
            let Some(Outcome { at, refused }) = known.services.get(&service.name) else {
                all.push(entry(service.places(), ServiceState::Waiting.into()));
                continue;
            };
            match at {
                Ok(at) => all.push(entry(at.join(", "), reached.into())),
                Err(why) if refused.is_empty() => all.push(entry(String::new(), why.state())),
                Err(_) => {}
            }
            all.extend(refused.iter().map(|(at, why)| entry(at.clone(), why.state())));
        }
        all
    }
}

/// A public address as a visitor writes it: `tcp://:10022` gets the server's host.
fn reachable(address: &str, host: &str) -> String {
    match address.split_once("://:") {
        Some((scheme, port)) if host.contains(':') => format!("{scheme}://[{host}]:{port}"),
        Some((scheme, port)) => format!("{scheme}://{host}:{port}"),
        None => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use config::{ClientFlags, Sources, Text};
    use proto::control::RefusedAddress;
    use proto::greeting::Name;

    use super::*;

    #[test]
    fn answers_about_services_that_this_client_does_not_have_fill_no_memory() {
        let published = Published::default();
        let result = |name: &str| ServiceResult::whole(Name::new(name).unwrap(), Ok(Vec::new()));
        for generation in 1..=100 {
            let results = vec![result("web"), result(&format!("x{generation}"))];
            published.apply(&Registered { generation, results }, ("server", "server"), |name| {
                (name == "web").then_some(false)
            });
        }
        assert_eq!(published.known().services.len(), 1);
    }

    /// The services of a client whose only service has these addresses.
    fn services(public: &str) -> Vec<config::Service> {
        let text = format!(
            "servers: tcp://127.0.0.1:1\nname: home\ntoken: \
             q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ\nservices:\n  - {{ name: web, public: \
             {public}, target: \"3000\" }}\n"
        );
        let sources = Sources { env: &|_| None, read: &|_| Ok(String::new()) };
        let text = Some(Text { name: "client.yaml", text: &text });
        config::load_client(text, &ClientFlags::default(), &sources).unwrap().config.services
    }

    #[test]
    fn a_refused_address_is_refused_alone() {
        let published = Published::default();
        let (http, https) = ("http://a.example", "https://a.example");
        let services = services(&format!("[\"{http}\", \"{https}\"]"));
        let error = |code| ServiceError { code, text: "no certificate".to_owned() };
        let apply = |generation, up: &[&str], refused: &[&str], code| {
            let name = Name::new("web").unwrap();
            let up: Vec<_> = up.iter().map(ToString::to_string).collect();
            let refused = refused
                .iter()
                .map(|at| RefusedAddress { address: (*at).to_owned(), error: error(code) });
            let outcome = if up.is_empty() { Err(error(code)) } else { Ok(up) };
            let results = vec![ServiceResult { refused: refused.collect(), name, outcome }];
            published
                .apply(&Registered { generation, results }, ("server", "server"), |_| Some(false));
            let shown = published.services(&services.iter().collect::<Vec<_>>(), true).into_iter();
            shown.map(|one| format!("{} {}", one.address, one.state)).collect::<Vec<_>>()
        };
        let shown = apply(1, &[http], &[https], ServiceErrorCode::Limit);
        assert_eq!(shown, [format!("{http} up"), format!("{https} no certificate")]);
        assert!(published.waits_for_more(), "the reason of one address may pass");
        let failures = published.outcome("web").unwrap().failures("web");
        let line = format!("web is not published at {https}: no certificate");
        let waits = failures[0].0;
        assert_eq!(failures, [(waits, line)]);

        let shown = apply(2, &[], &[http, https], ServiceErrorCode::NotAllowed);
        assert_eq!(shown, [http, https].map(|at| format!("{at} no certificate")));
        assert!(!published.waits_for_more());
        let shown = apply(3, &[], &[], ServiceErrorCode::NotAllowed);
        assert_eq!(shown, [" no certificate"], "an older server has one reason for all");
        let shown = apply(4, &[http, https], &[], ServiceErrorCode::NotAllowed);
        assert_eq!(shown, [format!("{http}, {https} up")]);
        assert!(published.outcome("web").unwrap().failures("web").is_empty());
    }

    #[test]
    fn a_service_for_which_the_server_cannot_decide_now_waits() {
        let published = Published::default();
        let services = services("http://a.example");
        let apply = |code| {
            let outcome = Err(ServiceError { code, text: "later".to_owned() });
            let results = vec![ServiceResult::whole(Name::new("web").unwrap(), outcome)];
            let registered = Registered { generation: 1, results };
            published.apply(&registered, ("server", "server"), |_| Some(false));
            // `tunnel publish` drops a service that is refused.
            let is_refused = published.outcome("web").unwrap().is_refused();
            assert_eq!(is_refused, code != ServiceErrorCode::Waits);
            published.services(&services.iter().collect::<Vec<_>>(), true).remove(0).state
        };
        let waiting = apply(ServiceErrorCode::Waits);
        assert_eq!((waiting.state(), &*waiting.to_string()), (ServiceState::Waiting, "later"));
        assert!(published.waits_for_more());
        // A code of a newer server.
        let refused = apply(ServiceErrorCode::Other(300));
        assert_eq!((refused.state(), &*refused.to_string()), (ServiceState::Refused, "later"));
    }
}
