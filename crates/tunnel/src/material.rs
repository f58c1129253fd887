//! Reads configuration and token files, checks which users may read them, and makes the paths in a
//! configuration absolute.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use config::{
    AccessLog, ClientConfig, Common, KeyPair, NodeTls, Pages, ProxyConfig, ServerConfig, Trust,
};

/// The largest size of a file with a token or with users that is read, in bytes. A token is one
/// line, and 256 users have 30 KiB.
const MAX_TOKEN_FILE: u64 = 128 << 10;

/// Reads a configuration file, up to one byte more than the parser accepts. So the parser refuses a
/// larger file with its own message.
pub(crate) fn read_config(path: &Path) -> io::Result<Vec<u8>> {
    bytes_of(File::open(path)?)
}

/// Reads a configuration file as [`read_config`] does, but follows no symbolic link.
pub(crate) fn read_own_config(path: &Path) -> io::Result<Vec<u8>> {
    bytes_of(files::open(path)?)
}

fn bytes_of(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(config::FILE_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a file with a token.
pub(crate) fn read_token(path: &Path) -> io::Result<String> {
    read_bounded(path, MAX_TOKEN_FILE)
}

/// Reads a file that a configuration names, as [`read_token`] does. The parser bounds each kind of
/// file further.
pub(crate) fn read_named(path: &Path) -> io::Result<String> {
    read_bounded(path, config::READ_MAX as u64)
}

fn read_bounded(path: &Path, most: u64) -> io::Result<String> {
    let (mut text, file) = (Vec::new(), File::open(path)?);
    (&file).take(most + 1).read_to_end(&mut text)?;
    if text.len() as u64 > most {
        // A pipe has no size.
        let why = match file.metadata()?.len() {
            size if size > most => format!("it has {size} bytes, and may have at most {most}"),
            _ => format!("it has more than {most} bytes"),
        };
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    String::from_utf8(text).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.utf8_error()))
}

/// Whether users other than the owner may access the file. The result is only a warning, because in
/// a container the mode may be harmless.
///
/// A file in `credentials`, the directory that systemd makes for the unit, is never exposed. Its
/// mode is 0440 where systemd grants access to the unit's user by an access control list: the bits
/// of the group are then the mask of the list (acl(5)). No other user can enter the directory.
pub(crate) fn is_exposed(path: &Path, credentials: Option<&Path>) -> bool {
    // An empty path would be a prefix of every path.
    let credentials = credentials.filter(|folder| folder.is_absolute());
    !credentials.is_some_and(|folder| path.starts_with(folder))
        && fs::metadata(path).is_ok_and(|file| file.mode() & 0o077 != 0)
}

/// The private keys that a server's configuration names.
pub(crate) fn server_keys(config: &ServerConfig) -> Vec<&Path> {
    let hook = config.auth.iter().filter_map(|auth| auth.path.identity.as_ref());
    let node = config.cluster.iter().flat_map(|cluster| {
        let etcd = cluster.directory.members.iter().filter_map(|path| path.identity.as_ref());
        cluster.peers.tls.iter().map(|tls| &tls.identity).chain(etcd)
    });
    let pairs = config.tls.identity.iter().chain(hook).chain(&config.tls_routes.certificates);
    let pairs = pairs.chain(node);
    pairs.map(|pair| pair.key.as_path()).collect()
}

/// The private keys that a client's configuration names.
pub(crate) fn client_keys(config: &ClientConfig) -> Vec<&Path> {
    let pairs = config.paths().filter_map(|path| path.identity.as_ref());
    let pairs = pairs.chain(config.peer_tls().filter_map(|(_, tls)| tls.identity.as_ref()));
    pairs.map(|pair| pair.key.as_path()).collect()
}

/// The private keys that a proxy's configuration names.
pub(crate) fn proxy_keys(config: &ProxyConfig) -> Vec<&Path> {
    let pairs = config.proxies.iter().filter_map(|proxy| proxy.tls.as_ref());
    pairs.map(|pair| pair.key.as_path()).collect()
}

/// Makes the paths of a configuration file absolute. They are relative to the folder of the file,
/// independent of the working directory of the daemon.
pub(crate) fn anchor_server(config: &mut ServerConfig, folder: &Path) {
    anchor_common(&mut config.common, folder);
    if let Some(pair) = &mut config.tls.identity {
        anchor_pair(pair, folder);
    }
    if let Some(ca) = &mut config.tls.client_ca {
        anchor(ca, folder);
    }
    config.auth.iter_mut().for_each(|auth| anchor_way(&mut auth.path, folder));
    if let Some(cluster) = &mut config.cluster {
        if let Some(NodeTls { ca, identity }) = &mut cluster.peers.tls {
            anchor(ca, folder);
            anchor_pair(identity, folder);
        }
        cluster.directory.members.iter_mut().for_each(|path| anchor_way(path, folder));
    }
    config.tls_routes.certificates.iter_mut().for_each(|pair| anchor_pair(pair, folder));
    for account in &mut config.tls_routes.acme {
        let program = account.dns.as_mut().map(|dns| &mut dns.exec);
        for path in [account.ca.as_mut(), program].into_iter().flatten() {
            anchor(path, folder);
        }
    }
    let Pages { not_found, unavailable } = &mut config.http.pages;
    for path in [not_found.as_mut(), unavailable.as_mut()].into_iter().flatten() {
        anchor(path, folder);
    }
}

/// Makes the paths absolute, as [`anchor_server`] does.
pub(crate) fn anchor_client(config: &mut ClientConfig, folder: &Path) {
    anchor_common(&mut config.common, folder);
    config.paths_mut().for_each(|path| anchor_way(path, folder));
    let files = config.services.iter_mut().filter_map(|service| service.user_file.as_mut());
    files.for_each(|file| anchor(&mut file.path, folder));
    for service in &mut config.services {
        if let Some(Trust::Ca(ca)) = &mut service.target_tls.trust {
            anchor(ca, folder);
        }
    }
    for tls in config.peer_tls_mut() {
        anchor(&mut tls.ca, folder);
        tls.identity.iter_mut().for_each(|pair| anchor_pair(pair, folder));
    }
}

/// Makes the paths absolute, as [`anchor_server`] does.
pub(crate) fn anchor_proxy(config: &mut ProxyConfig, folder: &Path) {
    anchor_common(&mut config.common, folder);
    for proxy in &mut config.proxies {
        proxy.tls.iter_mut().for_each(|pair| anchor_pair(pair, folder));
        if let Some(Trust::Ca(ca)) = &mut proxy.service.target_tls.trust {
            anchor(ca, folder);
        }
    }
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
    let access = match &mut common.log_access {
        AccessLog::File(log) => Some(&mut log.path),
        AccessLog::Off | AccessLog::On => None,
    };
    let requests = common.log_requests.as_mut().map(|log| &mut log.file.path);
    let all = [common.state_dir.as_mut(), common.control.as_mut(), log, access, requests];
    for path in all.into_iter().flatten().chain(&mut common.watched) {
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_of_users_or_with_a_token_is_read_as_a_whole_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("users");
        let most = usize::try_from(MAX_TOKEN_FILE).unwrap();
        fs::write(&file, "x".repeat(most)).unwrap();
        assert_eq!(read_token(&file).unwrap().len(), most);
        // The byte at the limit is the first one of a letter of two bytes.
        fs::write(&file, "x".repeat(most - 1) + "\u{e4}").unwrap();
        let refused = read_token(&file).unwrap_err().to_string();
        assert_eq!(refused, "it has 131073 bytes, and may have at most 131072");
        // A pipe tells no size.
        let endless = read_token(Path::new("/dev/zero")).unwrap_err().to_string();
        assert_eq!(endless, "it has more than 131072 bytes");
    }

    #[test]
    fn the_lines_of_a_file_keep_their_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("list");
        fs::write(&file, "\n\n 10.0.0.0/8\n").unwrap();
        assert_eq!(read_named(&file).unwrap(), "\n\n 10.0.0.0/8\n");
    }

    #[test]
    fn a_credential_of_systemd_is_not_exposed_by_the_mask_of_its_list() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        fs::write(&file, "").unwrap();
        let set = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        set(0o440);
        assert!(is_exposed(&file, None));
        assert!(is_exposed(&file, Some(Path::new(""))));
        assert!(is_exposed(&file, Some(&dir.path().join("other"))));
        assert!(!is_exposed(&file, Some(dir.path())));
        set(0o400);
        assert!(!is_exposed(&file, None));
    }
}
