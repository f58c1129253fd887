//! The configuration file: as it is, before and after a change; and its keys.

use std::ops::Not;

use anyhow::Context as _;
use config::keys::{PlacedKey, of_role};
use serde::{Deserialize, Serialize};

use super::context::Context;
use super::contract::{About, Command};
use super::form::Misread;
use super::patch::{self, Patch};
use super::response::ApiResponse;
use super::route::{Given, get, patch, post};
use crate::Reloaded;
use crate::daemon::Settings;
use crate::revision::{Checked, NewConfig};
use crate::shown::{self, Shown};

fn settings<'a>(cx: &'a Context<'_>) -> anyhow::Result<&'a dyn Settings> {
    cx.daemon.settings().context(shown::NONE)
}

/// The configuration file without its secrets.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ReadConfig {}

impl Command for ReadConfig {
    const ABOUT: About = About::new("configuration", "configuration")
        .help("Show the configuration file without its secrets")
        .routes(&[get("/config")])
        .long();
    type Answer = Shown;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Shown> {
        settings(cx)?.configuration()
    }

    fn response(&self, shown: &Shown) -> serde_json::Result<ApiResponse> {
        Ok(ApiResponse { etag: Some(shown.etag.clone()), ..ApiResponse::of(200, shown)? })
    }
}

/// Reports the effects of a change of the configuration file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Foresee {
    #[serde(default)]
    pub operations: Patch,
    /// The whole text, instead of operations.
    #[serde(default)]
    pub text: Option<String>,
}

impl Command for Foresee {
    const ABOUT: About = About::new("foresee", "foreseen")
        .help("Check a change of the configuration file without making it")
        .routes(&[post("/config/check").body(patch::FORM)]);
    type Answer = Checked;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Checked> {
        settings(cx)?.foresee(change(&self.operations, self.text.as_deref())).await
    }

    fn read(given: Given<'_>) -> Result<Self, Misread> {
        let (operations, text) = patch::change(given.body)?;
        Ok(Self { operations, text })
    }
}

/// Changes the configuration file and applies it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Amend {
    #[serde(default)]
    pub operations: Patch,
    /// The whole text, instead of operations.
    #[serde(default)]
    pub text: Option<String>,
    /// The entity tag of the file for which the change was made.
    #[serde(default)]
    pub tag: Option<String>,
}

impl Command for Amend {
    const ABOUT: About = About::new("amend", "reloaded")
        .help("Change the configuration file and apply it")
        .routes(&[patch("/config").body(patch::FORM)])
        .with_tag()
        .slow();
    type Answer = Reloaded;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Reloaded> {
        let change = change(&self.operations, self.text.as_deref());
        let reloaded = settings(cx)?.amend(change, self.tag.clone()).await?;
        cx.audit("a change of the configuration");
        Ok(reloaded)
    }

    fn read(given: Given<'_>) -> Result<Self, Misread> {
        let (operations, text) = patch::change(given.body)?;
        let tag = Some(given.segment("tag").to_owned()).filter(|tag| !tag.is_empty());
        Ok(Self { operations, text, tag })
    }
}

fn change(operations: &Patch, text: Option<&str>) -> NewConfig {
    match text {
        Some(text) => NewConfig::Text(text.to_owned()),
        None => NewConfig::Patch(operations.0.clone()),
    }
}

/// Restores the text before the last change.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Undo {}

impl Command for Undo {
    const ABOUT: About = About::new("undo", "reloaded")
        .help("Restore the configuration file before its last change")
        .routes(&[post("/config/undo")])
        .slow();
    type Answer = Reloaded;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Reloaded> {
        let reloaded = settings(cx)?.undo().await?;
        cx.audit("the configuration before the last change");
        Ok(reloaded)
    }
}

/// A key of the configuration, with the words of REFERENCE.md. The sentence and the type have
/// backticks around words of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigKey {
    /// The path in the file: `clients[].limits.streams`.
    pub path: String,
    /// The meaning of the key.
    pub meaning: String,
    /// The type of the value.
    #[serde(rename = "type")]
    pub kind: String,
    /// The value of an absent key, or words for its absence.
    pub default: String,
    /// Whether `default` is a value that the key could have.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub default_is_value: bool,
    /// An explanation of the default.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// The unit, where the value has one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// When a changed value takes effect: `live`, `reconnect` or `restart`.
    pub change: String,
    /// Whether the value is a secret.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub secret: bool,
    /// The first version of `tunnel` with the key.
    pub since: String,
}

impl From<PlacedKey> for ConfigKey {
    fn from(PlacedKey { path, sentence, change, row }: PlacedKey) -> Self {
        Self {
            path,
            meaning: sentence,
            kind: row.kind().to_owned(),
            default: row.default.to_owned(),
            default_is_value: row.is_value,
            note: row.note.to_owned(),
            unit: row.unit().to_owned(),
            change: change.name().to_owned(),
            secret: row.is_secret(),
            since: row.since.to_owned(),
        }
    }
}

/// The keys that the file of this daemon may have. The keys do not depend on the file, so a daemon
/// without one has the same list. `tunnel run` has no keys: it has no file of its own.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ListKeys {}

impl Command for ListKeys {
    const ABOUT: About = About::new("keys", "keys")
        .help("List the keys of the configuration with their meanings and defaults")
        .routes(&[get("/config/keys")]);
    type Answer = Vec<ConfigKey>;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Vec<ConfigKey>> {
        Ok(of_role(cx.daemon.role().name()).into_iter().map(ConfigKey::from).collect())
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::status::Status;
    use crate::{Daemon, Life, Role, SendFuture};

    /// A client whose workers do not answer.
    struct Silent;

    impl Daemon for Silent {
        fn role(&self) -> Role {
            Role::Client
        }

        fn status(&self) -> SendFuture<'_, Status> {
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test]
    async fn the_keys_of_a_role_are_listed_without_a_question_to_the_workers() {
        let (news, _) = mpsc::channel(1);
        let cx = Context { daemon: &Silent, over: "a test", life: &Life::new(), news };
        let keys = ListKeys {}.run(&cx).await.unwrap();
        let of_client: Vec<_> = of_role("client").into_iter().map(|key| key.path).collect();
        assert!(!keys.is_empty() && keys.into_iter().map(|key| key.path).eq(of_client));
    }
}
