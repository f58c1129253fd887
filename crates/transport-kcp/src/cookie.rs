//! The proof that a client receives at its source address, without state at the server (as RFC 9000
//! section 8.1.2 does by Retry).
//!
//! The proof is an HMAC over address, port, both connection ids and the time in steps of 10 s. All
//! workers share the key, and a restarted server loads it again. The time is the monotonic clock of
//! the system, which all processes share and which cannot be set.

use std::net::{IpAddr, SocketAddr};

use aws_lc_rs::{constant_time, hmac};
use kcp::own::wire::ConnectionId;
use rustix::time::{ClockId, clock_gettime};

use crate::wire::{Cookie, PROOF};

/// Seconds of an epoch. A cookie is valid in its own epoch and in the next.
const EPOCH: i64 = 10;

/// Makes and checks cookies.
#[derive(Clone)]
pub(crate) struct Cookies(hmac::Key);

impl Cookies {
    pub(crate) const fn new(key: hmac::Key) -> Self {
        Self(key)
    }

    /// The epoch now.
    pub(crate) fn epoch() -> u32 {
        let seconds = clock_gettime(ClockId::Monotonic).tv_sec / EPOCH;
        // Truncation is harmless: epochs are compared for equality after 1,361 years.
        seconds as u32
    }

    pub(crate) fn make(
        &self,
        epoch: u32,
        address: SocketAddr,
        (server, client): (ConnectionId, ConnectionId),
    ) -> Cookie {
        let mut text = [0; 16 + 2 + 4 + 8 + 8];
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let parts: [&[u8]; 5] = [
            &ip.octets(),
            &address.port().to_be_bytes(),
            &epoch.to_be_bytes(),
            &server.0,
            &client.0,
        ];
        for (to, from) in text.iter_mut().zip(parts.into_iter().flatten()) {
            *to = *from;
        }
        let tag = hmac::sign(&self.0, &text);
        let mut proof = [0; PROOF];
        for (to, from) in proof.iter_mut().zip(tag.as_ref()) {
            *to = *from;
        }
        Cookie { epoch, proof }
    }

    /// Whether a cookie was made for this address and these ids, in this epoch or the previous one.
    pub(crate) fn is_good(
        &self,
        epoch: u32,
        cookie: &Cookie,
        address: SocketAddr,
        ids: (ConnectionId, ConnectionId),
    ) -> bool {
        let age = epoch.wrapping_sub(cookie.epoch);
        age <= 1 && {
            let own = self.make(cookie.epoch, address, ids);
            constant_time::verify_slices_are_equal(&own.proof, &cookie.proof).is_ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_holds_for_its_address_ids_and_time_alone() {
        let cookies = Cookies::new(hmac::Key::new(hmac::HMAC_SHA256, &[1; 32]));
        let others = Cookies::new(hmac::Key::new(hmac::HMAC_SHA256, &[2; 32]));
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let ids = (ConnectionId([1; 8]), ConnectionId([2; 8]));
        let here = at("10.0.0.1:5");
        let cookie = cookies.make(7, here, ids);
        assert!(cookies.is_good(7, &cookie, here, ids));
        assert!(cookies.is_good(8, &cookie, here, ids));
        assert!(cookies.is_good(8, &cookie, at("[::ffff:10.0.0.1]:5"), ids), "the same address");
        assert!(!cookies.is_good(9, &cookie, here, ids), "too old");
        assert!(!cookies.is_good(6, &cookie, here, ids), "of the future");
        assert!(!cookies.is_good(7, &cookie, at("10.0.0.2:5"), ids));
        assert!(!cookies.is_good(7, &cookie, at("10.0.0.1:6"), ids));
        assert!(!cookies.is_good(7, &cookie, here, (ids.1, ids.0)));
        assert!(!others.is_good(7, &cookie, here, ids));
        let mut forged = cookie;
        forged.proof[15] ^= 1;
        assert!(!cookies.is_good(7, &forged, here, ids));
        let newer = Cookie { epoch: 8, ..cookie };
        assert!(!cookies.is_good(8, &newer, here, ids), "the epoch is part of the proof");
    }
}
