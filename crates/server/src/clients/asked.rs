//! Cached answers of `auth.http` about clients that the configuration does not name, and their
//! expiry.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use super::Client;

/// The maximum number of cached negative answers. It is limited because any peer may invent names.
const NOS_MAX: usize = 4096;

/// Answers by name.
#[derive(Debug, Default)]
pub(super) struct HookAnswers {
    yes: HashMap<String, Yes>,
    no: HashMap<String, Instant>,
}

/// A positive answer.
#[derive(Debug)]
struct Yes {
    client: Arc<Client>,
    until: Instant,
    /// A negative answer has arrived since.
    doubted: bool,
}

impl HookAnswers {
    pub(super) fn find(&self, name: &str) -> Option<&Arc<Client>> {
        self.yes.get(name).map(|yes| &yes.client)
    }

    /// Records a negative answer. Returns whether it is the first negative answer about a known
    /// client.
    pub(super) fn doubt(&mut self, name: &str) -> bool {
        self.yes.get_mut(name).is_some_and(|yes| !std::mem::replace(&mut yes.doubted, true))
    }

    pub(super) fn is_answered(&self, name: &str, now: Instant) -> bool {
        let until = self.yes.get(name).map(|yes| &yes.until).or_else(|| self.no.get(name));
        until.is_some_and(|until| *until > now)
    }

    /// The clients with a positive answer.
    pub(super) fn all(&self) -> impl Iterator<Item = (&String, &Arc<Client>)> {
        self.yes.iter().map(|(name, yes)| (name, &yes.client))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.yes.keys()
    }

    pub(super) fn yes(&mut self, name: &str, client: Arc<Client>, until: Instant) {
        self.no.remove(name);
        self.yes.insert(name.to_owned(), Yes { client, until, doubted: false });
    }

    /// Stores a negative answer. Returns whether the answer was positive before.
    pub(super) fn no(&mut self, name: &str, now: Instant, until: Instant) -> bool {
        if self.no.len() >= NOS_MAX {
            self.no.retain(|_, until| *until > now);
            if self.no.len() >= NOS_MAX {
                self.no.clear();
            }
        }
        self.no.insert(name.to_owned(), until);
        self.yes.remove(name).is_some()
    }

    /// Removes the answer about this name. Returns whether the answer was positive.
    pub(super) fn remove(&mut self, name: &str) -> bool {
        self.no.remove(name);
        self.yes.remove(name).is_some()
    }

    /// Removes all answers. Returns the names with a positive answer.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = String> {
        self.no.clear();
        std::mem::take(&mut self.yes).into_keys()
    }

    /// Removes a positive answer that has expired.
    pub(super) fn forget(&mut self, name: &str, now: Instant) {
        if self.yes.get(name).is_some_and(|yes| yes.until <= now) {
            self.yes.remove(name);
        }
    }

    /// Expires all answers, because a reload may have changed the queried service.
    pub(super) fn expire(&mut self, now: Instant) {
        self.no.clear();
        self.yes.values_mut().for_each(|yes| yes.until = now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_no_counts_for_a_while_and_invented_names_cost_bounded_memory() {
        let (mut asked, now) = (HookAnswers::default(), Instant::now());
        let until = now + Duration::from_secs(10);
        assert!(!asked.no("home", now, until), "it was nobody before");
        assert!(asked.is_answered("home", now) && !asked.is_answered("home", until));
        for n in 0..3 * NOS_MAX {
            asked.no(&n.to_string(), now, until);
        }
        assert!(asked.no.len() <= NOS_MAX);
        asked.expire(now);
        assert!(!asked.is_answered("1", now));
    }
}
