//! The status of a running daemon, which `tunnel status` shows. Field names are an interface
//! (`--json`): fields are added, and none is removed.

mod render;
#[cfg(any(test, feature = "sample"))]
mod sample;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use render::{Rates, bytes, render, render_streams};
#[cfg(any(test, feature = "sample"))]
pub use sample::sample;

/// A daemon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// `server` or `client`.
    pub role: String,
    /// The client's name; empty for a server.
    pub name: String,
    /// Of the program.
    pub version: String,
    /// Of the process.
    pub pid: u32,
    /// Since the start.
    pub uptime_seconds: u64,
    /// `running`, `draining`, or what keeps it from running.
    pub state: String,
    /// Why the last reload changed nothing; absent when it was good, or there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reload_error: Option<String>,
    /// Where a server waits for clients: `tls://0.0.0.0:7000`.
    pub listen: Vec<String>,
    /// Tasks alive on all runtimes: what a leak shows first.
    pub tasks: u64,
    /// Of streams and their bytes.
    pub memory: Memory,
    /// Of a server, by outcome: `accepted`, or why not.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub logins: BTreeMap<String, u64>,
    /// Open files, of which every visitor is one.
    pub descriptors: Descriptors,
    /// Of the UDP sockets of `quic://`, once there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp: Option<Udp>,
    /// A server has one per client process, a client one per server.
    pub sessions: Vec<Session>,
}

/// All links of one client process with one server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Session {
    /// On a server the client's name, on a client the server's.
    pub peer: String,
    /// `up`, `connecting`, or the last error.
    pub state: String,
    /// Carriers that took over from one that had died.
    pub resumes: u64,
    /// Payload bytes over links since the session began.
    pub bytes_received: u64,
    pub bytes_sent: u64,
    /// What the kernel has sent over TCP connections, by transport, to this peer since the start.
    /// Added up when somebody looks: what a connection sent after the last look at it is missing.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sent: BTreeMap<String, Sent>,
    /// By worker.
    pub links: Vec<Link>,
    /// What is published.
    pub services: Vec<Service>,
    /// Local listeners of a client whose targets the server dials.
    pub forwards: Vec<Service>,
}

/// What may wait in each UDP socket, as the system grants it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Udp {
    /// What has arrived; more is lost.
    pub receive_buffer_bytes: u64,
    /// What is to leave.
    pub send_buffer_bytes: u64,
}

/// The memory budget of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// `memory_budget`.
    pub budget_bytes: u64,
    /// What streams, windows, replay and buffers take of it.
    pub used_bytes: u64,
}

/// The descriptor table of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Descriptors {
    /// In use.
    pub open: u64,
    /// How many there may be; absent where nothing limits them.
    pub limit: Option<u64>,
    /// How many more visitors find one: some are kept for links and commands.
    pub room: Option<u64>,
}

/// One authenticated mux.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Link {
    /// Number for logs; not the id.
    pub serial: u64,
    /// The worker it lives on.
    pub worker: usize,
    /// `up`, `stalled` while it has no carrier, or `going away`: it takes no new streams, another
    /// link does.
    pub state: String,
    /// Open at the moment.
    pub streams: u64,
    /// Kept for replay until the other side has consumed it.
    pub retained_bytes: u64,
    /// Its live connections.
    pub carriers: Vec<Carrier>,
}

/// One live connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Carrier {
    /// Growing within the link.
    pub number: u32,
    /// Scheme.
    pub transport: String,
    /// Address of the far end.
    pub peer: String,
    /// Smoothed round trip; absent before the first answer.
    pub rtt_micros: Option<u64>,
    /// How its TCP connection fares; absent where the kernel does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<Tcp>,
    /// How its QUIC connection fares.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quic: Option<Quic>,
}

impl Carrier {
    /// What was sent and lost, whoever counts it.
    pub fn sent(&self) -> Option<Tcp> {
        self.tcp.or_else(|| self.quic.map(Tcp::from))
    }
}

/// A QUIC connection as this process drives it. Counters begin with the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Quic {
    /// Packets, those that were lost included.
    pub sent_packets: u64,
    /// Of those, lost: what was in them is sent again.
    pub lost_packets: u64,
    /// Bytes in them.
    pub lost_bytes: u64,
    /// Congestion window.
    pub window_bytes: u64,
    /// Largest UDP payload that the path is known to take.
    pub mtu: u16,
    /// Smoothed round trip.
    pub rtt_micros: u64,
}

/// For what is told of connections of both kinds: packets are segments.
impl From<Quic> for Tcp {
    fn from(quic: Quic) -> Self {
        Self {
            sent_segments: Some(quic.sent_packets),
            retransmitted_segments: Some(quic.lost_packets),
            retransmitted_bytes: Some(quic.lost_bytes),
            ..Self::default()
        }
    }
}

/// A TCP connection as the kernel sees it (`ss -ti`); absent what an older one does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tcp {
    /// With payload, since it began, those that were sent again included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_segments: Option<u64>,
    /// Sent again, since it began: of `sent_segments` the share that was lost, or seemed to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmitted_segments: Option<u64>,
    /// Payload bytes in them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmitted_bytes: Option<u64>,
    /// On their way at the moment and believed to be lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_segments: Option<u64>,
    /// Written by this process and not sent yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_bytes: Option<u64>,
    /// Congestion window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_segments: Option<u64>,
    /// The newest rate at which bytes arrived at the far end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// Smoothed round trip of the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_micros: Option<u64>,
}

/// What the kernel has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sent {
    /// With payload, those that were sent again included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segments: Option<u64>,
    /// Sent again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmitted_segments: Option<u64>,
    /// Payload bytes in them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmitted_bytes: Option<u64>,
}

/// A service, or a forward.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Service {
    /// Its name; a forward has none.
    pub name: String,
    /// Where it is reached: `tcp://0.0.0.0:10022`.
    pub address: String,
    /// Where it leads, as far as this side knows.
    pub target: String,
    /// [`UP`], [`WAITING`], [`SUPERSEDED`], or why it is refused.
    pub state: String,
    /// Open at the moment.
    pub streams: u64,
    /// Since the start.
    pub streams_total: u64,
    /// Bytes from visitors towards the target since the start.
    pub bytes_in: u64,
    /// Bytes from the target towards visitors since the start.
    pub bytes_out: u64,
    /// Visitors and streams refused since the start, by reason: `limit`, `denied`, `timeout` …
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, u64>,
}

impl Sent {
    /// Adds what another session has sent.
    pub fn join(&mut self, other: Self) {
        let join = |sum: &mut Option<u64>, more: Option<u64>| {
            *sum = sum.map_or(more, |sum| Some(sum + more.unwrap_or(0)));
        };
        join(&mut self.segments, other.segments);
        join(&mut self.retransmitted_segments, other.retransmitted_segments);
        join(&mut self.retransmitted_bytes, other.retransmitted_bytes);
    }
}

impl Session {
    /// Adds received and sent bytes, and resumes.
    pub fn add(&mut self, [received, sent, resumes]: [u64; 3]) {
        self.bytes_received += received;
        self.bytes_sent += sent;
        self.resumes += resumes;
    }
}

impl Service {
    /// Adds what was counted elsewhere for the same one.
    pub fn add(&mut self, part: &Self) {
        self.streams += part.streams;
        self.streams_total += part.streams_total;
        self.bytes_in += part.bytes_in;
        self.bytes_out += part.bytes_out;
        for (reason, count) in &part.refused {
            *self.refused.entry(reason.clone()).or_default() += count;
        }
    }
}

/// One stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stream {
    /// `LINK/STREAM`: the serial of its link and its number there.
    pub id: String,
    /// The other side, as of [`Session`].
    pub peer: String,
    /// The service's name, or a forward's address; empty for what has neither.
    pub service: String,
    /// Whom this side's socket is connected to: a visitor or a target. Empty while it is dialled.
    pub socket: String,
    /// Bytes from the visitor towards the target.
    pub bytes_in: u64,
    /// Bytes from the target towards the visitor.
    pub bytes_out: u64,
}

/// Streams, as many as were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Streams {
    /// How many there are.
    pub total: u64,
    pub list: Vec<Stream>,
}

/// A service or forward that visitors reach.
pub const UP: &str = "up";

/// A service that no live link can carry, or whose registration is not answered yet.
pub const WAITING: &str = "waiting for the server";

/// A service of a client in whose place a newer process of the same name serves.
pub const SUPERSEDED: &str = "superseded";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_goes_there_and_back_and_unknown_fields_of_a_newer_daemon_are_skipped() {
        let mut value = serde_json::to_value(sample()).unwrap();
        value["later"] = 1.into();
        assert_eq!(serde_json::from_value::<Status>(value).unwrap(), sample());
    }
}
