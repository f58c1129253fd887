//! The outcome of a reload, which `tunnel reload` shows and the log records.

use std::fmt;

use config::{Change, Changed};
use serde::{Deserialize, Serialize};

/// The outcome of a reload that was good.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reloaded {
    /// What is different now, a line each.
    pub applied: Vec<String>,
    /// Keys whose new value waits for a restart.
    pub restart: Vec<String>,
    /// What the system refused when it was opened; the rest is in force.
    pub failed: Vec<String>,
}

impl Reloaded {
    /// What was applied besides these keys, and the keys.
    pub fn new(mut applied: Vec<String>, keys: &[Changed]) -> Self {
        let mut restart = Vec::new();
        for Changed { key, change } in keys {
            match change {
                Change::Live => applied.push(format!("{key} changed")),
                Change::Reconnect => applied.push(format!("{key} changed for new connections")),
                Change::Restart => restart.push((*key).to_owned()),
            }
        }
        Self { applied, restart, failed: Vec::new() }
    }
}

impl fmt::Display for Reloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let applied = if self.applied.is_empty() {
            "nothing to apply".to_owned()
        } else {
            self.applied.join("; ")
        };
        f.write_str(&applied)?;
        if !self.restart.is_empty() {
            write!(f, "; waiting for a restart: {}", self.restart.join(", "))?;
        }
        if !self.failed.is_empty() {
            write!(f, "; failed: {}", self.failed.join("; "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_one_line() {
        let reloaded = |applied: &[&str], restart: &[&str]| {
            let [applied, restart] =
                [applied, restart].map(|list| list.iter().map(ToString::to_string).collect());
            Reloaded { applied, restart, failed: Vec::new() }.to_string()
        };
        assert_eq!(reloaded(&[], &[]), "nothing to apply");
        assert_eq!(reloaded(&["a", "b"], &[]), "a; b");
        assert_eq!(reloaded(&["a"], &["listen", "tls"]), "a; waiting for a restart: listen, tls");
    }
}
