//! Pins: a client trusts one public key instead of authorities and names.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::server::ParsedCertificate;

/// The SHA-256 of a SubjectPublicKeyInfo (as in RFC 7469 section 2.4), written `sha256:BASE64`.
/// A new certificate for the same key has the same pin.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pin([u8; 32]);

/// The text is not a pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a pin is `sha256:` and 44 characters of Base64, as the server prints it at start")]
pub struct PinError;

impl Pin {
    /// The pin of a certificate's key.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Self, rustls::Error> {
        let parsed = ParsedCertificate::try_from(certificate)?;
        let mut pin = [0; 32];
        pin.copy_from_slice(digest(&SHA256, &parsed.subject_public_key_info()).as_ref());
        Ok(Self(pin))
    }

    /// The Base64 text that follows `sha256:`.
    #[must_use]
    pub fn base64(&self) -> String {
        STANDARD.encode(self.0)
    }
}

impl FromStr for Pin {
    type Err = PinError;

    fn from_str(text: &str) -> Result<Self, PinError> {
        let text = text.trim().strip_prefix("sha256:").ok_or(PinError)?;
        let bytes = STANDARD.decode(text).map_err(|_| PinError)?;
        bytes.try_into().map(Self).map_err(|_| PinError)
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.base64())
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_reads_back_as_it_was_printed() {
        let pin = Pin([7; 32]);
        assert_eq!(pin.to_string().parse(), Ok(pin));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "sha256:", "sha256:AAAA", "sha1:AAAA", &Pin([1; 32]).base64()] {
            assert_eq!(text.parse::<Pin>(), Err(PinError), "{text}");
        }
    }
}
