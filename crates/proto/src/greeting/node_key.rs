//! How nodes of a cluster prove their names to each other without certificates: by a key that all
//! nodes have in common.
//!
//! The greeting is that of a client with a token, whose proofs are mutual. The token of each pair
//! of nodes is derived from the common key, the node that dials and the node that accepts, in this
//! order. So a proof of one node is none of another node, a node that is reached by the address of
//! another node proves nothing, and what a node sends as the dialling side is useless against it as
//! the accepting side.

use std::fmt;

use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use super::keys::mac;
use super::{Name, Token};

/// Separates these tokens from everything else that is derived from the key.
const LABEL: &[u8] = b"tunnel node link 1";

/// A key that all nodes of a cluster have. Never printed, overwritten when dropped.
#[derive(Clone)]
pub struct NodeKey(Zeroizing<[u8; 32]>);

impl NodeKey {
    /// The key with these bytes, which must be as hard to guess as a token.
    #[must_use]
    pub fn new(key: [u8; 32]) -> Self {
        Self(Zeroizing::new(key))
    }

    /// The token by which the node `dials` logs in at the node `accepts`:
    /// `HMAC-SHA-256(key, label | length of dials u8 | dials | accepts)`.
    #[must_use]
    pub fn token(&self, dials: &Name, accepts: &Name) -> Token {
        let [dials, accepts] = [dials, accepts].map(|name| name.as_str().as_bytes());
        // A name has at most 64 bytes.
        let length = u8::try_from(dials.len()).unwrap_or(u8::MAX);
        Token::of_key(mac(&self.0, &[LABEL, &[length], dials, accepts]))
    }
}

/// Compares in constant time.
impl PartialEq for NodeKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&*other.0).into()
    }
}

impl Eq for NodeKey {}

impl fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_of_nodes_has_a_token_for_each_direction_and_each_key() {
        let [a, b, ab, c] = ["a", "b", "ab", "c"].map(|name| Name::new(name).unwrap());
        let [key, other] = [[7; 32], [8; 32]].map(NodeKey::new);
        let own = key.token(&a, &b).stored();
        assert_eq!(own, NodeKey::new([7; 32]).token(&a, &b).stored());
        for (what, token) in [
            ("the other direction", key.token(&b, &a)),
            ("another node that dials", key.token(&c, &b)),
            ("another node that accepts", key.token(&a, &c)),
            ("another key", other.token(&a, &b)),
        ] {
            assert!(token.stored() != own, "{what}");
        }
        // `a` and `bc`, `ab` and `c`.
        let bc = Name::new("bc").unwrap();
        assert!(key.token(&a, &bc).stored() != key.token(&ab, &c).stored());
        assert_eq!(format!("{key:?}"), "NodeKey(..)");
    }
}
