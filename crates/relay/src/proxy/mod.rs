//! SOCKS5 and HTTP proxies: a visitor names the target of its connection.
//!
//! ```text
//!   a forward of the client                     a service of the client (exit)
//!
//!   program ──SOCKS5──> serve_proxy             program ──SOCKS5──> server ──stream──> exit_stream
//!                          │ OPEN of the target                                           │ dial
//!                          ▼                                                              ▼
//!                       server ──dial──> target                                         target
//! ```
//!
//! Both ends use the same handshake. After it, the connection is that of an ordinary forward or
//! service: the same pump with the same half-close and reset, so a proxied byte has no additional
//! cost.
//!
//! | file | content |
//! |---|---|
//! | `socks5` | the messages of SOCKS5, as bytes and values |
//! | `connect` | the requests and the answers of an HTTP proxy |
//! | `absolute` | the header of a request for an `http://` address, as sent to its target |
//! | `substitute` | the answer instead of a target that fails |
//! | `credentials` | the user and the password, compared in constant time |
//! | `endpoint` | the host and the port that a visitor requests |
//! | `handshake` | the handshake until the visitor has named its target |
//! | `opening` | a stream to a target whose outcome is reported, and the answer to the visitor |
//! | `links` | the links that carry the streams and flows of a proxy |
//! | `listener` | the state that all visitors of a proxy at one listener share |
//! | `local` | [`serve_proxy`], and [`serve_connect`] for a caller that names the target |
//! | `associate` | UDP over SOCKS5: a socket whose datagrams become flows |
//! | `exit` | [`exit_stream`] |
//!
//! A request for an `http://` address ends with the connection to its target: it is one request,
//! and its bytes pass through the HTTP guard, which forwards no byte after the request.
//!
//! Names are sent to the far end as names: the side that dials resolves them. A refusal has the
//! SOCKS5 or HTTP code for its reason, and a clean end. A peer that has not completed its handshake
//! costs at most 32 KiB for 10 s.

pub(crate) mod absolute;
mod associate;
pub(crate) mod connect;
mod credentials;
mod endpoint;
mod exit;
mod handshake;
mod links;
mod listener;
mod local;
mod opening;
pub(crate) mod socks5;
mod substitute;

pub use credentials::Credentials;
pub use exit::{Exit, exit_stream};
pub use links::{Connectors, Links};
pub use listener::Proxy;
pub use local::{serve_connect, serve_proxy};

pub(crate) use credentials::Given;
pub(crate) use endpoint::{Endpoint, Host};

/// The protocol in which a visitor names its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyKind {
    /// SOCKS version 5 (RFC 1928, RFC 1929): CONNECT, and at a forward UDP ASSOCIATE.
    Socks5,
    /// CONNECT of HTTP/1 (RFC 9110 section 9.3.6), and requests for `http://` addresses (RFC 9112
    /// section 3.2.2).
    Http,
}

/// The result of decoding the bytes that have arrived. Decoders get all bytes of their message from
/// the first byte, and keep no state between calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decoded<T> {
    /// The message is incomplete.
    More,
    /// A complete message, and its length in bytes.
    Done(T, usize),
    /// The bytes are no such message.
    Bad(Fault),
}

/// Why a visitor's message is not acceptable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// SOCKS4 or SOCKS4a.
    #[error("the program speaks SOCKS4, which is not supported; set it to SOCKS5 (socks5h)")]
    Socks4,
    /// HTTP where SOCKS5 is spoken.
    #[error("the program speaks HTTP at a port for SOCKS5; set it to a SOCKS5 proxy (socks5h)")]
    HttpAtSocks,
    /// SOCKS where HTTP is spoken.
    #[error("the program speaks SOCKS at the port of an HTTP proxy; set it to an HTTP proxy")]
    SocksAtHttp,
    /// Another protocol.
    #[error("the bytes are neither SOCKS5 nor HTTP")]
    Protocol,
    /// The user and the password do not have the form of RFC 1929.
    #[error("the user and the password have an unknown form")]
    Password,
    /// The visitor offers no acceptable authentication method.
    #[error("the program offers no acceptable authentication: {0}")]
    Method(&'static str),
    /// A wrong user or password.
    #[error("the user or the password is wrong")]
    Denied,
    /// Not checked, because the source of the visitor has sent too many wrong passwords.
    #[error("too many wrong passwords came from the address of the program")]
    Busy,
    /// No user and no password, in a protocol that lets the visitor send its request first.
    #[error("the program gave no user and no password")]
    Unauthenticated,
    /// A command other than CONNECT and UDP ASSOCIATE.
    #[error("the command is not supported")]
    Command,
    /// An unknown type of address.
    #[error("the type of the address is unknown")]
    AddressType,
    /// A name that no host has, or port 0.
    #[error("the target has no valid host and port")]
    Target,
    /// An HTTP request whose target has no host, as sent to a web server.
    #[error("the program takes the HTTP proxy for a web server")]
    OriginForm,
    /// A request for an `https://` address without CONNECT.
    #[error("the program asks for an https:// address without CONNECT")]
    Https,
    /// A request for an address with another scheme.
    #[error("the program asks for an address that is neither http:// nor https://")]
    Scheme,
    /// An `http://` address without a valid host and port.
    #[error("the address of the request has no valid host and port")]
    Address,
    /// An ambiguous request for an `http://` address.
    #[error("the request is refused: {}", .0.reason())]
    Request(h1::Fault),
    /// A malformed request.
    #[error("the request is malformed")]
    Malformed,
    /// A header above the size limit.
    #[error("the head of the request is too large")]
    Size,
}

impl Fault {
    /// Whether the request is well-formed but not admitted. A program without a password is not
    /// counted, because it retries with the password after the challenge.
    pub(crate) const fn is_denial(self) -> bool {
        matches!(self, Self::Denied | Self::Busy | Self::Method(_))
    }
}
