//! The interface for workers, reloads and the status.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use h1::host::normal;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::NoServerSessionStorage;
use rustls::version::{TLS12, TLS13};
use tls::{HostName, MaterialError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;

use crate::acme::Authority;
use crate::certificates::{ByName, CertificateTable, InOrder, OfFiles, load, wildcard_of};
use crate::challenge::{Kind, Slot};
use crate::ledger::{Names, Need, WAITING_MAX, Wanted};
use crate::settings::{Acme, Doors, MinVersion, Settings, Unusable};
use crate::shared::{CommonSecret, SealedStore, SharedStore, SharedTickets};
use crate::store::HOST_MAX;
use crate::stream::TlsIo;
use crate::wall;

/// The protocols inside TLS, preferred first.
const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The largest amount of plaintext and of ciphertext of one connection that may wait for a slow
/// visitor, in bytes, each. Four records are sealed and written together; a smaller limit costs
/// system calls.
const WAITING_BYTES: usize = 64 << 10;

/// The largest number of bytes that a terminated connection holds while the visitor does not read.
pub const UNSENT_MOST: u64 = WAITING_BYTES as u64 + RECORD;

/// The other memory of a connection, in bytes: the session, and an incomplete record. A handshake
/// needs no more.
pub const HELD: u64 = (7 << 10) + RECORD;

/// A record of the largest size, with its header and its authentication tag (RFC 8446 section 5.2).
const RECORD: u64 = (16 << 10) + 261;

/// The longest time that a visitor waits for the certificate that its visit has ordered. It is
/// shorter than the handshake timeout; an order takes 2 to 5 s.
const ORDERED_IN: Duration = Duration::from_secs(8);

/// Ends TLS for the visitors of published names. All workers and the slow runtime share one value.
pub struct Terminator {
    pub(crate) certificates: Arc<CertificateTable>,
    pub(crate) live: ArcSwap<Live>,
    pub(crate) names: Arc<Names>,
    pub(crate) slot: Slot,
    pub(crate) tickets: Arc<SharedTickets>,
    /// What the nodes of a cluster share; empty without a cluster or without its secret.
    shared: OnceLock<Arc<SealedStore>>,
    tell: OnceLock<Tell>,
    /// Wakes visitors that wait for the outcome of an order.
    settled: Notify,
}

/// Receives the outcome of each order: the host, and the reason of a failure.
type Tell = Box<dyn Fn(&str, Option<&str>) + Send + Sync>;

/// The problem of a name, and the time of the renewal that its authority suggests.
type Outlook = (Option<(String, Duration)>, Option<u64>);

/// The state that a reload replaces.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) authorities: Vec<Arc<Authority>>,
    doors: Doors,
    min_version: MinVersion,
    config: Arc<ServerConfig>,
}

impl Live {
    /// The challenges for names of an account: only dns-01 where a program writes records,
    /// otherwise what the doors permit. tls-alpn-01 comes first of those: port 443 is open on every
    /// server that ends TLS, and its response never conflicts with a service.
    pub(crate) fn kinds(&self, authority: &Authority) -> Vec<Kind> {
        if authority.acme.dns.is_some() {
            return vec![Kind::Dns];
        }
        let tls = self.doors.tls.then_some(Kind::Tls);
        tls.into_iter().chain(self.doors.http.then_some(Kind::Http)).collect()
    }

    /// Whether the certificates of this account are in use.
    pub(crate) fn is_of(&self, authority: &Authority) -> bool {
        self.authorities.iter().any(|live| live.store.is_same(&authority.store))
    }

    /// The number of the account that orders a name in normal form.
    pub(crate) fn account_of(&self, host: &str) -> Option<usize> {
        self.authorities.iter().position(|authority| authority.orders(host))
    }

    /// The account that orders a name in normal form.
    pub(crate) fn authority_for(&self, host: &str) -> Option<&Arc<Authority>> {
        self.authorities.get(self.account_of(host)?)
    }

    /// Whether a name, or the names below a wildcard, are ordered when a visitor comes.
    fn orders_on_demand(&self, host: &str) -> bool {
        self.authority_for(host).is_some_and(|authority| authority.acme.on_demand)
    }

    /// The settings of all accounts.
    fn acme(&self) -> Vec<&Acme> {
        self.authorities.iter().map(|authority| &authority.acme).collect()
    }
}

/// Whether the server can terminate TLS for a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cover {
    /// A configured certificate is for the name.
    Configured,
    /// A certificate was or will be ordered.
    Acme,
    /// A certificate can be ordered, but too many orders are waiting. A later attempt may succeed.
    /// The sentence contains the reason and a hint.
    Full(String),
    /// Neither. The sentence contains the reason and a hint.
    None(String),
}

/// The origin of a name's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateSource {
    /// A configured file.
    File,
    /// An order.
    Acme,
    /// The name has no certificate.
    None,
}

impl CertificateSource {
    /// The word for status and metrics: `file`, `acme` or `none`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Acme => "acme",
            Self::None => "none",
        }
    }
}

/// The state of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameStatus {
    /// The name. A name of a configured certificate may be a wildcard.
    pub host: String,
    /// The origin of the certificate.
    pub source: CertificateSource,
    /// The end of the certificate's validity, in seconds since 1970.
    pub expires: Option<u64>,
    /// The reason why the last order failed, or why the name has no certificate and will not get
    /// one. Without control characters.
    pub error: Option<String>,
    /// The time until the next order after a failure; `None` when no order follows.
    pub retry_in: Option<Duration>,
    /// The challenge that proved the name of an ordered certificate: `http-01`, `tls-alpn-01` or
    /// `dns-01`.
    pub challenge: Option<&'static str>,
    /// The time of the renewal of an ordered certificate, in seconds since 1970, unless the
    /// authority suggests another time; `None` for a certificate that is not renewed.
    pub renews: Option<u64>,
}

/// Checked settings, ready to be applied.
#[must_use = "nothing changes until `apply`"]
pub struct Prepared {
    terminator: Arc<Terminator>,
    parts: Parts,
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").finish_non_exhaustive()
    }
}

/// Loaded settings.
struct Parts {
    live: Live,
    files: OfFiles,
    in_order: InOrder,
    /// Stored certificates, where the accounts in use have changed.
    issued: Option<ByName>,
}

impl Prepared {
    /// Applies the settings to later connections and orders. Established connections keep their
    /// certificate. A published name that loses its certificate stays published; a single log line
    /// names all of them.
    pub fn apply(self) {
        let Self { terminator, parts } = self;
        let before = terminator.live.load_full();
        let is_other = before.acme() != parts.live.acme() || before.doors != parts.live.doors;
        // The lock keeps the driver from adding a certificate of the old authority.
        let lost = terminator.names.with(|ledger| {
            let mut lost = ledger.wanted();
            lost.retain(|host| terminator.uncovered(&before, host).is_none());
            terminator.certificates.files.store(Arc::new(parts.files));
            terminator.certificates.in_order.store(Arc::new(parts.in_order));
            if let Some(mut issued) = parts.issued {
                // The driver may have added a certificate since the files were read.
                let wall = wall();
                for (host, shown) in terminator.certificates.issued.load().iter() {
                    let stays = !shown.is_stale(wall)
                        && parts.live.authority_for(host).is_some_and(|of| before.is_of(of));
                    if stays && issued.get(host).is_none_or(|read| read.ends < shown.ends) {
                        issued.insert(host.clone(), shown.clone());
                    }
                }
                terminator.certificates.issued.store(Arc::new(issued));
            }
            terminator.live.store(Arc::new(parts.live));
            if is_other {
                ledger.forget_failures();
            }
            lost
        });
        terminator.names.wake();
        terminator.tell_lost(&lost);
    }
}

impl fmt::Debug for Terminator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Terminator").finish_non_exhaustive()
    }
}

impl Terminator {
    /// Loads certificates, including stored ones. No order is made before [`Terminator::run`].
    ///
    /// # Errors
    /// All problems of the settings.
    pub fn new(settings: &Settings) -> Result<Arc<Self>, Unusable> {
        let failed =
            |error: rustls::Error| Unusable(vec![MaterialError::Setting(error.to_string())]);
        let tickets = Arc::new(SharedTickets::new(Ticketer::new().map_err(failed)?));
        let certificates = Arc::new(CertificateTable::default());
        let parts = prepare(settings, &certificates, &tickets, None, &[])?;
        certificates.files.store(Arc::new(parts.files));
        certificates.in_order.store(Arc::new(parts.in_order));
        certificates.issued.store(Arc::new(parts.issued.unwrap_or_default()));
        Ok(Arc::new(Self {
            certificates,
            live: ArcSwap::from_pointee(parts.live),
            names: Arc::default(),
            slot: Slot::default(),
            tickets,
            shared: OnceLock::new(),
            tell: OnceLock::new(),
            settled: Notify::new(),
        }))
    }

    /// Shares certificates, responses to challenges and session tickets with the other nodes of a
    /// cluster from now on. Only the first call of this method takes effect; the caller makes it
    /// before [`Terminator::run`].
    pub fn share(&self, secret: CommonSecret, store: Arc<dyn SharedStore>) {
        let _ = self.shared.set(Arc::new(SealedStore::new(secret, store)));
    }

    /// Whether this node has a need of its own for the certificate of a name whose client has its
    /// links with another node of the cluster. Where the nodes share certificates, that node orders
    /// them, except for the names below a wildcard that visitors have ordered.
    #[must_use]
    pub fn orders_for_others(&self, host: &str) -> bool {
        let host = normal(host);
        self.shared().is_none()
            || host.starts_with("*.") && self.live.load().orders_on_demand(&host)
    }

    /// What the nodes of a cluster share.
    pub(crate) fn shared(&self) -> Option<&Arc<SealedStore>> {
        self.shared.get()
    }

    /// Calls `tell` with the outcome of each order from now on: the host, and the reason of a
    /// failure. Only the first call of this method takes effect.
    pub fn tell_orders(&self, tell: impl Fn(&str, Option<&str>) + Send + Sync + 'static) {
        let _ = self.tell.set(Box::new(tell));
    }

    /// Reports the outcome of an order.
    pub(crate) fn tell(&self, host: &str, failure: Option<&str>) {
        if let Some(tell) = self.tell.get() {
            tell(host, failure);
        }
        self.settled.notify_waiters();
    }

    /// Loads and checks new settings. Nothing changes before [`Prepared::apply`], which cannot
    /// fail.
    ///
    /// # Errors
    /// All problems of the settings.
    pub fn reload(self: &Arc<Self>, settings: &Settings) -> Result<Prepared, Unusable> {
        let before = self.live.load_full();
        let published = self.names.with(|ledger| ledger.wanted());
        let parts =
            prepare(settings, &self.certificates, &self.tickets, Some(&before), &published)?;
        Ok(Prepared { terminator: Arc::clone(self), parts })
    }

    /// Whether the server can end TLS for a name that a service of this client publishes.
    #[must_use]
    pub fn covers(&self, host: &str, client: &str) -> Cover {
        let host = match host.parse() {
            Ok(HostName::Name(name)) => name,
            Ok(HostName::Address(ip)) => {
                return Cover::None(format!(
                    "visitors of the address {ip} send no name inside TLS (hint: publish a name)"
                ));
            }
            Err(error) => return Cover::None(error.to_string()),
        };
        if self.certificates.is_configured(&host) {
            return Cover::Configured;
        }
        let live = self.live.load_full();
        match refusal(&live, &host) {
            Some(reason) => Cover::None(reason),
            None if self.is_full(&live, &host, client) => Cover::Full(format!(
                "{WAITING_MAX} names of this client wait for their first certificate, and {host} \
                 would wait behind them (hint: the client asks again by itself)"
            )),
            None => Cover::Acme,
        }
    }

    /// A service of this client publishes the name: a certificate is ordered and renewed until the
    /// result is dropped. Names that [`Terminator::covers`] does not cover are recorded without an
    /// order, since a reload may cover them later.
    pub fn want(&self, host: &str, client: &str) -> Wanted {
        self.names.want(normal(host).into(), &client.into())
    }

    /// Whether the server has a certificate for a name, valid or not.
    #[must_use]
    pub fn has_certificate(&self, server_name: &str) -> bool {
        self.certificates.find(&normal(server_name)).is_some()
    }

    /// Performs the handshake with a visitor. `io` begins with the ClientHello, and `server_name`
    /// is the name in it. The caller bounds the time.
    ///
    /// # Errors
    /// The handshake failed; the text is a sentence. A TLS alert was sent where TLS defines one.
    pub async fn accept<IO>(&self, io: IO, server_name: &str) -> io::Result<TlsIo<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let (host, live) = (normal(server_name), self.live.load_full());
        let unused = self.look_up(&live, &host).await;
        self.order_on_demand(&live, &host).await;
        let shaken = self.shake_hands(io, &live, Some(&host)).await;
        match unused {
            Some(why) if shaken.is_err() && self.certificates.find(&host).is_none() => {
                Err(invalid(format!("{host} has no certificate: {why}")))
            }
            Some(_) | None => shaken,
        }
    }

    /// As [`Self::accept`], for a ClientHello without a server name, which load balancers and
    /// devices send that connect by address. The first certificate of the configuration is
    /// presented to the visitor.
    ///
    /// # Errors
    /// As [`Self::accept`].
    pub async fn accept_nameless<IO>(&self, io: IO) -> io::Result<TlsIo<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        self.shake_hands(io, &self.live.load_full(), None).await
    }

    /// Whether a certificate can be presented to a visitor that sends no server name.
    #[must_use]
    pub fn has_default(&self) -> bool {
        self.certificates.has_default()
    }

    async fn shake_hands<IO>(
        &self,
        io: IO,
        live: &Live,
        host: Option<&str>,
    ) -> io::Result<TlsIo<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let shown_as = host.unwrap_or("a visitor without a server name");
        let acceptor = TlsAcceptor::from(Arc::clone(&live.config));
        let limit = |tls: &mut rustls::ServerConnection| tls.set_buffer_limit(Some(WAITING_BYTES));
        match acceptor.accept_with(io, limit).await {
            Ok(stream) => {
                let shown = stream.get_ref().1.server_name().map(normal);
                if shown.as_deref() == host {
                    Ok(TlsIo::new(stream))
                } else {
                    // The certificate was chosen by the server name in the handshake.
                    Err(invalid(format!("the handshake is for another name than {shown_as}")))
                }
            }
            Err(error) => Err(self.explained(&error, shown_as, live.min_version)),
        }
    }

    /// Orders a name below a published wildcard for its visitor, if the account of the name orders
    /// on demand, and waits for the outcome.
    async fn order_on_demand(&self, live: &Live, host: &str) {
        if !live.orders_on_demand(host) {
            return;
        }
        let shown = self.certificates.find(host);
        let is_due = shown.as_ref().is_none_or(|it| it.file.is_none() && it.renewal() <= wall());
        if !is_due || refusal(live, host).is_some() {
            return;
        }
        let follows = self.names.with(|ledger| ledger.demand(host, Instant::now()));
        self.names.wake();
        let is_valid = || self.certificates.find(host).is_some_and(|shown| shown.is_valid(wall()));
        if !follows || is_valid() {
            return;
        }
        // The limits of first orders do not apply to a renewal.
        let is_first = shown.is_none();
        let outcome = async {
            loop {
                let settled = self.settled.notified();
                let failed =
                    || self.names.with(|ledger| ledger.trouble(host, is_first, Instant::now()));
                if is_valid() || failed().is_some() {
                    return;
                }
                settled.await;
            }
        };
        // Without a certificate the handshake fails, and the reason is logged. A visitor of an
        // expired certificate receives it.
        let _ = timeout(ORDERED_IN, outcome).await;
    }

    /// The names that services publish and the names of the configured certificates, in
    /// alphabetical order.
    #[must_use]
    pub fn status(&self) -> Vec<NameStatus> {
        let files = self.certificates.files.load_full();
        let issued = self.certificates.issued.load_full();
        let live = self.live.load_full();
        let now = Instant::now();
        let mut hosts: BTreeMap<Box<str>, Outlook> =
            files.keys().map(|host| (host.clone(), (None, None))).collect();
        self.names.with(|ledger| {
            for host in ledger.wanted() {
                let trouble = ledger.trouble(&host, !issued.contains_key(&host), now);
                let suggested = ledger.suggested(&host);
                hosts.insert(host, (trouble, suggested));
            }
            // Names that visitors have had ordered belong to no service, and their wildcard has no
            // certificate.
            if live.authorities.iter().any(|authority| authority.acme.on_demand) {
                for host in issued.keys() {
                    if ledger.wildcard_client(host).is_some() {
                        hosts.entry(host.clone()).or_default();
                    }
                }
                let is_open = |host: &str| {
                    host.starts_with("*.")
                        && live.orders_on_demand(host)
                        && self.certificates.find(host).is_none()
                };
                hosts.retain(|host, _| !is_open(host));
            }
        });
        let mut all = Vec::with_capacity(hosts.len());
        for (host, (trouble, suggested)) in hosts {
            let shown = self.certificates.find(&host);
            let source = match &shown {
                Some(shown) if shown.file.is_some() => CertificateSource::File,
                Some(_) => CertificateSource::Acme,
                None => CertificateSource::None,
            };
            let refusal = self.uncovered(&live, &host);
            let (error, retry_in) = match (source, &refusal) {
                (CertificateSource::File, _) => (None, None),
                // No order follows, so an earlier failure no longer matters.
                (CertificateSource::Acme | CertificateSource::None, Some(refusal)) => {
                    (Some(refusal.clone()), None)
                }
                (CertificateSource::Acme | CertificateSource::None, None) => trouble.unzip(),
            };
            let ordered = shown.as_ref().filter(|_| source == CertificateSource::Acme);
            let challenge = ordered.and_then(|shown| shown.by).map(Kind::name);
            let is_renewed = ordered.is_some() && issued.contains_key(&host) && refusal.is_none();
            let renews = ordered.filter(|_| is_renewed);
            let renews = renews.map(|shown| suggested.unwrap_or_else(|| shown.renewal()));
            let expires = shown.map(|shown| shown.ends);
            let host = host.into();
            all.push(NameStatus { host, source, expires, error, retry_in, challenge, renews });
        }
        all
    }

    /// The need of a name for an order.
    pub(crate) fn need(&self, live: &Live, host: &str) -> Need {
        let is_open = host.starts_with("*.") && live.orders_on_demand(host);
        if is_open || self.certificates.is_configured(host) || refusal(live, host).is_some() {
            return Need::Nothing;
        }
        let issued = self.certificates.issued.load();
        if let Some(shown) = issued.get(host) {
            return Need::Renewal(shown.renewal());
        }
        // A published wildcard has a certificate that also covers the names below it. It is no
        // longer renewed after the wildcard is withdrawn; the names then get their own certificates
        // in time.
        let below = wildcard_of(host).and_then(|name| issued.get(name.as_str()).cloned());
        match below {
            Some(shown) if wall() < shown.renewal() => Need::Nothing,
            Some(_) | None => Need::First,
        }
    }

    /// The reason why a name has no configured certificate and cannot have an ordered one; `None`:
    /// it can.
    fn uncovered(&self, live: &Live, host: &str) -> Option<String> {
        if self.certificates.is_configured(host) { None } else { refusal(live, host) }
    }

    /// Logs which of the published names `before`, all of them covered previously, lost their
    /// cover.
    fn tell_lost(&self, before: &[Box<str>]) {
        let live = self.live.load_full();
        let mut lost = before.iter().filter_map(|host| Some((host, self.uncovered(&live, host)?)));
        let Some((host, why)) = lost.next() else { return };
        match lost.count() {
            0 => tracing::warn!("https://{host} stays published without a certificate: {why}"),
            1 => tracing::warn!(
                "https://{host} and 1 more published name have no certificate any more: {why}"
            ),
            more => tracing::warn!(
                "https://{host} and {more} more published names have no certificate any more: {why}"
            ),
        }
    }

    fn is_full(&self, live: &Live, host: &str, client: &str) -> bool {
        self.certificates.find(host).is_none()
            && self.names.with(|ledger| ledger.is_full(host, client, |host| self.need(live, host)))
    }

    /// A failed handshake, explained.
    pub(crate) fn explained(&self, error: &io::Error, host: &str, oldest: MinVersion) -> io::Error {
        let tls = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
        match tls {
            None if error.kind() == io::ErrorKind::UnexpectedEof => io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the visitor closed before the handshake was complete",
            ),
            None => io::Error::new(error.kind(), error.to_string()),
            Some(_) if self.certificates.find(host).is_none() => {
                let trouble = self.names.with(|ledger| ledger.trouble(host, true, Instant::now()));
                let why = trouble.map_or_else(|| "none was issued yet".into(), |(error, _)| error);
                invalid(format!("{host} has no certificate: {why}"))
            }
            Some(error) => invalid(tls::of_visitor(error, oldest.name())),
        }
    }
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// The reason why a name in normal form that no file covers cannot be ordered.
fn refusal(live: &Live, host: &str) -> Option<String> {
    let by_file = "add a certificate for it to `tls_routes.certificates` of the server";
    if live.authorities.is_empty() {
        return Some(format!(
            "no certificate of this server is for {host}, and the server does not order \
             certificates (hint: {by_file}, set `tls_routes.acme`, or publish tls://{host} with a \
             target that ends TLS itself)"
        ));
    }
    let Some(authority) = live.authority_for(host) else {
        return Some(format!(
            "no account of `tls_routes.acme` orders certificates for {host} (hint: add the name to \
             `names` of one, or {by_file})"
        ));
    };
    let kinds = live.kinds(authority);
    if host.starts_with("*.") && !kinds.contains(&Kind::Dns) && !authority.acme.on_demand {
        return Some(format!(
            "a certificate for {host} cannot be ordered, because neither http-01 nor tls-alpn-01 \
             proves a wildcard (hint: set `tls_routes.acme.dns`, or `on_demand` there for a \
             certificate per name, or {by_file})"
        ));
    }
    if kinds.is_empty() {
        return Some(format!(
            "a certificate for {host} cannot be ordered, because a certificate authority reaches \
             this server neither at port 80 nor at port 443 (hint: listen there, set \
             `tls_routes.acme.dns`, or {by_file})"
        ));
    }
    // The name is used as a file name.
    if !matches!(host.parse(), Ok(HostName::Name(name)) if name == host) {
        return Some(format!("`{}` is no host name", crate::plain(host)));
    }
    if host.len() > HOST_MAX {
        return Some(format!(
            "a certificate is ordered for names of at most {HOST_MAX} characters"
        ));
    }
    None
}

/// Loads and checks settings. `before` is the state in use: if present, orders may be in progress.
fn prepare(
    settings: &Settings,
    certificates: &Arc<CertificateTable>,
    ticketer: &Arc<SharedTickets>,
    before: Option<&Live>,
    published: &[Box<str>],
) -> Result<Parts, Unusable> {
    let mut problems = Vec::new();
    let (files, in_order) = load(&settings.certificates, &mut problems);
    let state_dir = settings.state_dir.as_deref();
    let prepared = |acme| Authority::prepare(acme, state_dir, &mut problems);
    let authorities: Vec<Authority> = settings.acme.iter().filter_map(prepared).collect();
    for (n, authority) in authorities.iter().enumerate() {
        if authorities[..n].iter().any(|before| before.store.is_same(&authority.store)) {
            problems.push(MaterialError::Setting(format!(
                "two accounts of `tls_routes.acme` are at {} (hint: give one of them a name: \
                 `account: NAME`)",
                crate::plain(&authority.acme.directory)
            )));
        }
    }
    // The driver may add certificates until the settings are applied, so the tables of unchanged
    // accounts are not read again.
    let stays = before.is_some_and(|before| {
        let was = |authority: &Authority| before.is_of(authority);
        before.acme() == authorities.iter().map(|authority| &authority.acme).collect::<Vec<_>>()
            && authorities.iter().all(was)
    });
    let issued = if stays {
        None
    } else {
        Some(kept(&authorities, published, before.is_none(), &mut problems))
    };
    let config = config(settings.min_version, certificates, ticketer)
        .map_err(|error| problems.push(MaterialError::Setting(error.to_string())));
    match config {
        Ok(config) if problems.is_empty() => {
            let authorities = authorities.into_iter().map(Arc::new).collect();
            let (doors, min_version) = (settings.doors, settings.min_version);
            let live = Live { authorities, doors, min_version, config };
            Ok(Parts { live, files, in_order, issued })
        }
        Ok(_) | Err(()) => Err(Unusable(problems)),
    }
}

/// The stored certificates of all accounts. For a name that several accounts have ordered, the
/// certificate of its current account is used. For `published` and `removes` see
/// [`crate::store::Store::load`].
fn kept(
    authorities: &[Authority],
    published: &[Box<str>],
    removes: bool,
    problems: &mut Vec<MaterialError>,
) -> ByName {
    let wall = wall();
    let mut all = ByName::new();
    for (n, authority) in authorities.iter().enumerate() {
        let table = match authority.store.load(published, wall, removes) {
            Ok(table) => table,
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        for (host, shown) in table {
            let orders = authorities.iter().position(|other| other.orders(&host)) == Some(n);
            if orders || !all.contains_key(&host) {
                all.insert(host, shown);
            }
        }
    }
    all
}

/// The configuration of all handshakes with visitors.
fn config(
    oldest: MinVersion,
    certificates: &Arc<CertificateTable>,
    ticketer: &Arc<SharedTickets>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let versions: &[_] = match oldest {
        MinVersion::Tls12 => &[&TLS13, &TLS12],
        MinVersion::Tls13 => &[&TLS13],
    };
    let certificates: Arc<CertificateTable> = Arc::clone(certificates);
    let mut config = ServerConfig::builder_with_provider(tls::provider())
        .with_protocol_versions(versions)?
        .with_no_client_auth()
        .with_cert_resolver(certificates);
    config.alpn_protocols = ALPN.iter().map(|name| name.to_vec()).collect();
    // Browsers resume. Tickets need no memory here, are valid on every worker and survive a reload;
    // their keys change every six hours. The nodes of a cluster have the same keys. A ticket is
    // bound to its server name. 0-RTT stays off: its requests could be replayed.
    config.ticketer = Arc::<SharedTickets>::clone(ticketer);
    config.session_storage = Arc::new(NoServerSessionStorage {});
    tls::order_suites(&mut config);
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::Shown;

    #[tokio::test(start_paused = true)]
    async fn a_visitor_of_an_expired_certificate_waits_for_the_order() {
        let dir = tempfile::tempdir().unwrap();
        let acme = Acme {
            directory: "https://ca.example/dir".into(),
            ca: Some(testkit::certs::Authority::new("test").unwrap().save(dir.path()).unwrap()),
            on_demand: true,
            ..Acme::default()
        };
        let settings = Settings {
            acme: vec![acme],
            state_dir: Some(dir.path().to_owned()),
            doors: Doors { http: true, tls: true },
            ..Settings::default()
        };
        let terminator = Terminator::new(&settings).unwrap();
        let _wanted = terminator.want("*.home.example", "home");
        let (live, host) = (terminator.live.load_full(), "a.home.example");
        let leaf = Shown::of(&tls::fleeting(&[host.into()]).unwrap()).unwrap();
        let show = |begins, ends| {
            terminator.certificates.show_issued(host, Shown { begins, ends, ..leaf.clone() });
        };
        let visit = || terminator.order_on_demand(&live, host);
        let soon = Duration::from_secs(1);

        // In its last third the certificate is shown while the order is made.
        show(wall() - 8_000, wall() + 2_000);
        timeout(soon, visit()).await.unwrap();
        assert!(terminator.names.with(|ledger| ledger.wanted().contains(&host.into())));

        show(wall() - 8_000, wall() - 1);
        let mut visitor = Box::pin(visit());
        assert!(timeout(soon, &mut visitor).await.is_err());
        terminator.tell("other.home.example", None);
        assert!(timeout(soon, &mut visitor).await.is_err());
        show(wall() - 1, wall() + 8_000);
        terminator.tell(host, None);
        timeout(soon, visitor).await.unwrap();

        // The failure of the order ends the wait as well.
        show(wall() - 8_000, wall() - 1);
        let mut visitor = Box::pin(visit());
        assert!(timeout(soon, &mut visitor).await.is_err());
        let scope = crate::ledger::Scope::Name;
        terminator
            .names
            .with(|ledger| ledger.failed(host, Instant::now(), scope, None, "no".into()));
        terminator.tell(host, Some("no"));
        timeout(soon, visitor).await.unwrap();
    }
}
