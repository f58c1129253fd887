//! Problems of a configuration, with their positions. Every layer reports with this type, so that a
//! user sees all problems of a file in one form: `server.yaml:12:5: clients[0].name: message (hint:
//! what to do)`.

use std::fmt;

/// One problem of a file or of a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file as the caller named it, or the flag (`--publish`) that gave the value.
    pub file: String,
    /// Line from 1; 0 for a flag.
    pub line: usize,
    /// Column from 1, in characters; 0 for a flag.
    pub column: usize,
    /// The path in the document, such as `clients[0].allow.tcp[1]`; empty for the whole document.
    pub key_path: String,
    /// The description of the problem.
    pub message: String,
    /// A way to solve the problem.
    pub hint: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        if !self.key_path.is_empty() {
            write!(f, ": {}", self.key_path)?;
        }
        write!(f, ": {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " (hint: {hint})"),
            None => Ok(()),
        }
    }
}

/// The longest excerpt of a file that a problem repeats, in characters: enough to find the place
/// again.
const SHOWN_MAX: usize = 200;

/// The longest hint: it lists the known keys of a map.
const HINT_MAX: usize = 1_000;

/// A hint in the form of [`shown`].
pub(crate) fn shown_hint(text: &str) -> String {
    shown_within(text, HINT_MAX)
}

/// A text of the file, made safe for a line of a terminal or a log. Control characters and
/// characters that change the writing direction are escaped, and a long text is truncated.
pub(crate) fn shown(text: &str) -> String {
    shown_within(text, SHOWN_MAX)
}

fn shown_within(text: &str, most: usize) -> String {
    let turns = |c| matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut out = String::new();
    for (i, c) in text.chars().enumerate() {
        match c {
            _ if i == most => {
                out.push('…');
                break;
            }
            c if c.is_control() || turns(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// The reason why a text is not a value of the wanted type: a [`Problem`] without its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BadValue {
    /// The description of the problem.
    pub message: String,
    /// A way to solve the problem.
    pub hint: Option<String>,
}

impl BadValue {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    /// The description and the hint in one line.
    #[must_use]
    pub fn line(&self) -> String {
        let hint = self.hint.as_ref().map(|hint| format!(" (hint: {hint})"));
        format!("{}{}", self.message, hint.unwrap_or_default())
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// The error for a word that is not one of the known words.
pub(crate) fn unknown(what: &str, word: &str, known: &[&str]) -> BadValue {
    let bad = BadValue::new(format!("unknown {what}"));
    match nearest(word, known) {
        Some(near) => bad.hint(format!("did you mean `{near}`?")),
        None => bad.hint(format!("known here: {}", known.join(", "))),
    }
}

/// The nearest known word. The distance is at most two edits, or one edit for known words of up to
/// three letters.
fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let near = |k: &&str| distance(word, k) <= (k.len() / 2).clamp(1, 2);
    known.iter().copied().filter(near).min_by_key(|k| distance(word, k))
}

/// Levenshtein distance. A text of more than 40 bytes is far from every word, which bounds the
/// work.
fn distance(a: &str, b: &str) -> usize {
    if a.len() > 40 {
        return usize::MAX;
    }
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut corner = i;
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let cost = corner + usize::from(ca != *cb);
            corner = row[j + 1];
            row[j + 1] = cost.min(row[j] + 1).min(corner + 1);
        }
    }
    row.last().copied().unwrap_or(usize::MAX)
}
