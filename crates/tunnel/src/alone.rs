//! One process per client and server on a machine. A second process would log in under the same
//! name, and the server would move the services from the first process to it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use config::ClientConfig;
use control::{Instance, SocketPath};
use ops::Role;
use ops::command::ReadStatus;
use ops::state::{Places, create_private};
use rustix::fs::{FlockOperation, flock};

use crate::whereabouts::client_instance;

/// The lock of a client. It is held for the lifetime of this value.
#[derive(Debug)]
pub(crate) struct Alone {
    lock: Option<File>,
    /// The content of the lock file, after this process serves.
    note: Option<String>,
}

/// Longest content of a lock file: a process number, and a path of 107 bytes (unix(7)).
const HOLDER_MAX: u64 = 256;

impl Alone {
    /// Locks this client at these servers, in the folder of its control socket. `inherits`: this
    /// process replaces the running process, and inherits its lock.
    ///
    /// # Errors
    /// Another process of this machine already runs this client at these servers. The error names
    /// the commands that reach this process.
    pub(crate) fn claim(
        config: &ClientConfig,
        control: Option<&SocketPath>,
        places: &Places,
        inherits: bool,
    ) -> anyhow::Result<Self> {
        let servers = servers(config);
        // An instance of systemd has a folder of its own, in which this process would see no lock.
        if let Some((pid, socket)) = of(&config.name, &servers, places).filter(|_| !inherits) {
            return Err(taken(config, &pid.to_string(), &socket));
        }
        // Without a folder there is no place for a lock.
        let without = || Ok(Self { lock: None, note: None });
        let Some(control) = control else { return without() };
        let Some(folder) = control.path.parent() else { return without() };
        let name = format!("{}.{:016x}.lock", client_instance(&config.name), hash(&servers));
        let path = folder.join(name);
        let lock = create_private(folder).and_then(|()| files::open_or_create(&path));
        let lock = match lock {
            Ok(lock) => lock,
            Err(error) => {
                // The control socket reports a folder that cannot be used.
                tracing::debug!(path = %path.display(), %error, "no lock");
                return without();
            }
        };
        let (lock, is_next) = match net::inherited::file(&lock) {
            Ok(Some(inherited)) => (inherited.into(), true),
            Ok(None) | Err(_) => (lock, false),
        };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut holder = String::new();
            drop((&lock).take(HOLDER_MAX).read_to_string(&mut holder));
            let (pid, socket) = holder.trim_end().split_once('\n').unwrap_or(("unknown", ""));
            return Err(taken(config, pid, Path::new(socket)));
        }
        // The content is used only for the message of another process.
        let note = format!("{}\n{}\n", std::process::id(), control.path.display());
        if is_next {
            return Ok(Self { lock: Some(lock), note: Some(note) });
        }
        drop(sign(&lock, &note));
        Ok(Self { lock: Some(lock), note: None })
    }

    /// Returns a call that writes this process into the lock file of the former process that it
    /// replaces. `None`: the lock file already names this process.
    ///
    /// # Errors
    /// The process has no free descriptor.
    pub(crate) fn signing(&self) -> io::Result<Option<impl FnOnce() + Send + use<>>> {
        let (Some(lock), Some(note)) = (&self.lock, self.note.clone()) else { return Ok(None) };
        let lock = lock.try_clone()?;
        Ok(Some(move || drop(sign(&lock, &note))))
    }

    /// The lock, which the next process may inherit.
    pub(crate) const fn lock(&self) -> Option<&File> {
        self.lock.as_ref()
    }
}

fn sign(mut lock: &File, note: &str) -> io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    lock.write_all(note.as_bytes())
}

/// The process number and the control socket of the running client of this configuration.
pub(crate) fn running(config: &ClientConfig, places: &Places) -> Option<(u32, PathBuf)> {
    of(&config.name, &servers(config), places)
}

fn servers(config: &ClientConfig) -> BTreeSet<String> {
    // The servers that an API or DNS names change.
    let found = config.finds_servers();
    found.into_iter().chain(config.paths().map(|path| path.endpoint.to_string())).collect()
}

/// The process number and the control socket of a running client of this name at these servers.
fn of(name: &str, servers: &BTreeSet<String>, places: &Places) -> Option<(u32, PathBuf)> {
    let begin = SocketPath::file_name(&client_instance(name));
    let is_candidate = |path: &PathBuf| {
        path.file_name().and_then(|file| file.to_str()).is_some_and(|file| file.starts_with(&begin))
    };
    control::running(places).live.into_iter().filter(is_candidate).find_map(|path| {
        let status = control::ask(&Instance::connect(&path).ok()?, ReadStatus {}).ok()?;
        let others: BTreeSet<_> = status.servers.into_iter().collect();
        (status.role == Role::Client && status.name == name && others == *servers)
            .then_some((status.pid, path))
    })
}

fn taken(config: &ClientConfig, pid: &str, socket: &Path) -> anyhow::Error {
    let server = config.paths().next().map(|path| path.endpoint.to_string());
    let which = if socket.as_os_str().is_empty() {
        String::new()
    } else {
        format!(" --control {}", socket.display())
    };
    anyhow::anyhow!(
        "client `{}` of {} is running on this machine already (process {pid}), and a second process \
         would take its services away (hint: add to the running client with `tunnel publish{which} \
         …`, show it with `tunnel status{which}`, or end it with `tunnel stop{which}`)",
        config.name,
        server.unwrap_or_default()
    )
}

/// FNV-1a of the texts. Every version of the program must compute the same number.
fn hash(texts: &BTreeSet<String>) -> u64 {
    let bytes = texts.iter().flat_map(|text| text.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(text: &str) -> ClientConfig {
        let read = |_: &Path| Err(String::new());
        let sources = config::Sources { env: &|_| None, read: &read };
        let text = format!("{text}\ntoken: q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi\n");
        let text = Some(config::Text { name: "c", text: &text });
        config::load_client(text, &config::ClientFlags::default(), &sources).unwrap().config
    }

    #[test]
    fn one_process_per_client_and_server_and_the_other_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let control = SocketPath { path: dir.path().join("client-home.sock"), fixed: false };
        let claim =
            |text: &str| Alone::claim(&client(text), Some(&control), &Places::default(), false);
        let first = claim("name: home\nservers: [tls://a.example, quic://a.example]").unwrap();
        // The order of the paths does not make another server.
        let why = claim("name: home\nservers: [quic://a.example, tls://a.example]").unwrap_err();
        let why = why.to_string();
        assert!(why.contains(&format!("process {}", std::process::id())), "{why}");
        assert!(why.contains(&format!("--control {}", control.path.display())), "{why}");
        let _other_server = claim("name: home\nservers: tls://b.example").unwrap();
        let _other_name =
            claim("name: work\nservers: [tls://a.example, quic://a.example]").unwrap();
        drop(first);
        claim("name: home\nservers: [tls://a.example, quic://a.example]").unwrap();
    }
}
