//! What figures are about: the process, the sessions of a peer, carriers, services … Each has its
//! labels, and says which subjects a status has. Series whose labels are equal are one series, so
//! subjects with equal labels follow each other. Its value is that of the first subject, or the
//! sum, as the row of the figure says.

use std::collections::BTreeMap;

use super::value::{Label, Readable, Sample, Value};
use crate::Role;
use crate::status::{
    Carrier, Certificate, Cluster, Link, PathBytes, PathState, Requests, Sent, Service,
    ServiceState, ServiceTarget, Session, Status, Tcp,
};

/// The largest number of services with their own series; clients may register any number of
/// services.
pub const SERVICES_MAX: usize = 2000;

/// The largest number of hosts whose certificates have their own series.
pub const CERTIFICATES_MAX: usize = 2000;

/// A status, with the lists that several figures need.
pub(super) struct View<'a> {
    status: &'a Status,
    resident: Option<u64>,
    /// In the order of the peers.
    sessions: Vec<&'a Session>,
    /// In the order of their labels.
    carriers: Vec<([&'a str; 2], &'a Carrier)>,
    /// In the order of their labels, at most [`SERVICES_MAX`].
    services: Vec<([&'a str; 4], &'a Service)>,
    services_omitted: u64,
}

impl<'a> View<'a> {
    pub(super) fn new(status: &'a Status, resident: Option<u64>) -> Self {
        let mut sessions: Vec<_> = status.sessions.iter().collect();
        sessions.sort_by_key(|session| &session.peer);
        let of_session = |session: &&'a Session| {
            let peer = session.peer.as_str();
            let carriers = session.links.iter().flat_map(|link| &link.carriers);
            carriers.map(move |carrier| ([peer, &carrier.transport], carrier))
        };
        let mut carriers: Vec<_> = sessions.iter().flat_map(of_session).collect();
        carriers.sort_by_key(|(labels, _)| *labels);
        let mut services = all_services(status, &sessions);
        let services_omitted = services.len().saturating_sub(SERVICES_MAX) as u64;
        services.truncate(SERVICES_MAX);
        Self { status, resident, sessions, carriers, services, services_omitted }
    }
}

/// All services, forwards, default targets and entries, in the order of their labels.
fn all_services<'a>(
    status: &'a Status,
    sessions: &[&'a Session],
) -> Vec<([&'a str; 4], &'a Service)> {
    // A service on a client gets its public address only when it is published, and the series must
    // stay the same.
    let is_wish = status.role == Role::Client;
    let labelled = |peer: &'a str, kind: &'a str| {
        move |service: &'a Service| {
            let address = if is_wish && kind == "service" { "" } else { &*service.address };
            ([peer, kind, &*service.name, address], service)
        }
    };
    let mut all = Vec::new();
    for session in sessions {
        all.extend(session.services.iter().map(labelled(&session.peer, "service")));
        all.extend(session.forwards.iter().map(labelled(&session.peer, "forward")));
    }
    // The default target of a door, and an entry of a proxy, belong to no peer.
    all.extend(status.default_targets.iter().map(labelled("", "default")));
    all.extend(status.proxies.iter().map(labelled("", "proxy")));
    // A service that moves from a session to its successor briefly belongs to both sessions.
    all.sort_by_key(|(labels, _)| *labels);
    all.dedup_by_key(|(labels, _)| *labels);
    all
}

/// Takes the labels of a subject, and the subject.
type Each<'f, 'a, T, const N: usize> = &'f mut dyn FnMut([&'a str; N], &T);

/// The subjects of figures, with the names of their labels.
pub(super) struct By<T: 'static, const N: usize> {
    pub(super) labels: [&'static str; N],
    each: for<'a> fn(&View<'a>, Each<'_, 'a, T, N>),
}

impl<T, const N: usize> By<T, N> {
    /// Reads a value of each subject. Of equal labels, the first value counts.
    pub(super) fn read<'a, R: Readable>(
        &self,
        view: &View<'a>,
        read: impl Fn(&T) -> R,
    ) -> Vec<Sample<'a>> {
        self.samples(view, &|subject| read(subject).value(), |_, _| {})
    }

    /// The subjects of a figure whose values of equal labels are added up.
    pub(super) const fn sum(&self) -> Sum<'_, T, N> {
        Sum { labels: self.labels, by: self }
    }

    /// `join`: takes a further value of the labels of the first one.
    fn samples<'a>(
        &self,
        view: &View<'a>,
        read: &dyn Fn(&T) -> Option<Value>,
        join: fn(&mut Value, Value),
    ) -> Vec<Sample<'a>> {
        let mut samples: Vec<Sample<'a>> = Vec::new();
        (self.each)(view, &mut |labels, subject| {
            let Some(value) = read(subject) else { return };
            let labels = self.labels.iter().copied().zip(labels);
            let last = samples.last_mut();
            match last.filter(|last| labels.clone().eq(last.labels.iter().copied())) {
                Some(last) => join(&mut last.value, value),
                None => samples.push(Sample { labels: labels.collect::<Vec<Label<'a>>>(), value }),
            }
        });
        samples
    }
}

/// Subjects whose values of equal labels are added up.
pub(super) struct Sum<'s, T: 'static, const N: usize> {
    pub(super) labels: [&'static str; N],
    by: &'s By<T, N>,
}

impl<T, const N: usize> Sum<'_, T, N> {
    /// Reads a value of each subject.
    pub(super) fn read<'a, R: Readable>(
        &self,
        view: &View<'a>,
        read: impl Fn(&T) -> R,
    ) -> Vec<Sample<'a>> {
        self.by.samples(view, &|subject| read(subject).value(), |sum, more| {
            if let (Value::Whole(sum), Value::Whole(more)) = (sum, more) {
                *sum += more;
            }
        })
    }
}

/// The process.
pub(super) static PROCESS: By<Status, 0> =
    By { labels: [], each: |view, tell| tell([], view.status) };

/// The program of the process.
pub(super) static PROGRAM: By<Status, 2> = By {
    labels: ["version", "role"],
    each: |view, tell| tell([&view.status.version, view.status.role.name()], view.status),
};

/// The resident memory of the process in bytes.
pub(super) static RESIDENT: By<u64, 0> =
    By { labels: [], each: |view, tell| view.resident.iter().for_each(|bytes| tell([], bytes)) };

/// The cluster of a server, if it is a node of one.
pub(super) static CLUSTER: By<Cluster, 0> =
    By { labels: [], each: |view, tell| view.status.cluster.iter().for_each(|of| tell([], of)) };

/// The size of the buffers of UDP sockets in bytes.
pub(super) static UDP_BUFFERS: By<u64, 1> = By {
    labels: ["direction"],
    each: |view, tell| {
        if let Some(udp) = &view.status.udp {
            tell(["receive"], &udp.receive_buffer_bytes);
            tell(["send"], &udp.send_buffer_bytes);
        }
    },
};

/// Adds a last label to the labels of a subject, for each count of the subject.
fn counted<'a, const N: usize>(
    counts: &'a BTreeMap<String, u64>,
    tell: Each<'_, 'a, u64, N>,
    labels: impl Fn(&'a str) -> [&'a str; N],
) {
    counts.iter().for_each(|(of, count)| tell(labels(of), count));
}

/// The numbers of log-ins by their outcome.
pub(super) static LOG_INS: By<u64, 1> = By {
    labels: ["outcome"],
    each: |view, tell| counted(&view.status.logins, tell, |outcome| [outcome]),
};

/// The sessions. While a client takes over its own name, it briefly has two sessions.
pub(super) static PEERS: By<Session, 1> = By {
    labels: ["peer"],
    each: |view, tell| view.sessions.iter().for_each(|session| tell([&session.peer], session)),
};

/// The servers of a client.
pub(super) static SERVERS: By<Session, 1> = By {
    labels: ["peer"],
    each: |view, tell| {
        let all = view.sessions.iter().filter(|session| session.server.is_some());
        all.for_each(|session| tell([&session.peer], session));
    },
};

/// The moves of links to another path, by reason.
pub(super) static MOVES: By<u64, 2> = By {
    labels: ["peer", "reason"],
    each: |view, tell| {
        for &session in &view.sessions {
            if let Some(server) = &session.server {
                counted(&server.moves, tell, |reason| [&session.peer, reason]);
            }
        }
    },
};

/// The carriers by transport.
pub(super) static CARRIERS: By<Carrier, 2> = By {
    labels: ["peer", "transport"],
    each: |view, tell| view.carriers.iter().for_each(|(labels, carrier)| tell(*labels, carrier)),
};

/// The least round trips of carriers in microseconds, by transport.
pub(super) static ROUND_TRIPS: By<u64, 2> = By {
    labels: CARRIERS.labels,
    each: |view, tell| {
        for same in view.carriers.chunk_by(|(a, _), (b, _)| a == b) {
            let least = same.iter().filter_map(|(_, carrier)| carrier.rtt_micros).min();
            if let (Some((labels, _)), Some(least)) = (same.first(), least) {
                tell(*labels, &least);
            }
        }
    },
};

/// The carriers by their TLS: cipher suite and library, which depend on the processors of both
/// ends.
pub(super) static CIPHERS: By<Carrier, 4> = By {
    labels: ["peer", "transport", "cipher", "backend"],
    each: |view, tell| {
        let mut all: Vec<_> = Vec::new();
        for &([peer, transport], carrier) in &view.carriers {
            let Carrier { cipher: Some(cipher), backend: Some(backend), .. } = carrier else {
                continue;
            };
            all.push(([peer, transport, &**cipher, &**backend], carrier));
        }
        all.sort_by_key(|(labels, _)| *labels);
        all.iter().for_each(|(labels, carrier)| tell(*labels, carrier));
    },
};

/// The traffic of carriers, of former carriers as well, up to the last status request that saw each
/// of them.
pub(super) static TRAFFIC: By<Sent, 2> = By {
    labels: CARRIERS.labels,
    each: |view, tell| {
        let mut all: Vec<_> = Vec::new();
        for &session in &view.sessions {
            all.extend(
                session.sent.iter().map(|(transport, sent)| ([&*session.peer, &**transport], sent)),
            );
        }
        all.sort_by_key(|(labels, _)| *labels);
        all.iter().for_each(|(labels, sent)| tell(*labels, sent));
    },
};

/// The TCP connections below the present carriers.
pub(super) static TCP: By<Tcp, 2> = By {
    labels: CARRIERS.labels,
    each: |view, tell| {
        for (labels, carrier) in &view.carriers {
            carrier.tcp.iter().for_each(|tcp| tell(*labels, tcp));
        }
    },
};

const PATHS: [(&str, PathState); 2] =
    [("relayed", PathState::Relayed), ("direct", PathState::Direct)];

/// The links of a client with other clients on one path.
pub(super) struct OnPath {
    pub(super) links: u64,
    /// The least round trip in microseconds.
    pub(super) round_trip: Option<u64>,
}

/// The links of a client with other clients, by path.
pub(super) static PEER_LINKS: By<OnPath, 1> = By {
    labels: ["path"],
    each: |view, tell| {
        for (name, state) in PATHS {
            let sessions = view.sessions.iter().filter(|session| session.private);
            let links = sessions.flat_map(|session| &session.links);
            let is_on = |link: &&Link| link.path.as_ref().is_some_and(|path| path.state == state);
            let links: Vec<_> = links.filter(is_on).collect();
            let of_link = |link: &&Link| {
                let of_pair = link.path.as_ref().and_then(|path| path.rtt_micros);
                let of_carriers = link.carriers.iter().filter_map(|carrier| carrier.rtt_micros);
                of_carriers.chain(of_pair).min()
            };
            let round_trip = links.iter().filter_map(of_link).min();
            tell([name], &OnPath { links: links.len() as u64, round_trip });
        }
    },
};

/// The payload bytes over links with other clients, by path.
pub(super) static PEER_BYTES: By<PathBytes, 1> = By {
    labels: ["path"],
    each: |view, tell| {
        view.status.peers.bytes.iter().for_each(|(path, bytes)| tell([path], bytes));
    },
};

/// The numbers of trials of direct paths.
pub(super) static TRIALS: By<u64, 1> = By {
    labels: ["outcome"],
    each: |view, tell| counted(&view.status.peers.trials, tell, |outcome| [outcome]),
};

/// The numbers of streams to private services.
pub(super) static PRIVATE_STREAMS: By<u64, 1> = By {
    labels: ["outcome"],
    each: |view, tell| counted(&view.status.peers.streams, tell, |outcome| [outcome]),
};

/// The numbers of requests of STUN.
pub(super) static STUN: By<u64, 1> = By {
    labels: ["outcome"],
    each: |view, tell| counted(&view.status.peers.stun, tell, |outcome| [outcome]),
};

/// The number of services without series.
pub(super) static SERVICES_OMITTED: By<u64, 0> =
    By { labels: [], each: |view, tell| tell([], &view.services_omitted) };

/// The services, forwards, default targets and entries.
pub(super) static SERVICES: By<Service, 4> = By {
    labels: ["peer", "kind", "service", "address"],
    each: |view, tell| view.services.iter().for_each(|(labels, service)| tell(*labels, service)),
};

/// The numbers of refused addresses of services, whether or not other addresses are published.
pub(super) static REFUSED_ADDRESSES: By<u64, 2> = By {
    labels: ["peer", "service"],
    each: |view, tell| {
        let mut counts: BTreeMap<[&str; 2], u64> = BTreeMap::new();
        for &session in &view.sessions {
            let services = session.services.iter();
            for service in services.filter(|service| service.state == ServiceState::Refused) {
                *counts.entry([&session.peer, &service.name]).or_default() += 1;
            }
        }
        counts.into_iter().take(SERVICES_MAX).for_each(|(labels, count)| tell(labels, &count));
    },
};

/// The labels of a part of a service.
fn part<'a>([peer, kind, service, address]: [&'a str; 4], part: &'a str) -> [&'a str; 5] {
    [peer, kind, service, address, part]
}

/// The numbers of refusals by service and reason.
pub(super) static REFUSALS: By<u64, 5> = By {
    labels: ["peer", "kind", "service", "address", "reason"],
    each: |view, tell| {
        for &(labels, service) in &view.services {
            counted(&service.refused, tell, |reason| part(labels, reason));
        }
    },
};

/// The numbers of requests by service and class of status, as far as the server parses them.
pub(super) static REQUESTS: By<u64, 5> = By {
    labels: ["peer", "kind", "service", "address", "code"],
    each: |view, tell| {
        for &(labels, service) in &view.services {
            if let Some(requests) = &service.requests {
                counted(&requests.statuses, tell, |code| part(labels, code));
            }
        }
    },
};

/// The times of the requests of services.
pub(super) static REQUEST_TIMES: By<Requests, 4> = By {
    labels: SERVICES.labels,
    each: |view, tell| {
        for (labels, service) in &view.services {
            service.requests.iter().for_each(|requests| tell(*labels, requests));
        }
    },
};

/// The services and forwards that carry UDP, or carried it.
fn with_flows<'v, 'a>(
    view: &'v View<'a>,
) -> impl Iterator<Item = ([&'a str; 4], &'a Service)> + use<'v, 'a> {
    view.services.iter().copied().filter(|(_, service)| service.carries_flows())
}

/// The services with flows.
pub(super) static FLOWS: By<Service, 4> = By {
    labels: SERVICES.labels,
    each: |view, tell| with_flows(view).for_each(|(labels, service)| tell(labels, service)),
};

/// The numbers of datagrams by service and direction.
pub(super) static DATAGRAMS: By<u64, 5> = By {
    labels: ["peer", "kind", "service", "address", "direction"],
    each: |view, tell| {
        for (labels, service) in with_flows(view) {
            tell(part(labels, "in"), &service.datagrams_in);
            tell(part(labels, "out"), &service.datagrams_out);
        }
    },
};

/// The numbers of dropped datagrams by service and reason.
pub(super) static DROPPED: By<u64, 5> = By {
    labels: ["peer", "kind", "service", "address", "reason"],
    each: |view, tell| {
        for (labels, service) in with_flows(view) {
            counted(&service.dropped, tell, |reason| part(labels, reason));
        }
    },
};

/// The targets of services that have several.
pub(super) static TARGETS: By<ServiceTarget, 5> = By {
    labels: ["peer", "kind", "service", "address", "target"],
    each: |view, tell| {
        for &(labels, service) in &view.services {
            service.targets.iter().for_each(|one| tell(part(labels, &one.target), one));
        }
    },
};

/// The number of certificates without series.
pub(super) static CERTIFICATES_OMITTED: By<u64, 0> = By {
    labels: [],
    each: |view, tell| {
        let all = view.status.certificates.len();
        tell([], &(all.saturating_sub(CERTIFICATES_MAX) as u64));
    },
};

/// The certificates by host.
pub(super) static CERTIFICATES: By<Certificate, 1> = By {
    labels: ["host"],
    each: |view, tell| {
        let shown = view.status.certificates.iter().take(CERTIFICATES_MAX);
        shown.for_each(|certificate| tell([&certificate.host], certificate));
    },
};

/// The certificates by host and source.
pub(super) static SOURCES: By<Certificate, 2> = By {
    labels: ["host", "source"],
    each: |view, tell| {
        let shown = view.status.certificates.iter().take(CERTIFICATES_MAX);
        shown.for_each(|one| tell([&one.host, &one.source], one));
    },
};
