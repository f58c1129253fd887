//! What a client with `choose: measured` knows of its network and of its paths.

use serde::{Deserialize, Serialize};

use super::printed::printed;

printed! {
    /// The network of this machine, as far as it is known by its default route.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct Network {
        /// The interface of the default route.
        pub interface: String,
        /// The address of the gateway; absent where the interface leads to one peer.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub gateway: Option<String>,
    }
}

printed! {
    /// What was measured of a path to the server on the present network. A figure is absent until
    /// it was measured.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct PathFigures {
        /// The path as in the log.
        pub path: String,
        /// Whether the links of the session are on the path.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub in_use: bool,
        /// Why the path is the chosen path; empty for the other paths.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub why: String,
        /// The seconds since anything was measured.
        pub age_seconds: u64 = age,
        /// The least and the smoothed round trip in microseconds.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub least_rtt_micros: Option<u64> = apart,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub rtt_micros: Option<u64> = apart,
        /// The lost packets of a million that this end sent.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub loss_millionths: Option<u64> = apart,
        /// The highest rates of the last transfers to and from the server.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub up_bytes_per_second: Option<u64> = apart,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub down_bytes_per_second: Option<u64> = apart,
        /// The seconds since the last transfer.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub goodput_age_seconds: Option<u64> = apart,
        /// The number of attempts to connect, and how many of them failed.
        pub attempts: u64 = apart,
        pub failures: u64 = apart,
        /// Why the last attempt failed; absent where it succeeded.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub last_error: Option<String>,
        /// Whether the path carried little in a trial in which another path carried much.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub policed: bool,
        /// The processor time of this end in nanoseconds for 1,024 bytes.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub cpu_nanos_per_kib: Option<u64> = apart,
    }
}
