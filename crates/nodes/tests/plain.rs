//! Nodes that reach each other over `tcp://` and prove their names by the secret of the cluster.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

use cluster::record::PeerAddress;
use nodes::{NodeListeners, PeerSettings};

use crate::ground::{
    Ground, TestNode, common, eventually, introduce, node_id, plain_settings, start,
};
use crate::streams::{BOTH, PLAIN, converse};

fn refuses(node: &TestNode, reason: &str) -> bool {
    node.links.refused().is_some_and(|(_, why)| why.contains(reason))
}

/// Waits until each of two nodes has a link to the other.
async fn are_linked(a: &TestNode, b: &TestNode) {
    introduce(&[a, b]);
    a.is_linked_to(&[b]).await;
    b.is_linked_to(&[a]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_another_secret_has_no_links() {
    let a = start("a", &plain_settings(&[1]), 1).await;
    let b = start("b", &plain_settings(&[2]), 1).await;
    introduce(&[&a, &b]);
    for (from, to) in [(&a, &b), (&b, &a)] {
        let trouble = from.trouble(&to.id).await;
        let expected = format!("must be node {}, with the `cluster.secret` of this node", to.id);
        assert!(trouble.contains(&expected), "{trouble}");
        assert!(!from.table.is_linked(&to.id));
        let is_so = async || refuses(to, "does not prove its name by the secret").then_some(());
        eventually("a refusal", is_so).await;
    }
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_node_of_the_cluster_is_not_taken_for_the_node_that_was_dialled() {
    let a = start("a", &plain_settings(&[1]), 1).await;
    let c = start("c", &plain_settings(&[1]), 1).await;
    // The record of b has the address of c.
    let b = node_id("b");
    a.table.set(&[(b.clone(), c.addresses.clone())]);
    let trouble = a.trouble(&b).await;
    assert!(trouble.contains("at this address must be node b"), "{trouble}");
    assert!(!a.table.is_linked(&b));
    let is_so = async || refuses(&c, "has taken this node for another node").then_some(());
    eventually("a refusal", is_so).await;
    a.stop().await;
    c.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_secret_is_replaced_while_nodes_have_links() {
    // All nodes have both secrets in the middle; each step changes one of two nodes.
    for secrets in [[&[1, 2][..], &[1]], [&[1, 2], &[2, 1]], [&[2], &[2, 1]]] {
        let a = start("a", &plain_settings(secrets[0]), 1).await;
        let b = start("b", &plain_settings(secrets[1]), 1).await;
        are_linked(&a, &b).await;
        a.stop().await;
        b.stop().await;
    }
}

#[tokio::test]
async fn a_node_without_a_secret_does_not_listen_in_the_clear() {
    let bind = |settings: &PeerSettings| {
        let bound = NodeListeners::bind(&node_id("a"), settings, &common(), None, 1);
        bound.map(drop).map_err(|error| format!("{error:#}"))
    };
    let error = bind(&plain_settings(&[])).unwrap_err();
    assert!(error.contains("by `cluster.secret`, which is not set"), "{error}");
    let listen = BOTH[..1].iter().map(|url| url.parse().unwrap()).collect();
    let error = bind(&PeerSettings { listen, ..plain_settings(&[1]) }).unwrap_err();
    assert!(error.contains("this node has no certificates"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_go_in_the_clear_only_where_both_nodes_were_set_up_for_it() {
    let ground = Ground::new();
    let (tls, plain) = (&BOTH[..1], &PLAIN[..]);
    let all = [tls, plain].concat();
    let a = ground.start("a", &all, 1).await;
    let b = ground.start("b", tls, 1).await;
    let c = ground.start("c", plain, 1).await;
    introduce(&[&a, &b, &c]);
    // An address with certificates is preferred by all, and a node without `tcp://` dials none.
    for (from, to, transport) in
        [(&a, &b, "tls"), (&b, &a, "tls"), (&a, &c, "tcp"), (&c, &a, "tls")]
    {
        from.is_linked_to(&[to]).await;
        let bytes = format!("{} {}", from.id, to.id).into_bytes();
        assert_eq!(converse(from, 0, to, bytes.clone()).await.unwrap(), bytes);
        assert_eq!(from.status(&to.id).await.transport, Some(transport));
    }
    let trouble = b.trouble(&c.id).await;
    assert!(trouble.contains("does not listen for other nodes at tcp://"), "{trouble}");
    for node in [a, b, c] {
        node.stop().await;
    }
}

/// Passes one connection on, and returns the first bytes of its caller.
fn eavesdrop(to: &str) -> (SocketAddr, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (at, to) = (listener.local_addr().unwrap(), to.to_owned());
    let heard = thread::spawn(move || {
        let (mut near, _) = listener.accept().unwrap();
        let mut far = TcpStream::connect(to).unwrap();
        let (mut heard, mut magic) = (vec![0; 4096], [0; 4]);
        // The magic comes before the nonce of the other node, and Hello and Proof after it.
        near.read_exact(&mut magic).unwrap();
        far.write_all(&magic).unwrap();
        let nonce = far.read(&mut heard).unwrap();
        near.write_all(&heard[..nonce]).unwrap();
        let length = near.read(&mut heard).unwrap();
        far.write_all(&heard[..length]).unwrap();
        let mut back = (far.try_clone().unwrap(), near.try_clone().unwrap());
        // Both end with the nodes.
        thread::spawn(move || io::copy(&mut back.0, &mut back.1));
        thread::spawn(move || io::copy(&mut near, &mut far));
        heard.truncate(length);
        [&magic[..], &heard].concat()
    });
    (at, heard)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proof_that_was_overheard_is_worth_nothing_on_another_connection() {
    let a = start("a", &plain_settings(&[1]), 1).await;
    let b = start("b", &plain_settings(&[1]), 1).await;
    let url = b.addresses[0].url.trim_start_matches("tcp://").to_owned();
    let (at, heard) = eavesdrop(&url);
    let by = PeerAddress { url: format!("tcp://{at}"), pin: None };
    a.table.set(&[(b.id.clone(), vec![by])]);
    a.is_linked_to(&[&b]).await;
    assert!(b.links.refused().is_none());
    let mut again = TcpStream::connect(&url).unwrap();
    again.write_all(&heard.join().unwrap()).unwrap();
    // The refusal comes after the pause of a wrong proof.
    let is_so = async || refuses(&b, "does not prove its name").then_some(());
    eventually("a refusal", is_so).await;
    assert_eq!(b.status(&a.id).await.incoming, 1);
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_carrier_that_is_lost_is_replaced_over_tcp_as_well() {
    let a = start("a", &plain_settings(&[1]), 1).await;
    let b = start("b", &plain_settings(&[1]), 1).await;
    are_linked(&a, &b).await;
    assert_eq!(a.cut(&b).await, 1);
    let bytes = vec![7; 100_000];
    assert_eq!(converse(&a, 0, &b, bytes.clone()).await.unwrap(), bytes);
    assert_eq!(a.table.changes(&b.id), 1, "nobody was told");
    a.stop().await;
    b.stop().await;
}
