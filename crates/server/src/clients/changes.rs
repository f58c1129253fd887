//! The changes of the clients by a reload.

/// The changes by a reload, as client names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub added: Vec<String>,
    pub removed: Vec<String>,
    /// Clients that have lost a credential.
    pub(crate) credential_gone: Vec<String>,
    /// Clients with other rights to publish, or another limit.
    pub(crate) entrances: Vec<String>,
    /// Clients with another change.
    pub others: Vec<String>,
}

impl Changes {
    /// The clients whose links end.
    pub(crate) fn out(&self) -> impl Iterator<Item = &String> {
        self.removed.iter().chain(&self.credential_gone)
    }

    /// The changes as lines of text.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut changed: Vec<_> = self.entrances.iter().chain(&self.others).collect();
        changed.sort_unstable();
        changed.dedup();
        changed.retain(|name| !self.credential_gone.contains(name));
        let said = |names: &[&String], what: &str| -> Vec<String> {
            names.iter().map(|name| format!("client {name} {what}")).collect()
        };
        let [added, removed, gone] = [&self.added, &self.removed, &self.credential_gone]
            .map(|names| names.iter().collect::<Vec<_>>());
        [
            said(&added, "added"),
            said(&changed, "changed"),
            said(&gone, "changed: a credential is gone, it has to log in again"),
            said(&removed, "removed: its connections end"),
        ]
        .concat()
    }
}
