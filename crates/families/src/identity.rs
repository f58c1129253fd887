//! The server's certificate: loaded from the configured files, or self-signed.

use std::path::Path;

use anyhow::Context;
use config::ServerTls;
use ops::WrongConfig;
use tls::{Identity, self_signed};

/// Logs a warning when peers will refuse the certificate because of its validity dates.
pub(crate) fn warn_of_dates(identity: &Identity, certificate: &Path) {
    if let Some(problem) = identity.out_of_date() {
        tracing::warn!("{}: {problem}", certificate.display());
    }
}

/// Loads the configured certificate. Without a configured certificate the function loads or makes a
/// self-signed certificate in the state directory.
///
/// # Errors
/// A configured certificate or key that does not load is a [`WrongConfig`].
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
