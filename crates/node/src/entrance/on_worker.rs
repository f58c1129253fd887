//! An entrance that is open on one worker.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use proto::Target;
use relay::{FlowSettings, Proxy, Settings, Stats, socket_options};

use super::guard::Guard;
use super::shared::Entrance;
use super::watch::EntranceWatch;
use crate::aim::ProxyTerms;
use crate::backends::Picked;
use crate::session::Worker;

/// The open entrances of a worker by their ids.
#[derive(Debug, Default)]
pub struct Entrances(pub RefCell<HashMap<u64, OpenEntrance>>);

/// An entrance that is open on one worker.
#[derive(Debug)]
pub struct OpenEntrance {
    /// The shared part.
    pub entrance: Arc<Entrance>,
    /// The listener, which closes on drop. `None` before this worker listens, and on workers that
    /// do not accept visitors.
    pub(super) listening: Option<Guard>,
    /// The settings that its new streams on this worker share, for its backend or for each session
    /// that shares the entrance, the oldest first.
    pub(super) settings: RefCell<Vec<(Arc<Picked>, Rc<Settings>)>>,
    /// The settings of its flows, if it is a UDP port or a SOCKS5 proxy.
    pub flows: Option<Rc<FlowSettings>>,
    /// The proxy for its visitors, if they name their targets, and its terms.
    pub(super) proxy: RefCell<Option<(Arc<ProxyTerms>, Rc<Proxy>)>>,
}

impl OpenEntrance {
    /// A duplicate of the socket of its port on this worker; `None`: it has none.
    pub(super) fn duplicate(&self) -> Option<OwnedFd> {
        self.listening.as_ref()?.duplicate()
    }

    /// The counters of the streams of this backend on this worker; `None`: it has had no stream
    /// here.
    pub fn stats_by(&self, picked: &Picked) -> Option<Rc<Stats>> {
        let known = self.settings.borrow();
        let of = |known: &&(Arc<Picked>, Rc<Settings>)| known.0.session == picked.session;
        let (_, settings) = match &known[..] {
            [only] if !self.entrance.backends.count_apart() => only,
            all => all.iter().find(of)?,
        };
        Some(Rc::clone(&settings.stats))
    }

    /// All counters of its streams on this worker.
    pub fn all_stats(&self) -> Vec<Rc<Stats>> {
        self.settings.borrow().iter().map(|(_, settings)| Rc::clone(&settings.stats)).collect()
    }

    /// Removes a session that no longer shares the entrance. Returns its counters, because its
    /// streams continue.
    pub fn forget(&self, session: u64) -> Option<Rc<Stats>> {
        let mut known = self.settings.borrow_mut();
        let place = known.iter().position(|(picked, _)| picked.session == session)?;
        (known.len() > 1).then(|| Rc::clone(&known.remove(place).1.stats))
    }

    /// The current settings of its new streams on this worker.
    pub fn settings(&self) -> Rc<Settings> {
        self.served_by(self.entrance.in_force().accountable())
    }

    /// The settings for a stream that begins now. The stream keeps the settings and its backend to
    /// its end. All streams share their counters, or, if the entrance is shared, all streams of a
    /// session.
    fn served_by(&self, picked: &Arc<Picked>) -> Rc<Settings> {
        let mut known = self.settings.borrow_mut();
        let apart = self.entrance.backends.count_apart();
        let of = known.iter().position(|(of, _)| !apart || of.session == picked.session);
        if let Some((of, settings)) = of.and_then(|place| known.get(place))
            && Arc::ptr_eq(of, picked)
        {
            return Rc::clone(settings);
        }
        let before = of.and_then(|place| known.get(place)).or_else(|| known.first());
        let before = before.map(|(_, settings)| Settings::clone(settings)).unwrap_or_default();
        let stats = if of.is_some() { Rc::clone(&before.stats) } else { Rc::default() };
        let is_watched = before.watcher.is_some();
        let gate = self.entrance.backends.gate_of(picked);
        let settings = Rc::new(Settings {
            timeouts: picked.aim.terms.timeouts,
            socket: socket_options(&picked.aim.terms),
            gate: Some(gate),
            watcher: is_watched.then(|| EntranceWatch::of_streams(&self.entrance, picked)),
            stats,
            ..before
        });
        let entry = (Arc::clone(picked), Rc::clone(&settings));
        match of.and_then(|place| known.get_mut(place)) {
            Some(known) => *known = entry,
            None => known.push(entry),
        }
        settings
    }

    /// The label of its streams in lists: the name of a service, the address of a forward.
    pub fn label(&self) -> String {
        let in_force = self.entrance.in_force();
        let aim = in_force.aim();
        match aim.target {
            Target::Forward(_)
            | Target::Reported(_)
            | Target::Detour(_)
            | Target::Private { .. } => self.entrance.address.clone(),
            Target::Service(_)
            | Target::Marked { .. }
            | Target::Hop(_)
            | Target::Ask(_)
            | Target::Measure(_) => aim.name.clone(),
        }
    }
}

/// The settings of new streams of this entrance. `None`: the entrance is closed.
pub fn settings_of(worker: &Worker, entrance: &Entrance) -> Option<Rc<Settings>> {
    let entrances = worker.state.of::<Entrances>();
    let entrances = entrances.0.borrow();
    entrances.get(&entrance.id).map(OpenEntrance::settings)
}

/// The counters of a backend of an entrance on this worker. `None`: the entrance was closed
/// meanwhile.
pub fn stats_of(worker: &Worker, entrance: &Entrance, picked: &Arc<Picked>) -> Option<Rc<Stats>> {
    served_by(worker, entrance, picked).map(|settings| Rc::clone(&settings.stats))
}

/// The settings for a stream of this entrance that the picked backend serves. `None`: the entrance
/// was closed meanwhile.
pub fn served_by(
    worker: &Worker,
    entrance: &Entrance,
    picked: &Arc<Picked>,
) -> Option<Rc<Settings>> {
    let entrances = worker.state.of::<Entrances>();
    let entrances = entrances.0.borrow();
    entrances.get(&entrance.id).map(|open| open.served_by(picked))
}
