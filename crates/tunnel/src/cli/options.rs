//! The options of services on the command line, for `tunnel publish` and `tunnel client --publish`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use config::Span;

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Options of the services")]
pub(crate) struct OptionArgs {
    /// Visitors of http:// and https:// names and of exits have to know one of these users; may be
    /// repeated. `@FILE`: the lines of a file; `-`: the first line of standard input. Every user of
    /// this machine can read a password in the value: prefer `@FILE`, or the hash of `tunnel
    /// generate password USER`
    #[arg(long, value_name = "USER:PASSWORD", requires = "publish")]
    pub(crate) basic_auth: Vec<String>,
    /// Only requests for this path and what is below it, at an http:// or https:// name
    #[arg(long, value_name = "PATH", requires = "publish")]
    pub(crate) path: Option<String>,
    /// Only visitors from these networks: 10.0.0.0/8,2001:db8::/32
    #[arg(long, value_name = "CIDR", value_delimiter = ',', requires = "publish")]
    pub(crate) allow_from: Vec<String>,
    /// Datagrams may go to the broadcast address of a network, or to a group, as Wake-on-LAN needs:
    /// udp://:9=udp://192.168.1.255:9
    #[arg(long, requires = "publish")]
    pub(crate) broadcast: bool,
    /// End the services after this time: 30m, 1h, 7d; open streams go on
    #[arg(long = "for", value_name = "TIME", requires = "publish", value_parser = lasting)]
    pub(crate) lasting: Option<Span>,
}

/// The options of targets, for `tunnel publish` and `tunnel share`.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Options of the target")]
pub(crate) struct TargetArgs {
    /// The `Host` that the target sees, such as localhost:3000: many development servers refuse
    /// others
    #[arg(long, value_name = "HOST")]
    pub(crate) host_rewrite: Option<String>,
    /// Verify the certificate of an https:// target by the authorities in this file (PEM)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) target_ca: Option<PathBuf>,
    /// Do not verify the certificate of an https:// target
    #[arg(long, conflicts_with = "target_ca")]
    pub(crate) insecure: bool,
}

impl TargetArgs {
    /// Whether any of the options is given.
    pub(crate) fn are_given(&self) -> bool {
        self.host_rewrite.is_some() || self.target_ca.is_some() || self.insecure
    }
}

pub(super) fn lasting(text: &str) -> Result<Span, String> {
    match text.parse::<Span>() {
        Ok(span) if span == Span::from_millis(0) => Err("must be more than 0".to_owned()),
        Ok(span) => Ok(span),
        Err(bad) => Err(bad.line()),
    }
}
