//! The parts of `cargo xtask` that the measuring programs (`lab`) use as well. This crate compiles
//! in seconds, because it depends on no crate of the product.
//!
//! | module | content |
//! |---|---|
//! | `child` | programs that run to their end; counts of passed tests |
//! | `site` | the checkout, the build folder, the binaries under test |
//! | `packages`, `python`, `node`, `go` | software that Debian, PyPI, npm and the Go module proxy provide |
//! | `options` | `--name VALUE` on a command line |
//! | `verdict` | how a step ends |
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a console program")]
#![allow(clippy::missing_errors_doc, reason = "the errors are texts for a person")]

pub mod child;
pub mod go;
pub mod node;
pub mod options;
pub mod packages;
pub mod python;
pub mod site;
pub mod verdict;
