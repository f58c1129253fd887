//! Two clients behind symmetric NATs of the kernel, one of them with a router that opens ports
//! (miniupnpd). Needs root, for network namespaces.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use testkit::stage::Daemon;

use crate::harness::{LONG, SOON, binary, run, tunnel, wait};

const HOME: &str = "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYzA1bC2dE3fG";
const LAPTOP: &str = "Zt5RkW1xQ8bN4mVc7LpYs2HdJf9GaE3uXeWqBn6Tz0A";
const VISIT: &str = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ";

/// The internet with the server; for each client a router and a host. No way leads out of it, and
/// miniupnpd takes no address of documentation as its own.
struct Networks {
    id: u32,
}

impl Networks {
    const KINDS: [&'static str; 5] = ["out", "router1", "router2", "host1", "host2"];

    fn new() -> Self {
        let networks = Self { id: std::process::id() };
        for kind in Self::KINDS {
            networks.sh(&format!("ip netns add {kind}@"));
            networks.sh(&format!("ip -n {kind}@ link set lo up"));
        }
        networks.sh("ip -n out@ link add internet type bridge");
        networks.sh("ip -n out@ address add 11.0.113.1/24 dev internet");
        networks.sh("ip -n out@ link set internet up");
        for n in [1, 2] {
            for command in [
                format!("ip -n out@ link add to{n} type veth peer name wan netns router{n}@"),
                format!("ip -n out@ link set to{n} master internet up"),
                format!("ip -n router{n}@ address add 11.0.113.{n}0/24 dev wan"),
                format!("ip -n router{n}@ link set wan up"),
                format!("ip -n router{n}@ link add lan type veth peer name eth netns host{n}@"),
                format!("ip -n router{n}@ address add 10.{n}.0.1/24 dev lan"),
                format!("ip -n router{n}@ link set lan up"),
                format!("ip -n host{n}@ address add 10.{n}.0.2/24 dev eth"),
                format!("ip -n host{n}@ link set eth up"),
                format!("ip -n host{n}@ route add default via 10.{n}.0.1"),
                format!("ip netns exec router{n}@ sysctl -qw net.ipv4.ip_forward=1"),
            ] {
                networks.sh(&command);
            }
            networks.rules(n);
        }
        networks
    }

    fn name(&self, kind: &str) -> String {
        format!("{kind}-{}", self.id)
    }

    /// Runs a command; `@` ends the name of a namespace.
    fn sh(&self, command: &str) {
        let command = command.replace('@', &format!("-{}", self.id));
        let mut words = command.split(' ');
        let done = run(Command::new(words.next().unwrap()).args(words));
        assert!(done.status.success(), "{command}: {done:?}");
    }

    /// A program in a namespace.
    fn inside(&self, kind: &str, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(kind)]).arg(program);
        command
    }

    /// A NAT with another port per destination, and the chains that miniupnpd fills.
    fn rules(&self, n: u8) {
        let text = "
            table ip nat {
                chain out { type nat hook postrouting priority 100; oifname wan masquerade fully-random; }
            }
            table ip filter {
                chain in { type filter hook input priority 0; iifname wan ct state new drop; }
            }
            table inet opened {
                chain rules { }
                chain out { }
                chain through { }
                chain in { type nat hook prerouting priority -100; jump rules; }
            }
        "
        .replace("; }\n", ";\n}\n");
        let mut nft = self.inside(&format!("router{n}"), Path::new("nft"));
        let mut nft = nft.args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        nft.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(nft.wait().unwrap().success(), "{text}");
    }

    /// The ports that the first router has opened.
    fn opened(&self) -> Vec<String> {
        let mut nft = self.inside("router1", Path::new("nft"));
        let listed = run(nft.args(["list", "table", "inet", "opened"]));
        assert!(listed.status.success(), "{listed:?}");
        let listed = String::from_utf8(listed.stdout).unwrap();
        let rules = listed.lines().filter(|line| line.contains("dnat ip to"));
        rules.map(|line| line.trim().to_owned()).collect()
    }

    fn start(&self, kind: &str, name: &str, dir: &Path, role: &str) -> Daemon {
        let file = dir.join(format!("{name}.yaml"));
        let mut command = self.inside(kind, &binary());
        command.args([role, "--config"]).arg(file).env("HOME", dir);
        Daemon::start(name, dir, &mut command)
    }
}

impl Drop for Networks {
    fn drop(&mut self) {
        for kind in Self::KINDS {
            run(Command::new("ip").args(["netns", "del", &self.name(kind)]));
        }
    }
}

/// Starts miniupnpd in the first router.
fn miniupnpd(networks: &Networks, dir: &Path) -> Daemon {
    let at = |name: &str| dir.join(name).display().to_string();
    let text = format!(
        "ext_ifname=wan\nlistening_ip=lan\nipv6_disable=yes\nsecure_mode=yes\nenable_natpmp=yes\n\
         lease_file={}\nupnp_table_name=opened\nupnp_nat_table_name=opened\n\
         upnp_forward_chain=through\nupnp_nat_chain=rules\nupnp_nat_postrouting_chain=out\n\
         allow 1024-65535 0.0.0.0/0 1024-65535\ndeny 0-65535 0.0.0.0/0 0-65535\n",
        at("leases")
    );
    fs::write(dir.join("miniupnpd.conf"), text).unwrap();
    let mut command = networks.inside("router1", Path::new("miniupnpd"));
    command.args(["-d", "-f", &at("miniupnpd.conf"), "-P", &at("miniupnpd.pid")]);
    let daemon = Daemon::start("miniupnpd", dir, &mut command);
    daemon.wait_line(&["listening for nat-pmp"], SOON);
    daemon
}

#[test]
fn a_port_of_one_router_joins_two_symmetric_nats_and_closes_with_its_client() {
    let (folder, networks) = (tempfile::tempdir().unwrap(), Networks::new());
    let dir = folder.path();
    let path = dir.display();
    let _router = miniupnpd(&networks, dir);

    let echo = UnixListener::bind(dir.join("echo.sock")).unwrap();
    thread::spawn(move || {
        for stream in echo.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let (mut from, mut to) = (stream.try_clone().unwrap(), stream);
                std::io::copy(&mut from, &mut to)
            });
        }
    });
    let write = |name: &str, text: String| fs::write(dir.join(name), text).unwrap();
    write(
        "server.yaml",
        format!(
            "listen: [\"tls://0.0.0.0:7000\", \"quic://0.0.0.0:7000\"]\nstun: 3478\n\
             state_dir: {path}/state\ncontrol: {path}/server.sock\nclients:\n\
             \x20 - {{ name: home, token: {HOME} }}\n\
             \x20 - {{ name: laptop, token: {LAPTOP}, allow: {{ visit: home/echo }} }}\n"
        ),
    );
    let server = networks.start("out", "server", dir, "server");
    let pin = server.wait_line(&["sha256:"], SOON);
    let pin = pin.split("sha256:").nth(1).unwrap();
    let end = |c: char| !c.is_ascii_alphanumeric() && !"+/=_-".contains(c);
    let pin = pin.split(end).next().unwrap();
    let client = |name: &str, token: &str| {
        format!(
            "servers: tls://11.0.113.1:7000\ntls: {{ pin: \"sha256:{pin}\" }}\nname: {name}\n\
             token: {token}\nstate_dir: {path}/{name}\ncontrol: {path}/{name}.sock\n"
        )
    };
    write(
        "home.yaml",
        client("home", HOME)
            + &format!(
                "services:\n  - {{ name: echo, public: private, target: \"unix://{path}/echo.sock\", \
                 visitors: [{{ name: laptop, token: {VISIT} }}] }}\n"
            ),
    );
    write(
        "laptop.yaml",
        client("laptop", LAPTOP)
            + &format!("visits:\n  - {{ service: home/echo, token: {VISIT} }}\n"),
    );
    let mut home = networks.start("host1", "home", dir, "client");
    home.wait_line(&["is connected to"], LONG);
    let laptop = networks.start("host2", "laptop", dir, "client");
    laptop.wait_line(&["is connected to"], LONG);
    let ask = |name: &str, command: &str| {
        let socket = dir.join(format!("{name}.sock"));
        let output = run(tunnel(&[command, "--json", "--control"]).arg(socket));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).ok()
    };

    let nat = ask("home", "nat").unwrap();
    assert_eq!(nat["router"]["protocol"], "PCP", "{nat}");
    assert!(nat["router"]["outer"].as_str().unwrap().starts_with("11.0.113.10:"), "{nat}");
    assert_eq!(nat["ipv4"]["mapping"], "per_destination", "{nat}");
    assert_eq!(nat["peers"][2]["path"], "direct", "{nat}");
    let nat = ask("laptop", "nat").unwrap();
    assert!(nat["router"]["protocol"].is_null(), "{nat}");
    let why = "the router answers neither PCP, NAT-PMP nor UPnP";
    assert_eq!(nat["router"]["error"], why, "{nat}");
    wait("the port of `tunnel nat` is closed", LONG, || networks.opened().is_empty().then_some(()));

    let mut visit = tunnel(&["connect", "service://home/echo", "--control"]);
    visit.arg(dir.join("laptop.sock")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut visit = visit.spawn().unwrap();
    let (mut to, mut from) = (visit.stdin.take().unwrap(), visit.stdout.take().unwrap());
    let mut echoes = || {
        to.write_all(b"?").unwrap();
        from.read_exact(&mut [0]).unwrap();
    };
    echoes();
    let pair = wait("a direct path over the port", LONG, || {
        let status = ask("laptop", "status")?;
        let sessions = status["sessions"].as_array()?;
        let of = sessions.iter().find(|session| session["peer"] == "home/echo")?;
        let path = of["links"].as_array()?.first()?.get("path")?.clone();
        (path["state"] == "direct").then(|| path["pair"].as_str().unwrap_or_default().to_owned())
    });
    let mapped = pair.split("mapped 11.0.113.10:").nth(1);
    let port = mapped.unwrap_or_else(|| panic!("{pair}"));
    let opened = networks.opened();
    assert_eq!(opened.len(), 1, "{opened:?}");
    assert!(opened[0].contains(&format!("dport {port} dnat")), "{pair}: {opened:?}");
    echoes();

    drop((to, from));
    visit.wait().unwrap();
    home.terminate();
    home.wait_end(LONG);
    assert_eq!(networks.opened(), Vec::<String>::new(), "after `home` has ended");
}
