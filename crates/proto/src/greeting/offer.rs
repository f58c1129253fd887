//! Proofs for WebRTC session descriptions, for programs without the greeting.
//!
//! The construction is that of the greeting. Proof and signature cover the texts unchanged,
//! including the certificate hashes in them: whoever carries the texts can substitute neither end.
//!
//! ```text
//!   Client Key = HMAC(token, "Client Key")     Stored Key = SHA-256(Client Key)
//!   Server Key = HMAC(token, "Server Key")
//!   proof      = Client Key XOR HMAC(Stored Key, SHA-256("tunnel offer" LF context LF offer))
//!   signature  = HMAC(Server Key, SHA-256("tunnel answer" LF context LF offer LF answer))
//! ```
//!
//! HMAC is HMAC-SHA-256. A replayed offer is useless, because it does not contain the private key
//! of its certificate.

use sha2::{Digest, Sha256};

use super::keys::{ClientKeys, StoredCredential, same, verify};
use super::token::Token;

/// The proof for an offer. `context` names the client and what it requests.
#[must_use]
pub fn prove_offer(token: &Token, context: &str, offer: &str) -> [u8; 32] {
    token.keys().proof(&transcript(&["tunnel offer", context, offer]))
}

/// Checks the proof of an offer against the credentials of a name. The work is the same for any
/// number of credentials, and for a valid or an invalid proof.
#[must_use]
pub fn verify_offer(
    credentials: &[StoredCredential],
    context: &str,
    offer: &str,
    proof: &[u8; 32],
) -> Option<ProvenOffer> {
    let keys = verify(credentials, &transcript(&["tunnel offer", context, offer]), proof)?;
    Some(ProvenOffer { keys, begin: [context, offer].join("\n") })
}

/// Whether the answer was signed by an end that knows the token.
#[must_use]
pub fn is_signed(
    token: &Token,
    (context, offer, answer): (&str, &str, &str),
    signature: &[u8; 32],
) -> bool {
    let signed = transcript(&["tunnel answer", context, offer, answer]);
    same(&token.keys().signature(&signed), signature)
}

/// An offer with a valid proof.
#[derive(Debug)]
pub struct ProvenOffer {
    keys: ClientKeys,
    /// Context and offer.
    begin: String,
}

impl ProvenOffer {
    /// The credential that the proof matches.
    #[must_use]
    pub fn credential(&self) -> StoredCredential {
        self.keys.stored()
    }

    /// The signature of an answer.
    #[must_use]
    pub fn sign(&self, answer: &str) -> [u8; 32] {
        self.keys.signature(&transcript(&["tunnel answer", &self.begin, answer]))
    }
}

fn transcript(parts: &[&str]) -> [u8; 32] {
    Sha256::digest(parts.join("\n")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> Token {
        Token::new(text).unwrap()
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn an_offer_is_proven_and_its_answer_signed_for_one_context() {
        let own = token("q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ");
        let other = token("aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYzA1bC2dE3fG");
        let stored = [other.keys().stored(), own.keys().stored()];
        let proof = prove_offer(&own, "laptop", "v=0");
        let proven = verify_offer(&stored, "laptop", "v=0", &proof).unwrap();
        assert_eq!(proven.credential(), stored[1]);
        assert!(verify_offer(&stored[..1], "laptop", "v=0", &proof).is_none(), "another token");
        assert!(verify_offer(&[], "laptop", "v=0", &proof).is_none());
        assert!(verify_offer(&stored, "desktop", "v=0", &proof).is_none(), "another name");
        assert!(verify_offer(&stored, "laptop", "v=0\n", &proof).is_none(), "another offer");
        let signature = proven.sign("v=1");
        assert!(is_signed(&own, ("laptop", "v=0", "v=1"), &signature));
        assert!(!is_signed(&own, ("laptop", "v=0", "v=2"), &signature), "another answer");
        assert!(!is_signed(&own, ("laptop", "v=9", "v=1"), &signature), "another offer");
        assert!(!is_signed(&other, ("laptop", "v=0", "v=1"), &signature), "another token");
        let replayed = prove_offer(&own, "laptop", "v=0");
        assert!(!is_signed(&own, ("laptop", "v=0", "v=1"), &replayed));
    }

    /// The values of the manual (`docs/webrtc.md`), computed by another program.
    #[test]
    fn the_example_of_the_manual() {
        let own = token("q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ");
        let proof = prove_offer(&own, "laptop", "v=0\r\n");
        assert_eq!(hex(&proof), "372b305c4871df0fd529161a3d052fc7f0a22ca6637f6c4954984852a8070fdc");
        let proven = verify_offer(&[own.keys().stored()], "laptop", "v=0\r\n", &proof).unwrap();
        assert_eq!(
            hex(&proven.sign("v=0\r\n")),
            "8d9daca35e271c5fe52d9c8a5015c740e3c7b0fa86ff2b7ba8978d3cc7ff8e6b"
        );
    }
}
