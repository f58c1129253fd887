//! Connections to etcd: those of any HTTP service that this program asks, with their TLS settings,
//! names and time-outs.

use std::fmt;
use std::io;
use std::sync::Arc;

use anyhow::Context;
use config::ClusterDirectory;
use etcd::{Connect, Connecting, Etcd, EtcdSettings, LogIn, MemberStream};
use families::Way;
use families::http::OverLane;
use net::Current;
use node::session::Handle;

/// The ways to the members of etcd, in the order of the configuration. Clones are the same ways.
#[derive(Clone)]
pub(crate) struct MemberWays(Current<Vec<Way>>);

impl fmt::Debug for MemberWays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.get().iter().map(Way::url)).finish()
    }
}

impl MemberWays {
    fn new(directory: &ClusterDirectory) -> anyhow::Result<Self> {
        Ok(Self(ways(directory)?.into()))
    }

    /// Reads the certificates again, for new connections.
    ///
    /// # Errors
    /// The new certificates cannot be used, and the former ones stay in force.
    pub(crate) fn renew(&self, directory: &ClusterDirectory) -> anyhow::Result<()> {
        self.0.replace(Arc::new(ways(directory)?));
        Ok(())
    }
}

/// Reads the certificates that the configuration names.
fn ways(directory: &ClusterDirectory) -> anyhow::Result<Vec<Way>> {
    let ways = directory.members.iter().map(Way::of_http).collect::<anyhow::Result<Vec<_>>>();
    ways.context("cluster.directory")
}

/// Opens connections on a worker, because dialers belong to a thread. The connections themselves
/// are driven by whoever waits for an answer.
#[derive(Debug)]
struct OnWorkers {
    ways: MemberWays,
    workers: Arc<[Handle]>,
}

impl Connect for OnWorkers {
    fn connect<'a>(&'a self, member: usize, address: &'a str) -> Connecting<'a> {
        Box::pin(async move {
            let unknown = || io::Error::new(io::ErrorKind::InvalidInput, address.to_owned());
            let way = self.ways.0.get().get(member).cloned().ok_or_else(unknown)?;
            // Members are spread over the workers, so a busy worker delays one of them.
            let worker = self.workers.get(member % self.workers.len().max(1));
            let worker = worker.ok_or_else(|| io::Error::other("no worker"))?;
            let dialled = worker.task(move |_| async move {
                let dialled = link::dial(&way.path()).await;
                dialled.map(|carrier| carrier.lane).map_err(|why| why.to_string())
            });
            let lane = dialled.await.map_err(io::Error::other)?.map_err(io::Error::other)?;
            Ok(Box::new(OverLane::new(lane)) as Box<dyn MemberStream>)
        })
    }
}

/// The client of etcd of a node, and the ways of its connections.
///
/// # Errors
/// A certificate that the configuration names cannot be used.
pub(super) fn etcd(
    directory: &ClusterDirectory,
    workers: &Arc<[Handle]>,
) -> anyhow::Result<(Etcd, MemberWays)> {
    let ways = MemberWays::new(directory)?;
    let address = |path: &config::Path| format!("{}:{}", path.endpoint.host, path.endpoint.port);
    let mut settings = EtcdSettings::new(directory.members.iter().map(address).collect());
    settings.log_in = directory
        .log_in
        .as_ref()
        .map(|user| LogIn { user: user.name.clone(), password: user.password.reveal().to_owned() });
    let connect = OnWorkers { ways: ways.clone(), workers: Arc::clone(workers) };
    let etcd = Etcd::new(settings, Box::new(connect)).context("cluster.directory")?;
    Ok((etcd, ways))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use config::{ServerFlags, Sources, Text};
    use testkit::certs::{Authority, Flaw};

    use super::*;

    #[test]
    fn connections_get_renewed_certificates_and_keep_the_former_ones_after_a_fault() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new("of etcd").unwrap();
        let ca = authority.save(dir.path()).unwrap();
        let save = || {
            let own = authority.client(&[], "a node", Flaw::None).unwrap();
            own.save(dir.path(), "node").unwrap()
        };
        let (cert, key) = save();
        let files =
            format!("ca: '{}', cert: '{}', key: '{}'", ca.display(), cert.display(), key.display());
        let text = format!(
            "listen: tcp://127.0.0.1:0\n\
             clients: [{{ name: home, token: q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ }}]\n\
             cluster: {{ name: test, node: a, \
             peers: {{ listen: 'quic://127.0.0.1:7100', {files} }}, \
             directory: {{ etcd: 'https://127.0.0.1:2379', tls: {{ {files} }} }} }}\n"
        );
        let text = Text { name: "server.yaml", text: &text };
        let sources = Sources { env: &|_: &str| None, read: &|_: &Path| Err(String::new()) };
        let loaded = config::load_server(Some(text), &ServerFlags::default(), &sources).unwrap();
        let directory = loaded.config.cluster.unwrap().directory;

        let ways = MemberWays::new(&directory).unwrap();
        let of_connections = ways.clone();
        let former = of_connections.0.get();
        fs::write(&key, "no key").unwrap();
        assert!(ways.renew(&directory).is_err());
        assert!(Arc::ptr_eq(&former, &of_connections.0.get()));
        save();
        ways.renew(&directory).unwrap();
        assert!(!Arc::ptr_eq(&former, &of_connections.0.get()));
    }
}
