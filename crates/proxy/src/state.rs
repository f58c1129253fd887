//! The state of a proxy's worker in addition to the state of every worker: the entries with their
//! targets.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use config::{Balancer, ProxyConfig};

use super::shared::ProxyShared;
use node::session::Worker;
use targets::Local;

/// The state of a proxy on one worker.
#[derive(Default)]
pub(crate) struct ProxyState {
    shared: RefCell<Weak<ProxyShared>>,
    entries: RefCell<Option<Entries>>,
}

/// An entry of the configuration on one worker.
pub(super) struct Entry {
    /// Its targets.
    pub(super) local: Local,
    /// The TLS of its visitors is terminated here.
    pub(super) ends_tls: bool,
}

/// The entries of one configuration. Entries that were removed since the previous configuration are
/// kept: a reload changes first the configuration and then the listeners, and a visitor may arrive
/// in between.
struct Entries {
    of: Arc<ProxyConfig>,
    known: HashMap<String, Rc<Entry>>,
}

impl ProxyState {
    /// Starts the proxy on this worker.
    pub(super) fn start(&self, shared: &Arc<ProxyShared>) {
        *self.shared.borrow_mut() = Arc::downgrade(shared);
    }

    /// The state that all workers share. `None`: this process is not a proxy, or has ended.
    pub(super) fn shared(&self) -> Option<Arc<ProxyShared>> {
        self.shared.borrow().upgrade()
    }

    /// An entry of the configuration in force.
    pub(super) fn entry(&self, worker: &Worker, name: &str) -> Option<Rc<Entry>> {
        let shared = self.shared()?;
        let (mut entries, now) = (self.entries.borrow_mut(), shared.config.load());
        if !entries.as_ref().is_some_and(|known| Arc::ptr_eq(&known.of, &now)) {
            let entry = |proxy: &Balancer| {
                let mut terms = proxy.terms();
                // The visitor's end enforces the timeouts of the connection.
                terms.timeouts = terms.timeouts.without_limits();
                let local = Local::new(worker, &shared.records, &proxy.service, terms, true);
                let entry = Rc::new(Entry { local, ends_tls: proxy.tls.is_some() });
                (proxy.service.name.clone(), entry)
            };
            let before = entries.take();
            let before = before.into_iter().flat_map(|Entries { of, mut known }| {
                known.retain(|name, _| of.proxies.iter().any(|proxy| proxy.service.name == *name));
                known
            });
            let known = before.chain(now.proxies.iter().map(entry)).collect();
            *entries = Some(Entries { of: Arc::clone(&now), known });
        }
        entries.as_ref()?.known.get(name).cloned()
    }
}
