//! The entrances of the process's own configuration, and their changes by a reload: the forwards of
//! a client, the listeners of a proxy. An entry that keeps its address stays open, whatever else
//! changes.

use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::{self, Arc, PoisonError};

use anyhow::Context as _;
use config::{Local, LocalAddr, Net, Over};
use ops::socket_file;
use tokio::sync::Mutex;

use super::{Announcers, Entrance, close_everywhere, next_id, open_everywhere, renew_flows};
use crate::aim::Aim;
use crate::backends::Backends;
use crate::listeners;
use crate::listeners::Listeners;
use crate::session::{Handle, Session};
use relay::{FlowBounds, Gate};

/// A configuration entry for which an entrance is opened.
pub trait Opening: Clone + fmt::Debug + PartialEq {
    /// Its name in the log.
    const WHAT: &'static str;

    /// The listening address.
    fn listen(&self) -> &Local;

    /// The target and terms of its visitors. `address` is the address of the listener, with its
    /// port.
    fn aim(&self, address: &str) -> Aim;

    /// The gate that admits its visitors.
    fn gate(&self) -> Arc<Gate>;

    /// The limits of its peers' flows.
    fn bounds(&self) -> Arc<FlowBounds>;

    /// The load balancers in front of it.
    fn announcers(&self) -> &[Net];

    /// Changes the limits of an open entrance to those of this entry.
    fn limit(&self, entrance: &Entrance);

    /// Whether flows of `before` must end because their target has changed.
    fn turns_flows(&self, before: &Self) -> bool;

    /// Logs that an entrance is open, and the target of its visitors.
    fn tell(&self, before: Option<&Self>, address: &str);
}

/// The open entrances of one kind.
#[derive(Debug)]
pub struct Openings<T> {
    /// `None` once all are closed permanently.
    open: Mutex<Option<Vec<Open<T>>>>,
    /// The entries whose address this machine does not have, with the reason. Their bind is
    /// retried.
    absent: sync::Mutex<Vec<Absent<T>>>,
    /// Has a second owner while a change of the configuration is in progress.
    change: Arc<()>,
}

/// An entry whose address is missing, and the reason.
pub type Absent<T> = (T, String);

/// An open entrance.
#[derive(Clone, Debug)]
pub struct Open<T> {
    pub entry: T,
    pub entrance: Arc<Entrance>,
}

/// The entrances of a new configuration, bound but not yet accepting.
#[derive(Debug)]
pub struct Bound<T> {
    known: Vec<(Open<T>, T)>,
    new: Vec<(Open<T>, Listeners)>,
    /// Entries that need the port of an entrance that must close first. Both cannot be bound at the
    /// same time.
    late: Vec<T>,
    gone: Vec<Open<T>>,
    absent: Vec<Absent<T>>,
    _change: Arc<()>,
}

impl<T> Default for Openings<T> {
    fn default() -> Self {
        let (open, absent, change) =
            (Mutex::new(Some(Vec::new())), Default::default(), Arc::new(()));
        Self { open, absent, change }
    }
}

impl<T: Opening> Openings<T> {
    /// Binds the entries that are not open yet, and reports all failures together. Open entrances
    /// with the same address stay open, even if their target changes. An address that this machine
    /// does not have is not a failure: see [`Self::try_again`]. `sessions_of` returns the sessions
    /// whose links serve the visitors of an entry, the preferred session first; at least one.
    pub async fn bind(
        &self,
        wanted: &[T],
        workers: NonZeroUsize,
        sessions_of: impl Fn(&T) -> Vec<Arc<Session>>,
    ) -> anyhow::Result<Bound<T>> {
        let open = self.open.lock().await;
        let change = Arc::clone(&self.change);
        let mut gone = open.clone().context("it is stopping")?;
        drop(open);
        let (mut known, mut missing) = (Vec::new(), Vec::new());
        for entry in wanted {
            let is_same = |open: &Open<T>| place(open.entry.listen()) == place(entry.listen());
            match gone.iter().position(is_same) {
                Some(at) => known.push((gone.swap_remove(at), entry.clone())),
                None => missing.push(entry),
            }
        }
        let frees =
            |entry: &T| gone.iter().any(|open| is_in_the_way(open.entry.listen(), entry.listen()));
        let (late, missing): (Vec<_>, Vec<_>) = missing.into_iter().partition(|entry| frees(entry));
        let mut absent = Vec::new();
        let mut bound = |entry: &T| match bind(entry, workers, &sessions_of(entry)) {
            Err(why) if families::is_absent(&why) => {
                absent.push((entry.clone(), why.to_string()));
                None
            }
            outcome => Some(outcome),
        };
        let new = families::all_bound(missing.into_iter().filter_map(&mut bound))?;
        let late = late.into_iter().cloned().collect();
        Ok(Bound { known, new, late, gone, absent, _change: change })
    }

    /// Opens and closes entrances according to `bound`, and updates the others. Returns the entries
    /// that could not be opened, with the error; none of them is left partly open.
    pub async fn follow(
        &self,
        bound: Bound<T>,
        handles: &[Handle],
        workers: NonZeroUsize,
        sessions_of: impl Fn(&T) -> Vec<Arc<Session>>,
    ) -> Vec<(T, io::Error)> {
        let (mut all, mut failed) = (self.open.lock().await, Vec::new());
        let Some(all) = &mut *all else { return failed };
        let mut absent = bound.absent;
        for Open { entrance, .. } in bound.gone {
            close_everywhere(handles, entrance.id).await;
            let (what, address) = (T::WHAT, &entrance.address);
            tracing::info!(address, "{what} {address} is closed");
            all.retain(|open| open.entrance.id != entrance.id);
        }
        for (open, entry) in bound.known {
            if open.entry != entry {
                turn(&open, &entry);
            }
            if entry.turns_flows(&open.entry) {
                renew_flows(handles, open.entrance.id).await;
            }
            open.entrance.lead_to(&sessions_of(&entry));
            if let Some(known) = all.iter_mut().find(|one| one.entrance.id == open.entrance.id) {
                known.entry = entry;
            }
        }
        let mut new = bound.new;
        for entry in bound.late {
            match bind(&entry, workers, &sessions_of(&entry)) {
                Ok(opened) => new.push(opened),
                Err(why) if families::is_absent(&why) => absent.push((entry, why.to_string())),
                Err(why) => failed.push((entry, io::Error::other(format!("{why:#}")))),
            }
        }
        for (open, listeners) in new {
            // The sessions may have changed since the entry was bound.
            open.entrance.lead_to(&sessions_of(&open.entry));
            if let Err(why) = open_everywhere(handles, &open.entrance, listeners).await {
                close_everywhere(handles, open.entrance.id).await;
                failed.push((open.entry, why));
                continue;
            }
            open.entry.tell(None, &open.entrance.address);
            all.push(open);
        }
        for (_, why) in &absent {
            tracing::warn!("a {} waits for its address: {why}", T::WHAT);
        }
        *self.absent() = absent;
        failed
    }

    /// Opens the entries whose address has since been assigned to this machine. Called
    /// periodically.
    pub async fn try_again(
        &self,
        handles: &[Handle],
        sessions_of: impl Fn(&T) -> Vec<Arc<Session>>,
    ) {
        let mut all = self.open.lock().await;
        let (Some(all), Some(workers)) = (&mut *all, NonZeroUsize::new(handles.len())) else {
            return;
        };
        // A reload that has bound its entries opens them itself.
        if Arc::strong_count(&self.change) > 1 {
            return;
        }
        let mut left = Vec::new();
        for (entry, why) in self.waiting() {
            let opened = match bind(&entry, workers, &sessions_of(&entry)) {
                Ok((open, listeners)) => {
                    match open_everywhere(handles, &open.entrance, listeners).await {
                        Ok(()) => Ok(open),
                        Err(why) => {
                            close_everywhere(handles, open.entrance.id).await;
                            Err(why.into())
                        }
                    }
                }
                Err(why) => Err(why),
            };
            match opened {
                Ok(open) => {
                    open.entry.tell(None, &open.entrance.address);
                    all.push(open);
                }
                Err(error) => {
                    let now = error.to_string();
                    if now != why {
                        tracing::warn!("a {} is tried again: {now}", T::WHAT);
                    }
                    left.push((entry, now));
                }
            }
        }
        *self.absent() = left;
    }

    /// The entries whose address is missing.
    pub fn waiting(&self) -> Vec<Absent<T>> {
        self.absent().clone()
    }

    fn absent(&self) -> sync::MutexGuard<'_, Vec<Absent<T>>> {
        self.absent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open entrances.
    pub async fn all(&self) -> Vec<Open<T>> {
        self.open.lock().await.clone().unwrap_or_default()
    }

    /// Closes all entrances permanently.
    pub async fn close_all(&self, handles: &[Handle]) {
        for Open { entrance, .. } in self.open.lock().await.take().into_iter().flatten() {
            close_everywhere(handles, entrance.id).await;
        }
    }
}

/// Whether both cannot be bound at once: the same port, at the unspecified address and at one
/// address.
fn is_in_the_way(open: &Local, wanted: &Local) -> bool {
    match (open.socket(), wanted.socket()) {
        (Some((over, open)), Some((of_wanted, wanted))) => {
            let all = open.ip().is_unspecified() || wanted.ip().is_unspecified();
            over == of_wanted && all && open.port() == wanted.port() && open.port() != 0
        }
        (None, _) | (_, None) => false,
    }
}

/// The identity of a listener: protocol and address, independent of notation and permissions. A
/// SOCKS5 or HTTP proxy is a different listener from a port with a target.
fn place(listen: &Local) -> Result<(Over, bool, &LocalAddr), &str> {
    match listen {
        Local::Unix { address, .. } => Err(address.place()),
        Local::Tcp(at) => Ok((Over::Tcp, false, at)),
        Local::Udp(at) => Ok((Over::Udp, false, at)),
        Local::Socks5(at) | Local::HttpProxy(at) => Ok((Over::Tcp, true, at)),
    }
}

fn bind<T: Opening>(
    entry: &T,
    workers: NonZeroUsize,
    sessions: &[Arc<Session>],
) -> anyhow::Result<(Open<T>, Listeners)> {
    let first = sessions.first().context("the entry has no server that serves its visitors")?;
    let (address, listeners) = listeners::bind(entry.listen(), workers)?;
    let entrance = Arc::new(Entrance {
        id: next_id(),
        backends: Backends::new(entry.aim(&address), first, entry.gate()),
        address,
        steering: listeners.steering(),
        bounds: entry.bounds(),
        announcers: Announcers::own(entry.announcers()),
    });
    entrance.lead_to(sessions);
    Ok((Open { entry: entry.clone(), entrance }, listeners))
}

/// Changes an open entrance to the target, the limits and the socket mode of `entry`.
fn turn<T: Opening>(open: &Open<T>, entry: &T) {
    let entrance = &open.entrance;
    entrance.backends.forget_health();
    entrance.backends.set_aim(entry.aim(&entrance.address));
    entry.limit(entrance);
    entrance.announcers.set(entry.announcers());
    entry.tell(Some(&open.entry), &entrance.address);
    if let Local::Unix { address, mode } = entry.listen()
        && address.abstract_name().is_none()
        && let Err(error) = socket_file::set_mode(Path::new(address.place()), *mode)
    {
        let (what, listen) = (T::WHAT, entry.listen());
        tracing::warn!("the socket file of {what} {listen} keeps its mode: {error}");
    }
}

#[cfg(test)]
mod tests {
    use config::{ProxyFlags, Sources, Text};
    use link::ProcessBudget;
    use proto::Target;
    use proto::control::ServiceTerms;

    use super::*;
    use crate::memory;
    use crate::session::{State, Workers};

    /// An address of RFC 5737, which is assigned to no machine.
    const NOWHERE: &str = "192.0.2.77:1";

    /// A listener whose visitors nobody serves.
    #[derive(Clone, Debug, PartialEq)]
    struct Entry(Local);

    impl Opening for Entry {
        const WHAT: &'static str = "entry";

        fn listen(&self) -> &Local {
            &self.0
        }

        fn aim(&self, address: &str) -> Aim {
            let target = Target::Service(address.to_owned());
            let terms = ServiceTerms::default();
            Aim { name: address.to_owned(), target, terms, rules: None, proxy: None }
        }

        fn gate(&self) -> Arc<Gate> {
            Gate::new(None)
        }

        fn bounds(&self) -> Arc<FlowBounds> {
            Arc::default()
        }

        fn announcers(&self) -> &[Net] {
            &[]
        }

        fn limit(&self, _: &Entrance) {}

        fn turns_flows(&self, _: &Self) -> bool {
            false
        }

        fn tell(&self, _: Option<&Self>, _: &str) {}
    }

    fn entries(all: &[&str]) -> Vec<Entry> {
        let entry = |(nth, at): (usize, &&str)| {
            format!("  - {{ name: p{nth}, listen: 'tcp://{at}', target: 'tcp://127.0.0.1:1' }}\n")
        };
        let lines: String = all.iter().enumerate().map(entry).collect();
        let text = format!("proxies:\n{lines}");
        let read = |_: &Path| Err("no files".to_owned());
        let sources = Sources { env: &|_: &str| None, read: &read };
        let text = Some(Text { name: "proxy.yaml", text: &text });
        let loaded = config::load_proxy(text, &ProxyFlags::default(), &sources).unwrap();
        loaded.config.proxies.into_iter().map(|proxy| Entry(proxy.listen)).collect()
    }

    #[tokio::test]
    async fn an_entry_whose_address_is_not_there_waits_and_the_others_open() {
        let one = NonZeroUsize::MIN;
        let budget = ProcessBudget::new(16 << 20);
        let workers =
            Workers::start(one, move |_| State::new(memory::lease(&budget, one))).unwrap();
        let (handles, session) = (workers.handles(), Session::here(1));
        let sessions_of = |_: &Entry| vec![Arc::clone(&session)];
        let openings = Openings::default();
        let open = async |wanted: &[Entry]| {
            let bound = openings.bind(wanted, one, sessions_of).await.unwrap();
            // A reload is in progress: nobody else opens an entry.
            openings.try_again(handles, sessions_of).await;
            let failed = openings.follow(bound, handles, one, sessions_of).await;
            assert!(failed.is_empty(), "{failed:?}");
            (openings.all().await.len(), openings.waiting().len())
        };
        let both = entries(&["127.0.0.1:0", NOWHERE]);
        assert_eq!(open(&both).await, (1, 1));
        let [(entry, why)] = &openings.waiting()[..] else { panic!("one waits") };
        assert_eq!(*entry, both[1]);
        assert!(why.contains("does not have that address; it is tried again every 15 s"), "{why}");
        openings.try_again(handles, sessions_of).await;
        assert_eq!(openings.waiting().len(), 1, "it is still not there");
        // The address is now assigned: the test gives the entry another address.
        *openings.absent() = vec![(entries(&["127.0.0.1:0"]).remove(0), why.clone())];
        openings.try_again(handles, sessions_of).await;
        assert_eq!((openings.all().await.len(), openings.waiting().len()), (2, 0));
        assert_eq!(open(&both[1..]).await, (0, 1), "a reload keeps what waits");
        assert_eq!(open(&[]).await, (0, 0), "a reload forgets what is gone");
        openings.close_all(handles).await;
    }
}
