//! Claims: in which batches they are made, what a client holds, and what a directory that does not
//! answer does to its services.

use std::future::ready;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::directory::model::Outage;
use crate::directory::{ClaimRequest, Claimed, NodeEpoch, Subject, Whereabouts};

fn rig() -> (Rig, Arc<Outage>) {
    let directory = Outage::new();
    (Rig::with(1000, Arc::<Outage>::clone(&directory)), directory)
}

/// The holder of a port at `public_bind`.
async fn holder(directory: &Outage, port: u16) -> Option<Whereabouts> {
    let subject = Subject::Key(port_key(Over::Tcp, port));
    directory.whereabouts(vec![subject]).await.unwrap().remove(0)
}

fn is_open(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_err()
}

#[tokio::test]
async fn services_stay_while_the_directory_is_away_and_new_services_wait() {
    let (rig, directory) = rig();
    let first_port = free_port();
    // The system may give the port that was free a moment ago again.
    let other_port = (0..100).map(|_| free_port()).find(|port| *port != first_port).unwrap();
    let ports = [first_port, other_port];
    let rights = client("allow: { tcp: 1024-65535, http: '*', shared: true }");
    let home = Session::new("home", 1);
    let name = |mut asked: Register, public: &str| {
        let spec = ServiceSpec { public: vec![public.to_owned()], ..asked.services[0].clone() };
        asked.services.push(ServiceSpec { name: Name::new("name").unwrap(), ..spec });
        asked
    };
    let asked = |generation| name(register(generation, &ports[..1]), "http://a.example");
    let first = rig.apply(&home, &rights, asked(1)).await;
    assert!(first.iter().all(Result::is_ok), "{first:?}");

    directory.set_away(true);
    let mut more = asked(2);
    let publics = [format!("tcp://:{}", ports[1]), "tcp://:0".into(), "http://b.example".into()];
    for (nth, public) in publics.iter().enumerate() {
        more = name(more, public);
        let spec = more.services.last_mut().unwrap();
        spec.name = Name::new(&format!("new{nth}")).unwrap();
    }
    let mut shared = shares(1, "http://c.example").services.remove(0);
    shared.name = Name::new("shared").unwrap();
    more.services.push(shared);
    let results = rig.apply(&home, &rights, more.clone()).await;
    assert_eq!(results[..2], first, "the services that the client had");
    for result in &results[2..] {
        assert_eq!(code(result), Some(ServiceErrorCode::Waits), "{results:?}");
    }
    assert!(rig.published.waits(&[Arc::clone(&home)]) && is_open(ports[0]));
    let mut sessions = BTreeMap::from([(home.id, status::Session::default())]);
    rig.published.add_failures(&mut sessions);
    let services = &sessions[&home.id].services;
    assert_eq!(services.len(), 4);
    assert!(services.iter().all(|one| one.state.state() == ServiceState::Waiting), "{services:?}");
    // A newer process takes over under the claims of the former process.
    let newer = Session::new("home", 1);
    let to = Registrant { is_alone: true, ..rig.registrant(&newer, &rights) };
    let turn = rig.published.turn("home").await;
    let results = turn.apply(to, more, held()).await.unwrap().results;
    assert!(results[..2].iter().all(|result| result.outcome.is_ok()), "{results:?}");
    rig.published.withdraw(&home, rig.at()).await;
    assert!(is_open(ports[0]));

    directory.set_away(false);
    let to = Registrant { is_alone: true, ..rig.registrant(&newer, &rights) };
    let results = rig.published.turn("home").await.review(to).await.unwrap().results;
    assert!(results.iter().all(|result| result.outcome.is_ok()), "{results:?}");
    assert!(!rig.published.waits(std::slice::from_ref(&newer)));
    assert_eq!(holder(&directory, ports[0]).await.unwrap().owners[0].process, newer.id);
}

#[tokio::test]
async fn a_registration_claims_once_and_records_its_chosen_ports_once() {
    let (rig, directory) = rig();
    let home = Session::new("home", 1);
    let rights = client("allow: { tcp: 1024-65535 }");
    let ports: Vec<_> = (0..20).map(|_| free_port()).collect::<BTreeSet<_>>().into_iter().collect();
    let results = rig.apply(&home, &rights, register(1, &ports)).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!((directory.claims.load(Relaxed), directory.puts.load(Relaxed)), (1, 0));
    assert_eq!(directory.largest.load(Relaxed), ports.len());
    // What is held is not claimed again.
    rig.apply(&home, &rights, register(2, &ports)).await;
    assert_eq!(directory.claims.load(Relaxed), 1);
    let rights = client("allow: { tcp: 30000-39999 }");
    let results = rig.apply(&home, &rights, register(3, &[0; 50])).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(directory.puts.load(Relaxed), 1);
    rig.apply(&home, &rights, register(4, &[0; 50])).await;
    assert_eq!(directory.puts.load(Relaxed), 1, "nothing has changed");
}

#[tokio::test]
async fn a_client_claims_no_more_than_it_may_publish() {
    let (rig, directory) = rig();
    let home = Session::new("home", 1);
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let ports = [taken.local_addr().unwrap().port(), free_port(), free_port(), free_port()];
    let rights = client("allow: { tcp: 1024-65535 }, limits: { ports: 2 }");
    let results = rig.apply(&home, &rights, register(1, &ports)).await;
    let codes: Vec<_> = results.iter().map(code).collect();
    let (port_taken, limit) = (Some(ServiceErrorCode::PortTaken), Some(ServiceErrorCode::Limit));
    assert_eq!(codes, [port_taken, None, None, limit], "{results:?}");
    assert_eq!(directory.largest.load(Relaxed), 2);
    for (port, is_held) in ports.into_iter().zip([false, true, true, false]) {
        assert_eq!(holder(&directory, port).await.is_some(), is_held, "{port}");
    }
    // A client without the right asks the directory for nothing.
    let before = directory.claims.load(Relaxed);
    let (other, none) = (Session::new("other", 1), client("allow: {}"));
    let results = rig.apply(&other, &none, register(1, &ports)).await;
    assert_eq!(code(&results[0]), Some(ServiceErrorCode::NotAllowed));
    let names = ["http://a.example", "http://b.example", "http://c.example"];
    let few = client("allow: { http: '*' }, limits: { hosts: 1 }");
    rig.apply(&other, &none, named(2, &names)).await;
    assert_eq!(directory.claims.load(Relaxed), before);
    let results = rig.apply(&other, &few, named(3, &names)).await;
    assert_eq!(results.iter().map(code).collect::<Vec<_>>(), [None, limit, limit]);
    assert_eq!(directory.claims.load(Relaxed), before + 1);
}

#[tokio::test]
async fn a_newer_process_has_the_claims_by_new_numbers() {
    let (rig, directory) = rig();
    let port = free_port();
    let rights = client(&format!("allow: {{ tcp: {port} }}"));
    let [first, second] = [(); 2].map(|()| Session::new("home", 1));
    let mut numbers = Vec::new();
    for session in [&first, &second] {
        let to = Registrant { is_alone: true, ..rig.registrant(session, &rights) };
        rig.published.turn("home").await.apply(to, register(1, &[port]), held()).await.unwrap();
        let Whereabouts { owners, generation } = holder(&directory, port).await.unwrap();
        assert_eq!(owners[0].process, session.id);
        numbers.push(generation);
    }
    assert!(numbers[1] > numbers[0]);
    rig.published.withdraw(&first, rig.at()).await;
    assert!(is_open(port) && holder(&directory, port).await.is_some());
    rig.published.withdraw(&second, rig.at()).await;
    assert!(!is_open(port) && holder(&directory, port).await.is_none());
}

#[tokio::test]
async fn an_entrance_closes_at_a_takeover_if_another_owner_has_won_its_resource() {
    let (rig, directory) = rig();
    let port = free_port();
    let rights = client(&format!("allow: {{ tcp: {port} }}"));
    let [first, second] = [(); 2].map(|()| Session::new("home", 1));
    assert!(rig.apply(&first, &rights, register(1, &[port])).await[0].is_ok());
    let Whereabouts { generation, .. } = holder(&directory, port).await.unwrap();
    // The claim of a process of the client at another server.
    let owner = Owner { client: "home".into(), process: 1, node: NodeEpoch(7) };
    let (key, expected) = (port_key(Over::Tcp, port), Some(generation));
    let won = directory
        .claim(vec![ClaimRequest { key, owner: owner.clone(), expected, about: "".into() }])
        .await;
    assert!(matches!(won[..], [Claimed::Held(_)]));
    let to = Registrant { is_alone: true, ..rig.registrant(&second, &rights) };
    let turn = rig.published.turn("home").await;
    let results = turn.apply(to, register(1, &[port]), held()).await.unwrap().results;
    assert_eq!(code(&results[0].outcome), Some(ServiceErrorCode::PortTaken), "{results:?}");
    assert!(!is_open(port));
    assert_eq!(holder(&directory, port).await.unwrap().owners, [owner]);
}

#[tokio::test]
async fn a_former_process_waits_for_the_registration_of_a_higher_number() {
    let (rig, _) = rig();
    let rights = client("allow: { tcp: 1024-65535 }");
    let [oldest, first, second] = [(); 3].map(|()| Session::new("home", 1));
    rig.published.succeeded("home", first.id).await;
    rig.apply(&first, &rights, register(1, &[free_port()])).await;
    let mut succeeded = pin!(rig.published.succeeded("home", first.id));
    let is_done = async |waiting: &mut Pin<&mut dyn Future<Output = ()>>| {
        tokio::select! { biased; () = waiting.as_mut() => true, () = ready(()) => false }
    };
    let mut waiting: Pin<&mut dyn Future<Output = ()>> = succeeded.as_mut();
    assert!(!is_done(&mut waiting).await);
    rig.apply(&oldest, &rights, register(1, &[])).await;
    assert!(!is_done(&mut waiting).await, "an earlier process");
    rig.apply(&second, &rights, register(1, &[])).await;
    assert!(is_done(&mut waiting).await);
    rig.published.succeeded("home", oldest.id).await;
}

#[tokio::test]
async fn a_shared_port_is_claimed_for_a_client_that_serves_it() {
    let (rig, directory) = rig();
    let port = free_port();
    let public = format!("tcp://127.0.0.1:{port}");
    let rights = client(&format!("allow: {{ tcp: {port}, shared: true }}"));
    let [home, office] = ["home", "office"].map(|name| Session::new(name, 1));
    for session in [&home, &office] {
        assert!(rig.apply(session, &rights, shares(1, &public)).await[0].is_ok());
    }
    let owner = async || holder(&directory, port).await.map(|found| found.owners[0].process);
    assert_eq!(owner().await, Some(home.id));
    rig.published.withdraw(&home, rig.at()).await;
    assert_eq!(owner().await, Some(office.id));
    rig.published.withdraw(&office, rig.at()).await;
    assert_eq!(owner().await, None);
}
