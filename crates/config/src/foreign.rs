//! A YAML text of another program as a plain tree with lines. The limits of `yaml` hold. `import`
//! reads the files of other programs with it.

use crate::Problem;
use crate::mistakes::parse;
use crate::yaml::{At, Kind, Node};

/// A value of a foreign file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// The line of the value, from 1.
    pub line: usize,
    /// The value itself.
    pub value: ForeignValue,
}

/// The kinds of values. Numbers and truth values are texts, as they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForeignValue {
    /// A key without a value.
    Nothing,
    /// A scalar.
    Text(String),
    /// A list.
    List(Vec<Foreign>),
    /// Keys with their lines, in the order of the file.
    Map(Vec<(String, usize, Foreign)>),
}

/// Reads a YAML text of another program.
///
/// # Errors
/// The text is not YAML, or it is too large, too deep or has too many values.
pub fn foreign(file: &str, text: &str) -> Result<Foreign, Problem> {
    Ok(plain(&*parse(file, text)?))
}

const fn line(at: At) -> usize {
    match at {
        At::Text { line, .. } => line,
        At::Flag(_) => 0,
    }
}

fn plain(node: &Node) -> Foreign {
    let value = match &node.kind {
        Kind::Scalar { .. } if node.is_null() => ForeignValue::Nothing,
        Kind::Scalar { text, .. } => ForeignValue::Text(text.clone()),
        Kind::List(items) => ForeignValue::List(items.iter().map(|item| plain(item)).collect()),
        Kind::Map(entries) => {
            let entry = |e: &crate::yaml::Entry| (e.key.clone(), line(e.at), plain(&e.value));
            ForeignValue::Map(entries.iter().map(entry).collect())
        }
    };
    Foreign { line: line(node.at), value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_has_its_line() {
        let tree = foreign("f", "a: 1\nb:\n  - x\n  - { c: }\n").unwrap();
        let ForeignValue::Map(entries) = tree.value else { panic!("no map") };
        assert_eq!((entries[0].0.as_str(), entries[0].1), ("a", 1));
        let ForeignValue::List(items) = &entries[1].2.value else { panic!("no list") };
        assert_eq!((items[0].line, &items[0].value), (3, &ForeignValue::Text("x".into())));
        let ForeignValue::Map(inner) = &items[1].value else { panic!("no map") };
        assert_eq!((inner[0].1, &inner[0].2.value), (4, &ForeignValue::Nothing));
    }
}
