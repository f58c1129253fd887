//! The text after operations, used for the difference that is shown. Where an operation sets a
//! secret, this text has a different one: a user who guesses a password must not learn from an
//! empty difference, or from the changed keys, that the guess is right.

use super::redact::show;
use super::value::Value;
use super::{Action, EditError, Location, Operation, at, edit, pointer, tree};
use crate::secret::SECRET;

/// Appended to a secret that an operation sets.
const SALT: &str = "\u{2}";

/// The text after the operations as [`edit`](super::edit()) produces it, but with different secrets
/// in place of the secrets that the operations set.
///
/// # Errors
/// As those of [`edit`](super::edit()).
pub fn salted(file: &str, text: &str, operations: &[Operation]) -> Result<String, EditError> {
    let mut text = text.to_owned();
    for operation in operations {
        let (Action::Add(value) | Action::Replace(value)) = &operation.action else {
            text = edit(file, &text, std::slice::from_ref(operation))?;
            continue;
        };
        let after = edit(file, &text, std::slice::from_ref(operation))?;
        let other = shown_at(file, &after, &operation.path).and_then(|shown| salt(value, &shown));
        text = match other {
            None => after,
            Some(other) => {
                let action = match operation.action {
                    Action::Add(_) => Action::Add(other),
                    Action::Replace(_) | Action::Remove | Action::Test(_) => Action::Replace(other),
                };
                edit(file, &text, &[Operation { path: operation.path.clone(), action }])?
            }
        };
    }
    Ok(text)
}

/// The masked value at the path of an operation that was carried out.
fn shown_at(file: &str, text: &str, path: &str) -> Option<Value> {
    let whole = tree(file, text).ok()?;
    let shown = show(file, text).ok()?;
    // `-` is now the last item.
    let (path, last) = match path.strip_suffix("/-") {
        Some(list) => (list, true),
        None => (path, false),
    };
    let found = match pointer::resolve(&whole, path).ok()? {
        Location::Root => Some(&shown),
        Location::There(steps, step) => {
            at(&shown, &steps).map(|above| above.child(step).unwrap_or(above))
        }
        Location::Key(..) | Location::End(..) => None,
    }?;
    match found {
        Value::List(items) if last => items.last().cloned(),
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::Text(_)
        | Value::List(_)
        | Value::Map(_) => Some(found.clone()),
    }
}

/// The value with different secrets; `None`: it holds none.
fn salt(value: &Value, shown: &Value) -> Option<Value> {
    match (value, shown) {
        (value, Value::Text(word)) if word == SECRET => every(value),
        (Value::List(values), Value::List(shown)) => {
            let salted: Vec<_> = values.iter().zip(shown).map(|(v, s)| salt(v, s)).collect();
            let is_any = salted.iter().any(Option::is_some);
            let whole = salted.into_iter().zip(values).map(|(s, v)| s.unwrap_or_else(|| v.clone()));
            is_any.then(|| Value::List(whole.collect()))
        }
        (Value::Map(values), Value::Map(shown)) => {
            let salted: Vec<_> =
                values.iter().zip(shown).map(|((_, v), (_, s))| salt(v, s)).collect();
            let is_any = salted.iter().any(Option::is_some);
            let whole = salted
                .into_iter()
                .zip(values)
                .map(|(s, (key, v))| (key.clone(), s.unwrap_or_else(|| v.clone())));
            is_any.then(|| Value::Map(whole.collect()))
        }
        _ => None,
    }
}

/// The value with all its texts changed.
fn every(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Bool(_) | Value::Number(_) => Some(Value::Text(SALT.to_owned())),
        Value::Text(text) => Some(Value::Text(format!("{text}{SALT}"))),
        Value::List(items) => {
            let other = |item: &Value| every(item).unwrap_or_else(|| item.clone());
            Some(Value::List(items.iter().map(other).collect()))
        }
        Value::Map(entries) => {
            let other = |(key, value): &(String, Value)| {
                (key.clone(), every(value).unwrap_or_else(|| value.clone()))
            };
            Some(Value::Map(entries.iter().map(other).collect()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{compared, masked};
    use super::*;

    const FILE: &str = "name: a\nservices:\n  - name: s\n    basic_auth: \"ann:hunter2\"\n";

    /// Whether the difference that is shown has a line.
    fn differs(path: &str, action: Action) -> bool {
        let operations = [Operation { path: path.to_owned(), action }];
        let after = salted("f", FILE, &operations).unwrap();
        let [old, new] = [FILE, &after].map(|text| masked("f", text).unwrap().unwrap());
        assert!(new.iter().all(|line| !line.shown.contains("ann")), "{new:?}");
        let same = |step: &super::super::Step| matches!(step, super::super::Step::Same(..));
        !compared(&old, &new).iter().all(same)
    }

    #[test]
    fn a_right_guess_of_a_secret_looks_like_a_wrong_guess() {
        let text = |text: &str| Value::Text(text.to_owned());
        let service = |pair: &str| {
            Value::Map(vec![("name".into(), text("s")), ("basic_auth".into(), text(pair))])
        };
        for pair in ["ann:hunter2", "ann:hunter3"] {
            assert!(differs("/services/s/basic_auth", Action::Replace(text(pair))), "{pair}");
            assert!(differs("/services/s/basic_auth", Action::Add(text(pair))), "{pair}");
            assert!(differs("/services/s", Action::Replace(service(pair))), "{pair}");
            assert!(differs("/services", Action::Add(Value::List(vec![service(pair)]))), "{pair}");
            assert!(differs("/services/-", Action::Add(service(pair))), "{pair}");
        }
        assert!(!differs("/name", Action::Replace(text("a"))));
    }
}
