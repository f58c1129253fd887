//! Sentences for the errors of the TLS libraries, whose own texts are the names of their variants.
//! Each sentence continues the words "the server's certificate" or "the server", and says what to
//! do.
//!
//! The enums of rustls and webpki are open. A variant without a sentence here is shown as the
//! report of the library ([`reported`]), so that it can be looked up.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "the enums of the libraries are open; other variants are shown as reports"
)]

use std::fmt::Debug;

use rustls::{AlertDescription as Alert, CertificateError, Error, PeerIncompatible};
use transport::Side;

/// The report of a library, for an error without a sentence.
pub(crate) fn reported(error: &dyn Debug) -> String {
    format!("the TLS library reports: {error:?}")
}

/// A command that makes a certificate which is its own authority and also a server certificate.
/// `certificates.md` shows the same line.
const OPENSSL: &str = "`openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 825 \
                       -subj /CN=NAME -addext subjectAltName=DNS:NAME \
                       -addext basicConstraints=critical,CA:FALSE -keyout server.key -out server.crt`";

/// The problem of a certificate, for the variants of webpki that rustls does not map.
pub(crate) fn certificate(error: &webpki::Error, side: Side) -> String {
    use webpki::Error as E;
    let issue = "issue a new certificate, for example with `tunnel generate certs`";
    match error {
        E::CaUsedAsEndEntity => match side {
            Side::Client => format!(
                "is the certificate of an authority (CA:TRUE), as a self-signed certificate often \
                 is; pin its key by `tls.pin` or `--pin`, or make a certificate with CA:FALSE: \
                 {OPENSSL}"
            ),
            Side::Server => {
                format!("is the certificate of an authority (CA:TRUE); {issue}")
            }
        },
        E::EndEntityUsedAsCa => format!(
            "was issued by a certificate that is no authority (CA:FALSE); {issue}, or show the whole \
             chain of the authority"
        ),
        E::CertDistrusted => format!("is distrusted by this machine; {issue}"),
        E::PathLenConstraintViolated | E::MaximumPathDepthExceeded => {
            "has more intermediate authorities than its chain allows; show a shorter chain".into()
        }
        E::NameConstraintViolation | E::MalformedNameConstraint => {
            format!("has a name that its authority may not certify (name constraints); {issue}")
        }
        E::MaximumNameConstraintComparisonsExceeded
        | E::MaximumPathBuildCallsExceeded
        | E::MaximumSignatureChecksExceeded => {
            "has a chain of too many certificates; remove the certificates that it does not need \
             from the file of `tls.cert`"
                .into()
        }
        E::UnsupportedCertVersion => {
            format!("is of a version other than 3 of X.509, as old scripts make it; {issue}")
        }
        E::UnsupportedCriticalExtension => {
            format!("has a critical extension that this program does not know; {issue}")
        }
        E::BadDer
        | E::BadDerTime
        | E::TrailingData(_)
        | E::ExtensionValueInvalid
        | E::MalformedExtensions
        | E::MalformedDnsIdentifier
        | E::InvalidSerialNumber
        | E::InvalidCertValidity
        | E::EmptyEkuExtension
        | E::InvalidNetworkMaskConstraint
        | E::SignatureAlgorithmMismatch => {
            format!("breaks a rule of X.509 ({error:?}); {issue}")
        }
        other => format!("does not verify; {}; {issue}", reported(other)),
    }
}

/// The problem of a certificate, for the variants of rustls that `explain` does not treat itself.
pub(crate) fn of_rustls(error: &CertificateError) -> String {
    let issue = "issue a new certificate, for example with `tunnel generate certs`";
    match error {
        CertificateError::BadEncoding => format!("is not a valid X.509 certificate; {issue}"),
        CertificateError::Revoked => format!("was revoked by its authority; {issue}"),
        CertificateError::UnhandledCriticalExtension => {
            format!("has a critical extension that this program does not know; {issue}")
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => format!(
            "is signed by an algorithm that this program does not accept (SHA-1 and RSA below 2048 \
             bits are too weak); {issue}"
        ),
        CertificateError::UnknownRevocationStatus
        | CertificateError::ExpiredRevocationList
        | CertificateError::ExpiredRevocationListContext { .. }
        | CertificateError::InvalidOcspResponse => {
            "has no valid statement about its revocation; renew the statement of its authority"
                .into()
        }
        CertificateError::ApplicationVerificationFailure => {
            format!("was refused by the verifier of this program; {issue}")
        }
        other => format!("does not verify; {}; {issue}", reported(other)),
    }
}

/// The properties that the two ends do not share.
pub(crate) fn incompatible(why: &PeerIncompatible, peer: &str) -> String {
    use PeerIncompatible as P;
    match why {
        P::ServerDoesNotSupportTls12Or13
        | P::ServerTlsVersionIsDisabledByOurConfig
        | P::SupportedVersionsExtensionRequired
        | P::Tls12NotOffered
        | P::Tls12NotOfferedOrEnabled
        | P::Tls13RequiredForQuic => old(peer),
        P::NoCipherSuitesInCommon => {
            format!("{peer} and we have no cipher suite in common; {UPGRADE}")
        }
        P::NoKxGroupsInCommon | P::NamedGroupsExtensionRequired | P::KeyShareExtensionRequired => {
            format!("{peer} and we have no key exchange in common; {UPGRADE}")
        }
        P::NoSignatureSchemesInCommon
        | P::NoCertificateRequestSignatureSchemesInCommon
        | P::SignatureAlgorithmsExtensionRequired => format!(
            "{peer} and we have no signature algorithm in common; show a certificate with a key of \
             ECDSA P-256 or RSA of 2048 bits"
        ),
        other => format!("{peer} and we have no form of TLS in common; {}", reported(other)),
    }
}

const UPGRADE: &str = "upgrade the TLS library of the other program, or the proxy in front of it";

/// A peer without TLS 1.3.
fn old(peer: &str) -> String {
    // Clients of the project have a configuration key for it.
    let key = if peer == "the server" {
        ", or set `tls: { min_version: \"1.2\" }` for wss://"
    } else {
        ""
    };
    format!("{peer} does not speak TLS 1.3; let the proxy in front of it offer TLS 1.3{key}")
}

/// Errors of a handshake that do not concern a certificate.
pub(crate) fn failure(error: &Error, peer: &str) -> String {
    let changed = "is there a program on the way that changes bytes?";
    match error {
        Error::InvalidMessage(_) | Error::PeerSentOversizedRecord => {
            format!("{peer} sent bytes that are no record of TLS; {changed} ({})", reported(error))
        }
        Error::InappropriateMessage { .. }
        | Error::InappropriateHandshakeMessage { .. }
        | Error::PeerMisbehaved(_) => {
            format!("{peer} breaks a rule of TLS; {changed} ({})", reported(error))
        }
        Error::DecryptError => format!("a record of {peer} cannot be decrypted; {changed}"),
        Error::FailedToGetCurrentTime => "the clock of this machine cannot be read".into(),
        Error::FailedToGetRandomBytes => "this machine gives no random numbers".into(),
        Error::UnsupportedNameType => {
            "the dialled name is neither a host name nor an address".into()
        }
        other => reported(other),
    }
}

/// The meaning of an alert of the peer that does not concern a certificate (RFC 8446 section 6).
pub(crate) fn alert(alert: Alert, peer: &str) -> String {
    let log = "the log of that side has the reason";
    match alert {
        Alert::ProtocolVersion => old(peer),
        Alert::UnrecognisedName => format!(
            "{peer} does not know the dialled name; dial a name of its certificate, or set `sni` \
             beside the `url` under `servers`"
        ),
        Alert::HandshakeFailure | Alert::InsufficientSecurity => {
            format!("{peer} and we have no cipher suite or key exchange in common; {UPGRADE}")
        }
        Alert::AccessDenied => format!("{peer} denies access; {log}"),
        Alert::InternalError => format!("{peer} failed by an error of its own; {log}"),
        Alert::UserCanceled | Alert::CloseNotify => {
            format!("{peer} ended the connection before the handshake was complete; {log}")
        }
        Alert::BadRecordMac
        | Alert::DecodeError
        | Alert::RecordOverflow
        | Alert::DecryptionFailed
        | Alert::IllegalParameter
        | Alert::UnexpectedMessage
        | Alert::MissingExtension
        | Alert::UnsupportedExtension => format!(
            "{peer} reports bytes that break a rule of TLS ({alert:?}); is there a program on the \
             way that changes bytes?"
        ),
        other => {
            let number = u8::from(other);
            format!("{peer} ended the handshake with alert {number} of TLS; {log}")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::{InvalidMessage, OtherError, PeerMisbehaved};
    use transport::CarrierError;

    use super::*;
    use crate::explain;

    fn said(error: Error) -> String {
        let error = explain(&error, Side::Client, true);
        assert!(!error.is_network(), "{error:?}");
        error.to_string()
    }

    fn of_webpki(error: webpki::Error, side: Side) -> String {
        let error = CertificateError::Other(OtherError(Arc::new(error)));
        let error = explain(&Error::InvalidCertificate(error), side, true);
        assert!(matches!(error, CarrierError::Certificate(_)), "{error:?}");
        error.to_string()
    }

    #[test]
    fn an_authority_shown_as_a_server_is_told_with_both_ways_out() {
        let text = of_webpki(webpki::Error::CaUsedAsEndEntity, Side::Client);
        let begin = "the server's certificate is the certificate of an authority (CA:TRUE), as a \
                     self-signed certificate often is; pin its key by `tls.pin` or `--pin`, or ";
        assert!(text.starts_with(begin) && text.contains("`openssl req -x509 "), "{text}");
        let text = of_webpki(webpki::Error::CaUsedAsEndEntity, Side::Server);
        assert!(text.contains("tunnel generate certs") && !text.contains("tls.pin"), "{text}");
    }

    #[test]
    fn every_error_is_a_sentence_and_its_name_is_at_most_a_note() {
        use webpki::Error as E;
        for error in [
            E::CaUsedAsEndEntity,
            E::EndEntityUsedAsCa,
            E::CertDistrusted,
            E::PathLenConstraintViolated,
            E::NameConstraintViolation,
            E::MaximumSignatureChecksExceeded,
            E::UnsupportedCertVersion,
            E::UnsupportedCriticalExtension,
        ] {
            for side in [Side::Client, Side::Server] {
                let text = of_webpki(error.clone(), side);
                assert!(!text.contains(&format!("{error:?}")) && text.contains("; "), "{text}");
            }
        }
        let text = of_webpki(E::IssuerNotCrlSigner, Side::Client);
        assert!(text.contains("the TLS library reports: IssuerNotCrlSigner; issue"), "{text}");
        for error in [
            CertificateError::BadEncoding,
            CertificateError::Revoked,
            CertificateError::UnhandledCriticalExtension,
            CertificateError::UnknownRevocationStatus,
            CertificateError::InvalidOcspResponse,
            CertificateError::ApplicationVerificationFailure,
        ] {
            let text = said(Error::InvalidCertificate(error.clone()));
            assert!(!text.contains(&format!("{error:?}")) && text.contains("; "), "{text}");
        }
        for (error, begin) in [
            (
                Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered),
                "TLS: the server does not speak TLS 1.3; let the proxy in front of it offer TLS 1.3, \
                 or set `tls: { min_version: \"1.2\" }` for wss://",
            ),
            (
                Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon),
                "TLS: the server and we have no cipher suite in common; ",
            ),
            (
                Error::PeerIncompatible(PeerIncompatible::NullCompressionRequired),
                "TLS: the server and we have no form of TLS in common; the TLS library reports: ",
            ),
            (
                Error::PeerMisbehaved(PeerMisbehaved::MessageInterleavedWithHandshakeMessage),
                "TLS: the server breaks a rule of TLS; ",
            ),
            (
                Error::InvalidMessage(InvalidMessage::InvalidContentType),
                "TLS: the server sent bytes that are no record of TLS; ",
            ),
            (Error::DecryptError, "TLS: a record of the server cannot be decrypted; "),
            (Error::HandshakeNotComplete, "TLS: the TLS library reports: HandshakeNotComplete"),
            (
                Error::AlertReceived(Alert::HandshakeFailure),
                "TLS: the server and we have no cipher suite or key exchange in common; ",
            ),
            (
                Error::AlertReceived(Alert::InternalError),
                "TLS: the server failed by an error of its own; ",
            ),
            (
                Error::AlertReceived(Alert::UnrecognisedName),
                "TLS: the server does not know the dialled name; dial ",
            ),
            (
                Error::AlertReceived(Alert::Unknown(200)),
                "TLS: the server ended the handshake with alert 200 of TLS; ",
            ),
        ] {
            let text = said(error);
            assert!(text.starts_with(begin), "{text}");
        }
    }
}
