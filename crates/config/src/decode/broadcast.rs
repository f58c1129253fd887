//! `broadcast`: datagrams to an address of many machines, for which the system requires consent,
//! and targets for which consent does not help.

use std::iter;
use std::net::IpAddr;

use super::spread::Listed;
use super::target::Targets;
use crate::model::Public;
use crate::section::Section;
use crate::{BadValue, Over, Target, values};

/// The key.
const BROADCAST: &str = "broadcast";

/// An address of many machines, as far as the address alone shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Many {
    /// All machines of a network: 255.255.255.255. The broadcast address of a network looks like
    /// any other address.
    All(IpAddr),
    /// A group (multicast).
    Group(IpAddr),
}

impl Many {
    fn of(target: &Targets) -> Option<Self> {
        let host = match target {
            Targets::Ports(_, host, ..) => host,
            Targets::One(target) => target.port()?.0,
        };
        let ip = host.ip()?.to_canonical();
        match ip {
            IpAddr::V4(v4) if v4.is_broadcast() => Some(Self::All(ip)),
            IpAddr::V4(_) | IpAddr::V6(_) => ip.is_multicast().then_some(Self::Group(ip)),
        }
    }

    const fn ip(self) -> IpAddr {
        match self {
            Self::All(ip) | Self::Group(ip) => ip,
        }
    }

    const fn what(self) -> &'static str {
        match self {
            Self::All(_) => "the broadcast address",
            Self::Group(_) => "a group of machines (multicast)",
        }
    }
}

/// Decodes `broadcast` of a service. `public` is empty for a private service, whose visitors have
/// the protocol of its target; `None` after a problem.
pub(super) fn of_service(
    s: &Section<'_>,
    targets: Option<&Listed>,
    public: Option<&[Public]>,
) -> bool {
    let (Some(targets), Some(public)) = (targets, public) else { return false };
    let over = match public {
        [] => vec![targets.first.over(&[])],
        _ => public.iter().map(Public::over).collect(),
    };
    broadcast(s, targets, &over)
}

/// Decodes `broadcast`, and reports targets that are never reached. `over` has the protocols of the
/// visitors.
pub(super) fn broadcast(s: &Section<'_>, targets: &Listed, over: &[Over]) -> bool {
    let permits = s.value(BROADCAST, values::switch).unwrap_or(false);
    if permits && !over.contains(&Over::Udp) {
        let hint = "remove the key: a connection leads to one machine";
        s.no_effect(BROADCAST, ": no visitor comes over UDP", hint);
        return false;
    }
    let all = iter::once(&targets.first).chain(targets.others.iter().map(|(target, _)| target));
    for many in all.filter_map(Many::of) {
        let (ip, what) = (many.ip(), many.what());
        if over.contains(&Over::Tcp) {
            let bad = BadValue::new(format!("no connection leads to {ip}, {what}"));
            s.bad("target", bad.hint("datagrams do: write udp:// for the visitors and the target"));
            return permits;
        }
        match many {
            _ if permits => {}
            Many::All(_) => {
                let bad =
                    BadValue::new(format!("{ip} is {what}: nothing is sent there by default"));
                s.bad("target", bad.hint("`broadcast: true` beside the target permits it"));
            }
            Many::Group(_) => {
                let bad = BadValue::new(format!("{ip} is {what}, whose answers are dropped"));
                let bad = bad.hint(
                    "`broadcast: true` beside the target takes the answers of each machine; \
                     datagrams go to the nearest network alone (TTL 1)",
                );
                s.warn("target", bad);
            }
        }
    }
    permits
}

/// The error of a forward: a server permits no client to broadcast.
pub(super) fn of_forward(target: &Target, over: Over) -> Option<BadValue> {
    let host = target.port()?.0.clone();
    let many = Many::of(&Targets::Ports(None, host, 1, 1))?;
    let (ip, what) = (many.ip(), many.what());
    match (over, many) {
        (Over::Tcp, _) => Some(BadValue::new(format!("no connection leads to {ip}, {what}"))),
        (Over::Udp, Many::All(_)) => {
            let bad = BadValue::new(format!("{ip} is {what}, and a server sends nothing there"));
            Some(bad.hint("a private service of a client in that network, with `broadcast: true`"))
        }
        (Over::Udp, Many::Group(_)) => None,
    }
}
