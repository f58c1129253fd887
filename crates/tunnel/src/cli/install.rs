//! The arguments of `tunnel install` and `tunnel uninstall`.

use std::path::PathBuf;

use clap::Args;

use super::Side;
use crate::complete::instances;

#[derive(Clone, Debug, Args)]
pub(crate) struct InstallArgs {
    /// Role [default: by the configuration file, client.yaml if there is one, otherwise server]
    pub(crate) side: Option<Side>,
    /// Name of the instance [default: name of the client; main for a server]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Configuration file
    /// [default: client.yaml or server.yaml in this folder; none for a server that was started
    /// without a file]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// State directory so far [default: as for `tunnel server`, also of the user who called sudo]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Address of a server without a file, where clients connect; may be repeated
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    pub(crate) listen: Vec<String>,
    /// Replace files that differ. The state of an installed server stays, its clients always
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct UninstallArgs {
    /// Role [default: of the only installed instance]
    pub(crate) side: Option<Side>,
    /// Name of the instance [default: of the only installed instance]
    #[arg(long, add = instances())]
    pub(crate) name: Option<String>,
    /// Remove configuration, secrets and state as well
    #[arg(long)]
    pub(crate) purge: bool,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
}

/// Where, and whether at all.
#[derive(Clone, Debug, Args)]
pub(crate) struct PlaceArgs {
    /// Root directory, such as that of an image
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// Print files and commands, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}
