//! YAML, by the reader of our own configuration files.

use config::{Foreign, ForeignValue, foreign};

use crate::Problem;
use crate::tree::{Entry, Kind, Node};

pub(super) fn read(file: &str, text: &str) -> Result<Node, Problem> {
    match foreign(file, text) {
        Ok(tree) => Ok(plain(tree)),
        Err(problem) => {
            let hint = problem.hint.map(|hint| format!(" (hint: {hint})")).unwrap_or_default();
            Err(Problem::at(file, problem.line, format!("{}{hint}", problem.message)))
        }
    }
}

fn plain(tree: Foreign) -> Node {
    let kind = match tree.value {
        ForeignValue::Nothing => Kind::Nothing,
        ForeignValue::Text(text) => Kind::Text(text),
        ForeignValue::List(items) => Kind::List(items.into_iter().map(plain).collect()),
        ForeignValue::Map(entries) => Kind::Map(
            entries
                .into_iter()
                .map(|(key, line, value)| Entry { key, line, node: plain(value) })
                .collect(),
        ),
    };
    Node::new(tree.line, kind)
}
