//! The rules among the nodes of a cluster: which node orders, and which certificate is used.
//!
//! One node at a time has the right to order ([`crate::SharedStore::take_turn`]). A node that has a
//! due name takes the right, looks into the store, and orders only if the store has no newer
//! certificate. So a certificate is ordered once, whichever node the client of the name moves to,
//! and a node that takes over from a dead one uses what the dead one has stored. The right is given
//! back after each order, with a pause, so that nodes take turns as clients do.
//!
//! Before the first order of a process, and whenever a write to the store was lost, the certificate
//! of a name is compared with the store: the later one wins at both.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::failure::Failure;
use super::{Arc, Authority};
use crate::certificates::Shown;
use crate::ledger::{Need, Scope};
use crate::shared::{
    Agreement, ExpectedValue, OrderTurn, PutOutcome, SealedStore, SharedPlace, StoreAway,
};
use crate::terminator::{Live, Terminator};
use crate::{plain, wall};

/// The pause before a node tries again to get the right to order: an order takes 2 to 5 s.
const TURN: Duration = Duration::from_secs(1);

/// The pause before the store is asked again that has not answered. A node asks nobody while it is
/// no member, so the answer costs nothing then.
const AWAY: Duration = Duration::from_secs(2);

/// The most names that are compared before an order.
const SEEN_AT_ONCE: usize = 200;

/// The names whose certificate was compared with the store.
#[derive(Debug, Default)]
pub(super) struct SeenNames {
    hosts: HashSet<Box<str>>,
    /// When the rest is compared, after a store that did not answer.
    again: Option<Instant>,
}

impl SeenNames {
    /// The certificate of a name has to be compared again.
    pub(super) fn forget(&mut self, host: &str) {
        self.hosts.remove(host);
    }

    /// When names have to be compared, if no name changes before.
    pub(super) const fn again(&self) -> Option<Instant> {
        self.again
    }
}

/// The right to order a certificate, and what the store has in its place.
pub(super) struct OrderRight {
    pub(super) revision: Option<u64>,
    _turn: OrderTurn,
}

/// The reason why a certificate could not be compared.
enum NotCompared {
    Away,
    /// This node has another secret than the others.
    Other,
}

impl From<StoreAway> for NotCompared {
    fn from(_: StoreAway) -> Self {
        Self::Away
    }
}

impl Terminator {
    /// Compares the published names that were not compared yet with the store.
    pub(super) async fn see_names(&self, shared: &SealedStore, live: &Live, seen: &mut SeenNames) {
        if seen.again.is_some_and(|at| at > Instant::now()) {
            return;
        }
        seen.again = None;
        let wanted = self.names.with(|ledger| ledger.wanted());
        let is_wanted: HashSet<&str> = wanted.iter().map(|host| &**host).collect();
        seen.hosts.retain(|host| is_wanted.contains(&**host));
        let is_new =
            |host: &str| !seen.hosts.contains(host) && self.need(live, host) != Need::Nothing;
        let new: Vec<_> = wanted.iter().filter(|host| is_new(host)).cloned().collect();
        for (n, host) in new.into_iter().enumerate() {
            let Some(authority) = live.authority_for(&host) else { continue };
            if n == SEEN_AT_ONCE {
                seen.again = Some(Instant::now());
                return;
            }
            if self.compare(shared, authority, &host).await.is_err() {
                seen.again = Some(Instant::now() + AWAY);
                return;
            }
            seen.hosts.insert(host);
        }
    }

    /// Puts the later certificate of a name into use here and into the store. Returns the revision
    /// of the store, which a new certificate replaces.
    async fn compare(
        &self,
        shared: &SealedStore,
        authority: &Arc<Authority>,
        host: &str,
    ) -> Result<Option<u64>, NotCompared> {
        match shared.agreement() {
            Agreement::Unknown => return Err(NotCompared::Away),
            Agreement::Other => return Err(NotCompared::Other),
            Agreement::Same => {}
        }
        let place = SharedPlace::Certificate(host.into());
        let found = shared.read_one(place.clone()).await?;
        let revision = found.as_ref().map(|found| found.revision);
        let stored = found.and_then(|found| {
            let opened = found.opened.map_err(|error| error.to_string());
            let read = opened.and_then(|opened| {
                let shown = authority.store.of_text(host, &opened.plain);
                Ok((shown.map_err(|error| plain(&error.to_string()))?, opened))
            });
            // The value is replaced. The secret is the right one, as the agreement shows.
            read.inspect_err(|error| {
                tracing::warn!(
                    host,
                    "the certificate of {host} in the cluster is not used, and is replaced: {error}"
                );
            })
            .ok()
        });
        let own = self.certificates.issued.load().get(host).map(|shown| shown.ends);
        let text = match stored {
            Some((shown, opened)) if own.is_none_or(|ends| ends <= shown.ends) => {
                if own != Some(shown.ends) {
                    self.adopt(authority, host, shown);
                }
                // A value that the former secret has sealed is sealed anew.
                (!opened.is_current).then_some(opened.plain)
            }
            // The certificate of this node is later, or the only one. One that is no file of this
            // node came from the store.
            Some(_) | None => own.and_then(|_| authority.store.text(host).ok()),
        };
        let Some(text) = text else { return Ok(revision) };
        match shared.write(place, &text, ExpectedValue::At(revision)).await? {
            PutOutcome::Written(revision) => Ok(Some(revision)),
            // Another node has written meanwhile.
            PutOutcome::Refused => Err(NotCompared::Away),
        }
    }

    /// Uses a certificate that another node has ordered.
    fn adopt(&self, authority: &Authority, host: &str, shown: Shown) {
        let until = tls::day_of(shown.ends);
        self.names.with(|_| {
            if self.live.load().is_of(authority) {
                self.certificates.show_issued(host, shown);
            }
        });
        tracing::info!(
            host,
            "the certificate of {host}, which the cluster has, is valid until {until}"
        );
        self.tell(host, None);
    }

    /// Takes the right to order a certificate. `None`: the cluster has the certificate, or the name
    /// has to wait.
    pub(super) async fn begin(
        &self,
        shared: &SealedStore,
        live: &Live,
        authority: &Arc<Authority>,
        host: &str,
    ) -> Option<OrderRight> {
        let Some(turn) = shared.take_turn().await else {
            tracing::debug!(host, "another node orders a certificate at present");
            return self.wait(TURN).await;
        };
        let before = self.certificates.issued.load().get(host).map(|shown| shown.ends);
        let compared = self.compare(shared, authority, host).await;
        let revision = match compared {
            Ok(revision) => revision,
            Err(NotCompared::Away) => {
                drop(turn);
                tracing::debug!(host, "{StoreAway}; the order waits");
                return self.wait(AWAY).await;
            }
            Err(NotCompared::Other) => {
                self.names.with(|ledger| ledger.turns.take_back());
                let text = "this node has another `cluster.secret` than the others, so it orders \
                            no certificate (hint: give all nodes the same secret)";
                self.refuse(host, Failure::new(Scope::Authority, text), None);
                return None;
            }
        };
        let after = self.certificates.issued.load().get(host).map(|shown| shown.ends);
        let is_due = match self.need(live, host) {
            Need::Nothing => false,
            Need::First => true,
            Need::Renewal(at) => at <= wall(),
        };
        if after != before && !is_due {
            self.names.with(|ledger| {
                ledger.turns.take_back();
                ledger.succeeded(host, Instant::now());
            });
            return None;
        }
        Some(OrderRight { revision, _turn: turn })
    }

    /// The order of a name was not begun, and is due again after a pause.
    async fn wait(&self, pause: Duration) -> Option<OrderRight> {
        self.names.with(|ledger| ledger.turns.take_back());
        pause_between_turns(pause).await;
        None
    }

    /// Gives a new certificate to the other nodes. False: it has to be compared later.
    pub(super) async fn give(
        &self,
        shared: &SealedStore,
        authority: &Authority,
        host: &str,
        revision: Option<u64>,
    ) -> bool {
        let Ok(text) = authority.store.text(host) else { return false };
        let place = SharedPlace::Certificate(host.into());
        let put = shared.write(place, &text, ExpectedValue::At(revision)).await;
        if put == Err(StoreAway) {
            tracing::warn!(
                host,
                "the certificate of {host} is not in the cluster yet, so visitors of other nodes \
                 do not get it: {StoreAway}; it is stored later"
            );
        }
        matches!(put, Ok(PutOutcome::Written(_)))
    }
}

/// Waits for a pause and up to the same time more: nodes that wait for the same right must not all
/// come at once.
pub(super) async fn pause_between_turns(pause: Duration) {
    // `RandomState` has new random keys each time.
    let random = RandomState::new().hash_one(0_u8) % 1_000;
    let more = pause.mul_f64(f64::from(u32::try_from(random).unwrap_or(0)) / 1_000.0);
    sleep(pause + more).await;
}

/// The pause after an order, in which other nodes can have the right.
pub(super) async fn let_others() {
    pause_between_turns(TURN * 3 / 2).await;
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use rcgen::{CertificateParams, KeyPair};
    use tempfile::TempDir;

    use super::*;
    use crate::challenge::Kind;
    use crate::ledger::Next;
    use crate::settings::{Acme, Doors, Settings};
    use crate::shared::CommonSecret;
    use crate::shared::tests::MemoryStore;

    const HOST: &str = "a.example.com";
    const DAY: u64 = 86_400;

    /// A node with its terminator, whose driver does not run.
    struct TestNode {
        _dir: TempDir,
        terminator: Arc<Terminator>,
    }

    impl TestNode {
        fn new(store: &MemoryStore, secrets: &[&'static str]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let ca = testkit::certs::Authority::new("test").unwrap().save(dir.path()).unwrap();
            let directory = "https://ca.example/dir".into();
            let acme = Acme { directory, ca: Some(ca), ..Acme::default() };
            let (state_dir, doors) = (Some(dir.path().into()), Doors { http: true, tls: true });
            let acme = vec![acme];
            let settings = Settings { acme, state_dir, doors, ..Settings::default() };
            let terminator = Terminator::new(&settings).unwrap();
            let secret = CommonSecret::new(secrets.iter().copied()).unwrap();
            terminator.share(secret, Arc::new(store.clone()));
            Self { _dir: dir, terminator }
        }

        fn shared(&self) -> &SealedStore {
            self.terminator.shared().unwrap()
        }

        async fn agree(&self) {
            let tickets = self.shared().follow_tickets(&self.terminator.tickets);
            let _ = tokio::time::timeout(Duration::from_millis(50), tickets).await;
        }

        fn live(&self) -> Arc<Live> {
            self.terminator.live.load_full()
        }

        /// This node has ordered a certificate that begins and ends on these days from now.
        fn has_ordered(&self, host: &str, (begins, ends): (u64, u64)) {
            let key = KeyPair::generate().unwrap();
            let mut parameters = CertificateParams::new([host.to_owned()]).unwrap();
            let at = |days: u64| UNIX_EPOCH + Duration::from_secs(wall() - 90 * DAY + days * DAY);
            (parameters.not_before, parameters.not_after) = (at(begins).into(), at(ends).into());
            let chain = parameters.self_signed(&key).unwrap();
            let authority = &self.live().authorities[0];
            let (key, chain) = (key.serialize_pem(), chain.pem());
            authority.store.keep(host, Some(Kind::Http), &key, &chain).unwrap();
            let shown = authority.store.check(host, &key, &chain).unwrap();
            self.terminator.certificates.show_issued(host, shown);
        }

        async fn compare(&self, host: &str) -> Result<Option<u64>, NotCompared> {
            let authority = Arc::clone(&self.live().authorities[0]);
            self.terminator.compare(self.shared(), &authority, host).await
        }

        async fn begin(&self, host: &str) -> Option<OrderRight> {
            let (live, terminator) = (self.live(), &self.terminator);
            let need = |host: &str| terminator.need(&live, host);
            let next = terminator.names.with(|ledger| ledger.next(Instant::now(), wall(), need));
            assert_eq!(next, Next::Order(host.into()));
            terminator.begin(self.shared(), &live, &live.authorities[0], host).await
        }

        async fn look_up(&self, host: &str) -> Option<String> {
            self.terminator.look_up(&self.live(), host).await
        }

        /// The end of the certificate that visitors get, in days.
        fn ends(&self) -> Option<u64> {
            let shown = self.terminator.certificates.find(HOST)?;
            Some((shown.ends + 90 * DAY).saturating_sub(wall()).div_ceil(DAY))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_later_certificate_is_used_at_every_node() {
        let store = MemoryStore::default();
        let [a, b] = ["one", "one"].map(|secret| TestNode::new(&store, &[secret]));
        assert!(matches!(a.compare(HOST).await, Err(NotCompared::Away)), "no agreement yet");
        a.agree().await;
        b.agree().await;
        assert!(matches!(a.compare(HOST).await, Ok(None)));
        a.has_ordered(HOST, (80, 170));
        let Ok(Some(first)) = a.compare(HOST).await else { panic!("it is written") };
        assert!(matches!(b.compare(HOST).await, Ok(Some(revision)) if revision == first));
        assert_eq!((a.ends(), b.ends()), (Some(170), Some(170)));
        b.has_ordered(HOST, (89, 179));
        assert!(matches!(b.compare(HOST).await, Ok(Some(revision)) if revision > first));
        assert!(a.compare(HOST).await.is_ok());
        assert_eq!(a.ends(), Some(179));
        store.set_away(true);
        assert!(matches!(a.compare(HOST).await, Err(NotCompared::Away)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_is_ordered_once_although_two_nodes_want_it() {
        let store = MemoryStore::default();
        let [a, b] = ["one", "one"].map(|secret| TestNode::new(&store, &[secret]));
        a.agree().await;
        b.agree().await;
        let _wanted = [&a, &b].map(|node| node.terminator.want(HOST, "home"));
        let begun = a.begin(HOST).await.unwrap();
        assert_eq!(begun.revision, None);
        // The other node waits while the order is under way.
        assert!(b.begin(HOST).await.is_none());
        assert_eq!(b.ends(), None);
        a.has_ordered(HOST, (89, 179));
        let authority = Arc::clone(&a.live().authorities[0]);
        assert!(a.terminator.give(a.shared(), &authority, HOST, begun.revision).await);
        assert!(!a.terminator.give(a.shared(), &authority, HOST, None).await, "it is there");
        drop(begun);
        assert!(b.begin(HOST).await.is_none());
        assert_eq!(b.ends(), Some(179));
        // The orders that were not made do not count.
        let allowed = b.terminator.names.with(|ledger| {
            let now = Instant::now() + Duration::from_secs(1);
            ledger.turns.allowed("home").is_none_or(|at| at <= now - Duration::from_secs(60))
        });
        assert!(allowed);
    }

    #[tokio::test(start_paused = true)]
    async fn a_visitor_of_another_node_gets_the_certificate_by_a_look_up() {
        let store = MemoryStore::default();
        let [a, b] = ["one", "one"].map(|secret| TestNode::new(&store, &[secret]));
        a.agree().await;
        assert_eq!((b.look_up(HOST).await, b.ends()), (None, None));
        a.has_ordered(HOST, (10, 100));
        a.compare(HOST).await.ok().unwrap();
        assert_eq!((b.look_up(HOST).await, b.ends()), (None, None), "asked a moment ago");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!((b.look_up(HOST).await, b.ends()), (None, Some(100)));
        // In the last third of its life a certificate is looked up again.
        a.has_ordered(HOST, (89, 179));
        a.compare(HOST).await.ok().unwrap();
        tokio::time::advance(Duration::from_secs(600)).await;
        assert_eq!((b.look_up(HOST).await, b.ends()), (None, Some(179)));
        store.set_away(true);
        assert_eq!(b.look_up(HOST).await, None, "nothing is asked");
        assert!(b.look_up("b.example.com").await.unwrap().contains("does not answer"));
        assert_eq!(b.ends(), Some(179));
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_that_is_no_certificate_of_the_name_is_an_error_and_is_replaced() {
        let store = MemoryStore::default();
        let [a, b] = ["one", "one"].map(|secret| TestNode::new(&store, &[secret]));
        a.agree().await;
        b.agree().await;
        a.has_ordered("other.example.com", (89, 179));
        let own = a.live().authorities[0].store.text("other.example.com").unwrap();
        let place = SharedPlace::Certificate(HOST.into());
        let write = async |text: &[u8]| {
            a.shared().write(place.clone(), text, ExpectedValue::Any).await.unwrap();
            tokio::time::advance(Duration::from_secs(2)).await;
            b.look_up(HOST).await.unwrap()
        };
        assert!(write(&own).await.contains("for another name"));
        assert!(write(b"").await.contains("no certificate of this authority"));
        let cut = &own[..own.len() / 2];
        assert!(!write(cut).await.is_empty());
        store.damage(&place);
        tokio::time::advance(Duration::from_secs(2)).await;
        let why = b.look_up(HOST).await.unwrap();
        assert!(why.contains("sealed with another `cluster.secret`"), "{why}");
        let _wanted = b.terminator.want(HOST, "home");
        let begun = b.begin(HOST).await.unwrap();
        assert!(begun.revision.is_some());
        b.has_ordered(HOST, (89, 179));
        let authority = Arc::clone(&b.live().authorities[0]);
        assert!(b.terminator.give(b.shared(), &authority, HOST, begun.revision).await);
        assert!(a.compare(HOST).await.is_ok());
        assert_eq!(a.ends(), Some(179));
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_with_another_secret_orders_nothing_and_overwrites_nothing() {
        let store = MemoryStore::default();
        let [a, b] = ["one", "other"].map(|secret| TestNode::new(&store, &[secret]));
        a.agree().await;
        b.agree().await;
        a.has_ordered(HOST, (89, 179));
        a.compare(HOST).await.ok().unwrap();
        let _wanted = b.terminator.want(HOST, "home");
        assert!(b.begin(HOST).await.is_none());
        let [status] = &b.terminator.status()[..] else { panic!("one name") };
        assert!(status.error.as_ref().unwrap().contains("another `cluster.secret`"), "{status:?}");
        let again = TestNode::new(&store, &["one"]);
        again.agree().await;
        assert!(again.compare(HOST).await.is_ok());
        assert_eq!(again.ends(), Some(179));

        // While the secret is replaced, values are sealed anew when they are seen.
        let both = TestNode::new(&store, &["other", "one"]);
        both.agree().await;
        assert!(both.compare(HOST).await.is_ok());
        let new = TestNode::new(&store, &["other"]);
        new.agree().await;
        assert!(new.compare(HOST).await.is_ok());
        assert_eq!(new.ends(), Some(179));
    }
}
