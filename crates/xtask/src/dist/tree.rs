//! The files of a package, in memory: sorted by path, with modes and owners that no machine and no
//! umask changes. The same files give the same bytes.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context as _, Result, anyhow, ensure};
use tar::{Builder, EntryType, Header};

/// A file or a folder.
#[derive(Debug)]
struct Node {
    /// Permissions, without the type of the file.
    mode: u32,
    /// User and group, as a number.
    owner: u64,
    /// `None`: a folder.
    content: Option<Vec<u8>>,
}

/// The files and folders of a package, by path. A path has no `/` at its begin.
#[derive(Debug, Default)]
pub(super) struct Tree(BTreeMap<String, Node>);

impl Tree {
    /// Adds a file of root, and the folders above it.
    pub(super) fn file(&mut self, path: &str, mode: u32, content: impl Into<Vec<u8>>) {
        self.above(path);
        self.0.insert(path.into(), Node { mode, owner: 0, content: Some(content.into()) });
    }

    /// Adds a folder, and the folders above it.
    pub(super) fn folder(&mut self, path: &str, mode: u32, owner: u64) {
        self.above(path);
        self.0.insert(path.into(), Node { mode, owner, content: None });
    }

    fn above(&mut self, path: &str) {
        for (end, _) in path.match_indices('/') {
            let folder = || Node { mode: 0o755, owner: 0, content: None };
            self.0.entry(path[..end].into()).or_insert_with(folder);
        }
    }

    /// Adds copies of all files below a folder. A script is executable.
    pub(super) fn copies(&mut self, from: &Path, to: &str) -> Result<()> {
        let entries = fs::read_dir(from).with_context(|| from.display().to_string())?;
        for entry in entries {
            let path = entry?.path();
            let name =
                path.file_name().and_then(|name| name.to_str()).context("a name in UTF-8")?;
            let to = format!("{to}/{name}");
            if path.is_dir() {
                self.copies(&path, &to)?;
            } else {
                let content = fs::read(&path).with_context(|| path.display().to_string())?;
                self.file(&to, if content.starts_with(b"#!") { 0o755 } else { 0o644 }, content);
            }
        }
        Ok(())
    }

    /// Adds everything of another package.
    pub(super) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// The same files below another folder.
    pub(super) fn below(self, folder: &str) -> Self {
        let mut all = Self::default();
        for (path, node) in self.0 {
            let path = format!("{folder}/{path}");
            all.above(&path);
            all.0.insert(path, node);
        }
        all
    }

    /// The paths of all files with their contents.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().filter_map(|(path, node)| Some((path.as_str(), node.content.as_deref()?)))
    }

    /// The archive (POSIX.1-1988, ustar). `epoch`: seconds since 1970, the time of all files.
    pub(super) fn tar(&self, epoch: u64) -> Result<Vec<u8>> {
        let mut archive = Builder::new(Vec::new());
        for (path, node) in &self.0 {
            let mut header = Header::new_ustar();
            header.set_mode(node.mode);
            header.set_uid(node.owner);
            header.set_gid(node.owner);
            header.set_mtime(epoch);
            let content = node.content.as_deref();
            header.set_entry_type(content.map_or(EntryType::Directory, |_| EntryType::Regular));
            let content = content.unwrap_or_default();
            header.set_size(content.len() as u64);
            let slash = if node.content.is_none() { "/" } else { "" };
            archive
                .append_data(&mut header, format!("{path}{slash}"), content)
                .with_context(|| path.clone())?;
        }
        Ok(archive.into_inner()?)
    }

    /// Writes everything below a folder that is empty. Owners are those of the process.
    pub(super) fn write(&self, to: &Path) -> Result<()> {
        for (path, node) in &self.0 {
            let at = to.join(path);
            match &node.content {
                Some(content) => fs::write(&at, content),
                None => fs::create_dir_all(&at),
            }
            .with_context(|| at.display().to_string())?;
            // The umask takes bits away.
            fs::set_permissions(&at, fs::Permissions::from_mode(node.mode))?;
        }
        Ok(())
    }
}

/// Compresses (RFC 1952), without a name and a time in the header.
pub(super) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    piped(Command::new("gzip").args(["--no-name", "--best"]), bytes)
}

/// The sum that sha256sum(1) prints.
pub(super) fn sha256(bytes: &[u8]) -> Result<String> {
    let printed = String::from_utf8(piped(&mut Command::new("sha256sum"), bytes)?)?;
    Ok(printed.split(' ').next().unwrap_or_default().to_owned())
}

/// What a program makes of its standard input. xtask is built without optimisation, in which these
/// programs are 30 times as fast as crates.
fn piped(command: &mut Command, input: &[u8]) -> Result<Vec<u8>> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut to = child.stdin.take().context("piped above")?;
    let (written, output) = thread::scope(|scope| {
        let writer = scope.spawn(move || to.write_all(input));
        let output = child.wait_with_output();
        (writer.join(), output)
    });
    let output = output?;
    ensure!(output.status.success(), "{command:?}: {}", output.status);
    written.map_err(|_| anyhow!("{command:?}: no writer"))??;
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Tree {
        let mut tree = Tree::default();
        tree.file("b/run", 0o755, "#!/bin/sh\n");
        tree.file("a", 0o644, "text");
        tree.folder("b/state", 0o700, 65532);
        tree
    }

    #[test]
    fn an_archive_has_sorted_paths_with_their_folders_modes_and_owners() {
        let bytes = sample().below("top").tar(1_000_000_000).unwrap();
        let mut archive = tar::Archive::new(&*bytes);
        let entries = archive.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!(header.mtime().unwrap(), 1_000_000_000);
            let path = entry.path().unwrap().display().to_string();
            (path, header.mode().unwrap(), header.uid().unwrap())
        });
        let wanted = [
            ("top/", 0o755, 0),
            ("top/a", 0o644, 0),
            ("top/b/", 0o755, 0),
            ("top/b/run", 0o755, 0),
            ("top/b/state/", 0o700, 65532),
        ];
        let wanted = wanted.map(|(path, mode, owner)| (path.to_owned(), mode, owner));
        assert_eq!(entries.collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn order_and_umask_change_no_byte() {
        let mut other = Tree::default();
        other.folder("b/state", 0o700, 65532);
        other.file("a", 0o644, "text");
        other.file("b/run", 0o755, "#!/bin/sh\n");
        let packed = |tree: &Tree| gzip(&tree.tar(7).unwrap()).unwrap();
        assert_eq!(packed(&other), packed(&sample()));
        let folder = tempfile::tempdir().unwrap();
        other.write(folder.path()).unwrap();
        let mode = |path: &str| {
            fs::metadata(folder.path().join(path)).unwrap().permissions().mode() & 0o7777
        };
        assert_eq!(
            (mode("a"), mode("b"), mode("b/run"), mode("b/state")),
            (0o644, 0o755, 0o755, 0o700)
        );
        let mut copied = Tree::default();
        copied.copies(folder.path(), "x").unwrap();
        let wanted = [("x/a", &b"text"[..]), ("x/b/run", &b"#!/bin/sh\n"[..])];
        assert_eq!(copied.files().collect::<Vec<_>>(), wanted);
        assert_eq!((copied.0["x/a"].mode, copied.0["x/b/run"].mode), (0o644, 0o755));
    }
}
