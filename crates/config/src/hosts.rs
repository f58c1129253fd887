//! The host names whose visitors a client may serve. Names are normalised before they are compared
//! (reliability 29): lower case, no dot at the end.

use std::fmt;
use std::str::FromStr;

use regex_lite::Regex;

use crate::{BadValue, Host};

/// The longest expression in bytes. This limit and the 253 bytes of a name bound the engine's work.
const PATTERN_MAX: usize = 256;

/// A right of `allow.http` or `allow.tls`: `app.example.com`, `*.home.example.com`, `*` (every
/// host) or `/web-[0-9]+\.example\.com/`.
#[derive(Clone)]
pub struct HostRight(Form);

#[derive(Clone)]
enum Form {
    /// Every name, and the default for names without a service.
    Every,
    /// Exactly this name.
    Exact(String),
    /// Names with this suffix, which begins with a dot, and with at least one label before it.
    Under(String),
    /// Names that the whole expression matches.
    Pattern { text: String, regex: Regex },
}

impl FromStr for HostRight {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        if let Some(pattern) = text.strip_prefix('/') {
            return Self::pattern(text, pattern.strip_suffix('/'));
        }
        if text == "*" {
            return Ok(Self(Form::Every));
        }
        let (name, under) = match text.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (text, false),
        };
        let hint = "for example app.example.com, *.home.example.com, \"*\" or /web-[0-9]+\\.example\\.com/";
        match name.parse::<Host>() {
            Ok(Host::Name(name)) if under => Ok(Self(Form::Under(format!(".{name}")))),
            Ok(Host::Name(name)) => Ok(Self(Form::Exact(name))),
            Err(why) if !name.is_ascii() => Err(why),
            Ok(Host::Ip(_) | Host::Scoped(_)) | Err(_) => {
                Err(BadValue::new(format!("`{text}` is not a host name")).hint(hint))
            }
        }
    }
}

impl HostRight {
    fn pattern(text: &str, pattern: Option<&str>) -> Result<Self, BadValue> {
        let bad = |why: String| BadValue::new(format!("`{text}` is not an expression: {why}"));
        let Some(pattern) = pattern.filter(|pattern| !pattern.is_empty()) else {
            return Err(bad("it has no end".into()).hint("it stands between two slashes"));
        };
        if !pattern.is_ascii() {
            return Err(bad("it has letters beyond ASCII".into())
                .hint("it is compared with names as DNS has them: xn--bcher-kva\\.example\\.com"));
        }
        if pattern.len() > PATTERN_MAX {
            return Err(bad(format!("longer than {PATTERN_MAX} bytes")));
        }
        // Match the whole name, also with alternatives in the expression; a right that matches a
        // part of a name would permit too much.
        let regex = Regex::new(&format!("^(?:{pattern})$")).map_err(|why| bad(why.to_string()))?;
        // Parse the expression by itself as well: `a)|(b` would close the surrounding group.
        Regex::new(pattern).map_err(|why| bad(why.to_string()))?;
        Ok(Self(Form::Pattern { text: pattern.to_owned(), regex }))
    }

    /// Whether the right permits `name`, which is normalised as [`Host`] does.
    fn permits(&self, name: &str) -> bool {
        match &self.0 {
            Form::Every => true,
            Form::Exact(exact) => exact == name,
            Form::Under(end) => name.len() > end.len() && name.ends_with(end.as_str()),
            Form::Pattern { regex, .. } => regex.is_match(name),
        }
    }

    /// Whether this right certainly permits everything that `other` permits.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        match &other.0 {
            _ if self == other => true,
            Form::Exact(name) => self.permits(name),
            Form::Under(end) => self.permits_all(end),
            Form::Every | Form::Pattern { .. } => matches!(self.0, Form::Every),
        }
    }

    /// Whether the right permits every name with the suffix `end`, which begins with a dot.
    /// Expressions never do, because nothing proves that an expression matches all such names.
    fn permits_all(&self, end: &str) -> bool {
        match &self.0 {
            Form::Every => true,
            Form::Under(own) => end.ends_with(own.as_str()),
            Form::Exact(_) | Form::Pattern { .. } => false,
        }
    }
}

impl fmt::Display for HostRight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Every => f.write_str("*"),
            Form::Exact(name) => f.write_str(name),
            Form::Under(end) => write!(f, "*{end}"),
            Form::Pattern { text, .. } => write!(f, "/{text}/"),
        }
    }
}

impl fmt::Debug for HostRight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostRight({self})")
    }
}

/// Rights are equal if their texts are equal.
impl PartialEq for HostRight {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Form::Exact(a), Form::Exact(b)) | (Form::Under(a), Form::Under(b)) => a == b,
            (Form::Pattern { text: a, .. }, Form::Pattern { text: b, .. }) => a == b,
            (Form::Every, Form::Every) => true,
            (Form::Every | Form::Exact(_) | Form::Under(_) | Form::Pattern { .. }, _) => false,
        }
    }
}

impl Eq for HostRight {}

/// The host names that a client may publish; empty permits none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostRights(pub Vec<HostRight>);

impl HostRights {
    /// Whether visitors of this host name may be sent to the client. An IP address is never
    /// permitted, because it is not a name. `*.home.example.com` needs a right that covers all
    /// names below, and `*` needs the right to every host.
    #[must_use]
    pub fn permits(&self, host: &str) -> bool {
        if host == "*" {
            return self.0.iter().any(|right| matches!(right.0, Form::Every));
        }
        if let Some(domain) = host.strip_prefix("*.") {
            let Ok(Host::Name(domain)) = domain.parse() else { return false };
            let end = format!(".{domain}");
            return self.0.iter().any(|right| right.permits_all(&end));
        }
        match host.parse::<Host>() {
            Ok(Host::Name(name)) => self.0.iter().any(|right| right.permits(&name)),
            Ok(Host::Ip(_) | Host::Scoped(_)) | Err(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_rights_hold_against_dots_case_neighbours_and_halves() {
        let table = [
            ("app.example.com", "app.example.com", true),
            ("App.Example.com.", "aPP.example.COM.", true),
            ("app.example.com", "app.example.com..", false),
            ("app.example.com", "xapp.example.com", false),
            ("app.example.com", "app.example.com.evil.org", false),
            ("*.home.example.com", "a.home.example.com", true),
            ("bücher.example.com", "xn--bcher-kva.example.com", true),
            ("*.bücher.example.com", "a.xn--bcher-kva.example.com", true),
            ("bücher.example.com", "bucher.example.com", false),
            ("*.home.example.com", "A.B.home.example.com.", true),
            ("*.home.example.com", "home.example.com", false),
            ("*.home.example.com", ".home.example.com", false),
            ("*.home.example.com", "evilhome.example.com", false),
            ("*.home.example.com", "a.home.example.com.evil.org", false),
            (r"/web-[0-9]+\.example\.com/", "web-12.example.com", true),
            (r"/web-[0-9]+\.example\.com/", "WEB-1.example.com.", true),
            (r"/web-[0-9]+\.example\.com/", "xweb-1.example.com", false),
            (r"/web-[0-9]+\.example\.com/", "web-1.example.com.evil.org", false),
            (r"/a\.example\.com|b\.example\.com/", "b.example.com", true),
            (r"/a\.example\.com|b\.example\.com/", "a.example.com.evil.org", false),
            ("/.*/", "127.0.0.1", false),
            ("/.*/", "[::1]", false),
            ("/.*/", "a_b.example", true),
            ("/.*/", "", false),
            ("*", "app.example.com", true),
            ("*", "*.example.com", true),
            ("*", "*", true),
            ("*", "127.0.0.1", false),
            ("*", "[::1]", false),
            ("*", "", false),
            ("*", "*.", false),
            ("*", "*.*.example.com", false),
            ("*", "*.127.0.0.1", false),
            ("*.home.example.com", "*.home.example.com", true),
            ("*.home.example.com", "*.HOME.example.com.", true),
            ("*.home.example.com", "*.a.home.example.com", true),
            ("*.example.com", "*.home.example.com", true),
            ("*.home.example.com", "*.example.com", false),
            ("*.home.example.com", "*.evilhome.example.com", false),
            ("*.home.example.com", "*", false),
            ("home.example.com", "*.home.example.com", false),
            ("/.*/", "*.home.example.com", false),
            (r"/\*\.home\.example\.com/", "*.home.example.com", false),
            ("/.*/", "*", false),
        ];
        for (right, host, want) in table {
            let rights = HostRights(vec![right.parse().unwrap()]);
            assert_eq!(rights.permits(host), want, "{right} {host}");
        }
        assert!(!HostRights::default().permits("a.example.com"));
    }

    #[test]
    fn what_is_no_right_is_refused_and_a_shown_one_reads_back() {
        for bad in [
            "",
            "**",
            "*.",
            "a*.b",
            "*.*.b",
            "10.0.0.1",
            "[::1]",
            "/",
            "//",
            "/(/",
            "/a)|(b/",
            "a b",
            "/bücher/",
            "a ü.b",
        ] {
            assert!(bad.parse::<HostRight>().is_err(), "{bad}");
        }
        assert!(format!("/{}/", "a".repeat(300)).parse::<HostRight>().is_err());
        for good in ["a.example", "*.a.example", "*", "/x+/"] {
            let right: HostRight = good.parse().unwrap();
            assert_eq!(right.to_string(), good);
            assert_eq!(right.to_string().parse(), Ok(right));
        }
    }
}
