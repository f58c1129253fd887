//! The files that an installation writes, as data: printed by `--dry-run`, compared with the
//! existing files, and written all or none.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use ops::state::if_there;
use zeroize::Zeroizing;

/// A file to write.
#[derive(Debug)]
pub(super) struct File {
    /// The path below the root directory.
    pub(super) path: PathBuf,
    pub(super) mode: u32,
    pub(super) content: Zeroizing<Vec<u8>>,
}

#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) files: Vec<File>,
    /// Existing folders, and their new modes.
    pub(super) folders: Vec<(PathBuf, u32)>,
    pub(super) commands: Vec<Vec<String>>,
    pub(super) notes: Vec<String>,
    pub(super) warnings: Vec<String>,
}

/// Whether the content is worth showing before it is written. Man pages and completions are long,
/// and the same on every machine.
fn is_shown(path: &Path, length: usize) -> bool {
    !path.starts_with("/usr") && length < 16 << 10
}

impl Plan {
    pub(super) fn file(
        &mut self,
        path: impl Into<PathBuf>,
        mode: u32,
        content: impl Into<Vec<u8>>,
    ) {
        self.files.push(File { path: path.into(), mode, content: Zeroizing::new(content.into()) });
    }

    /// Each file with its mode, each command, and the content of the files of this instance.
    /// Secrets, programs, man pages and completions are not shown.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for File { path, mode, content } in &self.files {
            let _ = writeln!(text, "{mode:04o} {} ({} bytes)", path.display(), content.len());
            match std::str::from_utf8(content) {
                Ok(content) if mode & 0o044 != 0 && is_shown(path, content.len()) => {
                    content.lines().for_each(|line| {
                        let _ = writeln!(text, "    {line}");
                    });
                }
                Ok(_) | Err(_) => text.push_str("    …\n"),
            }
        }
        for (path, mode) in &self.folders {
            let _ = writeln!(text, "{mode:04o} {}/", path.display());
        }
        for command in &self.commands {
            let _ = writeln!(text, "$ {}", command.join(" "));
        }
        text
    }

    /// Writes the missing files. Returns whether anything was written.
    ///
    /// `before` runs after all new files are staged next to their final paths, and only if there
    /// are any.
    ///
    /// # Errors
    /// A file differs and `force` is not set, or `before` fails: nothing is written.
    pub(super) fn write(
        &self,
        root: &Path,
        force: bool,
        before: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<bool> {
        let (mut new, mut differ) = (Vec::new(), Vec::new());
        for file in &self.files {
            let path = below(root, &file.path);
            let is_same = if_there(is_same(&path, file));
            match is_same.with_context(|| path.display().to_string())? {
                Some(true) => continue,
                Some(false) => differ.push(path.display().to_string()),
                None => {}
            }
            new.push((path, file));
        }
        if !differ.is_empty() && !force {
            bail!(
                "there already, with another content or mode: {} (nothing was changed; --force \
                 replaces it, --name installs beside it)",
                differ.join(", ")
            );
        }
        let mut staged: Vec<(PathBuf, &Path)> = Vec::new();
        let outcome = new.iter().try_for_each(|(path, file)| {
            let fresh = stage(path, file).with_context(|| path.display().to_string())?;
            staged.push((fresh, path));
            anyhow::Ok(())
        });
        let outcome = outcome.and_then(|()| if staged.is_empty() { Ok(()) } else { before() });
        if let Err(why) = outcome {
            // The first error is reported, so these errors are ignored.
            staged.iter().for_each(|(fresh, _)| drop(fs::remove_file(fresh)));
            return Err(why);
        }
        for (fresh, path) in &staged {
            fs::rename(fresh, path).with_context(|| path.display().to_string())?;
        }
        for (path, mode) in &self.folders {
            let path = below(root, path);
            fs::set_permissions(&path, fs::Permissions::from_mode(*mode))
                .with_context(|| path.display().to_string())?;
        }
        Ok(!staged.is_empty() || !self.folders.is_empty())
    }
}

/// An absolute path below another root directory.
pub(super) fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn is_same(path: &Path, file: &File) -> io::Result<bool> {
    let found = fs::metadata(path)?;
    let same = found.is_file() && found.mode() & 0o7777 == file.mode;
    Ok(same && found.len() == file.content.len() as u64 && fs::read(path)? == **file.content)
}

/// Stages a file next to its final path, with its mode.
fn stage(path: &Path, file: &File) -> anyhow::Result<PathBuf> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { bail!("no file") };
    // systemd demands that /var/lib/private is closed to other users.
    let mode =
        if path.components().any(|part| part.as_os_str() == "private") { 0o700 } else { 0o755 };
    fs::DirBuilder::new().recursive(true).mode(mode).create(folder)?;
    let fresh = folder.join(format!(".{}.new", name.to_string_lossy()));
    let mut to = files::create_fresh(&fresh)?;
    let mut fill = || -> io::Result<()> {
        to.write_all(&file.content)?;
        to.set_permissions(fs::Permissions::from_mode(file.mode))?;
        to.sync_all()
    };
    if let Err(why) = fill() {
        drop(fs::remove_file(&fresh));
        return Err(why.into());
    }
    Ok(fresh)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_replaced_without_force_and_nothing_is_half_written() {
        let dir = tempfile::tempdir().unwrap();
        let plan = |text: &str| {
            let mut plan = Plan::default();
            plan.file("/etc/new", 0o644, "new");
            plan.file("/etc/secret", 0o600, text);
            plan
        };
        assert!(plan("one").write(dir.path(), false, || Ok(())).unwrap());
        assert!(!plan("one").write(dir.path(), false, || Ok(())).unwrap());
        let secret = dir.path().join("etc/secret");
        assert_eq!(fs::metadata(&secret).unwrap().mode() & 0o777, 0o600);
        fs::remove_file(dir.path().join("etc/new")).unwrap();
        let why = plan("two").write(dir.path(), false, || Ok(())).unwrap_err().to_string();
        assert!(why.contains("etc/secret") && why.contains("--force"), "{why}");
        assert!(!dir.path().join("etc/new").exists());
        let hindered = || anyhow::bail!("it runs");
        let why = plan("two").write(dir.path(), true, hindered).unwrap_err().to_string();
        assert_eq!(why, "it runs");
        assert_eq!(fs::read_to_string(&secret).unwrap(), "one");
        assert_eq!(fs::read_dir(dir.path().join("etc")).unwrap().count(), 1);
        assert!(plan("two").write(dir.path(), true, || Ok(())).unwrap());
        assert_eq!(fs::read_to_string(&secret).unwrap(), "two");
        assert!(!plan("two").text().contains("two"));
        assert_eq!(fs::read_dir(dir.path().join("etc")).unwrap().count(), 2);
    }
}
