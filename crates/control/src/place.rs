//! Where control sockets lie and which of them are alive.

use std::fs;
use std::path::{Path, PathBuf};

use ops::socket_file::probe;
use ops::state::{Places, StateError};

/// How the files are called, so that they can be found again.
const SUFFIX: &str = ".sock";

/// Where a daemon puts its control socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub path: PathBuf,
    /// Somebody asked for this very path: another daemon there is an error, not a reason to
    /// take the next name.
    pub fixed: bool,
}

impl Place {
    /// `given` is the flag or the key `control`. Else the socket of a daemon with a state directory
    /// of its own lies there, and any other in the runtime directory. `instance` (`server`,
    /// `client-home`) keeps several apart.
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

    /// The name to take when another live daemon has the first.
    pub(super) fn beside(&self) -> PathBuf {
        self.path.with_extension(format!("{}{SUFFIX}", std::process::id()))
    }
}

/// A client's name may hold anything that a configuration may; a file's may not. Short, because
/// the whole path must fit into 107 bytes.
fn file_name(instance: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    instance.chars().take(48).map(plain).collect()
}

/// The live sockets in the known folders and the folders right below them, sorted.
pub fn running(places: &Places) -> Vec<PathBuf> {
    running_in(&places.known())
}

fn running_in(folders: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in folders {
        for entry in entries(folder) {
            if is_socket_name(&entry) {
                found.push(entry);
            } else if entry.is_dir() {
                found.extend(entries(&entry).into_iter().filter(|path| is_socket_name(path)));
            }
        }
    }
    found.retain(|path| matches!(probe(path), Ok(true)));
    found.sort();
    found.dedup();
    found
}

/// Folders that are missing or closed to us hold nothing that we may command.
fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
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
        let given = Place::choose(Some(Path::new("/x/c")), None, "server", &places).unwrap();
        assert_eq!(given, Place { path: "/x/c".into(), fixed: true });
        let at =
            |instance| Place::choose(None, Some(Path::new("/s")), instance, &places).unwrap().path;
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
        assert_eq!(running_in(&folders), [inner.join("server.sock")]);
        drop(live);
        assert!(running_in(&folders).is_empty());
    }
}
