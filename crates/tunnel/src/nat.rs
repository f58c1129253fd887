//! The output of `tunnel nat`, as text and as JSON.

use ops::Role;
use ops::command::ProbeNat;
use ops::nat::{NatReport, Network, RouterPort, StunServer, Udp};
use ops::term::{self, Column, Drawn, Screen, Sheet, Table, Waiting};

use crate::cli::NatArgs;
use crate::instances::find_role;

/// Queries the running client for the NATs and firewalls between it and other clients.
pub(crate) fn nat(args: &NatArgs) -> anyhow::Result<()> {
    let instance = find_role(&args.which, Role::Client).map_err(|error| {
        match &args.which.config {
            // The sockets, the ports of the server and the network are those of the running client.
            Some(file) => error.context(format!(
                "the client of this file does not run, and the running client asks (hint: tunnel \
                 client --config {})",
                file.display()
            )),
            None => error,
        }
    })?;
    let report = Waiting::during("measuring the network of the client", || {
        control::ask(&instance, ProbeNat {})
    })?;
    term::show(&report, args.json, |report| text(report, Screen::of_stdout(false)))
}

fn text(report: &NatReport, screen: Screen) -> Drawn {
    let mut sheet = Sheet::new(screen);
    sheet.line(match report.udp {
        Udp::Passes => "UDP passes",
        Udp::Blocked => {
            "UDP is blocked: no server answered; a firewall here, or in front of the servers, drops it"
        }
    });
    sheet.gap();
    let mut servers = Table::new(vec![
        Column::new("STUN SERVER").address(),
        Column::new("SEES THIS MACHINE AS").address(),
    ]);
    for server in &report.servers {
        servers.row([server.address.clone(), outer(server)]);
    }
    sheet.table(&servers);
    sheet.gap();
    let mut pairs = Vec::new();
    for (name, network) in [("IPv4", report.ipv4), ("IPv6", report.ipv6)] {
        if let Some(Network { mapping, filtering }) = network
            && report.answers_over(name)
        {
            pairs.push((format!("{name} NAT"), mapping.explain().to_owned()));
            pairs.push((format!("{name} filter"), filtering.explain().to_owned()));
        }
    }
    pairs.push(("port mapping".to_owned(), port(report.router.as_ref())));
    let own = if report.candidates.is_empty() {
        "none that a peer is told".to_owned()
    } else {
        report.candidates.join(", ")
    };
    pairs.push(("own addresses".to_owned(), own));
    sheet.pairs(&pairs);
    sheet.gap();
    let mut peers = Table::new(vec![Column::new("PEER").text(), Column::new("PATH")]);
    for expected in &report.peers {
        peers.row([expected.peer.explain().to_owned(), expected.path.explain().to_owned()]);
    }
    sheet.table(&peers);
    sheet.finish()
}

/// Whether the router maps a port to this machine.
fn port(router: Option<&RouterPort>) -> String {
    match router {
        None => "the router was not asked: `p2p.candidates` is without `mapped`".to_owned(),
        Some(RouterPort { protocol: Some(protocol), outer: Some(outer), .. }) => {
            format!("the router opens ports by {protocol} ({outer})")
        }
        Some(RouterPort { error, .. }) => {
            format!("none: {}", error.as_deref().unwrap_or("the router did not answer in time"))
        }
    }
}

fn outer(server: &StunServer) -> String {
    match (&server.outer, &server.error) {
        (Some(outer), _) => outer.clone(),
        (None, Some(why)) => format!("no answer: {why}"),
        (None, None) => "no answer".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use ops::nat::{Expected, Filtering, Mapping, Path, Peer};

    use super::*;

    fn report() -> NatReport {
        let server = |address: &str, outer: Option<&str>| StunServer {
            address: address.to_owned(),
            outer: outer.map(str::to_owned),
            error: None,
        };
        let paths = [Path::Direct, Path::Direct, Path::Relayed, Path::Relayed];
        NatReport {
            peer: "example.com".to_owned(),
            udp: Udp::Passes,
            servers: vec![
                server("192.0.2.2:7000", Some("203.0.113.9:41234")),
                server("192.0.2.2:3478", Some("203.0.113.9:41234")),
                server("[2001:db8::2]:7000", None),
            ],
            ipv4: Some(Network { mapping: Mapping::Same, filtering: Filtering::AddressAndPort }),
            ipv6: Some(Network { mapping: Mapping::Unknown, filtering: Filtering::Unknown }),
            router: Some(RouterPort {
                protocol: Some("NAT-PMP".to_owned()),
                outer: Some("203.0.113.9:41234".to_owned()),
                error: None,
            }),
            candidates: vec![
                "192.168.1.5:41234".to_owned(),
                "[2001:db8:1:2:3:4:5:6]:41234".to_owned(),
                "[fd00:1234:5678:9abc::1]:41234".to_owned(),
            ],
            peers: Peer::ALL
                .into_iter()
                .zip(paths)
                .map(|(peer, path)| Expected { peer, path })
                .collect(),
        }
    }

    #[test]
    fn the_report_fits_eighty_columns() {
        let drawn = text(&report(), Screen::narrow(80));
        let expected = "\
UDP passes

STUN SERVER         SEES THIS MACHINE AS
192.0.2.2:7000      203.0.113.9:41234
192.0.2.2:3478      203.0.113.9:41234
[2001:db8::2]:7000  no answer

IPv4 NAT       the same outer address towards all (plain NAT)
IPv4 filter    only datagrams of ports that were sent to arrive
port mapping   the router opens ports by NAT-PMP (203.0.113.9:41234)
own addresses  192.168.1.5:41234, [2001:db8:1:2:3:4:5:6]:41234,
               [fd00:1234:5678:9abc::1]:41234

PEER                                          PATH
open: no NAT, or a NAT that admits everybody  direct
plain NAT, as of most homes                   direct
symmetric NAT                                 relayed by the server
UDP blocked                                   relayed by the server
";
        assert_eq!(drawn.as_str(), expected);
    }

    #[test]
    fn a_router_that_opens_no_port_is_said_with_the_reason() {
        let said = |router: Option<RouterPort>| {
            let drawn = text(&NatReport { router, ..report() }, Screen::narrow(80));
            assert!(drawn.as_str().lines().all(|line| line.chars().count() <= 80), "{drawn:?}");
            let mut lines = drawn.as_str().lines();
            lines.find_map(|line| line.strip_prefix("port mapping   ").map(str::to_owned))
        };
        let not_asked = "the router was not asked: `p2p.candidates` is without `mapped`";
        assert_eq!(said(None).as_deref(), Some(not_asked));
        let why =
            |error: &str| Some(RouterPort { error: Some(error.into()), ..Default::default() });
        let silent = "the router answers neither PCP, NAT-PMP nor UPnP";
        assert_eq!(said(why(silent)), Some(format!("none: {silent}")));
        let late = said(Some(RouterPort::default()));
        assert_eq!(late.as_deref(), Some("none: the router did not answer in time"));
    }

    #[test]
    fn blocked_udp_is_said_with_the_reason_of_the_system() {
        let mut report = report();
        report.udp = Udp::Blocked;
        for server in &mut report.servers {
            server.outer = None;
            server.error = Some("network unreachable".to_owned());
        }
        report.candidates.clear();
        let drawn = text(&report, Screen::narrow(80));
        assert!(drawn.as_str().starts_with("UDP is blocked: no server answered;"), "{drawn:?}");
        assert!(drawn.as_str().contains("192.0.2.2:3478      no answer: network unreachable"));
        assert!(!drawn.as_str().contains("IPv4 NAT"), "nothing is known of it");
        assert!(drawn.as_str().contains("own addresses  none that a peer is told"));
        assert!(drawn.as_str().lines().all(|line| line.chars().count() <= 80));
    }
}
