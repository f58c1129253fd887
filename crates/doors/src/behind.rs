//! The server behind the doors, which handles the connections that are not for a service.

use std::fmt::Debug;
use std::rc::Rc;
use std::sync::Arc;

use transport::Listener;

use node::session::Worker;

/// The server behind the doors.
pub trait Behind: Debug + Send + Sync {
    /// Accepts the carriers of clients that arrive at a `mux://` door, on this worker.
    fn accept(self: Arc<Self>, worker: &Rc<Worker>, listener: Box<dyn Listener>);

    /// Returns the handler of a visitor's WebRTC requests.
    #[cfg(feature = "webrtc")]
    fn offers(self: Arc<Self>, worker: &Rc<Worker>, asked: AskedOffer) -> Rc<dyn web::Own>;
}

/// A WebRTC request at an HTTP door.
#[cfg(feature = "webrtc")]
#[derive(Debug)]
pub struct AskedOffer {
    /// The path of offers.
    pub path: Arc<str>,
    /// The rest of the path after it, without a leading slash.
    pub place: String,
    /// The visitor.
    pub sender: web::Sender,
    /// Whether the request arrived over TLS.
    pub is_secure: bool,
}

/// The rest of a path after the path of offers; `None`: the path is not one of offers.
#[cfg(feature = "webrtc")]
pub(super) fn place<'a>(path: &'a str, offers: &str) -> Option<&'a str> {
    match path.strip_prefix(offers)? {
        "" => Some(""),
        rest => rest.strip_prefix('/'),
    }
}

#[cfg(all(test, feature = "webrtc"))]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_offers_ends_at_a_segment() {
        assert_eq!(place("/webrtc/home/ssh", "/webrtc"), Some("home/ssh"));
        assert_eq!(place("/webrtc", "/webrtc"), Some(""));
        for other in ["/webrtcs", "/", "/a/webrtc", "/WEBRTC/home"] {
            assert_eq!(place(other, "/webrtc"), None, "{other}");
        }
    }
}
