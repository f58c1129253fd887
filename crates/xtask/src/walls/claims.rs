//! What documents claim about the sources: paths in backticks, names of tests, tables of modules.
//!
//! Read are each `README.md`, and the first comment of each `lib.rs`, `main.rs` and `mod.rs`. A
//! path may begin at the root, in `crates`, in the folder of the document, in its crate or in the
//! `src` of its crate, or in a folder of a path that the same line names before it.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;

use super::links::{links, prose, read};
use super::sources::{Sources, listed};

/// The map of promises to tests. Its last column names the files of the tests of a row.
const TESTS: &str = "crates/tunnel/tests/README.md";

/// A name with at least so many words is that of a test, if the name has no upper case.
const WORDS_OF_A_TEST: usize = 4;

/// Heads of a first column that has modules.
const MODULE_COLUMNS: &[&str] = &["module", "modules"];

/// The first cell of a row for all modules that no other row names.
const OTHERS: &str = "the others";

/// Paths of files and folders.
#[derive(Debug)]
struct Known {
    files: BTreeSet<String>,
    folders: BTreeSet<String>,
}

/// Every claim in the documents below `root` that does not hold.
pub(super) fn breaches(root: &Path, sources: &Sources) -> Result<Vec<String>> {
    let known = Known::of(listed(root, "*")?);
    let mut found = Vec::new();
    for document in listed(root, "*README.md")? {
        let text = read(root, Path::new(&document))?;
        let lines: Vec<_> = prose(&text).collect();
        found.extend(path_breaches(&known, &document, &lines));
        found.extend(test_breaches(sources, &known, &document, &lines));
    }
    for (path, source) in &sources.files {
        let name = path.rsplit('/').next().unwrap_or(path);
        if ["lib.rs", "main.rs", "mod.rs"].contains(&name) {
            let head = head(&source.text);
            let lines: Vec<_> = prose(&head).collect();
            if name != "mod.rs" {
                found.extend(path_breaches(&known, path, &lines));
            }
            let children = source.facts.modules.first().map(|module| &module.children);
            let modules: Vec<_> =
                children.into_iter().flatten().map(|child| child.name.as_str()).collect();
            found.extend(module_breaches(path, &lines, &modules));
        }
    }
    Ok(found)
}

/// The comment at the top of a file, without its marks; lines keep their numbers.
fn head(text: &str) -> String {
    let lines = text.lines().map_while(|line| line.strip_prefix("//!"));
    lines.map(|line| line.strip_prefix(' ').unwrap_or(line).to_owned() + "\n").collect()
}

/// The code spans of a line.
fn spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

impl Known {
    fn of(files: Vec<String>) -> Self {
        let mut folders = BTreeSet::from([String::new()]);
        for file in &files {
            let mut rest = file.as_str();
            while let Some((folder, _)) = rest.rsplit_once('/') {
                if !folders.insert(folder.to_owned()) {
                    break;
                }
                rest = folder;
            }
        }
        Self { files: files.into_iter().collect(), folders }
    }

    fn has(&self, path: &str) -> bool {
        match path.strip_suffix('/') {
            Some(folder) => self.folders.contains(folder),
            None => self.files.contains(path) || self.folders.contains(path),
        }
    }

    /// The whole path of what a document names, if it is there.
    fn find(&self, bases: &[String], path: &str) -> Option<String> {
        let joined = bases.iter().filter_map(|base| join(base, path));
        joined.into_iter().find(|path| self.has(path))
    }
}

/// A path from the root; `None` where it leaves the repository.
fn join(base: &str, path: &str) -> Option<String> {
    let mut parts: Vec<_> = base.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.trim_end_matches('/').split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    let end = if path.ends_with('/') { "/" } else { "" };
    Some(parts.join("/") + end)
}

/// Where paths of a document may begin.
fn bases(document: &str) -> Vec<String> {
    let mut bases = vec![String::new(), "crates".to_owned()];
    let parts: Vec<_> = document.split('/').collect();
    let folder = &parts[..parts.len() - 1];
    bases.push(folder.join("/"));
    if let ["crates", name, rest @ ..] = folder {
        // The folders between the document and its crate, and the sources of the crate.
        bases.extend((2..2 + rest.len()).map(|parts| folder[..parts].join("/")));
        bases.push(format!("crates/{name}/src"));
    }
    bases
}

/// `a/{b,c}.rs` as `a/b.rs` and `a/c.rs`.
fn expanded(path: &str) -> Vec<String> {
    let parts = path.split_once('{').and_then(|(begin, rest)| Some((begin, rest.split_once('}')?)));
    let Some((begin, (middle, end))) = parts else { return vec![path.to_owned()] };
    let each = middle.split(',').flat_map(|name| expanded(&format!("{begin}{name}{end}")));
    each.collect()
}

/// Whether a code span is a path of the repository: it has the form of a path, and begins in a
/// known folder or is a file of Rust.
fn is_path(known: &Known, bases: &[String], span: &str) -> bool {
    let may_be = |c: char| c.is_ascii_alphanumeric() || "/._-{},".contains(c);
    let outside = ["/", "target/", "~", ".", "-"];
    if span.is_empty() || !span.chars().all(may_be) || outside.iter().any(|o| span.starts_with(o)) {
        return false;
    }
    let first = span.split('/').next().unwrap_or(span);
    // `CRATE/tests/all.rs`: a placeholder.
    if span.contains('/') && !first.contains(|c: char| c.is_ascii_lowercase()) {
        return false;
    }
    let begins = span.contains('/')
        && bases
            .iter()
            .filter_map(|base| join(base, first))
            .any(|path| known.folders.contains(&path));
    begins || span.ends_with(".rs")
}

/// Paths that are not there.
fn path_breaches(known: &Known, document: &str, lines: &[(usize, &str)]) -> Vec<String> {
    let fixed = bases(document);
    let mut found = Vec::new();
    let mut near: Vec<String> = Vec::new();
    for (number, line) in lines {
        // A row of a table stands alone; a paragraph goes on.
        if line.trim().is_empty() || line.trim_start().starts_with('|') {
            near.clear();
        }
        // A crate or a file beside a path says where the path begins.
        let beside = links(line).into_iter().chain(spans(line).map(str::to_owned));
        for whole in beside.filter_map(|name| known.find(&fixed, &name)) {
            let whole = whole.trim_end_matches('/');
            near.extend([format!("{whole}/src"), whole.to_owned()]);
            near.extend(folders_of(whole));
        }
        for span in spans(line) {
            let bases: Vec<_> = near.iter().chain(&fixed).cloned().collect();
            if !is_path(known, &bases, span) {
                continue;
            }
            for path in expanded(span) {
                match known.find(&bases, &path) {
                    Some(whole) => near = [folders_of(&whole), near].concat(),
                    None => found.push(format!(
                        "{document}:{number}: `{span}`: no such file or folder: name the present \
                         place, or leave the name out"
                    )),
                }
            }
        }
    }
    found
}

/// The folders of a path up to its crate, the nearest first.
fn folders_of(path: &str) -> Vec<String> {
    let mut folders = Vec::new();
    let mut rest = path.trim_end_matches('/');
    if path.ends_with('/') {
        folders.push(rest.to_owned());
    }
    while let Some((folder, _)) = rest.rsplit_once('/') {
        if folder == "crates" {
            break;
        }
        folders.push(folder.to_owned());
        rest = folder;
    }
    folders
}

/// Tests that are not there, or not in the files that their row names.
fn test_breaches(
    sources: &Sources,
    known: &Known,
    document: &str,
    lines: &[(usize, &str)],
) -> Vec<String> {
    let bases = bases(document);
    let mut found = Vec::new();
    for (number, line) in lines {
        let cells: Vec<_> = line.trim().trim_matches('|').split('|').collect();
        let places = match cells.last() {
            Some(last) if document == TESTS && cells.len() > 1 => places(known, &bases, last),
            _ => Vec::new(),
        };
        for span in spans(line) {
            let name = span.rsplit("::").next().unwrap_or(span);
            if !is_test_name(name) {
                continue;
            }
            let has = |path: &str| {
                let inside = |place: &String| {
                    place == path
                        || path.starts_with(place.trim_end_matches('/'))
                            && path[place.trim_end_matches('/').len()..].starts_with('/')
                };
                places.is_empty() || places.iter().any(inside)
            };
            let mut with = sources.files.iter().filter(|(_, file)| file.facts.tests.contains(name));
            if with.clone().next().is_none() {
                // The name of a function that is no test, of a field, of a key.
                let is_word = document != TESTS
                    && sources.files.values().any(|file| file.text.contains(name));
                if !is_word {
                    found.push(format!(
                        "{document}:{number}: `{span}`: no test has this name: name the test that \
                         proves it now"
                    ));
                }
            } else if !with.any(|(path, _)| has(path)) {
                let holders =
                    sources.files.iter().filter(|(_, file)| file.facts.tests.contains(name));
                let holders: Vec<_> = holders.map(|(path, _)| path.as_str()).collect();
                found.push(format!(
                    "{document}:{number}: `{span}` is in {} and in no file of the last column: name \
                     the file there",
                    holders.join(", ")
                ));
            }
        }
    }
    found
}

/// The files and folders of the last cell of a row.
fn places(known: &Known, bases: &[String], cell: &str) -> Vec<String> {
    let mut near: Vec<String> = Vec::new();
    let mut found = Vec::new();
    for path in spans(cell).flat_map(expanded) {
        let bases: Vec<_> = near.iter().chain(bases).cloned().collect();
        if let Some(whole) = known.find(&bases, &path) {
            near = [folders_of(&whole), near].concat();
            found.push(whole);
        }
    }
    found
}

fn is_test_name(name: &str) -> bool {
    let may_be = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    name.chars().all(may_be)
        && name.split('_').filter(|word| !word.is_empty()).count() >= WORDS_OF_A_TEST
}

/// A table of modules that names what is no module, or that lacks a module.
fn module_breaches(path: &str, lines: &[(usize, &str)], modules: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut named = BTreeSet::new();
    let mut first = None;
    let mut is_inside = false;
    for (number, line) in lines {
        let Some(row) = line.trim().strip_prefix('|') else {
            is_inside = false;
            continue;
        };
        let cell = row.split('|').next().unwrap_or(row).trim();
        if MODULE_COLUMNS.contains(&cell) {
            is_inside = true;
            first.get_or_insert(*number);
        } else if is_inside && cell == OTHERS {
            named.extend(modules);
        } else if is_inside {
            for span in spans(cell) {
                let name = span.trim_start_matches("mod@").split("::").next().unwrap_or(span);
                let is_type = name.starts_with(char::is_uppercase);
                if !is_type && !modules.contains(&name) {
                    found.push(format!(
                        "{path}:{number}: `{span}`: no such module: name the present module, or \
                         remove the row"
                    ));
                }
                named.insert(name);
            }
        }
    }
    if let Some(first) = first {
        let missing: BTreeSet<_> =
            modules.iter().filter(|module| !named.contains(*module)).collect();
        found.extend(missing.into_iter().map(|module| {
            format!("{path}:{first}: the table lacks the module `{module}`: add a row")
        }));
    }
    found
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    /// The breaches in a repository with these files.
    fn of(files: &[(&str, &str)]) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let init = Command::new("git").current_dir(dir.path()).args(["init", "--quiet"]).status();
        assert!(init.unwrap().success());
        breaches(dir.path(), &Sources::read(dir.path()).unwrap()).unwrap()
    }

    const NO_FILE: &str = "no such file or folder: name the present place, or leave the name out";

    #[test]
    fn a_path_may_begin_in_several_places_and_has_to_exist() {
        let good = "`crates/a/src/b/c.rs`, `a/src/b/`, `b/{c,d}.rs` of [a](crates/a), and beside it \
                    `d.rs`; words: `a`, `and/or`, `CRATE/tests/x.rs`, `/proc/self`, `a b.rs`, `fn()`\n";
        let files = [
            ("crates/a/src/lib.rs", "//! `b/c.rs`, `src/b/d.rs`\nmod b;"),
            ("crates/a/src/b/mod.rs", "mod c;\nmod d;"),
            ("crates/a/src/b/c.rs", ""),
            ("crates/a/src/b/d.rs", ""),
        ];
        let with = |text: &str| {
            let mut files = files.to_vec();
            files.push(("README.md", text));
            of(&files)
        };
        assert_eq!(with(good), [""; 0]);
        for gone in ["crates/a/src/gone.rs", "a/src/gone/", "a/src/b/{c,gone}.rs", "gone.rs"] {
            let expected = format!("README.md:3: `{gone}`: {NO_FILE}");
            assert_eq!(with(&format!("# Front\n\n`{gone}`\n")), [expected]);
        }
        assert_eq!(with("```\n`gone.rs`\n```\n"), [""; 0]);
    }

    #[test]
    fn the_head_of_a_crate_names_files_that_exist() {
        let found =
            of(&[("crates/a/src/lib.rs", "//! One.\n//! See `gone.rs`.\n\n// `gone.rs`\n")]);
        assert_eq!(found, [format!("crates/a/src/lib.rs:2: `gone.rs`: {NO_FILE}")]);
    }

    #[test]
    fn a_test_of_the_map_exists_in_a_file_of_its_row() {
        let row = |test: &str, file: &str| format!("| 1 | what | `{test}` (50 MB) | `{file}` |\n");
        let with = |text: &str| {
            of(&[
                (TESTS, text),
                ("crates/a/tests/one/x.rs", "#[test]\nfn no_byte_is_lost() {}"),
                ("crates/a/tests/two.rs", "fn this_is_no_test_at_all() {}"),
            ])
        };
        assert_eq!(with(&row("no_byte_is_lost", "a/tests/one/x.rs")), [""; 0]);
        assert_eq!(with(&row("one::no_byte_is_lost", "a/tests/one/")), [""; 0]);
        assert_eq!(
            with(&row("no_byte_is_lost", "a/tests/two.rs")),
            [
                "crates/tunnel/tests/README.md:1: `no_byte_is_lost` is in crates/a/tests/one/x.rs and in \
              no file of the last column: name the file there"
            ]
        );
        for name in ["no_byte_is_ever_lost", "this_is_no_test_at_all"] {
            assert_eq!(
                with(&row(name, "a/tests/two.rs")),
                [format!(
                    "crates/tunnel/tests/README.md:1: `{name}`: no test has this name: name the test \
                     that proves it now"
                )]
            );
        }
    }

    #[test]
    fn a_table_of_modules_names_each_module_and_nothing_else() {
        let with = |rows: &str| {
            let head = format!("//! Map.\n//!\n//! | module | content |\n//! |---|---|\n{rows}");
            let code = "\nmod b;\nmod c;\n#[cfg(test)]\nmod tests;\n";
            of(&[
                ("crates/a/src/lib.rs", &(head + code)),
                ("crates/a/src/b.rs", ""),
                ("crates/a/src/c.rs", ""),
                ("crates/a/src/tests.rs", ""),
            ])
        };
        assert_eq!(with("//! | `b`, [`mod@c`] | both |\n"), [""; 0]);
        assert_eq!(with("//! | `b` | one |\n//! | the others | more |\n"), [""; 0]);
        assert_eq!(
            with("//! | `b`, `gone` | two |\n"),
            [
                "crates/a/src/lib.rs:5: `gone`: no such module: name the present module, or remove \
                 the row",
                "crates/a/src/lib.rs:3: the table lacks the module `c`: add a row",
            ]
        );
    }
}
