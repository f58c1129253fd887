//! The answer to the challenge of the order in progress. One order is in progress at a time, so
//! there is at most one answer. It exists from the moment at which the authority is told to check
//! the name until the check has ended.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::{NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use serde::{Deserialize, Serialize};

/// The protocol of the challenge tls-alpn-01 (RFC 8737 section 6.2).
pub(crate) const ALPN: &[u8] = b"acme-tls/1";

/// The ways to prove control of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    #[serde(rename = "http-01")]
    Http,
    #[serde(rename = "tls-alpn-01")]
    Tls,
}

impl Kind {
    /// The name of RFC 8555 and RFC 8737.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Http => "http-01",
            Self::Tls => "tls-alpn-01",
        }
    }
}

/// The answer for one name.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) host: Box<str>,
    pub(crate) answer: Answer,
}

#[derive(Debug)]
pub(crate) enum Answer {
    Http { token: String, authorization: String },
    Tls(Arc<ServerConfig>),
}

/// The place of the answer.
#[derive(Debug, Default)]
pub(crate) struct Slot(ArcSwapOption<Pending>);

impl Slot {
    /// Gives an answer until the guard is dropped.
    pub(crate) fn show(&self, pending: Pending) -> ShownAnswer<'_> {
        self.0.store(Some(Arc::new(pending)));
        ShownAnswer(self)
    }

    /// The body for `GET /.well-known/acme-challenge/TOKEN`.
    pub(crate) fn http(&self, host: &str, token: &str) -> Option<String> {
        let pending = self.0.load();
        let pending = pending.as_ref().filter(|pending| &*pending.host == host)?;
        match &pending.answer {
            Answer::Http { token: expected, authorization } if expected == token => {
                Some(authorization.clone())
            }
            Answer::Http { .. } | Answer::Tls(_) => None,
        }
    }

    /// The configuration of the handshake that answers tls-alpn-01.
    pub(crate) fn tls(&self, host: &str) -> Option<Arc<ServerConfig>> {
        let pending = self.0.load();
        let pending = pending.as_ref().filter(|pending| &*pending.host == host)?;
        match &pending.answer {
            Answer::Tls(config) => Some(Arc::clone(config)),
            Answer::Http { .. } => None,
        }
    }
}

/// Removes the answer when it is dropped.
#[derive(Debug)]
pub(crate) struct ShownAnswer<'a>(&'a Slot);

impl Drop for ShownAnswer<'_> {
    fn drop(&mut self) {
        self.0.0.store(None);
    }
}

/// The configuration that answers tls-alpn-01: a self-signed certificate for the name alone, whose
/// critical extension acmeIdentifier holds the digest of the key authorization (RFC 8737 section
/// 3).
pub(crate) fn tls_answer(host: &str, digest: &[u8]) -> Result<Arc<ServerConfig>, String> {
    if digest.len() != 32 {
        return Err("the digest of the key authorization has not 32 bytes".into());
    }
    let failed = |error: rcgen::Error| format!("self-signing the challenge: {error}");
    let mut parameters = CertificateParams::new([host.to_owned()]).map_err(failed)?;
    parameters.distinguished_name = DistinguishedName::new();
    parameters.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let pair = KeyPair::generate().map_err(failed)?;
    let certificate = parameters.self_signed(&pair).map_err(failed)?;
    let failed = |error: rustls::Error| format!("the handshake of the challenge: {error}");
    let provider = tls::provider();
    let secret = PrivateKeyDer::Pkcs8(pair.serialize_der().into());
    // `CertifiedKey::from_der` would refuse a critical extension that it does not know.
    let secret = provider.key_provider.load_private_key(secret).map_err(failed)?;
    let key = CertifiedKey::new(vec![certificate.der().clone()], secret);
    let shown: Arc<dyn ResolvesServerCert> = Arc::new(SingleCertAndKey::from(key));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(failed)?
        .with_no_client_auth()
        .with_cert_resolver(shown);
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}
