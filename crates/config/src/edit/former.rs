//! Finds the value of the text before a change that has the same key path as a value of the text
//! after it. Items of lists are identified by their naming key, because their indexes change.
//!
//! Two rules need it: `(secret)` in a new text stands for the secret that was under the same key
//! path and for no other, and a variable of the environment is allowed only where it was before.

use std::rc::Rc;

use crate::Problem;
use crate::mistakes::parse;
use crate::problem::shown;
use crate::secret::SECRET;
use crate::yaml::{At, Kind, Node};

/// The keys that name an item of a list; the first present key is used.
const NAMES: &[&str] = &["name", "url", "listen", "service", "cert", "domain"];

/// The values that had the key path of a value before the change.
type Former<'a> = Vec<&'a Node>;

fn below<'a>(former: &[&'a Node], key: &str) -> Former<'a> {
    let maps = former.iter().filter_map(|node| match &node.kind {
        Kind::Map(entries) => Some(entries),
        Kind::Scalar { .. } | Kind::List(_) => None,
    });
    let of_key = maps.flatten().filter(|entry| entry.key == key);
    of_key.map(|entry| &*entry.value).collect()
}

/// The items of lists. A single value counts as a list with one item.
fn items<'a>(former: &[&'a Node]) -> Former<'a> {
    let mut all = Vec::new();
    for node in former {
        match &node.kind {
            Kind::List(items) => all.extend(items.iter().map(|item| &**item)),
            Kind::Scalar { .. } | Kind::Map(_) => all.push(*node),
        }
    }
    all
}

/// The former items that an item may correspond to.
fn of_item<'a>(items: &[&'a Node], item: &Node) -> Former<'a> {
    let name = name(item);
    items.iter().filter(|former| self::name(former) == name).copied().collect()
}

/// The identity of an item: its naming key and the value.
fn name(item: &Node) -> Option<(&str, &str)> {
    let Kind::Map(entries) = &item.kind else { return None };
    NAMES.iter().find_map(|key| {
        let entry = entries.iter().find(|entry| entry.key == *key)?;
        Some((entry.key.as_str(), entry.value.text()?))
    })
}

/// Whether `filled_in`, which is `typed` with its hidden values filled in, has for each [`SECRET`]
/// a value that was under the same key path, and equals `typed` elsewhere.
///
/// # Errors
/// Otherwise the line, from 1, of a value that differs.
pub(super) fn check_filled_in(typed: &Node, filled_in: &Node, before: &Node) -> Result<(), usize> {
    filled(typed, filled_in, &[before])
}

fn filled(typed: &Node, real: &Node, former: &[&Node]) -> Result<(), usize> {
    let wrong = || match typed.at {
        At::Text { line, .. } => line,
        At::Flag(_) => 1,
    };
    match (&typed.kind, &real.kind) {
        (Kind::Scalar { text, .. }, Kind::Scalar { text: real, .. }) => {
            let stood =
                |node: &Node| matches!(&node.kind, Kind::Scalar { text, .. } if text == real);
            let is_right = text == real || text == SECRET && items(former).into_iter().any(stood);
            if is_right { Ok(()) } else { Err(wrong()) }
        }
        (Kind::List(typed), Kind::List(real)) if typed.len() == real.len() => {
            let former = items(former);
            let mut pairs = typed.iter().zip(real).filter(|(item, _)| mentions(item, SECRET));
            pairs.try_for_each(|(item, real)| filled(item, real, &of_item(&former, item)))
        }
        (Kind::Map(typed), Kind::Map(real)) if typed.len() == real.len() => {
            for (entry, real) in typed.iter().zip(real) {
                if entry.key != real.key {
                    return Err(wrong());
                }
                filled(&entry.value, &real.value, &below(former, &entry.key))?;
            }
            Ok(())
        }
        _ => Err(wrong()),
    }
}

fn mentions(node: &Node, what: &str) -> bool {
    match &node.kind {
        Kind::Scalar { text, .. } => text.contains(what),
        Kind::List(items) => items.iter().any(|item| mentions(item, what)),
        Kind::Map(entries) => {
            entries.iter().any(|entry| entry.key.contains(what) || mentions(&entry.value, what))
        }
    }
}

/// The error for the first value of a changed text that has an environment variable where there was
/// none. Variables are expanded in a file or a flag that its owner has written; a change by a
/// request must not read them.
#[must_use]
pub fn added_variable(file: &str, before: &str, after: &str) -> Option<Problem> {
    if !has_variable(after) {
        return None;
    }
    let empty = || Node::new(Kind::Map(Vec::new()), At::Flag(""));
    let before: Rc<Node> = parse(file, before).unwrap_or_else(|_| empty());
    // The parser reports a text that is not YAML.
    let after = parse(file, after).ok()?;
    added(file, &after, &[&before], "")
}

fn added(file: &str, node: &Node, former: &[&Node], path: &str) -> Option<Problem> {
    match &node.kind {
        Kind::Scalar { text, .. } if has_variable(text) => {
            let stood =
                |node: &Node| matches!(&node.kind, Kind::Scalar { text: old, .. } if old == text);
            (!items(former).into_iter().any(stood)).then(|| problem(file, node.at, path))
        }
        Kind::Scalar { .. } => None,
        Kind::List(all) => {
            let former = items(former);
            let mut all = all.iter().enumerate().filter(|(_, item)| mentions(item, "${"));
            all.find_map(|(n, item)| {
                added(file, item, &of_item(&former, item), &format!("{path}[{n}]"))
            })
        }
        Kind::Map(entries) => entries.iter().find_map(|entry| {
            let dot = if path.is_empty() { "" } else { "." };
            let path = format!("{path}{dot}{}", entry.key);
            added(file, &entry.value, &below(former, &entry.key), &path)
        }),
    }
}

/// Whether the decoder would expand a variable.
#[must_use]
pub fn has_variable(text: &str) -> bool {
    text.match_indices("${").any(|(at, _)| !text[..at].ends_with('$'))
}

/// The message about a variable in a text that comes by a request.
pub(crate) const NO_VARIABLE: &str = "a variable of the environment is filled in only where a file or a flag is loaded, and not in \
     what comes by the API or by a command to a running daemon";

/// The remedy.
pub(crate) const NO_VARIABLE_HINT: &str = "write the value; or put the variable into the file by an editor, and reload; `$${` stands for \
     `${`";

fn problem(file: &str, at: At, path: &str) -> Problem {
    let (line, column) = match at {
        At::Text { line, column } => (line, column),
        At::Flag(_) => (0, 0),
    };
    let (file, key_path) = (file.to_owned(), shown(path));
    let (message, hint) = (NO_VARIABLE.to_owned(), Some(NO_VARIABLE_HINT.to_owned()));
    Problem { file, line, column, key_path, message, hint }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "state_dir: ${STATE}\nservices:\n- { name: a, target: \"unix://${A}/x\" }\n\
                          - { name: b, basic_auth: [\"ann:${P}\", \"bob:x\"] }\n- \"1=${T}\"\n";

    #[test]
    fn a_variable_stays_where_it_was_and_comes_nowhere_else() {
        for same in [
            BEFORE,
            "services:\n- \"1=${T}\"\n- { name: b, basic_auth: \"ann:${P}\" }\nstate_dir: ${STATE}\n",
            "workers: 2\nservices: [{ name: a, target: \"unix://${A}/x\", idle: 1 }]\n",
            "services: [{ name: c, target: \"unix://$${A}/x\" }]\n",
            "services: [{ name: ${ \n",
        ] {
            assert_eq!(added_variable("f", BEFORE, same), None, "{same}");
        }
        for (other, at) in [
            ("control: ${STATE}\n", "control"),
            ("state_dir: /x${STATE}\n", "state_dir"),
            ("services: [{ name: c, target: \"unix://${A}/x\" }]\n", "services[0].target"),
            (
                "services: [{ name: a, target: \"unix://${A}/x\", path: \"${A}\" }]\n",
                "services[0].path",
            ),
            ("services: [{ name: a, basic_auth: \"ann:${P}\" }]\n", "services[0].basic_auth"),
            ("services: [{ name: b }, \"2=${T}\"]\n", "services[1]"),
        ] {
            let problem = added_variable("f", BEFORE, other).expect(other);
            assert_eq!(problem.key_path, at, "{other}");
            assert!(!problem.to_string().contains("STATE"), "{problem}");
        }
        assert!(added_variable("f", "[", "a: ${B}\n").is_some(), "what cannot be read has none");
    }
}
