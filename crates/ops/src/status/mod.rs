//! The status of a running daemon, for `tunnel status`. Field names are an interface (`--json`):
//! fields are added, and none is removed.

mod carrier;
mod cluster;
mod measured;
mod number;
mod printed;
mod render;
#[cfg(any(test, feature = "sample"))]
mod sample;
mod service;
mod session;
mod skip;
mod state;
mod supervised;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use skip::is_zero;

use crate::Role;
use crate::hold::Held;

pub use carrier::{Carrier, Kcp, Quic, Sent, Tcp};
pub use cluster::{Cluster, ClusterNode};
pub use measured::{Network, PathFigures};
pub use number::{NoStreamNumber, StreamKind, StreamNumber};
pub(crate) use render::tables;
pub use render::{Rates, render, render_cluster, render_left, render_streams, render_why};
#[cfg(any(test, feature = "sample"))]
pub use sample::{sample, sample_flows, sample_kcp, sample_requests};
pub use service::{Bucket, Down, PRIVATE, Requests, Service, ServiceTarget, VISITOR_DENIED};
pub use session::{Link, PeerPath, ServerFigures, Session};
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
    /// The cluster of which a server is a node; absent on a server that is alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Cluster>,
    /// The URLs of the paths by which a client reaches its server.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<String>,
    /// The network of this machine, on a client with `choose: measured`; absent while it is not
    /// known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
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
    /// The number of changes of the network of this machine, on a client: other addresses or
    /// routes.
    #[serde(skip_serializing_if = "is_zero")]
    pub network_changes: u64,
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
    #[serde(skip_serializing_if = "std::ops::Not::not")]
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
