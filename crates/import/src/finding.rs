//! Errors for unreadable sources, and findings about values without a counterpart.

use std::fmt;

use proto::text::escaped;

use crate::Program;

/// The longest excerpt of a source that a message repeats, in characters.
const SHOWN_MAX: usize = 100;

/// A text of a source that is safe for a terminal: short, and without control characters.
pub(crate) fn shown(text: &str) -> String {
    let short: String = text.chars().take(SHOWN_MAX).collect();
    let cut = if short.len() < text.len() { "…" } else { "" };
    format!("{}{cut}", escaped(&short))
}

/// A line of a source without an effect in the new files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The source.
    pub file: String,
    /// The line, from 1. 0: the argument of a command.
    pub line: usize,
    /// The key, such as `proxies[2].transport.bandwidthLimit`.
    pub key: String,
    /// The reason.
    pub why: String,
    /// The nearest feature of this program. Empty if there is none.
    pub nearest: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}: {}", self.key, self.why)?;
        if self.nearest.is_empty() { Ok(()) } else { write!(f, " (nearest: {})", self.nearest) }
    }
}

/// A text that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problem {
    /// The source.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The reason.
    pub message: String,
}

impl Problem {
    pub(crate) fn at(file: &str, line: usize, message: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, message: escaped(&cut(&message.into())).into_owned() }
    }
}

/// A message of a library may repeat an excerpt of the source.
fn cut(message: &str) -> String {
    message.chars().take(4 * SHOWN_MAX).collect()
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

/// The reasons why nothing is imported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A text cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Problem),
    /// The program of the texts cannot be recognised.
    #[error(
        "{file}: no configuration of a program that is known (hint: name one by --from: {})",
        names(programs)
    )]
    Unknown {
        /// The source.
        file: String,
        /// The programs that may be specified.
        programs: Vec<Program>,
    },
    /// Several programs match.
    #[error(
        "{file}: this may be a configuration of {} (hint: name one by --from)",
        names(programs)
    )]
    Ambiguous {
        /// The source.
        file: String,
        /// The programs that match.
        programs: Vec<Program>,
    },
    /// The texts belong to different programs.
    #[error("{0} belongs to {1}, and {2} to {3} (hint: import the files of one program at a time)")]
    Mixed(String, Program, String, Program),
    /// The texts are empty.
    #[error("{0}: nothing to import (hint: is this the file that {1} reads?)")]
    Nothing(String, Program),
    /// A value of the command line is invalid.
    #[error("{0}")]
    Option(String),
    /// The system provides no randomness.
    #[error("{0}")]
    Material(String),
}

fn names(programs: &[Program]) -> String {
    programs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
