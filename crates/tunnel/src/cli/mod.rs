//! The command line. A flag has the meaning of the configuration key that it sets.

mod values;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use logging::levels;
use tls::HostName;

use values::{interval, pair, patience, span, stream_id, years};

const EXAMPLES: &str = "\
Examples:
  tunnel demo                       try the tunnel on this machine alone
  tunnel server                     public side; prints the command for the other machine
  tunnel client --server tls://example.com:7000 --name home --token-file token \\
      --pin sha256:… --publish tcp://:10022=tcp://127.0.0.1:22
  tunnel check --config server.yaml
  tunnel status
  tunnel speedtest";

const CLIENT_EXAMPLES: &str = "\
Examples:
  Publish the local ssh server at port 10022 of the server:
    tunnel client --server tls://example.com:7000 --name home --token-file token \\
        --pin sha256:… --publish tcp://:10022=tcp://127.0.0.1:22
  In the opposite direction: port 5203 here leads to port 5201 on the server's side:
    … --forward tcp://127.0.0.1:5203=tcp://127.0.0.1:5201
  With a configuration file:
    tunnel client --config client.yaml";

const ALLOW_EXAMPLES: &str = "\
Examples:
  tunnel allow home --tcp 22 20000-20100
  tunnel allow home --forward 10.0.0.0/8:*

Rights are added to the file that names the client, and stay after a restart.";

const CERTS_EXAMPLES: &str = "\
Examples:
  An authority, a certificate for a server of these names, and one for client `home`:
    tunnel generate certs -s example.com 192.0.2.2 -o certs
  Two more clients of the same authority:
    tunnel generate certs -o certs --client laptop phone";

/// Publishes TCP services behind NAT through a public server.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the public side, to which clients and visitors connect
    Server(ServerArgs),
    /// Run the side behind NAT, which connects to a server and publishes services there
    #[command(after_help = CLIENT_EXAMPLES)]
    Client(ClientArgs),
    /// Run server, client and a web origin in one process, to try the tunnel
    Demo {
        /// Fetch once through the tunnel, print the throughput and exit
        #[arg(long)]
        once: bool,
    },
    /// Validate a configuration file and print what would run; exit code 2 if it is wrong
    Check {
        /// The file; its content tells whether it is for a server or for a client
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Create certificates; print a commented configuration, a token or its hash
    #[command(subcommand)]
    Generate(Generate),
    /// Show links, services and figures of a running daemon
    Status {
        #[command(flatten)]
        which: Which,
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
        /// Repeat the status until Ctrl-C, with rates per second; with --json one object per line
        #[arg(long, value_name = "SECONDS", value_parser = interval)]
        #[arg(num_args = 0..=1, default_missing_value = "1")]
        watch: Option<Duration>,
    },
    /// List the open streams of a running daemon, or reset some of them
    Streams(StreamsArgs),
    /// Change the log level of a running daemon until its next reload or start; or show the level
    Log {
        /// error, warn, info, debug, trace, or directives such as `info,link=debug`
        #[arg(value_parser = levels)]
        level: Option<String>,
        #[command(flatten)]
        which: Which,
    },
    /// Measure round trips over every link of a running client or server
    Ping(PingArgs),
    /// Measure the throughput of a running client's tunnel in both directions, and name the limit
    Speedtest(SpeedArgs),
    /// Admit a new client by a one-time code; runs on the machine of the server
    Enroll(EnrollArgs),
    /// Add rights to a client at once; runs on the machine of the server
    #[command(after_help = ALLOW_EXAMPLES)]
    Allow(AllowArgs),
    /// Make a running daemon read its configuration again and apply the changes
    Reload {
        #[command(flatten)]
        which: Which,
    },
    /// Make a running daemon finish its streams and end, and wait for its end
    Stop {
        #[command(flatten)]
        which: Which,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Generate {
    /// Print a commented configuration file
    Config {
        /// Role of the file
        side: Side,
    },
    /// Print a random token of 256 bits, with which a client logs in
    Token {
        /// Print no end of line, for `… > token`
        #[arg(short)]
        no_newline: bool,
    },
    /// Print the hash of a token, which a server's file may hold instead of the token. The hash
    /// verifies a log-in and does not allow one
    Hash {
        /// File with the token [default: standard input]
        file: Option<PathBuf>,
    },
    /// Create an authority and its certificates for a server and its clients
    #[command(after_help = CERTS_EXAMPLES)]
    Certs(CertsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CertsArgs {
    /// Names and addresses by which clients dial the server: example.com 192.0.2.2 2001:db8::1
    #[arg(short, long, value_name = "NAME", num_args = 1.., required_unless_present = "client")]
    pub(crate) server: Vec<HostName>,
    /// Names of clients [default: home, with a new authority]
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub(crate) client: Vec<String>,
    /// Years of validity, 1 to 30; a new authority lasts at least 10 years
    #[arg(short, long, default_value = "2", value_parser = years)]
    pub(crate) years: u8,
    /// Folder; an authority in it (ca.crt, ca.key) issues the certificates
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    pub(crate) output: PathBuf,
}

/// The two roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Side {
    Server,
    Client,
}

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

/// `tunnel enroll`.
#[derive(Debug, Args)]
pub(crate) struct EnrollArgs {
    /// Name of the new client
    #[arg(required_unless_present = "revoke")]
    pub(crate) name: Option<String>,
    /// Ports that it may publish; may be repeated [default: 10000-10999]
    #[arg(long, value_name = "PORTS")]
    pub(crate) allow_tcp: Vec<String>,
    /// Targets on the server's side that it may reach, such as 10.0.0.0/8:* [default: none]
    #[arg(long, value_name = "HOST:PORTS")]
    pub(crate) allow_forward: Vec<String>,
    /// URL by which it reaches the server: tls://example.com:7000, quic://…; may be repeated, the
    /// preferred URL first [default: the server's listeners at an address of this machine]
    #[arg(long, value_name = "URL")]
    pub(crate) server: Vec<String>,
    /// Disconnect and forget a client that enrolled by a code
    #[arg(long, value_name = "NAME")]
    #[arg(conflicts_with_all = ["name", "allow_tcp", "allow_forward", "server"])]
    pub(crate) revoke: Option<String>,
    #[command(flatten)]
    pub(crate) which: Which,
}

/// `tunnel allow`.
#[derive(Debug, Args)]
pub(crate) struct AllowArgs {
    /// Name of the client, which the configuration names or which enrolled by a code
    pub(crate) name: String,
    /// Ports that it may publish as well: 22, 20000-20100, 127.0.0.1:8080
    #[arg(long, value_name = "PORTS", num_args = 1.., required_unless_present = "forward")]
    pub(crate) tcp: Vec<String>,
    /// Targets on the server's side that it may reach as well: 10.0.0.0/8:*
    #[arg(long, value_name = "HOST:PORTS", num_args = 1..)]
    pub(crate) forward: Vec<String>,
    #[command(flatten)]
    pub(crate) which: Which,
}

/// `tunnel streams`.
#[derive(Debug, Args)]
pub(crate) struct StreamsArgs {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Only streams of this service, or of the forward with this address
    #[arg(long, value_name = "NAME")]
    pub(crate) service: Option<String>,
    /// Maximum number of listed streams
    #[arg(long, value_name = "N", default_value = "100")]
    pub(crate) limit: usize,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Reset these streams instead, by the numbers of the list: 3/17
    #[arg(long, value_name = "STREAM", num_args = 1.., value_parser = stream_id)]
    #[arg(conflicts_with_all = ["service", "limit", "json"])]
    pub(crate) kill: Vec<(u64, u32)>,
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

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ServerArgs {
    /// Where clients connect: tls://0.0.0.0:7000, quic://…, wss://…; may be repeated
    #[arg(long, value_name = "URL")]
    pub(crate) listen: Vec<String>,
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
    /// The token itself; every user of this machine can read the value in /proc: prefer --token-file
    #[arg(long, conflicts_with = "config")]
    pub(crate) token: Option<String>,
    /// Ports that the client may publish; may be repeated [default: 10000-10999]
    #[arg(long, value_name = "PORTS", conflicts_with = "config")]
    pub(crate) allow_tcp: Vec<String>,
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
    #[arg(conflicts_with_all = ["name", "token", "token_file", "pin", "ca", "cert", "key"])]
    pub(crate) enroll: Option<String>,
    /// URL of the server: tls://example.com:7000, quic://…, wss://…; several URLs are paths to the
    /// same server, the preferred path first
    #[arg(long, value_name = "URL", required_unless_present_any = ["config", "enroll"])]
    pub(crate) server: Vec<String>,
    /// Name for the log-in
    #[arg(long, required_unless_present_any = ["config", "enroll"])]
    pub(crate) name: Option<String>,
    /// File with the token for the log-in; a certificate may be enough
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    #[arg(required_unless_present_any = ["config", "token", "cert", "enroll"])]
    pub(crate) token_file: Option<PathBuf>,
    /// The token itself; every user of this machine can read the value in /proc: prefer --token-file
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
    /// Service to publish: tcp://:10022=tcp://127.0.0.1:22
    #[arg(long, value_name = "PUBLIC=TARGET", value_parser = pair)]
    pub(crate) publish: Vec<String>,
    /// Local listener for a target on the server's side: tcp://127.0.0.1:5203=tcp://127.0.0.1:5201
    #[arg(long, value_name = "LISTEN=TARGET", value_parser = pair)]
    pub(crate) forward: Vec<String>,
    /// Number of links to the server [default: one per worker, at least 2]
    #[arg(short, long, value_name = "N")]
    pub(crate) connections: Option<NonZeroUsize>,
    #[command(flatten)]
    pub(crate) daemon: DaemonArgs,
}

/// Flags of both roles.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct DaemonArgs {
    /// Configuration file; flags take precedence over the file
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
    #[value(alias = "text")]
    Human,
    /// One JSON object per line.
    Json,
    /// Entries of systemd's journal, with fields (`journalctl LINK=3`).
    Journald,
}

impl From<LogFormat> for logging::Format {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Human => Self::Human,
            LogFormat::Json => Self::Json,
            LogFormat::Journald => Self::Journald,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Cli, String> {
        Cli::try_parse_from(line.split_whitespace()).map_err(|e| e.to_string())
    }

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_examples_of_the_help_parse() {
        for example in [EXAMPLES, CLIENT_EXAMPLES, ALLOW_EXAMPLES, CERTS_EXAMPLES] {
            for line in example.replace("\\\n", " ").lines().map(str::trim) {
                if let Some(command) = line.strip_prefix("tunnel ") {
                    let command = command.split("   ").next().unwrap();
                    parse(&format!("tunnel {command}")).unwrap();
                }
            }
        }
    }

    #[test]
    fn the_line_of_the_design_gives_what_it_says() {
        let cli = parse(
            "tunnel client --server tls://example.com:7000 --name home --token-file t \
             --publish tcp://:10022=tcp://127.0.0.1:22 \
             --forward tcp://127.0.0.1:5203=tcp://127.0.0.1:5201 -c 3 -vv",
        );
        let Command::Client(args) = cli.unwrap().command else { panic!("not a client") };
        assert_eq!(args.publish, ["tcp://:10022=tcp://127.0.0.1:22"]);
        assert_eq!(args.forward.len(), 1);
        assert_eq!(args.connections, NonZeroUsize::new(3));
        assert_eq!(args.daemon.verbose, 2);
    }

    #[test]
    fn names_of_a_certificate_may_follow_one_flag_or_several() {
        for line in ["-s a.example 10.0.0.1 ::1 -y 5", "-s a.example -s 10.0.0.1 -s ::1 -y5"] {
            let cli = parse(&format!("tunnel generate certs {line}")).unwrap();
            let Command::Generate(Generate::Certs(args)) = cli.command else { panic!("{line}") };
            assert_eq!((args.server.len(), args.years), (3, 5));
        }
    }

    #[test]
    fn mistakes_are_explained() {
        let wrong = |line| parse(line).unwrap_err();
        assert!(wrong("tunnel client --config c --publish 10022").contains("two addresses"));
        assert!(wrong("tunnel client --config c --publish :1=tcp://a:2").contains("tcp://:1"));
        assert!(wrong("tunnel client --config c --publish 80=tcp://a:2").contains("tcp://:80"));
        let said = wrong("tunnel client --config c --publish tcp://:1=80");
        assert!(said.contains("like tcp://127.0.0.1:80"), "{said}");
        assert!(wrong("tunnel client --name x").contains("--server"));
        assert!(wrong("tunnel client --server a --name x").contains("--token-file"));
        assert!(wrong("tunnel server --log-level loud").contains("`loud` is no level"));
        assert!(wrong("tunnel server --log-level info,link=deep").contains("`deep` is no level"));
        parse("tunnel server --log-level info,link=debug").unwrap();
        assert!(wrong("tunnel client --config c -c 0").contains("'0'"));
        assert!(wrong("tunnel server --config c --name x").contains("cannot be used with"));
        assert!(wrong("tunnel server --token a --token-file b").contains("cannot be used with"));
        for line in
            ["tunnel ping -c 0", "tunnel ping -i 31", "tunnel ping -W 11", "tunnel ping -i nan"]
        {
            assert!(wrong(line).contains("invalid value"), "{line}");
        }
        assert!(wrong("tunnel speedtest --seconds 61").contains("from 1 to 60"));
        parse("tunnel speedtest --seconds 60").unwrap();
        assert!(wrong("tunnel allow home").contains("--tcp"));
        assert!(wrong("tunnel allow --tcp 22").contains("NAME"));
        assert!(wrong("tunnel generate config proxy").contains("server, client"));
        assert!(wrong("tunnel generate certs").contains("--server"));
        for years in ["0", "31", "-1", "1.5", "ten", "256"] {
            let line = format!("tunnel generate certs -s a.example -y={years}");
            let said = parse(&line).unwrap_err();
            assert!(said.contains("lasts 1 to 30 whole years"), "{said}");
        }
        let said = wrong("tunnel generate certs -s tls://a.example:7000");
        assert!(said.contains("leave scheme, port and path away"), "{said}");
    }
}
