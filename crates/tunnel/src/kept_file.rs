//! Files of the state directory in which a client keeps what commands have added: services,
//! forwards, visitors.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::Context;
use ops::WrongConfig;
use ops::state::{check_private, create_private, if_there, write_private};

use crate::input::read_own;

/// The text of a file; `None` if there is no file. `is_shown`: the text is only shown, so it does
/// not matter which users can write the directory.
pub(crate) fn read(path: &Path, is_shown: bool) -> Result<Option<String>, WrongConfig> {
    match fs::symlink_metadata(path) {
        // A folder that this user cannot list holds no file of this user.
        Err(error) if is_absence(&error) => return Ok(None),
        _ => {}
    }
    // A user who can write the directory could publish services of this machine, and admit
    // visitors.
    let folder = path.parent().unwrap_or(path);
    if !is_shown {
        check_private(folder).map_err(|why| WrongConfig::one(why.to_string()))?;
    }
    read_own(path).map(Some)
}

/// Replaces a file by a text. `None` removes the file.
pub(crate) fn write(path: &Path, text: Option<&str>) -> anyhow::Result<()> {
    let write = || {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidFilename.into());
        };
        let Some(text) = text else { return if_there(fs::remove_file(path)).map(drop) };
        create_private(folder)?;
        write_private(folder, &name.to_string_lossy(), text.as_bytes())
    };
    write().with_context(|| format!("writing {}", path.display()))
}

fn is_absence(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    matches!(error.kind(), NotFound | NotADirectory | PermissionDenied)
}
