//! The reason why an order failed, as text, and the scope of the failure.

use std::time::Duration;

use instant_acme::{Error, Problem};

use crate::ledger::Scope;
use crate::plain;

/// The pause after a rate limit error that names no pause.
const LIMITED: Duration = Duration::from_secs(3600);

/// A failed order.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) scope: Scope,
    /// The minimum pause until the next attempt.
    pub(super) pause: Option<Duration>,
    pub(super) cause: Cause,
    /// A sentence without control characters.
    pub(super) text: String,
}

/// Whether an order can be retried at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The authority rejected a nonce several times (RFC 8555 section 6.5).
    Nonce,
    /// The authority does not know the account.
    Account,
    /// The authority rejects an order that names the certificate it replaces, for example because
    /// another order has already replaced it (RFC 9773 section 5).
    Replaces,
    Other,
}

impl Failure {
    pub(super) fn new(scope: Scope, text: impl Into<String>) -> Self {
        Self { scope, pause: None, cause: Cause::Other, text: text.into() }
    }

    /// The failure of a file of this machine.
    pub(super) fn file(error: &tls::MaterialError) -> Self {
        Self::new(Scope::Authority, error.to_string())
    }

    /// The failure of a request. `doing` begins the sentence.
    pub(super) fn of(doing: &str, error: &Error) -> Self {
        if let Error::Api(problem) = error {
            return Self::refused(doing, problem);
        }
        let scope = if matches!(error, Error::Timeout(_)) { Scope::Name } else { Scope::Authority };
        let why = if let Error::Json(error) = error {
            format!(
                "the answer is no JSON of ACME ({error}); is `tls_routes.acme.directory` the URL of a directory?"
            )
        } else {
            error.to_string()
        };
        Self::new(scope, format!("{doing}: {}", plain(&why)))
    }

    fn refused(doing: &str, problem: &Problem) -> Self {
        let kind = kind(problem);
        let mut failure = Self::new(Scope::Name, format!("{doing}: {}", in_words(problem)));
        match kind {
            "badNonce" => failure.cause = Cause::Nonce,
            "accountDoesNotExist" => {
                (failure.cause, failure.scope) = (Cause::Account, Scope::Authority);
            }
            "rateLimited" => failure.pause = Some(LIMITED),
            "serverInternal" => failure.scope = Scope::Authority,
            // Maintenance has no type of its own.
            _ if problem.status.is_some_and(|status| status >= 500) => {
                failure.scope = Scope::Authority;
            }
            _ => {}
        }
        failure
    }
}

/// The type of a problem without the prefix of ACME.
fn kind(problem: &Problem) -> &str {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    kind.strip_prefix("urn:ietf:params:acme:error:").unwrap_or(kind)
}

/// The text of a problem, written by the authority.
pub(super) fn in_words(problem: &Problem) -> String {
    let detail = problem
        .detail
        .as_deref()
        .or_else(|| problem.subproblems.iter().find_map(|sub| sub.detail.as_deref()));
    let kind = plain(kind(problem));
    match detail {
        Some(detail) => format!("{} ({kind})", plain(detail)),
        None => format!("refused without a reason ({kind})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(json: &str) -> Failure {
        Failure::of("ordering", &Error::Api(serde_json::from_str(json).unwrap()))
    }

    #[test]
    fn the_type_decides_what_failed_and_for_how_long() {
        let of = |kind: &str| {
            refusal(&format!(r#"{{"type":"urn:ietf:params:acme:error:{kind}","detail":"d"}}"#))
        };
        let failure = of("rejectedIdentifier");
        assert_eq!((failure.scope, failure.pause), (Scope::Name, None));
        assert_eq!(failure.text, "ordering: d (rejectedIdentifier)");
        assert_eq!(of("rateLimited").pause, Some(LIMITED));
        assert_eq!(of("rateLimited").scope, Scope::Name);
        assert_eq!(of("serverInternal").scope, Scope::Authority);
        assert_eq!(of("badNonce").cause, Cause::Nonce);
        assert_eq!(of("accountDoesNotExist").cause, Cause::Account);
        assert_eq!(refusal(r#"{"status":503,"detail":"later"}"#).scope, Scope::Authority);
        let wait = Failure::of("checking", &Error::Timeout(None));
        assert_eq!(wait.scope, Scope::Name);
    }

    #[test]
    fn the_authority_writes_no_line_and_no_novel_into_the_log() {
        let long = "x".repeat(5000);
        let json = format!(r#"{{"type":"a\u001b[2J","detail":"one\ntwo\u202e{long}"}}"#);
        let text = refusal(&json).text;
        assert!(text.starts_with(r"ordering: one\ntwo\u{202e}xxx"), "{text}");
        assert!(text.len() < 400 && !text.chars().any(char::is_control), "{text}");
    }
}
