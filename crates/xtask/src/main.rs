//! `cargo xtask …`: the automation of the project, in Rust instead of shell scripts, so that it
//! runs the same on every machine. `.ci/run` calls `cargo xtask test` and does nothing else.
//!
//! The commands that measure a machine or put load on it are in the crate `lab`. This program
//! builds `lab` and executes it in its own process.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a console program")]

mod dist;
mod test;
mod walls;

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::ExitCode;

use xtask::child::{capture, cargo};
use xtask::site::Site;

const HELP: &str = "\
cargo xtask test [STEP…]         everything that has to hold before a merge; deterministic
cargo xtask test --long          the same, then the steps whose outcome depends on the machine
                                 `cargo xtask test --help` lists the steps and options

cargo xtask table cold|warm      the seconds of the last run, into the table of its document
cargo xtask walls --report       figures of the sources that the step `walls` bounds: circles of files,
                                 sizes, names of many types

cargo xtask docs                 writes the parts of documents that are made from the code: keys, metrics,
                                 routes of the API

cargo xtask dist                 packages of a release; `cargo xtask dist --help` says more

cargo xtask bench | netem | chaos | cluster-sim | soak | profile | peers | systems | api
                                 measurements and load; `cargo xtask COMMAND --help` says more
";

/// The commands of `lab`.
const LAB: &[&str] =
    &["api", "bench", "chaos", "cluster-sim", "netem", "peers", "profile", "soak", "systems"];

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some("test") => test::main(args),
        Some("table") => test::table(args),
        Some("docs") => docs(),
        Some("dist") => dist::main(args),
        Some("walls") => figures(args),
        Some(dist::INSIDE) => dist::inside(args),
        Some(command) if LAB.contains(&command) => lab(command, args),
        None | Some("help" | "--help" | "-h") => {
            println!("{HELP}");
            ExitCode::SUCCESS
        }
        Some(other) => {
            eprintln!("xtask: no such command: {other}\n\n{HELP}");
            ExitCode::from(2)
        }
    }
}

/// `cargo xtask walls --report`.
fn figures(args: impl Iterator<Item = String>) -> ExitCode {
    if args.collect::<Vec<_>>() != ["--report"] {
        eprintln!(
            "xtask: cargo xtask walls --report; the step is cargo xtask test walls\n\n{HELP}"
        );
        return ExitCode::from(2);
    }
    match Site::here().and_then(|site| walls::report(&site.root)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The tests that compare a part of a document with the code. With `UPDATE=1` they write it.
const DOCUMENTS: &[&str] = &[
    "the_reference_has_the_table_of_keys",
    "the_manual_has_the_table_of_figures",
    "the_document_has_what_the_table_of_commands_says",
];

/// The packages that have these tests.
const OF_DOCUMENTS: &[&str] = &["config", "ops", "admin"];

/// `cargo xtask docs`.
fn docs() -> ExitCode {
    match Site::here().and_then(|site| write_documents(&site.root)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn write_documents(root: &Path) -> anyhow::Result<()> {
    let mut tests = cargo(root, &["test", "--lib"]);
    tests.args(OF_DOCUMENTS.iter().flat_map(|name| ["--package", name]));
    let (is_ok, text) = capture(tests.arg("--").args(DOCUMENTS).env("UPDATE", "1"))?;
    anyhow::ensure!(is_ok, "{text}");
    // Cargo also succeeds where no test has the name.
    let absent = absent(&text).join(", ");
    let packages = OF_DOCUMENTS.join(", ");
    anyhow::ensure!(absent.is_empty(), "the packages {packages} have no test {absent}");
    Ok(())
}

/// The tests of documents that did not run, by the output of the test programs.
fn absent(text: &str) -> Vec<&'static str> {
    let ran = |line: &str, name: &str| {
        let test = line.strip_prefix("test ").and_then(|line| line.strip_suffix(" ... ok"));
        test.and_then(|path| path.rsplit("::").next()) == Some(name)
    };
    DOCUMENTS.iter().copied().filter(|name| !text.lines().any(|line| ran(line, name))).collect()
}

/// Replaces this process by `lab`, so that Ctrl-C and the exit status concern one process.
fn lab(command: &str, args: impl Iterator<Item = String>) -> ExitCode {
    let error = match Site::here() {
        Ok(site) => {
            let mut lab = cargo(&site.root, &["run", "--quiet", "--package", "lab", "--", command]);
            anyhow::Error::from(lab.args(args).exec())
        }
        Err(error) => error,
    };
    eprintln!("xtask: {error:#}");
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_of_a_document_that_did_not_run_is_named() {
        let [first, second, third] = DOCUMENTS else { panic!("three tests") };
        let text =
            format!("test a::{first} ... ok\ntest {third}_also ... ok\ntest {third} ... ok\n");
        assert_eq!(absent(&text), [*second]);
        assert_eq!(absent("running 0 tests\n"), DOCUMENTS);
    }
}
