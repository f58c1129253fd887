//! The state that all visitors of a proxy at one listener share.

use std::rc::Rc;

use proto::Priority;

use super::{Credentials, Links, ProxyKind};
use crate::throttle::Throttle;
use crate::{FlowStats, Settings};

/// A proxy at a listener of this worker.
#[derive(Debug)]
pub struct Proxy {
    pub(super) kind: ProxyKind,
    pub(super) credentials: Option<Credentials>,
    pub(super) priority: Priority,
    pub(super) links: Rc<dyn Links>,
    pub(super) settings: Rc<Settings>,
    /// The counters of the datagrams of UDP ASSOCIATE.
    pub(super) flows: Rc<FlowStats>,
    pub(super) complaints: Throttle,
}

impl Proxy {
    /// Makes a proxy. With credentials, visitors must authenticate.
    #[must_use]
    pub fn new(
        kind: ProxyKind,
        credentials: Option<Credentials>,
        priority: Priority,
        links: Rc<dyn Links>,
        settings: Rc<Settings>,
        flows: Rc<FlowStats>,
    ) -> Rc<Self> {
        let complaints = Throttle::default();
        Rc::new(Self { kind, credentials, priority, links, settings, flows, complaints })
    }
}
