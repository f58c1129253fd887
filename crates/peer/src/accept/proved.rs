//! What a link of a visitor began with.

use proto::greeting::StoredCredential;
use tls::Shown;

/// What a link began with.
#[derive(Clone, Debug)]
pub(super) enum Proved {
    /// A token.
    Token(StoredCredential),
    /// A certificate.
    Certificate(Shown),
}
