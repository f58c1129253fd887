//! The results of `tunnel ping` and `tunnel speedtest`. Field names are an interface (`--json`):
//! fields are added, and none is removed.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::daemon::SendFuture;

/// Longest speed test in each direction: long enough for any window to have grown, short enough
/// that a forgotten one harms nobody.
pub const LONGEST: Duration = Duration::from_secs(60);

/// Longest that a ping may be waited for.
pub const PATIENCE_MAX: Duration = Duration::from_secs(10);

/// One round trip over every link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ping {
    /// The server; of a server `clients`.
    pub peer: String,
    /// Whether there is a way through; not for a person, who sees the links.
    #[serde(skip)]
    pub ok: bool,
    /// Why nobody is reached, if so.
    pub trouble: Option<String>,
    /// By link.
    pub links: Vec<Pong>,
    /// Links of a server that were not asked over this time, since there are so many.
    pub omitted: usize,
}

/// A round trip, or none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pong {
    /// Number of the link, as in a status.
    pub link: u64,
    /// The other side, as in a status.
    pub peer: String,
    /// `tls`.
    pub transport: String,
    /// The far end of its connection.
    pub address: String,
    /// The round trip; `null` when nothing came back.
    pub micros: Option<u64>,
    /// Why nothing came back.
    pub error: Option<String>,
    /// The other side said that it will not: it is there.
    #[serde(skip)]
    pub refused: bool,
}

/// Which way bytes go.
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

/// How far a speed test is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    pub direction: Direction,
    /// Since this direction began.
    pub elapsed_millis: u64,
    /// How long this direction takes.
    pub span_millis: u64,
    /// So far: sent into the tunnel going up, received going down.
    pub bytes: u64,
}

/// The outcome of a speed test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Speed {
    /// The server.
    pub peer: String,
    /// Links that took part, on as many workers.
    pub links: usize,
    /// To the server.
    pub up: Flow,
    /// From the server.
    pub down: Flow,
}

/// One direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Payload that arrived.
    pub bytes: u64,
    /// From the first byte that arrived to the last.
    pub micros: u64,
    /// Both as a rate.
    pub bits_per_second: u64,
    /// What kept it from being more.
    pub limit: Limit,
    /// Of the busiest worker here; `null` where the system does not tell.
    pub client_busy_percent: Option<u32>,
    /// Of the busiest worker there.
    pub server_busy_percent: Option<u32>,
}

/// What kept a transfer from being faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The sender was out of credit most of the time.
    Window,
    /// A worker of either side had hardly any time left.
    Cpu,
    /// The carrier took no more most of the time.
    Path,
    /// The sender was out of memory budget most of the time.
    Memory,
    /// None of them for most of the time.
    Unclear,
}

impl Limit {
    /// As a person reads it.
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

/// Who can measure its links.
pub trait Meter: Send + Sync {
    /// One round trip over every link, or as many as are asked over at a time; a link that has not
    /// answered within `patience` has lost it.
    fn ping(&self, patience: Duration) -> SendFuture<'_, Ping>;

    /// Up, then down, for `span` each; a client only. News go to `news` until the end; dropping the
    /// future ends the test.
    fn speedtest(
        &self,
        span: Duration,
        news: tokio::sync::mpsc::Sender<Progress>,
    ) -> SendFuture<'_, Result<Speed, String>>;
}
