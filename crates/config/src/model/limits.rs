//! `limits`: one shape, which stands at all places where streams, flows or rates are limited.

use std::num::{NonZeroU32, NonZeroU64};

use proto::{Bounds, Limits};

use crate::key_table::KeyTable;
use crate::model::service::FlowLimits;
use crate::section::Section;
use crate::{BadValue, Rate};

/// A section `limits`.
#[derive(Default, KeyTable)]
pub(crate) struct Limited {
    /// Limits the concurrent streams and flows {of}.
    #[key("number", absent = "unlimited", unit = "streams", read = |text| number(text, "streams"),
        only(Server, Client, Grant, Service, Forward))]
    streams: Option<NonZeroU32>,
    /// Limits the concurrent connections {of}.
    #[key("number", none = "any number", unit = "connections",
        read = |text| number(text, "connections"), only(Balancer))]
    connections: Option<NonZeroU32>,
    /// Limits the new streams and flows per second {of}.
    #[key("number", absent = "unlimited", unit = "streams", read = |text| number(text, "streams"))]
    new_per_second: Option<NonZeroU32>,
    /// Limits the number of TCP and UDP ports that the client publishes.
    #[key("number, `unlimited`", absent = "the ports of `allow.tcp` and `allow.udp`, at most 1024, or 64 of an unknown client",
        read = ports, only(Grant))]
    pub(crate) ports: Option<u32>,
    /// Limits the number of hosts that the client publishes.
    #[key("number", absent = "unlimited", read = |text| number(text, "hosts"), only(Grant))]
    pub(crate) hosts: Option<NonZeroU32>,
    /// Limits the concurrent UDP flows {of}, at each published port.
    #[key("number", absent = "16384", unit = "flows", read = |text| number(text, "flows"),
        only(Grant, Service, Balancer))]
    flows: Option<NonZeroU32>,
    /// Limits the rate from visitors to targets {of}.
    #[key("rate", absent = "unlimited", read = rate)]
    up: Option<NonZeroU64>,
    /// Limits the rate from targets to visitors {of}.
    #[key("rate", absent = "unlimited", read = rate)]
    down: Option<NonZeroU64>,
    /// Limits of each source, an IPv4 address or an IPv6 /64, in the streams {of}.
    #[key(map)]
    source: OfSource,
    /// Limits of the rates of each stream {of}.
    #[key(map)]
    stream: OfStream,
}

/// A section `limits.source`.
#[derive(Default, KeyTable)]
struct OfSource {
    /// Limits the UDP flows of each source at each published port {of}.
    #[key("number", absent = "4096 of a client, otherwise none", unit = "flows",
        read = |text| number(text, "flows"), only(Grant, Service, Balancer))]
    flows: Option<NonZeroU32>,
    /// Limits the concurrent streams and flows of each source {of}.
    #[key("number", absent = "unlimited", unit = "streams", read = |text| number(text, "streams"))]
    streams: Option<NonZeroU32>,
    /// Limits the new streams and flows per second of each source {of}.
    #[key("number", absent = "unlimited", unit = "streams", read = |text| number(text, "streams"))]
    new_per_second: Option<NonZeroU32>,
    /// Limits the HTTP requests per second of each source at each published name {of}.
    #[key("number", absent = "unlimited", unit = "requests", read = |text| number(text, "requests"),
        only(Service))]
    requests_per_second: Option<NonZeroU32>,
    /// Limits the rate from each source to targets {of}.
    #[key("rate", absent = "unlimited", read = rate)]
    up: Option<NonZeroU64>,
    /// Limits the rate from targets {of} to each source.
    #[key("rate", absent = "unlimited", read = rate)]
    down: Option<NonZeroU64>,
}

/// A section `limits.stream`.
#[derive(Default, KeyTable)]
struct OfStream {
    /// Limits the rate from visitor to target in each stream {of}.
    #[key("rate", absent = "unlimited", read = rate)]
    up: Option<NonZeroU64>,
    /// Limits the rate from target to visitor in each stream {of}.
    #[key("rate", absent = "unlimited", read = rate)]
    down: Option<NonZeroU64>,
}

impl Limited {
    /// The limits of streams.
    pub(crate) fn streams(&self) -> Limits {
        let Self { new_per_second, up, down, source, stream, .. } = self;
        let streams = self.streams.or(self.connections);
        let OfSource { streams: own, new_per_second: own_new, .. } = *source;
        Limits {
            all: Bounds { streams, new_per_second: *new_per_second, up: *up, down: *down },
            source: Bounds {
                streams: own,
                new_per_second: own_new,
                up: source.up,
                down: source.down,
            },
            stream: Bounds { up: stream.up, down: stream.down, ..Bounds::default() },
        }
    }

    /// The limit of HTTP requests per second of each source.
    pub(crate) const fn requests_per_second(&self) -> Option<NonZeroU32> {
        self.source.requests_per_second
    }

    /// The limits of flows.
    pub(crate) const fn flows(&self) -> FlowLimits {
        FlowLimits { most: self.flows, per_source: self.source.flows }
    }
}

/// Decodes `limits` where it stands as the key of a section that is read by hand.
pub(crate) fn limits<K: KeyTable>(s: &Section<'_>) -> Limited {
    s.map::<Limited>("limits", K::map("limits")).unwrap_or_default()
}

/// Parses a limit: a number of at least 1.
pub(crate) fn number(text: &str, what: &str) -> Result<NonZeroU32, BadValue> {
    let bad = |_| BadValue::new(format!("`{text}` is not a number of {what}"));
    text.parse::<NonZeroU32>().map_err(|why| bad(why).hint("1 or more"))
}

fn ports(text: &str) -> Result<u32, BadValue> {
    if text == "unlimited" {
        return Ok(u32::MAX);
    }
    let bad = |_| BadValue::new(format!("`{text}` is not a number of ports"));
    let limit = text.parse::<NonZeroU32>();
    limit.map(NonZeroU32::get).map_err(|why| bad(why).hint("1 or more, or `unlimited`"))
}

fn rate(text: &str) -> Result<NonZeroU64, BadValue> {
    let bytes = text.parse::<Rate>()?.bytes();
    NonZeroU64::new(bytes).ok_or_else(|| {
        BadValue::new("a rate of 0 lets no byte pass").hint("remove the key for no limit")
    })
}
