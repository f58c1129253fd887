//! The proof with which a link of a visitor began.

use proto::greeting::StoredCredential;
use tls::Shown;

/// The proof with which a link began.
#[derive(Clone, Debug)]
pub(super) enum Proved {
    /// A token.
    Token(StoredCredential),
    /// A certificate.
    Certificate(Shown),
}
