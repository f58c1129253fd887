//! Detects changes of files that other programs replace: renewed certificates and, with `watch`, an
//! edited configuration. The files are compared every few seconds. This works on every file system,
//! and with symbolic links that change to another folder.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

/// Interval of the checks.
pub(crate) const LOOK: Duration = Duration::from_secs(2);

/// The state of files at one check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen(Vec<(PathBuf, Option<Mark>)>);

/// The properties that change with a file: device, inode, length in bytes, and modification time in
/// seconds and nanoseconds.
type Mark = (u64, u64, u64, i64, i64);

impl Seen {
    /// Checks these files. A missing file is recorded as missing.
    pub(crate) async fn look(files: Vec<PathBuf>) -> Self {
        let look = |file: PathBuf| {
            let mark = mark(&file).ok();
            (file, mark)
        };
        let looked = tokio::task::spawn_blocking(move || files.into_iter().map(look).collect());
        // The blocking task is cancelled only at the end of the process.
        Self(looked.await.unwrap_or_default())
    }

    /// Takes over which files are checked, but not their changes.
    pub(crate) fn follow(&mut self, now: &Self) {
        let before = std::mem::take(&mut self.0);
        let known = |path: &Path| before.iter().find(|(of, _)| of == path).cloned();
        self.0.extend(now.0.iter().map(|one| known(&one.0).unwrap_or_else(|| one.clone())));
    }
}

fn mark(file: &Path) -> io::Result<Mark> {
    let file = fs::metadata(file)?;
    Ok((file.dev(), file.ino(), file.len(), file.mtime(), file.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_that_is_written_replaced_or_gone_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let [file, other, link] = ["a", "b", "link"].map(|name| dir.path().join(name));
        fs::write(&file, "1").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let look = || Seen::look(vec![link.clone()]);
        let first = look().await;
        assert_eq!(look().await, first);
        fs::write(&file, "12").unwrap();
        let second = look().await;
        assert_ne!(second, first);
        // A renewal replaces the file by another file in this way.
        fs::write(&other, "12").unwrap();
        fs::rename(&other, &file).unwrap();
        let third = look().await;
        assert_ne!(third, second);
        fs::remove_file(&file).unwrap();
        assert_ne!(look().await, third);
    }

    #[tokio::test]
    async fn a_further_file_is_no_change_of_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let [file, list] = ["a", "b"].map(|name| dir.path().join(name));
        fs::write(&file, "1").unwrap();
        fs::write(&list, "1").unwrap();
        let mut seen = Seen::look(vec![file.clone()]).await;
        let both = async || Seen::look(vec![file.clone(), list.clone()]).await;
        let now = both().await;
        seen.follow(&now);
        assert_eq!(seen, now);
        fs::write(&file, "12").unwrap();
        let now = both().await;
        seen.follow(&now);
        assert_ne!(seen, now);
    }

    #[tokio::test]
    async fn a_renewal_that_changes_a_symbolic_link_is_seen() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        let replace = |target: &str, link: &str| {
            symlink(target, at("new-link")).unwrap();
            fs::rename(at("new-link"), at(link)).unwrap();
        };
        // certbot: the link of the name changes to the next file of the archive.
        for folder in ["archive/a", "live/a"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        for n in [1, 2] {
            fs::write(at(&format!("archive/a/fullchain{n}.pem")), "same length").unwrap();
        }
        replace("../../archive/a/fullchain1.pem", "live/a/fullchain.pem");
        let look = || Seen::look(vec![at("live/a/fullchain.pem")]);
        let first = look().await;
        replace("../../archive/a/fullchain2.pem", "live/a/fullchain.pem");
        assert_ne!(look().await, first);
        // Kubernetes: the file is a link through `..data`, and this link changes.
        for folder in ["..1", "..2"] {
            fs::create_dir(at(folder)).unwrap();
            fs::write(at(folder).join("tls.crt"), "same length").unwrap();
        }
        replace("..1", "..data");
        replace("..data/tls.crt", "tls.crt");
        let look = || Seen::look(vec![at("tls.crt")]);
        let first = look().await;
        replace("..2", "..data");
        assert_ne!(look().await, first);
    }
}
