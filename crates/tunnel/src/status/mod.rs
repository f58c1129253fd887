//! What a running daemon tells about itself: the answer of `tunnel status`. Field names are an
//! interface (`--json`): they only grow.

mod render;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use config::edit::Operation;
use serde::{Deserialize, Serialize};

use crate::enroll::{Opened, Order};
use crate::measure::Meter;
use crate::reload::Reloaded;
use crate::shown::{self, Shown};

pub(crate) use render::{Rates, bytes, render, render_streams};

/// Who has no clients.
const NOT_A_SERVER: &str = "this is a client; clients are let in where `tunnel server` runs";

/// A future that may be sent; the control socket runs beside the workers.
pub(crate) type SendFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Whoever can say how things are.
pub(crate) trait StatusSource: Send + Sync {
    /// Whether all workers answer within `limit`.
    fn alive(&self, _limit: Duration) -> SendFuture<'_, bool> {
        Box::pin(std::future::ready(true))
    }

    /// Asks the workers. The caller sets a deadline.
    fn status(&self) -> SendFuture<'_, Status>;

    /// At most `limit` of its streams, of one service if it is named.
    fn streams(&self, _service: Option<String>, _limit: usize) -> SendFuture<'_, Streams> {
        Box::pin(std::future::ready(Streams::default()))
    }

    /// Resets a stream on both sides. False: no stream has this number.
    fn kill(&self, _link: u64, _stream: u32) -> SendFuture<'_, bool> {
        Box::pin(std::future::ready(false))
    }

    /// Reads the configuration again and applies what has changed. The error says what is wrong;
    /// nothing has changed then.
    fn reload(&self) -> SendFuture<'_, anyhow::Result<Reloaded>> {
        Box::pin(async { anyhow::bail!("its configuration is read at its start only: restart it") })
    }

    /// The configuration's file.
    fn configuration(&self) -> anyhow::Result<Shown> {
        anyhow::bail!(shown::NONE)
    }

    /// Changes the configuration's file and puts it in force. After an error neither has changed.
    fn amend(&self, _operations: Vec<Operation>) -> SendFuture<'_, anyhow::Result<Reloaded>> {
        Box::pin(async { anyhow::bail!(shown::NONE) })
    }

    /// A code by which a new client comes in.
    fn enroll(&self, _order: Order) -> SendFuture<'_, anyhow::Result<Opened>> {
        Box::pin(async { anyhow::bail!(NOT_A_SERVER) })
    }

    /// Puts a client out that came in by a code. Says whether there was one.
    fn revoke(&self, _name: String) -> SendFuture<'_, anyhow::Result<bool>> {
        Box::pin(async { anyhow::bail!(NOT_A_SERVER) })
    }

    /// Whoever can measure its links.
    fn meter(&self) -> Option<&dyn Meter> {
        None
    }
}

/// A daemon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    /// `server` or `client`.
    pub(crate) role: String,
    /// The client's name; empty for a server.
    pub(crate) name: String,
    /// Of the program.
    pub(crate) version: String,
    /// Of the process.
    pub(crate) pid: u32,
    /// Since the start.
    pub(crate) uptime_seconds: u64,
    /// `running`, `draining`, or what keeps it from running.
    pub(crate) state: String,
    /// Why the last reload changed nothing; absent when it was good, or there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reload_error: Option<String>,
    /// Where a server waits for clients: `tls://0.0.0.0:7000`.
    pub(crate) listen: Vec<String>,
    /// Tasks alive on all runtimes: what a leak shows first.
    pub(crate) tasks: u64,
    /// Of streams and their bytes.
    pub(crate) memory: Memory,
    /// Of a server, by outcome: `accepted`, or why not.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) logins: BTreeMap<String, u64>,
    /// Open files, of which every visitor is one.
    pub(crate) descriptors: Descriptors,
    /// Of the UDP sockets of `quic://`, once there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) udp: Option<Udp>,
    /// A server has one per client process, a client one per server.
    pub(crate) sessions: Vec<Session>,
}

/// All links of one client process with one server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Session {
    /// On a server the client's name, on a client the server's.
    pub(crate) peer: String,
    /// `up`, `connecting`, or the last error.
    pub(crate) state: String,
    /// Carriers that took over from one that had died.
    pub(crate) resumes: u64,
    /// Payload bytes over links since the session began.
    pub(crate) bytes_received: u64,
    pub(crate) bytes_sent: u64,
    /// What the kernel has sent over TCP connections, by transport, to this peer since the start. Added up
    /// when somebody looks: what a connection sent after the last look at it is missing.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) sent: BTreeMap<String, Sent>,
    /// By worker.
    pub(crate) links: Vec<Link>,
    /// What is published.
    pub(crate) services: Vec<Service>,
    /// Local listeners of a client whose targets the server dials.
    pub(crate) forwards: Vec<Service>,
}

/// What may wait in each UDP socket, as the system grants it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Udp {
    /// What has arrived; more is lost.
    pub(crate) receive_buffer_bytes: u64,
    /// What is to leave.
    pub(crate) send_buffer_bytes: u64,
}

/// The memory budget of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Memory {
    /// `memory_budget`.
    pub(crate) budget_bytes: u64,
    /// What streams, windows, replay and buffers take of it.
    pub(crate) used_bytes: u64,
}

/// The descriptor table of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Descriptors {
    /// In use.
    pub(crate) open: u64,
    /// How many there may be; absent where nothing limits them.
    pub(crate) limit: Option<u64>,
    /// How many more visitors find one: some are kept for links and commands.
    pub(crate) room: Option<u64>,
}

/// One authenticated mux.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Link {
    /// Number for logs; not the id.
    pub(crate) serial: u64,
    /// The worker it lives on.
    pub(crate) worker: usize,
    /// `up`, `stalled` while it has no carrier, or `going away`: it takes no new streams, another
    /// link does.
    pub(crate) state: String,
    /// Open at the moment.
    pub(crate) streams: u64,
    /// Kept for replay until the other side has consumed it.
    pub(crate) retained_bytes: u64,
    /// Its live connections.
    pub(crate) carriers: Vec<Carrier>,
}

/// One live connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Carrier {
    /// Growing within the link.
    pub(crate) number: u32,
    /// Scheme.
    pub(crate) transport: String,
    /// Address of the far end.
    pub(crate) peer: String,
    /// Smoothed round trip; absent before the first answer.
    pub(crate) rtt_micros: Option<u64>,
    /// How its TCP connection fares; absent where the kernel does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tcp: Option<Tcp>,
    /// How its QUIC connection fares.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) quic: Option<Quic>,
}

impl Carrier {
    /// What was sent and lost, whoever counts it.
    pub(crate) fn sent(&self) -> Option<Tcp> {
        self.tcp.or_else(|| self.quic.map(Tcp::from))
    }
}

/// A QUIC connection as this process drives it. Counters begin with the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Quic {
    /// Packets, those that were lost included.
    pub(crate) sent_packets: u64,
    /// Of those, lost: what was in them is sent again.
    pub(crate) lost_packets: u64,
    /// Bytes in them.
    pub(crate) lost_bytes: u64,
    /// Congestion window.
    pub(crate) window_bytes: u64,
    /// Largest UDP payload that the path is known to take.
    pub(crate) mtu: u16,
    /// Smoothed round trip.
    pub(crate) rtt_micros: u64,
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
pub(crate) struct Tcp {
    /// With payload, since it began, those that were sent again included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sent_segments: Option<u64>,
    /// Sent again, since it began: of `sent_segments` the share that was lost, or seemed to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retransmitted_segments: Option<u64>,
    /// Payload bytes in them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retransmitted_bytes: Option<u64>,
    /// On their way at the moment and believed to be lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lost_segments: Option<u64>,
    /// Written by this process and not sent yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queue_bytes: Option<u64>,
    /// Congestion window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) window_segments: Option<u64>,
    /// The newest rate at which bytes arrived at the far end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bytes_per_second: Option<u64>,
    /// Smoothed round trip of the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rtt_micros: Option<u64>,
}

/// What the kernel has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Sent {
    /// With payload, those that were sent again included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) segments: Option<u64>,
    /// Sent again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retransmitted_segments: Option<u64>,
    /// Payload bytes in them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retransmitted_bytes: Option<u64>,
}

/// A service, or a forward.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Service {
    /// Its name; a forward has none.
    pub(crate) name: String,
    /// Where it is reached: `tcp://0.0.0.0:10022`.
    pub(crate) address: String,
    /// Where it leads, as far as this side knows.
    pub(crate) target: String,
    /// [`UP`], [`WAITING`], [`SUPERSEDED`], or why it is refused.
    pub(crate) state: String,
    /// Open at the moment.
    pub(crate) streams: u64,
    /// Since the start.
    pub(crate) streams_total: u64,
    /// Bytes from visitors towards the target since the start.
    pub(crate) bytes_in: u64,
    /// Bytes from the target towards visitors since the start.
    pub(crate) bytes_out: u64,
    /// Visitors and streams refused since the start, by reason: `limit`, `denied`, `timeout` …
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) refused: BTreeMap<String, u64>,
}

impl Sent {
    /// Adds what another session has sent.
    pub(crate) fn join(&mut self, other: Self) {
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
    pub(crate) fn add(&mut self, [received, sent, resumes]: [u64; 3]) {
        self.bytes_received += received;
        self.bytes_sent += sent;
        self.resumes += resumes;
    }
}

impl Service {
    /// Adds what was counted elsewhere for the same one.
    pub(crate) fn add(&mut self, part: &Self) {
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
pub(crate) struct Stream {
    /// `LINK/STREAM`: the serial of its link and its number there.
    pub(crate) id: String,
    /// The other side, as of [`Session`].
    pub(crate) peer: String,
    /// The service's name, or a forward's address; empty for what has neither.
    pub(crate) service: String,
    /// Whom this side's socket is connected to: a visitor or a target. Empty while it is dialled.
    pub(crate) socket: String,
    /// Bytes from the visitor towards the target.
    pub(crate) bytes_in: u64,
    /// Bytes from the target towards the visitor.
    pub(crate) bytes_out: u64,
}

/// Streams, as many as were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Streams {
    /// How many there are.
    pub(crate) total: u64,
    pub(crate) list: Vec<Stream>,
}

/// A service or forward that visitors reach.
pub(crate) const UP: &str = "up";

/// A service that no live link can carry, or whose registration is not answered yet.
pub(crate) const WAITING: &str = "waiting for the server";

/// A service of a client in whose place a newer process of the same name serves.
pub(crate) const SUPERSEDED: &str = "superseded";

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn sample() -> Status {
        let tcp = Tcp {
            sent_segments: Some(2_000),
            retransmitted_segments: Some(25),
            retransmitted_bytes: Some(36_200),
            queue_bytes: Some(20_480),
            ..Tcp::default()
        };
        let sent = Sent {
            segments: Some(9_000),
            retransmitted_segments: Some(30),
            retransmitted_bytes: Some(43_440),
        };
        let carrier = Carrier {
            number: 2,
            transport: "tls".into(),
            peer: "192.0.2.7:40000".into(),
            rtt_micros: Some(12_345),
            tcp: Some(tcp),
            quic: None,
        };
        let service = Service {
            name: "ssh".into(),
            address: "tcp://0.0.0.0:10022".into(),
            state: "up".into(),
            streams: 1,
            streams_total: 20,
            bytes_in: 1536,
            bytes_out: 3 << 30,
            ..Service::default()
        };
        Status {
            role: "server".into(),
            version: "0.1.0".into(),
            pid: 42,
            uptime_seconds: 3_700,
            state: "running".into(),
            listen: vec!["tls://0.0.0.0:7000".into()],
            memory: Memory { budget_bytes: 3 << 30, used_bytes: 1536 },
            descriptors: Descriptors { open: 24, limit: Some(1024), room: Some(936) },
            udp: Some(Udp { receive_buffer_bytes: 4 << 20, send_buffer_bytes: 2 << 20 }),
            sessions: vec![Session {
                peer: "home".into(),
                state: "up".into(),
                links: vec![
                    Link {
                        serial: 7,
                        state: "up".into(),
                        streams: 1,
                        retained_bytes: 0,
                        carriers: vec![carrier],
                        worker: 1,
                    },
                    Link { serial: 8, state: "stalled".into(), ..Link::default() },
                ],
                services: vec![service],
                sent: BTreeMap::from([("tls".into(), sent)]),
                ..Session::default()
            }],
            ..Status::default()
        }
    }

    #[test]
    fn json_goes_there_and_back_and_unknown_fields_of_a_newer_daemon_are_skipped() {
        let mut value = serde_json::to_value(sample()).unwrap();
        value["later"] = 1.into();
        assert_eq!(serde_json::from_value::<Status>(value).unwrap(), sample());
    }
}
