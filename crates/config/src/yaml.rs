//! Parses a text into a tree with the position of each value. The tree is built from the parser's
//! events, because the limits (size, depth, expanded aliases) must hold before anything is built,
//! and because a duplicate key must be kept until it is reported.

use std::collections::BTreeMap;
use std::rc::Rc;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Tag};

/// The largest file in bytes. Thousands of clients fit, and a wrong file (a log, a disk) is refused
/// early.
pub const FILE_MAX: usize = 1 << 20;

/// The deepest nesting; the model needs six levels.
const DEPTH_MAX: usize = 32;

/// The largest number of values after the expansion of aliases, so that no small file becomes a
/// large configuration.
const NODES_MAX: usize = 200_000;

/// The number of bytes of text that count as one more value, so that aliases of a long text are
/// bounded as well.
const TEXT_UNIT: usize = 256;

/// The position of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    Text { line: usize, column: usize },
    Flag(&'static str),
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) at: At,
    /// The text of the file before variables were expanded, for messages.
    pub(crate) written: Option<String>,
    /// The number of values in this node after the expansion of aliases, including the node itself.
    size: usize,
    /// The number of levels below after the expansion of aliases. It bounds the recursion of
    /// walking and dropping the tree.
    depth: usize,
}

#[derive(Debug)]
pub(crate) enum Kind {
    /// `folded`: an unquoted text over several lines.
    Scalar {
        text: String,
        plain: bool,
        folded: bool,
    },
    List(Vec<Rc<Node>>),
    Map(Vec<Entry>),
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) at: At,
    pub(crate) value: Rc<Node>,
}

impl Node {
    pub(crate) fn new(kind: Kind, at: At) -> Rc<Self> {
        let size = match &kind {
            Kind::Scalar { text, .. } => 1 + text.len() / TEXT_UNIT,
            Kind::List(items) => 1 + items.iter().map(|n| n.size).sum::<usize>(),
            Kind::Map(entries) => 1 + entries.iter().map(|e| 1 + e.value.size).sum::<usize>(),
        };
        let depth = 1 + match &kind {
            Kind::Scalar { .. } => 0,
            Kind::List(items) => items.iter().map(|n| n.depth).max().unwrap_or(0),
            Kind::Map(entries) => entries.iter().map(|e| e.value.depth).max().unwrap_or(0),
        };
        Rc::new(Self { kind, at, written: None, size, depth })
    }

    /// The text with the values of variables; the file has the text `written`.
    pub(crate) fn filled_in(text: &str, at: At, written: &str) -> Rc<Self> {
        // The value of a variable is not expanded again.
        let text = text.replace("${", "$${");
        let size = 1 + text.len() / TEXT_UNIT;
        let kind = Kind::Scalar { text, plain: false, folded: false };
        Rc::new(Self { kind, at, written: Some(written.to_owned()), size, depth: 1 })
    }

    pub(crate) fn scalar(text: impl Into<String>, at: At) -> Rc<Self> {
        Self::new(Kind::Scalar { text: text.into(), plain: false, folded: false }, at)
    }

    /// The text of a scalar, with its variables unexpanded.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar { text, .. } => Some(text),
            Kind::List(_) | Kind::Map(_) => None,
        }
    }

    /// Whether this is a `key:` without a value, which means the same as a missing key.
    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.kind, Kind::Scalar { text, plain: true, .. } if matches!(text.as_str(), "" | "~" | "null"))
    }
}

/// Why a text is no tree of this crate.
#[derive(Debug)]
pub(crate) enum Unread {
    /// The text is not YAML: the message of the parser, with its line and column.
    Grammar { line: usize, column: usize, info: String },
    /// The text is YAML beyond the bounds or the parts of YAML that this crate reads: a message and
    /// a hint.
    Refused { line: usize, column: usize, refusal: Refusal },
}

/// Parses one document; an empty text is an empty map. `mistakes::parse` explains the error.
pub(crate) fn read(text: &str) -> Result<Rc<Node>, Unread> {
    if text.len() > FILE_MAX {
        return Err(Unread::Refused { line: 1, column: 1, refusal: TOO_LARGE });
    }
    let mut builder = Builder { open: Vec::new(), anchors: BTreeMap::new(), done: None, total: 0 };
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|e: ScanError| Unread::Grammar {
            line: e.marker().line(),
            column: e.marker().col() + 1,
            info: e.info().to_owned(),
        })?;
        let at @ (line, column) = (span.start.line(), span.start.col() + 1);
        let folded = span.end.line() > span.start.line();
        builder.event(event, at, folded).map_err(|refusal| Unread::Refused {
            line,
            column,
            refusal,
        })?;
    }
    let root = builder.done.filter(|n| !n.is_null());
    Ok(root.unwrap_or_else(|| Node::new(Kind::Map(Vec::new()), At::Text { line: 1, column: 1 })))
}

/// A message and a hint.
pub(crate) type Refusal = (&'static str, &'static str);

const TOO_LARGE: Refusal = ("the file is larger than 1 MiB", "is this the right file?");

const TOO_DEEP: Refusal = ("nested too deeply", "is this the right file?");

const INSIDE_ITSELF: Refusal = ("an alias inside its own anchor", "write the value again");

/// The quotation marks that a word processor writes. YAML knows none of them.
const TYPOGRAPHIC: &[char] = &['“', '”', '„', '‘', '’', '«', '»'];

/// Whether the tag is a tag of the YAML core schema for a type that a file may use.
fn is_core(tag: &Tag) -> bool {
    let core = ["str", "int", "float", "bool", "null"];
    tag.is_yaml_core_schema() && core.contains(&tag.suffix.as_str())
}

struct Open {
    at: At,
    anchor: usize,
    /// `None` for a list. For a map, the key whose value comes next.
    key: Option<Option<(String, At)>>,
    items: Vec<Rc<Node>>,
    entries: Vec<Entry>,
}

struct Builder {
    open: Vec<Open>,
    anchors: BTreeMap<usize, Rc<Node>>,
    done: Option<Rc<Node>>,
    total: usize,
}

impl Builder {
    fn event(
        &mut self,
        event: Event<'_>,
        (line, column): (usize, usize),
        folded: bool,
    ) -> Result<(), Refusal> {
        let at = At::Text { line, column };
        match event {
            Event::DocumentStart(_) if self.done.is_some() => Err((
                "a second document; one file is one configuration",
                "remove the line `---` or `...`",
            )),
            // Tags are not used: each key has its type. `!home` would be an empty value.
            Event::Scalar(_, _, _, Some(tag)) if !is_core(&tag) => {
                Err(("a value that begins with `!` is a tag of YAML", "put the value in quotes"))
            }
            Event::Scalar(text, style, anchor, _) => {
                let plain = style == ScalarStyle::Plain;
                let quoted = [ScalarStyle::SingleQuoted, ScalarStyle::DoubleQuoted];
                if plain && text.starts_with(TYPOGRAPHIC) && text.ends_with(TYPOGRAPHIC) {
                    return Err(("quotation marks of a word processor", "write \"…\" or '…'"));
                }
                let folded = folded && !quoted.contains(&style);
                let kind = Kind::Scalar { text: text.into_owned(), plain, folded };
                self.put(Node::new(kind, at), anchor, at)
            }
            Event::Alias(id) => {
                let node = self.anchors.get(&id).cloned().ok_or(INSIDE_ITSELF)?;
                self.put(node, 0, at)
            }
            Event::SequenceStart(anchor, _) => self.enter(at, anchor, None),
            Event::MappingStart(anchor, _) => self.enter(at, anchor, Some(None)),
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else { return Ok(()) };
                let kind = if open.key.is_some() {
                    Kind::Map(open.entries)
                } else {
                    Kind::List(open.items)
                };
                self.put(Node::new(kind, open.at), open.anchor, open.at)
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => Ok(()),
        }
    }

    fn enter(
        &mut self,
        at: At,
        anchor: usize,
        key: Option<Option<(String, At)>>,
    ) -> Result<(), Refusal> {
        if self.open.len() >= DEPTH_MAX {
            return Err(TOO_DEEP);
        }
        self.open.push(Open { at, anchor, key, items: Vec::new(), entries: Vec::new() });
        Ok(())
    }

    fn put(&mut self, node: Rc<Node>, anchor: usize, at: At) -> Result<(), Refusal> {
        // Values are counted at each use, so an alias of a list of aliases cannot double unnoticed:
        // parents hold the sum, and the sum is bounded here before the next level can refer to it.
        self.total = self.total.saturating_add(node.size);
        if self.total > NODES_MAX * DEPTH_MAX || node.size > NODES_MAX {
            return Err(("too many values (aliases unfolded)", "write the values without aliases"));
        }
        if node.depth > DEPTH_MAX {
            return Err(TOO_DEEP);
        }
        if anchor > 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        let Some(open) = self.open.last_mut() else {
            self.done = Some(node);
            return Ok(());
        };
        match &mut open.key {
            None => open.items.push(node),
            Some(slot) => match slot.take() {
                Some((key, at)) => open.entries.push(Entry { key, at, value: node }),
                None => match &node.kind {
                    Kind::Scalar { text, .. } => *slot = Some((text.clone(), at)),
                    Kind::List(_) | Kind::Map(_) => {
                        return Err((
                            "a key must be a plain word",
                            "a key is a word, a colon and a blank",
                        ));
                    }
                },
            },
        }
        Ok(())
    }
}
