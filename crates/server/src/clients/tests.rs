//! Tests of the changes by a reload, and of the time for which a stranger keeps its name.

use config::{ServerFlags, Sources, Text, load_server};

use super::strangers::{ARRIVES, OF_ONE_SOURCE, STRANGERS_MAX};
use super::*;
use proto::greeting::Refusal;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

const A: &str = "q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi";
const B: &str = "Zt5RkW1xQ8bN4mVc7LpYs2HdJf9GaE3u";

fn config(clients: &str) -> ServerConfig {
    let text = format!(
        "listen: tls://127.0.0.1:7000\ntls: {{ cert: a, key: b, client_ca: c }}\n\
         {}{clients}",
        if clients.starts_with(' ') { "clients:\n" } else { "" }
    );
    let sources = Sources { env: &|_| None, read: &|_| Ok(String::new()) };
    let text = Some(Text { name: "server.yaml", text: &text });
    load_server(text, &ServerFlags::default(), &sources).unwrap().config
}

fn entry(rest: &str) -> String {
    format!("  - {{ name: home, {rest} }}\n")
}

#[test]
fn a_certificate_does_not_stand_in_for_the_token_of_a_client_that_has_one() {
    let clients = Clients::new(&config(&entry(&format!("token: {A}")))).unwrap();
    assert!(!clients.find("home").unwrap().by_certificate);
}

#[test]
fn only_what_is_different_is_another_client() {
    let clients = Clients::new(&config(&entry(&format!("token: {A}")))).unwrap();
    let first = clients.find("home").unwrap();
    let changes = clients.replace(&config(&entry(&format!("token: {A}")))).unwrap();
    assert_eq!(changes, Changes::default());
    assert!(Arc::ptr_eq(&first, &clients.find("home").unwrap()));

    // Rotation: both tokens are valid, then only the new token.
    let home = || vec!["home".to_owned()];
    let changes = clients.replace(&config(&entry(&format!("token: [{A}, {B}]")))).unwrap();
    assert_eq!(changes, Changes { others: home(), ..Changes::default() });
    let both = clients.find("home").unwrap();
    assert_eq!((both.epoch, both.credentials.len()), (first.epoch, 2));
    assert!(Arc::ptr_eq(&first.gate, &both.gate));
    let changes = clients.replace(&config(&entry(&format!("token: {B}")))).unwrap();
    assert_eq!(changes, Changes { credential_gone: home(), ..Changes::default() });
    assert_ne!(clients.find("home").unwrap().epoch, first.epoch);

    let with = |rest: &str| config(&entry(&format!("token: {B}, {rest}")));
    let entrances = Changes { entrances: home(), ..Changes::default() };
    assert_eq!(clients.replace(&with("allow: { tcp: 1000 }")).unwrap(), entrances);
    let before = clients.find("home").unwrap();
    let limited = clients.replace(&with("allow: { tcp: 1000 }, limits: { streams: 5 }"));
    assert_eq!(limited.unwrap(), entrances);
    // The gate counts on: a new limit holds for the streams that live.
    assert!(Arc::ptr_eq(&before.gate, &clients.find("home").unwrap().gate));

    let changes = clients.replace(&config(&format!("  - {{ name: b, token: {A} }}\n"))).unwrap();
    assert_eq!((&changes.added[..], &changes.removed), (&["b".to_owned()][..], &home()));
    assert!(clients.find("home").is_none());
    assert_eq!(changes.lines(), ["client b added", "client home removed: its connections end"]);
}

/// A client that was enrolled by a code.
fn enrolled(tokens: &str) -> ClientGrant {
    let grant = config(&entry(&format!("token: {tokens}"))).clients.remove(0);
    ClientGrant { enrolled: true, ..grant }
}

#[test]
fn a_token_that_nobody_has_used_comes_and_goes_without_harm_to_the_links() {
    const C: &str = "Hs6TgW9zR1cP5oNd8MrQv3JeKf0HbF4u";
    let clients = Clients::new(&config("clients: []\n")).unwrap();
    let put = |tokens: &str| {
        let changes = clients.put(&enrolled(tokens), false).unwrap();
        (changes, clients.find("home").unwrap())
    };
    let (_, first) = put(A);
    assert_eq!((first.enrolled, &first.renewal), (true, &None));
    for tokens in [format!("[{A}, {B}]"), format!("[{A}, {C}]"), A.to_owned()] {
        let (changes, now) = put(&tokens);
        assert_eq!(changes, Changes { others: vec!["home".into()], ..Changes::default() });
        assert_eq!(now.epoch, first.epoch, "{tokens}");
        assert_eq!(now.renewal.as_ref(), now.credentials.get(1));
    }
    put(&format!("[{A}, {B}]"));
    let (changes, now) = put(B);
    assert_eq!(changes.credential_gone, ["home"]);
    assert_ne!(now.epoch, first.epoch);
    assert_eq!((&now.renewal, now.credentials.as_slice()), (&None, &[stored(B)][..]));
    // Both tokens of a client of the configuration may be in use.
    clients.replace(&config(&entry(&format!("token: [{A}, {B}]")))).unwrap();
    assert_eq!(clients.find("home").unwrap().renewal, None);
    let changes = clients.replace(&config(&entry(&format!("token: {A}")))).unwrap();
    assert_eq!(changes.credential_gone, ["home"]);
}

#[test]
fn every_client_is_known_with_where_it_is_from() {
    let clients = Clients::new(&config(&format!(
        "{}allow_any_client: true\n",
        entry(&format!("token: {A}"))
    )))
    .unwrap();
    let of_code = ClientGrant { name: "code".into(), ..enrolled(A) };
    clients.put(&of_code, false).unwrap();
    let answer = ClientGrant { name: "asked".into(), enrolled: false, ..enrolled(B) };
    let until = Instant::now() + ARRIVES;
    clients.learn("asked", Some(&answer), (until, clients.generation()), |_| false).unwrap();
    clients.introduce("any", stored(B), HERE, |_| true, Instant::now()).unwrap();
    let mut known: Vec<_> =
        clients.known().into_iter().map(|known| (known.name, known.from)).collect();
    known.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let expected = [
        ("any", Origin::Any),
        ("asked", Origin::Hook),
        ("code", Origin::Enrolled),
        ("home", Origin::File),
    ];
    assert_eq!(known, expected.map(|(name, from)| (name.to_owned(), from)));
    for (name, from) in expected {
        assert_eq!(clients.known_of(name).unwrap().from, from);
    }
    assert!(clients.known_of("nobody").is_none());
}

#[test]
fn a_stranger_keeps_its_name_while_it_is_connected_and_goes_with_the_permission() {
    let open = |rest: &str| {
        config(&format!("{}allow_any_client: {rest}\n", entry(&format!("token: {A}"))))
    };
    let clients = Clients::new(&open("true")).unwrap();
    let (mine, other) = (stored(A), stored(B));
    let now = Instant::now();
    let introduce = |name: &str, credential: &StoredCredential, connected: bool, now| {
        let introduced = clients.introduce(name, credential.clone(), HERE, |_| connected, now);
        introduced.map_err(Denied::refusal)
    };
    assert_eq!(introduce("home", &other, false, now), Err(Refusal::BadCredential));
    assert_eq!(introduce("guest", &mine, false, now), Ok(()));
    assert_eq!(introduce("guest", &mine, false, now), Ok(()));
    assert_eq!(introduce("guest", &other, false, now), Err(Refusal::BadCredential));
    let later = now + ARRIVES;
    assert_eq!(introduce("guest", &other, true, later), Err(Refusal::BadCredential));
    let epoch = clients.find("guest").unwrap().epoch;
    assert_eq!(introduce("guest", &other, false, later), Ok(()));
    assert_ne!(clients.find("guest").unwrap().epoch, epoch, "another one, who has to be let in");

    let guest = || vec!["guest".to_owned()];
    let changes = clients.replace(&open("{ allow: { tcp: 1000 } }")).unwrap();
    assert_eq!(changes, Changes { entrances: guest(), ..Changes::default() });
    let changes = clients.replace(&open("false")).unwrap();
    assert_eq!(changes, Changes { removed: guest(), ..Changes::default() });
    assert!(clients.find("guest").is_none() && !clients.may_be_any());
    assert_eq!(introduce("guest", &mine, false, later), Err(Refusal::BadCredential));
}

#[test]
fn who_only_introduces_himself_leaves_room_for_others() {
    let clients = Clients::new(&config("allow_any_client: true\n")).unwrap();
    let (mine, now) = (stored(A), Instant::now());
    let introduce = |n: usize, now| {
        let source = IpAddr::from(u32::try_from(n / OF_ONE_SOURCE).unwrap().to_be_bytes());
        clients.introduce(&n.to_string(), mine.clone(), source, |_| false, now)
    };
    for n in 0..STRANGERS_MAX {
        assert_eq!(introduce(n, now), Ok(()));
    }
    assert_eq!(introduce(STRANGERS_MAX, now), Err(Denied::AllAreTaken));
    assert_eq!(introduce(STRANGERS_MAX, now + ARRIVES), Ok(()));
}

#[test]
fn one_source_holds_a_part_of_the_names_and_gets_them_back_when_its_clients_leave() {
    assert_eq!(Denied::SourceIsFull.refusal(), Refusal::Limit);
    for (source, same, other) in [
        ("192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"),
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", "2001:db8:0:2::1"),
    ] {
        let clients = Clients::new(&config("allow_any_client: true\n")).unwrap();
        let (mine, now) = (stored(A), Instant::now());
        let introduce = |name: &str, source: &str, is_connected: bool, now| {
            let source = source.parse().unwrap();
            clients.introduce(name, mine.clone(), source, |_| is_connected, now)
        };
        for n in 0..OF_ONE_SOURCE {
            assert_eq!(introduce(&n.to_string(), source, false, now), Ok(()), "{n}");
        }
        for from in [source, same] {
            assert_eq!(introduce("more", from, false, now), Err(Denied::SourceIsFull), "{from}");
        }
        assert_eq!(introduce("more", other, false, now), Ok(()), "another source");
        assert_eq!(introduce("7", source, false, now), Ok(()), "a name that it has");
        // Connected clients keep their names, and those that never came lose theirs.
        let later = now + ARRIVES;
        assert_eq!(introduce("64", source, true, later), Err(Denied::SourceIsFull));
        assert_eq!(introduce("64", source, false, later), Ok(()));
        // The name of a client that has left is free at once.
        for n in 65..64 + OF_ONE_SOURCE {
            assert_eq!(introduce(&n.to_string(), source, false, later), Ok(()), "{n}");
        }
        assert_eq!(introduce("last", same, false, later), Err(Denied::SourceIsFull));
        clients.forget_stranger("70", |_| false);
        assert_eq!(introduce("last", same, false, later), Ok(()));
    }
}

fn stored(token: &str) -> StoredCredential {
    StoredCredential::of(token).unwrap()
}
