//! The response of the API to a command: a status code and JSON.

use serde::Serialize;
use serde_json::json;

/// A response (RFC 9110 section 15).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiResponse {
    pub status: u16,
    /// The field `ETag`.
    pub etag: Option<String>,
    /// The JSON. Empty: the response has no body.
    pub body: Vec<u8>,
}

impl ApiResponse {
    /// It is done, and there is nothing to say.
    pub(super) const DONE: Self = Self { status: 204, etag: None, body: Vec::new() };

    /// A status with an answer.
    pub(super) fn of(status: u16, answer: &impl Serialize) -> serde_json::Result<Self> {
        Ok(Self { status, etag: None, body: serde_json::to_vec(answer)? })
    }

    /// The response itself. `true`, `false` and `null` are no answers, but whether it was done.
    /// `missing`: the reason if it was not done.
    pub(super) fn or_missing(self, missing: Option<&str>) -> serde_json::Result<Self> {
        match (self.body.as_slice(), missing) {
            (b"false" | b"null", Some(why)) => Self::not_found(why),
            (b"true" | b"null", _) => Ok(Self::DONE),
            _ => Ok(self),
        }
    }

    /// There is no such thing. The reason has the form of all errors of the API.
    pub(super) fn not_found(why: &str) -> serde_json::Result<Self> {
        Self::of(404, &json!({ "error": why }))
    }
}
