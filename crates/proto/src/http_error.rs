//! The bounds of the HTTP options of a service, and why options are refused.

use crate::HashError;
use crate::control::TEXT_MAX;

/// Maximum number of `basic_auth` pairs of a service.
pub const CREDENTIALS_MAX: usize = 16;

/// Maximum number of pairs of user and password hash of a service. A hash has about 100 bytes, and
/// all services share a message of 1 MiB.
pub const HASHES_MAX: usize = 256;

/// Maximum number of entries in each list of [`crate::FieldEdits`].
pub const EDITS_MAX: usize = 32;

/// Maximum number of target ports of a service.
pub const PORTS_MAX: usize = 16;

/// Maximum length of a field name, in bytes.
pub const FIELD_NAME_MAX: usize = 255;

/// Why options are refused. No message contains a value, because values may be secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpOptionError {
    /// Too many pairs of `basic_auth`.
    #[error("more than {CREDENTIALS_MAX} pairs of basic_auth")]
    Credentials,
    /// A pair that has no colon or no user, is too long, or has a control character.
    #[error("basic_auth is `user:password`, at most {TEXT_MAX} bytes without control characters")]
    Credential,
    /// Too many pairs with hashes.
    #[error("more than {HASHES_MAX} pairs of basic_auth with hashes")]
    Hashes,
    /// A pair whose second part is not a hash, or is a hash whose check costs too much.
    #[error(transparent)]
    Hash(#[from] HashError),
    /// A user is in two pairs with hashes.
    #[error("a user has two hashes")]
    Twice,
    /// Too many entries in a list of changes.
    #[error("more than {EDITS_MAX} fields in a list of changes")]
    Edits,
    /// Too many ports of targets.
    #[error("more than {PORTS_MAX} ports of targets")]
    Ports,
    /// A name that is not an HTTP token.
    #[error("the name of a field has letters, digits and hyphens, at most {FIELD_NAME_MAX} bytes")]
    FieldName,
    /// A field of the connection or of the message framing.
    #[error("the field belongs to the connection or to the framing of messages")]
    FixedField,
    /// A value that HTTP does not permit.
    #[error(
        "the value of a field has at most {TEXT_MAX} printable ASCII characters and no blank at either end"
    )]
    FieldValue,
    /// A host that no request can name.
    #[error("a host is a name or an address with an optional port")]
    Host,
    /// A path that no request can have.
    #[error("a path begins with a slash and has no query, no empty segment, no `.` and no `..`")]
    Path,
    /// A redirect address whose host is not fixed.
    #[error(
        "a redirect leads to an http:// or https:// URL; {{host}} may stand in its host, and {{uri}}, \
         {{path}} and {{query}} behind it"
    )]
    Redirect,
    /// A replacement for a path that the service does not have.
    #[error("strip_prefix needs `path`")]
    StripPrefix,
    /// `pass_through` is set, under which no message is read, with options that need every message.
    #[error("pass_through excludes every other option")]
    PassThrough,
}
