//! What programs ask about connections by WebRTC, and what they get.

use std::net::SocketAddr;

use transport::Ask;

/// Why a request is refused: a status of HTTP, and a line for people.
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

/// A request, wherever it has come.
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

/// An answer of HTTP.
#[derive(Debug)]
pub(super) struct Reply {
    /// Status and reason.
    pub(super) status: &'static str,
    pub(super) fields: Vec<(&'static str, String)>,
    pub(super) body: String,
}

/// What a program gets for an offer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) description: String,
    pub(super) signature: [u8; 32],
    /// For `DELETE`.
    pub(super) id: String,
}
