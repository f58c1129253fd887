//! The error for a user who may not command a daemon: the inaccessible path, and its owner.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

/// A control socket, or a folder that may hold a control socket, to which this user has no access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// The socket or the folder.
    pub path: PathBuf,
    /// Whether `path` is the socket of a daemon. A folder may also be empty.
    pub is_socket: bool,
    /// The file or folder that denies access: `path`, or a folder above it, and the name of its
    /// owner.
    barrier: Option<(PathBuf, String)>,
}

impl Denied {
    pub(crate) fn new(path: &Path, is_socket: bool) -> Self {
        // A folder that cannot be entered hides its entries, but is visible itself.
        let barrier = path.ancestors().find_map(|at| {
            let owner = fs::symlink_metadata(at).ok()?.uid();
            Some((at.to_owned(), user(owner)))
        });
        Self { path: path.to_owned(), is_socket, barrier }
    }

    /// The denial, if the error of a connect or of listing a folder is a denial.
    pub(crate) fn of(path: &Path, is_socket: bool, error: &io::Error) -> Option<Self> {
        (error.kind() == io::ErrorKind::PermissionDenied).then(|| Self::new(path, is_socket))
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no permission for {}", self.path.display())?;
        match &self.barrier {
            Some((at, owner)) if *at == self.path => write!(f, " (it belongs to {owner})"),
            Some((at, owner)) => write!(f, " ({} belongs to {owner})", at.display()),
            None => Ok(()),
        }?;
        if self.is_socket { Ok(()) } else { f.write_str(", where a tunnel may run") }
    }
}

impl std::error::Error for Denied {}

/// The name of a user. A user of systemd's `DynamicUser` is listed in no file, and has only a
/// number.
fn user(id: u32) -> String {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(id)).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| if id == 0 { "root".to_owned() } else { format!("user {id}") })
}
