//! TOML, by the crate `toml`, with the line of each key.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::Problem;
use crate::tree::{DEPTH_MAX, Entry, Kind, Node};

pub(super) fn read(file: &str, text: &str) -> Result<Node, Problem> {
    let lines = Lines::of(text);
    if nests_deeply(text) {
        return Err(Problem::at(file, 1, "brackets are nested too deeply"));
    }
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| lines.at(span.start));
        let mut message = format!("this is no TOML: {}", error.message());
        if text.lines().nth(line - 1).is_some_and(|line| line.contains("{{")) {
            message.push_str(TEMPLATE);
        }
        Problem::at(file, line, message)
    })?;
    node(file, &lines, 1, table.into_inner(), 0)
}

/// frp expands templates before it parses a file.
pub(super) const TEMPLATE: &str =
    " (a template, `{{ … }}`, is read inside of a text alone: write here what it stands for)";

/// Whether brackets are nested deeper than a file needs. Values are dropped recursively.
fn nests_deeply(text: &str) -> bool {
    let mut depth = 0_usize;
    text.bytes().any(|byte| {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'\n' if depth > 0 => {}
            _ => {}
        }
        depth > DEPTH_MAX
    })
}

/// The offsets at which lines begin.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        let after = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Self(std::iter::once(0).chain(after.map(|(at, _)| at + 1)).collect())
    }

    fn at(&self, offset: usize) -> usize {
        self.0.partition_point(|begin| *begin <= offset)
    }
}

fn node(
    file: &str,
    lines: &Lines,
    line: usize,
    table: DeTable<'_>,
    depth: usize,
) -> Result<Node, Problem> {
    if depth > DEPTH_MAX {
        return Err(Problem::at(file, line, "nested too deeply"));
    }
    let mut entries = Vec::new();
    for (key, item) in table {
        let at = key.span().start;
        let line = lines.at(at);
        let node = value(file, lines, item, depth + 1)?;
        entries.push((at, Entry { key: key.into_inner().into_owned(), line, node }));
    }
    // The table is sorted by key; findings and services keep the order of the file.
    entries.sort_by_key(|(at, _)| *at);
    Ok(Node::new(line, Kind::Map(entries.into_iter().map(|(_, entry)| entry).collect())))
}

fn value(
    file: &str,
    lines: &Lines,
    item: Spanned<DeValue<'_>>,
    depth: usize,
) -> Result<Node, Problem> {
    let line = lines.at(item.span().start);
    if depth > DEPTH_MAX {
        return Err(Problem::at(file, line, "nested too deeply"));
    }
    let kind = match item.into_inner() {
        DeValue::String(text) => Kind::Text(text.into_owned()),
        DeValue::Integer(number) if number.radix() == 10 => Kind::Text(number.as_str().to_owned()),
        DeValue::Integer(number) => Kind::Text(number.to_string()),
        DeValue::Float(number) => Kind::Text(number.as_str().to_owned()),
        DeValue::Boolean(is) => Kind::Text(is.to_string()),
        DeValue::Datetime(time) => Kind::Text(time.to_string()),
        DeValue::Array(items) => {
            let items = items.into_iter().map(|item| value(file, lines, item, depth + 1));
            Kind::List(items.collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => return node(file, lines, line, table, depth),
    };
    Ok(Node::new(line, kind))
}
