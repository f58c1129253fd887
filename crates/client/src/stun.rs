//! The STUN servers that a client queries: the tunnel's server, at the ports that it announced at
//! log-in, and the servers of the configuration file.

use std::net::SocketAddr;
use std::time::Duration;

use config::ClientConfig;
use net::resolve::Lookups;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Client;
use super::uplink::Uplink;

/// The maximum number of addresses of one name: one of each family, and one more.
const OF_NAME: usize = 3;

/// The maximum number of addresses in total: as many as an attempt queries.
const ALL: usize = punch::QUERIES;

/// The time limit for resolving names in a trial. If the resolver is silent, the server's own
/// address remains.
pub(crate) const LOOKUPS: Duration = Duration::from_secs(5);

impl Client {
    /// The addresses of STUN servers, those of the preferred server first. Names that cannot be
    /// resolved are left out.
    pub async fn stun_servers(&self) -> Vec<SocketAddr> {
        let config = self.shared.config.load_full();
        of(&self.shared.uplinks.preferred(), &config, LOOKUPS).await
    }
}

/// The STUN servers for direct paths to clients of this server. Names that are not resolved within
/// `limit` are left out.
pub(crate) async fn of(uplink: &Uplink, config: &ClientConfig, limit: Duration) -> Vec<SocketAddr> {
    let announced = uplink.stun();
    let mut hosts: Vec<(String, Vec<u16>)> = Vec::new();
    for path in config.paths() {
        let host = path.endpoint.host.to_string();
        if !announced.0.is_empty() && !hosts.iter().any(|(known, _)| *known == host) {
            hosts.push((host, announced.0.clone()));
        }
    }
    let own = config.p2p.stun.iter().map(|one| (one.host.to_string(), vec![one.port]));
    hosts.extend(own);
    let mut lookups = JoinSet::new();
    for (nth, (host, ports)) in hosts.into_iter().enumerate() {
        lookups.spawn(async move {
            let bare = host.trim_start_matches('[').trim_end_matches(']');
            let ips = timeout(limit, Lookups::of_servers().resolve(bare)).await;
            let ips = ips.ok().and_then(Result::ok).unwrap_or_default();
            (nth, ips, ports)
        });
    }
    let mut found = lookups.join_all().await;
    found.sort_by_key(|(nth, ..)| *nth);
    let mut all = Vec::new();
    for (_, ips, ports) in found {
        for ip in ips.into_iter().take(OF_NAME) {
            for port in ports.iter().filter(|port| **port != 0) {
                let address = SocketAddr::new(ip.to_canonical(), *port);
                if all.len() < ALL && !all.contains(&address) {
                    all.push(address);
                }
            }
        }
    }
    all
}
