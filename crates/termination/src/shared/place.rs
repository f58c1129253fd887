//! Where a value is in the store of a cluster.

use std::sync::Arc;

/// The place of a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SharedPlace {
    /// An account at an authority, by the digest of its directory and its name.
    Account(Arc<str>),
    /// The certificate of a name, with its key.
    Certificate(Arc<str>),
    /// The response to a challenge: by its token (http-01), or `tls-alpn-01 NAME`.
    Challenge(Arc<str>),
    /// The keys of session tickets.
    Tickets,
}

impl SharedPlace {
    /// The response to tls-alpn-01 of a name. A token has no blank, so the places differ.
    pub(crate) fn of_tls_check(host: &str) -> Self {
        Self::Challenge(format!("tls-alpn-01 {host}").into())
    }

    /// The kind and the name of the value, which are parts of its key and of what is authenticated:
    /// a value that was moved to another place does not open.
    #[must_use]
    pub fn parts(&self) -> (&'static str, &str) {
        match self {
            Self::Account(text) => ("account", text),
            Self::Certificate(host) => ("cert", host),
            Self::Challenge(text) => ("challenge", text),
            Self::Tickets => ("tickets", ""),
        }
    }
}
