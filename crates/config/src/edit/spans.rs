//! The position of each value in the text, to the byte, with its delimiters. The positions come
//! from the parser's events. Dashes, colons and block scalar indicators, which the parser does not
//! report, are read from the text.
//!
//! This module need not handle every special case of YAML: a wrong edit is found when the result is
//! parsed again.

use saphyr_parser::{Event, Parser, ScalarStyle};

/// A value in the text.
#[derive(Debug)]
pub(super) struct Node {
    /// The position after the preceding `:`, `-` or `,`: an absent value would be inserted there.
    pub(super) gap: usize,
    /// The first byte of the value, or of its anchor.
    pub(super) start: usize,
    /// The position after the value's last byte.
    pub(super) end: usize,
    pub(super) shape: Shape,
}

#[derive(Debug)]
pub(super) enum Shape {
    /// A key without a value (`key:`).
    Empty,
    Scalar,
    /// A block scalar. `|` or `>` ends at this position; `end` is the end of the last line.
    Block(usize),
    Alias,
    List {
        flow: bool,
        items: Vec<Item>,
    },
    Map {
        flow: bool,
        entries: Vec<Entry>,
    },
}

#[derive(Debug)]
pub(super) struct Item {
    /// Position of the dash; in flow style, the first byte of the item.
    pub(super) start: usize,
    pub(super) value: Node,
}

#[derive(Debug)]
pub(super) struct Entry {
    /// First byte of the key.
    pub(super) start: usize,
    /// Whether there is a `:`. In flow style a key may lack it.
    pub(super) colon: bool,
    pub(super) value: Node,
}

impl Node {
    pub(super) fn child(&self, step: usize) -> Option<&Self> {
        match &self.shape {
            Shape::List { items, .. } => items.get(step).map(|item| &item.value),
            Shape::Map { entries, .. } => entries.get(step).map(|entry| &entry.value),
            Shape::Empty | Shape::Scalar | Shape::Block(_) | Shape::Alias => None,
        }
    }
}

/// Reads a text that is YAML within all limits; `None` if a construct is not understood.
pub(super) fn read(text: &str) -> Option<Node> {
    let mut bytes: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
    bytes.push(text.len());
    let at = |index: usize| bytes.get(index).copied().unwrap_or(text.len());
    let mut events = Vec::new();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.ok()?;
        let is_value = matches!(
            event,
            Event::Alias(_)
                | Event::Scalar(..)
                | Event::SequenceStart(..)
                | Event::SequenceEnd
                | Event::MappingStart(..)
                | Event::MappingEnd
        );
        if is_value {
            events.push((event, at(span.start.index()), at(span.end.index())));
        }
    }
    let mut reader = Reader { text, events: events.into_iter().peekable() };
    reader.node(0)
}

struct Reader<'a, I: Iterator> {
    text: &'a str,
    events: std::iter::Peekable<I>,
}

impl<'a, I: Iterator<Item = (Event<'a>, usize, usize)>> Reader<'a, I> {
    fn node(&mut self, gap: usize) -> Option<Node> {
        let (event, start, end) = self.events.next()?;
        let node = |start, end, shape| Some(Node { gap, start, end, shape });
        match event {
            Event::Alias(_) => node(start, end, Shape::Alias),
            Event::Scalar(text, style, anchor, tag) => match style {
                ScalarStyle::Plain if text.is_empty() && anchor == 0 && tag.is_none() => {
                    node(gap, gap, Shape::Empty)
                }
                ScalarStyle::Plain => node(start, end, Shape::Scalar),
                ScalarStyle::SingleQuoted => node(start, self.quoted(start, '\'')?, Shape::Scalar),
                ScalarStyle::DoubleQuoted => node(start, self.quoted(start, '"')?, Shape::Scalar),
                ScalarStyle::Literal | ScalarStyle::Folded => self.block(gap, end),
            },
            Event::SequenceStart(..) => self.list(gap, self.open(start, end, '[')),
            Event::MappingStart(..) => self.map(gap, start, self.open(start, end, '{')),
            Event::SequenceEnd
            | Event::MappingEnd
            | Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => None,
        }
    }

    /// The first byte of a collection in brackets, and the start of its contents. The parser's span
    /// continues over blanks and comments, and is empty if there is no bracket.
    fn open(&self, start: usize, end: usize, bracket: char) -> Option<(usize, usize)> {
        let at = self.skip(start);
        (at < end && self.text[at..].starts_with(bracket)).then_some((start, at + 1))
    }

    /// The end of a quoted scalar. The parser's span continues after the closing quote.
    fn quoted(&self, start: usize, quote: char) -> Option<usize> {
        let open = start + self.text[start..].find(quote)?;
        let mut chars = self.text[open + 1..].char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            if c == '\\' && quote == '"' {
                chars.next();
            } else if c == quote {
                match chars.peek() {
                    Some((_, '\'')) if quote == '\'' => drop(chars.next()),
                    _ => return Some(open + 1 + at + 1),
                }
            }
        }
        None
    }

    /// A block scalar. The parser's span begins only with the first line of the text.
    fn block(&self, gap: usize, end: usize) -> Option<Node> {
        let start = self.skip(gap);
        let head = self.text[start..]
            .trim_start_matches(['|', '>', '+', '-', '1', '2', '3', '4', '5', '6', '7', '8', '9']);
        let head = self.text.len() - head.len();
        if head == start {
            return None;
        }
        let text = &self.text[..end.max(head)];
        // With `+`, empty lines at the end belong to the scalar.
        let kept = if self.text[start..head].contains('+') {
            text.strip_suffix('\n').unwrap_or(text)
        } else {
            text.trim_end()
        };
        let end = kept.trim_end_matches('\r').len().max(head);
        Some(Node { gap, start, end, shape: Shape::Block(head) })
    }

    fn list(&mut self, gap: usize, flow: Option<(usize, usize)>) -> Option<Node> {
        let mut at = flow.map_or(gap, |(_, open)| open);
        let mut items: Vec<Item> = Vec::new();
        while !matches!(self.events.peek()?.0, Event::SequenceEnd) {
            let dash = self.skip(at);
            if flow.is_none() {
                if !self.text[dash..].starts_with('-') {
                    return None;
                }
                at = dash + 1;
            }
            let value = self.node(at)?;
            at = value.end;
            let start = if flow.is_some() { value.start } else { dash };
            items.push(Item { start, value });
        }
        self.events.next()?;
        let is_flow = flow.is_some();
        let start = flow.map(|(start, _)| start).or_else(|| Some(items.first()?.start))?;
        let end = if is_flow { self.close(at)? } else { at };
        Some(Node { gap, start, end, shape: Shape::List { flow: is_flow, items } })
    }

    fn map(&mut self, gap: usize, at: usize, flow: Option<(usize, usize)>) -> Option<Node> {
        let mut at = flow.map_or(at, |(_, open)| open);
        let mut entries: Vec<Entry> = Vec::new();
        while !matches!(self.events.peek()?.0, Event::MappingEnd) {
            let key = self.node(at)?;
            let colon = self.skip(key.end);
            let has_colon = self.text[colon..].starts_with(':');
            let value = self.node(if has_colon { colon + 1 } else { key.end })?;
            at = value.end;
            entries.push(Entry { start: key.start, colon: has_colon, value });
        }
        self.events.next()?;
        let is_flow = flow.is_some();
        let start = flow.map(|(start, _)| start).or_else(|| Some(entries.first()?.start))?;
        let end = if is_flow { self.close(at)? } else { at };
        Some(Node { gap, start, end, shape: Shape::Map { flow: is_flow, entries } })
    }

    /// The position after the bracket that ends a collection, past a comma before the bracket.
    fn close(&self, at: usize) -> Option<usize> {
        let at = self.skip(at);
        let at = if self.text[at..].starts_with(',') { self.skip(at + 1) } else { at };
        self.text[at..].starts_with([']', '}']).then_some(at + 1)
    }

    /// Skips blanks, line breaks, comments, anchors and tags.
    fn skip(&self, at: usize) -> usize {
        let mut rest = &self.text[at..];
        loop {
            rest = rest.trim_start_matches([' ', '\t', '\r', '\n', '\u{feff}']);
            let first = rest.chars().next();
            let stop: &[char] = match first {
                Some('#') => &['\r', '\n'],
                Some('&' | '!') => &[' ', '\t', '\r', '\n'],
                _ => return self.text.len() - rest.len(),
            };
            rest = &rest[rest.find(stop).unwrap_or(rest.len())..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of every value, depth first.
    fn pieces(text: &str) -> Vec<String> {
        fn walk(text: &str, node: &Node, out: &mut Vec<String>) {
            out.push(text[node.start..node.end].to_owned());
            let mut step = 0;
            while let Some(child) = node.child(step) {
                walk(text, child, out);
                step += 1;
            }
        }
        let mut out = Vec::new();
        walk(text, &read(text).unwrap(), &mut out);
        out.remove(0);
        out
    }

    #[test]
    fn every_value_is_found_to_the_byte() {
        for (text, expected) in [
            ("a: 1 # c\nb: \"ü\" # c\nc: 'it''s'  \n", &["1", "\"ü\"", "'it''s'"][..]),
            ("a: |+ # c\n  x\n\n\nb: >-\r\n  y\r\n\r\n# c\n", &["|+ # c\n  x\n\n", ">-\r\n  y"]),
            ("a: { b: 1, c, \"d\": }\n", &["{ b: 1, c, \"d\": }", "1", "", ""]),
            (
                "a:\n- x\n-\n- - y\n  - &z z\n",
                &["- x\n-\n- - y\n  - &z z", "x", "", "- y\n  - &z z", "y", "&z z"],
            ),
            ("a: &l # c\n  - k: v\n    l: *x\n\n# c\nb:", &[]),
            ("a: [1, # c\n  2]\nb: &x y\nc: *x", &["[1, # c\n  2]", "1", "2", "&x y", "*x"]),
        ] {
            if expected.is_empty() {
                assert!(read(text).is_none(), "{text}");
            } else {
                assert_eq!(pieces(text), expected, "{text}");
            }
        }
    }
}
