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
        let (key, value) = match line.split_once(['=', ':']) {
            Some(pair) => pair,
            None if line.contains("{{") => {
                let why = "a template, `{{ … }}`, is read inside of a value alone";
                return Err(Problem::at(file, at, why));
            }
            // frp reads a key without a value as true.
            None => (line, "true"),
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

/// The value without the quotation marks around it. frp supports no comment after a value: a
/// password may contain ` #`.
fn unquoted(value: &str) -> String {
    if let Some((inner, _)) = value.strip_prefix('`').and_then(|rest| rest.rsplit_once('`')) {
        return inner.to_owned();
    }
    let inside = |quote: char| {
        let inner = value.strip_prefix(quote)?.strip_suffix(quote)?;
        (!inner.contains(quote)).then_some(inner)
    };
    inside('"').or_else(|| inside('\'')).unwrap_or(value).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_the_whole_line_as_frp_reads_it() {
        let text = "\u{feff}[common]\r\ntls_enable\r\na = p;w #1\r\nb = \"x y\"\r\n\
                    c = `q\"`\r\nd = \"x\" # y\r\n# e = 1\r\n;f = 1\r\ng: 2\r\n";
        let root = read("f", text).unwrap();
        let value = |key: &str| root.at(&format!("common.{key}"))?.node.as_text();
        assert_eq!(value("tls_enable"), Some("true"));
        assert_eq!(value("a"), Some("p;w #1"));
        assert_eq!(value("b"), Some("x y"));
        assert_eq!(value("c"), Some("q\""));
        assert_eq!(value("d"), Some("\"x\" # y"));
        assert_eq!((value("e"), value("f"), value("g")), (None, None, Some("2")));
        assert!(read("f", "[common]\n{{ range 1 }}\n").is_err());
    }
}
