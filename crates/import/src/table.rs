//! The conversion of the keys of a program. Every program has one table of all its keys, from which
//! both the findings and the manual are made.

use crate::section::{Book, Read};
use crate::tree::{Kind, Node};

/// A key of a program.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The path of the key: `[]` is an item of a list, `*` any name, `**` everything below it.
    pub key: &'static str,
    /// The result of the conversion.
    pub fate: Fate,
}

/// The result of the conversion of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// A key of ours, or an equivalent.
    Mapped(&'static str),
    /// Nothing needs to be written: the reason.
    Already(&'static str),
    /// There is no counterpart: the reason, and the nearest feature.
    Lacks(&'static str, &'static str),
}

pub(crate) const fn to(key: &'static str, ours: &'static str) -> Row {
    Row { key, fate: Fate::Mapped(ours) }
}

pub(crate) const fn already(key: &'static str, why: &'static str) -> Row {
    Row { key, fate: Fate::Already(why) }
}

pub(crate) const fn lacks(key: &'static str, why: &'static str, nearest: &'static str) -> Row {
    Row { key, fate: Fate::Lacks(why, nearest) }
}

/// A finding for each unused value of a source, and the number of used values.
pub(crate) fn settle(rows: &[Row], source: &Read, book: &Book) -> usize {
    let mut settle = Settle { rows, source, book, steps: Vec::new(), done: 0 };
    settle.node(&source.root, source.root.line);
    settle.done
}

struct Settle<'a> {
    rows: &'a [Row],
    source: &'a Read,
    book: &'a Book,
    steps: Vec<Step<'a>>,
    done: usize,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Key(&'a str),
    Item(usize),
}

impl<'a> Settle<'a> {
    fn node(&mut self, node: &'a Node, line: usize) {
        if node.is_used() {
            self.done += leaves(node);
            return;
        }
        // A row for everything below a key covers all of it.
        let below = self.row(true);
        match &node.kind {
            Kind::Map(entries) if below.is_none() && !entries.is_empty() => {
                for entry in entries {
                    self.steps.push(Step::Key(&entry.key));
                    self.node(&entry.node, entry.line);
                    self.steps.pop();
                }
            }
            Kind::List(items) if below.is_none() && !items.is_empty() => {
                // A list of texts is covered by the row of the list itself.
                let row = self.row(false);
                if row.is_some() && items.iter().all(|item| item.as_text().is_some()) {
                    return self.leaf(node, line, row);
                }
                for (n, item) in items.iter().enumerate() {
                    self.steps.push(Step::Item(n));
                    self.node(item, item.line);
                    self.steps.pop();
                }
            }
            Kind::Nothing if below.is_none() => {}
            Kind::Map(_) | Kind::List(_) | Kind::Nothing | Kind::Text(_) => {
                let row = below.or_else(|| self.row(false));
                self.leaf(node, line, row);
            }
        }
    }

    fn leaf(&mut self, node: &Node, line: usize, row: Option<Fate>) {
        if leaves(node) == 0 || node.all_used() {
            self.done += leaves(node);
            return;
        }
        // A switch that is off has no effect.
        let is_off = matches!(node.as_text(), Some("" | "false"));
        let (why, nearest) = match row {
            Some(Fate::Lacks(..)) if is_off => {
                self.done += 1;
                return;
            }
            Some(Fate::Already(_)) => {
                self.done += leaves(node);
                return;
            }
            Some(Fate::Lacks(why, nearest)) => (why, nearest),
            Some(Fate::Mapped(ours)) => {
                ("the value is not understood, or has no effect beside the other keys", ours)
            }
            None => ("the key is not known: a mistake, or a key of another version", ""),
        };
        self.book.add(&self.source.name, line, &self.path(), why, nearest);
    }

    /// The entry of the row that matches the path here. `below`: whether the row covers everything
    /// below it.
    fn row(&self, below: bool) -> Option<Fate> {
        let fits = |row: &&Row| match row.key.strip_suffix("**") {
            Some(key) => below && self.fits(key.strip_suffix('.').unwrap_or(key)),
            None => !below && self.fits(row.key),
        };
        self.rows.iter().find(fits).map(|row| row.fate)
    }

    fn fits(&self, key: &str) -> bool {
        let mut steps = self.steps.iter().peekable();
        for name in key.split('.') {
            let (name, lists) = match name.strip_suffix("[]") {
                Some(name) => (name, 1),
                None => (name, 0),
            };
            match steps.next() {
                Some(Step::Key(key)) if name == "*" || key.eq_ignore_ascii_case(name) => {}
                _ => return false,
            }
            for _ in 0..lists {
                if !matches!(steps.next(), Some(Step::Item(_))) {
                    return false;
                }
            }
        }
        // An item of a list of texts is covered by the row of its list.
        steps.next().is_none()
    }

    fn path(&self) -> String {
        let mut path = String::new();
        for step in &self.steps {
            match step {
                Step::Key(key) if path.is_empty() => path.push_str(key),
                Step::Key(key) => path.extend([".", key]),
                Step::Item(n) => path.push_str(&format!("[{n}]")),
            }
        }
        if path.is_empty() { "the file".to_owned() } else { path }
    }
}

/// The number of single values in a value.
fn leaves(node: &Node) -> usize {
    match &node.kind {
        Kind::Nothing => 0,
        Kind::Text(_) => 1,
        Kind::List(items) => items.iter().map(leaves).sum(),
        Kind::Map(entries) => entries.iter().map(|entry| leaves(&entry.node)).sum(),
    }
}

impl Node {
    fn all_used(&self) -> bool {
        self.is_used()
            || match &self.kind {
                Kind::Nothing => true,
                Kind::Text(_) => false,
                Kind::List(items) => items.iter().all(Self::all_used),
                Kind::Map(entries) => entries.iter().all(|entry| entry.node.all_used()),
            }
    }
}
