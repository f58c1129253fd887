//! The files of `tunnel run --config FOLDER`.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use config::Role;
use ops::WrongConfig;

use crate::input::read;

/// The depth of folders that are searched: the folder itself, its folders, and their folders.
const DEPTH: usize = 3;

/// The largest number of files: each of them is a process.
const FILES_MAX: usize = 1_000;

/// A file, which describes a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Described {
    /// The path below the folder, without its extension; with the extension if two files differ
    /// only in it.
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// The role from the content, or the reason why the content determines none.
    pub(super) role: Result<Role, String>,
}

/// The files of a folder, or the file at `path`, ordered by name. Names that begin with a dot are
/// ignored.
///
/// # Errors
/// There is no such folder or file, it has no files, or it has more than 1,000 files.
pub(super) fn described(path: &Path) -> anyhow::Result<Vec<Described>> {
    let meta =
        fs::metadata(path).map_err(|e| WrongConfig::one(format!("{}: {e}", path.display())))?;
    let mut files = Vec::new();
    if meta.is_dir() {
        walk(path, DEPTH, &mut files)?;
    } else {
        files.push(path.to_owned());
    }
    files.sort();
    let below = |file: &Path| {
        let inner = file.strip_prefix(path).ok().filter(|inner| !inner.as_os_str().is_empty());
        inner.map_or_else(|| PathBuf::from(file.file_name().unwrap_or_default()), Path::to_owned)
    };
    let mut count: HashMap<PathBuf, usize> = HashMap::new();
    for file in &files {
        *count.entry(below(file).with_extension("")).or_default() += 1;
    }
    let describe = |file: PathBuf| {
        let inner = below(&file);
        let bare = inner.with_extension("");
        let is_alone = count.get(&bare).is_none_or(|&count| count < 2);
        let name = if is_alone { bare } else { inner }.display().to_string();
        let role = role(&file);
        Described { name, path: file, role }
    };
    Ok(files.into_iter().map(describe).collect())
}

fn walk(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let entry = entry.with_context(|| folder.display().to_string())?;
        let path = entry.path();
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        // A link is followed, because Kubernetes mounts files as links. A dangling link counts as a
        // file, whose error is reported.
        if fs::metadata(&path).is_ok_and(|meta| meta.is_dir()) {
            if depth > 1 {
                walk(&path, depth - 1, files)?;
            }
        } else if path
            .extension()
            .is_some_and(|end| end == OsStr::new("yaml") || end == OsStr::new("yml"))
        {
            ensure!(files.len() < FILES_MAX, "more than {FILES_MAX} files in {}", folder.display());
            files.push(path);
        }
    }
    Ok(())
}

fn role(file: &Path) -> Result<Role, String> {
    let text = read(file).map_err(|wrong| wrong.to_string())?;
    Role::of(&text).ok_or_else(|| {
        "neither a server's file nor a client's nor a proxy's (hint: `tunnel check` says more; the \
         key `type` names the role of a file without keys of its role)"
            .to_owned()
    })
}

/// The text of a folder without files.
pub(super) fn nothing_in(path: &Path) -> anyhow::Error {
    WrongConfig::one(format!(
        "{}: no file *.yaml or *.yml in it, or in its folders down to the third level",
        path.display()
    ))
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: &str = "servers: tls://a.example\nname: home\n";

    #[test]
    fn files_of_three_levels_have_names_and_roles() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("home.yaml", CLIENT);
        put("eu/fra.yml", "listen: tls://0.0.0.0\n");
        put("eu/deep/web.yaml", "proxies: []\n");
        put("eu/deep/deeper/no.yaml", CLIENT);
        put(".hidden.yaml", CLIENT);
        put("notes.txt", CLIENT);
        put("other.yaml", "key: value\n");
        put("twin.yaml", CLIENT);
        put("twin.yml", CLIENT);
        std::os::unix::fs::symlink("home.yaml", dir.path().join("link.yaml")).unwrap();
        std::os::unix::fs::symlink("gone.yaml", dir.path().join("dead.yaml")).unwrap();
        let found = described(dir.path()).unwrap();
        let short: Vec<_> =
            found.iter().map(|one| (one.name.as_str(), one.role.clone().ok())).collect();
        assert_eq!(
            short,
            [
                ("dead", None),
                ("eu/deep/web", Some(Role::Proxy)),
                ("eu/fra", Some(Role::Server)),
                ("home", Some(Role::Client)),
                ("link", Some(Role::Client)),
                ("other", None),
                ("twin.yaml", Some(Role::Client)),
                ("twin.yml", Some(Role::Client)),
            ]
        );
        let one = described(&dir.path().join("home.yaml")).unwrap();
        assert_eq!(one[0].name, "home");
        assert!(described(&dir.path().join("none")).is_err());
    }
}
