//! A change of the configuration file before it is made: its problems, the difference to the file,
//! and the keys that need a restart.

use config::edit::Operation;
use serde::{Deserialize, Serialize};

/// A change of the configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewConfig {
    /// Operations on the file.
    Patch(Vec<Operation>),
    /// The whole text. A line that contains `(secret)` as shown keeps its secret.
    Text(String),
}

/// The file differs from the file for which the change was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the file has changed since: look at the new one, and make the change there")]
pub struct Stale;

/// The outcome of a check. No field contains a secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Checked {
    /// Whether a daemon could start with the changed file.
    pub ok: bool,
    /// The entity tag of the current file.
    pub etag: String,
    pub problems: Vec<Finding>,
    /// Warnings about the changed file.
    pub warnings: Vec<String>,
    /// The difference, line by line. Unchanged lines far from a change are folded.
    pub diff: Vec<Difference>,
    /// Changed keys that take effect at once, or for new connections.
    pub live: Vec<String>,
    /// Changed keys that need a restart.
    pub restart: Vec<String>,
}

/// A problem of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Finding {
    /// Line and column from 1; 0: the problem has no position.
    pub line: usize,
    pub column: usize,
    /// The path of the key, such as `services[0].target`; empty for the whole file.
    pub key: String,
    pub text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// A line of a difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Difference {
    Same {
        line: String,
    },
    Add {
        line: String,
    },
    Remove {
        line: String,
    },
    /// This number of unchanged lines is left out.
    Fold {
        count: usize,
    },
}

impl Finding {
    /// Reads a line in the form of [`config::Problem`]: `FILE:12:5: KEY: TEXT (hint: HINT)`.
    pub fn read(file: &str, line: &str) -> Self {
        let rest = line.strip_prefix(file).and_then(|rest| rest.strip_prefix(':'));
        let Some(rest) = rest else { return Self { text: line.to_owned(), ..Self::default() } };
        let placed = || {
            let (line, rest) = rest.split_once(':')?;
            let (column, rest) = rest.split_once(": ")?;
            Some((line.parse().ok()?, column.parse().ok()?, rest))
        };
        let (line, column, rest) = placed().unwrap_or_else(|| (0, 0, rest.trim_start()));
        let (rest, hint) = match rest.strip_suffix(')').and_then(|rest| rest.split_once(" (hint: "))
        {
            Some((rest, hint)) => (rest, Some(hint.to_owned())),
            None => (rest, None),
        };
        let is_path = |text: &str| {
            let is_key = |c: char| c.is_ascii_alphanumeric() || "_-.[]{}…".contains(c);
            !text.is_empty() && text.chars().all(is_key)
        };
        let (key, text) = match rest.split_once(": ") {
            Some((key, text)) if is_path(key) => (key, text),
            Some(_) | None => ("", rest),
        };
        Self { line, column, key: key.to_owned(), text: text.to_owned(), hint }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_problem_has_its_place_key_text_and_hint() {
        let finding = |line, column, key: &str, text: &str, hint: Option<&str>| Finding {
            line,
            column,
            key: key.to_owned(),
            text: text.to_owned(),
            hint: hint.map(str::to_owned),
        };
        for (line, expected) in [
            (
                "/etc/s.yaml:12:5: clients[0].name: a: b (hint: c (d))",
                finding(12, 5, "clients[0].name", "a: b", Some("c (d)")),
            ),
            ("/etc/s.yaml:1:1: not YAML: x", finding(1, 1, "", "not YAML: x", None)),
            ("/etc/s.yaml: tls.cert: no file", finding(0, 0, "tls.cert", "no file", None)),
            ("--cert: no file", finding(0, 0, "", "--cert: no file", None)),
        ] {
            assert_eq!(Finding::read("/etc/s.yaml", line), expected, "{line}");
        }
    }
}
