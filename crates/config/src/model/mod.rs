//! The checked model. All values have been checked, so the users of the model need no further
//! checks.

mod balancer;
mod check;
mod client;
mod doors;
mod kcp;
mod p2p;
mod private;
mod quic;
mod server;
mod spread;

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;

pub use balancer::{Balancer, ProxyConfig};
pub use check::{Check, DatagramCheck};
pub(crate) use client::PRIVATE;
pub use client::{
    ClientConfig, Exit, Field, Files, FlowLimits, Forward, Path, ProxyProtocol, Public, Service,
    TargetTls, Trust, UserFile, VisitorLists,
};
pub use doors::{Acme, AcmeBinding, AcmeDns, Http, Mux, Pages, TlsRoutes, TlsVersion};
pub use kcp::{Kcp, KcpCongestion, KcpFec, KcpPreset};
pub use p2p::{P2p, P2pWebrtc, ServerWebrtc, StunAddress};
pub use private::{
    Demand, PeerPath, PeerTls, Private, PrivateService, Proof, Visit, VisitRight, VisitRights,
    Visitor,
};
pub use quic::{Congestion, Quic};
pub use server::{
    AcceptProxy, ClientGrant, HttpAuth, Listen, Rights, STUN_PORT, ServerConfig, ServerTls,
};
pub use spread::{Balance, Spread, Weighted};
pub(crate) use spread::{TARGETS_MAX, WEIGHT_MAX};

use crate::endpoint::{port as port_of, split};
use crate::{BadValue, Collector, Host, Secret, Size, Span, Target};

/// A token and the file that it was read from, so that the caller can check the permissions of the
/// file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The token.
    pub secret: Secret,
    /// The path of the `token_file` as written; `None` if the token came from another source.
    pub file: Option<PathBuf>,
}

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

/// Settings of the admin API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// The address of the listener.
    pub listen: SocketAddr,
    /// The token, or its hash. The token permits every request.
    pub token: Token,
    /// The read-only token, or its hash. It differs from `token`.
    pub read_token: Option<Token>,
    /// Host names that requests may use, besides addresses and `localhost`.
    pub hosts: Vec<Host>,
    /// The origin of the web console behind a reverse proxy.
    pub origin: Option<WebOrigin>,
}

impl Admin {
    /// Whether a program that dials `target` on this machine reaches the API. A name other than the
    /// loopback names is not looked up.
    #[must_use]
    pub fn is_at(&self, target: &Target) -> bool {
        let Some((host, port)) = target.port() else { return false };
        // The API speaks TCP.
        if matches!(target, Target::Udp { .. }) || port != self.listen.port() {
            return false;
        }
        let own = self.listen.ip().to_canonical();
        match host {
            Host::Name(_) => {
                host.leads_to_loopback() && (own.is_loopback() || own.is_unspecified())
            }
            // The API does not listen on addresses of an interface.
            Host::Scoped(_) => own.is_unspecified(),
            Host::Ip(ip) => {
                let ip = ip.to_canonical();
                // An unspecified address leads to loopback.
                ip == own
                    || own.is_unspecified() && ip.is_loopback()
                    || ip.is_unspecified() && (own.is_loopback() || own.is_unspecified())
            }
        }
    }
}

/// The origin of a web page (RFC 6454): `https://console.example.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebOrigin {
    /// `https`, else `http`.
    pub tls: bool,
    /// The host.
    pub host: Host,
    /// The port; the default port of the scheme if the text has none.
    pub port: u16,
}

impl FromStr for WebOrigin {
    type Err = BadValue;

    /// The message does not repeat the text, which may contain a password.
    fn from_str(text: &str) -> Result<Self, BadValue> {
        let read = || {
            let (tls, rest) = match text.split_once("://")? {
                ("https", rest) => (true, rest),
                ("http", rest) => (false, rest),
                _ => return None,
            };
            let (host, port) = split(rest).ok()?;
            let default = if tls { 443 } else { 80 };
            let port = port.map_or(Ok(default), port_of).ok()?;
            Some(Self { tls, host: host.parse().ok()?, port })
        };
        read().ok_or_else(|| {
            BadValue::new("not the origin of a page: a scheme, a host and perhaps a port")
                .hint("like https://console.example.com, without a path")
        })
    }
}

impl fmt::Display for WebOrigin {
    /// The origin as browsers send it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, default) = if self.tls { ("https", 443) } else { ("http", 80) };
        write!(f, "{scheme}://{}", self.host)?;
        if self.port == default { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

impl Common {
    /// The keys whose values differ in `other`.
    fn differs(&self, other: &Self) -> impl Iterator<Item = Changed> {
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
        self.kcp.keep(running.kcp);
    }
}

fn log_file(common: &Common) -> Option<&PathBuf> {
    common.log_file.as_ref().map(|log| &log.path)
}

fn log_rotate(common: &Common) -> Option<(Size, u32)> {
    common.log_file.as_ref().map(|log| (log.size, log.keep))
}

/// When a changed value of a key takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// On a reload. Links and streams are not affected.
    Live,
    /// On a reload, for new links. A client makes new links immediately; a server waits for its
    /// clients to make new links.
    Reconnect,
    /// On a restart of the process.
    Restart,
}

/// A key with a changed value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The path of the key in the file: `log.level`.
    pub key: &'static str,
    /// When the change takes effect.
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

/// A certificate chain and its key: PEM files, with paths as written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyPair {
    /// The file with the chain.
    pub cert: PathBuf,
    /// The file with the key.
    pub key: PathBuf,
}

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
