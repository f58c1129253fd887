//! Some hosts at one bridge, each with an address of one network, as the machines of a rack. The
//! cage is a host as well. Packets from one host to another can be dropped, in one direction alone.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::Ipv4Addr;

use super::networks::{namespace, rules, sh};

/// The address of the cage itself is the first one.
const CAGE: u8 = 1;

/// The number of the first host.
const FIRST: u8 = 11;

/// Hosts at one bridge.
#[derive(Debug)]
pub struct Lan {
    hosts: Vec<String>,
    /// The pairs of hosts between which packets are dropped: from the first one to the second one.
    cuts: BTreeSet<(String, String)>,
}

impl Lan {
    /// Makes the bridge and these hosts.
    #[must_use]
    pub fn new(hosts: &[&str]) -> Self {
        sh("ip link add lan type bridge");
        sh("ip link set lan up");
        let lan = Self {
            hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
            cuts: BTreeSet::new(),
        };
        sh(&format!("ip address add {}/24 dev lan", Self::at(CAGE)));
        for host in &lan.hosts {
            namespace(host);
            sh(&format!("ip link add to-{host} type veth peer name eth netns {host}"));
            sh(&format!("ip link set to-{host} master lan up"));
            sh(&format!("ip -n {host} address add {}/24 dev eth", lan.address(host)));
            sh(&format!("ip -n {host} link set eth up"));
            rules(
                host,
                "table ip cuts {
                    chain in { type filter hook input priority 0; policy accept; }
                }",
            );
        }
        lan
    }

    fn at(number: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 58, 0, number)
    }

    /// The address of a host.
    ///
    /// # Panics
    /// There is no such host.
    #[must_use]
    pub fn address(&self, host: &str) -> Ipv4Addr {
        let position = self.hosts.iter().position(|one| one == host).unwrap();
        Self::at(FIRST + u8::try_from(position).unwrap())
    }

    /// Packets from one host to another are dropped from now on, those of open connections too.
    pub fn cut(&mut self, from: &str, to: &str) {
        self.cuts.insert((from.to_owned(), to.to_owned()));
        self.set(to);
    }

    /// All packets pass again.
    pub fn mend(&mut self) {
        let hosts: BTreeSet<_> =
            std::mem::take(&mut self.cuts).into_iter().map(|cut| cut.1).collect();
        hosts.iter().for_each(|host| self.set(host));
    }

    fn set(&self, to: &str) {
        let mut text = "flush chain ip cuts in\n".to_owned();
        for (from, _) in self.cuts.iter().filter(|(_, other)| other == to) {
            writeln!(text, "add rule ip cuts in ip saddr {} drop", self.address(from)).unwrap();
        }
        rules(to, &text);
    }
}
