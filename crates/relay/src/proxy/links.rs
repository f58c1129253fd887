//! The links of a proxy, which carry the streams and flows of its visitors.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use transport::{Connector, FlowConnector, LocalFuture};

/// The stream and flow connectors of a link.
#[derive(Clone, Debug)]
pub struct Connectors {
    /// Opens streams.
    pub streams: Rc<dyn Connector>,
    /// Opens flows.
    pub flows: Rc<dyn FlowConnector>,
    /// Whether the far end reports when it has connected a target
    /// ([`Features::FLOWS`](proto::greeting::Features::FLOWS)). Otherwise each visitor gets a
    /// success at once, and a refusal is a reset.
    pub reports: bool,
}

/// The links of a proxy. Each connection and each new flow queries them, so that a retiring link
/// gets no more streams.
pub trait Links: fmt::Debug {
    /// Returns a link of this thread that takes streams now; `None`: there is none.
    fn now(&self) -> Option<Connectors>;

    /// As [`Links::now`], but may wait for a link, for at most `patience`.
    fn soon(&self, _patience: Duration) -> LocalFuture<'static, Option<Connectors>> {
        Box::pin(std::future::ready(self.now()))
    }

    /// As [`Links::soon`], for a connection to this target (`tcp://host:port`), which may require
    /// another link.
    fn to(&self, _target: &str, patience: Duration) -> LocalFuture<'static, Option<Connectors>> {
        self.soon(patience)
    }
}
