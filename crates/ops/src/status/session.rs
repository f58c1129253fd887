//! All links between one client process and one server, and what they carry.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::carrier::{Carrier, Sent};
use super::measured::PathFigures;
use super::printed::printed;
use super::service::Service;
use super::skip::is_zero;
use super::state::{LinkState, PathState, SessionState, Told};

printed! {
    /// All links between one client process and one server.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct Session {
        /// The name of the other side: the client's name on a server, the server's name on a
        /// client.
        pub peer: String,
        /// Whether the other side is a client, over a private service.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub private: bool,
        /// Whether the server stands by, on a client and on the server itself: the client is logged
        /// in, and another server has the services.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub standby: bool,
        /// Why the server has the services of the client, or why it stands by. Empty where the
        /// client has one server, or publishes at every server.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub why: String,
        /// The figures of the server, on a client.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub server: Option<ServerFigures> = apart,
        /// Whether the session has a link. The text of a failure is the last error.
        #[serde(flatten)]
        pub state: Told<SessionState>,
        /// The number of carriers that replaced a dead carrier.
        pub resumes: u64,
        /// The payload bytes received and sent over links since the session began. The newest
        /// session of a peer includes the bytes of the peer's earlier sessions.
        pub bytes_received: u64,
        pub bytes_sent: u64,
        /// The traffic of the carriers to this peer since the start, by transport. The values are
        /// summed at each status query: the traffic of a connection after the last query before its
        /// end is missing.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub sent: BTreeMap<String, Sent> = apart,
        /// The links, by worker.
        pub links: Vec<Link>,
        /// What was measured of the paths to the server on this network, in the order of the
        /// configuration; empty without `choose: measured`.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub paths: Vec<PathFigures>,
        /// The published services.
        pub services: Vec<Service>,
        /// The forwards: local listeners of a client whose targets the server dials.
        pub forwards: Vec<Service>,
    }
}

/// What a client counts about one of its servers, since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerFigures {
    /// The mean of the measured round-trip times to the server, in microseconds. Absent where the
    /// client measures none: it has one server, or publishes at every server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_micros: Option<u64>,
    /// The number of times that the server got the services from another server.
    pub takeovers: u64,
    /// The moves of links to another path, by reason: `commanded`, `failed` …
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub moves: BTreeMap<String, u64>,
}

printed! {
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
        pub retained_bytes: u64 = apart,
        /// The live connections of the link.
        pub carriers: Vec<Carrier>,
    }
}

printed! {
    /// The path of a link with another client.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    pub struct PeerPath {
        /// Whether the path leads through the server.
        #[serde(flatten)]
        pub state: Told<PathState>,
        /// The seconds since the link moved to this path.
        pub since_seconds: u64 = age,
        /// The two ends of a direct path: the kind and the address of this end as the other client
        /// sees it, and of the other end.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub pair: Option<String>,
        /// The round-trip time of the last check of a direct path, in microseconds.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub rtt_micros: Option<u64> = rough,
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
