//! Services by host name: the names that visitors use (`http://app.example.com`), their resources,
//! and the labels below the domain of a server that belong to its clients.

use std::collections::BTreeMap;
use std::fmt;

use crate::address::{USER, has_user};
use crate::endpoint::split;
use crate::{BadValue, Host};

/// The place of the client's own label in a host.
const OWN: &str = "{name}";

/// Longest label in bytes (RFC 1035 section 2.3.4).
const LABEL_MAX: usize = 63;

/// How visitors of a name are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NameKind {
    /// HTTP; `Host` names the service.
    Http,
    /// HTTP over TLS that ends at the server; the server holds the certificate.
    Https,
    /// TLS that the server passes through; the target holds the certificate.
    Tls,
}

impl NameKind {
    /// The scheme of the name's URL.
    #[must_use]
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Tls => "tls",
        }
    }

    /// Whether the server reads HTTP requests for such a name.
    #[must_use]
    pub const fn is_http(self) -> bool {
        match self {
            Self::Http | Self::Https => true,
            Self::Tls => false,
        }
    }

    fn of_scheme(scheme: &str) -> Option<Self> {
        [Self::Http, Self::Https, Self::Tls].into_iter().find(|kind| kind.scheme() == scheme)
    }

    /// The key of the server's file with the port of such visitors.
    const fn door(self) -> &'static str {
        match self {
            Self::Http => "http.listen",
            Self::Https | Self::Tls => "tls_routes.listen",
        }
    }
}

impl fmt::Display for NameKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.scheme())
    }
}

/// Parses `http://HOST`, `https://HOST` or `tls://HOST` of a service. `None` for another scheme.
pub(crate) fn public_name(text: &str) -> Option<Result<(NameKind, String), BadValue>> {
    let (scheme, rest) = text.split_once("://")?;
    let kind = NameKind::of_scheme(scheme)?;
    Some(host(text, kind, rest).map(|host| (kind, host)))
}

fn host(text: &str, kind: NameKind, rest: &str) -> Result<String, BadValue> {
    let bad = |why: &str| BadValue::new(format!("`{text}` {why}"));
    if has_user(rest) {
        let hint = if kind.is_http() {
            "visitors are asked for both by a key of the service: basic_auth: [\"user:password\"]"
        } else {
            "TLS passes through, and visitors log in at the target; `basic_auth` is for http:// and \
             https:// names"
        };
        return Err(BadValue::new(USER).hint(hint));
    }
    if rest.contains(['/', '?', '#']) {
        let hint = if kind.is_http() {
            "write http://app.example.com, and `path: /api` as a key of the service (in a command: \
             --path /api)"
        } else {
            "TLS is found by its host alone: tls://vpn.example.com"
        };
        return Err(bad("has a path").hint(hint));
    }
    if let (host, Some(_)) = split(rest)? {
        let door = kind.door();
        return Err(bad("has a port")
            .hint(format!("write {kind}://{host}: the server's `{door}` decides about the port")));
    }
    if rest == "*" {
        return Ok(rest.to_owned());
    }
    if let Some((prefix, domain)) = rest.split_once(OWN) {
        let Some(prefix) = own_prefix(prefix) else { return Err(own_label_alone(text)) };
        if domain.is_empty() {
            return Ok(format!("{prefix}{OWN}"));
        }
        let domain = domain.strip_prefix('.').map(|domain| domain_name(text, domain));
        return match domain {
            Some(domain) => Ok(format!("{prefix}{OWN}.{}", domain?)),
            None => Err(own_label_alone(text)),
        };
    }
    if rest.contains(['{', '}']) {
        return Err(own_label_alone(text));
    }
    if let Some(domain) = rest.strip_prefix("*.") {
        return Ok(format!("*.{}", domain_name(text, domain)?));
    }
    let name = domain_name(text, rest)?;
    if !name.contains('.') {
        return Err(bad("has one label").hint(format!(
            "write the whole name, such as {kind}://{name}.example.com; {kind}://{OWN} is the name \
             of this client below the domain of the server"
        )));
    }
    Ok(name)
}

fn own_label_alone(text: &str) -> BadValue {
    BadValue::new(format!("`{text}` is not a name")).hint(
        "{name} is the whole first label, or its end after a hyphen: http://{name}.example.com, \
             http://{name} or http://app-{name}",
    )
}

/// The part of a label before the client's own label, in lower case: nothing, or letters, digits
/// and hyphens that begin with a letter or digit and end with a hyphen.
fn own_prefix(prefix: &str) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let is_prefix = prefix.is_empty()
        || prefix.ends_with('-') && !prefix.starts_with('-') && prefix.bytes().all(is_plain);
    is_prefix.then(|| prefix.to_ascii_lowercase())
}

fn domain_name(text: &str, domain: &str) -> Result<String, BadValue> {
    match domain.parse::<Host>() {
        Ok(Host::Name(name)) => Ok(name),
        Ok(Host::Ip(_) | Host::Scoped(_)) => {
            Err(BadValue::new(format!("`{text}` has an address and no name"))
                .hint("visitors are routed by name; tcp://:10080 publishes a port"))
        }
        Err(why) if !domain.is_ascii() => Err(why),
        Err(_) => Err(BadValue::new(format!("`{text}` has no host name"))
            .hint("for example http://app.example.com, http://*.home.example.com or http://*")),
    }
}

/// Whether the host is a template: its first label is the client's own label, or ends with it.
pub(crate) fn is_own(host: &str) -> bool {
    host.contains(OWN)
}

/// The host with the client's own label instead of `{name}`.
///
/// # Errors
/// The client's name has no label.
pub(crate) fn expand(host: &str, client: &str) -> Result<String, BadValue> {
    let Some((prefix, rest)) = host.split_once(OWN) else { return Ok(host.to_owned()) };
    let Some(label) = own_label(client) else {
        return Err(BadValue::new(format!("the client name `{client}` makes no host name")).hint(
            format!(
                "a label has 1 to {LABEL_MAX} letters, digits and hyphens; change `name` or \
                 `id_prefix`, or write the host in full"
            ),
        ));
    };
    let host = format!("{prefix}{label}{rest}");
    match host.parse::<Host>() {
        Ok(_) => Ok(host),
        Err(_) => Err(BadValue::new(format!("`{host}` is too long for a host name"))),
    }
}

/// The label of a client below the domain of a server: lower case, with a hyphen for every
/// character other than letters and digits, and without hyphens at the ends. `None`: the label
/// would be empty or longer than 63 bytes.
#[must_use]
pub fn own_label(client: &str) -> Option<String> {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let mapped: String = client.chars().map(plain).collect();
    let label = mapped.trim_matches('-');
    (1..=LABEL_MAX).contains(&label.len()).then(|| label.to_owned())
}

/// Whether a host is a name that a client may have without a right: `LABEL.DOMAIN` with its own
/// label, or `PREFIX-LABEL.DOMAIN`. The label of one client may match the second form for another
/// client; the caller refuses a host that is the own label of another client.
#[must_use]
pub fn is_own_name(host: &str, domain: &str, client: &str) -> bool {
    let (Ok(Host::Name(host)), Ok(Host::Name(domain))) = (host.parse(), domain.parse()) else {
        return false;
    };
    let below = host.strip_suffix(domain.as_str()).and_then(|rest| rest.strip_suffix('.'));
    let (Some(label), Some(own)) = (below, own_label(client)) else { return false };
    if label.contains('.') {
        return false;
    }
    let prefix = label.strip_suffix(own.as_str());
    prefix.is_some_and(|prefix| prefix.is_empty() || prefix.len() > 1 && prefix.ends_with('-'))
}

/// The names that services occupy. `https` and `tls` of one host are one resource. HTTP services
/// may share a host with different paths.
#[derive(Debug, Default)]
pub(crate) struct Names(BTreeMap<String, Vec<(NameKind, String)>>);

impl Names {
    /// Occupies a name for the requests below `path`. Returns whether the name was free.
    pub(crate) fn take(&mut self, kind: NameKind, host: &str, path: Option<&str>) -> bool {
        let is_free = !self.has(kind, host, path);
        let path = path.unwrap_or("/").to_owned();
        self.0.entry(host.to_owned()).or_default().push((kind, path));
        is_free
    }

    /// Whether a service has the name.
    pub(crate) fn has(&self, kind: NameKind, host: &str, path: Option<&str>) -> bool {
        let path = path.unwrap_or("/");
        let is_same = |(other, at): &(NameKind, String)| match (kind, *other) {
            (NameKind::Http, NameKind::Http) | (NameKind::Https, NameKind::Https) => at == path,
            (NameKind::Tls, NameKind::Tls | NameKind::Https) | (NameKind::Https, NameKind::Tls) => {
                true
            }
            (NameKind::Http, NameKind::Https | NameKind::Tls)
            | (NameKind::Https | NameKind::Tls, NameKind::Http) => false,
        };
        self.0.get(host).is_some_and(|taken| taken.iter().any(is_same))
    }
}

/// The name of a service that has only this host name, at most `most` bytes:
/// `http-app.example.com`.
pub(crate) fn service_name(kind: NameKind, host: &str, most: usize) -> String {
    let host = match host.strip_prefix('*') {
        Some(rest) => format!("any{rest}"),
        None => host.replace(['{', '}'], ""),
    };
    let mut name = format!("{kind}-{host}");
    name.truncate(most);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_a_name_is_led_to_its_key_and_not_repeated() {
        for text in [
            "http://ann:secret@app.example.com",
            "https://ann@app.example.com/x",
            "tls://ann:secret@app.example.com",
        ] {
            let bad = public_name(text).unwrap().unwrap_err();
            assert!(!bad.message.contains("secret"), "{text}: {bad:?}");
            assert!(bad.hint.is_some_and(|hint| hint.contains("basic_auth")), "{text}");
        }
    }

    #[test]
    fn hosts_are_normalised_and_everything_else_is_refused() {
        let host = |text: &str| public_name(text).map(|read| read.map(|(_, host)| host));
        for (text, wanted) in [
            ("http://App.Example.com.", "app.example.com"),
            ("https://*.Home.example.com", "*.home.example.com"),
            ("tls://*", "*"),
            ("http://Bücher.example.com", "xn--bcher-kva.example.com"),
            ("https://*.bücher.example.com", "*.xn--bcher-kva.example.com"),
            ("http://{name}.bücher.example", "{name}.xn--bcher-kva.example"),
            ("http://{name}", "{name}"),
            ("http://{name}.Example.com", "{name}.example.com"),
            ("http://Web-2-{name}.Example.com", "web-2-{name}.example.com"),
            ("http://web-{name}", "web-{name}"),
        ] {
            assert_eq!(host(text), Some(Ok(wanted.to_owned())), "{text}");
        }
        for bad in [
            "http://",
            "http://a.example:80",
            "http://a.example:",
            "http://a.example/",
            "tls://a.example/b",
            "http://a.example?b",
            "http://app",
            "http://*.",
            "http://a.*.example",
            "http://**",
            "http://127.0.0.1",
            "http://[::1]",
            "http://web{name}.example.com",
            "http://-{name}",
            "http://a.b-{name}",
            "http://a_-{name}",
            "http://{name}-{name}",
            "http://{name}a.example.com",
            "http://{other}.example.com",
            "http://*.{name}.example.com",
            "http://u@a.example",
            "http://a b.example",
        ] {
            assert!(host(bad).unwrap().is_err(), "{bad}");
        }
        assert_eq!(host("tcp://:80"), None);
        assert_eq!(host("app.example.com"), None);
    }

    #[test]
    fn a_label_is_made_of_any_client_name() {
        for (client, label) in [
            ("home", Some("home")),
            ("Web.Home_1", Some("web-home-1")),
            ("web-home", Some("web-home")),
            ("_a_", Some("a")),
            ("..", None),
            ("", None),
        ] {
            assert_eq!(own_label(client).as_deref(), label, "{client}");
        }
        assert_eq!(own_label(&"a".repeat(63)).map(|label| label.len()), Some(63));
        assert_eq!(own_label(&"a".repeat(64)), None);
        assert_eq!(expand("{name}.example.com", "Web.1").as_deref(), Ok("web-1.example.com"));
        assert_eq!(expand("{name}", "home").as_deref(), Ok("home"));
        assert_eq!(expand("web-{name}", "Home.1").as_deref(), Ok("web-home-1"));
        assert!(expand("web-{name}", &"a".repeat(60)).is_err(), "a label has 63 bytes at most");
        assert_eq!(expand("*.example.com", "..").as_deref(), Ok("*.example.com"));
        assert!(expand("{name}.example.com", "..").is_err());
        let long = format!("{{name}}.{}", vec!["a".repeat(60); 4].join("."));
        assert!(expand(&long, &"b".repeat(60)).is_err());
    }

    #[test]
    fn own_names_are_one_label_below_the_domain() {
        for (host, client, own) in [
            ("home.example.com", "home", true),
            ("HOME.Example.com.", "Home", true),
            ("web-home.example.com", "home", true),
            ("web-1-home.example.com", "home", true),
            ("webhome.example.com", "home", false),
            ("-home.example.com", "home", false),
            ("a.home.example.com", "home", false),
            ("web.home.example.com", "home", false),
            ("homer.example.com", "home", false),
            ("home.example.org", "home", false),
            ("homeexample.com", "home", false),
            ("home.example.com.evil.org", "home", false),
            ("example.com", "home", false),
            ("*.example.com", "home", false),
            ("other.example.com", "home", false),
            ("a.example.com", "..", false),
        ] {
            assert_eq!(is_own_name(host, "example.com", client), own, "{host} {client}");
        }
    }

    #[test]
    fn names_clash_by_resource_and_path() {
        use NameKind::{Http, Https, Tls};
        let mut names = Names::default();
        assert!(names.take(Http, "a", None));
        assert!(!names.has(Https, "a", None) && names.has(Http, "a", Some("/")));
        assert!(names.take(Http, "a", Some("/api")) && names.take(Https, "a", Some("/api")));
        assert!(names.has(Tls, "a", None) && !names.has(Https, "a", None));
        assert!(names.take(Tls, "*", None) && names.has(Https, "*", Some("/api")));
        assert!(!names.has(Http, "*", None) && !names.has(Http, "b", None));
    }

    #[test]
    fn a_service_gets_a_name_that_a_service_may_have() {
        for (host, name) in [
            ("app.example.com", "http-app.example.com"),
            ("*.home.example.com", "http-any.home.example.com"),
            ("*", "http-any"),
            ("{name}.example.com", "http-name.example.com"),
        ] {
            let made = service_name(NameKind::Http, host, 64);
            assert_eq!(made, name);
            assert!(proto::greeting::Name::new(&made).is_ok());
        }
        assert_eq!(service_name(NameKind::Tls, &"a".repeat(200), 60).len(), 60);
    }
}
