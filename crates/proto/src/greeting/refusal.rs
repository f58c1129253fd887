//! Why a server refuses a greeting. `SPEC.md`, section "Greeting", has the same table of numbers.

use std::fmt;

/// A server's refusal. It is not authenticated, because it precedes the server's proof. So a client
/// may only log it, back off and retry - never discard a secret or a pin.
///
/// `Display` is one line for the logs of both ends: the reason and the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Unknown name, wrong token or missing certificate; deliberately one code.
    BadCredential,
    /// A newer process of this client has taken over and is still running.
    Superseded,
    /// The link to attach to is unknown or belongs to another client, or its secret is wrong. The
    /// client starts a new link.
    UnknownLink,
    /// No common version.
    Version,
    /// Too many links, carriers or greetings.
    Limit,
    /// The client is known, but not allowed.
    Denied,
    /// The greeting is malformed.
    Malformed,
    /// The server is shutting down, or cannot determine whether to admit the client.
    Unavailable,
    /// One side sees TLS end to end and the other does not.
    Binding,
    /// Another process uses the name and is not replaced.
    NameTaken,
    /// The name in the client's verified certificate differs from the name in Hello. Checked before
    /// the name is looked up, so it does not reveal which names are known.
    CertificateName,
    /// A code of a newer server.
    Other(u16),
}

impl Refusal {
    /// The number on the wire.
    #[must_use]
    pub const fn raw(self) -> u16 {
        match self {
            Self::BadCredential => 1,
            Self::Superseded => 2,
            Self::UnknownLink => 3,
            Self::Version => 4,
            Self::Limit => 5,
            Self::Denied => 6,
            Self::Malformed => 7,
            Self::Unavailable => 8,
            Self::Binding => 9,
            Self::NameTaken => 10,
            Self::CertificateName => 11,
            Self::Other(n) => n,
        }
    }

    /// A word for programs: labels, JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BadCredential => "bad_credential",
            Self::Superseded => "superseded",
            Self::UnknownLink => "unknown_link",
            Self::Version => "version",
            Self::Limit => "limit",
            Self::Denied => "denied",
            Self::Malformed => "malformed",
            Self::Unavailable => "unavailable",
            Self::Binding => "binding",
            Self::NameTaken => "name_taken",
            Self::CertificateName => "certificate_name",
            Self::Other(_) => "other",
        }
    }

    /// The refusal with this number; every number is a refusal.
    #[must_use]
    pub const fn from_raw(raw: u16) -> Self {
        match raw {
            1 => Self::BadCredential,
            2 => Self::Superseded,
            3 => Self::UnknownLink,
            4 => Self::Version,
            5 => Self::Limit,
            6 => Self::Denied,
            7 => Self::Malformed,
            8 => Self::Unavailable,
            9 => Self::Binding,
            10 => Self::NameTaken,
            11 => Self::CertificateName,
            n => Self::Other(n),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BadCredential => {
                "unknown client name or wrong token: name and token of the client must be those of \
                 an entry under `clients` of the server"
            }
            Self::Superseded => {
                "a newer process of this client has taken over: stop one of the two or give them \
                 different names"
            }
            Self::UnknownLink => {
                "the link is not known any more (server restarted or resume_timeout passed): start \
                 a new link"
            }
            Self::Version => "no protocol version in common: upgrade the older side",
            Self::Limit => {
                "a limit of links or memory is reached: try again later or raise the limit on the \
                 server"
            }
            Self::Denied => {
                "the server does not allow this: check the client's entry under `clients` of the \
                 server"
            }
            Self::Malformed => {
                "the greeting makes no sense: check that both ends are this program and nothing in \
                 between changes bytes"
            }
            Self::Unavailable => "the server cannot let anybody in at the moment: try again",
            Self::Binding => {
                "TLS ends somewhere between client and server: use ws:// or wss:// through a proxy, \
                 or connect directly"
            }
            Self::NameTaken => {
                "another process uses this client name: stop it or choose another name"
            }
            Self::CertificateName => {
                "the client's certificate is for another name than the client gives: set its `name` \
                 to the one in the certificate, or its `tls.cert` to the certificate of its name"
            }
            Self::Other(n) => return write!(f, "refused with code {n}: upgrade the client"),
        })
    }
}
