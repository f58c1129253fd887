//! Names of clients and services: short, printable anywhere, safe in logs, labels and paths.

use std::fmt;

/// Maximum length of a name, in bytes: that of a DNS label, rounded up.
pub const NAME_MAX: usize = 64;

/// The name of a client or a service: 1 to 64 of `A-Z a-z 0-9 . _ -`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Box<str>);

/// The text is not a [`Name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a name is 1 to {NAME_MAX} of the characters A-Z a-z 0-9 . _ -")]
pub struct NameError;

impl Name {
    /// Parses `text`.
    pub fn new(text: &str) -> Result<Self, NameError> {
        Self::from_bytes(text.as_bytes())
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, NameError> {
        let allowed = |b: &u8| b.is_ascii_alphanumeric() || b"._-".contains(b);
        match std::str::from_utf8(bytes) {
            Ok(text) if (1..=NAME_MAX).contains(&text.len()) && bytes.iter().all(allowed) => {
                Ok(Self(text.into()))
            }
            Ok(_) | Err(_) => Err(NameError),
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::new(text)
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_plain() {
        let long = "a".repeat(NAME_MAX);
        for good in ["a", "home", "web-1.example_com", &long] {
            assert_eq!(Name::new(good).unwrap().as_str(), good);
        }
        let longer = "a".repeat(NAME_MAX + 1);
        for bad in ["", " ", "a b", "a/b", "ä", "a\n", "a\0", &longer] {
            assert_eq!(Name::new(bad), Err(NameError), "{bad:?}");
        }
        assert_eq!(Name::from_bytes(b"\xff"), Err(NameError));
    }
}
