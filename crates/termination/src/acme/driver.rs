//! Runs orders one after the other, and records their outcome.

use std::time::Duration;

use instant_acme::{Account, CertificateIdentifier};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::account;
use super::common::{SeenNames, let_others};
use super::failure::{Cause, Failure};
use super::hook::{self, Action, Record};
use super::http::Asked;
use super::order::{Issued, Wish, obtain};
use super::renewal;
use super::{Arc, Authority};
use crate::certificates::Shown;
use crate::challenge::Kind;
use crate::ledger::{Next, Scope};
use crate::settings::{Dns, Wait};
use crate::shared::SealedStore;
use crate::terminator::{Live, Terminator};
use crate::{AUDIT, plain, wall};

/// The timeout of an order. The check and the signature may take 60 s each.
const ORDER_MAX: Duration = Duration::from_secs(240);

/// How long further names are collected after a name was added: a client may publish thousands at
/// once, and each scan visits all of them.
const GATHER: Duration = Duration::from_millis(100);

/// How often an order is retried at once after the authority rejected its nonces.
const NONCE_ORDERS: u32 = 4;

/// How long it is remembered whether a directory has renewal information, and at which URL.
const DIRECTORY: Duration = Duration::from_secs(24 * 3600);

/// The state that is kept between orders.
#[derive(Default)]
struct Session {
    /// The open accounts.
    accounts: Vec<(Arc<Authority>, Account)>,
    /// The URLs for renewal information, and when they were learned.
    renewals: Vec<(Arc<Authority>, Option<String>, Instant)>,
    asked: Arc<Asked>,
    /// The names that were compared with the store of the cluster.
    seen: SeenNames,
}

impl Session {
    /// The account of an authority, which is opened once.
    async fn open(
        &mut self,
        authority: &Arc<Authority>,
        shared: Option<&SealedStore>,
        anew: bool,
    ) -> Result<Account, Failure> {
        self.accounts.retain(|(of, _)| !anew || !Arc::ptr_eq(of, authority));
        if let Some((_, account)) = self.accounts.iter().find(|(of, _)| Arc::ptr_eq(of, authority))
        {
            return Ok(account.clone());
        }
        let account = account::open(authority, shared, &self.asked, anew).await?;
        self.accounts.push((Arc::clone(authority), account.clone()));
        Ok(account)
    }

    /// The URL for renewal information of an authority; `None`: the authority has none.
    async fn renewals(&mut self, authority: &Arc<Authority>) -> Result<Option<String>, String> {
        self.renewals.retain(|(.., since)| since.elapsed() < DIRECTORY);
        let mut known = self.renewals.iter();
        if let Some((_, url, _)) = known.find(|(of, ..)| Arc::ptr_eq(of, authority)) {
            return Ok(url.clone());
        }
        let url = renewal::address(authority).await?;
        self.renewals.push((Arc::clone(authority), url.clone(), Instant::now()));
        Ok(url)
    }
}

impl Terminator {
    /// Orders and renews certificates for the published names until the future is dropped. One
    /// order is in progress at a time, also among the nodes of a cluster that share certificates.
    /// Exactly one such future may run per terminator.
    pub async fn run(self: Arc<Self>) {
        let tickets = async {
            if let Some(shared) = self.shared() {
                shared.follow_tickets(&self.tickets).await;
            }
        };
        tokio::join!(self.drive(), tickets);
    }

    async fn drive(&self) {
        let mut session = Session::default();
        let mut seen = self.live.load_full();
        loop {
            let live = self.live.load_full();
            if !Arc::ptr_eq(&live, &seen) {
                // The authorities of former settings are no longer queried.
                (session.accounts, session.renewals) = Default::default();
                session.seen = SeenNames::default();
                seen = Arc::clone(&live);
            }
            if let Some(shared) = self.shared() {
                self.see_names(shared, &live, &mut session.seen).await;
            }
            let next = self.names.with(|ledger| {
                ledger.assign(|host| live.account_of(host).unwrap_or(usize::MAX));
                ledger.next(Instant::now(), wall(), |host| self.need(&live, host))
            });
            match next {
                Next::Order(host) => match live.authority_for(&host) {
                    Some(authority) => self.order(&mut session, &live, authority, &host).await,
                    // Without an authority no name needs an order.
                    None => self.names.changed().await,
                },
                Next::Ask(host) => match live.authority_for(&host) {
                    Some(authority) => self.ask(&mut session, authority, &host).await,
                    None => self.names.changed().await,
                },
                Next::Sleep(until) => tokio::select! {
                    () = sleep_until(session.seen.again().map_or(until, |at| at.min(until))) => {}
                    () = self.names.changed() => sleep(GATHER).await,
                },
            }
        }
    }

    async fn order(
        &self,
        session: &mut Session,
        live: &Live,
        authority: &Arc<Authority>,
        host: &str,
    ) {
        let shared = self.shared().map(|shared| &**shared);
        let begun = match shared {
            Some(shared) => match self.begin(shared, live, authority, host).await {
                Some(begun) => Some(begun),
                None => return,
            },
            None => None,
        };
        let kinds = self.kinds_for(live, authority, host);
        let dns = authority.acme.dns.as_ref();
        let wish = Wish { host, kinds: &kinds, slot: &self.slot, shared, dns };
        let replaced = self.certificates.issued.load().get(host).cloned();
        let mut record = None;
        let most = ORDER_MAX + dns.map_or(Duration::ZERO, longest);
        let attempt = attempt(session, authority, &wish, replaced.as_ref(), &mut record);
        let outcome = match timeout(most, attempt).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let seconds = most.as_secs();
                Err(Failure::new(Scope::Name, format!("the order took longer than {seconds} s")))
            }
        };
        if let (Some(dns), Some(record)) = (dns, record) {
            clean(dns, &record).await;
        }
        match outcome.and_then(|issued| Ok((accept(authority, host, &issued)?, issued))) {
            Ok((shown, issued)) => {
                self.settle(authority, host, shown, &issued);
                if let (Some(shared), Some(begun)) = (shared, &begun)
                    && !self.give(shared, authority, host, begun.revision).await
                {
                    session.seen.forget(host);
                }
            }
            Err(failure) => {
                let asked = session.asked.take().or(failure.pause);
                self.refuse(host, failure, asked);
            }
        }
        if let Some(begun) = begun {
            drop(begun);
            let_others().await;
        }
    }

    /// Queries the authority for the renewal time of a certificate.
    async fn ask(&self, session: &mut Session, authority: &Arc<Authority>, host: &str) {
        let Some(shown) = self.certificates.issued.load().get(host).cloned() else {
            // The certificate has been removed since the scan of the names.
            return self.names.with(|ledger| {
                ledger.suggest(host, Instant::now(), None, Duration::ZERO);
            });
        };
        let before = self.names.with(|ledger| ledger.suggested(host));
        let answer = match session.renewals(authority).await {
            Ok(Some(url)) => renewal::ask(authority, &url, &shown, before).await,
            Ok(None) => Ok(renewal::Suggestion { at: None, pause: DIRECTORY }),
            Err(why) => Err(why),
        };
        self.names.with(|ledger| match answer {
            Ok(answer) => ledger.suggest(host, Instant::now(), answer.at, answer.pause),
            Err(why) => {
                let pause = ledger.unanswered(host, Instant::now()).as_secs();
                tracing::debug!(
                    host,
                    "the authority gives no renewal information: {}; next question in {pause} s",
                    plain(&why)
                );
            }
        });
    }

    /// The challenges in the order in which they are tried. The challenge that last proved the name
    /// comes first; each failure moves on to the next challenge. Only one challenge is tried per
    /// order, because authorities count failed checks.
    fn kinds_for(&self, live: &Live, authority: &Authority, host: &str) -> Vec<Kind> {
        let mut kinds = live.kinds(authority);
        let proved_by = authority.store.proved_by(host);
        kinds.sort_by_key(|kind| Some(*kind) != proved_by);
        let failures = self.names.with(|ledger| ledger.failures(host));
        if !kinds.is_empty() {
            let turn = usize::try_from(failures).unwrap_or(0) % kinds.len();
            kinds.rotate_left(turn);
        }
        kinds
    }

    /// Puts a new certificate into use and stores it.
    fn settle(&self, authority: &Authority, host: &str, shown: Shown, issued: &Issued) {
        let kept = authority.store.keep(host, issued.proved_by, &issued.key, &issued.chain);
        let known = self.certificates.issued.load().get(host).and_then(|before| before.by);
        let shown = Shown { by: issued.proved_by.or(known), ..shown };
        let until = tls::day_of(shown.ends);
        let is_renewal = self.certificates.issued.load().contains_key(host);
        self.names.with(|ledger| {
            ledger.succeeded(host, Instant::now());
            // A reload may have changed the authority in the meantime.
            if self.live.load().is_of(authority) {
                self.certificates.show_issued(host, shown);
            }
        });
        let verb = if is_renewal { "renewed" } else { "issued" };
        let by = issued.proved_by.map_or("an earlier check", Kind::name);
        tracing::info!(
            target: AUDIT, host,
            "the certificate of {host} was {verb} ({by}) and is valid until {until}"
        );
        self.tell(host, None);
        if let Err(problem) = kept {
            tracing::warn!(
                host,
                "the certificate of {host} is used but not kept for the next start: {problem}"
            );
        }
    }

    /// Records a failed order.
    pub(super) fn refuse(&self, host: &str, failure: Failure, asked: Option<Duration>) {
        let error = failure.text;
        let pause = self.names.with(|ledger| {
            ledger.failed(host, Instant::now(), failure.scope, asked, error.clone())
        });
        let pause = pause.as_secs();
        self.tell(host, Some(&error));
        match self.certificates.issued.load().get(host) {
            Some(shown) if !shown.is_late(wall()) => tracing::info!(
                host,
                "the certificate of {host} was not renewed: {error}; next attempt in {pause} s"
            ),
            Some(shown) => {
                let until = tls::day_of(shown.ends);
                tracing::warn!(
                    host,
                    "the certificate of {host} ends on {until} and was not renewed: {error}; next \
                     attempt in {pause} s"
                );
            }
            None => tracing::warn!(
                host,
                "{host} has no certificate: {error}; next attempt in {pause} s"
            ),
        }
    }
}

/// Checks the certificate that the authority issued.
fn accept(authority: &Authority, host: &str, issued: &Issued) -> Result<Shown, Failure> {
    authority.store.check(host, &issued.key, &issued.chain).map_err(|problem| {
        Failure::new(
            Scope::Name,
            format!("the issued certificate is not used: {}", plain(&problem.to_string())),
        )
    })
}

/// The timeout of the parts of dns-01: a call of the program, and the wait.
const fn longest(dns: &Dns) -> Duration {
    let (Wait::Visible(wait) | Wait::Fixed(wait)) = dns.wait;
    dns.timeout.saturating_add(wait)
}

/// Lets the program remove the record of an order. A failure affects only the zone.
async fn clean(dns: &Dns, record: &Record) {
    if let Err(why) = hook::call(dns, Action::Cleanup, record).await {
        let (host, name) = (&record.host, &record.name);
        tracing::warn!(host, "the record {name} may be left in the zone: {why}");
    }
}

/// Makes an order, and retries it at once where that helps. `replaces` in an order requires renewal
/// information in the directory, otherwise the library refuses it.
async fn attempt(
    session: &mut Session,
    authority: &Arc<Authority>,
    wish: &Wish<'_>,
    replaced: Option<&Shown>,
    record: &mut Option<Record>,
) -> Result<Issued, Failure> {
    let (mut nonces, mut anew) = (0, false);
    // The library refuses `replaces` where the directory has no renewal information.
    let has_renewals =
        replaced.is_some() && matches!(session.renewals(authority).await, Ok(Some(_)));
    let mut replaced: Option<CertificateIdentifier<'static>> =
        replaced.filter(|_| has_renewals).and_then(renewal::identifier);
    loop {
        session.asked.take();
        let outcome = match session.open(authority, wish.shared, anew).await {
            Ok(account) => obtain(&account, wish, replaced.as_ref(), record).await,
            Err(failure) => Err(failure),
        };
        match outcome {
            Err(failure) if failure.cause == Cause::Nonce && nonces < NONCE_ORDERS => nonces += 1,
            Err(failure) if failure.cause == Cause::Replaces => replaced = None,
            Err(failure) if failure.cause == Cause::Account && !anew => {
                // A test authority forgets its accounts at each start.
                tracing::warn!(
                    "the certificate authority does not know the account: {}",
                    failure.text
                );
                anew = true;
            }
            outcome => return outcome,
        }
        // A further order has a different record.
        if let (Some(dns), Some(record)) = (wish.dns, record.take()) {
            clean(dns, &record).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Need;
    use crate::settings::{Acme, Doors, Settings};

    fn start(doors: Doors) -> (tempfile::TempDir, Arc<Terminator>) {
        let dir = tempfile::tempdir().unwrap();
        let ca = testkit::certs::Authority::new("test").unwrap().save(dir.path()).unwrap();
        let acme =
            Acme { directory: "https://ca.example/dir".into(), ca: Some(ca), ..Acme::default() };
        let state_dir = Some(dir.path().to_owned());
        let settings = Settings { acme: vec![acme], state_dir, doors, ..Settings::default() };
        (dir, Terminator::new(&settings).unwrap())
    }

    #[test]
    fn each_failure_moves_on_to_the_other_check_and_a_proof_is_tried_first() {
        let (_dir, terminator) = start(Doors { http: true, tls: true });
        let live = terminator.live.load_full();
        let authority = &live.authorities[0];
        let kinds = || terminator.kinds_for(&live, authority, "a.example.com");
        let fail = || {
            terminator.refuse("a.example.com", Failure::new(Scope::Name, "no"), None);
        };
        assert_eq!(kinds(), [Kind::Tls, Kind::Http]);
        fail();
        assert_eq!(kinds(), [Kind::Http, Kind::Tls]);
        fail();
        assert_eq!(kinds(), [Kind::Tls, Kind::Http]);
        let leaf = testkit::certs::Leaf::self_signed("a.example.com", false).unwrap();
        authority
            .store
            .keep("a.example.com", Some(Kind::Http), &leaf.key, &leaf.certificate)
            .unwrap();
        assert_eq!(kinds(), [Kind::Http, Kind::Tls]);

        let (_dir, terminator) = start(Doors { http: true, tls: false });
        let live = terminator.live.load_full();
        let authority = &live.authorities[0];
        assert_eq!(terminator.kinds_for(&live, authority, "a.example.com"), [Kind::Http]);
    }

    #[test]
    fn a_name_that_is_no_host_name_leads_to_no_file() {
        let (_dir, terminator) = start(Doors { http: true, tls: true });
        let live = terminator.live.load_full();
        for host in
            ["../../x", "a/b", "A.example.com", "a b", "", ".", "*.example.com", "127.0.0.1"]
        {
            assert_eq!(terminator.need(&live, host), Need::Nothing, "{host}");
        }
        assert_eq!(terminator.need(&live, "a.example.com"), Need::First);
    }
}
