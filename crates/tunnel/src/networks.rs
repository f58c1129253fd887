//! What the networks of this machine rule out: broadcast addresses of its own networks as targets,
//! link-local addresses with an interface that does not exist, and dials (`interface`, `source`)
//! from an interface or an address that this machine has not.
//!
//! A broadcast address looks like any other address; only a machine in the network knows it. An
//! interface may appear later, so its absence is a warning.

use std::net::IpAddr;

use config::{ClientConfig, DialOptions, Host, Local, ProxyConfig, ServerConfig, Service, Target};
use net::SocketOptions;
use proto::ScopedAddr;

use crate::examine::Fault;

/// The problems of a client's addresses.
pub(crate) fn of_client(config: &ClientConfig) -> Vec<Fault> {
    let keys_of = |places: Vec<String>, key: &str| -> Vec<String> {
        places.into_iter().flat_map(|place| [format!("{place}.{key}"), place]).collect()
    };
    let ways = config.placed_paths().filter_map(|(places, path)| {
        // With a proxy on the way, the address of the server is not dialled.
        let to = path.endpoint.host.ip().filter(|_| path.proxy.is_none());
        let other = to.and_then(|to| other_version(&path.dial, to));
        let other = other.map(|problem| ("source", problem));
        let (key, problem) = other.or_else(|| no_way(&path.dial))?;
        let problem = format!("{}: {problem}", path.endpoint);
        Some(Fault { keys: keys_of(places, key), problem, fatal: false })
    });
    let servers = config.placed_paths().filter_map(|(places, path)| {
        let problem = no_interface(&path.endpoint.host)?;
        let problem = format!("{}: {problem}", path.endpoint);
        Some(Fault { keys: keys_of(places, "url"), problem, fatal: false })
    });
    let forwards = config.forwards.iter().enumerate();
    let forwards = forwards.filter_map(|(n, forward)| of_listener(&forward.listen, "forwards", n));
    let services = of_services(&config.services, "services", "service");
    servers.chain(ways).chain(services).chain(forwards).collect()
}

/// The problems of a proxy's addresses.
pub(crate) fn of_proxy(config: &ProxyConfig) -> Vec<Fault> {
    let services: Vec<_> = config.proxies.iter().map(|proxy| proxy.service.clone()).collect();
    let entries = config.proxies.iter().enumerate();
    let listeners = entries.filter_map(|(n, proxy)| of_listener(&proxy.listen, "proxies", n));
    of_services(&services, "proxies", "proxy").into_iter().chain(listeners).collect()
}

/// The problem of a listener's address on this machine.
fn of_listener(listen: &Local, key: &str, n: usize) -> Option<Fault> {
    let (_, at) = listen.socket()?;
    let host = at.link().map_or_else(|| Host::Ip(at.ip()), |link| Host::Scoped(link.clone()));
    let problem = format!("{listen}: {}", not_listened(&host)?);
    let keys = vec![format!("{key}[{n}].listen"), format!("{key}[{n}]"), key.to_owned()];
    Some(Fault { keys, problem, fatal: false })
}

/// The problems of a server's listeners.
pub(crate) fn of_server(config: &ServerConfig) -> Vec<Fault> {
    let fault = |(n, listen): (usize, &config::Listen)| {
        let problem = format!("{}: {}", listen.endpoint, not_listened(&listen.endpoint.host)?);
        let keys = vec![format!("listen[{n}].url"), format!("listen[{n}]"), "listen".to_owned()];
        Some(Fault { keys, problem, fatal: false })
    };
    config.listen.iter().enumerate().filter_map(fault).collect()
}

fn of_services(services: &[Service], key: &str, what: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (n, service) in services.iter().enumerate() {
        let is_one = service.spread.others.is_empty();
        let others = service.targets().filter_map(|(target, _)| {
            let problem = other_version(&service.dial, target.port()?.0.ip()?)?;
            Some(("source", if is_one { problem } else { format!("{target}: {problem}") }))
        });
        let mut ways: Vec<_> = others.collect();
        if ways.is_empty() {
            ways.extend(no_way(&service.dial));
        }
        for (wrong, problem) in ways {
            let problem = format!("{what} {}: {problem}", service.name);
            let keys = vec![format!("{key}[{n}].{wrong}"), key.to_owned()];
            // A range of ports yields several services for an entry.
            let keys = if services.len() == 1 { keys } else { vec![key.to_owned()] };
            faults.push(Fault { keys, problem, fatal: false });
        }
        for (target, _) in service.targets() {
            let broadcast = broadcast(service, target, net::own::is_broadcast);
            let fatal = broadcast.is_some();
            let absent = || no_interface(target.port()?.0).map(|why| format!("{target}: {why}"));
            let Some(problem) = broadcast.or_else(absent) else { continue };
            let problem = format!("{what} {}: {problem}", service.name);
            let keys = match services.len() {
                1 => vec![format!("{key}[{n}].target"), key.to_owned()],
                // A range of ports yields several services for an entry.
                _ => vec![key.to_owned()],
            };
            faults.push(Fault { keys, problem, fatal });
        }
    }
    faults
}

/// The reason why nothing can be sent to a target of a service, if that is certain.
pub(crate) fn unreachable(service: &Service, target: &Target) -> Option<String> {
    broadcast(service, target, net::own::is_broadcast)
}

fn broadcast(
    service: &Service,
    target: &Target,
    is_broadcast: impl Fn(IpAddr) -> bool,
) -> Option<String> {
    let ip = target.port()?.0.ip().filter(|ip| is_broadcast(*ip))?;
    let is = format!("{ip} is the broadcast address of a network of this machine");
    if !matches!(target, Target::Udp { .. }) {
        return Some(format!("{target}: {is}, to which no connection leads"));
    }
    let hint = "(hint: `broadcast: true` beside the target, or --broadcast, permits it)";
    (!service.broadcast).then(|| format!("{target}: {is}: nothing is sent there by default {hint}"))
}

/// The reason why an address cannot be dialled from the source of a dial, if their versions of IP
/// differ.
fn other_version(dial: &DialOptions, to: IpAddr) -> Option<String> {
    let source = dial.source.filter(|source| source.is_ipv6() != to.is_ipv6())?;
    Some(format!("the source {source} is of the other version of IP than the address"))
}

/// The key of a dial that cannot be served now, whatever its address, and the reason.
fn no_way(dial: &DialOptions) -> Option<(&'static str, String)> {
    if dial.interface.is_none() && dial.source.is_none() {
        return None;
    }
    let whole = families::dial_options(dial, SocketOptions::DEFAULT);
    let by_interface = SocketOptions { source: None, ..whole };
    let wrong = |key, options: SocketOptions| Some((key, options.try_way().err()?.to_string()));
    wrong("interface", by_interface).or_else(|| wrong("source", whole))
}

fn no_interface(host: &Host) -> Option<String> {
    match host {
        Host::Scoped(at) => {
            net::zone::socket_addr(at.ip(), at.zone(), 0).err().map(|error| error.to_string())
        }
        Host::Ip(IpAddr::V6(ip)) if ScopedAddr::needs_zone(*ip) => {
            Some(format!("{ip} is on every link: write the interface behind it, [{ip}%eth0]"))
        }
        Host::Ip(_) | Host::Name(_) => None,
    }
}

/// The reason why listening at a host is currently impossible.
fn not_listened(host: &Host) -> Option<String> {
    let problem = no_interface(host)?;
    let is_to_come = matches!(host, Host::Scoped(_));
    Some(if is_to_come { format!("{problem}; it is tried again every 15 s") } else { problem })
}

#[cfg(test)]
mod tests {
    use config::{ClientFlags, ServerFlags, Sources, Text};

    use super::*;

    const SOURCES: Sources<'_> = Sources { env: &|_| None, read: &|_| Err(String::new()) };
    const TOKEN: &str = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ";

    fn client(servers: &str, services: &str) -> ClientConfig {
        let text =
            format!("servers: '{servers}'\nname: home\ntoken: {TOKEN}\nservices: {services}");
        let text = Some(Text { name: "c", text: &text });
        let loaded = config::load_client(text, &ClientFlags::default(), &SOURCES);
        loaded.unwrap_or_else(|why| panic!("{services}: {why:?}")).config
    }

    #[test]
    fn the_broadcast_address_of_an_own_network_needs_consent_and_takes_no_connection() {
        let is_broadcast = |ip: IpAddr| ip.to_string() == "192.0.2.255";
        for (service, wanted) in [
            ("public: udp://:9, target: 'udp://192.0.2.255:9'", Some("broadcast: true")),
            ("public: udp://:9, target: 'udp://192.0.2.255:9', broadcast: true", None),
            ("public: tcp://:9, target: 'tcp://192.0.2.255:9'", Some("no connection leads")),
            ("public: udp://:9, target: 'udp://192.0.2.254:9'", None),
        ] {
            let config = client("tls://a", &format!("[{{ name: wol, {service} }}]"));
            let service = &config.services[0];
            let problems = broadcast(service, &service.target, is_broadcast);
            assert_eq!(problems.is_some(), wanted.is_some(), "{problems:?}");
            assert!(wanted.is_none_or(|wanted| problems.unwrap().contains(wanted)));
        }
    }

    #[test]
    fn an_interface_that_is_not_there_is_a_warning() {
        let problems_of = |server: &str, target: &str| {
            let service = format!("[{{ name: a, public: tcp://:1, target: '{target}' }}]");
            let faults = of_client(&client(server, &service));
            assert!(faults.iter().all(|fault| !fault.fatal), "{faults:?}");
            faults.into_iter().map(|fault| fault.problem).collect::<Vec<_>>()
        };
        assert!(problems_of("tls://[fe80::1%lo]", "tcp://[fe80::1%25lo]:1").is_empty());
        let bare = problems_of("tls://[fe80::1]", "tcp://[2001:db8::1]:1");
        assert!(bare.len() == 1 && bare[0].contains("[fe80::1%eth0]"), "{bare:?}");
        let problems = problems_of("tls://[fe80::1%absent0]", "tcp://[fe80::1%absent1]:1");
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].starts_with("tls://[fe80::1%absent0]:7000: "), "{problems:?}");
        assert!(problems[1].ends_with("no interface absent1"), "{problems:?}");

        let text =
            |dial: &str, target: &str| format!("[{{ public: 1, target: {target}, {dial} }}]");
        let problems_of = |dial, target| of_client(&client("tls://a", &text(dial, target)));
        assert_eq!(problems_of("interface: lo, source: 127.0.0.2", "a:1"), []);
        for (dial, target, key, end) in [
            ("interface: absent3", "a:1", "interface", "no interface absent3"),
            ("interface: lo, source: 192.0.2.7", "a:1", "source", "no address of this machine"),
            (
                "source: 127.0.0.2",
                "'[::1]:1'",
                "source",
                "the other version of IP than the address",
            ),
        ] {
            let faults = problems_of(dial, target);
            assert!(faults.len() == 1 && !faults[0].fatal, "{faults:?}");
            assert!(faults[0].problem.ends_with(end), "{faults:?}");
            assert_eq!(faults[0].keys[0], format!("services[0].{key}"));
        }

        let list = "['127.0.0.1:1', '[::1]:1', 'a:1', '[::1]:2']";
        let faults = problems_of("source: 127.0.0.2", list);
        let [one, two] = &faults[..] else { panic!("{faults:?}") };
        assert!(one.problem.contains(": tcp://[::1]:1: the source"), "{one:?}");
        assert!(two.problem.contains(": tcp://[::1]:2: the source"), "{two:?}");
        assert_eq!(one.keys[0], "services[0].source");

        let forward = "[]\nforwards: [{ listen: 'tcp://[fe80::1%absent2]:1', target: 'a:1' }]";
        let faults = of_client(&client("tls://a", forward));
        assert!(faults[0].problem.contains("absent2; it is tried again"), "{faults:?}");
        assert_eq!(faults[0].keys[0], "forwards[0].listen");

        let text = "listen: 'tls://[fe80::1%absent0]'\nclients: []";
        let text = Some(Text { name: "s", text });
        let server = config::load_server(text, &ServerFlags::default(), &SOURCES).unwrap().config;
        assert!(of_server(&server)[0].problem.contains("tried again"));
    }
}
