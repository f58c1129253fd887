//! The server's certificate, read from where the configuration says, or made.

use std::path::Path;

use anyhow::Context;
use config::ServerTls;
use ops::WrongConfig;
use tls::{Identity, self_signed};

/// Tells of a certificate that peers will refuse by its dates.
pub(crate) fn warn_of_dates(identity: &Identity, certificate: &Path) {
    if let Some(problem) = identity.out_of_date() {
        tracing::warn!("{}: {problem}", certificate.display());
    }
}

/// The server's certificate: the configured one, else a self-signed one of the state directory.
pub fn identity(tls: &ServerTls, state: &Path) -> anyhow::Result<Identity> {
    match &tls.identity {
        Some(pair) => {
            let identity = Identity::load(&pair.cert, &pair.key)
                .map_err(|e| WrongConfig::one(format!("tls: {e}")))?;
            warn_of_dates(&identity, &pair.cert);
            Ok(identity)
        }
        None => self_signed(state, &[]).context("the server's certificate"),
    }
}
