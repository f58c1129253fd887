//! A key with a changed value, and when the change takes effect.

/// When a changed value of a key takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// On a reload. Links and streams are not affected.
    Live,
    /// On a reload, for new links. A client makes new links immediately; a server waits for its
    /// clients to make new links.
    Reconnect,
    /// On a restart of the process.
    Restart,
}

impl Change {
    /// `live`, `reconnect` or `restart`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Reconnect => "reconnect",
            Self::Restart => "restart",
        }
    }
}

/// A key with a changed value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The path of the key in the file: `log.level`.
    pub key: &'static str,
    /// When the change takes effect.
    pub change: Change,
}

impl Changed {
    pub(super) const fn live(key: &'static str) -> Self {
        Self { key, change: Change::Live }
    }

    pub(super) const fn reconnect(key: &'static str) -> Self {
        Self { key, change: Change::Reconnect }
    }

    pub(super) const fn restart(key: &'static str) -> Self {
        Self { key, change: Change::Restart }
    }
}
