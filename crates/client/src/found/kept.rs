//! The last good answer of a source, in the state directory: a client that starts while the source
//! is away begins with the servers that it had.

use std::io;
use std::path::{Path, PathBuf};

use ops::state::{create_private, read_private, write_private};
use serde::{Deserialize, Serialize};

/// The name of the file.
pub(super) const FILE: &str = "servers";

/// The content of the file.
#[derive(Debug, Deserialize, Serialize)]
struct KeptFile {
    /// Who gave the answer: the answer of another source is of no use.
    from: String,
    /// The answer, as the API gives it.
    answer: String,
}

/// The file of one source.
#[derive(Debug)]
pub(super) struct KeptAnswer {
    /// The state directory; `None`: nothing is kept.
    folder: Option<PathBuf>,
    source: String,
    /// The answer that the file has.
    written: Option<String>,
}

impl KeptAnswer {
    pub(super) const fn new(folder: Option<PathBuf>, source: String) -> Self {
        Self { folder, source, written: None }
    }

    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// The answer in the file. A damaged file is ignored with a warning.
    pub(super) fn read(&mut self) -> Option<String> {
        let folder = self.folder.as_ref()?;
        let ignored = |why: &dyn std::fmt::Display| {
            let file = folder.join(FILE);
            tracing::warn!("{} is ignored: {why}", file.display());
        };
        let text = match read_private(folder, FILE) {
            Ok(text) => text?,
            Err(error) => {
                ignored(&error);
                return None;
            }
        };
        let KeptFile { from, answer } = match serde_json::from_str(&text) {
            Ok(content) => content,
            Err(error) => {
                ignored(&format!("the file is damaged: {error}"));
                return None;
            }
        };
        if from != self.source {
            tracing::debug!("the kept servers are those of {from}");
            return None;
        }
        self.written = Some(answer.clone());
        Some(answer)
    }

    /// Writes the answer, unless the file has it.
    ///
    /// # Errors
    /// The file cannot be written; the former file stays.
    pub(super) async fn write(&mut self, answer: &str) -> io::Result<()> {
        let Some(folder) = self.folder.clone() else { return Ok(()) };
        if self.written.as_deref() == Some(answer) {
            return Ok(());
        }
        let content = KeptFile { from: self.source.clone(), answer: answer.to_owned() };
        let write = move || write_in(&folder, &content);
        tokio::task::spawn_blocking(write).await.map_err(io::Error::other)??;
        self.written = Some(answer.to_owned());
        Ok(())
    }
}

fn write_in(folder: &Path, content: &KeptFile) -> io::Result<()> {
    let text = serde_json::to_vec(content).map_err(io::Error::other)?;
    // At the first start the directory may be missing.
    create_private(folder)?;
    write_private(folder, FILE, &text)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;

    const ANSWER: &str = "{\"servers\": [\"tls://a\"]}";

    fn kept(folder: &Path, source: &str) -> KeptAnswer {
        KeptAnswer::new(Some(folder.to_owned()), source.to_owned())
    }

    #[tokio::test]
    async fn an_answer_is_there_for_the_next_process_of_the_same_source() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("state");
        let mut first = kept(&folder, "https://a/");
        assert_eq!(first.read(), None);
        first.write(ANSWER).await.unwrap();
        let facts = fs::metadata(folder.join(FILE)).unwrap();
        assert_eq!(facts.permissions().mode() & 0o777, 0o600);
        assert_eq!(kept(&folder, "https://a/").read().as_deref(), Some(ANSWER));
        assert_eq!(kept(&folder, "https://b/").read(), None);
        assert_eq!(KeptAnswer::new(None, "https://a/".to_owned()).read(), None);
    }

    #[tokio::test]
    async fn the_file_is_written_only_where_the_answer_changes() {
        let folder = tempfile::tempdir().unwrap();
        let inode = || fs::metadata(folder.path().join(FILE)).unwrap().ino();
        kept(folder.path(), "a").write(ANSWER).await.unwrap();
        let mut next = kept(folder.path(), "a");
        next.read().unwrap();
        let before = inode();
        next.write(ANSWER).await.unwrap();
        assert_eq!(inode(), before);
        next.write("{}").await.unwrap();
        assert_eq!(next.read().as_deref(), Some("{}"));
        let below_a_file = folder.path().join(FILE).join("none");
        assert!(kept(&below_a_file, "a").write(ANSWER).await.is_err());
    }

    #[test]
    fn a_damaged_file_is_no_answer() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        for text in
            ["", "{", "[]", "{\"from\": \"a\"}", "{\"from\": \"a\", \"answer\": 1}", "\u{0}"]
        {
            fs::write(&file, text).unwrap();
            assert_eq!(kept(folder.path(), "a").read(), None, "{text}");
        }
        fs::write(&file, b"\xff\xfe").unwrap();
        assert_eq!(kept(folder.path(), "a").read(), None);
        fs::remove_file(&file).unwrap();
        symlink("/etc/hostname", &file).unwrap();
        assert_eq!(kept(folder.path(), "a").read(), None, "a link is not followed");
    }
}
