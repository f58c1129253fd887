//! The figures, in the order of their page. A row declares a figure once: kind, name, help, and
//! what is read of its subject, whose labels are those of the series.

use super::by::{
    CARRIERS, CERTIFICATES, CERTIFICATES_OMITTED, CIPHERS, CLUSTER, DATAGRAMS, DROPPED, FLOWS,
    LOG_INS, MOVES, PEER_BYTES, PEER_LINKS, PEERS, PRIVATE_STREAMS, PROCESS, PROGRAM, REFUSALS,
    REFUSED_ADDRESSES, REQUEST_TIMES, REQUESTS, RESIDENT, ROUND_TRIPS, SERVERS, SERVICES,
    SERVICES_OMITTED, SOURCES, STUN, TARGETS, TCP, TRAFFIC, TRIALS, UDP_BUFFERS, View,
};
use super::value::{Buckets, Kind, Sample};
use crate::Role::{self, Client, Server};
use crate::status::{DaemonState, Link, LinkState, Requests, Service, ServiceState, Session};

use ToldBy::{Always, IfKnown, Only, OthersThan};

/// Which daemons have a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToldBy {
    /// All daemons, also without a series.
    Always,
    /// A daemon that knows a value.
    IfKnown,
    /// Daemons of this role.
    Only(Role),
    /// Daemons of all other roles.
    OthersThan(Role),
}

impl ToldBy {
    pub(super) fn is_told_by(self, role: Role) -> bool {
        match self {
            Self::Always | Self::IfKnown => true,
            Self::Only(own) => role == own,
            Self::OthersThan(other) => role != other,
        }
    }
}

/// The declaration of a figure.
#[derive(Debug)]
pub struct Figure {
    /// The name ends with the unit, or with the unit and `_total`.
    pub name: &'static str,
    /// The kind.
    pub kind: Kind,
    /// One sentence that explains the figure.
    pub help: &'static str,
    /// The names of the labels of each series.
    pub labels: &'static [&'static str],
    pub(super) told_by: ToldBy,
    pub(super) read: for<'a> fn(&View<'a>) -> Vec<Sample<'a>>,
}

/// Declares figures. A block names the subjects of its figures, and the daemons that tell them.
/// Values of equal labels are added up after `sum()`; elsewhere the first one counts. Each row has
/// the kind, the name, the help and the value of a figure:
///
/// ```text
/// PEERS.sum(), Always => {
///     Counter tunnel_link_resumes_total "Carriers that took over." |session| session.resumes;
/// }
/// ```
macro_rules! figures {
    ($($subjects:expr, $told_by:expr => {
        $($kind:ident $name:ident $help:literal $read:expr;)*
    })*) => {
        &[$($(Figure {
            name: stringify!($name),
            kind: Kind::$kind,
            help: $help,
            labels: &$subjects.labels,
            told_by: $told_by,
            read: |view| $subjects.read(view, $read),
        },)*)*]
    };
}

/// All figures.
pub static FIGURES: &[Figure] = figures! {
    PROGRAM, Always => {
        Gauge tunnel_build_info "What runs here, always 1." |_| 1;
    }
    PROCESS, Always => {
        Gauge tunnel_running "1, or 0 while it drains." |of| of.state == DaemonState::Running;
        Gauge tunnel_uptime_seconds "Time since the start." |of| of.uptime_seconds;
        Gauge tunnel_tasks "Tasks alive on the workers and beside them." |of| of.tasks;
        Gauge tunnel_memory_budget_bytes "What streams and buffers may take: memory_budget."
            |of| of.memory.budget_bytes;
        Gauge tunnel_memory_used_bytes
            "What streams, windows, replay and buffers take of the budget."
            |of| of.memory.used_bytes;
        Counter tunnel_memory_refused_total
            "Visitors and requests refused because the memory budget had too little left."
            |of| of.memory.refused;
        Gauge process_open_fds "Number of open file descriptors." |of| of.descriptors.open;
    }
    PROCESS, IfKnown => {
        Gauge process_max_fds "Maximum number of open file descriptors."
            |of| of.descriptors.limit;
    }
    RESIDENT, IfKnown => {
        Gauge process_resident_memory_bytes "Resident memory size in bytes." |bytes| *bytes;
    }
    UDP_BUFFERS, IfKnown => {
        Gauge tunnel_udp_buffer_bytes
            "Bytes that may wait in a UDP socket, as the system grants them." |bytes| *bytes;
    }
    LOG_INS, Always => {
        Counter tunnel_logins_total "Log-ins by their outcome." |count| *count;
    }
    PROCESS, Always => {
        Counter tunnel_log_lines_left_out_total
            "Log lines that were left out, because a client or strangers caused too many."
            |of| of.log_lines_left_out;
        Counter tunnel_request_log_lines_lost_total
            "Lines missing in the log of requests, because its file took none or was too slow."
            |of| of.request_log_lines_lost;
        Gauge tunnel_reload_failed "1 after a reload that changed nothing."
            |of| of.reload_error.is_some();
    }
    PEERS.sum(), Always => {
        Gauge tunnel_links "Links to the other side." |of| sum(of, |_| 1);
        Gauge tunnel_links_up "Links that carry streams."
            |of| sum(of, |link| u64::from(link.state == LinkState::Up));
        Gauge tunnel_link_streams "Open streams." |of| sum(of, |link| link.streams);
        Gauge tunnel_link_flows "Open flows of UDP." |of| sum(of, |link| link.flows);
        Gauge tunnel_link_retained_bytes
            "Bytes kept for replay until the other side has consumed them."
            |of| sum(of, |link| link.retained_bytes);
        Counter tunnel_link_resumes_total "Carriers that took over from one that had died."
            |of| of.resumes;
        Counter tunnel_link_received_bytes_total "Payload bytes that came over links."
            |of| of.bytes_received;
        Counter tunnel_link_sent_bytes_total "Payload bytes that went over links."
            |of| of.bytes_sent;
    }
    CARRIERS.sum(), Always => {
        Gauge tunnel_carriers "Live connections by transport." |_| 1;
    }
    ROUND_TRIPS, Always => {
        Gauge tunnel_carrier_rtt_seconds "Least round trip time of the present connections."
            |micros| seconds(*micros);
    }
    CIPHERS.sum(), Always => {
        Gauge tunnel_carrier_ciphers
            "Live connections with TLS by cipher suite and its library." |_| 1;
    }
    TRAFFIC.sum(), Always => {
        Counter tunnel_carrier_sent_segments_total
            "TCP segments with payload that connections sent, retransmitted ones included; of QUIC and KCP packets."
            |sent| sent.segments;
        Counter tunnel_carrier_retransmitted_segments_total
            "TCP segments sent again; of QUIC lost packets, of KCP packets sent again."
            |sent| sent.retransmitted_segments;
        Counter tunnel_carrier_retransmitted_bytes_total "Payload bytes sent again."
            |sent| sent.retransmitted_bytes;
        Counter tunnel_carrier_lost_packets_total "Packets of KCP that the path lost."
            |sent| sent.lost_packets;
        Counter tunnel_carrier_parity_packets_total
            "Packets of KCP with parity that connections sent." |sent| sent.parity_packets;
        Counter tunnel_carrier_recovered_packets_total
            "Packets of KCP that did not arrive and were rebuilt from parity."
            |sent| sent.recovered_packets;
    }
    TCP.sum(), Always => {
        Gauge tunnel_carrier_queue_bytes "Bytes that the kernel has not sent yet."
            |tcp| tcp.queue_bytes;
        Gauge tunnel_carrier_lost_segments
            "TCP segments on their way that seem to be lost." |tcp| tcp.lost_segments;
    }
    CLUSTER, IfKnown => {
        Gauge tunnel_cluster_member
            "1 while this node of a cluster is certainly a member." |of| of.member;
        Gauge tunnel_cluster_ready
            "1 while clients and visitors should be sent to this node." |of| of.ready;
        Gauge tunnel_cluster_nodes "Living nodes of the cluster, this node included."
            |of| of.nodes.len() as u64;
        Gauge tunnel_cluster_engine_silence_seconds "Time since the engine has answered."
            |of| of.engine_heard_seconds;
    }
    SERVERS, Only(Client) => {
        Gauge tunnel_server_in_charge
            "1 if the server has the services, 0 if it stands by." |of| !of.standby;
        Gauge tunnel_server_rtt_seconds
            "Mean of the round trips to the server, where the client measures them for the choice."
            |of| of.server.as_ref().and_then(|server| server.rtt_micros).map(seconds);
        Counter tunnel_server_takeovers_total
            "Times that the server got the services from another server."
            |of| of.server.as_ref().map(|server| server.takeovers);
    }
    MOVES, Only(Client) => {
        Counter tunnel_link_moves_total
            "Moves of links to another path, by reason; commanded: tunnel move." |count| *count;
    }
    PROCESS, Only(Client) => {
        Counter tunnel_network_changes_total
            "Changes of the addresses or routes of this machine, at which links look for a path."
            |of| of.network_changes;
    }
    PEER_LINKS, Only(Client) => {
        Gauge tunnel_peer_links "Links with other clients, by path." |on| on.links;
        Gauge tunnel_peer_rtt_seconds
            "Least round trip time of the present links with other clients, by path."
            |on| on.round_trip.map(seconds);
    }
    PROCESS, Only(Client) => {
        Gauge tunnel_peer_programs "Programs without a tunnel that visit by WebRTC."
            |of| of.peers.programs;
    }
    TRIALS, Only(Client) => {
        Counter tunnel_peer_trials_total
            "Trials of direct paths that have ended, by outcome." |count| *count;
    }
    PEER_BYTES, Only(Client) => {
        Counter tunnel_peer_received_bytes_total
            "Payload bytes that came over links with other clients, by path."
            |bytes| bytes.received;
        Counter tunnel_peer_sent_bytes_total
            "Payload bytes that went over links with other clients, by path."
            |bytes| bytes.sent;
    }
    PRIVATE_STREAMS, Only(Server) => {
        Counter tunnel_private_streams_total
            "Streams to private services, by outcome: joined, or why not." |count| *count;
    }
    STUN, Only(Server) => {
        Counter tunnel_stun_requests_total
            "Requests of STUN by outcome; dropped: too many of one source." |count| *count;
    }
    SERVICES_OMITTED, Always => {
        Gauge tunnel_services_omitted
            "Services that are not in these metrics, as there are too many." |count| *count;
    }
    SERVICES, Only(Server) => {
        Gauge tunnel_service_up "1 if visitors reach it." is_up;
    }
    SERVICES, OthersThan(Server) => {
        Gauge tunnel_service_up "1 if it is published." is_up;
    }
    SERVICES, Always => {
        Gauge tunnel_service_target_down
            "1 if the target refused the last visitor or check, or did not answer."
            |service| service.state == ServiceState::TargetDown;
    }
    REFUSED_ADDRESSES, Always => {
        Gauge tunnel_service_refused_addresses
            "Addresses of a service that are refused; absent without one." |count| *count;
    }
    PROCESS, Only(Server) => {
        Gauge tunnel_names_away "Names whose clients are away: their visitors get 502."
            |of| of.names_away_total;
        Gauge tunnel_clients_on_hold "Clients on hold: visitors of their names get 503."
            |of| of.holds.len() as u64;
    }
    SERVICES, Always => {
        Gauge tunnel_service_streams "Open streams." |service| service.streams;
        Counter tunnel_service_streams_opened_total "Streams that were opened."
            |service| service.streams_total;
        Counter tunnel_service_in_bytes_total "Bytes from visitors towards the target."
            |service| service.bytes_in;
        Counter tunnel_service_out_bytes_total "Bytes from the target towards visitors."
            |service| service.bytes_out;
        Counter tunnel_service_wrong_passwords_total
            "Wrong users and passwords that visitors of names gave." |service| service.wrong_passwords;
        Counter tunnel_service_failovers_total
            "Streams that another server or client was asked to serve after the first had not served them."
            |service| service.failovers;
    }
    REFUSALS, Always => {
        Counter tunnel_service_refused_total
            "Visitors, streams, flows and requests of HTTP refused, failed dials included, by reason."
            |count| *count;
    }
    REQUESTS, Always => {
        Counter tunnel_service_requests_total
            "Requests of HTTP whose answers have ended, by class of status." |count| *count;
    }
    REQUEST_TIMES, Always => {
        Histogram tunnel_service_first_byte_seconds
            "Time from the head of a request of HTTP to the head of its answer." buckets;
    }
    FLOWS, Always => {
        Gauge tunnel_service_flows "Open flows of UDP." |service| service.flows;
        Counter tunnel_service_flows_total "Flows of UDP that were opened."
            |service| service.flows_total;
        Counter tunnel_service_flows_roamed_total
            "Flows of UDP that went on with the socket of a former flow of their visitor."
            |service| service.flows_roamed;
    }
    DATAGRAMS, Always => {
        Counter tunnel_service_datagrams_total
            "Datagrams from visitors to the target (in) and back (out)." |count| *count;
    }
    DROPPED, Always => {
        Counter tunnel_service_datagrams_dropped_total
            "Datagrams dropped, by reason." |count| *count;
    }
    TARGETS, Always => {
        Gauge tunnel_target_up
            "1 if the target serves, as far as is known; a drained target has 1 unless it is down."
            |target| target.down.is_none();
    }
    TARGETS.sum(), Always => {
        Gauge tunnel_target_visitors "Open streams and flows." |target| target.visitors;
        Counter tunnel_target_visitors_total "Streams and flows."
            |target| target.visitors_total;
    }
    CERTIFICATES_OMITTED, Always => {
        Gauge tunnel_certificates_omitted
            "Certificates that are not in these metrics, as there are too many." |count| *count;
    }
    SOURCES, Always => {
        Gauge tunnel_certificate_expiry_seconds
            "When the certificate expires, in seconds since 1970."
            |certificate| certificate.expires_at;
    }
    CERTIFICATES, Always => {
        Gauge tunnel_certificate_error
            "1 if the host has no certificate, or the last order failed."
            |certificate| certificate.error.is_some() || certificate.source == "none";
    }
};

fn sum(session: &Session, of: fn(&Link) -> u64) -> u64 {
    session.links.iter().map(of).sum()
}

fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

fn is_up(service: &Service) -> bool {
    service.state.state().is_published()
}

fn buckets(requests: &Requests) -> Buckets {
    let mut all = requests.first_byte.clone();
    all.sort_by_key(|bucket| bucket.up_to_micros.unwrap_or(u64::MAX));
    let bounds = all.iter().filter_map(|bucket| bucket.up_to_micros).map(seconds).collect();
    let counts = all.iter().map(|bucket| bucket.count).collect();
    Buckets { bounds, counts, sum: seconds(requests.first_byte_micros) }
}
