//! Makes tokens with which clients log in.

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Makes a random token of 256 bits: 43 characters that need no quotes in YAML, shells and URLs.
///
/// # Errors
/// The system provides no random bytes.
pub fn token() -> anyhow::Result<String> {
    let mut bytes = [0; 32];
    loop {
        random(&mut bytes)?;
        let token = URL_SAFE_NO_PAD.encode(bytes);
        // A leading dash would look like a flag.
        if token.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            return Ok(token);
        }
    }
}

/// Fills a buffer from the system's random source.
///
/// # Errors
/// The system provides no random bytes.
pub fn random(bytes: &mut [u8]) -> anyhow::Result<()> {
    getrandom::fill(bytes).context("the system gives no randomness")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_long_plain_and_never_the_same() {
        let (one, other) = (token().unwrap(), token().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.len(), 43);
        for _ in 0..1000 {
            assert!(!token().unwrap().starts_with('-'));
        }
        assert!(one.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)));
    }
}
