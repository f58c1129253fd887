//! `cargo xtask walls --report`: the figures that the walls bound.

use std::path::Path;

use anyhow::Result;

use super::sources::Sources;
use super::{circles, sizes, words};

/// Prints all figures.
pub(crate) fn report(root: &Path) -> Result<()> {
    let sources = Sources::read(root)?;
    let packages = circles::packages(&sources)?;
    section("circles of files, by crate", circles::report(&packages, &sources));
    let rooms = circles::rooms(&sources).into_iter();
    section("lines below src, by crate", rooms.map(|(name, lines)| format!("{name}: {lines}")));
    let files = sizes::files(&sources).into_iter();
    section(
        &format!("files above {} lines", sizes::FILE_LINES),
        files.map(|(path, lines)| format!("{path}: {lines}")),
    );
    let functions = sizes::functions(&sources).into_iter();
    section(
        &format!("functions above {} lines", sizes::FUNCTION_LINES),
        functions.map(|(path, line, name, lines)| format!("{path}:{line}: {name}: {lines}")),
    );
    let comments = sizes::comments(&sources).into_iter();
    section(
        "comments that are too long, by file",
        comments.map(|(path, lines)| format!("{path}: {}", lines.len())),
    );
    let names = words::names(&sources).into_iter();
    section(
        &format!("names of {} types or more", words::MANY),
        names.map(|(name, places)| format!("{name}: {}", places.len())),
    );
    Ok(())
}

fn section(title: &str, lines: impl IntoIterator<Item = String>) {
    let lines: Vec<_> = lines.into_iter().collect();
    println!("{title}: {}", lines.len());
    for line in lines {
        println!("  {line}");
    }
}
