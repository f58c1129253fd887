//! Logs: of the daemon, of visitors, of requests.

use std::path::PathBuf;

use crate::Size;

/// Where the line for each visitor is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AccessLog {
    /// Nowhere.
    #[default]
    Off,
    /// To the log of the daemon.
    On,
    /// To a file of its own.
    File(LogFile),
}

/// Where and how the line for each HTTP request is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestLog {
    /// The file.
    pub file: LogFile,
    /// The format of the lines.
    pub format: RequestFormat,
    /// Whether the lines include the queries of URLs, which may contain secrets.
    pub query: bool,
    /// Whether the lines include the user names of `basic_auth`.
    pub user: bool,
}

/// A value of `log.requests.format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestFormat {
    /// The combined format of Apache and nginx, with further fields at the end.
    #[default]
    Combined,
    /// One JSON object per line.
    Json,
}

/// A log file and its rotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFile {
    /// The path as written.
    pub path: PathBuf,
    /// Size at which the file is rotated.
    pub size: Size,
    /// Number of older files that are kept, as `PATH.1` and so on.
    pub keep: u32,
}

/// A value of `log.level`.
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

/// A value of `log.format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Readable text.
    Text,
    /// One JSON object per line.
    Json,
    /// Entries of systemd's journal.
    Journald,
}
