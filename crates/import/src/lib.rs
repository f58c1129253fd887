//! Configurations of other tunnel programs become files of this program.
//!
//! ```text
//!   files ──► read ──► tree with lines ──► programs ──► plan ──► write ──► server.yaml, …
//!                            │                                  (config's writer of YAML)
//!                            └──► values that no file took ──► tables ──► findings
//! ```
//!
//! * `read`: TOML, INI, YAML, JSON and command lines become one kind of tree
//! * `guess`: which program a file belongs to
//! * `section`: reads values of the tree and marks them as used
//! * `table`: what becomes of each key of a program. A value that is not used afterwards is a
//!   [`Finding`], with the reason of its row
//! * `programs`: a module for each program, with its table and its mapping
//! * `plan`: what is to be written, and the rights that it needs; `write`: its text
//! * `verify`: our own decoder reads the text. What it refuses is left out, and is a finding
//!
//! A service is never more open than in the source: where a restriction has no counterpart, nobody
//! may visit the service until a person has decided (`Service::close`).
//!
//! The crate is pure: texts come in, and random tokens and the certificate by [`Material`].

mod address;
mod finding;
mod fuzz;
mod guess;
mod next;
mod plan;
mod programs;
mod read;
mod section;
mod table;
mod tree;
mod verify;
mod write;

pub use finding::{Failure, Finding, Problem};
#[doc(hidden)]
pub use fuzz::fuzz;
pub use programs::{Program, tables};
pub use table::{Fate, Row};

use section::Book;

/// A text to import.
#[derive(Clone, Debug)]
pub struct Source {
    /// The name of the file, for messages. For a command, the name of the program.
    pub name: String,
    /// The folder that paths of the file are relative to. Empty: they stay as they are.
    pub folder: String,
    /// The text.
    pub text: Text,
}

/// The kinds of source texts.
#[derive(Clone, Debug)]
pub enum Text {
    /// The content of a file.
    File(String),
    /// The arguments of a program.
    Command(Vec<String>),
}

/// What the sources do not say.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The program, where the texts do not tell.
    pub from: Option<Program>,
    /// The name of the client.
    pub name: Option<String>,
    /// The URL or the host by which clients reach the server.
    pub server: Option<String>,
    /// The domain of names whose source has the first label alone.
    pub domain: Option<String>,
}

/// A certificate of the server.
#[derive(Clone)]
pub struct Certificate {
    /// The certificate as PEM.
    pub certificate: String,
    /// The private key as PEM.
    pub key: String,
    /// The pin of the key, `sha256:…`.
    pub pin: String,
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificate").field("pin", &self.pin).finish_non_exhaustive()
    }
}

/// Secrets for the new files.
pub trait Material {
    /// A random token.
    ///
    /// # Errors
    /// The system has no randomness.
    fn token(&mut self) -> Result<String, String>;

    /// A self-signed certificate for a server with these names.
    ///
    /// # Errors
    /// The system has no randomness.
    fn certificate(&mut self, hosts: &[String]) -> Result<Certificate, String>;
}

/// A file to write.
#[derive(Clone)]
pub struct File {
    /// The name of the file.
    pub name: String,
    /// The content.
    pub text: String,
    /// The content without secrets, for a terminal.
    pub shown: String,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What the sources became.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The program of the sources.
    pub program: Program,
    /// The files, the server's first.
    pub files: Vec<File>,
    /// The number of source lines that the files or the program itself do.
    pub mapped: usize,
    /// The source lines that nothing does.
    pub findings: Vec<Finding>,
    /// What a person does next, one step per entry.
    pub next: Vec<String>,
}

/// Imports the texts of one program.
///
/// # Errors
/// A text cannot be read, the program is not known, or there is nothing to import.
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
        mapped += table::settle(program, source, &book);
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
