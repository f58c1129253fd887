//! The arguments of `tunnel server`, `tunnel client` and `tunnel proxy`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use config::ServiceOptions;
use logging::levels;

use super::OptionArgs;
use super::values::forward;

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ServerArgs {
    /// Where clients connect: tls://0.0.0.0:7000, quic://…, kcp://…, wss://…; mux://… takes
    /// visitors of HTTP and TLS names as well; may be repeated
    #[arg(long, value_name = "URL")]
    pub(crate) listen: Vec<String>,
    /// How others reach this server behind a reverse proxy or a NAT, where that differs from
    /// --listen: wss://tunnel.example.com/tunnel for clients, https://* for names; may be repeated
    #[arg(long, value_name = "URL")]
    pub(crate) public_url: Vec<String>,
    /// Admit a new client of this name by a one-time code, which is shown on a terminal; `tunnel
    /// enroll` admits further clients
    #[arg(long, value_name = "NAME", conflicts_with_all = ["name", "token", "token_file"])]
    pub(crate) enroll: Option<String>,
    /// Name of the only client, without a configuration file [default: home]
    #[arg(long, conflicts_with = "config")]
    pub(crate) name: Option<String>,
    /// File with the token of that client [default: created at the first start, in the state
    /// directory]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "token"])]
    pub(crate) token_file: Option<PathBuf>,
    /// The token itself; every user of this machine can read the value in /proc: prefer
    /// --token-file
    #[arg(long, conflicts_with = "config")]
    pub(crate) token: Option<String>,
    /// TCP ports that the client may publish; may be repeated [default: 10000-10999, unless
    /// --allow-udp names ports]
    #[arg(long, value_name = "PORTS", conflicts_with = "config")]
    pub(crate) allow_tcp: Vec<String>,
    /// UDP ports that the client may publish; may be repeated [default: 10000-10999, unless
    /// --allow-tcp names ports]
    #[arg(long, value_name = "PORTS", conflicts_with = "config")]
    pub(crate) allow_udp: Vec<String>,
    /// Hosts of http:// and https:// names that the client may publish, such as app.example.com or
    /// '*.home.example.com'; may be repeated [default: none]
    #[arg(long, value_name = "HOST", conflicts_with = "config")]
    pub(crate) allow_http: Vec<String>,
    /// Hosts of tls:// names that the client may publish; may be repeated [default: none]
    #[arg(long, value_name = "HOST", conflicts_with = "config")]
    pub(crate) allow_tls: Vec<String>,
    /// Targets on this side that the client may reach, such as 10.0.0.0/8:* [default: none]
    #[arg(long, value_name = "HOST:PORTS", conflicts_with = "config")]
    pub(crate) allow_forward: Vec<String>,
    /// Certificate chain, PEM [default: self-signed, created at the first start]
    #[arg(long, value_name = "FILE")]
    pub(crate) cert: Option<PathBuf>,
    /// Private key of that certificate, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Clients must show a certificate of these authorities, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) client_ca: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) daemon: DaemonArgs,
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ClientArgs {
    /// Enrol by the code that `tunnel enroll` printed on the server (`-`: the first line of
    /// standard input); writes the file of --config [default: client.yaml] and starts with it
    #[arg(long, value_name = "CODE")]
    #[arg(conflicts_with_all = ["name", "token", "token_file", "cert", "key"])]
    pub(crate) enroll: Option<String>,
    /// Server: example.com (tls://example.com:7000), quic://…, kcp://…, wss://…; several URLs are
    /// paths to the same server, the preferred path first; NAME=URL names one of several servers.
    /// Without --server and --config, the file is client.yaml in this folder
    #[arg(long, value_name = "URL")]
    pub(crate) server: Vec<String>,
    /// Name for the log-in
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// File with the token for the log-in; a certificate may be enough
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub(crate) token_file: Option<PathBuf>,
    /// The token itself; every user of this machine can read the value in /proc: prefer
    /// --token-file
    #[arg(long)]
    pub(crate) token: Option<String>,
    /// Pin of the server's public key, sha256:…, as the server prints it; several allow a rotation
    #[arg(long, value_name = "PIN")]
    pub(crate) pin: Vec<String>,
    /// File with the authorities of the server's certificate [default: authorities of the system]
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Certificate chain to show to the server, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) cert: Option<PathBuf>,
    /// Private key of that certificate, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    #[allow(rustdoc::bare_urls, reason = "the comment is the help text of the terminal")]
    /// Service to publish: 3000 (a port here, at a port of the server's choice), 10080=3000,
    /// 10022=192.168.1.5:22, http://app.example.com=3000, udp://51820=udp://51820,
    /// tcp://:10022=unix:///run/app.sock, tcp://127.0.0.1:1080=socks5; adds to the services of the
    /// file
    #[arg(long, value_name = "[PUBLIC=]TARGET")]
    pub(crate) publish: Vec<String>,
    #[allow(rustdoc::bare_urls, reason = "the comment is the help text of the terminal")]
    /// Local listener for a target on the server's side: 5203=5201, 127.0.0.2:80=10.0.0.5:80,
    /// udp://5300=udp://9.9.9.9:53; a proxy, whose programs choose the target: socks5://1080,
    /// http-proxy://3128; adds to the forwards of the file
    #[arg(long, value_name = "LISTEN[=TARGET]", value_parser = forward)]
    pub(crate) forward: Vec<String>,
    /// Run only what --publish and --forward name, without the services and forwards of the file
    #[arg(long)]
    pub(crate) only: bool,
    /// Add services to an existing file without a question (--enroll)
    #[arg(long, requires = "enroll")]
    pub(crate) yes: bool,
    /// Number of links to the server [default: one per worker, at least 2]
    #[arg(short, long, value_name = "N")]
    pub(crate) connections: Option<NonZeroUsize>,
    #[command(flatten)]
    pub(crate) daemon: DaemonArgs,
    /// Name of the service of --publish [default: by port or host]
    #[arg(long, value_name = "NAME", requires = "publish")]
    #[arg(help_heading = "Options of the services")]
    pub(crate) service_name: Option<String>,
    #[command(flatten)]
    pub(crate) options: OptionArgs,
    /// What the options say, once they have been read: a reload must not read standard input again.
    #[arg(skip)]
    pub(crate) settled: ServiceOptions,
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ProxyArgs {
    /// Where visitors connect: tcp://:5201, udp://127.0.0.1:53, unix:///run/app.sock; adds to the
    /// proxies of the file
    #[arg(long, value_name = "URL", requires = "target")]
    pub(crate) listen: Option<String>,
    /// Where they are led: tcp://10.0.1.4:5201, tls://10.0.1.4:443, udp://…, unix:///…; several
    /// with commas, or repeated
    #[arg(long, value_name = "URL", value_delimiter = ',', requires = "listen")]
    pub(crate) target: Vec<String>,
    /// Name in the status and in the log [default: by the port]
    #[arg(long, requires = "listen")]
    pub(crate) name: Option<String>,
    #[arg(long, value_name = "RULE", requires = "listen", help = proto::Balance::choices())]
    pub(crate) balance: Option<String>,
    /// The most connections at one time; surplus connections are reset at once
    /// [default: any number]
    #[arg(long, value_name = "N", requires = "listen")]
    pub(crate) limit_connections: Option<u32>,
    /// v1 or v2: a header tells the targets the visitor's address
    #[arg(long, value_name = "VERSION", requires = "listen")]
    pub(crate) proxy_protocol: Option<String>,
    /// Certificate chain of the listener, PEM; the TLS of the visitors ends here
    #[arg(long, value_name = "FILE", requires = "key", requires = "listen")]
    pub(crate) cert: Option<PathBuf>,
    /// Private key of that certificate, PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) daemon: DaemonArgs,
}

/// `tunnel run`.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunArgs {
    /// Folder with a configuration file for each daemon, or a single file
    #[arg(long, value_name = "FOLDER")]
    pub(crate) config: PathBuf,
    /// Control socket for `tunnel status` and other commands of all daemons together [default: in
    /// $RUNTIME_DIRECTORY, /run/tunnel for root, $XDG_RUNTIME_DIR/tunnel]
    #[arg(long, value_name = "SOCKET")]
    pub(crate) control: Option<PathBuf>,
    // They count for each daemon as well.
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// Flags of all roles.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct DaemonArgs {
    /// Configuration file; flags take precedence over the file
    /// [default: client.yaml, server.yaml or proxy.yaml in this folder, unless flags describe the
    /// client, the server or the proxy]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Folder of keys and tokens [default: $STATE_DIRECTORY, /var/lib/tunnel for root, otherwise
    /// ~/.local/state/tunnel]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Number of worker threads [default: one per core of this process]
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<NonZeroUsize>,
    /// Control socket for `tunnel status` and other commands [default: in --state-dir if given,
    /// otherwise in $RUNTIME_DIRECTORY, /run/tunnel for root, $XDG_RUNTIME_DIR/tunnel]
    #[arg(long, value_name = "SOCKET")]
    pub(crate) control: Option<PathBuf>,
    /// Tells a process that has the place of another one from that one in the list of processes
    #[arg(long, hide = true)]
    pub(crate) upgraded: bool,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// Flags of the log.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct LogArgs {
    /// Log at level debug; -vv at level trace
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// error, warn, info, debug, trace, or by part: info,link=debug [default: $TUNNEL_LOG, info]
    #[arg(long, value_name = "LEVEL", value_parser = levels)]
    pub(crate) log_level: Option<String>,
    /// Format of log lines
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people; coloured on a terminal.
    #[value(alias = "human")]
    Text,
    /// One JSON object per line.
    Json,
    /// Entries of systemd's journal, with fields (`journalctl LINK=3`).
    Journald,
}

impl LogFormat {
    /// The value of the flag.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Journald => "journald",
        }
    }
}

impl From<LogFormat> for logging::Format {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Text => Self::Text,
            LogFormat::Json => Self::Json,
            LogFormat::Journald => Self::Journald,
        }
    }
}
