//! Command line flags as parts of the file's tree. A problem with a flag has the flag's name.

use std::rc::Rc;

use crate::decode::long;
use crate::section::Item;
use crate::yaml::{At, Entry, Kind, Node};

/// Options of the services that a command line defines. Each option is the key of the same name; an
/// empty option sets no key. The texts are those that a person typed: environment variables are not
/// expanded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each field is the key of its name")]
pub struct ServiceOptions {
    pub name: Option<String>,
    pub basic_auth: Vec<crate::Secret>,
    pub path: Option<String>,
    pub allow_from: Vec<String>,
    pub until: Option<String>,
    pub host_rewrite: Option<String>,
    /// `target_tls.ca`.
    pub target_ca: Option<String>,
    /// `target_tls.insecure`.
    pub insecure: bool,
    pub broadcast: bool,
}

impl ServiceOptions {
    /// A service of the command line in its long form, with these options.
    fn service(&self, text: &str) -> Rc<Node> {
        let at = At::Flag("--publish");
        let short = Node::scalar(text, at);
        if *self == Self::default() {
            return short;
        }
        let item = long(Item { node: short, path: String::new() });
        let Kind::Map(entries) = &item.node.kind else { return item.node };
        let mut tree = Tree(entries.clone());
        let plain = |text: &str| text.replace("${", "$${");
        for (key, flag, value) in [
            ("name", "the name of the service", &self.name),
            ("path", "--path", &self.path),
            ("until", "--for", &self.until),
            ("host_rewrite", "--host-rewrite", &self.host_rewrite),
        ] {
            tree.one(key, flag, value.as_deref().map(plain).as_deref());
        }
        let pairs: Vec<_> = self.basic_auth.iter().map(|pair| plain(pair.reveal())).collect();
        tree.list("basic_auth", "--basic-auth", &pairs);
        let networks: Vec<_> = self.allow_from.iter().map(|text| plain(text)).collect();
        tree.list("allow_from", "--allow-from", &networks);
        let mut tls = Tree::default();
        tls.one("ca", "--target-ca", self.target_ca.as_deref().map(plain).as_deref());
        tls.one("insecure", "--insecure", self.insecure.then_some("true"));
        let flag = if self.insecure { "--insecure" } else { "--target-ca" };
        tree.map("target_tls", flag, tls);
        tree.one("broadcast", "--broadcast", self.broadcast.then_some("true"));
        Node::new(Kind::Map(tree.0), at)
    }
}

/// Flags of `tunnel server`. An empty field leaves the file's key unchanged.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "each field is the flag and the key of its name")]
pub struct ServerFlags {
    pub listen: Vec<String>,
    pub public_url: Vec<String>,
    /// Adds one client to `clients`, together with the next seven fields.
    pub name: Option<String>,
    pub token: Option<crate::Secret>,
    pub token_file: Option<String>,
    /// `allow.tcp` of that client.
    pub allow_tcp: Vec<String>,
    /// `allow.udp` of that client.
    pub allow_udp: Vec<String>,
    /// `allow.http` of that client.
    pub allow_http: Vec<String>,
    /// `allow.tls` of that client.
    pub allow_tls: Vec<String>,
    /// `allow.forward` of that client.
    pub allow_forward: Vec<String>,
    pub cert: Option<String>,
    pub key: Option<String>,
    pub client_ca: Option<String>,
    pub state_dir: Option<String>,
    pub workers: Option<String>,
    pub control: Option<String>,
    pub log_level: Option<String>,
}

/// Flags of `tunnel client`. An empty field leaves the file's key unchanged.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "each field is the flag and the key of its name")]
pub struct ClientFlags {
    pub server: Vec<String>,
    pub name: Option<String>,
    pub token: Option<crate::Secret>,
    pub token_file: Option<String>,
    pub pin: Vec<String>,
    pub ca: Option<String>,
    pub cert: Option<String>,
    pub key: Option<String>,
    /// Services in a short form, such as `PUBLIC=TARGET`. They add to the file's `services`.
    pub publish: Vec<String>,
    /// Options of these services.
    pub options: ServiceOptions,
    /// `LISTEN=TARGET` pairs. They add to the file's `forwards`.
    pub forward: Vec<String>,
    /// Ignores the `services` and `forwards` of the file.
    pub only: bool,
    pub connections: Option<String>,
    pub state_dir: Option<String>,
    pub workers: Option<String>,
    pub control: Option<String>,
    pub log_level: Option<String>,
}

/// Flags of `tunnel proxy`. An empty field leaves the file's key unchanged. The fields from
/// `listen` to `proxy_protocol` are one entry of `proxies`.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "each field is the flag and the key of its name")]
pub struct ProxyFlags {
    pub listen: Option<String>,
    pub target: Vec<String>,
    pub name: Option<String>,
    pub balance: Option<String>,
    /// `limits.connections` of the entry.
    pub limit_connections: Option<String>,
    pub proxy_protocol: Option<String>,
    /// `tls` of the entry.
    pub cert: Option<String>,
    pub key: Option<String>,
    pub state_dir: Option<String>,
    pub workers: Option<String>,
    pub control: Option<String>,
    pub log_level: Option<String>,
}

impl ProxyFlags {
    pub(crate) fn tree(&self) -> Vec<Entry> {
        let (mut top, mut entry) = (Tree::default(), Tree::default());
        entry.one("name", "--name", self.name.as_deref());
        entry.one("listen", "--listen", self.listen.as_deref());
        match &self.target[..] {
            [target] => entry.one("target", "--target", Some(target)),
            targets => entry.list("target", "--target", targets),
        }
        entry.one("balance", "--balance", self.balance.as_deref());
        entry.one("proxy_protocol", "--proxy-protocol", self.proxy_protocol.as_deref());
        let mut limits = Tree::default();
        let most = self.limit_connections.as_deref();
        limits.one("connections", "--limit-connections", most);
        entry.map("limits", "--limit-connections", limits);
        let mut tls = Tree::default();
        tls.one("cert", "--cert", self.cert.as_deref());
        tls.one("key", "--key", self.key.as_deref());
        entry.map("tls", "--cert", tls);
        if !entry.0.is_empty() {
            let at = At::Flag("--listen");
            let list = Node::new(Kind::List(vec![Node::new(Kind::Map(entry.0), at)]), at);
            top.put("proxies", "--listen", list);
        }
        top.daemon(&self.state_dir, &self.workers, &self.control, self.log_level.as_deref());
        top.0
    }
}

impl ServerFlags {
    pub(crate) fn tree(&self) -> Vec<Entry> {
        let mut top = Tree::default();
        top.list("listen", "--listen", &self.listen);
        top.list("public_url", "--public-url", &self.public_url);
        let mut tls = Tree::default();
        tls.one("cert", "--cert", self.cert.as_deref());
        tls.one("key", "--key", self.key.as_deref());
        tls.one("client_ca", "--client-ca", self.client_ca.as_deref());
        top.map("tls", "--cert", tls);
        let mut client = Tree::default();
        client.one("token", "--token", self.token.as_ref().map(crate::Secret::reveal));
        client.one("token_file", "--token-file", self.token_file.as_deref());
        let mut allow = Tree::default();
        allow.list("tcp", "--allow-tcp", &self.allow_tcp);
        allow.list("udp", "--allow-udp", &self.allow_udp);
        allow.list("http", "--allow-http", &self.allow_http);
        allow.list("tls", "--allow-tls", &self.allow_tls);
        allow.list("forward", "--allow-forward", &self.allow_forward);
        client.map("allow", "--allow-tcp", allow);
        if self.name.is_some() || !client.0.is_empty() {
            client.one("name", "--name", Some(self.name.as_deref().unwrap_or("home")));
            let at = At::Flag("--name");
            let value = Node::new(Kind::List(vec![Node::new(Kind::Map(client.0), at)]), at);
            top.0.push(Entry { key: "clients".into(), at, value });
        }
        top.daemon(&self.state_dir, &self.workers, &self.control, self.log_level.as_deref());
        top.0
    }
}

impl ClientFlags {
    pub(crate) fn tree(&self) -> Vec<Entry> {
        let mut top = Tree::default();
        top.list("servers", "--server", &self.server);
        top.one("name", "--name", self.name.as_deref());
        top.one("token", "--token", self.token.as_ref().map(crate::Secret::reveal));
        top.one("token_file", "--token-file", self.token_file.as_deref());
        let mut tls = Tree::default();
        tls.list("pin", "--pin", &self.pin);
        tls.one("ca", "--ca", self.ca.as_deref());
        tls.one("cert", "--cert", self.cert.as_deref());
        tls.one("key", "--key", self.key.as_deref());
        top.map("tls", "--pin", tls);
        if !self.publish.is_empty() {
            // The decoder expands the short forms.
            let services = self.publish.iter().map(|text| self.options.service(text)).collect();
            let services = Node::new(Kind::List(services), At::Flag("--publish"));
            top.put("services", "--publish", services);
        }
        top.list("forwards", "--forward", &self.forward);
        for key in ["services", "forwards"] {
            if self.only && top.0.iter().all(|entry| entry.key != key) {
                top.put(key, "--only", Node::new(Kind::List(Vec::new()), At::Flag("--only")));
            }
        }
        top.one("connections", "--connections", self.connections.as_deref());
        top.daemon(&self.state_dir, &self.workers, &self.control, self.log_level.as_deref());
        top.0
    }
}

#[derive(Default)]
struct Tree(Vec<Entry>);

impl Tree {
    fn put(&mut self, key: &str, flag: &'static str, value: Rc<Node>) {
        self.0.push(Entry { key: key.to_owned(), at: At::Flag(flag), value });
    }

    fn one(&mut self, key: &str, flag: &'static str, value: Option<&str>) {
        if let Some(value) = value {
            self.put(key, flag, Node::scalar(value, At::Flag(flag)));
        }
    }

    fn list(&mut self, key: &str, flag: &'static str, values: &[String]) {
        let at = At::Flag(flag);
        if !values.is_empty() {
            let nodes = values.iter().map(|v| Node::scalar(v, at)).collect();
            self.put(key, flag, Node::new(Kind::List(nodes), at));
        }
    }

    fn map(&mut self, key: &str, flag: &'static str, inner: Self) {
        if !inner.0.is_empty() {
            self.put(key, flag, Node::new(Kind::Map(inner.0), At::Flag(flag)));
        }
    }

    fn daemon(
        &mut self,
        state_dir: &Option<String>,
        workers: &Option<String>,
        control: &Option<String>,
        log_level: Option<&str>,
    ) {
        self.one("state_dir", "--state-dir", state_dir.as_deref());
        self.one("workers", "--workers", workers.as_deref());
        self.one("control", "--control", control.as_deref());
        let mut log = Self::default();
        log.one("level", "--log-level", log_level);
        self.map("log", "--log-level", log);
    }
}
