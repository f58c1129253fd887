//! Codes that let new clients in: each good for ten minutes and for one of them.

use std::collections::HashMap;
use std::fmt::Debug;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context, ensure};
use config::{ClientGrant, ServerConfig};
use ops::WrongConfig;
use ops::enrol::{GOOD_FOR, Order};
use proto::greeting::{Name, StoredCredential, Token};

/// Codes that are good at a time: a fleet that is set up by a script fits.
const MAX: usize = 256;

/// The clients that have come in by a code, wherever a server keeps them. All of it blocks.
pub trait Enrolled: Debug + Send + Sync {
    /// Whether the client is kept.
    fn has(&self, name: &Name) -> bool;

    /// The name of an order that can be kept, or what is wrong with the order.
    fn check(&self, order: &Order, public_bind: IpAddr) -> Result<Name, WrongConfig>;

    /// Keeps a client; what is there under its name is replaced.
    fn write(
        &self,
        order: &Order,
        credential: &StoredCredential,
        public_bind: IpAddr,
    ) -> anyhow::Result<ClientGrant>;

    /// Whether there was such a client.
    fn remove(&self, name: &Name) -> io::Result<bool>;
}

/// What a server knows of those who are about to come in. Asked at greetings that bring a code.
#[derive(Debug)]
pub(super) struct Enrolments {
    /// Where clients are kept; a server without a state directory takes none.
    kept: Option<Arc<dyn Enrolled>>,
    public_bind: IpAddr,
    open: Mutex<HashMap<String, PendingCode>>,
    /// Held while the clients are read or one is added: else a reload that has read them could put
    /// one out that came meanwhile.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// What there was of a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Revoked {
    pub(super) code: bool,
    pub(super) client: bool,
}

#[derive(Clone, Debug)]
struct PendingCode {
    order: Order,
    credential: StoredCredential,
    until: Instant,
}

impl Enrolments {
    pub(super) fn new(kept: Option<Arc<dyn Enrolled>>, public_bind: IpAddr) -> Self {
        Self { kept, public_bind, open: Mutex::default(), turn: Arc::default() }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<String, PendingCode>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One change of the clients at a time.
    pub(super) async fn turn(&self) -> tokio::sync::OwnedMutexGuard<()> {
        Arc::clone(&self.turn).lock_owned().await
    }

    /// A code for somebody new, or for one who was enrolled before; another code for the same name
    /// is void then. `is_client`: the name may log in already.
    pub(super) fn begin(
        &self,
        order: Order,
        is_client: bool,
        config: &ServerConfig,
    ) -> anyhow::Result<String> {
        let kept = self.kept.as_ref().context("this server has no state directory")?;
        let name = kept.check(&order, self.public_bind)?;
        if is_client && !kept.has(&name) {
            let text = format!(
                "client `{name}` is in the server's configuration; its token is there, and this \
                 is for others"
            );
            return Err(WrongConfig::one(text).into());
        }
        if config.tls.client_ca.is_some() {
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
            "{MAX} codes are good at the moment; wait until some are used or {} minutes old",
            GOOD_FOR.as_secs() / 60
        );
        open.insert(order.name.clone(), PendingCode { order, credential, until: now + GOOD_FOR });
        Ok(secret)
    }

    /// What a greeting with the code of this name is compared with.
    pub(super) fn code(&self, name: &Name) -> Option<StoredCredential> {
        let open = self.open();
        let one = open.get(name.as_str()).filter(|one| one.until > Instant::now())?;
        Some(one.credential.clone())
    }

    /// The code of this name was given, and is used up by that. Keeps what verifies the token that
    /// its client has now. `None`: somebody else was quicker, or there is another code by now.
    pub(super) async fn finish(
        &self,
        name: &Name,
        code: &StoredCredential,
        enrolled: StoredCredential,
        is_client: bool,
    ) -> anyhow::Result<Option<ClientGrant>> {
        let used = {
            let mut open = self.open();
            match open.get(name.as_str()) {
                Some(one) if one.credential == *code => open.remove(name.as_str()),
                _ => None,
            }
        };
        let (Some(used), Some(kept)) = (used, self.kept.clone()) else { return Ok(None) };
        if is_client && !kept.has(name) {
            return Ok(None);
        }
        let (order, bind) = (used.order.clone(), self.public_bind);
        let write = tokio::task::spawn_blocking(move || kept.write(&order, &enrolled, bind));
        let written = write.await.unwrap_or_else(|defect| Err(defect.into()));
        if written.is_err() {
            // The disk may have room again in a minute.
            self.open().entry(name.as_str().to_owned()).or_insert(used);
        }
        written.map(Some)
    }

    /// Forgets the code of a name and the client itself.
    pub(super) async fn revoke(&self, name: &Name) -> anyhow::Result<Revoked> {
        let kept = self.kept.clone().context("this server has no state directory")?;
        let code = self.open().remove(name.as_str()).is_some();
        let name = name.clone();
        let client = tokio::task::spawn_blocking(move || kept.remove(&name)).await??;
        Ok(Revoked { code, client })
    }
}
