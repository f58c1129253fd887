//! The response to the challenge of the order in progress. Only one order is in progress at a time,
//! so there is at most one response. It exists from the moment at which the authority is asked to
//! check the name until the check has ended.

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
    #[serde(rename = "dns-01")]
    Dns,
}

impl Kind {
    /// Every kind.
    pub(crate) const ALL: [Self; 3] = [Self::Http, Self::Tls, Self::Dns];

    /// The name of RFC 8555 and RFC 8737.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Http => "http-01",
            Self::Tls => "tls-alpn-01",
            Self::Dns => "dns-01",
        }
    }
}

/// The response for one name.
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

/// The slot for the response.
#[derive(Debug, Default)]
pub(crate) struct Slot(ArcSwapOption<Pending>);

impl Slot {
    /// Serves a response until the guard is dropped.
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

/// Removes the response on drop.
#[derive(Debug)]
pub(crate) struct ShownAnswer<'a>(&'a Slot);

impl Drop for ShownAnswer<'_> {
    fn drop(&mut self) {
        self.0.0.store(None);
    }
}

/// The configuration that answers tls-alpn-01: a self-signed certificate for this name only, whose
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
    // `CertifiedKey::from_der` would refuse an unknown critical extension.
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
    tls::order_suites(&mut config);
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use std::io;

    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
    use tokio_rustls::{TlsAcceptor, TlsConnector};
    use x509_parser::extensions::{GeneralName, ParsedExtension};
    use x509_parser::prelude::{FromDer, X509Certificate};

    use super::*;

    /// Accepts any certificate, as the authority does in this check.
    #[derive(Debug)]
    struct Any;

    impl rustls::client::danger::ServerCertVerifier for Any {
        fn verify_server_cert(
            &self,
            _: &rustls::pki_types::CertificateDer<'_>,
            _: &[rustls::pki_types::CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: rustls::pki_types::UnixTime,
        ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
            Ok(rustls::client::danger::ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &rustls::pki_types::CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &rustls::pki_types::CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ECDSA_NISTP256_SHA256]
        }
    }

    async fn shown(alpn: &[u8]) -> io::Result<Vec<u8>> {
        let answer = tls_answer("app.example.com", &[7; 32]).unwrap();
        let mut client = ClientConfig::builder_with_provider(tls::provider())
            .with_protocol_versions(&[&TLS12, &TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Any))
            .with_no_client_auth();
        client.alpn_protocols = vec![alpn.to_vec()];
        let (near, far) = tokio::io::duplex(16 << 10);
        let name = ServerName::try_from("app.example.com").unwrap();
        let connector = TlsConnector::from(Arc::new(client));
        let (visitor, server) =
            tokio::join!(connector.connect(name, near), TlsAcceptor::from(answer).accept(far));
        server?;
        let visitor = visitor?;
        assert_eq!(visitor.get_ref().1.alpn_protocol(), Some(ALPN));
        Ok(visitor.get_ref().1.peer_certificates().unwrap()[0].to_vec())
    }

    #[tokio::test]
    async fn the_certificate_has_the_name_alone_and_the_digest_in_a_critical_extension() {
        let der = shown(ALPN).await.unwrap();
        let (_, certificate) = X509Certificate::from_der(&der).unwrap();
        let names = certificate.subject_alternative_name().unwrap().unwrap();
        assert_eq!(names.value.general_names, [GeneralName::DNSName("app.example.com")]);
        // id-pe-acmeIdentifier (RFC 8737 section 6.1): an OCTET STRING of 32 bytes.
        let is_it = |oid: &str| oid == "1.3.6.1.5.5.7.1.31";
        let extensions: Vec<_> =
            certificate.extensions().iter().filter(|it| is_it(&it.oid.to_id_string())).collect();
        let [extension] = extensions[..] else { panic!("{extensions:?}") };
        assert!(extension.critical);
        assert_eq!(extension.value, [&[4, 32][..], &[7; 32]].concat());
        assert!(matches!(
            extension.parsed_extension(),
            ParsedExtension::UnsupportedExtension { .. }
        ));
        assert!(shown(b"h2").await.is_err());
        assert!(tls_answer("app.example.com", &[7; 31]).is_err());
    }

    #[test]
    fn an_answer_is_given_for_its_name_and_token_while_it_is_awaited() {
        let slot = Slot::default();
        assert_eq!(slot.http("a.example.com", "t"), None);
        let answer = Answer::Http { token: "t".into(), authorization: "t.thumb".into() };
        let shown = slot.show(Pending { host: "a.example.com".into(), answer });
        assert_eq!(slot.http("a.example.com", "t").as_deref(), Some("t.thumb"));
        assert_eq!(slot.http("a.example.com", ""), None);
        assert_eq!(slot.http("b.example.com", "t"), None);
        assert!(slot.tls("a.example.com").is_none());
        drop(shown);
        assert_eq!(slot.http("a.example.com", "t"), None);
        let answer = Answer::Tls(tls_answer("a.example.com", &[0; 32]).unwrap());
        let shown = slot.show(Pending { host: "a.example.com".into(), answer });
        assert!(slot.tls("a.example.com").is_some() && slot.tls("b.example.com").is_none());
        assert_eq!(slot.http("a.example.com", "t"), None);
        drop(shown);
        assert!(slot.tls("a.example.com").is_none());
    }
}
