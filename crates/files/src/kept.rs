//! Files that no target may serve, although they lie below its directory: the state of this daemon,
//! its configuration, its tokens and its keys. Device and inode recognise them, so a link, a hard
//! link or another mount of such a file is refused as well. A copy of a token is recognised by its
//! content.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File, Metadata};
use std::hash::{BuildHasher, RandomState};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long the list of files in the folders stays valid. A daemon rarely creates a file, and the
/// path of a new file is recognised in the meantime.
const FRESH: Duration = Duration::from_secs(1);

/// The largest number of files of the folders that are examined. A state folder has at most some
/// hundred; further files are still recognised by their path.
const FILES_MAX: usize = 10_000;

/// The deepest folder below a kept folder that is examined.
const DEPTH_MAX: usize = 8;

/// The largest file, in bytes, that may be a copy of a token: a token has at most 256.
const TOKEN_MAX: usize = 512;

static KEPT: LazyLock<Mutex<Kept>> = LazyLock::new(Mutex::default);

#[derive(Debug, Default)]
struct Kept {
    files: BTreeSet<PathBuf>,
    folders: BTreeSet<PathBuf>,
    /// The keyed hashes of tokens.
    secrets: HashSet<u64>,
    key: RandomState,
    found: Option<(Instant, Arc<Found>)>,
}

/// Device, inode, and whether it is a folder: the system reuses the inode of a removed file for the
/// next file.
type Identity = (u64, u64, bool);

fn identity(file: &Metadata) -> Identity {
    (file.dev(), file.ino(), file.is_dir())
}

/// The files to which the paths resolve.
#[derive(Debug, Default)]
struct Found {
    identities: HashSet<Identity>,
    /// The folders, with links resolved.
    folders: Vec<PathBuf>,
}

impl Kept {
    fn lock() -> MutexGuard<'static, Self> {
        KEPT.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The files to which the paths resolve, at most a second old.
    fn found(&mut self) -> Arc<Found> {
        if let Some((at, found)) = &self.found
            && at.elapsed() < FRESH
        {
            return Arc::clone(found);
        }
        let mut found = Found::default();
        for file in &self.files {
            found.note(fs::metadata(file).ok());
        }
        for folder in &self.folders {
            found.note(fs::metadata(folder).ok());
            found.below(folder, DEPTH_MAX);
            found.folders.extend(fs::canonicalize(folder));
        }
        let found = Arc::new(found);
        self.found = Some((Instant::now(), Arc::clone(&found)));
        found
    }
}

impl Found {
    fn note(&mut self, metadata: Option<Metadata>) {
        self.identities.extend(metadata.as_ref().map(identity));
    }

    fn below(&mut self, folder: &Path, depth: usize) {
        // A folder that cannot be read is recognised by its path.
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if depth == 0 || self.identities.len() >= FILES_MAX {
                return;
            }
            self.note(fs::metadata(entry.path()).ok());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.below(&entry.path(), depth - 1);
            }
        }
    }
}

/// Keeps a file from being served.
pub fn keep(file: &Path) {
    let mut kept = Kept::lock();
    kept.files.insert(file.to_owned());
    kept.found = None;
}

/// Keeps a folder and everything below it from being served.
pub fn keep_folder(folder: &Path) {
    let mut kept = Kept::lock();
    kept.folders.insert(folder.to_owned());
    kept.found = None;
}

/// Keeps copies of a token from being served: files that hold only the token.
pub fn keep_token(token: &str) {
    let mut kept = Kept::lock();
    let hash = kept.key.hash_one(token.trim());
    kept.secrets.insert(hash);
}

/// Whether an open file or folder must not be served. It blocks.
#[must_use]
pub fn is_kept(file: &File, metadata: &Metadata) -> bool {
    let found = Kept::lock().found();
    if found.identities.contains(&identity(metadata)) {
        return true;
    }
    if !found.folders.is_empty()
        && let Ok(path) = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
        && found.folders.iter().any(|folder| path.starts_with(folder))
    {
        return true;
    }
    let is_short = || usize::try_from(metadata.len()).is_ok_and(|length| length <= TOKEN_MAX);
    metadata.is_file() && is_short() && has_token(file)
}

/// Whether a path leads to a kept file or folder, or below a kept folder. It blocks.
#[must_use]
pub fn leads_to_kept(path: &Path) -> bool {
    let found = Kept::lock().found();
    let is_kept = |file: Metadata| found.identities.contains(&identity(&file));
    fs::metadata(path).is_ok_and(is_kept)
        || fs::canonicalize(path)
            .is_ok_and(|real| found.folders.iter().any(|folder| real.starts_with(folder)))
}

fn has_token(file: &File) -> bool {
    let mut bytes = [0; TOKEN_MAX];
    // A file that was opened only for its attributes cannot be read, and is not served.
    let Ok(length) = file.read_at(&mut bytes, 0) else { return false };
    let Some(text) = bytes.get(..length).and_then(|bytes| std::str::from_utf8(bytes).ok()) else {
        return false;
    };
    let kept = Kept::lock();
    kept.secrets.contains(&kept.key.hash_one(text.trim()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_kept_file_is_recognised_under_every_name_and_other_files_are_served() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("state/deep")).unwrap();
        for name in ["admin.token", "page.html", "state/key", "state/deep/key", "key.html"] {
            fs::write(at(name), name).unwrap();
        }
        fs::write(at("copy"), "q7Xb2LmZ0aKc9RtYv4WnPs\n").unwrap();
        fs::write(at("no-copy"), "q7Xb2LmZ0aKc9RtYv4WnPs, they say\n").unwrap();
        fs::hard_link(at("admin.token"), at("hard")).unwrap();
        fs::hard_link(at("state/deep/key"), at("deep")).unwrap();
        symlink("admin.token", at("link")).unwrap();
        symlink("state", at("folder")).unwrap();
        keep(&at("link"));
        keep_folder(&at("folder"));
        keep_token("q7Xb2LmZ0aKc9RtYv4WnPs");
        let is_kept = |name: &str| {
            let file = File::open(at(name)).unwrap();
            let metadata = file.metadata().unwrap();
            is_kept(&file, &metadata)
        };
        for (name, wanted) in [
            ("admin.token", true),
            ("hard", true),
            ("link", true),
            ("state", true),
            ("state/key", true),
            ("folder/deep/key", true),
            ("deep", true),
            ("copy", true),
            ("no-copy", false),
            ("page.html", false),
            ("key.html", false),
            ("", false),
        ] {
            assert_eq!(is_kept(name), wanted, "{name}");
        }
        // A new file is recognised by its path.
        fs::write(at("state/new"), "new").unwrap();
        assert!(is_kept("state/new"));
        assert!(leads_to_kept(&at("folder/deep")) && leads_to_kept(&at("hard")));
        assert!(!leads_to_kept(dir.path()) && !leads_to_kept(&at("absent")));
    }
}
