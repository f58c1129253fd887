//! The key of a client and its answer (RFC 6455 section 4.2.2), and the subprotocol.

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The subprotocol that both ends of a carrier agree on (RFC 6455 section 1.9). A client offers it
/// in `Sec-WebSocket-Protocol`.
pub const SUBPROTOCOL: &str = "tunnel.1";

/// The constant of section 1.3, which is appended to the client's key before the hash.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The value of `Sec-WebSocket-Accept` for the client's key.
pub(super) fn accept_key(key: &[u8]) -> String {
    let mut hash = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(key);
    hash.update(GUID);
    STANDARD.encode(hash.finish())
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
