//! The plan of the files: a server, its clients, and their rights.

mod complete;
mod service;

use config::edit::Value;
use proto::greeting::Token;

use crate::Certificate;
use crate::address::name;

pub(crate) use complete::domain;
pub(crate) use service::{Forward, Service, Visitor};

/// The transports of paths that are written.
pub(crate) const SCHEMES: [&str; 6] = ["tls", "quic", "kcp", "wss", "ws", "tcp"];

/// The port of a server whose source has none.
pub(crate) const PORT: u16 = 7000;

/// The placeholder for a server whose address no source contains.
pub(crate) const UNKNOWN: &str = "tunnel.example.com";

/// The placeholder for `$` of an environment variable, while texts are built. Any other `${` of a
/// source is literal text.
pub(crate) const VARIABLE: char = '\u{f8ff}';

/// The placeholder for a token that is generated later.
pub(crate) const LATER: char = '\u{f8fe}';

/// The documentation domain, used if the source names none.
pub(crate) const DOMAIN: &str = "example.com";

/// The ports of a client whose source lets the server choose the port: those of an enrolled client.
pub(crate) const ANY_PORTS: &str = "10000-10999";

/// A text as a value.
pub(crate) fn text(text: impl AsRef<str>) -> Value {
    Value::Text(text.as_ref().replace("${", "$${").replace(VARIABLE, "$"))
}

/// Texts as a value: a single text is not a list.
pub(crate) fn texts<T: AsRef<str>>(texts: &[T]) -> Value {
    match texts {
        [one] => text(one),
        more => Value::List(more.iter().map(text).collect()),
    }
}

/// A rate of bytes in a second as a value; `None`: there is no limit.
pub(crate) fn rate(bytes: u64) -> Option<Value> {
    (bytes > 0).then(|| text(config::Rate::from_bytes(bytes).to_string()))
}

pub(crate) fn map(entries: &[(&str, Value)]) -> Value {
    Value::Map(entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect())
}

/// Texts by name as a value.
pub(crate) fn texts_by_name(entries: &[(&str, &str)]) -> Value {
    Value::Map(entries.iter().map(|(key, value)| ((*key).to_owned(), text(value))).collect())
}

/// Keys of a map that is being built.
pub(crate) type Keys = Vec<(String, Value)>;

/// Sets a key. `timeouts.dial` is a key in a map, which is created if it is missing.
pub(crate) fn set(keys: &mut Keys, path: &str, value: Value) {
    let (first, rest) = match path.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (path, None),
    };
    let place = keys.iter().position(|(key, _)| key == first);
    match (place, rest) {
        (Some(n), Some(rest)) => {
            if let Value::Map(inner) = &mut keys[n].1 {
                set(inner, rest, value);
            }
        }
        (Some(n), None) => keys[n].1 = value,
        (None, Some(rest)) => {
            let mut inner = Keys::new();
            set(&mut inner, rest, value);
            keys.push((first.to_owned(), Value::Map(inner)));
        }
        (None, None) => keys.push((first.to_owned(), value)),
    }
}

/// The rights of a client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rights {
    pub(crate) tcp: Vec<String>,
    pub(crate) udp: Vec<String>,
    pub(crate) http: Vec<String>,
    pub(crate) tls: Vec<String>,
    pub(crate) forward: Vec<String>,
    pub(crate) visit: Vec<String>,
    pub(crate) invite: bool,
    /// Whether its services may share their addresses with those of other clients.
    pub(crate) shared: bool,
    /// Keys of `limits`.
    pub(crate) limits: Keys,
}

impl Rights {
    /// The rights of a kind, selected by its key.
    pub(crate) fn kind(&mut self, key: &str) -> Option<&mut Vec<String>> {
        Some(match key {
            "tcp" => &mut self.tcp,
            "udp" => &mut self.udp,
            "http" => &mut self.http,
            "tls" => &mut self.tls,
            "forward" => &mut self.forward,
            "visit" => &mut self.visit,
            _ => return None,
        })
    }

    /// Each kind of right with its entries.
    pub(crate) const fn kinds(&self) -> [(&'static str, &Vec<String>); 6] {
        [
            ("tcp", &self.tcp),
            ("udp", &self.udp),
            ("http", &self.http),
            ("tls", &self.tls),
            ("forward", &self.forward),
            ("visit", &self.visit),
        ]
    }
}

/// Adds an entry unless it is already present.
pub(crate) fn add(list: &mut Vec<String>, entry: impl Into<String>) {
    let entry = entry.into();
    if !list.contains(&entry) {
        list.push(entry);
    }
}

/// The planned server.
#[derive(Debug, Default)]
pub(crate) struct Server {
    /// The sources with data about it.
    pub(crate) sources: Vec<String>,
    /// The URLs where clients connect.
    pub(crate) listen: Vec<String>,
    /// Certificate and key of the source.
    pub(crate) identity: Option<(String, String)>,
    /// The addresses of the doors for names.
    pub(crate) http: Vec<String>,
    pub(crate) tls_routes: Vec<String>,
    /// The address of the admin API.
    pub(crate) admin: Option<String>,
    /// Further keys.
    pub(crate) keys: Keys,
    /// Rights of clients by name, beyond those that their own files need.
    pub(crate) known: Vec<(String, Rights)>,
    /// Rights of clients that are not imported yet.
    pub(crate) to_come: Rights,
    /// Limits of every client.
    pub(crate) limits: Keys,
    /// The entries of the clients, after the plan is complete.
    pub(crate) clients: Vec<Admitted>,
}

/// The entry of a client in the file of the server.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) name: String,
    /// The hash of the token.
    pub(crate) stored: String,
    pub(crate) rights: Rights,
}

/// A path of a client to the server.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    /// `tls`, `quic`, `kcp` or `wss`.
    pub(crate) scheme: &'static str,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The path of a WebSocket.
    pub(crate) path: String,
    pub(crate) sni: Option<String>,
}

impl Path {
    pub(crate) fn new(scheme: &'static str, host: impl Into<String>, port: u16) -> Self {
        Self { scheme, host: host.into(), port, path: String::new(), sni: None }
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://{}{}", self.scheme, crate::address::at(&self.host, self.port), self.path)
    }
}

/// The planned client.
#[derive(Debug, Default)]
pub(crate) struct Client {
    pub(crate) name: String,
    pub(crate) sources: Vec<String>,
    pub(crate) servers: Vec<Path>,
    /// Each path is a server of its own. Otherwise all paths lead to one server.
    pub(crate) several: bool,
    /// The authorities that the source trusts.
    pub(crate) ca: Option<String>,
    /// The certificate and the key that the client shows.
    pub(crate) identity: Option<(String, String)>,
    pub(crate) services: Vec<Service>,
    pub(crate) forwards: Vec<Forward>,
    /// Rights that do not follow from services and forwards.
    pub(crate) rights: Rights,
    pub(crate) admin: Option<String>,
    /// Further keys.
    pub(crate) keys: Keys,
    /// The token, after it is generated.
    pub(crate) token: String,
}

impl Client {
    /// Adds the target to an otherwise equal service, if the source has both in one group. Returns
    /// whether there is such a service.
    pub(crate) fn join(&mut self, service: &Service) -> bool {
        let same = |other: &&mut Service| {
            let group = other.group.is_some() && other.group == service.group;
            group && (&other.public, &other.keys) == (&service.public, &service.keys)
        };
        let Some(first) = self.services.iter_mut().find(same) else { return false };
        if first.target != service.target {
            add(&mut first.others, &service.target);
        }
        true
    }

    /// Adds a service under a unique name.
    pub(crate) fn publish(&mut self, mut service: Service) {
        let wanted = name(&service.name);
        let taken = |name: &String| self.services.iter().any(|other| other.name == *name);
        service.name = free(&wanted, taken);
        self.services.push(service);
    }
}

/// The wanted name, with a number appended if it is taken.
fn free(wanted: &str, taken: impl Fn(&String) -> bool) -> String {
    let short: String = wanted.chars().take(56).collect();
    let numbered = (2..=u32::MAX).map(|n| format!("{short}-{n}"));
    let mut all = std::iter::once(wanted.to_owned()).chain(numbered);
    all.find(|name| !taken(name)).unwrap_or_default()
}

/// All planned files.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) server: Server,
    pub(crate) clients: Vec<Client>,
    /// The certificate that was generated for the server.
    pub(crate) certificate: Option<Certificate>,
    /// Files of secrets, each with its content.
    pub(crate) tokens: Vec<(String, String)>,
    /// Secrets of visits that are too weak for a token: the n-th is replaced by the n-th new token.
    pub(crate) weak: Vec<String>,
    /// A proxy on one machine, instead of a server and clients.
    pub(crate) proxy: Option<Proxy>,
}

/// The planned file of `tunnel proxy`.
#[derive(Debug, Default)]
pub(crate) struct Proxy {
    /// The sources with data about it.
    pub(crate) sources: Vec<String>,
    /// The entries of `proxies`.
    pub(crate) entries: Vec<Keys>,
    /// Further keys.
    pub(crate) keys: Keys,
}

impl Plan {
    /// A new client. The name is converted to a valid and unique name.
    pub(crate) fn client(&mut self, wanted: Option<&str>, source: &str) -> &mut Client {
        let wanted = name(wanted.unwrap_or("home"));
        let taken = |name: &String| self.clients.iter().any(|other| other.name == *name);
        let client = Client {
            name: free(&wanted, taken),
            sources: vec![source.to_owned()],
            ..Client::default()
        };
        self.clients.push(client);
        let last = self.clients.len() - 1;
        &mut self.clients[last]
    }

    /// Whether a secret is strong enough for a token.
    pub(crate) fn is_strong(&self, secret: &str) -> bool {
        secret.contains(VARIABLE) || Token::new(secret).is_ok()
    }

    /// The token of both sides of a visit: the secret itself, or a placeholder for a token that is
    /// generated later.
    pub(crate) fn shared(&mut self, secret: &str) -> String {
        if self.is_strong(secret) {
            return secret.to_owned();
        }
        let n = match self.weak.iter().position(|weak| weak == secret) {
            Some(n) => n,
            None => {
                self.weak.push(secret.to_owned());
                self.weak.len() - 1
            }
        };
        format!("{LATER}{n}")
    }

    pub(crate) fn is_empty(&self) -> bool {
        let idle = |client: &Client| client.services.is_empty() && client.forwards.is_empty();
        self.proxy.is_none()
            && self.server.listen.is_empty()
            && self.server.sources.is_empty()
            && self.clients.iter().all(|client| idle(client) && client.servers.is_empty())
    }
}
