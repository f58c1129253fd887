//! TLS that ends at the server: its settings, and its driver.

use std::path::Path;
use std::sync::Arc;

use config::{ServerConfig, TlsVersion};
use termination::{Acme, Doors, Files, MinVersion, Settings, Terminator};
use tokio::task::JoinSet;

/// The terminator of a server that has a door for TLS.
pub(in crate::server) fn terminator(
    config: &ServerConfig,
    state: Option<&Path>,
) -> anyhow::Result<Option<Arc<Terminator>>> {
    let has_door = !config.tls_routes.listen.is_empty() || has_mux(config);
    Ok(has_door.then(|| Terminator::new(&settings(config, state))).transpose()?)
}

fn has_mux(config: &ServerConfig) -> bool {
    config.listen.iter().any(|listen| listen.mux.is_some())
}

/// Orders certificates as long as the result lives. The caller is on the slow runtime: orders read
/// and write files.
pub(in crate::server) fn drive(terminator: Option<&Arc<Terminator>>) -> JoinSet<()> {
    let mut driver = JoinSet::new();
    if let Some(terminator) = terminator {
        driver.spawn(Arc::clone(terminator).run());
    }
    driver
}

pub(super) fn settings(config: &ServerConfig, state: Option<&Path>) -> Settings {
    let routes = &config.tls_routes;
    let pair =
        |pair: &config::KeyPair| Files { certificate: pair.cert.clone(), key: pair.key.clone() };
    let acme = routes.acme.as_ref().map(|acme| Acme {
        contacts: acme.email.clone(),
        directory: acme.directory.clone(),
        ca: acme.ca.clone(),
    });
    Settings {
        certificates: routes.certificates.iter().map(pair).collect(),
        min_version: match routes.min_version {
            TlsVersion::V12 => MinVersion::Tls12,
            TlsVersion::V13 => MinVersion::Tls13,
        },
        acme,
        state_dir: state.map(Path::to_owned),
        doors: Doors {
            http: !config.http.listen.is_empty() || has_mux(config),
            tls: !routes.listen.is_empty() || has_mux(config),
        },
    }
}
