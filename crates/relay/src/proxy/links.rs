//! The links of a proxy, to which its visitors give streams and flows.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use transport::{Connector, FlowConnector, LocalFuture};

/// The two ways into a link.
#[derive(Clone, Debug)]
pub struct Connectors {
    /// Opens streams.
    pub streams: Rc<dyn Connector>,
    /// Opens flows.
    pub flows: Rc<dyn FlowConnector>,
    /// The far end reports when it has connected a target
    /// ([`Features::FLOWS`](proto::greeting::Features::FLOWS)). With one that does not, each
    /// visitor hears of a success at once, and a refusal is a reset.
    pub reports: bool,
}

/// The links of a proxy. Each connection and each new flow asks, so that a link that retires gets
/// no more of them.
pub trait Links: fmt::Debug {
    /// A link of this thread that takes streams now; `None`: there is none.
    fn now(&self) -> Option<Connectors>;

    /// As [`Links::now`], but may wait for a link, for at most `patience`.
    fn soon(&self, _patience: Duration) -> LocalFuture<'static, Option<Connectors>> {
        Box::pin(std::future::ready(self.now()))
    }

    /// As [`Links::soon`], for a connection to this target (`tcp://host:port`), to which other
    /// links may lead.
    fn to(&self, _target: &str, patience: Duration) -> LocalFuture<'static, Option<Connectors>> {
        self.soon(patience)
    }
}
