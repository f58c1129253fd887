//! The opening handshake (RFC 6455 section 4) over a lane: an HTTP/1.1 request and its answer.

mod accept;
mod connect;
mod farewell;
mod head;
mod key;
mod offer;

pub(crate) use accept::{Accepted, Place, accept};
pub(crate) use connect::connect;
pub use key::SUBPROTOCOL;
pub use offer::{DESCRIPTION, FIELDS, OfferAnswer, OfferHead, body_type, reply};

/// Parses `bytes` as both sides parse a head. The function never panics.
pub(crate) fn fuzz(bytes: &[u8]) {
    let proxies = crate::Proxies::new(|ip| ip.is_loopback());
    let place = Place { path: Some("/a"), offers: Some("/b"), proxies: &proxies, pages: None };
    accept::look(bytes, true, place).ok();
    connect::look(bytes, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=").ok();
}
