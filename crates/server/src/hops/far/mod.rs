//! The node that a visitor reached: entrances for services of clients that have their links with
//! other nodes.
//!
//! ```text
//!   held ports (watched) ──> ports.rs ─┐
//!                                      ├─> resource.rs: entrances of one port or name
//!   a visitor names a host ─> names.rs ┘     ├─ lead to the node links of the client's homes
//!                                            └─ Moved, or no live link: look again
//! ```
//!
//! An entrance is an entrance like any other: its backends are the sessions of links to nodes, and
//! its target is a hop. A port is open at all nodes, so ports are followed. Names are looked for
//! when a visitor comes. What was found may be old: the node to which a hop leads refuses it then
//! ([`proto::ResetCode::Moved`]), and the resource is looked for again.
//!
//! | file | content |
//! |---|---|
//! | `resource.rs` | where a resource leads, and when it is looked for again |
//! | `place.rs` | what the cluster says about a resource |
//! | `ground.rs` | what the files above need of the node around them |
//! | `terms.rs` | terms of services that the cluster does not know, from the node of the client |
//! | `entrances.rs` | opening and closing the entrances of a resource |
//! | `kept.rs` | which name makes room for another name |
//! | `ports.rs` | the ports that clients of other nodes hold |
//! | `names.rs` | the names of clients of other nodes |
//! | `asking.rs` | questions to other nodes |
//! | `clients.rs` | the clients of other nodes that have private services |
//! | `strays.rs` | the carriers of clients whose links other nodes have |

mod asking;
mod clients;
mod entrances;
mod ground;
mod kept;
mod names;
mod place;
mod ports;
mod resource;
mod strays;
mod terms;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use cluster::names::{Key, NodeId};
use tokio::runtime::Handle as Runtime;
use tokio::sync::watch;

use super::ClusterPlaces;
use crate::registry::Registry;
use entrances::FarEnd;
use ground::{FarGround, NodeSessions};
use kept::KeptNames;
use resource::Resource;

/// The most names of clients of other nodes that are kept. A name has about 2 KB.
const NAMES_MAX: usize = 50_000;

/// The services of clients of other nodes that have entrances here.
#[derive(Debug)]
pub(super) struct FarServices {
    own: Weak<Self>,
    ground: Arc<FarGround>,
    /// The runtime on which resources are looked for.
    runtime: Runtime,
    /// The most ports.
    ports_max: usize,
    resources: Mutex<HashMap<Key, Arc<Resource>>>,
    /// The names among the resources.
    kept: Mutex<KeptNames>,
    /// The ports of the table were opened once.
    opened: watch::Sender<bool>,
}

impl FarServices {
    /// Must be called on the runtime on which resources are to be looked for.
    pub(in crate::hops) fn new(
        node: NodeId,
        registry: &Arc<Registry>,
        places: Arc<dyn ClusterPlaces>,
        nodes: Arc<dyn NodeSessions>,
        ports_max: usize,
    ) -> Arc<Self> {
        let registry = Arc::clone(registry);
        let ground = Arc::new(FarGround { node, registry, places, nodes });
        let (runtime, resources, opened) =
            (Runtime::current(), Mutex::default(), watch::Sender::new(false));
        Arc::new_cyclic(|own| {
            let own = Weak::clone(own);
            let kept = Mutex::new(KeptNames::new(NAMES_MAX));
            Self { own, ground, runtime, ports_max, resources, kept, opened }
        })
    }

    fn resources(&self) -> MutexGuard<'_, HashMap<Key, Arc<Resource>>> {
        self.resources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Taken while the resources are locked, or without them.
    fn kept(&self) -> MutexGuard<'_, KeptNames> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The resource of this key, which becomes known. Another name may make room for it.
    fn resource(&self, key: &Key) -> Arc<Resource> {
        let mut resources = self.resources();
        if let Some(known) = resources.get(key) {
            return Arc::clone(known);
        }
        if matches!(key, Key::Host(..)) {
            let gone = self.kept().admit(key, |key| resources.contains_key(key));
            if let Some(gone) = gone.and_then(|gone| resources.remove(&gone)) {
                self.runtime.spawn(async move { gone.close(FarEnd::Gone).await });
            }
        }
        let (own, gone) = (Weak::clone(&self.own), key.clone());
        let forget = move || {
            let Some(own) = own.upgrade() else { return };
            let gone = gone.clone();
            own.runtime.clone().spawn(async move { own.close(&gone, FarEnd::Gone).await });
        };
        let made = Resource::new(key.clone(), &self.ground, &self.runtime, Box::new(forget));
        resources.insert(key.clone(), Arc::clone(&made));
        made
    }

    /// Forgets a resource, whose entrances close.
    async fn close(&self, key: &Key, why: FarEnd) {
        let known = self.resources().remove(key);
        if let Some(known) = known {
            if matches!(key, Key::Host(..)) {
                self.kept().forget();
            }
            known.close(why).await;
        }
    }

    /// Closes all entrances, at the end of the server.
    pub(in crate::hops) async fn close_all(&self) {
        let all: Vec<_> = self.resources().drain().map(|(_, resource)| resource).collect();
        for resource in all {
            resource.close(FarEnd::Gone).await;
        }
    }
}
