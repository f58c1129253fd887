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
    /// 200, with the answer.
    ///
    /// # Errors
    /// The answer is no JSON; so for all functions that write one.
    pub fn of(answer: &impl Serialize) -> serde_json::Result<Self> {
        Self::with(200, answer)
    }

    /// A status with an answer.
    pub(super) fn with(status: u16, answer: &impl Serialize) -> serde_json::Result<Self> {
        Ok(Self { status, etag: None, body: serde_json::to_vec(answer)? })
    }

    /// 204: it is done.
    pub(super) const fn done() -> Self {
        Self { status: 204, etag: None, body: Vec::new() }
    }

    /// 404, with the reason in the form of all errors of the API.
    pub(super) fn not_found(why: &str) -> serde_json::Result<Self> {
        Self::with(404, &json!({ "error": why }))
    }

    /// 204 if something was done, or else 404.
    pub(super) fn done_if(is_done: bool, or_else: &str) -> serde_json::Result<Self> {
        if is_done { Ok(Self::done()) } else { Self::not_found(or_else) }
    }

    /// 200 with what was found, or else 404.
    pub(super) fn found(
        answer: Option<&impl Serialize>,
        or_else: &str,
    ) -> serde_json::Result<Self> {
        answer.map_or_else(|| Self::not_found(or_else), Self::of)
    }
}
