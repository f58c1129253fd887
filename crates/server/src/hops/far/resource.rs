//! A resource of a client of other nodes: its entrances, where they lead, and when the resource is
//! looked for again.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use cluster::names::{ClientName, Generation, Key};
use cluster::node::{Located, Subject};
use node::backends::Locator;
use node::session::{HOLD, Session};
use proto::Hop;
use proto::control::ServiceSpec;
use tokio::runtime::Handle as Runtime;
use tokio::time::{Instant, sleep};

use super::entrances::{FarEnd, FarEntrance};
use super::ground::FarGround;
use super::place::{ClientWay, FarPlace, Looked};

/// The time after which a resource is looked for again whose client has no live link, while
/// visitors wait for the client.
const AGAIN: Duration = Duration::from_millis(300);

/// The first pause before a resource is looked for again that is where it was, and the longest
/// pause. The node that refused a visitor may know of a change before the change is written.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The time for which a refusal counts. A node may refuse for a reason that passes while its record
/// stays the same: it had no lease for a moment, or the client was about to register there.
const REFUSED: Duration = Duration::from_secs(1);

/// A resource of a client of other nodes.
pub(super) struct Resource {
    own: Weak<Self>,
    key: Key,
    ground: Arc<FarGround>,
    runtime: Runtime,
    /// Called when nobody has the resource any more.
    forget: Box<dyn Fn() + Send + Sync>,
    /// A session without links: the entrances lead there while the client is not found.
    nowhere: Arc<Session>,
    state: Mutex<ResourceState>,
    /// Held while entrances are opened and closed.
    changing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct ResourceState {
    place: Option<FarPlace>,
    entrances: Vec<FarEntrance>,
    /// What was found last is refused: the resource leads nowhere until something else is found.
    is_refused: bool,
    /// The sessions whose nodes have refused what was found last.
    refused_by: Vec<u64>,
    /// A task looks for the resource.
    is_sought: bool,
    /// When the resource was looked for last.
    looked: Option<Instant>,
    /// When a visitor waited last.
    awaited: Option<Instant>,
    /// Since when the resource is looked for in vain. `None`: it led to a live link when it was
    /// looked for last.
    vain: Option<Instant>,
    is_closed: bool,
}

impl ResourceState {
    /// The sessions to a place that answer, and whose nodes have not refused what was found last.
    fn left(&self, place: &FarPlace) -> Vec<Arc<Session>> {
        let is_left = |one: &&Arc<Session>| one.answers() && !self.refused_by.contains(&one.id);
        place.sessions().iter().filter(is_left).cloned().collect()
    }
}

/// The locator of the entrances of a resource.
#[derive(Debug)]
struct OfResource(Weak<Resource>);

impl Locator for OfResource {
    fn moved(&self, hop: &Hop, session: u64) {
        if let Some(resource) = self.0.upgrade() {
            resource.moved(hop, session);
        }
    }

    fn awaited(&self) {
        if let Some(resource) = self.0.upgrade() {
            resource.awaited();
        }
    }

    fn is_away(&self) -> bool {
        self.0.upgrade().is_none_or(|resource| resource.is_away())
    }
}

impl Resource {
    /// A resource that is looked for on this runtime. `forget` has to close it.
    pub(super) fn new(
        key: Key,
        ground: &Arc<FarGround>,
        runtime: &Runtime,
        forget: Box<dyn Fn() + Send + Sync>,
    ) -> Arc<Self> {
        let nowhere = Session::new("", ground.registry.handles().len());
        let (ground, runtime) = (Arc::clone(ground), runtime.clone());
        let (state, changing) = Default::default();
        Arc::new_cyclic(|own| Self {
            own: Weak::clone(own),
            key,
            ground,
            runtime,
            forget,
            nowhere,
            state,
            changing,
        })
    }

    fn state(&self) -> MutexGuard<'_, ResourceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the claim to which the resource leads. `None`: it leads nowhere.
    pub(super) fn claim(&self) -> Option<Generation> {
        let state = self.state();
        state.place.as_ref().filter(|_| !state.is_refused).map(|place| place.claim)
    }

    /// Whether all services of the resource have entrances.
    pub(super) fn is_open(&self) -> bool {
        let state = self.state();
        let services = state.place.as_ref().map_or(0, |place| place.services.len());
        state.entrances.len() >= services
    }

    /// The claim of a resource whose terms may turn visitors away at this node: the node of the
    /// client does not hear of such visitors, and so cannot say that the terms have changed.
    fn guarded(&self) -> Option<Generation> {
        let state = self.state();
        let place = state.place.as_ref().filter(|_| !state.is_refused && !state.is_closed)?;
        place.services.iter().any(turns_away).then_some(place.claim)
    }

    /// Whether the terms of the resource have to be reviewed from time to time.
    pub(super) fn is_guarded(&self) -> bool {
        self.guarded().is_some()
    }

    /// Looks whether the resource has another claim by now, and so other terms.
    pub(super) async fn review(self: &Arc<Self>) {
        let Some(claim) = self.guarded() else { return };
        let subject = Subject::Resource(self.key.clone());
        // The node keeps what it has found.
        self.ground.places.refused(subject.clone(), claim);
        let looked = match self.ground.places.find(subject).await {
            Located::Held { generation, .. } if generation == claim => return,
            Located::Held { generation, record, .. } => {
                self.ground.read(&self.key, generation, &record).await
            }
            Located::Nowhere | Located::Here(_) | Located::There { .. } => Looked::Gone,
            Located::Away => Looked::Away,
        };
        match looked {
            Looked::At(place) => drop(self.lead(place).await),
            Looked::Gone => (self.forget)(),
            // The former terms stay in force, as those of each service while etcd does not answer.
            Looked::Away => {}
        }
    }

    /// The node of this session has refused a visitor that this hop led there.
    fn moved(self: &Arc<Self>, hop: &Hop, session: u64) {
        let mut state = self.state();
        let is_current = state.place.as_ref().is_some_and(|place| place.is_of(hop));
        if !is_current || state.is_refused || state.refused_by.contains(&session) {
            // The entrances lead elsewhere already.
            return;
        }
        tracing::debug!(client = %hop.client, service = %hop.service, "the client has moved");
        state.refused_by.push(session);
        // Of several homes the others may serve what one of them does not.
        let mut left = state.place.as_ref().map(|place| state.left(place)).unwrap_or_default();
        if left.is_empty() {
            left.push(Arc::clone(&self.nowhere));
            state.is_refused = true;
        }
        let entrances: Vec<_> = state.entrances.iter().map(FarEntrance::entrance).collect();
        state.awaited = Some(Instant::now());
        drop(state);
        for entrance in entrances {
            entrance.lead_to(&left);
        }
        let own = Weak::clone(&self.own);
        self.runtime.spawn(async move {
            sleep(REFUSED).await;
            if let Some(own) = own.upgrade() {
                own.try_again(session).await;
            }
        });
        self.seek();
    }

    /// The refusal of the node of this session counts no more, if nothing else was found meanwhile.
    async fn try_again(&self, session: u64) {
        let _turn = self.changing.lock().await;
        let mut state = self.state();
        let count = state.refused_by.len();
        state.refused_by.retain(|by| *by != session);
        if state.refused_by.len() == count {
            return;
        }
        let left = state.place.as_ref().map(|place| state.left(place)).unwrap_or_default();
        if !left.is_empty() {
            self.lead_to(state, &left);
        }
    }

    /// Leads the entrances to nodes of the place that was found last.
    fn lead_to(&self, mut state: MutexGuard<'_, ResourceState>, left: &[Arc<Session>]) {
        state.is_refused = false;
        let entrances: Vec<_> = state.entrances.iter().map(FarEntrance::entrance).collect();
        drop(state);
        entrances.iter().for_each(|entrance| entrance.lead_to(left));
        self.nowhere.revived.notify_waiters();
    }

    /// A visitor waits for a live link.
    fn awaited(self: &Arc<Self>) {
        let now = Instant::now();
        let mut state = self.state();
        state.awaited = Some(now);
        let is_due = state.looked.is_none_or(|looked| looked + AGAIN <= now);
        drop(state);
        if is_due {
            self.seek();
        }
    }

    /// Whether the resource was looked for in vain for as long as a visitor waits. It is looked for
    /// again.
    fn is_away(self: &Arc<Self>) -> bool {
        self.awaited();
        self.state().vain.is_some_and(|since| since.elapsed() >= HOLD)
    }

    /// Looks for the resource, unless a task does so already.
    fn seek(self: &Arc<Self>) {
        let mut state = self.state();
        if state.is_closed || std::mem::replace(&mut state.is_sought, true) {
            return;
        }
        drop(state);
        let own = Arc::clone(self);
        self.runtime.spawn(async move { own.settle().await });
    }

    /// Looks for the resource until it leads to a live link, or no visitor waits any more.
    async fn settle(self: Arc<Self>) {
        let mut pause = PAUSE;
        loop {
            self.doubt();
            let looked = self.ground.look_up(&self.key).await;
            self.state().looked = Some(Instant::now());
            let is_settled = match looked {
                Looked::At(place) => self.lead(place).await,
                // Held ports are followed, so a port closes when the table of ports says so.
                Looked::Gone if matches!(self.key, Key::Port(..)) => false,
                Looked::Gone => {
                    self.state().is_sought = false;
                    return (self.forget)();
                }
                Looked::Away => false,
            };
            if self.note_looked(is_settled) {
                return;
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Records that the resource was looked for, and whether it leads to a live link now. Returns
    /// whether it is not looked for again: it was found, or no visitor waits for it.
    fn note_looked(&self, is_settled: bool) -> bool {
        let mut state = self.state();
        if is_settled {
            state.vain = None;
        } else {
            state.vain.get_or_insert_with(Instant::now);
        }
        let is_awaited = !state.is_closed && state.awaited.is_some_and(|at| at.elapsed() < HOLD);
        state.is_sought = !is_settled && is_awaited;
        !state.is_sought
    }

    /// Makes the cluster look for the client and the resource anew: what it found led to a node
    /// that refused, or that has no live link.
    fn doubt(&self) {
        let state = self.state();
        let Some(place) = &state.place else { return };
        let client = ClientName::new(place.client.as_str());
        if let (ClientWay::Nodes(_, generation, _), Ok(client)) = (&place.way, client) {
            self.ground.places.refused(Subject::Client(client), *generation);
        }
        // The record of the resource changes after that of the client.
        let is_live = place.sessions().iter().any(|session| session.answers());
        if !state.refused_by.is_empty() || !is_live {
            self.ground.places.refused(Subject::Resource(self.key.clone()), place.claim);
        }
    }

    /// Leads the entrances to a place. Returns whether visitors find a live link there.
    pub(super) async fn lead(&self, place: FarPlace) -> bool {
        let _turn = self.changing.lock().await;
        // What is tried again is known to the log.
        let is_known = self.claim() == Some(place.claim);
        {
            let mut state = self.state();
            if state.is_closed {
                return true;
            }
            let is_same = state.place.as_ref().is_some_and(|known| known.is_same(&place));
            if is_same && !state.refused_by.is_empty() {
                // A node has refused what is still the latest record. Another home may serve it.
                let left = state.left(&place);
                if left.is_empty() {
                    return false;
                }
                state.place = Some(place);
                self.lead_to(state, &left);
                return true;
            }
        }
        let sessions = match place.sessions() {
            [] => vec![Arc::clone(&self.nowhere)],
            some => some.to_vec(),
        };
        let is_live = sessions.iter().any(|session| session.answers());
        let locator: Arc<dyn Locator> = Arc::new(OfResource(Weak::clone(&self.own)));
        let (at, to) = (&*self.ground, (&self.key, &locator));
        let mut kept = std::mem::take(&mut self.state().entrances);
        if matches!(self.key, Key::Port(..)) {
            // A port has one entrance at a time, so that of another service closes first.
            let stays = |one: &FarEntrance| place.services.iter().any(|spec| one.is_of(spec));
            let (stay, gone) = kept.into_iter().partition(stays);
            kept = stay;
            for gone in gone {
                gone.close(&self.ground.registry, FarEnd::Withdrawn).await;
            }
        }
        let mut entrances = Vec::with_capacity(place.services.len());
        for spec in &place.services {
            let known = kept.iter().position(|one| one.is_of(spec));
            let known = known.map(|nth| kept.swap_remove(nth));
            let entrance = match known {
                Some(known) => known.lead_to(&self.ground, (spec, &place), &sessions),
                None => match FarEntrance::open(at, to, (spec, &place), &sessions).await {
                    Ok(opened) => opened,
                    Err(error) => {
                        if !is_known {
                            complain(&place, spec, &error);
                        }
                        continue;
                    }
                },
            };
            entrances.push(entrance);
        }
        for gone in kept {
            gone.close(&self.ground.registry, FarEnd::Withdrawn).await;
        }
        let mut state = self.state();
        state.entrances = entrances;
        let former = state.place.replace(place);
        state.is_refused = false;
        state.refused_by.clear();
        drop(state);
        // Those that wait at the session without links, or at former sessions, look at the new
        // sessions.
        let former = former.as_ref().map(FarPlace::sessions).unwrap_or_default();
        for session in former.iter().chain([&self.nowhere]) {
            session.revived.notify_waiters();
        }
        is_live
    }

    /// Closes the entrances.
    pub(super) async fn close(&self, why: FarEnd) {
        let _turn = self.changing.lock().await;
        let entrances = {
            let mut state = self.state();
            state.is_closed = true;
            state.place = None;
            std::mem::take(&mut state.entrances)
        };
        for gone in entrances {
            gone.close(&self.ground.registry, why).await;
        }
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resource").field("key", &self.key).finish_non_exhaustive()
    }
}

/// Whether a service may answer visitors at the node that they reached.
fn turns_away(spec: &ServiceSpec) -> bool {
    let (http, visitors) = (&spec.terms.http, &spec.terms.visitors);
    !http.basic_auth.is_empty() || http.redirect.is_some() || !visitors.are_all()
}

/// Logs that a service of a client of another node has no entrance here.
fn complain(place: &FarPlace, spec: &ServiceSpec, error: &str) {
    let (client, service) = (&place.client, &spec.name);
    tracing::warn!(
        %client, %service,
        "service {service} of client {client}, which has its links with another node, is not \
         reachable at this node: {error}"
    );
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use cluster::names::{Class, Instance, NodeEpoch, NodeId, PortProtocol};
    use cluster::node::{OpenVerdict, PeerOpen};
    use cluster::record::{At, Holding, Home};
    use config::{ServerFlags, Sources, Text};
    use ops::Serving as _;
    use proto::Target;

    use super::super::ground::NodeSessions;
    use super::*;
    use crate::about::{self, Marks};
    use crate::hops::{ClusterPlaces, PlaceAnswer};
    use crate::{Server, directory};

    /// A cluster in which a client has its port at node b, by records that stay the same.
    #[derive(Debug)]
    struct Records;

    impl ClusterPlaces for Records {
        fn find(&self, subject: Subject) -> PlaceAnswer<'_, Located> {
            let (node, epoch) = (NodeId::new("b").unwrap(), NodeEpoch(2));
            let (instance, age) = (Instance(11), Duration::ZERO);
            let located = match subject {
                Subject::Client(_) => {
                    let (homes, former) = (vec![Home { node, epoch, links: 1 }], Vec::new());
                    let record = At { instance, homes, since: Generation(0), former };
                    Located::There { generation: Generation(5), record, age }
                }
                Subject::Resource(_) => {
                    let client = ClientName::new("home").unwrap();
                    let (about, also) = (about::encode(&[], &Marks::default()), Vec::new());
                    let record = Holding { client, instance, node, epoch, about, also };
                    Located::Held { generation: Generation(6), record, age }
                }
            };
            Box::pin(ready(located))
        }

        fn refused(&self, _: Subject, _: Generation) {}

        fn judge(&self, _: PeerOpen) -> PlaceAnswer<'_, OpenVerdict> {
            Box::pin(ready(OpenVerdict::Gone))
        }

        fn has_claim(&self, _: &str, _: u64) -> bool {
            false
        }

        fn claimed(&self, _: &str, _: u64) -> Option<(directory::Key, directory::Generation)> {
            None
        }

        fn epoch(&self) -> Option<NodeEpoch> {
            Some(NodeEpoch(1))
        }

        fn others(&self) -> Vec<NodeId> {
            vec![NodeId::new("b").unwrap()]
        }

        fn awaits(&self, _: &str, _: u64) -> bool {
            false
        }

        fn has_handed_over(&self) -> bool {
            false
        }

        fn edition(&self) -> u64 {
            1
        }
    }

    /// The links to node b.
    #[derive(Debug)]
    struct Links(Arc<Session>);

    impl NodeSessions for Links {
        fn session(&self, _: &NodeId) -> Option<Arc<Session>> {
            Some(Arc::clone(&self.0))
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_home_that_has_refused_a_visitor_serves_again_by_the_same_record() {
        let text = "listen: tcp://127.0.0.1:0\nworkers: 1\nclients: [{ name: home, token: \
                    q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi }]\n";
        let text = Text { name: "server.yaml", text };
        let (env, read) = (|_: &str| None, |_: &std::path::Path| Err("no files".to_owned()));
        let sources = Sources { env: &env, read: &read };
        let config = config::load_server(Some(text), &ServerFlags::default(), &sources).unwrap();
        let server = Server::start(config.config, None).await.unwrap();
        let session = Session::new("b", 1);
        session.set_live(0, true);
        let ground = Arc::new(FarGround {
            node: NodeId::new("a").unwrap(),
            registry: Arc::clone(server.registry()),
            places: Arc::new(Records),
            nodes: Arc::new(Links(Arc::clone(&session))),
        });
        let key = Key::Port(PortProtocol::Tcp, Class::Public, 7);
        let resource = Resource::new(key.clone(), &ground, &Runtime::current(), Box::new(|| {}));
        let Looked::At(place) = ground.look_up(&key).await else { panic!("it is held") };
        let Target::Hop(hop) = place.target(&"web".parse().unwrap()) else { panic!("no hop") };
        assert!(resource.lead(place.clone()).await);
        assert_eq!(resource.claim(), Some(Generation(6)));

        // The refusal counts for a time, which a busy machine may need for these lines.
        let begun = Instant::now();
        resource.moved(&hop, session.id);
        let (claim, leads) = (resource.claim(), resource.lead(place.clone()).await);
        if begun.elapsed() < REFUSED {
            assert_eq!((claim, leads), (None, false), "the node has just refused this record");
        }
        let leads_again = async {
            while resource.claim().is_none() {
                sleep(PAUSE).await;
            }
        };
        tokio::time::timeout(REFUSED * 30, leads_again).await.unwrap();
        // A second refusal counts as well.
        let begun = Instant::now();
        resource.moved(&hop, session.id);
        let claim = resource.claim();
        if begun.elapsed() < REFUSED {
            assert_eq!(claim, None);
        }
        resource.close(FarEnd::Gone).await;
        server.close().await;
    }
}
