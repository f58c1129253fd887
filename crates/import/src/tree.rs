//! The tree of a source file, the common form of all formats. Each value knows its line, and
//! whether it has been used.

use std::cell::Cell;

/// The deepest nesting of a source file. The files of the programs need six levels.
pub(crate) const DEPTH_MAX: usize = 32;

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) line: usize,
    pub(crate) kind: Kind,
    used: Cell<bool>,
}

#[derive(Debug)]
pub(crate) enum Kind {
    /// A key without a value.
    Nothing,
    /// A text, a number or a truth value.
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) line: usize,
    pub(crate) node: Node,
}

impl Node {
    pub(crate) const fn new(line: usize, kind: Kind) -> Self {
        Self { line, kind, used: Cell::new(false) }
    }

    pub(crate) fn text(line: usize, text: impl Into<String>) -> Self {
        Self::new(line, Kind::Text(text.into()))
    }

    /// Marks this value, without the values in it.
    pub(crate) fn mark(&self) {
        self.used.set(true);
    }

    /// Marks every value in this value.
    pub(crate) fn mark_all(&self) {
        self.mark();
        match &self.kind {
            Kind::List(items) => items.iter().for_each(Self::mark_all),
            Kind::Map(entries) => entries.iter().for_each(|entry| entry.node.mark_all()),
            Kind::Nothing | Kind::Text(_) => {}
        }
    }

    pub(crate) const fn is_used(&self) -> bool {
        self.used.get()
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(text) => Some(text),
            Kind::Nothing | Kind::List(_) | Kind::Map(_) => None,
        }
    }

    /// The entry of a key. The programs read keys case-insensitively.
    pub(crate) fn entry(&self, key: &str) -> Option<&Entry> {
        let Kind::Map(entries) = &self.kind else { return None };
        // Of two equal keys, the last applies in most of the programs.
        entries.iter().rev().find(|entry| entry.key.eq_ignore_ascii_case(key))
    }

    /// The entry of a path of keys, such as `transport.tls.enable`.
    pub(crate) fn at(&self, path: &str) -> Option<&Entry> {
        let mut steps = path.split('.');
        let mut found = self.entry(steps.next()?)?;
        for step in steps {
            found = found.node.entry(step)?;
        }
        Some(found)
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        self.at(path).is_some_and(|entry| !matches!(entry.node.kind, Kind::Nothing))
    }
}
