//! The configuration files of name resolution. A change is detected by the metadata of the file,
//! which is cheap enough for each lookup that finds the last check too old.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::conf::Conf;
use super::hosts::Hosts;

/// The maximum number of bytes read from a file. A list of blocked names has up to 5 MiB.
const READ: u64 = 8 << 20;

/// The paths of the configuration.
#[derive(Debug)]
pub(in crate::resolve) struct LookupFiles {
    pub(in crate::resolve) resolv_conf: PathBuf,
    pub(in crate::resolve) hosts: PathBuf,
    /// The port of the name servers; 53 except in tests.
    pub(in crate::resolve) port: u16,
}

/// The fingerprint of a file's contents from its metadata.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// The stamps of both files.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stamps([Option<Stamp>; 2]);

/// The contents of the files.
#[derive(Debug)]
pub(super) struct FileContents {
    pub(super) conf: Conf,
    pub(super) hosts: Hosts,
}

impl LookupFiles {
    /// The files of the system.
    pub(in crate::resolve) fn of_system() -> Self {
        let (resolv_conf, hosts) = ("/etc/resolv.conf".into(), "/etc/hosts".into());
        Self { resolv_conf, hosts, port: 53 }
    }

    pub(super) fn stamps(&self) -> Stamps {
        Stamps([stamp(&self.resolv_conf), stamp(&self.hosts)])
    }

    /// Reads `resolv.conf`. A missing or unreadable file counts as empty.
    pub(in crate::resolve) fn conf(&self) -> Conf {
        let uname = rustix::system::uname();
        Conf::read(&text(&self.resolv_conf), &uname.nodename().to_string_lossy(), self.port)
    }

    pub(super) fn read(&self) -> FileContents {
        FileContents { conf: self.conf(), hosts: Hosts::read(text(&self.hosts)) }
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let facts = fs::metadata(path).ok()?;
    Some(Stamp {
        file: (facts.dev(), facts.ino()),
        size: facts.size(),
        modified: (facts.mtime(), facts.mtime_nsec()),
        changed: (facts.ctime(), facts.ctime_nsec()),
    })
}

fn text(path: &Path) -> String {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(READ).read_to_end(&mut bytes));
    match read {
        Ok(read) if u64::try_from(read).is_ok_and(|read| read == READ) => {
            tracing::warn!(
                "{} is longer than {} MiB: names beyond that are not known",
                path.display(),
                READ >> 20
            );
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!("{} cannot be read, so it is taken as empty: {error}", path.display());
        }
        Ok(_) | Err(_) => {}
    }
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}
