//! Logs: of the daemon, of visitors, of requests.

use std::path::{Path, PathBuf};

use crate::key_table::KeyTable;
use crate::section::{FromSection as _, Section};
use crate::words::words;
use crate::yaml::Kind;
use crate::{BadValue, Size, values};

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

words! {
    /// A value of `log.requests.format`.
    pub enum RequestFormat: "format" {
        /// The combined format of Apache and nginx, with further fields at the end.
        #[default]
        Combined = "combined",
        /// One JSON object per line.
        Json = "json",
    }
}

words! {
    /// A value of `log.level`.
    #[allow(missing_docs, reason = "the names are those of the key")]
    pub enum LogLevel: "level" {
        Error = "error",
        Warn = "warn",
        #[default]
        Info = "info",
        Debug = "debug",
        Trace = "trace",
    }
}

words! {
    /// A value of `log.format`.
    pub enum LogFormat: "format" {
        /// Readable text.
        #[default]
        Text = "text",
        /// One JSON object per line.
        Json = "json",
        /// Entries of systemd's journal.
        Journald = "journald",
    }
}

/// Smallest `log.rotate.size`, in bytes. With a smaller limit, a busy daemon would rotate the file
/// every few seconds.
const SIZE_MIN: u64 = 64 << 10;

/// Largest `log.rotate.keep`: each rotation renames all older files.
const KEEP_MAX: u32 = 1000;

/// The section `log`.
#[derive(KeyTable)]
#[keys(read = log)]
#[row(rotate: map, keys = Rotate, restart, text = "Rotation of the log files by size.")]
pub(crate) struct Log {
    /// The least severe level of events in the log.
    #[key("`error` … `trace`", default = "info", live)]
    pub(crate) level: LogLevel,
    /// The format of the log lines; journald sends entries to the systemd journal.
    #[key("`text`, `json`, `journald`", default = "text", restart)]
    pub(crate) format: LogFormat,
    /// The file of the log, instead of standard error.
    #[key("path", none = "standard error", restart)]
    pub(crate) file: Option<LogFile>,
    /// The access log: a line for each visitor that has left, in the log or a separate file.
    #[key("`true`, `false` or path", default = "false", live)]
    pub(crate) access: AccessLog,
    /// The request log: a line for each HTTP request to a service by name.
    #[key("map or path", none, live, keys = RequestKeys, only(Server))]
    pub(crate) requests: Option<RequestLog>,
}

/// The section `log.rotate`.
#[derive(Clone, Copy, KeyTable)]
struct Rotate {
    /// The size at which a log file is rotated.
    ///
    /// The default is about 80,000 lines.
    #[key("size, at least 64KiB", default = "10MiB", read = size)]
    size: Size,
    /// The number of rotated files that are kept of each log file.
    #[key("number, 0-1000", default = "5", read = keep)]
    keep: u32,
}

/// The section `log.requests`.
#[derive(KeyTable)]
struct RequestKeys {
    /// The file of the request log.
    #[key("path", required = "the file of the lines, like /var/log/tunnel/requests.log", read = file)]
    file: PathBuf,
    /// The format of the lines of the request log.
    #[key("`combined`, `json`", default = "combined")]
    format: RequestFormat,
    /// Includes the query strings of URLs in the request log.
    #[key("`true`, `false`", default = "false", read = values::switch)]
    query: bool,
    /// Includes the user names of basic_auth in the request log.
    #[key("`true`, `false`", default = "false", read = values::switch)]
    user: bool,
}

fn log(s: &Section<'_>) -> Option<Log> {
    let format = s.parse("format").unwrap_or_default();
    if format == LogFormat::Journald && s.has("file") {
        let bad = BadValue::new("with `format: journald` the log goes to the journal");
        s.bad("file", bad.hint("leave `file` out, or say `format: text`"));
    }
    let rotate: Rotate = s.map_or_empty("rotate", Log::map("rotate"))?;
    let has_file = ["file", "requests"].iter().any(|key| s.has(key));
    if s.has("rotate") && !has_file && access_switch(s) != Some(None) {
        s.bad("rotate", BadValue::new("there is no `file` to rotate").hint("add `file: …`"));
    }
    let file = values::path(s, "file");
    let rotated = |path| LogFile { path, size: rotate.size, keep: rotate.keep };
    let access = match access_switch(s) {
        Some(Some(true)) => AccessLog::On,
        Some(Some(false)) => AccessLog::Off,
        Some(None) | None => {
            access_file(s, file.as_deref()).map(rotated).map(AccessLog::File).unwrap_or_default()
        }
    };
    Some(Log {
        level: s.parse("level").unwrap_or_default(),
        format,
        file: file.map(rotated),
        access,
        requests: requests(s, rotated),
    })
}

/// The value of `access` that is no map and no list; `None` inside: it is the path of a file.
#[expect(clippy::option_option, reason = "no such value, a file, or a switch")]
fn access_switch(s: &Section<'_>) -> Option<Option<bool>> {
    let item = s.key("access")?;
    let Kind::Scalar { text, .. } = &item.node.kind else { return None };
    Some(text.parse().ok())
}

/// The file of `access`. `log` is the value of `file`.
fn access_file(s: &Section<'_>, log: Option<&Path>) -> Option<PathBuf> {
    let path = values::path(s, "access")?;
    if log == Some(&path) {
        let bad = BadValue::new("the same file as `file`");
        s.bad("access", bad.hint("`access: true` writes into the log"));
    }
    Some(path)
}

/// Decodes `requests`: the path of a file, or a map with the path and the contents of the lines.
/// The file is rotated as `file` is.
fn requests(s: &Section<'_>, rotated: impl FnOnce(PathBuf) -> LogFile) -> Option<RequestLog> {
    let item = s.key("requests")?;
    let item = if let Kind::Map(_) = item.node.kind { item } else { item.keyed("file") };
    let section = Section::open(s.cx, item, RequestKeys::MAP)?;
    let RequestKeys { file, format, query, user } = RequestKeys::read(&section)?;
    let is_other = |key: &&&str| {
        let item = s.key(key);
        let kind = item.as_ref().map(|item| &item.node.kind);
        matches!(kind, Some(Kind::Scalar { text, .. }) if Path::new(text) == file)
    };
    if let Some(other) = ["file", "access"].iter().find(is_other) {
        let bad = BadValue::new(format!("the same file as `log.{other}`"));
        section.bad("file", bad.hint("name another file"));
    }
    Some(RequestLog { file: rotated(file), format, query, user })
}

fn file(text: &str) -> Result<PathBuf, BadValue> {
    match text.parse::<bool>() {
        Ok(_) => Err(BadValue::new(format!("`{text}` is no file"))
            .hint("`requests: /var/log/tunnel/requests.log`, or remove the key")),
        Err(_) => values::path_of(text),
    }
}

fn size(text: &str) -> Result<Size, BadValue> {
    values::at_least(text, Size::from_bytes(SIZE_MIN))
}

fn keep(text: &str) -> Result<u32, BadValue> {
    let bad = || BadValue::new(format!("`{text}` is not a count of files")).hint("0 to 1000");
    text.parse().ok().filter(|n| *n <= KEEP_MAX).ok_or_else(bad)
}
