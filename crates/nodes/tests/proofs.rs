//! Certificates that prove nothing, or something else.

use std::rc::Rc;
use std::sync::Arc;

use cluster::record::PeerAddress;
use config::Endpoint;
use families::nodes::{NodeCertificates, NodeTransports};
use link::client::{Client, Report, StandbyPath, run};
use link::{Link, Owner, Retry, State};
use node::session::Worker;
use nodes::{NodeListeners, PeerFiles, PeerSettings};
use proto::control::ControlMessage;
use proto::greeting::{Features, Identity, Name};
use proto::{InstanceId, LinkConfig, Open};
use testkit::certs::{Authority, Flaw};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use transport::{Inlet, Outlet};

use crate::ground::{Ground, SOON, TestNode, common, eventually, introduce, node_id};
use crate::streams::{BOTH, converse};

fn bind(name: &str, settings: &PeerSettings) -> Result<Vec<String>, String> {
    let bound = NodeListeners::bind(&node_id(name), settings, &common(), None, 1);
    let urls = |bound: NodeListeners| bound.addresses().into_iter().map(|at| at.url).collect();
    bound.map(urls).map_err(|error| format!("{error:#}"))
}

#[tokio::test]
async fn a_node_does_not_start_with_a_certificate_that_others_refuse() {
    let ground = Ground::new();
    let good = ground.settings(&BOTH, "node:a");
    assert_eq!(bind("a", &good).unwrap().len(), 2);
    let of_client = ground.settings(&BOTH, "a");
    let (folder, other) = (ground.folder.path(), Authority::new("other").unwrap());
    let ca = good.tls.clone().unwrap().ca;
    let with = |authority: &Authority, name: &str, flaw| {
        let (cert, key) = authority.client(&[], name, flaw).unwrap().save(folder, "x").unwrap();
        PeerSettings { tls: Some(PeerFiles { ca: ca.clone(), cert, key }), ..good.clone() }
    };
    for (settings, name, reason) in [
        (good.clone(), "b", "its certificate is that of node:a"),
        (of_client, "a", "its certificate is that of a; it must be"),
        (good.clone(), "a b", "the name of a node is 1 to 59 of"),
        (with(&other, "node:a", Flaw::None), "a", "of another authority"),
    ] {
        let error = bind(name, &settings).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
    let expired = with(&ground.authority, "node:a", Flaw::Expired);
    let error = bind("a", &expired).unwrap_err();
    assert!(error.contains("has expired"), "{error}");
}

#[tokio::test]
async fn an_address_that_nobody_can_dial_is_refused_unless_another_is_advertised() {
    let ground = Ground::new();
    let settings = ground.settings(&["quic://[::]:0"], "node:a");
    let error = bind("a", &settings).unwrap_err();
    assert!(error.contains("name one by `advertise`"), "{error}");
    let advertise: Vec<Endpoint> =
        ["tls://10.0.0.1:7100", "quic://a.example:7100"].map(|url| url.parse().unwrap()).into();
    let named = PeerSettings { advertise, ..settings };
    assert_eq!(bind("a", &named).unwrap(), ["quic://a.example:7100", "tls://10.0.0.1:7100"]);
    let stranger = ground.settings(&["ws://127.0.0.1:0"], "node:a");
    let error = bind("a", &stranger).unwrap_err();
    assert!(error.contains("by quic://, tls:// and tcp://"), "{error}");
}

/// Dials a node as `name` with the certificate of `certificate`, from each of so many programs,
/// until each has heard something: that it has a link (`None`), or why not.
async fn log_in(
    ground: &Ground,
    to: &TestNode,
    (name, certificate): (&str, &str),
    count: usize,
) -> Vec<Option<String>> {
    let PeerFiles { ca, cert, key } = ground.settings(&[], certificate).tls.unwrap();
    let (own, at): (Name, Endpoint) = (name.parse().unwrap(), to.addresses[0].url.parse().unwrap());
    let expected = format!("node:{}", to.id);
    let dial = move |worker: Rc<Worker>| async move {
        let read = NodeCertificates::load(&ca, &cert, &key).unwrap();
        let transports = NodeTransports::new(Some(read));
        let (tell, mut told) = mpsc::channel(1);
        let mut running = JoinSet::new();
        let mut all = Vec::new();
        for _ in 0..count {
            let path = transports.path(&at, (&expected, None), &common(), 0).unwrap();
            let tell = tell.clone();
            let report = move |report: Report<'_>| {
                let said = match report {
                    Report::Unreachable { error, .. } => Some(error.to_string()),
                    Report::Connected { .. } => None,
                    other @ Report::NotBetter { .. } => panic!("{other:?}"),
                };
                // Nobody listens to what follows.
                let _ = tell.try_send(said);
            };
            let client = Client {
                paths: vec![path],
                standby: StandbyPath::Nowhere,
                choice: None,
                spreads: false,
                features: Features::OF_NODE,
                name: own.clone(),
                identity: Identity::Certificate,
                instance: InstanceId([1; 16]),
                logged_in: Arc::default(),
                shares: Arc::default(),
                leaving: Arc::default(),
                retry: Retry { min: SOON * 9, max: SOON * 9 },
                redial: Rc::clone(&worker.state.redial),
                link: LinkConfig::default(),
                budget: Rc::new(worker.state.portion.clone()),
                serials: Arc::default(),
            };
            let linked = run(client, Rc::new(Nobody), Rc::new(|_| {}), Rc::new(report));
            running.spawn_local(linked);
            all.push(told.recv().await.unwrap());
        }
        all
    };
    timeout(SOON, to.workers.handles()[0].task(dial)).await.unwrap().unwrap()
}

/// The owner of a link without streams.
#[derive(Debug)]
struct Nobody;

impl Owner for Nobody {
    fn accept(&self, _: &Link, _: Open, _: Box<dyn Inlet>) -> Rc<dyn Outlet> {
        unreachable!("the node opens no streams here")
    }

    fn message(&self, _: &Link, _: ControlMessage) {}

    fn changed(&self, _: &Link, _: State) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_certificate_of_another_node_logs_in_and_only_by_its_own_name() {
    for listen in [&BOTH[..1], &BOTH[1..]] {
        let ground = Ground::new();
        let a = ground.start("a", listen, 1).await;
        for (name, certificate, told, noted) in [
            // A client of the same authority.
            (
                "laptop",
                "laptop",
                "certificate",
                "its certificate is that of `laptop`; a node shows",
            ),
            // A client that has taken the name of a node.
            ("b", "b", "certificate", "its certificate is that of `b`; a node shows"),
            // A node in the name of another node.
            ("b", "node:c", "certificate", "is that of `node:c`; a node shows"),
            // This node, or another with its name.
            ("a", "node:a", "does not allow this", "it has the name of this node"),
        ] {
            let said = log_in(&ground, &a, (name, certificate), 1).await;
            let said = said[0].as_deref().unwrap();
            assert!(said.contains(told), "{name} {certificate}: {said}");
            refusal(&a, noted).await;
        }
        a.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_address_of_another_node_is_not_taken_for_this_node() {
    for listen in [&BOTH[..1], &BOTH[1..]] {
        let ground = Ground::new();
        let (a, c) = (ground.start("a", listen, 1).await, ground.start("c", listen, 1).await);
        // The record of b has the address of c.
        let b = node_id("b");
        a.table.set(&[(b.clone(), c.addresses.clone())]);
        let trouble = a.trouble(&b).await;
        let expected = "its certificate is that of node:c; at this address must be node b";
        assert!(trouble.contains(expected), "{trouble}");
        assert!(!a.table.is_linked(&b));
        a.stop().await;
        c.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_has_no_more_links_than_it_may_and_leaves_places_to_others() {
    let ground = Ground::new();
    let a = ground.start("a", &BOTH[..1], 1).await;
    let said = log_in(&ground, &a, ("b", "node:b"), 66).await;
    let (linked, refused) = said.split_at(64);
    assert!(linked.iter().all(Option::is_none), "{linked:?}");
    for why in refused {
        assert!(why.as_ref().unwrap().contains("a limit of links"), "{why:?}");
    }
    assert_eq!(log_in(&ground, &a, ("c", "node:c"), 1).await, [None]);
    a.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pin_in_the_record_must_be_that_of_the_certificate() {
    for listen in [&BOTH[..1], &BOTH[1..]] {
        let ground = Ground::new();
        let (a, b) = (ground.start("a", listen, 1).await, ground.start("b", listen, 1).await);
        let [cert, key] =
            ["crt", "key"].map(|end| ground.folder.path().join(format!("node-b.{end}")));
        let right = tls::Identity::load(&cert, &key).unwrap().pin().to_string();
        let wrong = "sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=".to_owned();
        let pinned = |pin: &String| {
            let addresses = b.addresses.iter().cloned();
            addresses.map(|at| PeerAddress { pin: Some(pin.clone()), ..at }).collect::<Vec<_>>()
        };
        a.table.set(&[(b.id.clone(), pinned(&wrong))]);
        let trouble = a.trouble(&b.id).await;
        assert!(trouble.contains("has the pin of another key"), "{trouble}");
        a.table.set(&[(b.id.clone(), pinned(&right))]);
        a.is_linked_to(&[&b]).await;
        assert_eq!(a.status(&b.id).await.trouble, None);
        a.table.set(&[(b.id.clone(), pinned(&"sha256:short".to_owned()))]);
        let trouble = a.trouble(&b.id).await;
        assert!(trouble.contains("the pin of"), "{trouble}");
        a.stop().await;
        b.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_two_authorities_refuse_each_other() {
    for listen in [&BOTH[..1], &BOTH[1..]] {
        let (ground, other) = (Ground::new(), Ground::new());
        let (a, b) = (ground.start("a", listen, 1).await, other.start("b", listen, 1).await);
        introduce(&[&a, &b]);
        let trouble = a.trouble(&b.id).await;
        assert!(trouble.contains("of another authority"), "{trouble}");
        assert!(!a.table.is_linked(&b.id));
        a.stop().await;
        b.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_an_address_and_one_without_a_possible_name_are_told() {
    let ground = Ground::new();
    let (a, b) = (ground.start("a", &BOTH, 1).await, ground.start("b", &BOTH, 1).await);
    let other = PeerAddress { url: "ws://127.0.0.1:1".to_owned(), pin: None };
    let [none, bad, strange] = ["z", "a b", "y"].map(node_id);
    a.table.set(&[
        (b.id.clone(), b.addresses.clone()),
        (none.clone(), Vec::new()),
        (bad.clone(), b.addresses.clone()),
        (strange.clone(), vec![other]),
    ]);
    for (node, reason) in [
        (none, "it has published no address for other nodes"),
        (bad, "it cannot have a certificate: the name of a node is"),
        (strange, "it publishes ws://127.0.0.1:1, and nodes reach each other by"),
    ] {
        let trouble = a.trouble(&node).await;
        assert!(trouble.contains(reason), "{trouble}");
    }
    a.is_linked_to(&[&b]).await;
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewed_certificates_of_another_authority_are_in_force_at_both_ends() {
    for listen in [&BOTH[..1], &BOTH[1..]] {
        let (ground, other) = (Ground::new(), Ground::new());
        let (a, b) = (ground.start("a", listen, 1).await, ground.start("b", listen, 1).await);
        introduce(&[&a, &b]);
        a.is_linked_to(&[&b]).await;
        b.is_linked_to(&[&a]).await;
        let bad = other.settings(&[], "node:c");
        assert!(b.links.renew(&bad).await.unwrap_err().to_string().contains("that of node:c"));
        b.links.renew(&other.settings(&[], "node:b")).await.unwrap();
        let why = b.trouble(&a.id).await;
        assert!(why.contains("its certificate is of another authority"), "{why}");
        a.links.renew(&other.settings(&[], "node:a")).await.unwrap();
        for (from, to) in [(&a, &b), (&b, &a)] {
            let is_well = async || {
                let status = from.status(&to.id).await;
                (status.is_live && status.trouble.is_none() && status.outgoing == 1).then_some(())
            };
            eventually("a new link", is_well).await;
            assert_eq!(converse(from, 0, to, b"renewed".to_vec()).await.unwrap(), b"renewed");
        }
        a.stop().await;
        b.stop().await;
    }
}

/// Waits until this node has refused somebody for this reason.
async fn refusal(node: &TestNode, reason: &str) {
    let is_so = |why: &str| why.contains(reason);
    let refused = async || node.links.refused().filter(|(_, why)| is_so(why)).map(drop);
    eventually(reason, refused).await;
}
