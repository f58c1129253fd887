//! The transcript that both proofs cover: the binding, and every message so far with its header.

use sha2::{Digest, Sha256};

const LABEL: &[u8] = b"tunnel greeting 1";

/// Binds a greeting to its connection.
///
/// Both sides must have the same binding: the mode is part of the transcript and of the client's
/// Hello, so stripping TLS from one side causes a refusal, not a weaker greeting.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// Keying material of the TLS session (RFC 5705, RFC 8446 section 7.5): tls, quic, kcp.
    Exporter([u8; 32]),
    /// Nothing, or TLS that may end at a reverse proxy: tcp, ws, wss. The client's proof then
    /// covers the server's nonce, but relaying the whole connection is not prevented.
    None,
}

impl Binding {
    pub(super) const fn is_bound(&self) -> bool {
        matches!(self, Self::Exporter(_))
    }
}

impl std::fmt::Debug for Binding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Exporter(_) => "Exporter(..)",
            Self::None => "None",
        })
    }
}

/// Hash over `label | mode | exporter | messages`. Messages include their length, and the mode
/// determines whether there is an exporter: no two different transcripts have the same bytes.
#[derive(Clone)]
pub(super) struct Transcript(Sha256);

impl Transcript {
    pub(super) fn new(binding: &Binding) -> Self {
        let mut hash = Sha256::new_with_prefix(LABEL);
        match binding {
            Binding::Exporter(exporter) => {
                hash.update([1]);
                hash.update(exporter);
            }
            Binding::None => hash.update([0]),
        }
        Self(hash)
    }

    /// The transcript that [`super::message::EARLY`] covers.
    pub(super) fn early(client: &[u8; 32]) -> Self {
        Self(Sha256::new_with_prefix(LABEL).chain_update([2]).chain_update(client))
    }

    /// The transcript that [`super::message::EARLY_SIGNATURE`] covers.
    pub(super) fn early_answer(server: &[u8; 32]) -> Self {
        Self(Sha256::new_with_prefix(LABEL).chain_update([3]).chain_update(server))
    }

    pub(super) fn push(&mut self, message: &[u8]) {
        self.0.update(message);
    }

    pub(super) fn hash(&self) -> [u8; 32] {
        self.0.clone().finalize().into()
    }
}

impl std::fmt::Debug for Transcript {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Transcript(..)")
    }
}
