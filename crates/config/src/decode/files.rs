//! How the client serves the files of a directory: `list` and `try_files`.

use super::target::Targets;
use crate::model::Files;
use crate::section::Section;
use crate::{BadValue, Target, values};

/// The largest number of entries of `try_files`: each costs a file system lookup for a path that
/// does not exist.
const TRIES: usize = 8;

/// The largest size of an entry, in bytes: the longest path of Linux.
const LONGEST: usize = 4096;

/// The placeholder for the path of the request in an entry.
const PLACEHOLDER: &str = "{path}";

/// Decodes the keys. The result is incomplete only after a problem was reported.
pub(super) fn files(s: &Section<'_>) -> Files {
    let items = s.one_or_list("try_files");
    if items.len() > TRIES {
        s.bad("try_files", BadValue::new(format!("more than {TRIES} files")));
        return Files::default();
    }
    Files {
        list: s.value("list", values::switch).unwrap_or_default(),
        try_files: items.iter().filter_map(|item| s.cx.value(item, tried)).collect(),
        only: None,
    }
}

/// Reports these keys at a target that is not a directory.
pub(super) fn fit(s: &Section<'_>, target: &Targets) {
    if matches!(target, Targets::One(Target::Files(_))) {
        return;
    }
    for key in ["list", "try_files"] {
        let hint = "it is for a target file:///path: remove the key";
        s.no_effect(key, ": the target is no directory", hint);
    }
}

fn tried(text: &str) -> Result<String, BadValue> {
    let below = text.strip_prefix('/').unwrap_or(text);
    let path = below.replacen(PLACEHOLDER, "path", 1);
    let is_bad = |name: &str| name.is_empty() || name.starts_with('.');
    // Only the folder for well-known places (RFC 8615) may precede it.
    let names = path.strip_prefix(".well-known/").unwrap_or(&path);
    let has_foreign = path.contains(|c: char| "\\{}".contains(c) || c.is_control());
    if path.len() > LONGEST || has_foreign || names.split('/').any(is_bad) {
        return Err(BadValue::new(format!(
            "`{text}` is no file below the directory of the target"
        ))
        .hint("for example index.html, or \"{path}.html\" for the path of the request"));
    }
    Ok(below.to_owned())
}
