//! The versions of crates in both `Cargo.lock`: the workspace `crates/kcp-go` takes those of the
//! top level, so that crates of the daemon are tested there with what they have in the daemon. A
//! version that is incompatible with all those of the top level is another crate.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use xtask::site::KCP_GO;

#[derive(Debug, Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Debug, Deserialize)]
struct Locked {
    name: String,
    version: String,
}

/// Crates of the workspace in a version that the top level has not, where the top level has a
/// compatible version.
pub(super) fn breaches(root: &Path) -> Result<Vec<String>> {
    let read = |folder: &Path| {
        let path = folder.join("Cargo.lock");
        let text = std::fs::read_to_string(&path);
        text.with_context(|| format!("reading {}", path.display()))
    };
    differences(&read(root)?, &read(&root.join(KCP_GO))?)
}

fn differences(top: &str, beside: &str) -> Result<Vec<String>> {
    let parse = |text: &str| basic_toml::from_str::<Lock>(text).context("parsing Cargo.lock");
    let (top, beside) = (parse(top)?, parse(beside)?);
    let mut found = Vec::new();
    for Locked { name, version } in &beside.package {
        let same = top.package.iter().filter(|locked| locked.name == *name);
        let known: BTreeSet<_> = same.map(|locked| locked.version.as_str()).collect();
        let compatible = known.iter().find(|known| line(known) == line(version));
        if let Some(compatible) = compatible.filter(|_| !known.contains(version.as_str())) {
            found.push(format!(
                "{KCP_GO}/Cargo.lock: {name} {version}, and the top level has {compatible}: cargo \
                 update --package {name} --precise {compatible}"
            ));
        }
    }
    Ok(found)
}

/// The part of a version that compatible versions share: `1` of 1.2.3, `0.9` of 0.9.4.
fn line(version: &str) -> &str {
    let numbers = if version.starts_with("0.") { 2 } else { 1 };
    let end = version.match_indices('.').nth(numbers - 1).map_or(version.len(), |(at, _)| at);
    &version[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(packages: &[(&str, &str)]) -> String {
        let package = |(name, version): &(&str, &str)| {
            format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n")
        };
        format!("version = 4\n{}", packages.iter().map(package).collect::<String>())
    }

    #[test]
    fn a_crate_in_another_version_than_at_the_top_level_is_refused() {
        let top = lock(&[("bytes", "1.1.0"), ("rand", "0.8.0"), ("rand", "0.9.0")]);
        let good = [("bytes", "1.1.0"), ("rand", "0.9.0"), ("rand", "0.10.1"), ("des", "0.9.0")];
        let good = lock(&good);
        assert_eq!(differences(&top, &good).unwrap(), [""; 0]);
        let other = "crates/kcp-go/Cargo.lock: bytes 1.2.0, and the top level has 1.1.0: cargo update \
                     --package bytes --precise 1.1.0";
        assert_eq!(differences(&top, &lock(&[("bytes", "1.2.0")])).unwrap(), [other]);
    }
}
