//! The cases: the loads that every system gets.

use super::figure::Figure;
use crate::systems::System;

/// The name of the system without daemons between visitor and origin.
pub(crate) const DIRECT: &str = "direct";

/// One kind of load.
#[derive(Debug)]
pub(crate) struct Case {
    /// The name on the command line, in `latest.json` and in `floors.toml`.
    pub(crate) name: &'static str,
    /// The description for readers.
    pub(crate) what: &'static str,
    pub(crate) load: Load,
    /// The group. Cases of one group share their rounds, so that they can be compared with each
    /// other.
    pub(super) group: Group,
    /// A factor on the seconds of a round: a case that has to connect first needs longer rounds.
    pub(super) stretch: f64,
}

/// The program that makes the load, and its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// wrk with this number of lasting connections.
    Http(u32),
    /// wrk with this number of lasting connections, each with one answer of [`DOWNLOAD`] bytes
    /// after another.
    Downloads(u32),
    /// h2load with one connection and this number of requests at a time.
    Streams(u32),
    /// iperf3 with `streams` streams; `down` is from the origin to the visitor.
    Bulk { streams: u32, down: bool },
    /// Visitors in sequence: connect, one echo, close.
    Connections,
    /// `load bulk` to listeners of the client; `down` is from the origin to the visitor.
    Forward { down: bool },
    /// `load udp --search` with payloads of this number of bytes.
    Datagrams(u32),
    /// One byte there and back beside a stream that takes all the bandwidth it can get.
    EchoBesideBulk,
    /// This number of visitors that send nothing.
    Idle(u32),
    /// This number of clients that lose their server at the same moment and log in again.
    Storm(u32),
}

/// The most connections of [`Load::Http`] for systems that take only HTTP.
const FEW: u32 = 100;

/// The same for one process between visitors and origins: it has two descriptors for each
/// connection, and 20,000 in all where the limit cannot be raised.
pub(super) const ONE_HOP: u32 = 9_000;

/// The size of an answer of [`Load::Downloads`].
pub(super) const DOWNLOAD: usize = 16 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    Http,
    Bulk,
    Forward,
    Datagrams,
    Connections,
    Echo,
    Idle,
    Storm,
}

impl Group {
    pub(super) const ALL: [Self; 8] = [
        Self::Http,
        Self::Bulk,
        Self::Forward,
        Self::Datagrams,
        Self::Connections,
        Self::Echo,
        Self::Idle,
        Self::Storm,
    ];

    /// Whether a round takes long and gives nearly the same figures each time.
    pub(super) const fn is_slow(self) -> bool {
        matches!(self, Self::Idle | Self::Storm)
    }
}

pub(super) static CASES: &[Case] = &[
    http("http-1", "HTTP, 1 keep-alive connection", 1, 1.0),
    http("http-100", "HTTP, 100 keep-alive connections", 100, 1.0),
    // wrk counts the time of connecting, so a case with more connections needs more seconds.
    http("http-1000", "HTTP, 1,000 keep-alive connections", 1_000, 1.0),
    http("http-9000", "HTTP, 9,000 keep-alive connections, by one hop", 9_000, 4.0),
    http("http-10000", "HTTP, 10,000 keep-alive connections", 10_000, 4.0),
    Case {
        name: "http-download",
        what: "HTTP, answers of 16 MiB over 4 keep-alive connections",
        load: Load::Downloads(4),
        group: Group::Http,
        stretch: 1.0,
    },
    Case {
        name: "h2-100",
        what: "HTTP/2, 100 requests at a time over one connection",
        load: Load::Streams(100),
        group: Group::Http,
        stretch: 1.0,
    },
    bulk("bulk-up", "one stream from visitor to origin", 1, false),
    bulk("bulk-down", "one stream from origin to visitor", 1, true),
    bulk("bulk-4-up", "4 streams from visitor to origin", 4, false),
    bulk("bulk-4-down", "4 streams from origin to visitor", 4, true),
    bulk("bulk-16-up", "16 streams from visitor to origin", 16, false),
    bulk("bulk-16-down", "16 streams from origin to visitor", 16, true),
    forward("forward-up", "one stream from visitor to origin, by a forward", false),
    forward("forward-down", "one stream from origin to visitor, by a forward", true),
    Case {
        name: "udp-1200",
        what: "one flow of datagrams of 1,200 bytes",
        load: Load::Datagrams(1_200),
        group: Group::Datagrams,
        stretch: 1.0,
    },
    Case {
        name: "connections",
        what: "new visitor connections, each with one byte there and back",
        load: Load::Connections,
        group: Group::Connections,
        stretch: 1.0,
    },
    Case {
        name: "echo-beside-bulk",
        what: "one byte there and back beside a bulk stream",
        load: Load::EchoBesideBulk,
        group: Group::Echo,
        stretch: 1.0,
    },
    Case {
        name: "idle-18000",
        what: "18,000 visitors that do nothing",
        load: Load::Idle(18_000),
        group: Group::Idle,
        stretch: 1.0,
    },
    Case {
        name: "idle-9000",
        what: "9,000 visitors of one hop that do nothing",
        load: Load::Idle(ONE_HOP),
        group: Group::Idle,
        stretch: 1.0,
    },
    Case {
        name: "storm-2000",
        what: "2,000 clients that lose their server at once and log in again",
        load: Load::Storm(2_000),
        group: Group::Storm,
        stretch: 1.0,
    },
];

const fn http(name: &'static str, what: &'static str, connections: u32, stretch: f64) -> Case {
    Case { name, what, load: Load::Http(connections), group: Group::Http, stretch }
}

const fn bulk(name: &'static str, what: &'static str, streams: u32, down: bool) -> Case {
    let load = Load::Bulk { streams, down };
    Case { name, what, load, group: Group::Bulk, stretch: 1.0 }
}

const fn forward(name: &'static str, what: &'static str, down: bool) -> Case {
    Case { name, what, load: Load::Forward { down }, group: Group::Forward, stretch: 1.0 }
}

impl Case {
    pub(crate) fn all() -> &'static [Self] {
        CASES
    }

    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        CASES.iter().find(|case| case.name == name)
    }

    /// The unit of the case's rate.
    pub(crate) const fn unit(&self) -> &'static str {
        match self.load {
            Load::Http(_) | Load::Streams(_) => "requests/s",
            Load::Downloads(_) | Load::Bulk { .. } | Load::Forward { .. } => "Gbit/s",
            Load::Datagrams(_) => "packets/s",
            Load::Connections => "connections/s",
            Load::EchoBesideBulk => "echoes/s",
            Load::Idle(_) => "visitors",
            Load::Storm(_) => "clients/s",
        }
    }

    /// The figures of a sample, in the order of the table's columns.
    pub(crate) const fn figures(&self) -> &'static [Figure] {
        match self.load {
            Load::Http(_) => {
                &[Figure::Rate, Figure::P50, Figure::P99, Figure::CpuPerRequest, Figure::PeakRss]
            }
            Load::Streams(_) => &[Figure::Rate, Figure::CpuPerRequest, Figure::PeakRss],
            Load::Downloads(_) | Load::Bulk { .. } | Load::Forward { .. } => {
                &[Figure::Rate, Figure::CpuPerGb, Figure::PeakRss]
            }
            Load::Datagrams(_) => {
                &[Figure::Rate, Figure::CpuPerPacket, Figure::CalmLoss, Figure::PeakRss]
            }
            Load::Connections => {
                &[Figure::Rate, Figure::P50, Figure::P99, Figure::CpuPerConnection, Figure::PeakRss]
            }
            Load::EchoBesideBulk => &[
                Figure::Rate,
                Figure::P50,
                Figure::P99,
                Figure::P999,
                Figure::BulkBeside,
                Figure::PeakRss,
            ],
            Load::Idle(_) => &[Figure::RssPerVisitor, Figure::IdleCpu, Figure::PeakRss],
            Load::Storm(_) => &[Figure::Rate, Figure::CpuPerLogin, Figure::PeakRss],
        }
    }

    /// Whether the case can run on this system. `direct` has no daemon between visitor and origin
    /// that could be idle or lost, and clients of other systems do not speak tunnel's protocol.
    /// Systems that take only HTTP are for loads of HTTP. To keep a full run short, they get few
    /// connections, and downloads are for them and for the systems that they are compared with. A
    /// build for glibc gets one bulk stream, in which the functions of the C library move the most
    /// bytes.
    pub(super) fn is_for(&self, system: &System) -> bool {
        match self.load {
            Load::Http(connections) if system.is_for_http() => connections <= FEW,
            Load::Http(connections) if system.is_one_hop() => connections <= ONE_HOP,
            Load::Http(ONE_HOP) => system.name == DIRECT,
            Load::Downloads(_) => {
                system.is_for_http() || [DIRECT, "tunnel-tcp"].contains(&system.name)
            }
            Load::Streams(_) => system.is_for_https(),
            Load::Forward { .. } => system.is_forward() || system.name == DIRECT,
            Load::Datagrams(_) => system.has_datagrams(),
            Load::Bulk { streams, .. } if system.is_peer() || system.is_of_glibc() => streams == 1,
            _ if system.is_of_glibc() => false,
            _ if system.is_for_http() || system.is_forward() => false,
            Load::Connections => !system.is_bridge(),
            _ if system.is_peer() => false,
            Load::Bulk { .. } => true,
            Load::Http(_) | Load::EchoBesideBulk => !system.is_bridge(),
            Load::Idle(visitors) if system.is_one_hop() => visitors <= ONE_HOP,
            Load::Idle(visitors) => {
                system.name != DIRECT && !system.is_bridge() && visitors > ONE_HOP
            }
            Load::Storm(_) => system.is_ours() && !system.is_one_hop(),
        }
    }

    /// The number of clients that the server must know in addition to the client that is started
    /// with it.
    pub(crate) const fn clients(&self) -> u32 {
        match self.load {
            Load::Storm(clients) => clients,
            Load::Http(_)
            | Load::Streams(_)
            | Load::Downloads(_)
            | Load::Bulk { .. }
            | Load::Forward { .. }
            | Load::Datagrams(_)
            | Load::Connections
            | Load::EchoBesideBulk
            | Load::Idle(_) => 0,
        }
    }

    /// The figure for processor time per unit of the case's work.
    pub(super) const fn cpu_figure(&self) -> Option<Figure> {
        match self.load {
            Load::Http(_) | Load::Streams(_) => Some(Figure::CpuPerRequest),
            Load::Downloads(_) | Load::Bulk { .. } | Load::Forward { .. } => Some(Figure::CpuPerGb),
            Load::Datagrams(_) => Some(Figure::CpuPerPacket),
            Load::Connections => Some(Figure::CpuPerConnection),
            Load::Storm(_) => Some(Figure::CpuPerLogin),
            Load::EchoBesideBulk | Load::Idle(_) => None,
        }
    }

    /// The programs that the case needs in addition to the daemons under test.
    pub(crate) const fn software(&self) -> &'static [&'static str] {
        match self.load {
            Load::Http(_) | Load::Downloads(_) => &["nginx", "wrk", "curl"],
            Load::Streams(_) => &["nginx", "h2load", "curl"],
            Load::Bulk { .. } => &["iperf3"],
            Load::Forward { .. }
            | Load::Datagrams(_)
            | Load::Connections
            | Load::EchoBesideBulk
            | Load::Idle(_)
            | Load::Storm(_) => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_have_names_of_their_own_and_their_cpu_figure_is_a_column() {
        for (index, case) in CASES.iter().enumerate() {
            assert!(CASES[..index].iter().all(|other| other.name != case.name), "{}", case.name);
            assert!(Group::ALL.contains(&case.group));
            assert!(case.cpu_figure().is_none_or(|figure| case.figures().contains(&figure)));
            assert_eq!(Case::named(case.name).map(|case| case.name), Some(case.name));
        }
        assert!(Case::named("http-99").is_none());
    }

    #[test]
    fn forwards_and_datagrams_have_their_own_systems() {
        let systems = |case: &str| {
            let case = Case::named(case).unwrap();
            let fit = crate::systems::all().iter().filter(|system| case.is_for(system));
            fit.map(|system| system.name).collect::<Vec<_>>()
        };
        assert_eq!(systems("forward-up"), [DIRECT, "tunnel-forward", "tunnel-socks5"]);
        let datagrams = systems("udp-1200");
        assert!(datagrams.contains(&"tunnel-wss") && datagrams.contains(&"hysteria-quic"));
        assert!(!datagrams.contains(&"haproxy-2hop") && !datagrams.contains(&"tunnel-socks5"));
        assert!(!systems("bulk-up").contains(&"tunnel-forward"));
    }

    #[test]
    fn a_build_for_glibc_takes_a_single_bulk_stream() {
        for system in crate::systems::all().iter().filter(|system| system.is_of_glibc()) {
            let fit = CASES.iter().filter(|case| case.is_for(system)).map(|case| case.name);
            assert_eq!(fit.collect::<Vec<_>>(), ["bulk-up", "bulk-down"], "{}", system.name);
        }
    }

    #[test]
    fn names_take_http_alone() {
        let cases = |name: &str| {
            let system = crate::systems::all().iter().find(|system| system.name == name).unwrap();
            let fit = CASES.iter().filter(|case| case.is_for(system));
            fit.map(|case| case.name).collect::<Vec<_>>()
        };
        let http = ["http-1", "http-100", "http-download"];
        for name in ["tunnel-http-name", "tunnel-http-pass"] {
            assert_eq!(cases(name), http, "{name}");
        }
        for name in ["tunnel-https-name", "nginx-tls"] {
            assert_eq!(cases(name), [&http[..], &["h2-100"]].concat(), "{name}");
        }
        let one_hop = ["http-9000", "idle-9000"];
        let is_for_bytes = |name: &&str| {
            !name.starts_with("forward-") && !name.starts_with("h2-") && !one_hop.contains(name)
        };
        let all = CASES.iter().map(|case| case.name).filter(is_for_bytes);
        assert_eq!(cases("tunnel-tcp"), all.collect::<Vec<_>>());
        assert!(!cases("tunnel-tls").contains(&"http-download"));
        let proxied = cases("tunnel-proxy");
        assert!(one_hop.iter().all(|name| proxied.contains(name)), "{proxied:?}");
        assert!(!proxied.contains(&"http-10000") && !proxied.contains(&"idle-18000"));
    }
}
