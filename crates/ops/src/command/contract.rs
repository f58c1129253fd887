//! What a command is: a type whose fields are the fields of a request.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::context::Context;
use super::form::Misread;
use super::response::ApiResponse;
use super::route::{ApiRoute, Given};
use crate::role::Role;

/// The longest wait for an answer. A daemon answers most requests within 3 s, or reports an error.
const ANSWER: Duration = Duration::from_secs(15);

/// The longest wait for the answer of a slow command: the daemon may have to wait for a reload, for
/// new links, or for a name that is resolved and several addresses that are dialled.
pub(super) const SLOW: Duration = Duration::from_secs(60);

/// What is known of a command without its fields.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// The name on the control socket: the field `command` of a request.
    pub name: &'static str,
    /// The key of the answer on the control socket. Empty: the answer is `"ok"`.
    pub answer: &'static str,
    /// What it does, as the help of the command line says it.
    pub help: &'static str,
    /// The routes of the API. Without one, only the control socket accepts the command: it starts a
    /// program of the sender's choice, or lets its sender in.
    pub routes: &'static [ApiRoute],
    /// The roles that have what the command needs. Empty: every role.
    pub roles: &'static [Role],
    /// The error of the API if the answer is `false` or `null`.
    pub missing: Option<&'static str>,
    /// Whether the daemon may wait for something else before it answers.
    pub is_slow: bool,
    /// Whether it reports until its sender leaves or the daemon ends.
    pub is_endless: bool,
    /// Whether the token of the API that only reads does not permit the command: the answer may
    /// contain secrets that cannot be distinguished from other words.
    pub is_private: bool,
    /// Whether the answer is made in one long turn, as of a large file.
    pub is_long: bool,
    /// Whether the field `If-Match` of a request of the API is the field `tag` of the command.
    pub has_tag: bool,
}

impl About {
    pub(super) const fn new(name: &'static str, answer: &'static str) -> Self {
        Self {
            name,
            answer,
            help: "",
            routes: &[],
            roles: &[],
            missing: None,
            is_slow: false,
            is_endless: false,
            is_private: false,
            is_long: false,
            has_tag: false,
        }
    }

    pub(super) const fn help(self, help: &'static str) -> Self {
        Self { help, ..self }
    }

    pub(super) const fn routes(self, routes: &'static [ApiRoute]) -> Self {
        Self { routes, ..self }
    }

    pub(super) const fn of(self, roles: &'static [Role]) -> Self {
        Self { roles, ..self }
    }

    pub(super) const fn missing(self, why: &'static str) -> Self {
        Self { missing: Some(why), ..self }
    }

    pub(super) const fn slow(self) -> Self {
        Self { is_slow: true, ..self }
    }

    pub(super) const fn endless(self) -> Self {
        Self { is_endless: true, ..self }
    }

    pub(super) const fn private(self) -> Self {
        Self { is_private: true, ..self }
    }

    pub(super) const fn long(self) -> Self {
        Self { is_long: true, ..self }
    }

    pub(super) const fn with_tag(self) -> Self {
        Self { has_tag: true, ..self }
    }
}

/// A command or a query. The fields of the type are those of a request on the control socket, and
/// of the path, query or body of a request of the API.
///
/// A new command needs this implementation and a row of [`TABLE`](super::TABLE).
pub trait Command: Serialize + DeserializeOwned + Send + Sync + Sized + 'static {
    const ABOUT: About;

    type Answer: Serialize + DeserializeOwned + Send + Sync;

    /// Carries the command out. A command that changes state must not be dropped before its end.
    ///
    /// # Errors
    /// The reason for a missing answer: a [`NoAnswer`](super::NoAnswer), a
    /// [`TooMany`](super::TooMany), a [`NoFilter`](super::NoFilter), a
    /// [`WrongConfig`](crate::WrongConfig), an [`EditError`](config::edit::EditError) or a text.
    fn run(&self, cx: &Context<'_>) -> impl Future<Output = anyhow::Result<Self::Answer>> + Send;

    /// Reads a request of the API.
    ///
    /// # Errors
    /// The request is not in order. The message says what would be right.
    fn read(given: Given<'_>) -> Result<Self, Misread> {
        given.read()
    }

    /// The response of the API: the answer, or for `true`, `false` and `null` whether it was done.
    ///
    /// # Errors
    /// The answer is no JSON.
    fn response(&self, answer: &Self::Answer) -> serde_json::Result<ApiResponse> {
        ApiResponse::of(200, answer)?.or_missing(Self::ABOUT.missing)
    }

    /// How long the sender waits for each line.
    fn patience(&self) -> Duration {
        if Self::ABOUT.is_slow { SLOW } else { ANSWER }
    }
}
