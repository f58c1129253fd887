//! The command line. What a flag means is the meaning of the configuration key it stands for.

mod values;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tls::HostName;

use crate::logging::Format;
pub(crate) use values::levels;
use values::{interval, pair, patience, span, stream_id, years};

const EXAMPLES: &str = "\
Examples:
  tunnel demo                       see it work, on this machine alone
  tunnel server                     public side; prints the line for the other machine
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
  The other way round: port 5203 here leads to port 5201 on the server's side:
    … --forward tcp://127.0.0.1:5203=tcp://127.0.0.1:5201
  Everything in a file:
    tunnel client --config client.yaml";

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
    /// The public side: clients connect to it, visitors too
    Server(ServerArgs),
    /// The side behind NAT: connects to a server and publishes services there
    #[command(after_help = CLIENT_EXAMPLES)]
    Client(ClientArgs),
    /// Server, client and a web origin in one process: see it work
    Demo {
        /// Fetch once through the tunnel, print the throughput and exit
        #[arg(long)]
        once: bool,
    },
    /// Validate a configuration file and print what would run; exit code 2 if it is wrong
    Check {
        /// The file; its content says whether it is a server's or a client's
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Make certificates, print a commented configuration or a token
    #[command(subcommand)]
    Generate(Generate),
    /// Show what a running tunnel does
    Status {
        #[command(flatten)]
        which: Which,
        /// As JSON, for programs
        #[arg(long)]
        json: bool,
        /// Again and again, with what moves per second, until Ctrl-C; JSON is an object per line then
        #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = interval)]
        watch: Option<Duration>,
    },
    /// List the open streams of a running tunnel, or end some of them
    Streams(StreamsArgs),
    /// Change what a running tunnel logs, until its next reload or start; or show it
    Log {
        /// error, warn, info, debug, trace, or directives such as `info,link=debug`
        #[arg(value_parser = levels)]
        level: Option<String>,
        #[command(flatten)]
        which: Which,
    },
    /// Measure round trips over every link of a running client or server
    Ping(PingArgs),
    /// Measure what a running client's tunnel carries, up and down, and what limits it
    Speedtest(SpeedArgs),
    /// Let a new client in by a one-time code: where the server runs
    Enroll(EnrollArgs),
    /// Let a running tunnel read its configuration again and apply what has changed
    Reload {
        #[command(flatten)]
        which: Which,
    },
    /// Ask a running tunnel to finish its streams and end; wait until it did
    Stop {
        #[command(flatten)]
        which: Which,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Generate {
    /// A commented configuration file
    Config {
        /// For which side
        side: Side,
    },
    /// A random token of 256 bits for a client to log in with
    Token {
        /// No end of line, for `… > token`
        #[arg(short)]
        no_newline: bool,
    },
    /// What a server may keep in the place of a client's token: enough to compare, not to log in
    Hash {
        /// Where the token is; without it, standard input
        file: Option<PathBuf>,
    },
    /// An authority and certificates of it, for a server and its clients
    #[command(after_help = CERTS_EXAMPLES)]
    Certs(CertsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CertsArgs {
    /// Names and addresses by which clients dial the server: example.com 192.0.2.2 2001:db8::1
    #[arg(short, long, value_name = "NAME", num_args = 1.., required_unless_present = "client")]
    pub(crate) server: Vec<HostName>,
    /// Clients by their names [default: home, with a new authority]
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub(crate) client: Vec<String>,
    /// How long the certificates last, 1 to 30; a new authority lasts 10 at least
    #[arg(short, long, default_value = "2", value_parser = years)]
    pub(crate) years: u8,
    /// Folder; an authority that is in it (ca.crt, ca.key) issues them
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    pub(crate) output: PathBuf,
}

/// The two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Side {
    Server,
    Client,
}

/// Which of several running instances.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// The one that was started with this file
    #[arg(long, value_name = "FILE", conflicts_with = "control")]
    pub(crate) config: Option<PathBuf>,
    /// The one with this control socket
    #[arg(long, value_name = "SOCKET")]
    pub(crate) control: Option<PathBuf>,
}

/// `tunnel enroll`.
#[derive(Debug, Args)]
pub(crate) struct EnrollArgs {
    /// The new client's name
    #[arg(required_unless_present = "revoke")]
    pub(crate) name: Option<String>,
    /// Ports it may publish at; may be given several times [default: 1024-65535]
    #[arg(long, value_name = "PORTS")]
    pub(crate) allow_tcp: Vec<String>,
    /// Targets on the server's side that it may reach, like 10.0.0.0/8:* [default: none]
    #[arg(long, value_name = "HOST:PORTS")]
    pub(crate) allow_forward: Vec<String>,
    /// How it reaches the server: tls://example.com:7000, quic://…; may be given several times, preferred
    /// first [default: the server's listeners at an address of this machine]
    #[arg(long, value_name = "URL")]
    pub(crate) server: Vec<String>,
    /// Put a client out that came in by a code, and forget it
    #[arg(long, value_name = "NAME", conflicts_with_all = ["name", "allow_tcp", "allow_forward", "server"])]
    pub(crate) revoke: Option<String>,
    #[command(flatten)]
    pub(crate) which: Which,
}

/// `tunnel streams`.
#[derive(Debug, Args)]
pub(crate) struct StreamsArgs {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Those of one service, or of the forward with this address
    #[arg(long, value_name = "NAME")]
    pub(crate) service: Option<String>,
    /// As many, at most
    #[arg(long, value_name = "N", default_value = "100")]
    pub(crate) limit: usize,
    /// As JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Reset these instead, by the numbers in the list: 3/17
    #[arg(long, value_name = "STREAM", num_args = 1.., value_parser = stream_id)]
    #[arg(conflicts_with_all = ["service", "limit", "json"])]
    pub(crate) kill: Vec<(u64, u32)>,
}

/// `tunnel ping`.
#[derive(Debug, Args)]
pub(crate) struct PingArgs {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Rounds
    #[arg(short, long, value_name = "N", default_value = "5")]
    pub(crate) count: std::num::NonZeroU64,
    /// Time between two rounds, in seconds
    #[arg(short, long, value_name = "SECS", default_value = "1", value_parser = interval)]
    pub(crate) interval: Duration,
    /// How long to wait for an answer, in seconds, at most 10
    #[arg(short = 'W', long, value_name = "SECS", default_value = "2", value_parser = patience)]
    pub(crate) timeout: Duration,
    /// As JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// `tunnel speedtest`.
#[derive(Debug, Args)]
pub(crate) struct SpeedArgs {
    #[command(flatten)]
    pub(crate) which: Which,
    /// How long each direction takes, at most 60
    #[arg(short, long, value_name = "SECS", default_value = "5", value_parser = span)]
    pub(crate) seconds: Duration,
    /// As JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ServerArgs {
    /// Where clients connect: tls://0.0.0.0:7000, quic://…, wss://…; may be given several times
    #[arg(long, value_name = "URL")]
    pub(crate) listen: Vec<String>,
    /// Let a new client of this name in by a one-time code, which is shown on a terminal; later ones
    /// by `tunnel enroll`
    #[arg(long, value_name = "NAME", conflicts_with_all = ["name", "token", "token_file"])]
    pub(crate) enroll: Option<String>,
    /// Name of the one client, without a configuration file [default: home]
    #[arg(long, conflicts_with = "config")]
    pub(crate) name: Option<String>,
    /// File with the token of that client [default: made at the first start, kept in the state
    /// directory]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "token"])]
    pub(crate) token_file: Option<PathBuf>,
    /// The token itself; every user of this machine can read it in /proc: prefer --token-file
    #[arg(long, conflicts_with = "config")]
    pub(crate) token: Option<String>,
    /// Ports that client may publish at; may be given several times [default: 1024-65535]
    #[arg(long, value_name = "PORTS", conflicts_with = "config")]
    pub(crate) allow_tcp: Vec<String>,
    /// Targets on this side that client may reach, like 10.0.0.0/8:* [default: none]
    #[arg(long, value_name = "HOST:PORTS", conflicts_with = "config")]
    pub(crate) allow_forward: Vec<String>,
    /// Certificate chain, PEM [default: self-signed, made at the first start]
    #[arg(long, value_name = "FILE")]
    pub(crate) cert: Option<PathBuf>,
    /// Its key, PEM
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
    /// Come in by the code that `tunnel enroll` gave on the server (`-`: the first line of standard
    /// input): writes the file of --config [default: client.yaml] and starts with it
    #[arg(long, value_name = "CODE")]
    #[arg(conflicts_with_all = ["name", "token", "token_file", "pin", "ca", "cert", "key"])]
    pub(crate) enroll: Option<String>,
    /// Where the server is: tls://example.com:7000, quic://…, wss://…; several are ways to the same server, preferred
    /// first
    #[arg(long, value_name = "URL", required_unless_present_any = ["config", "enroll"])]
    pub(crate) server: Vec<String>,
    /// Name to log in with
    #[arg(long, required_unless_present_any = ["config", "enroll"])]
    pub(crate) name: Option<String>,
    /// File with the token to log in with; a certificate may be enough
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    #[arg(required_unless_present_any = ["config", "token", "cert", "enroll"])]
    pub(crate) token_file: Option<PathBuf>,
    /// The token itself; every user of this machine can read it in /proc: prefer --token-file
    #[arg(long)]
    pub(crate) token: Option<String>,
    /// Public key that the server must show, sha256:…, as it printed it; several allow a change
    #[arg(long, value_name = "PIN")]
    pub(crate) pin: Vec<String>,
    /// File with the certificates that the server's must come from [default: those of the system]
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Certificate chain to show to the server, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) cert: Option<PathBuf>,
    /// Its key, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Publish a service: tcp://:10022=tcp://127.0.0.1:22
    #[arg(long, value_name = "PUBLIC=TARGET", value_parser = pair)]
    pub(crate) publish: Vec<String>,
    /// Listen here for targets on the server's side: tcp://127.0.0.1:5203=tcp://127.0.0.1:5201
    #[arg(long, value_name = "LISTEN=TARGET", value_parser = pair)]
    pub(crate) forward: Vec<String>,
    /// Links to the server [default: one per worker, at least 2]
    #[arg(short, long, value_name = "N")]
    pub(crate) connections: Option<NonZeroUsize>,
    #[command(flatten)]
    pub(crate) daemon: DaemonArgs,
}

/// What both roles have.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct DaemonArgs {
    /// Configuration file; flags win over it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where keys and tokens are kept [default: $STATE_DIRECTORY, /var/lib/tunnel for root, else
    /// ~/.local/state/tunnel]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Threads [default: as many as this process has cores]
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<NonZeroUsize>,
    /// Control socket for `tunnel status` and `tunnel stop` [default: in --state-dir if given, else
    /// in $RUNTIME_DIRECTORY, /run/tunnel for root, $XDG_RUNTIME_DIR/tunnel]
    #[arg(long, value_name = "SOCKET")]
    pub(crate) control: Option<PathBuf>,
    /// Log more; twice for everything
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// error, warn, info, debug, trace, or by part: info,link=debug [default: $TUNNEL_LOG, info]
    #[arg(long, value_name = "LEVEL", value_parser = levels)]
    pub(crate) log_level: Option<String>,
    /// How log lines look
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<Format>,
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
        for example in [EXAMPLES, CLIENT_EXAMPLES, CERTS_EXAMPLES] {
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
