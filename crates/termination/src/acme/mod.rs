//! ACME (RFC 8555): orders for the names that services publish.

mod account;
mod driver;
mod failure;
mod http;
mod order;

use std::path::Path;
use std::sync::Arc;

use hyper::Uri;
use tls::{ClientConfig, MaterialError, Oldest, Trust};

use crate::settings::Acme;
use crate::store::Store;

/// An authority that can be asked: its settings are checked, and its folder is open.
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
        // The account signs each request, so TLS 1.2 of an authority within a company is enough.
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
        let store = keep(Store::open(state_dir?, &acme.directory), problems)?;
        Some(Self { acme: acme.clone(), store, tls: tls? })
    }
}

fn keep<T>(result: Result<T, MaterialError>, problems: &mut Vec<MaterialError>) -> Option<T> {
    result.map_err(|problem| problems.push(problem)).ok()
}
