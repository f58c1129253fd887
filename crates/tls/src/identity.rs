//! A certificate chain with its private key, loaded from files.

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::time::ASN1Time;

use crate::{MaterialError, Pin, certificate_name, provider};

/// The identity of one end: a certificate chain, leaf first, and the private key of the leaf.
#[derive(Clone)]
pub struct Identity {
    key: Arc<CertifiedKey>,
    pin: Pin,
}

/// The reason why a key with a passphrase is refused: a daemon starts without a user who types it.
pub(crate) const ENCRYPTED: &str = "the private key is encrypted with a passphrase, which a daemon \
     cannot ask for; write it without one: openssl pkey -in THIS -out NEW.key";

/// Whether a PEM text has a private key with a passphrase: of PKCS#8 (RFC 7468 section 11), or in
/// the older form of OpenSSL (RFC 1421 section 4.6.1.1).
pub(crate) fn is_encrypted(text: &[u8]) -> bool {
    text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).any(|line| {
        line == b"-----BEGIN ENCRYPTED PRIVATE KEY-----"
            || line.starts_with(b"Proc-Type:") && line.ends_with(b"ENCRYPTED")
    })
}

impl Identity {
    /// Loads PEM files. `certificate` holds the chain, leaf first; `key` a PKCS#8, PKCS#1 or SEC1
    /// key. An error names the file and the problem: unreadable, empty, or the key of another
    /// certificate. The function ignores dates: see [`Identity::out_of_date`].
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, MaterialError> {
        Self::load_by(&read, certificate, key)
    }

    /// Makes an identity from one PEM text that holds the key and the chain. An error names `file`.
    ///
    /// # Errors
    /// As [`Identity::load`].
    pub fn of_pem(file: &Path, text: &[u8]) -> Result<Self, MaterialError> {
        Self::load_by(&|_| Ok(text.to_vec()), file, file)
    }

    /// Loads PEM files as [`Identity::load`] does, but reads them with `read`.
    pub(super) fn load_by(
        read: &dyn Fn(&Path) -> Result<Vec<u8>, MaterialError>,
        certificate: &Path,
        key: &Path,
    ) -> Result<Self, MaterialError> {
        let chain = certificates(certificate, &read(certificate)?)?;
        let text = read(key)?;
        let secret = PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
            let problem = if is_encrypted(&text) {
                ENCRYPTED.into()
            } else if matches!(error, PemError::NoItemsFound) {
                "no private key in it (PEM)".into()
            } else {
                format!("the private key cannot be read: {error}")
            };
            MaterialError::file(key, problem)
        })?;
        let pin = Pin::of(&chain[0])
            .map_err(|_| MaterialError::file(certificate, "the certificate cannot be read"))?;
        let key = CertifiedKey::from_der(chain, secret, &provider()).map_err(|error| {
            if matches!(error, rustls::Error::InconsistentKeys(_)) {
                let problem =
                    format!("the key does not belong to the certificate {}", certificate.display());
                MaterialError::file(key, problem)
            } else {
                MaterialError::file(key, format!("the private key cannot be used: {error}"))
            }
        })?;
        Ok(Self { key: Arc::new(key), pin })
    }

    /// The pin of the leaf's key, for `tls.pin` at the other end.
    #[must_use]
    pub const fn pin(&self) -> Pin {
        self.pin
    }

    /// The problem with the dates of the leaf according to the clock of this machine, and the
    /// remedy.
    ///
    /// The caller logs a warning and starts anyway. A machine without a battery starts in 1970, a
    /// peer that pins the key ignores dates, and a peer that checks dates refuses the certificate
    /// itself.
    #[must_use]
    pub fn out_of_date(&self) -> Option<String> {
        let (_, leaf) = X509Certificate::from_der(self.key.cert.first()?).ok()?;
        let (now, validity) = (ASN1Time::now(), leaf.validity());
        let (first, last) = (day(&validity.not_before), day(&validity.not_after));
        if now > validity.not_after {
            Some(format!("the certificate expired on {last}; renew it"))
        } else if now < validity.not_before {
            Some(format!("the certificate is not valid before {first}; is the clock right?"))
        } else {
            None
        }
    }

    /// The DNS names of the leaf in lower case, in the order of the certificate. No verifier
    /// accepts the common name (RFC 9525 section 6.3), so it is left out.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let Some((_, leaf)) =
            self.key.cert.first().and_then(|der| X509Certificate::from_der(der).ok())
        else {
            return Vec::new();
        };
        let Ok(Some(names)) = leaf.subject_alternative_name() else { return Vec::new() };
        let dns = names.value.general_names.iter().filter_map(|name| {
            if let GeneralName::DNSName(name) = name {
                Some(name.to_ascii_lowercase())
            } else {
                None
            }
        });
        dns.collect()
    }

    /// The client name in the leaf: the first DNS name, else the common name.
    #[must_use]
    pub fn client_name(&self) -> Option<String> {
        certificate_name(self.key.cert.first()?)
    }

    /// The start and the end of the leaf's validity, in seconds since 1970.
    #[must_use]
    pub fn validity(&self) -> Option<(u64, u64)> {
        let (_, leaf) = X509Certificate::from_der(self.key.cert.first()?).ok()?;
        let seconds = |time: &ASN1Time| u64::try_from(time.timestamp()).unwrap_or(0);
        let validity = leaf.validity();
        Some((seconds(&validity.not_before), seconds(&validity.not_after)))
    }

    /// The chain and the key, for a resolver of certificates.
    #[must_use]
    pub fn certified(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.key)
    }

    pub(super) const fn key(&self) -> &Arc<CertifiedKey> {
        &self.key
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("pin", &self.pin).finish_non_exhaustive()
    }
}

/// Reads the certificates of a PEM file, at least one, in order.
pub fn load_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, MaterialError> {
    certificates(path, &read(path)?)
}

fn certificates(path: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, MaterialError> {
    let certificates = CertificateDer::pem_slice_iter(text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| MaterialError::file(path, format!("not a PEM file: {error}")))?;
    if certificates.is_empty() {
        return Err(MaterialError::file(path, "no certificate in it (PEM)"));
    }
    Ok(certificates)
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, MaterialError> {
    let mut text = fs::read(path).map_err(|error| MaterialError::file(path, error))?;
    // Windows editors write a byte order mark, which hides the first line from the parser.
    if text.starts_with(BYTE_ORDER_MARK) {
        text.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(text)
}

/// The byte order mark of a UTF-8 text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A date as `2031-04-05`, in UTC.
pub(super) fn day(time: &ASN1Time) -> String {
    let time = time.to_datetime();
    format!("{:04}-{:02}-{:02}", time.year(), u8::from(time.month()), time.day())
}

/// The day of a time in seconds since 1970, as `2031-04-05`, in UTC.
#[must_use]
pub fn day_of(second: u64) -> String {
    let time = i64::try_from(second).ok().and_then(|second| ASN1Time::from_timestamp(second).ok());
    time.map_or_else(|| "an unknown day".into(), |time| day(&time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_with_a_passphrase_is_refused_in_words_and_a_byte_order_mark_does_not_matter() {
        let folder = tempfile::tempdir().unwrap();
        let [certificate, key] = ["a.crt", "a.key"].map(|name| folder.path().join(name));
        let pair = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
        let (chain, secret) = (pair.cert.pem(), pair.signing_key.serialize_pem());
        fs::write(&certificate, format!("\u{feff}{chain}")).unwrap();
        fs::write(&key, format!("\u{feff}{secret}")).unwrap();
        assert!(Identity::load(&certificate, &key).is_ok());
        let pkcs8 = secret.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
        let older = "-----BEGIN EC PRIVATE KEY-----\r\nProc-Type: 4,ENCRYPTED\r\n\
                     DEK-Info: AES-256-CBC,00\r\n\r\nAAAA\r\n-----END EC PRIVATE KEY-----\r\n";
        for text in [&*pkcs8, older] {
            fs::write(&key, text).unwrap();
            let error = Identity::load(&certificate, &key).unwrap_err().to_string();
            assert!(error.contains("a.key") && error.contains("passphrase"), "{error}");
            assert!(error.contains("openssl pkey"), "{error}");
        }
    }
}
