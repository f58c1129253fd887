//! The log as a file of limited size. A full file is renamed to `NAME.1`, `NAME.1` to `NAME.2`, and
//! so on; the oldest file is deleted. If another program (logrotate) renames the file, a reload
//! opens a new file with the configured name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use config::LogFile as Settings;
use ops::term;

/// The mode of the log file. Only the owner may read it, because it contains the addresses of
/// visitors.
const MODE: u32 = 0o600;

/// The log file. All threads write to it, one line at a time.
#[derive(Debug)]
pub(crate) struct LogFile {
    settings: Settings,
    open: Mutex<OpenFile>,
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    size: u64,
    /// Whether the file can be renamed, unlike a pipe or a terminal (`/dev/stdout`).
    is_regular: bool,
    /// The last write failed, and the failure was reported.
    is_broken: bool,
    /// Whether the file ends in the middle of a line, because the disk was full.
    is_torn: bool,
}

impl OpenFile {
    fn new(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(MODE).open(path)?;
        let metadata = file.metadata()?;
        let (size, is_regular) = (metadata.len(), metadata.is_file());
        Ok(Self { file, size, is_regular, is_broken: false, is_torn: false })
    }
}

impl OpenFile {
    /// Writes the bytes, and records whether the write ended in the middle of a line.
    fn put(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = match self.file.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.size += written as u64;
            self.is_torn = bytes[written - 1] != b'\n';
            bytes = &bytes[written..];
        }
        Ok(())
    }
}

impl LogFile {
    /// Opens the file for appending, and creates it if it does not exist.
    pub(crate) fn open(settings: Settings) -> io::Result<Self> {
        let open = Mutex::new(OpenFile::new(&settings.path)?);
        Ok(Self { settings, open })
    }

    /// Reopens the configured path if another file has that name now.
    pub(crate) fn follow(&self) -> io::Result<()> {
        let mut open = self.lock();
        let ours = open.file.metadata()?;
        let is_same = fs::metadata(&self.settings.path)
            .is_ok_and(|now| (now.dev(), now.ino()) == (ours.dev(), ours.ino()));
        if !is_same {
            *open = OpenFile::new(&self.settings.path)?;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, OpenFile> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The size, in bytes, at which the file is renamed.
    pub(crate) const fn most(&self) -> u64 {
        self.settings.size.bytes()
    }

    /// Appends whole lines. The first of several consecutive errors is reported on standard error.
    pub(crate) fn append(&self, line: &[u8]) -> io::Result<()> {
        let mut open = self.lock();
        let written = self.write_to(&mut open, line);
        if std::mem::replace(&mut open.is_broken, written.is_err()) {
            return written;
        }
        if let Err(error) = &written {
            let path = self.settings.path.display();
            term::err(format_args!("tunnel: the log {path} takes no lines: {error}"));
        }
        written
    }

    fn write_to(&self, open: &mut OpenFile, line: &[u8]) -> io::Result<()> {
        let size = line.len() as u64;
        let is_full = open.size.saturating_add(size) > self.settings.size.bytes();
        if open.size > 0 && is_full && open.is_regular {
            self.turn(open)?;
        }
        if open.is_torn {
            open.put(b"\n")?;
            open.is_torn = false;
        }
        open.put(line)
    }

    fn turn(&self, open: &mut OpenFile) -> io::Result<()> {
        let Settings { path, keep, .. } = &self.settings;
        for n in (1..*keep).rev() {
            // The error is ignored: fewer files than `keep` may exist.
            drop(fs::rename(numbered(path, n), numbered(path, n + 1)));
        }
        let gone =
            if *keep == 0 { fs::remove_file(path) } else { fs::rename(path, numbered(path, 1)) };
        // A missing file is not an error: an earlier rotation failed at this point, or the file was
        // removed.
        if let Err(error) = gone
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        *open = OpenFile::new(path)?;
        Ok(())
    }
}

fn numbered(path: &Path, n: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{n}"));
    name.into()
}

/// Each call of `write` gets one whole line.
impl Write for &LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // If the disk is full, the line goes to standard error, so that it is not lost.
        if self.append(line).is_err() {
            return io::stderr().write(line);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn settings(path: PathBuf, size: &str, keep: u32) -> Settings {
        Settings { path, size: size.parse().unwrap(), keep }
    }

    fn say(mut log: &LogFile, line: &str) {
        log.write_all(line.as_bytes()).unwrap();
    }

    #[test]
    fn a_full_file_is_turned_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = LogFile::open(settings(path.clone(), "10B", 2)).unwrap();
        for line in
            ["1111\n", "2222\n", "3333\n", "4444\n", "5555\n", "longer than a file\n", "7\n"]
        {
            say(&log, line);
        }
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(
            [read("log"), read("log.1"), read("log.2")],
            ["7\n", "longer than a file\n", "5555\n"]
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // A new start appends to the existing file.
        drop(log);
        say(&LogFile::open(settings(path.clone(), "10B", 0)).unwrap(), "8\n");
        assert_eq!(read("log"), "7\n8\n");
        say(&LogFile::open(settings(path, "10B", 0)).unwrap(), "999999999\n");
        assert_eq!(read("log"), "999999999\n");
        assert_eq!(read("log.1"), "longer than a file\n", "none of ours is made or moved");
    }

    #[test]
    fn a_file_that_another_program_turned_is_left_at_a_reload() {
        let dir = tempfile::tempdir().unwrap();
        let [path, old] = ["log", "log.old"].map(|name| dir.path().join(name));
        let log = LogFile::open(settings(path.clone(), "1MiB", 5)).unwrap();
        say(&log, "1\n");
        log.follow().unwrap();
        fs::rename(&path, &old).unwrap();
        say(&log, "2\n");
        log.follow().unwrap();
        say(&log, "3\n");
        assert_eq!(fs::read_to_string(&old).unwrap(), "1\n2\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "3\n");
    }

    #[test]
    fn a_file_that_cannot_be_turned_loses_no_line_and_works_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = LogFile::open(settings(path.clone(), "10B", 1)).unwrap();
        say(&log, "1111111\n");
        fs::create_dir(dir.path().join("log.1")).unwrap();
        say(&log, "to standard error\n");
        assert!(log.lock().is_broken);
        fs::remove_dir(dir.path().join("log.1")).unwrap();
        say(&log, "333\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "333\n");
        assert!(!log.lock().is_broken);
        // A missing file does not block the rotation either.
        fs::remove_file(&path).unwrap();
        say(&log, "4444444444\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "4444444444\n");
    }
}
