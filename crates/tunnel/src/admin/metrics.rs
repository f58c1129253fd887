//! A status as Prometheus reads it (text exposition format 0.0.4): names and units by its rules, which
//! `promtool check metrics` knows.
//!
//! Labels are names of clients, services, transports and reasons, never visitors, links or streams: a
//! series per client and service of the configuration. What goes beyond [`SERVICES_MAX`] is left out,
//! and counted.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::status::{Link, Sent, Service, Session, Status, UP};

/// What the page is.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Services with series of their own; clients may register as many as they like.
const SERVICES_MAX: usize = 2000;

/// All that is known at this moment.
pub(super) fn page(status: &Status) -> String {
    let mut page = Page::default();
    process(&mut page, status);
    let sessions = by_peer(&status.sessions);
    links(&mut page, &sessions);
    services(&mut page, &status.role, &sessions);
    page.0
}

type Labels<'a> = &'a [(&'a str, &'a str)];

#[derive(Default)]
struct Page(String);

impl Page {
    /// One metric with all its series.
    fn metric(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn value(&mut self, name: &str, labels: Labels<'_>, value: impl std::fmt::Display) {
        self.0.push_str(name);
        for (n, (label, text)) in labels.iter().enumerate() {
            let open = if n == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{open}{label}=\"");
            for c in text.chars() {
                match c {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    c => self.0.push(c),
                }
            }
            self.0.push('"');
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{close} {value}");
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
        self.metric(name, kind, help);
        self.value(name, &[], value);
    }
}

fn process(page: &mut Page, status: &Status) {
    let name = "tunnel_build_info";
    page.metric(name, "gauge", "What runs here, always 1.");
    page.value(name, &[("version", &status.version), ("role", &status.role)], 1);
    let up = u8::from(status.state == "running");
    page.single("tunnel_running", "gauge", "1, or 0 while it drains.", up);
    let uptime = status.uptime_seconds;
    page.single("tunnel_uptime_seconds", "gauge", "Time since the start.", uptime);
    page.single(
        "tunnel_tasks",
        "gauge",
        "Tasks alive on the workers and beside them.",
        status.tasks,
    );
    let memory = status.memory;
    let help = "What streams and buffers may take: memory_budget.";
    page.single("tunnel_memory_budget_bytes", "gauge", help, memory.budget_bytes);
    let help = "What streams, windows, replay and buffers take of the budget.";
    page.single("tunnel_memory_used_bytes", "gauge", help, memory.used_bytes);
    let files = status.descriptors;
    page.single("process_open_fds", "gauge", "Number of open file descriptors.", files.open);
    if let Some(limit) = files.limit {
        page.single("process_max_fds", "gauge", "Maximum number of open file descriptors.", limit);
    }
    if let Some(resident) = crate::descriptors::resident_bytes() {
        let help = "Resident memory size in bytes.";
        page.single("process_resident_memory_bytes", "gauge", help, resident);
    }
    page.metric("tunnel_logins_total", "counter", "Log-ins by their outcome.");
    for (outcome, count) in &status.logins {
        page.value("tunnel_logins_total", &[("outcome", outcome)], count);
    }
    let name = "tunnel_reload_failed";
    page.single(
        name,
        "gauge",
        "1 after a reload that changed nothing.",
        u8::from(status.reload_error.is_some()),
    );
}

/// All sessions with the same other side: a client that takes over from itself has two for a moment.
fn by_peer(sessions: &[Session]) -> BTreeMap<&str, Vec<&Session>> {
    let mut all: BTreeMap<&str, Vec<&Session>> = BTreeMap::new();
    for session in sessions {
        all.entry(&session.peer).or_default().push(session);
    }
    all
}

fn links(page: &mut Page, sessions: &BTreeMap<&str, Vec<&Session>>) {
    let gauge = |page: &mut Page, name: &str, help: &str, of: fn(&Link) -> u64| {
        page.metric(name, "gauge", help);
        for (peer, sessions) in sessions {
            let links = sessions.iter().flat_map(|session| &session.links);
            page.value(name, &[("peer", peer)], links.map(of).sum::<u64>());
        }
    };
    gauge(page, "tunnel_links", "Links to the other side.", |_| 1);
    let help = "Links that carry streams.";
    gauge(page, "tunnel_links_up", help, |link| u64::from(link.state == UP));
    gauge(page, "tunnel_link_streams", "Open streams.", |link| link.streams);
    let help = "Bytes kept for replay until the other side has consumed them.";
    gauge(page, "tunnel_link_retained_bytes", help, |link| link.retained_bytes);
    let counter = |page: &mut Page, name: &str, help: &str, of: fn(&Session) -> u64| {
        page.metric(name, "counter", help);
        for (peer, sessions) in sessions {
            page.value(
                name,
                &[("peer", peer)],
                sessions.iter().map(|session| of(session)).sum::<u64>(),
            );
        }
    };
    let help = "Carriers that took over from one that had died.";
    counter(page, "tunnel_link_resumes_total", help, |session| session.resumes);
    let help = "Payload bytes that came over links.";
    counter(page, "tunnel_link_received_bytes_total", help, |session| session.bytes_received);
    let help = "Payload bytes that went over links.";
    counter(page, "tunnel_link_sent_bytes_total", help, |session| session.bytes_sent);

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
    page.metric(carriers, "gauge", "Live connections by transport.");
    for ((peer, transport), (count, _)) in &counts {
        page.value(carriers, &[("peer", peer), ("transport", transport)], count);
    }
    page.metric(rtt, "gauge", "Least round trip time of the present connections.");
    for ((peer, transport), (_, least)) in &counts {
        if let Some(micros) = least {
            let seconds = *micros as f64 / 1e6;
            page.value(rtt, &[("peer", peer), ("transport", transport)], seconds);
        }
    }
    sent(page, sessions);
}

/// What the kernel tells of TCP: gauges of the connections that there are, counters of all that a look has met.
fn sent(page: &mut Page, sessions: &BTreeMap<&str, Vec<&Session>>) {
    let mut sums: BTreeMap<(&str, &str), Sent> = BTreeMap::new();
    let mut now: BTreeMap<(&str, &str), [Option<u64>; 2]> = BTreeMap::new();
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
    let counter = |page: &mut Page, name: &str, help: &str, of: fn(&Sent) -> Option<u64>| {
        page.metric(name, "counter", help);
        for ((peer, transport), sent) in &sums {
            if let Some(count) = of(sent) {
                page.value(name, &[("peer", peer), ("transport", transport)], count);
            }
        }
    };
    let help = "TCP segments with payload that connections sent, retransmitted ones included.";
    counter(page, "tunnel_carrier_sent_segments_total", help, |sent| sent.segments);
    let (name, help) = ("tunnel_carrier_retransmitted_segments_total", "TCP segments sent again.");
    counter(page, name, help, |sent| sent.retransmitted_segments);
    let (name, help) = ("tunnel_carrier_retransmitted_bytes_total", "Payload bytes sent again.");
    counter(page, name, help, |sent| sent.retransmitted_bytes);
    let gauges = [
        ("tunnel_carrier_queue_bytes", "Bytes that the kernel has not sent yet."),
        ("tunnel_carrier_lost_segments", "TCP segments on their way that seem to be lost."),
    ];
    for (n, (name, help)) in gauges.into_iter().enumerate() {
        page.metric(name, "gauge", help);
        for ((peer, transport), sums) in &now {
            if let Some(sum) = sums[n] {
                page.value(name, &[("peer", peer), ("transport", transport)], sum);
            }
        }
    }
}

struct Series<'a> {
    peer: &'a str,
    kind: &'static str,
    is_wish: bool,
    service: &'a Service,
}

impl Series<'_> {
    fn labels(&self) -> [(&str, &str); 4] {
        let Service { name, address, .. } = self.service;
        // A client's wish becomes an address when it is published, and the series is to stay the same.
        let address = if self.is_wish { "" } else { address };
        [("peer", self.peer), ("kind", self.kind), ("service", name), ("address", address)]
    }
}

fn services(page: &mut Page, role: &str, sessions: &BTreeMap<&str, Vec<&Session>>) {
    let mut all = Vec::new();
    for (peer, sessions) in sessions {
        for session in sessions {
            let wishes = role == "client";
            let series = |kind, is_wish| move |service| Series { peer, kind, is_wish, service };
            all.extend(session.services.iter().map(series("service", wishes)));
            all.extend(session.forwards.iter().map(series("forward", false)));
        }
    }
    // Of a service that moves from a session to its successor there are two for a moment.
    all.sort_by_key(|series| series.labels().map(|(_, text)| text.to_owned()));
    all.dedup_by_key(|series| series.labels().map(|(_, text)| text.to_owned()));
    let omitted = all.len().saturating_sub(SERVICES_MAX);
    all.truncate(SERVICES_MAX);
    let help = "Services that are not in these metrics, as there are too many.";
    page.single("tunnel_services_omitted", "gauge", help, omitted);
    let metric = |page: &mut Page, name: &str, kind: &str, help: &str, of: fn(&Service) -> u64| {
        page.metric(name, kind, help);
        for series in &all {
            page.value(name, &series.labels(), of(series.service));
        }
    };
    let is_up = |service: &Service| u64::from(service.state == UP);
    let help = if role == "server" { "1 if visitors reach it." } else { "1 if it is published." };
    metric(page, "tunnel_service_up", "gauge", help, is_up);
    metric(page, "tunnel_service_streams", "gauge", "Open streams.", |s| s.streams);
    let help = "Streams that were opened.";
    metric(page, "tunnel_service_streams_opened_total", "counter", help, |s| s.streams_total);
    let help = "Bytes from visitors towards the target.";
    metric(page, "tunnel_service_in_bytes_total", "counter", help, |s| s.bytes_in);
    let help = "Bytes from the target towards visitors.";
    metric(page, "tunnel_service_out_bytes_total", "counter", help, |s| s.bytes_out);
    let name = "tunnel_service_refused_total";
    page.metric(name, "counter", "Visitors and streams refused, failed dials included, by reason.");
    for series in &all {
        let labels = series.labels();
        for (reason, count) in &series.service.refused {
            let labels: Vec<_> = labels.iter().copied().chain([("reason", &**reason)]).collect();
            page.value(name, &labels, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::sample;

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

    #[test]
    fn the_dashboard_asks_for_nothing_that_is_not_told() {
        let dashboard = include_str!("../../../../examples/grafana/tunnel.json");
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
