//! Stories about a process of a client with links to several nodes.

use std::time::Duration;

use super::{Scene, client, log_in};
use crate::engine::NoReply;
use crate::keys::RecordPlace;
use crate::names::{Class, Generation, Instance, Key, PortProtocol, Space};
use crate::node::{
    AWAITED, Claimed, LEASE, Located, NodeInput, Output, PATIENCE, RENEWAL, ServerWish, Subject,
    Ticket,
};
use crate::record::{Holding, Record as _};

impl Scene {
    /// The server of a node claims a resource for a process of the first client. Returns the
    /// answer.
    fn claim(
        &mut self,
        at: usize,
        key: &Key,
        instance: u64,
        (about, expected): (&str, Option<Generation>),
    ) -> Claimed {
        let ticket = Ticket(self.writes as u64);
        let (key, client, about) = (key.clone(), client(0), about.to_owned());
        let instance = Instance(instance);
        let wish = ServerWish::Claim { ticket, key, client, instance, about, expected };
        self.outputs(at);
        self.give(at, NodeInput::Wish(wish));
        self.flow();
        let answer = |output: &Output| {
            let Output::Claimed(of, claimed) = output else { return None };
            (*of == ticket).then(|| claimed.clone())
        };
        let outputs = self.outputs(at);
        outputs.iter().find_map(answer).unwrap()
    }

    fn release(&mut self, at: usize, key: &Key, generation: Generation) {
        let key = key.clone();
        self.give(at, NodeInput::Wish(ServerWish::Release { key, generation }));
        self.flow();
    }

    /// The nodes in the record of a resource, and what it says of the services.
    fn holders(&self, key: &Key) -> (Vec<String>, String) {
        let place = self.keys.of(&RecordPlace::Resource(key.clone()));
        let Some(found) = self.store.keys.get(&place) else { return Default::default() };
        let record = Holding::decode(&found.value).unwrap();
        (record.holders().iter().map(|it| it.node.to_string()).collect(), record.about)
    }
}

fn given(claimed: &Claimed) -> Generation {
    match claimed {
        Claimed::Held(generation) => *generation,
        Claimed::Taken { .. } | Claimed::Away => panic!("{claimed:?}"),
    }
}

/// A port, which all nodes follow, and a name, which they do not.
fn resources() -> [Key; 2] {
    let port = Key::Port(PortProtocol::Tcp, Class::Public, 1);
    [port, Key::Host(Space::Http, "app.example".into())]
}

#[test]
fn the_homes_of_a_process_hold_a_resource_together_until_the_last_has_left() {
    for key in resources() {
        let mut scene = Scene::new();
        (0..3).for_each(|at| scene.join(at, 1 + at as u64));
        let first = given(&scene.claim(0, &key, 7, ("a", None)));
        let second = given(&scene.claim(1, &key, 7, ("b", None)));
        let nodes =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(scene.holders(&key), (nodes(&["n0", "n1"]), "b".into()));
        let lost = |output: &Output| matches!(output, Output::Lost { .. });
        assert!(!scene.outputs(0).iter().any(lost), "nobody has lost the resource");
        // The first home knows its first number alone, or the number of the present record.
        let again = scene.claim(0, &key, 7, ("c", Some(first)));
        let now = match again {
            Claimed::Taken { by, generation } => {
                assert_eq!(by.node.to_string(), "n0");
                given(&scene.claim(0, &key, 7, ("c", Some(generation))))
            }
            Claimed::Held(now) => now,
            Claimed::Away => panic!("{again:?}"),
        };
        assert_eq!(scene.holders(&key), (nodes(&["n1", "n0"]), "c".into()));
        // The other home leaves with the number that it knows.
        scene.release(1, &key, second);
        assert_eq!(scene.holders(&key), (nodes(&["n0"]), "c".into()));
        // A release is final, and an old number frees nothing.
        scene.release(1, &key, second);
        assert_eq!(scene.holders(&key).0, nodes(&["n0"]));
        scene.release(0, &key, now);
        assert_eq!(scene.holders(&key).0, nodes(&[]));
    }
}

#[test]
fn a_resource_of_a_home_that_died_belongs_to_the_other_and_to_no_other_client() {
    for key in resources() {
        let mut scene = Scene::new();
        (0..3).for_each(|at| scene.join(at, 1 + at as u64));
        given(&scene.claim(0, &key, 7, ("a", None)));
        given(&scene.claim(1, &key, 7, ("a", None)));
        scene.nodes.remove(&0);
        scene.pass(LEASE * 3);
        let subject = Subject::Resource(key.clone());
        scene.outputs(2);
        scene.give(2, NodeInput::Wish(ServerWish::Find { ticket: Ticket(900), subject }));
        scene.flow();
        let found = scene.found(2);
        assert!(matches!(&found[..], [Located::Held { .. }]), "{found:?}");
        // Another process has to expect the claim.
        let Claimed::Taken { generation, .. } = scene.claim(2, &key, 8, ("b", None)) else {
            panic!("the other home holds it");
        };
        given(&scene.claim(2, &key, 8, ("b", Some(generation))));
        scene.pass(RENEWAL * 2);
        let lost = scene.outputs(1).iter().any(|it| matches!(it, Output::Lost { .. }));
        assert!(lost, "the other home hears that it has lost the resource");
        assert_eq!(scene.holders(&key).0, ["n2"]);
    }
}

#[test]
fn a_claim_that_was_given_up_is_released_also_if_another_home_has_changed_the_record() {
    for key in resources() {
        let mut scene = Scene::new();
        (0..2).for_each(|at| scene.join(at, 1 + at as u64));
        // The engine carries the claim out, and its answer gets lost.
        let node = scene.nodes.get_mut(&0).unwrap();
        node.is_cut = true;
        let (client, about) = (client(0), String::new());
        let (ticket, instance, expected) = (Ticket(900), Instance(7), None);
        let of = key.clone();
        let wish = ServerWish::Claim { ticket, key: of, client, instance, about, expected };
        scene.give(0, NodeInput::Wish(wish));
        let (id, batch) = scene.nodes.get_mut(&0).unwrap().requests.pop_last().unwrap();
        scene.ask(&batch);
        scene.give(0, NodeInput::Answer(id, Err(NoReply::Unknown)));
        given(&scene.claim(1, &key, 7, ("a", None)));
        assert_eq!(scene.holders(&key).0, ["n0", "n1"]);
        scene.pass(PATIENCE);
        assert!(scene.outputs(0).contains(&Output::Claimed(ticket, Claimed::Away)));
        scene.nodes.get_mut(&0).unwrap().is_cut = false;
        scene.pass(RENEWAL);
        assert_eq!(scene.holders(&key).0, ["n1"]);
    }
}

/// Two nodes at which a process has registered the resource, with the same services.
fn at_two_homes(key: &Key) -> Scene {
    let mut scene = Scene::new();
    for at in 0..2 {
        scene.join(at, 1 + at as u64);
    }
    for at in 0..2 {
        given(&scene.claim(at, key, 7, ("a", None)));
    }
    assert_eq!(scene.holders(key).0, ["n0", "n1"]);
    scene
}

#[test]
fn a_home_that_goes_on_in_another_process_leaves_the_other_home_in_the_record() {
    // The first home may not know of the second.
    for (key, at) in resources().into_iter().flat_map(|key| [(key.clone(), 0), (key, 1)]) {
        let other = vec![format!("n{}", 1 - at)];
        // The client comes, and its services are as they were.
        let mut scene = at_two_homes(&key);
        scene.hand_over(at, 3);
        scene.writes = 0;
        let again = given(&scene.claim(at, &key, 7, ("a", None)));
        assert_eq!(scene.writes, 0, "nothing is written");
        assert_eq!(scene.holders(&key).0, ["n0", "n1"]);
        scene.release(at, &key, again);
        assert_eq!(scene.holders(&key), (other.clone(), "a".into()));
        // The services have changed.
        let mut scene = at_two_homes(&key);
        scene.hand_over(at, 3);
        given(&scene.claim(at, &key, 7, ("b", None)));
        let (mut nodes, about) = scene.holders(&key);
        nodes.sort();
        assert_eq!((nodes.join(" "), about), ("n0 n1".into(), "b".into()));
        // The client does not come.
        let mut scene = at_two_homes(&key);
        scene.hand_over(at, 3);
        scene.pass(AWAITED + Duration::from_secs(1));
        assert_eq!(scene.holders(&key), (other, "a".into()));
    }
}

#[test]
fn a_release_that_waits_at_the_change_of_the_process_frees_nothing_of_the_other_home() {
    for key in resources() {
        let mut scene = at_two_homes(&key);
        let held = scene.nodes[&1].node.held().find(|(held, _)| **held == key).unwrap().1;
        // A batch is under way, so the release waits.
        scene.nodes.get_mut(&1).unwrap().is_held = true;
        scene.give(1, log_in(client(1), 1));
        let release = ServerWish::Release { key: key.clone(), generation: held };
        scene.give(1, NodeInput::Wish(release));
        scene.give(1, NodeInput::Wish(ServerWish::HandOver));
        scene.nodes.get_mut(&1).unwrap().is_held = false;
        let left = scene.hand_over(1, 3);
        assert_eq!((left.claims.len(), left.releases.len()), (0, 1));
        scene.pass(RENEWAL);
        assert_eq!(scene.holders(&key), (vec!["n0".to_owned()], "a".into()));
    }
}

#[test]
fn another_process_of_the_client_takes_the_resource_from_both_homes_after_a_change_of_process() {
    for (key, at) in resources().into_iter().flat_map(|key| [(key.clone(), 0), (key, 1)]) {
        let mut scene = at_two_homes(&key);
        scene.hand_over(at, 3);
        let Claimed::Taken { by, generation } = scene.claim(at, &key, 8, ("b", None)) else {
            panic!("the other home holds it");
        };
        assert_eq!(by.node.to_string(), format!("n{}", 1 - at), "a home that lives answers");
        given(&scene.claim(at, &key, 8, ("b", Some(generation))));
        assert_eq!(scene.holders(&key), (vec![format!("n{at}")], "b".into()));
        scene.pass(RENEWAL * 2);
        let lost = |output: &Output| matches!(output, Output::Lost { .. });
        assert!(scene.outputs(1 - at).iter().any(lost));
        // The other home has left before: nobody but the former process has the resource.
        let mut scene = at_two_homes(&key);
        let other = scene.nodes[&(1 - at)].node.held().find(|(held, _)| **held == key).unwrap().1;
        scene.hand_over(at, 3);
        scene.release(1 - at, &key, other);
        given(&scene.claim(at, &key, 8, ("b", None)));
        assert_eq!(scene.holders(&key), (vec![format!("n{at}")], "b".into()));
    }
}
