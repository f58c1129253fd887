//! The state directory, with the keys and tokens that are made at the first start. One process at a
//! time owns the directory, and other users cannot read it: a new directory has mode 0700, files
//! have mode 0600.

use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{geteuid, getpid};

const LOCK: &str = "lock";

/// The number of bytes that are read from a file at most. A file here is a token or a certificate
/// with its key; a larger file is not ours.
const MAX_FILE: u64 = 1 << 20;

/// The reason for which the state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error(
        "the state directory {} belongs to a running tunnel (process {owner}); \
         stop that one or choose another directory with --state-dir", dir.display()
    )]
    Locked { dir: PathBuf, owner: String },
    #[error("state directory: {}: {cause} (choose another with --state-dir)", path.display())]
    Io { path: PathBuf, cause: io::Error },
    #[error("no place for state: set --state-dir, or HOME")]
    NoPlace,
}

/// A state directory that this process owns until the value is dropped.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    /// The lock lasts as long as this descriptor.
    _lock: File,
}

impl StateDir {
    /// Makes the directory if it is missing, and locks it.
    ///
    /// # Errors
    /// [`StateError::Locked`] when another process owns the directory, else [`StateError::Io`].
    pub fn open(path: PathBuf) -> Result<Self, StateError> {
        let failed = |cause| StateError::Io { path: path.clone(), cause };
        create_private(&path).map_err(failed)?;
        let lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path.join(LOCK))
            .map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut owner = String::new();
                // The message is true without the process number as well.
                drop((&lock).take(32).read_to_string(&mut owner));
                let owner = owner.trim();
                let owner = if owner.is_empty() { "unknown" } else { owner }.to_owned();
                return Err(StateError::Locked { dir: path, owner });
            }
            Err(e) => return Err(failed(e.into())),
        }
        lock.set_len(0).map_err(failed)?;
        writeln!(&lock, "{}", getpid().as_raw_nonzero()).map_err(failed)?;
        Ok(Self { path, _lock: lock })
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads a text file; `None` when there is no such file. Reads at most 1 MiB.
    pub fn read(&self, name: &str) -> Result<Option<String>, StateError> {
        let path = self.path.join(name);
        let mut text = String::new();
        let read = File::open(&path).and_then(|f| f.take(MAX_FILE).read_to_string(&mut text));
        match read {
            Ok(_) => Ok(Some(text)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(StateError::Io { path, cause }),
        }
    }

    /// Writes a file; see [`write_private`].
    pub fn write(&self, name: &str, content: &[u8]) -> Result<PathBuf, StateError> {
        let path = self.path.join(name);
        write_private(&self.path, name, content)
            .map_err(|cause| StateError::Io { path: path.clone(), cause })?;
        Ok(path)
    }
}

/// Writes a file with mode 0600 in `folder`. The write is atomic: after a crash the file is the old
/// or the new one.
pub fn write_private(folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    write_like(folder, name, content, None)
}

/// Writes a file as [`write_private`], but with the mode and owner of another file if `like` is
/// given.
pub fn write_like(
    folder: &Path,
    name: &str,
    content: &[u8],
    like: Option<&Metadata>,
) -> io::Result<()> {
    // Opened before anything else: a folder that cannot be opened cannot be synchronized later.
    let opened = File::open(folder)?;
    let fresh = folder.join(format!(".{name}.new"));
    // A crash may have left this file; no other process writes it.
    match fs::remove_file(&fresh) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
    let mut write = || {
        file.write_all(content)?;
        if let Some(like) = like {
            let own = file.metadata()?;
            if (own.uid(), own.gid()) != (like.uid(), like.gid()) {
                fchown(&file, Some(like.uid()), Some(like.gid()))?;
            }
            file.set_permissions(Permissions::from_mode(like.mode() & 0o7777))?;
        }
        file.sync_all()?;
        fs::rename(&fresh, folder.join(name))
    };
    if let Err(why) = write() {
        // The rest of the file is useless.
        drop(fs::remove_file(&fresh));
        return Err(why);
    }
    // The file is in place. Whether it survives a loss of power is uncertain, but that is no error
    // of the change.
    if let Err(error) = opened.sync_all() {
        tracing::warn!(folder = %folder.display(), %error, "a new file may not be on disk yet");
    }
    Ok(())
}

/// Makes a directory and its missing parents with mode 0700. An existing directory keeps its mode,
/// because somebody chose it.
pub fn create_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The folders that the environment names. They are read once, so that tests can set them.
#[derive(Clone, Debug, Default)]
pub struct Places {
    root: bool,
    home: Option<PathBuf>,
    xdg_state: Option<PathBuf>,
    xdg_runtime: Option<PathBuf>,
    systemd_state: Option<PathBuf>,
    systemd_runtime: Option<PathBuf>,
}

impl Places {
    /// The folders of this process.
    pub fn of_process() -> Self {
        Self::from_environment(geteuid().is_root(), |name| env::var_os(name))
    }

    fn from_environment(root: bool, variable: impl Fn(&str) -> Option<OsString>) -> Self {
        // The XDG specification says to ignore relative paths. systemd separates several
        // directories by colons; the first one is ours.
        let folder = |name| {
            let value = variable(name)?.into_string().ok()?;
            let first = PathBuf::from(value.split(':').next()?);
            first.is_absolute().then_some(first)
        };
        Self {
            root,
            home: folder("HOME"),
            xdg_state: folder("XDG_STATE_HOME"),
            xdg_runtime: folder("XDG_RUNTIME_DIR"),
            systemd_state: folder("STATE_DIRECTORY"),
            systemd_runtime: folder("RUNTIME_DIRECTORY"),
        }
    }

    /// The default of the state directory, when neither flag nor file sets it.
    ///
    /// # Errors
    /// [`StateError::NoPlace`] when the environment names no folder.
    pub fn state_dir(&self) -> Result<PathBuf, StateError> {
        if let Some(given) = &self.systemd_state {
            return Ok(given.clone());
        }
        self.default_state_dir().ok_or(StateError::NoPlace)
    }

    /// The directory of the control sockets. It is emptied at a reboot where the system offers such
    /// a directory; else it is the state directory.
    ///
    /// # Errors
    /// [`StateError::NoPlace`] when the environment names no folder.
    pub fn runtime_dir(&self) -> Result<PathBuf, StateError> {
        if let Some(given) = &self.systemd_runtime {
            return Ok(given.clone());
        }
        self.default_runtime_dir().map_or_else(|| self.state_dir(), Ok)
    }

    /// The directories in which `tunnel status` looks for running instances, each once: those of an
    /// instance started by hand, and those of systemd (`/run/tunnel/INSTANCE`).
    pub fn known(&self) -> Vec<PathBuf> {
        let mut known: Vec<PathBuf> = [
            self.systemd_runtime.clone(),
            self.default_runtime_dir(),
            Some("/run/tunnel".into()),
            self.systemd_state.clone(),
            self.default_state_dir(),
            Some("/var/lib/tunnel".into()),
        ]
        .into_iter()
        .flatten()
        .collect();
        let mut seen = std::collections::HashSet::new();
        known.retain(|path| seen.insert(path.clone()));
        known
    }

    fn default_state_dir(&self) -> Option<PathBuf> {
        if self.root {
            return Some("/var/lib/tunnel".into());
        }
        let xdg = self.xdg_state.as_ref().map(|path| path.join("tunnel"));
        xdg.or_else(|| Some(self.home.as_ref()?.join(".local/state/tunnel")))
    }

    fn default_runtime_dir(&self) -> Option<PathBuf> {
        if self.root {
            return Some("/run/tunnel".into());
        }
        Some(self.xdg_runtime.as_ref()?.join("tunnel"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn places(root: bool, set: &[(&str, &str)]) -> Places {
        Places::from_environment(root, |name| {
            set.iter().find(|(n, _)| *n == name).map(|(_, value)| value.into())
        })
    }

    #[test]
    fn the_place_follows_systemd_then_root_then_xdg_then_home() {
        let all = [
            ("STATE_DIRECTORY", "/s/one:/s/two"),
            ("XDG_STATE_HOME", "/xdg"),
            ("HOME", "/home/me"),
        ];
        let at = |root, set: &[_]| places(root, set).state_dir().unwrap();
        assert_eq!(at(true, &all), Path::new("/s/one"));
        assert_eq!(at(true, &all[1..]), Path::new("/var/lib/tunnel"));
        assert_eq!(at(false, &all[1..]), Path::new("/xdg/tunnel"));
        assert_eq!(at(false, &all[2..]), Path::new("/home/me/.local/state/tunnel"));
        assert_eq!(at(false, &[("XDG_STATE_HOME", "rel"), all[2]]), at(false, &all[2..]));
        assert!(matches!(places(false, &[]).state_dir(), Err(StateError::NoPlace)));
    }

    #[test]
    fn a_directory_in_use_is_refused_with_the_owner_and_free_after_drop() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let first = StateDir::open(path.clone()).unwrap();
        let text = StateDir::open(path.clone()).unwrap_err().to_string();
        assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
        drop(first);
        StateDir::open(path).unwrap();
    }

    #[test]
    fn files_are_private_and_replaced_whole() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path().join("s")).unwrap();
        assert_eq!(state.read("t").unwrap(), None);
        // A crash between writing and renaming left this behind.
        fs::write(state.path().join(".t.new"), "half").unwrap();
        state.write("t", b"one").unwrap();
        let path = state.write("t", b"two").unwrap();
        assert_eq!(state.read("t").unwrap().as_deref(), Some("two"));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(state.path()), 0o700);
        assert_eq!(mode(&state.path().join(LOCK)), 0o600);
        assert_eq!(fs::read_dir(state.path()).unwrap().count(), 2);
    }
}
