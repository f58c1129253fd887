//! What the daemon reads in `/proc`: the entry of its own process and nothing else. The units for
//! systemd hide the rest (`ProcSubset=pid`), so a figure from another file would silently be
//! missing there. sysinfo(2), getsockopt(2) and netlink replace most of these files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use xtask::site::KCP_GO;

/// Crates that are not in the binary.
pub(super) const DEV: &[&str] = &["lab", "testkit", "xtask"];

/// The begin of a string literal in the code.
const BEGIN: &str = "\"/proc/";

/// What may follow. `thread-self` is the entry of the calling thread.
const OWN: &[&str] = &["self/", "thread-self/"];

/// Every breach in the sources of the crates below `root`.
pub(super) fn breaches(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for path in sources(root, DEV)? {
        let lines = foreign(&fs::read_to_string(&path)?);
        let at = path.strip_prefix(root).unwrap_or(&path).display();
        found.extend(
            lines.iter().map(|n| format!("{at}:{n}: the units for systemd hide this file")),
        );
    }
    Ok(found)
}

/// The sources of all crates below `root` but these.
pub(super) fn sources(root: &Path, but: &[&str]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = [entries(&root.join("crates"))?, entries(&root.join(KCP_GO))?].concat();
    folders.retain(|path| !but.iter().any(|name| path.ends_with(name)));
    folders.iter_mut().for_each(|path| path.push("src"));
    while let Some(folder) = folders.pop() {
        if !folder.is_dir() {
            continue;
        }
        for path in entries(&folder)? {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    Ok(found)
}

/// The numbers of the lines that name a file which the units hide.
fn foreign(code: &str) -> Vec<usize> {
    let is_foreign = |line: &str| {
        let mut uses = line.split(BEGIN).skip(1);
        uses.any(|rest| !OWN.iter().any(|own| rest.starts_with(own)))
    };
    let numbered = code.lines().zip(1..).filter(|(line, _)| is_foreign(line));
    numbered.map(|(_, number)| number).collect()
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let list = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut paths = list.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_the_units_hide_is_a_breach() {
        let own = format!("read({BEGIN}self/fd\");\nread({BEGIN}thread-self/schedstat\");\n");
        assert_eq!(foreign(&own), [0; 0]);
        let other = format!("{own}read({BEGIN}meminfo\");\n// in /proc\nf({BEGIN}sys/net/x\")");
        assert_eq!(foreign(&other), [3, 5]);
        assert_eq!(foreign(&format!("format!({BEGIN}selfish\")")), [1]);
    }

    #[test]
    fn the_daemon_reads_its_own_entry_only() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        assert_eq!(breaches(&root).unwrap(), [""; 0]);
    }
}
