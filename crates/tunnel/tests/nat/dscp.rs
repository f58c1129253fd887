//! The marks of packets (`dscp`), as an interface sees them: each transport in both directions, the
//! visitors and targets of services and of a proxy over TCP and UDP, over IPv4 and IPv6.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SocketType, eth, recv, socket};
use testkit::stage::{Daemon, LONG, binary, run, tunnel, wait};

use crate::stage::write;

/// The two families: the address by which everything is reached.
const FAMILIES: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// The transports: port, mark of the listener, mark of the path.
const TRANSPORTS: [(&str, u16, &str, u8, &str, u8); 5] = [
    ("tls", 7_000, "AF11", 10, "AF12", 12),
    ("tcp", 7_001, "AF21", 18, "AF22", 20),
    ("wss", 7_002, "AF31", 26, "AF32", 28),
    ("quic", 7_003, "EF", 46, "VA", 44),
    ("kcp", 7_004, "CS4", 32, "63", 63),
];

/// The mark of services and of the entries of the proxy.
const SERVICE: (&str, u8) = ("cs5", 40);
const PROXY: (&str, u8) = ("le", 1);

const TARGET: u16 = 8_000;
const PUBLIC: u16 = 10_000;
const PROXIED: u16 = 11_000;

/// The protocols, by their numbers in the head of IP.
const TCP: u8 = 6;
const UDP: u8 = 17;

/// What is known of the packets with one set of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    is_v6: bool,
    protocol: u8,
    from: u16,
    to: u16,
    /// SYN and ACK together: a listener answers, which does not know the service yet.
    is_answer_to_syn: bool,
}

/// How many packets of each kind had each value of the field that the mark and ECN are in.
type Seen = BTreeMap<(Kind, u8), usize>;

/// Kind and field of a packet of IP. `None`: it is of another protocol, or an RST: the system sends
/// one for no socket.
fn look(packet: &[u8]) -> Option<(Kind, u8)> {
    let (is_v6, field, protocol, body) = match packet.first()? >> 4 {
        4 => (false, packet[1], packet[9], packet.get(usize::from(packet[0] & 15) * 4..)?),
        6 => (true, packet[0] << 4 | packet[1] >> 4, packet[6], packet.get(40..)?),
        _ => return None,
    };
    let port = |at| Some(u16::from_be_bytes([*body.get(at)?, *body.get(at + 1)?]));
    let flags = match protocol {
        TCP => *body.get(13)?,
        UDP => 0,
        _ => return None,
    };
    let is_answer_to_syn = flags & 0x12 == 0x12;
    let kind = Kind { is_v6, protocol, from: port(0)?, to: port(2)?, is_answer_to_syn };
    (flags & 4 == 0).then_some((kind, field))
}

/// Reads all packets of the namespace, as long as it lives.
struct Sniffer {
    seen: Arc<Mutex<Seen>>,
    ends: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Sniffer {
    fn start() -> Self {
        let packets = socket(AddressFamily::PACKET, SocketType::DGRAM, Some(eth::ALL)).unwrap();
        set_socket_timeout(&packets, Timeout::Recv, Some(Duration::from_millis(50))).unwrap();
        let (seen, ends) = (Arc::<Mutex<Seen>>::default(), Arc::<AtomicBool>::default());
        let (own, end) = (Arc::clone(&seen), Arc::clone(&ends));
        let thread = thread::spawn(move || {
            let mut buffer = vec![0; 70_000];
            while !end.load(Ordering::Relaxed) {
                let Ok((length, _)) = recv(&packets, &mut buffer[..], RecvFlags::empty()) else {
                    continue;
                };
                if let Some(found) = look(&buffer[..length]) {
                    *own.lock().unwrap().entry(found).or_default() += 1;
                }
            }
        });
        Self { seen, ends, thread: Some(thread) }
    }

    fn end(mut self) -> Seen {
        // What has arrived is read.
        thread::sleep(Duration::from_millis(200));
        self.ends.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
        self.seen.lock().unwrap().clone()
    }
}

/// Every packet that `wanted` selects has the mark; returns the ECN bits that were seen beside it.
fn all_have(
    seen: &Seen,
    what: &str,
    mark: u8,
    wanted: impl Fn(&Kind) -> bool,
) -> BTreeMap<u8, usize> {
    let of: Vec<_> = seen.iter().filter(|((kind, _), _)| wanted(kind)).collect();
    assert!(!of.is_empty(), "{what}: no packet was seen");
    let mut ecn = BTreeMap::new();
    for ((kind, field), count) in of {
        assert_eq!(field >> 2, mark, "{what}: {count} packets of {kind:?}");
        *ecn.entry(field & 3).or_default() += count;
    }
    ecn
}

/// A service of TCP and one of UDP at the same port: what arrives comes back.
fn echo(at: SocketAddr) {
    let listener = TcpListener::bind(at).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut block = [0; 4_096];
                while let Ok(length @ 1..) = stream.read(&mut block) {
                    let _ = stream.write_all(&block[..length]);
                }
            });
        }
    });
    let socket = UdpSocket::bind(at).unwrap();
    thread::spawn(move || {
        let mut block = [0; 4_096];
        while let Ok((length, from)) = socket.recv_from(&mut block) {
            let _ = socket.send_to(&block[..length], from);
        }
    });
}

/// A visitor over TCP and one over UDP exchange bytes with the service.
fn visit(at: SocketAddr) {
    let mut stream = wait(&format!("the port {at}"), LONG, || TcpStream::connect(at).ok());
    stream.set_read_timeout(Some(LONG)).unwrap();
    for _ in 0..3 {
        stream.write_all(&[7; 2_000]).unwrap();
        stream.read_exact(&mut [0; 2_000]).unwrap();
    }
    let own = SocketAddr::new(at.ip(), 0);
    let socket = UdpSocket::bind(own).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let echoed = || {
        // A burst, which the daemons send as a batch.
        for _ in 0..8 {
            socket.send_to(&[7; 500], at).ok()?;
        }
        (0..8).try_for_each(|_| socket.recv(&mut [0; 500]).map(drop)).ok()
    };
    wait(&format!("answers of udp://{at}"), LONG, echoed);
}

fn start(dir: &Path, role: &str, name: &str, yaml: &str) -> Daemon {
    let file = dir.join(format!("{name}.yaml"));
    write(&file, yaml);
    let mut command = tunnel(&binary(), &[role, "--config"]);
    Daemon::start(name, dir, command.arg(file).env("HOME", dir))
}

/// The port of a service or an entry of the proxy, of each family.
fn port(base: u16, is_v6: bool) -> u16 {
    base + u16::from(is_v6)
}

/// Everything at once; the packets are judged at the end.
pub(crate) fn packets_have_their_marks() -> String {
    run(Command::new("ip").args(["link", "set", "lo", "up"]));
    let sniffer = Sniffer::start();
    let dir = tempfile::tempdir().unwrap();
    let (dir, shown) = (dir.path(), dir.path().display());
    FAMILIES.into_iter().for_each(|ip| echo(SocketAddr::new(ip, TARGET)));

    let listen = TRANSPORTS.map(|(scheme, port, mark, ..)| {
        format!("{{ url: \"{scheme}://[::]:{port}\", dscp: {mark} }}")
    });
    let name = |scheme: &str, ip: IpAddr| format!("{scheme}-{}", u8::from(ip.is_ipv6()));
    let mut yaml = format!(
        "listen: [{}]\nstate_dir: {shown}/server\ncontrol: {shown}/server.sock\nclients:\n",
        listen.join(", ")
    );
    // Each has another end; the rest is random enough.
    let token = |name: &str| format!("Zt5RkW1xQ8bN4mVc7LpYs2HdJf9GaE3uXeWq{name}");
    let all = || TRANSPORTS.iter().flat_map(|of| FAMILIES.map(|ip| (of, ip)));
    for ((scheme, ..), ip) in all() {
        let (name, ports) = (name(scheme, ip), format!("{PUBLIC}-{}", PUBLIC + 1));
        let allow = format!("{{ tcp: \"{ports}\", udp: \"{ports}\", dscp: true }}");
        let token = token(&name);
        yaml.push_str(&format!("  - {{ name: {name}, token: {token}, allow: {allow} }}\n"));
    }
    let server = start(dir, "server", "server", &yaml);
    let line = server.wait_line(&["sha256:"], LONG);
    let pin = line.split("sha256:").nth(1).unwrap();
    let pin = pin.split(|c: char| !c.is_ascii_alphanumeric() && !"+/=".contains(c)).next().unwrap();
    server.wait_line(&["serving clients on"], LONG);

    let target = |ip: IpAddr| SocketAddr::new(ip, TARGET);
    let clients: Vec<_> = all()
        .map(|((scheme, port_of, .., mark, _), ip)| {
            let (name, server) = (name(scheme, ip), SocketAddr::new(ip, *port_of));
            let mut yaml = format!(
                "servers: [{{ url: \"{scheme}://{server}\", dscp: {mark} }}]\nname: {name}\n\
                 token: {}\ntls: {{ pin: \"sha256:{pin}\" }}\nstate_dir: {shown}/{name}\n\
                 control: {shown}/{name}.sock\nconnections: 1\n",
                token(&name)
            );
            // The services are those of one client, over its QUIC.
            if *scheme == "quic" {
                let (public, at, mark) = (port(PUBLIC, ip.is_ipv6()), target(ip), SERVICE.0);
                yaml.push_str(&format!(
                    "services:\n  - {{ target: \"tcp://{at}\", public: \"tcp://:{public}\", \
                     dscp: {mark} }}\n  - {{ target: \"udp://{at}\", public: \
                     \"udp://:{public}\", dscp: {mark} }}\n"
                ));
            }
            let client = start(dir, "client", &name, &yaml);
            client.wait_line(&["is connected to"], LONG);
            client
        })
        .collect();
    let mut yaml = format!("state_dir: {shown}/proxy\ncontrol: {shown}/proxy.sock\nproxies:\n");
    for ip in FAMILIES {
        for scheme in ["tcp", "udp"] {
            let (public, at, mark) = (port(PROXIED, ip.is_ipv6()), target(ip), PROXY.0);
            yaml.push_str(&format!(
                "  - {{ listen: \"{scheme}://:{public}\", target: \"{scheme}://{at}\", dscp: \
                 {mark} }}\n"
            ));
        }
    }
    let proxy = start(dir, "proxy", "proxy", &yaml);
    for ip in FAMILIES {
        visit(SocketAddr::new(ip, port(PUBLIC, ip.is_ipv6())));
        visit(SocketAddr::new(ip, port(PROXIED, ip.is_ipv6())));
    }
    drop((clients, proxy, server));
    judge(&sniffer.end())
}

fn judge(seen: &Seen) -> String {
    for (scheme, port_of, _, listener, _, path) in TRANSPORTS {
        for is_v6 in [false, true] {
            let what = format!("{scheme}://, IPv6: {is_v6}");
            let of = |kind: &Kind| kind.is_v6 == is_v6;
            let up = format!("{what}, to the server");
            let up = all_have(seen, &up, path, |kind| of(kind) && kind.to == port_of);
            let down = format!("{what}, to the client");
            let down = all_have(seen, &down, listener, |kind| of(kind) && kind.from == port_of);
            if scheme == "quic" {
                // RFC 9000 section 13.4: both ends try ECN on each path.
                for (way, ecn) in [("up", up), ("down", down)] {
                    assert!(ecn.contains_key(&2), "{what}, {way}: no packet with ECT(0): {ecn:?}");
                }
            }
        }
    }
    let mut packets = 0;
    for is_v6 in [false, true] {
        for protocol in [TCP, UDP] {
            let of = |kind: &Kind| kind.is_v6 == is_v6 && kind.protocol == protocol;
            for (base, mark) in [(PUBLIC, SERVICE.1), (PROXIED, PROXY.1)] {
                let what = format!("visitors at {base}, IPv6: {is_v6}, protocol {protocol}");
                let ours = port(base, is_v6);
                // The acknowledgements before the service is known have no mark; what carries bytes
                // has it, and so has most of a connection.
                let marked = |(kind, field): &(Kind, u8)| {
                    of(kind) && kind.from == ours && !kind.is_answer_to_syn && field >> 2 == mark
                };
                let all = |(kind, _): &(Kind, u8)| of(kind) && kind.from == ours;
                let count = |wanted: &dyn Fn(&(Kind, u8)) -> bool| -> usize {
                    seen.iter().filter(|(key, _)| wanted(key)).map(|(_, count)| count).sum()
                };
                let (marked, all) = (count(&marked), count(&all));
                if protocol == UDP {
                    assert_eq!(marked, all, "{what}");
                }
                assert!(marked * 2 > all, "{what}: {marked} of {all}: {seen:#?}");
                packets += marked;
            }
            // The targets of the services and of the proxy are at one port.
            let to_target: Vec<_> = seen
                .iter()
                .filter(|((kind, _), _)| of(kind) && kind.to == TARGET)
                .map(|((_, field), _)| field >> 2)
                .collect();
            for mark in [SERVICE.1, PROXY.1] {
                assert!(to_target.contains(&mark), "{mark} in {to_target:?}");
            }
            let strange = to_target.iter().find(|mark| ![SERVICE.1, PROXY.1].contains(mark));
            assert_eq!(strange, None, "packets to the targets, IPv6: {is_v6}, {protocol}");
        }
    }
    format!("{packets} packets to visitors are marked")
}

#[test]
fn packets_have_the_marks_of_listener_path_service_and_proxy() {
    crate::in_a_cage("dscp");
}
