//! The doors of a server: ports that all clients share, where the first bytes of a visitor name the
//! service.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use proto::FieldEdits;
use proto::control::Timeouts;

use crate::key_table::KeyTable;
use crate::model::acme::Acme;
use crate::model::credentials::{self, KeyPair};
use crate::section::{Item, Section};
use crate::taken::{Bind, Clash};
use crate::words::words;
use crate::{BadValue, Host, Span, Target, values};

/// Services by HTTP name.
#[derive(Clone, Debug, PartialEq, Eq, KeyTable)]
#[keys(compare = "http", check = http)]
pub struct Http {
    /// The addresses at which visitors of `http://` names connect.
    ///
    /// They are all different.
    #[key("address:port, one or list", none, restart, holds = Url,
        with = |s, key| addresses(s, key, "0.0.0.0:80"))]
    pub listen: Vec<SocketAddr>,
    /// The domain below which each client may publish its own name without a right.
    ///
    /// In lower case.
    #[key("name", none, live, read = domain)]
    pub domain: Option<String>,
    /// The header field of a request that names the service instead of `Host`.
    #[key("name of a field", none = "`Host`", live, read = route_header)]
    pub route_header: Option<String>,
    /// Redirects visitors of `http://` to the `https://` name if the host has no `http://` name.
    ///
    /// Whether such visitors get 404 instead.
    #[key("`true`, `false`", name = "redirect", default = "true", live, read = values::no_switch)]
    pub no_redirect: bool,
    /// HTML files that replace the built-in error pages.
    #[key(map, live)]
    pub pages: Pages,
    /// The time for which a name stays known after its client has left.
    ///
    /// Zero: not at all. The default is longer than holidays, and short enough that a forgotten
    /// name does not stay for ever.
    #[key("duration, 0: off", default = "30d", live)]
    pub remember: Span,
    /// The idle timeout of a visitor's HTTP connection without a request in progress.
    ///
    /// The default is that of nginx (`keepalive_timeout`). Browsers keep connections longer and
    /// expect the server to close them.
    #[key("duration, 1s to 1d", default = "75s", live, read = idle)]
    pub idle: Span,
    /// Serves the page with which browsers visit private services.
    #[key("`true`, `false`", default = "false", live, read = values::switch)]
    pub browser: bool,
    /// Expects a PROXY protocol header from trusted proxies at `http.listen`.
    #[key("`true`, `false`", default = "false", restart, read = values::switch)]
    pub accept_proxy: bool,
}

/// HTML files that replace built-in pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, KeyTable)]
pub struct Pages {
    /// The HTML file of the 404 page: no service has the host.
    #[key("path", absent = "a built-in page", with = values::path)]
    pub not_found: Option<PathBuf>,
    /// The HTML file of the 502 page: the service does not respond.
    #[key("path", absent = "a built-in page", with = values::path)]
    pub unavailable: Option<PathBuf>,
}

/// Services by TLS name.
#[derive(Clone, Debug, PartialEq, Eq, KeyTable)]
#[keys(compare = "tls_routes")]
pub struct TlsRoutes {
    /// The addresses at which visitors of `https://` and `tls://` names connect.
    ///
    /// They are all different.
    #[key("address:port, one or list", none, restart, holds = Url,
        with = |s, key| addresses(s, key, "0.0.0.0:443"))]
    pub listen: Vec<SocketAddr>,
    /// Certificates of `https://` names, each for the names in the certificate.
    #[key("list", list, none, live, with = certificates)]
    pub certificates: Vec<KeyPair>,
    /// The lowest TLS version of `https://` names.
    #[key("`1.2`, `1.3`", default = "1.2", live)]
    pub min_version: TlsVersion,
    /// The ACME accounts that order certificates of `https://` names without a configured pair.
    ///
    /// The first account whose names include a name orders its certificate; empty: no other
    /// certificates.
    #[key("map, one or list", map, absent = "no authority", live, with = super::acme::accounts)]
    pub acme: Vec<Acme>,
    /// Expects a PROXY protocol header from trusted proxies at `tls_routes.listen`.
    #[key("`true`, `false`", default = "false", restart, read = values::switch)]
    pub accept_proxy: bool,
}

words! {
    /// A version of TLS.
    pub enum TlsVersion: "version" "of TLS" {
        /// TLS 1.2 (RFC 5246).
        #[default]
        V12 = "1.2",
        /// TLS 1.3 (RFC 8446).
        V13 = "1.3",
    }
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

/// The shortest `http.idle`. A visitor sends its next request over the same connection.
const IDLE_LEAST: Duration = Duration::from_secs(1);

/// The longest `http.idle`. Routers forget a connection much earlier.
const IDLE_MOST: Duration = Duration::from_secs(86_400);

/// Checks the page for browsers, which needs names of its own.
pub(crate) fn http(s: &Section<'_>, http: Http) -> Option<Http> {
    if http.browser && !s.has("domain") {
        let bad = BadValue::new("the page for browsers needs names of its own");
        let hint = "add domain: example.com; the page is at visit.example.com, and each service at a \
                    name below example.com";
        s.bad("browser", bad.hint(hint));
    }
    Some(http)
}

pub(crate) fn route_header(text: &str) -> Result<String, BadValue> {
    match FieldEdits::check_name(text) {
        Ok(()) => Ok(text.to_owned()),
        Err(why) => Err(BadValue::new(why.to_string())
            .hint("without the key, Host names the service; X-Route is possible")),
    }
}

pub(crate) fn idle(text: &str) -> Result<Span, BadValue> {
    let span = text.parse::<Span>()?;
    if (IDLE_LEAST..=IDLE_MOST).contains(&span.duration()) {
        return Ok(span);
    }
    let bad = BadValue::new(format!("`{text}` is not between 1s and 1d"));
    Err(bad.hint("75s is the default; balancers in front keep connections for 240s to 900s"))
}

pub(crate) fn domain(text: &str) -> Result<String, BadValue> {
    match text.parse() {
        Ok(Host::Name(name)) => Ok(name),
        Err(why) if !text.is_ascii() => Err(why),
        Ok(Host::Ip(_) | Host::Scoped(_)) | Err(_) => {
            Err(BadValue::new(format!("`{text}` is not a domain"))
                .hint("example.com gives the client home the name home.example.com"))
        }
    }
}

/// Decodes `listen` of a door.
pub(crate) fn addresses(s: &Section<'_>, key: &str, example: &str) -> Vec<SocketAddr> {
    let Some(item) = s.key(key) else { return Vec::new() };
    let mut all = Vec::new();
    for item in s.cx.one_or_list(&item) {
        let Some(at) = s.cx.value(&item, |text| address(text, example)) else { continue };
        let clash = s.cx.taken.borrow_mut().tcp.take(Bind::Ip(at.ip()), at.port());
        if let Some(clash) = clash {
            let bad = match clash {
                Clash::Same => BadValue::new(format!("another listener has {at}")),
                Clash::Covers(other) => {
                    let host = Host::Ip(at.ip());
                    let (other, port) = (other.host(), at.port());
                    BadValue::new(format!("{host} and {other} overlap on port {port}"))
                }
            };
            let hint = "remove one of them, or serve clients and names on one port: listen: \
                        mux://0.0.0.0:443";
            s.cx.problem(item.at(), &item.path, bad.hint(hint));
        }
        all.push(at);
    }
    all
}

fn address(text: &str, example: &str) -> Result<SocketAddr, BadValue> {
    let hint = format!("an address with a port: {example}");
    if let Some((scheme, rest)) = text.split_once("://") {
        let bad = BadValue::new(format!("`{text}` has a scheme"));
        return Err(match rest.parse::<SocketAddr>() {
            Ok(at) => bad.hint(format!("write {at}; the section says what is spoken there")),
            Err(_) if scheme == "mux" => bad.hint("mux:// belongs under `listen`"),
            Err(_) => bad.hint(hint),
        });
    }
    text.parse().map_err(|_| BadValue::new(format!("`{text}` is not an address")).hint(hint))
}

/// Decodes `certificates`.
pub(crate) fn certificates(s: &Section<'_>, key: &str) -> Vec<KeyPair> {
    let pairs = s.one_or_list(key);
    pairs.into_iter().filter_map(|item| certificate(s, item)).collect()
}

fn certificate(s: &Section<'_>, item: Item) -> Option<KeyPair> {
    let s = Section::open(s.cx, item, KeyPair::MAP)?;
    if !s.has("cert") && !s.has("key") {
        s.missing("cert", "the file with the chain, and `key` with its key");
    }
    credentials::key_pair(&s)
}
