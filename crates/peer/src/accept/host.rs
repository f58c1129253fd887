//! The state of all visitors of this client: their links, their greetings, and wrong tokens.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use logging::RepeatLimit;
use net::brake::Failures;
use node::session::Handle;

use super::places::Places;
use super::programs::Programs;
use crate::turns::{Bounds, Turn, Turns};
use crate::visit::VisitKey;

/// Limits of the visitors before the end of their greeting. Each costs a TLS handshake and 160 KiB
/// for at most 30 s. A visitor has one link to a service, and dials a second time if the first
/// carrier is silent.
const GREETING: Bounds = Bounds { all: 256, of_visitor: 64, of_service: 8 };

/// The maximum number of pairs of visitor and service whose wrong tokens are remembered. The server
/// names the visitors.
const GUESSERS: usize = 1024;

/// Doublings of the pause after a wrong token: up to 3.2 s.
const DOUBLINGS: u32 = 5;

/// The poll interval for idle links of a process that is stopping.
const IDLE_LOOK: Duration = Duration::from_millis(100);

/// The links of visitors with this client, over all workers.
#[derive(Debug)]
pub struct PeerHost {
    pub(super) places: Places,
    /// The visitors before the end of their greeting.
    pub(super) greeting: Arc<Turns>,
    pub(super) brake: Mutex<Failures<VisitKey>>,
    pub(super) complaints: Mutex<RepeatLimit<VisitKey>>,
    /// The programs that visit without a tunnel.
    pub programs: Programs,
}

impl Default for PeerHost {
    fn default() -> Self {
        let (places, greeting) = (Places::default(), Turns::new(GREETING));
        let brake = Mutex::new(Failures::new(GUESSERS, DOUBLINGS));
        let (complaints, programs) = (Mutex::new(RepeatLimit::new()), Programs::default());
        Self { places, greeting, brake, complaints, programs }
    }
}

impl PeerHost {
    /// Reserves a slot among the visitors before the end of their greeting. `None`: there are too
    /// many.
    pub(crate) fn greet(&self, whose: &VisitKey) -> Option<Turn> {
        self.greeting.take(whose)
    }

    /// Ends each link once it is idle, because this process is stopping. A link that retires would
    /// wait for a successor. Never returns.
    pub async fn leave(&self, handles: &[Handle]) {
        loop {
            self.places.close_idle(handles).await;
            tokio::time::sleep(IDLE_LOOK).await;
        }
    }

    /// Forgets a link that has ended.
    pub(super) fn forget(&self, link: proto::LinkId) {
        self.places.forget(link);
    }
}
