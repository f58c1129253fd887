//! Files that the daemon itself keeps: tokens, keys, certificates, locks. New files have mode 0600.
//!
//! A symbolic link in the place of such a file is an error and is not followed (`O_NOFOLLOW`,
//! open(2)). Otherwise an attacker who can plant a link could make a daemon with root rights
//! overwrite any file or take a key from elsewhere. Links among the parent directories are
//! followed, because systemd creates one (`/var/lib/NAME` leads to `/var/lib/private/NAME`).
//!
//! [`kept`] recognises files of the daemon where a target would serve them.
//!
//! Files that a configuration names are not opened by this crate. Links there are usual: certbot
//! and Kubernetes renew a certificate by a link.

pub mod kept;
pub mod peers;
pub mod secret;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// The mode of new files.
const PRIVATE: u32 = 0o600;

/// Opens a file for reading.
///
/// # Errors
/// The path is a symbolic link, or the file cannot be opened.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(OpenOptions::new().read(true), path)
}

/// Opens a file for reading and writing, and creates it with mode 0600 if it is missing.
///
/// # Errors
/// As [`open`].
pub fn open_or_create(path: &Path) -> io::Result<File> {
    open_with(OpenOptions::new().read(true).write(true).create(true).truncate(false), path)
}

/// Creates a file with mode 0600 for writing.
///
/// # Errors
/// A file or a link with this name exists ([`io::ErrorKind::AlreadyExists`]), or the file cannot be
/// created.
pub fn create_new(path: &Path) -> io::Result<File> {
    open_with(OpenOptions::new().write(true).create_new(true), path)
}

/// Creates a file with mode 0600 for writing. An existing file or link with this name is removed
/// first: it is left over from a write that a crash interrupted.
///
/// # Errors
/// The old file cannot be removed, or the new file cannot be created.
pub fn create_fresh(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        Ok(()) | Err(_) => {}
    }
    create_new(path)
}

/// Reads a file of at most `limit` bytes.
///
/// # Errors
/// As [`open`], or the file is larger.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    open(path)?.take(limit.saturating_add(1)).read_to_end(&mut content)?;
    if content.len() as u64 > limit {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("the file is larger than {limit} bytes, so it is not one that tunnel made"),
        ));
    }
    Ok(content)
}

fn open_with(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    options.mode(PRIVATE).custom_flags(flags).open(path).map_err(|error| {
        // The system reports the same error for a loop of links among the parent directories.
        let is_loop = Errno::from_io_error(&error) == Some(Errno::LOOP);
        if is_loop && fs::symlink_metadata(path).is_ok_and(|file| file.is_symlink()) {
            io::Error::other(
                "this is a symbolic link, and tunnel does not follow one here (hint: put the file \
                 itself in the place of the link, or remove the link)",
            )
        } else {
            error
        }
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_link_is_not_followed_and_its_target_stays() {
        let dir = tempfile::tempdir().unwrap();
        let [aim, link, nowhere] = ["aim", "link", "nowhere"].map(|name| dir.path().join(name));
        fs::write(&aim, "precious").unwrap();
        symlink(&aim, &link).unwrap();
        symlink(dir.path().join("missing"), &nowhere).unwrap();
        for path in [&link, &nowhere] {
            for error in [open(path).unwrap_err(), open_or_create(path).unwrap_err()] {
                assert!(error.to_string().starts_with("this is a symbolic link"), "{error}");
            }
            assert_eq!(create_new(path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            create_fresh(path).unwrap();
            assert!(fs::symlink_metadata(path).unwrap().is_file());
        }
        assert_eq!(fs::read_to_string(&aim).unwrap(), "precious");
        assert!(!dir.path().join("missing").exists());
    }

    #[test]
    fn a_link_among_the_parents_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("real")).unwrap();
        symlink("real", dir.path().join("link")).unwrap();
        let path = dir.path().join("link/file");
        open_or_create(&path).unwrap();
        open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, PRIVATE);
    }

    #[test]
    fn a_file_is_read_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "four").unwrap();
        assert_eq!(read(&path, 4).unwrap(), b"four");
        let error = read(&path, 3).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert!(error.to_string().contains("larger than 3 bytes"), "{error}");
        assert_eq!(read(&dir.path().join("no"), 3).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
