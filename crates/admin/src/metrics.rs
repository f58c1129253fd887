//! The figures of a status as one list of metrics. `page` writes the list for Prometheus, and
//! `otlp` pushes it. Names and units follow Prometheus' rules, which `promtool check metrics`
//! verifies.
//!
//! Labels are names and addresses of services, names of clients, transports, cipher suites and
//! reasons; never visitors, links or streams. So there is one series per client and service of the
//! configuration. Services beyond [`SERVICES_MAX`] have no series and are counted instead.

use std::collections::BTreeMap;

use Kind::{Counter, Gauge, Histogram};
use ops::Role;
use ops::status::{
    Carrier, Certificate, DaemonState, Link, LinkState, Requests, Sent, Service, ServiceState,
    ServiceTarget, Session, Status,
};

use crate::peer_metrics;

/// The largest number of services with their own series; clients may register any number of
/// services.
const SERVICES_MAX: usize = 2000;

/// The largest number of hosts whose certificates have their own series.
const CERTIFICATES_MAX: usize = 2000;

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The value may rise and fall.
    Gauge,
    /// The value only rises, from 0 at the start of the process.
    Counter,
    /// A histogram: numbers of events by a value of each event. They only rise.
    Histogram,
}

/// One metric with all its series.
#[derive(Debug)]
pub(crate) struct Metric<'a> {
    /// The name ends with the unit, or with the unit and `_total`.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// One sentence that explains the metric.
    pub(crate) help: &'static str,
    /// Empty if there is no event or object to report yet.
    pub(crate) samples: Vec<Sample<'a>>,
}

/// The current value of one series.
#[derive(Debug)]
pub(crate) struct Sample<'a> {
    pub(crate) labels: Vec<Label<'a>>,
    pub(crate) value: Value,
}

pub(crate) type Label<'a> = (&'static str, &'a str);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Whole(u64),
    Real(f64),
    Buckets(Buckets),
}

/// The value of a histogram.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Buckets {
    /// The upper bounds, in rising order.
    pub(crate) bounds: Vec<f64>,
    /// The number of events in each bucket; one element more than there are bounds.
    pub(crate) counts: Vec<u64>,
    /// The sum of the values of all events.
    pub(crate) sum: f64,
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<Buckets> for Value {
    fn from(buckets: Buckets) -> Self {
        Self::Buckets(buckets)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

/// All metrics of a status.
pub(crate) fn list(status: &Status) -> Vec<Metric<'_>> {
    let mut list = List::default();
    process(&mut list, status);
    let sessions = by_peer(&status.sessions);
    links(&mut list, &sessions);
    peer_metrics::peers(&mut list, status);
    services(&mut list, status, &sessions);
    certificates(&mut list, &status.certificates);
    list.0
}

#[derive(Default)]
pub(crate) struct List<'a>(Vec<Metric<'a>>);

impl<'a> List<'a> {
    /// Adds a metric without series; `value` adds the series.
    pub(crate) fn metric(&mut self, name: &'static str, kind: Kind, help: &'static str) {
        self.0.push(Metric { name, kind, help, samples: Vec::new() });
    }

    pub(crate) fn value(&mut self, name: &str, labels: &[Label<'a>], value: impl Into<Value>) {
        let of = self.0.iter_mut().rfind(|metric| metric.name == name);
        if let Some(metric) = of {
            metric.samples.push(Sample { labels: labels.to_vec(), value: value.into() });
        }
    }

    fn single(
        &mut self,
        name: &'static str,
        kind: Kind,
        help: &'static str,
        value: impl Into<Value>,
    ) {
        self.metric(name, kind, help);
        self.value(name, &[], value);
    }
}

fn process<'a>(list: &mut List<'a>, status: &'a Status) {
    let name = "tunnel_build_info";
    list.metric(name, Gauge, "What runs here, always 1.");
    list.value(name, &[("version", &status.version), ("role", status.role.name())], 1_u64);
    let up = u64::from(status.state == DaemonState::Running);
    list.single("tunnel_running", Gauge, "1, or 0 while it drains.", up);
    let uptime = status.uptime_seconds;
    list.single("tunnel_uptime_seconds", Gauge, "Time since the start.", uptime);
    list.single("tunnel_tasks", Gauge, "Tasks alive on the workers and beside them.", status.tasks);
    let memory = status.memory;
    let help = "What streams and buffers may take: memory_budget.";
    list.single("tunnel_memory_budget_bytes", Gauge, help, memory.budget_bytes);
    let help = "What streams, windows, replay and buffers take of the budget.";
    list.single("tunnel_memory_used_bytes", Gauge, help, memory.used_bytes);
    let help = "Visitors and requests refused because the memory budget had too little left.";
    list.single("tunnel_memory_refused_total", Counter, help, memory.refused);
    let files = status.descriptors;
    list.single("process_open_fds", Gauge, "Number of open file descriptors.", files.open);
    if let Some(limit) = files.limit {
        list.single("process_max_fds", Gauge, "Maximum number of open file descriptors.", limit);
    }
    if let Some(resident) = resident_bytes() {
        let help = "Resident memory size in bytes.";
        list.single("process_resident_memory_bytes", Gauge, help, resident);
    }
    if let Some(udp) = status.udp {
        let help = "Bytes that may wait in a UDP socket, as the system grants them.";
        let name = "tunnel_udp_buffer_bytes";
        list.metric(name, Gauge, help);
        list.value(name, &[("direction", "receive")], udp.receive_buffer_bytes);
        list.value(name, &[("direction", "send")], udp.send_buffer_bytes);
    }
    list.metric("tunnel_logins_total", Counter, "Log-ins by their outcome.");
    for (outcome, count) in &status.logins {
        list.value("tunnel_logins_total", &[("outcome", outcome)], *count);
    }
    let help = "Log lines that were left out, because a client or strangers caused too many.";
    let name = "tunnel_log_lines_left_out_total";
    list.single(name, Counter, help, status.log_lines_left_out);
    let help = "Lines missing in the log of requests, because its file took none or was too slow.";
    let name = "tunnel_request_log_lines_lost_total";
    list.single(name, Counter, help, status.request_log_lines_lost);
    let name = "tunnel_reload_failed";
    list.single(
        name,
        Gauge,
        "1 after a reload that changed nothing.",
        u64::from(status.reload_error.is_some()),
    );
}

type Sessions<'a> = BTreeMap<&'a str, Vec<&'a Session>>;

/// The sessions, by peer. While a client takes over its own name, it briefly has two sessions.
fn by_peer(sessions: &[Session]) -> Sessions<'_> {
    let mut all: Sessions<'_> = BTreeMap::new();
    for session in sessions {
        all.entry(&session.peer).or_default().push(session);
    }
    all
}

fn links<'a>(list: &mut List<'a>, sessions: &Sessions<'a>) {
    let gauge =
        |list: &mut List<'a>, name: &'static str, help: &'static str, of: fn(&Link) -> u64| {
            list.metric(name, Gauge, help);
            for (peer, sessions) in sessions {
                let links = sessions.iter().flat_map(|session| &session.links);
                list.value(name, &[("peer", peer)], links.map(of).sum::<u64>());
            }
        };
    gauge(list, "tunnel_links", "Links to the other side.", |_| 1);
    let help = "Links that carry streams.";
    gauge(list, "tunnel_links_up", help, |link| u64::from(link.state == LinkState::Up));
    gauge(list, "tunnel_link_streams", "Open streams.", |link| link.streams);
    gauge(list, "tunnel_link_flows", "Open flows of UDP.", |link| link.flows);
    let help = "Bytes kept for replay until the other side has consumed them.";
    gauge(list, "tunnel_link_retained_bytes", help, |link| link.retained_bytes);
    let counter =
        |list: &mut List<'a>, name: &'static str, help: &'static str, of: fn(&Session) -> u64| {
            list.metric(name, Counter, help);
            for (peer, sessions) in sessions {
                list.value(
                    name,
                    &[("peer", peer)],
                    sessions.iter().map(|session| of(session)).sum::<u64>(),
                );
            }
        };
    let help = "Carriers that took over from one that had died.";
    counter(list, "tunnel_link_resumes_total", help, |session| session.resumes);
    let help = "Payload bytes that came over links.";
    counter(list, "tunnel_link_received_bytes_total", help, |session| session.bytes_received);
    let help = "Payload bytes that went over links.";
    counter(list, "tunnel_link_sent_bytes_total", help, |session| session.bytes_sent);

    let (carriers, rtt) = ("tunnel_carriers", "tunnel_carrier_rtt_seconds");
    let mut counts: BTreeMap<(&str, &str), (u64, Option<u64>)> = BTreeMap::new();
    for (peer, sessions) in sessions {
        let links = sessions.iter().flat_map(|session| &session.links);
        for carrier in links.flat_map(|link| &link.carriers) {
            let (count, least) = counts.entry((peer, &carrier.transport)).or_default();
            *count += 1;
            *least = [*least, carrier.rtt_micros].into_iter().flatten().min();
        }
    }
    list.metric(carriers, Gauge, "Live connections by transport.");
    for ((peer, transport), (count, _)) in &counts {
        list.value(carriers, &[("peer", peer), ("transport", transport)], *count);
    }
    list.metric(rtt, Gauge, "Least round trip time of the present connections.");
    for ((peer, transport), (_, least)) in &counts {
        if let Some(micros) = least {
            let seconds = *micros as f64 / 1e6;
            list.value(rtt, &[("peer", peer), ("transport", transport)], seconds);
        }
    }
    ciphers(list, sessions);
    sent(list, sessions);
}

/// The carriers by their TLS: cipher suite and library, which depend on the processors of both
/// ends.
fn ciphers<'a>(list: &mut List<'a>, sessions: &Sessions<'a>) {
    let mut counts: BTreeMap<[&str; 4], u64> = BTreeMap::new();
    for (peer, sessions) in sessions {
        let links = sessions.iter().flat_map(|session| &session.links);
        for carrier in links.flat_map(|link| &link.carriers) {
            let Carrier { cipher: Some(cipher), backend: Some(backend), transport, .. } = carrier
            else {
                continue;
            };
            *counts.entry([peer, transport, cipher, backend]).or_default() += 1;
        }
    }
    let name = "tunnel_carrier_ciphers";
    list.metric(name, Gauge, "Live connections with TLS by cipher suite and its library.");
    for ([peer, transport, cipher, backend], count) in counts {
        let labels =
            [("peer", peer), ("transport", transport), ("cipher", cipher), ("backend", backend)];
        list.value(name, &labels, count);
    }
}

/// Figures of carriers: the kernel reports them for TCP, and this process for QUIC and KCP. Gauges
/// describe the current carriers. Counters include former carriers, up to the last status request
/// that saw each of them.
fn sent<'a>(list: &mut List<'a>, sessions: &Sessions<'a>) {
    let mut sums: BTreeMap<(&'a str, &'a str), Sent> = BTreeMap::new();
    let mut now: BTreeMap<(&'a str, &'a str), [Option<u64>; 2]> = BTreeMap::new();
    for (peer, sessions) in sessions {
        for (transport, sent) in sessions.iter().flat_map(|session| &session.sent) {
            sums.entry((peer, transport)).or_default().join(*sent);
        }
        let links = sessions.iter().flat_map(|session| &session.links);
        for carrier in links.flat_map(|link| &link.carriers) {
            let Some(tcp) = carrier.tcp else { continue };
            let sums = now.entry((peer, &carrier.transport)).or_default();
            for (sum, more) in sums.iter_mut().zip([tcp.queue_bytes, tcp.lost_segments]) {
                *sum = sum.map_or(more, |sum| Some(sum + more.unwrap_or(0)));
            }
        }
    }
    let counter = |list: &mut List<'a>,
                   name: &'static str,
                   help: &'static str,
                   of: fn(&Sent) -> Option<u64>| {
        list.metric(name, Counter, help);
        for ((peer, transport), sent) in &sums {
            if let Some(count) = of(sent) {
                list.value(name, &[("peer", peer), ("transport", transport)], count);
            }
        }
    };
    let help = "TCP segments with payload that connections sent, retransmitted ones included; of QUIC and KCP packets.";
    counter(list, "tunnel_carrier_sent_segments_total", help, |sent| sent.segments);
    let (name, help) = (
        "tunnel_carrier_retransmitted_segments_total",
        "TCP segments sent again; of QUIC lost packets, of KCP packets sent again.",
    );
    counter(list, name, help, |sent| sent.retransmitted_segments);
    let (name, help) = ("tunnel_carrier_retransmitted_bytes_total", "Payload bytes sent again.");
    counter(list, name, help, |sent| sent.retransmitted_bytes);
    let help = "Packets of KCP that the path lost.";
    counter(list, "tunnel_carrier_lost_packets_total", help, |sent| sent.lost_packets);
    let help = "Packets of KCP with parity that connections sent.";
    counter(list, "tunnel_carrier_parity_packets_total", help, |sent| sent.parity_packets);
    let help = "Packets of KCP that did not arrive and were rebuilt from parity.";
    counter(list, "tunnel_carrier_recovered_packets_total", help, |sent| sent.recovered_packets);
    let gauges = [
        ("tunnel_carrier_queue_bytes", "Bytes that the kernel has not sent yet."),
        ("tunnel_carrier_lost_segments", "TCP segments on their way that seem to be lost."),
    ];
    for (n, (name, help)) in gauges.into_iter().enumerate() {
        list.metric(name, Gauge, help);
        for ((peer, transport), sums) in &now {
            if let Some(sum) = sums[n] {
                list.value(name, &[("peer", peer), ("transport", transport)], sum);
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Series<'a> {
    peer: &'a str,
    kind: &'static str,
    is_wish: bool,
    service: &'a Service,
}

impl<'a> Series<'a> {
    fn labels(&self) -> [Label<'a>; 4] {
        let Service { name, address, .. } = self.service;
        // A service on a client gets its public address only when it is published, and the series
        // must stay the same.
        let address = if self.is_wish { "" } else { address };
        [("peer", self.peer), ("kind", self.kind), ("service", name), ("address", address)]
    }
}

fn services<'a>(list: &mut List<'a>, status: &'a Status, sessions: &Sessions<'a>) {
    let role = status.role;
    let mut all = Vec::new();
    for (peer, sessions) in sessions {
        for session in sessions {
            let wishes = role == Role::Client;
            let series = |kind, is_wish| move |service| Series { peer, kind, is_wish, service };
            all.extend(session.services.iter().map(series("service", wishes)));
            all.extend(session.forwards.iter().map(series("forward", false)));
        }
    }
    // The default target of a door belongs to no peer.
    let default = |service| Series { peer: "", kind: "default", is_wish: false, service };
    all.extend(status.default_targets.iter().map(default));
    let proxy = |service| Series { peer: "", kind: "proxy", is_wish: false, service };
    all.extend(status.proxies.iter().map(proxy));
    // A service that moves from a session to its successor briefly belongs to both sessions.
    all.sort_by_key(|series| series.labels().map(|(_, text)| text.to_owned()));
    all.dedup_by_key(|series| series.labels().map(|(_, text)| text.to_owned()));
    let omitted = all.len().saturating_sub(SERVICES_MAX);
    all.truncate(SERVICES_MAX);
    let help = "Services that are not in these metrics, as there are too many.";
    list.single("tunnel_services_omitted", Gauge, help, omitted as u64);
    let metric = |list: &mut List<'a>,
                  name: &'static str,
                  kind: Kind,
                  help: &'static str,
                  of: fn(&Service) -> u64| {
        list.metric(name, kind, help);
        for series in &all {
            list.value(name, &series.labels(), of(series.service));
        }
    };
    let is_up = |service: &Service| match service.state.state() {
        ServiceState::Up | ServiceState::TargetDown => 1,
        ServiceState::Denied
        | ServiceState::Waiting
        | ServiceState::Superseded
        | ServiceState::Refused
        | ServiceState::Unknown => 0,
    };
    let help =
        if role == Role::Server { "1 if visitors reach it." } else { "1 if it is published." };
    metric(list, "tunnel_service_up", Gauge, help, is_up);
    let is_down = |service: &Service| u64::from(service.state == ServiceState::TargetDown);
    let help = "1 if the target refused the last visitor or check, or did not answer.";
    metric(list, "tunnel_service_target_down", Gauge, help, is_down);
    refused_addresses(list, sessions);
    away(list, status);
    metric(list, "tunnel_service_streams", Gauge, "Open streams.", |s| s.streams);
    let help = "Streams that were opened.";
    metric(list, "tunnel_service_streams_opened_total", Counter, help, |s| s.streams_total);
    let help = "Bytes from visitors towards the target.";
    metric(list, "tunnel_service_in_bytes_total", Counter, help, |s| s.bytes_in);
    let help = "Bytes from the target towards visitors.";
    metric(list, "tunnel_service_out_bytes_total", Counter, help, |s| s.bytes_out);
    let name = "tunnel_service_refused_total";
    let help = "Visitors, streams and flows refused, failed dials included, by reason.";
    by_reason(list, name, help, &all, |service| &service.refused);
    requests(list, &all);
    flows(list, &all);
    targets(list, &all);
}

/// The names for which a server responds itself.
fn away<'a>(list: &mut List<'a>, status: &'a Status) {
    if status.role != Role::Server {
        return;
    }
    let help = "Names whose clients are away: their visitors get 502.";
    list.single("tunnel_names_away", Gauge, help, status.names_away_total);
    let help = "Clients on hold: visitors of their names get 503.";
    list.single("tunnel_clients_on_hold", Gauge, help, status.holds.len() as u64);
}

/// The requests of services by name, as far as the server parses them.
fn requests<'a>(list: &mut List<'a>, all: &[Series<'a>]) {
    let of = |series: &Series<'a>| series.service.requests.as_ref().map(|of| (series.labels(), of));
    let all: Vec<_> = all.iter().filter_map(of).collect();
    let name = "tunnel_service_requests_total";
    list.metric(name, Counter, "Requests of HTTP whose answers have ended, by class of status.");
    for (labels, requests) in &all {
        for (class, count) in &requests.statuses {
            let labels: Vec<_> = labels.iter().copied().chain([("code", &**class)]).collect();
            list.value(name, &labels, *count);
        }
    }
    let name = "tunnel_service_first_byte_seconds";
    let help = "Time from the head of a request of HTTP to the head of its answer.";
    list.metric(name, Histogram, help);
    for (labels, requests) in &all {
        list.value(name, labels, buckets(requests));
    }
}

fn buckets(requests: &Requests) -> Buckets {
    let seconds = |micros: u64| micros as f64 / 1e6;
    let mut all = requests.first_byte.clone();
    all.sort_by_key(|bucket| bucket.up_to_micros.unwrap_or(u64::MAX));
    let bounds = all.iter().filter_map(|bucket| bucket.up_to_micros).map(seconds).collect();
    let counts = all.iter().map(|bucket| bucket.count).collect();
    Buckets { bounds, counts, sum: seconds(requests.first_byte_micros) }
}

/// The services with unpublished addresses, whether or not other addresses are published.
fn refused_addresses<'a>(list: &mut List<'a>, sessions: &Sessions<'a>) {
    let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for (peer, sessions) in sessions {
        let services = sessions.iter().flat_map(|session| &session.services);
        for service in services.filter(|service| service.state == ServiceState::Refused) {
            *counts.entry((peer, &service.name)).or_default() += 1;
        }
    }
    let name = "tunnel_service_refused_addresses";
    list.metric(name, Gauge, "Addresses of a service that are refused; absent without one.");
    for ((peer, service), count) in counts.into_iter().take(SERVICES_MAX) {
        list.value(name, &[("peer", peer), ("service", service)], count);
    }
}

/// The figures of services and forwards that carry UDP, or carried it.
fn flows<'a>(list: &mut List<'a>, all: &[Series<'a>]) {
    let all: Vec<_> = all.iter().filter(|series| series.service.carries_flows()).copied().collect();
    let name = "tunnel_service_flows";
    list.metric(name, Gauge, "Open flows of UDP.");
    for series in &all {
        list.value(name, &series.labels(), series.service.flows);
    }
    let name = "tunnel_service_flows_total";
    list.metric(name, Counter, "Flows of UDP that were opened.");
    for series in &all {
        list.value(name, &series.labels(), series.service.flows_total);
    }
    let name = "tunnel_service_datagrams_total";
    list.metric(name, Counter, "Datagrams from visitors to the target (in) and back (out).");
    for series in &all {
        let Service { datagrams_in, datagrams_out, .. } = series.service;
        for (direction, count) in [("in", *datagrams_in), ("out", *datagrams_out)] {
            let labels = series.labels().into_iter().chain([("direction", direction)]);
            list.value(name, &labels.collect::<Vec<_>>(), count);
        }
    }
    let name = "tunnel_service_datagrams_dropped_total";
    by_reason(list, name, "Datagrams dropped, by reason.", &all, |service| &service.dropped);
}

/// The targets of services that have several.
fn targets<'a>(list: &mut List<'a>, all: &[Series<'a>]) {
    type Of = fn(&ServiceTarget) -> u64;
    let is_up: Of = |target| u64::from(target.down.is_none());
    let visitors: Of = |target| target.visitors;
    let total: Of = |target| target.visitors_total;
    let up = "1 if the target serves, as far as is known.";
    for (name, kind, help, of) in [
        ("tunnel_target_up", Gauge, up, is_up),
        ("tunnel_target_visitors", Gauge, "Open streams and flows.", visitors),
        ("tunnel_target_visitors_total", Counter, "Streams and flows.", total),
    ] {
        list.metric(name, kind, help);
        for series in all {
            for target in &series.service.targets {
                let labels = series.labels().into_iter().chain([("target", &*target.target)]);
                list.value(name, &labels.collect::<Vec<_>>(), of(target));
            }
        }
    }
}

fn by_reason<'a>(
    list: &mut List<'a>,
    name: &'static str,
    help: &'static str,
    all: &[Series<'a>],
    of: fn(&'a Service) -> &'a BTreeMap<String, u64>,
) {
    list.metric(name, Counter, help);
    for series in all {
        let labels = series.labels();
        for (reason, count) in of(series.service) {
            let labels: Vec<_> = labels.iter().copied().chain([("reason", &**reason)]).collect();
            list.value(name, &labels, *count);
        }
    }
}

fn certificates<'a>(list: &mut List<'a>, all: &'a [Certificate]) {
    let shown = &all[..all.len().min(CERTIFICATES_MAX)];
    let help = "Certificates that are not in these metrics, as there are too many.";
    let omitted = (all.len() - shown.len()) as u64;
    list.single("tunnel_certificates_omitted", Gauge, help, omitted);
    let name = "tunnel_certificate_expiry_seconds";
    list.metric(name, Gauge, "When the certificate expires, in seconds since 1970.");
    for Certificate { host, source, expires_at, .. } in shown {
        if let Some(at) = expires_at {
            list.value(name, &[("host", host), ("source", source)], *at);
        }
    }
    let name = "tunnel_certificate_error";
    list.metric(name, Gauge, "1 if the host has no certificate, or the last order failed.");
    for Certificate { host, source, error, .. } in shown {
        let is_bad = error.is_some() || source == "none";
        list.value(name, &[("host", host)], u64::from(is_bad));
    }
}

/// The resident memory of this process, in bytes.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * u64::try_from(rustix::param::page_size()).ok()?)
}

#[cfg(test)]
mod tests {
    use ops::status::{
        PathBytes, PathState, PeerPath, Told, sample, sample_flows, sample_kcp, sample_requests,
    };

    use super::*;

    fn page(status: &Status) -> String {
        crate::page::page(&list(status))
    }

    #[test]
    fn every_series_has_a_head_and_texts_are_escaped() {
        let mut status = sample();
        status.sessions[0].peer = "a\"b\\c\nd".into();
        status.sessions[0].services[0].refused.insert("limit".into(), 3);
        let page = page(&status);
        let mut head = "";
        for line in page.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                head = rest.split(' ').next().unwrap();
            } else if !line.starts_with('#') {
                assert!(line.starts_with(head), "{line} below {head}");
                assert_eq!(rest_of(line).parse::<f64>().map(|_| ()), Ok(()), "{line}");
            }
        }
        assert!(page.contains(r#"peer="a\"b\\c\nd""#), "{page}");
        assert!(page.contains(r#"reason="limit"} 3"#), "{page}");
        for (name, value) in [
            ("tunnel_carrier_rtt_seconds", "0.012345"),
            ("tunnel_carrier_sent_segments_total", "9000"),
            ("tunnel_carrier_retransmitted_segments_total", "30"),
            ("tunnel_carrier_retransmitted_bytes_total", "43440"),
            ("tunnel_carrier_queue_bytes", "20480"),
        ] {
            let line = |line: &str| line.starts_with(name) && line.ends_with(&format!(" {value}"));
            assert!(page.lines().any(line), "{name}: {page}");
        }
        assert!(!page.contains("\ntunnel_carrier_lost_segments{"), "told and not known: {page}");
    }

    /// Metric names and labels are an interface for dashboards and alerts, so the page must not
    /// change by accident.
    #[test]
    fn the_page_is_the_same_to_the_byte() {
        let mut status = sample();
        let mut client = status.clone();
        status.logins = [("accepted".to_owned(), 3), ("wrong token".to_owned(), 1)].into();
        status.sessions[0].services[0].refused = [("limit".to_owned(), 3)].into();
        status.sessions[0].forwards = vec![Service { bytes_in: 7, ..Service::default() }];
        status.sessions[0].add([1 << 40, 5, 2]);
        status.sessions[0].links[0].flows = 3;
        status.sessions[0].services.push(sample_flows());
        status.sessions[0].services.push(sample_requests());
        let one = client.sessions[0].services[0].clone();
        let refused = Service {
            address: "tcp://:22".into(),
            state: Told::because(ServiceState::Refused, "no right"),
            ..one
        };
        client.sessions[0].services.push(refused);
        client.sessions[0].services[0].targets = vec![ServiceTarget {
            target: "tcp://10.0.0.5:22".into(),
            weight: 1,
            visitors: 2,
            visitors_total: 30,
            ..ServiceTarget::default()
        }];
        let kcp = sample_kcp();
        status.sessions[0].sent.insert("kcp".into(), kcp.sent().unwrap());
        status.sessions[0].links[1].carriers.push(kcp);
        let certificate = |host: &str, source: &str, expires_at, error: Option<&str>| Certificate {
            host: host.to_owned(),
            source: source.to_owned(),
            expires_at,
            error: error.map(str::to_owned),
            ..Certificate::default()
        };
        status.certificates = vec![
            certificate("*.example.com", "file", Some(1_800_000_000), None),
            certificate("a.example.com", "acme", Some(1_790_000_000), Some("refused")),
            certificate("b.example.com", "none", None, None),
        ];
        status.peers.streams = [("joined".to_owned(), 12), ("unknown".to_owned(), 2)].into();
        status.peers.stun = [("answered".to_owned(), 40), ("dropped".to_owned(), 1)].into();
        client.peers.programs = 3;
        client.peers.trials = [("direct".to_owned(), 2), ("blocked_there".to_owned(), 1)].into();
        let bytes = |received, sent| PathBytes { received, sent };
        client.peers.bytes =
            [("relayed".to_owned(), bytes(1, 2)), ("direct".to_owned(), bytes(3, 4))].into();
        let peer = |path: PathState, rtt_micros| Link {
            path: Some(PeerPath { state: path.into(), rtt_micros, ..PeerPath::default() }),
            ..Link::default()
        };
        client.sessions.push(Session {
            peer: "home/ssh".into(),
            private: true,
            links: vec![peer(PathState::Direct, Some(8_400)), peer(PathState::Relayed, None)],
            ..Session::default()
        });
        client.role = Role::Client;
        client.reload_error = Some("no".into());
        client.descriptors.limit = None;
        let page = page(&status) + &page(&client);
        // The resident memory differs from run to run.
        let lines = page.split_inclusive('\n');
        let page: String = lines.filter(|l| !l.starts_with("process_resident")).collect();
        assert!(page == include_str!("metrics.txt"), "{page}");
    }

    #[test]
    fn the_guide_has_a_row_for_each_metric_of_links_between_clients() {
        let guide = include_str!("../../tunnel/docs/metrics-and-api.md");
        let mut server = sample();
        server.role = Role::Server;
        let mut client = sample();
        client.role = Role::Client;
        let pages = page(&server) + &page(&client);
        let is_ours = |name: &&str| {
            let stems = ["tunnel_peer_", "tunnel_private_", "tunnel_stun_"];
            stems.iter().any(|stem| name.starts_with(stem))
        };
        let heads = pages.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let mut declared: Vec<_> = heads.filter_map(|head| head.split(' ').next()).collect();
        declared.retain(is_ours);
        let rows = guide.lines().filter_map(|line| line.strip_prefix("| `"));
        let mut written: Vec<_> =
            rows.filter_map(|row| row.split(['`', '{']).next()).filter(is_ours).collect();
        declared.sort_unstable();
        written.sort_unstable();
        assert_eq!(written, declared);
    }

    #[test]
    fn the_dashboard_asks_for_nothing_that_is_not_told() {
        let dashboard = include_str!("../../../examples/grafana/tunnel.json");
        serde_json::from_str::<serde_json::Value>(dashboard).unwrap();
        let page = page(&sample());
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words = dashboard.split(|c| !is_word(c));
        let names = words.filter(|w| w.starts_with("tunnel_") || w.starts_with("process_"));
        let mut count = 0;
        for name in names {
            assert!(page.contains(&format!("# TYPE {name} ")), "{name}");
            count += 1;
        }
        assert!(count > 10);
    }

    fn rest_of(line: &str) -> &str {
        line.rsplit(' ').next().unwrap()
    }

    #[test]
    fn more_services_than_anybody_has_are_counted_instead() {
        let mut status = sample();
        let one = status.sessions[0].services[0].clone();
        status.sessions[0].services = (0..SERVICES_MAX + 5)
            .map(|n| Service { name: format!("s{n}"), ..one.clone() })
            .collect();
        let page = page(&status);
        assert!(page.contains("\ntunnel_services_omitted 5\n"));
        assert_eq!(page.matches("\ntunnel_service_up{").count(), SERVICES_MAX);
    }
}
