//! Certificates that prove nothing, or something else.

use cluster::names::NodeId;
use config::Endpoint;
use nodes::{NodeListeners, PeerSettings};
use testkit::certs::{Authority, Flaw};

use crate::ground::{Ground, TestNode, common, eventually, introduce, node_id};
use crate::streams::BOTH;

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
    let with = |authority: &Authority, name: &str, flaw| {
        let (cert, key) = authority.client(&[], name, flaw).unwrap().save(folder, "x").unwrap();
        PeerSettings { cert, key, ..good.clone() }
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
    let plain = ground.settings(&["tcp://127.0.0.1:0"], "node:a");
    let error = bind("a", &plain).unwrap_err();
    assert!(error.contains("by quic:// and tls:// alone"), "{error}");
}

/// Waits until this node has refused somebody, and returns the reason.
async fn refused(node: &TestNode) -> String {
    eventually("a refusal", async || node.links.refused().map(|(_, why)| why)).await
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
async fn two_nodes_of_one_name_do_not_link() {
    let ground = Ground::new();
    let (a, twin) = (ground.start("a", &BOTH, 1).await, ground.start("a", &BOTH, 1).await);
    // A third node finds the address of the twin under another name.
    let b = ground.start("b", &BOTH, 1).await;
    let none: (NodeId, Vec<_>) = (node_id("z"), Vec::new());
    b.table.set(&[(a.id.clone(), twin.addresses.clone()), none.clone()]);
    b.is_linked_to(&[&a]).await;
    let trouble = b.trouble(&none.0).await;
    assert!(trouble.contains("no address for other nodes"), "{trouble}");
    for node in [a, twin, b] {
        node.stop().await;
    }
}
