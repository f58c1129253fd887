//! The directory of a node of a cluster: claims and look-ups go to the node. The ports that this
//! server has chosen for services are known to this server alone, as those of a server without a
//! cluster: a service that requests any port may get another port at another node.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use cluster::names::{self, ClientName, NodeId, PortProtocol};
use cluster::node::{Claimed as Given, Located, Subject as Place};
use cluster_node::{Cluster, WantedClaim};
use config::Over;
use node::names::Space;
use tokio::sync::{Notify, watch};

use super::table::{ClaimNews, ClaimTable, HeldClaim, LostClaim};
use crate::about::Marks;
use crate::directory::{
    Answer, Away, Blob, BlobName, ClaimRequest, Claimed, Class, Directory, Generation, Key, Local,
    NodeEpoch, Owner, Put, Release, Revision, Subject, Topic, Whereabouts,
};
use crate::presence::Presence;

/// How often a claim is repeated whose resource this server or an earlier process of the client has
/// under another number than was expected.
const TRIES: usize = 4;

/// The directory of a node of a cluster.
#[derive(Debug)]
pub(crate) struct SharedDirectory {
    node: NodeId,
    cluster: Cluster,
    presence: Arc<Presence>,
    table: Mutex<ClaimTable>,
    lost: Notify,
    answers: watch::Sender<Revision>,
    marks: Marks,
    /// The blobs.
    own: Local,
}

/// A claim of a batch that has no answer yet.
struct OpenClaim {
    /// The place in the batch.
    nth: usize,
    client: ClientName,
    instance: names::Instance,
    expected: Option<names::Generation>,
}

impl SharedDirectory {
    pub(super) fn new(
        node: NodeId,
        cluster: Cluster,
        presence: Arc<Presence>,
        (state, marks): (Option<&Path>, Marks),
    ) -> Self {
        let (table, lost, answers) = Default::default();
        Self { node, cluster, presence, table, lost, answers, marks, own: Local::new(state) }
    }

    fn table(&self) -> MutexGuard<'_, ClaimTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a client of this server holds a resource by a claim with this fence
    /// ([`cluster::record::fence`]).
    pub(super) fn has_claim(&self, client: &str, fence: u64) -> bool {
        self.table().has_claim(client, fence)
    }

    /// The resource that a client holds by the claim with this fence, and the number that the
    /// server knows.
    pub(super) fn claimed(&self, client: &str, fence: u64) -> Option<(Key, Generation)> {
        let (key, given) = self.table().claimed(client, fence)?;
        Some((resource(&key)?, Generation(given.0)))
    }

    /// Whether a client of this server holds the resource.
    pub(super) fn has_resource(&self, key: &names::Key) -> bool {
        self.table().held(key).is_some()
    }

    /// An event of a resource.
    pub(super) fn hear(&self, key: &names::Key, news: ClaimNews) {
        let mut table = self.table();
        table.hear(key, news);
        if table.has_lost() {
            self.lost.notify_one();
        }
    }

    /// Waits for a claim that another owner has replaced. Cancel-safe.
    pub(super) async fn next_lost(&self) -> LostClaim {
        loop {
            let lost = self.table().take_lost();
            match lost {
                Some(lost) => return lost,
                None => self.lost.notified().await,
            }
        }
    }

    /// The cluster answers again.
    pub(super) fn answers_again(&self) {
        self.answers.send_modify(|revision| revision.0 += 1);
    }

    async fn claim_all(&self, batch: Vec<ClaimRequest>) -> Vec<Claimed> {
        let mut answers = vec![Claimed::Away; batch.len()];
        let keys: Vec<_> = batch.iter().map(|request| key_of(&request.key)).collect();
        let mut flights = Flights::begin(self, &keys);
        let mut open: Vec<_> = (0..batch.len()).filter_map(|nth| self.open(nth, &batch)).collect();
        for _ in 0..TRIES {
            if open.is_empty() {
                break;
            }
            let wanted = |open: &OpenClaim| {
                let key = keys.get(open.nth)?.clone();
                let about = batch.get(open.nth)?.about.to_string();
                let OpenClaim { client, instance, expected, .. } = open;
                let (client, instance, expected) = (client.clone(), *instance, *expected);
                Some(WantedClaim { key, client, instance, about, expected })
            };
            let given = self.cluster.claim(open.iter().filter_map(wanted).collect()).await;
            let mut again = Vec::new();
            for (open, given) in open.into_iter().zip(given) {
                let (Some(request), Some(key), Some(answer)) =
                    (batch.get(open.nth), keys.get(open.nth), answers.get_mut(open.nth))
                else {
                    continue;
                };
                match given {
                    Given::Held(now) => {
                        let (owner, instance) = (request.owner.clone(), open.instance);
                        let fence = cluster::record::fence(key, instance, &request.about);
                        let held = HeldClaim { owner, instance, given: now, now, fence };
                        self.table().hold(key, held);
                        flights.gave(key, now);
                        *answer = Claimed::Held(Generation(now.0));
                    }
                    Given::Away => {}
                    Given::Taken { by, generation } => {
                        let may_replace = if by.node == self.node {
                            self.has_renumbered(request, key)
                        } else {
                            self.may_take_over(key, (&open, request.owner.process), &by).await
                        };
                        if may_replace {
                            again.push(OpenClaim { expected: Some(generation), ..open });
                        }
                        *answer = self.taken(key, &by, generation);
                    }
                }
            }
            open = again;
        }
        flights.accept();
        answers
    }

    /// A request, unless its process has ended.
    fn open(&self, nth: usize, batch: &[ClaimRequest]) -> Option<OpenClaim> {
        let ClaimRequest { key, owner, expected, .. } = batch.get(nth)?;
        let client = ClientName::new(&owner.client).ok()?;
        let instance = self.presence.instance(&owner.client, owner.process)?;
        let expected = expected.map(|Generation(number)| {
            let number = names::Generation(number);
            let table = self.table();
            let own = table.held(&key_of(key)).filter(|held| held.given == number);
            own.map_or(number, |held| held.now)
        });
        Some(OpenClaim { nth, client, instance, expected })
    }

    /// Whether the claim that a request expects is a claim of this server, whose number has changed
    /// while the request was under way.
    fn has_renumbered(&self, request: &ClaimRequest, key: &names::Key) -> bool {
        let expected = request.expected.map(|Generation(number)| names::Generation(number));
        let table = self.table();
        table.held(key).is_some_and(|held| Some(held.given) == expected)
    }

    /// Whether a process may take a resource that its client has at another node: it is in charge,
    /// by the record of the client, and has not lost the resource at this node since its log-in. So
    /// two processes do not take turns while one of them does not know yet that it has yielded. The
    /// other node may have died without a word, so its lease is not waited for. A process that has
    /// registered the resource at several nodes has it at each of them, and the directory asks
    /// nothing here.
    async fn may_take_over(
        &self,
        key: &names::Key,
        (open, session): (&OpenClaim, u64),
        by: &names::Owner,
    ) -> bool {
        let process = (open.instance, session);
        if by.client != open.client || self.table().has_yielded(key, process) {
            return false;
        }
        let client = Place::Client(open.client.clone());
        self.cluster.find(client).await == Located::Here(open.instance)
    }

    /// The answer about a resource that somebody has. If this server knows of no such claim of its
    /// own, the claim was given up and is released soon, or its answer is on its way.
    fn taken(&self, key: &names::Key, by: &names::Owner, generation: names::Generation) -> Claimed {
        if by.node != self.node {
            return Claimed::Taken { by: owner_of(by), generation: Generation(generation.0) };
        }
        let table = self.table();
        table.held(key).map_or(Claimed::Away, |held| {
            let (by, generation) = (held.owner.clone(), Generation(held.given.0));
            Claimed::Taken { by, generation }
        })
    }

    async fn find(&self, subject: Subject) -> Result<Option<Whereabouts>, Away> {
        let place = match &subject {
            Subject::Client(client) => match ClientName::new(client) {
                Ok(client) => Place::Client(client),
                Err(_) => return Ok(None),
            },
            Subject::Key(key) => {
                let key = key_of(key);
                if let Some(own) = self.table().held(&key) {
                    let generation = Generation(own.given.0);
                    return Ok(Some(Whereabouts { owners: vec![own.owner.clone()], generation }));
                }
                Place::Resource(key)
            }
        };
        let found = match self.cluster.find(place).await {
            Located::Away => return Err(Away),
            Located::Nowhere => return Ok(None),
            Located::Here(instance) => {
                let Subject::Client(client) = subject else { return Ok(None) };
                let session = self.presence.session(&client, instance);
                let Some(process) = session else { return Ok(None) };
                let owner = Owner { client, process, node: NodeEpoch::HERE };
                Whereabouts { owners: vec![owner], generation: Generation(0) }
            }
            Located::There { generation, record, .. } => {
                let Subject::Client(client) = subject else { return Ok(None) };
                let process = record.instance.0;
                let owner = |home: &cluster::record::Home| Owner {
                    client: Arc::clone(&client),
                    process,
                    node: NodeEpoch(home.epoch.0),
                };
                let owners = record.homes.iter().rev().map(owner).collect();
                Whereabouts { owners, generation: Generation(generation.0) }
            }
            // A claim of this server that was released.
            Located::Held { record, .. } if record.epoch_of(&self.node).is_some() => {
                return Ok(None);
            }
            Located::Held { generation, record, .. } => {
                let owners = vec![owner_of(&record.owner())];
                Whereabouts { owners, generation: Generation(generation.0) }
            }
        };
        Ok(Some(found))
    }
}

impl Directory for SharedDirectory {
    fn marks(&self) -> Option<&Marks> {
        Some(&self.marks)
    }

    fn is_elsewhere(&self, key: &Key) -> bool {
        let ports = self.cluster.ports();
        let ports = ports.borrow();
        let Some((_, record)) = ports.get(&key_of(key)) else { return false };
        record.holders().iter().any(|holder| holder.node != self.node)
    }

    fn claim(&self, batch: Vec<ClaimRequest>) -> Answer<'_, Vec<Claimed>> {
        Box::pin(self.claim_all(batch))
    }

    fn release(&self, batch: Vec<Release>) {
        let mut table = self.table();
        let release = |Release { key, generation }: Release| {
            let key = key_of(&key);
            let now = table.release(&key, names::Generation(generation.0))?;
            Some((key, now))
        };
        let released: Vec<_> = batch.into_iter().filter_map(release).collect();
        self.cluster.release(released);
    }

    fn whereabouts(
        &self,
        batch: Vec<Subject>,
    ) -> Answer<'_, Result<Vec<Option<Whereabouts>>, Away>> {
        Box::pin(async move {
            let mut all = Vec::with_capacity(batch.len());
            for subject in batch {
                all.push(self.find(subject).await?);
            }
            Ok(all)
        })
    }

    fn follow(&self, topic: Topic) -> watch::Receiver<Revision> {
        match topic {
            Topic::Answers => self.answers.subscribe(),
            Topic::Blob(_) => self.own.follow(topic),
        }
    }

    fn get(&self, name: BlobName) -> Answer<'_, Result<Blob, Away>> {
        self.own.get(name)
    }

    fn put(&self, name: BlobName, expected: Revision, bytes: Bytes) -> Answer<'_, Put> {
        self.own.put(name, expected, bytes)
    }
}

/// The claims of a batch that is under way. A batch that is dropped has claimed nothing that stays
/// claimed.
struct Flights<'a> {
    shared: &'a SharedDirectory,
    keys: &'a [names::Key],
    given: Vec<(names::Key, names::Generation)>,
}

impl<'a> Flights<'a> {
    fn begin(shared: &'a SharedDirectory, keys: &'a [names::Key]) -> Self {
        let mut table = shared.table();
        keys.iter().for_each(|key| table.begin(key));
        Self { shared, keys, given: Vec::new() }
    }

    /// A claim of the batch was given.
    fn gave(&mut self, key: &names::Key, number: names::Generation) {
        self.given.push((key.clone(), number));
    }

    /// The answers are complete, and the caller gets them.
    fn accept(mut self) {
        self.given.clear();
    }
}

impl Drop for Flights<'_> {
    fn drop(&mut self) {
        let mut table = self.shared.table();
        let given = self.given.drain(..);
        let unread = given.filter_map(|(key, number)| {
            let now = table.release(&key, number)?;
            Some((key, now))
        });
        let unread: Vec<_> = unread.collect();
        self.keys.iter().for_each(|key| table.end(key));
        if table.has_lost() {
            self.shared.lost.notify_one();
        }
        drop(table);
        if !unread.is_empty() {
            self.shared.cluster.release(unread);
        }
    }
}

/// A resource as the cluster names it.
fn key_of(key: &Key) -> names::Key {
    match key {
        Key::Port(over, class, port) => {
            let over = match over {
                Over::Tcp => PortProtocol::Tcp,
                Over::Udp => PortProtocol::Udp,
            };
            let class = match class {
                Class::Public => names::Class::Public,
                Class::Named(address) => names::Class::Named(*address),
            };
            names::Key::Port(over, class, *port)
        }
        Key::Name(space, name) => {
            let space = match space {
                Space::Http => names::Space::Http,
                Space::Tls => names::Space::Tls,
            };
            names::Key::Host(space, Arc::clone(name))
        }
    }
}

/// A resource as this server names it; `None`: the resource is no address of a service.
pub(super) fn resource(key: &names::Key) -> Option<Key> {
    Some(match key {
        names::Key::Port(over, class, port) => {
            let over = match over {
                PortProtocol::Tcp => Over::Tcp,
                PortProtocol::Udp => Over::Udp,
            };
            let class = match class {
                names::Class::Public => Class::Public,
                names::Class::Named(address) => Class::Named(*address),
            };
            Key::Port(over, class, *port)
        }
        names::Key::Host(space, name) => {
            let space = match space {
                names::Space::Http => Space::Http,
                names::Space::Tls => Space::Tls,
            };
            Key::Name(space, Arc::clone(name))
        }
        names::Key::Duty(_) => return None,
    })
}

/// A holder at another node.
fn owner_of(by: &names::Owner) -> Owner {
    let (client, node) = (by.client.as_str().into(), NodeEpoch(by.epoch.0));
    Owner { client, process: by.instance.0, node }
}
