//! The numbers by which users name open streams and flows: `3/17` is stream 17 of link 3, `3/u17`
//! is flow 17 of link 3.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The kind of an entry of [`Streams`](super::Streams).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum StreamKind {
    /// A connection.
    #[default]
    Stream,
    /// The datagrams of one visitor.
    Flow,
}

impl StreamKind {
    /// `stream` or `flow`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Flow => "flow",
        }
    }
}

/// The number of an open stream or flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamNumber {
    /// The serial of the link.
    pub link: u64,
    /// Streams and flows have numbers of their own.
    pub kind: StreamKind,
    /// The number on the link.
    pub number: u32,
}

impl fmt::Display for StreamNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { link, kind, number } = self;
        match kind {
            StreamKind::Stream => write!(f, "{link}/{number}"),
            StreamKind::Flow => write!(f, "{link}/u{number}"),
        }
    }
}

/// The text is not the number of a stream or flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("two numbers as in the list of `tunnel streams`: 3/17, or 3/u17 of a flow")]
pub struct NoStreamNumber;

impl FromStr for StreamNumber {
    type Err = NoStreamNumber;

    fn from_str(text: &str) -> Result<Self, NoStreamNumber> {
        let (link, number) = text.split_once('/').ok_or(NoStreamNumber)?;
        let (kind, number) = match number.strip_prefix('u') {
            Some(number) => (StreamKind::Flow, number),
            None => (StreamKind::Stream, number),
        };
        let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        if !digits(link) || !digits(number) {
            return Err(NoStreamNumber);
        }
        let link = link.parse().map_err(|_| NoStreamNumber)?;
        Ok(Self { link, kind, number: number.parse().map_err(|_| NoStreamNumber)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_number_reads_back_and_nothing_else_does() {
        for (text, kind) in [("3/17", StreamKind::Stream), ("3/u17", StreamKind::Flow)] {
            let number = StreamNumber { link: 3, kind, number: 17 };
            assert_eq!(text.parse(), Ok(number));
            assert_eq!(number.to_string(), text);
        }
        for bad in ["", "3", "3/", "3/u", "u3/1", "3/+1", "3/-1", "3/1/2", "3/4294967296"] {
            assert_eq!(bad.parse::<StreamNumber>(), Err(NoStreamNumber), "{bad}");
        }
    }
}
