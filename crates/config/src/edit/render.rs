//! Values as YAML, in the two styles of the surrounding file: block (lines) and flow (`[a, { b: c
//! }]`).

use std::fmt::Write as _;

use proto::text::is_forbidden;

use super::value::Value;

/// Columns of indentation per level.
pub(super) const STEP: usize = 2;

/// A value in one line.
pub(crate) fn flow(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(true) => "true".to_owned(),
        Value::Bool(false) => "false".to_owned(),
        Value::Number(text) => text.clone(),
        Value::Text(text) => scalar(text),
        Value::List(items) => {
            format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", "))
        }
        Value::Map(entries) if entries.is_empty() => "{}".to_owned(),
        Value::Map(entries) => {
            let pair = |(key, value): &(String, Value)| pair(key, value);
            format!("{{ {} }}", entries.iter().map(pair).collect::<Vec<_>>().join(", "))
        }
    }
}

/// `key: value` in one line.
pub(super) fn pair(key: &str, value: &Value) -> String {
    format!("{}: {}", scalar(key), flow(value))
}

/// Whether a value takes several lines in block style: `["a", "b"]` does not.
pub(super) fn has_lines(value: &Value) -> bool {
    match value {
        Value::List(items) => items.iter().any(Value::is_collection),
        Value::Map(entries) => !entries.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => false,
    }
}

/// A value's lines at this column. The first line is not indented, so that it can follow a dash.
pub(super) fn block(value: &Value, column: usize) -> Vec<String> {
    if !has_lines(value) {
        return vec![flow(value)];
    }
    let mut lines = Vec::new();
    if let Value::Map(entries) = value {
        for (key, value) in entries {
            lines.extend(entry(key, value, column));
        }
    }
    if let Value::List(items) = value {
        for item in items {
            lines.extend(dash(block(item, column + STEP)));
        }
    }
    for line in lines.iter_mut().skip(1) {
        // Lines of a deeper level are already indented, from their own column on.
        if !line.starts_with(' ') {
            line.insert_str(0, &" ".repeat(column));
        }
    }
    lines
}

/// The lines of a map's entry at this column.
pub(super) fn entry(key: &str, value: &Value, column: usize) -> Vec<String> {
    if !has_lines(value) {
        return vec![pair(key, value)];
    }
    let mut lines = vec![format!("{}:", scalar(key))];
    let below = column + STEP;
    lines.extend(block(value, below));
    lines[1].insert_str(0, &" ".repeat(below));
    lines
}

/// A whole file with these keys.
#[must_use]
pub fn file(entries: &[(String, Value)]) -> String {
    let lines = entries.iter().flat_map(|(key, value)| entry(key, value, 0));
    lines.map(|line| line + "\n").collect()
}

/// The lines of a list item.
pub(super) fn dash(mut lines: Vec<String>) -> Vec<String> {
    if let Some(first) = lines.first_mut() {
        first.insert_str(0, "- ");
    }
    lines
}

/// A scalar that every YAML reader reads as this text. It is unquoted only if no reader could take
/// it for another type.
pub(super) fn scalar(text: &str) -> String {
    if is_plain(text) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{feff}' | '\u{fffe}' | '\u{ffff}' => escape(&mut out, c),
            // Control characters are escaped, because the file may be read in a terminal.
            c if is_forbidden(c) => escape(&mut out, c),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn escape(out: &mut String, c: char) {
    // Writing to a string does not fail.
    let _ = write!(out, "\\u{:04x}", u32::from(c));
}

/// Words that have a different meaning in YAML 1.1 or 1.2.
const WORDS: [&str; 9] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];

fn is_plain(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'/');
    if !text.bytes().all(allowed) || WORDS.iter().any(|word| text.eq_ignore_ascii_case(word)) {
        return false;
    }
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    match rest.as_bytes().first() {
        // `10s` and `16MiB` need no quotes; `12` and `0x1F` do.
        Some(first) if rest.len() < text.len() => {
            !matches!(first, b'x' | b'X') && rest.bytes().all(|b| b.is_ascii_alphabetic())
        }
        Some(first) => first.is_ascii_alphabetic() || *first == b'/',
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_be_something_else_is_quoted() {
        for plain in ["a", "home-1", "10s", "16MiB", "/etc/x.pem", "info", "a.b"] {
            assert_eq!(scalar(plain), plain);
        }
        for text in
            ["", "12", "0x1F", "1e5", "No", "~", "-", ".inf", "a b", "a: b", "#", "x:", "1.2"]
        {
            assert_eq!(scalar(text), format!("\"{text}\""));
        }
        assert_eq!(scalar("a\n\"\\\u{0}\u{85}ü"), "\"a\\n\\\"\\\\\\u0000\\u0085ü\"");
        assert_eq!(scalar("\u{2028}\u{202e}"), "\"\\u2028\\u202e\"");
    }

    #[test]
    fn a_value_is_rendered_in_either_style() {
        let text = |t: &str| Value::Text(t.to_owned());
        let ports = Value::List(vec![text("1-2"), text("5")]);
        let home = Value::Map(vec![
            ("name".into(), text("home")),
            ("allow".into(), Value::Map(vec![("tcp".into(), ports)])),
            ("limits".into(), Value::Map(Vec::new())),
        ]);
        let clients = Value::List(vec![home.clone(), home.clone()]);
        assert_eq!(flow(&home), "{ name: home, allow: { tcp: [\"1-2\", \"5\"] }, limits: {} }");
        assert_eq!(
            entry("clients", &clients, 0).join("\n"),
            "clients:\n  - name: home\n    allow:\n      tcp: [\"1-2\", \"5\"]\n    limits: {}\n  \
             - name: home\n    allow:\n      tcp: [\"1-2\", \"5\"]\n    limits: {}"
        );
    }
}
