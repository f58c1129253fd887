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
use node::session::Handle;

/// Opens connections on a worker, because dialers belong to a thread. The connections themselves
/// are driven by whoever waits for an answer.
struct OnWorkers {
    ways: Vec<Way>,
    workers: Arc<[Handle]>,
}

impl fmt::Debug for OnWorkers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.ways.iter().map(Way::url)).finish()
    }
}

impl Connect for OnWorkers {
    fn connect<'a>(&'a self, member: usize, address: &'a str) -> Connecting<'a> {
        Box::pin(async move {
            let unknown = || io::Error::new(io::ErrorKind::InvalidInput, address.to_owned());
            let way = self.ways.get(member).ok_or_else(unknown)?.clone();
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

/// The client of etcd of a node. Reads the certificates that the configuration names.
pub(super) fn etcd(directory: &ClusterDirectory, workers: &Arc<[Handle]>) -> anyhow::Result<Etcd> {
    let ways = directory.members.iter().map(Way::of_http).collect::<anyhow::Result<Vec<_>>>();
    let ways = ways.context("cluster.directory")?;
    let address = |path: &config::Path| format!("{}:{}", path.endpoint.host, path.endpoint.port);
    let mut settings = EtcdSettings::new(directory.members.iter().map(address).collect());
    settings.log_in = directory
        .log_in
        .as_ref()
        .map(|user| LogIn { user: user.name.clone(), password: user.password.reveal().to_owned() });
    let connect = OnWorkers { ways, workers: Arc::clone(workers) };
    Etcd::new(settings, Box::new(connect)).context("cluster.directory")
}
