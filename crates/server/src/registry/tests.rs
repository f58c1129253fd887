//! Tests of the enrolment of a client, of the renewal of its token, and of its record.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use config::{ClientGrant, ServerFlags, Sources, Text};
use link::{Lease, ProcessBudget};
use ops::clients::Change;
use ops::enrol::Order;
use ops::{Enrolment, Serving, WrongConfig};
use proto::InstanceId;
use proto::control::{
    Invite, InviteAction, InviteOutcome, Register, Registered, ServiceErrorCode, ServiceSpec,
    ServiceTerms,
};
use proto::greeting::{Features, Name, StoredCredential, Token};
use zeroize::Zeroizing;

use super::sessions::tests::{greeting, log_in};
use super::*;
use crate::directory::Subject;
use crate::directory::model::Outage;
use crate::{Enrolled, Server};
use node::memory;

const HERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7);

/// A store in memory.
#[derive(Debug, Default)]
pub(crate) struct Store {
    clients: Mutex<BTreeMap<String, Vec<StoredCredential>>>,
    is_full: AtomicBool,
}

impl Store {
    fn put(&self, name: &str, tokens: Vec<StoredCredential>) -> anyhow::Result<ClientGrant> {
        anyhow::ensure!(!self.is_full.load(Ordering::Relaxed), "no room");
        let texts: Vec<_> = tokens.iter().map(|token| format!("{:?}", &**token.text())).collect();
        let text = format!("name: {name}\ntoken: [{}]\n", texts.join(", "));
        let text = Text { name: "home.yaml", text: &text };
        let grant = config::load_grant(text, HERE.ip(), 1, &sources()).unwrap().config;
        self.clients.lock().unwrap().insert(name.to_owned(), tokens);
        Ok(ClientGrant { enrolled: true, ..grant })
    }

    fn tokens(&self, name: &str) -> Vec<StoredCredential> {
        self.clients.lock().unwrap().get(name).cloned().unwrap_or_default()
    }
}

impl Enrolled for Store {
    fn has(&self, name: &Name) -> bool {
        !self.tokens(name.as_str()).is_empty()
    }

    fn check(&self, order: &Order, _public_bind: IpAddr) -> Result<Name, WrongConfig> {
        Name::new(&order.name).map_err(|why| WrongConfig::one(why.to_string()))
    }

    fn write(
        &self,
        order: &Order,
        credential: &StoredCredential,
        _public_bind: IpAddr,
    ) -> anyhow::Result<ClientGrant> {
        self.put(&order.name, vec![credential.clone()])
    }

    fn renew(
        &self,
        name: &Name,
        credential: &StoredCredential,
        _public_bind: IpAddr,
    ) -> anyhow::Result<ClientGrant> {
        let first = self.tokens(name.as_str()).into_iter().take(1);
        self.put(name.as_str(), first.chain([credential.clone()]).collect())
    }

    fn settle(
        &self,
        name: &Name,
        credential: &StoredCredential,
        _public_bind: IpAddr,
    ) -> anyhow::Result<Option<ClientGrant>> {
        self.put(name.as_str(), vec![credential.clone()]).map(Some)
    }

    fn change(&self, change: &Change, _public_bind: IpAddr) -> anyhow::Result<ClientGrant> {
        self.put(change.name(), self.tokens(change.name()))
    }

    fn remove(&self, name: &Name) -> io::Result<bool> {
        Ok(self.clients.lock().unwrap().remove(name.as_str()).is_some())
    }

    fn entry(&self, name: &Name) -> anyhow::Result<Option<Zeroizing<String>>> {
        let tokens = self.tokens(name.as_str());
        let text = tokens.iter().map(|token| token.text().to_string()).collect::<Vec<_>>();
        Ok((!text.is_empty()).then(|| text.join(" ").into()))
    }

    fn adopt(&self, name: &Name, entry: &str, _: IpAddr) -> anyhow::Result<ClientGrant> {
        let tokens = entry.split(' ').map(StoredCredential::of).collect::<Result<_, _>>()?;
        self.put(name.as_str(), tokens)
    }
}

pub(crate) fn sources() -> Sources<'static> {
    Sources { env: &|_: &str| None, read: &|_: &Path| Err("no files".to_owned()) }
}

async fn server(store: &Arc<Store>) -> Server {
    let text = "listen: tcp://127.0.0.1:0\nworkers: 1\nclients: [{ name: told, token: \
                q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi, allow: { invite: true, tcp: 1024-65535 } }]\n\
                public_bind: 127.0.0.1\n";
    let text = Text { name: "server.yaml", text };
    let config = config::load_server(Some(text), &ServerFlags::default(), &sources());
    let config = config.unwrap().config;
    let link = memory::link_config(&config.common);
    let kept: Arc<dyn Enrolled> = Arc::<Store>::clone(store);
    Server::start_with(config, None, (link, Features::OURS), Some(kept), None).await.unwrap()
}

/// Asks for a code. The result is the credential that the code proves.
async fn code(server: &Server, order: Order) -> Result<StoredCredential, String> {
    let opened = server.enroll(order).await.map_err(|why| why.to_string())?;
    Ok(Token::new(&opened.secret).unwrap().stored())
}

fn credential(n: u8) -> StoredCredential {
    StoredCredential { stored_key: [n; 32], server_key: [n; 32] }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_renewed_beside_the_old_one_which_goes_when_the_new_one_is_used() {
    let store = Arc::new(Store::default());
    let server = server(&store).await;
    let registry = server.registry();
    let (name, instance) = (Name::new("home").unwrap(), InstanceId([1; 16]));
    let order = || Order::new("home", [&[], &[]], &[]);
    let said = code(&server, Order::renewal("home")).await.unwrap_err();
    assert!(said.contains("no client `home`"), "{said}");
    // An unused code is renewed.
    let void = code(&server, order()).await.unwrap();
    let first = code(&server, order()).await.unwrap();
    assert!(!registry.enroll(&name, &void, credential(1)).await.unwrap());
    assert!(registry.enroll(&name, &first, credential(1)).await.unwrap());
    assert!(!registry.enroll(&name, &first, credential(9)).await.unwrap(), "a code works once");

    let said = code(&server, order()).await.unwrap_err();
    for way in ["--renew home", "--revoke home", "tunnel allow home", "clients show home"] {
        assert!(said.contains(way), "{said}");
    }
    let said = code(&server, Order { renew: true, ..order() }).await.unwrap_err();
    assert!(said.contains("tunnel allow"), "{said}");
    let said = code(&server, Order::renewal("told")).await.unwrap_err();
    assert!(said.contains("in the server's configuration"), "{said}");

    let renewal = code(&server, Order::renewal("home")).await.unwrap();
    assert_eq!(store.tokens("home"), [credential(1)], "a code alone changes nothing");
    assert!(registry.enroll(&name, &renewal, credential(2)).await.unwrap());
    let client = || registry.shared().clients.find("home").unwrap();
    assert_eq!(client().credentials, [credential(1), credential(2)]);
    let epoch = client().epoch;
    let used = async |n: u8| registry.settle(&name, &credential(n), instance).await;
    used(1).await.unwrap();
    assert_eq!(client().renewal, Some(credential(2)), "a log-in with the old token");
    // A disk without room: both tokens stay valid.
    store.is_full.store(true, Ordering::Relaxed);
    used(2).await.unwrap_err();
    assert_eq!((client().credentials.len(), client().epoch), (2, epoch));
    store.is_full.store(false, Ordering::Relaxed);
    used(2).await.unwrap();
    assert_eq!((store.tokens("home"), &client().renewal), (vec![credential(2)], &None));
    assert_ne!(client().epoch, epoch, "a log-in with the old token that is under way is void");
    // The second link of the process.
    let epoch = client().epoch;
    used(2).await.unwrap();
    assert_eq!((client().credentials.as_slice(), client().epoch), (&[credential(2)][..], epoch));

    // A code for a client that is gone when the code is used.
    let late = code(&server, Order::renewal("home")).await.unwrap();
    store.remove(&name).unwrap();
    assert!(!registry.enroll(&name, &late, credential(3)).await.unwrap());
    assert!(store.tokens("home").is_empty());
    server.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_is_of_a_client_that_the_server_knows_and_goes_with_it() {
    let store = Arc::new(Store::default());
    let server = server(&store).await;
    let registry = server.registry();
    let first = code(&server, Order::new("home", [&[], &[]], &[])).await.unwrap();
    let name = Name::new("home").unwrap();
    registry.note_refusal("home", HERE, "nobody yet");
    assert!(registry.enroll(&name, &first, credential(1)).await.unwrap());
    let home = || registry.client("home").map(|details| details.client);
    let before = home().unwrap();
    assert_eq!((before.links, before.away_seconds, before.refused), (0, None, None));
    registry.note_login("home", HERE);
    registry.note_refusal("home", HERE, "wrong token");
    registry.note_end("home");
    let now = home().unwrap();
    assert_eq!((now.address.as_deref(), now.away_seconds), (Some("127.0.0.1:7"), Some(0)));
    assert_eq!(now.refused.unwrap().reason, "wrong token");
    let names: Vec<_> = registry.clients().into_iter().map(|client| client.name).collect();
    assert_eq!(names, ["home", "told"]);
    assert!(registry.revoke(&name).await.unwrap());
    assert_eq!(home(), None);
    // The name comes again, with nothing of its past.
    let again = code(&server, Order::new("home", [&[], &[]], &[])).await.unwrap();
    assert!(registry.enroll(&name, &again, credential(2)).await.unwrap());
    assert_eq!(home().unwrap().address, None);
    server.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_inviter_gives_rights_to_its_own_services_and_waits_longer_for_each_refusal() {
    let store = Arc::new(Store::default());
    let server = server(&store).await;
    let registry = server.registry();
    let guest = Name::new("guest").unwrap();
    let code = code(&server, Order::new("guest", [&[], &[]], &[])).await.unwrap();
    assert!(registry.enroll(&guest, &code, credential(1)).await.unwrap());
    let ask = async |visitor: &str| {
        let [visitor, service] = [visitor, "ssh"].map(|name| Name::new(name).unwrap());
        let action = InviteAction::Existing;
        match registry.invite("told", Invite { request: 1, visitor, service, action }).await {
            InviteOutcome::Refused(why) => why,
            InviteOutcome::Done(_) => panic!("done"),
        }
    };
    let start = Instant::now();
    let why = ask("guest").await;
    assert!(why.contains("published no private service `ssh`"), "{why}");
    for name in ["anna", "bert"] {
        assert!(ask(name).await.contains("knows no client"));
    }
    assert!(start.elapsed() >= Duration::from_millis(100 + 200 + 400), "{:?}", start.elapsed());
}

/// A registration of a service at a free port.
fn register(generation: u64) -> Register {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let spec = ServiceSpec {
        name: Name::new("web").unwrap(),
        public: vec![format!("tcp://:{}", free.port())],
        terms: ServiceTerms::default(),
    };
    Register { generation, services: vec![spec], leaving: false, standby: false }
}

/// A process of a client logs in with one link. Returns its session.
pub(crate) fn session(registry: &Registry, name: &str) -> Arc<Session> {
    log_in(&mut registry.sessions(), &greeting().by(name, 1, true), 1).unwrap();
    registry.session_of(1).unwrap()
}

/// Registers over the link with this serial.
pub(super) async fn apply(
    registry: &Registry,
    serial: u64,
    register: Register,
) -> Option<Registered> {
    let generation = register.generation;
    assert!(registry.offer(serial, register, &Lease::new(ProcessBudget::new(1 << 20))));
    let (session, turn) = registry.turn(serial).await.unwrap();
    registry.register(&session, turn, generation).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_stands_by_is_listed_so_until_it_registers_services() {
    let server = server(&Arc::default()).await;
    let registry = server.registry();
    log_in(&mut registry.sessions(), &greeting().by("told", 1, true), 1).unwrap();
    let listed = || registry.client("told").unwrap().client;
    assert!(!listed().standby, "it has not registered yet");
    let none = |generation, standby| Register {
        generation,
        services: Vec::new(),
        leaving: false,
        standby,
    };
    apply(registry, 1, none(1, true)).await.unwrap();
    assert!(listed().standby && listed().state.to_string().ends_with(", 1 link, stands by"));
    let (_, notes) = registry.changed_clients(None);
    apply(registry, 1, register(2)).await.unwrap();
    assert!(!listed().standby && listed().state.to_string().ends_with(", 1 link"));
    let (changes, notes) = registry.changed_clients(Some(notes));
    assert_eq!(changes.list.len(), 1, "a page of the console is told");
    // A client of an older version says nothing.
    apply(registry, 1, none(3, false)).await.unwrap();
    assert!(!listed().standby);
    assert!(registry.changed_clients(Some(notes)).0.list.is_empty());
    server.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_superseded_process_registers_nothing_and_waits_for_the_newer_by_its_number() {
    let server = server(&Arc::default()).await;
    let (registry, accepted) = (server.registry(), greeting());
    let log_in = |instance: u8| {
        let (of, serial) = (accepted.by("told", instance, true), instance.into());
        log_in(&mut registry.sessions(), &of, serial).unwrap();
        registry.session_of(serial).unwrap()
    };
    let first = log_in(1);
    let asked = register(1);
    assert!(apply(registry, 1, asked.clone()).await.unwrap().results[0].outcome.is_ok());
    let second = log_in(2);
    // The registration of the former process was on its way when the newer process logged in.
    assert_eq!(apply(registry, 1, register(2)).await, None);
    assert!(registry.pending.take(first.id).is_none());

    let (id, totals) = (first.id, Arc::downgrade(&first));
    drop(first);
    let begin = Instant::now();
    let ((), registered) = tokio::join!(registry.link_ended(1), async {
        // The entrances of the former process hold its session: its totals are shown with them.
        assert!(totals.upgrade().is_some());
        apply(registry, 2, asked).await
    });
    assert!(registered.unwrap().results[0].outcome.is_ok());
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    assert!(totals.upgrade().is_none() && second.id > id);
    server.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_session_of_a_superseded_process_without_services_is_counted_at_once() {
    let server = server(&Arc::default()).await;
    let (registry, accepted) = (server.registry(), greeting());
    let log_in = |instance: u8| {
        let (of, serial) = (accepted.by("told", instance, true), instance.into());
        log_in(&mut registry.sessions(), &of, serial).unwrap();
        registry.session_of(serial).unwrap()
    };
    let totals = Arc::downgrade(&log_in(1));
    let entrances = registry.published.turn("told").await;
    let _second = log_in(2);
    let ending = registry.link_ended(1);
    let waits = tokio::time::timeout(Duration::from_millis(1), ending).await.is_err();
    assert!(waits && totals.upgrade().is_none(), "nobody holds the session meanwhile");
    drop(entrances);
    server.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_review_that_waited_for_its_turn_gives_a_former_process_nothing() {
    let server = server(&Arc::default()).await;
    let (shared, handles) = (server.registry().shared_arc(), &server.registry().handles);
    let directory = Outage::new();
    let known: Arc<dyn Directory> = Arc::<Outage>::clone(&directory);
    let registry = Registry::new(Arc::clone(shared), Arc::clone(handles), known, None);
    let asked = register(1);
    log_in(&mut registry.sessions(), &greeting().by("told", 1, true), 1).unwrap();
    apply(&registry, 1, asked.clone()).await.unwrap();
    let turn = registry.published.turn("told").await;
    let mut review = Box::pin(registry.review("told"));
    let reviewed = tokio::time::timeout(Duration::from_millis(1), &mut review).await;
    assert!(reviewed.is_err(), "the review waits for its turn");
    log_in(&mut registry.sessions(), &greeting().by("told", 2, true), 2).unwrap();
    let second = registry.session_of(2).unwrap();
    assert!(registry.offer(2, asked, &Lease::new(ProcessBudget::new(1 << 20))));
    let registered = registry.register(&second, turn, 1).await.unwrap();
    assert!(registered.results[0].outcome.is_ok(), "{registered:?}");
    review.await;
    let found = directory.whereabouts(vec![Subject::Client("told".into())]).await.unwrap();
    let owners = &found[0].as_ref().unwrap().owners;
    assert_eq!(owners.iter().map(|owner| owner.process).collect::<Vec<_>>(), [second.id]);
    registry.close_entrances().await;
    server.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_waits_is_published_when_the_directory_answers_again() {
    let server = server(&Arc::default()).await;
    let (shared, handles) = (server.registry().shared_arc(), &server.registry().handles);
    let directory = Outage::new();
    directory.set_away(true);
    let known: Arc<dyn Directory> = Arc::<Outage>::clone(&directory);
    let registry = Registry::new(Arc::clone(shared), Arc::clone(handles), known, None);
    log_in(&mut registry.sessions(), &greeting().by("told", 1, true), 1).unwrap();
    let registered = apply(&registry, 1, register(1)).await.unwrap();
    let error = registered.results[0].outcome.as_ref().unwrap_err();
    assert_eq!(error.code, ServiceErrorCode::Waits, "{error}");
    assert!(registry.waits("told"));
    directory.set_away(false);
    let begin = Instant::now();
    while registry.waits("told") {
        assert!(begin.elapsed() < Duration::from_secs(10), "the registration is not applied again");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let answer = apply(&registry, 1, Register { generation: 1, ..register(1) }).await.unwrap();
    assert!(answer.results[0].outcome.is_ok(), "{answer:?}");
    assert!(registry.pending.begin_retry("told"), "nothing is retried any more");
    registry.close_entrances().await;
    server.close().await;
}
