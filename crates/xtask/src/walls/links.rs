//! The documents: every relative link in a tracked `*.md` names an existing file and an existing
//! heading, lines of text wrap at 100 columns, and README.md stays short.
//!
//! The check reads the part of Markdown that the documents use: fenced code, code spans, inline
//! links and headings with `#`. Anchors follow GitHub's rule, which most renderers share.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Columns of a line of text, as `.rustfmt.toml` has for code.
pub(super) const COLUMNS: usize = 100;

/// The front page has fewer lines than this. A longer text is a manual, and lives in
/// `crates/tunnel/docs`.
const FRONT_PAGE_LINES: usize = 200;

/// Every breach in the documents that git tracks below `root`.
pub(super) fn breaches(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for document in tracked(root)? {
        let text = read(root, &document)?;
        let name = document.display();
        let lines = text.lines().count();
        if document == Path::new("README.md") && lines >= FRONT_PAGE_LINES {
            found.push(format!("{name}: {lines} lines, fewer than {FRONT_PAGE_LINES} are allowed"));
        }
        for (number, line) in prose(&text) {
            if is_too_long(line, COLUMNS) {
                found.push(format!("{name}:{number}: longer than {COLUMNS} columns"));
            }
            for link in links(line) {
                if let Some(reason) = dead(root, &document, &link)? {
                    found.push(format!("{name}:{number}: link to {link}: {reason}"));
                }
            }
        }
    }
    Ok(found)
}

/// Paths relative to `root`.
fn tracked(root: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("git")
        .current_dir(root)
        // A checkout of another user, as in a container, is only read here and never run.
        .args(["-c", "safe.directory=*", "ls-files", "-z", "--", "*.md"])
        .output()
        .context("starting git ls-files")?;
    ensure!(output.status.success(), "git: {}", String::from_utf8_lossy(&output.stderr).trim());
    let names = String::from_utf8(output.stdout).context("git ls-files: names in UTF-8")?;
    let paths = names.split_terminator('\0').map(PathBuf::from);
    // A document that was deleted and not committed yet is no breach.
    Ok(paths.filter(|path| root.join(path).exists()).collect())
}

pub(super) fn read(root: &Path, document: &Path) -> Result<String> {
    std::fs::read_to_string(root.join(document))
        .with_context(|| format!("reading {}", document.display()))
}

/// Lines outside of fenced code, with their numbers.
pub(super) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fence: Option<&str> = None;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let start = line.trim_start();
        let ticks = &start[..start.len() - start.trim_start_matches('`').len()];
        match fence {
            Some(open) => {
                if ticks.len() >= open.len() && start.trim_end() == ticks {
                    fence = None;
                }
                false
            }
            None if ticks.len() >= 3 => {
                fence = Some(ticks);
                false
            }
            None => true,
        }
    })
}

/// Rows of tables cannot be wrapped, and neither can a line that is a single word or a single link.
pub(super) fn is_too_long(line: &str, columns: usize) -> bool {
    let text = line.trim_start_matches(|c: char| c.is_whitespace() || "-*>".contains(c));
    let is_table = text.starts_with('|');
    let is_link = text.starts_with('[') && text.split("](").count() == 2 && text.ends_with(')');
    line.chars().count() > columns && text.contains(' ') && !is_table && !is_link
}

/// Destinations of the inline links of one line.
pub(super) fn links(line: &str) -> Vec<String> {
    let line = without_code(line);
    let mut rest = line.as_str();
    let mut found = Vec::new();
    while let Some((_, behind)) = rest.split_once("](") {
        let Some((link, behind)) = behind.split_once(')') else { break };
        // A title may follow the destination.
        found.extend(link.split_whitespace().next().map(str::to_owned));
        rest = behind;
    }
    found
}

/// Code spans hold examples of text, not links.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// The reason why a link leads nowhere. Links to other sites are not followed.
fn dead(root: &Path, document: &Path, link: &str) -> Result<Option<String>> {
    if link.contains("://") || link.starts_with("mailto:") {
        return Ok(None);
    }
    let (path, anchor) = link.split_once('#').map_or((link, None), |(p, a)| (p, Some(a)));
    let target = if path.is_empty() { Some(document.to_owned()) } else { resolve(document, path) };
    let Some(target) = target else { return Ok(Some("outside of the repository".to_owned())) };
    if !root.join(&target).exists() {
        return Ok(Some("no such file".to_owned()));
    }
    let Some(anchor) = anchor else { return Ok(None) };
    if target.extension().is_none_or(|extension| extension != "md") {
        return Ok(Some("only documents have anchors".to_owned()));
    }
    let known = anchors(&read(root, &target)?).contains(anchor);
    Ok((!known).then(|| format!("no heading of {} has this anchor", target.display())))
}

/// The path of a link from the root of the repository; `None` if it leaves the repository.
fn resolve(document: &Path, link: &str) -> Option<PathBuf> {
    let mut path = document.parent()?.to_owned();
    for component in Path::new(link).components() {
        match component {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                if !path.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

/// Anchors of all headings; a repeated heading gets a number.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (_, line) in prose(text) {
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let anchor = anchor(heading.trim());
        let numbered = (1..).map(|number| format!("{anchor}-{number}"));
        let free = std::iter::once(anchor.clone()).chain(numbered).find(|a| !found.contains(a));
        found.extend(free);
    }
    found
}

/// Keeps small letters, digits, `-` and `_`, turns a space into `-`, and drops other characters.
fn anchor(heading: &str) -> String {
    let kept = |c: char| c.is_alphanumeric() || "-_ ".contains(c);
    let lower = heading.chars().filter(|c| kept(*c)).flat_map(char::to_lowercase);
    lower.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A repository with these documents.
    fn repository(documents: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in documents {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        dir
    }

    fn reason(link: &str) -> Option<String> {
        let dir = repository(&[
            ("README.md", "# Front\n"),
            ("docs/a.md", "# A\n\n## Over `quic://`, and back\n\n## Twice\n\n## Twice\n"),
            ("docs/code.rs", ""),
        ]);
        dead(dir.path(), Path::new("docs/a.md"), link).unwrap()
    }

    #[test]
    fn a_link_to_an_existing_file_and_heading_is_alive() {
        for link in [
            "../README.md",
            "../README.md#front",
            "code.rs",
            ".",
            "#over-quic-and-back",
            "a.md#twice-1",
            "https://example.com/nothing",
            "mailto:nobody@example.com",
        ] {
            assert_eq!(reason(link), None, "{link}");
        }
    }

    #[test]
    fn a_link_to_nothing_is_named_with_its_reason() {
        for (link, expected) in [
            ("b.md", "no such file"),
            ("/docs/a.md", "outside of the repository"),
            ("../../README.md", "outside of the repository"),
            ("#Twice", "no heading of docs/a.md has this anchor"),
            ("../README.md#twice", "no heading of README.md has this anchor"),
            ("code.rs#L3", "only documents have anchors"),
        ] {
            assert_eq!(reason(link).as_deref(), Some(expected), "{link}");
        }
    }

    #[test]
    fn links_are_found_beside_code_and_not_inside_code() {
        let line = "[`a`](a.md), `[b](b.md)` and ![c](c.svg \"title\"), [d](d.md#x)";
        assert_eq!(links(line), ["a.md", "c.svg", "d.md#x"]);
        assert_eq!(links("[open](a.md"), [""; 0]);
    }

    #[test]
    fn fenced_code_is_no_text() {
        let text = "one\n````md\n```\n[a](b)\n```\n````\ntwo\n  ```\n# code\n  ```\nthree\n";
        let lines: Vec<_> = prose(text).collect();
        assert_eq!(lines, [(1, "one"), (7, "two"), (11, "three")]);
        assert_eq!(anchors(text), BTreeSet::new());
    }

    #[test]
    fn text_wraps_at_100_columns_and_tables_and_links_need_not() {
        let words = "word ".repeat(20);
        let is_too_long = |line: &str| is_too_long(line, COLUMNS);
        assert!(!is_too_long(words.trim_end()));
        assert!(is_too_long(&format!("{words}word")));
        assert!(!is_too_long(&"é".repeat(100)));
        assert!(is_too_long(&format!("- {words}word")));
        assert!(!is_too_long(&format!("| {words} |")));
        let link = format!("https://example.com/{}", "x".repeat(100));
        assert!(!is_too_long(&link));
        assert!(!is_too_long(&format!("* [a title]({link})")));
        assert!(is_too_long(&format!("[a title]({link}) and more")));
    }

    #[test]
    fn breaches_name_document_and_line() {
        let long = format!("# Front\n\n{}\n[gone](gone.md)\n", "word ".repeat(21));
        let dir = repository(&[
            ("README.md", &"line\n".repeat(200)),
            ("docs/long.md", &long),
            ("ignored.md", "[gone](gone.md)\n"),
        ]);
        let git = |args: &[&str]| {
            let status = Command::new("git").current_dir(dir.path()).args(args).status();
            assert!(status.unwrap().success(), "git {args:?}");
        };
        git(&["init", "--quiet"]);
        git(&["add", "README.md", "docs"]);
        assert_eq!(
            breaches(dir.path()).unwrap(),
            [
                "README.md: 200 lines, fewer than 200 are allowed",
                "docs/long.md:3: longer than 100 columns",
                "docs/long.md:4: link to gone.md: no such file",
            ]
        );
    }
}
