//! The arguments of `tunnel import`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use import::Program;

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// Files of the server and of the clients of the other program, in any of its formats; or units
    /// of systemd and scripts with its command line; or `chisel` or `wstunnel`, with the command
    /// line behind `--`
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The words of a command line, without the name of the program
    #[arg(last = true, value_name = "ARGS")]
    pub(crate) command: Vec<String>,
    /// The program, where the files do not tell
    #[arg(long, value_name = "PROGRAM", value_parser = program())]
    pub(crate) from: Option<Program>,
    /// Folder of the new files
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    pub(crate) output: PathBuf,
    /// Name of the client [default: that of the source, or home]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// How clients reach your server: example.com, or a URL [default: that of the source]
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// Domain of names whose source has the first label alone [default: example.com]
    #[arg(long, value_name = "DOMAIN")]
    pub(crate) domain: Option<String>,
    /// Write nothing; print the files without their secrets
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON, for programs
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) json: bool,
}

fn program() -> impl clap::builder::TypedValueParser<Value = Program> {
    let names = Program::ALL.into_iter().map(Program::name);
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Program>())
}
