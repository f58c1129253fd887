//! A part of a source while it is mapped: values are read by their keys, and a value that was read
//! is marked as used.

use std::cell::{Cell, RefCell};
use std::str::FromStr;

use proto::text::escaped;

use crate::Finding;
use crate::finding::shown;
use crate::plan::VARIABLE;
use crate::tree::{Kind, Node};

/// The findings of an import.
#[derive(Debug, Default)]
pub(crate) struct Book {
    found: RefCell<Vec<Finding>>,
    /// The number of values that have a finding of their own.
    named: Cell<usize>,
}

/// A source with its tree.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) name: String,
    pub(crate) folder: String,
    pub(crate) root: Node,
}

impl Read {
    pub(crate) fn section<'a>(&'a self, book: &'a Book) -> Section<'a> {
        Section { source: self, node: &self.root, path: String::new(), book }
    }

    /// The path of a source, relative to another folder.
    pub(crate) fn path(&self, path: &str) -> String {
        let relative = !path.starts_with(['/', '~', VARIABLE]);
        if self.folder.is_empty() || !relative {
            return path.to_owned();
        }
        let path = path.strip_prefix("./").unwrap_or(path);
        format!("{}/{path}", self.folder.trim_end_matches('/'))
    }
}

impl Book {
    pub(crate) fn add(&self, file: &str, line: usize, key: &str, why: &str, nearest: &str) {
        let finding = Finding {
            file: file.to_owned(),
            line,
            key: shown(key),
            why: escaped(why).into_owned(),
            nearest: escaped(nearest).into_owned(),
        };
        self.named.set(self.named.get() + 1);
        self.found.borrow_mut().push(finding);
    }

    /// All findings in the order of the sources and their lines.
    pub(crate) fn sorted(&self, sources: &[Read]) -> Vec<Finding> {
        let mut all = self.found.take();
        let place = |finding: &Finding| sources.iter().position(|s| s.name == finding.file);
        all.sort_by_key(|finding| (place(finding), finding.line));
        all.dedup();
        all
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Section<'a> {
    pub(crate) source: &'a Read,
    pub(crate) node: &'a Node,
    /// The path of keys that leads here, for messages.
    path: String,
    book: &'a Book,
}

impl<'a> Section<'a> {
    fn inner(&self, node: &'a Node, path: String) -> Self {
        Self { source: self.source, node, path, book: self.book }
    }

    pub(crate) fn key(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.node.has(key)
    }

    /// The text of a key. Empty texts have no meaning in any of the programs.
    pub(crate) fn text(&self, key: &str) -> Option<&'a str> {
        let node = &self.node.at(key)?.node;
        let text = node.as_text()?.trim();
        node.mark();
        (!text.is_empty()).then_some(text)
    }

    /// The number of a key. A text that is not such a number stays unused, and becomes a finding.
    pub(crate) fn number<T: FromStr>(&self, key: &str) -> Option<T> {
        let node = &self.node.at(key)?.node;
        let number = node.as_text()?.trim().parse().ok()?;
        node.mark();
        Some(number)
    }

    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        let node = &self.node.at(key)?.node;
        let is = match node.as_text()?.trim().to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => true,
            "false" | "0" | "no" | "off" => false,
            _ => return None,
        };
        node.mark();
        Some(is)
    }

    /// The texts of a key: a list, or one text separated by commas.
    pub(crate) fn texts(&self, key: &str) -> Vec<&'a str> {
        let Some(entry) = self.node.at(key) else { return Vec::new() };
        let texts: Vec<&str> = match &entry.node.kind {
            Kind::Text(text) => text.split(',').collect(),
            Kind::List(items) => items.iter().filter_map(Node::as_text).collect(),
            Kind::Nothing | Kind::Map(_) => return Vec::new(),
        };
        if matches!(entry.node.kind, Kind::Text(_))
            || entry.node.items().all(|n| n.as_text().is_some())
        {
            entry.node.mark_all();
        }
        texts.into_iter().map(str::trim).filter(|text| !text.is_empty()).collect()
    }

    /// The words of an option of a command line.
    pub(crate) fn words(&self, key: &str) -> Vec<&'a str> {
        let Some(entry) = self.node.at(key) else { return Vec::new() };
        entry.node.mark_all();
        entry.node.items().filter_map(Node::as_text).collect()
    }

    /// The value of a command line option of which only the last occurrence applies.
    pub(crate) fn last(&self, key: &str) -> Option<&'a str> {
        self.words(key).last().copied()
    }

    /// The path of an option of a command line.
    pub(crate) fn last_path(&self, key: &str) -> Option<String> {
        self.last(key).map(|path| self.source.path(path))
    }

    /// The words of an option of a command line, with their lines.
    pub(crate) fn lines(&self, key: &str) -> Vec<(usize, &'a str)> {
        let Some(entry) = self.node.at(key) else { return Vec::new() };
        entry.node.mark_all();
        entry.node.items().filter_map(|item| Some((item.line, item.as_text()?))).collect()
    }

    /// A word of the command line in this line has no counterpart, or needs a decision of the user.
    pub(crate) fn note_word(&self, line: usize, word: &str, why: &str, nearest: &str) {
        self.book.add(&self.source.name, line, word, why, nearest);
    }

    /// Marks a key with everything below it.
    pub(crate) fn mark(&self, key: &str) {
        if let Some(entry) = self.node.at(key) {
            entry.node.mark_all();
        }
    }

    /// The map of a key.
    pub(crate) fn section(&self, key: &str) -> Option<Self> {
        let node = &self.node.at(key)?.node;
        matches!(node.kind, Kind::Map(_)).then(|| self.inner(node, self.key(key)))
    }

    /// The maps in the list of a key.
    pub(crate) fn sections(&self, key: &str) -> Vec<Self> {
        let Some(entry) = self.node.at(key) else { return Vec::new() };
        let maps = entry.node.items().enumerate();
        let maps = maps.filter(|(_, node)| matches!(node.kind, Kind::Map(_)));
        maps.map(|(n, node)| self.inner(node, format!("{}[{n}]", self.key(key)))).collect()
    }

    /// The maps by name in the map of a key.
    pub(crate) fn named(&self, key: &str) -> Vec<(&'a str, Self)> {
        let Some(Kind::Map(entries)) = self.node.at(key).map(|entry| &entry.node.kind) else {
            return Vec::new();
        };
        let maps = entries.iter().filter(|entry| matches!(entry.node.kind, Kind::Map(_)));
        maps.map(|entry| {
            let path = self.key(&format!("{key}.{}", shown(&entry.key)));
            (entry.key.as_str(), self.inner(&entry.node, path))
        })
        .collect()
    }

    /// The texts by name in the map of a key.
    pub(crate) fn pairs(&self, key: &str) -> Vec<(&'a str, &'a str)> {
        let Some(Kind::Map(entries)) = self.node.at(key).map(|entry| &entry.node.kind) else {
            return Vec::new();
        };
        let pair = |entry: &'a crate::tree::Entry| {
            let text = entry.node.as_text()?;
            entry.node.mark();
            Some((entry.key.as_str(), text))
        };
        entries.iter().filter_map(pair).collect()
    }

    /// A path of a file, in a form that the new files can use.
    pub(crate) fn path(&self, key: &str) -> Option<String> {
        self.text(key).map(|path| self.source.path(path))
    }

    /// The value of this key has no counterpart.
    pub(crate) fn lacks(&self, key: &str, why: &str, nearest: &str) {
        let Some(entry) = self.node.at(key) else { return };
        entry.node.mark_all();
        self.book.add(&self.source.name, entry.line, &self.key(key), why, nearest);
    }

    /// This part as a whole has no counterpart.
    pub(crate) fn lacks_all(&self, why: &str, nearest: &str) {
        self.node.mark_all();
        self.note(why, nearest);
    }

    /// An aspect of this part has no counterpart; its values are still read.
    pub(crate) fn note(&self, why: &str, nearest: &str) {
        let key = if self.path.is_empty() { "the file" } else { &self.path };
        self.book.add(&self.source.name, self.node.line, key, why, nearest);
    }

    /// A value of this key was used, but an aspect of it needs a decision of the user.
    pub(crate) fn note_at(&self, key: &str, why: &str, nearest: &str) {
        let Some(entry) = self.node.at(key) else { return self.note(why, nearest) };
        self.book.add(&self.source.name, entry.line, &self.key(key), why, nearest);
    }
}

/// Header fields, `name: value` each.
pub(crate) fn fields<'a>(lines: &[&'a str]) -> Vec<(&'a str, &'a str)> {
    let pairs = lines.iter().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.trim(), value.trim())).collect()
}

impl Node {
    /// The items of a list.
    pub(crate) fn items(&self) -> impl Iterator<Item = &Self> {
        let items: &[Self] = match &self.kind {
            Kind::List(items) => items,
            Kind::Nothing | Kind::Text(_) | Kind::Map(_) => &[],
        };
        items.iter()
    }
}
