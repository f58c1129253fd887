//! Patterns of names: the visitors that a private service admits, and the services that a client
//! may visit.

use std::fmt;
use std::str::FromStr;

use crate::greeting::Name;

/// A name, or all names with a common prefix or suffix: `laptop`, `office-*`, `*-laptop`, `*`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamePattern(Box<str>);

/// The text is not a [`NamePattern`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a pattern is a name, with * at its begin or its end for all names: laptop, office-*, *")]
pub struct NamePatternError;

impl NamePattern {
    /// Parses `text`.
    ///
    /// # Errors
    /// The text is neither a name, nor part of a name with a leading or trailing `*`, nor `*`.
    pub fn new(text: &str) -> Result<Self, NamePatternError> {
        let part = text.strip_suffix('*').or_else(|| text.strip_prefix('*'));
        let is_pattern = part.is_some_and(str::is_empty);
        if is_pattern || Name::new(part.unwrap_or(text)).is_ok() {
            Ok(Self(text.into()))
        } else {
            Err(NamePatternError)
        }
    }

    /// The pattern as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name, if the pattern is a single name.
    #[must_use]
    pub fn single(&self) -> Option<Name> {
        Name::new(&self.0).ok()
    }

    /// Whether the pattern matches `name`.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        if let Some(begin) = self.0.strip_suffix('*') {
            name.starts_with(begin)
        } else if let Some(end) = self.0.strip_prefix('*') {
            name.ends_with(end)
        } else {
            *self.0 == *name
        }
    }
}

impl From<Name> for NamePattern {
    fn from(name: Name) -> Self {
        Self(name.as_str().into())
    }
}

impl FromStr for NamePattern {
    type Err = NamePatternError;

    fn from_str(text: &str) -> Result<Self, NamePatternError> {
        Self::new(text)
    }
}

impl fmt::Debug for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_stands_for_a_name_or_for_names_with_a_common_begin_or_end() {
        let has = |pattern: &str, name| NamePattern::new(pattern).unwrap().has(name);
        assert!(has("laptop", "laptop") && !has("laptop", "laptop2") && !has("laptop", "Laptop"));
        assert!(has("office-*", "office-1") && has("office-*", "office-"));
        assert!(!has("office-*", "office") && !has("office-*", "my-office-1"));
        assert!(has("*-laptop", "ann-laptop") && !has("*-laptop", "laptop"));
        assert!(has("*", "anything"));
        let long = "a".repeat(64);
        for bad in ["", "**", "a*b", "*a*", "a b", "a/*", &format!("{long}b*")] {
            assert_eq!(NamePattern::new(bad), Err(NamePatternError), "{bad}");
        }
        assert_eq!(NamePattern::new("a").unwrap().single(), Name::new("a").ok());
        assert_eq!(NamePattern::new("a*").unwrap().single(), None);
    }
}
