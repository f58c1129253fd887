//! The role of a file: server, client or proxy.

use crate::yaml::{Kind, read};

/// The role of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// server.yaml
    Server,
    /// client.yaml
    Client,
    /// proxy.yaml
    Proxy,
}

impl Role {
    /// The role by its name in `type`.
    pub(crate) fn named(text: &str) -> Option<Self> {
        [Self::Server, Self::Client, Self::Proxy].into_iter().find(|role| role.name() == text)
    }

    /// `server`, `client` or `proxy`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
            Self::Proxy => "proxy",
        }
    }

    /// The role by the file's content: by `type`; or `servers`, `services` or `forwards` make a
    /// client, `listen` or `clients` a server, `proxies` a proxy. `None` if the file has keys of no
    /// role or of several, or is not YAML.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        let root = read(text).ok()?;
        let Kind::Map(entries) = &root.kind else { return None };
        let named = entries.iter().find(|e| e.key == "type");
        if let Some(Kind::Scalar { text, .. }) = named.map(|e| &e.value.kind)
            && let Some(role) = Self::named(text)
        {
            return Some(role);
        }
        let any = |keys: &[&str]| entries.iter().any(|e| keys.contains(&e.key.as_str()));
        let is_server = any(&["listen", "clients"]);
        let is_client = any(&["servers", "servers_from", "srv", "services", "forwards"]);
        match (is_server, is_client, any(&["proxies"])) {
            (true, false, false) => Some(Self::Server),
            (false, true, false) => Some(Self::Client),
            (false, false, true) => Some(Self::Proxy),
            _ => None,
        }
    }
}
