//! The proof that a visitor must give: the token that the service has for it, or a certificate of
//! the authority that the service trusts.

use std::sync::Arc;

use ::link::GreetError;
use config::{ClientConfig, Demand};
use proto::greeting::{Name, Refusal, StoredCredential};
use tls::{PeerMaterial, Shown};

use super::proved::Proved;
use crate::home::Home;
use crate::visit::VisitKey;

/// The private service with its visitors.
fn private<'a>(config: &'a ClientConfig, service: &Name) -> Option<&'a config::Private> {
    let found = config.services.iter().find(|known| known.name == service.as_str());
    found.and_then(|found| found.private.as_ref())
}

/// Whether visitors of the service may be browsers, whose greeting is bound to no TLS.
pub(super) fn takes_browsers(config: &ClientConfig, service: &Name) -> bool {
    private(config, service).is_some_and(|private| private.browser)
}

/// Whether the service is private and names the visitor.
pub(super) fn may_visit(config: &ClientConfig, whose: &VisitKey) -> bool {
    let names = |visitor: &config::Visitor| visitor.name.has(whose.visitor.as_str());
    private(config, &whose.service).is_some_and(|private| private.visitors.iter().any(names))
}

/// The credentials of a visitor.
pub(super) fn credentials(config: &ClientConfig, whose: &VisitKey) -> Vec<StoredCredential> {
    let tokens = private(config, &whose.service).map(|own| own.tokens_of(whose.visitor.as_str()));
    let tokens = tokens.unwrap_or_default().iter();
    // The configuration has checked the tokens.
    tokens.filter_map(|token| StoredCredential::of(token.secret.reveal()).ok()).collect()
}

/// The certificates that the service requires of a visitor. `None`: it requires a token.
pub(super) fn material(
    shared: &Arc<dyn Home>,
    config: &ClientConfig,
    whose: &VisitKey,
) -> Option<Arc<PeerMaterial>> {
    match private(config, &whose.service)?.demand(whose.visitor.as_str()) {
        Demand::Certificate(tls) => shared.materials().of(tls),
        Demand::Tokens(_) | Demand::Nothing => None,
    }
}

/// Whether a link that began with this proof may stay.
pub(super) fn is_valid(
    shared: &Arc<dyn Home>,
    config: &ClientConfig,
    whose: &VisitKey,
    proved: &Proved,
) -> bool {
    may_visit(config, whose)
        && match proved {
            Proved::Token(token) => credentials(config, whose).contains(token),
            Proved::Certificate(shown) => material(shared, config, whose)
                .is_some_and(|own| own.verify(shown, whose.visitor.as_str()).is_ok()),
        }
}

/// Why a visitor is refused, for the log. The visitor gets fewer details.
pub(super) fn reason(
    error: &GreetError,
    shared: &Arc<dyn Home>,
    whose: &VisitKey,
    shown: &Shown,
) -> Option<String> {
    if error.refusal() == Some(Refusal::Denied) {
        return Some("it is a browser, which `browser: true` of the service permits".to_owned());
    }
    if error.refusal() != Some(Refusal::BadCredential) {
        return None;
    }
    let config = shared.config().load();
    if let Some(own) = material(shared, &config, whose) {
        let fault = own.verify(shown, whose.visitor.as_str()).err()?;
        return Some(fault.to_string());
    }
    Some(if credentials(&config, whose).is_empty() {
        "its entry in `visitors` has no token".to_owned()
    } else {
        "wrong token: `token` or `token_file` of its forward must be that of its entry in `visitors`"
            .to_owned()
    })
}
