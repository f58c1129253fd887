mod claims;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::num::NonZeroUsize;

use config::{Over, ServerFlags, Sources, Text};
use link::{Lease, ProcessBudget};
use proto::Redirect;
use proto::control::{ServiceErrorCode, ServiceSpec, ServiceTerms};
use proto::greeting::Name;
use termination::{Acme, Settings, Terminator};
use testkit::certs::Authority;
use testkit::stage::free_port;

use super::super::super::clients::Clients;
use super::super::super::directory::{Claim, Class, Key, Local, NodeEpoch, Owner};
use super::address::Outcome;
use super::*;
use crate::clients::Client;
use crate::private::PrivateServices;
use node::memory;
use node::names::Space;
use node::session::{State, Workers};

/// Clients whose entries have these names and lines.
fn clients(entries: &[(&str, &str)]) -> Clients {
    let mut text = "listen: tcp://127.0.0.1:0\npublic_bind: 127.0.0.1\nclients:\n".to_owned();
    for (name, lines) in entries {
        text += &format!(
            "  - {{ name: {name}, token: q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ, {lines} }}\n"
        );
    }
    let sources = Sources { env: &|_| None, read: &|_| Ok(String::new()) };
    let text = Some(Text { name: "server.yaml", text: &text });
    let config = config::load_server(text, &ServerFlags::default(), &sources);
    Clients::new(&config.unwrap().config).unwrap()
}

/// A client whose entry has these lines.
fn client(lines: &str) -> Arc<Client> {
    clients(&[("home", lines)]).find("home").unwrap()
}

fn workers() -> Workers {
    let budget = ProcessBudget::new(16 << 20);
    let one = NonZeroUsize::MIN;
    Workers::start(one, move |_| State::new(memory::lease(&budget, one))).unwrap()
}

/// A registration of services `s0`, `s1` and so on, at these ports.
fn register(generation: u64, ports: &[u16]) -> Register {
    let spec = |(n, port): (usize, &u16)| ServiceSpec {
        name: Name::new(&format!("s{n}")).unwrap(),
        public: vec![format!("tcp://127.0.0.1:{port}")],
        terms: ServiceTerms { resume: false, ..ServiceTerms::default() },
    };
    Register {
        generation,
        services: ports.iter().enumerate().map(spec).collect(),
        leaving: false,
        standby: false,
    }
}

struct Rig {
    published: Published,
    workers: Workers,
    hosts: Hosts,
    clients: Clients,
    private: PrivateServices,
}

impl Rig {
    fn new(descriptors: usize) -> Self {
        Self::with(descriptors, Arc::new(Local::new(None)))
    }

    fn with(descriptors: usize, directory: Arc<dyn Directory>) -> Self {
        let bind = Ipv4Addr::LOCALHOST.into();
        let published = Published::new((descriptors, descriptors), directory, bind);
        let hosts = Hosts::new(Some("example.com"), None);
        hosts.set_ports(Some(80), Some(8443));
        let private = PrivateServices::default();
        Self { published, workers: workers(), hosts, clients: clients(&[]), private }
    }

    fn at(&self) -> (&[Handle], &Hosts) {
        (self.workers.handles(), &self.hosts)
    }

    /// A process of the client beside others.
    fn registrant<'a>(&'a self, session: &'a Arc<Session>, client: &'a Client) -> Registrant<'a> {
        Registrant {
            session,
            client,
            is_alone: false,
            outranked_by: &[],
            is_known: true,
            public_bind: Ipv4Addr::LOCALHOST.into(),
            hosts: &self.hosts,
            clients: &self.clients,
            private: &self.private,
            handles: self.workers.handles(),
        }
    }

    async fn apply(
        &self,
        session: &Arc<Session>,
        client: &Client,
        register: Register,
    ) -> Vec<Outcome<Vec<String>>> {
        let results = self.results(session, client, register).await;
        results.into_iter().map(|result| result.outcome).collect()
    }

    async fn results(
        &self,
        session: &Arc<Session>,
        client: &Client,
        register: Register,
    ) -> Vec<ServiceResult> {
        let to = self.registrant(session, client);
        let turn = self.published.turn(&session.name).await;
        turn.apply(to, register, held()).await.unwrap().results
    }
}

/// A port at `public_bind`.
const fn port_key(over: Over, port: u16) -> Key {
    Key::Port(over, Class::Public, port)
}

/// The memory of a registration.
fn held() -> Held {
    Lease::new(ProcessBudget::new(1 << 20)).hold(1)
}

#[tokio::test]
async fn a_refusal_names_the_command_that_permits_the_port_where_it_can() {
    let rig = Rig::new(100);
    let (session, client) = (Session::new("home", 1), client("allow: {}"));
    for (generation, is_known, public, end) in [
        (1, true, "tcp://:22", ", or run there: tunnel allow home --tcp 22"),
        (2, true, "tcp://[::1]:22", ", or run there: tunnel allow home --tcp '[::1]:22'"),
        (3, false, "tcp://:22", "add `22` to `allow.tcp` of this client on the server"),
    ] {
        let mut register = register(generation, &[22]);
        register.services[0].public = vec![public.to_owned()];
        let to = Registrant {
            session: &session,
            client: &client,
            is_alone: true,
            outranked_by: &[],
            is_known,
            public_bind: Ipv4Addr::LOCALHOST.into(),
            hosts: &rig.hosts,
            clients: &rig.clients,
            private: &rig.private,
            handles: rig.workers.handles(),
        };
        let results = rig.published.turn("home").await.apply(to, register, held()).await.unwrap();
        let why = results.results[0].outcome.as_ref().unwrap_err();
        assert!(why.text.ends_with(end), "{}", why.text);
    }
}

fn code(outcome: &Outcome<Vec<String>>) -> Option<ServiceErrorCode> {
    outcome.as_ref().err().map(|error| error.code)
}

#[tokio::test]
async fn tcp_and_udp_share_a_port_number_and_tcp_alone_does_not() {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let _socket = UdpSocket::bind(address).unwrap();
    let rig = Rig::new(100);
    let client = client(&format!("allow: {{ tcp: {} }}", address.port()));
    let [session, other] = ["home", "other"].map(|name| Session::new(name, 1));
    let [tcp, udp] = [Over::Tcp, Over::Udp].map(|over| port_key(over, address.port()));
    let directory = &rig.published.directory;
    let owner = Owner { client: "other".into(), process: other.id, node: NodeEpoch::HERE };
    let _udp = Claim::new(directory, (udp, "".into()), &owner).await.unwrap();

    let results = rig.apply(&session, &client, register(1, &[address.port()])).await;
    assert_eq!(results, [Ok(vec![format!("tcp://{address}")])]);
    let results = rig.apply(&other, &client, register(1, &[address.port()])).await;
    assert_eq!(code(&results[0]), Some(ServiceErrorCode::PortTaken));
    assert!(rig.published.turn("home").await.mine.has(tcp));
    rig.published.withdraw(&session, rig.at()).await;
    assert!(rig.published.clients.lock().unwrap().keys().eq(["other"]), "home has no port");
    let results = rig.apply(&other, &client, register(2, &[address.port()])).await;
    assert!(results[0].is_ok(), "{results:?}");
}

#[tokio::test]
async fn a_client_that_opens_its_ports_delays_no_other_client() {
    let rig = Rig::new(100);
    let other = Session::new("other", 1);
    let port = free_port();
    let _home = rig.published.turn("home").await;
    let rights = client(&format!("allow: {{ tcp: {port} }}"));
    let results = rig.apply(&other, &rights, register(1, &[port])).await;
    assert!(results[0].is_ok(), "{results:?}");
    rig.published.add_failures(&mut BTreeMap::new());
}

#[tokio::test]
async fn published_ports_leave_descriptors_to_others() {
    let rig = Rig::new(2);
    let session = Session::new("home", 1);
    let rights = client("allow: { tcp: 1024-65535 }");
    let results = rig.apply(&session, &rights, register(1, &[0, 0, 0])).await;
    assert!(results[0].is_ok() && results[1].is_ok(), "{results:?}");
    assert_eq!(code(&results[2]), Some(ServiceErrorCode::Limit));
    let text = results[2].as_ref().unwrap_err().to_string();
    assert!(text.contains("LimitNOFILE"), "{text}");
}

#[tokio::test]
async fn a_client_has_as_many_ports_as_it_has_rights_to_and_no_more_than_its_limit() {
    let rig = Rig::new(100);
    let free = [free_port(), free_port(), free_port()];
    let few = format!("allow: {{ tcp: {free:?} }}, limits: {{ ports: unlimited }}");
    for (lines, ports, limit) in [
        ("allow: { tcp: 20000-29999 }, limits: { ports: 2 }", 4, 2),
        ("allow: { tcp: 20000-29999 }, limits: { ports: unlimited }", 4, 4),
        (&few, 4, 3),
    ] {
        let session = Session::new("home", 1);
        let results = rig.apply(&session, &client(lines), register(1, &vec![0; ports])).await;
        let open = results.iter().filter(|outcome| outcome.is_ok()).count();
        assert_eq!(open, limit, "{lines}: {results:?}");
    }
    let text = |lines: &str| client(lines).ports;
    assert_eq!(text("allow: { tcp: 1024-65535 }"), 1024);
    assert_eq!(text("allow: { tcp: [10000-10099, 22] }"), 101);
    assert_eq!(text("allow: { tcp: 1-9999 }, limits: { ports: unlimited }"), u32::MAX);
    assert_eq!(text("limits: { ports: 5 }"), 5);
}

#[tokio::test]
async fn ports_that_the_server_chose_differ_and_stay() {
    let rig = Rig::new(1000);
    let session = Session::new("home", 1);
    let rights = client("allow: { tcp: 30000-39999 }");
    let first = rig.apply(&session, &rights, register(1, &[0; 100])).await;
    let ports: BTreeSet<_> = first.iter().map(|outcome| outcome.clone().unwrap()).collect();
    assert_eq!(ports.len(), 100);
    assert_eq!(rig.apply(&session, &rights, register(2, &[0; 100])).await, first);
}

#[tokio::test]
async fn a_service_keeps_its_port_while_it_and_the_server_are_away() {
    let dir = tempfile::tempdir().unwrap();
    let rig = || {
        let directory = Arc::new(Local::new(Some(dir.path())));
        (Rig::with(100, Arc::<Local>::clone(&directory)), directory)
    };
    let rights = client("allow: { tcp: 23000-23999 }");
    let named = |generation, services: &[&str]| {
        let mut register = register(generation, &vec![0; services.len()]);
        for (spec, name) in register.services.iter_mut().zip(services) {
            spec.name = Name::new(name).unwrap();
        }
        register
    };
    let (first, kept) = rig();
    let home = Session::new("home", 1);
    let results = first.apply(&home, &rights, named(1, &["a", "b", "c"])).await;
    first.published.withdraw(&home, first.at()).await;
    // Another client, and another service of the same client, do not take a port that is kept.
    let other = Session::new("other", 1);
    let others = first.apply(&other, &rights, named(1, &["a"])).await;
    assert!(others[0].is_ok() && !results.contains(&others[0]), "{others:?}");
    let back = first.apply(&home, &rights, named(2, &["d", "c", "a"])).await;
    assert_eq!([&back[1], &back[2]], [&results[2], &results[0]]);
    assert!(!results.contains(&back[0]), "{back:?}");
    first.published.close_all(first.at()).await;
    // The file is written on a blocking thread.
    kept.flush();

    let (second, kept) = rig();
    let home = Session::new("home", 1);
    let back = second.apply(&home, &rights, named(1, &["b", "a"])).await;
    assert_eq!([&back[0], &back[1]], [&results[1], &results[0]]);
    second.published.forget("home").await;
    kept.flush();
    let (third, _) = rig();
    assert!(third.published.chosen.read().await.unwrap().of("home", "a").is_empty());
}

/// A registration of services under these names.
fn named(generation: u64, names: &[&str]) -> Register {
    let mut register = register(generation, &vec![0; names.len()]);
    for (spec, name) in register.services.iter_mut().zip(names) {
        spec.public = vec![(*name).to_owned()];
    }
    register
}

#[tokio::test]
async fn a_name_has_one_client_and_leads_to_its_service() {
    let rig = Rig::new(100);
    let (home, other) = (Session::new("home", 1), Session::new("other", 1));
    let rights = client("allow: { http: '*.example.org', tls: vpn.example.org }");
    let results = rig
        .apply(&home, &rights, named(1, &["http://App.example.org", "tls://vpn.example.org"]))
        .await;
    assert_eq!(
        results,
        [
            Ok(vec!["http://app.example.org".to_owned()]),
            Ok(vec!["tls://vpn.example.org:8443".to_owned()])
        ]
    );
    let found = rig.hosts.names.find(Space::Http, "app.example.org").unwrap();
    assert_eq!(found[0].entrance.name(), "s0");
    let results = rig.apply(&other, &rights, named(1, &["http://app.example.org"])).await;
    assert_eq!(code(&results[0]), Some(ServiceErrorCode::NameTaken));
    rig.published.withdraw(&home, rig.at()).await;
    assert!(rig.hosts.names.find(Space::Http, "app.example.org").is_none());
    let results = rig.apply(&other, &rights, named(2, &["http://app.example.org"])).await;
    assert!(results[0].is_ok(), "{results:?}");
}

#[tokio::test]
async fn a_name_needs_a_right_and_a_refusal_names_the_command() {
    let rig = Rig::new(100);
    let home = Session::new("home", 1);
    let rights = client("allow: { http: app.example.org }, limits: { hosts: 1 }");
    let asked = ["http://b.example.org", "http://*.example.org", "tls://app.example.org"];
    let results = rig.apply(&home, &rights, named(1, &asked)).await;
    let ends = ["--http b.example.org", "--http '*.example.org'", "--tls app.example.org"];
    for (results, end) in results.iter().zip(ends) {
        let error = results.as_ref().unwrap_err();
        assert_eq!(error.code, ServiceErrorCode::NotAllowed);
        assert!(error.text.ends_with(end), "{}", error.text);
    }
    let two = ["http://app.example.org", "https://app.example.org"];
    let results = rig.apply(&home, &rights, named(2, &two)).await;
    assert!(results[0].is_ok());
    assert_eq!(code(&results[1]), Some(ServiceErrorCode::Limit));
}

#[tokio::test]
async fn a_refused_address_does_not_hide_the_others_of_its_service() {
    let rig = Rig::new(100);
    let home = Session::new("home", 1);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (taken, free) = (listener.local_addr().unwrap().port(), free_port());
    let (none, some) = ("http://b.example.org".to_owned(), "http://a.example.org".to_owned());
    let at = |port: u16| format!("tcp://127.0.0.1:{port}");
    let register = |generation, public: &[&String]| {
        let mut register = named(generation, &["http://x"]);
        register.services[0].public = public.iter().map(|text| (*text).clone()).collect();
        register
    };
    let rights = client(&format!("allow: {{ http: a.example.org, tcp: [{taken}, {free}] }}"));
    let (other, own) = (at(taken), at(free));
    let codes = |result: &ServiceResult| -> Vec<_> {
        result.refused.iter().map(|one| (one.address.clone(), one.error.code)).collect()
    };
    let refused = [
        (none.clone(), ServiceErrorCode::NotAllowed),
        (other.clone(), ServiceErrorCode::PortTaken),
    ];
    for (generation, public) in
        [[&none, &some, &other, &own], [&own, &none, &other, &some]].iter().enumerate()
    {
        let results = rig.results(&home, &rights, register(generation as u64 + 1, public)).await;
        let mut up = results[0].outcome.clone().unwrap();
        up.sort_unstable();
        assert_eq!((up, codes(&results[0])), (vec![some.clone(), own.clone()], refused.to_vec()));
        assert!(rig.hosts.names.find(Space::Http, "a.example.org").is_some());
        assert!(std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, free)).is_ok());
    }
    let mut sessions = BTreeMap::from([(home.id, status::Session::default())]);
    rig.published.add_failures(&mut sessions);
    let shown: Vec<_> = sessions[&home.id].services.iter().map(|one| &*one.address).collect();
    assert_eq!(shown, [&none, &other]);

    // Without an address that is up, the service has the first reason, and each address its own.
    let results = rig.results(&home, &rights, register(3, &[&other, &none])).await;
    assert_eq!(code(&results[0].outcome), Some(ServiceErrorCode::PortTaken));
    let reversed: Vec<_> = refused.iter().rev().cloned().collect();
    assert_eq!(codes(&results[0]), reversed);
    let results = rig.results(&home, &rights, register(4, &[&none])).await;
    assert!(results[0].outcome.is_err() && results[0].refused.is_empty());
}

#[tokio::test]
async fn pass_through_needs_a_right() {
    let rig = Rig::new(100);
    let home = Session::new("home", 1);
    let asked = |generation| {
        let mut asked = named(generation, &["http://app.example.org"]);
        asked.services[0].terms.http.pass_through = true;
        asked
    };
    let without = client("allow: { http: app.example.org }");
    let results = rig.apply(&home, &without, asked(1)).await;
    let error = results[0].as_ref().unwrap_err();
    assert_eq!(error.code, ServiceErrorCode::NotAllowed);
    assert!(error.text.contains("add `pass_through: true` to `allow`"), "{}", error.text);
    assert!(rig.hosts.names.find(Space::Http, "app.example.org").is_none());
    let with = client("allow: { http: app.example.org, pass_through: true }");
    let results = rig.apply(&home, &with, asked(2)).await;
    assert!(results[0].is_ok(), "{results:?}");
}

#[tokio::test]
async fn services_of_one_client_share_a_name_by_their_paths() {
    let rig = Rig::new(100);
    let home = Session::new("home", 1);
    let rights = client("allow: { http: app.example.org, tls: app.example.org }");
    let name = "http://app.example.org";
    let mut register = named(1, &[name, name, name]);
    register.services[0].terms.http.path = Some("/api".to_owned());
    let results = rig.apply(&home, &rights, register).await;
    assert!(results[0].is_ok() && results[1].is_ok(), "{results:?}");
    assert_eq!(code(&results[2]), Some(ServiceErrorCode::NameTaken));
    let found = rig.hosts.names.find(Space::Http, "app.example.org").unwrap();
    let paths: Vec<_> = found.iter().map(|one| one.path.as_deref()).collect();
    assert_eq!(paths, [Some("/api"), None]);
    // TLS of a host ends at the server or passes through.
    let both = named(2, &["tls://app.example.org", "https://app.example.org"]);
    let results = rig.apply(&home, &rights, both).await;
    assert!(results[0].is_ok(), "{results:?}");
    assert_eq!(code(&results[1]), Some(ServiceErrorCode::NameTaken));
    let changed = named(3, &["https://app.example.org"]);
    let results = rig.apply(&home, &rights, changed).await;
    assert!(results[0].is_ok(), "{results:?}");
    assert!(rig.hosts.names.find(Space::Http, "app.example.org").is_none());
}

#[tokio::test]
async fn each_client_has_a_name_of_its_own_in_the_domain() {
    let rig = Rig { clients: clients(&[("home", ""), ("web-home", "")]), ..Rig::new(100) };
    let (home, other) = (Session::new("home", 1), Session::new("web-home", 1));
    let rights = client("allow: {}");
    let asked = ["http://home", "http://api-home.example.com", "http://web-home", "http://other"];
    let results = rig.apply(&home, &rights, named(1, &asked)).await;
    assert_eq!(results[0], Ok(vec!["http://home.example.com".to_owned()]));
    assert!(results[1].is_ok(), "{results:?}");
    // It is the own name of another client.
    assert_eq!(code(&results[2]), Some(ServiceErrorCode::NameTaken));
    assert_eq!(code(&results[3]), Some(ServiceErrorCode::NotAllowed));
    let results = rig.apply(&other, &rights, named(1, &["http://web-home"])).await;
    assert!(results[0].is_ok(), "{results:?}");
}

/// Ends TLS for every name below example.com, by certificates that it would order.
fn terminator() -> Arc<Terminator> {
    let dir = tempfile::tempdir().unwrap();
    let acme = Acme {
        directory: "https://ca.example/dir".to_owned(),
        names: vec!["*.example.com".to_owned()],
        ca: Some(Authority::new("test").unwrap().save(dir.path()).unwrap()),
        ..Acme::default()
    };
    let settings = Settings {
        acme: vec![acme],
        state_dir: Some(dir.path().to_owned()),
        doors: termination::Doors { http: true, tls: true },
        ..Settings::default()
    };
    Terminator::new(&settings).unwrap()
}

#[tokio::test]
async fn an_own_name_is_https_where_the_server_ends_tls_for_it() {
    let hosts = Hosts::new(Some("example.com"), Some(terminator()));
    hosts.set_ports(Some(80), Some(8443));
    let mut rig = Rig { hosts, ..Rig::new(100) };
    let (home, rights) = (Session::new("home", 1), client("allow: { http: '*.example.com' }"));
    let own = ["http://home", "http://api-home.example.com"];
    let asked = [own[0], own[1], "http://app.example.com"];
    let results = rig.apply(&home, &rights, named(1, &asked)).await;
    let at = |text: &str| Ok(vec![text.to_owned()]);
    assert_eq!(results[0], at("https://home.example.com:8443"));
    assert_eq!(results[1], at("https://api-home.example.com:8443"));
    assert_eq!(results[2], at("http://app.example.com"), "a whole name stays as it was asked for");
    assert!(rig.hosts.names.find(Space::Http, "home.example.com").is_none());
    // Who asks for both has both.
    let both = ["http://home", "https://home"];
    let results = rig.apply(&home, &rights, named(2, &both)).await;
    assert_eq!(results, [at("http://home.example.com"), at("https://home.example.com:8443")]);
    // Services that are reached over HTTP on purpose.
    let (mut plain, mut sends) = (named(3, &own[..1]), named(4, &own[..1]));
    plain.services[0].terms.http.no_https_redirect = true;
    sends.services[0].terms.http.redirect =
        Some(Redirect::new("https://home.example.com").unwrap());
    for register in [plain, sends] {
        let results = rig.apply(&home, &rights, register).await;
        assert_eq!(results, [at("http://home.example.com")]);
    }
    rig.hosts.set_redirects(false);
    let results = rig.apply(&home, &rights, named(5, &own[..1])).await;
    assert_eq!(results, [at("http://home.example.com")], "`http.redirect: false`");
    // Without a port for TLS, and without a certificate.
    for (terminator, tls) in [(Some(terminator()), None), (None, Some(8443))] {
        rig.hosts = Hosts::new(Some("example.com"), terminator);
        rig.hosts.set_ports(Some(80), tls);
        let results = rig.apply(&home, &rights, named(6, &own[..1])).await;
        assert_eq!(results, [at("http://home.example.com")], "{tls:?}");
    }
}

#[tokio::test]
async fn a_name_without_a_domain_is_refused_with_the_key_that_gives_it_one() {
    let rig = Rig { hosts: Hosts::new(None, None), ..Rig::new(100) };
    rig.hosts.set_ports(Some(443), Some(443));
    let home = Session::new("home", 1);
    for rights in [client("allow: {}"), client("allow: { http: demo-home }")] {
        let results = rig.apply(&home, &rights, named(1, &["http://demo-home"])).await;
        let why = results[0].as_ref().unwrap_err().to_string();
        assert!(why.contains("http: { domain: ") && !why.contains("tunnel allow"), "{why}");
    }
}

#[tokio::test]
async fn a_server_without_doors_says_what_is_missing() {
    let rig = Rig { hosts: Hosts::new(None, None), ..Rig::new(100) };
    let home = Session::new("home", 1);
    let rights = client("allow: { http: '*', tls: '*' }");
    let results =
        rig.apply(&home, &rights, named(1, &["http://a.example", "tls://a.example"])).await;
    for (results, key) in results.iter().zip(["http: { listen:", "tls_routes: { listen:"]) {
        let error = results.as_ref().unwrap_err();
        assert!(error.code == ServiceErrorCode::BadAddress && error.text.contains(key), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_may_come_back_unless_its_client_has_dropped_it_alone() {
    let rig = Rig::new(100);
    let home = Session::new("home", 1);
    let rights = client("allow: { http: '*' }");
    // The time after the start of the server is over.
    tokio::time::advance(std::time::Duration::from_secs(60)).await;
    let [a, b] = ["http://a.example", "http://b.example"];
    let is_awaited = |host| rig.hosts.names.is_awaited(Space::Http, host);
    rig.apply(&home, &rights, named(1, &[a, b])).await;
    rig.apply(&home, &rights, named(2, &[a])).await;
    assert!(!is_awaited("b.example") && !is_awaited("a.example"));
    rig.apply(&home, &rights, named(3, &[])).await;
    assert!(is_awaited("a.example") && !is_awaited("b.example"));
}

#[tokio::test(start_paused = true)]
async fn a_name_is_known_after_its_client_left_unless_it_is_withdrawn_or_meant_to_end() {
    let rig = Rig::new(100);
    rig.hosts.remember_for(std::time::Duration::from_secs(86_400));
    // The time after the start of the server is over.
    tokio::time::advance(std::time::Duration::from_secs(60)).await;
    let rights = client("allow: { http: '*' }");
    let [a, b, c] = ["http://a.example", "http://b.example", "http://c.example"];
    let is_away = |name: &str| {
        let host = name.strip_prefix("http://").unwrap();
        rig.hosts.names.away(Space::Http, host).is_some()
    };
    let home = Session::new("home", 1);
    let mut both = named(1, &[a, b]);
    both.services[1].terms.ephemeral = true;
    rig.apply(&home, &rights, both).await;
    assert!(!is_away(a), "its client is here");
    rig.published.withdraw(&home, rig.at()).await;
    assert!(is_away(a) && !is_away(b), "the second service was meant to end");

    // The client comes back, and stops.
    let home = Session::new("home", 1);
    rig.apply(&home, &rights, named(1, &[a, c])).await;
    assert!(!is_away(a) && !is_away(c));
    let leaving = Register { generation: 2, services: Vec::new(), leaving: true, standby: false };
    rig.apply(&home, &rights, leaving).await;
    assert!(is_away(a) && is_away(c));

    // It withdraws one name, and then all.
    rig.apply(&home, &rights, named(3, &[a])).await;
    assert!(!is_away(c));
    rig.apply(&home, &rights, named(4, &[])).await;
    assert!(!is_away(a));

    // It has no right any more.
    rig.apply(&home, &rights, named(5, &[a])).await;
    let results = rig.apply(&home, &client("allow: {}"), named(6, &[a])).await;
    assert_eq!(code(&results[0]), Some(ServiceErrorCode::NotAllowed));
    assert!(!is_away(a));

    // Another client takes a name at once, and keeps it when the first client comes back.
    rig.apply(&home, &rights, named(7, &[a])).await;
    rig.published.withdraw(&home, rig.at()).await;
    assert!(is_away(a));
    let other = Session::new("other", 1);
    let results = rig.apply(&other, &rights, named(1, &[a])).await;
    assert!(results[0].is_ok() && !is_away(a), "{results:?}");
    let home = Session::new("home", 1);
    let results = rig.apply(&home, &rights, named(1, &[a])).await;
    assert_eq!(code(&results[0]), Some(ServiceErrorCode::NameTaken));
    rig.published.withdraw(&other, rig.at()).await;
    let owners: Vec<_> = rig.hosts.names_away().into_iter().map(|name| name.client).collect();
    assert_eq!(owners, ["other".into()]);
}

/// A registration of a shared service at this address.
fn shares(generation: u64, public: &str) -> Register {
    let mut register = register(generation, &[1]);
    let spec = &mut register.services[0];
    spec.public = vec![public.to_owned()];
    spec.terms.shared = Some(proto::Balance::RoundRobin);
    register
}

#[tokio::test]
async fn clients_that_may_share_serve_one_port_until_the_last_of_them_goes() {
    let rig = Rig::new(100);
    let port = free_port();
    let public = format!("tcp://127.0.0.1:{port}");
    let rights = client(&format!("allow: {{ tcp: {port}, shared: true }}"));
    let [home, office, second] = ["home", "office", "office"].map(|name| Session::new(name, 1));
    for session in [&home, &office, &second] {
        let results = rig.apply(session, &rights, shares(1, &public)).await;
        assert_eq!(results, [Ok(vec![public.clone()])]);
    }
    // Without the right, and without the word of the service.
    let other = Session::new("other", 1);
    let denied = client(&format!("allow: {{ tcp: {port} }}"));
    let results = rig.apply(&other, &denied, shares(1, &public)).await;
    assert_eq!(code(&results[0]), Some(ServiceErrorCode::NotAllowed), "{results:?}");
    let results = rig.apply(&other, &rights, register(2, &[port])).await;
    assert_eq!(code(&results[0]), Some(ServiceErrorCode::PortTaken), "{results:?}");
    let is_open = || TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_err();
    for session in [&home, &second, &office] {
        assert!(is_open());
        rig.published.withdraw(session, rig.at()).await;
    }
    assert!(!is_open());
    assert!(!rig.published.clients.lock().unwrap().contains_key("office"));
    // A service that stops to share has the address for itself.
    rig.apply(&home, &rights, shares(2, &public)).await;
    let results = rig.apply(&home, &rights, register(3, &[port])).await;
    assert!(results[0].is_ok(), "{results:?}");
    let results = rig.apply(&office, &rights, shares(3, &public)).await;
    assert_eq!(code(&results[0]), Some(ServiceErrorCode::PortTaken), "{results:?}");
}

#[tokio::test]
async fn the_mark_of_a_service_needs_a_right() {
    let rig = Rig::new(100);
    let port = free_port();
    let marked = |generation| {
        let mut register = register(generation, &[port]);
        register.services[0].terms.dscp = proto::Dscp::of_name("EF").unwrap();
        register
    };
    let home = Session::new("home", 1);
    let denied = client(&format!("allow: {{ tcp: {port} }}"));
    let results = rig.apply(&home, &denied, marked(1)).await;
    assert_eq!(code(&results[0]), Some(ServiceErrorCode::NotAllowed), "{results:?}");
    assert!(results[0].as_ref().unwrap_err().text.contains("`dscp: true`"), "{results:?}");
    let results = rig.apply(&home, &denied, register(2, &[port])).await;
    assert!(results[0].is_ok(), "{results:?}");
    let rights = client(&format!("allow: {{ tcp: {port}, dscp: true }}"));
    let results = rig.apply(&home, &rights, marked(3)).await;
    assert!(results[0].is_ok(), "{results:?}");
}

#[tokio::test]
async fn clients_share_a_name_only_with_the_same_rules_for_its_visitors() {
    let rig = Rig::new(100);
    let rights = client("allow: { http: a.example, shared: true }");
    let [home, office] = ["home", "office"].map(|name| Session::new(name, 1));
    let results = rig.apply(&home, &rights, shares(1, "http://a.example")).await;
    assert!(results[0].is_ok(), "{results:?}");
    let mut strict = shares(1, "http://a.example");
    strict.services[0].terms.visitors.allow_from = Some([].into());
    let results = rig.apply(&office, &rights, strict).await;
    assert_eq!(code(&results[0]), Some(ServiceErrorCode::PortTaken), "{results:?}");
    let results = rig.apply(&office, &rights, shares(2, "http://a.example")).await;
    assert!(results[0].is_ok(), "{results:?}");
    let found = rig.hosts.names.find(Space::Http, "a.example").unwrap();
    let served = found[0].entrance.backends.all();
    let served: Vec<_> = served.iter().map(|one| one.picked.client.as_str()).collect();
    assert_eq!(served, ["home", "office"]);
    rig.published.withdraw(&home, rig.at()).await;
    let found = rig.hosts.names.find(Space::Http, "a.example").unwrap();
    assert_eq!(found[0].entrance.backends.all()[0].picked.client, "office");
    rig.published.withdraw(&office, rig.at()).await;
    assert!(rig.hosts.names.find(Space::Http, "a.example").is_none());
}

#[tokio::test]
async fn an_address_that_one_process_has_alone_is_left_to_it_by_the_process_beside() {
    let rig = Rig::new(100);
    let [own, other] = [free_port(), free_port()];
    let rights = client(&format!("allow: {{ tcp: [{own}, {other}] }}"));
    let [first, second] = ["home", "home"].map(|name| Session::new(name, 1));
    assert!(rig.apply(&first, &rights, register(1, &[own])).await[0].is_ok());
    assert!(rig.apply(&second, &rights, register(1, &[other])).await[0].is_ok());
    let has = |port| port_key(Over::Tcp, port);
    assert!(rig.published.turn("home").await.mine.has(has(own)));
    // The newest process that asks for an address gets it.
    assert!(rig.apply(&second, &rights, register(2, &[own])).await[0].is_ok());
    rig.published.withdraw(&first, rig.at()).await;
    assert!(rig.published.turn("home").await.mine.has(has(own)));
    assert!(!rig.published.turn("home").await.mine.has(has(other)));
}

#[tokio::test]
async fn a_process_takes_no_address_of_a_later_process_that_answers() {
    let rig = Rig::new(100);
    let port = free_port();
    let client = client(&format!("allow: {{ tcp: {port} }}"));
    let [first, second] = [(); 2].map(|()| Session::new("home", 1));
    let leads_to = async || {
        let turn = rig.published.turn("home").await;
        turn.mine.leads_to(port_key(Over::Tcp, port))
    };
    let review = async |session: &Arc<Session>, outranked_by: &[u64]| {
        let to = Registrant { outranked_by, ..rig.registrant(session, &client) };
        rig.published.turn("home").await.review(to).await.unwrap().results
    };
    rig.apply(&first, &client, register(1, &[port])).await;
    rig.apply(&second, &client, register(1, &[port])).await;
    assert_eq!(leads_to().await, Some(second.id));
    let results = review(&first, &[second.id]).await;
    assert!(results[0].outcome.is_ok(), "{results:?}");
    assert_eq!(leads_to().await, Some(second.id));
    // The later process does not answer.
    review(&first, &[]).await;
    assert_eq!(leads_to().await, Some(first.id));
    review(&second, &[]).await;
    assert_eq!(leads_to().await, Some(second.id));
    // It ends, after the address has gone to the former process.
    assert!(rig.published.turn("home").await.gives_up(&second, &register(2, &[])));
    review(&first, &[]).await;
    rig.published.withdraw(&second, rig.at()).await;
    assert_eq!(leads_to().await, Some(first.id));
}

#[tokio::test]
async fn an_address_that_the_server_does_not_have_is_asked_for_again() {
    let rig = Rig::new(100);
    let client = client("allow: { tcp: '192.0.2.77:4000-4010' }");
    let session = Session::new("home", 1);
    let mut asked = register(1, &[4000]);
    asked.services[0].public = vec!["tcp://192.0.2.77:4000".to_owned()];
    let results = rig.apply(&session, &client, asked).await;
    let error = results[0].as_ref().unwrap_err();
    assert!(error.text.contains("tried again every 15 s"), "{error}");
    assert!(error.code.may_pass(), "{error:?}");
}
