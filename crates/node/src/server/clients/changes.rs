//! What a reload has changed of the clients.

/// What is different after a reload, by the clients' names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) added: Vec<String>,
    pub(crate) removed: Vec<String>,
    /// One of its credentials is gone.
    pub(crate) credential_gone: Vec<String>,
    /// Another set of ports, or another limit.
    pub(crate) entrances: Vec<String>,
    /// Something else.
    pub(crate) others: Vec<String>,
}

impl Changes {
    /// Those whose links end.
    pub(crate) fn out(&self) -> impl Iterator<Item = &String> {
        self.removed.iter().chain(&self.credential_gone)
    }

    /// For people.
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
