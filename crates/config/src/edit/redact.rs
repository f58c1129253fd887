//! A file as JSON without its secrets. Files with problems are shown as well, so a value is hidden
//! unless its key is known not to hold a secret.

use super::value::Value;
use crate::mistakes::parse;
use crate::secret::SECRET;
use crate::secrets::{self, Holds, Secrets};
use crate::yaml::{Entry, Kind, Node};
use crate::{Problem, secrecy};

/// A text as JSON. [`SECRET`] replaces tokens, passwords, values of header fields, user and
/// password of a proxy, and values under unknown keys.
///
/// # Errors
/// The text is not YAML, or exceeds the limits.
pub fn show(file: &str, text: &str) -> Result<Value, Problem> {
    let root = parse(file, text)?;
    let mut shown = node(&root);
    hide(&mut shown, &Secrets::of(&root, &|_| None));
    Ok(shown)
}

/// Hides values that repeat a secret of another key.
fn hide(shown: &mut Value, secrets: &Secrets) {
    match shown {
        Value::Text(text) | Value::Number(text) if secrets.are_in(text) => {
            *shown = Value::Text(SECRET.to_owned());
        }
        Value::List(items) => items.iter_mut().for_each(|item| hide(item, secrets)),
        Value::Map(entries) => entries.iter_mut().for_each(|(_, value)| hide(value, secrets)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => {}
    }
}

fn node(node: &Node) -> Value {
    match &node.kind {
        Kind::Scalar { text, .. } if secrets::in_url(text).is_some() => {
            Value::Text(SECRET.to_owned())
        }
        Kind::Scalar { .. } => Value::from(node),
        Kind::List(items) => Value::List(items.iter().map(|item| self::node(item)).collect()),
        Kind::Map(entries) => Value::Map(entries.iter().map(entry).collect()),
    }
}

fn entry(Entry { key, value, .. }: &Entry) -> (String, Value) {
    let shown = match secrets::held_by(key) {
        None | Some(Holds::Token | Holds::Passwords) => hidden(value),
        Some(Holds::Fields) => fields(value),
        Some(Holds::TokenFile) => each(value, &|text| !secrecy::may_be_secret(text)),
        // A doubtful proxy is hidden: `user:password@host` without a scheme is not a URL.
        Some(Holds::Url) if key == "proxy" => each(value, &|text| !text.contains('@')),
        Some(Holds::Nothing | Holds::Url | Holds::KeyFile) => node(value),
    };
    (secrecy::key(key), shown)
}

/// Shows the names of a map of header fields, and hides the values. The map of a service has the
/// names below `set` and in the list `remove`.
fn fields(value: &Node) -> Value {
    let Kind::Map(entries) = &value.kind else { return hidden(value) };
    let field = |entry: &Entry| {
        let shown = match (entry.key.as_str(), &entry.value.kind) {
            ("set", Kind::Map(_)) => fields(&entry.value),
            ("remove", Kind::List(_)) => each(&entry.value, &|name| secrecy::key(name) == name),
            _ => hidden(&entry.value),
        };
        (secrecy::key(&entry.key), shown)
    };
    Value::Map(entries.iter().map(field).collect())
}

/// Hides all values, and keeps the structure.
fn hidden(node: &Node) -> Value {
    each(node, &|_| false)
}

/// Shows a value or a list; texts that `may_be_shown` refuses are hidden.
fn each(node: &Node, may_be_shown: &dyn Fn(&str) -> bool) -> Value {
    match &node.kind {
        Kind::Scalar { .. } if node.is_null() => Value::Null,
        Kind::Scalar { text, .. } if may_be_shown(text) => Value::from(node),
        Kind::List(items) => {
            Value::List(items.iter().map(|item| each(item, may_be_shown)).collect())
        }
        Kind::Scalar { .. } | Kind::Map(_) => Value::Text(SECRET.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edit::render::flow;

    #[test]
    fn what_may_be_secret_is_not_shown_and_the_rest_is() {
        for (text, expected) in [
            (
                "listen: \"tls://[::]:7000\"\nworkers: 2\n",
                "{ listen: \"tls://[::]:7000\", workers: 2 }",
            ),
            (
                "clients:\n  - name: a\n    token: s3\n  - { name: b, token: [s1, &x s2], token_file: /etc/t }\n",
                "{ clients: [{ name: a, token: \"(secret)\" }, \
                 { name: b, token: [\"(secret)\", \"(secret)\"], token_file: /etc/t }] }",
            ),
            (
                "headers: { X-Key: v, Z: 5 }\n",
                "{ headers: { X-Key: \"(secret)\", Z: \"(secret)\" } }",
            ),
            (
                "servers: [{ url: \"a:1\", headers: [v] }]\n",
                "{ servers: [{ url: \"a:1\", headers: [\"(secret)\"] }] }",
            ),
            (
                "services: [{ headers: { set: { X-A: v }, remove: [Cookie, q7Xb2LmZ0aKc9RtYv4WnPs] } }]\n",
                "{ services: [{ headers: { set: { X-A: \"(secret)\" }, \
                 remove: [Cookie, \"(secret)\"] } }] }",
            ),
            (
                "services: [{ response_headers: { set: v, remove: w }, basic_auth: [\"a:b\"] }]\n",
                "{ services: [{ response_headers: { set: \"(secret)\", remove: \"(secret)\" }, \
                 basic_auth: [\"(secret)\"] }] }",
            ),
            ("proxy: http://me:pw@h:1\n", "{ proxy: \"(secret)\" }"),
            ("proxy: http://h:1\n", "{ proxy: \"http://h:1\" }"),
            (
                "admin: { read_token: q7Xb2LmZ0aKc9RtYv4WnPs, read_token_file: r.token }\n",
                "{ admin: { read_token: \"(secret)\", read_token_file: r.token } }",
            ),
            ("read_token_file: q7Xb2LmZ0aKc9RtYv4WnPs\n", "{ read_token_file: \"(secret)\" }"),
            ("token:\n", "{ token: null }"),
            (
                "tokens: x\ntls: { q7Xb2LmZ0aKc9RtYv4WnPs: x }\n",
                "{ tokens: \"(secret)\", tls: { …: \"(secret)\" } }",
            ),
            ("token_file: q7Xb2LmZ0aKc9RtYv4WnPs\n", "{ token_file: \"(secret)\" }"),
            (
                "token: q7Xb2LmZ0aKc9RtYv4WnPs\nname: x-q7Xb2LmZ0aKc9RtYv4WnPs\n",
                "{ token: \"(secret)\", name: \"(secret)\" }",
            ),
            ("", "{}"),
        ] {
            let shown = flow(&show("f", text).unwrap()).replace("\"…\"", "…");
            assert_eq!(shown, expected, "{text}");
        }
    }
}
