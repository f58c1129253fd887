//! Observations from the streams of a service or a forward: the state of its target, and the access
//! log.

use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use h1::Doubt;
use logging::Access;
use ops::status;
use proto::{ResetCode, Target};
use relay::{DialError, End, Visit, Watcher};

use super::Entrance;
use crate::backends::Picked;
use crate::health::Health;

/// Watches the visitors of an entrance: of a service on the server, of a forward on the client.
pub(crate) struct EntranceWatch {
    entrance: Arc<Entrance>,
    /// The backend that serves the streams; `None`: the current first backend of the entrance.
    picked: Option<Arc<Picked>>,
}

impl fmt::Debug for EntranceWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EntranceWatch({})", self.entrance.name())
    }
}

/// The names of an entrance, as fields of a log line and as the words after `the target`.
struct Names {
    client: Option<String>,
    service: Option<String>,
    forward: Option<String>,
    target: String,
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { client: Some(client), service: Some(service), .. } => {
                write!(f, " of service {service} of client {client}")
            }
            Self { forward: Some(forward), target, .. } => {
                write!(f, " {target} of forward {forward}")
            }
            Self { .. } => Ok(()),
        }
    }
}

impl EntranceWatch {
    /// Watches streams that the picked backend serves.
    pub(crate) fn of_streams(entrance: &Arc<Entrance>, picked: &Arc<Picked>) -> Rc<dyn Watcher> {
        let (entrance, picked) = (Arc::clone(entrance), Some(Arc::clone(picked)));
        Rc::new(Self { entrance, picked })
    }

    /// Watches flows, whose listener serves all backends.
    pub(crate) fn of_flows(entrance: &Arc<Entrance>) -> Rc<dyn Watcher> {
        Rc::new(Self { entrance: Arc::clone(entrance), picked: None })
    }

    fn with<T>(&self, look: impl FnOnce(&Picked) -> T) -> T {
        match &self.picked {
            Some(picked) => look(picked),
            None => look(self.entrance.in_force().accountable()),
        }
    }

    /// `None` for the streams of a measurement, which have no entrance.
    fn names(&self, picked: &Picked) -> Option<Names> {
        let no_name = Names { client: None, service: None, forward: None, target: String::new() };
        match &picked.aim.target {
            Target::Service(service) | Target::Marked { service, .. } => Some(Names {
                client: Some(picked.client.clone()),
                service: Some(service.clone()),
                ..no_name
            }),
            Target::Forward(to) | Target::Reported(to) | Target::Detour(to) => Some(Names {
                forward: Some(self.entrance.address.clone()),
                target: to.clone(),
                ..no_name
            }),
            Target::Private { client, service } => Some(Names {
                forward: Some(self.entrance.address.clone()),
                target: format!("service://{client}/{service}"),
                ..no_name
            }),
            Target::Hop(hop) => Some(Names {
                client: Some(picked.client.clone()),
                service: Some(hop.service.as_str().to_owned()),
                ..no_name
            }),
            Target::Measure(_) | Target::Ask(_) => None,
        }
    }
}

impl Watcher for EntranceWatch {
    // The far side dials.
    fn dialled(&self, _outcome: Result<(), &DialError>) {}

    fn complain_of_dial(&self, _error: &DialError, _failures: u64) {}

    fn refused(&self, code: ResetCode) {
        let transition = self.with(|picked| {
            // The programs at a proxy name their own targets, so the failure of a target says
            // nothing about the forward.
            let is_news = picked.aim.proxy.is_none() && picked.health.down(code);
            is_news.then(|| picked.health.fault().zip(self.names(picked))).flatten()
        });
        let Some((fault, names)) = transition else { return };
        let Names { client, service, forward, .. } = &names;
        // The target of a service is reported by the client that publishes it.
        if forward.is_some() && fault.down().denied {
            let target = &names.target;
            tracing::warn!(
                forward,
                "the server does not allow the target{names} (hint: on the server: tunnel allow NAME \
                 --forward '{target}')"
            );
        } else if forward.is_some() {
            tracing::warn!(forward, "the target{names} is down: {fault}");
        } else {
            tracing::info!(client, service, "the target{names} is down: {fault}");
        }
    }

    fn served(&self) {
        let transition = self.with(|picked| picked.health.up().zip(self.names(picked)));
        let Some((down, names)) = transition else { return };
        let Names { client, service, forward, .. } = &names;
        let down = status::duration(down.as_secs());
        tracing::info!(client, service, forward, "the target{names} serves again, after {down}");
    }

    fn complain_of_refusal(&self, code: ResetCode, refused: u64) {
        // Programs choose the names of targets, which appear only in the log of the server.
        if code == ResetCode::Denied && self.with(|picked| picked.aim.proxy.is_some()) {
            let forward = &self.entrance.address;
            return tracing::warn!(
                forward,
                refused,
                "the server does not allow a target that a program named at forward {forward} (hint: \
                 the log of the server has the command that allows it)"
            );
        }
        let is_fixed = |picked: &Picked| picked.aim.proxy.is_none();
        let names = self.with(|picked| self.names(picked).filter(|_| is_fixed(picked)));
        let Some(names) = names else { return };
        let Names { client, service, forward, .. } = &names;
        let who = if forward.is_some() { "server" } else { "client" };
        tracing::warn!(
            client, service, forward, reason = %code, refused,
            "the {who} refused a visitor for the target{names}: {code}"
        );
    }

    fn complain_of_response(&self, doubt: Doubt) {
        let Some(names) = self.with(|picked| self.names(picked)) else { return };
        let Names { client, service, forward, .. } = &names;
        let reason = doubt.reason();
        tracing::warn!(
            client,
            service,
            forward,
            reason,
            "a response of the target{names} is not safe to pass on: {reason}"
        );
    }

    fn wants_visits(&self) -> bool {
        logging::has_access_log()
    }

    fn ended(&self, visit: &Visit) {
        self.with(|picked| {
            let private;
            let (service, client, target) = match &picked.aim.target {
                Target::Service(service) | Target::Marked { service, .. } => {
                    (service.as_str(), Some(picked.client.as_str()), None)
                }
                Target::Hop(hop) => (hop.service.as_str(), Some(picked.client.as_str()), None),
                Target::Forward(target) | Target::Reported(target) | Target::Detour(target) => {
                    (self.entrance.address.as_str(), None, Some(target.as_str()))
                }
                Target::Private { client, service } => {
                    private = format!("service://{client}/{service}");
                    (self.entrance.address.as_str(), None, Some(private.as_str()))
                }
                Target::Measure(_) | Target::Ask(_) => return,
            };
            access(Access {
                service,
                client,
                target,
                visitor: visit.visitor.to_string(),
                bytes_in: visit.read(),
                bytes_out: visit.written(),
                duration: visit.duration(),
                end: end(visit.end(), ["the visitor", "the target's side"]),
            });
        });
    }
}

/// Watches the streams that this side dials for a service of this client, or for an entry of a
/// proxy.
#[derive(Clone)]
pub struct TargetWatch {
    /// The noun for the service in the log.
    pub what: &'static str,
    pub service: String,
    pub target: String,
    pub health: Arc<Health>,
    /// Health checks send requests, so a connection alone does not show that the target serves.
    pub is_asked: bool,
}

impl fmt::Debug for TargetWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TargetWatch({})", self.service)
    }
}

impl TargetWatch {
    /// Records whether a directory could be opened, and logs a change.
    pub fn note_opened<T>(&self, outcome: &io::Result<T>) {
        let Self { what, service, target, health, .. } = self;
        match outcome {
            Ok(_) => self.note_up(),
            Err(error) => {
                health.explain(Some(format!("it cannot be reached: {error}")));
                if health.down(ResetCode::Unreachable) {
                    tracing::warn!(
                        service,
                        "{what} {service} cannot serve the files of {target}: {error}; the next \
                         visitor makes the service look again"
                    );
                }
            }
        }
    }

    fn note_up(&self) {
        let Self { what, service, target, health, .. } = self;
        if let Some(down) = health.up() {
            let down = status::duration(down.as_secs());
            tracing::info!(
                service,
                "the target {target} of {what} {service} serves again, after {down}"
            );
        }
    }

    /// Records the outcome of a dial, and logs a change.
    pub fn note(&self, outcome: Result<(), &DialError>) {
        let Self { what, service, health, .. } = self;
        match outcome {
            Ok(()) => self.note_up(),
            // The protocol error of one visitor must not take a working target from the others.
            Err(DialError::Protocol { .. }) => {}
            Err(error) => {
                let is_vague = error.code() == ResetCode::Unreachable;
                let detail = if let DialError::Layer { reason, .. } = error {
                    Some(format!("it {reason}"))
                } else if let DialError::Connect { source, .. } = error
                    && is_vague
                {
                    Some(format!("it cannot be reached: {source}"))
                } else if let DialError::Resolve { host, source } = error {
                    Some(format!("{host} does not resolve: {source}"))
                } else if let DialError::Broadcast(_) = error {
                    let why = "it is a broadcast address, and the service has no `broadcast: true`";
                    Some(why.to_owned())
                } else if let DialError::Guarded(_) = error {
                    Some("it is the admin API or the control socket of this daemon".to_owned())
                } else {
                    None
                };
                health.explain(detail);
                if health.down(error.code()) {
                    tracing::warn!(service, "the target of {what} {service} is down: {error}");
                }
            }
        }
    }
}

impl Watcher for TargetWatch {
    fn dialled(&self, outcome: Result<(), &DialError>) {
        if outcome.is_err() || !self.is_asked {
            self.note(outcome);
        }
    }

    fn complain_of_dial(&self, error: &DialError, failures: u64) {
        // Other targets are denied where they are requested, before a dial.
        if let DialError::Denied(target) = error {
            let service = &self.service;
            return tracing::warn!(
                service,
                failures,
                "service {service} leads no visitor to {target}: no entry of the service's `allow` \
                 permits it (hint: without `allow`, special addresses and those of the client itself \
                 need an entry)"
            );
        }
        if error.is_own() {
            let Self { what, service, .. } = self;
            return tracing::warn!(
                service,
                failures,
                "{what} {service} turns a visitor away: {error}"
            );
        }
        // The first failure of a target has already been logged.
        if self.health.fault().is_none() || failures > 1 {
            tracing::warn!(
                service = self.service,
                failures,
                "the target of {} {} cannot be reached: {error}",
                self.what,
                self.service
            );
        }
    }

    // The far side accepted the visitor, and cannot refuse the stream.
    fn refused(&self, _code: ResetCode) {}

    fn served(&self) {}

    fn complain_of_refusal(&self, _code: ResetCode, _refused: u64) {}

    fn complain_of_response(&self, _doubt: Doubt) {}

    fn wants_visits(&self) -> bool {
        logging::has_access_log()
    }

    fn ended(&self, visit: &Visit) {
        access(Access {
            service: &self.service,
            client: None,
            target: Some(&self.target),
            visitor: visit.visitor.to_string(),
            bytes_in: visit.written(),
            bytes_out: visit.read(),
            duration: visit.duration(),
            end: end(visit.end(), ["the target", "the visitor's side"]),
        });
    }
}

/// Watches the targets that a server dials for the forwards of a client.
#[derive(Debug)]
pub struct ForwardWatch {
    /// The noun for the stream in the log: `a forward`.
    pub what: &'static str,
    pub client: String,
}

impl Watcher for ForwardWatch {
    fn dialled(&self, _outcome: Result<(), &DialError>) {}

    fn complain_of_dial(&self, error: &DialError, failures: u64) {
        let Self { what, client } = self;
        tracing::warn!(
            client,
            failures,
            "the target of {what} of client {client} cannot be reached: {error}"
        );
    }

    fn refused(&self, _code: ResetCode) {}

    fn served(&self) {}

    fn complain_of_refusal(&self, _code: ResetCode, _refused: u64) {}

    fn complain_of_response(&self, _doubt: Doubt) {}

    // The client sees the visitors of its forwards.
    fn wants_visits(&self) -> bool {
        false
    }

    fn ended(&self, _visit: &Visit) {}
}

fn access(access: Access<'_>) {
    logging::access(&access);
}

/// The end as text. `own` is the side of the socket, `far` the other side.
fn end(end: End, [own, far]: [&str; 2]) -> String {
    match end {
        End::Finished => "finished".to_owned(),
        End::Socket => format!("reset by {own}"),
        End::FarSide(_) => format!("reset by {far}"),
        End::Refused(code) => format!("refused: {code}"),
        End::Timeout(which) => format!("time-out {which}"),
        End::Cut => "cut: the link or the daemon ended".to_owned(),
    }
}
