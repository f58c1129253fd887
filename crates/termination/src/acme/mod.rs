//! ACME (RFC 8555): orders for the names that services publish.

mod account;
mod common;
mod driver;
mod failure;
mod hook;
mod http;
mod order;
mod renewal;
mod visible;

use std::path::Path;
use std::sync::Arc;

use hyper::Uri;
use tls::{ClientConfig, MaterialError, Oldest, Trust};

use crate::settings::Acme;
use crate::store::Store;

/// A usable authority: its settings are checked, and its folder is open.
#[derive(Debug)]
pub(crate) struct Authority {
    pub(crate) acme: Acme,
    pub(crate) store: Store,
    tls: Arc<ClientConfig>,
}

impl Authority {
    /// Checks the settings and opens the folder. All problems are added to `problems`.
    pub(crate) fn prepare(
        acme: &Acme,
        state_dir: Option<&Path>,
        problems: &mut Vec<MaterialError>,
    ) -> Option<Self> {
        let before = problems.len();
        let uri = acme.directory.parse::<Uri>().ok();
        if uri.is_none_or(|uri| uri.scheme_str() != Some("https") || uri.host().is_none()) {
            problems.push(MaterialError::Setting(format!(
                "`{}` is not the URL of an ACME directory (hint: \
                 https://acme-v02.api.letsencrypt.org/directory)",
                crate::plain(&acme.directory)
            )));
        }
        let trust = acme.ca.clone().map_or(Trust::System, Trust::Authority);
        // The account signs each request, so TLS 1.2 is sufficient for an authority within a
        // company.
        let tls = tls::client_config_from(Oldest::Tls12, &trust, None, &[b"http/1.1"]);
        let tls = keep(tls, problems);
        if state_dir.is_none() {
            problems.push(MaterialError::Setting(
                "ACME keeps its account and its certificates in the state directory, and this \
                 server has none (hint: set `state_dir` or --state-dir)"
                    .into(),
            ));
        }
        if problems.len() > before {
            return None;
        }
        let store =
            keep(Store::open(state_dir?, &acme.directory, acme.account.as_deref()), problems)?;
        Some(Self { acme: acme.clone(), store, tls: tls? })
    }
}

impl Authority {
    /// Whether this account orders certificates for a name in normal form, or for a wildcard.
    pub(crate) fn orders(&self, host: &str) -> bool {
        let names = &self.acme.names;
        names.is_empty() || names.iter().any(|name| is_within(host, name))
    }
}

/// Whether `host` is `name`, or below the wildcard `name`.
fn is_within(host: &str, name: &str) -> bool {
    match name.strip_prefix('*') {
        Some(end) => host.len() > end.len() && host.ends_with(end),
        None => host == name,
    }
}

fn keep<T>(result: Result<T, MaterialError>, problems: &mut Vec<MaterialError>) -> Option<T> {
    result.map_err(|problem| problems.push(problem)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_of_an_account_takes_every_name_below() {
        for (host, name, is_it) in [
            ("a.example.com", "a.example.com", true),
            ("b.example.com", "a.example.com", false),
            ("a.example.com", "*.example.com", true),
            ("*.example.com", "*.example.com", true),
            ("a.b.example.com", "*.example.com", true),
            ("example.com", "*.example.com", false),
            ("evilexample.com", "*.example.com", false),
        ] {
            assert_eq!(is_within(host, name), is_it, "{host} {name}");
        }
    }
}
