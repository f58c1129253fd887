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

use flags::Grammar;

use crate::plan::Plan;
use crate::section::{Book, Read};
use crate::table::Row;
use crate::tree::Node;
use crate::{Failure, Options, Program};

/// The conversion of the keys of the program.
pub(crate) const fn rows(program: Program) -> &'static [Row] {
    match program {
        Program::Frp => frp::ROWS,
        Program::Rathole => rathole::ROWS,
        Program::Ngrok => ngrok::ROWS,
        Program::Chisel => chisel::ROWS,
        Program::Wstunnel => wstunnel::ROWS,
        Program::Cloudflared => cloudflared::ROWS,
        Program::Evproxy => evproxy::ROWS,
        Program::Gt => gt::ROWS,
        Program::Qmux => qmux::ROWS,
    }
}

/// The tree of a file in the form that the table describes.
pub(crate) fn prepared(program: Program, root: Node) -> Node {
    if program == Program::Frp { frp::prepared(root) } else { root }
}

/// Whether the keys of a file belong to this program.
pub(crate) fn fits(program: Program, root: &Node) -> bool {
    match program {
        Program::Frp => frp::fits(root),
        Program::Rathole => rathole::fits(root),
        Program::Ngrok => ngrok::fits(root),
        Program::Chisel | Program::Wstunnel => false,
        Program::Cloudflared => cloudflared::fits(root),
        Program::Evproxy => evproxy::fits(root),
        Program::Gt => gt::fits(root),
        Program::Qmux => qmux::fits(root),
    }
}

/// The command line syntax of a program.
pub(crate) fn grammar(program: Program) -> &'static Grammar {
    if program == Program::Wstunnel { &wstunnel::GRAMMAR } else { &chisel::GRAMMAR }
}

/// The table of each program.
#[must_use]
pub fn tables() -> Vec<(Program, &'static [Row])> {
    Program::ALL.into_iter().map(|program| (program, rows(program))).collect()
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
