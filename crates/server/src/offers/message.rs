//! The requests of programs about WebRTC connections, and the responses.

use std::net::SocketAddr;

use transport::Ask;

/// Why a request is refused: an HTTP status and a line for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: &'static str,
    pub(super) text: String,
}

impl Refusal {
    pub(super) fn new(status: &'static str, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }
}

/// A request, independent of where it arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) ask: &'a Ask,
    /// The path of offers, and the rest of the path behind it.
    pub(super) path: &'a str,
    pub(super) place: &'a str,
    pub(super) bearer: Option<&'a str>,
    pub(super) visit: Option<&'a str>,
    pub(super) client: SocketAddr,
}

/// An HTTP response.
#[derive(Debug)]
pub(super) struct Reply {
    /// The status code and the reason phrase.
    pub(super) status: &'static str,
    pub(super) fields: Vec<(&'static str, String)>,
    pub(super) body: String,
}

/// The answer to an offer of a program.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) description: String,
    pub(super) signature: [u8; 32],
    /// For `DELETE`.
    pub(super) id: String,
}
