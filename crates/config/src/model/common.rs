//! Keys that all roles have.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use super::admin::Admin;
use super::change::{Changed, changes};
use super::credentials::Field;
use super::kcp::Kcp;
use super::log::{AccessLog, LogFile, LogFormat, LogLevel, RequestLog};
use super::quic::Quic;
use crate::{Collector, Size, Span};

/// Keys that all roles have. A proxy has no links, and keeps the defaults of the keys about links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Common {
    /// The state directory; `None`: the caller's default (see REFERENCE.md).
    pub state_dir: Option<PathBuf>,
    /// Number of worker threads; `None`: one per core.
    pub workers: Option<NonZeroUsize>,
    /// Memory for streams and buffers; `None`: a quarter of the memory of the machine or of its
    /// cgroup.
    pub memory_budget: Option<Size>,
    /// Initial window of a stream, in bytes.
    pub window_initial: Size,
    /// Largest window of a stream, in bytes.
    pub window_max: Size,
    /// The time without received bytes after which the daemon sends a ping over a carrier.
    pub keepalive: Span,
    /// How long a link without a carrier waits for a new carrier.
    pub resume_timeout: Span,
    /// How long streams may continue after SIGTERM.
    pub drain_timeout: Span,
    /// The limits of the processes that remain after an upgrade.
    pub upgrade: FormerLimits,
    /// Lowest level that is logged.
    pub log_level: LogLevel,
    /// Format of a log line.
    pub log_format: LogFormat,
    /// The log file; `None`: standard error.
    pub log_file: Option<LogFile>,
    /// The log of visitors.
    pub log_access: AccessLog,
    /// The log of HTTP requests, on a server; `None`: no such log.
    pub log_requests: Option<RequestLog>,
    /// Path of the control socket. `None`: `server.sock` or `client-NAME.sock` in `state_dir` if
    /// that is set, else in the runtime directory (`$RUNTIME_DIRECTORY`, `/run/tunnel` for root,
    /// `$XDG_RUNTIME_DIR/tunnel`).
    pub control: Option<PathBuf>,
    /// Whether the daemon reloads when the file changes.
    pub watch: bool,
    /// The admin API; `None`: disabled.
    pub admin: Option<Admin>,
    /// Where metrics are pushed; `None`: metrics are not pushed.
    pub otlp: Option<Otlp>,
    /// Settings of `quic://`, even if no path or listener uses `quic://`.
    pub quic: Quic,
    /// Settings of `kcp://`, even if no path or listener uses `kcp://`.
    pub kcp: Kcp,
}

/// The limits of the former processes that run until their streams end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormerLimits {
    /// The largest number of former processes beside the serving process. Beyond this number the
    /// oldest is asked to end.
    pub most: usize,
    /// The longest life of each; `None`: until its last stream ends.
    pub longest: Option<Span>,
}

/// Settings of metrics that are pushed by OTLP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Otlp {
    /// The collector that receives the metrics.
    pub collector: Collector,
    /// Time between two pushes.
    pub interval: Span,
    /// Additional header fields of each request. Each name is unique.
    pub headers: Vec<Field>,
}

impl Common {
    /// The keys whose values differ in `other`.
    pub(super) fn differs(&self, other: &Self) -> impl Iterator<Item = Changed> {
        // The pattern names all fields, so a new field cannot be forgotten here.
        let Self {
            state_dir,
            workers,
            memory_budget,
            window_initial,
            window_max,
            keepalive,
            resume_timeout,
            drain_timeout,
            upgrade,
            log_level,
            log_format,
            log_file: _,
            log_access,
            log_requests,
            control,
            watch,
            admin,
            otlp,
            quic,
            kcp,
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
            (*upgrade != other.upgrade, Changed::live("upgrade")),
            (*log_level != other.log_level, Changed::live("log.level")),
            (*log_format != other.log_format, Changed::restart("log.format")),
            (log_file(self) != log_file(other), Changed::restart("log.file")),
            (log_rotate(self) != log_rotate(other), Changed::restart("log.rotate")),
            (*log_access != other.log_access, Changed::live("log.access")),
            (*log_requests != other.log_requests, Changed::live("log.requests")),
            (*control != other.control, Changed::restart("control")),
            (*watch != other.watch, Changed::live("watch")),
            (*admin != other.admin, Changed::restart("admin")),
            (*otlp != other.otlp, Changed::restart("otlp")),
        ];
        changes(all).chain(quic.differs(other.quic)).chain(kcp.differs(other.kcp))
    }

    /// Takes the values of keys that need a restart from `running`.
    pub(super) fn keep(&mut self, running: &Self) {
        self.state_dir.clone_from(&running.state_dir);
        self.workers = running.workers;
        self.memory_budget = running.memory_budget;
        self.log_format = running.log_format;
        self.log_file.clone_from(&running.log_file);
        self.control.clone_from(&running.control);
        self.admin.clone_from(&running.admin);
        self.otlp.clone_from(&running.otlp);
        self.quic.keep(running.quic);
        self.kcp.keep(running.kcp);
    }
}

fn log_file(common: &Common) -> Option<&PathBuf> {
    common.log_file.as_ref().map(|log| &log.path)
}

fn log_rotate(common: &Common) -> Option<(Size, u32)> {
    common.log_file.as_ref().map(|log| (log.size, log.keep))
}
