//! The path of an operation: JSON Pointer (RFC 6901), extended by the names of list items.
//!
//! In a list, a segment of digits is an index, `-` is the place after the last item, and any other
//! segment is the `name` of an item. An item whose name is `-` or consists of digits is reached by
//! its index.

use super::value::Value;

/// The target of a pointer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Location {
    /// The whole document.
    Root,
    /// An existing child: the path of its collection, and the child's index.
    There(Vec<usize>, usize),
    /// A missing key: the path of the map, and the key.
    Key(Vec<usize>, String),
    /// The end of a list: the path of the list, and its number of items.
    End(Vec<usize>, usize),
}

/// Whether the text is a valid pointer, whether or not it points to anything. The error is a
/// message for the user.
pub(super) fn syntax(pointer: &str) -> Result<(), String> {
    if pointer.is_empty() {
        return Ok(());
    }
    let Some(rest) = pointer.strip_prefix('/') else {
        return Err("a path begins with `/` (RFC 6901)".to_owned());
    };
    rest.split('/').try_for_each(|segment| unescape(segment).map(drop))
}

/// Resolves a pointer. The error is a message for the user.
pub(super) fn resolve(root: &Value, pointer: &str) -> Result<Location, String> {
    if pointer.is_empty() {
        return Ok(Location::Root);
    }
    syntax(pointer)?;
    let rest = pointer.strip_prefix('/').unwrap_or(pointer);
    let (mut node, mut steps) = (root, Vec::new());
    let mut segments = rest.split('/').peekable();
    while let Some(raw) = segments.next() {
        let segment = unescape(raw)?;
        let is_last = segments.peek().is_none();
        let step = match node {
            Value::Map(entries) => {
                let mut found = (0..entries.len()).filter(|i| entries[*i].0 == segment);
                match (found.next(), found.next()) {
                    (Some(_), Some(_)) => return Err("the key is given twice".to_owned()),
                    (Some(step), None) => step,
                    (None, _) if is_last => return Ok(Location::Key(steps, segment)),
                    (None, _) => return Err(nothing()),
                }
            }
            Value::List(items) if segment == "-" => {
                return if is_last {
                    Ok(Location::End(steps, items.len()))
                } else {
                    Err(nothing())
                };
            }
            Value::List(items) => match item(items, &segment)? {
                step if step < items.len() => step,
                step if step == items.len() && is_last => return Ok(Location::End(steps, step)),
                _ => return Err(nothing()),
            },
            Value::Null => return Err("there is only an empty value above it".to_owned()),
            Value::Bool(_) | Value::Number(_) | Value::Text(_) => {
                return Err("what is above it is one value, no list and no map".to_owned());
            }
        };
        if is_last {
            return Ok(Location::There(steps, step));
        }
        node = node.child(step).ok_or_else(nothing)?;
        steps.push(step);
    }
    Err(nothing())
}

fn nothing() -> String {
    "there is nothing of this name".to_owned()
}

fn unescape(segment: &str) -> Result<String, String> {
    let mut out = String::with_capacity(segment.len());
    let mut chars = segment.chars();
    while let Some(c) = chars.next() {
        out.push(match (c, c == '~') {
            (c, false) => c,
            _ => match chars.next() {
                Some('0') => '~',
                Some('1') => '/',
                _ => return Err("`~` is written `~0`, and `/` in a key `~1` (RFC 6901)".to_owned()),
            },
        });
    }
    Ok(out)
}

fn item(items: &[Value], segment: &str) -> Result<usize, String> {
    if !segment.is_empty() && segment.bytes().all(|b| b.is_ascii_digit()) {
        let plain = segment == "0" || !segment.starts_with('0');
        let index = segment.parse().ok().filter(|_| plain);
        return index.ok_or_else(|| "not an index: digits without a zero in front".to_owned());
    }
    let is_named = |item: &Value| match item {
        Value::Map(entries) => entries
            .iter()
            .any(|(key, value)| key == "name" && matches!(value, Value::Text(t) if t == segment)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::List(_) => false,
    };
    let mut found = (0..items.len()).filter(|i| is_named(&items[*i]));
    match (found.next(), found.next()) {
        (Some(_), Some(_)) => Err("two have this name: point by index".to_owned()),
        (Some(index), None) => Ok(index),
        (None, _) => Err(nothing()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mistakes::parse;

    fn at(text: &str, pointer: &str) -> Result<Location, String> {
        resolve(&Value::from(&*parse("f", text).unwrap()), pointer)
    }

    #[test]
    fn a_pointer_leads_by_keys_indexes_and_names() {
        let text = "a/b: { \"~\": 1 }\nl: [{ name: x, v: 1 }, { name: \"7\" }, { name: y }]\n";
        assert_eq!(at(text, ""), Ok(Location::Root));
        assert_eq!(at(text, "/a~1b/~0"), Ok(Location::There(vec![0], 0)));
        assert_eq!(at(text, "/l/y"), Ok(Location::There(vec![1], 2)));
        assert_eq!(at(text, "/l/x/v"), Ok(Location::There(vec![1, 0], 1)));
        assert_eq!(at(text, "/l/-"), Ok(Location::End(vec![1], 3)));
        assert_eq!(at(text, "/l/3"), Ok(Location::End(vec![1], 3)));
        assert_eq!(at(text, "/new"), Ok(Location::Key(vec![], "new".into())));
        assert_eq!(at(text, "/"), Ok(Location::Key(vec![], String::new())));
        for bad in ["a", "/l/7", "/l/01", "/l/z", "/l/-/v", "/l/4", "/n/m", "/a~2", "/a~1b/~0/x"] {
            assert!(at(text, bad).is_err(), "{bad}");
        }
        assert!(at("l: [{ name: x }, { name: x }]\n", "/l/x").is_err());
        assert!(at("a: 1\na: 2\n", "/a").is_err());
    }
}
