//! Changes in a daemon, as a stream of events: links, services, clients, certificates, refusals. A
//! state change is logged and reported at the same place.
//!
//! ```text
//!   workers, registry ──tell──► ring of the last 256 events ──► listener: event, event, …
//!                     never waits                               └─► slow: number of lost events
//! ```

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::clients::REASON_MAX;
use crate::status::LinkState;

/// The number of queued events for a listener: those of a reconnect of a hundred clients with a
/// service each.
const RING: usize = 256;

/// Most listeners at a time. The control socket and the admin API have few connections, and
/// listeners must not take all of them.
const LISTENERS: usize = 8;

/// A change in a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The time in milliseconds since 1970.
    pub unix_millis: u64,
    #[serde(flatten)]
    pub change: Changed,
}

/// The change. `peer` is the other side: the client on a server, the server on a client. `reason`
/// is a readable text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Changed {
    /// A link, by its number.
    Link {
        peer: String,
        link: u64,
        state: LinkState,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A service, by its name.
    Service {
        peer: String,
        service: String,
        state: ServiceChange,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// The refused addresses of a service that asked for several, [`REFUSED_MAX`] at most. The
        /// other addresses of a published service are published.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        refused: Vec<RefusedAddress>,
    },
    /// A client that a server knows.
    Client { client: String, state: ClientChange },
    /// The certificate of a host. If there is a reason, the certificate is missing or is not
    /// renewed.
    Certificate {
        host: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A log-in that was refused. Unauthenticated peers cause it at will, so the events are limited
    /// like the log lines.
    Refusal { source: String, reason: String },
}

/// An address that is not published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedAddress {
    /// The address as the client requested it.
    pub address: String,
    pub reason: String,
}

/// The most refused addresses in one event.
pub const REFUSED_MAX: usize = 16;

/// What happened to a service. The resulting state of the service is a state of [the
/// status](crate::status::ServiceState).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceChange {
    Published,
    /// The service could not be published.
    Refused,
    /// The service is no longer published.
    Withdrawn,
}

impl ServiceChange {
    /// The changes that this version reports.
    pub const ALL: &[Self] = &[Self::Published, Self::Refused, Self::Withdrawn];
}

/// What happened to the entry of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientChange {
    Enrolled,
    /// The client has a new token.
    Renewed,
    Revoked,
    /// Its rights or limits were changed by a command.
    Changed,
    /// Its names answer 503 from now on.
    Held,
    /// Its hold has ended.
    Released,
}

impl ClientChange {
    /// The changes that this version reports.
    pub const ALL: &[Self] =
        &[Self::Enrolled, Self::Renewed, Self::Revoked, Self::Changed, Self::Held, Self::Released];
}

/// The events of a daemon. Clones share one stream of events.
#[derive(Clone, Debug)]
pub struct Events {
    ring: broadcast::Sender<Event>,
    places: Arc<Semaphore>,
}

impl Default for Events {
    fn default() -> Self {
        Self { ring: broadcast::Sender::new(RING), places: Arc::new(Semaphore::new(LISTENERS)) }
    }
}

impl Events {
    /// Reports a change to all listeners. Never waits: a slow listener loses events.
    pub fn tell(&self, change: impl FnOnce() -> Changed) {
        if self.ring.receiver_count() == 0 {
            return;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_millis = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        // An error means that the last listener has gone in the meantime.
        let _ = self.ring.send(Event { unix_millis, change: change().bounded() });
    }

    /// Listens to events from now on. `None`: there are too many listeners.
    pub fn listen(&self) -> Option<Listener> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        Some(Listener { events: self.ring.subscribe(), _place: place })
    }
}

/// A listener for the events of a daemon.
#[derive(Debug)]
pub struct Listener {
    events: broadcast::Receiver<Event>,
    _place: OwnedSemaphorePermit,
}

/// An item that a listener receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    Event(Event),
    /// This number of events was lost, because the listener was slow.
    Lost(u64),
}

impl Listener {
    /// The next event; `None`: the daemon has ended. Cancel-safe.
    pub async fn next(&mut self) -> Option<Heard> {
        match self.events.recv().await {
            Ok(event) => Some(Heard::Event(event)),
            Err(RecvError::Lagged(count)) => Some(Heard::Lost(count)),
            Err(RecvError::Closed) => None,
        }
    }
}

impl Changed {
    /// A service was published, or refused for a reason. `refused`: its refused addresses with
    /// their reasons.
    pub fn service<'a, T, E: fmt::Display + 'a>(
        peer: &str,
        service: &str,
        outcome: &Result<T, E>,
        refused: impl Iterator<Item = (&'a str, &'a E)>,
    ) -> Self {
        let (peer, service) = (peer.to_owned(), service.to_owned());
        let (state, reason) = match outcome {
            Ok(_) => (ServiceChange::Published, None),
            Err(why) => (ServiceChange::Refused, Some(why.to_string())),
        };
        let refused = refused.take(REFUSED_MAX).map(|(address, why)| {
            let (address, mut reason) = (address.to_owned(), why.to_string());
            reason.truncate(reason.floor_char_boundary(REASON_MAX));
            RefusedAddress { address, reason }
        });
        Self::Service { peer, service, state, reason, refused: refused.collect() }
    }

    /// A service is no longer published.
    pub fn withdrawn(peer: &str, service: &str) -> Self {
        let (peer, service) = (peer.to_owned(), service.to_owned());
        let (state, reason, refused) = (ServiceChange::Withdrawn, None, Vec::new());
        Self::Service { peer, service, state, reason, refused }
    }

    /// The change with a reason of bounded length: a reason may contain text of a peer.
    fn bounded(mut self) -> Self {
        let reason = match &mut self {
            Self::Link { reason, .. }
            | Self::Service { reason, .. }
            | Self::Certificate { reason, .. } => reason.as_mut(),
            Self::Refusal { reason, .. } => Some(reason),
            Self::Client { .. } => None,
        };
        if let Some(reason) = reason {
            reason.truncate(reason.floor_char_boundary(REASON_MAX));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(link: u64) -> Changed {
        Changed::Link { peer: "home".to_owned(), link, state: LinkState::Up, reason: None }
    }

    #[tokio::test]
    async fn a_slow_listener_loses_events_with_their_count_and_holds_nobody_up() {
        let events = Events::default();
        let mut listener = events.listen().unwrap();
        let all = RING as u64 + 44;
        for n in 0..all {
            events.tell(|| link(n));
        }
        assert_eq!(listener.next().await, Some(Heard::Lost(44)));
        for n in 44..all {
            let Some(Heard::Event(event)) = listener.next().await else { panic!("an event") };
            assert_eq!(event.change, link(n));
        }
        drop(events);
        assert_eq!(listener.next().await, None);
    }

    #[test]
    fn listeners_are_few_and_reasons_short() {
        let events = Events::default();
        events.tell(|| unreachable!("nobody listens"));
        let mut all: Vec<_> = (0..LISTENERS).map(|_| events.listen().unwrap()).collect();
        assert!(events.listen().is_none());
        all.pop();
        assert!(events.listen().is_some());
        let reason = "ä".repeat(REASON_MAX);
        let change = Changed::Refusal { source: "192.0.2.1".to_owned(), reason };
        let Changed::Refusal { reason, .. } = change.bounded() else { panic!("a refusal") };
        assert!(reason.len() <= REASON_MAX && !reason.is_empty());
    }

    #[test]
    fn a_published_service_names_its_refused_addresses() {
        let ok: Result<(), String> = Ok(());
        let (why, all) = ("no".repeat(REASON_MAX), "http://a");
        let event = Changed::service("home", "web", &ok, [(all, &why); 40].into_iter());
        let Changed::Service { state, reason, refused, .. } = &event else { panic!("a service") };
        assert_eq!((*state, reason), (ServiceChange::Published, &None));
        assert_eq!((refused.len(), refused[0].reason.len()), (REFUSED_MAX, REASON_MAX));
        let whole = Changed::service("home", "web", &ok, std::iter::empty());
        let json = serde_json::to_string(&whole).unwrap();
        assert!(!json.contains("refused"), "{json}");
    }

    #[test]
    fn an_event_is_one_flat_object() {
        let json = serde_json::to_string(&Event { unix_millis: 7, change: link(3) }).unwrap();
        assert_eq!(json, r#"{"unix_millis":7,"kind":"link","peer":"home","link":3,"state":"up"}"#);
        let event: Event = serde_json::from_str(&json).unwrap();
        assert_eq!(event.change, link(3));
    }
}
