//! A secret of 32 bytes that a process generates once, and that its successors load from the same
//! folder.
//!
//! ```text
//! the title of the file
//! 64 hexadecimal digits
//! ```

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

/// Bytes of a secret.
pub const SECRET: usize = 32;

/// The largest number of bytes that are read from a file. A valid file has about 85, so that a
/// longer one is detected.
const READ: u64 = 1_024;

/// A file with a secret.
#[derive(Clone, Copy, Debug)]
pub struct Secret {
    /// The name of the file.
    pub file: &'static str,
    /// The first line of the file. It names the purpose and the version of the format.
    pub title: &'static str,
    /// What the file does not contain, and the consequence; the error begins with "these are no".
    pub meaning: &'static str,
}

/// The secret could not be loaded or generated.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file or its folder cannot be read or written.
    #[error("{}: {cause}", path.display())]
    Io {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        cause: io::Error,
    },
    /// The file holds no secret with this title. It stays unchanged.
    #[error("{}: these are no {meaning}", path.display())]
    Unknown {
        /// The path of the file.
        path: PathBuf,
        /// The meaning of the file.
        meaning: &'static str,
    },
    /// The system provided no random numbers.
    #[error("the system gives no random numbers")]
    Random,
}

impl Secret {
    /// Loads the secret of `folder`, or generates it if the file is missing. The folder must exist,
    /// and two processes must not share it.
    ///
    /// # Errors
    /// The file or its folder cannot be read or written, the file has a different content, or the
    /// system provides no random numbers.
    pub fn of(&self, folder: &Path) -> Result<[u8; SECRET], SecretError> {
        let path = folder.join(self.file);
        let failed = |cause| SecretError::Io { path: path.clone(), cause };
        let mut text = Vec::new();
        match super::open(&path).and_then(|file| file.take(READ).read_to_end(&mut text)) {
            Ok(_) => self.parse(&text).ok_or(SecretError::Unknown { path, meaning: self.meaning }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let secret = Self::random()?;
                write(&path, &self.render(&secret)).map_err(failed)?;
                Ok(secret)
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Generates a secret that is not stored.
    ///
    /// # Errors
    /// The system provides no random numbers.
    pub fn random() -> Result<[u8; SECRET], SecretError> {
        let mut secret = [0; SECRET];
        getrandom::fill(&mut secret).map_err(|_| SecretError::Random)?;
        Ok(secret)
    }

    fn render(&self, secret: &[u8; SECRET]) -> String {
        let digits: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}\n{digits}\n", self.title)
    }

    fn parse(&self, text: &[u8]) -> Option<[u8; SECRET]> {
        let digits = text.strip_prefix(self.title.as_bytes())?;
        let digits = digits.strip_prefix(b"\n")?.strip_suffix(b"\n")?;
        if digits.len() != 2 * SECRET || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let mut secret = [0; SECRET];
        for (byte, pair) in secret.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(secret)
    }
}

/// Writes the file atomically: after a crash the file is complete or missing.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let fresh = path.with_extension("keys.new");
    let mut file = super::create_fresh(&fresh)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&fresh, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    const KEPT: Secret = Secret { file: "a.keys", title: "a title 1", meaning: "keys" };

    #[test]
    fn the_next_process_has_the_same_secret() {
        let folder = tempfile::tempdir().unwrap();
        let first = KEPT.of(folder.path()).unwrap();
        assert_eq!(KEPT.of(folder.path()).unwrap(), first);
        assert_ne!(Secret::random().unwrap(), first);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left behind");
        let mode = fs::metadata(folder.path().join(KEPT.file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "nobody else reads it");
    }

    #[test]
    fn what_is_no_file_of_this_title_is_refused_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(KEPT.file);
        let good = KEPT.render(&[0xAB; SECRET]);
        assert_eq!(KEPT.parse(good.as_bytes()), Some([0xAB; SECRET]));
        let long = format!("{good}{good}");
        for broken in
            ["", "x", &good[..60], &good.replace('1', "2"), &good.replace('b', "+"), &long]
        {
            fs::write(&path, broken).unwrap();
            let error = KEPT.of(folder.path()).unwrap_err();
            assert!(matches!(error, SecretError::Unknown { .. }), "{broken:?}: {error}");
            assert!(error.to_string().starts_with(path.to_str().unwrap()), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), broken);
        }
    }

    #[test]
    fn a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, aim) = (folder.path().join(KEPT.file), folder.path().join("aim"));
        fs::write(&aim, KEPT.render(&[1; SECRET])).unwrap();
        symlink(&aim, &path).unwrap();
        let error = KEPT.of(folder.path()).unwrap_err().to_string();
        assert!(error.contains("a.keys: this is a symbolic link"), "{error}");
        fs::remove_file(&path).unwrap();
        symlink(&aim, path.with_extension("keys.new")).unwrap();
        KEPT.of(folder.path()).unwrap();
        assert_eq!(fs::read_to_string(&aim).unwrap(), KEPT.render(&[1; SECRET]));
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        let error = KEPT.of(&missing).unwrap_err().to_string();
        assert!(error.starts_with(&missing.join(KEPT.file).display().to_string()), "{error}");
    }
}
