//! Changes of one client: it is enrolled, its token is renewed, its rights or limits change, it is
//! revoked. Each change is stored first and then applied.

use std::sync::Arc;

use config::{ClientGrant, HostRights};
use logging::AUDIT;
use ops::WrongConfig;
use ops::clients::{Applied, Change, Held, HoldOrder};
use ops::enrol::Allowed;
use ops::events::{Changed, ClientChange};
use proto::InstanceId;
use proto::greeting::{Name, StoredCredential};

use super::super::enrolments::Revoked;
use super::common::StoredChange;
use super::takeover::close_links;
use super::{Registry, listing};

impl Registry {
    /// Enrols a client that proved its code; see [`Enrolments::store`]. False: the code is not
    /// valid any more.
    ///
    /// [`Enrolments::store`]: super::super::enrolments::Enrolments::store
    pub(crate) async fn enroll(
        &self,
        name: &Name,
        code: &StoredCredential,
        enrolled: StoredCredential,
    ) -> anyhow::Result<bool> {
        let shared = &self.shared;
        let _turn = shared.enrolments.turn().await;
        let Some(used) = self.take_code(name, code).await? else { return Ok(false) };
        // A reload may have configured a client of this name since the code was made.
        let is_client = shared.clients.are_told_of(name.as_str());
        let change = StoredChange::Enrol { used: &used, enrolled: &enrolled, is_client };
        let stored = self.change_shared(name, change).await;
        if stored.is_err() {
            // The code stays valid, because the disk may have room again in a minute.
            self.give_back_code(name, used).await;
        }
        let Some(grant) = stored? else { return Ok(false) };
        self.restore(name).await?;
        let changes = shared.clients.put(&grant, false)?;
        let client = name.as_str();
        if is_client {
            tracing::info!(target: AUDIT, client, "client {client} has a new token; the old token is valid until the new token is used");
            self.tell_of(client, ClientChange::Renewed);
        } else {
            tracing::info!(target: AUDIT, client, "client {client} is enrolled");
            self.tell_of(client, ClientChange::Enrolled);
        }
        self.follow(&changes).await;
        Ok(true)
    }

    fn tell_of(&self, client: &str, state: ClientChange) {
        self.shared.events.tell(|| Changed::Client { client: client.to_owned(), state });
    }

    /// Makes the old token of a client void at its first log-in with the token of a renewal. The
    /// links of the client end, except those of the process `instance`, which has proved the new
    /// token.
    pub(crate) async fn settle(
        &self,
        name: &Name,
        credential: &StoredCredential,
        instance: InstanceId,
    ) -> anyhow::Result<()> {
        let shared = &self.shared;
        let _turn = shared.enrolments.turn().await;
        // Another link of the process may have been first.
        let client = shared.clients.find(name.as_str());
        if client.is_none_or(|client| client.renewal.as_ref() != Some(credential)) {
            return Ok(());
        }
        let settled = self.change_shared(name, StoredChange::Settle(credential)).await?;
        let Some(grant) = settled else { return Ok(()) };
        let mut changes = shared.clients.put(&grant, false)?;
        changes.credential_gone.clear();
        tracing::info!(target: AUDIT, client = name.as_str(), "first log-in with the new token of client {name}: the old token is void");
        let links = self.sessions().links_of(name.as_str(), Some(instance));
        close_links(Arc::clone(&self.handles), links).await;
        self.follow(&changes).await;
        Ok(())
    }

    /// Changes an enrolled client; see [`Enrolments::change`]. `None`: no such client is enrolled.
    ///
    /// [`Enrolments::change`]: super::super::enrolments::Enrolments::change
    pub(crate) async fn change(&self, change: Change) -> anyhow::Result<Option<Applied>> {
        let _turn = self.shared.enrolments.turn().await;
        let enrolments = &self.shared.enrolments;
        let changed = match Name::new(change.name()) {
            Ok(name) => self.change_shared(&name, StoredChange::Change(&change)).await?,
            // The store says what is wrong with the name.
            Err(_) => enrolments.change(change.clone()).await?,
        };
        let Some(grant) = changed else { return Ok(None) };
        self.apply_client(&change, &grant, false).await.map(Some)
    }

    /// Applies the entry of one client after a change, and publishes the services that waited for a
    /// right. The caller holds the lock of the enrolments.
    pub(crate) async fn apply_client(
        &self,
        change: &Change,
        grant: &ClientGrant,
        certificates: bool,
    ) -> anyhow::Result<Applied> {
        let changes = self.shared.clients.put(grant, certificates)?;
        let hosts = |rights: &HostRights| rights.0.iter().map(ToString::to_string).collect();
        let allowed = Allowed {
            tcp: grant.rights.tcp.rights.iter().map(ToString::to_string).collect(),
            udp: grant.rights.udp.rights.iter().map(ToString::to_string).collect(),
            http: hosts(&grant.rights.http),
            tls: hosts(&grant.rights.tls),
            forward: grant.rights.forward.0.iter().map(ToString::to_string).collect(),
            via: grant.rights.via.0.iter().map(ToString::to_string).collect(),
            visit: grant.rights.visit.0.iter().map(ToString::to_string).collect(),
            shared: grant.rights.shared,
        };
        let client = self.shared.clients.find(&grant.name);
        let limits = client.map(|client| listing::limits(&client)).unwrap_or_default();
        if !changes.lines().is_empty() {
            let client = grant.name.as_str();
            self.tell_of(client, ClientChange::Changed);
            match change {
                Change::Allow(_) => {
                    tracing::info!(target: AUDIT, client, "client {client}: rights were added: it {allowed}");
                }
                Change::Deny(_) => {
                    tracing::info!(target: AUDIT, client, "client {client}: rights were taken away: it {allowed}");
                }
                Change::Limit(_) => {
                    tracing::info!(target: AUDIT, client, "client {client}: limits were changed: {limits}");
                }
            }
        }
        self.follow(&changes).await;
        Ok(Applied { allowed, limits })
    }

    /// Puts a client on hold, or ends its hold.
    pub(crate) async fn hold(&self, order: HoldOrder) -> anyhow::Result<Option<Held>> {
        let shared = &self.shared;
        let _turn = shared.enrolments.turn().await;
        let (client, hosts) = (order.name.as_str(), &shared.hosts);
        let is_known = shared.clients.find(client).is_some() || shared.hook.is_asked();
        if !order.off && !is_known {
            let text = format!("the server knows no client `{client}`");
            return Err(WrongConfig::one(text).into());
        }
        if !hosts.holds.change(&order).await? {
            return Err(WrongConfig::one(format!("client `{client}` is not on hold")).into());
        }
        // Persistent connections are checked again.
        hosts.names.note_change();
        let hold = hosts.holds.of(client);
        for (session, _) in self.sessions().links_of(client, None) {
            session.set_hold(hold.is_some());
        }
        if hold.is_some() {
            tracing::info!(target: AUDIT, client, "client {client} is on hold: visitors of its names get 503");
            self.tell_of(client, ClientChange::Held);
        } else {
            tracing::info!(target: AUDIT, client, "the hold of client {client} has ended");
            self.tell_of(client, ClientChange::Released);
        }
        Ok(hold.map(|hold| hold.shown()))
    }

    /// Ends the links of a client, which may log in again. False: it has none.
    pub(crate) async fn kick(&self, name: &str) -> bool {
        let links = self.sessions().links_of(name, None);
        let is_connected = !links.is_empty();
        close_links(Arc::clone(&self.handles), links).await;
        is_connected
    }

    /// Removes an enrolled client and its code, and ends its links. Returns whether there was a
    /// client or a code.
    pub(crate) async fn revoke(&self, name: &Name) -> anyhow::Result<bool> {
        let shared = &self.shared;
        let _turn = shared.enrolments.turn().await;
        let elsewhere = self.revoke_elsewhere(name).await?;
        let Revoked { code, client } = shared.enrolments.revoke(name).await?;
        if !client {
            // A client of the configuration stays.
            return Ok(code || elsewhere);
        }
        self.remove_client(name).await;
        Ok(true)
    }

    /// Ends all that a client has which the store does not have any more.
    pub(super) async fn remove_client(&self, name: &Name) {
        let shared = &self.shared;
        let changes = shared.clients.remove(name.as_str());
        self.published.forget(name.as_str()).await;
        self.note_removal(name.as_str());
        tracing::info!(target: AUDIT, client = name.as_str(), "client {name} is revoked");
        self.tell_of(name.as_str(), ClientChange::Revoked);
        self.follow(&changes).await;
    }
}
