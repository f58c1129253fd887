//! INI as frp's earlier versions read it: sections, `key = value`, comments of a whole line.

use crate::Problem;
use crate::tree::{Entry, Kind, Node};

/// A section becomes a map. The sections keep their order and may have the same name.
pub(super) fn read(file: &str, text: &str) -> Result<Node, Problem> {
    let mut sections: Vec<Entry> = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let at = n + 1;
        let line = line.trim().trim_start_matches('\u{feff}');
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            let name = name.split(']').next().unwrap_or_default().trim().to_owned();
            let node = Node::new(at, Kind::Map(Vec::new()));
            sections.push(Entry { key: name, line: at, node });
            continue;
        }
        let Some((key, value)) = line.split_once(['=', ':']) else {
            let why = if line.contains("{{") {
                "a template, `{{ … }}`, is read inside of a value alone"
            } else {
                "neither a section nor `key = value`"
            };
            return Err(Problem::at(file, at, why));
        };
        let Some(section) = sections.last_mut() else {
            return Err(Problem::at(file, at, "a value before the first section"));
        };
        if let Kind::Map(entries) = &mut section.node.kind {
            let node = Node::text(at, unquoted(value.trim()));
            entries.push(Entry { key: key.trim().to_owned(), line: at, node });
        }
    }
    Ok(Node::new(1, Kind::Map(sections)))
}

/// The value without its quotation marks and without a comment behind it.
fn unquoted(value: &str) -> String {
    for quote in ['"', '\'', '`'] {
        if let Some(rest) = value.strip_prefix(quote)
            && let Some((inner, _)) = rest.split_once(quote)
        {
            return inner.to_owned();
        }
    }
    let comment = [" #", " ;", "\t#", "\t;"].iter().filter_map(|mark| value.find(mark)).min();
    value[..comment.unwrap_or(value.len())].trim_end().to_owned()
}
