//! The settings of the server, and the error that lists all their problems.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tls::MaterialError;

/// The settings of a terminator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Certificates with their keys. A name gets the certificate of the first file that contains
    /// it.
    pub certificates: Vec<Files>,
    /// The oldest accepted version of TLS.
    pub min_version: MinVersion,
    /// How certificates for other names are ordered: the first account whose names contain a name
    /// orders its certificate. Empty: only the files are used.
    pub acme: Vec<Acme>,
    /// The state directory. ACME needs it and writes to its folder `acme`.
    pub state_dir: Option<PathBuf>,
    /// The ports at which the certificate authority can reach this server.
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acme {
    /// Mail addresses to which the authority may write. A scheme such as `mailto:` is optional.
    pub contacts: Vec<String>,
    /// The URL of the directory (RFC 8555 section 7.1.1), `https://…`.
    pub directory: String,
    /// A PEM file with the authority that issued the certificate of the directory's own server.
    /// `None`: an authority that the system trusts.
    pub ca: Option<PathBuf>,
    /// The names that this account orders, in normal form: `app.example.com`, or `*.example.com`
    /// for every name below it. Empty: every name.
    pub names: Vec<String>,
    /// The name of the account in the state directory, where two accounts share a directory.
    pub account: Option<String>,
    /// Binds the account to an account of another kind (RFC 8555 section 7.3.4).
    pub binding: Option<Binding>,
    /// Proves control of names only by DNS records. `None`: by the doors.
    pub dns: Option<Dns>,
    /// Whether a wildcard is served without a certificate of its own: a name below it is ordered
    /// when its first visitor comes.
    pub on_demand: bool,
}

/// An external account binding (RFC 8555 section 7.3.4).
#[derive(Clone, PartialEq, Eq)]
pub struct Binding {
    /// The key identifier that the authority issued.
    pub id: String,
    /// The HMAC key that the authority issued, decoded.
    pub key: Vec<u8>,
}

impl fmt::Debug for Binding {
    /// Prints no key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Binding").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Proof by dns-01 (RFC 8555 section 8.4): a program writes the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dns {
    /// The program, an absolute path.
    pub program: PathBuf,
    /// The timeout of a call of the program.
    pub timeout: Duration,
    /// How the server waits until the record is visible.
    pub wait: Wait,
    /// The name servers that are queried for zones and their servers. Empty: the name servers in
    /// `/etc/resolv.conf`.
    pub resolvers: Vec<SocketAddr>,
}

/// How the server waits between a record and its check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Until every name server of the zone has the record, for at most this time.
    Visible(Duration),
    /// For this time, without queries.
    Fixed(Duration),
}

/// The public ports at which the certificate authority can check a name. An authority connects to
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
    /// The problems, at least one. Each problem is a line with the file or the key, and a remedy.
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
