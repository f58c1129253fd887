//! Password hashes for `basic_auth`: their forms, and the maximum cost of a check. The check itself
//! is left to callers that have a thread for it.
//!
//! | form | kind |
//! |---|---|
//! | `$argon2id$v=19$m=19456,t=2,p=1$SALT$HASH` | Argon2id (RFC 9106) as a PHC string |
//! | `$2y$10$…`, `$2b$…`, `$2a$…` | bcrypt, as `htpasswd -B` makes it |

use base64::alphabet;
use base64::engine::general_purpose::{NO_PAD, STANDARD_NO_PAD};
use base64::engine::{Engine as _, GeneralPurpose};

/// The maximum memory of Argon2id, in KiB: that of the second recommended option of RFC 9106
/// section 4.
pub const ARGON2_MEMORY_MAX: u32 = 64 << 10;

/// The maximum product of memory (KiB) and passes of Argon2id: three passes over the maximum
/// memory, about 0.2 s per check.
const ARGON2_WORK_MAX: u64 = 3 * ARGON2_MEMORY_MAX as u64;

/// The maximum number of passes of Argon2id.
const ARGON2_PASSES_MAX: u32 = 64;

/// The maximum number of lanes of Argon2id. The lanes are computed sequentially.
const ARGON2_LANES_MAX: u32 = 16;

/// The lengths of a salt and of a hash of Argon2id, in bytes (RFC 9106 section 3.1).
const ARGON2_SALT: std::ops::RangeInclusive<usize> = 8..=64;
const ARGON2_HASH: std::ops::RangeInclusive<usize> = 16..=64;

/// The maximum cost of bcrypt: the binary logarithm of the rounds, about 0.25 s per check.
pub const BCRYPT_COST_MAX: u32 = 12;

/// The minimum cost of bcrypt; the algorithm defines no lower cost.
const BCRYPT_COST_MIN: u32 = 4;

/// Base64 with the alphabet of bcrypt, for its salt and hash.
const BCRYPT: GeneralPurpose =
    GeneralPurpose::new(&alphabet::BCRYPT, NO_PAD.with_decode_allow_trailing_bits(true));

/// The hash of a password.
#[derive(Clone, PartialEq, Eq)]
pub enum PasswordHash {
    /// Argon2id, version 1.3.
    Argon2id {
        /// The memory in KiB.
        memory: u32,
        /// The passes over the memory.
        passes: u32,
        /// The lanes.
        lanes: u32,
        /// The salt, 8 to 64 bytes.
        salt: Vec<u8>,
        /// The hash, 16 to 64 bytes.
        hash: Vec<u8>,
    },
    /// bcrypt.
    Bcrypt {
        /// The logarithm of the number of rounds.
        cost: u32,
        /// The salt.
        salt: [u8; 16],
        /// The hash.
        hash: [u8; 23],
    },
}

/// Why a text is not a hash that a server can check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HashError {
    /// A hash that is too weak: MD5, SHA-1, or the system's crypt.
    #[error("the kind of this hash is too weak or unknown here: argon2id and bcrypt are known")]
    Kind,
    /// A variant of Argon2 that is not meant for passwords, or an old version.
    #[error("of Argon2 only argon2id of version 19 is known")]
    Variant,
    /// The text begins as a hash, but the rest is malformed.
    #[error("the hash is malformed or incomplete")]
    Form,
    /// A check would take too much memory or time.
    #[error(
        "a check of the hash takes too long: at most m={ARGON2_MEMORY_MAX} and m times t at most \
         {ARGON2_WORK_MAX} of argon2id, at most the cost {BCRYPT_COST_MAX} of bcrypt"
    )]
    Cost,
}

/// Prefixes of texts that are meant as a hash, of supported kinds and of others.
const PREFIXES: [&str; 11] =
    ["$argon2", "$2", "$apr1$", "$1$", "$5$", "$6$", "$y$", "$7$", "$scrypt$", "{SHA}", "{SSHA}"];

impl PasswordHash {
    /// Whether a text is meant as a hash rather than as a password.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        let is_bcrypt = |text: &str| {
            let mut chars = text.chars().skip(2);
            matches!(chars.next(), Some('a'..='z' | '$')) && text[2..].contains('$')
        };
        let prefix = PREFIXES.iter().find(|prefix| text.starts_with(**prefix));
        prefix.is_some_and(|prefix| *prefix != "$2" || is_bcrypt(text))
    }

    /// Reads a hash.
    ///
    /// # Errors
    /// The kind of the hash is not supported, the text is not a hash, or a check would cost too
    /// much.
    pub fn parse(text: &str) -> Result<Self, HashError> {
        if let Some(rest) = text.strip_prefix("$argon2") {
            return argon2id(rest.strip_prefix("id$v=19$").ok_or(HashError::Variant)?);
        }
        let bcrypted = ["$2a$", "$2b$", "$2y$"].iter().find_map(|kind| text.strip_prefix(kind));
        bcrypted.ok_or(HashError::Kind).and_then(bcrypt)
    }

    /// The memory that a check takes, in bytes.
    #[must_use]
    pub const fn memory(&self) -> u64 {
        match self {
            Self::Argon2id { memory, .. } => *memory as u64 * 1024,
            Self::Bcrypt { .. } => 8 << 10,
        }
    }
}

/// Parses the rest of a PHC string: parameters, salt and hash.
fn argon2id(text: &str) -> Result<PasswordHash, HashError> {
    let mut parts = text.split('$');
    let [Some(parameters), Some(salt), Some(hash), None] = [(); 4].map(|()| parts.next()) else {
        return Err(HashError::Form);
    };
    let mut parameters = parameters.split(',');
    let mut number = |name: &str| {
        let value = parameters.next().and_then(|one| one.strip_prefix(name));
        let value = value.filter(|value| value.bytes().all(|byte| byte.is_ascii_digit()));
        value.and_then(|value| value.parse::<u32>().ok()).ok_or(HashError::Form)
    };
    let (memory, passes, lanes) = (number("m=")?, number("t=")?, number("p=")?);
    if parameters.next().is_some() || lanes == 0 || passes == 0 {
        return Err(HashError::Form);
    }
    let work = u64::from(memory) * u64::from(passes);
    if memory > ARGON2_MEMORY_MAX
        || work > ARGON2_WORK_MAX
        || passes > ARGON2_PASSES_MAX
        || lanes > ARGON2_LANES_MAX
    {
        return Err(HashError::Cost);
    }
    let decoded = |text: &str| STANDARD_NO_PAD.decode(text).map_err(|_| HashError::Form);
    let (salt, hash) = (decoded(salt)?, decoded(hash)?);
    if memory < 8 * lanes
        || !ARGON2_SALT.contains(&salt.len())
        || !ARGON2_HASH.contains(&hash.len())
    {
        return Err(HashError::Form);
    }
    Ok(PasswordHash::Argon2id { memory, passes, lanes, salt, hash })
}

/// Parses the rest of a bcrypt hash: two digits of cost, 22 characters of salt, 31 of hash.
fn bcrypt(text: &str) -> Result<PasswordHash, HashError> {
    let (cost, rest) = text.split_once('$').ok_or(HashError::Form)?;
    let is_number = cost.len() == 2 && cost.bytes().all(|byte| byte.is_ascii_digit());
    let cost: u32 = cost.parse().ok().filter(|_| is_number).ok_or(HashError::Form)?;
    let decoded =
        |text: Option<&str>| text.and_then(|text| BCRYPT.decode(text).ok()).ok_or(HashError::Form);
    if rest.len() != 53 {
        return Err(HashError::Form);
    }
    let (salt, hash) = (decoded(rest.get(..22))?, decoded(rest.get(22..))?);
    let salt = salt.try_into().map_err(|_| HashError::Form)?;
    let hash = hash.try_into().map_err(|_| HashError::Form)?;
    match cost {
        BCRYPT_COST_MIN..=BCRYPT_COST_MAX => Ok(PasswordHash::Bcrypt { cost, salt, hash }),
        0..BCRYPT_COST_MIN => Err(HashError::Form),
        _ => Err(HashError::Cost),
    }
}

/// Omits salt and hash, which would allow guessing the password offline.
impl std::fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Argon2id { memory, passes, lanes, .. } => {
                write!(f, "Argon2id(m={memory},t={passes},p={lanes})")
            }
            Self::Bcrypt { cost, .. } => write!(f, "Bcrypt({cost})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARGON2: &str = "$argon2id$v=19$m=65536,t=3,p=4$c29tZXNhbHRzYWx0$\
                          AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
    const BCRYPT: &str = "$2y$05$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC";

    #[test]
    fn hashes_of_both_kinds_are_read() {
        let Ok(PasswordHash::Argon2id { memory, passes, lanes, salt, hash }) =
            PasswordHash::parse(ARGON2)
        else {
            panic!("no Argon2id");
        };
        assert_eq!((memory, passes, lanes, &*salt), (65_536, 3, 4, &b"somesaltsalt"[..]));
        assert_eq!(hash, (0..32).collect::<Vec<u8>>());
        for kind in ["$2a$", "$2b$", "$2y$"] {
            let read = PasswordHash::parse(&BCRYPT.replace("$2y$", kind));
            assert!(matches!(read, Ok(PasswordHash::Bcrypt { cost: 5, .. })), "{kind}: {read:?}");
        }
        assert_eq!(PasswordHash::parse(ARGON2).unwrap().memory(), 64 << 20);
    }

    #[test]
    fn what_is_weak_malformed_or_costs_too_much_is_told_apart() {
        let argon2 = |from: &str, to: &str| ARGON2.replace(from, to);
        let bcrypt = |from: &str, to: &str| BCRYPT.replace(from, to);
        for (text, why) in [
            ("$apr1$x$y".to_owned(), HashError::Kind),
            ("{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=".to_owned(), HashError::Kind),
            ("$6$salt$hash".to_owned(), HashError::Kind),
            ("rqXexS6ZhobKA".to_owned(), HashError::Kind),
            ("password".to_owned(), HashError::Kind),
            (String::new(), HashError::Kind),
            (bcrypt("$2y$", "$2x$"), HashError::Kind),
            (argon2("argon2id", "argon2i"), HashError::Variant),
            (argon2("argon2id", "argon2d"), HashError::Variant),
            (argon2("v=19$", "v=16$"), HashError::Variant),
            (argon2("v=19$", ""), HashError::Variant),
            (argon2("m=65536", "m=65537"), HashError::Cost),
            (argon2("m=65536", "m=4294967295"), HashError::Cost),
            (argon2("t=3", "t=4"), HashError::Cost),
            (argon2("m=65536,t=3", "m=8192,t=65"), HashError::Cost),
            (argon2("p=4", "p=17"), HashError::Cost),
            (argon2("m=65536", "m=4294967296"), HashError::Form),
            (argon2("m=65536", "m=+5"), HashError::Form),
            (argon2("m=65536", "m=31"), HashError::Form),
            (argon2("t=3", "t=0"), HashError::Form),
            (argon2("p=4", "p=0"), HashError::Form),
            (argon2("p=4", "p=4,keyid=x"), HashError::Form),
            (argon2("c29tZXNhbHRzYWx0", "c29t"), HashError::Form),
            (argon2("c29tZXNhbHRzYWx0", "c29tZXNhbHRzYWx0%"), HashError::Form),
            (argon2("AAECAwQFBgcICQoLDA0ODxAR", ""), HashError::Form),
            (format!("{ARGON2}$x"), HashError::Form),
            (bcrypt("$05$", "$13$"), HashError::Cost),
            (bcrypt("$05$", "$99$"), HashError::Cost),
            (bcrypt("$05$", "$03$"), HashError::Form),
            (bcrypt("$05$", "$5$"), HashError::Form),
            (bcrypt("$05$", "$+5$"), HashError::Form),
            (bcrypt("RqC", "Rq"), HashError::Form),
            (bcrypt("RqC", "Rq%"), HashError::Form),
            (bcrypt("qC", "é"), HashError::Form),
        ] {
            assert_eq!(PasswordHash::parse(&text), Err(why), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_meant_as_a_hash_is_no_password() {
        for hash in [ARGON2, BCRYPT, "$apr1$x", "$2x$05$x", "{SHA}x", "$6$x", "$2$x"] {
            assert!(PasswordHash::is_meant(hash), "{hash}");
        }
        for password in ["", "$", "$20 a day", "$2", "secret", "$2y", "{sha}", "2y$05$"] {
            assert!(!PasswordHash::is_meant(password), "{password}");
        }
    }
}
