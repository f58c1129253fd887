//! HTTP requests about WebRTC connections, which arrive at the listeners of carriers (RFC 9725).

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use crate::Lane;

/// A request about a WebRTC connection instead of a carrier. It waits for an answer.
#[derive(Debug)]
pub struct OfferRequest {
    /// The requested operation.
    pub ask: Ask,
    /// The rest of the request path after the path of offers, without a leading slash.
    pub place: String,
    /// The path of offers.
    pub path: String,
    /// The credential of the request (`Authorization: Bearer`).
    pub bearer: Option<String>,
    /// The proof for another client, not for the server (`Tunnel-Visit`).
    pub visit: Option<String>,
    /// The address of the client.
    pub client: SocketAddr,
    /// The connection, for the answer. No other thread uses it; the mutex exists because errors
    /// must be `Sync`.
    lane: Mutex<Box<dyn Lane>>,
}

/// The requested operation on a connection.
#[derive(Clone, PartialEq, Eq)]
pub enum Ask {
    /// `POST`: requests an answer to this session description.
    Connect(String),
    /// `DELETE`: requests the end of a connection.
    End,
}

impl OfferRequest {
    /// Makes the request `ask` that arrived over `lane`, for `path` and the rest `place` after it.
    #[must_use]
    pub fn new(ask: Ask, path: &str, place: &str, client: SocketAddr, lane: Box<dyn Lane>) -> Self {
        let (path, place) = (path.to_owned(), place.to_owned());
        Self { ask, place, path, bearer: None, visit: None, client, lane: Mutex::new(lane) }
    }

    /// The connection, for the answer.
    #[must_use]
    pub fn into_lane(self) -> Box<dyn Lane> {
        self.lane.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Ask {
    /// Hides the session description, which contains the password of the connectivity checks.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect(_) => "Connect(..)",
            Self::End => "End",
        })
    }
}
