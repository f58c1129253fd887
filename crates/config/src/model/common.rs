//! Keys that all roles have.

use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use crate::key_table::{KeyMap, KeyPlace, KeyTable};
use crate::model::admin::Admin;
use crate::model::credentials::{self, Field};
use crate::model::kcp::Kcp;
use crate::model::log::{AccessLog, Log, LogFile, LogFormat, LogLevel, RequestLog};
use crate::model::quic::Quic;
use crate::problem::unknown;
use crate::section::Section;
use crate::{BadValue, Collector, Role, Size, Span, values};

/// Keys that all roles have. A proxy has no links, and keeps the defaults of the keys about links.
#[derive(Clone, Debug, PartialEq, Eq, KeyTable)]
#[keys(first = parts, compare)]
#[row(part = "log.rotate",
    differs = |common| common.log_file.as_ref().map(|file| (file.size, file.keep)))]
pub struct Common {
    /// The directory of persistent state: keys, enrolled clients, certificates, names.
    ///
    /// `None`: the caller's default (see REFERENCE.md).
    #[key("path", absent = "`$STATE_DIRECTORY`, see below", restart, with = values::path, rank = 1)]
    pub state_dir: Option<PathBuf>,
    /// The number of worker threads.
    #[key("`auto` or 1-1024", absent = "`auto` (one per core)", restart, unit = "threads", with = values::count, rank = 1)]
    pub workers: Option<NonZeroUsize>,
    /// Limits the memory of streams, windows, buffers and connections of visitors.
    #[key("size, at least 16MiB", absent = "25 % of RAM or of the cgroup", restart, read = memory, rank = 1)]
    pub memory_budget: Option<Size>,
    /// Initial window of a stream, in bytes.
    #[key(from = window.initial)]
    #[row(window: map, keys = Window, reconnect, rank = 1, only(Server, Client),
        text = "Sizes of the windows of streams.",
        differs = |common| (common.window_initial, common.window_max))]
    pub window_initial: Size,
    /// Largest window of a stream, in bytes.
    #[key(from = window.max)]
    pub window_max: Size,
    /// The time without received bytes after which a ping checks a carrier.
    ///
    /// The default is half of the shortest idle timeout of NATs and proxies in practice.
    #[key("duration", default = "15s", reconnect, only(Server, Client), read = Span::positive, rank = 1)]
    pub keepalive: Span,
    /// The time for which a link without a carrier waits for a new carrier.
    #[key("duration", default = "60s", reconnect, only(Server, Client), rank = 1)]
    pub resume_timeout: Span,
    /// The time for which open streams may finish after a stop before they are reset.
    #[key("duration", default = "120s", live, rank = 1)]
    pub drain_timeout: Span,
    /// Limits of the former processes that finish their streams after an upgrade.
    #[key(map, live, rank = 7)]
    #[row(type: "`server`, `client` or `proxy`", absent = "by the other keys", restart, rank = 7,
        text = "The role of the file, where the other keys do not determine the role.")]
    pub upgrade: FormerLimits,
    /// Lowest level that is logged.
    #[key(part = "log.level", from = log.level)]
    #[row(log: map, rank = 1, keys = Log,
        text = "Settings of the log, the access log and the request log.")]
    pub log_level: LogLevel,
    /// Format of a log line.
    #[key(part = "log.format", from = log.format)]
    pub log_format: LogFormat,
    /// The log file; `None`: standard error.
    #[key(part = "log.file", from = log.file, differs = |common| common.log_file.as_ref().map(|file| file.path.clone()))]
    pub log_file: Option<LogFile>,
    /// The log of visitors.
    #[key(part = "log.access", from = log.access)]
    pub log_access: AccessLog,
    /// The log of HTTP requests, on a server; `None`: no such log.
    #[key(part = "log.requests", from = log.requests)]
    pub log_requests: Option<RequestLog>,
    /// The path of the control socket, which commands such as `tunnel status` use.
    ///
    /// `None`: `server.sock` or `client-NAME.sock` in `state_dir` if that is set, else in the
    /// runtime directory (`$RUNTIME_DIRECTORY`, `/run/tunnel` for root, `$XDG_RUNTIME_DIR/tunnel`).
    #[key("path", absent = "`server.sock`, `client-NAME.sock` or `proxy.sock`, see below", restart, with = values::path, rank = 1)]
    pub control: Option<PathBuf>,
    /// Reloads the configuration when its file, or a file of `allow_from` or `deny_from`, has
    /// changed.
    #[key("`true`, `false`", default = "false", live, read = values::switch, rank = 3)]
    pub watch: bool,
    /// The files of `allow_from` and `deny_from`, whose changes are changes of the configuration.
    #[key(from = watched)]
    pub watched: Vec<PathBuf>,
    /// Settings of the admin API, the metrics and the web console.
    #[key(map, absent = "no admin API", restart, rank = 3)]
    pub admin: Option<Admin>,
    /// Settings of the push of metrics to an OTLP collector.
    #[key(map, absent = "not pushed", restart, rank = 5)]
    pub otlp: Option<Otlp>,
    /// Settings of `quic://` carriers and their UDP sockets.
    ///
    /// They have values even if no path or listener uses `quic://`.
    #[key(map, compare, reconnect, only(Server, Client), rank = 5)]
    pub quic: Quic,
    /// Settings of `kcp://` carriers and their UDP sockets.
    ///
    /// They have values even if no path or listener uses `kcp://`.
    #[key(map, compare, reconnect, only(Server, Client), rank = 5)]
    pub kcp: Kcp,
}

/// The largest number of former processes: each takes 10 MB or more.
const FORMER_MAX: usize = 100;

/// The limits of the former processes that run until their streams end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, KeyTable)]
pub struct FormerLimits {
    /// Limits the number of former processes; beyond the limit the oldest is asked to end.
    ///
    /// 16 processes share a port of UDP, and two of them are the serving process and its successor.
    #[key("number, 0-100", name = "former_max", default = "14", read = former_max)]
    pub most: usize,
    /// The time after a handover at which a former process is asked to end.
    #[key("duration", name = "former_for", none = "until the last stream ends", read = Span::positive)]
    pub longest: Option<Span>,
}

fn former_max(text: &str) -> Result<usize, BadValue> {
    let bad = || {
        BadValue::new(format!("`{text}` is not a number of former processes"))
            .hint(format!("0 to {FORMER_MAX}"))
    };
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|most| is_number && *most <= FORMER_MAX).ok_or_else(bad)
}

/// Settings of metrics that are pushed by OTLP.
#[derive(Clone, Debug, PartialEq, Eq, KeyTable)]
#[keys(check = otlp)]
pub struct Otlp {
    /// The base URL of the OTLP collector that receives the metrics.
    #[key("`http://host:port`, perhaps with a path", name = "endpoint",
        required = "for example http://127.0.0.1:4318", holds = Url)]
    pub collector: Collector,
    /// The time between two pushes of metrics to the OTLP collector.
    ///
    /// The default is that of OpenTelemetry's own exporters.
    #[key("duration, at least 1s", default = "60s", read = interval)]
    pub interval: Span,
    /// Additional header fields of each request to the OTLP collector.
    ///
    /// Each name is unique.
    #[key("map of names to values", none, holds = Fields, with = credentials::fields)]
    pub headers: Vec<Field>,
}

/// Permitted size of a window. A window that is smaller than one frame would stall the stream, and
/// a larger window would use too much memory.
const WINDOW: RangeInclusive<Size> = Size::from_bytes(16 << 10)..=Size::from_bytes(1 << 30);

/// Smallest memory budget. A smaller budget holds only a few streams with useful windows.
const MEMORY_MIN: Size = Size::from_bytes(16 << 20);

/// Shortest interval of pushes: each push collects figures from all workers.
const INTERVAL_MIN: Span = Span::from_millis(1000);

/// The port on which collectors speak gRPC by convention.
const GRPC: u16 = 4317;

/// The section `window`.
#[derive(KeyTable)]
#[keys(read = windows)]
pub(crate) struct Window {
    /// The initial window of a stream: bytes that the peer may send ahead of the reader.
    ///
    /// The default is enough for one stream at 10 ms and 200 Mbit/s. Windows grow by themselves.
    #[key("size, 16KiB-1GiB", default = "256KiB", note = "at most `max`")]
    pub(crate) initial: Size,
    /// The largest window of a stream: bytes that the peer may send ahead of the reader.
    ///
    /// The default is enough for 100 ms at 1.3 Gbit/s.
    #[key("size, 16KiB-1GiB", default = "16MiB")]
    pub(crate) max: Size,
}

fn windows(s: &Section<'_>) -> Option<Window> {
    let window = |text: &str| values::ranged(text, WINDOW);
    let (initial, max) = values::range::<Window, _>(s, ("initial", "max"), window)?;
    Some(Window { initial, max })
}

/// Values of [`Common`] that stand in maps of their own.
pub(crate) struct CommonParts {
    pub(crate) window: Window,
    pub(crate) log: Log,
    pub(crate) watched: Vec<PathBuf>,
}

impl Common {
    /// Reads the keys in a file of this role, and checks `type`.
    pub(crate) fn of(s: &Section<'_>, role: Role) -> Option<Self> {
        s.value("type", |text| of_type(text, role));
        let at = match role {
            Role::Server => KeyPlace::Server,
            Role::Client => KeyPlace::Client,
            Role::Proxy => KeyPlace::Proxy,
        };
        s.flat(KeyMap { at: Some(at), ..Self::MAP })
    }
}

/// Decodes the maps.
pub(crate) fn parts(s: &Section<'_>) -> Option<CommonParts> {
    let window: Option<Window> = s.map_or_empty("window", Common::map("window"));
    // The files are known at the end.
    let watched = Vec::new();
    Some(CommonParts { log: s.map_or_empty("log", Common::map("log"))?, window: window?, watched })
}

pub(crate) fn memory(text: &str) -> Result<Size, BadValue> {
    values::at_least(text, MEMORY_MIN)
}

/// Parses the interval of pushes.
pub(crate) fn interval(text: &str) -> Result<Span, BadValue> {
    match Span::positive(text)? {
        interval if interval < INTERVAL_MIN => Err(BadValue::new("too short").hint("1s or more")),
        interval => Ok(interval),
    }
}

/// Warns of a collector that probably speaks another protocol, or is reached without TLS.
pub(crate) fn otlp(s: &Section<'_>, otlp: Otlp) -> Option<Otlp> {
    if otlp.collector.port == GRPC {
        let bad = BadValue::new("at 4317 collectors speak gRPC, and this is OTLP over HTTP");
        s.warn("endpoint", bad.hint("mostly at 4318"));
    }
    if !otlp.collector.host.is_loopback() {
        let bad = BadValue::new("no TLS on the way to the collector");
        s.warn("endpoint", bad.hint("a collector on this machine can speak TLS to others"));
    }
    Some(otlp)
}

/// Checks `type`, which decides the role of a file whose other keys do not.
fn of_type(text: &str, role: Role) -> Result<(), BadValue> {
    match Role::named(text) {
        Some(named) if named == role => Ok(()),
        Some(_) => Err(BadValue::new(format!("this is a {}'s file", role.name()))),
        None => Err(unknown(&format!("type `{text}`"), text, &["server", "client", "proxy"])),
    }
}
