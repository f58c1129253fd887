//! TLS to a target: a web site behind the client, often of a device in the local network whose
//! certificate no authority has issued. An error describes the certificate and says how to trust
//! it.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "the enums of rustls and x509-parser are open; the rest keeps the text of `words`"
)]

use std::io;
use std::pin::Pin as Pinned;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, CertificateError, ClientConfig, Error, OtherError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::config::verifier;
use crate::identity::day;
use crate::signatures::signatures_by;
use crate::verify::Unpinned;
use crate::{MaterialError, Pin, Trust, load_certificates, provider, server_name, words};

/// The largest number of names of a certificate that a message lists.
const SHOWN: usize = 4;

/// Makes the TLS of connections to one target.
#[derive(Clone, Debug)]
pub struct TargetTls {
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
    /// Offers no protocol.
    bytes: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TargetTls {
    /// `trust` is the requirement for the certificate; `None` accepts any. `name` is the host name
    /// or IP address that the certificate must have; a host name is sent to the target (SNI).
    ///
    /// # Errors
    /// A file cannot be read, this system has no authorities, or the name is invalid.
    pub fn new(trust: Option<&Trust>, name: &str) -> Result<Self, MaterialError> {
        let name = server_name(name)?;
        let verifier = Arc::new(TargetVerifier {
            // Without trust it verifies only the handshake signatures.
            inner: verifier(trust.unwrap_or(&Trust::Pins(Vec::new())))?,
            is_insecure: trust.is_none(),
            listed: match trust {
                Some(Trust::Authority(path)) => load_certificates(path)?,
                Some(Trust::System | Trust::Pins(_)) | None => Vec::new(),
            },
        });
        let config = |protocol: Option<&[u8]>| {
            // Devices of the local network may not support TLS 1.3.
            let mut config = ClientConfig::builder_with_provider(provider())
                .with_protocol_versions(&[&TLS13, &TLS12])
                .map_err(|error| MaterialError::Setting(error.to_string()))?
                .dangerous()
                .with_custom_certificate_verifier(Arc::clone(&verifier) as _)
                .with_no_client_auth();
            config.alpn_protocols = protocol.map(<[u8]>::to_vec).into_iter().collect();
            Ok::<_, MaterialError>(Arc::new(config))
        };
        let (http1, http2) = (config(Some(b"http/1.1"))?, config(Some(b"h2"))?);
        Ok(Self { http1, http2, bytes: config(None)?, name })
    }

    /// Performs the handshake over a connection to a target with any inner protocol. No protocol is
    /// offered.
    ///
    /// # Errors
    /// A description of the certificate with the remedy, or another failure.
    pub async fn connect_bytes<IO>(&self, io: IO) -> Result<TargetStream<IO>, TargetError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let connector = TlsConnector::from(Arc::clone(&self.bytes));
        let connected = connector.connect(self.name.clone(), io).await;
        Ok(TargetStream(connected.map_err(|error| explain(&error, false))?))
    }

    /// Performs the handshake over a connection to the target. `is_http2`: the target must select
    /// HTTP/2 by ALPN (RFC 9113 section 3.3); otherwise HTTP/1.1 is offered.
    ///
    /// # Errors
    /// A description of the certificate with the remedy, or another failure.
    pub async fn connect<IO>(&self, io: IO, is_http2: bool) -> Result<TargetStream<IO>, TargetError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let config = if is_http2 { &self.http2 } else { &self.http1 };
        let connector = TlsConnector::from(Arc::clone(config));
        let stream = connector
            .connect(self.name.clone(), io)
            .await
            .map_err(|error| explain(&error, is_http2))?;
        if is_http2 && stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(TargetError::lacks(is_http2));
        }
        Ok(TargetStream(stream))
    }
}

/// The reason why the TLS of a target failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetError {
    /// The reason as text that continues the words "the target".
    pub reason: String,
    /// Whether the target does not support the requested version of HTTP, and may support the
    /// other.
    pub lacks_protocol: bool,
}

impl TargetError {
    fn lacks(is_http2: bool) -> Self {
        let version = if is_http2 { "HTTP/2" } else { "HTTP/1.1" };
        let reason = format!("does not speak {version} over TLS (ALPN)");
        Self { reason, lacks_protocol: true }
    }
}

/// The bytes inside the TLS of a target.
#[derive(Debug)]
pub struct TargetStream<IO>(TlsStream<IO>);

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncRead for TargetStream<IO> {
    fn poll_read(
        mut self: Pinned<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match Pinned::new(&mut self.0).poll_read(cx, buf) {
            // Many devices close the connection without close_notify. A response has its own end
            // (RFC 9112 section 8), and browsers accept this end for a response without one.
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Poll::Ready(Ok(()))
            }
            result => result,
        }
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TargetStream<IO> {
    fn poll_write(
        mut self: Pinned<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pinned::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pinned<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pinned::new(&mut self.0).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pinned<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pinned::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pinned<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pinned::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Verifies the certificate of a target, and describes a certificate that it refuses.
#[derive(Debug)]
struct TargetVerifier {
    inner: Arc<dyn ServerCertVerifier>,
    /// Whether every certificate is accepted.
    is_insecure: bool,
    /// Certificates that are trusted themselves. A device may present one certificate that is its
    /// own authority, which webpki does not accept as a server certificate.
    listed: Vec<CertificateDer<'static>>,
}

/// A description of an untrusted certificate; carried inside [`Error`].
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Untrusted(String);

impl ServerCertVerifier for TargetVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.is_insecure {
            return Ok(ServerCertVerified::assertion());
        }
        let verified =
            self.inner.verify_server_cert(end_entity, intermediates, name, ocsp_response, now);
        match verified {
            Err(_) if self.listed.iter().any(|one| one == end_entity) => {
                Ok(ServerCertVerified::assertion())
            }
            Err(Error::InvalidCertificate(why)) => {
                let said = Untrusted(untrusted(&why, end_entity, name));
                Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(said)))))
            }
            verified => verified,
        }
    }

    signatures_by!(inner);
}

/// Describes a refused certificate, and how to trust it.
fn untrusted(
    why: &CertificateError,
    certificate: &CertificateDer<'_>,
    name: &ServerName<'_>,
) -> String {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
        return "shows a certificate that cannot be read; `insecure: true` in `target_tls` ignores \
                it"
            .into();
    };
    let is_own = parsed.subject() == parsed.issuer();
    let validity = parsed.validity();
    let names = names(&parsed);
    let other = |why: &CertificateError| match why {
        CertificateError::Other(other) => match other.0.downcast_ref() {
            Some(webpki::Error::CaUsedAsEndEntity) if is_own => "that is self-signed".to_owned(),
            Some(error) => format!("that does not verify ({error:?})"),
            None => format!("that does not verify ({})", other.0),
        },
        other => format!("that {}", words::of_rustls(other)),
    };
    let mut file = "";
    let what = match why {
        CertificateError::Other(other) if other.0.is::<Unpinned>() => {
            "of a key that is not pinned: the target was set up anew, or somebody intercepts the \
             connection"
                .to_owned()
        }
        CertificateError::UnknownIssuer if is_own => "that is self-signed".to_owned(),
        CertificateError::UnknownIssuer => {
            file = ", or `ca` to the file of its authority";
            "of an unknown authority".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "that has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "that is not valid yet; is the clock right?".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            file = ", or `server_name` to a name of the certificate";
            format!("that is not for {}", name.to_str())
        }
        other_error => other(other_error),
    };
    let pin = Pin::of(certificate).map_or_else(|_| "sha256:…".into(), |pin| pin.to_string());
    let issuer =
        if is_own { "itself".to_owned() } else { format!("{:?}", parsed.issuer().to_string()) };
    format!(
        "shows a certificate {what} (subject {:?}, names {names}, issued by {issuer}, valid from {} \
         to {}). If it is the right one, set `target_tls: {{ pin: \"{pin}\" }}`{file}",
        parsed.subject().to_string(),
        day(&validity.not_before),
        day(&validity.not_after),
    )
}

fn names(certificate: &X509Certificate<'_>) -> String {
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return "none".into() };
    let shown: Vec<String> = names
        .value
        .general_names
        .iter()
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            GeneralName::IPAddress(bytes) => match *bytes {
                [a, b, c, d] => Some(std::net::Ipv4Addr::new(*a, *b, *c, *d).to_string()),
                bytes => {
                    let bytes: [u8; 16] = bytes.try_into().ok()?;
                    Some(std::net::Ipv6Addr::from(bytes).to_string())
                }
            },
            _ => None,
        })
        .take(SHOWN)
        .collect();
    if shown.is_empty() { "none".into() } else { shown.join(" ") }
}

/// The reason why a handshake failed, as text after "the target".
fn explain(error: &io::Error, is_http2: bool) -> TargetError {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    if let Some(
        Error::AlertReceived(AlertDescription::NoApplicationProtocol)
        | Error::NoApplicationProtocol,
    ) = inner
    {
        return TargetError::lacks(is_http2);
    }
    TargetError { reason: reason(error, inner), lacks_protocol: false }
}

fn reason(error: &io::Error, inner: Option<&Error>) -> String {
    let Some(inner) = inner else {
        return if error.kind() == io::ErrorKind::UnexpectedEof {
            "closes the connection during the TLS handshake".into()
        } else {
            format!("breaks the connection during the TLS handshake: {error}")
        };
    };
    let whole = match inner {
        Error::InvalidCertificate(CertificateError::Other(other)) => {
            return other.0.to_string();
        }
        Error::InvalidMessage(_) => {
            return "does not speak TLS on this port; write http:// in the place of https://"
                .into();
        }
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            return "asks for a client certificate, which a target gets from no client".into();
        }
        Error::AlertReceived(alert) => words::alert(*alert, "the target"),
        Error::PeerIncompatible(why) => words::incompatible(why, "the target"),
        other => words::failure(other, "the target"),
    };
    whole.strip_prefix("the target ").map_or_else(|| format!("fails TLS: {whole}"), str::to_owned)
}

#[cfg(test)]
mod tests {
    use rustls::ServerConfig;
    use rustls::sign::SingleCertAndKey;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio_rustls::TlsAcceptor;

    use super::*;
    use crate::{Authority, Identity};

    /// The identity of a device: a certificate for `name`, of an authority or of its own.
    fn identity(name: &str, dir: &std::path::Path) -> (Identity, std::path::PathBuf) {
        let (authority, own) = Authority::create(1).unwrap();
        let issued = authority.server(&[name.parse().unwrap()], 1).unwrap();
        let (cert, key, ca) = (dir.join("crt"), dir.join("key"), dir.join("ca"));
        std::fs::write(&cert, &issued.certificate).unwrap();
        std::fs::write(&key, &issued.key).unwrap();
        std::fs::write(&ca, &own.certificate).unwrap();
        (Identity::load(&cert, &key).unwrap(), ca)
    }

    /// Shakes hands with a device that speaks these protocols.
    async fn shake(
        target: &TargetTls,
        device: &Identity,
        protocols: &[&[u8]],
        is_http2: bool,
    ) -> Result<(), String> {
        connect(target, device, protocols, is_http2).await.map_err(|error| error.reason)
    }

    async fn connect(
        target: &TargetTls,
        device: &Identity,
        protocols: &[&[u8]],
        is_http2: bool,
    ) -> Result<(), TargetError> {
        let resolver = Arc::new(SingleCertAndKey::from(Arc::clone(device.key())));
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS12])
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let (near, far) = duplex(16 * 1024);
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let device = async {
            if let Ok(mut stream) = acceptor.accept(far).await {
                let mut byte = [0];
                // A client that misses HTTP/2 has gone.
                if stream.read_exact(&mut byte).await.is_ok() {
                    stream.write_all(&byte).await.unwrap();
                    stream.flush().await.unwrap();
                }
            }
            // The connection ends without close_notify.
        };
        let client = async {
            let mut stream = target.connect(near, is_http2).await?;
            stream.write_all(b"x").await.unwrap();
            stream.flush().await.unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).await.unwrap();
            assert_eq!(all, b"x");
            Ok(())
        };
        tokio::join!(device, client).1
    }

    #[tokio::test]
    async fn a_certificate_that_is_not_trusted_is_described_with_its_pin() {
        let dir = tempfile::tempdir().unwrap();
        let (device, ca) = identity("nas.example", dir.path());
        let by_ca = |name: &str| TargetTls::new(Some(&Trust::Authority(ca.clone())), name).unwrap();
        assert_eq!(shake(&by_ca("nas.example"), &device, &[b"http/1.1"], false).await, Ok(()));
        let other = shake(&by_ca("192.0.2.7"), &device, &[], false).await.unwrap_err();
        let pin = device.pin().to_string();
        for part in ["is not for 192.0.2.7", "names nas.example", "issued by", &pin, "server_name"]
        {
            assert!(other.contains(part), "{part}: {other}");
        }
        let pinned = |pin| TargetTls::new(Some(&Trust::Pins(vec![pin])), "192.0.2.7").unwrap();
        assert_eq!(shake(&pinned(device.pin()), &device, &[b"http/1.1"], false).await, Ok(()));
        let second_dir = tempfile::tempdir().unwrap();
        let (second, second_ca) = identity("nas.example", second_dir.path());
        let wrong = shake(&pinned(second.pin()), &device, &[], false).await.unwrap_err();
        assert!(wrong.contains("not pinned") && wrong.contains(&pin), "{wrong}");
        let by_second =
            || TargetTls::new(Some(&Trust::Authority(second_ca.clone())), "nas.example");
        let unknown = shake(&by_second().unwrap(), &device, &[], false).await.unwrap_err();
        for part in ["of an unknown authority", "or `ca` to the file of its authority", &pin] {
            assert!(unknown.contains(part), "{part}: {unknown}");
        }
        drop(second_dir);
        assert!(by_second().is_err(), "the file of the other device is gone");
        let anything = TargetTls::new(None, "192.0.2.7").unwrap();
        assert_eq!(shake(&anything, &device, &[b"http/1.1"], false).await, Ok(()));
    }

    #[tokio::test]
    async fn a_certificate_in_the_file_itself_is_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let own = crate::fleeting(&["device".to_owned()]).unwrap();
        let der = own.key().cert[0].clone();
        let file = dir.path().join("device.crt");
        let pem = format!(
            "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
            base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &der)
        );
        std::fs::write(&file, pem).unwrap();
        let by_file = TargetTls::new(Some(&Trust::Authority(file)), "192.0.2.7").unwrap();
        assert_eq!(shake(&by_file, &own, &[b"http/1.1"], false).await, Ok(()));
    }

    #[tokio::test]
    async fn http2_needs_a_target_that_chooses_it() {
        let dir = tempfile::tempdir().unwrap();
        let (device, _) = identity("nas.example", dir.path());
        let target = TargetTls::new(None, "nas.example").unwrap();
        assert_eq!(shake(&target, &device, &[b"http/1.1", b"h2"], true).await, Ok(()));
        let http1: &[&[u8]] = &[b"http/1.1"];
        for without in [&[][..], http1] {
            let error = connect(&target, &device, without, true).await.unwrap_err();
            assert!(error.reason.contains("does not speak HTTP/2"), "{error:?}");
            assert!(error.lacks_protocol);
        }
        let error = connect(&target, &device, &[b"h2"], false).await.unwrap_err();
        assert!(error.reason.contains("does not speak HTTP/1.1"), "{error:?}");
        assert!(error.lacks_protocol);
    }

    #[tokio::test]
    async fn a_target_without_tls_is_told() {
        let target = TargetTls::new(None, "nas.example").unwrap();
        let (near, mut far) = duplex(16 * 1024);
        let device = async {
            let _ = far.read(&mut [0; 100]).await;
            far.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
            drop(far);
        };
        let (error, ()) = tokio::join!(target.connect(near, false), device);
        let error = error.unwrap_err();
        assert!(error.reason.contains("does not speak TLS") && !error.lacks_protocol, "{error:?}");
    }
}
