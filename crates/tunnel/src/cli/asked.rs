//! The arguments of the commands to a running daemon.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};
use config::Span;
use ops::clients::{HoldOrder, LimitOrder};
use ops::cluster::PAGE_CLIENTS;
use ops::command::{Command as _, Kick, ListClusterClients, Rekey, Revoke, ShowClient};
use ops::status::StreamNumber;

use super::notes::{CLUSTER_CLIENTS_NOTE, DNS_EXAMPLES, REKEY_NOTE};
use super::options::lasting;
use super::values::{class, forward, interval, patience, server, span, target, upgrade_limit};
use super::{DaemonArgs, OptionArgs, TargetArgs};
use crate::complete::{clients, published, services};

/// The running daemon that a command asks.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// The daemon that was started with this file
    #[arg(long, value_name = "FILE", conflicts_with = "control")]
    pub(crate) config: Option<PathBuf>,
    /// The daemon with this control socket
    #[arg(long, value_name = "SOCKET")]
    pub(crate) control: Option<PathBuf>,
}

/// `tunnel upgrade`.
#[derive(Debug, Args)]
pub(crate) struct UpgradeArgs {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Upgrade every running daemon of this machine that was started from the file of this command
    #[arg(long, conflicts_with_all = ["config", "control", "binary"])]
    pub(crate) all: bool,
    /// The program to go on with
    /// [default: the file from which the daemon was started, as it is now]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) binary: Option<PathBuf>,
    /// Seconds in which the new process has to be ready
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = upgrade_limit)]
    pub(crate) timeout: Duration,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// `tunnel enroll`.
#[derive(Debug, Args)]
pub(crate) struct EnrollArgs {
    /// Name of the new client
    #[arg(required_unless_present_any = ["renew", "revoke"])]
    pub(crate) name: Option<String>,
    /// TCP ports that it may publish; may be repeated [default: 10000-10999, unless --allow-udp
    /// names ports]
    #[arg(long, value_name = "PORTS")]
    pub(crate) allow_tcp: Vec<String>,
    /// UDP ports that it may publish; may be repeated [default: 10000-10999, unless --allow-tcp
    /// names ports]
    #[arg(long, value_name = "PORTS")]
    pub(crate) allow_udp: Vec<String>,
    /// Hosts of http:// and https:// names that it may publish, such as app.example.com or
    /// '*.home.example.com'; may be repeated [default: none]
    #[arg(long, value_name = "HOST")]
    pub(crate) allow_http: Vec<String>,
    /// Hosts of tls:// names that it may publish; may be repeated [default: none]
    #[arg(long, value_name = "HOST")]
    pub(crate) allow_tls: Vec<String>,
    /// Targets on the server's side that it may reach, such as 10.0.0.0/8:* [default: none]
    #[arg(long, value_name = "HOST:PORTS")]
    pub(crate) allow_forward: Vec<String>,
    /// Servers to which it may go through this server, such as fra.example.com:7000 [default: none]
    #[arg(long, value_name = "HOST:PORTS")]
    pub(crate) allow_via: Vec<String>,
    /// Private services of other clients that it may visit, such as office/ssh [default: none]
    #[arg(long, value_name = "CLIENT/SERVICE")]
    pub(crate) allow_visit: Vec<String>,
    /// Its services may share their addresses with those of other clients (`shared` of a service)
    #[arg(long)]
    pub(crate) allow_shared: bool,
    /// How it reaches the server: example.com (at the listener's port), tls://…, quic://…,
    /// kcp://…; may be repeated, the preferred URL first
    /// [default: the server's listeners at an address of this machine]
    #[arg(long, value_name = "URL", value_parser = server)]
    pub(crate) server: Vec<String>,
    /// Add the code of a further server, which `tunnel enroll` of that server printed for the same
    /// name (`-`: the first line of standard input); the client then has both servers, and the
    /// first that answers has its services; may be repeated
    #[arg(long, value_name = "CODE", conflicts_with = "renew")]
    pub(crate) add: Vec<String>,
    /// Make a code by which a client that enrolled by a code gets a new token; rights and limits
    /// stay, and the old token is valid until the first log-in with the new one
    #[arg(long, value_name = "NAME", conflicts_with = "name", add = clients())]
    pub(crate) renew: Option<String>,
    /// Disconnect and forget a client that enrolled by a code
    #[arg(long, value_name = "NAME", add = clients())]
    #[arg(conflicts_with_all = ["name", "allow_tcp", "allow_udp", "allow_http", "allow_tls"])]
    #[arg(conflicts_with_all = ["allow_forward", "allow_via", "allow_visit", "allow_shared"])]
    #[arg(conflicts_with_all = ["server", "renew", "add"])]
    pub(crate) revoke: Option<String>,
    #[command(flatten)]
    pub(crate) which: Which,
    /// Print the command for the other machine as a QR code as well
    #[arg(long, conflicts_with_all = ["json", "revoke"])]
    pub(crate) qr: bool,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// `tunnel allow` and `tunnel deny`.
#[derive(Debug, Args)]
#[group(id = "rights", required = true, multiple = true)]
#[group(args = ["tcp", "udp", "http", "tls", "forward", "via", "visit", "shared"])]
pub(crate) struct RightsArgs {
    /// Name of the client, which the configuration names or which enrolled by a code
    #[arg(add = clients())]
    pub(crate) name: String,
    /// TCP ports to publish: 22, 20000-20100, 127.0.0.1:8080
    #[arg(long, value_name = "PORTS", num_args = 1..)]
    pub(crate) tcp: Vec<String>,
    /// UDP ports to publish: 5353, 20000-20100
    #[arg(long, value_name = "PORTS", num_args = 1..)]
    pub(crate) udp: Vec<String>,
    /// Hosts of http:// and https:// names to publish: app.example.com, '*.home.example.com'
    #[arg(long, value_name = "HOST", num_args = 1..)]
    pub(crate) http: Vec<String>,
    /// Hosts of tls:// names to publish
    #[arg(long, value_name = "HOST", num_args = 1..)]
    pub(crate) tls: Vec<String>,
    /// Targets on the server's side to reach: 10.0.0.0/8:*
    #[arg(long, value_name = "HOST:PORTS", num_args = 1..)]
    pub(crate) forward: Vec<String>,
    /// Servers to reach through this server (`via` of a path): fra.example.com:7000
    #[arg(long, value_name = "HOST:PORTS", num_args = 1..)]
    pub(crate) via: Vec<String>,
    /// Private services of other clients to visit: office/ssh, 'office/*'
    #[arg(long, value_name = "CLIENT/SERVICE", num_args = 1..)]
    pub(crate) visit: Vec<String>,
    /// Sharing addresses with other clients (`shared` of a service)
    #[arg(long)]
    pub(crate) shared: bool,
    #[command(flatten)]
    pub(crate) which: Which,
}

/// `tunnel publish`.
#[derive(Debug, Args)]
pub(crate) struct PublishArgs {
    #[allow(rustdoc::bare_urls, reason = "the comment is the help text of the terminal")]
    /// Services: 3000, 10080=3000, 10022=192.168.1.5:22, http://app.example.com=3000,
    /// udp://51820=udp://51820, tcp://:10022=unix:///run/app.sock. A service takes the place of the
    /// service with its name, its port or its host
    #[arg(id = "publish", value_name = "[PUBLIC=]TARGET", required_unless_present = "save")]
    pub(crate) services: Vec<String>,
    /// Write the services into the configuration file; without services, all that commands have
    /// added
    #[arg(long)]
    pub(crate) save: bool,
    #[command(flatten)]
    pub(crate) which: Which,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Name of the service, which takes the place of the service of this name [default: by port or
    /// host]
    #[arg(long, requires = "publish", help_heading = "Options of the services")]
    #[arg(add = published())]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) options: OptionArgs,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

/// `tunnel share`.
#[derive(Debug, Args)]
pub(crate) struct ShareArgs {
    /// A port or address (3000, 192.168.1.5:80, https://127.0.0.1:8443), a folder, or a file
    pub(crate) target: String,
    #[allow(rustdoc::bare_urls, reason = "the comment is the help text of the terminal")]
    /// The word of the address, or the whole address: blog, http://app.example.com, 10080
    /// [default: a random word]
    #[arg(long, value_name = "WORD|PUBLIC")]
    pub(crate) at: Option<String>,
    /// Stop after this time: 30m, 1h, 7d
    #[arg(long = "for", value_name = "TIME", value_parser = lasting)]
    pub(crate) lasting: Option<Span>,
    /// Ask visitors for a user and a password; without a value both are made up (`-`: the first
    /// line of standard input; `@FILE`: the lines of a file)
    #[arg(long, value_name = "USER:PASSWORD", num_args = 0..=1, default_missing_value = "")]
    pub(crate) password: Option<String>,
    /// Only visitors from these networks: 10.0.0.0/8,2001:db8::/32
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub(crate) allow_from: Vec<String>,
    /// Stop after the first GET whose whole answer was sent, or the first connection
    #[arg(long)]
    pub(crate) once: bool,
    /// Keep no requests for `tunnel requests` and the console
    #[arg(long)]
    pub(crate) no_requests: bool,
    /// Print JSON lines, for programs
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) which: Which,
    /// Start a client that enrols by this code, and keeps its place in the file of --config
    /// [default: client.yaml]
    #[arg(long, value_name = "CODE", conflicts_with = "control")]
    #[arg(help_heading = "Without a running client")]
    pub(crate) enroll: Option<String>,
    /// Start a client of this server, with --name and --token-file
    #[arg(long, value_name = "URL", conflicts_with = "control")]
    #[arg(help_heading = "Without a running client")]
    pub(crate) server: Vec<String>,
    /// Name for the log-in
    #[arg(long, requires = "server", help_heading = "Without a running client")]
    pub(crate) name: Option<String>,
    /// File with the token for the log-in
    #[arg(long, value_name = "FILE", requires = "server")]
    #[arg(help_heading = "Without a running client")]
    pub(crate) token_file: Option<PathBuf>,
    /// Pin of the server's public key
    #[arg(long, value_name = "PIN", requires = "server")]
    #[arg(help_heading = "Without a running client")]
    pub(crate) pin: Vec<String>,
    #[command(flatten)]
    pub(crate) options: TargetArgs,
}

/// `tunnel unpublish`.
#[derive(Debug, Args)]
pub(crate) struct UnpublishArgs {
    #[allow(rustdoc::bare_urls, reason = "the comment is the help text of the terminal")]
    /// Names or hosts of services, or addresses of forwards: ssh, tcp-3000, http://app.example.com,
    /// 5203, socks5://1080
    #[arg(value_name = "NAME", required = true, add = published())]
    pub(crate) names: Vec<String>,
    /// Remove the entries from the configuration file
    #[arg(long)]
    pub(crate) save: bool,
    #[command(flatten)]
    pub(crate) which: Which,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// `tunnel forward`.
#[derive(Debug, Args)]
pub(crate) struct ForwardArgs {
    #[allow(rustdoc::bare_urls, reason = "the comment is the help text of the terminal")]
    /// Forwards: 5203=5201 (port 5203 here, port 5201 on the server's side), 5432=10.0.0.5:5432,
    /// udp://5300=udp://9.9.9.9:53; proxies: socks5://1080, http-proxy://3128
    #[arg(value_name = "LISTEN[=TARGET]", required = true, value_parser = forward)]
    pub(crate) forwards: Vec<String>,
    /// Write the forwards into the configuration file
    #[arg(long)]
    pub(crate) save: bool,
    #[command(flatten)]
    pub(crate) which: Which,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// `tunnel visit`.
#[derive(Debug, Args)]
pub(crate) struct VisitArgs {
    /// The code that `tunnel visit --new` printed (`-`: the first line of standard input); writes
    /// the file of --config [default: client.yaml] and starts with it, or adds a forward to the
    /// file
    #[arg(value_name = "CODE", required_unless_present_any = ["new", "list", "revoke"])]
    #[arg(conflicts_with_all = ["new", "list", "revoke"])]
    pub(crate) code: Option<String>,
    /// Where this machine has the service: 2222, tcp://127.0.0.1:2222, udp://2222, unix:///path
    /// [default: a free port, which stays]
    #[arg(long, value_name = "ADDRESS", requires = "code")]
    pub(crate) listen: Option<String>,
    /// How this machine reaches the server, instead of the URLs of the code; may be repeated
    #[arg(long, value_name = "URL", requires = "code", value_parser = server)]
    pub(crate) server: Vec<String>,
    /// File with the authority of the server's certificate (PEM), where the system does not know it
    /// and the code has no pin
    #[arg(long, value_name = "FILE", requires = "code", conflicts_with = "pin")]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) ca: Option<PathBuf>,
    /// Pin of the server's public key (`tunnel clients` on the server prints it), in the place of
    /// that of the code; may be repeated
    #[arg(long, value_name = "PIN", requires = "code")]
    pub(crate) pin: Vec<String>,
    /// Only write the file; do not start the client
    #[arg(long, requires = "code")]
    pub(crate) no_start: bool,
    /// Make a code for a visitor of this private service [default: the only private service]
    #[arg(long, value_name = "SERVICE", num_args = 0..=1, default_missing_value = "")]
    #[arg(conflicts_with_all = ["list", "revoke"])]
    pub(crate) new: Option<String>,
    /// The name of the new visitor, a client of the server from then on [default: random]
    #[arg(long, requires = "new", conflicts_with = "existing")]
    pub(crate) name: Option<String>,
    /// The visitor is this client of the server
    #[arg(long = "for", value_name = "CLIENT", requires = "new")]
    pub(crate) existing: Option<String>,
    /// List the visitors that came by codes, and those that may still come
    #[arg(long, conflicts_with = "revoke")]
    pub(crate) list: bool,
    /// End the visits of a visitor that came by a code
    #[arg(long, value_name = "VISITOR")]
    pub(crate) revoke: Option<String>,
    /// Print JSON, for programs
    #[arg(long, conflicts_with = "code")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) daemon: DaemonArgs,
}

/// `tunnel connect`.
#[derive(Debug, Args)]
pub(crate) struct ConnectArgs {
    /// What the server's side connects to: host:port, tcp://host:port, unix:///path; the client
    /// needs a right to it (allow.forward). Or a private service of another client,
    /// service://CLIENT/SERVICE
    #[arg(value_name = "TARGET", value_parser = target)]
    pub(crate) target: String,
    #[command(flatten)]
    pub(crate) which: Which,
}

/// `tunnel where`.
#[derive(Debug, Args)]
pub(crate) struct WhereArgs {
    /// A client, a host or URL of a service, or a port
    #[arg(add = clients())]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) which: Which,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Show all columns, however narrow the terminal is
    #[arg(long, conflicts_with = "json")]
    pub(crate) wide: bool,
}

/// `tunnel cluster`.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Show the nodes of the cluster, as the running server sees them
    Status {
        #[command(flatten)]
        which: Which,
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
        /// Show all columns, however narrow the terminal is
        #[arg(long, conflicts_with = "json")]
        wide: bool,
    },
    #[command(about = ListClusterClients::ABOUT.help, after_help = CLUSTER_CLIENTS_NOTE)]
    Clients(ClusterClientsArgs),
    #[command(about = Rekey::ABOUT.help, after_help = REKEY_NOTE)]
    Rekey {
        #[command(flatten)]
        which: Which,
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Print the records of DNS by which visitors and clients find all nodes
    #[command(after_help = DNS_EXAMPLES)]
    Dns {
        /// Names that all nodes have in common: the name of the server, names of services
        #[arg(required = true)]
        name: Vec<String>,
        /// Time for which resolvers may keep a record, in seconds
        #[arg(long, default_value = "60", value_parser = clap::value_parser!(u32).range(1..=86_400))]
        ttl: u32,
        #[command(flatten)]
        which: Which,
    },
}

/// `tunnel cluster clients`.
#[derive(Debug, Args)]
pub(crate) struct ClusterClientsArgs {
    /// Only clients whose names begin with this text
    pub(crate) begins: Option<String>,
    /// Only clients behind this client, in the order of the names
    #[arg(long)]
    pub(crate) after: Option<String>,
    /// The most clients
    #[arg(long, default_value_t = PAGE_CLIENTS,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(PAGE_CLIENTS)))]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) which: Which,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Show all columns, however narrow the terminal is
    #[arg(long, conflicts_with = "json")]
    pub(crate) wide: bool,
}

/// `tunnel clients`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ClientsArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ClientsCommand>,
    #[command(flatten)]
    pub(crate) which: Which,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Show all columns, however narrow the terminal is
    #[arg(long, conflicts_with = "json")]
    pub(crate) wide: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClientsCommand {
    #[command(about = ShowClient::ABOUT.help)]
    Show {
        /// Name of the client
        #[arg(add = clients())]
        name: String,
        #[command(flatten)]
        which: Which,
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
        /// Show all columns, however narrow the terminal is
        #[arg(long, conflicts_with = "json")]
        wide: bool,
    },
    /// Add rights to a client at once, as `tunnel allow` does
    Allow(RightsArgs),
    #[command(about = LimitOrder::ABOUT.help)]
    Limit(LimitArgs),
    #[command(about = HoldOrder::ABOUT.help)]
    Hold(HoldArgs),
    #[command(about = Kick::ABOUT.help)]
    Kick {
        /// Name of the client
        #[arg(add = clients())]
        name: String,
        #[command(flatten)]
        which: Which,
    },
    #[command(about = Revoke::ABOUT.help)]
    Revoke {
        /// Name of the client
        #[arg(add = clients())]
        name: String,
        #[command(flatten)]
        which: Which,
    },
}

/// `tunnel clients hold`.
#[derive(Debug, Args)]
pub(crate) struct HoldArgs {
    /// Name of the client, connected or away
    #[arg(add = clients())]
    pub(crate) name: String,
    /// HTML file with the page, at most 32 KiB; {reason} and {status} are replaced
    /// [default: the page for unavailable services]
    #[arg(long, value_name = "FILE")]
    pub(crate) page: Option<PathBuf>,
    /// When visitors may try again (Retry-After): 90s, 10m, 2h [default: 10m]
    #[arg(long, value_name = "TIME")]
    pub(crate) retry_after: Option<String>,
    /// End the hold: visitors reach the client again
    #[arg(long, conflicts_with_all = ["page", "retry_after"])]
    pub(crate) off: bool,
    #[command(flatten)]
    pub(crate) which: Which,
}

/// `tunnel clients limit`.
#[derive(Debug, Args)]
pub(crate) struct LimitArgs {
    /// Name of the client, which the configuration names or which enrolled by a code
    #[arg(add = clients())]
    pub(crate) name: String,
    /// Simultaneous streams
    #[arg(long, value_name = "N")]
    pub(crate) streams: Option<String>,
    /// New streams per second
    #[arg(long, value_name = "N")]
    pub(crate) new_per_second: Option<String>,
    /// Bytes per second from visitors to targets, such as 10MiB/s
    #[arg(long, value_name = "RATE")]
    pub(crate) up: Option<String>,
    /// Bytes per second from targets to visitors
    #[arg(long, value_name = "RATE")]
    pub(crate) down: Option<String>,
    /// Published ports; also `unlimited`. With `none`, as many as the client's rights list
    #[arg(long, value_name = "N")]
    pub(crate) ports: Option<String>,
    /// Published hosts
    #[arg(long, value_name = "N")]
    pub(crate) hosts: Option<String>,
    #[command(flatten)]
    pub(crate) which: Which,
}

/// `tunnel requests`.
#[derive(Debug, Args)]
pub(crate) struct RequestsArgs {
    /// Show this request in full
    #[arg(value_name = "NUMBER")]
    pub(crate) id: Option<u64>,
    /// Send the request to its target again, and show the new request in full
    #[arg(long, requires = "id", conflicts_with = "secrets")]
    pub(crate) replay: bool,
    /// Show credentials and cookies as well
    #[arg(long, requires = "id")]
    pub(crate) secrets: bool,
    /// Only requests of this service
    #[arg(long, value_name = "NAME", conflicts_with = "id", add = services())]
    pub(crate) service: Option<String>,
    /// Only requests with this method
    #[arg(long, value_name = "METHOD", conflicts_with = "id")]
    pub(crate) method: Option<String>,
    /// Only requests whose response is of this class: 2xx, 4xx
    #[arg(long, value_name = "CLASS", conflicts_with = "id", value_parser = class)]
    pub(crate) status: Option<u8>,
    /// Only requests with this text in the path
    #[arg(long, value_name = "TEXT", conflicts_with = "id")]
    pub(crate) path: Option<String>,
    /// Maximum number of listed requests
    #[arg(long, value_name = "N", default_value = "50")]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) which: Which,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Show all columns, however narrow the terminal is
    #[arg(long, conflicts_with = "json")]
    pub(crate) wide: bool,
}

/// `tunnel streams`.
#[derive(Debug, Args)]
pub(crate) struct StreamsArgs {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Only streams and flows of this service, or of the forward with this address
    #[arg(long, value_name = "NAME", add = services())]
    pub(crate) service: Option<String>,
    /// Maximum number of listed streams and flows
    #[arg(long, value_name = "N", default_value = "100")]
    pub(crate) limit: usize,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Show all columns, however narrow the terminal is
    #[arg(long, conflicts_with = "json")]
    pub(crate) wide: bool,
    /// Reset these streams and end these flows instead, by the numbers of the list: 3/17, 3/u17
    #[arg(long, value_name = "STREAM", num_args = 1.., value_parser = str::parse::<StreamNumber>)]
    #[arg(conflicts_with_all = ["service", "limit", "json", "wide"])]
    pub(crate) kill: Vec<StreamNumber>,
}

/// `tunnel ping`.
#[derive(Debug, Args)]
pub(crate) struct PingArgs {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Number of rounds
    #[arg(short, long, value_name = "N", default_value = "5")]
    pub(crate) count: std::num::NonZeroU64,
    /// Time between two rounds, in seconds
    #[arg(short, long, value_name = "SECS", default_value = "1", value_parser = interval)]
    pub(crate) interval: Duration,
    /// Time to wait for an answer, in seconds, at most 10
    #[arg(short = 'W', long, value_name = "SECS", default_value = "2", value_parser = patience)]
    pub(crate) timeout: Duration,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// `tunnel nat`.
#[derive(Debug, Args)]
pub(crate) struct NatArgs {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// `tunnel move`.
#[derive(Debug, Args)]
pub(crate) struct MoveArgs {
    #[command(flatten)]
    pub(crate) which: Which,
    /// URL of the path, as in `servers` of the configuration [default: the next path of each link]
    #[arg(long, value_name = "URL")]
    pub(crate) to: Option<String>,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// `tunnel console`.
#[derive(Debug, Args)]
pub(crate) struct ConsoleArgs {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Do not open a browser
    #[arg(long)]
    pub(crate) no_open: bool,
    /// Print JSON, for programs; opens no browser
    #[arg(long)]
    pub(crate) json: bool,
}

/// `tunnel check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The file; its content tells whether it is for a server or for a client [default: client.yaml
    /// or server.yaml in this folder]
    #[arg(value_name = "FILE", conflicts_with = "config")]
    pub(crate) file: Option<PathBuf>,
    /// The same file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// `tunnel speedtest`.
#[derive(Debug, Args)]
pub(crate) struct SpeedArgs {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Duration of each direction in seconds, at most 60
    #[arg(short, long, value_name = "SECS", default_value = "5", value_parser = span)]
    pub(crate) seconds: Duration,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}
