//! Tests of the directory: any sequence of calls on a directory has the answers of a model that is
//! a list of all claims. Also a directory that does not answer.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use config::Over;
use node::names::Space;
use tokio::sync::watch;

use super::*;

/// The claims of a directory, as a list that is searched from its end.
#[derive(Debug, Default)]
struct Model {
    /// All claims so far; `None`: the claim was released or replaced. A generation is a place in
    /// the list, counted from 1.
    claims: Vec<Option<(Key, Owner)>>,
    blob: Blob,
}

impl Model {
    fn holder(&self, key: &Key) -> Option<(Owner, Generation)> {
        let held = |(nth, claim): (usize, &Option<(Key, Owner)>)| {
            let (of, owner) = claim.as_ref()?;
            (of == key).then(|| (owner.clone(), Generation(nth as u64 + 1)))
        };
        self.claims.iter().enumerate().rev().find_map(held)
    }

    fn end(&mut self, Generation(number): Generation) {
        self.claims[number as usize - 1] = None;
    }

    fn claim(&mut self, request: ClaimRequest) -> Claimed {
        if let Some((by, generation)) = self.holder(&request.key) {
            if request.expected != Some(generation) {
                return Claimed::Taken { by, generation };
            }
            self.end(generation);
        }
        self.claims.push(Some((request.key, request.owner)));
        Claimed::Held(Generation(self.claims.len() as u64))
    }

    fn release(&mut self, release: &Release) {
        if self.holder(&release.key).is_some_and(|(_, latest)| latest == release.generation) {
            self.end(release.generation);
        }
    }

    fn whereabouts(&self, subject: &Subject) -> Option<Whereabouts> {
        match subject {
            Subject::Key(key) => {
                let (owner, generation) = self.holder(key)?;
                Some(Whereabouts { owners: vec![owner], generation })
            }
            Subject::Client(client) => {
                let mut owners: Vec<Owner> = Vec::new();
                let mut latest = None;
                for (nth, claim) in self.claims.iter().enumerate().rev() {
                    let Some((_, owner)) = claim else { continue };
                    if owner.client != *client {
                        continue;
                    }
                    latest = latest.or(Some(Generation(nth as u64 + 1)));
                    if !owners.contains(owner) {
                        owners.push(owner.clone());
                    }
                }
                latest.map(|generation| Whereabouts { owners, generation })
            }
        }
    }

    fn put(&mut self, expected: Revision, bytes: Bytes) -> Put {
        if self.blob.revision != expected {
            return Put::Changed;
        }
        let revision = Revision(expected.0 + 1);
        self.blob = Blob { revision, bytes };
        Put::Done(revision)
    }
}

/// A sequence of numbers with a seed (Knuth's MMIX generator).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize].clone()
    }
}

fn owner(client: &str, process: u64) -> Owner {
    Owner { client: client.into(), process, node: NodeEpoch::HERE }
}

fn keys() -> Vec<Key> {
    let here = Class::Named(Ipv4Addr::LOCALHOST.into());
    vec![
        Key::Port(Over::Tcp, Class::Public, 1),
        Key::Port(Over::Udp, Class::Public, 1),
        Key::Port(Over::Tcp, here, 1),
        Key::Name(Space::Http, "a.example".into()),
        Key::Name(Space::Tls, "a.example".into()),
    ]
}

/// The owners of a random sequence of calls.
pub(crate) fn owners() -> [Owner; 3] {
    [owner("home", 1), owner("home", 2), owner("other", 3)]
}

/// The numbers of a directory for those of the model, each with its resource: a directory may give
/// one number to claims of several resources.
#[derive(Debug, Default)]
struct Numbering(Vec<(Key, Generation)>);

impl Numbering {
    fn known(&self, Generation(number): Generation) -> Option<&(Key, Generation)> {
        self.0.get(usize::try_from(number).ok()?.checked_sub(1)?)
    }

    /// The number of the directory for a number of the model, which may be that of another
    /// resource, or not exist yet.
    fn of(&self, key: &Key, number: Generation) -> Generation {
        let of_key = self.known(number).filter(|(of, _)| of == key).map(|(_, found)| *found);
        of_key.unwrap_or(Generation(u64::MAX - number.0))
    }

    /// The number of the directory for that of a claim of any resource.
    fn of_any(&self, number: Generation) -> Generation {
        self.known(number).unwrap().1
    }

    /// Compares an answer of the directory with that of the model.
    fn compare(&mut self, key: &Key, found: &Claimed, wanted: &Claimed) -> bool {
        match (found, wanted) {
            (Claimed::Held(found), Claimed::Held(Generation(nth))) => {
                let mut former = self.0.iter().filter(|(of, _)| of == key);
                let is_later = former.all(|(_, former)| former < found);
                self.0.push((key.clone(), *found));
                is_later && self.0.len() as u64 == *nth
            }
            (
                Claimed::Taken { by, generation: found },
                Claimed::Taken { by: wanted, generation },
            ) => by == wanted && *found == self.of(key, *generation),
            (Claimed::Held(_) | Claimed::Taken { .. } | Claimed::Away, _) => false,
        }
    }
}

/// The number of any claim so far, or of a claim that the present batch does not make either.
fn any_number(numbers: &mut Numbers, claims: u64) -> Generation {
    let number = 1 + numbers.below(claims + 2);
    Generation(if number > claims { number + 10 } else { number })
}

/// Makes a random sequence of calls, and compares the answers with those of the model.
/// `knows_clients`: a look-up knows clients by their claims.
pub(crate) async fn agrees(
    directory: &dyn Directory,
    seed: u64,
    steps: usize,
    knows_clients: bool,
) {
    let (mut model, mut numbers) = (Model::default(), Numbers(seed));
    let (keys, owners, mut numbering) = (keys(), owners(), Numbering::default());
    let latest = directory.follow(Topic::Blob(BlobName::Ports));
    for step in 0..steps {
        let claims = model.claims.len() as u64;
        let count = 1 + numbers.below(3);
        match numbers.below(5) {
            0 | 1 => {
                let mut request = |_| {
                    let (key, owner) = (numbers.of(&keys), numbers.of(&owners));
                    let held = model.holder(&key).map(|(_, generation)| generation);
                    let any = any_number(&mut numbers, claims);
                    let expected = numbers.of(&[None, held, Some(any)]);
                    ClaimRequest { key, owner, expected, about: "".into() }
                };
                let batch: Vec<_> = (0..count).map(&mut request).collect();
                let answers: Vec<_> = batch.iter().cloned().map(|one| model.claim(one)).collect();
                let asked: Vec<_> = batch.iter().map(|request| request.key.clone()).collect();
                let named = |request: ClaimRequest| {
                    let expected = request.expected.map(|it| numbering.of(&request.key, it));
                    ClaimRequest { expected, ..request }
                };
                let found = directory.claim(batch.into_iter().map(named).collect()).await;
                let mut pairs = asked.iter().zip(found.iter().zip(&answers));
                let are_equal = pairs.all(|(key, (found, own))| numbering.compare(key, found, own));
                assert!(are_equal, "seed {seed}, step {step}: {found:?}, {answers:?}");
            }
            2 => {
                let mut release = |_| {
                    let key = numbers.of(&keys);
                    let held = model.holder(&key).map(|(_, generation)| generation);
                    let any = any_number(&mut numbers, claims);
                    Release { key, generation: numbers.of(&[held.unwrap_or(any), any]) }
                };
                let batch: Vec<_> = (0..count).map(&mut release).collect();
                batch.iter().for_each(|release| model.release(release));
                let named = |release: Release| Release {
                    generation: numbering.of(&release.key, release.generation),
                    ..release
                };
                directory.release(batch.into_iter().map(named).collect());
            }
            3 => {
                let expected = model.blob.revision.0.saturating_sub(numbers.below(2));
                let (expected, bytes) = (Revision(expected), Bytes::from(vec![0; step]));
                let put = directory.put(BlobName::Ports, expected, bytes.clone()).await;
                assert_eq!(put, model.put(expected, bytes), "seed {seed}, step {step}");
            }
            _ => {
                let get = directory.get(BlobName::Ports).await;
                assert_eq!(get.unwrap(), model.blob, "seed {seed}, step {step}");
                assert_eq!(*latest.borrow(), model.blob.revision, "seed {seed}, step {step}");
            }
        }
        let mut subjects: Vec<_> = keys.iter().cloned().map(Subject::Key).collect();
        if knows_clients {
            let clients = ["home", "other", "nobody"];
            subjects.extend(clients.map(|name| Subject::Client(name.into())));
        }
        let named = |place: Whereabouts| Whereabouts {
            generation: numbering.of_any(place.generation),
            ..place
        };
        let of_model = |subject| model.whereabouts(subject).map(named);
        let answers: Vec<_> = subjects.iter().map(of_model).collect();
        let found = directory.whereabouts(subjects).await.unwrap();
        assert_eq!(found, answers, "seed {seed}, step {step}");
    }
}

#[tokio::test]
async fn any_sequence_of_calls_has_the_answers_of_the_model() {
    for seed in 0..200 {
        agrees(&Local::new(None), seed, 300, true).await;
    }
}

/// The holder of a resource.
async fn holder(directory: &Arc<dyn Directory>, key: &Key) -> Option<Owner> {
    let found = directory.whereabouts(vec![Subject::Key(key.clone())]).await.unwrap();
    found.into_iter().next().flatten()?.owners.into_iter().next()
}

#[tokio::test]
async fn a_resource_has_one_owner_until_its_claim_ends() {
    let directory: Arc<dyn Directory> = Arc::new(Local::new(None));
    let [home, other] = [owner("home", 1), owner("other", 2)];
    let here = Class::Named(Ipv4Addr::LOCALHOST.into());
    let key = |over| Key::Port(over, here, 1);
    let claim = async |over, owner| Claim::new(&directory, (key(over), "".into()), owner).await;
    let first = claim(Over::Tcp, &home).await.unwrap();
    assert_eq!(claim(Over::Tcp, &home).await.unwrap_err(), NotGiven::Taken);
    assert_eq!(claim(Over::Tcp, &other).await.unwrap_err(), NotGiven::Taken);
    assert!(claim(Over::Udp, &other).await.is_ok(), "another resource");
    assert_eq!(holder(&directory, &key(Over::Tcp)).await.as_ref(), Some(&home));
    drop(first);
    assert_eq!(holder(&directory, &key(Over::Tcp)).await, None);
    assert!(claim(Over::Tcp, &other).await.is_ok());
}

#[tokio::test]
async fn an_old_release_frees_nothing() {
    let local = Local::new(None);
    let [home, other] = [owner("home", 1), owner("other", 2)];
    let key = keys().remove(0);
    let claim = async |owner: &Owner, expected| {
        let request =
            ClaimRequest { key: key.clone(), owner: owner.clone(), expected, about: "".into() };
        local.claim(vec![request]).await.remove(0)
    };
    let release = |generation| local.release(vec![Release { key: key.clone(), generation }]);
    let Claimed::Held(first) = claim(&home, None).await else { panic!("a free resource") };
    release(first);
    let Claimed::Held(second) = claim(&other, None).await else { panic!("a free resource") };
    assert!(second > first);
    // The release is repeated, or arrives late.
    release(first);
    let taken = Claimed::Taken { by: other.clone(), generation: second };
    assert_eq!(claim(&home, None).await, taken);
    assert_eq!(claim(&home, Some(first)).await, taken, "an old claim replaces nothing");
    // The claim that is expected is replaced, and its number is void from then on.
    let Claimed::Held(third) = claim(&home, Some(second)).await else { panic!("expected") };
    release(second);
    assert_eq!(claim(&other, None).await, Claimed::Taken { by: home, generation: third });
    release(third);
    assert!(matches!(claim(&other, None).await, Claimed::Held(_)));
}

#[tokio::test]
async fn a_claim_that_is_dropped_after_another_owner_won_frees_nothing() {
    let directory: Arc<dyn Directory> = Arc::new(Local::new(None));
    let [home, later, other] = [owner("home", 1), owner("home", 2), owner("other", 3)];
    let key = keys().remove(0);
    let old = Arc::new(Claim::new(&directory, (key.clone(), "".into()), &home).await.unwrap());
    // Another server of the client wins the resource by the number of the claim.
    let generation = {
        let found = directory.whereabouts(vec![Subject::Key(key.clone())]).await.unwrap();
        found[0].as_ref().unwrap().generation
    };
    let request = ClaimRequest {
        key: key.clone(),
        owner: other.clone(),
        expected: Some(generation),
        about: "".into(),
    };
    assert!(matches!(directory.claim(vec![request]).await[..], [Claimed::Held(_)]));
    let passed = Claim::pass(&directory, &[(Arc::clone(&old), "".into())], &later).await;
    assert_eq!(passed, [Err(NotGiven::Taken)]);
    assert!(old.is_of(&home, ""));
    drop(old);
    assert_eq!(holder(&directory, &key).await, Some(other));
}

#[tokio::test]
async fn a_claim_that_was_passed_on_is_released_by_its_new_number() {
    let directory: Arc<dyn Directory> = Arc::new(Local::new(None));
    let [home, later] = [owner("home", 1), owner("home", 2)];
    let key = keys().remove(0);
    let claim = Arc::new(Claim::new(&directory, (key.clone(), "".into()), &home).await.unwrap());
    assert_eq!(Claim::pass(&directory, &[(Arc::clone(&claim), "".into())], &later).await, [Ok(())]);
    assert!(claim.is_of(&later, ""));
    assert_eq!(holder(&directory, &key).await, Some(later));
    drop(claim);
    assert_eq!(holder(&directory, &key).await, None);
}

#[tokio::test]
async fn a_claim_that_nobody_waits_for_claims_nothing() {
    let directory: Arc<dyn Directory> = Arc::new(Local::new(None));
    let (home, key) = (owner("home", 1), keys().remove(0));
    drop(Claim::new(&directory, (key.clone(), "".into()), &home));
    let request = ClaimRequest { key: key.clone(), owner: home, expected: None, about: "".into() };
    drop(directory.claim(vec![request]));
    assert_eq!(holder(&directory, &key).await, None);
}

#[test]
fn a_resource_is_shown_as_its_address() {
    let shown = keys().iter().map(ToString::to_string).collect::<Vec<_>>();
    let names = ["http://a.example", "tls://a.example"];
    assert_eq!(shown[..3], ["tcp://:1", "udp://:1", "tcp://127.0.0.1:1"]);
    assert_eq!(shown[3..], names);
}

#[test]
fn a_port_of_public_bind_is_the_same_resource_at_each_server() {
    let [one, two]: [IpAddr; 2] = [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
    assert_eq!(Class::of(one, one), Class::of(two, two));
    assert_ne!(Class::of(one, one), Class::of(two, one));
    assert_eq!(Class::of(one, one).at(two, 22), SocketAddr::new(two, 22));
    assert_eq!(Class::of(one, two).at(two, 22), SocketAddr::new(one, 22));
    // All addresses, and one of them.
    let all = IpAddr::from([0, 0, 0, 0]);
    assert_ne!(Class::of(all, all), Class::of(one, all));
}

/// A directory that can be made to answer nothing. It counts its calls.
#[derive(Debug)]
pub(crate) struct Outage {
    local: Local,
    is_away: AtomicBool,
    answers: watch::Sender<Revision>,
    /// The batches of claims.
    pub(crate) claims: AtomicUsize,
    /// The size of the largest batch of claims.
    pub(crate) largest: AtomicUsize,
    /// The versions of blobs.
    pub(crate) puts: AtomicUsize,
}

impl Outage {
    /// A directory that answers until it is told to be away.
    pub(crate) fn new() -> Arc<Self> {
        let (answers, is_away) = (watch::Sender::default(), AtomicBool::new(false));
        let [claims, largest, puts] = [(); 3].map(|()| AtomicUsize::new(0));
        Arc::new(Self { local: Local::new(None), is_away, answers, claims, largest, puts })
    }

    /// Begins or ends an outage.
    pub(crate) fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::Relaxed);
        if !is_away {
            self.answers.send_modify(|revision| revision.0 += 1);
        }
    }

    fn is_away(&self) -> bool {
        self.is_away.load(Ordering::Relaxed)
    }
}

impl Directory for Outage {
    fn marks(&self) -> Option<&Marks> {
        self.local.marks()
    }

    fn claim(&self, batch: Vec<ClaimRequest>) -> Answer<'_, Vec<Claimed>> {
        self.claims.fetch_add(1, Ordering::Relaxed);
        self.largest.fetch_max(batch.len(), Ordering::Relaxed);
        if self.is_away() {
            return Box::pin(async move { vec![Claimed::Away; batch.len()] });
        }
        self.local.claim(batch)
    }

    fn release(&self, batch: Vec<Release>) {
        self.local.release(batch);
    }

    fn whereabouts(
        &self,
        batch: Vec<Subject>,
    ) -> Answer<'_, Result<Vec<Option<Whereabouts>>, Away>> {
        if self.is_away() {
            return Box::pin(async { Err(Away) });
        }
        self.local.whereabouts(batch)
    }

    fn follow(&self, topic: Topic) -> watch::Receiver<Revision> {
        match topic {
            Topic::Answers => self.answers.subscribe(),
            Topic::Blob(_) => self.local.follow(topic),
        }
    }

    fn get(&self, name: BlobName) -> Answer<'_, Result<Blob, Away>> {
        if self.is_away() {
            return Box::pin(async { Err(Away) });
        }
        self.local.get(name)
    }

    fn put(&self, name: BlobName, expected: Revision, bytes: Bytes) -> Answer<'_, Put> {
        self.puts.fetch_add(1, Ordering::Relaxed);
        if self.is_away() {
            return Box::pin(async { Put::Away });
        }
        self.local.put(name, expected, bytes)
    }
}
