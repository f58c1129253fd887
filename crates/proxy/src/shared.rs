//! The data that all parts of a proxy share.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use config::{ProxyConfig, Service};
use node::entrance::Openings;
use node::session::Session;
use targets::{Checked, Pools, Records};
use tls::VisitorTls;

use crate::entries::ListenerEntry;

/// The data that all parts of a proxy share.
pub(crate) struct ProxyShared {
    /// The configuration in force.
    pub(crate) config: ArcSwap<ProxyConfig>,
    /// The records about the targets.
    pub(crate) records: Records,
    /// The certificates of the entries that terminate TLS, by name.
    pub(crate) certificates: ArcSwap<HashMap<String, VisitorTls>>,
    /// The listeners.
    pub(crate) entries: Openings<ListenerEntry>,
    /// The session of all visitors.
    pub(crate) session: Arc<Session>,
    /// This process is stopping.
    pub(crate) leaving: AtomicBool,
}

impl Checked for ProxyShared {
    fn services(&self) -> Option<Vec<Service>> {
        let config = self.config.load();
        let services = config.proxies.iter().map(|proxy| &proxy.service);
        let checked = services.filter(|service| service.health.is_some()).cloned();
        (!self.leaving.load(Ordering::Relaxed)).then(|| checked.collect())
    }

    fn pools(&self) -> &Pools {
        &self.records.pools
    }
}
