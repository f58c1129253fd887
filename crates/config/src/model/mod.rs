//! The checked model: what is in here has been looked at, nothing needs to be asked again.

mod client;
mod quic;
mod server;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

pub use client::{ClientConfig, Field, Forward, Path, Priority, Public, Service, Timeouts, Trust};
pub use quic::{Congestion, Quic};
pub use server::{ClientGrant, HttpAuth, Rights, ServerConfig, ServerTls};

use crate::{Collector, Secret, Size, Span};

/// A token and where it came from, so that the caller can look at the file's permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The token.
    pub secret: Secret,
    /// The `token_file` it was read from, as written.
    pub file: Option<PathBuf>,
}

/// Keys that both roles have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Common {
    /// `None`: the caller's default (see REFERENCE.md).
    pub state_dir: Option<PathBuf>,
    /// Worker threads; `None`: one per core.
    pub workers: Option<NonZeroUsize>,
    /// `None`: a quarter of the memory of the machine or of its cgroup.
    pub memory_budget: Option<Size>,
    /// Credit a stream begins with, in bytes.
    pub window_initial: Size,
    /// Credit a stream may grow to, in bytes.
    pub window_max: Size,
    /// Silence after which a carrier is asked whether it lives.
    pub keepalive: Span,
    /// How long a link without a carrier waits for its peer.
    pub resume_timeout: Span,
    /// How long streams may finish after SIGTERM.
    pub drain_timeout: Span,
    /// Least level that is logged.
    pub log_level: LogLevel,
    /// Form of a log line.
    pub log_format: LogFormat,
    /// `None`: standard error.
    pub log_file: Option<LogFile>,
    /// Path of the control socket. `None`: `server.sock` or `client-NAME.sock`, in `state_dir`
    /// where that is given, else in the runtime directory (`$RUNTIME_DIRECTORY`, `/run/tunnel` for
    /// root, `$XDG_RUNTIME_DIR/tunnel`).
    pub control: Option<PathBuf>,
    /// Whether a change of the file is a wish to reload.
    pub watch: bool,
    /// `None`: there is none.
    pub admin: Option<Admin>,
    /// `None`: metrics are not pushed.
    pub otlp: Option<Otlp>,
    /// Of `quic://`, whether there is any or not.
    pub quic: Quic,
}

/// Metrics pushed by OTLP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Otlp {
    /// Who takes them.
    pub collector: Collector,
    /// Between two pushes.
    pub interval: Span,
    /// Further header fields of each request, each name once.
    pub headers: Vec<Field>,
}

/// The admin API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Whoever has it may do everything; or its hash.
    pub token: Token,
}

impl Common {
    /// What is another value in `other`.
    fn differs(&self, other: &Self) -> impl Iterator<Item = Changed> {
        // All of them by name, so that none that is added is forgotten here.
        let Self {
            state_dir,
            workers,
            memory_budget,
            window_initial,
            window_max,
            keepalive,
            resume_timeout,
            drain_timeout,
            log_level,
            log_format,
            log_file: _,
            control,
            watch,
            admin,
            otlp,
            quic,
        } = self;
        let window = (*window_initial, *window_max) != (other.window_initial, other.window_max);
        let all = [
            (*state_dir != other.state_dir, Changed::restart("state_dir")),
            (*workers != other.workers, Changed::restart("workers")),
            (*memory_budget != other.memory_budget, Changed::restart("memory_budget")),
            (window, Changed::reconnect("window")),
            (*keepalive != other.keepalive, Changed::reconnect("keepalive")),
            (*resume_timeout != other.resume_timeout, Changed::reconnect("resume_timeout")),
            (*drain_timeout != other.drain_timeout, Changed::live("drain_timeout")),
            (*log_level != other.log_level, Changed::live("log.level")),
            (*log_format != other.log_format, Changed::restart("log.format")),
            (log_file(self) != log_file(other), Changed::restart("log.file")),
            (log_rotate(self) != log_rotate(other), Changed::restart("log.rotate")),
            (*control != other.control, Changed::restart("control")),
            (*watch != other.watch, Changed::live("watch")),
            (*admin != other.admin, Changed::restart("admin")),
            (*otlp != other.otlp, Changed::restart("otlp")),
        ];
        changes(all).chain(quic.differs(other.quic))
    }

    /// Takes from `running` what only a restart changes.
    fn keep(&mut self, running: &Self) {
        self.state_dir.clone_from(&running.state_dir);
        self.workers = running.workers;
        self.memory_budget = running.memory_budget;
        self.log_format = running.log_format;
        self.log_file.clone_from(&running.log_file);
        self.control.clone_from(&running.control);
        self.admin.clone_from(&running.admin);
        self.otlp.clone_from(&running.otlp);
        self.quic.keep(running.quic);
    }
}

fn log_file(common: &Common) -> Option<&PathBuf> {
    common.log_file.as_ref().map(|log| &log.path)
}

fn log_rotate(common: &Common) -> Option<(Size, u32)> {
    common.log_file.as_ref().map(|log| (log.size, log.keep))
}

/// What it takes for another value of a key to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// A reload; nothing that runs is touched.
    Live,
    /// A reload; it counts for links that begin from then on. A client makes new ones at once, a
    /// server's clients as they come.
    Reconnect,
    /// Another process.
    Restart,
}

/// A key with another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// As in the file, with those above it: `log.level`.
    pub key: &'static str,
    /// What it takes.
    pub change: Change,
}

impl Changed {
    const fn live(key: &'static str) -> Self {
        Self { key, change: Change::Live }
    }

    const fn reconnect(key: &'static str) -> Self {
        Self { key, change: Change::Reconnect }
    }

    const fn restart(key: &'static str) -> Self {
        Self { key, change: Change::Restart }
    }
}

fn changes<const N: usize>(all: [(bool, Changed); N]) -> impl Iterator<Item = Changed> {
    all.into_iter().filter_map(|(is_so, changed)| is_so.then_some(changed))
}

/// A certificate chain and its key, PEM files with paths as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPair {
    /// The chain.
    pub cert: PathBuf,
    /// The key.
    pub key: PathBuf,
}

/// A log that is a file, and when another one takes its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFile {
    /// As written.
    pub path: PathBuf,
    /// It grows to this.
    pub size: Size,
    /// So many of those before it are kept, as `PATH.1` and so on.
    pub keep: u32,
}

/// A level of `log.level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the key")]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    /// The word in the file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// A form of `log.format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
    /// Entries of systemd's journal.
    Journald,
}
