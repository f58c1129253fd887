//! The upgrade: a running daemon goes on in a new process, which inherits its listening sockets.
//!
//! ```text
//!   former process                                        next process
//!   starts it, with one end of a pair of sockets as standard input
//!     |--- listeners and locks, then an Inheritance -------->| reads configuration and state,
//!     |                                                      | binds, checks itself
//!     |<-- Ready, or Failed and the reason ------------------| accepts nothing yet
//!     | tells systemd the new main process
//!     |--- Serve ------------------------------------------->| accepts
//!     | closes its listeners, drains                         |
//!     |<-- TakesOver ----------------------------------------| a client has its links
//!     |<-- Stop, End ----------------------------------------| the unit is stopped
//!     | ends after its last stream                           |
//! ```
//!
//! After `Serve` each process goes on without the other. The words are lines of JSON.

mod command;
mod former;
mod next;

use std::io;
use std::time::Duration;

use net::inherited::HeldSocket;
use net::udp::Layout;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

pub(crate) use command::upgrade;
pub(crate) use former::{Former, Inherited, inherit, tell_failure};
pub(crate) use next::{Binary, Next, Started};

/// The environment variable that tells a process that its standard input is a former process.
const VARIABLE: &str = "TUNNEL_UPGRADE";

/// Longest line, in bytes. The reason of a failure is the longest word.
const LINE_MAX: u64 = 64 << 10;

/// Longest wait until the other process takes a word.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the former process tells about itself.
#[derive(Debug, Serialize, Deserialize)]
struct Inheritance {
    pid: u32,
    version: String,
    /// What a client leaves to the next process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    heirloom: Option<String>,
    /// The sockets that the service manager has as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    held: Vec<HeldSocket>,
    /// Which processes read the ports of carriers over UDP.
    #[serde(default)]
    carriers: Layout,
}

/// A word of either process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    /// The next process could accept.
    Ready { pid: u32, version: String },
    /// The next process ends for this reason.
    Failed(String),
    /// The next process is to accept.
    Serve,
    /// The next process does what the former one does.
    TakesOver,
    /// The former process is to end after its drain time-out at the latest.
    Stop,
    /// The former process is to end at once.
    End,
}

/// The conversation of the two processes.
#[derive(Debug)]
struct Conversation(BufReader<UnixStream>);

impl Conversation {
    /// Must be called inside a Tokio runtime.
    fn new(stream: std::os::unix::net::UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self(BufReader::new(UnixStream::from_std(stream)?)))
    }

    async fn say(&mut self, word: &Word) -> io::Result<()> {
        tokio::time::timeout(PATIENCE, self.0.get_mut().write_all(&line(word)?)).await?
    }

    /// The next word. `None`: the other process has ended.
    ///
    /// # Errors
    /// What came is no word. A process of a later version may have others.
    async fn hear(&mut self) -> io::Result<Option<Word>> {
        let mut text = Vec::new();
        // The other process is the same program. A reset is its end as well.
        if (&mut self.0).take(LINE_MAX).read_until(b'\n', &mut text).await.unwrap_or(0) == 0 {
            return Ok(None);
        }
        Ok(Some(serde_json::from_slice(&text)?))
    }
}

fn line(what: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    Ok(line)
}
