//! Files that somebody else replaces: certificates are renewed by other programs, and with `watch`
//! a configuration that was edited counts at once. They are looked at every few seconds, which
//! works on any file system, and through links that are turned to another folder.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often they are looked at.
pub(crate) const LOOK: Duration = Duration::from_secs(2);

/// How some files were when somebody looked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen(Vec<(PathBuf, Option<Mark>)>);

/// What changes with a file: device, inode, length, and the time of its last change.
type Mark = (u64, u64, u64, i64, i64);

impl Seen {
    /// Looks at these; one that is not there is known as such.
    pub(crate) async fn look(files: Vec<PathBuf>) -> Self {
        let look = |file: PathBuf| {
            let mark = mark(&file).ok();
            (file, mark)
        };
        let looked = tokio::task::spawn_blocking(move || files.into_iter().map(look).collect());
        // Cancelled at the end of the process only.
        Self(looked.await.unwrap_or_default())
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
        // As a renewal does it: another file takes the place.
        fs::write(&other, "12").unwrap();
        fs::rename(&other, &file).unwrap();
        let third = look().await;
        assert_ne!(third, second);
        fs::remove_file(&file).unwrap();
        assert_ne!(look().await, third);
    }
}
