//! How a server handles the HTTP requests of a service that is published by name.

use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroU32;

use crate::Redirect;
use crate::control::TEXT_MAX;
use crate::text::is_forbidden;
use crate::{
    CREDENTIALS_MAX, EDITS_MAX, FIELD_NAME_MAX, HASHES_MAX, HttpOptionError, PORTS_MAX,
    PasswordHash,
};

/// Fields of the connection or of the message framing (RFC 9110 section 7.6.1, RFC 9112 sections 6
/// and 7), and `Host`, which has its own option. A change would make two parsers disagree about a
/// message.
const FIXED: &[&str] = &[
    "connection",
    "content-length",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The protocol of the target of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetProtocol {
    /// HTTP/1.1, or raw bytes.
    #[default]
    Http,
    /// HTTP over TLS, which the client originates: HTTP/2 if the bytes for the target begin with
    /// the preface of HTTP/2 (RFC 9113 section 3.4), otherwise HTTP/1.1.
    Https,
    /// HTTP/2 without TLS.
    H2c,
}

/// The options of a service that is published by HTTP name. The default forwards the visitor's
/// bytes unchanged.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HttpOptions {
    /// Only the first request of a connection is parsed; the server forwards all later bytes
    /// without inspection.
    pub pass_through: bool,
    /// Pairs `user:password`, one of which a visitor must present (RFC 7617). Empty: everybody may
    /// visit.
    pub basic_auth: Vec<String>,
    /// Pairs `user:hash` in addition to those of `basic_auth`; see [`PasswordHash`]. Each user is
    /// in one pair.
    pub hashes: Vec<String>,
    /// The value of `Host` that the target sees.
    pub host_rewrite: Option<String>,
    /// Changes of the fields of requests.
    pub request: FieldEdits,
    /// Changes of the fields of responses.
    pub response: FieldEdits,
    /// The target receives `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host` about the
    /// visitor.
    pub forwarded: bool,
    /// The service takes only requests whose path is this path or below it: `/api` matches `/api`
    /// and `/api/v1`, but not `/apis`.
    pub path: Option<String>,
    /// The path that replaces [`path`](Self::path) in requests to the target: `/` removes it.
    /// `None`: the target sees the visitor's path.
    pub strip_prefix: Option<String>,
    /// The service redirects its visitors to another address and has no target.
    pub redirect: Option<Redirect>,
    /// Visitors over `http://` of its `https://` names get 404, instead of a redirect.
    pub no_https_redirect: bool,
    /// The seconds for which a browser uses `https://` alone for the host (RFC 6797 section 6.1.1).
    /// `None`: the field is not sent.
    pub hsts: Option<u32>,
    /// A CORS preflight of a browser needs no password.
    pub preflight_pass: bool,
    /// The protocol in which the server sends requests to the target.
    pub target: TargetProtocol,
    /// Which responses the server compresses.
    pub compress: Compress,
    /// Whether a cookie pins a visitor to the client or target of its first request.
    pub sticky: Sticky,
    /// The maximum number of requests per second of each source, an IPv4 address or an IPv6 /64.
    pub requests_per_second: Option<NonZeroU32>,
    /// The ports of the targets. A target may name its own port in an address in its response, and
    /// the server rewrites it to the address that visitors use. Only with an option for which the
    /// server reads each message.
    pub ports: Vec<u16>,
}

/// To what a cookie pins a visitor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sticky {
    /// To nothing.
    #[default]
    Off,
    /// To the client that got its first request.
    Client,
    /// To the client and the target. The client accepts streams of [`Target::Marked`] and reports
    /// the target.
    ///
    /// [`Target::Marked`]: crate::Target::Marked
    Target,
}

/// Which responses of a target a server compresses, if the visitor accepts that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compress {
    /// None.
    #[default]
    Off,
    /// Responses whose length reveals nothing about a secret: those to requests without
    /// credentials, and those that are the same for everybody.
    Public,
    /// All.
    Always,
}

/// Changes of the fields of an HTTP message.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct FieldEdits {
    /// Names and values that replace all fields of the same name.
    pub set: Vec<(String, String)>,
    /// Names of fields that are removed.
    pub remove: Vec<String>,
}

impl FieldEdits {
    /// Whether nothing is changed.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.set.is_empty() && self.remove.is_empty()
    }

    fn check(&self) -> Result<(), HttpOptionError> {
        if self.set.len().max(self.remove.len()) > EDITS_MAX {
            return Err(HttpOptionError::Edits);
        }
        self.set.iter().try_for_each(|(name, value)| {
            Self::check_name(name)?;
            Self::check_value(value)
        })?;
        self.remove.iter().try_for_each(|name| Self::check_name(name))
    }

    /// Checks the name of a field that is set or removed.
    ///
    /// # Errors
    /// The name is not a token (RFC 9110 section 5.6.2), or the field must not be changed.
    pub fn check_name(name: &str) -> Result<(), HttpOptionError> {
        let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if !(1..=FIELD_NAME_MAX).contains(&name.len()) || !name.bytes().all(is_token) {
            return Err(HttpOptionError::FieldName);
        }
        if FIXED.iter().any(|fixed| fixed.eq_ignore_ascii_case(name)) {
            return Err(HttpOptionError::FixedField);
        }
        Ok(())
    }

    /// Checks the value of a field that is set.
    ///
    /// # Errors
    /// The value is too long, or has a character that is not printable ASCII.
    pub fn check_value(value: &str) -> Result<(), HttpOptionError> {
        let is_plain = value.bytes().all(|b| (b' '..=b'~').contains(&b));
        if value.len() > TEXT_MAX || !is_plain || value.trim_ascii() != value {
            return Err(HttpOptionError::FieldValue);
        }
        Ok(())
    }
}

impl HttpOptions {
    /// Whether nothing differs from the default.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the options are equal for visitors: the ports may differ, because the targets of
    /// services that share an address may have different ports.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        if self.ports == other.ports {
            return self == other;
        }
        Self { ports: other.ports.clone(), ..self.clone() } == *other
    }

    /// Checks all options. A message with invalid options is neither encoded nor decoded.
    ///
    /// # Errors
    /// The first invalid option.
    pub fn check(&self) -> Result<(), HttpOptionError> {
        if self.pass_through && self.need_proxy() {
            return Err(HttpOptionError::PassThrough);
        }
        if self.ports.len() > PORTS_MAX {
            return Err(HttpOptionError::Ports);
        }
        if self.basic_auth.len() > CREDENTIALS_MAX {
            return Err(HttpOptionError::Credentials);
        }
        self.basic_auth.iter().try_for_each(|pair| Self::check_credential(pair))?;
        if self.hashes.len() > HASHES_MAX {
            return Err(HttpOptionError::Hashes);
        }
        let mut users = BTreeSet::new();
        for pair in &self.hashes {
            if !users.insert(Self::check_hashed(pair)?) {
                return Err(HttpOptionError::Twice);
            }
        }
        self.host_rewrite.iter().try_for_each(|host| Self::check_host(host))?;
        self.path.iter().try_for_each(|path| Self::check_path(path))?;
        self.strip_prefix.iter().try_for_each(|path| Self::check_path(path))?;
        if self.strip_prefix.is_some() && self.path.is_none() {
            return Err(HttpOptionError::StripPrefix);
        }
        self.request.check()?;
        self.response.check()
    }

    /// Checks a pair `user:password`. The password may contain colons. An empty password admits
    /// nobody, and a configuration refuses it.
    ///
    /// # Errors
    /// The text is not such a pair.
    pub fn check_credential(pair: &str) -> Result<(), HttpOptionError> {
        let is_pair = pair.split_once(':').is_some_and(|(user, _)| !user.is_empty());
        if !is_pair || pair.len() > TEXT_MAX || pair.contains(is_forbidden) {
            return Err(HttpOptionError::Credential);
        }
        Ok(())
    }

    /// Checks a pair `user:hash`, and returns the user.
    ///
    /// # Errors
    /// The text is not such a pair, or the check of the hash costs too much.
    pub fn check_hashed(pair: &str) -> Result<&str, HttpOptionError> {
        Self::check_credential(pair)?;
        let (user, hash) = pair.split_once(':').ok_or(HttpOptionError::Credential)?;
        PasswordHash::parse(hash)?;
        Ok(user)
    }

    /// Checks a value of `Host`.
    ///
    /// # Errors
    /// The text is empty or too long, or has a character that no host has.
    pub fn check_host(host: &str) -> Result<(), HttpOptionError> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b);
        let is_host = (1..=FIELD_NAME_MAX).contains(&host.len()) && host.bytes().all(allowed);
        if is_host { Ok(()) } else { Err(HttpOptionError::Host) }
    }

    /// Checks the path of a service.
    ///
    /// # Errors
    /// The text is not a path, or a path that a target may interpret differently.
    pub fn check_path(path: &str) -> Result<(), HttpOptionError> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@%".contains(&b);
        let is_plain = path.len() <= TEXT_MAX && path.bytes().all(allowed);
        let below = path.strip_prefix('/').ok_or(HttpOptionError::Path)?;
        let is_bad = |segment: &str| matches!(segment, "" | "." | "..");
        if !is_plain || !below.is_empty() && below.split('/').any(is_bad) {
            return Err(HttpOptionError::Path);
        }
        Ok(())
    }

    /// Whether the server must parse and rewrite each message instead of forwarding bytes.
    #[must_use]
    pub const fn need_proxy(&self) -> bool {
        !self.basic_auth.is_empty()
            || !self.hashes.is_empty()
            || self.host_rewrite.is_some()
            || !self.request.is_empty()
            || !self.response.is_empty()
            || self.forwarded
            || self.path.is_some()
            || matches!(self.target, TargetProtocol::H2c)
            || self.redirect.is_some()
            || self.hsts.is_some()
            || self.preflight_pass
            || !matches!(self.compress, Compress::Off)
            || !matches!(self.sticky, Sticky::Off)
            || self.requests_per_second.is_some()
    }
}

/// Omits the pairs of `basic_auth` and the values of fields, which are secrets.
impl fmt::Debug for HttpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pass_through,
            host_rewrite,
            forwarded,
            path,
            redirect,
            target,
            compress,
            sticky,
            ..
        } = self;
        f.debug_struct("HttpOptions")
            .field("pass_through", pass_through)
            .field("host_rewrite", host_rewrite)
            .field("forwarded", forwarded)
            .field("path", path)
            .field("target", target)
            .field("redirect", redirect)
            .field("compress", compress)
            .field("sticky", sticky)
            .finish_non_exhaustive()
    }
}

/// Omits the values, which may be secrets.
impl fmt::Debug for FieldEdits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.set.iter().map(|(name, _)| name);
        f.debug_list().entries(names.chain(&self.remove)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_of_fields_cannot_break_a_message() {
        let name = FieldEdits::check_name;
        for good in ["X-Real-IP", "x", "Sec_Thing", "Server"] {
            assert_eq!(name(good), Ok(()), "{good}");
        }
        for bad in ["", "a b", "a:", "a\r\nb", "ä", &"a".repeat(256)] {
            assert_eq!(name(bad), Err(HttpOptionError::FieldName), "{bad}");
        }
        for fixed in ["Host", "CONNECTION", "transfer-encoding", "Content-Length", "Upgrade", "TE"]
        {
            assert_eq!(name(fixed), Err(HttpOptionError::FixedField), "{fixed}");
        }
        let value = FieldEdits::check_value;
        for good in ["", "a b", "max-age=1; x=\"y\""] {
            assert_eq!(value(good), Ok(()), "{good}");
        }
        for bad in ["a\r\nb: c", "a\0", " a", "a ", "\ta", "ä", &"a".repeat(TEXT_MAX + 1)] {
            assert_eq!(value(bad), Err(HttpOptionError::FieldValue), "{bad:?}");
        }
    }

    #[test]
    fn services_that_share_an_address_have_ports_of_their_own() {
        let of = |ports: &[u16], forwarded| HttpOptions {
            ports: ports.to_vec(),
            forwarded,
            ..HttpOptions::default()
        };
        assert!(
            of(&[1], true).is_like(&of(&[2, 3], true)) && of(&[1], true).is_like(&of(&[1], true))
        );
        assert!(
            !of(&[1], true).is_like(&of(&[2], false)) && !of(&[1], true).is_like(&of(&[1], false))
        );
    }

    #[test]
    fn a_path_is_read_in_one_way() {
        for good in ["/", "/api", "/api/v1", "/a%20b"] {
            assert_eq!(HttpOptions::check_path(good), Ok(()), "{good}");
        }
        for bad in ["", "api", "/api/", "//", "/a//b", "/../a", "/a/.", "/a?b", "/a#b", "/a b"] {
            assert_eq!(HttpOptions::check_path(bad), Err(HttpOptionError::Path), "{bad}");
        }
    }

    #[test]
    fn hosts_and_credentials_have_their_form() {
        for good in ["localhost", "127.0.0.1:3000", "[::1]:80", "a_b.example"] {
            assert_eq!(HttpOptions::check_host(good), Ok(()), "{good}");
        }
        for bad in ["", "a b", "a/b", "a\r\n", "a@b"] {
            assert_eq!(HttpOptions::check_host(bad), Err(HttpOptionError::Host), "{bad}");
        }
        for good in ["user:", "user:pass:word", "ü:ä"] {
            assert_eq!(HttpOptions::check_credential(good), Ok(()), "{good}");
        }
        for bad in ["", "user", ":password", "a:b\n"] {
            assert_eq!(HttpOptions::check_credential(bad), Err(HttpOptionError::Credential));
        }
    }

    #[test]
    fn pass_through_stands_alone_and_lists_are_bounded() {
        let proxied = HttpOptions { forwarded: true, ..HttpOptions::default() };
        assert_eq!(proxied.check(), Ok(()));
        let both = HttpOptions { pass_through: true, ..proxied };
        assert_eq!(both.check(), Err(HttpOptionError::PassThrough));
        let pairs = |n| HttpOptions { basic_auth: vec!["a:b".into(); n], ..HttpOptions::default() };
        assert_eq!(pairs(CREDENTIALS_MAX).check(), Ok(()));
        assert_eq!(pairs(CREDENTIALS_MAX + 1).check(), Err(HttpOptionError::Credentials));
        let remove = |n| {
            let response = FieldEdits { remove: vec!["X".into(); n], ..FieldEdits::default() };
            HttpOptions { response, ..HttpOptions::default() }
        };
        assert_eq!(remove(EDITS_MAX).check(), Ok(()));
        assert_eq!(remove(EDITS_MAX + 1).check(), Err(HttpOptionError::Edits));
    }
}
