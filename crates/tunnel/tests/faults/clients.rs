//! Processes of clients. Several threads start them.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use testkit::cage::on;
use testkit::judge::Owner;
use testkit::stage::{Daemon, binary, tunnel};

use crate::origin::OfProcess;
use crate::visitor::Wanted;

/// The host of the clients.
pub(crate) const EDGE: &str = "edge";

/// The client with one home, and the client with two.
pub(crate) const ONE: Wanted = Wanted { name: "one.test", port: 10_001 };
pub(crate) const TWO: Wanted = Wanted { name: "two.test", port: 10_002 };

/// The name for which several clients compete.
pub(crate) const SHARED: Wanted = Wanted { name: "shared.test", port: 10_009 };

/// The clients, each with what it may publish besides [`SHARED`].
pub(crate) const CLIENTS: [(&str, Option<Wanted>); 5] =
    [("one", Some(ONE)), ("two", Some(TWO)), ("ann", None), ("bob", None), ("cat", None)];

/// The client that has a name or a port for itself.
pub(crate) fn owner(is_of: impl Fn(Wanted) -> bool) -> Option<&'static str> {
    let found = CLIENTS.iter().find(|(_, wanted)| wanted.is_some_and(&is_of));
    found.map(|(client, _)| *client)
}

/// How a process of a client is started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start<'a> {
    pub(crate) client: &'static str,
    pub(crate) homes: usize,
    /// A client of [`SHARED`] publishes the name alone.
    pub(crate) wanted: Wanted,
    /// The nodes at which it logs in first, in this order.
    pub(crate) by: &'a [&'static str],
}

/// A process of a client.
pub(crate) struct Process {
    pub(crate) daemon: Daemon,
    pub(crate) client: &'static str,
    /// A number that is larger than those of all processes that were started before it.
    pub(crate) generation: u64,
    /// The name of its service, which has this number.
    pub(crate) service: String,
}

impl Process {
    pub(crate) fn owner(&self) -> Owner {
        Owner { client: self.client.to_owned(), process: self.generation }
    }
}

/// What starts them.
#[derive(Debug)]
pub(crate) struct Clients {
    pub(crate) dir: PathBuf,
    pub(crate) tokens: BTreeMap<&'static str, String>,
    pub(crate) addresses: BTreeMap<&'static str, Ipv4Addr>,
    pub(crate) next: AtomicU64,
}

impl Clients {
    /// Starts a process of a client.
    pub(crate) fn start(&self, start: Start<'_>) -> Process {
        let Start { client, homes, wanted, by } = start;
        let generation = self.next.fetch_add(1, Ordering::Relaxed);
        let name = format!("{client}{generation}");
        let origin = OfProcess::start(EDGE, client, generation);
        let urls = by.iter().map(|node| format!("'tls://{}:7000'", self.addresses[node]));
        let (urls, dir) = (urls.collect::<Vec<_>>().join(", "), self.dir.display());
        let service = format!("p{generation:06}");
        // The socket has a folder of its own, as on another machine: a client runs once on each.
        let Wanted { name: host, port } = wanted;
        let (mut public, mut udp) = (format!("'http://{host}'"), String::new());
        if wanted != SHARED {
            public = format!("['tcp://:{port}', 'http://{host}', 'tls://{host}']");
            udp = format!(
                "  - {{ name: {service}-udp, target: 'udp://127.0.0.1:{}', public: 'udp://:{port}' }}\n",
                origin.udp
            );
        }
        let text = format!(
            "servers: [{urls}]\nname: {client}\ntoken: {}\nhomes: {homes}\nconnections: 1\n\
             tls: {{ ca: certs/ca.crt }}\nstate_dir: {dir}/{name}\ncontrol: {dir}/{name}/control.sock\n\
             retry: {{ min: 50ms, max: 500ms }}\nservices:\n  - {{ name: {service}, target: \
             'tcp://127.0.0.1:{}', public: {public} }}\n{udp}",
            self.tokens[client], origin.tcp,
        );
        fs::write(self.dir.join(format!("{name}.yaml")), text).unwrap();
        // Each process is as one of another machine.
        fs::create_dir_all(self.dir.join(&name)).unwrap();
        let daemon = start_on(EDGE, &self.dir, "client", &name);
        Process { daemon, client, generation, service }
    }
}

/// `tunnel` on a host, with the file of this name.
pub(crate) fn start_on(host: &str, dir: &Path, role: &str, name: &str) -> Daemon {
    let daemon = tunnel(&binary(), &[role, "--config", &format!("{name}.yaml")]);
    let mut command = on(host);
    command.arg(daemon.get_program()).args(daemon.get_args());
    for (name, value) in daemon.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(dir).env("HOME", dir);
    Daemon::start(name, dir, &mut command)
}
