//! The client whose registration is applied.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use doors::hosts::Hosts;
use node::session::{Handle, Session};

use crate::clients::{Client, Clients};
use crate::private::PrivateServices;

/// The client whose registration is applied, and the workers that listen for it.
#[derive(Clone, Copy)]
pub(crate) struct Registrant<'a> {
    pub(crate) session: &'a Arc<Session>,
    pub(crate) client: &'a Client,
    /// The client has no other process in force.
    pub(crate) is_alone: bool,
    /// The sessions of other processes of the client that keep the addresses that they have.
    pub(crate) outranked_by: &'a [u64],
    /// The client is configured or was enrolled, so `tunnel allow` can give it a right.
    pub(crate) is_known: bool,
    pub(crate) public_bind: IpAddr,
    pub(crate) hosts: &'a Hosts,
    /// All clients that may log in.
    pub(crate) clients: &'a Clients,
    /// The private services of all clients.
    pub(crate) private: &'a PrivateServices,
    pub(crate) handles: &'a [Handle],
}

impl Registrant<'_> {
    /// The account to which orders of certificates are charged: the client, or the source of a
    /// client that introduced itself, which can use any number of names.
    pub(super) fn account(&self) -> Cow<'_, str> {
        match self.client.source {
            Some(source) => source.to_string().into(),
            None => self.session.name.as_str().into(),
        }
    }

    /// The other client whose own name in `domain` this host is. Two clients with the same label
    /// have equal claims: the name belongs to the client that publishes it first.
    pub(super) fn owner_of(&self, host: &str, domain: &str) -> Option<String> {
        let label = host.strip_suffix(domain)?.strip_suffix('.')?;
        let own = config::own_label(&self.session.name);
        if own.as_deref() == Some(label) {
            return None;
        }
        self.clients.labelled(label)
    }
}
