//! A configuration's tree without positions, like JSON. Operations carry such values, pointers are
//! resolved in such a tree, and the result of an edit is compared with the same operation on the
//! tree.

use std::fmt;

use crate::yaml::{Kind, Node};

/// A JSON value. Keys keep their order.
#[derive(Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of JSON")]
pub enum Value {
    Null,
    Bool(bool),
    /// The number as written, in JSON's grammar.
    Number(String),
    Text(String),
    List(Vec<Self>),
    Map(Vec<(String, Self)>),
}

impl fmt::Debug for Value {
    /// Shows the type without the content, which may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Null => "Null",
            Self::Bool(_) => "Bool",
            Self::Number(_) => "Number",
            Self::Text(_) => "Text",
            Self::List(_) => "List",
            Self::Map(_) => "Map",
        })
    }
}

impl Value {
    /// The value of a text without quotes.
    pub(super) fn plain(text: &str) -> Self {
        match text {
            "" | "~" | "null" => Self::Null,
            "true" => Self::Bool(true),
            "false" => Self::Bool(false),
            _ if is_number(text) => Self::Number(text.to_owned()),
            _ => Self::Text(text.to_owned()),
        }
    }

    pub(super) fn is_collection(&self) -> bool {
        matches!(self, Self::List(_) | Self::Map(_))
    }

    /// The number of levels, including this one.
    pub(super) fn depth(&self) -> usize {
        1 + match self {
            Self::List(items) => items.iter().map(Self::depth).max().unwrap_or(0),
            Self::Map(entries) => entries.iter().map(|(_, v)| v.depth()).max().unwrap_or(0),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_) => 0,
        }
    }

    /// Whether any text or key in this value contains `what`.
    pub(super) fn mentions(&self, what: &str) -> bool {
        match self {
            Self::Text(text) => text.contains(what),
            Self::List(items) => items.iter().any(|item| item.mentions(what)),
            Self::Map(entries) => {
                entries.iter().any(|(key, value)| key.contains(what) || value.mentions(what))
            }
            Self::Null | Self::Bool(_) | Self::Number(_) => false,
        }
    }

    /// Adds all keys and single values, one per line.
    pub(super) fn add_words(&self, words: &mut String) {
        match self {
            Self::Text(text) | Self::Number(text) => {
                words.push('\n');
                words.push_str(text);
            }
            Self::List(items) => items.iter().for_each(|item| item.add_words(words)),
            Self::Map(entries) => {
                for (key, value) in entries {
                    words.push('\n');
                    words.push_str(key);
                    value.add_words(words);
                }
            }
            Self::Null | Self::Bool(_) => {}
        }
    }

    /// Whether any single value in this value satisfies the condition.
    pub(super) fn has_text(&self, is: &dyn Fn(&str) -> bool) -> bool {
        match self {
            Self::Text(text) | Self::Number(text) => is(text),
            Self::Bool(value) => is(if *value { "true" } else { "false" }),
            Self::List(items) => items.iter().any(|item| item.has_text(is)),
            Self::Map(entries) => entries.iter().any(|(_, value)| value.has_text(is)),
            Self::Null => false,
        }
    }

    pub(super) fn child(&self, step: usize) -> Option<&Self> {
        match self {
            Self::List(items) => items.get(step),
            Self::Map(entries) => entries.get(step).map(|(_, value)| value),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_) => None,
        }
    }

    pub(super) fn child_mut(&mut self, step: usize) -> Option<&mut Self> {
        match self {
            Self::List(items) => items.get_mut(step),
            Self::Map(entries) => entries.get_mut(step).map(|(_, value)| value),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_) => None,
        }
    }
}

impl From<&Node> for Value {
    fn from(node: &Node) -> Self {
        match &node.kind {
            Kind::Scalar { text, plain: true, .. } => Self::plain(text),
            Kind::Scalar { text, plain: false, .. } => Self::Text(text.clone()),
            Kind::List(items) => Self::List(items.iter().map(|n| Self::from(&**n)).collect()),
            Kind::Map(entries) => {
                let pair = |e: &crate::yaml::Entry| (e.key.clone(), Self::from(&*e.value));
                Self::Map(entries.iter().map(pair).collect())
            }
        }
    }
}

/// Equality of JSON values, in any order of keys (RFC 6902 section 4.6).
pub(super) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::List(a), Value::List(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Map(a), Value::Map(b)) => {
            let has = |(key, value): &(String, Value)| {
                b.iter().any(|(other, found)| key == other && same(value, found))
            };
            a.len() == b.len() && a.iter().all(has)
        }
        _ => one == other,
    }
}

/// JSON's grammar for numbers (RFC 8259 section 6), with a limit on the length that every reader
/// can handle.
fn is_number(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    text.len() <= 24
        && digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(digits)
        && exponent.is_none_or(|e| digits(e.strip_prefix(['+', '-']).unwrap_or(e)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_what_json_calls_one() {
        for good in ["0", "-1", "10", "1.5", "1e9", "2E-3", "-0.0"] {
            assert!(is_number(good), "{good}");
        }
        for bad in ["", "-", "007", "1.", ".5", "1e", "+1", "0x1F", "1_000", "10s", "1 2", "٣"] {
            assert!(!is_number(bad), "{bad}");
        }
    }

    #[test]
    fn nothing_of_a_value_is_printed_by_accident() {
        assert_eq!(format!("{:?}", Value::Text("q7Xb2LmZ".into())), "Text");
    }
}
