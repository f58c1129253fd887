//! Reads values from the tree. A context collects every problem, and a section knows its keys.
//! After a problem, a reader continues with a substitute value. The caller checks the problems at
//! the end, so one run reports all of them.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::str::FromStr;

use crate::files_read::FilesRead;
use crate::key_table::{KeyMap, KeyPlace, KeyTable};
use crate::problem::{shown, shown_hint, unknown};
use crate::secrets::url::without_userinfo;
use crate::taken::Addresses;
use crate::yaml::{At, Entry, Kind, Node};
use crate::{BadValue, Problem, Secret, secrecy};

/// The largest number of reported problems, and of warnings. A wrong kind of file would otherwise
/// cause thousands.
const PROBLEMS_MAX: usize = 100;

/// The hint for an invalid value that spans several lines without quotes.
const FOLDED: &str =
    "the value goes on in the next line: does a line lack its `- ` (with a blank) or its colon?";

/// The external inputs of the decoder, which keep it pure.
pub struct Sources<'a> {
    /// The value of an environment variable for `${NAME}`.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// Reads the whole text of a file that the configuration names, of at most
    /// [`READ_MAX`](crate::READ_MAX) bytes. The path is as written; the caller makes it absolute
    /// and checks the permissions. The error is shown to the user, so it must not contain the
    /// path, which may be a token under the wrong key.
    pub read: &'a dyn Fn(&Path) -> Result<String, String>,
}

impl fmt::Debug for Sources<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").finish_non_exhaustive()
    }
}

/// How a file is read that the configuration names.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    /// The largest size, in bytes, without blanks and line breaks at both ends.
    pub(crate) most: usize,
    /// Whether a change of the file is a change of the configuration for `watch`.
    pub(crate) is_watched: bool,
}

impl Reading {
    /// A file with a token or with users. A token is one line, and 256 users have 30 KiB.
    pub(crate) const SECRET: Self = Self { most: 128 << 10, is_watched: false };
}

pub(crate) struct Cx<'a> {
    pub(crate) file: &'a str,
    pub(crate) sources: &'a Sources<'a>,
    pub(crate) problems: RefCell<Vec<Problem>>,
    pub(crate) warnings: RefCell<Vec<Problem>>,
    /// The addresses of the listeners of a server that were decoded so far.
    pub(crate) taken: RefCell<Addresses>,
    /// The files whose changes are changes of the configuration.
    pub(crate) watched: RefCell<Vec<PathBuf>>,
    pub(crate) files: Rc<FilesRead>,
}

impl<'a> Cx<'a> {
    pub(crate) fn new(file: &'a str, sources: &'a Sources<'a>) -> Self {
        let (problems, warnings, taken, watched, files) = Default::default();
        Self { file, sources, problems, warnings, taken, watched, files }
    }

    /// A context that decodes a part again and whose problems are not reported.
    pub(crate) fn again(&self) -> Self {
        Self { files: Rc::clone(&self.files), ..Self::new("", self.sources) }
    }
}

impl Cx<'_> {
    /// The text of a file, which is read once. The error does not contain the path.
    pub(crate) fn read(&self, path: &Path, how: Reading) -> Result<Rc<Secret>, String> {
        if how.is_watched {
            let mut watched = self.watched.borrow_mut();
            if !watched.iter().any(|known| known == path) {
                watched.push(path.to_owned());
            }
        }
        let text = self.files.text(path, self.sources.read)?;
        let len = text.reveal().trim().len();
        if len > how.most {
            return Err(format!("it has {len} bytes, and may have at most {}", how.most));
        }
        Ok(text)
    }

    fn at(&self, at: At, path: &str, bad: BadValue) -> Problem {
        let (file, line, column) = match at {
            At::Text { line, column } => (self.file, line, column),
            At::Flag(flag) => (flag, 0, 0),
        };
        let (file, key_path, message) = (file.to_owned(), shown(path), shown(&bad.message));
        Problem { file, line, column, key_path, message, hint: bad.hint.as_deref().map(shown_hint) }
    }

    pub(crate) fn problem(&self, at: At, path: &str, bad: BadValue) {
        let mut problems = self.problems.borrow_mut();
        if problems.len() < PROBLEMS_MAX {
            problems.push(self.at(at, path, bad));
        }
    }

    pub(crate) fn warn(&self, at: At, path: &str, bad: BadValue) {
        let mut warnings = self.warnings.borrow_mut();
        if warnings.len() < PROBLEMS_MAX {
            warnings.push(self.at(at, path, bad));
        }
    }

    /// The text of a scalar with `${NAME}` expanded. `$${` stands for a literal `${`.
    pub(crate) fn text(&self, item: &Item) -> Option<String> {
        let text = match &item.node.kind {
            Kind::Scalar { text, .. } => text,
            Kind::List(_) => return self.wrong_type(item, "one value", "a list"),
            Kind::Map(_) => return self.wrong_type(item, "one value", "a map"),
        };
        let (mut out, mut rest) = (String::new(), text.as_str());
        while let Some(start) = rest.find("${") {
            let (before, after) = (&rest[..start], &rest[start + 2..]);
            if let Some(before) = before.strip_suffix('$') {
                out.push_str(before);
                out.push_str("${");
                rest = after;
                continue;
            }
            out.push_str(before);
            let Some((name, tail)) = after.split_once('}') else {
                self.problem(
                    item.at(),
                    &item.path,
                    BadValue::new("`${` without `}`").hint("`$${` stands for `${`"),
                );
                return None;
            };
            let Some(value) = (self.sources.env)(name) else {
                self.problem(item.at(), &item.path, secrecy::not_set(name));
                return None;
            };
            out.push_str(&value);
            rest = tail;
        }
        out.push_str(rest);
        Some(out)
    }

    pub(crate) fn value<T>(
        &self,
        item: &Item,
        read: impl FnOnce(&str) -> Result<T, BadValue>,
    ) -> Option<T> {
        let text = self.text(item)?;
        let bad = match read(&text) {
            Ok(value) => return Some(value),
            Err(bad) => secrecy::unexpanded(bad, &item.node),
        };
        let bad = BadValue { message: without_userinfo(&bad.message), ..bad };
        let is_folded = matches!(item.node.kind, Kind::Scalar { folded: true, .. });
        let bad = if is_folded { bad.hint(FOLDED) } else { bad };
        self.problem(item.at(), &item.path, bad);
        None
    }

    pub(crate) fn wrong_type<T>(&self, item: &Item, wanted: &str, found: &str) -> Option<T> {
        let bad = BadValue::new(format!("expected {wanted}, found {found}"));
        let hint = match (wanted, &item.node.kind) {
            (_, Kind::Scalar { text, .. }) if text.contains(':') && !text.contains("://") => {
                "a blank belongs behind the colon of a key"
            }
            ("a list", _) => "begin each item with `- `",
            ("one value", Kind::List(_)) => "write the value behind the key, without `- ` or `[ ]`",
            ("one value", _) => "write the value behind the key, in the same line",
            (_, Kind::List(_)) => "write `key: value` without `- `",
            _ => "write `key: value` in the lines below, behind more blanks",
        };
        self.problem(item.at(), &item.path, bad.hint(hint));
        None
    }

    /// The items of a list. A single value counts as a list with one item.
    pub(crate) fn one_or_list(&self, item: &Item) -> Vec<Item> {
        match &item.node.kind {
            Kind::List(nodes) => item.items(nodes),
            Kind::Scalar { .. } | Kind::Map(_) => vec![item.clone()],
        }
    }

    pub(crate) fn list(&self, item: &Item) -> Vec<Item> {
        match &item.node.kind {
            Kind::List(nodes) => item.items(nodes),
            Kind::Scalar { .. } => self.wrong_type(item, "a list", "one value").unwrap_or_default(),
            Kind::Map(_) => self.wrong_type(item, "a list", "a map").unwrap_or_default(),
        }
    }
}

/// A value with its key path.
#[derive(Clone)]
pub(crate) struct Item {
    pub(crate) node: Rc<Node>,
    pub(crate) path: String,
}

impl Item {
    pub(crate) fn at(&self) -> At {
        self.node.at
    }

    /// The entry of a list that may be a short form, such as `${SERVICE}`, with its variables
    /// expanded. An entry with a `=` of its own is split first, so that a message can show its
    /// parts. `None` after a problem.
    pub(crate) fn filled_in(self, cx: &Cx<'_>) -> Option<Self> {
        match &self.node.kind {
            Kind::Scalar { text, .. } if text.contains("${") && !text.contains('=') => {
                let node = Node::filled_in(&cx.text(&self)?, self.at(), text);
                Some(Self { node, path: self.path })
            }
            Kind::Scalar { .. } | Kind::List(_) | Kind::Map(_) => Some(self),
        }
    }

    /// The long form of a pair `LEFT=TARGET`: a map with the keys `left` and `target`. A value
    /// without `=` is the target, and `alone` is then the value of `left`; without `alone` it is
    /// left unchanged.
    pub(crate) fn long(self, left: &str, alone: Option<&str>) -> Self {
        self.pair([left, "target"], alone)
    }

    /// As [`Self::long`], with another key for the right side.
    pub(crate) fn pair(self, [left, right]: [&str; 2], alone: Option<&str>) -> Self {
        let Kind::Scalar { text, .. } = &self.node.kind else { return self };
        let whole = alone.filter(|_| !self.node.is_null()).map(|alone| (alone, text.as_str()));
        let Some((first, target)) = text.split_once('=').or(whole) else { return self };
        let at = self.at();
        let part = |value: &str| match &self.node.written {
            // The text is escaped already.
            Some(written) => Node::filled_in(&value.replace("$${", "${"), at, written),
            None => Node::scalar(value, at),
        };
        let entry =
            |key: &str, value: &str| Entry { key: key.to_owned(), at, value: part(value.trim()) };
        let entries = vec![entry(left, first), entry(right, target)];
        Self { node: Node::new(Kind::Map(entries), at), path: self.path }
    }

    /// A map with this value as its only entry.
    pub(crate) fn keyed(self, key: &str) -> Self {
        let at = self.at();
        let entries = vec![Entry { key: key.to_owned(), at, value: self.node }];
        Self { node: Node::new(Kind::Map(entries), at), path: self.path }
    }

    fn items(&self, nodes: &[Rc<Node>]) -> Vec<Self> {
        let item = |(i, n): (usize, &Rc<Node>)| Self {
            node: Rc::clone(n),
            path: format!("{}[{i}]", self.path),
        };
        nodes.iter().enumerate().map(item).collect()
    }
}

/// A map whose values become a value of this type.
pub(crate) trait FromSection: KeyTable {
    /// Reads the values. `None` only after a problem was reported.
    fn read(s: &Section<'_>) -> Option<Self>;
}

/// A map with a known set of keys.
pub(crate) struct Section<'a> {
    pub(crate) cx: &'a Cx<'a>,
    pub(crate) item: Item,
    /// The place, which decides about some keys.
    place: Option<KeyPlace>,
}

impl<'a> Section<'a> {
    /// Opens a map and checks its keys.
    pub(crate) fn open(cx: &'a Cx<'a>, item: Item, map: KeyMap) -> Option<Self> {
        let Kind::Map(entries) = &item.node.kind else {
            let found =
                if matches!(item.node.kind, Kind::List(_)) { "a list" } else { "one value" };
            return cx.wrong_type(&item, "a map of keys", found);
        };
        let section = Self { cx, item: item.clone(), place: map.at };
        let known: Vec<_> = map.at(map.at).into_iter().map(|row| row.key).collect();
        let mut seen = BTreeSet::new();
        for entry in entries {
            let key = entry.key.as_str();
            let shown_key = if key == "<<" { key.to_owned() } else { secrecy::key(key) };
            let path = section.path(&shown_key);
            if !seen.insert(key) {
                cx.problem(
                    entry.at,
                    &path,
                    BadValue::new("the key is given twice").hint("remove one of them"),
                );
            } else if map.later.contains(&key) {
                cx.problem(
                    entry.at,
                    &path,
                    BadValue::new("this version does not support the key").hint("remove it"),
                );
            } else if !known.contains(&key) {
                let mut bad = unknown("key", key, &known);
                if key == "<<" {
                    bad = BadValue::new("merge keys (`<<`) are not supported");
                    bad = bad.hint("repeat the keys, or use an alias for the whole value");
                } else if key.starts_with(|c: char| c.is_whitespace()) {
                    bad = bad.hint("the line begins with a character that looks like a blank: use blanks alone");
                } else if key.contains(':') {
                    bad = bad.hint("a blank belongs after the colon");
                }
                cx.problem(entry.at, &path, bad);
            }
        }
        Some(section)
    }

    /// A map whose keys were checked already.
    pub(crate) fn quiet(cx: &'a Cx<'a>, item: Item) -> Option<Self> {
        matches!(item.node.kind, Kind::Map(_)).then_some(Self { cx, item, place: None })
    }

    pub(crate) fn path(&self, key: &str) -> String {
        if self.item.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.item.path) }
    }

    pub(crate) fn at(&self) -> At {
        self.item.at()
    }

    /// The value of a key, or of a key in the maps below: `limits.streams`.
    pub(crate) fn key(&self, key: &str) -> Option<Item> {
        let mut node = &self.item.node;
        for key in key.split('.') {
            let Kind::Map(entries) = &node.kind else { return None };
            node = &entries.iter().find(|e| e.key == key && !e.value.is_null())?.value;
        }
        Some(Item { node: Rc::clone(node), path: self.path(key) })
    }

    /// Whether the map has a value under this key.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.key(key).is_some()
    }

    /// The map under a key, whose keys were checked already.
    pub(crate) fn checked(&self, key: &str) -> Option<Self> {
        Self::quiet(self.cx, self.key(key)?)
    }

    /// The items of the list under a key, without a key none. A single value is a problem.
    pub(crate) fn list(&self, key: &str) -> Vec<Item> {
        self.key(key).map(|item| self.cx.list(&item)).unwrap_or_default()
    }

    /// As [`Self::list`]; a single value counts as a list with one item.
    pub(crate) fn one_or_list(&self, key: &str) -> Vec<Item> {
        self.key(key).map(|item| self.cx.one_or_list(&item)).unwrap_or_default()
    }

    /// Opens the map that is the value of a key of `K`.
    pub(crate) fn section<K: KeyTable>(&self, key: &str) -> Option<Self> {
        Self::open(self.cx, self.key(key)?, self.map_of::<K>(key))
    }

    /// The map that is the value of a key of `K`, at the place of this map unless it has its own.
    fn map_of<K: KeyTable>(&self, key: &str) -> KeyMap {
        let map = K::map(key);
        KeyMap { at: map.at.or(self.place), ..map }
    }

    /// Reads a map that is the value of a key.
    pub(crate) fn map<T: FromSection>(&self, key: &str, map: KeyMap) -> Option<T> {
        let map = KeyMap { at: map.at.or(self.place), ..map };
        T::read(&Self::open(self.cx, self.key(key)?, map)?)
    }

    /// As [`Self::map`]; an absent map is one without keys.
    pub(crate) fn map_or_empty<T: FromSection>(&self, key: &str, map: KeyMap) -> Option<T> {
        if self.has(key)
            && let Some(read) = self.map(key, map)
        {
            return Some(read);
        }
        let item = Item { node: Node::new(Kind::Map(Vec::new()), self.at()), path: self.path(key) };
        T::read(&Self { cx: self.cx, item, place: map.at.or(self.place) })
    }

    /// Reads the keys of another type in this map.
    pub(crate) fn flat<T: FromSection>(&self, map: KeyMap) -> Option<T> {
        let place = map.at.or(self.place);
        T::read(&Self { cx: self.cx, item: self.item.clone(), place })
    }

    /// Reads a value. An absent or wrong value has the default, which is the text of a value.
    pub(crate) fn or<T>(
        &self,
        key: &str,
        default: &str,
        read: impl Fn(&str) -> Result<T, BadValue>,
    ) -> Option<T> {
        self.value(key, &read).or_else(|| read(default).ok())
    }

    /// Reads a value that must be present.
    pub(crate) fn required<T>(
        &self,
        key: &str,
        hint: &str,
        read: impl Fn(&str) -> Result<T, BadValue>,
    ) -> Option<T> {
        if !self.has(key) {
            self.missing(key, hint);
        }
        self.value(key, read)
    }

    /// Reads a value, or a list of values, without those that have a problem.
    pub(crate) fn each<T>(&self, key: &str, read: impl Fn(&str) -> Result<T, BadValue>) -> Vec<T> {
        self.one_or_list(key).iter().filter_map(|item| self.cx.value(item, &read)).collect()
    }

    pub(crate) fn value<T>(
        &self,
        key: &str,
        read: impl FnOnce(&str) -> Result<T, BadValue>,
    ) -> Option<T> {
        self.cx.value(&self.key(key)?, read)
    }

    pub(crate) fn parse<T: FromStr<Err = BadValue>>(&self, key: &str) -> Option<T> {
        self.value(key, str::parse)
    }

    pub(crate) fn missing(&self, key: &str, hint: &str) {
        self.cx.problem(self.at(), &self.path(key), BadValue::new("missing").hint(hint));
    }

    pub(crate) fn bad(&self, key: &str, bad: BadValue) {
        self.cx.problem(self.at_key(key), &self.path(key), bad);
    }

    pub(crate) fn warn(&self, key: &str, bad: BadValue) {
        self.cx.warn(self.at_key(key), &self.path(key), bad);
    }

    /// Reports a key that has no effect, if it is present. `why` follows: ` at a name`, or
    /// `: there is one target`.
    pub(crate) fn no_effect(&self, key: &str, why: &str, hint: &str) {
        if self.has(key) {
            self.bad(key, BadValue::new(format!("`{key}` has no effect{why}")).hint(hint));
        }
    }

    /// The position of the value of a key, or of the map.
    fn at_key(&self, key: &str) -> At {
        self.key(key).map_or_else(|| self.at(), |item| item.at())
    }
}
