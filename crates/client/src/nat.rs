//! `tunnel nat`: examines the NAT between this client and other clients.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use ops::SendFuture;
use ops::nat::{
    Expected, Filtering, Mapping, NatProbe, NatReport, Network, Path, Peer, RouterPort, StunServer,
    Udp,
};
use punch::mapper::{Mapped, Unmapped};
use punch::{Nat, prospect};
use tokio::time::Instant;
use transport_quic::punched::{Inquired, inquire};

use super::{Client, stun};
use peer::direct;

/// The time limit of the whole examination, for which a user waits.
const LIMIT: Duration = Duration::from_secs(3);

/// The time limit for resolving names of servers. The rest suffices to query each server twice.
const LOOKUPS: Duration = Duration::from_millis(1_500);

impl NatProbe for Client {
    fn probe(&self) -> SendFuture<'_, anyhow::Result<NatReport>> {
        Box::pin(async move {
            let shared = &self.shared;
            // Each inquiry uses two sockets and sends dozens of datagrams.
            let _alone = shared
                .direct
                .asking
                .try_lock()
                .ok()
                .context("the STUN servers are being asked already; try again in a moment")?;
            let until = Instant::now() + LIMIT;
            let (config, uplink) = (shared.config.load_full(), shared.uplinks.preferred());
            let session = uplink.session();
            if uplink.stun().0.is_empty() && config.p2p.stun.is_empty() {
                ensure!(
                    session.live() > 0,
                    "the client is not connected, and learns only at its log-in where its server \
                     answers STUN (hint: `tunnel status` says why; `p2p: {{ stun: HOST }}` in the \
                     client's file names another STUN server)"
                );
                bail!(
                    "server {} answers STUN at no port: its file needs a `quic://` listener in \
                     `listen`, or `stun: 3478` (hint: `p2p: {{ stun: HOST }}` in the client's file \
                     names another STUN server)",
                    session.name
                );
            }
            let servers = stun::of(&uplink, &config, LOOKUPS).await;
            ensure!(!servers.is_empty(), "no name of a STUN server could be looked up");
            let settings = direct::settings(&config);
            let router = async {
                let ports = &shared.direct.ports;
                match config.p2p.mapped {
                    true => Some(ports.probe(settings.clone(), until).await),
                    false => None,
                }
            };
            let (found, router) = tokio::join!(inquire(&settings, &servers, until), router);
            let found = found.context("no socket for the questions")?;
            Ok(report(session.name.clone(), found, router, config.p2p.host))
        })
    }
}

/// The answer of the router, if it was queried, and if it answered.
type Asked = Option<Option<Result<Mapped, Unmapped>>>;

/// The report for the user. `tells_hosts`: addresses of this machine are announced to peers.
fn report(peer: String, found: Inquired, router: Asked, tells_hosts: bool) -> NatReport {
    let Inquired { hosts, servers, ipv4, ipv6 } = found;
    // A trial also uses the result of IPv4, unless only IPv6 passes.
    let passes = |nat: &Nat| nat.udp == punch::Udp::Passes;
    let judged = ipv4.filter(passes).or_else(|| ipv6.filter(passes));
    let ours = judged.unwrap_or_else(|| Nat { udp: punch::Udp::Blocked, ..Nat::default() });
    let has_port = matches!(router, Some(Some(Ok(_)))) && ipv4.is_some_and(|nat| passes(&nat));
    let ours = if has_port { ours.with_port() } else { ours };
    let servers = servers.into_iter().map(|(address, seen)| StunServer {
        address: address.to_string(),
        outer: seen.as_ref().ok().map(SocketAddr::to_string),
        error: seen.err().flatten().map(|kind| kind.to_string()),
    });
    let hosts = if tells_hosts { hosts } else { Vec::new() };
    NatReport {
        peer,
        udp: if judged.is_some() { Udp::Passes } else { Udp::Blocked },
        servers: servers.collect(),
        ipv4: ipv4.map(network),
        ipv6: ipv6.map(network),
        router: router.map(opened),
        candidates: hosts.iter().map(SocketAddr::to_string).collect(),
        peers: Peer::ALL.map(|peer| Expected { peer, path: path(ours, peer) }).into(),
    }
}

fn opened(said: Option<Result<Mapped, Unmapped>>) -> RouterPort {
    match said {
        Some(Ok(Mapped { outer, protocol })) => RouterPort {
            protocol: Some(protocol.to_string()),
            outer: Some(outer.to_string()),
            error: None,
        },
        Some(Err(why)) => RouterPort { error: Some(why.to_string()), ..RouterPort::default() },
        None => RouterPort::default(),
    }
}

fn network(nat: Nat) -> Network {
    Network {
        mapping: match nat.mapping {
            punch::Mapping::Unknown => Mapping::Unknown,
            punch::Mapping::None => Mapping::None,
            punch::Mapping::Same => Mapping::Same,
            punch::Mapping::PerDestination => Mapping::PerDestination,
        },
        filtering: match nat.filtering {
            punch::Filtering::Unknown => Filtering::Unknown,
            punch::Filtering::Open => Filtering::Open,
            punch::Filtering::AddressAndPort => Filtering::AddressAndPort,
        },
    }
}

fn path(ours: Nat, peer: Peer) -> Path {
    let passes = |mapping, filtering| Nat { udp: punch::Udp::Passes, mapping, filtering };
    let filtered = punch::Filtering::AddressAndPort;
    let theirs = match peer {
        Peer::Open => passes(punch::Mapping::None, punch::Filtering::Open),
        Peer::Plain => passes(punch::Mapping::Same, filtered),
        Peer::Symmetric => passes(punch::Mapping::PerDestination, filtered),
        Peer::Blocked => Nat { udp: punch::Udp::Blocked, ..Nat::default() },
    };
    match prospect(ours, theirs) {
        Some("direct") => Path::Direct,
        Some(_) => Path::Relayed,
        None => Path::Unclear,
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    fn found(nat: Nat, seen: Option<&str>) -> Inquired {
        let server = "192.0.2.2:7000".parse().unwrap();
        let seen = seen.map(|seen| seen.parse().unwrap());
        Inquired {
            hosts: vec!["192.168.1.5:4000".parse().unwrap()],
            servers: vec![(server, seen.ok_or(Some(ErrorKind::NetworkUnreachable)))],
            ipv4: Some(nat),
            ipv6: None,
        }
    }

    fn paths(report: &NatReport) -> Vec<Path> {
        report.peers.iter().map(|expected| expected.path).collect()
    }

    #[test]
    fn each_network_has_its_prospects() {
        use Path::{Direct, Relayed, Unclear};
        use punch::{Filtering as F, Mapping as M};
        for (mapping, filtering, expected) in [
            (M::None, F::Open, [Direct, Direct, Direct, Relayed]),
            (M::None, F::AddressAndPort, [Direct, Direct, Relayed, Relayed]),
            (M::Same, F::Open, [Direct, Direct, Direct, Relayed]),
            (M::Same, F::AddressAndPort, [Direct, Direct, Relayed, Relayed]),
            (M::Same, F::Unknown, [Direct, Direct, Unclear, Relayed]),
            (M::PerDestination, F::Unknown, [Direct, Relayed, Unclear, Relayed]),
            (M::Unknown, F::Unknown, [Direct, Unclear, Unclear, Relayed]),
        ] {
            let nat = Nat { udp: punch::Udp::Passes, mapping, filtering };
            let report = report("s".into(), found(nat, Some("203.0.113.9:9")), None, true);
            assert_eq!(paths(&report), expected, "{mapping:?} {filtering:?}");
            assert_eq!(report.udp, Udp::Passes);
            assert_eq!(report.servers[0].outer.as_deref(), Some("203.0.113.9:9"));
        }
    }

    #[test]
    fn a_port_of_the_router_reaches_every_peer_that_has_udp() {
        use Path::{Direct, Relayed};
        use punch::{Filtering as F, Mapping as M};
        let nat =
            Nat { udp: punch::Udp::Passes, mapping: M::PerDestination, filtering: F::Unknown };
        let outer = "203.0.113.9:9".parse().unwrap();
        let mapped = Mapped { outer, protocol: punch::mapper::Protocol::NatPmp };
        let with = |said| report("s".into(), found(nat, Some("203.0.113.9:7")), said, true);
        let opened = with(Some(Some(Ok(mapped))));
        assert_eq!(paths(&opened), [Direct, Direct, Direct, Relayed]);
        let port = opened.router.unwrap();
        assert_eq!(port.protocol.as_deref(), Some("NAT-PMP"));
        assert_eq!(port.outer.as_deref(), Some("203.0.113.9:9"));
        let refused = with(Some(Some(Err(Unmapped::Silent))));
        assert_eq!(paths(&refused), paths(&with(None)));
        let why = refused.router.unwrap().error.unwrap();
        assert_eq!(why, "the router answers neither PCP, NAT-PMP nor UPnP");
        assert_eq!(with(None).router, None);
    }

    #[test]
    fn without_an_answer_everything_is_relayed_and_the_system_says_why() {
        let nat = Nat { udp: punch::Udp::Blocked, ..Nat::default() };
        let report = report("s".into(), found(nat, None), Some(None), false);
        assert_eq!(report.router, Some(RouterPort::default()));
        assert_eq!((report.udp, paths(&report)), (Udp::Blocked, vec![Path::Relayed; 4]));
        assert_eq!(report.servers[0].error.as_deref(), Some("network unreachable"));
        assert!(report.candidates.is_empty(), "`p2p.candidates` without host");
    }
}
