//! The file that the traffic transfers, and its hash.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use testkit::stage::bytes::{self, Complaint};

use xtask::child::capture;

/// A size at which transfers last through some faults at the rates below.
pub(super) const SIZE: u64 = 24_000_000;

/// A file and its hash, as `sha256sum` prints it.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) path: PathBuf,
    pub(super) hash: String,
}

/// Writes the file and computes its hash.
pub(super) fn make(dir: &Path) -> Result<Known> {
    let path = dir.join("known");
    let mut file = BufWriter::new(File::create(&path)?);
    bytes::send(&mut file, SIZE);
    file.flush()?;
    let (good, said) = capture(Command::new("sha256sum").arg(&path).stdin(Stdio::null()))?;
    ensure!(good, "sha256sum: {said}");
    let hash = said.split(' ').next().context("sha256sum prints a hash")?.to_owned();
    Ok(Known { path, hash })
}

/// Checks a copy. Wrong bytes are never excused, whatever happened.
pub(super) fn check(copy: &Path) -> Result<u64, Complaint> {
    let wrong = |e: io::Error| Complaint::Wrong(format!("{}: {e}", copy.display()));
    let file = File::open(copy).map_err(wrong)?;
    let whole = bytes::try_expect(&file, SIZE).and_then(|()| bytes::try_expect_end(&file));
    whole.map_err(|complaint| Complaint::Wrong(format!("the copy: {complaint}")))?;
    std::fs::remove_file(copy).map_err(wrong)?;
    Ok(SIZE)
}
