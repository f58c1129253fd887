//! What the server is configured with, and the error that lists all problems of it.

use std::fmt;
use std::path::PathBuf;

use tls::MaterialError;

/// The settings of a terminator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Certificates with their keys. A name in the first file that contains it has that
    /// certificate.
    pub certificates: Vec<Files>,
    /// The oldest accepted version of TLS.
    pub min_version: MinVersion,
    /// How certificates for other names are ordered. `None`: only the files are used.
    pub acme: Option<Acme>,
    /// The state directory. ACME needs it and writes to its folder `acme`.
    pub state_dir: Option<PathBuf>,
    /// Where the certificate authority can reach this server.
    pub doors: Doors,
}

/// A certificate chain, leaf first, and the private key of the leaf, both as PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The file of the chain.
    pub certificate: PathBuf,
    /// The file of the key.
    pub key: PathBuf,
}

/// The oldest accepted version of TLS. Older versions than 1.2 are never accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinVersion {
    /// TLS 1.2 with ECDHE and AEAD suites, and TLS 1.3.
    #[default]
    Tls12,
    /// TLS 1.3 alone.
    Tls13,
}

impl MinVersion {
    /// The name for messages.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Tls12 => "TLS 1.2",
            Self::Tls13 => "TLS 1.3",
        }
    }
}

/// An account at a certificate authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acme {
    /// Mail addresses to which the authority may write. A scheme such as `mailto:` is optional.
    pub contacts: Vec<String>,
    /// The URL of the directory (RFC 8555 section 7.1.1), `https://…`.
    pub directory: String,
    /// A PEM file with the authority that issued the certificate of the directory's own server.
    /// `None`: an authority that the system trusts.
    pub ca: Option<PathBuf>,
}

/// The public ports by which the certificate authority can check a name. An authority connects to
/// port 80 for http-01 (RFC 8555 section 8.3) and to port 443 for tls-alpn-01 (RFC 8737 section 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doors {
    /// HTTP requests to port 80 of a published name reach this server.
    pub http: bool,
    /// TLS connections to port 443 of a published name reach this server.
    pub tls: bool,
}

/// Settings that cannot be used, with all problems.
#[derive(Debug)]
pub struct Unusable(pub(crate) Vec<MaterialError>);

impl Unusable {
    /// The problems, at least one. Each one is a line with the file or the key, and a remedy.
    pub fn problems(&self) -> impl Iterator<Item = &MaterialError> {
        self.0.iter()
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Unusable {}
