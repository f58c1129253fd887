//! A listening Unix socket and its file. The file has its final mode before any process can
//! connect. A file that a crash left behind is replaced, but never the file of a living process.
//! The file is removed at the end.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::fs::{Mode, chmod};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::state::if_there;

/// The mode of a socket file to which only its user may connect.
pub const PRIVATE: u32 = 0o600;

/// The file of a socket. Dropping the value removes the file.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode, because another process may have put its own file there meanwhile.
    identity: (u64, u64),
}

impl SocketFile {
    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another generation of the daemon listens there.
        if !net::handover::is_serving() {
            return;
        }
        if identity(&self.path).is_ok_and(|now| now == self.identity) {
            drop(fs::remove_file(&self.path));
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let file = fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}

/// Makes a non-blocking socket that listens at `path`. The file has the permission bits `mode`;
/// `backlog` connections may wait. An inherited socket with this path is used instead.
///
/// # Errors
/// Fails with [`io::ErrorKind::AddrInUse`] when another process listens there. A file that is not a
/// socket is an error and is left unchanged.
pub fn listen(path: &Path, mode: u32, backlog: i32) -> io::Result<(UnixListener, SocketFile)> {
    let address = SocketAddrUnix::new(path)?;
    if let Some(socket) = net::inherited::unix(&address)? {
        chmod(path, Mode::from_raw_mode(mode))?;
        net::handover::note(&[&socket]);
        let file = SocketFile { path: path.to_owned(), identity: identity(path)? };
        return Ok((socket, file));
    }
    if probe(path)? {
        return Err(in_use());
    }
    match if_there(fs::symlink_metadata(path))? {
        Some(file) if file.file_type().is_socket() => fs::remove_file(path)?,
        Some(_) => return Err(io::Error::other("the file there is not a socket")),
        None => {}
    }
    let socket = socket()?;
    rustix::net::bind(&socket, &address)?;
    let file = SocketFile { path: path.to_owned(), identity: identity(path)? };
    // Set before `listen`, so that no process can connect while the mode depends on the umask.
    chmod(path, Mode::from_raw_mode(mode))?;
    rustix::net::listen(&socket, backlog)?;
    net::handover::note(&[&socket]);
    Ok((socket.into(), file))
}

/// Sets the permission bits of the socket file for later connections.
pub fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    Ok(chmod(path, Mode::from_raw_mode(mode))?)
}

/// Makes a non-blocking socket that listens in the abstract namespace. It has no file and no
/// permissions, and ends with the process.
///
/// # Errors
/// [`io::ErrorKind::AddrInUse`] when another process listens there.
pub fn listen_abstract(name: &str) -> io::Result<UnixListener> {
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
    if let Some(socket) = net::inherited::unix(&address)? {
        net::handover::note(&[&socket]);
        return Ok(socket);
    }
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?);
    let listener =
        listener.map_err(|e| if e.kind() == io::ErrorKind::AddrInUse { in_use() } else { e })?;
    listener.set_nonblocking(true)?;
    net::handover::note(&[&listener]);
    Ok(listener)
}

fn in_use() -> io::Error {
    io::Error::new(io::ErrorKind::AddrInUse, "another process listens there")
}

fn socket() -> io::Result<std::os::fd::OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// Whether a process listens at the path. False when the file is missing, was left by a crash, or
/// is not a socket.
pub fn probe(path: &Path) -> io::Result<bool> {
    match rustix::net::connect(&socket()?, &SocketAddrUnix::new(path)?) {
        // A full backlog belongs to a living process.
        Ok(()) | Err(Errno::AGAIN | Errno::INPROGRESS) => Ok(true),
        Err(Errno::NOENT | Errno::CONNREFUSED) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_file_has_its_mode_and_goes_with_its_guard() {
        let dir = tempfile::tempdir().unwrap();
        for mode in [PRIVATE, 0o660, 0o666] {
            let path = dir.path().join("x");
            let (_listener, file) = listen(&path, mode, 1).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
            UnixStream::connect(&path).unwrap();
            drop(file);
            assert!(!path.exists());
        }
    }

    #[test]
    fn a_stale_file_is_replaced_and_that_of_a_living_process_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        drop(UnixListener::bind(&path).unwrap());
        let (listener, _file) = listen(&path, PRIVATE, 0).unwrap();
        // The file of a process that does not accept stays as well: its backlog is full now.
        let _first = UnixStream::connect(&path).unwrap();
        for _ in 0..2 {
            assert_eq!(listen(&path, PRIVATE, 1).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        }
        drop(listener);
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        fs::write(&path, "precious").unwrap();
        let error = listen(&path, PRIVATE, 1).unwrap_err();
        assert_eq!(error.to_string(), "the file there is not a socket");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        assert!(listen(dir.path(), PRIVATE, 1).is_err());
        let missing = listen(&dir.path().join("no/x"), PRIVATE, 1).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_file_that_replaced_ours_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let (_listener, file) = listen(&path, PRIVATE, 1).unwrap();
        // The old file is kept, so that its inode is not used again.
        fs::rename(&path, dir.path().join("old")).unwrap();
        let _theirs = UnixListener::bind(&path).unwrap();
        drop(file);
        assert!(path.exists());
    }

    #[test]
    fn an_abstract_name_is_taken_once() {
        let name = format!("tunnel-socket-file-{}", std::process::id());
        let listener = listen_abstract(&name).unwrap();
        assert_eq!(listen_abstract(&name).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        listen_abstract(&name).unwrap();
    }
}
