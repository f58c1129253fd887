//! Who may log in, with which rights, and who takes over from whom.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use config::{ForwardRights, PortRights, ServerConfig};
use link::server::Verifier;
use proto::greeting::{Grant, LinkSecret, Name, Refusal, StoredCredential, Terms, Token};
use proto::{InstanceId, LinkId};
use relay::Gate;
use transport::Peer;

use super::registry::Registry;

/// Everybody who may log in.
#[derive(Debug)]
pub(crate) struct Clients(HashMap<String, Client>);

/// One who may.
#[derive(Debug)]
pub(crate) struct Client {
    credentials: Vec<StoredCredential>,
    /// What it may publish.
    pub(crate) tcp: PortRights,
    /// What it may reach on this side.
    pub(crate) forward: ForwardRights,
    /// How many streams it may have, over all links.
    pub(crate) gate: Arc<Gate>,
    /// Whether it may test the speed.
    pub(crate) speedtest: bool,
    by_certificate: bool,
}

impl Clients {
    pub(crate) fn new(config: &ServerConfig) -> anyhow::Result<Self> {
        let mut clients = HashMap::new();
        for grant in &config.clients {
            let credentials: anyhow::Result<Vec<_>> = grant
                .tokens
                .iter()
                .map(|token| {
                    let token = Token::new(token.secret.reveal())
                        .with_context(|| format!("token of client `{}`", grant.name))?;
                    Ok(token.stored())
                })
                .collect();
            let credentials = credentials?;
            let client = Client {
                // Beside a token the certificate is asked for as well, not instead.
                by_certificate: config.tls.client_ca.is_some() && credentials.is_empty(),
                credentials,
                tcp: grant.tcp.clone(),
                forward: grant.forward.clone(),
                speedtest: grant.speedtest,
                gate: Gate::new(grant.streams.map(std::num::NonZeroU32::get)),
            };
            clients.insert(grant.name.clone(), client);
        }
        Ok(Self(clients))
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Client> {
        self.0.get(name)
    }
}

/// Answers the questions of one greeting.
pub(super) struct Auth<'a> {
    registry: &'a Registry,
    claimed: RefCell<Option<String>>,
    certificate: RefCell<Option<String>>,
    address: Cell<Option<SocketAddr>>,
}

impl<'a> Auth<'a> {
    pub(super) fn new(registry: &'a Registry) -> Self {
        let (claimed, certificate) = Default::default();
        Self { registry, claimed, certificate, address: Cell::new(None) }
    }

    /// Who is at the far end, now that the handshake is done.
    pub(super) fn note_peer(&self, peer: &Peer) {
        self.certificate.borrow_mut().clone_from(&peer.certificate_name);
        self.address.set(Some(peer.address));
    }

    /// The client's address, which a reverse proxy may have told.
    pub(super) const fn address(&self) -> Option<SocketAddr> {
        self.address.get()
    }

    /// The name in the certificate that the client showed.
    pub(super) fn certificate(&self) -> Option<String> {
        self.certificate.borrow().clone()
    }

    /// The name that the client gave, proved or not; it has the form of one.
    pub(super) fn claimed(&self) -> Option<String> {
        self.claimed.borrow().clone()
    }

    fn client(&self, name: &Name) -> Option<&Client> {
        self.registry.shared().clients.find(name.as_str())
    }
}

impl Verifier for Auth<'_> {
    fn credentials(&self, name: &Name) -> Vec<StoredCredential> {
        *self.claimed.borrow_mut() = Some(name.as_str().to_owned());
        self.client(name).map(|client| client.credentials.clone()).unwrap_or_default()
    }

    fn certificate_suffices(&self, name: &Name) -> bool {
        self.client(name).is_some_and(|client| client.by_certificate)
    }

    fn link_secret(&self, name: &Name, instance: InstanceId, link: LinkId) -> Option<LinkSecret> {
        self.registry.link_secret(name.as_str(), instance, link)
    }

    fn decide(&self, grant: &Grant, _peer: &Peer) -> Result<Terms, Refusal> {
        if grant.attach.is_none() {
            self.registry.admit(grant)?;
        }
        let config = &self.registry.shared().link;
        Ok(Terms {
            new_link: self.registry.new_link_id(),
            resume_timeout: config.resume_timeout,
            keepalive: config.keepalive,
        })
    }

    fn penalty(&self, name: &Name, peer: &Peer) -> Duration {
        self.registry.brake().penalty(name.as_str(), peer.address.ip(), Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use config::{ServerFlags, Sources, Text, load_server};

    use super::*;

    #[test]
    fn a_certificate_does_not_stand_in_for_the_token_of_a_client_that_has_one() {
        let text = "listen: tls://127.0.0.1:7000\n\
                    tls: { cert: a, key: b, client_ca: c }\n\
                    clients: [{ name: home, token: q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi }]\n";
        let sources = Sources { env: &|_| None, read: &|_| Ok(String::new()) };
        let text = Some(Text { name: "server.yaml", text });
        let loaded = load_server(text, &ServerFlags::default(), &sources).unwrap();
        let clients = Clients::new(&loaded.config).unwrap();
        assert!(!clients.find("home").unwrap().by_certificate);
    }
}
