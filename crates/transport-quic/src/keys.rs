//! The keys that a server must have again after a restart, so that its clients can reconnect at
//! once. They prove stateless resets, and seal Retry tokens and session tickets.
//!
//! All keys are derived from one secret, which is kept in `state_dir` as `quic.keys`:
//!
//! ```text
//! tunnel quic keys 1
//! 64 hexadecimal digits
//! ```

use std::fmt;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::{hkdf, hmac, rand};
use quinn::crypto::{HandshakeTokenKey, HmacKey};

const FILE: &str = "quic.keys";
const VERSION: &str = "tunnel quic keys 1";
const SECRET: usize = 32;

/// The keys of a server process and of its successor with the same `state_dir`.
#[derive(Clone)]
pub struct Keys {
    pub(crate) reset: hmac::Key,
    token: Arc<hkdf::Prk>,
    pub(crate) tickets: Arc<hkdf::Prk>,
}

/// The keys could not be loaded or made.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The file or its folder cannot be read or written.
    #[error("{}: {cause}", path.display())]
    Io {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        cause: io::Error,
    },
    /// The file is no file of keys. It stays unchanged.
    #[error(
        "{}: these are no keys for QUIC that this version can read; a newer version may have made \
         them. Without the file new ones are made, and clients that are connected find the server \
         only after a time-out", .0.display()
    )]
    Unknown(PathBuf),
    /// The system gave no random numbers.
    #[error("the system gives no random numbers")]
    Random,
}

impl Keys {
    /// Loads the keys of `folder`, or makes them if the file is missing. The folder must exist, and
    /// two instances must not share it.
    pub fn of(folder: &Path) -> Result<Self, KeysError> {
        let path = folder.join(FILE);
        let failed = |cause| KeysError::Io { path: path.clone(), cause };
        let mut text = Vec::new();
        // The limit is only a little above the length of a valid file, which suffices to detect a
        // longer file.
        match files::open(&path).and_then(|file| file.take(1024).read_to_end(&mut text)) {
            Ok(_) => {
                let secret = parse(&text).ok_or_else(|| KeysError::Unknown(path.clone()))?;
                Ok(Self::derive(&secret))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let secret = random()?;
                write(&path, &render(&secret)).map_err(failed)?;
                Ok(Self::derive(&secret))
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Makes keys that are not stored, for a server without a `state_dir` and for tests.
    pub fn fleeting() -> Result<Self, KeysError> {
        Ok(Self::derive(&random()?))
    }

    /// The key that proves a stateless reset (RFC 9000 section 10.3), for
    /// `quinn::EndpointConfig::new`.
    #[must_use]
    pub fn reset_key(&self) -> Arc<dyn HmacKey> {
        Arc::new(self.reset.clone())
    }

    /// The key that seals Retry tokens (RFC 9000 section 8.1), for `quinn::ServerConfig::new`.
    #[must_use]
    pub fn token_key(&self) -> Arc<dyn HandshakeTokenKey> {
        Arc::clone(&self.token) as _
    }

    /// Derives a key per purpose, each the HMAC-SHA-256 of the purpose. A key reveals nothing about
    /// the other keys.
    fn derive(secret: &[u8; SECRET]) -> Self {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let derived =
            |purpose: &str| hmac::sign(&secret, format!("{VERSION} {purpose}").as_bytes());
        let expanded = |purpose: &str| {
            Arc::new(hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, derived(purpose).as_ref()))
        };
        Self {
            reset: hmac::Key::new(hmac::HMAC_SHA256, derived("reset").as_ref()),
            token: expanded("token"),
            tickets: expanded("tickets"),
        }
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(…)")
    }
}

fn random() -> Result<[u8; SECRET], KeysError> {
    let mut secret = [0; SECRET];
    rand::fill(&mut secret).map_err(|_| KeysError::Random)?;
    Ok(secret)
}

fn render(secret: &[u8; SECRET]) -> String {
    let digits: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{VERSION}\n{digits}\n")
}

fn parse(text: &[u8]) -> Option<[u8; SECRET]> {
    let digits = text.strip_prefix(VERSION.as_bytes())?.strip_prefix(b"\n")?.strip_suffix(b"\n")?;
    if digits.len() != 2 * SECRET || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut secret = [0; SECRET];
    for (byte, pair) in secret.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(secret)
}

/// Writes the file atomically: after a crash the file is complete or missing.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let fresh = path.with_extension("keys.new");
    let mut file = files::create_fresh(&fresh)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&fresh, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn proof(keys: &Keys) -> Vec<u8> {
        hmac::sign(&keys.reset, b"an id").as_ref().to_vec()
    }

    #[test]
    fn the_next_process_has_the_same_keys() {
        let folder = tempfile::tempdir().unwrap();
        let first = Keys::of(folder.path()).unwrap();
        let second = Keys::of(folder.path()).unwrap();
        assert_eq!(proof(&first), proof(&second));
        let mut sealed = b"a token".to_vec();
        first.token_key().aead_from_hkdf(b"n").seal(&mut sealed, &[]).unwrap();
        let opened = second.token_key();
        assert_eq!(opened.aead_from_hkdf(b"n").open(&mut sealed, &[]).unwrap(), b"a token");
        assert_ne!(proof(&first), proof(&Keys::fleeting().unwrap()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left behind");
    }

    #[test]
    fn nobody_else_reads_them() {
        let folder = tempfile::tempdir().unwrap();
        Keys::of(folder.path()).unwrap();
        let mode = fs::metadata(folder.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(!format!("{:?}", Keys::of(folder.path()).unwrap()).contains("Prk"));
    }

    #[test]
    fn what_is_no_file_of_keys_is_refused_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let good = render(&[0xAB; SECRET]);
        assert_eq!(parse(good.as_bytes()), Some([0xAB; SECRET]));
        let long = format!("{good}{good}");
        for broken in
            ["", "x", &good[..60], &good.replace('1', "2"), &good.replace('b', "+"), &long]
        {
            fs::write(&path, broken).unwrap();
            let error = Keys::of(folder.path()).unwrap_err();
            assert!(matches!(error, KeysError::Unknown(_)), "{broken:?}: {error}");
            assert!(error.to_string().starts_with(path.to_str().unwrap()), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), broken);
        }
    }

    #[test]
    fn a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, aim) = (folder.path().join(FILE), folder.path().join("aim"));
        fs::write(&aim, render(&[1; SECRET])).unwrap();
        symlink(&aim, &path).unwrap();
        let error = Keys::of(folder.path()).unwrap_err().to_string();
        assert!(error.contains("quic.keys: this is a symbolic link"), "{error}");
        fs::remove_file(&path).unwrap();
        symlink(&aim, path.with_extension("keys.new")).unwrap();
        Keys::of(folder.path()).unwrap();
        assert_eq!(fs::read_to_string(&aim).unwrap(), render(&[1; SECRET]));
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        let error = Keys::of(&missing).unwrap_err().to_string();
        assert!(error.starts_with(&missing.join(FILE).display().to_string()), "{error}");
    }
}
