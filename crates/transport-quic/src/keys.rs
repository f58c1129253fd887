//! The keys that a server has to have again after a restart, so that its clients are not stranded:
//! what a stateless reset is proved by, what Retry tokens and session tickets are sealed with.
//!
//! All come from one secret, kept in `state_dir` as `quic.keys`:
//!
//! ```text
//! tunnel quic keys 1
//! 64 hexadecimal digits
//! ```

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::{hkdf, hmac, rand};
use quinn::crypto::{HandshakeTokenKey, HmacKey};

const FILE: &str = "quic.keys";
const VERSION: &str = "tunnel quic keys 1";
const SECRET: usize = 32;

/// The keys of one server process and of the next one with the same `state_dir`.
#[derive(Clone)]
pub struct Keys {
    pub(crate) reset: hmac::Key,
    token: Arc<hkdf::Prk>,
    pub(crate) tickets: Arc<hkdf::Prk>,
}

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The file, or its folder, cannot be read or written.
    #[error("{}: {cause}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// What is there is no such file. It stays as it is.
    #[error(
        "{}: these are no keys for QUIC that this version can read; a newer version may have made \
         them. Without the file new ones are made, and clients that are connected find the server \
         only after a time-out", .0.display()
    )]
    Unknown(PathBuf),
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
    Random,
}

impl Keys {
    /// Those of `folder`, made if there are none. The folder must exist and must not be shared by
    /// two instances.
    pub fn of(folder: &Path) -> Result<Self, KeysError> {
        let path = folder.join(FILE);
        let failed = |cause| KeysError::Io { path: path.clone(), cause };
        let mut text = Vec::new();
        // A few bytes more than it may have are enough to know that it has too many.
        match File::open(&path).and_then(|file| file.take(1024).read_to_end(&mut text)) {
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

    /// Keys that nobody has again: for a server without a place for its state, and for tests.
    pub fn fleeting() -> Result<Self, KeysError> {
        Ok(Self::derive(&random()?))
    }

    /// What proves a stateless reset (RFC 9000 section 10.3), for `quinn::EndpointConfig::new`.
    #[must_use]
    pub fn reset_key(&self) -> Arc<dyn HmacKey> {
        Arc::new(self.reset.clone())
    }

    /// What seals the tokens of Retry (RFC 9000 section 8.1), for `quinn::ServerConfig::new`.
    #[must_use]
    pub fn token_key(&self) -> Arc<dyn HandshakeTokenKey> {
        Arc::clone(&self.token) as _
    }

    /// A key per purpose, each HMAC-SHA-256 of what it is for: as good as random to whoever knows
    /// the others.
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

/// In one piece: after a crash it is there, whole, or not at all.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let fresh = path.with_extension("keys.new");
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&fresh, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

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
    fn a_folder_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        let error = Keys::of(&missing).unwrap_err().to_string();
        assert!(error.starts_with(&missing.join(FILE).display().to_string()), "{error}");
    }
}
