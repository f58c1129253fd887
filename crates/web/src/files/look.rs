//! The lookup of a path: a file, one of its compressed variants, a listing, a fallback, or nothing.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::OFlags;

use super::beneath::Root;
use super::list;
use super::opened::Facts;
use super::path::may_be_path;
use super::text;
use crate::coding::{Accepted, Coding};

/// The options for the files of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileOptions {
    /// The name of the service, for the log.
    pub service: Box<str>,
    /// Whether a directory without `index.html` is listed.
    pub list: bool,
    /// The fallback files, in order, if the path of a request names no file: paths relative to the
    /// directory, in which `{path}` stands for the path of the request.
    pub try_files: Box<[Box<str>]>,
    /// The only file of the directory that is served. The directory redirects to it.
    pub only: Option<Box<str>>,
}

/// The placeholder in [`FileOptions::try_files`].
const PLACEHOLDER: &str = "{path}";

/// The file that is served for a directory.
const INDEX: &str = "index.html";

/// The codings of compressed variants beside a file, smallest first, with their extensions.
const VARIANTS: [(Coding, &str); 3] =
    [(Coding::Brotli, ".br"), (Coding::Zstd, ".zst"), (Coding::Gzip, ".gz")];

/// The codings in the order of [`VARIANTS`].
const CODINGS: [Coding; 3] = [VARIANTS[0].0, VARIANTS[1].0, VARIANTS[2].0];

/// The result of a lookup.
pub(super) enum Look {
    File(Found),
    /// A directory whose path has no trailing slash.
    Directory,
    /// The HTML of a listing.
    Listing(String),
    /// A directory without an index that is not listed.
    Bare,
    Absent,
}

/// A file that is served.
pub(super) struct Found {
    /// The path without the extension of a variant; it determines the type.
    pub(super) path: String,
    pub(super) file: Arc<std::fs::File>,
    pub(super) facts: Facts,
    /// The coding of the variant that was chosen.
    pub(super) coding: Option<Coding>,
    /// The file has variants, so the response depends on `Accept-Encoding`.
    pub(super) varies: bool,
    /// Whether the file is text in UTF-8.
    pub(super) is_utf8: bool,
}

/// Looks up `path`, which is decoded, begins with a slash, and is safe. It blocks.
///
/// # Errors
/// The disk failed.
pub(super) fn look(
    root: &Root,
    path: &str,
    accepted: Accepted,
    options: &FileOptions,
) -> io::Result<Look> {
    let (name, is_folder) = (path.trim_matches('/'), path.ends_with('/'));
    if !is_folder {
        if let Some(found) = file(root, name, accepted)? {
            return Ok(Look::File(found));
        }
        if is_directory(root, name)? {
            return Ok(Look::Directory);
        }
        let found = fallback(root, name, accepted, options)?;
        return Ok(found.map_or(Look::Absent, Look::File));
    }
    let is_there = is_directory(root, name)?;
    if is_there {
        let index = if name.is_empty() { INDEX.to_owned() } else { format!("{name}/{INDEX}") };
        if let Some(found) = file(root, &index, accepted)? {
            return Ok(Look::File(found));
        }
        // Files in a hidden directory are served only by their exact names.
        if options.list
            && !name.starts_with('.')
            && let Some((folder, _)) = found(root.find(relative(name), OFlags::DIRECTORY))?
        {
            return Ok(Look::Listing(list::page(root, folder, name)?));
        }
    }
    match fallback(root, name, accepted, options)? {
        Some(found) => Ok(Look::File(found)),
        None if is_there => Ok(Look::Bare),
        None => Ok(Look::Absent),
    }
}

/// The first file of `try_files` that exists.
fn fallback(
    root: &Root,
    name: &str,
    accepted: Accepted,
    options: &FileOptions,
) -> io::Result<Option<Found>> {
    for tried in &options.try_files {
        let tried = tried.replace(PLACEHOLDER, name);
        let tried = tried.trim_start_matches('/');
        if !may_be_path(tried) {
            continue;
        }
        if let Some(found) = file(root, tried, accepted)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The file of this name, or the variant of it that the visitor prefers. A variant older than the
/// file belongs to an earlier version and is ignored.
fn file(root: &Root, name: &str, accepted: Accepted) -> io::Result<Option<Found>> {
    let Some((file, facts)) = found(root.find(relative(name), OFlags::RDONLY))? else {
        return Ok(None);
    };
    if facts.is_dir {
        return Ok(None);
    }
    let is_variant = |of: &Facts| !of.is_dir && of.length > 0 && of.modified >= facts.modified;
    let mut offered: Vec<Coding> = Vec::new();
    for (coding, extension) in VARIANTS {
        let at = format!("{name}{extension}");
        if root.find(Path::new(&at), OFlags::PATH).is_ok_and(|(_, of)| is_variant(&of)) {
            offered.push(coding);
        }
    }
    let best = accepted.best(&offered).and_then(|coding| {
        let nth = CODINGS.iter().position(|one| *one == coding)?;
        let at = format!("{name}{}", VARIANTS[nth].1);
        let (file, of) = root.find(Path::new(&at), OFlags::RDONLY).ok()?;
        let mark = u32::try_from(nth).ok()? + 1;
        is_variant(&of).then(|| (file, of.with_mark(mark), coding))
    });
    let (path, varies) = (name.to_owned(), !offered.is_empty());
    // Also for a variant, the file itself decides.
    let is_utf8 = text::is_text(name) && text::is_utf8(&file);
    Ok(Some(match best {
        Some((file, facts, coding)) => {
            Found { path, file: Arc::new(file), facts, coding: Some(coding), varies, is_utf8 }
        }
        None => {
            let facts = facts.with_mark(0);
            Found { path, file: Arc::new(file), facts, coding: None, varies, is_utf8 }
        }
    }))
}

/// Whether the directory exists. It need not be readable.
fn is_directory(root: &Root, name: &str) -> io::Result<bool> {
    let there = found(root.find(relative(name), OFlags::PATH))?;
    Ok(there.is_some_and(|(_, facts)| facts.is_dir))
}

fn relative(name: &str) -> &Path {
    Path::new(if name.is_empty() { "." } else { name })
}

/// Maps `NotFound` to `None`.
fn found<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
