//! Edits a configuration's text in place, by operations like those of JSON Patch (RFC 6902).
//! Comments, order and formatting of the other parts stay.
//!
//! ```text
//!   text ──► tree ──► operation applied ─────────────► expected tree
//!    │                                                      ‖ must be the same
//!    └──► spans ──► bytes out, bytes in ──► new text ──► its tree
//! ```
//!
//! The comparison makes editing safe: an anchor with an alias or an unusual style leads to an
//! error, never to a file with a different meaning.
//!
//! | module | what |
//! |---|---|
//! | `allow` | adds rights to a client |
//! | `deny` | takes rights away from a client |
//! | `lists` | adds and removes services and forwards of a client |
//! | `client` | sets the tokens and the limits of a client |
//! | `pointer` | resolves the path of an operation |
//! | `value` | a tree without positions, and the operations on it |
//! | `spans` | the position of each value in the text |
//! | `cut` | an operation on the text |
//! | `render` | values as YAML |
//! | `view` | a text without its secrets, the way back, and differences |
//! | `former` | which value stood before under the key path of a value |
//! | `salted` | the text after operations, in which no secret of theirs equals a secret before |
//! | `redact` | a file as JSON without its secrets |

mod allow;
mod client;
mod cut;
mod deny;
pub(crate) mod former;
mod lists;
mod pointer;
#[cfg(test)]
mod random;
mod redact;
pub(crate) mod render;
mod salted;
mod spans;
#[cfg(test)]
mod tests;
mod value;
mod view;

use std::fmt;

use crate::Problem;
use crate::mistakes::parse;
use crate::problem::shown;
use crate::secrets::Secrets;
use cut::Cut;
use pointer::Location;
use spans::{Node, Shape};

pub use crate::secret::SECRET;
pub use allow::{NewRights, allow};
pub use client::{LIMITS, limit, set_tokens};
pub use deny::deny;
pub use former::{added_variable, has_variable};
pub use lists::{list_text, publish, unpublish};
pub use redact::show;
pub use render::file;
pub use salted::salted;
pub use value::Value;
pub use view::{Line, Restored, Step, Unknown, changed_keys, compared, masked, restored};

/// The largest number of operations in one request; each operation parses the text again.
pub const OPERATIONS_MAX: usize = 100;

/// The deepest nesting of an operation's value; the file has the same limit.
const DEPTH_MAX: usize = 32;

/// One operation of an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// JSON Pointer (RFC 6901). In a list, an item's `name` works as well as its index.
    pub path: String,
    /// The change at that path.
    pub action: Action,
}

/// The change of an operation (RFC 6902, without `move` and `copy`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sets a key of a map, whether or not it exists, or inserts an item into a list before the
    /// item at the path.
    Add(Value),
    /// Replaces an existing value.
    Replace(Value),
    /// Removes a value.
    Remove,
    /// Continues only if the value is equal to this value. Secrets are not compared.
    Test(Value),
}

impl Operation {
    fn add(path: String, value: Value) -> Self {
        Self { path, action: Action::Add(value) }
    }

    const fn remove(path: String) -> Self {
        Self { path, action: Action::Remove }
    }

    /// The path and all texts of the operation, which its author knows.
    #[must_use]
    pub fn words(&self) -> String {
        let mut words = self.path.clone();
        if let Action::Add(value) | Action::Replace(value) | Action::Test(value) = &self.action {
            value.add_words(&mut words);
        }
        words
    }
}

impl fmt::Display for Operation {
    /// Shows action and path without the value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.action {
            Action::Add(_) => "add",
            Action::Replace(_) => "replace",
            Action::Remove => "remove",
            Action::Test(_) => "test",
        };
        write!(f, "{what} {}", shown(&self.path))
    }
}

/// The reason why nothing was edited.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The file is not YAML.
    #[error("{0}")]
    File(Problem),
    /// An operation cannot be carried out.
    #[error("{0}")]
    Refused(String),
    /// A `test` found a different value.
    #[error("{0}")]
    TestFailed(String),
}

/// Checks that one request may have this number of operations.
///
/// # Errors
/// A message for the user.
pub fn check_number(operations: usize) -> Result<(), String> {
    if operations > OPERATIONS_MAX {
        return Err(format!("{operations} operations: at most {OPERATIONS_MAX} at a time"));
    }
    Ok(())
}

/// Checks that the text is a valid path of an operation, whether or not it exists in a file.
///
/// # Errors
/// A message for the user.
pub fn check_path(text: &str) -> Result<(), String> {
    pointer::syntax(text)
}

/// Applies all operations in their order, or none. `file` is the file's name in problems.
///
/// # Errors
/// The first operation that cannot be carried out. No message contains a value of the file or of an
/// operation.
pub fn edit(file: &str, text: &str, operations: &[Operation]) -> Result<String, EditError> {
    check_number(operations.len()).map_err(EditError::Refused)?;
    let mut tree = read(file, text).map_err(EditError::File)?;
    let mut text = text.to_owned();
    for (i, operation) in operations.iter().enumerate() {
        let named = |why: &str| format!("operation {i} ({}): {why}", shown(&operation.path));
        if let Action::Test(expected) = &operation.action {
            let secrets = Secrets::of_text(&text, &|_| None);
            if !is(&tree, &operation.path, expected, &secrets)
                .map_err(|why| refused(named(&why)))?
            {
                return Err(EditError::TestFailed(named("something else stands there")));
            }
            continue;
        }
        text = one(&text, &mut tree, operation).map_err(|why| refused(named(&why)))?;
    }
    Ok(text)
}

/// A text as a tree. Unlike [`show`], the tree contains the secrets.
///
/// # Errors
/// The text is not YAML, or exceeds the limits.
pub fn tree(file: &str, text: &str) -> Result<Value, Problem> {
    read(file, text)
}

fn refused(why: String) -> EditError {
    EditError::Refused(why)
}

fn read(file: &str, text: &str) -> Result<Value, Problem> {
    parse(file, text).map(|root| Value::from(&*root))
}

/// Whether the value at `path` is `expected`. A value that holds a secret is not compared: the
/// answer would tell whether a guess is right.
fn is(tree: &Value, path: &str, expected: &Value, secrets: &Secrets) -> Result<bool, String> {
    check(expected)?;
    let found = match pointer::resolve(tree, path)? {
        Location::Root => Some(tree),
        Location::There(steps, step) => at(tree, &steps).and_then(|parent| parent.child(step)),
        Location::Key(..) | Location::End(..) => None,
    };
    if found.is_some_and(|found| found.has_text(&|text| secrets.has_value(text))) {
        return Err(
            "a secret stands there, and `test` compares no secrets: test another value, or \
                    send the change with the entity tag of the file (`If-Match`)"
                .to_owned(),
        );
    }
    Ok(found.is_some_and(|found| value::same(found, expected)))
}

/// The text after one operation. `tree` is updated as well.
fn one(text: &str, tree: &mut Value, operation: &Operation) -> Result<String, String> {
    let place = pointer::resolve(tree, &operation.path)?;
    let edited = match (&operation.action, place) {
        (_, Location::Root) => Err("the whole file: name a key".to_owned()),
        (Action::Add(value), place) => {
            check(value)?;
            let is_name = |last: &str| last.bytes().any(|b| !b.is_ascii_digit());
            match place {
                Location::There(steps, step) => match at(tree, &steps) {
                    Some(Value::List(_))
                        if operation.path.rsplit('/').next().is_some_and(is_name) =>
                    {
                        Err("it is there already: `replace` changes it, `-` appends another"
                            .to_owned())
                    }
                    Some(Value::List(_)) => insert(text, tree, &steps, step, value),
                    _ => replace(text, tree, &steps, step, value),
                },
                Location::Key(steps, key) => insert_key(text, tree, &steps, &key, value),
                Location::End(steps, len) => insert(text, tree, &steps, len, value),
                Location::Root => Err(String::new()),
            }
        }
        (Action::Replace(value), Location::There(steps, step)) => {
            check(value)?;
            replace(text, tree, &steps, step, value)
        }
        (Action::Remove, Location::There(steps, step)) => remove(text, tree, &steps, step),
        (Action::Replace(_) | Action::Remove, Location::Key(..) | Location::End(..)) => {
            Err("there is nothing of this name".to_owned())
        }
        (Action::Test(_), _) => Ok(text.to_owned()),
    }?;
    match read("", &edited) {
        Ok(found) if found == *tree => Ok(edited),
        Ok(_) | Err(_) => Err(ODD.to_owned()),
    }
}

/// The message for a position that cannot be edited without changes elsewhere.
const ODD: &str = "this place cannot be changed without harm to the rest (an anchor or alias, or a \
                   style that is not understood): edit the file by hand";

/// The message for a position under an alias: an edit would change the anchor's value.
const UNDER_ALIAS: &str = "it stands under an alias: edit the place of the anchor";

fn check(value: &Value) -> Result<(), String> {
    if value.depth() > DEPTH_MAX {
        return Err("nested too deeply".to_owned());
    }
    if value.mentions(SECRET) {
        let why = format!("`{SECRET}` stands for what is not shown, and is no value: leave it out");
        return Err(why);
    }
    Ok(())
}

fn at<'a>(tree: &'a Value, steps: &[usize]) -> Option<&'a Value> {
    steps.iter().try_fold(tree, |node, step| node.child(*step))
}

fn at_mut<'a>(tree: &'a mut Value, steps: &[usize]) -> Option<&'a mut Value> {
    steps.iter().try_fold(tree, |node, step| node.child_mut(*step))
}

/// The node at `steps`. A position under an alias is an error.
fn node<'a>(root: &'a Node, steps: &[usize]) -> Result<&'a Node, String> {
    let reach = |node: &'a Node| {
        let is_alias = matches!(node.shape, Shape::Alias);
        if is_alias { Err(UNDER_ALIAS.to_owned()) } else { Ok(node) }
    };
    steps.iter().try_fold(reach(root)?, |node, step| reach(odd(node.child(*step))?))
}

fn spans(text: &str) -> Result<Node, String> {
    spans::read(text).ok_or_else(|| ODD.to_owned())
}

fn odd<T>(found: Option<T>) -> Result<T, String> {
    found.ok_or_else(|| ODD.to_owned())
}

fn replace(
    text: &str,
    tree: &mut Value,
    steps: &[usize],
    step: usize,
    value: &Value,
) -> Result<String, String> {
    let root = spans(text)?;
    let mut cut = Cut::new(text);
    odd(cut.replace(node(&root, steps)?, step, value))?;
    *odd(at_mut(tree, steps).and_then(|parent| parent.child_mut(step)))? = value.clone();
    odd(cut.finish())
}

/// Replaces an empty collection by a collection that holds this value.
fn fill(text: &str, tree: &mut Value, steps: &[usize], value: Value) -> Result<String, String> {
    match steps.split_last() {
        Some((step, above)) => replace(text, tree, above, *step, &value),
        // The document has only comments.
        None => {
            let Value::Map(entries) = &value else { return Err(ODD.to_owned()) };
            let mut out = text.to_owned();
            let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
            if !text.is_empty() && !text.ends_with('\n') {
                out.push_str(newline);
            }
            for (key, value) in entries {
                for line in render::entry(key, value, 0) {
                    out.push_str(&line);
                    out.push_str(newline);
                }
            }
            *tree = value;
            Ok(out)
        }
    }
}

fn insert_key(
    text: &str,
    tree: &mut Value,
    steps: &[usize],
    key: &str,
    value: &Value,
) -> Result<String, String> {
    let entry = (key.to_owned(), value.clone());
    let Some(Value::Map(entries)) = at_mut(tree, steps) else { return Err(ODD.to_owned()) };
    if entries.is_empty() {
        return fill(text, tree, steps, Value::Map(vec![entry]));
    }
    entries.push(entry);
    let root = spans(text)?;
    let mut cut = Cut::new(text);
    odd(cut.insert_key(node(&root, steps)?, key, value))?;
    odd(cut.finish())
}

fn insert(
    text: &str,
    tree: &mut Value,
    steps: &[usize],
    nth: usize,
    value: &Value,
) -> Result<String, String> {
    let Some(Value::List(items)) = at_mut(tree, steps) else { return Err(ODD.to_owned()) };
    if items.is_empty() {
        return fill(text, tree, steps, Value::List(vec![value.clone()]));
    }
    items.insert(nth.min(items.len()), value.clone());
    let root = spans(text)?;
    let mut cut = Cut::new(text);
    odd(cut.insert_item(node(&root, steps)?, nth, value))?;
    odd(cut.finish())
}

fn remove(text: &str, tree: &mut Value, steps: &[usize], step: usize) -> Result<String, String> {
    let parent = odd(at_mut(tree, steps))?;
    let left = match parent {
        Value::List(items) => {
            items.remove(step);
            items.len()
        }
        Value::Map(entries) => {
            entries.remove(step);
            entries.len()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => {
            return Err(ODD.to_owned());
        }
    };
    let root = spans(text)?;
    let above = node(&root, steps)?;
    let block =
        matches!(above.shape, Shape::List { flow: false, .. } | Shape::Map { flow: false, .. });
    if let (0, true, Some((last, rest))) = (left, block, steps.split_last()) {
        // `key: []` is an empty list; a key without a value would mean null.
        let empty = odd(at(tree, steps))?.clone();
        return replace(text, tree, rest, *last, &empty);
    }
    let mut cut = Cut::new(text);
    odd(cut.remove(above, step))?;
    odd(cut.finish())
}
