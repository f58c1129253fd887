//! The doors of a server: ports that all clients share, where the first bytes of a visitor name the
//! service.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use proto::control::Timeouts;

use super::{Changed, KeyPair};
use crate::{Secret, Span, Target};

/// Services by HTTP name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http {
    /// Ports for visitors over HTTP without TLS; all different.
    pub listen: Vec<SocketAddr>,
    /// The domain below which each client has a name of its own, in lower case.
    pub domain: Option<String>,
    /// The header field of a request that names the service, instead of `Host`.
    pub route_header: Option<String>,
    /// Whether plain HTTP visitors of a host with only an `https://` name get 404, instead of a
    /// redirect to this name.
    pub no_redirect: bool,
    /// Pages that replace the built-in pages.
    pub pages: Pages,
    /// How long a name stays reserved after its client left; zero: not at all.
    pub remember: Span,
    /// How long a connection of a visitor of a name stays open without a request, from 1 s to 1
    /// day.
    pub idle: Span,
    /// Whether the WebSocket listeners serve the page by which browsers visit private services.
    pub browser: bool,
    /// Whether connections of trusted reverse proxies begin with a header of the PROXY protocol.
    pub accept_proxy: bool,
}

impl Default for Http {
    fn default() -> Self {
        // Longer than holidays, and short enough that a forgotten name does not stay for ever.
        let remember = Span::from_millis(30 * 86_400 * 1000);
        Self {
            listen: Vec::new(),
            domain: None,
            route_header: None,
            no_redirect: false,
            pages: Pages::default(),
            remember,
            // The default of nginx (`keepalive_timeout`). Browsers keep connections longer and
            // expect the server to close them.
            idle: Span::from_millis(75_000),
            browser: false,
            accept_proxy: false,
        }
    }
}

/// HTML files that replace built-in pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// The body of 404: no service has the host.
    pub not_found: Option<PathBuf>,
    /// The body of 502: the service does not respond.
    pub unavailable: Option<PathBuf>,
}

/// Services by TLS name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsRoutes {
    /// Ports for visitors over TLS; all different.
    pub listen: Vec<SocketAddr>,
    /// Certificates for names whose TLS ends at the server. Each certificate serves the names that
    /// it lists.
    pub certificates: Vec<KeyPair>,
    /// The lowest version of TLS that ends at the server.
    pub min_version: TlsVersion,
    /// The accounts that order certificates for the other names. The first account whose names
    /// include a name orders its certificate; empty: no other certificates.
    pub acme: Vec<Acme>,
    /// Whether connections of trusted reverse proxies begin with a header of the PROXY protocol.
    pub accept_proxy: bool,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    #[default]
    V12,
    /// TLS 1.3 (RFC 8446).
    V13,
}

impl fmt::Display for TlsVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V12 => "1.2",
            Self::V13 => "1.3",
        })
    }
}

/// An account at an authority that issues certificates by ACME (RFC 8555). The owner of the file
/// has accepted its terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acme {
    /// Addresses to which the authority writes; may be empty.
    pub email: Vec<String>,
    /// The URL of the directory, `https://`.
    pub directory: String,
    /// The authority that signed the directory's own certificate; `None`: the authorities of the
    /// system.
    pub ca: Option<PathBuf>,
    /// The names of this account: hosts, or `*.` and a domain for every name below it. Empty: every
    /// name.
    pub names: Vec<String>,
    /// The name of the account in the state directory, where several accounts share a directory.
    pub account: Option<String>,
    /// Binds the account to an account outside ACME (RFC 8555 section 7.3.4).
    pub eab: Option<AcmeBinding>,
    /// Proves control of names by DNS records; `None`: through the doors.
    pub dns: Option<AcmeDns>,
    /// Whether a name below a published wildcard is ordered when its first visitor comes.
    pub on_demand: bool,
}

/// An external account binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeBinding {
    /// The key identifier.
    pub kid: String,
    /// The HMAC key in Base64 for URLs without padding, which the decoder has checked.
    pub hmac: Secret,
}

/// Proof by dns-01 (RFC 8555 section 8.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeDns {
    /// The program that writes and removes records.
    pub exec: PathBuf,
    /// The timeout of a call of the program.
    pub timeout: Span,
    /// The time between a record and its check; `None`: the check waits until the name servers of
    /// the zone have the record.
    pub wait: Option<Span>,
    /// The name servers that are queried for zones; empty: the name servers of the system.
    pub resolvers: Vec<SocketAddr>,
}

/// Settings of a `mux://` listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mux {
    /// The target of all connections that are neither a carrier nor for a name. The server dials
    /// it. `None`: such connections are closed.
    pub default: Option<Target>,
    /// The time without a byte after which a new connection goes to `default`, for protocols in
    /// which the server speaks first.
    pub silence: Span,
    /// The timeouts of the connections to `default`.
    pub timeouts: Timeouts,
    /// Whether connections of trusted reverse proxies begin with a header of the PROXY protocol.
    pub accept_proxy: bool,
}

impl Http {
    pub(super) fn differs(&self, other: &Self) -> [(bool, Changed); 9] {
        let Self {
            listen,
            domain,
            route_header,
            no_redirect,
            pages,
            remember,
            idle,
            browser,
            accept_proxy,
        } = self;
        [
            (*listen != other.listen, Changed::restart("http.listen")),
            (*domain != other.domain, Changed::live("http.domain")),
            (*route_header != other.route_header, Changed::live("http.route_header")),
            (*no_redirect != other.no_redirect, Changed::live("http.redirect")),
            (*pages != other.pages, Changed::live("http.pages")),
            (*remember != other.remember, Changed::live("http.remember")),
            (*idle != other.idle, Changed::live("http.idle")),
            (*browser != other.browser, Changed::live("http.browser")),
            (*accept_proxy != other.accept_proxy, Changed::restart("http.accept_proxy")),
        ]
    }

    /// The settings in readable form, line by line.
    pub(super) fn summary(&self) -> Vec<String> {
        let mut lines: Vec<_> =
            self.listen.iter().map(|at| format!("visitors of http:// names at {at}")).collect();
        if let Some(domain) = &self.domain {
            lines.push(format!("each client may publish a name of its own below {domain}"));
        }
        if let Some(field) = &self.route_header {
            lines.push(format!("the field {field} of a request names the service"));
        }
        if let (true, Some(domain)) = (self.browser, &self.domain) {
            lines.push(format!("browsers visit private services at visit.{domain}"));
        }
        if self.no_redirect {
            lines.push("visitors of http:// are not sent to https:// names".to_owned());
        }
        lines
    }
}

impl TlsRoutes {
    pub(super) fn differs(&self, other: &Self) -> [(bool, Changed); 5] {
        let Self { listen, certificates, min_version, acme, accept_proxy } = self;
        [
            (*listen != other.listen, Changed::restart("tls_routes.listen")),
            (*certificates != other.certificates, Changed::live("tls_routes.certificates")),
            (*min_version != other.min_version, Changed::live("tls_routes.min_version")),
            (*acme != other.acme, Changed::live("tls_routes.acme")),
            (*accept_proxy != other.accept_proxy, Changed::restart("tls_routes.accept_proxy")),
        ]
    }

    /// The settings in readable form, line by line.
    pub(super) fn summary(&self) -> Vec<String> {
        let visitors = "visitors of tls:// and https:// names at";
        let mut lines: Vec<_> = self.listen.iter().map(|at| format!("{visitors} {at}")).collect();
        for pair in &self.certificates {
            lines.push(format!("certificate for https:// names {}", pair.cert.display()));
        }
        for Acme { directory, names, dns, .. } in &self.acme {
            let names =
                if names.is_empty() { "other https:// names".into() } else { names.join(", ") };
            let by = dns.as_ref().map(|dns| format!(" by dns-01 with {}", dns.exec.display()));
            let by = by.unwrap_or_default();
            lines.push(format!("certificates for {names} from {directory}{by}"));
        }
        lines
    }
}
