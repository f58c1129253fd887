//! The opening handshake (RFC 6455 section 4) over a lane: an HTTP/1.1 request and its answer.

mod accept;
mod connect;
mod head;
mod offer;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub(crate) use accept::{Accepted, Place, accept};
pub(crate) use connect::connect;
pub use offer::{DESCRIPTION, FIELDS, OfferAnswer, OfferHead, body_type, reply};

/// The subprotocol that both ends of a carrier agree on (RFC 6455 section 1.9). A client offers it
/// in `Sec-WebSocket-Protocol`.
pub const SUBPROTOCOL: &str = "tunnel.1";

/// The constant of section 1.3, which is appended to the client's key before the hash.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The value of `Sec-WebSocket-Accept` for the client's key.
fn accept_key(key: &[u8]) -> String {
    let mut hash = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(key);
    hash.update(GUID);
    STANDARD.encode(hash.finish())
}

/// Parses `bytes` as both sides parse a head. The function never panics.
pub(crate) fn fuzz(bytes: &[u8]) {
    let proxies = crate::Proxies::new(|ip| ip.is_loopback());
    let place = Place { path: Some("/a"), offers: Some("/b"), proxies: &proxies, pages: None };
    accept::look(bytes, true, place).ok();
    connect::look(bytes, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=").ok();
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_example_of_the_rfc() {
        // The example of section 1.3.
        let answer = super::accept_key(b"dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(answer, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
