//! Services, forwards, and the rights that they need.

use config::edit::Value;

use super::{ANY_PORTS, Client, Keys, Rights, add, set};
use crate::address::host_port;

/// A planned service.
#[derive(Clone, Debug, Default)]
pub(crate) struct Service {
    pub(crate) name: String,
    pub(crate) target: String,
    /// Further targets, which share the visitors with the first one.
    pub(crate) others: Vec<String>,
    /// The group in the source; services of one group and address become one service.
    pub(crate) group: Option<String>,
    /// The addresses; none for a private service.
    pub(crate) public: Vec<String>,
    /// The visitors of a private service.
    pub(crate) visitors: Option<Vec<Visitor>>,
    /// Further keys.
    pub(crate) keys: Keys,
}

/// A visitor of a private service.
#[derive(Clone, Debug)]
pub(crate) struct Visitor {
    pub(crate) name: String,
    pub(crate) token: Option<String>,
}

/// A planned forward.
#[derive(Clone, Debug, Default)]
pub(crate) struct Forward {
    pub(crate) listen: String,
    pub(crate) target: Option<String>,
    /// The token of a private service.
    pub(crate) token: Option<String>,
    pub(crate) keys: Keys,
    /// The rights that a proxy needs.
    pub(crate) reaches: Vec<String>,
}

impl Service {
    pub(crate) fn new(
        name: impl Into<String>,
        target: impl Into<String>,
        public: impl Into<String>,
    ) -> Self {
        Self {
            name: name.into(),
            target: target.into(),
            public: vec![public.into()],
            ..Self::default()
        }
    }

    pub(crate) fn private(name: &str, target: String, visitors: Vec<Visitor>) -> Self {
        let name = name.to_owned();
        Self { name, target, visitors: Some(visitors), ..Self::default() }
    }

    pub(crate) fn set(&mut self, path: &str, value: Value) {
        set(&mut self.keys, path, value);
    }

    /// Lets other clients serve the same addresses.
    pub(crate) fn share(&mut self) {
        self.set("shared", Value::Bool(true));
    }

    /// Whether other clients may serve the same addresses.
    pub(crate) fn is_shared(&self) -> bool {
        self.keys.iter().any(|(key, _)| key == "shared")
    }

    /// Refuses all visitors, because the source restricts visitors in a way that has no
    /// counterpart.
    pub(crate) fn close(&mut self) {
        if self.visitors.is_none() {
            self.set("allow_from", Value::List(Vec::new()));
        }
    }

    /// Whether all addresses are HTTP names, which the options of requests require.
    pub(crate) fn is_http(&self) -> bool {
        let is = |public: &String| public.starts_with("http://") || public.starts_with("https://");
        !self.public.is_empty() && self.public.iter().all(is)
    }
}

impl Client {
    /// The rights that the client's file needs.
    pub(crate) fn needs(&self) -> Rights {
        let mut rights = self.rights.clone();
        rights.shared = self.services.iter().any(Service::is_shared);
        for public in self.services.iter().flat_map(|service| &service.public) {
            let Some((scheme, place)) = public.split_once("://") else { continue };
            match scheme {
                "tcp" => add(&mut rights.tcp, port_right(place)),
                "udp" => add(&mut rights.udp, port_right(place)),
                "http" | "https" => add(&mut rights.http, place),
                _ => add(&mut rights.tls, place),
            }
        }
        for forward in &self.forwards {
            for reached in &forward.reaches {
                add(&mut rights.forward, reached);
            }
            let Some(target) = &forward.target else { continue };
            if let Some(service) = target.strip_prefix("service://") {
                add(&mut rights.visit, service);
            } else if let Some(path) = target.strip_prefix("unix://") {
                add(&mut rights.forward, format!("unix:{path}"));
            } else if let Some((scheme, place)) = target.split_once("://") {
                let of_udp = scheme == "udp";
                add(&mut rights.forward, if of_udp { target.clone() } else { place.to_owned() });
            }
        }
        rights
    }
}

/// The right to a published port.
fn port_right(place: &str) -> String {
    match host_port(place) {
        Some((_, 0)) => ANY_PORTS.to_owned(),
        _ => place.strip_prefix(':').unwrap_or(place).to_owned(),
    }
}
