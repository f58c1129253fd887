//! The Rust files of the repository, read and parsed side by side on all cores.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use anyhow::{Context as _, Result, anyhow, ensure};

use super::facts::Facts;

/// All files, by their path from the root.
#[derive(Debug, Default)]
pub(super) struct Sources {
    pub(super) files: BTreeMap<String, Source>,
}

/// A Rust file.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) text: String,
    pub(super) facts: Facts,
}

impl Sources {
    /// Reads every file that git tracks or would track.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let paths = listed(root, "*.rs")?;
        let cores = thread::available_parallelism().map_or(1, Into::into);
        // Each thread takes every n-th file: neighbours have similar sizes.
        let share = |first: usize| paths.iter().skip(first).step_by(cores);
        let read =
            |first| share(first).map(|path| read_one(root, path)).collect::<Result<Vec<_>>>();
        let parts: Result<Vec<Vec<_>>> = thread::scope(|scope| {
            let start = |first| scope.spawn(move || read(first));
            let threads: Vec<_> = (0..cores).map(start).collect();
            let joined = threads.into_iter().map(thread::ScopedJoinHandle::join);
            joined.map(|part| part.map_err(|_| anyhow!("a reading thread panicked"))?).collect()
        });
        Ok(Self { files: parts?.into_iter().flatten().collect() })
    }
}

/// Whether every item of the file is for tests or measurements.
pub(super) fn is_test(path: &str) -> bool {
    let parts: Vec<_> = path.split('/').collect();
    let has = |name: &str| parts[..parts.len() - 1].contains(&name);
    let is_beside = (has("tests") || has("fuzz")) && !has("src");
    is_beside || parts.last().is_some_and(|name| *name == "tests.rs")
}

fn read_one(root: &Path, path: &str) -> Result<(String, Source)> {
    let text = fs::read_to_string(root.join(path)).with_context(|| format!("reading {path}"))?;
    parse(path, text)
}

fn parse(path: &str, text: String) -> Result<(String, Source)> {
    let facts = Facts::read(&text, is_test(path));
    let facts = facts.map_err(|error| anyhow!("{path}:{}: {error}", error.span().start().line))?;
    Ok((path.to_owned(), Source { text, facts }))
}

/// The files of this form below `root` that exist, and that git tracks or would track.
pub(super) fn listed(root: &Path, form: &str) -> Result<Vec<String>> {
    let output = Command::new("git")
        .current_dir(root)
        // A checkout of another user, as in a container, is only read here and never run.
        .args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others"])
        .args(["--exclude-standard", "--", form])
        .output()
        .context("starting git ls-files")?;
    ensure!(output.status.success(), "git: {}", String::from_utf8_lossy(&output.stderr).trim());
    let names = String::from_utf8(output.stdout).context("git ls-files: names in UTF-8")?;
    let mut paths: Vec<_> = names.split_terminator('\0').map(str::to_owned).collect();
    // A file that was deleted and not committed yet is no file.
    paths.retain(|path| root.join(path).exists());
    paths.sort();
    paths.dedup();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Sources {
        /// These files.
        pub(in super::super) fn sample(files: &[(&str, &str)]) -> Self {
            let read = |(path, text): &(&str, &str)| parse(path, (*text).to_owned()).unwrap();
            Self { files: files.iter().map(read).collect() }
        }
    }

    #[test]
    fn files_of_tests_are_told_from_files_of_the_product() {
        for (path, expected) in [
            ("crates/a/src/lib.rs", false),
            ("crates/a/src/x/tests.rs", true),
            ("crates/a/tests/all.rs", true),
            ("crates/a/tests/rig/mod.rs", true),
            ("crates/a/fuzz/fuzz_targets/x.rs", true),
            ("crates/xtask/src/test/mod.rs", false),
        ] {
            assert_eq!(is_test(path), expected, "{path}");
        }
    }

    #[test]
    fn a_file_that_is_no_rust_is_named_with_its_line() {
        let error = parse("a.rs", "fn good() {}\nfn (".to_owned()).unwrap_err();
        assert!(error.to_string().starts_with("a.rs:2: "), "{error}");
    }

    #[test]
    fn the_files_are_those_that_git_would_track() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        let init = Command::new("git").current_dir(dir.path()).args(["init", "--quiet"]).status();
        assert!(init.unwrap().success());
        write(".gitignore", "out.rs\n");
        write("a.rs", "fn a() {}");
        write("out.rs", "no rust");
        let sources = Sources::read(dir.path()).unwrap();
        assert_eq!(sources.files.keys().collect::<Vec<_>>(), ["a.rs"]);
    }
}
