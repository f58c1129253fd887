//! Files below a directory. The kernel resolves each path inside the directory (openat2(2),
//! `RESOLVE_BENEATH`), so a symbolic link that escapes is refused even if it is created between
//! check and use. An absolute link always counts as an escape. A link to or through a hidden name
//! is refused like the name itself: the resolved path is checked for hidden names, and then opened
//! without following links.
//!
//! If the kernel or a sandbox lacks openat2, no symbolic link is followed: each component of the
//! path is opened separately.
//!
//! Only regular files are served. Reading a pipe would block, and reading a device may have side
//! effects.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2, readlinkat};
use rustix::io::Errno;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::opened::Facts;
use super::path::is_hidden;

/// The maximum number of concurrent file system calls, for all requests of a directory. Each takes
/// a thread of the runtime's pool; a hanging disk must not block all of them.
const CALLS: usize = 16;

/// How often the resolution of a path is retried after a concurrent rename.
const AGAIN: usize = 8;

/// The maximum number of links followed in a path, as in Linux.
const LINKS: usize = 40;

/// A directory whose files are served.
#[derive(Clone, Debug)]
pub(super) struct Beneath {
    /// Opened for each request, so that a replaced directory takes effect.
    root: Arc<Path>,
    calls: Arc<Semaphore>,
    resolver: Resolver,
    withheld: Withheld,
}

/// A rule about an open file or directory; `true`: it is not served. The rule may block.
pub type Withheld = fn(&File, &Metadata) -> bool;

/// The way in which paths are resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resolver {
    Kernel,
    /// Component by component, without links.
    Names,
}

impl Beneath {
    /// # Errors
    /// The path is not a directory that can be opened.
    pub(super) fn new(root: &Path) -> io::Result<Self> {
        let opened = directory(root)?;
        let resolver = match Resolver::Kernel.open(&opened, Path::new("."), OFlags::PATH) {
            Err(Errno::NOSYS | Errno::PERM) => Resolver::Names,
            Ok(_) | Err(_) => Resolver::Kernel,
        };
        let (calls, withheld) = (Arc::new(Semaphore::new(CALLS)), nothing as Withheld);
        Ok(Self { root: root.into(), calls, resolver, withheld })
    }

    /// Hides the files for which the rule is true.
    pub(super) fn withholding(self, withheld: Withheld) -> Self {
        Self { withheld, ..self }
    }

    /// Opens the current directory. It blocks.
    fn enter(&self) -> io::Result<Root> {
        let Self { resolver, withheld, .. } = *self;
        Ok(Root { at: directory(&self.root)?, resolver, withheld })
    }

    /// The path of the directory.
    pub(super) fn path(&self) -> &Path {
        &self.root
    }

    /// The limit of concurrent file system calls.
    pub(super) const fn calls(&self) -> &Arc<Semaphore> {
        &self.calls
    }

    /// Performs file system calls on another thread.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Root) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let this = self.clone();
        on_thread(Arc::clone(&self.calls), move || call(&this.enter()?)).await
    }
}

/// An open directory.
pub(super) struct Root {
    at: OwnedFd,
    resolver: Resolver,
    withheld: Withheld,
}

/// The rule that withholds nothing.
const fn nothing(_: &File, _: &Metadata) -> bool {
    false
}

impl Root {
    /// Opens the file or the directory at `path`, which is relative.
    ///
    /// # Errors
    /// `NotFound`: there is nothing that may be served. Other errors come from the disk.
    pub(super) fn find(&self, path: &Path, flags: OFlags) -> io::Result<(File, Facts)> {
        let found = self.resolver.open(&self.at, path, flags);
        let file = File::from(found.map_err(|error| match error {
            // All of these mean that nothing can be served at this path.
            Errno::NOENT
            | Errno::NOTDIR
            | Errno::XDEV
            | Errno::LOOP
            | Errno::NAMETOOLONG
            | Errno::INVAL
            | Errno::NXIO
            | Errno::ACCESS
            | Errno::PERM => io::ErrorKind::NotFound.into(),
            error => io::Error::from(error),
        })?);
        let metadata = file.metadata()?;
        if !metadata.is_file() && !metadata.is_dir() || (self.withheld)(&file, &metadata) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok((file, Facts::of(&metadata)))
    }
}

/// Runs `call` on another thread. The permit is held until the call returns, even if the future is
/// dropped.
pub(super) async fn on_thread<T: Send + 'static>(
    calls: Arc<Semaphore>,
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let permit = calls.acquire_owned().await.map_err(io::Error::other)?;
    let called = spawn_blocking(move || {
        let outcome = call();
        drop(permit);
        outcome
    });
    called.await.map_err(io::Error::other)?
}

fn directory(root: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(CWD, root, flags, Mode::empty())?)
}

impl Resolver {
    fn open(self, root: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        // Without NONBLOCK a pipe would block the open. PATH does not open the file and accepts no
        // such flag.
        let flags = match flags.contains(OFlags::PATH) {
            true => flags | OFlags::CLOEXEC,
            false => flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY,
        };
        match self {
            Self::Kernel => match straight(root, path, flags) {
                Err(Errno::LOOP) => straight(root, &without_links(root, path)?, flags),
                outcome => outcome,
            },
            Self::Names => {
                let names: Vec<&OsStr> = path.iter().filter(|name| *name != ".").collect();
                let Some((last, parents)) = names.split_last() else {
                    return openat(root, ".", flags, Mode::empty());
                };
                let step = |at: &OwnedFd, name: &OsStr, flags| {
                    if name == ".." || name == "/" {
                        return Err(Errno::XDEV);
                    }
                    openat(at.as_fd(), name, flags | OFlags::NOFOLLOW, Mode::empty())
                };
                let mut at = openat(root, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
                for name in parents {
                    at = step(&at, name, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC)?;
                }
                step(&at, last, flags)
            }
        }
    }
}

/// Opens a path without symbolic links.
fn straight(root: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    let mut outcome = Err(Errno::AGAIN);
    for _ in 0..AGAIN {
        outcome = openat2(root, path, flags, Mode::empty(), resolve);
        if !matches!(outcome, Err(Errno::AGAIN | Errno::INTR)) {
            break;
        }
    }
    outcome
}

/// The path after the links of `path` are resolved. Links out of the root or to a hidden name are
/// errors.
fn without_links(root: &OwnedFd, path: &Path) -> Result<PathBuf, Errno> {
    let mut names = PathBuf::new();
    let mut links = 0;
    let reversed = |path: &Path| path.iter().map(OsStr::to_owned).rev().collect::<Vec<_>>();
    let mut rest = reversed(path);
    while let Some(name) = rest.pop() {
        if name == "." {
            continue;
        }
        if name == "/" {
            return Err(Errno::XDEV);
        }
        if name == ".." {
            if !names.pop() {
                return Err(Errno::XDEV);
            }
            continue;
        }
        if is_hidden(name.as_bytes(), names.as_os_str().is_empty()) {
            return Err(Errno::NOENT);
        }
        names.push(&name);
        match readlinkat(root, &names, Vec::new()) {
            Ok(to) => {
                links += 1;
                if links > LINKS {
                    return Err(Errno::LOOP);
                }
                names.pop();
                rest.extend(reversed(Path::new(OsStr::from_bytes(to.as_bytes()))));
            }
            // The name is not a link.
            Err(Errno::INVAL) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(if names.as_os_str().is_empty() { ".".into() } else { names })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory `www` with files and links, beside a secret.
    fn site() -> tempfile::TempDir {
        let base = tempfile::tempdir().unwrap();
        let www = base.path().join("www");
        std::fs::create_dir_all(www.join("sub")).unwrap();
        std::fs::write(base.path().join("secret"), "secret").unwrap();
        std::fs::write(www.join("a.txt"), "hello").unwrap();
        std::fs::write(www.join("sub/b.txt"), "b").unwrap();
        symlink("a.txt", www.join("inside")).unwrap();
        symlink("../a.txt", www.join("sub/up")).unwrap();
        symlink("../secret", www.join("out")).unwrap();
        symlink("/etc/passwd", www.join("absolute")).unwrap();
        symlink("..", www.join("parent")).unwrap();
        symlink("loop", www.join("loop")).unwrap();
        symlink("/proc/self/root", www.join("magic")).unwrap();
        for folder in [".git", "sub/.git", ".well-known"] {
            std::fs::create_dir(www.join(folder)).unwrap();
            std::fs::write(www.join(folder).join("config"), "config").unwrap();
        }
        symlink(".git/config", www.join("config")).unwrap();
        symlink(".git", www.join("git")).unwrap();
        symlink("config", www.join("twice")).unwrap();
        symlink("../.git", www.join("sub/git")).unwrap();
        symlink("sub/../sub/.git/../b.txt", www.join("through")).unwrap();
        symlink(".well-known/config", www.join("known")).unwrap();
        symlink("./sub/", www.join("folder")).unwrap();
        base
    }

    fn find(resolver: Resolver, path: &str) -> Result<Facts, io::ErrorKind> {
        let base = site();
        let mut beneath = Beneath::new(&base.path().join("www")).unwrap();
        beneath.resolver = resolver;
        let [opened, seen] = [OFlags::RDONLY, OFlags::PATH].map(|flags| {
            beneath.enter().unwrap().find(Path::new(path), flags).map(|found| found.1)
        });
        assert_eq!(opened.is_ok(), seen.is_ok(), "{path}");
        opened.map_err(|error| error.kind())
    }

    #[test]
    fn what_lies_below_is_found_and_nothing_else() {
        for resolver in [Resolver::Kernel, Resolver::Names] {
            assert_eq!(find(resolver, "./a.txt").unwrap().length, 5);
            assert_eq!(find(resolver, "sub/b.txt").unwrap().length, 1);
            assert!(find(resolver, "./sub").unwrap().is_dir);
            assert!(find(resolver, ".").unwrap().is_dir);
            for path in [
                "absent",
                "a.txt/b",
                "out",
                "absolute",
                "parent",
                "parent/secret",
                "loop",
                "magic/etc/passwd",
                "../secret",
                "sub/../../secret",
                "/etc/passwd",
                "config",
                "git",
                "git/config",
                "twice",
                "sub/git/config",
                "through",
            ] {
                assert_eq!(
                    find(resolver, path).unwrap_err(),
                    io::ErrorKind::NotFound,
                    "{resolver:?} {path}"
                );
            }
        }
        assert_eq!(find(Resolver::Kernel, "inside").unwrap().length, 5);
        assert_eq!(find(Resolver::Kernel, "sub/up").unwrap().length, 5);
        assert_eq!(find(Resolver::Kernel, "folder/b.txt").unwrap().length, 1);
        assert!(find(Resolver::Kernel, "folder").unwrap().is_dir);
        assert_eq!(find(Resolver::Kernel, "known").unwrap().length, 6);
        assert_eq!(find(Resolver::Kernel, ".well-known/config").unwrap().length, 6);
        assert!(find(Resolver::Names, "inside").is_err(), "no link is followed");
    }

    #[test]
    fn a_file_that_is_withheld_is_not_there() {
        let base = site();
        let beneath = Beneath::new(&base.path().join("www")).unwrap();
        let beneath = beneath.withholding(|_, metadata| metadata.is_dir() || metadata.len() == 1);
        for flags in [OFlags::RDONLY, OFlags::PATH] {
            let find = |path: &str| beneath.enter().unwrap().find(Path::new(path), flags);
            assert!(find("a.txt").is_ok());
            for path in ["sub/b.txt", "sub"] {
                assert_eq!(find(path).unwrap_err().kind(), io::ErrorKind::NotFound, "{path}");
            }
        }
    }

    #[test]
    fn a_pipe_and_a_socket_are_no_files_and_do_not_block() {
        let base = site();
        let www = base.path().join("www");
        let beneath = Beneath::new(&www).unwrap();
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(CWD, www.join("pipe"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(www.join("socket")).unwrap();
        for name in ["pipe", "socket"] {
            for flags in [OFlags::RDONLY, OFlags::PATH] {
                let error = beneath.enter().unwrap().find(Path::new(name), flags).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::NotFound, "{name}");
            }
        }
    }

    #[test]
    fn a_directory_that_is_replaced_is_served_anew() {
        let base = site();
        let (www, link) = (base.path().join("www"), base.path().join("current"));
        symlink(&www, &link).unwrap();
        let beneath = Beneath::new(&link).unwrap();
        assert!(beneath.enter().unwrap().find(Path::new("new.txt"), OFlags::PATH).is_err());
        let next = base.path().join("next");
        std::fs::create_dir(&next).unwrap();
        std::fs::write(next.join("new.txt"), "new").unwrap();
        symlink(&next, base.path().join("temporary")).unwrap();
        std::fs::rename(base.path().join("temporary"), &link).unwrap();
        assert!(beneath.enter().unwrap().find(Path::new("new.txt"), OFlags::PATH).is_ok());
        assert!(Beneath::new(&base.path().join("absent")).is_err());
        assert!(Beneath::new(&base.path().join("secret")).is_err());
    }
}
