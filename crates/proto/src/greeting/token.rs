//! The shared secret of a client and its server. It must have enough entropy: the greeting has no
//! salt and no iterations, and over `tcp://` and `ws://` anybody on the path can guess offline.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

use super::keys::{ClientKeys, StoredCredential};

/// Entropy below which a token is refused, in bits: beyond exhaustive search (NIST SP 800-57 part
/// 1).
const ENTROPY_MIN: usize = 128;

/// Maximum length of a token, in bytes; rejects a file that was given by mistake.
const TOKEN_MAX: usize = 256;

/// Minimum number of distinct characters of a token: 39 random digits have fewer once in 10,000
/// cases, tokens of larger alphabets practically never.
const DISTINCT_MIN: usize = 8;

/// Prefix of the text of a [`StoredCredential`].
const HASHED: &str = "scram-sha-256:";

impl StoredCredential {
    /// The stored credential of a token, or of a text made by [`Self::text`].
    ///
    /// # Errors
    /// Those of [`Token::new`]; [`TokenError::Hashed`] if a text of [`Self::text`] is incomplete.
    pub fn of(text: &str) -> Result<Self, TokenError> {
        let Some(keys) = text.strip_prefix(HASHED) else {
            return Token::new(text).map(|token| token.stored());
        };
        let key = |text| -> Option<[u8; 32]> {
            Zeroizing::new(URL_SAFE_NO_PAD.decode(text).ok()?).as_slice().try_into().ok()
        };
        let both =
            keys.split_once(':').and_then(|(stored, server)| Some((key(stored)?, key(server)?)));
        let (stored_key, server_key) = both.ok_or(TokenError::Hashed)?;
        Ok(Self { stored_key, server_key })
    }

    /// The text for a configuration: `scram-sha-256:`, the stored key, `:`, the server key, both in
    /// base64url (RFC 4648 section 5), unpadded. A secret: its owner can impersonate the server.
    #[must_use]
    pub fn text(&self) -> Zeroizing<String> {
        let [stored, server] =
            [self.stored_key, self.server_key].map(|key| URL_SAFE_NO_PAD.encode(key));
        Zeroizing::new(format!("{HASHED}{stored}:{server}"))
    }
}

/// A token with at least 128 bits of entropy, as estimated by [`Token::new`].
///
/// Never printed, overwritten when dropped.
#[derive(Clone)]
pub struct Token(Zeroizing<Box<[u8]>>);

/// Why a text is not a [`Token`]. The messages do not contain the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Blanks, control characters or non-ASCII.
    #[error("a token has only visible ASCII characters, no blanks and no line ends")]
    Character,
    /// More than 256 characters.
    #[error("a token has at most {TOKEN_MAX} characters")]
    Long,
    /// A [`StoredCredential`], possibly a damaged one, instead of a token.
    #[error(
        "this is the hash of a token, `{HASHED}…`, or a part of one; only a server can use it, and \
         only a whole one"
    )]
    Hashed,
    /// Too easy to guess.
    #[error(
        "the token is too weak: about {bits} bits where {ENTROPY_MIN} are needed; make one with \
         `tunnel generate token`"
    )]
    Weak {
        /// The estimated entropy, in bits.
        bits: usize,
    },
}

impl Token {
    /// Checks a text. The estimated entropy is `length * log2(size of the alphabet)`, with the
    /// smallest matching alphabet of: digits, hex digits, letters of one case, with digits, letters
    /// of both cases, with digits, with punctuation. 22 characters of base64, 32 hex digits or 39
    /// digits suffice. The estimate is 0 for texts with fewer than 8 distinct characters or with
    /// many repetitions.
    pub fn new(text: &str) -> Result<Self, TokenError> {
        let bytes = text.as_bytes();
        if !bytes.iter().all(u8::is_ascii_graphic) {
            return Err(TokenError::Character);
        }
        if bytes.len() > TOKEN_MAX {
            return Err(TokenError::Long);
        }
        if text.starts_with(HASHED) {
            return Err(TokenError::Hashed);
        }
        let bits = estimate(bytes);
        if bits < ENTROPY_MIN {
            return Err(TokenError::Weak { bits });
        }
        Ok(Self(Zeroizing::new(bytes.into())))
    }

    /// A derived key as a token.
    pub(super) fn of_key(key: [u8; 32]) -> Self {
        Self(Zeroizing::new(Box::new(key)))
    }

    /// The server's half of this token. The token cannot be computed from it.
    #[must_use]
    pub fn stored(&self) -> StoredCredential {
        self.keys().stored()
    }

    pub(super) fn keys(&self) -> ClientKeys {
        ClientKeys::derive(&self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl std::str::FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        Self::new(text)
    }
}

/// A lower estimate of the entropy of a text, in bits.
fn estimate(text: &[u8]) -> usize {
    let has = |class: fn(&u8) -> bool| text.iter().any(class);
    let (digit, lower, upper) =
        (has(u8::is_ascii_digit), has(u8::is_ascii_lowercase), has(u8::is_ascii_uppercase));
    let sign = has(u8::is_ascii_punctuation);
    // Hundredths of a bit per character: log2 of the size of the alphabet, rounded down.
    let each = if !sign && text.iter().all(u8::is_ascii_digit) {
        332
    } else if !sign && text.iter().all(u8::is_ascii_hexdigit) {
        400
    } else {
        match (lower && upper, digit, sign) {
            (false, false, _) => 470,
            (false, true, _) => 516,
            (true, false, false) => 570,
            (true, true, false) => 595,
            (true, _, true) => 600,
        }
    };
    let mut seen = [false; 256];
    for &byte in text {
        seen[usize::from(byte)] = true;
    }
    let distinct = seen.iter().filter(|&&s| s).count();
    if distinct < DISTINCT_MIN || repeats(text) { 0 } else { text.len() * each / 100 }
}

/// Whether more than a quarter of the substrings of four characters occurred earlier in the text.
/// In 32 random hex digits one substring repeats once in 150 cases and seven practically never.
fn repeats(text: &[u8]) -> bool {
    let again = (1..text.len().saturating_sub(3))
        .filter(|&i| text[..i + 3].windows(4).any(|earlier| *earlier == text[i..i + 4]))
        .count();
    again * 4 > text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strong_tokens_are_taken() {
        for good in [
            "9fK2xQ7bVt0LmZ4cRw8JpA",
            "0f1e2d3c4b5a69788796a5b4c3d2e1f9",
            "314159265358979323846264338327950288419",
            "correct/Horse+battery9Staple",
        ] {
            assert!(Token::new(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn weak_tokens_are_refused_without_being_repeated() {
        let long = "9fK2xQ7bVt0LmZ4cRw8JpA".repeat(12);
        for (bad, error) in [
            ("", TokenError::Weak { bits: 0 }),
            ("secret", TokenError::Weak { bits: 0 }),
            ("9fK2xQ7bVt0LmZ4cRw8Jp", TokenError::Weak { bits: 124 }),
            ("0f1e2d3c4b5a69788796a5b4c3d2e1f", TokenError::Weak { bits: 124 }),
            ("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", TokenError::Weak { bits: 0 }),
            ("password1Password1Password1Password1", TokenError::Weak { bits: 0 }),
            ("9fK2xQ7bVt0LmZ4cRw8JpA\n", TokenError::Character),
            ("9fK2xQ7bVt0LmZ4c Rw8JpA", TokenError::Character),
            (&long, TokenError::Long),
        ] {
            let found = Token::new(bad).unwrap_err();
            assert_eq!(found, error, "{bad}");
            assert!(bad.is_empty() || !found.to_string().contains(bad));
        }
    }

    #[test]
    fn a_hashed_token_is_as_good_as_the_token_and_is_none_itself() {
        let token = Token::new("9fK2xQ7bVt0LmZ4cRw8JpA").unwrap();
        let text = token.stored().text();
        assert!(text.starts_with("scram-sha-256:") && text.len() == 14 + 43 + 1 + 43, "{}", *text);
        for given in [text.as_str(), "9fK2xQ7bVt0LmZ4cRw8JpA"] {
            let stored = StoredCredential::of(given).unwrap();
            assert_eq!(stored.stored_key, token.stored().stored_key);
            assert_eq!(stored.server_key, token.stored().server_key);
        }
        assert_eq!(Token::new(&text).unwrap_err(), TokenError::Hashed);
        for cut in [14, 20, 57, 58, 100] {
            assert_eq!(StoredCredential::of(&text[..cut]).unwrap_err(), TokenError::Hashed);
        }
        assert_eq!(StoredCredential::of("weak").unwrap_err(), Token::new("weak").unwrap_err());
    }

    #[test]
    fn a_token_never_prints() {
        let token = Token::new("9fK2xQ7bVt0LmZ4cRw8JpA").unwrap();
        assert_eq!(format!("{token:?} {:?}", token.stored()), "Token(..) StoredCredential(..)");
    }
}
