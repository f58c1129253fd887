//! Writes generated files to a folder: all of them or none, and never over an existing file.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use ops::state::{create_private, if_there};
use tls::Issued;

/// A file to write.
#[derive(Debug)]
pub(crate) struct File<'a> {
    name: String,
    text: &'a str,
    mode: u32,
}

impl<'a> File<'a> {
    /// A file; a file with `secret`s is readable only by its owner.
    pub(crate) fn new(name: &str, text: &'a str, secret: bool) -> Self {
        File { name: name.to_owned(), text, mode: if secret { 0o600 } else { 0o644 } }
    }

    /// The files `NAME.key`, which only the owner may read, and `NAME.crt`.
    pub(super) fn pair(name: &str, issued: &'a Issued) -> [Self; 2] {
        [
            File { name: format!("{name}.key"), text: &issued.key, mode: 0o600 },
            File { name: format!("{name}.crt"), text: &issued.certificate, mode: 0o644 },
        ]
    }
}

/// Whether the path exists. A dangling symbolic link counts.
pub(super) fn exists(path: &Path) -> anyhow::Result<bool> {
    let found = if_there(fs::symlink_metadata(path));
    Ok(found.with_context(|| path.display().to_string())?.is_some())
}

/// Writes all files. If a write fails, the files that were already written are removed.
pub(crate) fn write(folder: &Path, files: &[File<'_>]) -> anyhow::Result<()> {
    let mut taken = Vec::new();
    for file in files {
        let path = folder.join(&file.name);
        if exists(&path)? {
            taken.push(path.display().to_string());
        }
    }
    if !taken.is_empty() {
        bail!(
            "already there, and never written over: {}; move it away, or choose another folder \
             with -o",
            taken.join(", ")
        );
    }
    create_private(folder).with_context(|| folder.display().to_string())?;
    let mut written: Vec<PathBuf> = Vec::new();
    for file in files {
        let path = folder.join(&file.name);
        if let Err(e) = write_one(&path, file) {
            for path in written {
                // The first error is reported, so this error is ignored.
                drop(fs::remove_file(path));
            }
            return Err(e).with_context(|| path.display().to_string());
        }
        written.push(path);
    }
    Ok(())
}

fn write_one(path: &Path, file: &File<'_>) -> io::Result<()> {
    // `create_new` refuses a file that appeared after the check.
    let mut new = OpenOptions::new().write(true).create_new(true).mode(file.mode).open(path)?;
    let done = new.write_all(file.text.as_bytes()).and_then(|()| new.sync_all());
    if done.is_err() {
        drop(fs::remove_file(path));
    }
    done
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn file(name: &str, mode: u32) -> File<'static> {
        File { name: name.to_owned(), text: "text", mode }
    }

    #[test]
    fn keys_are_for_the_owner_alone_and_so_is_a_new_folder() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a/b");
        write(&folder, &[file("k", 0o600), file("c", 0o644)]).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&folder.join("k"))), (0o700, 0o600));
    }

    #[test]
    fn a_link_to_nowhere_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let aim = dir.path().join("elsewhere");
        std::os::unix::fs::symlink(&aim, dir.path().join("k")).unwrap();
        assert!(write(dir.path(), &[file("k", 0o600)]).is_err());
        assert!(!aim.exists());
    }

    #[test]
    fn what_cannot_be_finished_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let files = [file("one", 0o600), file("no/such/folder", 0o600)];
        let said = format!("{:#}", write(dir.path(), &files).unwrap_err());
        assert!(said.contains("no/such/folder"), "{said}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
