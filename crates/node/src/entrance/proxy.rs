//! Entrances that are a proxy: their visitors name the target, by SOCKS5 or as to an HTTP proxy.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ::link::Link;
use proto::greeting::Features;
use relay::{Connectors, Links, Proxy};
use tokio::time::{Instant, sleep, sleep_until};
use transport::LocalFuture;

use super::{Entrance, Entrances};
use crate::aim::ProxyTerms;
use crate::auth_failures;
use crate::backends::Backend;
use crate::session::{Session, Worker};

type FutureConnectors = LocalFuture<'static, Option<Connectors>>;

/// Finds the links to the private service that a target names, within this time. `None`: the target
/// is not a private service.
type FindLinks = dyn Fn(&Rc<Worker>, &str, Duration) -> Option<FutureConnectors>;

/// The private services that visitors of a proxy may name. Empty if no client runs.
#[derive(Default)]
pub struct NamedServices(RefCell<Option<Rc<FindLinks>>>);

impl fmt::Debug for NamedServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedServices").finish_non_exhaustive()
    }
}

impl NamedServices {
    /// Sets the lookup function when the client has started on this worker.
    pub fn start(
        &self,
        visit: impl Fn(&Rc<Worker>, &str, Duration) -> Option<FutureConnectors> + 'static,
    ) {
        *self.0.borrow_mut() = Some(Rc::new(visit));
    }

    fn visit(
        &self,
        worker: &Rc<Worker>,
        target: &str,
        patience: Duration,
    ) -> Option<FutureConnectors> {
        let visit = self.0.borrow().clone()?;
        visit(worker, target, patience)
    }
}

/// The links of a proxy on one worker. Visitors that were admitted under other terms than those in
/// force get no link.
#[derive(Clone)]
struct ProxyLinks {
    worker: Rc<Worker>,
    entrance: Arc<Entrance>,
    terms: Arc<ProxyTerms>,
}

impl fmt::Debug for ProxyLinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProxyLinks({})", self.entrance.name())
    }
}

impl ProxyLinks {
    /// The backend, while these terms are in force. Another thread may replace the backend at any
    /// time, so the link of a stream must belong to the backend whose terms were compared.
    fn in_force(&self) -> Option<Arc<Backend>> {
        let is_open =
            self.worker.state.of::<Entrances>().0.borrow().contains_key(&self.entrance.id);
        let is_live = |session: &Session| self.worker.state.live_link(session).is_some();
        let backend = self.entrance.backends.pick_live(is_live);
        let has = |terms: &Arc<ProxyTerms>| Arc::ptr_eq(terms, &self.terms) || *terms == self.terms;
        let is_in_force = is_open && backend.picked.aim.proxy.as_ref().is_some_and(has);
        is_in_force.then_some(backend)
    }
}

impl Links for ProxyLinks {
    fn now(&self) -> Option<Connectors> {
        let link = self.worker.state.live_link(&self.in_force()?.session)?;
        Some(connectors(&link))
    }

    fn to(&self, target: &str, patience: Duration) -> FutureConnectors {
        self.visit(target, patience).unwrap_or_else(|| self.soon(patience))
    }

    fn soon(&self, patience: Duration) -> FutureConnectors {
        let links = self.clone();
        Box::pin(async move {
            let deadline = Instant::now() + patience;
            loop {
                let session = Arc::clone(&links.in_force()?.session);
                let revived = session.revived.notified();
                if let Some(connectors) = links.now() {
                    return Some(connectors);
                }
                tokio::select! {
                    () = revived => {}
                    () = sleep_until(deadline) => return None,
                    // A reload may direct the forward to another session.
                    () = sleep(Duration::from_millis(200)) => {}
                }
            }
        })
    }
}

impl ProxyLinks {
    /// The links to the private service that a target names. `None`: the target is not a private
    /// service.
    fn visit(&self, target: &str, patience: Duration) -> Option<FutureConnectors> {
        self.worker.state.of::<NamedServices>().visit(&self.worker, target, patience)
    }
}

/// The connectors of a link for streams and flows.
pub fn connectors(link: &Link) -> Connectors {
    let reports = link.features().have(Features::FLOWS);
    Connectors { streams: Rc::new(link.clone()), flows: Rc::new(link.clone()), reports }
}

/// The proxy of an entrance on this worker. `None`: the entrance is not open on this worker.
pub(super) fn proxy_of(
    worker: &Rc<Worker>,
    entrance: &Arc<Entrance>,
    terms: &Arc<ProxyTerms>,
) -> Option<Rc<Proxy>> {
    let entrances = worker.state.of::<Entrances>();
    let entrances = entrances.0.borrow();
    let open = entrances.get(&entrance.id)?;
    let mut known = open.proxy.borrow_mut();
    if let Some((of, proxy)) = &*known
        && Arc::ptr_eq(of, terms)
    {
        return Some(Rc::clone(proxy));
    }
    let (of, at) = (Rc::clone(worker), Arc::clone(entrance));
    let links = ProxyLinks { worker: of, entrance: at, terms: Arc::clone(terms) };
    let priority = entrance.in_force().aim().terms.priority;
    let settings = open.settings();
    let flows = open.flows.as_ref().map(|flows| Rc::clone(&flows.stats)).unwrap_or_default();
    let links = Rc::new(links);
    let label = format!("forward {}", entrance.address);
    let users = terms.credentials().map(|users| users.braked(auth_failures::brake(), &label));
    let proxy = Proxy::new(terms.kind, users, priority, links, settings, flows);
    *known = Some((Arc::clone(terms), Rc::clone(&proxy)));
    Some(proxy)
}
