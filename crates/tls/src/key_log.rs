//! The key log: the secrets of connections, with which Wireshark and other programs decrypt
//! recorded traffic. It is off unless the environment names its file.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::{ClientConfig, KeyLog, ServerConfig};

/// The variable that browsers, curl and other TLS programs use.
const VARIABLE: &str = "SSLKEYLOGFILE";

/// A key log in a file, in the format of NSS (draft-ietf-tls-keylogfile): a line for each secret.
/// `rustls::KeyLogFile` reports a file that it cannot open only to the crate `log`, so the report
/// would be missing in the log of the daemon.
struct KeyFile(File);

impl KeyFile {
    /// Opens the file to append to it. A new file is accessible only to its owner.
    fn open(path: &Path) -> io::Result<Self> {
        OpenOptions::new().append(true).create(true).mode(0o600).open(path).map(Self)
    }
}

impl KeyLog for KeyFile {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let line = format!("{label} {} {}\n", hex(client_random), hex(secret));
        // A single call, so that lines of several threads and processes do not mix. A full disk
        // affects the log, but no connection.
        if let Err(error) = (&self.0).write_all(line.as_bytes()) {
            tracing::debug!(%error, "a secret is not in the file of {VARIABLE}");
        }
    }
}

impl fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyFile(..)")
    }
}

/// The key log of this process; `None` unless `SSLKEYLOGFILE` names its file. The file is opened
/// once, with a warning.
fn of_process() -> Option<Arc<dyn KeyLog>> {
    static LOG: OnceLock<Option<Arc<KeyFile>>> = OnceLock::new();
    let log = LOG.get_or_init(|| {
        let path = std::env::var_os(VARIABLE).filter(|path| !path.is_empty())?;
        let path = Path::new(&path);
        match KeyFile::open(path) {
            Ok(file) => {
                tracing::warn!(
                    "{VARIABLE} is set: whoever reads {} can decrypt the connections between \
                     clients and servers of this process",
                    path.display()
                );
                Some(Arc::new(file))
            }
            Err(error) => {
                tracing::warn!(
                    "{VARIABLE} is set, and nothing is written there: {}: {error}",
                    path.display()
                );
                None
            }
        }
    });
    log.clone().map(|log| log as _)
}

/// The configuration of a server, with the key log of the process if `SSLKEYLOGFILE` is set.
#[must_use]
pub fn server_with_key_log(config: Arc<ServerConfig>) -> Arc<ServerConfig> {
    let Some(key_log) = of_process() else { return config };
    let mut config = ServerConfig::clone(&config);
    config.key_log = key_log;
    Arc::new(config)
}

/// The configuration of a client, with the key log of the process if `SSLKEYLOGFILE` is set.
#[must_use]
pub fn client_with_key_log(config: Arc<ClientConfig>) -> Arc<ClientConfig> {
    let Some(key_log) = of_process() else { return config };
    let mut config = ClientConfig::clone(&config);
    config.key_log = key_log;
    Arc::new(config)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn secrets_are_appended_to_a_file_of_the_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        for _ in 0..2 {
            let log = KeyFile::open(&path).unwrap();
            log.log("EXPORTER_SECRET", &[1, 0xab], &[0xff, 0]);
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "EXPORTER_SECRET 01ab ff00\n".repeat(2));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
