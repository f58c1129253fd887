//! The affinity cookie, which binds a visitor to the place of its first request.
//!
//! The value names the client and the target of a request, as numbers. It is encrypted and
//! authenticated with a key of the server, so a visitor learns neither address nor name from it,
//! and a forged value is ignored:
//!
//! ```text
//! tag   = HMAC-SHA-256(key, "tag"  | path | client | target), the first 12 bytes
//! mask  = HMAC-SHA-256(key, "mask" | path | tag),             the first 16 bytes
//! value = base64url(tag | (client | target) xor mask)
//! ```
//!
//! The mask is derived like a synthetic initialization vector (RFC 5297): equal places have equal
//! values, and nothing else about a place is revealed. Services with different paths have different
//! cookie names, because a browser sends a cookie with `Path=/` to all of them.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use hyper::header::{self, HeaderMap, HeaderValue};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

const TAG: usize = 12;
const PLACE: usize = 16;
/// The length of a value, in characters.
const VALUE: usize = (TAG + PLACE).div_ceil(3) * 4;

/// The client and target of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The id of the client among those that share the service.
    pub client: u64,
    /// The mark of the target among those of the client; 0: the client has reported no mark.
    pub target: u64,
}

/// The key of all cookies of a server, 32 bytes.
pub type StickyKey = [u8; 32];

/// The cookies of one service.
#[derive(Clone)]
pub struct Cookies {
    key: StickyKey,
    path: Box<str>,
    name: String,
}

impl fmt::Debug for Cookies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cookies").field(&self.name).finish()
    }
}

impl Cookies {
    /// The cookies of the service for requests below this path; `/`: for all paths.
    #[must_use]
    pub fn new(key: &StickyKey, path: &str) -> Self {
        let Some([a, b, c, d, ..]) = mac(key, &[b"name", path.as_bytes()]) else {
            return Self { key: *key, path: path.into(), name: "tunnel".to_owned() };
        };
        let name = format!("tunnel-{a:02x}{b:02x}{c:02x}{d:02x}");
        Self { key: *key, path: path.into(), name }
    }

    /// The place that a request names. `None`: it has no valid cookie of this service.
    #[must_use]
    pub fn read(&self, fields: &HeaderMap) -> Option<Place> {
        let values = fields.get_all(header::COOKIE).into_iter().map(HeaderValue::as_bytes);
        let mut pairs = values.flat_map(|value| value.split(|byte| *byte == b';'));
        pairs.find_map(|pair| {
            let value = pair.trim_ascii().strip_prefix(self.name.as_bytes())?.strip_prefix(b"=")?;
            self.open(value)
        })
    }

    /// `Set-Cookie` (RFC 6265) for a visitor whose request was served at this place. `is_secure`:
    /// the visitor uses TLS.
    #[must_use]
    pub fn set(&self, place: Place, is_secure: bool) -> Option<HeaderValue> {
        let secure = if is_secure { "; Secure" } else { "" };
        let (name, value) = (&self.name, self.seal(place)?);
        let text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax{secure}");
        HeaderValue::try_from(text).ok()
    }

    fn seal(&self, place: Place) -> Option<String> {
        let mut plain = [0; PLACE];
        let (client, target) = plain.split_at_mut(PLACE / 2);
        client.copy_from_slice(&place.client.to_be_bytes());
        target.copy_from_slice(&place.target.to_be_bytes());
        let tag = self.tag(&plain)?;
        Some(URL_SAFE_NO_PAD.encode([&tag[..], &self.masked(&tag, plain)?].concat()))
    }

    fn open(&self, value: &[u8]) -> Option<Place> {
        let mut bytes = [0; VALUE];
        let length = URL_SAFE_NO_PAD.decode_slice(value, &mut bytes).ok()?;
        let (tag, sealed) = bytes.get(..length)?.split_first_chunk::<TAG>()?;
        let plain = self.masked(tag, sealed.try_into().ok()?)?;
        if !bool::from(self.tag(&plain)?.ct_eq(tag)) {
            return None;
        }
        let (client, target) = plain.split_first_chunk()?;
        let target = target.try_into().ok()?;
        Some(Place { client: u64::from_be_bytes(*client), target: u64::from_be_bytes(target) })
    }

    fn tag(&self, plain: &[u8; PLACE]) -> Option<[u8; TAG]> {
        let whole = mac(&self.key, &[b"tag", self.path.as_bytes(), plain])?;
        whole.first_chunk().copied()
    }

    fn masked(&self, tag: &[u8; TAG], mut bytes: [u8; PLACE]) -> Option<[u8; PLACE]> {
        let mask = mac(&self.key, &[b"mask", self.path.as_bytes(), tag])?;
        bytes.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
        Some(bytes)
    }
}

/// The MAC of several parts, each prefixed with its length. A key of this length is always valid.
fn mac(key: &StickyKey, parts: &[&[u8]]) -> Option<[u8; 32]> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    for part in parts {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    Some(mac.finalize().into_bytes().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Place = Place { client: 7, target: 0x9f86_d081_884c_7d65 };

    fn cookies(path: &str) -> Cookies {
        Cookies::new(&[3; 32], path)
    }

    /// The `Cookie` field that a browser sends back, after other cookies.
    fn returned(set: &HeaderValue) -> HeaderMap {
        let pair = set.to_str().unwrap().split(';').next().unwrap();
        let mut fields = HeaderMap::new();
        fields.append(header::COOKIE, HeaderValue::from_static("a=1; b=\"2\""));
        fields.append(header::COOKIE, HeaderValue::try_from(format!("c=3;{pair}; d")).unwrap());
        fields
    }

    #[test]
    fn a_visitor_that_returns_names_its_place() {
        let set = cookies("/").set(HERE, false).unwrap();
        assert_eq!(cookies("/").read(&returned(&set)), Some(HERE));
        assert_eq!(cookies("/").read(&HeaderMap::new()), None);
        let text = set.to_str().unwrap();
        assert!(text.ends_with("; Path=/; HttpOnly; SameSite=Lax"), "{text}");
        let secure = cookies("/").set(HERE, true).unwrap();
        assert_eq!(secure.to_str().unwrap(), format!("{text}; Secure"));
    }

    #[test]
    fn a_value_that_the_server_has_not_made_is_ignored() {
        let own = cookies("/");
        let set = own.set(HERE, false).unwrap();
        let value = set.to_str().unwrap().split(['=', ';']).nth(1).unwrap();
        assert_eq!(own.open(value.as_bytes()), Some(HERE));
        let raw = URL_SAFE_NO_PAD.decode(value).unwrap();
        for bit in 0..raw.len() * 8 {
            let mut forged = raw.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            let forged = URL_SAFE_NO_PAD.encode(forged);
            assert_eq!(own.open(forged.as_bytes()), None, "bit {bit}");
        }
        for short in 0..value.len() {
            assert_eq!(own.open(&value.as_bytes()[..short]), None, "{short}");
        }
        for long in [format!("{value}AAAA"), format!("{value}="), "A".repeat(8000)] {
            assert_eq!(own.open(long.as_bytes()), None, "{long}");
        }
        assert_eq!(Cookies::new(&[4; 32], "/").open(value.as_bytes()), None, "of another server");
        assert_eq!(cookies("/api").open(value.as_bytes()), None, "of another service");
        assert_ne!(cookies("/api").name, own.name);
    }

    #[test]
    fn a_value_shows_neither_the_client_nor_the_target() {
        let values = [(7, 8), (7, 9), (6, 8)].map(|(client, target)| {
            let value = cookies("/").seal(Place { client, target }).unwrap();
            URL_SAFE_NO_PAD.decode(value).unwrap()
        });
        for (n, a) in values.iter().enumerate() {
            for b in &values[n + 1..] {
                assert!(a.iter().zip(b).filter(|(a, b)| a == b).count() < 8, "{a:?} {b:?}");
            }
        }
    }
}
