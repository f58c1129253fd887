//! TLS termination at the server: its settings and its driver.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use config::{ServerConfig, TlsVersion};
use termination::{
    Acme, Binding, CommonSecret, Dns, Doors, Files, MinVersion, Settings, Terminator, Wait,
};
use tokio::task::JoinSet;

/// The longest wait for the name servers of a zone with `wait: auto`. Secondary servers query the
/// primary within seconds of its NOTIFY (RFC 1996); services with many locations take a minute.
const VISIBLE: Duration = Duration::from_secs(180);

/// The terminator of a server that has a door for TLS.
pub fn terminator(
    config: &ServerConfig,
    state: Option<&Path>,
) -> anyhow::Result<Option<Arc<Terminator>>> {
    let has_door = !config.tls_routes.listen.is_empty() || has_mux(config);
    Ok(has_door.then(|| Terminator::new(&settings(config, state))).transpose()?)
}

/// The secret of the cluster, of which the keys of all nodes are derived; `None` without a cluster
/// or without its secret.
#[must_use]
pub fn common_secret(config: &ServerConfig) -> Option<CommonSecret> {
    config.cluster.as_ref().and_then(secret_of)
}

/// As [`common_secret`], of the settings of a node.
#[must_use]
pub fn secret_of(cluster: &config::Cluster) -> Option<CommonSecret> {
    CommonSecret::new(cluster.secrets.iter().map(|token| token.secret.reveal()))
}

fn has_mux(config: &ServerConfig) -> bool {
    config.listen.iter().any(|listen| listen.mux.is_some())
}

/// Orders certificates until the result is dropped. The caller is on the slow runtime, because
/// orders read and write files.
pub fn drive(terminator: Option<&Arc<Terminator>>) -> JoinSet<()> {
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
    Settings {
        certificates: routes.certificates.iter().map(pair).collect(),
        min_version: match routes.min_version {
            TlsVersion::V12 => MinVersion::Tls12,
            TlsVersion::V13 => MinVersion::Tls13,
        },
        acme: routes.acme.iter().map(account).collect(),
        state_dir: state.map(Path::to_owned),
        doors: Doors {
            http: !config.http.listen.is_empty() || has_mux(config),
            tls: !routes.listen.is_empty() || has_mux(config),
        },
    }
}

fn account(acme: &config::Acme) -> Acme {
    let dns = acme.dns.as_ref().map(|dns| Dns {
        program: dns.exec.clone(),
        timeout: dns.timeout.duration(),
        wait: match dns.wait {
            Some(wait) => Wait::Fixed(wait.duration()),
            None => Wait::Visible(VISIBLE),
        },
        resolvers: dns.resolvers.clone(),
    });
    Acme {
        contacts: acme.email.clone(),
        directory: acme.directory.clone(),
        ca: acme.ca.clone(),
        names: acme.names.clone(),
        account: acme.account.clone(),
        binding: acme.eab.as_ref().map(|eab| Binding {
            id: eab.kid.clone(),
            // A key in another format is not from the authority, which refuses the account.
            key: BASE64_URL_SAFE_NO_PAD.decode(eab.hmac.reveal()).unwrap_or_default(),
        }),
        dns,
        on_demand: acme.on_demand,
    }
}
