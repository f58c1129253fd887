//! Reads a text as JSON into the tree that the decoder of files reads. JSON has no aliases, tags
//! and variables, so the text of another machine cannot unfold to more than it has. A value has no
//! position: problems name it by its key path.

use std::fmt;
use std::rc::Rc;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::yaml::{At, Entry, Kind, Node};

/// The position of each value.
pub(crate) const NOWHERE: At = At::Text { line: 0, column: 0 };

/// Parses one document. The parser bounds the nesting at 128 levels.
///
/// # Errors
/// The text is not JSON: what the parser expected, with line and column.
pub(crate) fn read(text: &str) -> Result<Rc<Node>, String> {
    let read: Result<JsonNode, _> = serde_json::from_str(text);
    read.map(|JsonNode(node)| node).map_err(|why| why.to_string())
}

struct JsonNode(Rc<Node>);

impl<'de> Deserialize<'de> for JsonNode {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Values).map(JsonNode)
    }
}

struct Values;

/// A number or a word. Quotation marks in JSON say that a value is a text; the decoder reads the
/// type that a key has.
fn plain(value: impl ToString) -> Rc<Node> {
    Node::new(Kind::Scalar { text: value.to_string(), plain: true, folded: false }, NOWHERE)
}

impl<'de> Visitor<'de> for Values {
    type Value = Rc<Node>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Rc<Node>, E> {
        Ok(plain("null"))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Rc<Node>, E> {
        Ok(plain(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Rc<Node>, E> {
        Ok(plain(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Rc<Node>, E> {
        Ok(plain(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Rc<Node>, E> {
        Ok(plain(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Rc<Node>, E> {
        Ok(Node::scalar(value, NOWHERE))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Rc<Node>, A::Error> {
        let mut list = Vec::new();
        while let Some(JsonNode(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::new(Kind::List(list), NOWHERE))
    }

    /// A key that is given twice stays twice, so that the decoder can report it.
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Rc<Node>, A::Error> {
        let mut map = Vec::new();
        while let Some((key, JsonNode(value))) = entries.next_entry()? {
            map.push(Entry { key, at: NOWHERE, value });
        }
        Ok(Node::new(Kind::Map(map), NOWHERE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(node: &Node) -> String {
        match &node.kind {
            Kind::Scalar { text, plain: true, .. } => text.clone(),
            Kind::Scalar { text, plain: false, .. } => format!("'{text}'"),
            Kind::List(items) => {
                format!("[{}]", items.iter().map(|item| shown(item)).collect::<Vec<_>>().join(" "))
            }
            Kind::Map(entries) => {
                let entry = |entry: &Entry| format!("{}:{}", entry.key, shown(&entry.value));
                format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(" "))
            }
        }
    }

    #[test]
    fn each_value_of_json_is_a_value_of_the_tree() {
        let text = "{\t\"a\": [1, -2, 1.5, true, null, \"\\/\\uD83D\\uDE00\\n\"],\r\n\"b\":{\"c\":{}},\"b\":[]}";
        let read = read(text).unwrap();
        assert_eq!(shown(&read), "{a:[1 -2 1.5 true null '/😀\n'] b:{c:{}} b:[]}");
    }

    #[test]
    fn a_text_that_is_not_json_is_refused_also_where_it_is_yaml() {
        for text in [
            "",
            "a: b",
            "<html>",
            "{a: b}",
            "{\"a\": &x 1}",
            "{} {}",
            "[1,]",
            "{\"a\"",
            "\"\u{1}\"",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        let deep = "[".repeat(100_000);
        assert!(read(&deep).is_err());
    }
}
