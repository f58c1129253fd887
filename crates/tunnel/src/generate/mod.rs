//! `tunnel generate`: files and tokens that are needed before the first start.
//!
//! `certs` makes certificates, `folder` writes them and never overwrites a file, `advice` explains
//! the files, `sample` prints files with comments, `token` hashes tokens and `password` passwords
//! of visitors, which are typed at a `hidden` terminal. `shell` generates COMPLETE, completions and
//! manual pages.

mod advice;
mod certs;
mod folder;
mod hidden;
mod made;
mod password;
mod sample;
mod shell;
mod token;

pub(crate) use certs::{Order, certs};
pub(crate) use folder::{File, write};
pub(crate) use password::hashed;
pub(crate) use sample::sample;
pub(crate) use shell::{COMPLETE, all_pages, completions, man_page, man_pages};
pub(crate) use token::hash;
