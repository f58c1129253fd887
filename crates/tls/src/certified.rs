//! TLS between two clients that have certificates of one authority.
//!
//! Both ends present a client certificate (`clientAuth`, as `tunnel generate certs --client` issues
//! it), because both are clients. Its name is the name of the client at the server. A server
//! certificate is not accepted here, so the operator of the server cannot impersonate a client with
//! it.
//!
//! The publishing end does not refuse a certificate in the handshake. It records the problem, and
//! the log-in is refused like one with a wrong token: an unauthenticated peer learns neither the
//! reason nor the authority.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::client::Resumption;
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::version::TLS13;
use rustls::{CertificateError, ClientConfig, DistinguishedName, Error, OtherError, ServerConfig};

use crate::config::roots;
use crate::signatures::signatures_by;
use crate::verify::Unpinned;
use crate::words;
use crate::{
    Identity, MaterialError, Pin, certificate_name, load_certificates, order_suites, provider,
};

/// The certificate of this client, and the authority of the other clients.
#[derive(Clone)]
pub struct PeerMaterial {
    identity: Identity,
    verifier: Arc<dyn ClientCertVerifier>,
}

/// The certificate that the other client presented.
#[derive(Clone, Debug, Default)]
pub struct Shown(Arc<OnceLock<Vec<CertificateDer<'static>>>>);

/// The reason why the certificate of the other client is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PeerFault(String);

impl PeerMaterial {
    /// Loads PEM files: the authority of the other clients, and the certificate of this client with
    /// its key.
    ///
    /// # Errors
    /// The file and the problem.
    pub fn load(ca: &Path, certificate: &Path, key: &Path) -> Result<Self, MaterialError> {
        let roots = Arc::new(roots(ca, load_certificates(ca)?)?);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
            .build()
            .map_err(|error| MaterialError::file(ca, error))?;
        Ok(Self { identity: Identity::load(certificate, key)?, verifier })
    }

    /// Verifies the certificate of the client `name` at this time.
    ///
    /// # Errors
    /// The problem, which continues the sentence "its certificate", or says that there is none.
    pub fn verify(&self, shown: &Shown, name: &str) -> Result<(), PeerFault> {
        let chain = shown.0.get().map(Vec::as_slice).unwrap_or_default();
        let [leaf, others @ ..] = chain else {
            return Err(PeerFault("it shows no certificate".to_owned()));
        };
        judge(&*self.verifier, leaf, others, Some(name), UnixTime::now())
    }

    /// Verifies the own certificate as the other end would.
    ///
    /// # Errors
    /// As for [`Self::verify`].
    pub fn verify_own(&self, name: &str) -> Result<(), PeerFault> {
        let [leaf, others @ ..] = self.identity.key().cert.as_slice() else {
            return Err(PeerFault("it shows no certificate".to_owned()));
        };
        judge(&*self.verifier, leaf, others, Some(name), UnixTime::now())
    }

    /// The configuration of a visitor, which accepts only the client `name`.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn client_config(
        &self,
        name: &str,
        alpn: &[&[u8]],
    ) -> Result<Arc<ClientConfig>, MaterialError> {
        self.client_config_with(name, None, alpn)
    }

    /// As [`Self::client_config`]. With `pin`, the other end must also have this key.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn client_config_with(
        &self,
        name: &str,
        pin: Option<Pin>,
        alpn: &[&[u8]],
    ) -> Result<Arc<ClientConfig>, MaterialError> {
        let (verifier, name) = (Arc::clone(&self.verifier), name.to_owned());
        let verifier = Publisher { verifier, name, pin };
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| MaterialError::Setting(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_cert_resolver(self.shown_key());
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        config.resumption = Resumption::disabled();
        // The tunnel's server can read the ClientHello of an inner session.
        config.enable_sni = false;
        Ok(Arc::new(config))
    }

    /// The configuration of the publishing end for one session. The visitor's certificate is
    /// recorded in `shown`, and the caller must [verify](Self::verify) it after the handshake.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn server_config(
        &self,
        alpn: &[&[u8]],
        shown: &Shown,
    ) -> Result<Arc<ServerConfig>, MaterialError> {
        let visitor = Visitor { verifier: Arc::clone(&self.verifier), shown: shown.clone() };
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| MaterialError::Setting(error.to_string()))?
            .with_client_cert_verifier(Arc::new(visitor))
            .with_cert_resolver(self.shown_key());
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        // A client that was asked for a certificate waits for a ticket.
        config.send_tls13_tickets = 1;
        order_suites(&mut config);
        Ok(Arc::new(config))
    }

    /// The configuration of a listener that refuses a connection in the handshake: without a
    /// certificate, or with a certificate of another authority. The caller checks the name.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn listener_config(&self, alpn: &[&[u8]]) -> Result<Arc<ServerConfig>, MaterialError> {
        let verifier = ListenerVerifier { verifier: Arc::clone(&self.verifier) };
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| MaterialError::Setting(error.to_string()))?
            .with_client_cert_verifier(Arc::new(verifier))
            .with_cert_resolver(self.shown_key());
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        // A client that was asked for a certificate waits for a ticket.
        config.send_tls13_tickets = 1;
        order_suites(&mut config);
        Ok(Arc::new(config))
    }

    fn shown_key(&self) -> Arc<SingleCertAndKey> {
        Arc::new(SingleCertAndKey::from(Arc::clone(self.identity.key())))
    }
}

/// Without the key.
impl fmt::Debug for PeerMaterial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerMaterial").field("identity", &self.identity).finish_non_exhaustive()
    }
}

fn judge(
    verifier: &dyn ClientCertVerifier,
    leaf: &CertificateDer<'_>,
    others: &[CertificateDer<'_>],
    name: Option<&str>,
    now: UnixTime,
) -> Result<(), PeerFault> {
    verifier.verify_client_cert(leaf, others, now).map_err(|error| PeerFault(problem(&error)))?;
    let Some(name) = name else { return Ok(()) };
    match certificate_name(leaf) {
        Some(named) if named == name => Ok(()),
        Some(named) => Err(PeerFault(format!("its certificate is that of {named}"))),
        None => Err(PeerFault("its certificate has no name".to_owned())),
    }
}

#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "rustls' enums are open and long; the rest keeps its own text"
)]
fn problem(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(why) => match why {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "its certificate is of another authority than `ca`".to_owned()
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired, unless the clock here is wrong".to_owned()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet; check the clocks".to_owned()
            }
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                "its certificate is not that of a client (clientAuth)".to_owned()
            }
            other => format!("its certificate {}", words::of_rustls(other)),
        },
        other => words::failure(other, "it"),
    }
}

/// Verifies the publishing client for a visitor.
#[derive(Debug)]
struct Publisher {
    verifier: Arc<dyn ClientCertVerifier>,
    name: String,
    /// The key that the certificate must have.
    pin: Option<Pin>,
}

impl ServerCertVerifier for Publisher {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        judge(&*self.verifier, end_entity, intermediates, Some(&self.name), now)
            .map_err(refused)?;
        if let Some(pin) = self.pin {
            let presented = Pin::of(end_entity)?;
            if presented != pin {
                let error = OtherError(Arc::new(Unpinned(presented)));
                return Err(Error::InvalidCertificate(CertificateError::Other(error)));
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    signatures_by!(verifier);
}

fn refused(fault: PeerFault) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(fault))))
}

/// Verifies the certificate of whoever connects to a listener, but not its name.
#[derive(Debug)]
struct ListenerVerifier {
    verifier: Arc<dyn ClientCertVerifier>,
}

impl ClientCertVerifier for ListenerVerifier {
    /// The names of authorities would reveal to an unauthenticated peer which authorities are
    /// trusted.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        judge(&*self.verifier, end_entity, intermediates, None, now).map_err(refused)?;
        Ok(ClientCertVerified::assertion())
    }

    signatures_by!(verifier);
}

/// Records the certificate that a visitor presents. Its signature, which is verified as usual,
/// proves that it has the key.
#[derive(Debug)]
struct Visitor {
    verifier: Arc<dyn ClientCertVerifier>,
    shown: Shown,
}

impl ClientCertVerifier for Visitor {
    /// A visitor without a certificate is refused by the log-in like any other.
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// The names of authorities would reveal to an unauthenticated peer which authorities are
    /// trusted.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let chain = std::iter::once(end_entity).chain(intermediates);
        // Each session has its own verifier, which is called once.
        let _ = self.shown.0.set(chain.map(|one| one.clone().into_owned()).collect());
        Ok(ClientCertVerified::assertion())
    }

    signatures_by!(verifier);
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustls::pki_types::pem::PemObject as _;
    use rustls::{ClientConnection, ServerConnection};

    use super::*;
    use crate::{Authority, HostName, Issued, PEER_NAME};

    const ALPN: &[&[u8]] = &[b"tunnel/1"];

    fn shown(issued: &Issued) -> Shown {
        let der = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
        Shown(Arc::new(OnceLock::from(vec![der])))
    }

    /// What `own` trusts: the certificates of `ca`.
    fn material(ca: &Issued, own: &Issued) -> PeerMaterial {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let (ca, certificate) = (write("ca", &ca.certificate), write("crt", &own.certificate));
        PeerMaterial::load(&ca, &certificate, &write("key", &own.key)).unwrap()
    }

    #[test]
    fn a_client_of_the_authority_is_known_by_its_name_and_a_server_of_it_is_nobody() {
        let (authority, ca) = Authority::create(1).unwrap();
        let (other, _) = Authority::create(1).unwrap();
        let own = material(&ca, &authority.client("home", 1).unwrap());
        let verdict =
            |shown: &Shown| own.verify(shown, "laptop").map_err(|fault| fault.to_string());
        let laptop = authority.client("laptop", 1).unwrap();
        assert_eq!(verdict(&shown(&laptop)), Ok(()));
        let name: HostName = "laptop".parse().unwrap();
        for (shown, expected) in [
            (Shown::default(), "shows no certificate"),
            (shown(&other.client("laptop", 1).unwrap()), "of another authority"),
            (shown(&authority.client("Laptop", 1).unwrap()), "is that of Laptop"),
            (shown(&authority.server(&[name], 1).unwrap()), "is not that of a client"),
        ] {
            let fault = verdict(&shown).unwrap_err();
            assert!(fault.contains(expected), "{fault}");
        }
    }

    #[test]
    fn the_handshake_fails_for_no_visitor_and_for_each_wrong_publisher() {
        let (authority, ca) = Authority::create(1).unwrap();
        let (other, other_ca) = Authority::create(1).unwrap();
        let home = material(&ca, &authority.client("home", 1).unwrap());
        let shake = |visitor: &PeerMaterial, name: &str| {
            let noted = Shown::default();
            let server = home.server_config(ALPN, &noted).unwrap();
            let mut server = ServerConnection::new(server).unwrap();
            let peer = ServerName::try_from(PEER_NAME).unwrap();
            let config = visitor.client_config(name, ALPN).unwrap();
            let mut client = ClientConnection::new(config, peer).unwrap();
            while client.wants_write() || server.wants_write() {
                let mut said = Vec::new();
                client.write_tls(&mut said).unwrap();
                server.read_tls(&mut said.as_slice()).unwrap();
                server.process_new_packets().unwrap();
                let mut said = Vec::new();
                server.write_tls(&mut said).unwrap();
                client.read_tls(&mut said.as_slice()).unwrap();
                client.process_new_packets().map_err(|error| error.to_string())?;
            }
            Ok::<_, String>(noted)
        };
        let laptop = material(&ca, &authority.client("laptop", 1).unwrap());
        let noted = shake(&laptop, "home").unwrap();
        assert_eq!(home.verify(&noted, "laptop"), Ok(()));
        // The log-in refuses this one, not the handshake.
        let stranger = material(&ca, &other.client("laptop", 1).unwrap());
        let noted = shake(&stranger, "home").unwrap();
        assert!(home.verify(&noted, "laptop").is_err());
        assert!(shake(&laptop, "office").unwrap_err().contains("is that of home"));
        let trusting_others = material(&other_ca, &authority.client("laptop", 1).unwrap());
        assert!(shake(&trusting_others, "home").unwrap_err().contains("another authority"));
    }
}
