//! The memory as a file in the state directory.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use config::{ClientConfig, Common};
use ops::state::{Places, create_private, read_private, write_private};

use super::memory::Memory;

/// The name of the file: the clients of a user share a directory.
pub(super) fn name(config: &ClientConfig) -> String {
    format!("paths-{}.json", config.name)
}

/// The state directory; `None`: there is none, and nothing is kept.
pub(super) fn folder(common: &Common) -> Option<PathBuf> {
    common.state_dir.clone().or_else(|| Places::of_process().state_dir().ok())
}

/// Reads the file. A damaged file is ignored with a warning, and replaced later.
pub(super) fn read(folder: Option<&Path>, file: &str) -> Memory {
    let Some(folder) = folder else { return Memory::default() };
    let ignored = |why: &dyn Display| {
        tracing::warn!("{} is ignored: {why}", folder.join(file).display());
        Memory::default()
    };
    match read_private(folder, file) {
        Ok(Some(text)) => Memory::read(&text).unwrap_or_else(|why| ignored(&why)),
        Ok(None) => Memory::default(),
        Err(error) => ignored(&error),
    }
}

/// Writes the file. A failure is no reason to stop: what was measured is measured again.
pub(super) async fn write(folder: PathBuf, file: String, memory: Memory) {
    let write = move || {
        let text = serde_json::to_vec(&memory)?;
        // At the first start the directory may be missing.
        create_private(&folder)?;
        write_private(&folder, &file, &text)
    };
    match tokio::task::spawn_blocking(write).await {
        Ok(Ok(())) | Err(_) => {}
        Ok(Err(error)) => tracing::warn!(%error, "the figures of the paths cannot be written"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use net::gateway::Gateway;

    use super::*;

    const FILE: &str = "paths-home.json";

    #[tokio::test]
    async fn the_memory_is_kept_and_a_damaged_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("state");
        assert_eq!(read(Some(&place), FILE), Memory::default());
        assert_eq!(read(None, FILE), Memory::default());
        let mut memory = Memory::default();
        memory.enter(&Gateway { interface: "ppp0".to_owned(), router: None }, 7);
        write(place.clone(), FILE.to_owned(), memory.clone()).await;
        assert_eq!(read(Some(&place), FILE), memory);
        let mode = fs::metadata(place.join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        for nonsense in [&b"{\"version\": 1"[..], b"\xff\xfe", &[b'0'; 2 << 20]] {
            fs::write(place.join(FILE), nonsense).unwrap();
            assert_eq!(read(Some(&place), FILE), Memory::default());
        }
        write(place.clone(), FILE.to_owned(), memory.clone()).await;
        assert_eq!(read(Some(&place), FILE), memory);
    }
}
