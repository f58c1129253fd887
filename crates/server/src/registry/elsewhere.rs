//! What other nodes of the cluster do: a client logs in there, or gets an address that this server
//! publishes. A server without a cluster has none of this.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use cluster::names::Instance;
use logging::AUDIT;
use node::session::Worker;
use proto::control::{ControlMessage, ServiceSpec};
use proto::greeting::{Grant, Refusal};

use super::Registry;
use super::sessions::Sessions;
use super::takeover::close_links;
use crate::directory::{Generation, Key};
use crate::presence::instance_of;

impl Registry {
    /// Tells the cluster of the processes of a client, whose links have changed. The caller holds
    /// the lock of the sessions, so that the cluster hears of changes in their order.
    pub(super) fn tell_presence(&self, sessions: &Sessions, name: &str) {
        if let Some(presence) = &self.presence {
            presence.changed(name, &sessions.processes_here(name), sessions.all_links());
        }
    }

    /// What a client is told of the nodes. `None`: the server is alone, or does not know the nodes
    /// yet.
    pub(crate) fn offer_of_homes(&self, client: &str) -> Option<ControlMessage> {
        self.presence.as_ref()?.offer(client)
    }

    /// Tells all clients of the nodes, which have changed.
    pub(crate) async fn tell_homes(&self) {
        let Some(presence) = &self.presence else { return };
        let sessions: Arc<[_]> = self.sessions().all().into();
        for handle in self.handles.iter() {
            let (sessions, presence) = (Arc::clone(&sessions), Arc::clone(presence));
            let tell = move |worker: &Rc<Worker>| {
                for session in sessions.iter() {
                    let Some(message) = presence.offer(&session.name) else { return };
                    worker.state.each_link_of(session.id, |_, link| {
                        // A link that cannot take the message ends, and its successor gets it.
                        let _ = link.send_message(&message);
                    });
                }
            };
            // A worker that has stopped has no links.
            let _ = handle.call(tell).await;
        }
    }

    /// Whether the other nodes admit a log-in.
    pub(super) fn admits_elsewhere(&self, grant: &Grant, beside: bool) -> Result<(), Refusal> {
        let Some(presence) = &self.presence else { return Ok(()) };
        let name = grant.name.as_str();
        if presence.is_revoked(name) {
            return Err(Refusal::BadCredential);
        }
        let instance = instance_of(name, grant.instance, beside);
        if presence.has_yielded(name, instance, Instant::now()) {
            return Err(Refusal::Superseded);
        }
        Ok(())
    }

    /// Whether the client has no rights in the cluster.
    pub(crate) fn is_revoked(&self, name: &str) -> bool {
        self.presence.as_ref().is_some_and(|presence| presence.is_revoked(name))
    }

    /// From now on clients should go to other nodes.
    pub(super) fn drain_presence(&self) {
        if let Some(presence) = &self.presence {
            presence.drain(self.sessions().all_links());
        }
    }

    /// A process of a client at another node is in charge: the links of this process end.
    pub(crate) async fn yield_elsewhere(&self, name: &str, instance: Instance) {
        let links: Vec<_> = {
            let sessions = self.sessions();
            let own =
                sessions.processes_here(name).into_iter().filter(|it| it.instance == instance);
            let own: Vec<_> = own.map(|process| process.session).collect();
            let all = sessions.links_of(name, None).into_iter();
            all.filter(|(session, _)| own.contains(&session.id)).collect()
        };
        if !links.is_empty() {
            tracing::info!(target: AUDIT, client = name, "a process of client {name} at another node takes over its services");
        }
        close_links(Arc::clone(&self.handles), links).await;
    }

    /// Another owner has the resource of this claim: the entrances at the resource close. Returns
    /// the clients whose registrations have to be applied again.
    pub(crate) async fn lose(
        &self,
        client: &str,
        key: &Key,
        generation: Generation,
    ) -> BTreeSet<String> {
        tracing::info!(
            target: AUDIT,
            client,
            "client {client} has lost {key} to another client, or to its process at another node"
        );
        let at = (&*self.handles, &*self.shared.hosts);
        let mut clients = self.published.lose_shared((key, generation), at).await;
        self.published.lose(client, (key, generation), at).await;
        clients.insert(client.to_owned());
        clients
    }

    /// The services that a client publishes at the resource of this claim.
    pub(crate) async fn services_at(
        &self,
        client: &str,
        claim: (&Key, Generation),
    ) -> Vec<ServiceSpec> {
        self.published.services_at(client, claim).await
    }

    /// Applies the registration of a client again that has lost an address, and tells the client.
    pub(crate) async fn review_lost(&self, client: &str) {
        self.review(client).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use cluster::engine::{Operation, Performed, Range, Transaction};
    use cluster::keys::{Keyspace, RecordPlace};
    use cluster::names::{self, ClientName};
    use cluster::node::{Located, Subject};
    use cluster::record::{Holding, Record as _, Revoked};
    use config::{ServerFlags, Text};
    use ops::Serving as _;
    use proto::HttpOptions;
    use proto::control::{Register, Registered, ServiceErrorCode, ServiceTerms};
    use proto::greeting::{Name, StoredCredential};
    use tokio::task::JoinSet;
    use tokio::time::sleep;

    use super::super::sessions::tests::{Accepted, greeting, log_in};
    use super::super::tests::{apply, sources};
    use super::*;
    use crate::Server;
    use crate::about::{self, About};
    use crate::clients::Denied;
    use crate::cluster::tests::{MemoryEngine, new_node};
    use crate::cluster::{ServerNode, SharedDirectory};
    use crate::directory::Directory;
    use node::names::Space;

    /// A server at which one client may publish any name, as a node.
    struct TestNode {
        server: Server,
        node: Arc<ServerNode>,
        registry: Arc<Registry>,
        _tasks: JoinSet<()>,
    }

    async fn start(name: &str, engine: MemoryEngine) -> TestNode {
        let text = "listen: tcp://127.0.0.1:0\nworkers: 1\npublic_bind: 127.0.0.1\n\
                    http: { listen: '127.0.0.1:0' }\nclients: [{ name: home, token: \
                    q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi, allow: { http: '*' } }]\n";
        let text = Text { name: "server.yaml", text };
        let config = config::load_server(Some(text), &ServerFlags::default(), &sources()).unwrap();
        let server = Server::start(config.config, None).await.unwrap();
        let new = new_node(name, engine);
        let (node, mut tasks) = (Arc::clone(&new.node), JoinSet::new());
        let (shared, handles) = (server.registry().shared_arc(), &server.registry().handles);
        let directory: Arc<dyn Directory> = Arc::<SharedDirectory>::clone(node.directory());
        let presence = Some(Arc::clone(node.presence()));
        let registry = Registry::new(Arc::clone(shared), Arc::clone(handles), directory, presence);
        new.run(&registry, &mut tasks);
        let mut membership = node.cluster().membership();
        membership.wait_for(|now| now.is_leased).await.unwrap();
        TestNode { server, node, registry, _tasks: tasks }
    }

    impl TestNode {
        /// A process logs in with one link.
        fn log_in(&self, of: &Accepted, serial: u64) {
            let mut sessions = self.registry.sessions();
            log_in(&mut sessions, of, serial).unwrap();
            self.registry.tell_presence(&sessions, "home");
        }

        async fn register(&self, serial: u64, generation: u64) -> Registered {
            self.register_all(serial, generation, vec![spec("web", "http://app.example", None)])
                .await
        }

        async fn register_all(
            &self,
            serial: u64,
            generation: u64,
            services: Vec<ServiceSpec>,
        ) -> Registered {
            let register = Register { generation, services, leaving: false, standby: false };
            apply(&self.registry, serial, register).await.unwrap()
        }

        async fn publishes(&self) -> bool {
            let key = Key::Name(Space::Http, "app.example".into());
            self.registry.published.turn("home").await.has(&key)
        }
    }

    /// A service at a public address, below a path.
    fn spec(name: &str, public: &str, path: Option<&str>) -> ServiceSpec {
        let path = path.map(str::to_owned);
        let http = HttpOptions { path, ..HttpOptions::default() };
        let terms = ServiceTerms { http, ..ServiceTerms::default() };
        ServiceSpec { name: Name::new(name).unwrap(), public: vec![public.to_owned()], terms }
    }

    async fn eventually(mut is_so: impl AsyncFnMut() -> bool) {
        for _ in 0..600 {
            if is_so().await {
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
        panic!("not within 60 s");
    }

    fn code(registered: &Registered) -> Option<ServiceErrorCode> {
        registered.results[0].outcome.as_ref().err().map(|error| error.code)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_process_that_logs_in_at_another_node_gets_the_services_of_its_client() {
        let engine = MemoryEngine::new();
        let a = start("a", engine.of_another_node()).await;
        let b = start("b", engine).await;
        let accepted = greeting();
        let [first, second] = [1, 2].map(|instance| accepted.by("home", instance, true));
        a.log_in(&first, 1);
        assert_eq!(code(&a.register(1, 1).await), None);
        assert!(a.publishes().await && a.registry.admit(first.grant()).is_ok());
        b.log_in(&second, 1);
        assert_eq!(code(&b.register(1, 1).await), None);
        assert!(b.publishes().await);

        // The former process has no entrance any more, and yields.
        eventually(async || !a.publishes().await).await;
        eventually(async || a.registry.admit(first.grant()) == Err(Refusal::Superseded)).await;
        assert!(b.registry.admit(second.grant()).is_ok());
        assert_eq!(code(&a.register(1, 2).await), Some(ServiceErrorCode::NameTaken));
        assert!(b.publishes().await);
        // With its last link the later process frees the name.
        b.registry.link_ended(1).await;
        assert!(!b.publishes().await);
        let third = accepted.by("home", 3, true);
        a.log_in(&third, 3);
        assert_eq!(code(&a.register(3, 1).await), None);
        for node in [a, b] {
            node.server.close().await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_process_that_was_replaced_takes_nothing_back_at_a_node_that_it_did_not_know() {
        let engine = MemoryEngine::new();
        let a = start("a", engine.of_another_node()).await;
        let b = start("b", engine).await;
        let accepted = greeting();
        let [first, second, third] = [1, 2, 3].map(|number| accepted.by("home", number, true));
        b.log_in(&first, 1);
        let client = || Subject::Client(ClientName::new("home").unwrap());
        let is_recorded =
            async || matches!(a.node.cluster().find(client()).await, Located::There { .. });
        eventually(is_recorded).await;
        a.log_in(&second, 1);
        eventually(async || b.registry.admit(first.grant()) == Err(Refusal::Superseded)).await;
        // The first process has never been at this node, so it asks to take over.
        eventually(async || a.registry.was_replaced(first.grant()).await).await;
        for later in [&second, &third] {
            assert!(!a.registry.was_replaced(later.grant()).await);
        }
        // With the end of the process in charge, the first process has the services again.
        a.registry.link_ended(1).await;
        assert!(!a.registry.was_replaced(first.grant()).await);
        for node in [a, b] {
            node.server.close().await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn services_wait_while_the_engine_is_away_and_are_published_when_it_answers() {
        let engine = MemoryEngine::new();
        let a = start("a", engine.clone()).await;
        let accepted = greeting().by("home", 1, true);
        a.log_in(&accepted, 1);
        engine.hang(true);
        assert_eq!(code(&a.register(1, 1).await), Some(ServiceErrorCode::Waits));
        engine.hang(false);
        eventually(async || a.publishes().await).await;
        a.server.close().await;
    }

    /// What the record at this key says of its services.
    fn described(engine: &MemoryEngine, key: &Bytes) -> About {
        let then = vec![Operation::Range(Range::of(key.clone()))];
        let question = Transaction { then, ..Transaction::default() };
        let answers = engine.transact(&question).unwrap().answers;
        let [Performed::Range { keys, .. }] = &answers[..] else { panic!("{answers:?}") };
        let record = Holding::decode(&keys[0].value).unwrap();
        about::decode(&record.about).unwrap()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_claim_of_a_name_describes_the_services_as_they_are_registered_now() {
        let engine = MemoryEngine::new();
        let a = start("a", engine.clone()).await;
        a.log_in(&greeting().by("home", 1, true), 1);
        let host = names::Key::Host(names::Space::Http, "app.example".into());
        let key = Keyspace::new("test").of(&RecordPlace::Resource(host));
        let described = || described(&engine, &key);
        let below = |path: &'static str| spec("files", "http://app.example", Some(path));
        let web = spec("web", "http://app.example", None);
        for (generation, services) in
            (1..).zip([vec![web.clone()], vec![web.clone(), below("/f")], vec![below("/g")]])
        {
            let registered = a.register_all(1, generation, services.clone()).await;
            assert!(registered.results.iter().all(|result| result.outcome.is_ok()));
            if generation < 3 {
                assert_eq!(described(), About { services, is_whole: true });
            } else {
                // The first service has given the name up, and the other claims it.
                eventually(async || described().services == services).await;
            }
        }
        // The terms change while the engine is away.
        let mut changed = below("/g");
        changed.terms.priority = proto::Priority::Bulk;
        engine.hang(true);
        let registered = a.register_all(1, 4, vec![changed.clone()]).await;
        assert_eq!(code(&registered), None);
        engine.hang(false);
        eventually(async || described().services == [changed.clone()]).await;
        a.server.close().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_client_without_rights_in_the_cluster_is_refused_until_it_has_them_again() {
        let engine = MemoryEngine::new();
        let a = start("a", engine.clone()).await;
        let accepted = greeting().by("home", 1, true);
        assert!(a.registry.admit(accepted.grant()).is_ok());
        let place = RecordPlace::Revoked(ClientName::new("home").unwrap());
        let key = Keyspace::new("test").of(&place);
        let put = Operation::Put { key: key.clone(), value: Revoked {}.encode(), lease: None };
        for (operation, wanted) in
            [(put, Err(Refusal::BadCredential)), (Operation::Delete { key }, Ok(()))]
        {
            let change = Transaction { then: vec![operation], ..Transaction::default() };
            engine.transact(&change).unwrap();
            eventually(async || a.registry.admit(accepted.grant()) == wanted).await;
        }
        a.server.close().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nobody_takes_a_name_at_one_node_that_is_free_there_alone() {
        let a = start("a", MemoryEngine::new()).await;
        let (name, here) = (Name::new("stranger").unwrap(), [127, 0, 0, 1].into());
        let token = StoredCredential { stored_key: [1; 32], server_key: [1; 32] };
        let denied = a.registry.introduce(&name, token, here).unwrap_err();
        assert_eq!((denied, denied.refusal()), (Denied::Cluster, Refusal::BadCredential));
        assert!(denied.reason().unwrap().contains("cluster"));
        a.server.close().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn other_nodes_see_that_a_node_drains() {
        let engine = MemoryEngine::new();
        let a = start("a", engine.of_another_node()).await;
        let b = start("b", engine).await;
        a.log_in(&greeting().by("home", 1, true), 1);
        let seen = async || {
            let nodes = b.node.status().await.nodes;
            nodes.into_iter().find(|node| node.name == "a")
        };
        eventually(async || seen().await.is_some_and(|node| node.links == 1 && !node.draining))
            .await;
        a.registry.close_entrances().await;
        eventually(async || seen().await.is_some_and(|node| node.draining)).await;
        for node in [a, b] {
            node.server.close().await;
        }
    }
}
