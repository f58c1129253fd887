//! The lines of the control socket. Each is a JSON object, or the word `"ok"`.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::context::News;
use super::contract::Command;
use super::form::read_object;
use crate::WrongConfig;

/// The key of the name of a command.
const TAG: &str = "command";

/// The line of a request.
///
/// # Errors
/// A field is no JSON.
pub fn request<C: Command>(command: &C) -> serde_json::Result<Vec<u8>> {
    #[derive(Serialize)]
    struct Tagged<'a, C> {
        command: &'static str,
        #[serde(flatten)]
        fields: &'a C,
    }
    serde_json::to_vec(&Tagged { command: C::ABOUT.name, fields: command })
}

/// The name of the command of a request. `None`: the line is no request.
pub(super) fn name_of(line: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        command: String,
    }
    serde_json::from_slice::<Named>(line).ok().map(|named| named.command)
}

/// The command of a request whose name is known.
///
/// # Errors
/// A field is missing or wrong.
pub(super) fn fields<C: Command>(line: &[u8]) -> serde_json::Result<C> {
    read_object(line, &[], Some(TAG))
}

/// The answer to a command that has failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailedCommand {
    /// All problems of the configuration file.
    Wrong(Vec<String>),
    Error(String),
}

impl From<anyhow::Error> for FailedCommand {
    fn from(why: anyhow::Error) -> Self {
        match why.downcast::<WrongConfig>() {
            Ok(WrongConfig(problems)) => Self::Wrong(problems),
            Err(why) => Self::Error(format!("{why:#}")),
        }
    }
}

/// A line that a daemon has sent.
#[derive(Debug)]
pub enum DaemonLine<A> {
    Answer(A),
    News(News),
    FailedCommand(FailedCommand),
}

impl<A: DeserializeOwned> DaemonLine<A> {
    /// Reads the answer to a command. `None`: the daemon has answered something else.
    pub fn read<C: Command<Answer = A>>(line: &str) -> Option<Self> {
        if let Ok(mut answer) = serde_json::from_str::<BTreeMap<String, A>>(line)
            && let Some(answer) = answer.remove(C::ABOUT.answer)
        {
            return Some(Self::Answer(answer));
        }
        serde_json::from_str(line)
            .map(Self::FailedCommand)
            .or_else(|_| serde_json::from_str(line).map(Self::News))
            .ok()
    }
}
