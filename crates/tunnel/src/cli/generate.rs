//! The arguments of `tunnel generate`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use config::Policy;
use tls::HostName;

use super::values::years;

pub(super) const CERTS_EXAMPLES: &str = "\
Examples:
  An authority, and certificates of a server and of client `home`:
    tunnel generate certs -s example.com 192.0.2.2 -o certs
  Two more clients of the same authority:
    tunnel generate certs -o certs --client laptop phone
  An authority of a cluster, certificates of its nodes and of etcd:
    tunnel generate certs -o cluster --node fra1 fra2 --etcd etcd1 etcd2";

#[derive(Debug, Subcommand)]
pub(crate) enum Generate {
    /// Print a commented configuration file
    Config {
        /// Role of the file
        side: Sample,
        /// Server of a client: a URL; several URLs are paths to one server, NAME=URL names one of
        /// several servers; may be repeated
        #[arg(long, value_name = "URL")]
        server: Vec<String>,
        /// Which of several servers of a client has the services: all, failover, nearest
        #[arg(long = "use", value_name = "POLICY", value_parser = policy)]
        policy: Option<Policy>,
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
    /// Print the hash of a visitor's password for `basic_auth` or `basic_auth_file`. The password
    /// is the first line of standard input
    Password {
        /// Name of the user: the line is `USER:HASH` then
        user: Option<String>,
    },
    /// Create an authority and its certificates for a server and its clients, or for the nodes of a
    /// cluster
    #[command(after_help = CERTS_EXAMPLES)]
    Certs(CertsArgs),
    /// Print the completions of a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, or write the pages of all commands to a folder
    Man {
        /// Folder for tunnel.1, tunnel-client.1 and the pages of all other commands
        #[arg(short, long, value_name = "DIR")]
        output: Option<PathBuf>,
    },
}

/// The shells that have completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

#[derive(Debug, Args)]
pub(crate) struct CertsArgs {
    /// Names and addresses by which clients dial the server: example.com 192.0.2.2 2001:db8::1
    #[arg(short, long, value_name = "NAME", num_args = 1..,
          required_unless_present_any = ["client", "node", "etcd"], value_parser = host_name)]
    pub(crate) server: Vec<HostName>,
    /// Names of clients [default: home, with a new authority]
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub(crate) client: Vec<String>,
    /// Names of the nodes of a cluster
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub(crate) node: Vec<String>,
    /// Names and addresses by which the nodes of a cluster and the members of its etcd dial the
    /// members: one certificate for all members
    #[arg(long, value_name = "NAME", num_args = 1.., value_parser = host_name)]
    pub(crate) etcd: Vec<HostName>,
    /// Years of validity, 1 to 30; a new authority lasts at least 10 years
    #[arg(short, long, default_value = "2", value_parser = years)]
    pub(crate) years: u8,
    /// Folder; an authority in it (ca.crt, ca.key) issues the certificates
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    pub(crate) output: PathBuf,
}

/// Which of several servers has the services.
fn policy(text: &str) -> Result<Policy, String> {
    text.parse().map_err(|bad: config::BadValue| bad.line())
}

/// A name in a certificate. An international name becomes its `xn--` form.
fn host_name(text: &str) -> Result<HostName, String> {
    let (star, name) = text.strip_prefix("*.").map_or(("", text), |name| ("*.", name));
    let ascii = match name.parse::<config::Host>() {
        Ok(config::Host::Name(name)) if !text.is_ascii() => format!("{star}{name}"),
        Ok(_) | Err(_) => text.to_owned(),
    };
    ascii.parse().map_err(|error: tls::HostNameError| error.to_string())
}

/// The roles that `tunnel install` makes units of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Side {
    Server,
    Client,
}

/// The roles that have a sample of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sample {
    Server,
    Client,
    Proxy,
}
