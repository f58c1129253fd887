//! The keys by which nodes prove their names over `tcp://`.

use proto::greeting::{Name, NodeKey, StoredCredential, Token};

/// The keys for links over `tcp://`. Empty: the node has no such links.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlainKeys(Vec<NodeKey>);

impl PlainKeys {
    /// The first key is used, and all are accepted.
    pub(crate) fn new(keys: &[NodeKey]) -> Self {
        Self(keys.to_vec())
    }

    /// The token of `own` for the node `to`. `None`: this node does not dial by `tcp://`.
    pub(crate) fn token(&self, own: &Name, to: &Name) -> Option<Token> {
        self.0.first().map(|key| key.token(own, to))
    }

    /// What verifies the proof of the node `from` at `own`.
    pub(crate) fn credentials(&self, from: &Name, own: &Name) -> Vec<StoredCredential> {
        self.0.iter().map(|key| key.token(from, own).stored()).collect()
    }
}
