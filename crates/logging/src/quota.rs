//! The number of lines that a client may cause. A client that connects, registers or breaks the
//! protocol again and again would fill a disk, or push all other lines out of a rotated file.
//!
//! An event with the field `client` costs a line of that client's quota and a line of the quota of
//! all clients. An event beyond a quota is left out and counted.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter};

/// The field by which an event belongs to a client.
const CLIENT: &str = "client";

/// The quota of one client: a registration of 1,024 ports writes a line for each port.
const ONE: Rate = Rate { burst: 1_200.0, per_second: 1.0 };

/// The quota of all clients together: the clients of a large server that restarts log in within
/// seconds, and a line per client is wanted.
const ALL: Rate = Rate { burst: 20_000.0, per_second: 20.0 };

/// Clients that are distinguished. Further clients share a quota.
const CLIENTS: usize = 4_096;

/// The lines that were left out since the start of the process.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// The number of lines about clients that were left out since the start of the process, because a
/// client caused too many.
#[must_use]
pub fn left_out() -> u64 {
    LEFT_OUT.load(Ordering::Relaxed)
}

#[derive(Clone, Copy, Debug)]
struct Rate {
    /// Lines at once.
    burst: f64,
    /// Lines per second after that.
    per_second: f64,
}

/// A token bucket: it fills at the rate, and a line takes one token.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    lines: f64,
    since: Instant,
}

impl Bucket {
    const fn full(rate: Rate, now: Instant) -> Self {
        Self { lines: rate.burst, since: now }
    }

    fn refill(&mut self, rate: Rate, now: Instant) {
        let seconds = now.saturating_duration_since(self.since).as_secs_f64();
        self.lines = seconds.mul_add(rate.per_second, self.lines).min(rate.burst);
        self.since = now;
    }

    fn take(&mut self, rate: Rate, now: Instant) -> bool {
        self.refill(rate, now);
        let passes = self.lines >= 1.0;
        if passes {
            self.lines -= 1.0;
        }
        passes
    }
}

#[derive(Debug)]
struct Buckets {
    all: Bucket,
    /// The key `None` is shared by all clients for which the table had no room.
    clients: HashMap<Option<String>, Bucket>,
}

impl Buckets {
    fn new(now: Instant) -> Self {
        Self { all: Bucket::full(ALL, now), clients: HashMap::new() }
    }

    fn pass(&mut self, client: String, now: Instant) -> bool {
        let mut key = Some(client);
        if self.clients.len() >= CLIENTS && !self.clients.contains_key(&key) {
            self.clients.retain(|_, bucket| {
                bucket.refill(ONE, now);
                bucket.lines < ONE.burst
            });
            if self.clients.len() >= CLIENTS {
                key = None;
            }
        }
        let own = self.clients.entry(key).or_insert_with(|| Bucket::full(ONE, now));
        own.take(ONE, now) && self.all.take(ALL, now)
    }
}

/// The filter of a layer that writes lines.
#[derive(Debug)]
pub(crate) struct Quota(Mutex<Buckets>);

impl Quota {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Buckets::new(Instant::now())))
    }
}

impl<S: Subscriber> Filter<S> for Quota {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        if event.metadata().fields().field(CLIENT).is_none() {
            return true;
        }
        let mut found = Client::default();
        event.record(&mut found);
        let Some(client) = found.0 else { return true };
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let passes = buckets.pass(client, Instant::now());
        if !passes {
            LEFT_OUT.fetch_add(1, Ordering::Relaxed);
        }
        passes
    }
}

/// The client of an event.
#[derive(Default)]
struct Client(Option<String>);

impl Visit for Client {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == CLIENT {
            self.0 = Some(value.to_owned());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == CLIENT {
            self.0 = Some(format!("{value:?}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn passed(buckets: &mut Buckets, client: &str, lines: usize, now: Instant) -> usize {
        (0..lines).filter(|_| buckets.pass(client.to_owned(), now)).count()
    }

    #[test]
    fn a_client_has_its_own_lines_and_all_clients_have_theirs() {
        let start = Instant::now();
        let mut buckets = Buckets::new(start);
        assert_eq!(passed(&mut buckets, "loud", 100_000, start), 1_200);
        assert_eq!(passed(&mut buckets, "calm", 10, start), 10);
        let later = start + Duration::from_secs(60);
        assert_eq!(passed(&mut buckets, "loud", 100_000, later), 60);
        let many: usize =
            (0..100).map(|n| passed(&mut buckets, &format!("c{n}"), 1_000, later)).sum();
        assert!((18_000..=20_000).contains(&many), "{many}");
    }

    #[test]
    fn invented_names_cost_no_memory() {
        let start = Instant::now();
        let mut buckets = Buckets::new(start);
        for n in 0..20_000 {
            buckets.pass(format!("c{n}"), start);
        }
        assert!(buckets.clients.len() <= CLIENTS + 1);
        // Those that wrote nothing for a while make room.
        let later = start + Duration::from_secs(60);
        assert!(buckets.pass("new".to_owned(), later));
        assert_eq!(buckets.clients.len(), 1 + usize::from(buckets.clients.contains_key(&None)));
    }
}
