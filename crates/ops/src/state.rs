//! The state directory, with the keys and tokens that are generated at the first start. One process
//! at a time owns the directory, and other users can neither read the files (a new directory has
//! mode 0700, files have mode 0600) nor put files there (such a directory is refused).

use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{geteuid, getpid};

const LOCK: &str = "lock";

/// The largest size in bytes of a file that is read. The files here are tokens; a larger file
/// belongs to another program.
const MAX_FILE: u64 = 1 << 20;

/// The reason why the state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error(
        "the state directory {} belongs to a running tunnel (process {owner}); \
         stop that one or choose another directory with --state-dir", dir.display()
    )]
    Locked { dir: PathBuf, owner: String },
    #[error("state directory: {}: {cause} (choose another with --state-dir)", path.display())]
    Io { path: PathBuf, cause: io::Error },
    #[error("the state directory {} {problem}, or choose another with --state-dir)", dir.display())]
    Unsafe { dir: PathBuf, problem: String },
    #[error("no place for state: set --state-dir, or HOME")]
    NoPlace,
}

/// The name of a file that [`StateDir::check_room`] removes, and its size in bytes: more than a
/// server usually writes in an hour.
const TRIAL: &str = "upgrade";
const ROOM: usize = 64 << 10;

/// Writes the id of this process into its lock file.
fn sign(mut lock: &File) -> io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    writeln!(lock, "{}", getpid().as_raw_nonzero())
}

/// A state directory that this process owns until the value is dropped.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    /// The permission bits of the directory.
    mode: u32,
    /// The lock lasts as long as this descriptor.
    lock: File,
}

impl StateDir {
    /// Makes the directory if it is missing, checks that other users cannot write to it, and locks
    /// it.
    ///
    /// # Errors
    /// [`StateError::Unsafe`] when another user could put files into the directory,
    /// [`StateError::Locked`] when another process owns the directory, else [`StateError::Io`].
    pub fn open(path: PathBuf) -> Result<Self, StateError> {
        let failed = |cause| StateError::Io { path: path.clone(), cause };
        create_private(&path).map_err(failed)?;
        let mode = is_safe(&path, geteuid().as_raw())?;
        let lock = path.join(LOCK);
        let mut lock =
            files::open_or_create(&lock).map_err(|cause| StateError::Io { path: lock, cause })?;
        let inherited = net::inherited::file(&lock).map_err(failed)?;
        let is_next = inherited.is_some();
        if let Some(inherited) = inherited {
            // The lock of the former generation of this daemon, which hands over.
            lock = inherited.into();
        }
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut owner = String::new();
                // The message is also correct without the process id.
                drop((&lock).take(32).read_to_string(&mut owner));
                let owner = owner.trim();
                let owner = if owner.is_empty() { "unknown" } else { owner }.to_owned();
                return Err(StateError::Locked { dir: path, owner });
            }
            Err(e) => return Err(failed(e.into())),
        }
        if !is_next {
            sign(&lock).map_err(failed)?;
        }
        Ok(Self { path, mode, lock })
    }

    /// Checks that files can be written, before a process takes over from a running process: the
    /// changes that the running process could not write would be lost.
    ///
    /// # Errors
    /// [`StateError::Io`]: the disk is full, or cannot be written to.
    pub fn check_room(&self) -> Result<(), StateError> {
        let path = || self.path.join(TRIAL);
        let room = Room::reserve(&self.path, TRIAL, ROOM);
        room.map(drop).map_err(|cause| StateError::Io { path: path(), cause })
    }

    /// Returns a call that writes the id of this process into the lock file of the former
    /// generation that this process replaces. The id is only used in messages.
    ///
    /// # Errors
    /// The process has no free descriptor.
    pub fn signing(&self) -> io::Result<impl FnOnce() + Send + use<>> {
        let lock = self.lock.try_clone()?;
        Ok(move || drop(sign(&lock)))
    }

    /// The warning about a directory whose file names other users may list.
    ///
    /// Such a directory is used, and its mode is kept: it was chosen on purpose, and 0755 is the
    /// default of systemd's `StateDirectoryMode=`. The files still have mode 0600. So other users
    /// see the file names, which contain the names of clients, but no secret.
    pub fn warning(&self) -> Option<String> {
        let dir = self.path.display();
        (self.mode & 0o044 != 0).then(|| {
            format!(
                "the state directory {dir} has mode {:04o}, so other users may list its files \
                 (chmod 700)",
                self.mode
            )
        })
    }

    /// The lock, which another process may inherit.
    pub const fn lock(&self) -> &File {
        &self.lock
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads a text file; `None` when there is no such file.
    ///
    /// # Errors
    /// [`StateError::Io`] also for a symbolic link, and for a file of more than 1 MiB.
    pub fn read(&self, name: &str) -> Result<Option<String>, StateError> {
        let path = self.path.join(name);
        read_private(&self.path, name).map_err(|cause| StateError::Io { path, cause })
    }

    /// Writes a file; see [`write_private`].
    pub fn write(&self, name: &str, content: &[u8]) -> Result<PathBuf, StateError> {
        let path = self.path.join(name);
        write_private(&self.path, name, content)
            .map_err(|cause| StateError::Io { path: path.clone(), cause })?;
        Ok(path)
    }
}

/// Reads a text file that [`write_private`] has written; `None` when there is no such file. A
/// symbolic link is an error, and so is a file of more than 1 MiB.
pub fn read_private(folder: &Path, name: &str) -> io::Result<Option<String>> {
    read_private_at_most(folder, name, MAX_FILE)
}

/// Reads a text file as [`read_private`], with another size limit in bytes.
pub fn read_private_at_most(folder: &Path, name: &str, most: u64) -> io::Result<Option<String>> {
    let content = if_there(files::read(&folder.join(name), most))?;
    let text = content.map(String::from_utf8).transpose();
    text.map_err(|_| io::Error::other("the file is not UTF-8"))
}

/// The outcome of a step with a file that may be absent: `None` when there is no such file.
///
/// # Errors
/// The step failed for another reason.
pub fn if_there<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        outcome => outcome.map(Some),
    }
}

/// Writes a file with mode 0600 in `folder`. The write is atomic: after a crash the file has the
/// old or the new content.
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
    Room::reserve(folder, name, 0)?.fill(content, like)
}

/// Reserved disk space for the new content of a file, in a temporary file beside it. A step that
/// cannot be repeated, such as the exchange of a code for a token, is taken only after space for
/// its result is reserved.
#[derive(Debug)]
pub struct Room {
    folder: PathBuf,
    name: String,
    /// Opened first: a folder that cannot be opened cannot be synchronized later.
    opened: File,
    file: File,
}

impl Room {
    /// Reserves space for `size` bytes. The space is released on drop.
    ///
    /// # Errors
    /// The folder has no room for a file of this size.
    pub fn reserve(folder: &Path, name: &str, size: usize) -> io::Result<Self> {
        let opened = File::open(folder)?;
        let file = files::create_fresh(&fresh(folder, name))?;
        let mut room = Self { folder: folder.to_owned(), name: name.to_owned(), opened, file };
        if size > 0 {
            room.file.write_all(&vec![0; size])?;
            // Some file systems report only at this point that the disk is full.
            room.file.sync_all()?;
            room.file.rewind()?;
        }
        Ok(room)
    }

    /// Writes the content, with the mode and owner of another file if `like` is given, and replaces
    /// the file with it. The write is atomic.
    ///
    /// # Errors
    /// The content cannot be written; the file is unchanged.
    pub fn fill(mut self, content: &[u8], like: Option<&Metadata>) -> io::Result<()> {
        let file = &mut self.file;
        file.write_all(content)?;
        file.set_len(content.len() as u64)?;
        if let Some(like) = like {
            let own = file.metadata()?;
            if (own.uid(), own.gid()) != (like.uid(), like.gid()) {
                fchown(&*file, Some(like.uid()), Some(like.gid()))?;
            }
            file.set_permissions(Permissions::from_mode(like.mode() & 0o7777))?;
        }
        file.sync_all()?;
        let folder = &self.folder;
        fs::rename(fresh(folder, &self.name), folder.join(&self.name))?;
        // The file is in place. Its durability across a power loss is uncertain, but the change
        // itself succeeded.
        if let Err(error) = self.opened.sync_all() {
            tracing::warn!(folder = %folder.display(), %error, "a new file in {} may not be on disk yet: {error}", folder.display());
        }
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // After a failed write, the temporary file is useless. After a successful write it no
        // longer exists.
        drop(fs::remove_file(fresh(&self.folder, &self.name)));
    }
}

fn fresh(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!(".{name}.new"))
}

/// Checks that only this user and root can put files into a directory.
///
/// # Errors
/// [`StateError::Unsafe`] when another user can, else [`StateError::Io`].
pub fn check_private(dir: &Path) -> Result<(), StateError> {
    is_safe(dir, geteuid().as_raw()).map(drop)
}

/// Checks that only the user `me` and root can put files into a directory, and returns its
/// permission bits. A user who can write to the directory can replace its keys, and decide which
/// clients may log in.
///
/// The directory may be a symbolic link, unless a third user owns the link and could change it.
fn is_safe(dir: &Path, me: u32) -> Result<u32, StateError> {
    let failed = |cause| StateError::Io { path: dir.to_owned(), cause };
    let refuse = |problem| Err(StateError::Unsafe { dir: dir.to_owned(), problem });
    let is_trusted = |user| user == me || user == 0;
    // The path has no trailing slash, after which the system would follow the link.
    let plain: PathBuf = dir.components().collect();
    let link = fs::symlink_metadata(&plain).map_err(failed)?;
    if link.is_symlink() && !is_trusted(link.uid()) {
        return refuse(format!(
            "is a symbolic link of user {}, who could change it, and this process runs as user \
             {me} (hint: name the directory itself",
            link.uid()
        ));
    }
    let directory = fs::metadata(&plain).map_err(failed)?;
    let (owner, mode) = (directory.uid(), directory.mode() & 0o7777);
    if !is_trusted(owner) {
        return refuse(format!(
            "belongs to user {owner}, who could replace the keys in it, and this process runs as \
             user {me} (hint: chown {me}"
        ));
    }
    if mode & 0o022 != 0 {
        return refuse(format!(
            "has mode {mode:04o}, so other users could replace the keys in it (hint: chmod 700"
        ));
    }
    Ok(mode)
}

/// Makes a directory and its missing parents with mode 0700. An existing directory keeps its mode,
/// because it was chosen on purpose.
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
        // directories by colons; the first directory is used.
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

    /// The directory of the control sockets. Where the system has a directory that is emptied at a
    /// reboot, it is used; else the state directory.
    ///
    /// # Errors
    /// [`StateError::NoPlace`] when the environment names no folder.
    pub fn runtime_dir(&self) -> Result<PathBuf, StateError> {
        if let Some(given) = &self.systemd_runtime {
            return Ok(given.clone());
        }
        self.default_runtime_dir().map_or_else(|| self.state_dir(), Ok)
    }

    /// The directories in which `tunnel status` looks for running instances, each once: those of
    /// manually started instances, and those of systemd (`/run/tunnel/INSTANCE`).
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
    use std::os::unix::fs::{chown, lchown, symlink};

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
    fn a_directory_that_others_may_write_to_is_refused_and_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let set = |mode| fs::set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
        for mode in [0o720, 0o702, 0o777, 0o1777, 0o2770] {
            set(mode);
            let text = StateDir::open(dir.path().to_owned()).unwrap_err().to_string();
            assert!(text.contains(dir.path().to_str().unwrap()), "{text}");
            assert!(text.contains(&format!("mode {mode:04o}")), "{text}");
            assert!(text.contains("chmod 700"), "{text}");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
            assert_eq!(fs::metadata(dir.path()).unwrap().mode() & 0o7777, mode);
        }
        set(0o700);
        StateDir::open(dir.path().to_owned()).unwrap();
    }

    #[test]
    fn a_directory_or_a_link_of_a_third_user_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let [real, link] = ["real", "link"].map(|name| dir.path().join(name));
        create_private(&real).unwrap();
        symlink("real", &link).unwrap();
        let owner = fs::metadata(&real).unwrap().uid();
        assert_eq!(is_safe(&link, owner).unwrap(), 0o700);

        // To another user, the owner of the directory is a third user, unless it is root. Root
        // makes systemd's links and directories.
        let other = owner + 1;
        if owner == 0 {
            assert_eq!(is_safe(&link, other).unwrap(), 0o700);
            chown(&real, Some(4711), None).unwrap();
        }
        let third = fs::metadata(&real).unwrap().uid();
        let text = is_safe(&real, other).unwrap_err().to_string();
        assert!(text.contains(&format!("real belongs to user {third}")), "{text}");
        assert!(text.contains(&format!("(hint: chown {other}, or")), "{text}");
        if owner == 0 {
            lchown(&link, Some(4711), None).unwrap();
        }
        for link in [link.clone(), link.join("")] {
            let text = is_safe(&link, other).unwrap_err().to_string();
            assert!(text.contains(&format!("a symbolic link of user {third}")), "{text}");
        }
    }

    #[test]
    fn a_directory_that_others_may_list_is_used_with_a_warning() {
        let dir = tempfile::tempdir().unwrap();
        for (mode, is_warned_of) in [(0o700, false), (0o711, false), (0o750, true), (0o755, true)] {
            fs::set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
            let warning = StateDir::open(dir.path().to_owned()).unwrap().warning();
            assert_eq!(warning.is_some(), is_warned_of, "{warning:?}");
            let is_complete =
                |text: &str| text.contains(&format!("{mode:04o}")) && text.contains("chmod 700");
            assert!(warning.is_none_or(|text| is_complete(&text)));
            assert_eq!(fs::metadata(dir.path()).unwrap().mode() & 0o7777, mode);
        }
    }

    #[test]
    fn a_link_in_the_place_of_a_file_is_refused_and_its_target_stays() {
        let dir = tempfile::tempdir().unwrap();
        let aim = dir.path().join("aim");
        fs::write(&aim, "precious").unwrap();
        let folder = dir.path().join("s");
        create_private(&folder).unwrap();

        symlink(&aim, folder.join(LOCK)).unwrap();
        let text = StateDir::open(folder.clone()).unwrap_err().to_string();
        assert!(text.contains("lock: this is a symbolic link"), "{text}");
        fs::remove_file(folder.join(LOCK)).unwrap();

        let state = StateDir::open(folder.clone()).unwrap();
        symlink(&aim, folder.join("t")).unwrap();
        let text = state.read("t").unwrap_err().to_string();
        assert!(text.contains("t: this is a symbolic link"), "{text}");
        // A link in the place of the file that is written first is removed, and so is the link that
        // the new file replaces.
        symlink(&aim, folder.join(".t.new")).unwrap();
        state.write("t", b"new").unwrap();
        assert_eq!(state.read("t").unwrap().as_deref(), Some("new"));
        assert_eq!(fs::read_to_string(&aim).unwrap(), "precious");
    }

    #[test]
    fn a_file_that_is_too_large_is_refused_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path().join("s")).unwrap();
        let whole = "x".repeat(1 << 20);
        state.write("t", whole.as_bytes()).unwrap();
        assert_eq!(state.read("t").unwrap(), Some(whole.clone()));
        state.write("t", format!("{whole}x").as_bytes()).unwrap();
        let text = state.read("t").unwrap_err().to_string();
        assert!(text.contains("t: the file is larger than 1048576 bytes"), "{text}");
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
