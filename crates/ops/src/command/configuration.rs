//! The configuration file: as it is, before and after a change.

use anyhow::Context as _;
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
