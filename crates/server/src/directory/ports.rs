//! The ports that the server chose, by client and service. A service that requests any port gets
//! its previous port, also after a restart of either side. The table is a blob of the directory,
//! which the directory of a single server stores in the state directory.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use config::Over;
use proto::greeting::Name;
use tokio::sync::watch;

use super::{Away, Blob, BlobName, Class, Directory, Port, Put, Revision, Topic};

/// The prefix of the address of a UDP port. Older versions skip such lines.
const UDP: &str = "udp:";

const HEAD: &str = "# The ports that the server chose: client, service, address.\n";

/// The maximum number of ports stored for one client: a client without `limits.ports` can have this
/// number open. The oldest port is evicted first.
const MOST: usize = config::CLIENT_PORTS as usize;

/// The maximum number of ports stored for all clients, which keeps the blob below 1 MiB.
const MOST_OF_ALL: usize = 8000;

/// How often a change is repeated because another server has changed the table meanwhile. Servers
/// that are unlucky this often lose a record, and the service may get another port after a restart.
const ATTEMPTS: u32 = 16;

/// The chosen ports of all clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// By client, oldest first.
    clients: HashMap<String, Vec<OfService>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct OfService {
    service: String,
    port: Port,
}

/// The table of chosen ports in a directory.
#[derive(Debug)]
pub(crate) struct ChosenPorts {
    directory: Arc<dyn Directory>,
    /// The texts of the table have addresses.
    public_bind: IpAddr,
    /// The latest version that was read.
    known: Mutex<(Revision, Arc<Chosen>)>,
    /// The revision of the blob.
    latest: watch::Receiver<Revision>,
}

impl ChosenPorts {
    /// The table of a server with this `public_bind`.
    pub(crate) fn new(directory: Arc<dyn Directory>, public_bind: IpAddr) -> Self {
        let latest = directory.follow(Topic::Blob(BlobName::Ports));
        Self { directory, public_bind, known: Mutex::default(), latest }
    }

    /// The latest table.
    ///
    /// # Errors
    /// The directory does not answer.
    pub(crate) async fn read(&self) -> Result<Arc<Chosen>, Away> {
        Ok(self.version().await?.1)
    }

    async fn version(&self) -> Result<(Revision, Arc<Chosen>), Away> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if known.0 == *self.latest.borrow() { Ok(known) } else { self.fetch().await }
    }

    /// The latest version, whether or not this server was told of it.
    async fn fetch(&self) -> Result<(Revision, Arc<Chosen>), Away> {
        let Blob { revision, bytes } = self.directory.get(BlobName::Ports).await?;
        let table = Arc::new(Chosen::parse(&String::from_utf8_lossy(&bytes), self.public_bind));
        Ok(self.note((revision, table)))
    }

    /// Keeps a version that is newer than the known version.
    fn note(&self, version: (Revision, Arc<Chosen>)) -> (Revision, Arc<Chosen>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if version.0 > known.0 {
            known.clone_from(&version);
        }
        version
    }

    /// Stores a change of the table, in one version. `change` returns whether it has changed
    /// anything, and may be called several times.
    ///
    /// # Errors
    /// The directory does not answer.
    pub(crate) async fn change(&self, change: impl Fn(&mut Chosen) -> bool) -> Result<(), Away> {
        let mut version = self.version().await?;
        for _ in 0..ATTEMPTS {
            let (revision, before) = version;
            let mut table = Chosen::clone(&before);
            if !change(&mut table) {
                return Ok(());
            }
            let text = table.text(self.public_bind);
            match self.directory.put(BlobName::Ports, revision, text.into()).await {
                Put::Done(revision) => {
                    self.note((revision, Arc::new(table)));
                    return Ok(());
                }
                Put::Away => return Err(Away),
                Put::Changed => version = self.fetch().await?,
            }
        }
        tracing::warn!("the chosen ports change too often; a chosen port is not recorded");
        Ok(())
    }
}

impl Chosen {
    /// The ports that a service had, oldest first.
    pub(crate) fn of(&self, client: &str, service: &str) -> Vec<Port> {
        let all = self.clients.get(client).into_iter().flatten();
        all.filter(|chosen| chosen.service == service).map(|chosen| chosen.port).collect()
    }

    /// The ports that belong to other services, of this client or of others.
    pub(crate) fn of_others(&self, client: &str, service: &str) -> HashSet<Port> {
        let all = self.clients.iter().flat_map(|(name, all)| all.iter().map(move |c| (name, c)));
        all.filter(|(name, chosen)| *name != client || chosen.service != service)
            .map(|(_, chosen)| chosen.port)
            .collect()
    }

    /// Records the port that a service was assigned. False: nothing has changed.
    pub(crate) fn note(&mut self, client: &str, service: &str, port: Port) -> bool {
        let chosen = OfService { service: service.to_owned(), port };
        if self.clients.get(client).is_some_and(|all| all.contains(&chosen)) {
            return false;
        }
        let mut has_changed = false;
        for all in self.clients.values_mut() {
            let before = all.len();
            all.retain(|chosen| chosen.port != port);
            has_changed |= all.len() != before;
        }
        self.clients.retain(|_, all| !all.is_empty());
        if self.clients.values().map(Vec::len).sum::<usize>() >= MOST_OF_ALL {
            return has_changed;
        }
        let all = self.clients.entry(client.to_owned()).or_default();
        if all.len() >= MOST {
            all.remove(0);
        }
        all.push(chosen);
        true
    }

    /// Forgets a client that was removed. False: nothing was known of the client.
    pub(crate) fn forget(&mut self, client: &str) -> bool {
        self.clients.remove(client).is_some()
    }

    fn text(&self, public_bind: IpAddr) -> String {
        let mut names: Vec<_> = self.clients.iter().collect();
        names.sort_unstable_by_key(|(name, _)| *name);
        let mut text = HEAD.to_owned();
        for (name, all) in names {
            for OfService { service, port: (over, class, port) } in all {
                let over = if *over == Over::Udp { UDP } else { "" };
                let _ = writeln!(text, "{name} {service} {over}{}", class.at(public_bind, *port));
            }
        }
        text
    }

    fn parse(text: &str, public_bind: IpAddr) -> Self {
        let mut clients: HashMap<String, Vec<OfService>> = HashMap::new();
        for line in text.lines() {
            if let Some((client, chosen)) = parse(line, public_bind) {
                let all = clients.entry(client).or_default();
                if all.len() < MOST {
                    all.push(chosen);
                }
            }
        }
        Self { clients }
    }
}

/// Parses a line of the table. A comment, or a line of another version, is `None`.
fn parse(line: &str, public_bind: IpAddr) -> Option<(String, OfService)> {
    let mut words = line.split(' ');
    let (client, service) = (Name::new(words.next()?).ok()?, Name::new(words.next()?).ok()?);
    let word = words.next()?;
    let (over, address) = match word.strip_prefix(UDP) {
        Some(address) => (Over::Udp, address.parse().ok()?),
        None => (Over::Tcp, word.parse::<SocketAddr>().ok()?),
    };
    let port = (over, Class::of(address.ip(), public_bind), address.port());
    let chosen = OfService { service: service.as_str().to_owned(), port };
    (words.next().is_none() && address.port() != 0).then(|| (client.as_str().to_owned(), chosen))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::Ipv4Addr;

    use super::super::Local;
    use super::*;

    const BIND: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

    fn at(port: u16) -> Port {
        (Over::Tcp, Class::Public, port)
    }

    #[tokio::test]
    async fn ports_outlive_the_process_and_a_port_has_one_service() {
        let dir = tempfile::tempdir().unwrap();
        let open = || {
            let local = Arc::new(Local::new(Some(dir.path())));
            (ChosenPorts::new(Arc::<Local>::clone(&local), BIND), local)
        };
        let (ports, local) = open();
        let udp = (Over::Udp, Class::Public, 10_000);
        let named = (Over::Tcp, Class::Named(Ipv4Addr::LOCALHOST.into()), 10_000);
        let record = |table: &mut Chosen| {
            table.note("home", "web", at(10_000));
            table.note("home", "ssh", at(10_001));
            table.note("other", "web", at(10_002));
            table.note("other", "ssh", at(10_000));
            table.note("other", "ssh", udp) && table.note("other", "ssh", named)
        };
        ports.change(record).await.unwrap();
        local.flush();
        let text = fs::read_to_string(dir.path().join("ports")).unwrap();
        let lines = "home ssh 0.0.0.0:10001\nother web 0.0.0.0:10002\nother ssh 0.0.0.0:10000\n\
                     other ssh udp:0.0.0.0:10000\nother ssh 127.0.0.1:10000\n";
        assert_eq!(text, format!("{HEAD}{lines}"), "the format of earlier versions");

        let (ports, local) = open();
        let table = ports.read().await.unwrap();
        assert_eq!(table.of("home", "web"), []);
        assert_eq!(table.of("home", "ssh"), [at(10_001)]);
        let all = [at(10_000), udp, named];
        assert_eq!(table.of("other", "ssh"), all, "they are three ports");
        let others = HashSet::from([all[0], all[1], all[2], at(10_002)]);
        assert_eq!(table.of_others("home", "ssh"), others);
        ports.change(|table| table.forget("other")).await.unwrap();
        local.flush();
        assert_eq!(open().0.read().await.unwrap().of("other", "ssh"), []);
    }

    #[tokio::test]
    async fn changes_of_two_servers_are_both_recorded() {
        let directory: Arc<dyn Directory> = Arc::new(Local::new(None));
        let [first, second] = [(); 2].map(|()| ChosenPorts::new(Arc::clone(&directory), BIND));
        let old = second.version().await.unwrap();
        first.change(|table| table.note("home", "web", at(1))).await.unwrap();
        let put = directory.put(BlobName::Ports, old.0, "old".into()).await;
        assert_eq!(put, Put::Changed, "a server that did not see the change replaces nothing");
        second.change(|table| table.note("other", "web", at(2))).await.unwrap();
        assert!(!Arc::ptr_eq(&first.read().await.unwrap(), &old.1));
        assert_eq!(first.read().await.unwrap().of("other", "web"), [at(2)]);
        assert_eq!(second.read().await.unwrap().of("home", "web"), [at(1)]);
    }

    #[test]
    fn a_client_keeps_a_bounded_number_and_other_lines_are_skipped() {
        let mut ports = Chosen::default();
        for n in 0..=MOST {
            ports.note("home", "web", at(1 + u16::try_from(n).unwrap()));
        }
        assert_eq!(ports.of("home", "web").len(), MOST);
        assert_eq!(ports.of("home", "web")[0], at(2));
        for line in ["", HEAD, "a b", "a b 0.0.0.0:0", "a b 0.0.0.0:1 c", "a/b c 0.0.0.0:1"] {
            assert_eq!(parse(line, BIND), None, "{line}");
        }
    }
}
