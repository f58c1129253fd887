//! The outcome of a reload, for `tunnel reload` and the log.

use std::fmt;

use config::{Change, Changed};
use serde::{Deserialize, Serialize};

/// The outcome of a successful reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reloaded {
    /// The applied changes, one line each.
    pub applied: Vec<String>,
    /// Keys whose new value takes effect at a restart.
    pub restart: Vec<String>,
    /// Items that the system refused to open; the rest is in force.
    pub failed: Vec<String>,
    /// The services of this change that are published, with the addresses that visitors use.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Published>,
    /// The log warnings about the new configuration that the previous configuration did not cause;
    /// for the user at the terminal.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The names of the services of a command that the server has refused. They are no longer in
    /// force, and `failed` has the reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
}

/// A service that is published.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Published {
    /// The name of the service.
    pub name: String,
    /// The public addresses.
    pub addresses: Vec<String>,
}

impl Reloaded {
    /// Sorts the changed `keys` by when they take effect. `applied` has the other changes.
    pub fn new(mut applied: Vec<String>, keys: &[Changed]) -> Self {
        let mut restart = Vec::new();
        for Changed { key, change } in keys {
            match change {
                Change::Live => applied.push(format!("{key} changed")),
                Change::Reconnect => applied.push(format!("{key} changed for new connections")),
                Change::Restart => restart.push((*key).to_owned()),
            }
        }
        Self { applied, restart, ..Self::default() }
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
            Reloaded { applied, restart, ..Reloaded::default() }.to_string()
        };
        assert_eq!(reloaded(&[], &[]), "nothing to apply");
        assert_eq!(reloaded(&["a", "b"], &[]), "a; b");
        assert_eq!(reloaded(&["a"], &["listen", "tls"]), "a; waiting for a restart: listen, tls");
    }
}
