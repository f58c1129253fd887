//! Names: the one we expect of a server, the one a client's certificate gives it.

use rustls::pki_types::{CertificateDer, ServerName};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::MaterialError;

/// What a server's certificate must be for, and the SNI to send: a DNS name, or an IP address
/// (brackets allowed, no SNI is sent for it).
pub fn server_name(host: &str) -> Result<ServerName<'static>, MaterialError> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let bare = bare.strip_suffix('.').unwrap_or(bare);
    ServerName::try_from(bare.to_owned()).map_err(|_| {
        MaterialError::Setting(format!("`{host}` is neither a host name nor an IP address"))
    })
}

/// The name a client's certificate stands for: its first DNS name, else its common name.
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
