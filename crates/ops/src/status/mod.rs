//! The status of a running daemon, for `tunnel status`. Field names are an interface (`--json`):
//! fields are added, and none is removed.

mod number;
mod render;
#[cfg(any(test, feature = "sample"))]
mod sample;
mod state;
mod supervised;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Role;
use crate::hold::Held;

pub use number::{NoStreamNumber, StreamKind, StreamNumber};
pub(crate) use render::tables;
pub use render::{Rates, render, render_left, render_streams};
#[cfg(any(test, feature = "sample"))]
pub use sample::{sample, sample_flows, sample_kcp, sample_requests};
pub use state::{
    ClientState, DaemonState, LinkState, PathState, ServiceState, SessionState, State,
    SupervisedState, TargetState, Told,
};
pub use supervised::{Restarted, Supervised};

pub use crate::term::{bytes, duration};

/// The status of a daemon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// `server`, `client`, `proxy` or `run`.
    pub role: Role,
    /// The client's name; empty for any other role.
    pub name: String,
    /// The version of the program.
    pub version: String,
    /// The process id.
    pub pid: u32,
    /// The seconds since the start.
    pub uptime_seconds: u64,
    /// The state of the daemon.
    #[serde(flatten)]
    pub state: Told<DaemonState>,
    /// The seconds until a draining daemon resets its remaining streams; absent in any other state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_seconds: Option<u64>,
    /// The reason why the last reload failed without a change; absent when it succeeded or there
    /// was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reload_error: Option<String>,
    /// The URLs at which a server listens for clients: `tls://0.0.0.0:7000`.
    pub listen: Vec<String>,
    /// On a server the pin of the certificate that it presents to clients, absent without TLS; on a
    /// client the pins that it trusts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<String>,
    /// The URLs at which a server listens for visitors of names: `http://0.0.0.0:80`,
    /// `tls://0.0.0.0:443`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub doors: Vec<String>,
    /// The default targets of `mux://` listeners. `address` is the URL of the listener.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub default_targets: Vec<Service>,
    /// The entries of a proxy, in the order of its configuration.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub proxies: Vec<Service>,
    /// The certificates of a server for `https://` names: of the published names, and of the names
    /// in configured certificates. In the order of the hosts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<Certificate>,
    /// The names of disconnected clients, at most [`AWAY_MAX`], ordered by client: a server answers
    /// their visitors with 502.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names_away: Vec<NameAway>,
    /// The number of all names of disconnected clients.
    #[serde(skip_serializing_if = "is_zero")]
    pub names_away_total: u64,
    /// The clients on hold, in the order of their names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<ClientHeld>,
    /// The URLs of the paths by which a client reaches its server.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<String>,
    /// The number of live tasks on all runtimes. A leak shows here first.
    pub tasks: u64,
    /// The memory of streams and their bytes.
    pub memory: Memory,
    /// The number of log-ins at a server, by outcome: `accepted`, or the reason of the refusal.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub logins: BTreeMap<String, u64>,
    /// The number of suppressed log lines, because a client or unauthenticated peers caused too
    /// many.
    #[serde(skip_serializing_if = "is_zero")]
    pub log_lines_left_out: u64,
    /// The number of lines that are missing in the log of requests, because its file was too slow
    /// or accepted no lines.
    #[serde(skip_serializing_if = "is_zero")]
    pub request_log_lines_lost: u64,
    /// The open descriptors; every visitor takes one.
    pub descriptors: Descriptors,
    /// The buffers of the UDP sockets of `quic://`; absent before there is such a socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp: Option<Udp>,
    /// The counters of links between clients.
    #[serde(skip_serializing_if = "Peers::is_empty")]
    pub peers: Peers,
    /// The sessions. A server has one per client process. A client has its current session first,
    /// then the sessions that are retiring.
    pub sessions: Vec<Session>,
    /// The daemons of `tunnel run`, in the order of their names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub daemons: Vec<Supervised>,
    /// The former processes that this process has replaced by an upgrade and that have not ended,
    /// newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub former: Vec<FormerProcess>,
}

/// A process of a daemon that runs until its streams end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FormerProcess {
    /// The process id.
    pub pid: u32,
    /// The version of its program.
    pub version: String,
    /// The seconds since the next process replaced it.
    pub seconds: u64,
    /// Its streams and flows.
    pub streams: u64,
    /// A readable text about the services and clients whose streams it waits for.
    pub waits_for: String,
    /// Whether it was asked to end, and resets its streams after `drain_timeout`.
    #[serde(skip_serializing_if = "is_false")]
    pub ending: bool,
}

/// The counters of links between clients, since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Peers {
    /// On a client, the attempts to find a direct path that it started and answered, by outcome:
    /// `direct`, or the name of the reason why there is no path.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub trials: BTreeMap<String, u64>,
    /// On a client, the payload bytes over links with other clients, by path: `relayed`, `direct`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub bytes: BTreeMap<String, PathBytes>,
    /// On a client, the number of programs without a tunnel that currently visit its private
    /// services over WebRTC.
    #[serde(skip_serializing_if = "is_zero")]
    pub programs: u64,
    /// On a server, the streams to private services by outcome: `joined`, or the name of the reason
    /// for the refusal.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub streams: BTreeMap<String, u64>,
    /// On a server, the STUN requests by outcome: `answered`, `dropped`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub stun: BTreeMap<String, u64>,
}

impl Peers {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Payload bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PathBytes {
    /// The received bytes.
    pub received: u64,
    /// The sent bytes.
    pub sent: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
const fn is_false(is: &bool) -> bool {
    !*is
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
const fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// The largest number of names in [`Status::names_away`].
pub const AWAY_MAX: usize = 1_000;

/// A name of a disconnected client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NameAway {
    /// The public address: `https://app.example.com`.
    pub address: String,
    /// The client.
    pub client: String,
    /// The seconds since the client disconnected.
    pub seconds: u64,
}

/// A client on hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientHeld {
    /// The client.
    pub client: String,
    /// Its hold.
    #[serde(flatten)]
    pub hold: Held,
}

/// The certificate of one host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Certificate {
    /// The host, or a wildcard of a configured certificate.
    pub host: String,
    /// `file`, `acme`, or `none`: visitors of the host are refused.
    pub source: String,
    /// The end of the certificate's validity, in seconds since 1970; absent without a certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
    /// The seconds until then; negative when the certificate has expired.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_seconds: Option<i64>,
    /// Why the last order failed, or why the host has no certificate and will not get one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The seconds until the next order after a failure; absent when no order follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_seconds: Option<u64>,
    /// The challenge that proved the host of an ordered certificate: `http-01`, `tls-alpn-01` or
    /// `dns-01`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub challenge: Option<String>,
    /// The time of the renewal, in seconds since 1970; absent for a certificate from a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renews_at: Option<u64>,
    /// The seconds until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renews_seconds: Option<u64>,
}

impl Certificate {
    /// Sets the remaining validity of the certificate, for the time `now` in seconds since 1970.
    pub fn expires(&mut self, at: Option<u64>, now: u64) {
        let left = |at: u64| i64::try_from(at).unwrap_or(i64::MAX).saturating_sub_unsigned(now);
        (self.expires_at, self.expires_seconds) = (at, at.map(left));
    }
}

/// All links between one client process and one server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Session {
    /// The name of the other side: the client's name on a server, the server's name on a client.
    pub peer: String,
    /// Whether the other side is a client, over a private service.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub private: bool,
    /// Whether the session has a link. The text of a failure is the last error.
    #[serde(flatten)]
    pub state: Told<SessionState>,
    /// The number of carriers that replaced a dead carrier.
    pub resumes: u64,
    /// The payload bytes received and sent over links since the session began. The newest session
    /// of a peer includes the bytes of the peer's earlier sessions.
    pub bytes_received: u64,
    pub bytes_sent: u64,
    /// The traffic of the carriers to this peer since the start, by transport. The values are
    /// summed at each status query: the traffic of a connection after the last query before its end
    /// is missing.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sent: BTreeMap<String, Sent>,
    /// The links, by worker.
    pub links: Vec<Link>,
    /// The published services.
    pub services: Vec<Service>,
    /// The forwards: local listeners of a client whose targets the server dials.
    pub forwards: Vec<Service>,
}

/// The buffer sizes of each UDP socket, as the system grants them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Udp {
    /// The size of the queue of received datagrams, in bytes; further datagrams are lost.
    pub receive_buffer_bytes: u64,
    /// The size of the queue of datagrams to send, in bytes.
    pub send_buffer_bytes: u64,
}

/// The memory budget of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// The budget in bytes (`memory_budget`).
    pub budget_bytes: u64,
    /// The bytes of the budget that streams, windows, replay and buffers use.
    pub used_bytes: u64,
    /// The number of visitors and requests that a server refused because too little of the budget
    /// was left.
    #[serde(skip_serializing_if = "is_zero")]
    pub refused: u64,
}

/// The descriptor table of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Descriptors {
    /// The number of open descriptors.
    pub open: u64,
    /// The limit of open descriptors; absent when nothing limits them.
    pub limit: Option<u64>,
    /// The number of additional visitors for whom descriptors are left. Some descriptors are
    /// reserved for links and commands.
    pub room: Option<u64>,
}

/// A link: one authenticated multiplexed connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Link {
    /// The number of the link in logs. It is not the link id.
    pub serial: u64,
    /// The index of the worker of the link.
    pub worker: usize,
    /// Whether the link accepts streams.
    #[serde(flatten)]
    pub state: Told<LinkState>,
    /// The path of a link with another client; absent on a link with a server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PeerPath>,
    /// The number of open streams.
    pub streams: u64,
    /// The number of open flows.
    #[serde(skip_serializing_if = "is_zero")]
    pub flows: u64,
    /// The numbers of received datagrams that the link dropped before they reached a flow, by
    /// reason: `early`, `late`, `unjoined`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub dropped: BTreeMap<String, u64>,
    /// The bytes that are kept for replay until the other side has consumed them.
    pub retained_bytes: u64,
    /// The live connections of the link.
    pub carriers: Vec<Carrier>,
}

/// The path of a link with another client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PeerPath {
    /// Whether the path leads through the server.
    #[serde(flatten)]
    pub state: Told<PathState>,
    /// The seconds since the link moved to this path.
    pub since_seconds: u64,
    /// The two ends of a direct path: the kind and the address of this end as the other client sees
    /// it, and of the other end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pair: Option<String>,
    /// The round-trip time of the last check of a direct path, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_micros: Option<u64>,
}

/// A carrier: one live connection of a link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Carrier {
    /// The number of the carrier, which grows within the link.
    pub number: u32,
    /// The scheme of the transport.
    pub transport: String,
    /// The present address of the far end. Over QUIC and KCP it changes when a client moves.
    pub peer: String,
    /// The minimum round-trip time of the link's active carrier, in microseconds; absent before the
    /// first measurement.
    pub rtt_micros: Option<u64>,
    /// The cipher suite of the TLS session: `TLS_AES_128_GCM_SHA256`; absent without TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cipher: Option<String>,
    /// The library that computes the cipher suite in this process: `aws-lc` or `ring`; absent
    /// without TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Whether the carrier is a standby, which carries no traffic.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub standby: bool,
    /// The figures of the TCP connection; absent when the kernel does not report them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<Tcp>,
    /// The figures of the QUIC connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quic: Option<Quic>,
    /// The figures of the KCP connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kcp: Option<Kcp>,
}

impl Carrier {
    /// The traffic since the connection began, from the kernel (TCP) or from this process (QUIC,
    /// KCP).
    pub fn sent(&self) -> Option<Sent> {
        self.tcp.map(Sent::from).or_else(|| self.driven())
    }

    /// The traffic of a connection that this process drives.
    pub fn driven(&self) -> Option<Sent> {
        self.quic.map(Sent::from).or_else(|| self.kcp.map(Sent::from))
    }
}

/// The figures of a KCP connection, which this process drives. Counters begin with the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Kcp {
    /// The number of packets sent, lost packets and parity included.
    pub sent_packets: u64,
    /// The number of sent packets that the path lost. The far end recovers some of them.
    pub lost_packets: u64,
    /// The number of sent packets whose content had been sent before.
    pub retransmitted_packets: u64,
    /// The number of sent packets with parity.
    pub parity_packets: u64,
    /// The number of lost packets of the far end that this end recovered by parity.
    pub recovered_packets: u64,
    /// The congestion window in bytes.
    pub window_bytes: u64,
    /// The largest UDP payload, in bytes, that the path is known to carry.
    pub mtu: u16,
    /// The smoothed round-trip time, in microseconds.
    pub rtt_micros: u64,
}

impl From<Kcp> for Sent {
    fn from(kcp: Kcp) -> Self {
        Self {
            segments: Some(kcp.sent_packets),
            retransmitted_segments: Some(kcp.retransmitted_packets),
            retransmitted_bytes: None,
            lost_packets: Some(kcp.lost_packets),
            parity_packets: Some(kcp.parity_packets),
            recovered_packets: Some(kcp.recovered_packets),
        }
    }
}

/// The figures of a QUIC connection, which this process drives. Counters begin with the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Quic {
    /// The number of packets sent, lost packets included.
    pub sent_packets: u64,
    /// The number of lost packets. Their content is retransmitted.
    pub lost_packets: u64,
    /// The bytes in lost packets.
    pub lost_bytes: u64,
    /// The congestion window in bytes.
    pub window_bytes: u64,
    /// The largest UDP payload, in bytes, that the path is known to carry.
    pub mtu: u16,
    /// The smoothed round-trip time, in microseconds.
    pub rtt_micros: u64,
}

/// Maps packets to segments. The content of each lost packet is retransmitted.
impl From<Quic> for Sent {
    fn from(quic: Quic) -> Self {
        Self {
            segments: Some(quic.sent_packets),
            retransmitted_segments: Some(quic.lost_packets),
            retransmitted_bytes: Some(quic.lost_bytes),
            ..Self::default()
        }
    }
}

/// The figures of a TCP connection from the kernel (`ss -ti`). Figures that an older kernel does
/// not report are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tcp {
    /// The number of segments with payload since the connection began, retransmissions included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_segments: Option<u64>,
    /// The number of retransmitted segments since the connection began. They are the part of
    /// `sent_segments` that was lost or seemed to be lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmitted_segments: Option<u64>,
    /// The payload bytes in retransmitted segments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmitted_bytes: Option<u64>,
    /// The number of segments in flight that are believed to be lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_segments: Option<u64>,
    /// The bytes that this process has written but the kernel has not sent yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_bytes: Option<u64>,
    /// The congestion window in segments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_segments: Option<u64>,
    /// The latest rate at which bytes arrived at the far end, in bytes per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// The kernel's smoothed round-trip time, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_micros: Option<u64>,
}

impl From<Tcp> for Sent {
    fn from(tcp: Tcp) -> Self {
        Self {
            segments: tcp.sent_segments,
            retransmitted_segments: tcp.retransmitted_segments,
            retransmitted_bytes: tcp.retransmitted_bytes,
            ..Self::default()
        }
    }
}

/// The traffic of a connection, or of several. For QUIC, packets count as segments and lost packets
/// as retransmitted segments. For KCP, packets count as segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sent {
    /// The number of segments with payload, retransmissions included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segments: Option<u64>,
    /// The number of retransmitted segments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmitted_segments: Option<u64>,
    /// The payload bytes in retransmitted segments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmitted_bytes: Option<u64>,
    /// The number of packets that the path lost; KCP alone counts them apart from retransmissions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_packets: Option<u64>,
    /// The number of sent packets with parity (KCP).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parity_packets: Option<u64>,
    /// The number of received packets that were recovered by parity (KCP).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovered_packets: Option<u64>,
}

/// A service, or a forward.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Service {
    /// The name of a service, or `ADDRESS -> TARGET` of a forward.
    pub name: String,
    /// The address at which visitors connect: `tcp://0.0.0.0:10022`. On a client, all published
    /// addresses of the service. A refused address of a service that requested several has an entry
    /// of its own after the others of the service, with the requested address.
    pub address: String,
    /// The target, as far as this side knows it.
    pub target: String,
    /// Whether visitors can reach the service. The text of a refusal is its reason.
    #[serde(flatten)]
    pub state: Told<ServiceState>,
    /// The number of open streams.
    pub streams: u64,
    /// The number of streams since the start.
    pub streams_total: u64,
    /// The number of open flows.
    #[serde(skip_serializing_if = "is_zero")]
    pub flows: u64,
    /// The number of flows since the start.
    #[serde(skip_serializing_if = "is_zero")]
    pub flows_total: u64,
    /// The bytes from visitors to the target since the start, of streams and of datagrams.
    pub bytes_in: u64,
    /// The bytes from the target to visitors since the start, of streams and of datagrams.
    pub bytes_out: u64,
    /// The datagrams from visitors to the target since the start.
    #[serde(skip_serializing_if = "is_zero")]
    pub datagrams_in: u64,
    /// The datagrams from the target to visitors since the start.
    #[serde(skip_serializing_if = "is_zero")]
    pub datagrams_out: u64,
    /// The numbers of datagrams dropped since the start, by reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub dropped: BTreeMap<String, u64>,
    /// The numbers of visitors, streams and flows refused since the start, by reason: `limit`,
    /// `denied`, `timeout` …, and [`VISITOR_DENIED`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, u64>,
    /// The requests of HTTP since the start, on a server; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<Requests>,
    /// The service or forward was added at run time, by `tunnel publish` or `tunnel forward`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub kept: bool,
    /// The configured entries of a client that the service or forward shadows. They are not in
    /// force until the shadowing entry is removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shadows: Vec<String>,
    /// The reason why the target is unhealthy; absent while the target is healthy or no visitor has
    /// needed it. Of several targets none is healthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down: Option<Down>,
    /// The targets of a service with several, on its client.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<ServiceTarget>,
}

/// One of several targets of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceTarget {
    /// The address that the client dials.
    pub target: String,
    /// Its share of the visitors. 0: it gets no new visitor.
    pub weight: u16,
    /// Whether it receives visitors.
    #[serde(flatten)]
    pub state: Told<TargetState>,
    /// The number of its open streams and flows.
    pub visitors: u64,
    /// The number of its streams and flows since the start.
    pub visitors_total: u64,
    /// The reason why it is unhealthy; absent while it is healthy or no visitor has needed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down: Option<Down>,
}

/// The HTTP requests of a service whose responses have ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Requests {
    /// Their numbers by status class: `2xx`, `4xx` … Classes without a request are absent.
    pub statuses: BTreeMap<String, u64>,
    /// Their numbers by the time from the request header to the response header. A request without
    /// a response has no time.
    pub first_byte: Vec<Bucket>,
    /// The sum of these times in microseconds.
    pub first_byte_micros: u64,
}

/// A bucket of a histogram of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bucket {
    /// The upper bound of the bucket in microseconds; absent in the last bucket, which has no
    /// bound. Shorter times are in the previous buckets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up_to_micros: Option<u64>,
    /// The number of times.
    pub count: u64,
}

impl Requests {
    fn add(&mut self, part: &Self) {
        for (class, count) in &part.statuses {
            *self.statuses.entry(class.clone()).or_default() += count;
        }
        self.first_byte_micros += part.first_byte_micros;
        for part in &part.first_byte {
            let same = |own: &&mut Bucket| own.up_to_micros == part.up_to_micros;
            match self.first_byte.iter_mut().find(same) {
                Some(own) => own.count += part.count,
                None => self.first_byte.push(*part),
            }
        }
    }
}

/// A target that is unhealthy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Down {
    /// The reason, as the end of a sentence about the target.
    pub reason: String,
    /// The far side does not allow the target.
    pub denied: bool,
    /// The seconds since the first failure.
    pub seconds: u64,
}

impl Sent {
    /// The counts of lost packets and of sent packets. TCP and QUIC retransmit the content of each
    /// lost packet, so they have no separate count.
    pub fn loss(&self) -> Option<(u64, u64)> {
        self.lost_packets.or(self.retransmitted_segments).zip(self.segments)
    }

    /// Adds the traffic of another session. A figure is absent only when both are absent.
    pub fn join(&mut self, other: Self) {
        let join = |sum: &mut Option<u64>, more: Option<u64>| {
            *sum = sum.map_or(more, |sum| Some(sum + more.unwrap_or(0)));
        };
        join(&mut self.segments, other.segments);
        join(&mut self.retransmitted_segments, other.retransmitted_segments);
        join(&mut self.retransmitted_bytes, other.retransmitted_bytes);
        join(&mut self.lost_packets, other.lost_packets);
        join(&mut self.parity_packets, other.parity_packets);
        join(&mut self.recovered_packets, other.recovered_packets);
    }
}

impl Session {
    /// Merges the states of the targets into the states of services and forwards.
    pub fn settle(&mut self) {
        self.services.iter_mut().chain(&mut self.forwards).for_each(Service::settle);
    }

    /// Adds bytes received, bytes sent, and resumes.
    pub fn add(&mut self, [received, sent, resumes]: [u64; 3]) {
        self.bytes_received += received;
        self.bytes_sent += sent;
        self.resumes += resumes;
    }
}

impl Service {
    /// Merges the state of the targets into the state of the service.
    pub fn settle(&mut self) {
        if let (Some(down), true) = (&self.down, self.state == ServiceState::Up) {
            let state = if down.denied { ServiceState::Denied } else { ServiceState::TargetDown };
            self.state = state.into();
        }
    }

    /// The service `seconds` later, if only time has passed.
    #[must_use]
    pub fn aged(mut self, seconds: u64) -> Self {
        let downs = self.targets.iter_mut().filter_map(|target| target.down.as_mut());
        for down in downs.chain(self.down.as_mut()) {
            down.seconds = down.seconds.saturating_add(seconds);
        }
        self
    }

    /// Whether it carries UDP, or carried it.
    pub fn carries_flows(&self) -> bool {
        self.flows_total > 0 || self.address.contains("udp://")
    }

    /// Adds the counters of the same service from elsewhere.
    pub fn add(&mut self, part: &Self) {
        self.down = self.down.take().or_else(|| part.down.clone());
        if let Some(part) = &part.requests {
            self.requests.get_or_insert_default().add(part);
        }
        self.streams += part.streams;
        self.streams_total += part.streams_total;
        self.flows += part.flows;
        self.flows_total += part.flows_total;
        self.bytes_in += part.bytes_in;
        self.bytes_out += part.bytes_out;
        self.datagrams_in += part.datagrams_in;
        self.datagrams_out += part.datagrams_out;
        for (own, part) in [(&mut self.refused, &part.refused), (&mut self.dropped, &part.dropped)]
        {
            for (reason, count) in part {
                *own.entry(reason.clone()).or_default() += count;
            }
        }
    }
}

/// An open stream or flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stream {
    /// The [`StreamNumber`]: `LINK/STREAM`, or `LINK/uFLOW`.
    pub id: String,
    /// `stream` or `flow`.
    pub kind: StreamKind,
    /// The name of the other side, as in [`Session`].
    pub peer: String,
    /// The name of the service, or the address of the forward; empty when the stream belongs to
    /// neither.
    pub service: String,
    /// The peer address of this side's socket, which belongs to a visitor or a target. Empty during
    /// the dial.
    pub socket: String,
    /// The bytes from the visitor to the target.
    pub bytes_in: u64,
    /// The bytes from the target to the visitor.
    pub bytes_out: u64,
}

/// A list of streams and flows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Streams {
    /// The number of matching streams and flows, which may exceed the length of the list.
    pub total: u64,
    pub list: Vec<Stream>,
}

/// The address of a private service.
pub const PRIVATE: &str = "private";

/// The reason of visitors whose address is not in `allow_from`, or is in `deny_from`.
pub const VISITOR_DENIED: &str = "visitor_denied";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_goes_there_and_back_and_unknown_fields_of_a_newer_daemon_are_skipped() {
        let mut value = serde_json::to_value(sample()).unwrap();
        value["later"] = 1.into();
        assert_eq!(serde_json::from_value::<Status>(value).unwrap(), sample());
    }

    #[test]
    fn the_parts_of_a_service_add_up() {
        let part = Service {
            flows: 1,
            flows_total: 2,
            datagrams_in: 3,
            datagrams_out: 4,
            dropped: BTreeMap::from([("queue".to_owned(), 5)]),
            ..Service::default()
        };
        let mut sum = part.clone();
        sum.add(&part);
        assert_eq!((sum.flows, sum.flows_total), (2, 4));
        assert_eq!((sum.datagrams_in, sum.datagrams_out), (6, 8));
        assert_eq!(sum.dropped, BTreeMap::from([("queue".to_owned(), 10)]));
        // Where there is no UDP, an earlier reader sees nothing new.
        let json = serde_json::to_string(&Service::default()).unwrap();
        assert!(!json.contains("flow") && !json.contains("dropped"), "{json}");
        let old = r#"{"id":"3/17"}"#;
        assert_eq!(serde_json::from_str::<Stream>(old).unwrap().kind, StreamKind::Stream);
    }
}
