//! `tunnel share`: a service that exists as long as the command that requested it, and the actions
//! of its visitors.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::lists::ServiceOptions;

/// The number of visits queued for a reader. A slow reader loses further visits.
const WAITING: usize = 256;

/// The longest kept text of a request's method or target, in bytes.
const TEXT_MAX: usize = 512;

/// The order to share a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareOrder {
    /// The public address and the target, in the form of `--publish`.
    pub publish: String,
    /// The options of the service.
    #[serde(default)]
    pub options: ServiceOptions,
    /// The only file that is served, if the target is its directory. Other directories are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<String>,
    /// Whether the requests of the visitors are not recorded for inspection.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_requests: bool,
}

/// A shared target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// The name of the service.
    pub name: String,
    /// The public addresses.
    pub addresses: Vec<String>,
}

/// An action of a visitor of a shared target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Visit {
    /// An HTTP request, with the final response or the end of the connection.
    Request {
        /// The address of the visitor, if the server reports it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        visitor: Option<String>,
        method: String,
        /// The target of the request, such as `/index.html?page=2`, truncated to 512 bytes.
        path: String,
        /// The status of the response; absent: the connection ended before a response.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<u16>,
        /// Size of the response body, in bytes.
        bytes: u64,
        /// Time from the request header to the end of the response.
        millis: u64,
        /// Whether the connection ended before the response was complete.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        cut: bool,
    },
    /// No target was reachable for a visitor, who got an error.
    Failed {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        visitor: Option<String>,
        /// The target and the reason, in words.
        reason: String,
    },
    /// A connection whose bytes are not parsed, from its start to its end.
    Connection {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        visitor: Option<String>,
        /// Bytes from the visitor to the target.
        bytes_in: u64,
        /// Bytes from the target to the visitor.
        bytes_out: u64,
        millis: u64,
    },
}

/// The warning about visitors who send a password over HTTP without TLS to one of these addresses.
#[must_use]
pub fn open_password(addresses: &[String]) -> Option<String> {
    let open = addresses.iter().find(|address| address.starts_with("http://"))?;
    Some(format!(
        "{open} is not encrypted: the network reads the passwords of visitors (hint: publish \
         https://, for which the server has `tls_routes` with a certificate of the name or `acme`; \
         `public_url` of the server says where a proxy in front of it ends TLS)"
    ))
}

/// A text of a peer, truncated to 512 bytes. Invalid UTF-8 becomes U+FFFD.
#[must_use]
pub fn bounded(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.get(..TEXT_MAX).unwrap_or(bytes)).into_owned()
}

/// Reports the visits of one shared target. Clones report to the same reader.
#[derive(Clone, Debug)]
pub struct Visits {
    sender: mpsc::Sender<Visit>,
    lost: Arc<AtomicU64>,
}

/// The reader of [`Visits`].
#[derive(Debug)]
pub struct VisitReader {
    visits: mpsc::Receiver<Visit>,
    lost: Arc<AtomicU64>,
}

/// An item that a reader of visits receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    Visit(Visit),
    /// This number of visits was lost, because the reader was slow.
    Lost(u64),
}

/// A new pair.
#[must_use]
pub fn visits() -> (Visits, VisitReader) {
    let (sender, visits) = mpsc::channel(WAITING);
    let lost = Arc::<AtomicU64>::default();
    (Visits { sender, lost: Arc::clone(&lost) }, VisitReader { visits, lost })
}

impl Visits {
    /// Reports a visit. Never waits: a slow reader loses visits, and receives their number.
    pub fn tell(&self, visit: Visit) {
        if self.sender.try_send(visit).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether the reader has gone.
    #[must_use]
    pub fn are_over(&self) -> bool {
        self.sender.is_closed()
    }
}

impl VisitReader {
    /// The next visit; `None`: all senders have gone. Cancel-safe.
    pub async fn next(&mut self) -> Option<Told> {
        match self.lost.swap(0, Ordering::Relaxed) {
            0 => self.visits.recv().await.map(Told::Visit),
            lost => Some(Told::Lost(lost)),
        }
    }
}

/// Ends the sharing of a target when dropped.
pub struct Sharing(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Sharing {
    /// `end` is called once, on drop, and must not wait.
    #[must_use]
    pub fn new(end: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(end)))
    }
}

impl Drop for Sharing {
    fn drop(&mut self) {
        if let Some(end) = self.0.take() {
            end();
        }
    }
}

impl fmt::Debug for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sharing")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(millis: u64) -> Visit {
        Visit::Connection { visitor: None, bytes_in: 1, bytes_out: 2, millis }
    }

    #[tokio::test]
    async fn a_slow_reader_loses_visits_and_learns_how_many() {
        let (visits, mut reader) = visits();
        let all = WAITING as u64 + 3;
        (0..all).for_each(|n| visits.tell(visit(n)));
        assert_eq!(reader.next().await, Some(Told::Lost(3)));
        for n in 0..WAITING as u64 {
            assert_eq!(reader.next().await, Some(Told::Visit(visit(n))));
        }
        assert!(!visits.are_over());
        drop(reader);
        assert!(visits.are_over());
    }

    #[test]
    fn a_password_over_http_is_warned_of() {
        let warned = |at: &str| open_password(&["tcp://192.0.2.1:1".to_owned(), at.to_owned()]);
        assert_eq!(warned("https://demo.example.com"), None);
        assert!(warned("http://a.example").unwrap().starts_with("http://a.example is not "));
    }

    #[test]
    fn texts_of_peers_are_bounded() {
        assert_eq!(bounded(b"/a\xff"), "/a\u{fffd}");
        assert_eq!(bounded(&[b'x'; 2000]).len(), TEXT_MAX);
    }
}
