//! Renewal information (RFC 9773): the authority suggests when a certificate is renewed, and moves
//! the time when it has to revoke certificates or wants to spread its load.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use hyper::header::RETRY_AFTER;
use instant_acme::CertificateIdentifier;
use rustls::pki_types::Der;
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::Authority;
use super::http::{get, pause_in};
use crate::certificates::Shown;
use crate::plain;

/// The pause after a response that names none, and after an error that is permanent for this
/// certificate (section 4.3.3).
const PAUSE: Duration = Duration::from_secs(6 * 3600);

/// The authority's information about one certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Suggestion {
    /// The time of the renewal, in seconds of the wall clock; `None`: the authority names none.
    pub(super) at: Option<u64>,
    /// The pause until the next query.
    pub(super) pause: Duration,
}

/// The required part of a directory (section 3).
#[derive(Deserialize)]
struct Directory {
    #[serde(rename = "renewalInfo")]
    renewal_info: Option<String>,
}

/// A response (section 4.2).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Information {
    suggested_window: Window,
    #[serde(rename = "explanationURL")]
    explanation: Option<String>,
}

#[derive(Deserialize)]
struct Window {
    start: String,
    end: String,
}

/// The URL for queries, if the authority has one.
pub(super) async fn address(authority: &Authority) -> Result<Option<String>, String> {
    let answer = get(authority.tls.clone(), &authority.acme.directory).await?;
    let directory: Directory = serde_json::from_slice(answer.body())
        .map_err(|error| format!("its directory cannot be read: {error}"))?;
    Ok(directory.renewal_info)
}

/// The identifier of a certificate in queries and in orders that replace it (section 4.1).
pub(super) fn identifier(shown: &Shown) -> Option<CertificateIdentifier<'static>> {
    let (authority, serial) = tls::issuer_and_serial(shown.key.cert.first()?)?;
    Some(CertificateIdentifier::new(Der::from(authority), Der::from(serial)))
}

/// Queries the renewal window of a certificate. `before` is the second that was chosen from an
/// earlier window; it is kept if the new window contains it.
///
/// # Errors
/// The authority did not respond.
pub(super) async fn ask(
    authority: &Authority,
    url: &str,
    shown: &Shown,
    before: Option<u64>,
) -> Result<Suggestion, String> {
    let none = Suggestion { at: None, pause: PAUSE };
    let Some(identifier) = identifier(shown) else { return Ok(none) };
    let answer = get(authority.tls.clone(), &format!("{url}/{identifier}")).await?;
    let status = answer.status();
    if status.is_server_error() {
        return Err(format!("the answer has status {status}"));
    }
    let asked = answer.headers().get(RETRY_AFTER).and_then(pause_in);
    let pause = asked.map_or(PAUSE, Duration::from_secs);
    if !status.is_success() {
        return Ok(none);
    }
    let read: Information = serde_json::from_slice(answer.body())
        .map_err(|error| format!("the answer is no renewal information: {error}"))?;
    let window = &read.suggested_window;
    let (Some(start), Some(end)) = (second(&window.start), second(&window.end)) else {
        return Err("the answer has no window of two times".into());
    };
    // A window that ends before it begins is invalid (section 4.2).
    if end <= start {
        return Ok(none);
    }
    let at = before.filter(|at| (start..=end).contains(at));
    // `RandomState` has new random keys each time.
    let random = RandomState::new().hash_one(0_u8);
    let at = at.unwrap_or_else(|| start + random % (end - start)).min(last(shown));
    if before != Some(at) && at < shown.renewal() {
        let why = read.explanation.map_or_else(String::new, |url| format!(" ({})", plain(&url)));
        tracing::info!("the certificate authority asks for an early renewal{why}");
    }
    Ok(Suggestion { at: Some(at), pause })
}

/// The latest renewal time of a certificate: a tenth of its life is left for failures.
const fn last(shown: &Shown) -> u64 {
    shown.ends.saturating_sub(shown.ends.saturating_sub(shown.begins) / 10)
}

/// The second since 1970 of a time of RFC 3339.
fn second(text: &str) -> Option<u64> {
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    u64::try_from(time.unix_timestamp()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_rfc_3339_are_read_and_others_are_not() {
        assert_eq!(second("1970-01-02T00:00:00Z"), Some(86_400));
        assert_eq!(second("2025-01-02T04:00:00+04:00"), second("2025-01-02T00:00:00.25Z"));
        for bad in ["", "2025-01-02", "2025-01-02 00:00", "soon", "1960-01-02T00:00:00Z"] {
            assert_eq!(second(bad), None, "{bad}");
        }
    }
}
