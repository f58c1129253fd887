//! Names in certificates: the expected name of a server, and the name of a client.

use rustls::pki_types::{CertificateDer, ServerName};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::MaterialError;

/// The name that a server certificate must have, which is also the SNI: a DNS name, or an IP
/// address, for which no SNI is sent. The address may be in brackets.
pub fn server_name(host: &str) -> Result<ServerName<'static>, MaterialError> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let bare = bare.strip_suffix('.').unwrap_or(bare);
    ServerName::try_from(bare.to_owned()).map_err(|_| {
        MaterialError::Setting(format!("`{host}` is neither a host name nor an IP address"))
    })
}

/// The key identifier of the issuer and the serial number, as the certificate encodes both. They
/// identify a certificate at its authority (RFC 9773 section 4.1).
#[must_use]
pub fn issuer_and_serial(certificate: &CertificateDer<'_>) -> Option<(Vec<u8>, Vec<u8>)> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let mut extensions = parsed.extensions().iter();
    let issuer = extensions.find_map(|extension| {
        if let ParsedExtension::AuthorityKeyIdentifier(of) = extension.parsed_extension() {
            of.key_identifier.as_ref().map(|id| id.0.to_vec())
        } else {
            None
        }
    })?;
    Some((issuer, parsed.raw_serial().to_vec()))
}

/// The name of a client in its certificate: the first DNS name, else the common name.
#[must_use]
pub fn certificate_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let dns = parsed.subject_alternative_name().ok().flatten().and_then(|names| {
        names.value.general_names.iter().find_map(|name| {
            if let GeneralName::DNSName(name) = name { Some((*name).to_owned()) } else { None }
        })
    });
    dns.or_else(|| {
        let name = parsed.subject().iter_common_name().next()?;
        name.as_str().ok().map(str::to_owned)
    })
}
