//! What a command is: a type whose fields are the fields of a request.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::context::Context;
use super::form::Misread;
use super::response::ApiResponse;
use super::route::{ApiRoute, Given};

/// The longest wait for an answer. A daemon answers most requests within 3 s, or reports an error.
const ANSWER: Duration = Duration::from_secs(15);

/// The longest wait for the answer to a change: the daemon may have to wait for a reload, and both
/// for new links.
pub const CHANGE: Duration = Duration::from_secs(60);

/// A command or a query. The fields of the type are those of a request on the control socket, and
/// of the path, query or body of a request of the API.
///
/// A new command needs this implementation and a row of [`TABLE`](super::TABLE).
pub trait Command: Serialize + DeserializeOwned + Send + Sync + Sized + 'static {
    /// The name on the control socket: the field `command` of a request.
    const NAME: &'static str;
    /// The key of the answer on the control socket.
    const ANSWER: &'static str;
    /// What it does, as the help of the command line says it.
    const HELP: &'static str;
    /// The routes of the API. Without one, only the control socket accepts the command: it starts a
    /// program of the sender's choice, or lets its sender in.
    const ROUTES: &'static [ApiRoute] = &[];
    /// Whether it reports until its sender leaves or the daemon ends.
    const IS_ENDLESS: bool = false;
    /// Whether the token of the API that only reads does not permit the command: the answer may
    /// contain secrets that cannot be distinguished from other words.
    const IS_PRIVATE: bool = false;
    /// Whether the answer is made in one long turn, as of a large file.
    const IS_LONG: bool = false;
    /// Whether the field `If-Match` of a request of the API is the field `tag` of the command.
    const HAS_TAG: bool = false;

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

    /// The response of the API.
    ///
    /// # Errors
    /// The answer is no JSON.
    fn response(&self, answer: &Self::Answer) -> serde_json::Result<ApiResponse> {
        ApiResponse::of(answer)
    }

    /// The line of the control socket.
    ///
    /// # Errors
    /// The answer is no JSON.
    fn line(answer: &Self::Answer) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&BTreeMap::from([(Self::ANSWER, answer)]))
    }

    /// How long the sender waits for each line.
    fn patience(&self) -> Duration {
        ANSWER
    }
}
