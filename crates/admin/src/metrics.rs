//! The metrics of a daemon: the figures of its status, which `ops` declares, and the memory of this
//! process. `page` writes them for Prometheus, and `otlp` pushes them.

use ops::figures::{self, Metric};
use ops::status::Status;

/// All metrics of a status.
pub(crate) fn list(status: &Status) -> Vec<Metric<'_>> {
    figures::list(status, resident_bytes())
}

/// The resident memory of this process, in bytes.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * u64::try_from(rustix::param::page_size()).ok()?)
}

#[cfg(test)]
mod tests {
    use ops::Role;
    use ops::figures::SERVICES_MAX;
    use ops::status::{
        Certificate, Link, PathBytes, PathState, PeerPath, Service, ServiceState, ServiceTarget,
        Session, Told, sample, sample_flows, sample_kcp, sample_requests,
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
