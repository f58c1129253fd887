//! Tests of the enrolment of a client, of the renewal of its token, and of its record.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use config::{ClientGrant, ServerFlags, Sources, Text};
use ops::clients::Change;
use ops::enrol::Order;
use ops::{Enrolment, Serving, WrongConfig};
use proto::InstanceId;
use proto::control::{Invite, InviteAction, InviteOutcome};
use proto::greeting::{Features, Name, StoredCredential, Token};

use super::*;
use crate::{Enrolled, Server};
use node::memory;

const HERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7);

/// A store in memory.
#[derive(Debug, Default)]
struct Store {
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
}

fn sources() -> Sources<'static> {
    Sources { env: &|_: &str| None, read: &|_: &Path| Err("no files".to_owned()) }
}

async fn server(store: &Arc<Store>) -> Server {
    let text = "listen: tcp://127.0.0.1:0\nworkers: 1\nclients: [{ name: told, token: \
                q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi, allow: { invite: true } }]\n";
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
