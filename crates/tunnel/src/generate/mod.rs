//! `tunnel generate`: files and tokens that are needed before the first start.
//!
//! `certs` makes certificates, `folder` writes them and never overwrites a file, `advice` explains
//! the files, and `token` hashes tokens.

mod advice;
mod certs;
mod folder;
mod token;

pub(crate) use certs::{Order, certs};
pub(crate) use token::hash;
