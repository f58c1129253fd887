//! The enrolled clients and the codes of all nodes of a cluster. The state directory of this node
//! has a copy of each client that the node has heard of; a server without a cluster has nothing
//! else.

use proto::greeting::{Name, Refusal, StoredCredential};

use anyhow::{Context, bail};
use config::ClientGrant;
use ops::WrongConfig;
use ops::clients::Change;
use tokio::time::{Duration, sleep};

use super::Registry;
use crate::enrolments::{Enrolments, MadeCode};
use crate::shared_clients::{DirectoryAway, MaybeShared, SharedClient, SharedClients, SharedCode};

/// How often a change is made anew that another node was faster with.
const TRIES: usize = 3;

/// The interval at which this node looks whether it has heard of the end of a revocation.
const LOOK: Duration = Duration::from_millis(20);

/// How often it looks: within a second the event has come, or the node is not a member.
const LOOKS: usize = 50;

/// A change of a stored client.
#[derive(Clone, Copy)]
pub(super) enum StoredChange<'a> {
    /// See [`Enrolments::store`].
    Enrol { used: &'a SharedCode, enrolled: &'a StoredCredential, is_client: bool },
    /// See [`Enrolments::settle`].
    Settle(&'a StoredCredential),
    /// See [`Enrolments::change`].
    Change(&'a Change),
}

impl StoredChange<'_> {
    /// Makes the change. `None`: there is nothing to change.
    async fn make(self, of: &Enrolments, name: &Name) -> anyhow::Result<Option<ClientGrant>> {
        match self {
            Self::Enrol { used, enrolled, is_client } => {
                of.store(name, used, enrolled.clone(), is_client).await
            }
            Self::Settle(credential) => of.settle(name, credential).await,
            Self::Change(change) => of.change(change.clone()).await,
        }
    }
}

impl Registry {
    /// The codes and the enrolled clients of the cluster.
    pub(crate) const fn common(&self) -> &MaybeShared {
        &self.common
    }

    /// Makes a code that was made here good at all nodes. Returns its secret.
    pub(crate) async fn offer_code(&self, made: MadeCode) -> anyhow::Result<String> {
        let MadeCode { code, secret } = made;
        let Some(common) = &self.common else { return Ok(secret) };
        let name = Name::new(&code.order.name)?;
        if let Err(away) = common.offer(&name, &code).await {
            self.shared.enrolments.forget(&name);
            return Err(away.into());
        }
        Ok(secret)
    }

    /// Whether a code that the client `by` requests may be made for this name.
    ///
    /// # Errors
    /// Another client or an administrator has requested a code at some node.
    pub(crate) async fn may_replace_code(&self, name: &Name, by: &str) -> anyhow::Result<()> {
        let Some(common) = &self.common else { return Ok(()) };
        let code = common.code(name).await?;
        if code.is_some_and(|(_, code)| code.by.as_deref() != Some(by)) {
            let text = format!("there is a code for a new client `{name}` already");
            return Err(WrongConfig::one(text).into());
        }
        Ok(())
    }

    /// Removes the code of a name that the client `by` requested.
    pub(crate) async fn withdraw_code(&self, name: &Name, by: &str) -> anyhow::Result<()> {
        self.shared.enrolments.withdraw(name, by);
        match &self.common {
            Some(common) => Ok(common.withdraw(name, by).await?),
            None => Ok(()),
        }
    }

    /// The credential that proves the code of a client that logs in.
    pub(crate) async fn code_at_log_in(
        &self,
        name: &Name,
    ) -> Result<Option<StoredCredential>, Refusal> {
        let Some(common) = &self.common else { return Ok(self.shared.enrolments.code(name)) };
        common.code_at_log_in(name).await.map_err(|DirectoryAway| Refusal::Unavailable)
    }

    /// Uses up a code that a client has proved. `None`: it is not valid any more. The caller holds
    /// the lock of the enrolments.
    pub(super) async fn take_code(
        &self,
        name: &Name,
        proved: &StoredCredential,
    ) -> anyhow::Result<Option<SharedCode>> {
        let own = self.shared.enrolments.take(name, proved);
        match &self.common {
            Some(common) => Ok(common.take(name, proved).await?),
            None => Ok(own),
        }
    }

    /// Makes a code good again that was used in vain.
    pub(super) async fn give_back_code(&self, name: &Name, code: SharedCode) {
        match &self.common {
            // A code that cannot be given back is void, and an administrator makes another.
            Some(common) => drop(common.offer(name, &code).await),
            None => self.shared.enrolments.give_back(name, code),
        }
    }

    /// Learns what the other nodes know of a client that is about to log in. Without an answer the
    /// client is checked by what this node knows.
    pub(crate) async fn learn_at_log_in(&self, name: &Name) {
        let Some(common) = &self.common else { return };
        if self.is_configured(name) {
            return;
        }
        match common.client_at_log_in(name).await {
            Ok(Some(client)) if common.is_known(name, client.revision) => {}
            Ok(None) if self.shared.clients.find(name.as_str()).is_none() => {}
            // This node may have been off when the client was revoked.
            Ok(None) if common.is_revoked(name).await == Ok(true) => {
                self.revoked(name.as_str()).await;
            }
            Ok(_) => self.learn(name).await,
            Err(DirectoryAway) => {
                tracing::debug!(client = %name, "the directory says nothing of the client");
            }
        }
    }

    /// Learns what the other nodes know of an enrolled client.
    pub(crate) async fn learn(&self, name: &Name) {
        if self.common.is_none() || self.is_configured(name) {
            return;
        }
        let _turn = self.shared.enrolments.turn().await;
        if let Err(error) = self.learn_in_turn(name).await {
            let client = name.as_str();
            tracing::warn!(
                client,
                "what other nodes know of client {client} is not applied: {error:#}"
            );
        }
    }

    /// Whether the configuration has the client, which the other nodes then have as well.
    fn is_configured(&self, name: &Name) -> bool {
        let known = self.shared.clients.snapshot();
        known.get(name.as_str()).is_some_and(|client| !client.enrolled)
    }

    /// As [`Self::learn`], for a caller that holds the lock of the enrolments. Returns the record
    /// of the cluster. A client that was enrolled before the server became a node has none.
    async fn learn_in_turn(&self, name: &Name) -> anyhow::Result<Option<SharedClient>> {
        let Some(common) = &self.common else { return Ok(None) };
        let Some(client) = common.client(name).await? else {
            common.note(name, None);
            return Ok(None);
        };
        if common.is_known(name, client.revision) || self.is_configured(name) {
            return Ok(Some(client));
        }
        let own = self.shared.enrolments.entry(name).await?;
        if own.as_ref() != Some(&client.text) || self.shared.clients.find(name.as_str()).is_none() {
            let grant = self.shared.enrolments.adopt(name, client.text.clone()).await?;
            let grant = grant.context("this server has no state directory")?;
            let changes = self.shared.clients.put(&grant, false)?;
            self.follow(&changes).await;
        }
        common.note(name, Some(client.revision));
        Ok(Some(client))
    }

    /// Reads the clients again that were enrolled and are connected, and writes those that have no
    /// record: they were enrolled before the server became a node.
    pub(crate) async fn share_enrolled(&self) {
        let Some(common) = &self.common else { return };
        let known = self.shared.clients.snapshot();
        for (name, _) in known.iter().filter(|(_, client)| client.enrolled) {
            let Ok(name) = Name::new(name) else { continue };
            if common.has(&name) && !self.is_connected(name.as_str()) {
                continue;
            }
            let _turn = self.shared.enrolments.turn().await;
            if let Err(error) = self.share_in_turn(common, &name).await {
                tracing::debug!(client = %name, "the client is not shared yet: {error:#}");
            }
        }
    }

    async fn share_in_turn(&self, common: &SharedClients, name: &Name) -> anyhow::Result<()> {
        if self.learn_in_turn(name).await?.is_some() || common.is_revoked(name).await? {
            return Ok(());
        }
        let Some(entry) = self.shared.enrolments.entry(name).await? else { return Ok(()) };
        let written = common.write(name, &entry, None).await?;
        common.note(name, written);
        Ok(())
    }

    /// Changes a stored client at all nodes: the change is made of the latest record, and is made
    /// again where another node was faster. The caller holds the lock of the enrolments.
    pub(super) async fn change_shared(
        &self,
        name: &Name,
        change: StoredChange<'_>,
    ) -> anyhow::Result<Option<ClientGrant>> {
        let enrolments = &self.shared.enrolments;
        let Some(common) = &self.common else { return change.make(enrolments, name).await };
        if self.is_configured(name) {
            return change.make(enrolments, name).await;
        }
        for _ in 0..TRIES {
            let present = self.learn_in_turn(name).await?.map(|client| client.revision);
            let before = enrolments.entry(name).await?;
            let Some(grant) = change.make(enrolments, name).await? else { return Ok(None) };
            let after = enrolments.entry(name).await?.context("the client is not stored")?;
            let written = common.write(name, &after, present).await;
            if let Ok(Some(revision)) = written {
                common.note(name, Some(revision));
                common.tell(name);
                return Ok(Some(grant));
            }
            // What the other nodes do not know is not so here.
            match before {
                Some(before) => drop(enrolments.adopt(name, before).await?),
                None => drop(enrolments.revoke(name).await?),
            }
            written?;
        }
        bail!("other nodes change client `{name}` at the same time; try again")
    }

    /// Revokes a client at all nodes. Returns whether there was a client or a code.
    pub(super) async fn revoke_elsewhere(&self, name: &Name) -> anyhow::Result<bool> {
        let Some(common) = &self.common else { return Ok(false) };
        if self.is_configured(name) {
            return Ok(false);
        }
        // A client that was enrolled before the server became a node has no record.
        let (client, code) = common.revoke(name).await?;
        common.note(name, None);
        Ok(client || code)
    }

    /// Ends the revocation of a client that was enrolled again, and waits until this node has heard
    /// of the end.
    pub(super) async fn restore(&self, name: &Name) -> anyhow::Result<()> {
        let Some(common) = &self.common else { return Ok(()) };
        common.restore(name).await?;
        for _ in 0..LOOKS {
            if !self.is_revoked(name.as_str()) {
                break;
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    /// A client was revoked, at any node: its links end, and its copy in the state directory goes.
    pub(crate) async fn revoked(&self, name: &str) {
        self.kick(name).await;
        let (Some(common), Ok(name)) = (&self.common, Name::new(name)) else { return };
        if self.is_configured(&name) || self.shared.clients.find(name.as_str()).is_none() {
            return;
        }
        let _turn = self.shared.enrolments.turn().await;
        // The client may have been enrolled again meanwhile.
        if let Ok(Some(_)) = common.client(&name).await {
            return;
        }
        common.note(&name, None);
        match self.shared.enrolments.revoke(&name).await {
            Ok(gone) if gone.client => self.remove_client(&name).await,
            Ok(_) => {}
            Err(error) => {
                tracing::error!(
                    client = %name,
                    "the copy of client {name}, which was revoked, could not be removed: {error:#}"
                );
            }
        }
    }
}
