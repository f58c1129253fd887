//! The aim of an entrance: the service or the target of its visitors, and what holds for them.

use std::net::SocketAddr;
use std::sync::Arc;

use config::Secret;
use proto::Target;
use proto::control::ServiceTerms;
use relay::{Credentials, ProxyKind};

/// Where streams lead, and on which terms.
#[derive(Debug)]
pub(crate) struct Aim {
    /// The name in logs and status.
    pub(crate) name: String,
    /// The service or address that the far side dials.
    pub(crate) target: Target,
    /// What holds for its visitors.
    pub(crate) terms: ServiceTerms,
    /// The options of HTTP in the form that the proxy needs, where visitors come by a name.
    pub(crate) rules: Option<Arc<web::Rules>>,
    /// The visitors name the target themselves, and the target of the aim is empty.
    pub(crate) proxy: Option<Arc<ProxyTerms>>,
}

impl Aim {
    /// Whether a visitor may visit. A visitor without an address came over a Unix socket, whose
    /// permissions decide.
    pub(crate) fn permits(&self, visitor: Option<SocketAddr>) -> bool {
        visitor.is_none_or(|visitor| self.terms.visitors.permit(visitor.ip()))
    }
}

impl PartialEq for Aim {
    fn eq(&self, other: &Self) -> bool {
        // The rules are another form of the terms.
        let Self { name, target, terms, rules: _, proxy } = self;
        let of_other = (&other.name, &other.target, &other.terms, &other.proxy);
        (name, target, terms, proxy) == of_other
    }
}

/// A forward whose visitors name their targets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ProxyTerms {
    pub(crate) kind: ProxyKind,
    /// Pairs `user:password`, one of which a visitor has to know; empty asks for none.
    pub(crate) users: Vec<Secret>,
}

impl ProxyTerms {
    /// The users in the form that the proxy needs.
    pub(crate) fn credentials(&self) -> Option<Credentials> {
        credentials(&self.users)
    }
}

/// The credentials of pairs `user:password`, which the configuration has checked.
pub(crate) fn credentials(pairs: &[Secret]) -> Option<Credentials> {
    Credentials::any_of(pairs.iter().filter_map(|pair| pair.reveal().split_once(':')))
}
