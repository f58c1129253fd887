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
//! Both ends speak the same handshake. After it, the connection is that of an ordinary forward or
//! service: the same pump with the same half-close and reset, so a proxied byte costs nothing more.
//!
//! | file | content |
//! |---|---|
//! | `socks5` | the messages of SOCKS5, as bytes and values |
//! | `connect` | the requests and the answers of an HTTP proxy |
//! | `absolute` | the head of a request for an `http://` address, as its target gets it |
//! | `substitute` | the answer in the place of a target that fails |
//! | `credentials` | the user and the password, compared in constant time |
//! | `endpoint` | the host and the port that a visitor asks for |
//! | `handshake` | the conversation until the visitor has named its target |
//! | `opening` | a stream to a target whose outcome is reported, and the answer to the visitor |
//! | `links` | the links that carry the streams and flows of a proxy |
//! | `listener` | what all visitors of a proxy at one listener share |
//! | `local` | [`serve_proxy`], and [`serve_connect`] for a program that names the target itself |
//! | `associate` | UDP over SOCKS5: a socket whose datagrams become flows |
//! | `exit` | [`exit_stream`] |
//!
//! A request for an `http://` address ends with the connection to its target: it is one request,
//! and its bytes go through the guard of HTTP visitors, which passes no byte behind the request.
//!
//! Names are sent to the far end as names: the side that dials looks them up. A refusal has the
//! code that SOCKS5 or HTTP has for its reason, and a clean end. A peer before the end of its
//! handshake costs at most 32 KiB and 10 s.

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

/// What a decoder makes of the bytes that have arrived. Decoders get all bytes of their message
/// from its first byte on, and keep nothing between two calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decoded<T> {
    /// The message is incomplete.
    More,
    /// A complete message, and its length in bytes.
    Done(T, usize),
    /// The bytes are no such message.
    Bad(Fault),
}

/// Why bytes are no acceptable message of a visitor.
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
    /// The user and the password are in another form than RFC 1929 gives.
    #[error("the user and the password have an unknown form")]
    Password,
    /// The visitor offers no method of authentication that is accepted.
    #[error("the program offers no acceptable authentication: {0}")]
    Method(&'static str),
    /// No user and password, or wrong ones.
    #[error("the user or the password is wrong")]
    Denied,
    /// Not judged, because the source of the visitor has given too many wrong passwords.
    #[error("too many wrong passwords came from the address of the program")]
    Busy,
    /// No user and no password, where the protocol lets the visitor ask first.
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
    /// A request of HTTP whose target has no host, as a web server gets it.
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
    /// A request for an `http://` address with more than one meaning.
    #[error("the request is refused: {}", .0.reason())]
    Request(h1::Fault),
    /// A malformed request.
    #[error("the request is malformed")]
    Malformed,
    /// A head over the limit.
    #[error("the head of the request is too large")]
    Size,
}

impl Fault {
    /// Whether the visitor is understood, and may not enter. A program that is asked for its
    /// password first comes back with it.
    pub(crate) const fn is_denial(self) -> bool {
        matches!(self, Self::Denied | Self::Busy | Self::Method(_))
    }
}
