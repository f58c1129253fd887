//! The paths of control sockets, and the search for live sockets.

use std::fs;
use std::path::{Path, PathBuf};

use ops::socket_file::probe;
use ops::state::{Places, StateError};

use crate::denied::Denied;

/// The suffix of every socket file. The search finds sockets by this suffix.
const SUFFIX: &str = ".sock";

/// The place of a daemon's control socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketPath {
    /// The path of the socket file.
    pub path: PathBuf,
    /// Whether the user set this path. At such a path, another live daemon is an error. At any
    /// other path, the daemon uses another name instead.
    pub fixed: bool,
}

impl SocketPath {
    /// Chooses the place. `given` is the value of the flag or of the key `control`, and takes
    /// precedence. Otherwise the socket goes into the daemon's own state directory, if the daemon
    /// has one, or else into the runtime directory. `instance` (`server`, `client-home`)
    /// distinguishes the sockets of several daemons.
    ///
    /// # Errors
    /// There is no runtime directory.
    pub fn choose(
        given: Option<&Path>,
        own_state_dir: Option<&Path>,
        instance: &str,
        places: &Places,
    ) -> Result<Self, StateError> {
        if let Some(path) = given {
            return Ok(Self { path: path.to_owned(), fixed: true });
        }
        let folder = match own_state_dir {
            Some(dir) => dir.to_owned(),
            None => places.runtime_dir()?,
        };
        Ok(Self { path: folder.join(format!("{}{SUFFIX}", file_name(instance))), fixed: false })
    }

    /// The path to use if another live daemon has the first path: the process id is part of the
    /// name.
    pub(super) fn beside(&self) -> PathBuf {
        self.path.with_extension(format!("{}{SUFFIX}", std::process::id()))
    }
}

impl SocketPath {
    /// The start of the file names of an instance's sockets.
    pub fn file_name(instance: &str) -> String {
        file_name(instance)
    }
}

/// The instance as a file name. A client's name may contain characters that are not allowed in file
/// names. The result has at most 48 characters, because the whole path must fit into 107 bytes
/// (unix(7)).
fn file_name(instance: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    instance.chars().take(48).map(plain).collect()
}

/// The result of a search for daemons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The live sockets, sorted by path.
    pub live: Vec<PathBuf>,
    /// The sockets and folders to which this user has no access.
    pub denied: Vec<Denied>,
}

/// Searches the known folders and their direct subfolders.
pub fn running(places: &Places) -> Found {
    running_in(&places.known())
}

fn running_in(folders: &[PathBuf]) -> Found {
    let mut sockets = Vec::new();
    let mut found = Found::default();
    for folder in folders {
        for entry in entries(folder, &mut found.denied) {
            if is_socket_name(&entry) {
                sockets.push(entry);
            } else if entry.is_dir() {
                let inner = entries(&entry, &mut found.denied);
                sockets.extend(inner.into_iter().filter(|path| is_socket_name(path)));
            }
        }
    }
    sockets.sort();
    sockets.dedup();
    for path in sockets {
        match probe(&path) {
            Ok(true) => found.live.push(path),
            Ok(false) => {}
            Err(error) => found.denied.extend(Denied::of(&path, true, &error)),
        }
    }
    found
}

/// The entries of a folder. A missing folder counts as empty. A folder that this user may not read
/// is added to `denied`, because a daemon of another user may run there.
fn entries(folder: &Path, denied: &mut Vec<Denied>) -> Vec<PathBuf> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(error) => {
            // A known folder may also be a subfolder of another known folder.
            let new = Denied::of(folder, false, &error);
            denied.extend(new.filter(|new| !denied.contains(new)));
            Vec::new()
        }
    }
}

fn is_socket_name(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.ends_with(SUFFIX))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_given_path_is_taken_as_it_is_and_instances_do_not_clash() {
        let places = Places::default();
        let given = SocketPath::choose(Some(Path::new("/x/c")), None, "server", &places).unwrap();
        assert_eq!(given, SocketPath { path: "/x/c".into(), fixed: true });
        let at = |instance| {
            SocketPath::choose(None, Some(Path::new("/s")), instance, &places).unwrap().path
        };
        assert_eq!(at("server"), Path::new("/s/server.sock"));
        assert_eq!(at("client-../a b"), Path::new("/s/client-.._a_b.sock"));
        assert_ne!(at("client-home"), at("client-work"));
    }

    #[test]
    fn live_sockets_are_found_and_stale_ones_and_other_files_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("one");
        fs::create_dir(&inner).unwrap();
        let live = UnixListener::bind(inner.join("server.sock")).unwrap();
        drop(UnixListener::bind(dir.path().join("stale.sock")).unwrap());
        fs::write(dir.path().join("lock"), "").unwrap();
        let folders = [dir.path().to_owned(), inner.clone(), "/nowhere".into()];
        let found = Found { live: vec![inner.join("server.sock")], denied: Vec::new() };
        assert_eq!(running_in(&folders), found);
        drop(live);
        assert_eq!(running_in(&folders), Found::default());
    }
}
