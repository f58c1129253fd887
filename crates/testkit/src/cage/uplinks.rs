//! A host with several interfaces, each with a network of its own that leads to the cage: directly,
//! or through a router that is a NAT and fails as networks do.
//!
//! ```text
//!  directly:          host near0 ------------------- far0 cage
//!  through a router:  host near0 -- lan0 router wan0 -- far0 cage
//! ```

use std::fmt::Write as _;

use super::networks::{namespace, rules, sh};
use crate::wire::Way;

/// The address of the cage in the nth network.
#[must_use]
pub fn far_v4(nth: u8) -> String {
    format!("10.97.{nth}.1")
}

/// Runs `ip` on a host, with these words.
pub fn ip(host: &str, words: &str) {
    sh(&format!("ip -n {host} {words}"));
}

/// Makes a host with the interfaces `near0`, `near1` and so on, and the address `10.97.N.2` on each
/// of them. Their far ends are `far0`, `far1` and so on in the cage.
pub fn uplinks(host: &str, count: u8) {
    namespace(host);
    for nth in 0..count {
        sh(&format!("ip link add far{nth} type veth peer name near{nth} netns {host}"));
        far(nth);
        ip(host, &format!("addr add 10.97.{nth}.2/24 dev near{nth}"));
        ip(host, &format!("link set near{nth} up"));
    }
}

/// The same behind a router, whose uplinks pass so many Mbit/s in each direction. Over an interface
/// the host reaches the cage in the network of this interface alone.
pub fn routed_uplinks(host: &str, count: u8, mbit: u32) -> Router {
    let router = Router { name: "router".to_owned() };
    let name = &router.name;
    [host, name].into_iter().for_each(namespace);
    sh(&format!("ip netns exec {name} sysctl -qw net.ipv4.ip_forward=1"));
    for nth in 0..count {
        sh(&format!("ip link add far{nth} type veth peer name wan{nth} netns {name}"));
        far(nth);
        ip(name, &format!("addr add 10.97.{nth}.2/24 dev wan{nth}"));
        ip(name, &format!("link add lan{nth} type veth peer name near{nth} netns {host}"));
        ip(name, &format!("addr add 192.168.{nth}.1/24 dev lan{nth}"));
        for device in [format!("wan{nth}"), format!("lan{nth}")] {
            ip(name, &format!("link set {device} up"));
            let queue = format!("tbf rate {mbit}mbit burst 32kb latency {QUEUE_MS}ms");
            sh(&format!("tc -n {name} qdisc add dev {device} root {queue}"));
        }
        ip(host, &format!("addr add 192.168.{nth}.2/24 dev near{nth}"));
        ip(host, &format!("link set near{nth} up"));
        ip(host, &format!("route add 10.97.{nth}.0/24 via 192.168.{nth}.1"));
        // Each packet has its own fate: neither end hands over runs of packets as one.
        sh(&format!("ip link set far{nth} gso_max_segs 1"));
        ip(host, &format!("link set near{nth} gso_max_segs 1"));
    }
    rules(
        name,
        "table ip nat {
            chain out { type nat hook postrouting priority 100; oifname \"wan*\" masquerade; }
        }
        table ip faults {
            chain through { type filter hook forward priority 0; ct state new ct mark set 1; }
        }",
    );
    router
}

/// The queue in front of a rate, in ms.
const QUEUE_MS: u32 = 50;

/// The far end of an interface.
fn far(nth: u8) {
    sh(&format!("ip addr add {}/24 dev far{nth}", far_v4(nth)));
    sh(&format!("ip link set far{nth} up"));
}

/// A fault of an uplink of a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The NAT drops the packets of the present connections without a word. New connections pass.
    Forgets,
    /// The NAT answers the packets of the present connections with resets, and with ICMP those of
    /// UDP. New connections pass.
    Resets,
    /// So many of a hundred packets are lost in this direction.
    Loses(Way, u8),
    /// UDP above so many kbyte/s is lost in each direction.
    Polices(u32),
    /// All packets are lost.
    Swallows,
}

/// A router between a host and the cage.
#[derive(Debug)]
pub struct Router {
    name: String,
}

impl Router {
    /// From now on, this uplink has this fault and no other, and the other uplinks have none.
    pub fn suffer(&self, uplink: u8, fault: Fault) {
        let (up, down) = (format!("iifname lan{uplink}"), format!("iifname wan{uplink}"));
        // A connection that begins now has another mark than the present connections.
        let mut lines = vec!["ct state new ct mark set 2".to_owned()];
        for way in [up, down.clone()] {
            let goes = if way == down { Way::Down } else { Way::Up };
            lines.extend(match fault {
                Fault::Forgets => vec![format!("{way} ct mark 1 drop")],
                Fault::Resets => vec![
                    format!("{way} ct mark 1 meta l4proto tcp reject with tcp reset"),
                    format!("{way} ct mark 1 reject"),
                ],
                Fault::Loses(lossy, _) if ![Way::Both, goes].contains(&lossy) => Vec::new(),
                Fault::Loses(_, share) => {
                    vec![format!("{way} numgen random mod 100 < {share} drop")]
                }
                Fault::Polices(rate) => vec![format!(
                    "{way} meta l4proto udp limit rate over {rate} kbytes/second burst 32 kbytes drop"
                )],
                Fault::Swallows => vec![format!("{way} drop")],
            });
        }
        self.set(&lines);
    }

    /// Ends the fault.
    pub fn recover(&self) {
        self.set(&["ct state new ct mark set 1".to_owned()]);
    }

    fn set(&self, lines: &[String]) {
        let mut text = "flush chain ip faults through\n".to_owned();
        for line in lines {
            writeln!(text, "add rule ip faults through {line}").unwrap();
        }
        rules(&self.name, &text);
    }
}
