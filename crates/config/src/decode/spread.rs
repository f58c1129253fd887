//! Several targets of one service: `target` as a list, and `balance`.

use proto::Balance;

use super::target::{Parse, Targets};
use crate::key_table::KeyTable as _;
use crate::model::{Spread, TARGETS_MAX, WEIGHT_MAX, Weighted};
use crate::section::{Item, Section};
use crate::yaml::Kind;
use crate::{BadValue, Over, Target};

/// The value of `target`: the first target, and the other targets with their weights.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) first: Targets,
    pub(super) weight: u16,
    pub(super) others: Vec<(Targets, u16)>,
}

impl From<Targets> for Listed {
    fn from(first: Targets) -> Self {
        Self { first, weight: 1, others: Vec::new() }
    }
}

impl Listed {
    /// The targets after the first, for visitors of this protocol.
    pub(super) fn spread(&self, balance: Balance, over: Over) -> Spread {
        let other = |(target, weight): &(Targets, u16)| Weighted {
            target: target.nth(0, over),
            weight: *weight,
        };
        Spread { balance, weight: self.weight, others: self.others.iter().map(other).collect() }
    }
}

/// Decodes a list of targets, each an address or `{ url, weight }`. `None` after a problem.
pub(super) fn listed(s: &Section<'_>, item: &Item, parse: Parse) -> Option<Listed> {
    let items = s.cx.list(item);
    let mut all = Vec::new();
    for item in &items {
        let entry = match item.node.kind {
            Kind::Scalar { .. } => Some((s.cx.value(item, parse), 1)),
            Kind::Map(_) | Kind::List(_) => {
                Section::open(s.cx, item.clone(), Weighted::MAP).map(|own| weighted(&own, parse))
            }
        };
        // A problem was reported.
        let Some((Some(target), weight)) = entry else { return None };
        all.push((target, weight));
    }
    if let Some(bad) = unfit(&all) {
        s.bad("target", bad);
        return None;
    }
    let mut all = all.into_iter();
    let (first, weight) = all.next()?;
    Some(Listed { first, weight, others: all.collect() })
}

fn weighted(own: &Section<'_>, parse: Parse) -> (Option<Targets>, u16) {
    let target = own.required("url", "for example tcp://127.0.0.1:22", parse);
    (target, own.value("weight", weight).unwrap_or(1))
}

fn weight(text: &str) -> Result<u16, BadValue> {
    text.parse().ok().filter(|weight| *weight <= WEIGHT_MAX).ok_or_else(|| {
        BadValue::new(format!("`{text}` is no weight"))
            .hint(format!("a number from 0 (no new visitors) to {WEIGHT_MAX}"))
    })
}

/// The error for an invalid list of targets.
fn unfit(all: &[(Targets, u16)]) -> Option<BadValue> {
    let Some((first, _)) = all.first() else {
        return Some(BadValue::new("a list without a target").hint("name a target"));
    };
    if all.len() > TARGETS_MAX {
        return Some(BadValue::new(format!("more than {TARGETS_MAX} targets")));
    }
    if all.iter().all(|(_, weight)| *weight == 0) {
        let bad = BadValue::new("every target has weight 0, so that no visitor is served");
        return Some(bad.hint("one target needs a weight of 1 or more"));
    }
    for (n, (target, _)) in all.iter().enumerate() {
        if target.width() > 0 {
            let bad = BadValue::new("a list of targets has no range of ports");
            return Some(bad.hint("name each target with one port"));
        }
        let over = Over::Tcp;
        let shown = |target: &Targets| target.nth(0, over).to_string();
        if all.iter().take(n).any(|(other, _)| shown(other) == shown(target)) {
            let bad = BadValue::new(format!("{} stands in the list twice", shown(target)));
            return Some(bad.hint("remove one of them, and give the other a `weight`"));
        }
        if class(target).is_none() && all.len() > 1 {
            let bad = BadValue::new(format!("{} stands in no list of targets", shown(target)));
            return Some(bad.hint("targets of a list are addresses that the client dials"));
        }
        if class(target) != class(first) {
            let bad = BadValue::new("the targets of a list are of different protocols");
            return Some(bad.hint("make them all tcp:// or unix://, udp://, https:// or h2c://"));
        }
    }
    None
}

/// The protocol spoken to a dialled target. Targets of one class can replace each other.
fn class(target: &Targets) -> Option<u8> {
    match target {
        Targets::Ports(Some(Over::Udp), ..) => Some(0),
        Targets::Ports(Some(Over::Tcp) | None, ..)
        | Targets::One(Target::Unix(_) | Target::Tcp { .. }) => Some(1),
        Targets::One(Target::Udp { .. }) => Some(0),
        Targets::One(Target::Https { .. }) => Some(2),
        Targets::One(Target::H2c { .. }) => Some(3),
        Targets::One(Target::Tls { .. }) => Some(4),
        Targets::One(
            Target::Socks5
            | Target::HttpProxy
            | Target::Files(_)
            | Target::Redirect(_)
            | Target::Private(_),
        ) => None,
    }
}

/// Reports `balance` where one target serves all visitors. `of`: the targets, if they were decoded.
/// `shared`: visitors are also distributed to several clients.
pub(super) fn fit(s: &Section<'_>, of: Option<&Listed>, shared: bool) {
    if !shared && of.is_some_and(|of| of.others.is_empty()) {
        let why = ": there is one target";
        s.no_effect("balance", why, "remove the key, or name several targets");
    }
}
