//! The secret of a cluster, and what is derived from it.
//!
//! ```text
//! root   = HKDF-Extract(salt, secret)                        RFC 5869, SHA-256
//! key    = HKDF-Expand(root, kind | 0 | name)                32 bytes, one for each place
//! sealed = 1 | nonce | AES-256-GCM(key, nonce, plain, aad)   aad: "1 " kind "/" name
//! ```
//!
//! A place has a key of its own, so a random nonce of 12 bytes is safe for 2^32 values of each
//! place. The first secret seals, and each secret opens: while the secret is replaced, nodes with
//! either order of the two secrets understand each other.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::hkdf::{self, HKDF_SHA256, Prk, Salt};
use aws_lc_rs::hmac::{self, HMAC_SHA256};
use bytes::Bytes;

use super::SharedPlace;

/// The version of the format, which is the first byte.
const VERSION: u8 = 1;

/// Separates these keys from any other use of the same secret.
const SALT: &[u8] = b"tunnel cluster 1";

/// The bytes of a derived key.
const KEY: usize = 32;

/// The secret that all nodes of a cluster have, or two while it is replaced.
#[derive(Clone)]
pub struct CommonSecret {
    first: Prk,
    others: Vec<Prk>,
}

impl fmt::Debug for CommonSecret {
    /// Prints no key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommonSecret").field("others", &self.others.len()).finish_non_exhaustive()
    }
}

/// The reason why a value of the store was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsealed {
    /// Another format.
    #[error("it has a format that this version of the program does not read")]
    Version,
    /// Fewer bytes than a sealed value has.
    #[error("it is cut off")]
    Cut,
    /// Not sealed with this secret for this place, or changed since.
    #[error("it was sealed with another `cluster.secret` or for another name, or it was changed")]
    Key,
    /// A value was to be sealed anew.
    #[error("the system gives no random numbers")]
    Random,
}

/// A value of the store that was to be sealed anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resealed {
    /// The first secret has sealed the value.
    Current,
    /// The same value, sealed with the first secret.
    Anew(Bytes),
}

/// An opened value.
pub(crate) struct OpenedValue {
    pub(crate) plain: Vec<u8>,
    /// Whether the first secret has sealed the value. Otherwise it should be sealed anew.
    pub(crate) is_current: bool,
}

impl fmt::Debug for OpenedValue {
    /// Prints nothing of the value, which may be a private key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenedValue").field("is_current", &self.is_current).finish_non_exhaustive()
    }
}

/// The length of a derived key.
struct KeyLength;

impl hkdf::KeyType for KeyLength {
    fn len(&self) -> usize {
        KEY
    }
}

impl CommonSecret {
    /// The secrets, of which the first one seals. `None` without a secret.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let salt = Salt::new(HKDF_SHA256, SALT);
        let mut roots = secrets.into_iter().map(|secret| salt.extract(secret.as_bytes()));
        Some(Self { first: roots.next()?, others: roots.collect() })
    }

    /// A key for a purpose that needs no sealing. No place has a kind with a blank, so the key is
    /// that of no place.
    #[must_use]
    pub fn key(&self, purpose: &str) -> Option<[u8; KEY]> {
        derive(&self.first, "key of", purpose)
    }

    /// A number of these bytes for a purpose, which all nodes compute alike. Without the secret
    /// nobody can tell which bytes have a number.
    #[must_use]
    pub fn mark(&self, purpose: &str, bytes: &[u8]) -> Option<u64> {
        let key = hmac::Key::new(HMAC_SHA256, &self.key(purpose)?);
        let tag = hmac::sign(&key, bytes);
        tag.as_ref().first_chunk().copied().map(u64::from_be_bytes)
    }

    /// Seals a value of the store anew with the first secret, if another one has sealed it.
    ///
    /// # Errors
    /// No secret opens the value, or the system gives no random numbers.
    pub fn reseal(&self, place: &SharedPlace, sealed: &[u8]) -> Result<Resealed, Unsealed> {
        let opened = self.open(place, sealed)?;
        if opened.is_current {
            return Ok(Resealed::Current);
        }
        self.seal(place, &opened.plain).map(Resealed::Anew).ok_or(Unsealed::Random)
    }

    /// Seals a value for its place. `None` if the system gives no random numbers.
    #[must_use]
    pub fn seal(&self, place: &SharedPlace, plain: &[u8]) -> Option<Bytes> {
        let mut text = plain.to_vec();
        let aad = Aad::from(authenticated(place));
        let nonce = sealing(&self.first, place)?.seal_in_place_append_tag(aad, &mut text).ok()?;
        Some([&[VERSION], &nonce.as_ref()[..], &text].concat().into())
    }

    /// Opens the value of a place.
    pub(crate) fn open(&self, place: &SharedPlace, sealed: &[u8]) -> Result<OpenedValue, Unsealed> {
        let (version, rest) = sealed.split_first().ok_or(Unsealed::Cut)?;
        if *version != VERSION {
            return Err(Unsealed::Version);
        }
        let (nonce, text) = rest.split_first_chunk::<NONCE_LEN>().ok_or(Unsealed::Cut)?;
        if text.len() < AES_256_GCM.tag_len() {
            return Err(Unsealed::Cut);
        }
        for (n, root) in std::iter::once(&self.first).chain(&self.others).enumerate() {
            let mut text = text.to_vec();
            let (nonce, aad) = (Nonce::from(nonce), Aad::from(authenticated(place)));
            let Some(key) = sealing(root, place) else { continue };
            if let Ok(plain) = key.open_in_place(nonce, aad, &mut text) {
                let length = plain.len();
                text.truncate(length);
                return Ok(OpenedValue { plain: text, is_current: n == 0 });
            }
        }
        Err(Unsealed::Key)
    }
}

fn authenticated(place: &SharedPlace) -> String {
    let (kind, name) = place.parts();
    format!("{VERSION} {kind}/{name}")
}

fn sealing(root: &Prk, place: &SharedPlace) -> Option<RandomizedNonceKey> {
    let (kind, name) = place.parts();
    RandomizedNonceKey::new(&AES_256_GCM, &derive(root, kind, name)?).ok()
}

fn derive(root: &Prk, kind: &str, name: &str) -> Option<[u8; KEY]> {
    let mut key = [0; KEY];
    let info = [kind.as_bytes(), b"\0", name.as_bytes()];
    root.expand(&info, KeyLength).ok()?.fill(&mut key).ok()?;
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ";
    const TWO: &str = "Zt5RkW1xQ8bN4mVc7LpYs2HdJf9GaE3uq7xJ2vKp0mZ";

    fn secret(secrets: &[&'static str]) -> CommonSecret {
        CommonSecret::new(secrets.iter().copied()).unwrap()
    }

    fn place(host: &str) -> SharedPlace {
        SharedPlace::Certificate(host.into())
    }

    #[test]
    fn a_value_opens_at_its_place_with_its_secret_and_nowhere_else() {
        let own = secret(&[ONE]);
        let sealed = own.seal(&place("a.example"), b"a private key").unwrap();
        let opened = own.open(&place("a.example"), &sealed).unwrap();
        assert_eq!((&*opened.plain, opened.is_current), (&b"a private key"[..], true));
        assert!(!sealed.windows(7).any(|part| part == b"private"));
        for other in [
            place("b.example"),
            SharedPlace::Challenge("a.example".into()),
            SharedPlace::Account("a.example".into()),
            SharedPlace::Tickets,
        ] {
            assert_eq!(own.open(&other, &sealed).unwrap_err(), Unsealed::Key, "{other:?}");
        }
        let other = secret(&[TWO]).open(&place("a.example"), &sealed);
        assert!(other.unwrap_err().to_string().contains("another `cluster.secret`"));
        assert_ne!(own.seal(&place("a.example"), b"a private key").unwrap(), sealed);
        assert!(CommonSecret::new([]).is_none());
    }

    #[test]
    fn a_value_that_was_cut_or_changed_is_an_error() {
        let (own, place) = (secret(&[ONE]), place("a.example"));
        let sealed = own.seal(&place, b"text").unwrap();
        for length in 0..sealed.len() {
            assert!(own.open(&place, &sealed[..length]).is_err(), "{length}");
        }
        for n in 0..sealed.len() {
            let mut changed = sealed.to_vec();
            changed[n] ^= 1;
            let wanted = if n == 0 { Unsealed::Version } else { Unsealed::Key };
            assert_eq!(own.open(&place, &changed).unwrap_err(), wanted, "{n}");
        }
        assert_eq!(own.open(&place, b"").unwrap_err(), Unsealed::Cut);
        assert_eq!(own.open(&place, &[1; 20]).unwrap_err(), Unsealed::Cut);
    }

    #[test]
    fn two_secrets_open_what_either_has_sealed() {
        let place = place("a.example");
        let [before, during, after] = [secret(&[ONE]), secret(&[TWO, ONE]), secret(&[TWO])];
        let old = before.seal(&place, b"old").unwrap();
        let opened = during.open(&place, &old).unwrap();
        assert_eq!((&*opened.plain, opened.is_current), (&b"old"[..], false));
        let new = during.seal(&place, b"new").unwrap();
        assert!(after.open(&place, &new).unwrap().is_current);
        assert!(before.open(&place, &new).is_err());
        assert!(!secret(&[ONE, TWO]).open(&place, &new).unwrap().is_current);
    }

    #[test]
    fn a_value_is_sealed_anew_once() {
        let place = place("a.example");
        let [before, during, after] = [secret(&[ONE]), secret(&[TWO, ONE]), secret(&[TWO])];
        let old = before.seal(&place, b"old").unwrap();
        let Ok(Resealed::Anew(new)) = during.reseal(&place, &old) else { panic!() };
        assert_eq!(&*after.open(&place, &new).unwrap().plain, b"old");
        for secret in [&during, &after] {
            assert_eq!(secret.reseal(&place, &new), Ok(Resealed::Current));
        }
        assert_eq!(after.reseal(&place, &old), Err(Unsealed::Key));
        assert_eq!(before.reseal(&place, &old), Ok(Resealed::Current));
    }

    #[test]
    fn keys_of_purposes_differ_from_each_other_and_are_the_same_at_all_nodes() {
        let [one, again] = [secret(&[ONE]), secret(&[ONE, TWO])];
        assert_eq!(one.key("cookies"), again.key("cookies"));
        assert_ne!(one.key("cookies"), one.key("others"));
        assert_ne!(one.key("cookies"), secret(&[TWO]).key("cookies"));
        let mark = one.mark("terms", b"a");
        assert!(mark.is_some() && mark == again.mark("terms", b"a"));
        for other in [one.mark("terms", b"b"), one.mark("others", b"a")] {
            assert_ne!(mark, other);
        }
        assert_ne!(mark, secret(&[TWO]).mark("terms", b"a"));
        assert!(!format!("{one:?}").contains(ONE));
    }
}
