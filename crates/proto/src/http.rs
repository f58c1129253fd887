//! What a server does with the HTTP requests of a service that is published by name.

use std::fmt;

/// The options of a service by HTTP name. The default carries the bytes of the visitor unchanged.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HttpOptions {
    /// Only the first request of a connection is read; the server carries all later bytes without
    /// a look at them.
    pub pass_through: bool,
    /// Pairs `user:password`, one of which a visitor has to know (RFC 7617). Empty: everybody may
    /// visit.
    pub basic_auth: Vec<String>,
    /// The value of `Host` that the target sees.
    pub host_rewrite: Option<String>,
    /// Changes of the fields of requests.
    pub request: FieldEdits,
    /// Changes of the fields of responses.
    pub response: FieldEdits,
    /// The target is told about the visitor: `X-Forwarded-For`, `X-Forwarded-Proto`,
    /// `X-Forwarded-Host`.
    pub forwarded: bool,
    /// The service takes only requests whose path is this path or lies below it: `/api` takes
    /// `/api` and `/api/v1`, and not `/apis`.
    pub path: Option<String>,
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
}

impl HttpOptions {
    /// Whether the server has to read and write each message, rather than carry bytes.
    #[must_use]
    pub const fn need_proxy(&self) -> bool {
        !self.basic_auth.is_empty()
            || self.host_rewrite.is_some()
            || !self.request.is_empty()
            || !self.response.is_empty()
            || self.forwarded
            || self.path.is_some()
    }
}

/// The pairs of `basic_auth` and the values of fields are secrets.
impl fmt::Debug for HttpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pass_through, host_rewrite, forwarded, path, .. } = self;
        f.debug_struct("HttpOptions")
            .field("pass_through", pass_through)
            .field("host_rewrite", host_rewrite)
            .field("forwarded", forwarded)
            .field("path", path)
            .finish_non_exhaustive()
    }
}

/// The values may be secrets.
impl fmt::Debug for FieldEdits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.set.iter().map(|(name, _)| name);
        f.debug_list().entries(names.chain(&self.remove)).finish()
    }
}
