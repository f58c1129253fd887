//! Keys from passphrases, as kcptun derives them.

use std::num::NonZeroU32;

use aws_lc_rs::pbkdf2;

/// Size in bytes of the key that kcptun derives. Ciphers with shorter keys use its first bytes.
pub const KEY: usize = 32;

/// kcptun's salt. The salt is the same for all users, so a table of weak passphrases works against
/// all servers.
const SALT: &[u8] = b"kcp-go";

const ROUNDS: NonZeroU32 = NonZeroU32::MIN.saturating_add(4095);

/// The key of a passphrase: PBKDF2 with HMAC-SHA1, 4,096 rounds, and the salt `kcp-go`.
#[must_use]
pub fn derive(passphrase: &str) -> [u8; KEY] {
    derive_with_salt(passphrase, SALT)
}

/// The key of a passphrase and a salt. Other programs based on kcp-go use different salts.
#[must_use]
pub fn derive_with_salt(passphrase: &str, salt: &[u8]) -> [u8; KEY] {
    let mut key = [0; KEY];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA1, ROUNDS, salt, passphrase.as_bytes(), &mut key);
    key
}
