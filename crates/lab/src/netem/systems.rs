//! The systems under test: a visitor at the right end and an origin at the left end, with the
//! tunnel or nothing between them. The server is at the visitor's end, so that the carrier crosses
//! the wire.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use testkit::stage::{Daemon, Scheme, run, tunnel};

use super::ends::{End, Ends, ORIGIN};
use super::stream::wait;
use crate::peers::program;
use crate::systems::kcptun;
use xtask::site::Site;

/// The ports where the tunnel's server accepts visitors and clients.
const PUBLIC: u16 = 9000;
const SERVER: u16 = 7000;

/// A way from the visitor to the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum System {
    /// Directly over the path.
    Direct,
    /// Through both daemons, with one worker and one connection each.
    Tunnel(Scheme),
    /// From a visitor client to the client of a private service, without the server.
    Peer,
    /// The same by data channels of WebRTC.
    PeerWebrtc,
    /// Through kcptun, with the settings of the bench: the peer of `kcp://`.
    Kcptun,
}

impl System {
    /// The path without a tunnel, a tunnel over each transport, and a peer.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let tunnels = Scheme::ALL.iter().map(|&scheme| Self::Tunnel(scheme));
        std::iter::once(Self::Direct).chain(tunnels).chain([
            Self::Peer,
            Self::PeerWebrtc,
            Self::Kcptun,
        ])
    }

    pub(super) fn name(self) -> String {
        match self {
            Self::Direct => "direct".to_owned(),
            Self::Tunnel(scheme) => format!("tunnel-{}", scheme.name),
            Self::Peer => "tunnel-peer-direct".to_owned(),
            Self::PeerWebrtc => "tunnel-peer-webrtc".to_owned(),
            Self::Kcptun => "kcptun".to_owned(),
        }
    }

    /// Starts the daemons of the system and waits until they listen.
    pub(super) fn start(self, ends: &Ends, dir: &Path, binary: &Path) -> Result<Running> {
        match self {
            Self::Direct => {
                let address = SocketAddr::from((ends.left.address, ORIGIN));
                Ok(Running { address, daemons: Vec::new() })
            }
            Self::Tunnel(scheme) => start_tunnel(ends, scheme, dir, binary),
            Self::Peer => start_peer(ends, "direct", dir, binary),
            Self::PeerWebrtc => start_peer(ends, "webrtc", dir, binary),
            Self::Kcptun => start_kcptun(ends, dir),
        }
    }
}

/// A started system; it ends when dropped.
#[derive(Debug)]
pub(super) struct Running {
    /// The address for visitors at the right end.
    pub(super) address: SocketAddr,
    daemons: Vec<Daemon>,
}

impl Running {
    /// Processor time of all daemons so far, in seconds.
    pub(super) fn cpu(&self) -> f64 {
        self.daemons.iter().map(|daemon| daemon.cpu().as_secs_f64()).sum()
    }
}

fn start_tunnel(ends: &Ends, scheme: Scheme, dir: &Path, binary: &Path) -> Result<Running> {
    let output = run(&mut tunnel(binary, &["generate", "token"]));
    ensure!(output.status.success(), "tunnel generate token: {output:?}");
    let token = String::from_utf8(output.stdout)?;
    let (token, place) = (token.trim(), dir.display());
    let url = format!("{}://{}:{SERVER}", scheme.name, ends.right.address);
    let [mut tls, mut trust] = [String::new(), String::new()];
    if scheme.tls {
        let host = ends.right.address.to_string();
        let certs = ["generate", "certs", "--server", &host, "--output", &place.to_string()];
        let output = run(&mut tunnel(binary, &certs));
        ensure!(output.status.success(), "tunnel generate certs: {output:?}");
        tls = format!("tls: {{ cert: {place}/server.crt, key: {place}/server.key }}\n");
        trust = format!("tls: {{ ca: {place}/ca.crt }}\n");
    }
    let server = format!(
        "listen: [\"{url}\"]\nstate_dir: {place}/state\ncontrol: {place}/server.sock\nworkers: 1\n\
         log: {{ level: warn }}\n{tls}\
         clients: [{{ name: home, token: \"{token}\", allow: {{ tcp: [\"{PUBLIC}\"] }} }}]\n"
    );
    let server = start(&ends.right, ("server", "server"), dir, binary, &server)?;
    wait(|| ends.right.listens(SERVER)).context("the server does not listen")?;
    let client = format!(
        "servers: [\"{url}\"]\nname: home\ntoken: \"{token}\"\ncontrol: {place}/client.sock\n\
         workers: 1\nconnections: 1\nlog: {{ level: warn }}\n\
         services: [{{ name: origin, target: \"tcp://127.0.0.1:{ORIGIN}\", public: \"tcp://:{PUBLIC}\" }}]\n\
         {trust}"
    );
    let client = start(&ends.left, ("client", "client"), dir, binary, &client)?;
    wait(|| ends.right.listens(PUBLIC)).context("the client does not log in")?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, PUBLIC));
    Ok(Running { address, daemons: vec![server, client] })
}

/// The server and the visitor client are at the right end, so that the direct path crosses the
/// wire.
fn start_peer(ends: &Ends, p2p: &str, dir: &Path, binary: &Path) -> Result<Running> {
    let output = run(&mut tunnel(binary, &["generate", "token"]));
    ensure!(output.status.success(), "tunnel generate token: {output:?}");
    let token = String::from_utf8(output.stdout)?;
    let (token, place, host) = (token.trim(), dir.display(), ends.right.address.to_string());
    let certs = ["generate", "certs", "--server", &host, "--output", &place.to_string()];
    let output = run(&mut tunnel(binary, &certs));
    ensure!(output.status.success(), "tunnel generate certs: {output:?}");
    let own = |name: &str| {
        format!(
            "state_dir: {place}/state-{name}\ncontrol: {place}/{name}.sock\nworkers: 1\n\
             log: {{ level: warn }}\n"
        )
    };
    let client = |name: &str| {
        format!(
            "servers: [\"tls://{host}:{SERVER}\"]\ntls: {{ ca: {place}/ca.crt }}\nname: {name}\n\
             token: \"{token}\"\nconnections: 1\n{}",
            own(name)
        )
    };
    let server = format!(
        "listen: [\"tls://{host}:{SERVER}\"]\nstun: 3478\n{}\
         tls: {{ cert: {place}/server.crt, key: {place}/server.key }}\nclients:\n  \
         - {{ name: home, token: \"{token}\" }}\n  \
         - {{ name: visitor, token: \"{token}\", allow: {{ visit: \"home/*\" }} }}\n",
        own("server")
    );
    let home = format!(
        "{}services: [{{ name: origin, target: \"tcp://127.0.0.1:{ORIGIN}\", public: private, \
         visitors: [{{ name: visitor, token: \"{token}\" }}] }}]\n",
        client("home")
    );
    let visitor = format!(
        "{}forwards: [{{ listen: \"tcp://127.0.0.1:{PUBLIC}\", target: \"service://home/origin\", \
         token: \"{token}\", p2p: {p2p} }}]\n",
        client("visitor")
    );
    let server = start(&ends.right, ("server", "server"), dir, binary, &server)?;
    wait(|| ends.right.listens(SERVER)).context("the server does not listen")?;
    let home = start(&ends.left, ("home", "client"), dir, binary, &home)?;
    let visitor = start(&ends.right, ("visitor", "client"), dir, binary, &visitor)?;
    wait(|| ends.right.listens(PUBLIC)).context("the visitor does not listen")?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, PUBLIC));
    Ok(Running { address, daemons: vec![server, home, visitor] })
}

/// The visitors' side is kcptun's client.
fn start_kcptun(ends: &Ends, dir: &Path) -> Result<Running> {
    let site = Site::here()?;
    let between = format!("{}:{SERVER}", ends.left.address);
    let (public, origin) = (format!("127.0.0.1:{PUBLIC}"), format!("127.0.0.1:{ORIGIN}"));
    let mut server = ends.left.command(program(&site, "kcptun-server")?);
    server.args(["--listen", &between, "--target", &origin]).args(kcptun::OPTIONS);
    let server = Daemon::start("server", dir, &mut server);
    wait(|| ends.left.listens(SERVER)).context("kcptun-server does not listen")?;
    let mut client = ends.right.command(program(&site, "kcptun-client")?);
    client.args(["--localaddr", &public, "--remoteaddr", &between]).args(kcptun::OPTIONS);
    let client = Daemon::start("client", dir, &mut client);
    wait(|| ends.right.listens(PUBLIC)).context("kcptun-client does not listen")?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, PUBLIC));
    Ok(Running { address, daemons: vec![server, client] })
}

/// Starts a daemon of this name and role.
pub(super) fn start(
    end: &End,
    (name, role): (&str, &str),
    dir: &Path,
    binary: &Path,
    config: &str,
) -> Result<Daemon> {
    let file = dir.join(format!("{name}.yaml"));
    fs::write(&file, config)?;
    let plain = tunnel(binary, &[role, "--config"]);
    let mut command = end.command(plain.get_program());
    command.args(plain.get_args()).arg(file).env("HOME", dir);
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    Ok(Daemon::start(name, dir, &mut command))
}
