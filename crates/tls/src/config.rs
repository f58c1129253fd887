//! rustls configurations of client and server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{ResolvesClientCert, WebPkiServerVerifier};
use rustls::pki_types::CertificateDer;
use rustls::server::{ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::version::TLS13;
use rustls::{ALL_VERSIONS, ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};

use crate::verify::KeyVerifier;
use crate::{Identity, MaterialError, Pin, load_certificates, order_suites, provider};

/// How a client verifies the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// A certificate for the dialled name, issued by an authority that the system trusts.
    System,
    /// A certificate for the dialled name that an authority in this PEM file issued, or that is in
    /// the file itself.
    Authority(PathBuf),
    /// A pinned key, with any certificate.
    Pins(Vec<Pin>),
}

/// Makes the configuration of a server. With `client_ca` (a PEM file) every client must present a
/// certificate that one of its authorities issued. `alpn` lists the protocols, preferred first.
pub fn server_config(
    identity: &Identity,
    client_ca: Option<&Path>,
    alpn: &[&[u8]],
) -> Result<Arc<ServerConfig>, MaterialError> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(unusable)?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(roots(path, load_certificates(path)?)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
                .build()
                .map_err(|error| MaterialError::file(path, error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let shown: Arc<dyn ResolvesServerCert> =
        Arc::new(SingleCertAndKey::from(Arc::clone(identity.key())));
    let mut config = builder.with_cert_resolver(shown);
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    // A ticket tells a client that its certificate was accepted; no client resumes TLS sessions. An
    // unread ticket would make the kernel send a reset when the client closes.
    config.send_tls13_tickets = usize::from(client_ca.is_some());
    order_suites(&mut config);
    Ok(Arc::new(config))
}

/// The oldest version of TLS that a client accepts. Older versions than 1.2 are never accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Oldest {
    /// TLS 1.2 (RFC 5246) with ECDHE and AEAD suites, and TLS 1.3. For servers whose TLS is
    /// provided by another program.
    Tls12,
    /// TLS 1.3 (RFC 8446) alone.
    #[default]
    Tls13,
}

static NEWEST: &[&SupportedProtocolVersion] = &[&TLS13];

impl Oldest {
    const fn versions(self) -> &'static [&'static SupportedProtocolVersion] {
        match self {
            Self::Tls12 => ALL_VERSIONS,
            Self::Tls13 => NEWEST,
        }
    }
}

/// Makes the configuration of a client of TLS 1.3. The client presents `identity` if the server
/// requests a certificate.
pub fn client_config(
    trust: &Trust,
    identity: Option<&Identity>,
    alpn: &[&[u8]],
) -> Result<Arc<ClientConfig>, MaterialError> {
    client_config_from(Oldest::Tls13, trust, identity, alpn)
}

/// As [`client_config`], with a different oldest version of TLS.
pub fn client_config_from(
    oldest: Oldest,
    trust: &Trust,
    identity: Option<&Identity>,
    alpn: &[&[u8]],
) -> Result<Arc<ClientConfig>, MaterialError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(oldest.versions())
        .map_err(unusable)?
        .dangerous()
        .with_custom_certificate_verifier(verifier(trust)?);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let shown: Arc<dyn ResolvesClientCert> =
                Arc::new(SingleCertAndKey::from(Arc::clone(identity.key())));
            builder.with_client_cert_resolver(shown)
        }
    };
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    // A carrier is dialled rarely and lives long, so each carrier verifies the certificate again.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

pub(super) fn verifier(trust: &Trust) -> Result<Arc<dyn ServerCertVerifier>, MaterialError> {
    let roots = match trust {
        Trust::Pins(pins) => return Ok(Arc::new(KeyVerifier::of_pins(pins.clone()))),
        Trust::Authority(path) => roots(path, load_certificates(path)?)?,
        Trust::System => {
            let mut roots = RootCertStore::empty();
            let found = rustls_native_certs::load_native_certs();
            for error in &found.errors {
                tracing::debug!(%error, "system certificates");
            }
            // A bundle may contain a few certificates that webpki cannot read; they are skipped.
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                return Err(MaterialError::Setting(
                    "this system has no trusted certificates (install ca-certificates); or set \
                     `tls.ca` or `tls.pin`, `--ca` or `--pin`"
                        .into(),
                ));
            }
            roots
        }
    };
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
        .build()
        .map_err(|error| MaterialError::Setting(error.to_string()))?;
    Ok(verifier)
}

pub(super) fn roots(
    path: &Path,
    certificates: Vec<CertificateDer<'static>>,
) -> Result<RootCertStore, MaterialError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate).map_err(|error| {
            MaterialError::file(path, format!("a certificate in it cannot be used: {error}"))
        })?;
    }
    Ok(roots)
}

fn unusable(error: rustls::Error) -> MaterialError {
    MaterialError::Setting(error.to_string())
}
