//! One operation on the text: the removed bytes and their replacement. The surroundings decide the
//! style: block or flow, the column of the neighbours, the file's line endings.

use std::ops::Range;

use super::render::{self, STEP};
use super::spans::{Node, Shape};
use super::value::Value;

/// An edit in progress.
#[derive(Debug)]
pub(super) struct Cut<'a> {
    text: &'a str,
    newline: &'static str,
    pieces: Vec<(Range<usize>, String)>,
}

/// The key or the list item that holds a value.
#[derive(Clone, Copy, Debug)]
struct Holder {
    /// Whether the parent is written in `[]` or `{}`.
    flow: bool,
    /// Column of the key or dash.
    column: usize,
    /// Whether the parent is a list.
    is_item: bool,
    /// Whether there is a `:` after the key; always true for a list item.
    colon: bool,
}

impl<'a> Cut<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let is_crlf = text.split_once('\n').is_some_and(|(first, _)| first.ends_with('\r'));
        Self { text, newline: if is_crlf { "\r\n" } else { "\n" }, pieces: Vec::new() }
    }

    /// The edited text. Pieces at the same position keep the order of their insertion.
    pub(super) fn finish(mut self) -> Option<String> {
        self.pieces.sort_by_key(|(range, _)| range.start);
        let (mut out, mut at) = (String::with_capacity(self.text.len() + 64), 0);
        for (range, piece) in &self.pieces {
            out.push_str(self.text.get(at..range.start)?);
            out.push_str(piece);
            at = range.end;
        }
        out.push_str(self.text.get(at..)?);
        Some(out)
    }

    /// Replaces the value of a child.
    pub(super) fn replace(&mut self, parent: &Node, step: usize, value: &Value) -> Option<()> {
        let holder = self.holder(parent, step)?;
        let old = parent.child(step)?;
        // Inside braces, a map stays inside braces.
        let old_flow = matches!(&old.shape, Shape::List { flow: true, items } if !items.is_empty())
            || matches!(&old.shape, Shape::Map { flow: true, entries } if !entries.is_empty());
        self.put(holder, old, value, holder.flow || old_flow);
        Some(())
    }

    /// Adds a key to a map.
    pub(super) fn insert_key(&mut self, map: &Node, key: &str, value: &Value) -> Option<()> {
        let Shape::Map { flow, entries } = &map.shape else { return None };
        let last = entries.last()?;
        if *flow {
            self.append_flow(map, last.start, last.value.end, &render::pair(key, value));
        } else {
            let column = self.column(last.start);
            let is_flow = |node: &Node| matches!(node.shape, Shape::Map { flow: true, .. });
            let lines =
                if matches!(value, Value::Map(_)) && entries.iter().any(|e| is_flow(&e.value)) {
                    vec![render::pair(key, value)]
                } else {
                    render::entry(key, value, column)
                };
            self.append_lines(map.end, column, lines);
        }
        Some(())
    }

    /// Inserts an item before the nth item of a list, or after the last item.
    pub(super) fn insert_item(&mut self, list: &Node, nth: usize, value: &Value) -> Option<()> {
        let Shape::List { flow, items } = &list.shape else { return None };
        let last = items.last()?;
        if *flow {
            let text = render::flow(value);
            match items.get(nth) {
                Some(next) => self.insert(next.start, format!("{text}, ")),
                None => self.append_flow(list, last.start, last.value.end, &text),
            }
            return Some(());
        }
        let column = self.column(items.first()?.start);
        let is_flow = |node: &Node| matches!(node.shape, Shape::Map { flow: true, .. });
        let lines = if items.iter().any(|item| is_flow(&item.value)) {
            vec![render::flow(value)]
        } else {
            render::block(value, column + STEP)
        };
        let lines = render::dash(lines);
        match nth.checked_sub(1).map(|before| items.get(before)) {
            // Comments above the next item stay with that item.
            Some(before) => self.append_lines(before?.value.end, column, lines),
            None => {
                let first = items.first()?.start;
                let indent = " ".repeat(column);
                let text = format!("{}{}{indent}", lines.join(self.newline), self.newline);
                self.insert(first, text);
            }
        }
        Some(())
    }

    /// Removes a child, with the comment after it. If this removes the last child, the caller must
    /// write `{}` or `[]`.
    pub(super) fn remove(&mut self, parent: &Node, step: usize) -> Option<()> {
        let (flow, starts, ends): (bool, Vec<usize>, Vec<usize>) = match &parent.shape {
            Shape::List { flow, items } => (
                *flow,
                items.iter().map(|i| i.start).collect(),
                items.iter().map(|i| i.value.end).collect(),
            ),
            Shape::Map { flow, entries } => (
                *flow,
                entries.iter().map(|e| e.start).collect(),
                entries.iter().map(|e| e.value.end).collect(),
            ),
            Shape::Empty | Shape::Scalar | Shape::Block(_) | Shape::Alias => return None,
        };
        let (start, end) = (*starts.get(step)?, *ends.get(step)?);
        let line = self.line_start(start);
        let own_line = self.text[line..start].chars().all(|c| c == ' ' || c == '\t');
        if flow {
            let before = step.checked_sub(1).and_then(|before| ends.get(before)).copied();
            self.remove_flow(start, end, before, own_line.then_some(line));
        } else if own_line {
            self.remove_lines(line, self.line_end(end));
        } else {
            // The child directly follows a dash: the next child moves there.
            let rest = &self.text[self.line_end(end)..];
            let next = rest.find(|c: char| !c.is_ascii_whitespace())?;
            self.cut(start..self.line_end(end) + next);
        }
        Some(())
    }

    fn remove_flow(
        &mut self,
        start: usize,
        end: usize,
        before: Option<usize>,
        line: Option<usize>,
    ) {
        let comma = self.comma(end);
        let behind = comma.map_or(end, |comma| comma + 1);
        let rest = &self.text[behind..];
        let blanks = rest.len() - rest.trim_start_matches([' ', '\t']).len();
        let is_rest_a_comment =
            matches!(rest[blanks..].chars().next(), None | Some('#' | '\r' | '\n'));
        match (line, comma, before) {
            (Some(line), Some(_), _) if is_rest_a_comment => {
                self.remove_lines(line, self.line_end(behind));
            }
            (_, Some(_), _) => self.cut(start..behind + blanks),
            (_, None, Some(before)) if !self.text[before..start].contains('#') => {
                let own_comment = line.is_some() && is_rest_a_comment;
                self.cut(before..if own_comment { self.line_end(end) } else { end });
            }
            (_, None, Some(_)) => self.cut(start..end),
            (_, None, None) => self.cut(start..end + blanks),
        }
    }

    /// The comma after an item in flow style.
    fn comma(&self, end: usize) -> Option<usize> {
        let mut rest = &self.text[end..];
        loop {
            rest = rest.trim_start();
            if !rest.starts_with('#') {
                break;
            }
            rest = &rest[rest.find(['\r', '\n']).unwrap_or(rest.len())..];
        }
        rest.starts_with(',').then(|| self.text.len() - rest.len())
    }

    fn put(&mut self, holder: Holder, old: &Node, value: &Value, flow: bool) {
        let column =
            if holder.is_item { holder.column + STEP } else { self.column_of(holder, old) };
        let lines = if flow || !render::has_lines(value) {
            vec![render::flow(value)]
        } else {
            render::block(value, column)
        };
        // A value of a map's entry begins on the line below its key, if it spans lines of its own.
        let below = !holder.is_item && !flow && render::has_lines(value);
        if holder.flow {
            return self.put_head(holder, old.start..old.end, lines.concat());
        }
        let same_line = !self.text[old.gap..old.start].contains(['\r', '\n']);
        let (mut head, tail) = match &old.shape {
            Shape::Empty => (old.gap..old.gap, self.line_end(old.gap)..self.line_end(old.gap)),
            Shape::Block(head) => (old.start..*head, self.line_end(old.start)..old.end),
            Shape::List { flow: false, .. } | Shape::Map { flow: false, .. } if !same_line => {
                (old.gap..old.gap, self.line_end_before(old.start)..self.line_end(old.end))
            }
            Shape::List { flow: false, .. } | Shape::Map { flow: false, .. } => {
                let end = self.line_end(old.end);
                (old.start..end, end..end)
            }
            Shape::Scalar | Shape::Alias | Shape::List { .. } | Shape::Map { .. } => {
                (old.start..old.end, self.line_end(old.end)..self.line_end(old.end))
            }
        };
        let mut lines = lines.into_iter();
        let first = if below {
            if same_line {
                head.start = old.gap;
            }
            String::new()
        } else {
            lines.next().unwrap_or_default()
        };
        let mut rest = String::new();
        for (i, line) in lines.enumerate() {
            rest.push_str(self.newline);
            if below && i == 0 {
                rest.push_str(&" ".repeat(column));
            }
            rest.push_str(&line);
        }
        self.put_head(holder, head, first);
        self.pieces.push((tail, rest));
    }

    fn put_head(&mut self, holder: Holder, head: Range<usize>, text: String) {
        let is_new = head.is_empty() && !text.is_empty();
        let before = match (is_new, holder.colon) {
            (true, true) => " ",
            (true, false) => ": ",
            (false, _) => "",
        };
        self.pieces.push((head, format!("{before}{text}")));
    }

    /// The column for the lines of a map's value: the column of the old lines, else one level
    /// deeper.
    fn column_of(&self, holder: Holder, old: &Node) -> usize {
        if matches!(old.shape, Shape::Map { flow: false, .. }) {
            return self.column(old.start).max(holder.column + 1);
        }
        holder.column + STEP
    }

    fn holder(&self, parent: &Node, step: usize) -> Option<Holder> {
        Some(match &parent.shape {
            Shape::List { flow, items } => Holder {
                flow: *flow,
                column: self.column(items.get(step)?.start),
                is_item: true,
                colon: true,
            },
            Shape::Map { flow, entries } => {
                let entry = entries.get(step)?;
                let (column, colon) = (self.column(entry.start), entry.colon);
                Holder { flow: *flow, column, is_item: false, colon }
            }
            Shape::Empty | Shape::Scalar | Shape::Block(_) | Shape::Alias => return None,
        })
    }

    /// Appends after the last child in braces: on a new line if the last child has a line of its
    /// own.
    fn append_flow(&mut self, braces: &Node, start: usize, end: usize, text: &str) {
        let line = self.line_start(start);
        let indent = &self.text[line..start];
        let comma = self.comma(end);
        let rest =
            self.text[comma.map_or(end, |comma| comma + 1)..].trim_start_matches([' ', '\t']);
        let ends_line = matches!(rest.chars().next(), None | Some('#' | '\r' | '\n'));
        if line <= braces.start || !indent.trim_start_matches(' ').is_empty() || !ends_line {
            return self.insert(end, format!(", {text}"));
        }
        let newline = self.newline;
        match comma {
            Some(comma) => {
                self.insert(self.line_end(comma), format!("{newline}{indent}{text},"));
            }
            None => {
                self.insert(end, ",".to_owned());
                self.insert(self.line_end(end), format!("{newline}{indent}{text}"));
            }
        }
    }

    /// Appends lines after the line of `end`; the first line is not indented yet.
    fn append_lines(&mut self, end: usize, column: usize, lines: Vec<String>) {
        let text = lines.join(self.newline);
        let text = format!("{}{}{text}", self.newline, " ".repeat(column));
        self.insert(self.line_end(end), text);
    }

    fn insert(&mut self, at: usize, text: String) {
        self.pieces.push((at..at, text));
    }

    fn cut(&mut self, range: Range<usize>) {
        self.pieces.push((range, String::new()));
    }

    /// Removes whole lines, with the line break after them or else the line break before them.
    fn remove_lines(&mut self, start: usize, end: usize) {
        let rest = &self.text[end..];
        let after = rest.strip_prefix("\r\n").or_else(|| rest.strip_prefix(['\r', '\n']));
        match after {
            Some(after) => self.cut(start..self.text.len() - after.len()),
            None => self.cut(self.line_end_before(start)..end),
        }
    }

    fn line_start(&self, at: usize) -> usize {
        self.text[..at].rfind(['\r', '\n']).map_or(0, |found| found + 1)
    }

    fn line_end(&self, at: usize) -> usize {
        self.text[at..].find(['\r', '\n']).map_or(self.text.len(), |found| at + found)
    }

    /// The end of the previous line.
    fn line_end_before(&self, at: usize) -> usize {
        let above = &self.text[..self.line_start(at)];
        let above = above.strip_suffix("\r\n").or_else(|| above.strip_suffix(['\r', '\n']));
        above.map_or(0, str::len)
    }

    /// The column in characters, as the parser counts; a byte order mark does not count.
    fn column(&self, at: usize) -> usize {
        let line = &self.text[self.line_start(at)..at];
        line.chars().filter(|c| *c != '\u{feff}').count()
    }
}
