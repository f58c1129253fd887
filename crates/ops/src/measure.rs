//! The results of `tunnel ping` and `tunnel speedtest`. Field names are an interface (`--json`):
//! fields are added, and none is removed.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::SendFuture;

/// The longest speed test per direction. By then any window has grown to its full size, and a
/// forgotten test does little harm.
pub const LONGEST: Duration = Duration::from_secs(60);

/// The longest timeout of a ping.
pub const PATIENCE_MAX: Duration = Duration::from_secs(10);

/// The result of a ping: one round trip over every link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ping {
    /// The name of the server. In the result of a server: `clients`.
    pub peer: String,
    /// Whether the tunnel works. For programs only; the text output shows the links.
    #[serde(skip)]
    pub ok: bool,
    /// The reason why the server is not reachable, or a note that no client is connected.
    pub trouble: Option<String>,
    /// The round trips by link.
    pub links: Vec<Pong>,
    /// The number of links that a server omitted in this query, because it has too many.
    pub omitted: usize,
}

/// The result for one link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pong {
    /// The number of the link, as in the status.
    pub link: u64,
    /// The name of the other side, as in the status.
    pub peer: String,
    /// The scheme of the carrier, such as `tls`.
    pub transport: String,
    /// The address of the far end of the carrier.
    pub address: String,
    /// The round trip in microseconds; `null` without an answer.
    pub micros: Option<u64>,
    /// The reason for a missing answer.
    pub error: Option<String>,
    /// Whether the other side refused the measurement, which shows that it is reachable.
    #[serde(skip)]
    pub refused: bool,
}

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

impl Direction {
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// The progress of a speed test.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    pub direction: Direction,
    /// The milliseconds since this direction began.
    pub elapsed_millis: u64,
    /// The duration of this direction in milliseconds.
    pub span_millis: u64,
    /// The payload bytes so far: sent into the tunnel in direction up, received in direction down.
    pub bytes: u64,
}

/// The outcome of a speed test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Speed {
    /// The name of the server.
    pub peer: String,
    /// The number of links that took part, each on a different worker.
    pub links: usize,
    /// The result in direction up.
    pub up: Flow,
    /// The result in direction down.
    pub down: Flow,
}

/// The result in one direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// The payload bytes that arrived.
    pub bytes: u64,
    /// Microseconds from the first received byte to the last; the longest of all streams.
    pub micros: u64,
    /// The rate: `bytes` within `micros`.
    pub bits_per_second: u64,
    /// The limit of the rate.
    pub limit: Limit,
    /// The busy time of the busiest worker of the client, in percent; `null` when the system does
    /// not report it.
    pub client_busy_percent: Option<u32>,
    /// The busy time of the busiest worker of the server, in percent; `null` when the system does
    /// not report it.
    pub server_busy_percent: Option<u32>,
}

/// The limit of a transfer's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The sender was blocked by credit most of the time.
    Window,
    /// A worker of either side had hardly any time left.
    Cpu,
    /// The sender was blocked by the carrier most of the time.
    Path,
    /// The sender was blocked by the memory budget most of the time.
    Memory,
    /// None of the limits applied for most of the time.
    Unclear,
}

impl Limit {
    /// A readable explanation.
    pub fn explain(self) -> &'static str {
        match self {
            Self::Window => "window (the sender was out of credit; window.max allows more)",
            Self::Cpu => "CPU (a worker had hardly any time left)",
            Self::Path => "path (the connection took no more)",
            Self::Memory => "memory (memory_budget of the sender)",
            Self::Unclear => "no single one",
        }
    }
}

/// The round trips of a daemon's links.
pub trait Meter: Send + Sync {
    /// Measures one round trip over every link, up to the limit of links per query. A link without
    /// an answer within `patience` has failed.
    fn ping(&self, patience: Duration) -> SendFuture<'_, Ping>;
}

/// The throughput of a client's links.
pub trait SpeedTest: Send + Sync {
    /// Tests the direction up, then the direction down, for `span` each. Progress is sent to `news`
    /// until the end. Dropping the future ends the test.
    ///
    /// # Errors
    /// The reason, as a readable line.
    fn run(
        &self,
        span: Duration,
        news: tokio::sync::mpsc::Sender<Progress>,
    ) -> SendFuture<'_, Result<Speed, String>>;
}
