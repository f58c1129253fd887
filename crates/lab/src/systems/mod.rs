//! The systems under test: ours over each transport, and what others use for the same purpose. Each
//! is a value that knows what it needs and how its daemons are configured and started, so that
//! `cargo xtask bench` treats them all alike.
//!
//! | module | what |
//! |---|---|
//! | `scene` | a system that is being started: its folder, files, daemons and ports |
//! | `reach` | whether a visitor gets through to an origin |
//! | `running` | [`Running`]: the daemons, alive until dropped |
//! | `trial` | `cargo xtask systems`: each system once against an echo |
//! | the others | one system or family each |
//!
//! Two daemons each: one where visitors come in ("server"), one beside the origins ("client"). What
//! was chosen where a system leaves a choice is said in its module: the fast set-up that its own
//! documentation recommends.

mod bore;
mod chisel;
mod evproxy;
mod haproxy;
mod hysteria;
mod kcptun;
mod nginx;
mod ours;
mod qmux;
mod rathole;
mod reach;
mod running;
mod scene;
mod trial;

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::bench::load_program;
use crate::peers;
pub(crate) use running::{Login, Running};
use scene::Scene;
pub(crate) use trial::main;
use xtask::child;
use xtask::site::Site;

/// A reverse proxy without a tunnel.
const NGINX: &str = "nginx-wss";

/// Something that carries connections from visitors to origins.
#[derive(Debug)]
pub(crate) struct System {
    /// What it is and over which transport: `rathole-tls`.
    pub(crate) name: &'static str,
    needs: &'static [Need],
    start: fn(&mut Scene<'_>) -> Result<()>,
}

/// Where visitors want to get.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// Of letters and digits: it becomes the name of a service.
    pub(crate) name: &'static str,
    /// On the loopback interface, IPv4.
    pub(crate) address: SocketAddr,
}

/// What has to be there before a system can be started.
#[derive(Clone, Copy, Debug)]
enum Need {
    /// The binary at [`Site::tunnel`]: it is measured, or its certificates are used.
    Tunnel,
    /// The binary at [`Site::former`].
    Former,
    /// The load programs: one of them is a part of it.
    Load,
    /// One of [`peers`].
    Peer(&'static str),
    /// Another program of this machine.
    Program(&'static str),
}

/// All systems: what they are compared with, ours, then the others.
pub(crate) const fn all() -> &'static [System] {
    use Need::{Former, Load, Peer, Program, Tunnel};
    const ALL: &[System] = &[
        System { name: "direct", needs: &[], start: direct },
        System { name: "tunnel-tcp", needs: &[Tunnel], start: ours::tcp },
        System { name: "tunnel-tls", needs: &[Tunnel], start: ours::tls },
        System { name: "tunnel-ws", needs: &[Tunnel], start: ours::ws },
        System { name: "tunnel-wss", needs: &[Tunnel], start: ours::wss },
        System { name: "tunnel-quic", needs: &[Tunnel], start: ours::quic },
        System {
            name: "tunnel-nginx",
            needs: &[Tunnel, Program("nginx")],
            start: ours::behind_nginx,
        },
        System { name: "former-tcp", needs: &[Tunnel, Former], start: ours::former_tcp },
        System { name: "former-tls", needs: &[Tunnel, Former], start: ours::former_tls },
        System { name: "former-quic", needs: &[Tunnel, Former], start: ours::former_quic },
        System { name: NGINX, needs: &[Tunnel, Load, Program("nginx")], start: nginx::alone },
        System { name: "haproxy-2hop", needs: &[Peer("haproxy")], start: haproxy::start },
        System { name: "rathole-tcp", needs: &[Peer("rathole")], start: rathole::tcp },
        System {
            name: "rathole-tls",
            needs: &[Peer("rathole"), Tunnel, Program("openssl")],
            start: rathole::tls,
        },
        System { name: "bore-tcp", needs: &[Peer("bore")], start: bore::start },
        System { name: "chisel-ws", needs: &[Peer("chisel")], start: chisel::start },
        System { name: "qmux-quic", needs: &[Peer("qmux")], start: qmux::start },
        System { name: "evproxy-tcp", needs: &[Peer("evproxy")], start: evproxy::start },
        System {
            name: "hysteria-quic",
            needs: &[Peer("hysteria"), Tunnel],
            start: hysteria::start,
        },
        System { name: "kcptun-kcp", needs: &[Peer("kcptun")], start: kcptun::start },
    ];
    ALL
}

impl System {
    /// `None`: it can be started here. Else why it is left out of a run.
    pub(crate) fn lacking(&self, site: &Site) -> Option<String> {
        self.needs.iter().find_map(|need| need.lacking(site))
    }

    /// Which version is installed, of the systems of others.
    pub(crate) fn version(&self, site: &Site) -> Option<String> {
        self.needs.iter().find_map(|need| match need {
            Need::Peer(name) => peers::version(site, name),
            Need::Tunnel | Need::Former | Need::Load | Need::Program(_) => None,
        })
    }

    /// Whether it is `tunnel`, of this checkout or an older one.
    pub(crate) fn is_ours(&self) -> bool {
        self.name.starts_with("tunnel-") || self.name.starts_with("former-")
    }

    /// Whether it is a proxy with a connection of its own for each visitor on both of its sides: twice
    /// the descriptors in one process.
    pub(crate) fn is_bridge(&self) -> bool {
        self.name == NGINX
    }

    /// Starts the daemons of both sides, and returns when a visitor gets through to every origin.
    /// Files and logs go to `dir`, which exists and is this run's alone. A server of ours knows so many
    /// more clients, by the names c0, c1, and so on.
    ///
    /// # Errors
    /// What did not start or did not let a visitor through, with the last lines of the logs.
    pub(crate) fn start(
        &self,
        site: &Site,
        dir: &Path,
        origins: &[Origin],
        clients: u32,
    ) -> Result<Running> {
        // The daemons work there, and files name files.
        let dir = &dir.canonicalize().with_context(|| format!("{}", dir.display()))?;
        let mut scene = Scene::new(site, dir, origins, clients);
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
                .then(|| format!("not built: {} (cargo build --release)", site.tunnel.display())),
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

/// No daemon at all: what the others are measured against.
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
