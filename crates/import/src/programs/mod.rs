//! The programs that can be imported. A module for each has the table of its keys and its mapping.

mod chisel;
mod cloudflared;
mod evproxy;
pub(crate) mod flags;
mod frp;
mod gt;
mod ngrok;
mod qmux;
mod rathole;
mod wstunnel;

use std::fmt;
use std::str::FromStr;

use crate::plan::Plan;
use crate::section::{Book, Read};
use crate::table::Row;
use crate::tree::Node;
use crate::{Failure, Options};

/// A program whose configuration can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the programs")]
pub enum Program {
    Frp,
    Rathole,
    Ngrok,
    Chisel,
    Wstunnel,
    Cloudflared,
    Evproxy,
    Gt,
    Qmux,
}

impl Program {
    /// All programs.
    pub const ALL: [Self; 9] = [
        Self::Frp,
        Self::Rathole,
        Self::Ngrok,
        Self::Chisel,
        Self::Wstunnel,
        Self::Cloudflared,
        Self::Evproxy,
        Self::Gt,
        Self::Qmux,
    ];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Frp => "frp",
            Self::Rathole => "rathole",
            Self::Ngrok => "ngrok",
            Self::Chisel => "chisel",
            Self::Wstunnel => "wstunnel",
            Self::Cloudflared => "cloudflared",
            Self::Evproxy => "evproxy",
            Self::Gt => "gt",
            Self::Qmux => "qmux",
        }
    }

    /// Whether a command line is the configuration.
    pub(crate) const fn is_command(self) -> bool {
        matches!(self, Self::Chisel | Self::Wstunnel)
    }

    /// What becomes of the keys of the program.
    pub(crate) const fn rows(self) -> &'static [Row] {
        match self {
            Self::Frp => frp::ROWS,
            Self::Rathole => rathole::ROWS,
            Self::Ngrok => ngrok::ROWS,
            Self::Chisel => chisel::ROWS,
            Self::Wstunnel => wstunnel::ROWS,
            Self::Cloudflared => cloudflared::ROWS,
            Self::Evproxy => evproxy::ROWS,
            Self::Gt => gt::ROWS,
            Self::Qmux => qmux::ROWS,
        }
    }

    /// The tree of a file in the form that the table describes.
    pub(crate) fn prepared(self, root: Node) -> Node {
        if self == Self::Frp { frp::prepared(root) } else { root }
    }

    /// Whether a file is one of this program, by its keys.
    pub(crate) fn fits(self, root: &Node) -> bool {
        match self {
            Self::Frp => frp::fits(root),
            Self::Rathole => rathole::fits(root),
            Self::Ngrok => ngrok::fits(root),
            Self::Chisel | Self::Wstunnel => false,
            Self::Cloudflared => cloudflared::fits(root),
            Self::Evproxy => evproxy::fits(root),
            Self::Gt => gt::fits(root),
            Self::Qmux => qmux::fits(root),
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Program {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|program| program.name() == text);
        found.ok_or_else(|| {
            let names: Vec<_> = Self::ALL.into_iter().map(Self::name).collect();
            format!("known are {}", names.join(", "))
        })
    }
}

/// The table of each program.
#[must_use]
pub fn tables() -> Vec<(Program, &'static [Row])> {
    Program::ALL.into_iter().map(|program| (program, program.rows())).collect()
}

/// The plan of the sources.
pub(crate) fn plan(
    program: Program,
    sources: &[Read],
    options: &Options,
    book: &Book,
) -> Result<Plan, Failure> {
    let mut plan = Plan::default();
    let map = match program {
        Program::Frp => frp::map,
        Program::Rathole => rathole::map,
        Program::Ngrok => ngrok::map,
        Program::Chisel => chisel::map,
        Program::Wstunnel => wstunnel::map,
        Program::Cloudflared => cloudflared::map,
        Program::Evproxy => evproxy::map,
        Program::Gt => gt::map,
        Program::Qmux => qmux::map,
    };
    map(sources, options, book, &mut plan);
    if plan.is_empty() {
        let first = sources.first().map(|source| source.name.clone());
        return Err(Failure::Nothing(first.unwrap_or_default(), program));
    }
    if let Some(wanted) = &options.name {
        match plan.clients.as_slice() {
            [] => {}
            [one] if one.name == *wanted => {}
            [_] => return Err(Failure::Option(format!("`{wanted}` is no name of a client"))),
            more => {
                let names: Vec<_> = more.iter().map(|client| client.name.as_str()).collect();
                return Err(Failure::Option(format!(
                    "--name is for one client; these files have {}",
                    names.join(", ")
                )));
            }
        }
    }
    Ok(plan)
}

/// The domain below which a first label stands.
fn domain(options: &Options) -> &str {
    options.domain.as_deref().unwrap_or(crate::plan::DOMAIN)
}
