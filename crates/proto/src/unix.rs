//! The address of a Unix socket as files and OPEN write it: `unix:///run/app.sock`, or
//! `unix://@name` for an address of Linux's abstract namespace (unix(7)).
//!
//! Each address has one spelling - no `..`, no doubled slash - because rights compare the text, not
//! the file to which it resolves.

use std::fmt;
use std::str::FromStr;

/// Longest path or abstract name in bytes: `sun_path` has 108, one of them a NUL.
const MAX: usize = 107;

const SCHEME: &str = "unix://";

/// An absolute path, or `@` and an abstract name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixAddr(String);

/// Why a text is not the address of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnixAddrError {
    /// Another scheme, or none.
    #[error("the address of a Unix socket begins with unix://")]
    Scheme,
    /// Neither an absolute path nor `@` and a name.
    #[error("a Unix socket is unix:///path, or unix://@name without a file")]
    Relative,
    /// `.`, `..`, two slashes in a row, or a trailing slash.
    #[error("the path of a Unix socket has no `.`, `..`, `//` or final `/`")]
    Detour,
    /// Longer than a socket address allows.
    #[error("the path of a Unix socket has at most {MAX} bytes")]
    Length,
    /// A control character.
    #[error("the path of a Unix socket has no control characters")]
    Character,
}

impl UnixAddr {
    /// The address for the text after `unix://`.
    pub fn new(place: &str) -> Result<Self, UnixAddrError> {
        let name = place.strip_prefix('@');
        match (name, place.strip_prefix('/')) {
            (None, None) | (Some(""), _) => return Err(UnixAddrError::Relative),
            (None, Some(path)) if path.split('/').any(|part| matches!(part, "" | "." | "..")) => {
                return Err(UnixAddrError::Detour);
            }
            (Some(_), _) | (None, Some(_)) => {}
        }
        // The `@` stands for the NUL in front of an abstract name, which needs no NUL after it.
        if name.unwrap_or(place).len() > MAX {
            return Err(UnixAddrError::Length);
        }
        if place.contains(crate::text::is_forbidden) {
            return Err(UnixAddrError::Character);
        }
        Ok(Self(place.to_owned()))
    }

    /// The text after `unix://`.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.0
    }

    /// The name, if the address is in the abstract namespace.
    #[must_use]
    pub fn abstract_name(&self) -> Option<&str> {
        self.0.strip_prefix('@')
    }
}

impl FromStr for UnixAddr {
    type Err = UnixAddrError;

    fn from_str(text: &str) -> Result<Self, UnixAddrError> {
        Self::new(text.strip_prefix(SCHEME).ok_or(UnixAddrError::Scheme)?)
    }
}

impl fmt::Display for UnixAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_one_way_to_be_written() {
        for text in ["unix:///run/app.sock", "unix:///a/..b/...", "unix://@app", "unix://@a/../b"] {
            assert_eq!(text.parse::<UnixAddr>().map(|a| a.to_string()).as_deref(), Ok(text));
        }
        for (text, error) in [
            ("tcp:///a", UnixAddrError::Scheme),
            ("unix:/a", UnixAddrError::Scheme),
            ("unix://", UnixAddrError::Relative),
            ("unix://a", UnixAddrError::Relative),
            ("unix://@", UnixAddrError::Relative),
            ("unix:///", UnixAddrError::Detour),
            ("unix:///a/", UnixAddrError::Detour),
            ("unix:////a", UnixAddrError::Detour),
            ("unix:///a/../b", UnixAddrError::Detour),
            ("unix:///./b", UnixAddrError::Detour),
            ("unix:///a\0b", UnixAddrError::Character),
        ] {
            assert_eq!(text.parse::<UnixAddr>(), Err(error), "{text}");
        }
        assert!(UnixAddr::new(&format!("/{}", "x".repeat(MAX - 1))).is_ok());
        assert_eq!(UnixAddr::new(&format!("/{}", "x".repeat(MAX))), Err(UnixAddrError::Length));
        assert!(UnixAddr::new(&format!("@{}", "x".repeat(MAX))).is_ok());
        assert_eq!(UnixAddr::new(&format!("@{}", "x".repeat(MAX + 1))), Err(UnixAddrError::Length));
    }
}
