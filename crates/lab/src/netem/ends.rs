//! The two ends of the wire: network namespaces with a TUN device each, an address, routes and TCP
//! settings. The left end is the namespace of this process. The right end lives as long as a
//! process that sleeps in it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tun_rs::{DeviceBuilder, SyncDevice};

use super::path::Path;
use xtask::child::capture;

/// The paths of a wire at most.
pub(super) const PATHS: u8 = 2;

/// The addresses of the ends on a path: of networks under test (RFC 2544).
const fn left_address(path: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, path, 1)
}

const fn right_address(path: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, path, 2)
}

/// The largest buffers of TCP. 1 Gbit/s for 100 ms with a queue of the same length is 25 MB in
/// flight, and the kernel counts double for its own overhead. Debian's limit of 4 MiB for sending
/// would stop at 0.3 Gbit/s.
const BUFFER: &str = "67108864";

/// The port of iperf3 at the left end.
pub(super) const ORIGIN: u16 = 5201;

/// Packets that may wait in a TUN device for the wire: a window of small packets.
const TUN_QUEUE: &str = "20000";

/// The time limit for setting up a namespace.
const SOON: Duration = Duration::from_secs(5);

/// One end of the wire.
#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) name: &'static str,
    pub(super) address: Ipv4Addr,
    /// For each path: the own address and that of the other end.
    addresses: [(Ipv4Addr, Ipv4Addr); PATHS as usize],
    /// A process inside the namespace.
    pid: u32,
    /// The words before a command that start it inside the namespace.
    words: Vec<OsString>,
}

impl End {
    /// A command that runs at this end.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let Some((first, rest)) = self.words.split_first() else { return Command::new(program) };
        let mut command = Command::new(first);
        command.args(rest).arg(program);
        command
    }

    /// The words, as a shell takes them, that start a command at this end.
    pub(super) fn starter(&self) -> OsString {
        self.words.join(OsStr::new(" "))
    }

    /// Whether a TCP socket listens on this port.
    pub(super) fn listens(&self, port: u16) -> bool {
        self.listeners().contains(&port)
    }

    /// Ports on which TCP sockets listen, and ports of UDP sockets.
    pub(super) fn listeners(&self) -> Vec<u16> {
        let tables = ["tcp", "tcp6"].map(|table| format!("/proc/{}/net/{table}", self.pid));
        let text: String =
            tables.iter().filter_map(|table| fs::read_to_string(table).ok()).collect();
        let udp = ["udp", "udp6"].map(|table| format!("/proc/{}/net/{table}", self.pid));
        let udp: String = udp.iter().filter_map(|table| fs::read_to_string(table).ok()).collect();
        text.lines().filter_map(listener).chain(udp.lines().filter_map(local_port)).collect()
    }

    /// The address on the nth path.
    pub(super) fn address_on(&self, path: usize) -> Result<Ipv4Addr> {
        Ok(self.addresses.get(path).context("no such path")?.0)
    }

    /// Takes the address of a path away, as a cable that is pulled or a network that is left. The
    /// end accepts no packet to the address from now on.
    pub(super) fn leave(&self, path: usize) -> Result<()> {
        let address = self.address_on(path)?;
        // The kernel removes only the local route that it made itself, which another has replaced.
        // While a local route is there, the kernel keeps the routes whose source is the address.
        self.ip(&format!("route del local {address}/32 dev wire table local"))?;
        self.ip(&format!("address del {address}/32 dev wire"))?;
        let routes = self.ip("route show table all")?;
        ensure!(
            !names(&routes, address),
            "{}: routes name the lost address {address}: {routes}",
            self.name
        );
        Ok(())
    }

    /// The first path leads everywhere: a network has a default route.
    pub(super) fn default_route(&self) -> Result<()> {
        self.ip("route replace default dev wire").map(drop)
    }

    /// Gives the address of a path back.
    pub(super) fn arrive(&self, path: usize, properties: &Path) -> Result<()> {
        let (address, peer) = *self.addresses.get(path).context("no such path")?;
        self.address_and_routes(address, peer, &properties.congestion)
    }

    fn address_and_routes(
        &self,
        address: Ipv4Addr,
        peer: Ipv4Addr,
        congestion: &str,
    ) -> Result<()> {
        self.ip(&format!("address replace {address}/32 dev wire"))?;
        for route in
            [format!("{peer}/32 dev wire"), format!("local {address}/32 dev wire table local")]
        {
            self.ip(&format!("route replace {route} src {address} congctl {congestion}"))?;
        }
        Ok(())
    }

    /// Packets that the end's device dropped because the wire did not fetch them in time.
    fn overruns(&self) -> Result<u64> {
        let (good, said) = capture(self.command("ip").args(["-j", "-s", "link", "show", "wire"]))?;
        ensure!(good, "{}: {said}", self.name);
        let said: serde_json::Value = serde_json::from_str(&said)?;
        Ok(said[0]["stats64"]["tx"]["dropped"].as_u64().unwrap_or(0))
    }

    /// Segments that the end's TCP retransmitted.
    fn resent(&self) -> Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/net/snmp", self.pid))?;
        // A line of names, then a line of numbers.
        let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
        let mut line = || lines.next().unwrap_or_default().split_whitespace();
        let value = line().zip(line()).find(|(name, _)| *name == "RetransSegs");
        value.and_then(|(_, value)| value.parse().ok()).context("no RetransSegs in net/snmp")
    }

    /// Runs `ip` with these words at this end. Returns what it says.
    fn ip(&self, line: &str) -> Result<String> {
        let (good, said) = capture(self.command("ip").args(line.split(' ')))?;
        ensure!(good, "{}: ip {line}: {}", self.name, said.trim());
        Ok(said)
    }

    fn set(&self, key: &str, value: &str) -> Result<()> {
        let file = format!("/proc/sys/net/ipv4/{key}");
        let script = "echo \"$1\" > \"$2\"";
        let (good, said) = capture(self.command("sh").args(["-c", script, "sh", value, &file]))?;
        ensure!(good, "{}: {key} = {value}: {}", self.name, said.trim());
        Ok(())
    }

    /// Brings the end up. Congestion control is set by routes: a namespace may use as its default
    /// only an algorithm that the host allows to all users (`tcp_allowed_congestion_control`),
    /// while a route may name any.
    fn configure(&self, path: &Path) -> Result<()> {
        let congestion = &path.congestion;
        let file = "/proc/sys/net/ipv4/tcp_available_congestion_control";
        let known = fs::read_to_string(file).unwrap_or_default();
        ensure!(
            known.split_whitespace().any(|name| name == congestion),
            "this kernel has no congestion control {congestion}, only {} (or load its module first)",
            known.trim()
        );
        self.set("tcp_rmem", &format!("4096 131072 {BUFFER}"))?;
        self.set("tcp_wmem", &format!("4096 65536 {BUFFER}"))?;
        // Otherwise a run would start from the path metrics that the previous run learnt.
        self.set("tcp_no_metrics_save", "1")?;
        self.ip("link set lo up")?;
        self.ip(&format!("link set wire mtu {} txqueuelen {TUN_QUEUE} up", path.mtu))?;
        let loopback = "local 127.0.0.0/8 dev lo table local src 127.0.0.1";
        self.ip(&format!("route replace {loopback} congctl {congestion}"))?;
        for (address, peer) in self.addresses {
            self.address_and_routes(address, peer, congestion)?;
        }
        Ok(())
    }
}

/// Whether a route of a table of `ip route` has this address or comes from it.
fn names(routes: &str, address: Ipv4Addr) -> bool {
    let mut words = routes.split_whitespace();
    words.any(|word| word.parse().is_ok_and(|one: Ipv4Addr| one == address))
}

/// The port of a line of `/proc/net/tcp`, if the line is about a listening socket.
fn listener(line: &str) -> Option<u16> {
    // 0A: TCP_LISTEN.
    (line.split_whitespace().nth(3)? == "0A").then(|| local_port(line))?
}

/// The local port of a line of such a table.
fn local_port(line: &str) -> Option<u16> {
    let (_, port) = line.split_whitespace().nth(1)?.rsplit_once(':')?;
    u16::from_str_radix(port, 16).ok()
}

/// Both ends, and the devices that the wire joins: left, right.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) left: End,
    pub(super) right: End,
    pub(super) devices: Arc<[Device; 2]>,
    sleeper: Child,
}

/// A TUN device whose packets come in batches (`IFF_VNET_HDR`).
pub(super) struct Device(pub(super) SyncDevice);

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Device").finish()
    }
}

impl Ends {
    /// Brings both ends up, with no wire between them yet.
    pub(super) fn new(path: &Path) -> Result<Self> {
        let (pid, sleeper) = another_namespace()?;
        let left = End {
            name: "left",
            address: left_address(0),
            addresses: [0, 1].map(|path| (left_address(path), right_address(path))),
            pid: std::process::id(),
            words: Vec::new(),
        };
        let target = pid.to_string();
        let words = ["nsenter", "--target", target.as_str(), "--net"].map(OsString::from).to_vec();
        let end = End {
            name: "right",
            address: right_address(0),
            addresses: [0, 1].map(|path| (right_address(path), left_address(path))),
            pid,
            words,
        };
        // A device that moves to another namespace stays tied to its descriptor here.
        let far = device()?;
        left.ip(&format!("link set wire netns {pid}"))?;
        let devices = Arc::new([device()?, far]);
        let ends = Self { left, right: end, devices, sleeper };
        for end in [&ends.left, &ends.right] {
            end.configure(path)?;
        }
        Ok(ends)
    }

    /// Packets that the wire was too slow for, and segments that TCP retransmitted, at both ends so
    /// far.
    pub(super) fn troubles(&self) -> Result<(u64, u64)> {
        let Self { left, right, .. } = self;
        Ok((left.overruns()? + right.overruns()?, left.resent()? + right.resent()?))
    }

    /// The settings of the ends in words.
    pub(super) fn settings(path: &Path) -> String {
        format!(
            "at both ends: tcp_rmem and tcp_wmem up to {BUFFER}, tcp_no_metrics_save 1, congestion control \
             {} (of routes)",
            path.congestion,
        )
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        // The process sleeps forever unless it was killed.
        drop(self.sleeper.kill());
        drop(self.sleeper.wait());
    }
}

/// A process that sleeps in a new network namespace.
fn another_namespace() -> Result<(u32, Child)> {
    let mut command = Command::new("unshare");
    command.args(["--net", "sleep", "infinity"]).stdin(Stdio::null());
    let sleeper = command.spawn().context("starting unshare")?;
    let pid = sleeper.id();
    let own = fs::read_link("/proc/self/ns/net")?;
    let start = Instant::now();
    while fs::read_link(format!("/proc/{pid}/ns/net"))? == own {
        ensure!(start.elapsed() < SOON, "unshare makes no namespace");
        sleep(Duration::from_millis(2));
    }
    Ok((pid, sleeper))
}

fn device() -> Result<Device> {
    let device = DeviceBuilder::new().name("wire").offload(true).enable(false).build_sync();
    let device = device.context(
        "making a TUN device: /dev/net/tun must exist and be readable and writable for this user",
    )?;
    device.set_nonblocking(true)?;
    Ok(Device(device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_names_its_address_and_its_source() {
        let routes = "local 198.18.1.1 dev wire table local scope host congctl cubic\n\
                      198.18.0.2 dev wire scope link src 198.18.0.1";
        let named = [[1, 1], [0, 1], [0, 2], [1, 2], [1, 11]];
        let named = named.map(|[path, end]| names(routes, Ipv4Addr::new(198, 18, path, end)));
        assert_eq!(named, [true, true, true, false, false]);
    }

    #[test]
    fn listeners_are_told_from_other_sockets() {
        let line = |state: &str| {
            format!("   0: 0100007F:1F90 00000000:0000 {state} 00000000:00000000 00:00000000 0 0")
        };
        assert_eq!(listener(&line("0A")), Some(8080));
        assert_eq!(listener(&line("01")), None);
        assert_eq!(listener("  sl  local_address rem_address   st tx_queue rx_queue"), None);
    }
}
