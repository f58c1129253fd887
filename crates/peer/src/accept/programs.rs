//! The programs that visit by a WebRTC library. A build without WebRTC has none.

use std::sync::Mutex;

use logging::AUDIT;

use super::lock::lock;
use super::proved::Proved;
use crate::visit::VisitKey;
#[cfg(not(feature = "webrtc"))]
use none::Closer;
#[cfg(feature = "webrtc")]
use transport_webrtc::Closer;

/// The programs that visit.
#[derive(Debug, Default)]
pub struct Programs(Mutex<Vec<Program>>);

/// A program that visits.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) whose: VisitKey,
    pub(super) proved: Proved,
    pub(super) closer: Closer,
}

impl Programs {
    #[cfg(feature = "webrtc")]
    pub(super) fn note(&self, program: Program) {
        let mut all = lock(&self.0);
        all.retain(|one| !one.closer.has_ended());
        all.push(program);
    }

    /// The number of programs that visit at present.
    pub fn count(&self) -> u64 {
        let all = lock(&self.0);
        let present = all.iter().filter(|one| one.closer.is_open());
        u64::try_from(present.count()).unwrap_or(u64::MAX)
    }

    /// Ends the connections that are `gone`.
    pub(super) fn close(&self, gone: impl Fn(&VisitKey, &Proved) -> bool) {
        let all = lock(&self.0);
        all.iter().filter(|one| gone(&one.whose, &one.proved)).for_each(|one| {
            let VisitKey { visitor, service } = &one.whose;
            tracing::info!(
                target: AUDIT, client = visitor.as_str(), service = service.as_str(),
                "client {visitor} may not visit the private service {service} any more"
            );
            one.closer.close();
        });
    }
}

#[cfg(not(feature = "webrtc"))]
mod none {
    /// The closer of a connection; there is none.
    #[derive(Debug)]
    pub(in crate::accept) enum Closer {}

    impl Closer {
        pub(super) const fn is_open(&self) -> bool {
            match *self {}
        }

        pub(super) const fn close(&self) {
            match *self {}
        }
    }
}
