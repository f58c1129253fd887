//! Weighted rendezvous hashing: each end has a score for each visitor, and the highest score wins.
//! The removal of an end does not change the scores of the others (Thaler and Ravishankar, 1998;
//! weights: Schindelhauer and Schomaker, 2005). All processes of all versions compute the same
//! scores.

use std::net::IpAddr;

use net::source::Source;

/// The stable hash key of a visitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(u64);

impl Key {
    /// The key of a source. An IPv4-mapped IPv6 address has the key of the IPv4 address.
    pub(super) fn of(visitor: &Source) -> Self {
        Self(match visitor {
            Source::Address(ip) => match ip.to_canonical() {
                IpAddr::V4(ip) => hash(&ip.octets()),
                IpAddr::V6(ip) => hash(&ip.octets()),
            },
            Source::Client(name) => fingerprint(name),
        })
    }

    /// The score of an end with this weight, which must be above 0.
    pub(super) fn score(self, id: u64, weight: u32) -> f64 {
        let mixed = mix(self.0 ^ mix(id));
        // 53 bits fill the fraction of a double: above 0 and below 1, so the logarithm is below 0.
        let unit = ((mixed >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        -f64::from(weight) / unit.ln()
    }
}

/// The hash of an end's name, which identifies the end.
#[must_use]
pub fn fingerprint(name: &str) -> u64 {
    hash(name.as_bytes())
}

/// FNV-1a, whose weak upper bits [`mix`] spreads.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    mix(bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

/// The finalizer of splitmix64: each bit of the input changes half of the output.
const fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_one_key_in_both_families() {
        let key = |text: &str| Key::of(&Source::Address(text.parse().unwrap()));
        assert_eq!(key("::ffff:192.0.2.1"), key("192.0.2.1"));
        assert_ne!(key("192.0.2.2"), key("192.0.2.1"));
    }

    #[test]
    fn all_programs_of_a_client_have_one_key() {
        let key = |name: &str| Key::of(&Source::Client(name.into()));
        assert_eq!(key("laptop"), key("laptop"));
        assert_ne!(key("laptop"), key("phone"));
    }

    /// Another version must not move all visitors.
    #[test]
    fn keys_and_names_keep_their_numbers() {
        assert_eq!(fingerprint("tcp://127.0.0.1:80"), fingerprint("tcp://127.0.0.1:80"));
        assert_eq!((mix(1), hash(b"a")), (0x5692_161d_100b_05e5, mix(0xaf63_dc4c_8601_ec8c)));
    }
}
