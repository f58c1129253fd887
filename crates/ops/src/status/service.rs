//! A service or forward with its targets, requests and counters.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::printed::printed;
use super::skip::is_zero;
use super::state::{ServiceState, TargetState, Told};

/// A service, or a forward.
#[derive(Clone, Debug, Default, PartialEq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Service {
    /// The name of a service, or `ADDRESS -> TARGET` of a forward.
    pub name: String,
    /// The address at which visitors connect: `tcp://0.0.0.0:10022`. On a client, all published
    /// addresses of the service. A refused address of a service that requested several has an entry
    /// of its own after the others of the service, with the requested address.
    pub address: String,
    /// The target, as far as this side knows it.
    pub target: String,
    /// Whether visitors can reach the service. The text of a refusal is its reason.
    #[serde(flatten)]
    pub state: Told<ServiceState>,
    /// The number of open streams.
    pub streams: u64,
    /// The number of streams since the start.
    pub streams_total: u64,
    /// The number of open flows.
    #[serde(skip_serializing_if = "is_zero")]
    pub flows: u64,
    /// The number of flows since the start.
    #[serde(skip_serializing_if = "is_zero")]
    pub flows_total: u64,
    /// The number of flows since the start that went on with the socket of a former flow of their
    /// visitor, which came by another server or over another link.
    #[serde(skip_serializing_if = "is_zero")]
    pub flows_roamed: u64,
    /// The bytes from visitors to the target since the start, of streams and of datagrams.
    pub bytes_in: u64,
    /// The bytes from the target to visitors since the start, of streams and of datagrams.
    pub bytes_out: u64,
    /// The datagrams from visitors to the target since the start.
    #[serde(skip_serializing_if = "is_zero")]
    pub datagrams_in: u64,
    /// The datagrams from the target to visitors since the start.
    #[serde(skip_serializing_if = "is_zero")]
    pub datagrams_out: u64,
    /// The numbers of datagrams dropped since the start, by reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub dropped: BTreeMap<String, u64>,
    /// The numbers of visitors, streams, flows and requests of HTTP refused since the start, by
    /// reason: `limit`, `denied`, `timeout` …, and [`VISITOR_DENIED`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, u64>,
    /// The number of wrong users and passwords that visitors gave since the start, on a server.
    #[serde(skip_serializing_if = "is_zero")]
    pub wrong_passwords: u64,
    /// The number of streams since the start that another server, or another client of a shared
    /// service, was asked to serve, because the first had not served them.
    #[serde(skip_serializing_if = "is_zero")]
    pub failovers: u64,
    /// The requests of HTTP since the start, on a server; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<Requests>,
    /// The service or forward was added at run time, by `tunnel publish` or `tunnel forward`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub kept: bool,
    /// The configured entries of a client that the service or forward shadows. They are not in
    /// force until the shadowing entry is removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shadows: Vec<String>,
    /// The reason why the target is unhealthy; absent while the target is healthy or no visitor has
    /// needed it. Of several targets none is healthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down: Option<Down>,
    /// The targets of a service with several, on its client.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<ServiceTarget>,
}

/// One of several targets of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceTarget {
    /// The address that the client dials.
    pub target: String,
    /// Its share of the visitors. 0: it gets no new visitor.
    pub weight: u16,
    /// Whether it receives visitors.
    #[serde(flatten)]
    pub state: Told<TargetState>,
    /// The number of its open streams and flows.
    pub visitors: u64,
    /// The number of its streams and flows since the start.
    pub visitors_total: u64,
    /// The reason why it is unhealthy; absent while it is healthy or no visitor has needed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down: Option<Down>,
}

/// The HTTP requests of a service whose responses have ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Requests {
    /// Their numbers by status class: `2xx`, `4xx` … Classes without a request are absent.
    pub statuses: BTreeMap<String, u64>,
    /// Their numbers by the time from the request header to the response header. A request without
    /// a response has no time.
    pub first_byte: Vec<Bucket>,
    /// The sum of these times in microseconds.
    pub first_byte_micros: u64,
}

/// A bucket of a histogram of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Bucket {
    /// The upper bound of the bucket in microseconds; absent in the last bucket, which has no
    /// bound. Shorter times are in the previous buckets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up_to_micros: Option<u64>,
    /// The number of times.
    pub count: u64,
}

impl Requests {
    fn add(&mut self, part: &Self) {
        for (class, count) in &part.statuses {
            *self.statuses.entry(class.clone()).or_default() += count;
        }
        self.first_byte_micros += part.first_byte_micros;
        for part in &part.first_byte {
            let same = |own: &&mut Bucket| own.up_to_micros == part.up_to_micros;
            match self.first_byte.iter_mut().find(same) {
                Some(own) => own.count += part.count,
                None => self.first_byte.push(*part),
            }
        }
    }
}

printed! {
    /// A target that is unhealthy.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct Down {
        /// The reason, as the end of a sentence about the target.
        pub reason: String,
        /// The far side does not allow the target.
        pub denied: bool,
        /// The seconds since the first failure.
        pub seconds: u64 = age,
    }
}

impl Service {
    /// Merges the state of the targets into the state of the service.
    pub fn settle(&mut self) {
        if let (Some(down), true) = (&self.down, self.state == ServiceState::Up) {
            let state = if down.denied { ServiceState::Denied } else { ServiceState::TargetDown };
            self.state = state.into();
        }
    }

    /// The service `seconds` later, if only time has passed.
    #[must_use]
    pub fn aged(mut self, seconds: u64) -> Self {
        let downs = self.targets.iter_mut().filter_map(|target| target.down.as_mut());
        for down in downs.chain(self.down.as_mut()) {
            down.seconds = down.seconds.saturating_add(seconds);
        }
        self
    }

    /// Whether it carries UDP, or carried it.
    pub fn carries_flows(&self) -> bool {
        self.flows_total > 0 || self.address.contains("udp://")
    }

    /// Adds the counters of the same service from elsewhere.
    pub fn add(&mut self, part: &Self) {
        self.down = self.down.take().or_else(|| part.down.clone());
        if let Some(part) = &part.requests {
            self.requests.get_or_insert_default().add(part);
        }
        self.streams += part.streams;
        self.streams_total += part.streams_total;
        self.flows += part.flows;
        self.flows_total += part.flows_total;
        self.bytes_in += part.bytes_in;
        self.bytes_out += part.bytes_out;
        self.datagrams_in += part.datagrams_in;
        self.datagrams_out += part.datagrams_out;
        self.wrong_passwords += part.wrong_passwords;
        self.failovers += part.failovers;
        self.flows_roamed += part.flows_roamed;
        for (own, part) in [(&mut self.refused, &part.refused), (&mut self.dropped, &part.dropped)]
        {
            for (reason, count) in part {
                *own.entry(reason.clone()).or_default() += count;
            }
        }
    }
}

/// The address of a private service.
pub const PRIVATE: &str = "private";

/// The reason of visitors whose address is not in `allow_from`, or is in `deny_from`.
pub const VISITOR_DENIED: &str = "visitor_denied";
