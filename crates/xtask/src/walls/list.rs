//! `walls.toml`: what the walls allow by name, each entry with its reason and its bound.
//!
//! A bound is the present number. More is refused, and so is a bound above the present number:
//! whatever became smaller stays smaller.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Deserialize;

/// The path of the list from the root.
pub(super) const PATH: &str = "crates/xtask/walls.toml";

/// The list.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct List {
    #[serde(rename = "circle")]
    pub(super) circles: Vec<Circle>,
    #[serde(rename = "open")]
    pub(super) open: Vec<Open>,
    #[serde(rename = "file")]
    pub(super) files: Vec<LongFile>,
    #[serde(rename = "function")]
    pub(super) functions: Vec<LongFunction>,
    /// Comment lines that are too long, by file.
    pub(super) comments: BTreeMap<String, usize>,
    /// How many types have a name.
    pub(super) names: BTreeMap<String, usize>,
    /// The text of the file, for the numbers of its lines.
    #[serde(skip)]
    text: String,
}

/// A circle that may stay.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Circle {
    #[serde(rename = "crate")]
    pub(super) package: String,
    /// Paths below `src` of the crate.
    pub(super) files: Vec<String>,
    pub(super) reason: String,
}

/// Circles of a crate that join different things.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Open {
    #[serde(rename = "crate")]
    pub(super) package: String,
    /// The number of files of each circle, the largest circle first.
    pub(super) files: Vec<usize>,
    pub(super) reason: String,
}

/// A file that may be long.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LongFile {
    pub(super) path: String,
    pub(super) lines: usize,
    pub(super) reason: String,
}

/// A function that may be long.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LongFunction {
    pub(super) path: String,
    pub(super) name: String,
    pub(super) lines: usize,
    pub(super) reason: String,
}

impl List {
    /// Reads the list below `root`.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(root.join(PATH)).with_context(|| format!("reading {PATH}"))?;
        Self::parse(text)
    }

    pub(super) fn parse(text: String) -> Result<Self> {
        let list: Self = basic_toml::from_str(&text).with_context(|| format!("parsing {PATH}"))?;
        Ok(Self { text, ..list })
    }

    /// Entries without a reason.
    pub(super) fn breaches(&self) -> Vec<String> {
        let circles = self.circles.iter().map(|entry| (&entry.reason, entry.package.as_str()));
        let open = self.open.iter().map(|entry| (&entry.reason, entry.package.as_str()));
        let files = self.files.iter().map(|entry| (&entry.reason, entry.path.as_str()));
        let functions = self.functions.iter().map(|entry| (&entry.reason, entry.name.as_str()));
        let entries = circles.chain(open).chain(files).chain(functions);
        let bare = entries.filter(|(reason, _)| reason.trim().is_empty());
        let breach = |(_, name): (_, &str)| {
            format!(
                "{}: the entry of {name} has no reason: write why it may stay",
                self.at(&[name])
            )
        };
        bare.map(breach).collect()
    }

    /// The place of the first entry with all these words: path and line.
    pub(super) fn at(&self, words: &[&str]) -> String {
        let quoted: Vec<_> = words.iter().map(|word| format!("\"{word}\"")).collect();
        let mut line = 1;
        for entry in self.text.split("\n[[") {
            if quoted.iter().all(|word| entry.contains(word)) {
                let inside = quoted.first().and_then(|word| entry.find(word.as_str()));
                line += entry[..inside.unwrap_or(0)].matches('\n').count();
                return format!("{PATH}:{line}");
            }
            line += entry.matches('\n').count() + 1;
        }
        PATH.to_owned()
    }

    /// The place of a key of a table.
    pub(super) fn at_key(&self, key: &str) -> String {
        let is_key = |line: &str| {
            let begin = line.split('=').next().unwrap_or(line).trim();
            begin.trim_matches('"') == key
        };
        match self.text.lines().position(is_key) {
            Some(line) => format!("{PATH}:{}", line + 1),
            None => PATH.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_without_a_reason_or_with_an_unknown_key_is_refused() {
        let list = |reason: &str| {
            format!("\n[[file]]\npath = \"a.rs\"\nlines = 900\nreason = \"{reason}\"\n")
        };
        assert_eq!(List::parse(list("one list")).unwrap().breaches(), [""; 0]);
        let bare =
            "crates/xtask/walls.toml:3: the entry of a.rs has no reason: write why it may stay";
        assert_eq!(List::parse(list(" ")).unwrap().breaches(), [bare]);
        assert!(List::parse(list("x").replace("lines", "rows")).is_err());
    }
}
