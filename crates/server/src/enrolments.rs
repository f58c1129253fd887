//! Codes that admit new clients. A code is valid for ten minutes and for one client.

use std::collections::HashMap;
use std::fmt::Debug;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::shared_clients::SharedCode;
use anyhow::{Context, ensure};
use config::ClientGrant;
use net::brake::Failures;
use ops::WrongConfig;
use ops::clients::Change;
use ops::enrol::{GOOD_FOR, Order};
use proto::greeting::{Name, StoredCredential, Token};
use zeroize::Zeroizing;

/// The number of codes that may be valid at once. It suffices for a script that sets up many
/// clients.
const MAX: usize = 256;

/// The number of codes requested by one client that may be valid at once.
const INVITED_MAX: usize = 16;

/// The number of clients whose refused invitations are remembered.
const REFUSED_MAX: usize = 1024;

/// Doublings of the delay before an invitation is refused: up to 3.2 s, while the client waits.
const DOUBLINGS: u32 = 5;

/// The store of the clients that were enrolled by a code. All methods block.
pub trait Enrolled: Debug + Send + Sync {
    /// Whether the store has the client.
    fn has(&self, name: &Name) -> bool;

    /// Returns the name in an order if the order can be stored.
    ///
    /// # Errors
    /// The problems of the order.
    fn check(&self, order: &Order, public_bind: IpAddr) -> Result<Name, WrongConfig>;

    /// Stores a new client.
    fn write(
        &self,
        order: &Order,
        credential: &StoredCredential,
        public_bind: IpAddr,
    ) -> anyhow::Result<ClientGrant>;

    /// Adds the new token of a stored client after its current token. A new token that no log-in
    /// has used is replaced.
    fn renew(
        &self,
        name: &Name,
        credential: &StoredCredential,
        public_bind: IpAddr,
    ) -> anyhow::Result<ClientGrant>;

    /// Removes all tokens of a stored client except this one. `None`: the store does not have this
    /// token of the client, and nothing has changed.
    fn settle(
        &self,
        name: &Name,
        credential: &StoredCredential,
        public_bind: IpAddr,
    ) -> anyhow::Result<Option<ClientGrant>>;

    /// Changes a stored client and returns the client as it is now.
    ///
    /// # Errors
    /// The change contains an invalid right or limit, or the client cannot be stored. Nothing has
    /// changed then.
    fn change(&self, change: &Change, public_bind: IpAddr) -> anyhow::Result<ClientGrant>;

    /// Removes a client. Returns whether the store had it.
    fn remove(&self, name: &Name) -> io::Result<bool>;

    /// The entry of a stored client, by which the other nodes of a cluster store the client.
    /// `None`: the store does not have the client.
    fn entry(&self, name: &Name) -> anyhow::Result<Option<Zeroizing<String>>>;

    /// Stores a client by the entry of another node, in the place of the entry that the store has.
    ///
    /// # Errors
    /// The entry cannot be read or stored. Nothing has changed then.
    fn adopt(&self, name: &Name, entry: &str, public_bind: IpAddr) -> anyhow::Result<ClientGrant>;
}

/// The codes that are valid now. A greeting with a code looks its code up here.
#[derive(Debug)]
pub(super) struct Enrolments {
    /// The store. A server without a state directory has none and enrols no client.
    kept: Option<Arc<dyn Enrolled>>,
    public_bind: IpAddr,
    open: Mutex<HashMap<String, PendingCode>>,
    /// The inviter of each client, by the client's name. Limited to this process: a client that was
    /// enrolled before counts as not invited.
    invited: Mutex<HashMap<String, String>>,
    /// The refused invitations of each client, by its name.
    refused: Mutex<Failures<String>>,
    /// Held while the clients are read or one is added. Otherwise a reload that has read the
    /// clients could remove a client that was added meanwhile.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// The result of a revocation: what it has removed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Revoked {
    pub(super) code: bool,
    pub(super) client: bool,
}

/// A code that was made, and its secret.
#[derive(Debug)]
pub(super) struct MadeCode {
    pub(super) code: SharedCode,
    pub(super) secret: String,
}

#[derive(Clone, Debug)]
struct PendingCode {
    code: SharedCode,
    until: Instant,
}

impl Enrolments {
    pub(super) fn new(kept: Option<Arc<dyn Enrolled>>, public_bind: IpAddr) -> Self {
        let (open, invited, turn) = Default::default();
        let refused = Mutex::new(Failures::new(REFUSED_MAX, DOUBLINGS));
        Self { kept, public_bind, open, invited, refused, turn }
    }

    /// Counts a refused invitation that the client `by` requested. Returns the delay before the
    /// answer.
    pub(super) fn refuse(&self, by: &str) -> Duration {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.count(by.to_owned(), Instant::now())
    }

    fn invited(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.invited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the client `name` was enrolled by a code that the client `by` requested.
    pub(super) fn has_invited(&self, name: &Name, by: &str) -> bool {
        self.invited().get(name.as_str()).is_some_and(|inviter| inviter == by)
    }

    fn open(&self) -> MutexGuard<'_, HashMap<String, PendingCode>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the clients: one change at a time.
    pub(super) async fn turn(&self) -> tokio::sync::OwnedMutexGuard<()> {
        Arc::clone(&self.turn).lock_owned().await
    }

    /// Makes a code for a new client, or for the new token of an enrolled client, and returns its
    /// secret. An earlier code for the same name becomes void. `is_client`: a client of this name
    /// may log in already. `admits`: a listener accepts clients without a certificate. `by`: the
    /// client that requests the code, which must not replace a code that another client requested.
    ///
    /// # Errors
    /// The server has no state directory, the order cannot be stored, a new client is enrolled
    /// already, a client with a new token is not, the client is in the configuration, every
    /// listener requests a certificate, [`MAX`] codes are valid, or [`INVITED_MAX`] of the client
    /// `by`.
    pub(super) fn begin(
        &self,
        order: Order,
        is_client: bool,
        admits: bool,
        by: Option<&str>,
    ) -> anyhow::Result<MadeCode> {
        let kept = self.kept.as_ref().context("this server has no state directory")?;
        let name = kept.check(&order, self.public_bind)?;
        if order.renew && !order.is_without_rights() {
            return Err(WrongConfig::one(Order::RENEWAL_WITH_RIGHTS.to_owned()).into());
        }
        let has = kept.has(&name);
        let refusal = match (is_client && !has, has, order.renew) {
            (true, ..) => Some(format!(
                "client `{name}` is in the server's configuration and has its token there; a code \
                 is for a client that is not in the configuration"
            )),
            (false, true, false) => Some(is_enrolled(&name)),
            (false, false, true) => Some(format!(
                "no client `{name}` has come in by a code (hint: `tunnel enroll {name}` makes a \
                 code for a new client)"
            )),
            (false, true, true) | (false, false, false) => None,
        };
        if let Some(text) = refusal {
            return Err(WrongConfig::one(text).into());
        }
        if !admits {
            let text = "this server asks clients for certificates (tls.client_ca), which a code \
                        cannot give; make one with `tunnel generate certs --client NAME`";
            return Err(WrongConfig::one(text.to_owned()).into());
        }
        let secret = ops::token()?;
        let credential = Token::new(&secret).context("making a code")?.stored();
        let now = Instant::now();
        let mut open = self.open();
        open.retain(|_, one| one.until > now);
        ensure!(
            open.len() < MAX || open.contains_key(&order.name),
            "{MAX} codes are valid at the moment; wait until some are used or {} minutes old",
            GOOD_FOR.as_secs() / 60
        );
        if by.is_some() {
            let of_others = |one: &PendingCode| one.code.by.as_deref() != by;
            if open.get(&order.name).is_some_and(of_others) {
                let text = format!("there is a code for a new client `{name}` already");
                return Err(WrongConfig::one(text).into());
            }
            let own =
                open.values().filter(|one| !of_others(one) && one.code.order.name != order.name);
            let own = own.count();
            ensure!(
                own < INVITED_MAX,
                "{own} codes that this client has asked for are valid at the moment; wait until some \
                 are used or {} minutes old",
                GOOD_FOR.as_secs() / 60
            );
        }
        let by = by.map(str::to_owned);
        let (name, until) = (order.name.clone(), now + GOOD_FOR);
        let code = SharedCode { order, credential, by };
        open.insert(name, PendingCode { code: code.clone(), until });
        Ok(MadeCode { code, secret })
    }

    /// The credential that proves the code of this name; `None` when there is no valid code.
    pub(super) fn code(&self, name: &Name) -> Option<StoredCredential> {
        let open = self.open();
        let one = open.get(name.as_str()).filter(|one| one.until > Instant::now())?;
        Some(one.code.credential.clone())
    }

    /// Uses up the code of this name. `None`: another client used the code first, or another code
    /// replaced it.
    pub(super) fn take(&self, name: &Name, proved: &StoredCredential) -> Option<SharedCode> {
        let mut open = self.open();
        let is_it = open.get(name.as_str()).is_some_and(|one| one.code.credential == *proved);
        if is_it { open.remove(name.as_str()).map(|one| one.code) } else { None }
    }

    /// Makes a code good again that was used in vain, for as long as a new code.
    pub(super) fn give_back(&self, name: &Name, code: SharedCode) {
        let until = Instant::now() + GOOD_FOR;
        self.open().entry(name.as_str().to_owned()).or_insert(PendingCode { code, until });
    }

    /// Forgets the code of a name: another node has used it.
    pub(super) fn forget(&self, name: &Name) {
        self.open().remove(name.as_str());
    }

    /// Stores the credential of the new token of a client whose code was used up. `None`: the
    /// client is not as it was when the code was made.
    pub(super) async fn store(
        &self,
        name: &Name,
        used: &SharedCode,
        enrolled: StoredCredential,
        is_client: bool,
    ) -> anyhow::Result<Option<ClientGrant>> {
        let Some(kept) = self.kept.clone() else { return Ok(None) };
        // Since the code was made, the client may have been configured, revoked, or put into the
        // store by hand.
        if kept.has(name) != used.order.renew || is_client && !used.order.renew {
            return Ok(None);
        }
        let (order, bind, own) = (used.order.clone(), self.public_bind, name.clone());
        let (by, is_renewal) = (used.by.clone(), order.renew);
        let write = move || {
            if order.renew {
                kept.renew(&own, &enrolled, bind)
            } else {
                kept.write(&order, &enrolled, bind)
            }
        };
        let write = tokio::task::spawn_blocking(write);
        let written = write.await.unwrap_or_else(|defect| Err(defect.into()))?;
        if let Some(by) = by {
            self.invited().insert(name.as_str().to_owned(), by);
        } else if !is_renewal {
            self.invited().remove(name.as_str());
        }
        Ok(Some(written))
    }

    /// The entry of a stored client.
    pub(super) async fn entry(&self, name: &Name) -> anyhow::Result<Option<Zeroizing<String>>> {
        let Some(kept) = self.kept.clone() else { return Ok(None) };
        let name = name.clone();
        tokio::task::spawn_blocking(move || kept.entry(&name)).await?
    }

    /// Stores a client by the entry of another node. `None`: there is no store.
    pub(super) async fn adopt(
        &self,
        name: &Name,
        entry: Zeroizing<String>,
    ) -> anyhow::Result<Option<ClientGrant>> {
        let Some(kept) = self.kept.clone() else { return Ok(None) };
        let (name, bind) = (name.clone(), self.public_bind);
        let work = move || kept.adopt(&name, &entry, bind);
        tokio::task::spawn_blocking(work).await?.map(Some)
    }

    /// Makes all tokens of a stored client void except this one; see [`Enrolled::settle`].
    pub(super) async fn settle(
        &self,
        name: &Name,
        credential: &StoredCredential,
    ) -> anyhow::Result<Option<ClientGrant>> {
        let Some(kept) = self.kept.clone() else { return Ok(None) };
        let (name, credential, bind) = (name.clone(), credential.clone(), self.public_bind);
        tokio::task::spawn_blocking(move || kept.settle(&name, &credential, bind)).await?
    }

    /// Changes a stored client. `None`: the client is not in the store.
    pub(super) async fn change(&self, change: Change) -> anyhow::Result<Option<ClientGrant>> {
        let Some(kept) = self.kept.clone() else { return Ok(None) };
        let bind = self.public_bind;
        let work = move || {
            let name = Name::new(change.name()).map_err(|why| WrongConfig::one(why.to_string()))?;
            kept.has(&name).then(|| kept.change(&change, bind)).transpose()
        };
        tokio::task::spawn_blocking(work).await?
    }

    /// Removes the code of a name that the client `by` requested.
    pub(super) fn withdraw(&self, name: &Name, by: &str) {
        let mut open = self.open();
        if open.get(name.as_str()).is_some_and(|one| one.code.by.as_deref() == Some(by)) {
            open.remove(name.as_str());
        }
    }

    /// Removes the code of a name and the client itself.
    pub(super) async fn revoke(&self, name: &Name) -> anyhow::Result<Revoked> {
        let kept = self.kept.clone().context("this server has no state directory")?;
        let code = self.open().remove(name.as_str()).is_some();
        self.invited().remove(name.as_str());
        let name = name.clone();
        let client = tokio::task::spawn_blocking(move || kept.remove(&name)).await??;
        Ok(Revoked { code, client })
    }
}

/// The refusal of a code for a client that is enrolled already, with the remedies.
fn is_enrolled(name: &Name) -> String {
    format!(
        "client `{name}` is enrolled already, and a second code would lock it out. For a new token: \
         tunnel enroll --renew {name}. To remove it: tunnel enroll --revoke {name}. For more rights: \
         tunnel allow {name}. Its rights and state: tunnel clients show {name}"
    )
}
