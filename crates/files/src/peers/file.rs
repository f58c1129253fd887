//! The file `quic.peers` or `kcp.peers`. It has a line for each event, and is rewritten when most
//! of its lines are about past connections.
//!
//! ```text
//! + 03a1b2c3d4e5f607 192.0.2.7:51344 7000      a connection, or where it is now
//! - 03a1b2c3d4e5f607                           its end
//! ```
//!
//! The file is never synced. The file is complete even after a kill. After a loss of power the
//! clients notice the loss before the server is back. Lines that are cut off or malformed are
//! skipped.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use super::{PeerId, RecordedPeer};

/// The largest number of recorded connections; further connections are not recorded. They take 1
/// MB.
const MOST: usize = 16_384;

/// The smallest number of lines about past connections at which the file is rewritten.
const PAST: usize = 4096;

/// More bytes than the file can ever have.
const LONGEST: u64 = 8 << 20;

/// The file and its content.
#[derive(Debug)]
pub(super) struct PeerFile {
    path: PathBuf,
    file: File,
    known: HashMap<PeerId, RecordedPeer>,
    /// The number of lines in the file.
    lines: usize,
    /// The text that is not written yet.
    text: String,
    /// The number of lines in `text`.
    fresh: usize,
}

impl PeerFile {
    /// Reads the connections that an earlier process left, and empties the file.
    pub(super) fn take_all(folder: &Path, name: &str) -> io::Result<(Self, Vec<RecordedPeer>)> {
        let path = path_of(folder, name);
        let left = left(&path)?;
        let file = create(&path, "")?;
        let known = HashMap::new();
        Ok((Self { path, file, known, lines: 0, text: String::new(), fresh: 0 }, left))
    }

    /// Records a connection, or its new address.
    pub(super) fn here(&mut self, known: RecordedPeer) {
        if self.known.len() >= MOST && !self.known.contains_key(&known.id) {
            return;
        }
        self.known.insert(known.id, known);
        line(&mut self.text, &known);
        self.fresh += 1;
    }

    /// Records the end of a connection.
    pub(super) fn gone(&mut self, id: &PeerId) {
        if self.known.remove(id).is_some() {
            // Writing to a string cannot fail.
            let _ = writeln!(self.text, "- {id}");
            self.fresh += 1;
        }
    }

    /// Appends the new lines, or rewrites the file.
    pub(super) fn write(&mut self) -> io::Result<()> {
        let text = std::mem::take(&mut self.text);
        self.lines += std::mem::take(&mut self.fresh);
        if self.lines < 2 * self.known.len() + PAST {
            return self.file.write_all(text.as_bytes());
        }
        let mut all = String::new();
        self.known.values().for_each(|known| line(&mut all, known));
        self.lines = self.known.len();
        self.file = create(&self.path, &all)?;
        Ok(())
    }
}

/// Reads the connections that an earlier process left, and removes the file.
pub(super) fn take_left(folder: &Path, name: &str) -> io::Result<Vec<RecordedPeer>> {
    let path = path_of(folder, name);
    let left = left(&path)?;
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(left),
    }
}

fn path_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.peers"))
}

/// The connections in the file. A missing file counts as empty.
fn left(path: &Path) -> io::Result<Vec<RecordedPeer>> {
    let mut text = Vec::new();
    match crate::open(path) {
        Ok(file) => {
            file.take(LONGEST).read_to_end(&mut text)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(read(&String::from_utf8_lossy(&text)))
}

fn line(text: &mut String, known: &RecordedPeer) {
    let RecordedPeer { id, peer, port } = known;
    let _ = writeln!(text, "+ {id} {peer} {port}");
}

/// Writes the file atomically: after a crash the old or the new file exists.
fn create(path: &Path, text: &str) -> io::Result<File> {
    let fresh = path.with_extension("peers.new");
    let mut file = crate::create_fresh(&fresh)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&fresh, path)?;
    Ok(file)
}

fn read(text: &str) -> Vec<RecordedPeer> {
    let mut known = HashMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["+", id, peer, port] => {
                if let (Some(id), Ok(peer), Ok(port)) = (id_of(id), peer.parse(), port.parse())
                    && (known.len() < MOST || known.contains_key(&id))
                {
                    known.insert(id, RecordedPeer { id, peer, port });
                }
            }
            ["-", id] => {
                if let Some(id) = id_of(id) {
                    known.remove(&id);
                }
            }
            _ => {}
        }
    }
    known.into_values().collect()
}

fn id_of(text: &str) -> Option<PeerId> {
    let whole = text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let id = u64::from_str_radix(text, 16).ok().filter(|_| whole)?;
    Some(PeerId(id.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    const FILE: &str = "quic.peers";

    fn known(number: usize) -> RecordedPeer {
        let id = PeerId((number as u64).to_be_bytes());
        RecordedPeer { id, peer: SocketAddr::from(([192, 0, 2, 1], 4000)), port: 7000 }
    }

    fn text(folder: &Path) -> String {
        fs::read_to_string(folder.join(FILE)).unwrap()
    }

    #[test]
    fn strange_lines_are_passed_over() {
        let good = "+ 0000000000000001 [fe80::1%3]:5 7000";
        let text = format!(
            "{good}\n\n+ 0000000000000002 x:5 7000\n+ 2 10.0.0.1:5 7000\n- \n+\n\u{fffd}\n\
             + +000000000000003 10.0.0.1:5 7000\n+ 0000000000000004 10.0.0.1:5 70000\n\
             + 0000000000000005 10.0.0.1:5 1 2\n- 0000000000000009\n+ 00000000000000"
        );
        let read = read(&text);
        let id = known(1).id;
        assert_eq!(read, [RecordedPeer { id, peer: "[fe80::1%3]:5".parse().unwrap(), port: 7000 }]);
        let mut again = String::new();
        line(&mut again, &read[0]);
        assert_eq!(again.trim_end(), good);
    }

    #[test]
    fn the_file_grows_no_larger_than_what_it_has_to_say() {
        let folder = tempfile::tempdir().unwrap();
        let (mut file, _) = PeerFile::take_all(folder.path(), "quic").unwrap();
        file.here(known(7));
        for _ in 0..10 * PAST {
            file.here(known(1));
            file.gone(&known(1).id);
            file.write().unwrap();
            assert!(file.lines <= 2 * 2 + PAST);
        }
        assert_eq!(text(folder.path()).lines().count(), file.lines);
        let left = PeerFile::take_all(folder.path(), "quic").unwrap().1;
        assert_eq!(left, [known(7)]);
        assert_eq!(text(folder.path()), "");
        let path = folder.path().join(FILE);
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left behind");
    }

    #[test]
    fn a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, aim) = (folder.path().join(FILE), folder.path().join("aim"));
        fs::write(&aim, "precious").unwrap();
        symlink(&aim, &path).unwrap();
        let error = PeerFile::take_all(folder.path(), "quic").unwrap_err().to_string();
        assert!(error.contains("this is a symbolic link"), "{error}");
        fs::remove_file(&path).unwrap();
        symlink(&aim, path.with_extension("peers.new")).unwrap();
        PeerFile::take_all(folder.path(), "quic").unwrap();
        assert_eq!(fs::read_to_string(&aim).unwrap(), "precious");
    }

    #[test]
    fn there_is_an_end_to_what_is_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let (mut file, _) = PeerFile::take_all(folder.path(), "quic").unwrap();
        (0..2 * MOST).for_each(|number| file.here(known(number)));
        file.write().unwrap();
        assert!(text(folder.path()).len() < 2 << 20);
        let (_, left) = PeerFile::take_all(folder.path(), "quic").unwrap();
        assert_eq!(left.len(), MOST);
        assert!(left.contains(&known(0)));
    }

    #[test]
    fn what_ended_within_one_write_leaves_no_trace_in_the_list() {
        let folder = tempfile::tempdir().unwrap();
        let (mut file, _) = PeerFile::take_all(folder.path(), "quic").unwrap();
        file.here(known(1));
        file.gone(&known(1).id);
        file.gone(&known(2).id);
        file.write().unwrap();
        assert_eq!(PeerFile::take_all(folder.path(), "quic").unwrap().1, []);
    }
}
