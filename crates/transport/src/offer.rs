//! Requests of HTTP about connections of WebRTC, which arrive where carriers do (RFC 9725).

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use crate::Lane;

/// A request about a connection of WebRTC in the place of a carrier. It waits for an answer.
#[derive(Debug)]
pub struct OfferRequest {
    /// What is asked for.
    pub ask: Ask,
    /// The path of the request behind the path of offers, without a slash at its begin.
    pub place: String,
    /// The path of offers.
    pub path: String,
    /// The credential of the request (`Authorization: Bearer`).
    pub bearer: Option<String>,
    /// The proof for another client than the server (`Tunnel-Visit`).
    pub visit: Option<String>,
    /// The address of the client.
    pub client: SocketAddr,
    /// The connection, for the answer. No other thread uses it; errors have to be shareable.
    lane: Mutex<Box<dyn Lane>>,
}

/// What a request about a connection asks for.
#[derive(Clone, PartialEq, Eq)]
pub enum Ask {
    /// `POST`: an answer to this session description.
    Connect(String),
    /// `DELETE`: the end of a connection.
    End,
}

impl OfferRequest {
    /// The request `ask` that has arrived over `lane`, for `path` and the `place` behind it.
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
    /// A session description has the password of the checks.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect(_) => "Connect(..)",
            Self::End => "End",
        })
    }
}
