//! The systems under test: `tunnel` over each transport, and other projects' tunnels and proxies.
//! Each system is a value with its needs and with the configuration and start of its daemons, so
//! that `cargo xtask bench` treats all systems alike.
//!
//! | module | what |
//! |---|---|
//! | `scene` | a system that is being started: its folder, files, daemons and ports |
//! | `reach` | checks that a visitor gets through to an origin |
//! | `socks` | the visitor's side of SOCKS5 |
//! | `visitors`, `way` | what visitors send, and where they and their origins are |
//! | `running`, `daemons` | [`Running`]: the daemons, alive until dropped |
//! | `certificates` | certificates for the daemons |
//! | `trial` | `cargo xtask systems`: each system once against an echo |
//! | the others | one system or family each |
//!
//! A system has two daemons: a "server" where visitors connect, and a "client" beside the origins.
//! A balancer is one daemon.
//! If a system leaves a choice, its module uses the fast set-up that the system's documentation
//! recommends, and describes it.

mod balancer;
mod bore;
mod certificates;
mod chisel;
mod cluster;
mod daemons;
mod evproxy;
mod haproxy;
mod hysteria;
pub(crate) mod kcptun;
mod nginx;
mod ours;
mod peer;
mod qmux;
mod rathole;
mod reach;
mod running;
mod scene;
mod socks;
mod trial;
mod visitors;
mod way;

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::bench::load_program;
use crate::peers;
pub(crate) use running::{Login, Running};
use scene::Scene;
pub(crate) use trial::main;
use visitors::Visitors;
pub(crate) use visitors::{Origin, UDP, WEB};
use xtask::child;
use xtask::site::Site;

/// A reverse proxy without a tunnel.
const NGINX: &str = "nginx-wss";

/// A system that carries connections from visitors to origins.
#[derive(Debug)]
pub(crate) struct System {
    /// The program and its transport: `rathole-tls`.
    pub(crate) name: &'static str,
    needs: &'static [Need],
    visitors: Visitors,
    /// Whether it carries UDP as well.
    has_datagrams: bool,
    start: Start,
}

type Start = fn(&mut Scene<'_>) -> Result<()>;

const fn bytes(name: &'static str, needs: &'static [Need], start: Start) -> System {
    System { name, needs, visitors: Visitors::Any, has_datagrams: false, start }
}

/// A system that carries bytes and datagrams.
const fn all_kinds(name: &'static str, needs: &'static [Need], start: Start) -> System {
    System { has_datagrams: true, ..bytes(name, needs, start) }
}

const fn http(name: &'static str, needs: &'static [Need], start: Start) -> System {
    System { visitors: Visitors::Http, ..bytes(name, needs, start) }
}

const fn https(name: &'static str, needs: &'static [Need], start: Start) -> System {
    System { visitors: Visitors::Https, ..bytes(name, needs, start) }
}

const fn behind_socks(name: &'static str, needs: &'static [Need], start: Start) -> System {
    System { visitors: Visitors::Socks, ..bytes(name, needs, start) }
}

/// A requirement for starting a system.
#[derive(Clone, Copy, Debug)]
enum Need {
    /// The binary at [`Site::tunnel`]: it is measured, or its certificates are used.
    Tunnel,
    /// The binary at [`Site::glibc`].
    Glibc,
    /// The binary at [`Site::former`].
    Former,
    /// The load programs: a part of the system is one of them.
    Load,
    /// A peer of [`peers`].
    Peer(&'static str),
    /// Another program of this machine.
    Program(&'static str),
}

/// All systems: the references, then `tunnel`, then the others.
pub(crate) const fn all() -> &'static [System] {
    use Need::{Former, Glibc, Load, Peer, Program, Tunnel};
    const ALL: &[System] = &[
        all_kinds("direct", &[], direct),
        all_kinds("tunnel-tcp", &[Tunnel], ours::tcp),
        all_kinds("tunnel-tls", &[Tunnel], ours::tls),
        all_kinds("tunnel-ws", &[Tunnel], ours::ws),
        all_kinds("tunnel-wss", &[Tunnel], ours::wss),
        all_kinds("tunnel-quic", &[Tunnel], ours::quic),
        all_kinds("tunnel-kcp", &[Tunnel], ours::kcp),
        all_kinds("tunnel-kcp-plain", &[Tunnel], ours::kcp_plain),
        all_kinds("tunnel-kcp-fixed", &[Tunnel], ours::kcp_fixed),
        bytes("tunnel-nginx", &[Tunnel, Program("nginx")], ours::behind_nginx),
        bytes("tunnel-peer-direct", &[Tunnel], peer::direct),
        bytes("tunnel-peer-webrtc", &[Tunnel, Glibc], peer::webrtc),
        bytes("tunnel-peer-relay", &[Tunnel], peer::relayed),
        bytes("tunnel-cluster-own", &[Tunnel, Program("etcd")], cluster::own),
        bytes("tunnel-cluster-hop", &[Tunnel, Program("etcd")], cluster::hop),
        bytes("tunnel-cluster-hop-quic", &[Tunnel, Program("etcd")], cluster::hop_quic),
        bytes("tunnel-cluster-hop-tcp", &[Tunnel, Program("etcd")], cluster::hop_tcp),
        bytes("tunnel-forward", &[Tunnel], ours::forward),
        behind_socks("tunnel-socks5", &[Tunnel], ours::socks5),
        http("tunnel-http-name", &[Tunnel], ours::http_name),
        http("tunnel-http-pass", &[Tunnel], ours::http_pass),
        https("tunnel-https-name", &[Tunnel], ours::https_name),
        all_kinds("tunnel-proxy", &[Tunnel], balancer::ours),
        bytes("glibc-tcp", &[Tunnel, Glibc], ours::glibc_tcp),
        bytes("glibc-tls", &[Tunnel, Glibc], ours::glibc_tls),
        bytes("glibc-wss", &[Tunnel, Glibc], ours::glibc_wss),
        bytes("glibc-quic", &[Tunnel, Glibc], ours::glibc_quic),
        bytes("glibc-kcp", &[Tunnel, Glibc], ours::glibc_kcp),
        all_kinds("former-tcp", &[Tunnel, Former], ours::former_tcp),
        all_kinds("former-tls", &[Tunnel, Former], ours::former_tls),
        all_kinds("former-ws", &[Tunnel, Former], ours::former_ws),
        all_kinds("former-quic", &[Tunnel, Former], ours::former_quic),
        bytes(NGINX, &[Tunnel, Load, Program("nginx")], nginx::alone),
        https("nginx-tls", &[Tunnel, Program("nginx")], ours::nginx_tls),
        bytes("haproxy-2hop", &[Peer("haproxy")], haproxy::start),
        bytes("haproxy-1hop", &[Peer("haproxy")], balancer::haproxy),
        bytes("rathole-tcp", &[Peer("rathole")], rathole::tcp),
        bytes("rathole-tls", &[Peer("rathole"), Tunnel, Program("openssl")], rathole::tls),
        bytes("bore-tcp", &[Peer("bore")], bore::start),
        bytes("chisel-ws", &[Peer("chisel")], chisel::start),
        bytes("qmux-quic", &[Peer("qmux")], qmux::start),
        bytes("evproxy-tcp", &[Peer("evproxy")], evproxy::start),
        all_kinds("hysteria-quic", &[Peer("hysteria"), Tunnel], hysteria::start),
        bytes("kcptun-kcp", &[Peer("kcptun")], kcptun::start),
    ];
    ALL
}

impl System {
    /// The reason why the system is left out of a run. `None`: it can be started on this machine.
    pub(crate) fn lacking(&self, site: &Site) -> Option<String> {
        self.needs.iter().find_map(|need| need.lacking(site))
    }

    /// The installed version, for systems of other projects.
    pub(crate) fn version(&self, site: &Site) -> Option<String> {
        self.needs.iter().find_map(|need| match need {
            Need::Peer(name) => peers::version(site, name),
            Need::Tunnel | Need::Glibc | Need::Former | Need::Load | Need::Program(_) => None,
        })
    }

    /// Whether the system is `tunnel`, built from this checkout or from an older revision.
    pub(crate) fn is_ours(&self) -> bool {
        self.name.starts_with("tunnel-") || self.name.starts_with("former-")
    }

    /// Whether the system is `tunnel` for glibc, with which the static binary is compared.
    pub(crate) fn is_of_glibc(&self) -> bool {
        self.name.starts_with("glibc-")
    }

    /// Whether the system runs the build of `tunnel` for glibc.
    pub(crate) fn needs_glibc(&self) -> bool {
        self.needs.iter().any(|need| matches!(need, Need::Glibc))
    }

    /// Whether the system is a proxy with a connection for each visitor on both of its sides. Such
    /// a proxy needs twice the descriptors in one process.
    pub(crate) fn is_bridge(&self) -> bool {
        self.name == NGINX
    }

    /// Whether one process stands between visitors and origins. It has the descriptors of both
    /// ends, and no log-ins.
    pub(crate) fn is_one_hop(&self) -> bool {
        ["tunnel-proxy", "haproxy-1hop"].contains(&self.name)
    }

    /// Whether the system takes only HTTP. Of the origins it reaches [`WEB`] alone.
    pub(crate) fn is_for_http(&self) -> bool {
        matches!(self.visitors, Visitors::Http | Visitors::Https)
    }

    /// Whether the system takes only HTTP over TLS.
    pub(crate) fn is_for_https(&self) -> bool {
        matches!(self.visitors, Visitors::Https)
    }

    /// Whether the system reaches [`UDP`].
    pub(crate) const fn has_datagrams(&self) -> bool {
        self.has_datagrams
    }

    /// Whether the client of `tunnel` listens and the server dials.
    pub(crate) fn is_forward(&self) -> bool {
        ["tunnel-forward", "tunnel-socks5"].contains(&self.name)
    }

    /// Whether two clients of `tunnel` carry the bytes, over a private service.
    pub(crate) fn is_peer(&self) -> bool {
        self.name.starts_with("tunnel-peer-")
    }

    /// Starts the daemons of both sides, and returns when a visitor gets through to every origin.
    /// Files and logs go to `dir`, which exists and belongs to this run alone. A server of `tunnel`
    /// knows `clients` additional clients, named c0, c1, and so on.
    ///
    /// # Errors
    /// The daemon that did not start or the way that no visitor passed, with the last lines of the
    /// logs.
    pub(crate) fn start(
        &self,
        site: &Site,
        dir: &Path,
        origins: &[Origin],
        clients: u32,
    ) -> Result<Running> {
        // The daemons work in this folder, and their configuration refers to files in it.
        let dir = &dir.canonicalize().with_context(|| format!("{}", dir.display()))?;
        let mut scene = Scene::new(site, dir, origins, clients, self.visitors);
        if self.is_for_http() {
            scene.ways.retain(|way| way.name == WEB);
        }
        if !self.has_datagrams {
            scene.ways.retain(|way| !way.is_udp());
        }
        (self.start)(&mut scene)
            .and_then(|()| reach::wait(&mut scene))
            .map_err(|error| scene.daemons.with_logs(error))
            .with_context(|| format!("starting {}", self.name))?;
        Ok(scene.into_running())
    }
}

impl Need {
    fn lacking(self, site: &Site) -> Option<String> {
        match self {
            Self::Tunnel => (!site.tunnel.is_file())
                .then(|| format!("not built: {} (./build-static.sh)", site.tunnel.display())),
            Self::Glibc => (!site.glibc.is_file()).then(|| {
                let command = "cargo build --release --features mimalloc";
                format!("not built: {} ({command})", site.glibc.display())
            }),
            Self::Former => match &site.former {
                Some(file) => (!file.is_file()).then(|| format!("not there: {}", file.display())),
                None => Some("TUNNEL_FORMER names no older binary to compare with".to_owned()),
            },
            Self::Load => {
                let load = load_program(site);
                (!load.is_file()).then(|| format!("not built: {}", load.display()))
            }
            Self::Peer(name) => peers::lacking(site, name),
            Self::Program(name) => {
                child::find(name).is_none().then(|| format!("not installed: {name}"))
            }
        }
    }
}

/// No daemon at all: the reference for the other systems.
fn direct(scene: &mut Scene<'_>) -> Result<()> {
    for way in &mut scene.ways {
        way.entrance = way.target;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn direct_is_the_first_system_and_ours_follow() {
        let names: Vec<_> = all().iter().map(|system| system.name).collect();
        assert_eq!(names[0], "direct");
        let ours = names.iter().filter(|name| name.starts_with("tunnel-")).count();
        assert!(names[1..=ours].iter().all(|name| name.starts_with("tunnel-")), "{names:?}");
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
    }
}
