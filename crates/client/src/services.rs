//! The services of a client on one worker, which are rebuilt after a reload.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use config::ClientConfig;

use super::shared::ClientShared;
use node::session::Worker;
use targets::Local;

/// The services of the configuration in force, once a visitor has requested a service.
#[derive(Default)]
struct ServicesInForce(RefCell<Option<Services>>);

/// The services of one configuration.
struct Services {
    of: Arc<ClientConfig>,
    known: HashMap<String, Rc<Local>>,
}

impl Services {
    fn new(worker: &Worker, shared: &ClientShared, of: Arc<ClientConfig>) -> Self {
        let is_direct = of.paths().all(|path| path.proxy.is_none());
        let local = |service: &config::Service| {
            let terms = of.terms_of(service);
            let local = Local::new(worker, &shared.records, service, terms, is_direct);
            let local = local.observed_by(shared.observed.of(service));
            (service.name.clone(), Rc::new(local))
        };
        Self { known: of.services.iter().map(local).collect(), of }
    }
}

/// A service of the configuration in force, on this worker.
pub(crate) fn service(worker: &Worker, shared: &ClientShared, name: &str) -> Option<Rc<Local>> {
    let known = worker.state.of::<ServicesInForce>();
    let (mut services, now) = (known.0.borrow_mut(), shared.config.load());
    if !services.as_ref().is_some_and(|known| Arc::ptr_eq(&known.of, &now)) {
        *services = Some(Services::new(worker, shared, Arc::clone(&now)));
    }
    services.as_ref()?.known.get(name).cloned()
}
