//! The key schedule: SCRAM's keys (RFC 5802 section 3) and the link secret.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hkdf::Hkdf;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use zeroize::{Zeroize, Zeroizing};

use super::CREDENTIALS_MAX;

type Secret = Zeroizing<[u8; 32]>;

pub(super) fn mac(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    mac_of_any(key, parts)
}

fn mac_of_any(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC has no wrong key length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

fn xor(a: &[u8; 32], b: &[u8; 32]) -> [u8; 32] {
    std::array::from_fn(|i| a[i] ^ b[i])
}

/// The server's half of a token. It verifies a proof and makes the server's signature, but does not
/// suffice to log in. A thief of it can impersonate the server. So it is a secret: never printed,
/// and overwritten when dropped.
#[derive(Clone)]
pub struct StoredCredential {
    /// SHA-256 of the client key.
    pub stored_key: [u8; 32],
    /// `HMAC(token, "Server Key")`.
    pub server_key: [u8; 32],
}

impl fmt::Debug for StoredCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredCredential(..)")
    }
}

/// Compares in constant time.
impl PartialEq for StoredCredential {
    fn eq(&self, other: &Self) -> bool {
        let stored = self.stored_key.ct_eq(&other.stored_key);
        (stored & self.server_key.ct_eq(&other.server_key)).into()
    }
}

impl Eq for StoredCredential {}

impl Drop for StoredCredential {
    fn drop(&mut self) {
        self.stored_key.zeroize();
        self.server_key.zeroize();
    }
}

/// Both keys of an identity: derived from its secret by the client, recovered from a valid proof by
/// the server.
#[derive(Clone)]
pub(super) struct ClientKeys {
    client_key: Secret,
    server_key: Secret,
}

impl ClientKeys {
    /// `secret` is the token, or the exporter of a client that presents a certificate instead.
    pub(super) fn derive(secret: &[u8]) -> Self {
        Self {
            client_key: Zeroizing::new(mac_of_any(secret, &[b"Client Key"])),
            server_key: Zeroizing::new(mac_of_any(secret, &[b"Server Key"])),
        }
    }

    pub(super) fn stored(&self) -> StoredCredential {
        StoredCredential {
            stored_key: Sha256::digest(self.client_key.as_slice()).into(),
            server_key: *self.server_key,
        }
    }

    /// The client's proof over a transcript.
    pub(super) fn proof(&self, transcript: &[u8; 32]) -> [u8; 32] {
        xor(&self.client_key, &mac(&self.stored().stored_key, &[transcript]))
    }

    /// The server's proof over a transcript.
    pub(super) fn signature(&self, transcript: &[u8; 32]) -> [u8; 32] {
        mac(&self.server_key, &[transcript])
    }

    /// The secret of the link that this greeting starts.
    pub(super) fn link_secret(&self, transcript: &[u8; 32]) -> LinkSecret {
        LinkSecret(self.expand(transcript, b"tunnel link secret"))
    }

    /// The token that a client uses from now on, if these keys are derived from a code.
    pub(super) fn enrolled_token(&self, transcript: &[u8; 32]) -> EnrolledToken {
        let secret = self.expand(transcript, b"tunnel enrolled token");
        EnrolledToken(Zeroizing::new(URL_SAFE_NO_PAD.encode(secret.as_slice())))
    }

    fn expand(&self, transcript: &[u8; 32], info: &[u8]) -> Secret {
        let mut both = Zeroizing::new([0; 64]);
        both[..32].copy_from_slice(self.client_key.as_slice());
        both[32..].copy_from_slice(self.server_key.as_slice());
        let mut secret = Zeroizing::new([0; 32]);
        Hkdf::<Sha256>::new(Some(transcript), both.as_slice())
            .expand(info, secret.as_mut_slice())
            .expect("HKDF gives up to 8160 bytes");
        secret
    }
}

impl fmt::Debug for ClientKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientKeys(..)")
    }
}

/// The token that a client gets for a code: 256 bits in base64url. Both sides compute it, so it is
/// never sent. Never printed, overwritten when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct EnrolledToken(Zeroizing<String>);

impl EnrolledToken {
    /// The token itself, for the client's configuration.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    pub(super) fn stored(&self) -> StoredCredential {
        ClientKeys::derive(self.0.as_bytes()).stored()
    }
}

impl fmt::Debug for EnrolledToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EnrolledToken(..)")
    }
}

fn assign_if(choice: Choice, to: &mut [u8; 32], from: &[u8; 32]) {
    for (to, from) in to.iter_mut().zip(from) {
        to.conditional_assign(from, choice);
    }
}

/// Verifies a proof against the credentials of a name. The work is the same for zero, one or two
/// credentials, and for a valid or an invalid proof: absent credentials are replaced by a decoy
/// that nothing matches.
pub(super) fn verify(
    credentials: &[StoredCredential],
    transcript: &[u8; 32],
    proof: &[u8; 32],
) -> Option<ClientKeys> {
    let decoy = StoredCredential { stored_key: *transcript, server_key: *transcript };
    let mut found = Choice::from(0);
    let mut keys =
        ClientKeys { client_key: Zeroizing::new([0; 32]), server_key: Zeroizing::new([0; 32]) };
    for i in 0..CREDENTIALS_MAX {
        let (credential, real) = match credentials.get(i) {
            Some(credential) => (credential, Choice::from(1)),
            None => (&decoy, Choice::from(0)),
        };
        let client_key = Zeroizing::new(xor(proof, &mac(&credential.stored_key, &[transcript])));
        let stored: [u8; 32] = Sha256::digest(client_key.as_slice()).into();
        let matches = real & stored.ct_eq(&credential.stored_key);
        assign_if(matches, &mut keys.client_key, &client_key);
        assign_if(matches, &mut keys.server_key, &credential.server_key);
        found |= matches;
    }
    bool::from(found).then_some(keys)
}

/// The secret of a link: proves on an additional carrier that its ends are the same two processes.
/// It is never sent, never printed, and overwritten when dropped.
#[derive(Clone)]
pub struct LinkSecret(Secret);

impl LinkSecret {
    /// A secret that no link has, so that the work for an unknown link is the same.
    pub(super) fn decoy(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The client's claim to the link, over a transcript that holds the link's id, the carrier's
    /// number and mode, and the nonces or the exporter.
    pub(super) fn attach_proof(&self, transcript: &[u8; 32]) -> [u8; 32] {
        mac(&self.0, &[b"tunnel attach client", transcript])
    }

    /// The server's counterpart.
    pub(super) fn attach_signature(&self, transcript: &[u8; 32]) -> [u8; 32] {
        mac(&self.0, &[b"tunnel attach server", transcript])
    }

    /// The client's claim before the handshake is complete, which suffices for a preview of the
    /// link.
    pub(super) fn early_proof(&self, transcript: &[u8; 32]) -> [u8; 32] {
        mac(&self.0, &[b"tunnel early client", transcript])
    }

    /// The server's counterpart, which covers the whole handshake of the connection.
    pub(super) fn early_signature(&self, transcript: &[u8; 32]) -> [u8; 32] {
        mac(&self.0, &[b"tunnel early server", transcript])
    }
}

impl fmt::Debug for LinkSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkSecret(..)")
    }
}

/// Whether two MACs are equal, in constant time.
pub(super) fn same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    a.ct_eq(b).into()
}
