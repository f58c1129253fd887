//! Error texts of failed TLS handshakes: one line with the cause and the remedy.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "rustls' enums are open and long; the rest keeps its own text"
)]

use std::io;

use rustls::{AlertDescription as Alert, CertificateError, Error};
use x509_parser::time::ASN1Time;

use crate::certified::PeerFault;
use crate::identity::day;
use crate::verify::Unpinned;
use crate::words;
use transport::{CarrierError, Side};

/// The other end, as named in messages.
const fn peer_of(side: Side) -> &'static str {
    match side {
        Side::Client => "the server",
        Side::Server => "the client",
    }
}

/// ALPN (RFC 7301) found no common protocol.
fn other_protocol(peer: impl std::fmt::Display) -> CarrierError {
    CarrierError::Tls(format!(
        "{peer} wants another protocol inside TLS (ALPN); tls:// and wss:// are not the same"
    ))
}

/// Translates a TLS error into a [`CarrierError`]. `side` is this end. `heard` says whether the
/// peer has sent any TLS record.
#[must_use]
pub fn explain(error: &Error, side: Side, heard: bool) -> CarrierError {
    let peer = peer_of(side);
    match error {
        Error::InvalidCertificate(why) => certificate(why, side),
        Error::NoCertificatesPresented => CarrierError::Certificate(
            "the client shows no certificate, and this server asks for one".into(),
        ),
        Error::AlertReceived(alert) => alerted(*alert, side),
        Error::NoApplicationProtocol => other_protocol(peer),
        Error::InvalidMessage(_) if !heard => {
            CarrierError::Tls(format!("{peer} does not speak TLS on this port"))
        }
        Error::PeerIncompatible(why) => CarrierError::Tls(words::incompatible(why, peer)),
        other => CarrierError::Tls(words::failure(other, peer)),
    }
}

/// As [`explain`], for an established lane, which returns [`io::Error`].
#[must_use]
pub fn io_error(error: &Error, side: Side) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, explain(error, side, true))
}

/// The failure of a handshake with a visitor, which is not a program of the project. `oldest` is
/// the oldest accepted version of TLS.
#[must_use]
pub fn of_visitor(error: &Error, oldest: &str) -> String {
    use rustls::PeerIncompatible as P;
    match error {
        Error::PeerIncompatible(
            P::ServerDoesNotSupportTls12Or13
            | P::ServerTlsVersionIsDisabledByOurConfig
            | P::SupportedVersionsExtensionRequired
            | P::Tls12NotOffered
            | P::Tls12NotOfferedOrEnabled,
        ) => format!("the visitor does not speak {oldest} or later"),
        Error::NoApplicationProtocol => {
            "the visitor wants another protocol inside TLS (ALPN) than h2 or http/1.1".into()
        }
        Error::PeerIncompatible(why) => words::incompatible(why, "the visitor"),
        Error::AlertReceived(
            Alert::UnknownCA | Alert::CertificateUnknown | Alert::BadCertificate,
        ) => "the visitor does not trust the certificate".into(),
        Error::AlertReceived(alert) => words::alert(*alert, "the visitor"),
        other => words::failure(other, "the visitor"),
    }
}

/// The failure of a handshake with the API of a certificate authority. `setting` names the key of
/// the configuration that holds the file of the API's own authority.
#[must_use]
pub fn of_authority(error: &Error, setting: &str) -> String {
    let its = "its certificate";
    match error {
        Error::InvalidCertificate(why) => match why {
            CertificateError::UnknownIssuer => format!(
                "{its} is of an unknown authority; set `{setting}` to the file of that authority, \
                 or install ca-certificates"
            ),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                format!("{its} has expired, unless the clock here is wrong")
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                format!("{its} is not valid yet; check the clock here")
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!("{its} is for another name; check the URL of the directory")
            }
            CertificateError::Other(other) => match other.0.downcast_ref() {
                Some(error) => format!("{its} {}", words::certificate(error, Side::Client)),
                None => format!("{its} does not verify: {}", other.0),
            },
            other => format!("{its} {}", words::of_rustls(other)),
        },
        Error::PeerIncompatible(why) => words::incompatible(why, "it"),
        Error::AlertReceived(alert) => words::alert(*alert, "it"),
        other => words::failure(other, "it"),
    }
}

/// The remedy when the server's certificate does not contain the dialled name.
const SNI: &str = "dial that name, or set `sni` beside the `url` under `servers`";

/// The remedy for a certificate that has expired according to the clock of this machine.
const RENEW: &str = "renew it, unless the clock here is wrong";

fn certificate(why: &CertificateError, side: Side) -> CarrierError {
    let whose = match side {
        Side::Client => "the server's certificate",
        Side::Server => "the client's certificate",
    };
    let date = |time: &rustls::pki_types::UnixTime| {
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        ASN1Time::from_timestamp(seconds).map_or_else(|_| "an unknown day".into(), |t| day(&t))
    };
    CarrierError::Certificate(match why {
        CertificateError::Other(other) => {
            if let Some(Unpinned(pin)) = other.0.downcast_ref() {
                return CarrierError::PinMismatch { presented: pin.base64() };
            }
            if let Some(fault) = other.0.downcast_ref::<PeerFault>() {
                return CarrierError::Certificate(fault.to_string());
            }
            match other.0.downcast_ref() {
                Some(error) => format!("{whose} {}", words::certificate(error, side)),
                None => format!("{whose} does not verify: {}", other.0),
            }
        }
        CertificateError::Expired => format!("{whose} has expired; {RENEW}"),
        CertificateError::ExpiredContext { not_after, .. } => {
            format!("{whose} expired on {}; {RENEW}", date(not_after))
        }
        CertificateError::NotValidYet => format!("{whose} is not valid yet; check the clocks"),
        CertificateError::NotValidYetContext { not_before, .. } => {
            format!("{whose} is not valid before {}; check the clocks", date(not_before))
        }
        CertificateError::NotValidForName => {
            format!("{whose} is for another name; {SNI}")
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            let presented: Vec<_> = presented.iter().take(4).map(|name| plain(name)).collect();
            let presented =
                if presented.is_empty() { "no name".into() } else { presented.join(", ") };
            format!("{whose} is for {presented}, not for {}; {SNI}", expected.to_str())
        }
        CertificateError::UnknownIssuer => match side {
            Side::Client => {
                format!(
                    "{whose} is of an unknown authority; set `tls.ca` or `--ca` to the authority's \
                     file, or `tls.pin` or `--pin` to the server's key"
                )
            }
            Side::Server => format!(
                "{whose} is of an authority that is not in the file of `tls.client_ca` or \
                 `--client-ca`; add it there if the client shall come in"
            ),
        },
        // The verifier found the issuer by its name, but the issuer has another key.
        CertificateError::BadSignature => format!(
            "{whose} is of an authority that has the name of one we trust, but another key; was the \
             authority made anew?"
        ),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            let role = if side == Side::Client { "servers" } else { "clients" };
            format!("{whose} is not made for {role} (extended key usage); issue one that is")
        }
        other => format!("{whose} {}", words::of_rustls(other)),
    })
}

/// Extracts the name. webpki prints `DnsName("a.example")` and `IpAddress(..)`.
fn plain(name: &str) -> &str {
    let inner =
        name.split_once('(').map_or(name, |(_, rest)| rest.strip_suffix(')').unwrap_or(rest));
    inner.trim_matches('"')
}

fn alerted(alert: Alert, side: Side) -> CarrierError {
    let peer = peer_of(side);
    if let Some(why) = refused(alert, side) {
        let ours = match side {
            Side::Client => "our client certificate",
            Side::Server => "our certificate",
        };
        return CarrierError::Certificate(format!("{peer} refused {ours}: {why}"));
    }
    match alert {
        Alert::CertificateRequired => CarrierError::Certificate(
            "the server asks for a client certificate; set `tls.cert` and `tls.key`, or `--cert` and \
             `--key`"
                .into(),
        ),
        Alert::NoApplicationProtocol => other_protocol(peer),
        other => CarrierError::Tls(words::alert(other, peer)),
    }
}

/// The peer's reason for refusing our certificate. An alert is only a number (RFC 8446 section
/// 6.2), so the text gives its usual meaning. The peer's own log has the exact reason.
const fn refused(alert: Alert, side: Side) -> Option<&'static str> {
    Some(match (alert, side) {
        (Alert::UnknownCA, Side::Client) => {
            "its authority is not in the file of `tls.client_ca` of the server; add it there, or \
             show a certificate of one that is"
        }
        (Alert::UnknownCA, Side::Server) => {
            "it does not know the authority; `tls.ca` of the client must hold it, or `tls.pin` our \
             key"
        }
        (Alert::CertificateExpired, _) => {
            "it has expired or is not valid yet; renew the file of `tls.cert`, unless a clock is wrong"
        }
        (Alert::BadCertificate, Side::Server) => {
            "it is not for the name that the client dials, most likely; issue one that is, or have \
             `sni` set there"
        }
        (Alert::CertificateUnknown, Side::Server) => {
            "`tls.pin` of the client is of another key, or the certificate is that of an authority \
             (CA:TRUE); the client's log has the reason"
        }
        (Alert::DecryptError, _) => {
            "its authority has the name of one that is trusted, but another key"
        }
        (Alert::UnsupportedCertificate, Side::Client) => {
            "it is not made for clients (extended key usage); show one that is"
        }
        (Alert::UnsupportedCertificate, Side::Server) => {
            "it is not made for servers (extended key usage); show one that is"
        }
        (Alert::CertificateRevoked, _) => "it was revoked",
        (Alert::BadCertificate | Alert::CertificateUnknown, Side::Client) => "it does not verify",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::{InvalidMessage, OtherError, PeerIncompatible};

    use super::*;

    #[test]
    fn a_visitor_is_named_and_no_setting_of_a_client_is() {
        for (error, text) in [
            (
                Error::PeerIncompatible(PeerIncompatible::SupportedVersionsExtensionRequired),
                "the visitor does not speak TLS 1.3 or later",
            ),
            (Error::AlertReceived(Alert::UnknownCA), "the visitor does not trust the certificate"),
            (Error::NoApplicationProtocol, "the visitor wants another protocol inside TLS (ALPN)"),
            (
                Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon),
                "the visitor and we have no cipher suite in common",
            ),
            (
                Error::AlertReceived(Alert::HandshakeFailure),
                "the visitor and we have no cipher suite or key exchange in common",
            ),
            (
                Error::InvalidMessage(InvalidMessage::InvalidContentType),
                "the visitor sent bytes that are no record of TLS",
            ),
        ] {
            let said = of_visitor(&error, "TLS 1.3");
            assert!(said.starts_with(text), "{said}");
        }
    }

    #[test]
    fn the_api_of_an_authority_is_told_with_its_own_setting() {
        let said = |error| of_authority(&Error::InvalidCertificate(error), "acme.ca");
        assert!(said(CertificateError::UnknownIssuer).contains("set `acme.ca` to the file"));
        assert!(said(CertificateError::NotValidForName).contains("the URL of the directory"));
        let other = OtherError(Arc::new(webpki::Error::CertDistrusted));
        let text = said(CertificateError::Other(other));
        assert!(text.starts_with("its certificate is distrusted by this machine"), "{text}");
        let text = of_authority(&Error::AlertReceived(Alert::AccessDenied), "acme.ca");
        assert!(text.starts_with("it denies access"), "{text}");
    }
}
