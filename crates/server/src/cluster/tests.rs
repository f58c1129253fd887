//! Tests of the server as a node of a cluster, on an engine in memory and on etcd.

use std::sync::Arc;
use std::time::Duration;

use cluster::names::{Instance, NodeId};
use cluster::node::NodeSettings;
use cluster::record::{Described, VERSIONS, Versions};
use ops::cluster::{ClusterClient, ClusterClients, WantedClients};
use proto::InstanceId;
use termination::{
    CommonSecret, ExpectedValue, OrderTurn, PutOutcome, SharedPlace, SharedStore as _, StoreAway,
};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::certificates::ClusterStore;
use super::server_node::{NewNode, ServerNode, follow_views, secret_marks};
use super::table::ClaimNews;
use crate::about::Marks;
use crate::directory::model::{agrees, owners};
use crate::directory::{Claim, Class, Directory, Key, NodeEpoch, NotGiven, Owner, Subject, Topic};
use crate::presence::Presence;
use crate::presence::{ProcessHere, instance_of};
use config::Over;
pub(crate) use memory::MemoryEngine;

#[path = "../../../cluster-node/tests/memory.rs"]
#[allow(dead_code, reason = "the tests of the crate cluster-node use the rest")]
mod memory;

const SECOND: Duration = Duration::from_secs(1);

fn settings(name: &str) -> NodeSettings {
    let process = name.bytes().fold(1, |sum, byte| sum * 257 + u64::from(byte));
    let record = Described {
        process,
        versions: VERSIONS,
        peers: Vec::new(),
        clients: Vec::new(),
        zone: "z".into(),
        program: "0".into(),
        draining: false,
        links: 0,
        secrets: Vec::new(),
    };
    let node = NodeId::new(name).unwrap();
    let gather = cluster::node::GATHER;
    NodeSettings { cluster: "test".into(), node, record, cache: 100, seed: process, gather }
}

pub(crate) fn new_node(name: &str, engine: MemoryEngine) -> NewNode {
    let kept = (None, Marks::default());
    ServerNode::over(settings(name), engine, nodes::Mail::default(), kept)
}

const OLD: &str = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ";
const NEW: &str = "Zt5RkW1xQ8bN4mVc7LpYs2HdJf9GaE3uq7xJ2vKp0mZ";

/// A node with these secrets.
fn node_with(name: &str, engine: MemoryEngine, secrets: &[&str]) -> NewNode {
    let mut settings = settings(name);
    settings.record.secrets = secret_marks("test", secrets.iter().copied());
    let marks = Marks::new(CommonSecret::new(secrets.iter().copied()));
    ServerNode::over(settings, engine, nodes::Mail::default(), (None, marks))
}

/// A node whose events only its directory handles.
struct Alone {
    node: Arc<ServerNode>,
    _tasks: JoinSet<()>,
}

impl Alone {
    async fn start(name: &str, engine: MemoryEngine) -> Self {
        Self::run(new_node(name, engine)).await
    }

    async fn run(node: NewNode) -> Self {
        let (node, task, mut events) = node.into_parts();
        let mut tasks = JoinSet::new();
        tasks.spawn(task);
        tasks.spawn(follow_views(Arc::clone(&node)));
        let directory = Arc::clone(node.directory());
        tasks.spawn(async move {
            use cluster_node::ServerEvent;
            while let Some(event) = events.next().await {
                match event {
                    ServerEvent::Lost { key, generation } => {
                        directory.hear(&key, ClaimNews::Lost(generation));
                    }
                    ServerEvent::Renumbered { key, former, generation } => {
                        directory.hear(&key, ClaimNews::Renumbered(former, generation));
                    }
                    ServerEvent::Kick { .. }
                    | ServerEvent::Revoked { .. }
                    | ServerEvent::Report { .. } => {}
                }
            }
        });
        let mut membership = node.cluster().membership();
        let joins = membership.wait_for(|now| now.is_leased);
        timeout(30 * SECOND, joins).await.unwrap().unwrap();
        Self { node, _tasks: tasks }
    }

    fn directory(&self) -> Arc<dyn Directory> {
        Arc::<super::SharedDirectory>::clone(self.node.directory())
    }

    /// A process of a client logs in, and has this number.
    fn log_in(&self, client: &str, session: u64, instance: u64) {
        self.node.presence().changed(client, &[process(session, instance, true)], 1);
    }
}

const fn process(session: u64, instance: u64, is_in_force: bool) -> ProcessHere {
    ProcessHere { session, instance: Instance(instance), links: 1, is_in_force }
}

fn owner(client: &str, process: u64) -> Owner {
    Owner { client: client.into(), process, node: NodeEpoch::HERE }
}

fn key(port: u16) -> Key {
    Key::Port(Over::Tcp, Class::Public, port)
}

async fn claim(
    directory: &Arc<dyn Directory>,
    port: u16,
    owner: &Owner,
) -> Result<Claim, NotGiven> {
    Claim::new(directory, (key(port), "".into()), owner).await
}

/// Claims until the claim is held: a release takes some milliseconds.
async fn insist(directory: &Arc<dyn Directory>, port: u16, owner: &Owner) -> Claim {
    for _ in 0..20 {
        if let Ok(claim) = claim(directory, port, owner).await {
            return claim;
        }
        sleep(SECOND / 20).await;
    }
    panic!("the resource is not freed");
}

async fn holder(directory: &Arc<dyn Directory>, port: u16) -> Option<Owner> {
    let found = directory.whereabouts(vec![Subject::Key(key(port))]).await.unwrap().remove(0);
    found?.owners.into_iter().next()
}

#[tokio::test(start_paused = true)]
async fn each_node_lists_the_clients_of_all_nodes() {
    let engine = MemoryEngine::new();
    let a = Alone::start("a", engine.clone()).await;
    let b = Alone::start("b", engine.of_another_node()).await;
    a.log_in("office", 1, 11);
    b.log_in("office/2", 2, 12);
    b.log_in("home", 3, 13);
    let listed = async |node: &Alone, begins: &str, after: &str, limit| {
        let wanted = WantedClients { begins: begins.into(), after: after.into(), limit };
        let ClusterClients { list, next } = node.node.clients(wanted).await.unwrap();
        let text = |client: ClusterClient| {
            let node = client.nodes.first().unwrap();
            let here = if node.here { " (here)" } else { "" };
            let nodes = client.node_names().join(", ");
            format!("{} at {nodes}{here}, {} link", client.name, node.links.unwrap())
        };
        (list.into_iter().map(text).collect::<Vec<_>>(), next)
    };
    for _ in 0..100 {
        if listed(&a, "", "", 200).await.0.len() == 3 {
            break;
        }
        sleep(SECOND / 10).await;
    }
    let (all, next) = listed(&a, "", "", 200).await;
    assert_eq!(all, ["home at b, 1 link", "office at a (here), 1 link", "office/2 at b, 1 link"]);
    assert_eq!(next, None);
    let (all, next) = listed(&b, "off", "", 1).await;
    assert_eq!(all, ["office at a, 1 link"]);
    assert_eq!(next.as_deref(), Some("office"));
    let (all, next) = listed(&b, "off", "office", 1).await;
    assert_eq!((all, next), (vec!["office/2 at b (here), 1 link".to_owned()], None));
    let wanted = WantedClients { after: "x".repeat(300), ..WantedClients::default() };
    assert!(a.node.clients(wanted).await.is_err());

    // The clients of a node that has died are connected nowhere.
    drop(b);
    let mut nodes = a.node.cluster().nodes();
    timeout(60 * SECOND, nodes.wait_for(|nodes| nodes.len() == 1)).await.unwrap().unwrap();
    let (all, next) = listed(&a, "", "", 2).await;
    assert_eq!(
        (all, next.as_deref()),
        (vec!["office at a (here), 1 link".to_owned()], Some("office"))
    );
}

/// Puts a value that this secret has sealed.
async fn put_sealed(node: &Alone, place: SharedPlace, secret: &str) {
    let value = CommonSecret::new([secret]).unwrap().seal(&place, b"plain").unwrap();
    let store = node.node.store().unwrap();
    let outcome = store.put(place, value, ExpectedValue::At(None), None).await;
    assert!(matches!(outcome, Ok(PutOutcome::Written(_))), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_secret_seals_everything_anew_and_says_when_the_former_one_can_go() {
    let engine = MemoryEngine::new();
    let start = async |name, secrets: &[&str]| {
        Alone::run(node_with(name, engine.of_another_node(), secrets)).await
    };
    let a = start("a", &[NEW, OLD]).await;
    put_sealed(&a, SharedPlace::Account("digest".into()), OLD).await;
    put_sealed(&a, SharedPlace::Tickets, OLD).await;
    put_sealed(&a, SharedPlace::Challenge("tls-alpn-01 a.example".into()), OLD).await;
    for n in 0..40 {
        put_sealed(&a, SharedPlace::Certificate(format!("n{n:02}.example").into()), OLD).await;
    }
    put_sealed(&a, SharedPlace::Certificate("new.example".into()), NEW).await;

    // A node that could not open what is sealed anew holds the change up.
    let b = start("b", &[OLD]).await;
    let sees = async |count| {
        let mut nodes = a.node.cluster().nodes();
        timeout(60 * SECOND, nodes.wait_for(|nodes| nodes.len() == count)).await.unwrap().unwrap();
    };
    sees(2).await;
    let refused = a.node.rekey("").await.unwrap_err().to_string();
    assert!(refused.contains("node b cannot open"), "{refused}");
    drop(b);
    sees(1).await;

    let c = start("c", &[OLD, NEW]).await;
    sees(2).await;
    // A change that was broken off goes on at its place.
    let rest = a.node.rekey("cert/n29.example").await.unwrap();
    assert_eq!((rest.read, rest.sealed, rest.next.clone()), (11, 10, None));
    let all = a.node.rekey("").await.unwrap();
    assert_eq!((all.read, all.sealed, all.changed, all.unopened), (44, 33, 0, 0));
    assert_eq!(all.next, None);
    let why = all.needs_former();
    assert!(why.len() == 1 && why[0].starts_with("nodes c: they seal with another"), "{why:?}");
    // What a node has sealed with the former secret meanwhile is sealed anew by the next run.
    put_sealed(&c, SharedPlace::Certificate("late.example".into()), OLD).await;
    drop(c);
    sees(1).await;
    let again = a.node.rekey("").await.unwrap();
    assert_eq!((again.read, again.sealed), (45, 1));
    assert!(again.needs_former().is_empty(), "{:?}", again.needs_former());

    // The new secret alone opens everything that is left.
    let d = start("d", &[NEW]).await;
    let last = d.node.rekey("").await.unwrap();
    assert_eq!((last.sealed, last.unopened), (0, 0));
    put_sealed(&d, SharedPlace::Certificate("lost.example".into()), OLD).await;
    let lost = d.node.rekey("").await.unwrap();
    assert_eq!((lost.unopened, &lost.names[..]), (1, &["cert/lost.example".to_owned()][..]));
    assert!(d.node.rekey("nowhere/x").await.is_err());
    let without = Alone::start("e", engine.of_another_node()).await;
    let refused = without.node.rekey("").await.unwrap_err().to_string();
    assert!(refused.contains("has no secret"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_node_without_a_common_version_refuses_its_start() {
    let engine = MemoryEngine::new();
    let mut later = settings("a");
    later.record.versions = Versions { min: VERSIONS.max + 1, max: VERSIONS.max + 2 };
    later.record.program = "9.1.0".into();
    let kept = (None, Marks::default());
    let later = ServerNode::over(later, engine.clone(), nodes::Mail::default(), kept);
    let a = Alone::run(later).await;
    let start = |name| {
        let (node, task, mut events) = new_node(name, engine.of_another_node()).into_parts();
        let mut tasks = JoinSet::new();
        tasks.spawn(task);
        let handles = Arc::clone(&node);
        tasks.spawn(async move {
            while let Some(event) = events.next().await {
                if let cluster_node::ServerEvent::Report { event, line } = event {
                    handles.note_report(&event, line);
                }
            }
        });
        (node, tasks)
    };
    let (b, _tasks) = start("b");
    let why = b.joins().await.unwrap_err().to_string();
    let part = "cannot join the cluster test: node a (tunnel 9.1.0) reads the versions 2 to 3";
    assert!(why.contains(part), "{why}");
    // Without the other node it joins.
    drop(a);
    sleep(40 * SECOND).await;
    let (c, _tasks) = start("c");
    c.joins().await.unwrap();
    assert!(c.cluster().membership().borrow().is_leased);
    // An engine that does not answer holds the start up for a moment.
    let (alone, _task, _events) = new_node("d", MemoryEngine::new()).into_parts();
    timeout(2 * SECOND, alone.joins()).await.unwrap().unwrap();
}

/// The presence of the owners of a random sequence of calls.
fn present(presence: &Presence) {
    for owner in owners() {
        let sessions = owners().into_iter().filter(|other| other.client == owner.client);
        let sessions = sessions.map(|other| other.process);
        let latest = sessions.clone().max().unwrap();
        let all: Vec<_> = sessions.map(|id| process(id, 100 + id, id == latest)).collect();
        presence.changed(&owner.client, &all, 3);
    }
}

#[tokio::test(start_paused = true)]
async fn the_directory_of_a_cluster_has_the_answers_of_the_model() {
    for seed in 0..20 {
        let node = Alone::start("a", MemoryEngine::new()).await;
        present(node.node.presence());
        agrees(&**node.node.directory(), seed, 150, false).await;
    }
}

/// Two nodes, and the engine as each of them sees it.
async fn two() -> ([Alone; 2], [MemoryEngine; 2]) {
    let engine = MemoryEngine::new();
    let engines = [engine.of_another_node(), engine];
    let first = Alone::start("a", engines[0].clone()).await;
    ([first, Alone::start("b", engines[1].clone()).await], engines)
}

/// Asks until the answer is as wanted, for 30 s at most.
async fn eventually(mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..300 {
        if is_so().await {
            return;
        }
        sleep(SECOND / 10).await;
    }
    panic!("not within 30 s");
}

#[tokio::test(start_paused = true)]
async fn a_claim_at_one_node_is_taken_at_the_other_until_it_is_dropped() {
    let ([a, b], _) = two().await;
    a.log_in("home", 1, 11);
    b.log_in("other", 1, 21);
    let [here, there] = [a.directory(), b.directory()];
    assert!(here.is_shared());
    let first = claim(&here, 1, &owner("home", 1)).await.unwrap();
    assert_eq!(claim(&there, 1, &owner("other", 1)).await.unwrap_err(), NotGiven::Taken);
    assert_eq!(holder(&here, 1).await, Some(owner("home", 1)));
    eventually(async || holder(&there, 1).await.is_some()).await;
    let seen = holder(&there, 1).await.unwrap();
    assert_eq!((&*seen.client, seen.process), ("home", 11));
    assert_ne!(seen.node, NodeEpoch::HERE);
    drop(first);
    let second = insist(&there, 1, &owner("other", 1)).await;
    assert_eq!(claim(&here, 1, &owner("home", 1)).await.unwrap_err(), NotGiven::Taken);
    drop(second);
    // A process that has ended claims nothing.
    assert_eq!(claim(&here, 1, &owner("home", 2)).await.unwrap_err(), NotGiven::Away);
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_number_has_changed_is_passed_on_and_released() {
    let ([a, b], [engine, _]) = two().await;
    a.node.presence().changed("home", &[process(1, 11, true), process(2, 12, false)], 2);
    b.log_in("other", 1, 21);
    let [here, there] = [a.directory(), b.directory()];
    let mut answers = here.follow(Topic::Answers);
    answers.mark_unchanged();
    let held = Arc::new(claim(&here, 1, &owner("home", 1)).await.unwrap());
    let other = claim(&here, 2, &owner("home", 1)).await.unwrap();
    let epoch = a.node.cluster().membership().borrow().epoch;
    // The lease of the node ends, and nobody claims the ports meanwhile.
    engine.hang(true);
    sleep(25 * SECOND).await;
    assert_eq!(claim(&here, 3, &owner("home", 1)).await.unwrap_err(), NotGiven::Away);
    assert!(!answers.has_changed().unwrap());
    engine.hang(false);
    timeout(30 * SECOND, answers.changed()).await.unwrap().unwrap();
    assert_ne!(a.node.cluster().membership().borrow().epoch, epoch);
    eventually(async || holder(&there, 1).await.is_some()).await;
    eventually(async || {
        let status = a.node.status().await;
        status.member && status.ready && status.nodes.len() == 2 && status.epoch.is_some()
    })
    .await;

    let pass = [(Arc::clone(&held), "".into())];
    assert_eq!(Claim::pass(&here, &pass, &owner("home", 2)).await, [Ok(())]);
    assert_eq!(holder(&here, 1).await, Some(owner("home", 2)));
    drop(other);
    drop(insist(&there, 2, &owner("other", 1)).await);
    drop((pass, held));
    drop(insist(&there, 1, &owner("other", 1)).await);
}

#[tokio::test(start_paused = true)]
async fn a_later_process_of_a_client_at_another_node_gets_its_address_and_keeps_it() {
    let ([a, b], _) = two().await;
    let [here, there] = [a.directory(), b.directory()];
    a.log_in("home", 1, 11);
    let first = claim(&here, 1, &owner("home", 1)).await.unwrap();
    eventually(async || {
        let found = here.whereabouts(vec![Subject::Client("home".into())]).await.unwrap();
        found[0].is_some()
    })
    .await;
    b.log_in("home", 5, 12);
    let second = claim(&there, 1, &owner("home", 5)).await.unwrap();
    let lost = timeout(30 * SECOND, a.node.directory().next_lost()).await.unwrap();
    assert_eq!((lost.claim.owner, lost.claim.instance), (owner("home", 1), Instance(11)));
    // The former process does not know yet that it has to yield, and takes nothing back.
    assert_eq!(claim(&here, 1, &owner("home", 1)).await.unwrap_err(), NotGiven::Taken);
    drop(first);
    assert_eq!(holder(&there, 1).await, Some(owner("home", 5)));
    drop(second);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_had_to_yield_gets_its_address_when_it_is_in_charge_again() {
    let ([a, b], _) = two().await;
    let [here, there] = [a.directory(), b.directory()];
    a.log_in("home", 1, 11);
    let first = claim(&here, 1, &owner("home", 1)).await.unwrap();
    sleep(SECOND).await;
    b.log_in("home", 5, 12);
    let second = claim(&there, 1, &owner("home", 5)).await.unwrap();
    timeout(30 * SECOND, a.node.directory().next_lost()).await.unwrap();
    drop(first);
    // The links of both processes end, and the address of the later process is not released yet.
    for node in [&a, &b] {
        node.node.presence().changed("home", &[], 0);
    }
    sleep(10 * SECOND).await;
    a.log_in("home", 2, 11);
    let again = claim(&here, 1, &owner("home", 2)).await.unwrap();
    drop(second);
    sleep(SECOND).await;
    assert_eq!(holder(&here, 1).await, Some(owner("home", 2)));
    drop(again);
}

#[tokio::test(start_paused = true)]
async fn a_process_has_its_address_at_each_of_its_homes_also_if_one_of_them_is_cut_off() {
    let ([a, b], [engine, _]) = two().await;
    let [here, there] = [a.directory(), b.directory()];
    a.log_in("home", 1, 11);
    let first = claim(&here, 1, &owner("home", 1)).await.unwrap();
    // The lease of the node is alive for seconds to come.
    engine.hang(true);
    b.log_in("home", 5, 11);
    let second = claim(&there, 1, &owner("home", 5)).await.unwrap();
    engine.hang(false);
    // The node was only cut off, and goes on as the first home.
    sleep(30 * SECOND).await;
    assert!(timeout(SECOND, a.node.directory().next_lost()).await.is_err());
    assert_eq!(holder(&here, 1).await, Some(owner("home", 1)));
    // Each home frees the address for itself alone.
    drop(first);
    sleep(SECOND).await;
    assert_eq!(holder(&there, 1).await, Some(owner("home", 5)));
    a.log_in("other", 9, 21);
    assert_eq!(claim(&here, 1, &owner("other", 9)).await.unwrap_err(), NotGiven::Taken);
    drop(second);
    drop(insist(&here, 1, &owner("other", 9)).await);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_nobody_waits_for_stays_with_nobody() {
    let ([a, b], _) = two().await;
    a.log_in("home", 1, 11);
    b.log_in("other", 1, 21);
    let [here, there] = [a.directory(), b.directory()];
    for micros in [0, 1_500, 2_500, 10_000] {
        let own = owner("home", 1);
        let waiting = claim(&here, 1, &own);
        drop(timeout(Duration::from_micros(micros), waiting).await);
        sleep(SECOND).await;
        assert!(claim(&there, 1, &owner("other", 1)).await.is_ok(), "{micros} us");
        sleep(SECOND).await;
    }
}

/// Takes the right to order, within 30 s: a release takes some milliseconds.
async fn insist_on_turn(store: &ClusterStore) -> OrderTurn {
    for _ in 0..300 {
        if let Some(turn) = store.take_turn().await {
            return turn;
        }
        sleep(SECOND / 10).await;
    }
    panic!("the right is not freed");
}

#[tokio::test(start_paused = true)]
async fn one_node_at_a_time_may_order_and_a_dead_one_makes_room() {
    let ([a, b], [engine, _]) = two().await;
    let stores = [&a, &b].map(|node| node.node.store().unwrap());
    let turn = stores[0].take_turn().await.unwrap();
    assert!(stores[1].take_turn().await.is_none());
    drop(turn);
    let turn = insist_on_turn(&stores[1]).await;
    assert!(stores[0].take_turn().await.is_none());
    drop(turn);
    // The node is cut off in the middle of an order.
    let turn = insist_on_turn(&stores[0]).await;
    engine.hang(true);
    let theirs = insist_on_turn(&stores[1]).await;
    engine.hang(false);
    drop(turn);
    sleep(20 * SECOND).await;
    assert!(stores[0].take_turn().await.is_none(), "its former right frees nothing");
    drop(theirs);
    drop(insist_on_turn(&stores[0]).await);
}

#[tokio::test(start_paused = true)]
async fn what_one_node_puts_the_other_node_finds() {
    let ([a, b], [engine, _]) = two().await;
    let [here, there] = [&a, &b].map(|node| node.node.store().unwrap());
    let places = || {
        vec![
            SharedPlace::Certificate("a.example".into()),
            SharedPlace::Challenge("tls-alpn-01 a.example".into()),
            SharedPlace::Account("d1".into()),
            SharedPlace::Tickets,
        ]
    };
    assert_eq!(there.get(places()).await, Ok(vec![None; 4]));
    for place in places() {
        let put = async |store: &ClusterStore, value: &'static [u8], expected| {
            store.put(place.clone(), value.into(), expected, None).await
        };
        let first = put(&here, b"1", ExpectedValue::At(None)).await;
        let Ok(PutOutcome::Written(first)) = first else { panic!("{first:?}") };
        assert_eq!(put(&there, b"2", ExpectedValue::At(None)).await, Ok(PutOutcome::Refused));
        let second = put(&there, b"2", ExpectedValue::At(Some(first))).await;
        assert!(matches!(second, Ok(PutOutcome::Written(second)) if second > first));
        assert_eq!(put(&here, b"3", ExpectedValue::At(Some(first))).await, Ok(PutOutcome::Refused));
    }
    let found = here.get(places()).await.unwrap();
    assert!(found.iter().all(|found| found.as_ref().is_some_and(|it| *it.value == *b"2")));
    there.remove(SharedPlace::Tickets).await;
    assert_eq!(here.get(vec![SharedPlace::Tickets]).await, Ok(vec![None]));
    // A response to a challenge goes by itself.
    let (place, keep) = (SharedPlace::Challenge("t".into()), Some(60 * SECOND));
    let put = here.put(place.clone(), b"1"[..].into(), ExpectedValue::Any, keep).await;
    assert!(put.is_ok());
    sleep(60 * SECOND).await;
    eventually(async || there.get(vec![place.clone()]).await == Ok(vec![None])).await;
    engine.hang(true);
    assert_eq!(here.get(places()).await, Err(StoreAway));
}

#[test]
fn processes_that_run_beside_each_other_are_one_process_of_the_cluster() {
    let [one, two] = [1, 2].map(|n| InstanceId([n; 16]));
    assert_eq!(instance_of("home", one, false), Instance(0x0101_0101_0101_0101));
    assert_ne!(instance_of("home", one, false), instance_of("home", two, false));
    assert_eq!(instance_of("home", one, true), instance_of("home", two, true));
    assert_ne!(instance_of("home", one, true), instance_of("work", one, true));
}

#[tokio::test(start_paused = true)]
async fn the_cluster_knows_the_process_in_charge_and_a_process_that_yields_is_refused_for_a_while()
{
    let a = Alone::start("a", MemoryEngine::new()).await;
    let presence = a.node.presence();
    let place = async || {
        let found = a.directory().whereabouts(vec![Subject::Client("home".into())]).await;
        Some(found.ok()?.remove(0)?.owners.first()?.process)
    };
    presence.changed("home", &[process(1, 11, true)], 1);
    eventually(async || place().await == Some(1)).await;
    // A newer process has logged in; the links of the former end one after another.
    presence.changed("home", &[process(1, 11, false), process(2, 12, true)], 2);
    presence.changed("home", &[process(2, 12, true)], 1);
    eventually(async || place().await == Some(2)).await;
    presence.changed("home", &[], 0);
    eventually(async || place().await.is_none()).await;
    assert_eq!(presence.instance("home", 2), None);

    let now = std::time::Instant::now();
    presence.note_yielded("home", Instance(12), now);
    assert!(presence.has_yielded("home", Instance(12), now));
    assert!(!presence.has_yielded("home", Instance(13), now));
    assert!(!presence.has_yielded("work", Instance(12), now));
    assert!(!presence.has_yielded("home", Instance(12), now + 15 * SECOND));
}
