//! Choice of paths by measurement (`choose: measured`): what is measured of the paths to the
//! servers, its memory by network, and the choice.
//!
//! ```text
//!   figures.rs   the comparison of paths; pure
//!   away.rs      paths through a server to which there is no link; pure
//!   memory.rs    the figures by network, bounded; pure
//!   chooser/     which path the links use, and which path is measured next; pure
//!   file.rs      the memory in the state directory
//!   sample.rs    what the workers count of the links
//!   follow.rs    the task that measures, asks the chooser, and moves links
//! ```

mod away;
mod chooser;
mod figures;
mod file;
mod follow;
mod memory;
mod sample;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use config::{Choose, ClientConfig};
use link::client::{DialError, PathChoice};
use net::gateway::{Gateway, gateway};
use ops::status::{Network, PathFigures};

use figures::Figures;
pub(super) use follow::follow;
use memory::{Memory, Paths};

use super::links::Links;
use super::path_order::PathsInOrder;

/// The number of looks that must find no network before a known network counts as left.
const MISSES: u32 = 3;

/// The time for which a failed attempt waits for the success of another path: about a round over
/// the paths. Without a success the machine has no network, or the server is away, which says
/// nothing about a path.
const PENDING: Duration = Duration::from_secs(3);

/// What is measured, for all parts of a client.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    state: Mutex<MeasuredState>,
    /// The network of this machine may be another one.
    has_changed: AtomicBool,
}

#[derive(Debug, Default)]
struct MeasuredState {
    /// The content of the file.
    memory: Memory,
    /// Whether the file was read.
    is_open: bool,
    /// The network of this machine; `None`: it is not known, and nothing is remembered of it.
    network: Option<Gateway>,
    /// The number of looks in a row that found no network.
    misses: u32,
    /// The paths of this network.
    paths: Paths,
    /// Whether the paths differ from those in the file.
    is_new: bool,
    /// The path of each link, by its serial number.
    of_links: HashMap<u64, String>,
    /// The attempts that failed while no link was live: server, path, reason and time.
    pending: Vec<(Arc<String>, String, String, Instant)>,
    /// The paths that commands have named since the last look.
    commanded: Vec<String>,
    /// What was chosen, by the id of the session.
    choices: BTreeMap<u64, Choice>,
}

/// The choice of the path to a server.
#[derive(Clone, Debug, Default)]
struct Choice {
    /// The path of all links.
    in_use: Option<String>,
    chosen: Option<String>,
    why: String,
}

/// The seconds since 1970.
fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

impl Measured {
    fn state(&self) -> MutexGuard<'_, MeasuredState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the file and finds the network, if the client chooses by measurement.
    pub(super) async fn open(&self, config: &ClientConfig) {
        if config.choose == Choose::Listed || self.state().is_open {
            return;
        }
        let folder = file::folder(&config.common);
        let name = file::name(config);
        let read = move || (file::read(folder.as_deref(), &name), gateway());
        // Fails only when the runtime stops.
        let Ok((memory, network)) = tokio::task::spawn_blocking(read).await else { return };
        let mut state = self.state();
        (state.memory, state.is_open) = (memory, true);
        state.enter(network);
    }

    /// Notes that the network of this machine has changed.
    pub(super) fn network_changed(&self) {
        self.has_changed.store(true, Ordering::Relaxed);
    }

    /// Takes the note that the network has changed.
    fn take_change(&self) -> bool {
        self.has_changed.swap(false, Ordering::Relaxed)
    }

    /// The path of each link, by its serial number.
    fn paths_of_links(&self) -> HashMap<u64, String> {
        self.state().of_links.clone()
    }

    /// Finds the network again. Returns whether it is another one.
    async fn look_at_network(&self) -> bool {
        let Ok(network) = tokio::task::spawn_blocking(gateway).await else { return false };
        let mut state = self.state();
        if state.network == network {
            state.misses = 0;
            return false;
        }
        // The kernel forgets the hardware address of a gateway that has nothing to do.
        if network.is_none() && state.misses < MISSES {
            state.misses += 1;
            return false;
        }
        state.misses = 0;
        match &network {
            Some(network) => tracing::info!("this machine is in the network of {network}"),
            None => tracing::debug!("the network of this machine is not known"),
        }
        state.leave();
        state.enter(network);
        true
    }

    /// Whether the network is known, and the last look has found it.
    fn knows_network(&self) -> bool {
        let state = self.state();
        state.network.is_some() && state.misses == 0
    }

    /// What is to be written into the file; `None`: nothing is new.
    fn take_news(&self) -> Option<Memory> {
        let mut state = self.state();
        if !std::mem::take(&mut state.is_new) || state.network.is_none() {
            return None;
        }
        state.leave();
        Some(state.memory.clone())
    }

    /// Writes what is new into the file.
    pub(super) async fn save(&self, config: &ClientConfig) {
        let Some(memory) = self.take_news() else { return };
        let Some(folder) = file::folder(&config.common) else { return };
        file::write(folder, file::name(config), memory).await;
    }

    /// The figures of the paths to a server.
    fn figures(&self, server: &str, paths: &[String]) -> Vec<Figures> {
        let (state, now) = (self.state(), unix_now());
        let of = |path: &String| state.paths.find(server, path).map(|path| path.figures(now));
        let unknown = |path: &String| Figures {
            keeps_window: figures::keeps_window(path),
            ..Figures::default()
        };
        paths.iter().map(|path| of(path).unwrap_or_else(|| unknown(path))).collect()
    }

    /// The order in which the first carriers try the paths.
    pub(super) fn order(&self, server: &str, paths: &[String]) -> Vec<usize> {
        figures::order(&self.figures(server, paths))
    }

    /// The round trip and the rates of the path to a server that is tried first; nothing where the
    /// paths are not chosen by measurement.
    pub(super) fn of_server(
        &self,
        server: &str,
        links: &Links,
    ) -> (Option<Duration>, [Option<u64>; 2]) {
        let Some(choice) = &links.choice else { return (None, [None; 2]) };
        let labels: Vec<_> = links.paths.iter().map(|path| path.label.clone()).collect();
        let first = choice.get().first().copied().unwrap_or_default();
        let figures = self.figures(server, &labels).get(first).copied().unwrap_or_default();
        let rates = figures.goodput.map(|rate| rate.map(|(rate, _)| rate));
        (figures.rtt.map(|(rtt, _)| rtt), rates)
    }

    /// Changes what is known of a path.
    fn note(&self, server: &str, path: &str, change: impl FnOnce(&mut memory::PathMemory, u64)) {
        let (mut state, now) = (self.state(), unix_now());
        // The machine may be in another network already.
        if state.misses > 0 {
            return;
        }
        if let Some(place) = state.paths.place(server, path, now) {
            change(place, now);
            state.is_new = true;
        }
    }

    /// Records an attempt that succeeded, and those over other paths that failed just before.
    fn attempt_succeeded(&self, server: &str, path: &str) {
        let of_server: Vec<_> =
            self.state().pending.extract_if(.., |(of, ..)| **of == server).collect();
        for (of, other, why, at) in of_server {
            if other != path && at.elapsed() < PENDING {
                self.note(&of, &other, |place, now| place.note_attempt(Some(&why), now));
            }
        }
        self.note(server, path, |place, now| place.note_attempt(None, now));
    }

    /// Records an attempt that failed. `is_live`: another path works.
    fn attempt_failed(&self, server: &Arc<String>, path: &str, why: String, is_live: bool) {
        if is_live {
            self.note(server, path, |place, now| place.note_attempt(Some(&why), now));
            return;
        }
        let mut state = self.state();
        state
            .pending
            .retain(|(of, other, _, at)| (of != server || other != path) && at.elapsed() < PENDING);
        state.pending.push((Arc::clone(server), path.to_owned(), why, Instant::now()));
    }

    /// Records that a command has moved links to a path.
    pub(super) fn command(&self, path: &str) {
        let mut state = self.state();
        if state.is_open && !state.commanded.iter().any(|known| known == path) {
            state.commanded.push(path.to_owned());
        }
    }

    /// Takes the paths that commands have named.
    fn take_commands(&self) -> Vec<String> {
        std::mem::take(&mut self.state().commanded)
    }

    /// Records the path of a link.
    pub(super) fn link_is_on(&self, link: u64, path: &str) {
        self.state().of_links.insert(link, path.to_owned());
    }

    /// Records the end of a link.
    pub(super) fn link_has_ended(&self, link: u64) {
        self.state().of_links.remove(&link);
    }

    /// The network, for the status.
    pub(super) fn network(&self) -> Option<Network> {
        let state = self.state();
        let Gateway { interface, router } = state.network.as_ref()?;
        let gateway = router.as_ref().map(|router| router.address.to_string());
        Some(Network { interface: interface.clone(), gateway })
    }

    /// The figures of the paths of these links, for the status.
    pub(super) fn shown(&self, server: &str, links: &Links) -> Vec<PathFigures> {
        let (state, now) = (self.state(), unix_now());
        if links.choice.is_none() {
            return Vec::new();
        }
        let choice = state.choices.get(&links.session.id).cloned().unwrap_or_default();
        let shown = links.paths.iter().map(|path| {
            let known = state.paths.find(server, &path.label).map(|known| known.shown(now));
            let is_it = |other: &Option<String>| other.as_deref() == Some(&*path.label);
            PathFigures {
                path: path.label.clone(),
                in_use: is_it(&choice.in_use),
                why: if is_it(&choice.chosen) { choice.why.clone() } else { String::new() },
                ..known.unwrap_or_default()
            }
        });
        shown.collect()
    }
}

impl MeasuredState {
    /// Stores the paths of the present network in the memory.
    fn leave(&mut self) {
        if let Some(network) = &self.network {
            self.memory.keep(network, &self.paths.0, unix_now());
        }
    }

    fn enter(&mut self, network: Option<Gateway>) {
        self.paths = Paths(network.as_ref().map(|now| self.memory.of(now)).unwrap_or_default());
        self.network = network;
        self.choices.clear();
        self.pending.clear();
    }
}

/// The choice as a link asks it.
#[derive(Debug)]
pub(super) struct LinkChoice {
    pub(super) measured: Arc<Measured>,
    pub(super) server: Arc<String>,
    pub(super) links: Arc<Links>,
}

impl PathChoice for LinkChoice {
    fn order(&self) -> Vec<usize> {
        self.links.choice.as_ref().map(PathsInOrder::get).unwrap_or_default()
    }

    fn attempted(&self, path: usize, outcome: Result<(), &DialError>) {
        let Some(path) = self.links.paths.get(path).map(|path| &path.label) else { return };
        match outcome {
            Ok(()) => self.measured.attempt_succeeded(&self.server, path),
            Err(error) if !error.is_of_path() => {}
            Err(error) => {
                let is_live = self.links.session.answers();
                self.measured.attempt_failed(&self.server, path, error.to_string(), is_live);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRA: &str = "fra";

    fn measured() -> Measured {
        let measured = Measured::default();
        measured.state().enter(Some(Gateway { interface: "ppp0".to_owned(), router: None }));
        measured
    }

    fn failures(measured: &Measured, path: &str) -> u64 {
        let state = measured.state();
        state.paths.find(FRA, path).map_or(0, |path| path.shown(unix_now()).failures)
    }

    fn fail(measured: &Measured, server: &str, path: &str, is_live: bool) {
        measured.attempt_failed(&Arc::new(server.to_owned()), path, "no".to_owned(), is_live);
    }

    #[test]
    fn a_failure_counts_only_where_another_path_of_the_server_works() {
        let measured = measured();
        fail(&measured, FRA, "quic", false);
        assert_eq!(failures(&measured, "quic"), 0, "the server may be away");
        measured.attempt_succeeded("nyc", "tls");
        assert_eq!(failures(&measured, "quic"), 0, "another server says nothing");
        measured.attempt_succeeded(FRA, "tls");
        assert_eq!((failures(&measured, "quic"), failures(&measured, "tls")), (1, 0));
        fail(&measured, FRA, "quic", true);
        assert_eq!(failures(&measured, "quic"), 2);

        // A failure of an earlier round: the server was away.
        fail(&measured, FRA, "wss", false);
        let long_ago = Instant::now().checked_sub(PENDING).unwrap();
        measured.state().pending[0].3 = long_ago;
        measured.attempt_succeeded(FRA, "tls");
        assert_eq!(failures(&measured, "wss"), 0);
    }

    #[test]
    fn nothing_is_recorded_while_the_network_may_be_another() {
        let measured = measured();
        measured.state().misses = 1;
        fail(&measured, FRA, "quic", true);
        assert_eq!(failures(&measured, "quic"), 0);
        assert!(!measured.knows_network());
        measured.state().misses = 0;
        fail(&measured, FRA, "quic", true);
        assert_eq!(failures(&measured, "quic"), 1);
        assert!(measured.knows_network());
    }
}
