//! The rows of services and clients as JSON, and the lines that contain them.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use ops::clients::Client;
use ops::status::{Carrier, ClientState, Service, ServiceState, SessionState, Told};
use ops::term::Tone;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::board::{Board, Known, Owner, Place, Row, ServerDuty};
use super::row_log::Since;
use super::{Bytes, Rate};

/// The largest number of services, and of clients, in a line of the topic `needs`.
const NEEDY: usize = 100;

/// Refused log-ins older than this, in seconds, need no attention.
const RECENT: u64 = 3_600;

/// A list of a topic.
#[derive(Debug, Serialize)]
pub(super) struct List<'a, T> {
    pub(super) topic: &'static str,
    pub(super) unix_millis: u64,
    pub(super) total: usize,
    #[serde(flatten)]
    pub(super) changes: Option<Changes<'a>>,
    pub(super) list: Vec<T>,
}

/// The fields that make a list a list of changes.
#[derive(Debug, Serialize)]
pub(super) struct Changes<'a> {
    /// The list replaces the previous list.
    pub(super) whole: bool,
    /// The number of this line.
    pub(super) revision: u64,
    /// The line that this line continues; absent where the list is whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) after: Option<u64>,
    /// The rows that are no longer listed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) gone: Vec<Cow<'a, str>>,
}

/// Bytes per second.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Rated {
    in_bytes_per_second: u64,
    out_bytes_per_second: u64,
}

impl From<Rate> for Rated {
    fn from((incoming, outgoing): Rate) -> Self {
        // The conversion stays within the range, and a rate is never negative.
        let whole = |rate: f64| rate.round() as u64;
        Self { in_bytes_per_second: whole(incoming), out_bytes_per_second: whole(outgoing) }
    }
}

#[derive(Debug, Serialize)]
struct ServiceRow<'a> {
    id: String,
    #[serde(flatten)]
    service: Cow<'a, Service>,
    kind: &'static str,
    peer: &'a str,
    #[serde(flatten)]
    rate: Rated,
}

#[derive(Debug, Serialize)]
struct SideRow<'a> {
    #[serde(flatten)]
    side: Side<'a>,
    streams: u64,
    services: usize,
    bytes_in: u64,
    bytes_out: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    carriers: Vec<&'a Carrier>,
    #[serde(flatten)]
    rate: Rated,
}

/// A client of a server, or a server of a client.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Side<'a> {
    Client(Box<Client>),
    Server {
        name: &'a str,
        #[serde(flatten)]
        state: Cow<'a, Told<SessionState>>,
        links: usize,
        #[serde(skip_serializing_if = "Option::is_none")]
        charge: Option<ServerDuty>,
    },
}

/// The name of a place, which identifies its row.
fn id((owner, nth): Place) -> String {
    match owner {
        Owner::Session(session) => format!("{session}.{nth}"),
        Owner::Proxy => format!("proxy.{nth}"),
        Owner::Default => format!("default.{nth}"),
    }
}

/// A line, including its end.
pub(super) fn line(line: &impl Serialize) -> Option<String> {
    let mut text = serde_json::to_string(line).ok()?;
    text.push('\n');
    Some(text)
}

impl Board {
    /// The services: all that are listed, or the changes after a revision.
    pub(super) fn services_line(&self, after: Option<u64>) -> Option<String> {
        let changed = |place: &Place| self.row(*place).map_or(0, |(_, row)| row.changed);
        let since = after.map(|after| (after, self.listed_services.since(after, changed)));
        let (changes, listed) = match since {
            None => (None, self.listed_services.all()),
            Some((after, Since { whole, listed, gone })) => {
                let gone = gone.into_iter().map(|place| id(*place).into()).collect();
                (Some(self.changes(whole, after, gone)), listed)
            }
        };
        let list: Vec<_> = listed.into_iter().filter_map(|place| self.service(*place)).collect();
        let (topic, unix_millis) = ("services", self.unix_millis);
        line(&List { topic, unix_millis, total: self.services(), changes, list })
    }

    /// The clients, or the servers of a client.
    pub(super) fn clients_line(&self, after: Option<u64>) -> Option<String> {
        let changed = |name: &String| self.side_changed(name).unwrap_or_default();
        let since = after.map(|after| (after, self.listed_clients.since(after, changed)));
        let (changes, listed) = match since {
            None => (None, self.listed_clients.all()),
            Some((after, Since { whole, listed, gone })) => {
                let gone = gone.into_iter().map(|name| name.as_str().into()).collect();
                (Some(self.changes(whole, after, gone)), listed)
            }
        };
        let list: Vec<_> = listed.into_iter().filter_map(|name| self.side(name)).collect();
        let (topic, unix_millis) = ("clients", self.unix_millis);
        line(&List { topic, unix_millis, total: self.sides(), changes, list })
    }

    fn changes<'a>(&self, whole: bool, after: u64, gone: Vec<Cow<'a, str>>) -> Changes<'a> {
        Changes { whole, revision: self.revision, after: (!whole).then_some(after), gone }
    }

    /// The services with the highest rates, at most `most`.
    pub(super) fn busiest_line(&self, most: usize) -> Option<String> {
        let groups = self.moving.iter().filter_map(|owner| Some((owner, self.groups.get(owner)?)));
        let mut all: Vec<_> = groups
            .flat_map(|(owner, group)| group.rows.iter().enumerate().map(|row| (*owner, row)))
            .map(|(owner, (nth, row))| (row.rate.0 + row.rate.1, (owner, nth)))
            .filter(|(rate, _)| *rate > 0.0)
            .collect();
        all.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let list: Vec<_> =
            all.into_iter().take(most).filter_map(|(_, place)| self.service(place)).collect();
        let (topic, unix_millis, total) = ("busiest", self.unix_millis, self.services());
        line(&List { topic, unix_millis, total, changes: None, list })
    }

    /// The services and clients that need attention. `None`: they equal those of the last line,
    /// whose fingerprint is `sent`.
    pub(super) fn needs_line(&self, sent: &mut Option<u64>) -> Option<String> {
        let services = self.rows().filter(|(_, _, row)| is_needy(&row.service));
        let services: Vec<_> = services.map(|(place, _, row)| (place, row.changed)).collect();
        let clients: Vec<(&str, u64)> = match &self.clients {
            Some(clients) => {
                let needy = clients.values().filter(|known| known.is_needy());
                needy.map(|known| (known.client.name.as_str(), known.changed)).collect()
            }
            None => {
                let failed = |state: SessionState| {
                    matches!(state, SessionState::Unreachable | SessionState::Refused)
                };
                let mut names: Vec<&str> = self.peers.keys().map(String::as_str).collect();
                names.sort_unstable();
                let changed = |name: &str| self.side_changed(name).unwrap_or_default();
                let newest =
                    |name: &str| self.sessions_of(name).last().map(|one| one.state.state());
                names
                    .into_iter()
                    .filter(|name| newest(name).is_some_and(failed))
                    .map(|name| (name, changed(name)))
                    .collect()
            }
        };
        let mut hash = DefaultHasher::new();
        (&clients, services.len()).hash(&mut hash);
        services.iter().for_each(|(place, changed)| (id(*place), changed).hash(&mut hash));
        if sent.replace(hash.finish()) == Some(hash.finish()) {
            return None;
        }
        let (services_total, clients_total) = (services.len(), clients.len());
        let services = services.into_iter().take(NEEDY);
        let services: Vec<_> = services.filter_map(|(place, _)| self.service(place)).collect();
        let clients = clients.into_iter().take(NEEDY);
        let clients: Vec<_> = clients.filter_map(|(name, _)| self.side(name)).collect();
        line(&json!({
            "topic": "needs", "unix_millis": self.unix_millis,
            "troubled_services": services, "troubled_services_total": services_total,
            "troubled_clients": clients, "troubled_clients_total": clients_total,
        }))
    }

    fn service(&self, place: Place) -> Option<impl Serialize> {
        let (peer, row) = self.row(place)?;
        let service = match row.at.elapsed().as_secs() {
            seconds @ 1.. if has_age(&row.service) => Cow::Owned(row.service.clone().aged(seconds)),
            _ => Cow::Borrowed(&row.service),
        };
        Some(ServiceRow { id: id(place), service, kind: row.kind, peer, rate: row.rate.into() })
    }

    fn side(&self, name: &str) -> Option<impl Serialize> {
        let sessions = || self.sessions_of(name);
        let links = || sessions().flat_map(|session| &session.links);
        let side = match &self.clients {
            Some(clients) => Side::Client(Box::new(clients.get(name)?.now())),
            None => {
                let (name, _) = self.peers.get_key_value(name)?;
                let newest = sessions().last();
                let state = newest.map(|newest| Cow::Borrowed(&newest.state));
                let charge = newest.and_then(|newest| newest.charge);
                let (state, links) = (state.unwrap_or_default(), links().count());
                Side::Server { name, state, links, charge }
            }
        };
        let (mut services, mut bytes, mut rate): (_, Bytes, Rate) = (0, (0, 0), (0.0, 0.0));
        for row in sessions().flat_map(|session| &session.rows) {
            services += 1;
            bytes = (bytes.0 + row.service.bytes_in, bytes.1 + row.service.bytes_out);
            rate = (rate.0 + row.rate.0, rate.1 + row.rate.1);
        }
        Some(SideRow {
            side,
            streams: links().map(|link| link.streams).sum(),
            services,
            bytes_in: bytes.0,
            bytes_out: bytes.1,
            carriers: links().flat_map(|link| &link.carriers).collect(),
            rate: rate.into(),
        })
    }

    /// The figures of the daemon.
    pub(super) fn totals_line(&self) -> Option<String> {
        let status = &self.status;
        let (mut visitors, mut flows, mut refused, mut up, mut all) = (0, 0, 0, 0, 0_u64);
        for Row { service, .. } in self.groups.values().flat_map(|group| &group.rows) {
            visitors += service.streams;
            flows += service.flows;
            refused += service.refused.values().sum::<u64>();
            all += 1;
            up += u64::from(service.state.state() == ServiceState::Up);
        }
        let sessions = || {
            let of = |(owner, group)| matches!(owner, &Owner::Session(_)).then_some(group);
            self.groups.iter().filter_map(of)
        };
        let streams = sessions().flat_map(|session| &session.links).map(|link| link.streams).sum();
        let (peers_up, peers) = match &self.clients {
            Some(clients) => {
                let up = clients.values().filter(|known| known.client.links > 0).count();
                (up, clients.len())
            }
            None => {
                let own = || sessions().filter(|session| !session.private);
                (own().filter(|one| one.state.state() == SessionState::Up).count(), own().count())
            }
        };
        let mut line = match serde_json::to_value(&status.state) {
            Ok(Value::Object(object)) => object,
            Ok(_) | Err(_) => serde_json::Map::new(),
        };
        let mut put = |key: &str, value: Value| {
            line.insert(key.to_owned(), value);
        };
        put("topic", "totals".into());
        put("unix_millis", self.unix_millis.into());
        put("role", json!(status.role));
        put("name", status.name.as_str().into());
        put("version", status.version.as_str().into());
        put("uptime_seconds", status.uptime_seconds.into());
        put("bytes_in", self.carried.0.into());
        put("bytes_out", self.carried.1.into());
        put("streams", u64::max(visitors, streams).into());
        put("flows", flows.into());
        put("peers_up", peers_up.into());
        put("peers", peers.into());
        put("services", all.into());
        put("services_up", up.into());
        put("refused", refused.into());
        put("memory_used_bytes", status.memory.used_bytes.into());
        put("memory_budget_bytes", status.memory.budget_bytes.into());
        put("descriptors_open", status.descriptors.open.into());
        if let Some(limit) = status.descriptors.limit {
            put("descriptors_limit", limit.into());
        }
        put("log_lines_left_out", status.log_lines_left_out.into());
        if let Some(error) = &status.reload_error {
            put("reload_error", error.as_str().into());
        }
        if let Some(seconds) = status.drain_seconds {
            put("drain_seconds", seconds.into());
        }
        if let Some(udp) = &status.udp {
            put("udp", json!(udp));
        }
        if let Some(cluster) = &status.cluster {
            put("node", cluster.node.as_str().into());
        }
        let Rated { in_bytes_per_second, out_bytes_per_second } = self.rate.into();
        put("in_bytes_per_second", in_bytes_per_second.into());
        put("out_bytes_per_second", out_bytes_per_second.into());
        self::line(&line)
    }
}

impl Known {
    /// The current state of the client.
    fn now(&self) -> Client {
        match Instant::now().saturating_duration_since(self.at).as_secs() {
            0 => self.client.clone(),
            seconds => self.client.clone().aged(seconds),
        }
    }

    fn is_needy(&self) -> bool {
        let client = &self.client;
        let is_recent = |ago: u64| ago.saturating_add(self.at.elapsed().as_secs()) < RECENT;
        client.refused.as_ref().is_some_and(|refused| is_recent(refused.seconds_ago))
            || client.state.state() == ClientState::Stalled
            || client.hold.is_some()
    }
}

fn is_needy(service: &Service) -> bool {
    service.state.tone() == Tone::Bad
}

/// Whether the row contains seconds since an event.
fn has_age(service: &Service) -> bool {
    service.down.is_some() || service.targets.iter().any(|target| target.down.is_some())
}
