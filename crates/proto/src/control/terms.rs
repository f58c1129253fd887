//! The terms of a service: what its client decides about the streams and flows of its visitors, for
//! both ends of the tunnel. The terms are passed as one value: the client registers them, an
//! entrance stores them, and a stream or flow obeys them until it ends. So an option that is added
//! to [`ServiceTerms`] and to its fields on the wire, both in this file, is available wherever it
//! is needed.
//!
//! Options that concern only the client's own target (its address, health, the PROXY protocol) are
//! not terms.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, BytesMut};

use super::decode::{ControlError, once};
use super::message::{self, service};
use super::{EncodeError, TEXT_MAX, VISITORS_MAX};
use crate::greeting::Name;
use crate::wire::{Reader, put_tlv};
use crate::{
    Balance, Dscp, HttpOptions, NETWORKS_MAX, NamePattern, Network, Networks, Priority, Visitors,
};

/// What a client decides about the visitors of a service. The default is that of a service without
/// options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceTerms {
    /// Priority class of the service's streams.
    pub priority: Priority,
    /// Other clients that also share may publish at the same addresses, and this rule distributes
    /// the visitors among them. A server without [`Features::SHARED`] would give the addresses to
    /// one client. `None`: the service does not share its addresses.
    ///
    /// [`Features::SHARED`]: crate::greeting::Features::SHARED
    pub shared: Option<Balance>,
    /// Streams of the service survive the loss of a carrier.
    pub resume: bool,
    /// The service is temporary: the server does not remember its names while the client is
    /// disconnected. An older server remembers none.
    pub ephemeral: bool,
    /// The visitors that are admitted. A server without [`Features::VISITORS`] would admit
    /// everybody.
    ///
    /// [`Features::VISITORS`]: crate::greeting::Features::VISITORS
    pub visitors: Visitors,
    /// How the server handles HTTP requests, for a service that is published by HTTP name.
    pub http: HttpOptions,
    /// The timeouts of its streams.
    pub timeouts: Timeouts,
    /// The idle timeouts of its flows.
    pub flows: FlowTimes,
    /// The clients that may visit a private service, which has no public address. `None`: the
    /// service is not private. A server without [`Features::PRIVATE`] serves no such service.
    ///
    /// [`Features::PRIVATE`]: crate::greeting::Features::PRIVATE
    pub private: Option<Arc<[NamePattern]>>,
    /// The DSCP of the packets to its visitors and to its target. An older server marks no packet.
    pub dscp: Dscp,
}

impl Default for ServiceTerms {
    fn default() -> Self {
        Self {
            priority: Priority::default(),
            shared: None,
            resume: true,
            ephemeral: false,
            visitors: Visitors::default(),
            http: HttpOptions::default(),
            timeouts: Timeouts::default(),
            flows: FlowTimes::default(),
            private: None,
            dscp: Dscp::default(),
        }
    }
}

/// The timeouts of a stream. Zero disables a timeout, except for `dial`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For queueing of the dial, name resolution and connecting together.
    pub dial: Duration,
    /// For a stream without traffic in either direction. Disabled by default, because an idle shell
    /// is not an error.
    pub idle: Duration,
    /// For a stream without traffic after one direction has ended.
    pub half_close: Duration,
    /// For the total lifetime of a stream, from its connection on. Disabled by default.
    pub total: Duration,
    /// For the rest of a stream after one direction has ended, with or without traffic. Disabled by
    /// default.
    pub flush: Duration,
    /// For a stream without traffic from the visitor, whatever the target sends, as long as the
    /// visitor's direction is open. Disabled by default.
    pub idle_up: Duration,
    /// For a stream without traffic from the target, whatever the visitor sends, as long as the
    /// target's direction is open. Disabled by default.
    pub idle_down: Duration,
    /// The idle time after which the kernel probes the far end of a TCP socket, in whole seconds up
    /// to [`TCP_KEEPALIVE_MAX`]. It is not a timeout of the stream: a far end that answers may stay
    /// idle.
    pub keepalive: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            // The time covers three SYN retransmissions (after 1, 2 and 4 s) and the reply to the
            // last (RFC 6298).
            dial: Duration::from_secs(10),
            idle: Duration::ZERO,
            // Longer than an application takes for its last response, and short enough that
            // abandoned half-closed sockets do not fill the descriptor table.
            half_close: Duration::from_secs(60),
            total: Duration::ZERO,
            flush: Duration::ZERO,
            idle_up: Duration::ZERO,
            idle_down: Duration::ZERO,
            // A far end that has vanished is detected within 5 min (`net::options::KeepAlive`).
            keepalive: Duration::from_secs(120),
        }
    }
}

/// The largest [`Timeouts::keepalive`] in seconds (tcp(7), `TCP_KEEPIDLE`).
pub const TCP_KEEPALIVE_MAX: u32 = 32_767;

/// The longest timeout that a peer can request, in milliseconds: ten years. A sum with the current
/// time cannot overflow.
const TIMEOUT_MAX: u64 = 10 * 366 * 86_400 * 1000;

/// The times after which an idle flow of a service ends (RFC 4787 section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowTimes {
    /// Until the target has replied, in seconds.
    pub unanswered: u32,
    /// From the first reply on, in seconds.
    pub answered: u32,
}

impl Default for FlowTimes {
    /// 30 s and 120 s.
    fn default() -> Self {
        Self { unanswered: 30, answered: 120 }
    }
}

impl ServiceTerms {
    /// Refuses terms that every peer would reject.
    pub(super) fn check(&self, name: &Name) -> Result<(), EncodeError> {
        let name = || name.clone();
        let long = lists(&self.visitors).find(|(_, list)| list.len() > NETWORKS_MAX);
        if let Some((_, list)) = long {
            return Err(EncodeError::Networks { name: name(), count: list.len() });
        }
        if let Some(count) = self.private.as_ref().map(|list| list.len())
            && count > VISITORS_MAX
        {
            return Err(EncodeError::Visitors { name: name(), count });
        }
        self.http.check().map_err(|why| EncodeError::Http { name: name(), why })
    }

    /// Appends the fields of the service whose values are not the default.
    pub(super) fn put(&self, out: &mut BytesMut) {
        let Self { priority, shared, resume, ephemeral, visitors, http, timeouts, .. } = self;
        let Self { flows, private, dscp, .. } = self;
        put_tlv(out, service::PRIORITY, |out| out.put_u8(message::priority_raw(*priority)));
        if let Some(rule) = shared.filter(|rule| *rule != Balance::default()) {
            put_tlv(out, service::SHARING, |out| out.put_u8(rule.number()));
        }
        let shared = if shared.is_some() { service::FLAG_SHARED } else { 0 };
        let resume = if *resume { service::FLAG_RESUME } else { 0 };
        let ephemeral = if *ephemeral { service::FLAG_EPHEMERAL } else { 0 };
        put_tlv(out, service::FLAGS, |out| out.put_u8(shared | resume | ephemeral));
        for (kind, list) in lists(visitors) {
            put_tlv(out, kind, |out| list.iter().for_each(|network| put_network(network, out)));
        }
        http.put(out);
        if let Some(patterns) = private {
            put_tlv(out, service::VISITORS, |out| {
                for pattern in &**patterns {
                    // A pattern has at most 65 bytes.
                    out.put_u8(u8::try_from(pattern.as_str().len()).unwrap_or(u8::MAX));
                    out.put_slice(pattern.as_str().as_bytes());
                }
            });
        }
        if !dscp.is_default() {
            put_tlv(out, service::DSCP, |out| out.put_u8(dscp.number()));
        }
        if *flows != FlowTimes::default() {
            put_tlv(out, service::FLOWS, |out| {
                out.put_u32(flows.unanswered);
                out.put_u32(flows.answered);
            });
        }
        let (mut timeouts, mut default) = (*timeouts, Timeouts::default());
        if timeouts.keepalive != default.keepalive {
            let seconds = u32::try_from(timeouts.keepalive.as_secs()).unwrap_or(u32::MAX);
            put_tlv(out, service::KEEPALIVE, |out| out.put_u32(seconds));
        }
        if timeouts.fields() != default.fields() {
            put_tlv(out, service::TIMEOUTS, |out| {
                for time in timeouts.fields() {
                    out.put_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
                }
            });
        }
    }

    /// The number of bytes that [`Self::put`] appends.
    pub(super) fn encoded_len(&self) -> usize {
        let mut out = BytesMut::new();
        self.put(&mut out);
        out.len()
    }
}

impl Timeouts {
    /// The timeouts of an end that leaves their enforcement to the other end of a stream.
    #[must_use]
    pub const fn without_limits(self) -> Self {
        let Self { dial, keepalive, .. } = self;
        let never = Duration::ZERO;
        Self {
            dial,
            idle: never,
            half_close: never,
            total: never,
            flush: never,
            idle_up: never,
            idle_down: never,
            keepalive,
        }
    }

    /// The timeouts that are encoded together, in wire order. A new field is appended; a peer that
    /// does not know it ignores it, and a field that is not sent has its default.
    const fn fields(&mut self) -> [&mut Duration; 7] {
        // The keepalive is older than this list and has its own field.
        let Self { dial, idle, half_close, total, flush, idle_up, idle_down, keepalive: _ } = self;
        [dial, idle, half_close, total, flush, idle_up, idle_down]
    }

    fn decode(mut value: Reader<'_>) -> Result<Self, ControlError> {
        let mut timeouts = Self::default();
        for time in timeouts.fields() {
            if value.is_empty() {
                break;
            }
            *time = Duration::from_millis(value.u64()?.min(TIMEOUT_MAX));
        }
        Ok(timeouts)
    }
}

/// The fields of the terms that have been decoded so far.
#[derive(Debug, Default)]
pub(super) struct Reading {
    priority: Option<Priority>,
    flags: Option<u8>,
    sharing: Option<Balance>,
    allow_from: Option<Networks>,
    deny_from: Option<Networks>,
    http: Option<HttpOptions>,
    timeouts: Option<Timeouts>,
    keepalive: Option<u32>,
    flows: Option<FlowTimes>,
    private: Option<Arc<[NamePattern]>>,
    dscp: Option<Dscp>,
}

impl Reading {
    /// Decodes a field of a service. Unknown fields belong to a newer peer.
    pub(super) fn field(&mut self, kind: u8, mut value: Reader<'_>) -> Result<(), ControlError> {
        match kind {
            service::PRIORITY => {
                once(&mut self.priority, message::priority_from_raw(value.u8()?))?;
                Ok(value.finish()?)
            }
            service::FLAGS => {
                once(&mut self.flags, value.u8()?)?;
                Ok(value.finish()?)
            }
            service::SHARING => {
                once(&mut self.sharing, Balance::of_number(value.u8()?))?;
                Ok(value.finish()?)
            }
            service::ALLOW_FROM => once(&mut self.allow_from, networks(value)?),
            service::DENY_FROM => once(&mut self.deny_from, networks(value)?),
            service::HTTP => once(&mut self.http, HttpOptions::decode(value)?),
            service::FLOWS => {
                let (unanswered, answered) = (value.u32()?, value.u32()?);
                once(&mut self.flows, FlowTimes { unanswered, answered })
            }
            service::KEEPALIVE => once(&mut self.keepalive, value.u32()?.min(TCP_KEEPALIVE_MAX)),
            service::TIMEOUTS => once(&mut self.timeouts, Timeouts::decode(value)?),
            service::VISITORS => once(&mut self.private, patterns(value)?),
            service::DSCP => {
                let dscp = Dscp::new(value.u8()?);
                once(&mut self.dscp, dscp.ok_or(ControlError::Malformed("a DSCP above 63"))?)?;
                Ok(value.finish()?)
            }
            _ => Ok(()),
        }
    }

    /// The terms; absent fields have their defaults.
    pub(super) fn finish(self) -> ServiceTerms {
        let flags = self.flags.unwrap_or(service::FLAG_RESUME);
        let mut timeouts = self.timeouts.unwrap_or_default();
        if let Some(seconds) = self.keepalive {
            timeouts.keepalive = Duration::from_secs(seconds.into());
        }
        let deny_from = self.deny_from.unwrap_or_default();
        ServiceTerms {
            priority: self.priority.unwrap_or_default(),
            shared: (flags & service::FLAG_SHARED != 0).then(|| self.sharing.unwrap_or_default()),
            resume: flags & service::FLAG_RESUME != 0,
            ephemeral: flags & service::FLAG_EPHEMERAL != 0,
            visitors: Visitors { allow_from: self.allow_from, deny_from },
            http: self.http.unwrap_or_default(),
            timeouts,
            flows: self.flows.unwrap_or_default(),
            private: self.private,
            dscp: self.dscp.unwrap_or_default(),
        }
    }
}

/// The lists that are sent, with the kinds of their fields. An absent `allow_from` admits
/// everybody, and an empty `allow_from` nobody; an absent and an empty `deny_from` are equivalent.
fn lists(visitors: &Visitors) -> impl Iterator<Item = (u8, &[Network])> {
    let allow = visitors.allow_from.as_deref().map(|list| (service::ALLOW_FROM, list));
    let deny =
        (!visitors.deny_from.is_empty()).then_some((service::DENY_FROM, &*visitors.deny_from));
    allow.into_iter().chain(deny)
}

fn patterns(mut value: Reader<'_>) -> Result<Arc<[NamePattern]>, ControlError> {
    let mut patterns = Vec::new();
    while !value.is_empty() {
        if patterns.len() == VISITORS_MAX {
            return Err(ControlError::Malformed("too many visitors of one service"));
        }
        let length = usize::from(value.u8()?);
        let text = Reader::new(value.take(length)?).text(TEXT_MAX)?;
        let pattern = NamePattern::new(text);
        let pattern = pattern.map_err(|_| ControlError::Malformed("a visitor is not a name"))?;
        patterns.push(pattern);
    }
    Ok(patterns.into())
}

fn put_network(network: &Network, out: &mut BytesMut) {
    out.put_u8(message::ip_version(network.ip()));
    out.put_u8(network.prefix());
    match network.ip() {
        IpAddr::V4(ip) => out.put_slice(&ip.octets()),
        IpAddr::V6(ip) => out.put_slice(&ip.octets()),
    }
}

fn networks(mut value: Reader<'_>) -> Result<Networks, ControlError> {
    let mut networks = Vec::new();
    while !value.is_empty() {
        if networks.len() == NETWORKS_MAX {
            return Err(ControlError::Malformed("too many networks in a list of one service"));
        }
        let (version, prefix) = (value.u8()?, value.u8()?);
        let ip = match version {
            4 => IpAddr::V4(Ipv4Addr::from(value.array::<4>()?)),
            6 => IpAddr::V6(Ipv6Addr::from(value.array::<16>()?)),
            // A partially decoded list would admit the wrong visitors.
            _ => return Err(ControlError::Malformed("a network of an unknown version of IP")),
        };
        let network = Network::new(ip, prefix);
        networks.push(network.ok_or(ControlError::Malformed("a prefix beyond its address"))?);
    }
    Ok(networks.into())
}
