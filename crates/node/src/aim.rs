//! The aim of an entrance: the service or target of its visitors, and the terms that apply to them.

use std::net::SocketAddr;
use std::sync::Arc;

use config::Secret;
use proto::control::ServiceTerms;
use proto::{Hop, Sticky, Target};
use relay::{Credentials, ProxyKind};
use web::Sender;

use crate::accept::lists;

/// The target of streams, and their terms.
#[derive(Debug)]
pub struct Aim {
    /// The name in logs and status.
    pub name: String,
    /// The service or address that the far side dials.
    pub target: Target,
    /// The terms that apply to its visitors.
    pub terms: ServiceTerms,
    /// The HTTP options in the form that the proxy needs, for visitors that arrive by a name.
    pub rules: Option<Arc<web::Rules>>,
    /// Set if the visitors name the target themselves. Then the target of the aim is empty.
    pub proxy: Option<Arc<ProxyTerms>>,
}

impl Aim {
    /// Whether a visitor admitted under this aim would be admitted in the same way under `other`.
    /// The HTTP rules follow from the terms.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        let has_proxy = self.proxy.is_some() || other.proxy.is_some();
        !has_proxy
            && (&self.name, &self.terms) == (&other.name, &other.terms)
            && self.leads_as(other)
    }

    /// Whether both lead to the same service. A client that is found at another node of the cluster
    /// has the same services there.
    fn leads_as(&self, other: &Self) -> bool {
        match (&self.target, &other.target) {
            (Target::Hop(hop), Target::Hop(other)) => {
                (&hop.client, &hop.service) == (&other.client, &other.service)
            }
            (target, other) => target == other,
        }
    }

    /// The target of a stream over a link of the session. The links to a private service of another
    /// client are links to that client.
    pub fn opens(&self) -> Target {
        match &self.target {
            Target::Private { service, .. } => Target::Service(service.as_str().to_owned()),
            Target::Service(_)
            | Target::Marked { .. }
            | Target::Forward(_)
            | Target::Reported(_)
            | Target::Detour(_)
            | Target::Hop(_)
            | Target::Ask(_)
            | Target::Measure(_) => self.target.clone(),
        }
    }

    /// The target of a request over a link of the session, whose visitor is bound to the target
    /// with this mark, and whether the client reports the mark of its target.
    pub(crate) fn opens_at(&self, mark: u64) -> (Target, bool) {
        let target = self.opens();
        let is_marked = self.terms.http.sticky == Sticky::Target;
        if let (Target::Service(service), true) = (&target, is_marked) {
            return (Target::Marked { service: service.clone(), mark }, true);
        }
        if let (Target::Hop(hop), true) = (&target, is_marked) {
            return (Target::Hop(Hop { mark: Some(mark), ..hop.clone() }), true);
        }
        (target, false)
    }

    /// Whether the lists let a visitor visit.
    pub fn permits(&self, visitor: Option<SocketAddr>) -> bool {
        lists::permit(&self.terms.visitors, visitor)
    }

    /// Whether the visitor of a request may visit. A visitor whose address a reverse proxy hides or
    /// whose header fields contradict each other may visit only where every visitor may.
    pub fn permits_sender(&self, sender: Sender) -> bool {
        match sender {
            Sender::Known(_) | Sender::Proxy(_) | Sender::Nameless => {
                self.permits(sender.address())
            }
            Sender::Hidden | Sender::Disputed => lists::are_open(&self.terms.visitors),
        }
    }
}

impl PartialEq for Aim {
    fn eq(&self, other: &Self) -> bool {
        // The rules are derived from the terms.
        let Self { name, target, terms, rules: _, proxy } = self;
        let of_other = (&other.name, &other.target, &other.terms, &other.proxy);
        (name, target, terms, proxy) == of_other
    }
}

/// A forward whose visitors name their targets.
#[derive(Debug, PartialEq, Eq)]
pub struct ProxyTerms {
    pub kind: ProxyKind,
    /// Pairs `user:password`, of which a visitor must present one; empty: no authentication.
    pub users: Vec<Secret>,
}

impl ProxyTerms {
    /// The users in the form that the proxy needs.
    pub fn credentials(&self) -> Option<Credentials> {
        credentials(&self.users)
    }
}

/// The credentials of pairs `user:password`, which the configuration has checked.
pub fn credentials(pairs: &[Secret]) -> Option<Credentials> {
    Credentials::any_of(pairs.iter().filter_map(|pair| pair.reveal().split_once(':')))
}

#[cfg(test)]
mod tests {
    use proto::{Network, Visitors};

    use super::*;

    #[test]
    fn an_aim_is_as_another_one_with_the_same_target_and_terms() {
        let aim = |name: &str, service: &str, terms: ServiceTerms| {
            let (name, target) = (name.to_owned(), Target::Service(service.into()));
            Aim { name, target, terms, rules: None, proxy: None }
        };
        let own = aim("web", "web", ServiceTerms::default());
        assert!(own.is_as(&aim("web", "web", ServiceTerms::default())));
        assert!(!own.is_as(&aim("web", "files", ServiceTerms::default())));
        let deny_from = [Network::new([203, 0, 113, 0].into(), 24).unwrap()].into();
        let visitors = Visitors { deny_from, ..Visitors::default() };
        let terms = ServiceTerms { visitors, ..ServiceTerms::default() };
        assert!(!own.is_as(&aim("web", "web", terms)));
    }

    #[test]
    fn a_visitor_without_a_certain_address_visits_only_what_is_open_to_all() {
        let network = || [Network::new([203, 0, 113, 0].into(), 24).unwrap()].into();
        let may = |visitors: Visitors, sender| {
            let terms = ServiceTerms { visitors, ..ServiceTerms::default() };
            let (name, target) = (String::new(), Target::Service("web".into()));
            Aim { name, target, terms, rules: None, proxy: None }.permits_sender(sender)
        };
        let open = Visitors::default;
        let allow = || Visitors { allow_from: Some(network()), ..Visitors::default() };
        let deny = || Visitors { deny_from: network(), ..Visitors::default() };
        let at = |address: &str| Sender::Known(address.parse().unwrap());
        let (inside, outside) = (at("203.0.113.9:0"), at("[::ffff:198.51.100.1]:0"));
        for (sender, allowed, not_denied) in [
            (inside, true, false),
            (outside, false, true),
            (Sender::Proxy("10.0.0.1:80".parse().unwrap()), false, true),
            (Sender::Hidden, false, false),
            (Sender::Disputed, false, false),
            (Sender::Nameless, true, true),
        ] {
            assert!(may(open(), sender), "{sender:?}");
            assert_eq!(may(allow(), sender), allowed, "{sender:?}");
            assert_eq!(may(deny(), sender), not_denied, "{sender:?}");
        }
    }
}
