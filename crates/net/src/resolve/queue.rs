//! The order of lookups: accounts take turns. There is no I/O and no task here.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;

use tokio::sync::watch;

use super::Bounds;
use super::answer::Answer;

/// A lookup in progress.
#[derive(Debug)]
pub(super) struct Job {
    account: Arc<str>,
    pub(super) host: Arc<str>,
    /// Callers wait at the receivers. Without a receiver the answer is not needed.
    pub(super) answer: watch::Sender<Option<Answer>>,
}

/// The lookups of all accounts.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The accounts with lookups that are waiting or in progress.
    accounts: HashMap<Arc<str>, Account>,
    /// The accounts that may start a lookup, in the order of their turns. Each occurs once.
    turns: VecDeque<Arc<str>>,
}

#[derive(Debug, Default)]
struct Account {
    waiting: VecDeque<QueuedLookup>,
    /// The lookups in progress, by name.
    under_way: HashMap<Arc<str>, watch::Receiver<Option<Answer>>>,
    has_turn: bool,
}

#[derive(Debug)]
struct QueuedLookup {
    host: Arc<str>,
    answer: watch::Sender<Option<Answer>>,
}

impl Queue {
    /// Joins the lookup of `host` that is waiting or in progress for this account, or adds a
    /// lookup.
    ///
    /// # Errors
    /// The account has reached its limit of waiting names.
    pub(super) fn join(
        &mut self,
        account: &str,
        host: &str,
        bounds: Bounds,
    ) -> io::Result<watch::Receiver<Option<Answer>>> {
        let name = match self.accounts.get_key_value(account) {
            Some((name, _)) => Arc::clone(name),
            None => account.into(),
        };
        let own = self.accounts.entry(Arc::clone(&name)).or_default();
        if let Some(known) = own.under_way.get(host) {
            return Ok(known.clone());
        }
        if let Some(known) = own.waiting.iter().find(|waiting| &*waiting.host == host) {
            return Ok(known.answer.subscribe());
        }
        if own.waiting.len() >= bounds.queued {
            own.waiting.retain(|waiting| waiting.answer.receiver_count() > 0);
        }
        if own.waiting.len() >= bounds.queued {
            let text = format!("{} names wait for their lookup already", bounds.queued);
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, text));
        }
        let (answer, receiver) = watch::channel(None);
        own.waiting.push_back(QueuedLookup { host: host.into(), answer });
        give_turn(&mut self.turns, &name, own, bounds);
        Ok(receiver)
    }

    /// The next lookup. Its account moves to the end of the turns.
    pub(super) fn next(&mut self, bounds: Bounds) -> Option<Job> {
        while let Some(name) = self.turns.pop_front() {
            let Some(account) = self.accounts.get_mut(&name) else { continue };
            account.has_turn = false;
            let mut job = None;
            while let Some(QueuedLookup { host, answer }) = account.waiting.pop_front() {
                if answer.receiver_count() == 0 {
                    continue;
                }
                account.under_way.insert(Arc::clone(&host), answer.subscribe());
                job = Some(Job { account: Arc::clone(&name), host, answer });
                break;
            }
            give_turn(&mut self.turns, &name, account, bounds);
            self.forget_if_empty(&name);
            if job.is_some() {
                return job;
            }
        }
        None
    }

    /// Removes a completed lookup.
    pub(super) fn done(&mut self, job: &Job, bounds: Bounds) {
        if let Some(account) = self.accounts.get_mut(&job.account) {
            account.under_way.remove(&job.host);
            give_turn(&mut self.turns, &job.account, account, bounds);
        }
        self.forget_if_empty(&job.account);
    }

    #[cfg(test)]
    pub(super) fn under_way(&self) -> usize {
        self.accounts.values().map(|account| account.under_way.len()).sum()
    }

    fn forget_if_empty(&mut self, name: &str) {
        let is_empty =
            |account: &Account| account.waiting.is_empty() && account.under_way.is_empty();
        if self.accounts.get(name).is_some_and(is_empty) {
            self.accounts.remove(name);
        }
    }
}

fn give_turn(
    turns: &mut VecDeque<Arc<str>>,
    name: &Arc<str>,
    account: &mut Account,
    bounds: Bounds,
) {
    let may = !account.waiting.is_empty() && account.under_way.len() < bounds.at_once;
    if may && !account.has_turn {
        account.has_turn = true;
        turns.push_back(Arc::clone(name));
    }
}
