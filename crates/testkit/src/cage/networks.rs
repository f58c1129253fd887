//! A bridge as the internet, and for each end a host with its NATs.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::thread;

/// The network of the internet of a cage, which has no route out. It is not a documentation
/// network, because miniupnpd opens no port at such an address.
const NET: &str = "11.0.113";

/// The addresses of the cage itself in its internet.
pub const SERVER_V4: &str = "11.0.113.1";
pub const SERVER_V6: &str = "2001:db8::1";

/// The outer address of end 1 or 2: the address of its NAT, if it has one.
#[must_use]
pub fn outer_v4(number: u8) -> String {
    format!("{NET}.{number}0")
}

/// The network of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// A public address.
    Open,
    /// `masquerade`: one port for all destinations, admits only addresses that were sent to.
    Plain,
    /// `masquerade` with `dnat` of all ports: one port for all, admits all senders.
    Cone,
    /// `masquerade` without a filter: an unsolicited packet is treated as a connection with the
    /// NAT, which then uses another port towards the sender. A provider's router is in front of it.
    Unfiltered,
    /// The same behind a NAT of the same kind.
    UnfilteredTwice,
    /// As `Plain`; the host also has ten container bridges, the same as every such host, and an
    /// interface that was added later, in a network that all such hosts share.
    Bridges,
    /// `masquerade fully-random`: another port per destination.
    Symmetric,
    /// A symmetric NAT whose router opens ports by PCP.
    Pcp,
    /// The same by NAT-PMP, which the end tries first.
    NatPmp,
    /// The same by NAT-PMP: PCP datagrams are lost.
    OldNatPmp,
    /// The same, only by UPnP.
    Upnp,
    /// The same behind a plain NAT.
    UpnpBehindNat,
    /// Two plain NATs in a row.
    Double,
    /// A NAT that drops UDP.
    Blocked,
    /// IPv6 only.
    V6,
    /// The network of the other end.
    SameNat,
    /// The machine of the other end.
    SameHost,
}

/// Runs a command of the set-up; its words are separated by spaces.
pub(super) fn sh(command: &str) {
    let mut words = command.split(' ');
    let program = words.next().unwrap();
    let output = Command::new(program).args(words).output().unwrap_or_else(|error| {
        panic!("{program}: {error}");
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {errors}");
}

/// Adds rules of nftables in a namespace.
pub fn rules(namespace: &str, text: &str) {
    let mut nft = Command::new("ip");
    nft.args(["netns", "exec", namespace, "nft", "-f", "-"]);
    let mut nft = nft.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    nft.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let ended = nft.wait_with_output().unwrap();
    assert!(ended.status.success(), "{text}{}", String::from_utf8_lossy(&ended.stderr));
}

/// Makes the network of the end with this number, 1 or 2; returns the namespace of its host. The
/// second end may have the network or the host of the first one.
pub fn network(number: u8, kind: Network) -> String {
    let host = format!("host{number}");
    match kind {
        Network::SameNat => {
            // A second host behind the NAT of the first end.
            namespace(&host);
            cable("nat1", "lan2", &host);
            sh("ip -n nat1 link set lan2 master lan up");
            sh(&format!("ip -n {host} address add 10.1.0.3/24 dev eth"));
            sh(&format!("ip -n {host} link set eth up"));
            sh(&format!("ip -n {host} route add default via 10.1.0.1"));
        }
        Network::SameHost => return "host1".to_owned(),
        Network::Open => {
            namespace(&host);
            plug(&host, "eth");
            sh(&format!("ip -n {host} address add {}/24 dev eth", outer_v4(number)));
            sh(&format!("ip -n {host} link set eth up"));
        }
        Network::V6 => {
            namespace(&host);
            plug(&host, "eth");
            sh(&format!("ip -n {host} address add 2001:db8::{number}0/64 dev eth nodad"));
            sh(&format!("ip -n {host} link set eth up"));
        }
        Network::Double | Network::UpnpBehindNat => {
            nat(number, Network::Plain);
            let outer = format!("nat{number}");
            let inner = format!("inner{number}");
            namespace(&inner);
            namespace(&host);
            behind(&outer, &inner, &format!("10.{number}.0"), "wan");
            router(&inner, &host, &format!("192.168.{number}"), kind);
            if kind == Network::UpnpBehindNat {
                opens_ports(&inner, kind);
            }
        }
        Network::UnfilteredTwice => {
            nat(number, Network::Unfiltered);
            let (outer, inner) = (format!("nat{number}"), format!("inner{number}"));
            namespace(&inner);
            namespace(&host);
            behind(&outer, &inner, &format!("10.{number}.0"), "wan");
            router(&inner, &host, &format!("192.168.{number}"), Network::Unfiltered);
        }
        Network::Plain
        | Network::Cone
        | Network::Symmetric
        | Network::Blocked
        | Network::Unfiltered
        | Network::Bridges => {
            nat(number, kind);
            namespace(&host);
            behind(&format!("nat{number}"), &host, &format!("10.{number}.0"), "eth");
            if kind == Network::Bridges {
                bridges(number, &host);
            }
        }
        Network::Pcp | Network::NatPmp | Network::OldNatPmp | Network::Upnp => {
            let nat = format!("nat{number}");
            self::nat(number, Network::Symmetric);
            namespace(&host);
            behind(&nat, &host, &format!("10.{number}.0"), "eth");
            opens_ports(&nat, kind);
        }
    }
    host
}

/// A NAT with a public address.
fn nat(number: u8, kind: Network) {
    let nat = format!("nat{number}");
    namespace(&nat);
    if kind == Network::Unfiltered {
        provider(number, &nat);
    } else {
        plug(&nat, "wan");
    }
    sh(&format!("ip -n {nat} address add {}/24 dev wan", outer_v4(number)));
    sh(&format!("ip -n {nat} link set wan up"));
    sh(&format!("ip -n {nat} link add lan type bridge"));
    sh(&format!("ip -n {nat} address add 10.{number}.0.1/24 dev lan"));
    sh(&format!("ip -n {nat} link set lan up"));
    translate(&nat, kind, &format!("10.{number}.0.2"));
}

/// Connects a NAT with the internet by a router, which answers ARP on each side for the other side.
fn provider(number: u8, nat: &str) {
    let isp = format!("isp{number}");
    namespace(&isp);
    plug(&isp, "far");
    sh(&format!("ip -n {isp} link add near type veth peer name wan netns {nat}"));
    sh(&format!("ip netns exec {isp} sysctl -qw net.ipv4.ip_forward=1"));
    for device in ["far", "near"] {
        let of = |key: &str, value| {
            sh(&format!("ip netns exec {isp} sysctl -qw net.ipv4.{key}={value}"));
        };
        of(&format!("conf.{device}.proxy_arp"), 1);
        of(&format!("neigh.{device}.proxy_delay"), 0);
        sh(&format!("ip -n {isp} link set {device} up"));
    }
    sh(&format!("ip -n {isp} address add {NET}.{number}1/24 dev far"));
    sh(&format!("ip -n {isp} route add {}/32 dev near", outer_v4(number)));
}

/// Gives a host ten bridges, and after them an interface in a network of all such hosts.
fn bridges(number: u8, host: &str) {
    for bridge in 0..10 {
        sh(&format!("ip -n {host} link add docker{bridge} type bridge"));
        sh(&format!("ip -n {host} address add 172.{}.0.1/16 dev docker{bridge}", 17 + bridge));
        sh(&format!("ip -n {host} link set docker{bridge} up"));
        // A bridge has a carrier when it has a port.
        let port = format!("veth{bridge}");
        sh(&format!("ip -n {host} link add {port} type veth peer name {port}b"));
        sh(&format!("ip -n {host} link set {port} master docker{bridge} up"));
        sh(&format!("ip -n {host} link set {port}b up"));
    }
    if number == 1 {
        sh("ip link add office type bridge");
        sh("ip link set office up");
    }
    sh(&format!("ip link add office{number} type veth peer name usb0 netns {host}"));
    sh(&format!("ip link set office{number} master office up"));
    sh(&format!("ip -n {host} address add 192.168.77.{number}/24 dev usb0"));
    sh(&format!("ip -n {host} link set usb0 up"));
}

/// A NAT behind a NAT, with one host.
fn router(nat: &str, host: &str, net: &str, kind: Network) {
    sh(&format!("ip -n {nat} link add lan type bridge"));
    sh(&format!("ip -n {nat} address add {net}.1/24 dev lan"));
    sh(&format!("ip -n {nat} link set lan up"));
    translate(nat, kind, &format!("{net}.2"));
    behind(nat, host, net, "eth");
}

fn translate(nat: &str, kind: Network, host: &str) {
    sh(&format!("ip netns exec {nat} sysctl -qw net.ipv4.ip_forward=1"));
    let moves = matches!(kind, Network::Symmetric | Network::UpnpBehindNat);
    let source = if moves { "masquerade fully-random" } else { "masquerade" };
    let cone = if kind == Network::Cone {
        format!("iifname wan udp dport 1024-65535 dnat to {host}")
    } else {
        String::new()
    };
    let forward = if kind == Network::Blocked { "meta l4proto udp drop" } else { "" };
    // Without the rule for `input`, an early datagram of the peer leaves a conntrack entry, and the
    // NAT uses another port towards that peer.
    let input =
        if kind == Network::Unfiltered { "accept" } else { "iifname wan ct state new drop" };
    rules(
        nat,
        &format!(
            "table ip nat {{
                chain out {{ type nat hook postrouting priority 100; oifname wan {source}; }}
                chain in {{ type nat hook prerouting priority -100; {cone}; }}
            }}
            table ip filter {{
                chain in {{ type filter hook input priority 0; {input}; }}
                chain through {{ type filter hook forward priority 0; {forward}; }}
            }}"
        )
        .replace("; ; }", "; }"),
    );
}

/// Starts miniupnpd in a router. It ends with the cage.
fn opens_ports(nat: &str, kind: Network) {
    let jump = "type nat hook prerouting priority -100; jump rules;";
    rules(
        nat,
        &format!(
            "table inet opened {{
                chain rules {{ }}
                chain out {{ }}
                chain through {{ }}
                chain in {{ {jump} }}
            }}"
        ),
    );
    if kind == Network::OldNatPmp {
        rules(nat, "add rule ip filter in udp dport 5351 @th,64,8 2 drop");
    }
    let by_datagrams = matches!(kind, Network::Pcp | Network::NatPmp | Network::OldNatPmp);
    let by_datagrams = if by_datagrams { "yes" } else { "no" };
    let (net, folder) = ("0.0.0.0/0", format!("/run/netns/opens-{nat}"));
    sh(&format!("mkdir {folder}"));
    let text = format!(
        "ext_ifname=wan\nlistening_ip=lan\nipv6_disable=yes\nsecure_mode=yes\n\
         enable_natpmp={by_datagrams}\nenable_upnp=yes\nlease_file={folder}/leases\n\
         upnp_table_name=opened\nupnp_nat_table_name=opened\nupnp_forward_chain=through\n\
         upnp_nat_chain=rules\nupnp_nat_postrouting_chain=out\n\
         allow 1024-65535 {net} 1024-65535\ndeny 0-65535 {net} 0-65535\n"
    );
    let file = format!("{folder}/miniupnpd.conf");
    std::fs::write(&file, text).unwrap();
    let mut daemon = Command::new("ip");
    daemon.args(["netns", "exec", nat, "miniupnpd", "-d", "-f", &file, "-P"]);
    daemon.arg(format!("{folder}/pid")).stdin(Stdio::null()).stderr(Stdio::piped());
    let mut daemon = daemon.spawn().unwrap();
    let log = BufReader::new(daemon.stderr.take().unwrap());
    let (send, ready) = sync_channel(1);
    let last = if by_datagrams == "yes" { "Listening for NAT-PMP" } else { "HTTP listening" };
    thread::spawn(move || {
        for line in log.lines().map_while(Result::ok) {
            if line.contains(last) {
                let _ = send.try_send(());
            }
        }
        daemon.wait().unwrap();
    });
    ready.recv().expect("miniupnpd of Debian's miniupnpd-nftables listens");
}

/// The ports that the router of the first end has opened: lines of `nft`.
pub fn opened() -> Vec<String> {
    let mut nft = Command::new("ip");
    let listed =
        nft.args("netns exec nat1 nft list table inet opened".split(' ')).output().unwrap();
    assert!(listed.status.success());
    let listed = String::from_utf8(listed.stdout).unwrap();
    listed
        .lines()
        .filter(|line| line.contains("dnat ip to"))
        .map(|line| line.trim().to_owned())
        .collect()
}

/// Connects `inner` with the inner network of `nat`.
fn behind(nat: &str, inner: &str, net: &str, device: &str) {
    cable(nat, "lan1", inner);
    if device != "eth" {
        sh(&format!("ip -n {inner} link set eth name {device}"));
    }
    sh(&format!("ip -n {nat} link set lan1 master lan up"));
    sh(&format!("ip -n {inner} address add {net}.2/24 dev {device}"));
    sh(&format!("ip -n {inner} link set {device} up"));
    sh(&format!("ip -n {inner} route add default via {net}.1"));
}

pub(super) fn namespace(name: &str) {
    sh(&format!("ip netns add {name}"));
    sh(&format!("ip -n {name} link set lo up"));
}

/// A cable between two namespaces; its second end is `eth`.
fn cable(from: &str, port: &str, to: &str) {
    sh(&format!("ip -n {from} link add {port} type veth peer name eth netns {to}"));
}

/// A cable from the internet into a namespace.
fn plug(to: &str, device: &str) {
    let port = format!("to-{to}");
    sh(&format!("ip link add {port} type veth peer name {device} netns {to}"));
    sh(&format!("ip link set {port} master internet up"));
}

/// Makes the cage a machine: with loopback, and with hosts of its own.
pub(super) fn machine() {
    sh("mkdir -p /run/netns");
    sh("mount -t tmpfs tmpfs /run/netns");
    sh("mount -t sysfs sysfs /sys");
    sh("ip link set lo up");
}

/// Makes the bridge between all networks, with the addresses of the server.
pub fn internet() {
    machine();
    sh("ip link add internet type bridge");
    sh(&format!("ip address add {SERVER_V4}/24 dev internet"));
    sh(&format!("ip address add {SERVER_V6}/64 dev internet nodad"));
    sh("ip link set internet up");
}
