//! Which steps a change is about: `long.toml` maps paths to long steps, `short.toml` to the short
//! steps that a run by hand leaves out where nothing below their paths has changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use xtask::child::capture;

use super::step::Step;
use super::suite::all;

/// The table of the long steps.
const LONG: &str = "crates/xtask/long.toml";

/// The table of the short steps that a change may not be about.
const SHORT: &str = "crates/xtask/short.toml";

/// The keys of [`SHORT`] that are no steps: the paths that every step is about, and the crates that
/// no step of the table is about.
const EVERY: &str = "every";
const NONE: &str = "none";

/// Where a branch may have begun: the branches of the remote that a clone names `origin`, then the
/// branches of a clone without one.
const BASES: [&str; 5] = ["origin/HEAD", "origin/main", "origin/master", "main", "master"];

/// Which paths each step is about.
type Table = BTreeMap<String, Vec<String>>;

/// The short steps that a change is not about.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    /// The revision that the checkout is compared with, in words.
    pub(super) base: String,
    pub(super) steps: Vec<(&'static str, Vec<String>)>,
}

/// The long steps that the change since a revision touches.
pub(super) fn long_steps(root: &Path, revision: &str) -> Result<Vec<String>> {
    Ok(touched_by(&read(root, LONG)?, &changed(root, revision)?))
}

/// The short steps that the change of this branch is not about. None is left out where there is no
/// change, or no base to compare with: the state of the base is what the run is about.
pub(super) fn left_out(root: &Path) -> Result<LeftOut> {
    let Some((name, revision)) = base(root)? else { return Ok(LeftOut::default()) };
    let files = changed(root, &revision)?;
    if files.is_empty() {
        return Ok(LeftOut::default());
    }
    let table = read(root, SHORT)?;
    let touched = touched_by(&table, &files);
    if touched.iter().any(|name| name == EVERY) {
        return Ok(LeftOut::default());
    }
    let is_left_out =
        |step: &&Step| table.contains_key(step.name) && !touched.iter().any(|t| t == step.name);
    let steps = all().filter(is_left_out).map(|step| (step.name, table[step.name].clone()));
    let short: String = revision.chars().take(10).collect();
    Ok(LeftOut { base: format!("{short} of {name}"), steps: steps.collect() })
}

/// The branch that this branch began at, and the commit that both have.
fn base(root: &Path) -> Result<Option<(String, String)>> {
    let git = |args: &[&str]| -> Result<Option<String>> {
        let (good, text) = capture(Command::new("git").current_dir(root).args(args))?;
        Ok(good.then(|| text.trim().to_owned()))
    };
    let branch = git(&["symbolic-ref", "--short", "--quiet", "HEAD"])?.unwrap_or_default();
    // A branch is no base of itself, but the branch of the remote that it follows may be.
    let names = BASES.into_iter().filter(|name| *name != branch).chain(["@{upstream}"]);
    for name in names {
        let reference = format!("{name}^{{commit}}");
        if git(&["rev-parse", "--verify", "--quiet", &reference])?.is_some()
            && let Some(revision) = git(&["merge-base", "HEAD", name])?
        {
            return Ok(Some((name.to_owned(), revision)));
        }
    }
    Ok(None)
}

/// The files that differ from a revision; files that are not committed count.
fn changed(root: &Path, revision: &str) -> Result<Vec<String>> {
    let mut changed = Vec::new();
    // Without a search for renames both names of a file that was moved are there.
    for args in [
        &["diff", "--name-only", "--no-renames", revision][..],
        &["ls-files", "--others", "--exclude-standard"],
    ] {
        let (good, text) = capture(Command::new("git").current_dir(root).args(args))?;
        ensure!(good, "git {}: {}", args.join(" "), text.trim());
        changed.extend(text.lines().map(str::to_owned));
    }
    Ok(changed)
}

fn read(root: &Path, name: &str) -> Result<Table> {
    let file = root.join(name);
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let table: Table = basic_toml::from_str(&text).with_context(|| file.display().to_string())?;
    let is_long = name == LONG;
    for step in table.keys().filter(|step| is_long || ![EVERY, NONE].contains(&step.as_str())) {
        if all().all(|known| known.name != step || known.long != is_long) {
            bail!("{name}: there is no step {step} of this kind");
        }
    }
    Ok(table)
}

fn touched_by(table: &Table, changed: &[String]) -> Vec<String> {
    let is_touched = |prefixes: &[String]| {
        changed.iter().any(|file| prefixes.iter().any(|prefix| file.starts_with(prefix.as_str())))
    };
    table.iter().filter(|(_, paths)| is_touched(paths)).map(|(name, _)| name.clone()).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use xtask::site::Site;

    use super::*;

    #[test]
    fn a_change_touches_the_steps_whose_paths_it_is_under() {
        let table = Table::from([
            ("bench".to_owned(), vec!["crates/relay/".to_owned(), "Cargo.lock".to_owned()]),
            ("fuzz".to_owned(), vec!["crates/proto/".to_owned()]),
        ]);
        let touched = |files: &[&str]| {
            touched_by(&table, &files.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(touched(&["crates/relay/src/lib.rs"]), ["bench"]);
        assert_eq!(touched(&["crates/proto/src/id.rs", "Cargo.lock"]), ["bench", "fuzz"]);
        assert!(touched(&["README.md", "crates/relayed.rs"]).is_empty());
    }

    /// A crate that is moved or renamed takes its steps along.
    #[test]
    fn the_tables_name_only_paths_that_exist_and_the_long_table_names_every_long_step() {
        let root = Site::here().unwrap().root;
        let (long, short) = (read(&root, LONG).unwrap(), read(&root, SHORT).unwrap());
        for step in all().filter(|step| step.long) {
            assert!(long.contains_key(step.name), "{}", step.name);
        }
        for (step, paths) in long.iter().chain(&short) {
            assert!(!paths.is_empty(), "{step}");
            for path in paths {
                assert!(root.join(path).exists(), "{step}: {path}");
            }
        }
        for step in ["fmt", "walls", "clippy", "doc", "unit", "e2e", "static"] {
            assert!(!short.contains_key(step), "{step} is about every change");
        }
    }

    /// A new crate belongs to a step, or the table says that it belongs to none.
    #[test]
    fn the_short_table_names_every_crate() {
        let root = Site::here().unwrap().root;
        let short = read(&root, SHORT).unwrap();
        for entry in fs::read_dir(root.join("crates")).unwrap().map(Result::unwrap) {
            let folder = format!("crates/{}/", entry.file_name().to_string_lossy());
            let mut paths = short.values().flatten();
            let is_named = paths.any(|path| path.starts_with(&folder));
            assert!(is_named || entry.path().is_file(), "{SHORT}: which step is about {folder}?");
        }
    }

    /// A repository with the table of the short steps, and a first commit on the branch `main`.
    fn repository() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        git(&folder, &["init", "--quiet", "--initial-branch", "main"]);
        fs::create_dir_all(folder.path().join("crates/xtask")).unwrap();
        let table = "every = [\"Cargo.lock\"]\nconsole = [\"crates/admin/\"]\n\
                     nat = [\"crates/punch/\", \"crates/net/\"]\n";
        commit(&folder, SHORT, table);
        folder
    }

    fn git(folder: &tempfile::TempDir, args: &[&str]) {
        let mut command = Command::new("git");
        command.current_dir(folder.path()).args(["-c", "user.name=a", "-c", "user.email=a@b.c"]);
        let (good, text) = capture(command.args(args)).unwrap();
        assert!(good, "git {args:?}: {text}");
    }

    fn commit(folder: &tempfile::TempDir, name: &str, text: &str) {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
        git(folder, &["add", "."]);
        git(folder, &["commit", "--quiet", "--message", "c"]);
    }

    fn names(folder: &tempfile::TempDir) -> Vec<&'static str> {
        left_out(folder.path()).unwrap().steps.into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn a_branch_leaves_out_the_steps_that_none_of_its_commits_is_about() {
        let folder = repository();
        git(&folder, &["checkout", "--quiet", "-b", "topic"]);
        assert!(names(&folder).is_empty(), "no change: the run is about all that the base has");
        commit(&folder, "crates/punch/a.rs", "a");
        assert_eq!(names(&folder), ["console"]);
        // Later commits of the base are no change of the branch.
        git(&folder, &["checkout", "--quiet", "main"]);
        commit(&folder, "crates/admin/b.rs", "b");
        git(&folder, &["checkout", "--quiet", "topic"]);
        assert_eq!(names(&folder), ["console"]);
        assert!(left_out(folder.path()).unwrap().base.ends_with(" of main"));
        // A file that is not committed is a change.
        fs::create_dir_all(folder.path().join("crates/admin")).unwrap();
        fs::write(folder.path().join("crates/admin/new.rs"), "new").unwrap();
        assert!(names(&folder).is_empty());
    }

    /// A repository with a branch that is about the step `nat`, and not about `console`.
    pub(in crate::test) fn topic() -> tempfile::TempDir {
        let folder = repository();
        git(&folder, &["checkout", "--quiet", "-b", "topic"]);
        commit(&folder, "crates/punch/a.rs", "a");
        folder
    }

    #[test]
    fn a_file_that_moves_away_is_a_change_of_both_places() {
        let folder = repository();
        commit(&folder, "crates/net/long.rs", &"a line of this file\n".repeat(20));
        git(&folder, &["checkout", "--quiet", "-b", "topic"]);
        fs::create_dir_all(folder.path().join("crates/other")).unwrap();
        git(&folder, &["mv", "crates/net/long.rs", "crates/other/long.rs"]);
        git(&folder, &["commit", "--quiet", "--message", "moved"]);
        assert_eq!(names(&folder), ["console"]);
    }

    #[test]
    fn a_path_of_every_step_leaves_nothing_out() {
        let folder = topic();
        commit(&folder, "Cargo.lock", "a");
        assert!(names(&folder).is_empty());
    }

    #[test]
    fn without_a_base_every_step_runs() {
        let folder = repository();
        commit(&folder, "crates/punch/a.rs", "a");
        assert!(names(&folder).is_empty(), "main is no base of itself");
        let plain = tempfile::tempdir().unwrap();
        assert!(names(&plain).is_empty(), "no repository");
    }

    #[test]
    fn a_commit_on_main_is_compared_with_the_branch_that_main_follows() {
        let origin = repository();
        let folder = tempfile::tempdir().unwrap();
        let url = origin.path().display().to_string();
        git(&folder, &["clone", "--quiet", "--origin", "elsewhere", &url, "."]);
        commit(&folder, "crates/net/a.rs", "a");
        assert_eq!(names(&folder), ["console"]);
    }
}
