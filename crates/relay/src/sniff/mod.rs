//! Detects the protocol of a visitor's first bytes: TLS with its ClientHello, HTTP, or another
//! protocol. [`h1`] parses the header of an HTTP/1 request by the same rules.
//!
//! Each sniffer is a plain value without socket and clock. The caller keeps all bytes of the
//! connection, and passes all of them to `look` each time. A sniffer stores its position: the work
//! is linear in the number of bytes, even when bytes arrive one at a time. The outcome does not
//! depend on the pieces in which the bytes arrive. A sniffer consumes nothing: the far end gets the
//! bytes as the visitor sent them.
//!
//! | module | content |
//! |---|---|
//! | [`first`] | the protocol of the first bytes |
//! | [`tls`] | the ClientHello: server name and ALPN |

pub mod first;
pub mod tls;

pub use first::{First, FirstSniffer};
pub use tls::{Hello, HelloSniffer};

/// The outcome of an inspection of the first bytes of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sniff<T> {
    /// The bytes are complete.
    Found(T),
    /// More bytes are needed.
    More,
    /// The bytes belong to another protocol, or are malformed.
    Not,
}
