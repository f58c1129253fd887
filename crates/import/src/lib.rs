//! Converts configurations of other tunnel programs to files of this program.
//!
//! ```text
//!   files ──► read ──► tree with lines ──► programs ──► plan ──► write ──► server.yaml, …
//!                            │                                  (config's writer of YAML)
//!                            └──► values that no file took ──► tables ──► findings
//! ```
//!
//! * `source`, `material`: the inputs, that is texts and secrets
//! * `read`: converts TOML, INI, YAML, JSON and command lines to one kind of tree
//! * `guess`: recognises the program of a file
//! * `section`: reads values of the tree and marks them as used
//! * `table`: the result for each key of a program. A value that is not used afterwards is a
//!   [`Finding`], with the reason of its row
//! * `program`: the names of the programs; `programs`: a module for each, with its table and its
//!   mapping
//! * `plan`: the planned files, and the rights that they need; `write`: their text
//! * `verify`: our own decoder reads the text. Refused parts are left out and become findings
//!
//! A service is never more open than in the source: where a restriction has no counterpart, the
//! service has no visitors until the user has decided (`Service::close`).
//!
//! The crate is pure: texts are arguments, and random tokens and the certificate come from
//! [`Material`].

mod address;
mod finding;
mod fuzz;
mod guess;
mod material;
mod next;
mod plan;
mod program;
mod programs;
mod read;
mod section;
mod source;
mod table;
mod tree;
mod verify;
mod write;

pub use finding::{Failure, Finding, Problem};
#[doc(hidden)]
pub use fuzz::fuzz;
pub use material::{Certificate, Material};
pub use program::Program;
pub use programs::tables;
pub use source::{Options, Source, Text};
pub use table::{Fate, Row};
pub use write::File;

use section::Book;

/// The result of an import.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The program of the sources.
    pub program: Program,
    /// The files, the server's first.
    pub files: Vec<File>,
    /// The number of source lines that the files or the program itself cover.
    pub mapped: usize,
    /// The source lines without an effect.
    pub findings: Vec<Finding>,
    /// The next steps for the user.
    pub next: Vec<String>,
}

/// Imports the texts of one program.
///
/// # Errors
/// A text cannot be read, the program is not recognised, or there is nothing to import.
pub fn import(
    sources: &[Source],
    options: &Options,
    material: &mut dyn Material,
) -> Result<Imported, Failure> {
    let (program, read) = guess::read(sources, options)?;
    let book = Book::default();
    let mut plan = programs::plan(program, &read, options, &book)?;
    let mut mapped = 0;
    for source in &read {
        mapped += table::settle(programs::rows(program), source, &book);
    }
    if plan.proxy.is_some() {
        verify::settle_proxy(&mut plan, &book)?;
        let findings = book.sorted(&read);
        let next = next::steps_of_proxy(program, findings.len());
        let files = write::files(program, &plan, &findings);
        return Ok(Imported { program, files, mapped, findings, next });
    }
    plan.complete(options, material, &book)?;
    verify::settle_clients(&mut plan, &book)?;
    plan.admit()?;
    verify::settle_server(&mut plan, &book)?;
    let findings = book.sorted(&read);
    let next = next::steps(program, &plan, findings.len());
    let files = write::files(program, &plan, &findings);
    Ok(Imported { program, files, mapped, findings, next })
}
