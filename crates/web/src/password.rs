//! The check of a password against a hash. It takes up to 0.3 s and 64 MiB, so it belongs on a
//! dedicated thread.

use std::{
    fmt,
    hash::{BuildHasher as _, RandomState},
    sync::{Arc, OnceLock},
};

use argon2::{Algorithm, Argon2, Params, Version};
use proto::PasswordHash;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// The maximum length of a password in bcrypt, in bytes, with the trailing NUL.
const BCRYPT_MOST: usize = 72;

/// A password that a visitor presented, and the expected hash.
pub struct Candidate {
    hash: Arc<PasswordHash>,
    /// `false`: the user does not exist. The check costs the same.
    is_known: bool,
    /// User and password, as presented.
    pair: Zeroizing<Vec<u8>>,
    /// The offset of the password.
    password: usize,
}

impl Candidate {
    /// A pair `user:password` and the hash of the user, or the hash of another user.
    pub(crate) fn new(hash: &Arc<PasswordHash>, is_known: bool, pair: &[u8]) -> Self {
        let colon = pair.iter().position(|byte| *byte == b':');
        let password = colon.map_or(pair.len(), |colon| colon + 1);
        Self { hash: Arc::clone(hash), is_known, pair: Zeroizing::new(pair.to_vec()), password }
    }

    /// A fingerprint that identifies the same pair at the same place. Its key is random for each
    /// process, so the fingerprint reveals nothing about the pair.
    #[must_use]
    pub fn fingerprint(&self, place: u64) -> (u64, u64) {
        static KEYS: OnceLock<[RandomState; 2]> = OnceLock::new();
        let [first, second] = KEYS.get_or_init(|| [RandomState::new(), RandomState::new()]);
        let of = |key: &RandomState| key.hash_one((place, &self.pair[..], self.is_known));
        (of(first), of(second))
    }

    /// The memory that the check takes, in bytes.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.hash.memory()
    }

    /// Whether the password is correct.
    #[must_use]
    pub fn is_right(&self) -> bool {
        let password = &self.pair[self.password..];
        // The check for a user that does not exist takes as long, and always fails.
        is_right(&self.hash, password) & self.is_known
    }
}

/// A password for a pair `user:hash`, for tests; `None`: the pair is malformed.
#[doc(hidden)]
#[must_use]
pub fn candidate(pair: &str, password: &str) -> Option<Candidate> {
    let (user, hash) = pair.split_once(':')?;
    let hash = Arc::new(PasswordHash::parse(hash).ok()?);
    Some(Candidate::new(&hash, true, format!("{user}:{password}").as_bytes()))
}

/// Omits the password, which is a secret.
impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Candidate").field(&self.hash).finish()
    }
}

fn is_right(hash: &PasswordHash, password: &[u8]) -> bool {
    match hash {
        PasswordHash::Argon2id { memory, passes, lanes, salt, hash } => {
            let mut found = Zeroizing::new(vec![0; hash.len()]);
            let Ok(params) = Params::new(*memory, *passes, *lanes, Some(hash.len())) else {
                return false;
            };
            let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
            argon2.hash_password_into(password, salt, &mut found).is_ok()
                && bool::from(found.ct_eq(hash))
        }
        PasswordHash::Bcrypt { cost, salt, hash } => {
            // A NUL terminates a password, so the password itself must not contain one.
            if password.contains(&0) {
                return false;
            }
            let mut ended = Zeroizing::new([0; BCRYPT_MOST]);
            let length = password.len().min(BCRYPT_MOST);
            ended[..length].copy_from_slice(&password[..length]);
            let found = bcrypt::bcrypt(*cost, *salt, &ended[..(length + 1).min(BCRYPT_MOST)]);
            bool::from(found[..hash.len()].ct_eq(hash))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(hash: &str, pair: &str) -> bool {
        Candidate::new(&Arc::new(PasswordHash::parse(hash).unwrap()), true, pair.as_bytes())
            .is_right()
    }

    #[test]
    fn the_hashes_of_other_programs_are_understood() {
        for (hash, password) in [
            // The program `argon2` of the reference:
            // `echo -n password | argon2 somesalt -id -t 2 -m 16 -p 1`, from its own tests.
            (
                "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$\
                 CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc",
                "password",
            ),
            // The test vectors of OpenWall's crypt_blowfish.
            ("$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW", "U*U"),
            ("$2y$05$CCCCCCCCCCCCCCCCCCCCC.VGOzA784oUp/Z0DY336zx7pLYAy0lwK", "U*U*"),
            ("$2b$05$CCCCCCCCCCCCCCCCCCCCC.7uG0VCzI2bS7j6ymqJi9CdcdxiRTWNy", ""),
        ] {
            assert!(check(hash, &format!("ann:{password}")), "{hash}");
            assert!(!check(hash, &format!("ann:{password}x")), "{hash}");
            let other = Arc::new(PasswordHash::parse(hash).unwrap());
            let pair = format!("eve:{password}");
            assert!(!Candidate::new(&other, false, pair.as_bytes()).is_right(), "nobody");
        }
    }

    #[test]
    fn a_long_password_and_one_with_a_nul_are_not_confused() {
        let long = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ\
                    0123456789chars after 72 are ignored";
        let hash = "$2a$05$abcdefghijklmnopqrstuu5s2v8.iXieOjg/.AySBTTZIIVFJeBui";
        assert!(check(hash, &format!("ann:{long}")));
        let empty = "$2b$05$CCCCCCCCCCCCCCCCCCCCC.7uG0VCzI2bS7j6ymqJi9CdcdxiRTWNy";
        assert!(!check(empty, "ann:\0x"));
    }

    #[test]
    fn a_pair_is_known_again_at_its_place_alone() {
        let hash = Arc::new(
            PasswordHash::parse("$2b$05$CCCCCCCCCCCCCCCCCCCCC.7uG0VCzI2bS7j6ymqJi9CdcdxiRTWNy")
                .unwrap(),
        );
        let of = |pair: &[u8], place| Candidate::new(&hash, true, pair).fingerprint(place);
        assert_eq!(of(b"a:b", 1), of(b"a:b", 1));
        assert_ne!(of(b"a:b", 1), of(b"a:b", 2));
        assert_ne!(of(b"a:b", 1), of(b"a:c", 1));
    }
}
