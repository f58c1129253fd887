//! The outcome of reading a configuration: a checked configuration with warnings, or all problems.

use std::fmt;

use config::Problem;

/// A wrong configuration (exit code 2). Every line is one problem.
#[derive(Debug)]
pub struct WrongConfig(pub Vec<String>);

impl fmt::Display for WrongConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for WrongConfig {}

impl From<Vec<Problem>> for WrongConfig {
    fn from(problems: Vec<Problem>) -> Self {
        Self(problems.iter().map(ToString::to_string).collect())
    }
}

impl WrongConfig {
    /// A problem that shows only on the machine itself, such as a certificate file without a
    /// certificate.
    pub fn one(text: String) -> Self {
        Self(vec![text])
    }
}

/// A checked configuration. Its paths no longer depend on the working directory.
#[derive(Debug)]
pub struct Loaded<C> {
    pub config: C,
    /// Warnings for the log.
    pub warnings: Vec<String>,
}
