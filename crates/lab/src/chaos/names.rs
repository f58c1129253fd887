//! A host name that changes its address, for one process only: the client runs in its own mount
//! namespace, where `/etc/hosts` is a file of the test.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use xtask::child::capture;

/// The host name, in the domain that never exists outside tests (RFC 6761, section 6.2).
pub(super) const NAME: &str = "tunnel-server.test";

/// The name's two addresses, of equal length so that one write can change the file.
pub(super) const ADDRESSES: [[u8; 4]; 2] = [[127, 0, 0, 2], [127, 0, 0, 3]];

/// Mounts the first argument over `/etc/hosts` and executes the remaining arguments.
const SCRIPT: &str = "mount --bind \"$1\" /etc/hosts && shift && exec \"$@\"";

/// The file with the name's address.
#[derive(Debug)]
pub(super) struct Names {
    file: PathBuf,
}

impl Names {
    /// Writes the file with the first address.
    pub(super) fn new(dir: &Path) -> Result<Self> {
        let names = Self { file: dir.join("hosts") };
        fs::write(&names.file, line(0)).context("writing the file of names")?;
        let mut words = names.starter().into_iter();
        let mut command = Command::new(words.next().context("it has words")?);
        let (good, said) = capture(command.args(words).args(["getent", "hosts", NAME]))?;
        ensure!(good, "no mount namespace to be had: {}", said.trim());
        ensure!(said.contains("127.0.0.2"), "names do not come from /etc/hosts: {}", said.trim());
        Ok(names)
    }

    /// The words before a command that make its process see this file.
    pub(super) fn starter(&self) -> Vec<OsString> {
        let root: &[&str] = if is_root() { &[] } else { &["--user", "--map-root-user"] };
        let words = ["unshare", "--mount", "--propagation", "private"].iter().chain(root);
        let words = words.chain(&["sh", "-c", SCRIPT, "sh"]).map(OsString::from);
        words.chain([self.file.clone().into()]).collect()
    }

    /// Gives the name one of its addresses. The file is changed in place, because the mount holds
    /// this file and not a new file of the same name. One write is enough, because the client may
    /// read at any time.
    pub(super) fn point_to(&self, index: usize) -> io::Result<()> {
        File::options().write(true).open(&self.file)?.write_all_at(line(index).as_bytes(), 0)
    }
}

fn line(index: usize) -> String {
    let [a, b, c, d] = ADDRESSES[index];
    format!("{a}.{b}.{c}.{d} {NAME}\n127.0.0.1 localhost\n")
}

fn is_root() -> bool {
    capture(Command::new("id").arg("-u")).is_ok_and(|(_, said)| said.trim() == "0")
}
