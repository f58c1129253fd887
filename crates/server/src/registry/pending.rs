//! Pending registrations. A session has at most one: a newer registration replaces it, and it is
//! dropped with its link. The rate at which the registrations of a client are processed is limited
//! by the number of their addresses, over all processes of the client.
//!
//! A registration of which a service waits for the directory is applied already, and is applied
//! again later: one task of the client does so at a time.

use std::collections::{HashMap, HashSet};
use std::iter;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use link::Held;
use proto::control::{Register, ServiceSpec};
use tokio::time::{Instant, sleep_until};

/// The time that an address of a registration costs at the sustained rate: 2,000 addresses per
/// second, which take about a tenth of a core.
const PER_ADDRESS: Duration = Duration::from_micros(500);

/// The burst that a client may register at once, as time at the sustained rate: a client with 4,000
/// addresses that starts five times in a row does not wait.
const AT_ONCE: Duration = Duration::from_secs(10);

/// The longest wait for one registration. A registration of 1 MiB may have 80,000 addresses.
const LONGEST: Duration = Duration::from_secs(60);

/// The divisor for the cost of a known answer that is sent again: it is only copied and encoded.
const REPEATED: u32 = 16;

/// The number of paces from which paces without debt are evicted.
const PACES: usize = 1024;

/// The first and the longest pause before the registrations of a client whose services wait for the
/// directory are applied again. Clients ask for refused services every 15 s as well.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));

/// The pending registrations of all sessions, and the paces of all clients.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// By session id.
    waiting: Mutex<HashMap<u64, PendingRegistration>>,
    paces: Mutex<Paces>,
    /// The clients whose registrations are applied again until no service waits for the directory.
    retried: Mutex<HashSet<String>>,
}

/// A pending registration, and its memory in the budget.
#[derive(Debug)]
pub(super) struct PendingRegistration {
    pub(super) register: Register,
    pub(super) held: Held,
    /// The links over which this generation arrived.
    serials: Vec<u64>,
}

/// The theoretical arrival time of each client's next registration, by the generic cell rate
/// algorithm (ITU-T I.371).
#[derive(Debug, Default)]
struct Paces {
    paid: HashMap<String, Instant>,
    /// The number of paces at which paces without debt are evicted.
    forget_at: usize,
}

/// The pauses before the registrations of a client are applied again.
pub(super) fn pauses() -> impl Iterator<Item = Duration> {
    let (first, longest) = RETRY;
    iter::successors(Some(first), move |pause| Some((*pause * 2).min(longest)))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pending {
    /// Replaces the pending registration. An older generation is ignored. All links of a session
    /// send the same generation.
    pub(super) fn put(&self, session: u64, serial: u64, register: Register, held: Held) {
        let generation = register.generation;
        let new = PendingRegistration { register, held, serials: vec![serial] };
        let mut waiting = lock(&self.waiting);
        let dropped = match waiting.get_mut(&session) {
            Some(known) if known.register.generation == generation => {
                if !known.serials.contains(&serial) {
                    known.serials.push(serial);
                }
                Some(new)
            }
            Some(known) if known.register.generation > generation => Some(new),
            Some(_) | None => waiting.insert(session, new),
        };
        // A large registration is freed outside of the lock.
        drop(waiting);
        drop(dropped);
    }

    /// Takes the pending registration of a session.
    pub(super) fn take(&self, session: u64) -> Option<PendingRegistration> {
        lock(&self.waiting).remove(&session)
    }

    /// Drops the registration if it arrived over no link other than this ended one.
    pub(super) fn link_ended(&self, session: u64, serial: u64) {
        let mut waiting = lock(&self.waiting);
        let Some(known) = waiting.get_mut(&session) else { return };
        known.serials.retain(|other| *other != serial);
        let gone = if known.serials.is_empty() { waiting.remove(&session) } else { None };
        drop(waiting);
        drop(gone);
    }

    /// Begins to apply the registrations of a client again. False: this has begun already.
    pub(super) fn begin_retry(&self, client: &str) -> bool {
        lock(&self.retried).insert(client.to_owned())
    }

    /// Ends the attempts for a client, unless a service of the client `waits` still. A registration
    /// that is answered later begins them again.
    pub(super) fn end_retry(&self, client: &str, waits: impl FnOnce() -> bool) -> bool {
        let mut retried = lock(&self.retried);
        let ends = !waits();
        if ends {
            retried.remove(client);
        }
        ends
    }

    /// Waits until the next registration of the client may be processed.
    pub(super) async fn pace(&self, client: &str) {
        while let Some(until) = self.due(client) {
            sleep_until(until).await;
        }
    }

    /// When the next registration of the client may be processed; `None`: now.
    pub(super) fn due(&self, client: &str) -> Option<Instant> {
        let paid = *lock(&self.paces).paid.get(client)?;
        let now = Instant::now();
        (paid > now + AT_ONCE).then(|| paid - AT_ONCE)
    }

    /// Charges the cost of a registration.
    pub(super) fn spend(&self, client: &str, register: &Register) {
        self.add(client, cost(register));
    }

    /// Charges the cost of a known answer that is sent again.
    pub(super) fn spend_repeated(&self, client: &str, services: usize) {
        let services = u32::try_from(services).unwrap_or(u32::MAX);
        self.add(client, PER_ADDRESS * (1 + services / REPEATED));
    }

    fn add(&self, client: &str, cost: Duration) {
        let now = Instant::now();
        let mut paces = lock(&self.paces);
        if paces.paid.len() >= paces.forget_at.max(PACES) && !paces.paid.contains_key(client) {
            paces.paid.retain(|_, paid| *paid > now);
            paces.forget_at = paces.paid.len() * 2;
        }
        let paid = paces.paid.entry(client.to_owned()).or_insert(now);
        *paid = ((*paid).max(now) + cost).min(now + AT_ONCE + LONGEST);
    }
}

/// The time that a registration costs.
fn cost(register: &Register) -> Duration {
    let addresses: usize = register.services.iter().map(|spec| 1 + spec.public.len()).sum();
    PER_ADDRESS.saturating_mul(u32::try_from(1 + addresses).unwrap_or(u32::MAX))
}

/// The memory of a registration and of its answer, in bytes.
pub(super) fn weight(register: &Register) -> u64 {
    let texts = register.services.iter().flat_map(|spec| &spec.public);
    let texts: usize = texts.map(|text| size_of::<String>() + text.len()).sum();
    // The answer has a text for each address as well.
    let bytes = 2 * (register.services.len() * size_of::<ServiceSpec>() + texts);
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use link::{Lease, ProcessBudget};
    use proto::control::ServiceTerms;
    use proto::greeting::Name;

    use super::*;

    fn register(generation: u64, addresses: usize) -> Register {
        let spec = ServiceSpec {
            name: Name::new("web").unwrap(),
            public: (0..addresses).map(|n| format!("http://n{n}.example")).collect(),
            terms: ServiceTerms::default(),
        };
        Register { generation, services: vec![spec], leaving: false, standby: false }
    }

    #[test]
    fn a_session_has_one_waiting_registration_which_is_charged_and_ends_with_its_link() {
        let budget = ProcessBudget::new(1 << 20);
        let lease = Lease::new(budget.clone());
        let pending = Pending::default();
        let put = |generation, serial| {
            let register = register(generation, 100);
            let held = lease.hold(weight(&register));
            pending.put(7, serial, register, held);
        };
        let of_one = i64::try_from(weight(&register(1, 100))).unwrap();
        for generation in 1..=50 {
            put(generation, 1);
            assert_eq!(budget.left(), budget.total() - of_one);
        }
        put(3, 2);
        pending.link_ended(7, 2);
        let newest = pending.take(7).unwrap();
        assert_eq!(newest.register.generation, 50);
        drop(newest);
        put(51, 2);
        pending.link_ended(7, 1);
        assert_eq!(budget.left(), budget.total() - of_one);
        pending.link_ended(7, 2);
        assert!(pending.take(7).is_none());
        assert_eq!(budget.left(), budget.total());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_registers_as_many_addresses_per_second_over_all_its_processes() {
        let pending = Pending::default();
        let begin = Instant::now();
        let mut addresses = 0;
        while begin.elapsed() < Duration::from_secs(100) {
            pending.pace("loud").await;
            pending.spend("loud", &register(1, 1_998));
            addresses += 2_000;
            assert!(pending.due("calm").is_none());
        }
        assert!((200_000..=224_000).contains(&addresses), "{addresses}");
        // However large a registration is, the wait for the next has an end.
        pending.spend("large", &register(1, 200_000));
        let begin = Instant::now();
        pending.pace("large").await;
        assert_eq!(begin.elapsed(), LONGEST);
    }

    #[test]
    fn one_task_tries_again_until_no_service_waits() {
        let pending = Pending::default();
        assert!(pending.begin_retry("home") && pending.begin_retry("other"));
        assert!(!pending.begin_retry("home"));
        assert!(!pending.end_retry("home", || true) && !pending.begin_retry("home"));
        assert!(pending.end_retry("home", || false) && pending.begin_retry("home"));
        let seconds: Vec<_> = pauses().take(6).map(|pause| pause.as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 15, 15]);
    }

    #[tokio::test(start_paused = true)]
    async fn paces_without_debt_are_forgotten() {
        let pending = Pending::default();
        for n in 0..20 * PACES {
            pending.spend(&n.to_string(), &register(1, 1));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!(lock(&pending.paces).paid.len() <= PACES);
    }
}
