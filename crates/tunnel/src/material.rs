//! What configuration only names: files beside it, certificates, tokens. Everything that reads them
//! is here.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use config::{ClientConfig, Common, KeyPair, ServerConfig, Trust};

/// A token is one line; whatever is larger is another file.
const MAX_TOKEN_FILE: u64 = 4096;

/// Reads a configuration file, at most one byte more than the parser takes, so that it is the one
/// to refuse.
pub(crate) fn read_config(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(config::FILE_MAX as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// Reads a token file. Trailing blanks and line ends are not part of it.
pub(crate) fn read_token(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MAX_TOKEN_FILE).read_to_string(&mut text)?;
    Ok(text.trim().to_owned())
}

/// Whether others than the owner may read the file; a warning, because a container may know better.
pub(crate) fn is_exposed(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.mode() & 0o077 != 0)
}

/// Paths in a file are relative to the file's folder, wherever the daemon was started.
pub(crate) fn anchor_server(config: &mut ServerConfig, folder: &Path) {
    anchor_common(&mut config.common, folder);
    if let Some(pair) = &mut config.tls.identity {
        anchor_pair(pair, folder);
    }
    if let Some(ca) = &mut config.tls.client_ca {
        anchor(ca, folder);
    }
    config.auth.iter_mut().for_each(|auth| anchor_way(&mut auth.path, folder));
}

/// As [`anchor_server`].
pub(crate) fn anchor_client(config: &mut ClientConfig, folder: &Path) {
    anchor_common(&mut config.common, folder);
    config.servers.iter_mut().for_each(|path| anchor_way(path, folder));
}

fn anchor_way(path: &mut config::Path, folder: &Path) {
    if let Trust::Ca(ca) = &mut path.trust {
        anchor(ca, folder);
    }
    if let Some(pair) = &mut path.identity {
        anchor_pair(pair, folder);
    }
}

fn anchor_common(common: &mut Common, folder: &Path) {
    let log = common.log_file.as_mut().map(|log| &mut log.path);
    for path in [common.state_dir.as_mut(), common.control.as_mut(), log].into_iter().flatten() {
        anchor(path, folder);
    }
}

fn anchor_pair(pair: &mut KeyPair, folder: &Path) {
    anchor(&mut pair.cert, folder);
    anchor(&mut pair.key, folder);
}

fn anchor(path: &mut PathBuf, folder: &Path) {
    // An absolute path replaces the folder.
    *path = folder.join(&*path);
}
