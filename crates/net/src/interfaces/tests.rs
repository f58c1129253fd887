//! Machines with many interfaces, and what the kernel of this one says.

use super::*;

/// An interface with its addresses. The kind is that of the driver.
fn interface(found: &mut LinkTable, name: &str, kind: Option<&str>, addresses: &[&str]) -> u32 {
    let index = u32::try_from(found.interfaces.len()).unwrap() + 1;
    let one = Interface {
        name: name.to_owned(),
        kind: kind.map(str::to_owned),
        master: None,
        is_live: true,
        is_loopback: name == "lo",
        is_between_two: false,
    };
    found.interfaces.insert(index, one);
    for address in addresses {
        let (ip, prefix) = address.split_once('/').unwrap_or((address, "24"));
        let (ip, prefix) = (ip.parse().unwrap(), prefix.parse().unwrap());
        let address = Address { ip, network: ip, prefix, interface: index, is_old: false };
        found.addresses.push(address);
    }
    index
}

fn order(found: &LinkTable) -> Vec<String> {
    sorted(found).iter().map(|local| local.ip.to_string()).collect()
}

#[test]
fn networks_come_before_tunnels_and_both_before_bridges_of_containers() {
    let mut found = LinkTable::default();
    interface(&mut found, "lo", None, &["127.0.0.1"]);
    for n in 17..27 {
        let name = if n == 17 { "docker0".to_owned() } else { format!("br-0123456789{n}") };
        interface(&mut found, &name, Some("bridge"), &[&format!("172.{n}.0.1")]);
    }
    interface(&mut found, "virbr0", Some("bridge"), &["192.168.122.1"]);
    interface(&mut found, "wg0", Some("wireguard"), &["10.8.0.2"]);
    interface(&mut found, "tailscale0", Some("tun"), &["100.101.102.103"]);
    interface(&mut found, "kube-ipvs0", Some("dummy"), &["10.96.0.1", "10.96.0.10"]);
    interface(&mut found, "eth7", Some("veth"), &["10.1.0.2"]);
    interface(&mut found, "wlan0", None, &["192.168.7.1"]);
    interface(&mut found, "eth0.5", Some("vlan"), &["192.168.5.1"]);
    let gateway = interface(&mut found, "usb0", None, &["192.168.42.9"]);
    found.gateways.push((gateway, true));
    let order = order(&found);
    let first = [
        "192.168.42.9",
        "192.168.7.1",
        "192.168.5.1",
        "10.1.0.2",
        "10.8.0.2",
        "100.101.102.103",
        "172.17.0.1",
    ];
    assert_eq!(order[..first.len()], first);
    assert_eq!(order[order.len() - 3..], ["127.0.0.1", "10.96.0.1", "10.96.0.10"]);
}

#[test]
fn two_hundred_cables_of_containers_do_not_hide_a_network() {
    for (kind, name) in [(Some("veth"), "cali"), (Some("veth"), "veth"), (Some("tun"), "vnet")] {
        let mut found = LinkTable::default();
        for n in 0..200 {
            let name = format!("{name}{n}");
            interface(&mut found, &name, kind, &[&format!("10.244.{n}.1/32")]);
        }
        // The kernel lists the network last.
        interface(&mut found, "ens192", None, &["192.0.2.7"]);
        assert_eq!(order(&found)[0], "192.0.2.7", "{name}");
    }
}

#[test]
fn a_bridge_is_what_its_best_port_is() {
    for (bridge, port, kind, is_network) in [
        ("vmbr0", "eno1", None, true),
        ("br-lan", "lan1", Some("dsa"), true),
        ("docker0", "eno1", None, true),
        ("br0", "eth1", Some("veth"), true),
        ("docker0", "eth1", Some("veth"), false),
        ("br0", "veth12ab", Some("veth"), false),
        ("virbr0", "vnet3", Some("tun"), false),
    ] {
        let mut found = LinkTable::default();
        interface(&mut found, "vxlan9", Some("vxlan"), &["10.9.0.1"]);
        let master = interface(&mut found, bridge, Some("bridge"), &["10.5.0.1"]);
        let port = interface(&mut found, port, kind, &[]);
        found.interfaces.get_mut(&port).unwrap().master = Some(master);
        interface(&mut found, "tun0", Some("tun"), &["10.8.0.1"]);
        let is_before_tunnel = order(&found)[0] == "10.5.0.1";
        assert_eq!(is_before_tunnel, is_network, "{bridge}");
    }
}

#[test]
fn many_addresses_of_one_interface_leave_room_for_other_interfaces() {
    let mut found = LinkTable::default();
    let many: Vec<_> = (1..40).map(|n| format!("192.0.2.{n}")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    let eth = interface(&mut found, "eth0", None, &many);
    found.gateways.push((eth, true));
    interface(&mut found, "eth1", None, &["10.0.0.1", "2001:db8::1", "fd12::1", "2001:db8::2"]);
    let order = order(&found);
    let first = ["192.0.2.1", "192.0.2.2", "10.0.0.1", "2001:db8::1", "fd12::1", "2001:db8::2"];
    assert_eq!(order[..6], first);
}

#[test]
fn an_address_that_expires_and_an_interface_without_a_carrier_come_last() {
    let mut found = LinkTable::default();
    interface(&mut found, "eth0", None, &["2001:db8::1", "2001:db8::2", "2001:db8::3"]);
    found.addresses[0].is_old = true;
    let cut = interface(&mut found, "eth1", None, &["192.0.2.1"]);
    found.interfaces.get_mut(&cut).unwrap().is_live = false;
    interface(&mut found, "docker0", Some("bridge"), &["172.17.0.1"]);
    let order = order(&found);
    assert_eq!(order[..3], ["2001:db8::2", "2001:db8::3", "172.17.0.1"]);
}

#[test]
fn an_address_of_two_interfaces_counts_once_by_the_better_one() {
    let mut found = LinkTable::default();
    interface(&mut found, "docker0", Some("bridge"), &["10.0.0.1"]);
    interface(&mut found, "eth0", Some("veth"), &["10.0.0.2"]);
    interface(&mut found, "eth1", None, &["10.0.0.1"]);
    assert_eq!(order(&found), ["10.0.0.1", "10.0.0.2"]);
}

#[test]
fn names_decide_where_the_kernel_tells_no_kind() {
    let mut found = LinkTable::default();
    for (name, ip) in [("docker0", "172.17.0.1"), ("VPN_home", "10.8.0.2"), ("enp3s0", "192.0.2.1")]
    {
        interface(&mut found, name, None, &[ip]);
    }
    assert_eq!(order(&found), ["192.0.2.1", "10.8.0.2", "172.17.0.1"]);
}

#[test]
fn the_kernel_and_the_list_of_names_agree_on_the_addresses_of_this_machine() {
    let of = |found: &LinkTable| {
        let mut all = order(found);
        all.sort_unstable();
        all
    };
    let by_kernel = Kernel::open().unwrap().read().unwrap();
    assert_eq!(of(&by_kernel), of(&named().unwrap()));
    let loopback = by_kernel.interfaces.values().find(|one| one.is_loopback).unwrap();
    assert_eq!(loopback.name, "lo");
    let network = |found: &LinkTable| {
        let all = sorted(found);
        let local = all.iter().find(|local| local.ip.is_loopback()).copied();
        local.map(|local| (local.network, local.prefix))
    };
    assert_eq!(network(&by_kernel), network(&named().unwrap()));
}

#[test]
fn the_address_of_the_route_to_a_server_is_the_first() {
    let server = "127.0.0.1:9".parse().unwrap();
    let first = by_worth(&[server]).unwrap()[0].ip;
    assert_eq!(first.to_string(), "127.0.0.1");
}

#[test]
fn an_answer_that_is_cut_short_or_strange_is_no_fault() {
    let mut kernel = Kernel::open().unwrap();
    kernel.sequence = 7;
    for request in [message::interfaces(), message::addresses()] {
        send(&kernel.netlink, &request.bytes(7), SendFlags::empty()).unwrap();
        let (length, _) =
            recv(&kernel.netlink, &mut kernel.buffer[..], RecvFlags::empty()).unwrap();
        let answer = kernel.buffer[..length].to_vec();
        let whole = message::parts(&answer, 7).count();
        assert!(whole > 0);
        assert_eq!(message::parts(&answer, 8).count(), 0, "of another request");
        for end in 0..length {
            assert!(message::parts(&answer[..end], 7).count() <= whole);
        }
        let mut state = 1_u32;
        for _ in 0..2_000 {
            let mut broken = answer.clone();
            for _ in 0..4 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let at = state as usize % length;
                broken[at] = state.to_be_bytes()[0];
            }
            let _ = message::parts(&broken, 7).count();
        }
        while recv(&kernel.netlink, &mut kernel.buffer[..], RecvFlags::DONTWAIT).is_ok() {}
    }
}
