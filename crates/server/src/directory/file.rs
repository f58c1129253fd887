//! The file of the chosen ports, in the state directory. It is written on a blocking thread.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use logging::RepeatLimit;
use ops::state::{read_private, write_private};

/// The file in the state directory.
const FILE: &str = "ports";

/// The file of a server. Without a state directory nothing is written.
#[derive(Debug)]
pub(super) struct PortsFile {
    folder: Option<PathBuf>,
    unwritten: Mutex<Unwritten>,
    /// Held while the file is written, so that the last write contains the latest version.
    writing: Mutex<()>,
}

#[derive(Debug, Default)]
struct Unwritten {
    /// The latest version, until it is written.
    bytes: Option<Bytes>,
    /// The last write has failed.
    failed: bool,
    /// Limits the log lines about a file that cannot be written.
    complaints: RepeatLimit<()>,
}

impl PortsFile {
    /// The file in a state directory, and its content. A file that cannot be read is logged.
    pub(super) fn read(folder: Option<&Path>) -> (Arc<Self>, Bytes) {
        let text = folder.map(|folder| read_private(folder, FILE)).transpose();
        let text = text.unwrap_or_else(|error| {
            tracing::warn!("{FILE}: {error}; services get other ports where they asked for any");
            None
        });
        let folder = folder.map(Path::to_owned);
        let file = Self { folder, unwritten: Mutex::default(), writing: Mutex::default() };
        (Arc::new(file), text.flatten().unwrap_or_default().into())
    }

    fn unwritten(&self) -> MutexGuard<'_, Unwritten> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a version on a blocking thread. Must be called inside a Tokio runtime.
    pub(super) fn store(self: &Arc<Self>, bytes: Bytes) {
        if self.folder.is_some() {
            self.unwritten().bytes = Some(bytes);
            self.write_soon();
        }
    }

    /// Retries a write that has failed. Must be called inside a Tokio runtime.
    pub(super) fn write_again(self: &Arc<Self>) {
        if std::mem::take(&mut self.unwritten().failed) {
            self.write_soon();
        }
    }

    fn write_soon(self: &Arc<Self>) {
        let file = Arc::clone(self);
        drop(tokio::task::spawn_blocking(move || file.write()));
    }

    /// Writes the latest version now.
    pub(super) fn write(&self) {
        let Some(folder) = &self.folder else { return };
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(bytes) = self.unwritten().bytes.take() else { return };
        let Err(error) = write_private(folder, FILE, &bytes) else { return };
        // The version stays in memory, and the next claim retries the write.
        let mut unwritten = self.unwritten();
        unwritten.bytes.get_or_insert(bytes);
        unwritten.failed = true;
        // A client can change its ports repeatedly.
        if unwritten.complaints.pass((), Instant::now()).is_some() {
            tracing::warn!("{}: {error}", folder.join(FILE).display());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn a_write_that_failed_is_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let (file, bytes) = PortsFile::read(Some(&state));
        assert!(bytes.is_empty());
        // A file where the directory should be.
        fs::write(&state, "").unwrap();
        file.store(Bytes::from_static(b"first"));
        file.write();
        fs::remove_file(&state).unwrap();
        fs::create_dir(&state).unwrap();
        file.write_again();
        file.write();
        assert_eq!(PortsFile::read(Some(&state)).1, "first");
    }
}
