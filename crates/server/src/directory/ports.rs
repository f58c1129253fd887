//! The ports that the server chose, by client and service. A service that requests any port gets
//! its previous port, also after a restart of either side. The ports are stored in the state
//! directory.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use config::Over;
use logging::RepeatLimit;
use ops::state::{read_private, write_private};
use proto::greeting::Name;

use super::Port;

/// The file in the state directory.
const FILE: &str = "ports";

/// The prefix of the address of a UDP port. Older versions skip such lines.
const UDP: &str = "udp:";

const HEAD: &str = "# The ports that the server chose: client, service, address.\n";

/// The maximum number of ports stored for one client: a client without `limits.ports` can have this
/// number open. The oldest port is evicted first.
const MOST: usize = config::CLIENT_PORTS as usize;

/// The maximum number of ports stored for all clients, which keeps the file below 1 MiB.
const MOST_OF_ALL: usize = 8000;

/// The chosen ports of all clients.
#[derive(Debug, Default)]
pub(super) struct ChosenPorts {
    folder: Option<PathBuf>,
    known: Mutex<ChosenByClient>,
    /// Held while the file is written, so that the last write contains the latest state.
    writing: Mutex<()>,
}

#[derive(Debug, Default)]
struct ChosenByClient {
    /// By client, oldest first.
    clients: HashMap<String, Vec<Chosen>>,
    /// The table differs from the file.
    is_new: bool,
    /// Limits the log lines about a file that cannot be written.
    complaints: RepeatLimit<()>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Chosen {
    service: String,
    port: Port,
}

impl ChosenPorts {
    /// Reads the ports that are stored in the state directory. Without a directory, the ports are
    /// kept in memory while this process runs.
    pub(super) fn new(folder: Option<&Path>) -> Arc<Self> {
        let mut clients: HashMap<String, Vec<Chosen>> = HashMap::new();
        let text = folder.map(|folder| read_private(folder, FILE)).transpose();
        let text = text.unwrap_or_else(|error| {
            tracing::warn!("{FILE}: {error}; services get other ports where they asked for any");
            None
        });
        for line in text.flatten().unwrap_or_default().lines() {
            if let Some((client, chosen)) = parse(line) {
                let chosens = clients.entry(client).or_default();
                if chosens.len() < MOST {
                    chosens.push(chosen);
                }
            }
        }
        let known = Mutex::new(ChosenByClient { clients, ..ChosenByClient::default() });
        Arc::new(Self { folder: folder.map(Path::to_owned), known, writing: Mutex::default() })
    }

    fn known(&self) -> MutexGuard<'_, ChosenByClient> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The addresses that a service had, oldest first.
    pub(super) fn of(&self, client: &str, service: &str) -> Vec<Port> {
        let known = self.known();
        let all = known.clients.get(client).into_iter().flatten();
        all.filter(|chosen| chosen.service == service).map(|chosen| chosen.port).collect()
    }

    /// The addresses that belong to other services, of this client or of others.
    pub(super) fn of_others(&self, client: &str, service: &str) -> HashSet<Port> {
        let known = self.known();
        let all = known.clients.iter().flat_map(|(name, all)| all.iter().map(move |c| (name, c)));
        all.filter(|(name, chosen)| *name != client || chosen.service != service)
            .map(|(_, chosen)| chosen.port)
            .collect()
    }

    /// Records the address that a service was assigned.
    pub(super) fn note(&self, client: &str, service: &str, port: Port) {
        let mut known = self.known();
        let chosen = Chosen { service: service.to_owned(), port };
        if known.clients.get(client).is_some_and(|all| all.contains(&chosen)) {
            return;
        }
        known.clients.values_mut().for_each(|all| all.retain(|chosen| chosen.port != port));
        if known.clients.values().map(Vec::len).sum::<usize>() >= MOST_OF_ALL {
            return;
        }
        let all = known.clients.entry(client.to_owned()).or_default();
        if all.len() >= MOST {
            all.remove(0);
        }
        all.push(chosen);
        known.is_new = true;
    }

    /// Forgets a client that was removed.
    pub(super) fn forget(self: &Arc<Self>, client: &str) {
        let mut known = self.known();
        known.is_new |= known.clients.remove(client).is_some();
        drop(known);
        self.save();
    }

    /// Writes the file on a blocking thread if the table has changed. Must be called inside a Tokio
    /// runtime.
    pub(super) fn save(self: &Arc<Self>) {
        if self.folder.is_some() && self.known().is_new {
            let ports = Arc::clone(self);
            drop(tokio::task::spawn_blocking(move || ports.write()));
        }
    }

    /// Writes the file now.
    #[cfg(test)]
    pub(super) fn flush(&self) {
        self.write();
    }

    fn write(&self) {
        let Some(folder) = &self.folder else { return };
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let text = {
            let mut known = self.known();
            if !std::mem::take(&mut known.is_new) {
                return;
            }
            text(&known.clients)
        };
        if let Err(error) = write_private(folder, FILE, text.as_bytes()) {
            // The ports stay in memory, and the next save retries the write.
            self.known().is_new = true;
            // A client can change its ports repeatedly.
            if self.known().complaints.pass((), Instant::now()).is_some() {
                tracing::warn!("{}: {error}", folder.join(FILE).display());
            }
        }
    }
}

fn text(clients: &HashMap<String, Vec<Chosen>>) -> String {
    let mut names: Vec<_> = clients.iter().collect();
    names.sort_unstable_by_key(|(name, _)| *name);
    let mut text = HEAD.to_owned();
    for (name, all) in names {
        for Chosen { service, port: (over, address) } in all {
            let over = if *over == Over::Udp { UDP } else { "" };
            let _ = writeln!(text, "{name} {service} {over}{address}");
        }
    }
    text
}

/// Parses a line of the file. A comment, or a line of another version, is `None`.
fn parse(line: &str) -> Option<(String, Chosen)> {
    let mut words = line.split(' ');
    let (client, service) = (Name::new(words.next()?).ok()?, Name::new(words.next()?).ok()?);
    let word = words.next()?;
    let port = match word.strip_prefix(UDP) {
        Some(address) => (Over::Udp, address.parse().ok()?),
        None => (Over::Tcp, word.parse::<SocketAddr>().ok()?),
    };
    let chosen = Chosen { service: service.as_str().to_owned(), port };
    let (_, address) = port;
    (words.next().is_none() && address.port() != 0).then(|| (client.as_str().to_owned(), chosen))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn at(port: u16) -> Port {
        (Over::Tcp, SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))
    }

    #[test]
    fn ports_outlive_the_process_and_a_port_has_one_service() {
        let dir = tempfile::tempdir().unwrap();
        let ports = ChosenPorts::new(Some(dir.path()));
        ports.note("home", "web", at(10_000));
        ports.note("home", "ssh", at(10_001));
        ports.note("other", "web", at(10_002));
        ports.note("other", "ssh", at(10_000));
        ports.note("other", "ssh", (Over::Udp, at(10_000).1));
        ports.write();
        let ports = ChosenPorts::new(Some(dir.path()));
        assert_eq!(ports.of("home", "web"), []);
        assert_eq!(ports.of("home", "ssh"), [at(10_001)]);
        let both = [at(10_000), (Over::Udp, at(10_000).1)];
        assert_eq!(ports.of("other", "ssh"), both, "they are two ports");
        let others = HashSet::from([both[0], both[1], at(10_002)]);
        assert_eq!(ports.of_others("home", "ssh"), others);
        ports.known().clients.remove("other");
        ports.known().is_new = true;
        ports.write();
        assert_eq!(ChosenPorts::new(Some(dir.path())).of("other", "ssh"), []);
    }

    #[test]
    fn a_client_keeps_a_bounded_number_and_other_lines_are_skipped() {
        let ports = ChosenPorts::new(None);
        for n in 0..=MOST {
            ports.note("home", "web", at(1 + u16::try_from(n).unwrap()));
        }
        assert_eq!(ports.of("home", "web").len(), MOST);
        assert_eq!(ports.of("home", "web")[0], at(2));
        for line in ["", HEAD, "a b", "a b 0.0.0.0:0", "a b 0.0.0.0:1 c", "a/b c 0.0.0.0:1"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
