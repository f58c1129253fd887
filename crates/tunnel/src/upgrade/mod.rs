//! The upgrade: a running daemon continues in a new process, which inherits its listening sockets.
//!
//! ```text
//!   former process                                        next process
//!   starts it, with one end of a pair of sockets as standard input
//!     |--- listeners and locks, then an Inheritance -------->| reads configuration and state,
//!     |                                                      | binds, checks itself
//!     |<-- Ready, or Failed and the reason ------------------| accepts nothing yet
//!     | tells systemd the new main process
//!     |--- Heirloom (a node of a cluster) ------------------->| goes on in the cluster
//!     |--- Serve ------------------------------------------->| accepts
//!     | closes its listeners, drains                         |
//!     |<-- TakesOver ----------------------------------------| a client has its links
//!     |<-- Stop, End, Leave ---------------------------------| the unit is stopped, or former
//!     |                                                      | processes are too many or too old
//!     |--- Report, each second ----------------------------->| lines of the status
//!     | ends after its last stream                           |
//! ```
//!
//! A former process ends after its own former process, so the processes form a chain, along which
//! messages are forwarded. If the next process dies without having handed over itself
//! ([`Word::GoneOn`]), the former process starts a replacement from its own program (`successor`).
//! It first asks its own former process for the sockets that still exist ([`Word::Give`]).
//!
//! The messages are lines of JSON. [`Word::Report`], [`Word::Leave`], [`Word::Give`] and
//! [`Word::GoneOn`] are for processes that support version 1 of the messages ([`TALK`]), and
//! [`Word::Heirloom`] is for those that support version 2.

mod command;
mod former;
mod next;
mod successor;

use std::io;
use std::time::Duration;

use net::inherited::HeldSocket;
use net::udp::Layout;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

pub(crate) use command::upgrade;
pub(crate) use former::{Formers, Inherited, Listed, inherit, tell_failure};
pub(crate) use next::{Binary, Fate, Next, Started};
pub(crate) use successor::Deaths;

/// The environment variable that tells a process that its standard input leads to a former process.
const VARIABLE: &str = "TUNNEL_UPGRADE";

/// The version of this program's messages. 0 covers the messages up to [`Word::End`].
const TALK: u32 = 2;

/// The version from which on a process takes [`Word::Heirloom`].
const TAKES_HEIRLOOMS: u32 = 2;

/// The most bytes of a piece of an heirloom. As JSON inside JSON it may be twice as long.
const PIECE: usize = 16 << 10;

/// Longest heirloom, in bytes: 100 times what 10,000 clients with four services each leave.
const HEIRLOOM_MAX: usize = 512 << 20;

/// Longest line, in bytes. The reason of a failure is the longest message.
const LINE_MAX: u64 = 64 << 10;

/// Longest wait until the other process accepts a message.
const PATIENCE: Duration = Duration::from_secs(10);

/// The description that the former process sends about itself.
#[derive(Debug, Serialize, Deserialize)]
struct Inheritance {
    pid: u32,
    version: String,
    #[serde(flatten)]
    left: Left,
    /// The processes of the daemon, from which the next process accepts no command either.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    own: Vec<u32>,
    /// The sockets that the service manager holds as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    held: Vec<HeldSocket>,
    /// Which processes read the ports of carriers over UDP.
    #[serde(default)]
    carriers: Layout,
    /// The version of the messages that the process understands.
    #[serde(default)]
    talk: u32,
}

/// The state of the former process at the moment of the upgrade.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Left {
    /// The state that a client hands over to the next process.
    #[serde(rename = "heirloom", default, skip_serializing_if = "Option::is_none")]
    pub(crate) handover_state: Option<String>,
    /// Its own former processes, newest first. The next process knows all of them from its start
    /// on, also when upgrades follow each other faster than reports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) formers: Vec<Listed>,
}

/// A message of either process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Word {
    /// The next process is ready to accept.
    Ready {
        pid: u32,
        version: String,
        #[serde(default)]
        talk: u32,
    },
    /// The next process ends for this reason.
    Failed(String),
    /// A piece of what the former process leaves last. All pieces come right before
    /// [`Word::Serve`].
    Heirloom(String),
    /// The next process should accept.
    Serve,
    /// The next process has taken over the function of the former process.
    TakesOver,
    /// The former process should end after its drain timeout at the latest.
    Stop,
    /// The former process should end at once.
    End,
    /// The former processes, newest first.
    Report(Vec<Listed>),
    /// The process `pid` of the chain should end, at once with `now`.
    Leave { pid: u32, now: bool },
    /// The former process should send its sockets again.
    Give,
    /// The next process has handed over itself, so its end is intended.
    GoneOn,
}

/// The conversation of the two processes.
#[derive(Debug)]
struct Conversation {
    stream: BufReader<UnixStream>,
    /// The start of a line.
    begun: Vec<u8>,
}

impl Conversation {
    /// Must be called inside a Tokio runtime.
    fn new(stream: std::os::unix::net::UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let stream = BufReader::new(UnixStream::from_std(stream)?);
        Ok(Self { stream, begun: Vec::new() })
    }

    async fn say(&mut self, word: &Word) -> io::Result<()> {
        let line = line(word)?;
        tokio::time::timeout(PATIENCE, self.stream.get_mut().write_all(&line)).await?
    }

    /// The next message. `None`: the other process has ended. Cancel-safe.
    ///
    /// # Errors
    /// The received line is not a known message. A process of a later version may send others.
    async fn hear(&mut self) -> io::Result<Option<Word>> {
        let room = LINE_MAX.saturating_sub(u64::try_from(self.begun.len()).unwrap_or(LINE_MAX));
        let mut bounded = (&mut self.stream).take(room);
        // The other process is the same program. A reset is its end as well.
        if bounded.read_until(b'\n', &mut self.begun).await.unwrap_or(0) == 0 {
            return Ok(None);
        }
        let text = std::mem::take(&mut self.begun);
        Ok(Some(serde_json::from_slice(&text)?))
    }
}

fn line(what: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    Ok(line)
}
