//! The command line. A flag has the meaning of the configuration key that it sets.

mod asked;
mod generate;
mod import;
mod install;
mod notes;
mod options;
mod roles;
mod values;

use std::time::Duration;

use clap::{Parser, Subcommand};
use logging::levels;
use ops::command::{
    Allow, Command as _, Connect, Deny, FollowEvents, ListClients, Locate, MoveLinks, OpenConsole,
    PingLinks, ProbeNat, ReadStatus, Reconnect, Reload, Restart, SetLog, Stop, TestSpeed,
};
use ops::share::ShareOrder;
use ops::upgrade::UpgradeOrder;

pub(crate) use asked::{
    CheckArgs, ClientsArgs, ClientsCommand, ClusterClientsArgs, ClusterCommand, ConnectArgs,
    ConsoleArgs, EnrollArgs, ForwardArgs, HoldArgs, LimitArgs, MoveArgs, NatArgs, PingArgs,
    PublishArgs, RequestsArgs, RightsArgs, ShareArgs, SpeedArgs, StreamsArgs, UnpublishArgs,
    UpgradeArgs, VisitArgs, WhereArgs, Which,
};
pub(crate) use generate::{Generate, Sample, Shell, Side};
pub(crate) use import::ImportArgs;
pub(crate) use install::{InstallArgs, PlaceArgs, UninstallArgs};
pub(crate) use options::{OptionArgs, TargetArgs};
pub(crate) use roles::{ClientArgs, DaemonArgs, LogArgs, ProxyArgs, RunArgs, ServerArgs};
use values::interval;

use crate::targets::TargetsCommand;

const EXAMPLES: &str = "\
Examples:
  tunnel demo            try the tunnel on this machine alone
  tunnel server          public side; prints the command for a client
  tunnel client --server example.com --name home --token-file token \\
      --pin sha256:… --publish 10022=22
  tunnel publish 3000    publish another port of the running client
  tunnel check server.yaml
  tunnel status
  tunnel speedtest

Exit codes:
  0  success
  1  failure, such as a taken port or a daemon that does not answer
  2  wrong usage or configuration: a repetition does not help
  3  of import: files are written, and lines of the source are left over

Manual: the folder crates/tunnel/docs of the sources, beginning with quick-start.md.
Pages of all commands: `tunnel generate man -o DIR`, then `man -l DIR/tunnel-publish.1`.";

const CLIENT_EXAMPLES: &str = "\
Examples:
  Publish the local ssh server at port 10022 of the server:
    tunnel client --server example.com --name home --token-file token \\
        --pin sha256:… --publish 10022=22
  A forward: port 5203 here leads to port 5201 on the server's side:
    … --forward 5203=5201
  A SOCKS5 proxy here, whose targets the server dials:
    … --forward socks5://127.0.0.1:1080
  With a configuration file:
    tunnel client --config client.yaml";

const PROXY_EXAMPLES: &str = "\
Examples:
  Two targets, all visitors of an address at the same one:
    tunnel proxy --listen tcp://:5201 --target tcp://a:5201,tcp://b:5201 \\
      --balance source_hash --limit-connections 10000
  TLS that ends here, and two name servers:
    tunnel proxy --listen tcp://:443 --cert a.crt --key a.key --target 80
    tunnel proxy --listen udp://:53 --target udp://a:53,udp://b:53
  Many listeners, from a file:
    tunnel generate config proxy         a file with every key
    tunnel proxy --config proxy.yaml";

const RUN_NOTE: &str = "\
Examples:
  tunnel run --config conf.d
  tunnel status
  tunnel reload
  tunnel restart home

Each file *.yaml and *.yml, down to the third level of folders, describes a
daemon: a server, a client or a proxy, by its keys or by its key `type`. A
daemon that fails starts again after a pause of 1 s to 60 s. `tunnel reload`
and SIGHUP start daemons for new files and end those whose files are gone;
the other daemons read their files again.";

const ALLOW_EXAMPLES: &str = "\
Examples:
  tunnel allow home --tcp 22 20000-20100
  tunnel allow home --udp 51820
  tunnel allow home --forward 10.0.0.0/8:*

Rights are added to the file that names the client, and stay after a restart.";

const DENY_EXAMPLES: &str = "\
Examples:
  tunnel deny home --tcp 22
  tunnel deny home --tcp 10500-10600       the other ports of a range stay
  tunnel deny home --http '*.home.example.com'

The rights leave the file that names the client. A service without a right is withdrawn at once: no
new visitor reaches it. Its open streams go on until a visitor or the target ends them; `tunnel
streams --kill` resets one.";

const PUBLISH_EXAMPLES: &str = "\
Examples:
  Port 3000 of this machine, at any port of the server, and at port 10080:
    tunnel publish 3000
    tunnel publish 10080=3000
  Port 22 of another machine here, and a port of UDP:
    tunnel publish 10022=192.168.1.5:22
    tunnel publish udp://51820=udp://51820
  A web site of this machine at a host name, and a part of the site:
    tunnel publish http://app.example.com=3000
    tunnel publish http://app.example.com=3001 --path /api --name api
  With a password, for visitors of some networks, for an hour:
    tunnel publish http://app.example.com=3000 --basic-auth @users
    tunnel publish 10080=3000 --allow-from 192.0.2.0/24,2001:db8::/32
    tunnel publish 3000 --for 1h
  Write everything that commands have published into the file:
    tunnel publish --save

The client keeps the services in its state directory. `tunnel unpublish NAME` withdraws a service.";

const SHARE_EXAMPLES: &str = "\
Examples:
  tunnel share 3000
  tunnel share ./site --for 1h
  tunnel share report.pdf --once
  tunnel share 192.168.1.5:80 --password
  tunnel share 3000 --enroll CODE

The address is http://WORD-CLIENT.DOMAIN below the server's `http.domain`, or a port of the server
where there is no such name. Whoever knows the address may visit: --password keeps others out. The
running client of this machine shares the target; without a running client this command starts one
for the time. Nothing is written anywhere, and nothing stays when the command has ended.";

const NAT_NOTE: &str = "\
The client asks the server's STUN ports and those of p2p.stun, for 3 s at most. The exit code is 0,
also if UDP is blocked, and 1 if no STUN server is known.";

const UPGRADE_NOTE: &str = "\
The new process reads the configuration anew. If it cannot serve, the daemon goes on as before, and
the exit code is 1 with the reason on standard error. The installer of a package calls
`tunnel upgrade --all`.";

const STOP_NOTE: &str = "\
Open streams may finish within `drain_timeout`. A second `tunnel stop` and a second signal to the
daemon do what --now does.";

const CONNECT_EXAMPLES: &str = "\
Examples:
  tunnel connect 10.0.0.5:22
  ssh -o ProxyCommand='tunnel connect %h:%p' admin@10.0.0.5

The exit code is 1, and the reason on standard error, if there is no connection.";

const VISIT_EXAMPLES: &str = "\
Examples:
  On the machine with the private service `ssh`, for a new client and for
  the client `office` that the server has already:
    tunnel visit --new ssh --name laptop
    tunnel visit --new ssh --for office
    tunnel visit --list
    tunnel visit --revoke laptop
  On the visitor's machine, with the code that --new printed:
    tunnel visit visit1.… --listen 2222
  In a browser without this program, if the server has `http.browser: true`
  and the service, a web site, `browser: true` (browser.md of the manual):
    https://visit.example.com/#visit1.…

The code has a secret of the two clients, which the server never sees. It works once within ten
minutes. The client with the service needs the right allow.invite on the server.";

const IMPORT_NOTE: &str = "\
Examples:
  tunnel import frps.toml frpc.toml
  tunnel import --server example.com -o new ngrok.yml
  tunnel import chisel -- client https://example.com R:2222:localhost:22
  tunnel import /etc/systemd/system/wstunnel.service

Files of the server and of all its clients belong together: they share names and new tokens. The
files that are written have secrets, and nothing is written over.

Each line of the source that nothing does here is printed with its reason and the nearest thing.
The exit code is 0 if there is no such line, 3 if there are some, 2 if a source cannot be read or
is of no known program, 1 if a file cannot be written. The page coming-from.md of the manual
(`tunnel --help` says where it is) has all keys of all programs.";

const CLIENTS_EXAMPLES: &str = "\
Examples:
  tunnel clients
  tunnel clients show home
  tunnel clients allow home --tcp 22
  tunnel clients limit home --streams 100 --new-per-second none
  tunnel clients hold home --page maintenance.html --retry-after 1h
  tunnel clients hold home --off
  tunnel clients revoke home

The list also has the clients that are away. What is known of a client that is away is from the
time since the server's start.";

const WHERE_EXAMPLES: &str = "\
Examples:
  tunnel where home
  tunnel where http://app.example.com
  tunnel where 10022";

/// Publishes TCP and UDP services behind NAT through a public server.
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
    Client(Box<ClientArgs>),
    /// Spread connections and datagrams over targets of this side, without a tunnel
    #[command(after_help = PROXY_EXAMPLES)]
    Proxy(ProxyArgs),
    /// Run a daemon for each file of a folder, and start it again after an error
    #[command(after_help = RUN_NOTE)]
    Run(RunArgs),
    /// Run server, client and a web origin in one process, to try the tunnel
    Demo {
        /// Fetch once through the tunnel, print the throughput and exit
        #[arg(long)]
        once: bool,
    },
    /// Validate a configuration file and print what would run; exit code 2 if it is wrong
    Check(CheckArgs),
    /// Create certificates; print a commented configuration, a token or its hash
    #[command(subcommand)]
    Generate(Generate),
    #[command(about = ReadStatus::ABOUT.help)]
    Status {
        #[command(flatten)]
        which: Which,
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
        /// Show all columns, however narrow the terminal is
        #[arg(long, conflicts_with = "json")]
        wide: bool,
        /// Explain which server has the services, and over which path each link goes
        #[arg(long, conflicts_with_all = ["json", "wide", "watch"])]
        why: bool,
        /// Repeat the status until Ctrl-C, with rates per second; with --json one object per line
        #[arg(long, value_name = "SECONDS", value_parser = interval)]
        #[arg(num_args = 0..=1, default_missing_value = "1")]
        watch: Option<Duration>,
    },
    /// List the open streams of a running daemon, or reset some of them
    Streams(StreamsArgs),
    /// List the last requests of the visitors of a running client, show one, or send one again
    Requests(RequestsArgs),
    #[command(about = SetLog::ABOUT.help)]
    Log {
        /// error, warn, info, debug, trace, or directives such as `info,link=debug`
        #[arg(value_parser = levels)]
        level: Option<String>,
        #[command(flatten)]
        which: Which,
    },
    #[command(about = PingLinks::ABOUT.help)]
    Ping(PingArgs),
    #[command(about = TestSpeed::ABOUT.help)]
    Speedtest(SpeedArgs),
    #[command(about = ProbeNat::ABOUT.help, after_help = NAT_NOTE)]
    Nat(NatArgs),
    #[command(flatten)]
    Targets(TargetsCommand),
    /// Admit a new client by a one-time code; runs on the machine of the server
    Enroll(EnrollArgs),
    #[command(about = Allow::ABOUT.help, after_help = ALLOW_EXAMPLES)]
    Allow(RightsArgs),
    #[command(about = Deny::ABOUT.help, after_help = DENY_EXAMPLES)]
    Deny(RightsArgs),
    /// Publish services of a running client, at once and after a restart
    #[command(after_help = PUBLISH_EXAMPLES)]
    Publish(PublishArgs),
    /// Withdraw services of a running client, or close its forwards, at once and after a restart
    Unpublish(UnpublishArgs),
    /// Open forwards of a running client, at once and after a restart
    Forward(ForwardArgs),
    #[command(about = ShareOrder::ABOUT.help, after_help = SHARE_EXAMPLES)]
    Share(ShareArgs),
    #[command(about = Connect::ABOUT.help, after_help = CONNECT_EXAMPLES)]
    Connect(ConnectArgs),
    /// Visit a private service of another client by a code; or make such a code for a service of
    /// the running client, list its visitors, or revoke one
    #[command(after_help = VISIT_EXAMPLES)]
    Visit(VisitArgs),
    #[command(about = ListClients::ABOUT.help, after_help = CLIENTS_EXAMPLES)]
    Clients(ClientsArgs),
    #[command(about = Locate::ABOUT.help, after_help = WHERE_EXAMPLES)]
    Where(WhereArgs),
    /// Show the nodes and the clients of a cluster, or the records by which visitors find the nodes
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Make server.yaml and client.yaml of the configuration of another program: frp, rathole,
    /// ngrok, chisel, wstunnel, cloudflared, evproxy, GT, QMux
    #[command(after_help = IMPORT_NOTE)]
    Import(ImportArgs),
    /// Make an enrolled client or a server a unit of systemd: unit, file, secrets, state, program
    Install(InstallArgs),
    /// Remove a unit that `tunnel install` made; configuration and state stay without --purge
    Uninstall(UninstallArgs),
    #[command(about = FollowEvents::ABOUT.help)]
    Events {
        #[command(flatten)]
        which: Which,
    },
    #[command(about = OpenConsole::ABOUT.help)]
    Console(ConsoleArgs),
    #[command(about = Reload::ABOUT.help)]
    Reload {
        #[command(flatten)]
        which: Which,
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
    },
    #[command(about = UpgradeOrder::ABOUT.help, after_help = UPGRADE_NOTE)]
    Upgrade(UpgradeArgs),
    #[command(about = Restart::ABOUT.help)]
    Restart {
        /// Name of the daemon, as `tunnel status` shows it [default: all daemons]
        name: Option<String>,
        #[command(flatten)]
        which: Which,
        /// Reset the remaining streams at once
        #[arg(long)]
        now: bool,
    },
    #[command(about = Reconnect::ABOUT.help)]
    Reconnect {
        /// On a server: the client
        name: Option<String>,
        #[command(flatten)]
        which: Which,
    },
    #[command(about = MoveLinks::ABOUT.help)]
    Move(MoveArgs),
    #[command(about = Stop::ABOUT.help, after_help = STOP_NOTE)]
    Stop {
        #[command(flatten)]
        which: Which,
        /// Reset the remaining streams at once
        #[arg(long)]
        now: bool,
    },
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use clap::CommandFactory;

    use super::generate::CERTS_EXAMPLES;
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
        for example in [
            EXAMPLES,
            CLIENT_EXAMPLES,
            PROXY_EXAMPLES,
            RUN_NOTE,
            ALLOW_EXAMPLES,
            DENY_EXAMPLES,
            CLIENTS_EXAMPLES,
            CONNECT_EXAMPLES,
            IMPORT_NOTE,
            CERTS_EXAMPLES,
            PUBLISH_EXAMPLES,
            VISIT_EXAMPLES,
        ] {
            for line in example.replace("\\\n", " ").lines().map(str::trim) {
                if let Some(command) = line.strip_prefix("tunnel ") {
                    let command = command.split("   ").next().unwrap();
                    parse(&format!("tunnel {command}")).unwrap();
                }
            }
        }
    }

    #[test]
    fn the_help_says_where_the_manual_is() {
        let help = Cli::command().render_help().to_string();
        let (_, folder) = help.split_once("Manual: the folder ").expect("the manual in the help");
        let folder = folder.split_whitespace().next().unwrap();
        let sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        assert!(sources.join(folder).join("quick-start.md").is_file(), "{folder}");
        assert!(help.contains("tunnel generate man -o DIR"), "{help}");
        let mut cli = Cli::command();
        let import = cli.find_subcommand_mut("import").expect("a command");
        let help = import.render_long_help().to_string();
        let (_, page) = help.split_once("The page ").expect("the page of the manual in the help");
        let page = page.split_whitespace().next().unwrap();
        assert!(sources.join(folder).join(page).is_file(), "{page}");
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
        assert_eq!(args.daemon.log.verbose, 2);
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
        assert!(wrong("tunnel client --config c --forward 10022").contains("two addresses"));
        assert!(wrong("tunnel enroll x --server tsl://a").contains("unknown transport `tsl`"));
        let Command::Enroll(args) = parse("tunnel enroll x --server a.example").unwrap().command
        else {
            panic!("no enrolment")
        };
        assert_eq!(args.server, ["a.example"]);
        parse("tunnel client --config c --forward socks5://127.0.0.1:1080").unwrap();
        parse("tunnel forward http-proxy://3128 udp://5300=udp://9.9.9.9:53").unwrap();
        assert!(wrong("tunnel connect udp://a:1").contains("takes datagrams"));
        let Command::Connect(args) = parse("tunnel connect ::1:22").unwrap().command else {
            panic!("no connection")
        };
        assert_eq!(args.target, "tcp://[::1]:22");
        assert!(wrong("tunnel streams --kill 3/x17").contains("3/u17"));
        let Command::Streams(args) = parse("tunnel streams --kill 3/17 3/u17").unwrap().command
        else {
            panic!("no streams")
        };
        let shown: Vec<_> = args.kill.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["3/17", "3/u17"]);
        let Command::Allow(args) = parse("tunnel allow home --udp 53 54").unwrap().command else {
            panic!("no rights")
        };
        assert_eq!((args.tcp.len(), args.udp.len()), (0, 2));
        assert!(wrong("tunnel check a --config b").contains("cannot be used with"));
        assert!(wrong("tunnel server --log-level loud").contains("`loud` is no level"));
        assert!(wrong("tunnel server --log-level info,link=deep").contains("`deep` is no level"));
        parse("tunnel server --log-level info,link=debug").unwrap();
        let said = wrong("tunnel server --log-format loud");
        assert!(said.contains("[possible values: text, json, journald]"), "{said}");
        for word in ["text", "human", "json"] {
            parse(&format!("tunnel server --log-format {word}")).unwrap();
        }
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
        let line = "tunnel allow home --http a.example *.b.example --tls c.example";
        let Command::Allow(args) = parse(line).unwrap().command else { panic!("no rights") };
        assert_eq!((args.http.len(), args.tls.len(), args.tcp.len()), (2, 1, 0));
        let line = "tunnel enroll a --allow-http a.example --allow-http b.example";
        let Command::Enroll(args) = parse(line).unwrap().command else { panic!("no enrolment") };
        assert_eq!(args.allow_http, ["a.example", "b.example"]);
        assert!(wrong("tunnel enroll --revoke a --allow-tls b").contains("cannot be used with"));
        assert!(wrong("tunnel server --config c --allow-http a").contains("cannot be used with"));
        assert!(wrong("tunnel clients hold a --off --page p").contains("cannot be used with"));
        assert!(wrong("tunnel clients limit --ports 1").contains("NAME"));
        assert!(wrong("tunnel clients allow home").contains("--tcp"));
        assert!(wrong("tunnel enroll").contains("NAME"));
        assert!(wrong("tunnel enroll a --renew a").contains("cannot be used with"));
        assert!(wrong("tunnel enroll --renew a --revoke a").contains("cannot be used with"));
        assert!(wrong("tunnel generate config relay").contains("server, client, proxy"));
        assert!(wrong("tunnel proxy --listen tcp://:1").contains("--target"));
        assert!(wrong("tunnel proxy --target tcp://a:1").contains("--listen"));
        assert!(wrong("tunnel proxy --balance source_hash").contains("--listen"));
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
