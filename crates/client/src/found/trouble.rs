//! Why a source names no servers.

use std::fmt;
use std::io;

use config::Problem;
use hyper::StatusCode;

/// The largest number of problems of an answer that a message repeats.
const SHOWN: usize = 3;

/// A failed question.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// No answer came within this number of seconds.
    Silent(u64),
    /// The connection or the exchange failed.
    Unreachable(anyhow::Error),
    /// The certificate of the API is not the expected one.
    Certificate(anyhow::Error),
    /// The API has another place for the request.
    Redirect(StatusCode, Option<String>),
    /// The API answers with another status than 200.
    Status(StatusCode),
    /// The body of the answer is longer than this number of bytes.
    TooLarge(usize),
    /// The body of the answer is not text.
    NoText,
    /// The answer has these problems.
    Answer(Vec<Problem>),
    /// The name servers gave no records.
    LookUp(io::Error),
}

/// What is logged once until an answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TroubleKind {
    Silent,
    Unreachable,
    Certificate,
    Redirect,
    Status(u16),
    Answer,
    LookUp,
}

impl Trouble {
    pub(crate) fn kind(&self) -> TroubleKind {
        match self {
            Self::Silent(_) => TroubleKind::Silent,
            Self::Unreachable(_) => TroubleKind::Unreachable,
            Self::Certificate(_) => TroubleKind::Certificate,
            Self::Redirect(..) => TroubleKind::Redirect,
            Self::Status(status) => TroubleKind::Status(status.as_u16()),
            Self::TooLarge(_) | Self::NoText | Self::Answer(_) => TroubleKind::Answer,
            Self::LookUp(_) => TroubleKind::LookUp,
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent(seconds) => write!(f, "no answer within {seconds} s"),
            Self::Unreachable(why) | Self::Certificate(why) => write!(f, "{why:#}"),
            Self::Redirect(status, to) => {
                write!(f, "it answers {status}")?;
                if let Some(to) = to {
                    write!(f, " to {to}")?;
                }
                f.write_str(" (hint: redirects are not followed; write the URL of the answer)")
            }
            Self::Status(status) => {
                write!(f, "it answers {status}")?;
                if matches!(*status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
                    f.write_str(" (hint: is `token` that of this API?)")?;
                }
                Ok(())
            }
            Self::TooLarge(most) => write!(f, "its answer has more than {} KiB", most >> 10),
            Self::NoText => f.write_str("its answer is not UTF-8"),
            Self::Answer(problems) => f.write_str(&listed(problems)),
            Self::LookUp(error) => error.fmt(f),
        }
    }
}

/// The first problems in one line.
pub(super) fn listed(problems: &[Problem]) -> String {
    let first: Vec<_> = problems.iter().take(SHOWN).map(ToString::to_string).collect();
    let more = match problems.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!("; {more} more"),
    };
    format!("{}{more}", first.join("; "))
}
