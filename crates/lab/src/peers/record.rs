//! The result for each peer: `NAME.json` in the folder of peers.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// The last attempt to install a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    version: String,
    /// The reason of a failure. `None`: the peer is installed.
    refused: Option<String>,
}

impl Record {
    pub(super) fn installed(version: &str) -> Self {
        Self { version: version.to_owned(), refused: None }
    }

    pub(super) fn refused(version: &str, reason: &str) -> Self {
        Self { version: version.to_owned(), refused: Some(reason.to_owned()) }
    }

    pub(super) fn is_installed(&self, version: &str) -> bool {
        self.version == version && self.refused.is_none()
    }

    /// The reason why a peer is missing after an attempt.
    pub(super) fn reason(&self, version: &str) -> String {
        match &self.refused {
            Some(reason) => reason.clone(),
            None if self.version == version => "installed once, and gone since".to_owned(),
            None => format!("{} is installed, and {version} wanted", self.version),
        }
    }

    /// Reads a record. `None` without a readable record: then the installation is tried again.
    pub(super) fn read(folder: &Path, name: &str) -> Option<Self> {
        let text = fs::read_to_string(folder.join(name).with_extension("json")).ok()?;
        let value: Value = serde_json::from_str(&text).ok()?;
        let refused = value["refused"].as_str().map(str::to_owned);
        Some(Self { version: value["version"].as_str()?.to_owned(), refused })
    }

    pub(super) fn write(&self, folder: &Path, name: &str) -> Result<()> {
        let file = folder.join(name).with_extension("json");
        let value = json!({ "version": self.version, "refused": self.refused });
        fs::write(&file, format!("{value:#}\n"))
            .with_context(|| format!("writing {}", file.display()))
    }
}
