//! The lines of the control socket. Each is a JSON object, or the word `"ok"`.

use serde::{Deserialize, Serialize};

use super::context::News;
use super::contract::Command;
use super::fields::Fields;
use crate::WrongConfig;

/// The key of the name of a command.
const TAG: &str = "command";

/// The line of a request.
///
/// # Errors
/// A field is no JSON.
pub fn request<C: Command>(command: &C) -> serde_json::Result<Vec<u8>> {
    Ok(tagged(C::ABOUT.name, &serde_json::to_vec(command)?))
}

/// The object with the name of its command before its other fields.
fn tagged(name: &str, object: &[u8]) -> Vec<u8> {
    let start = format!("{{\"{TAG}\":\"{name}\"");
    let rest = object.strip_prefix(b"{").unwrap_or(object);
    let comma: &[u8] = if rest == b"}" { b"" } else { b"," };
    [start.as_bytes(), comma, rest].concat()
}

/// The line of an answer under its key. Without a key, the answer is `"ok"`.
pub(super) fn answer(key: &str, json: &[u8]) -> serde_json::Result<Vec<u8>> {
    match key {
        "" => serde_json::to_vec(&News::Ok),
        key => Ok([format!("{{\"{key}\":").as_bytes(), json, b"}"].concat()),
    }
}

/// The name of the command of a request, and its fields. `None`: the line is no request.
pub(super) fn parts(line: &[u8]) -> Option<(String, Fields<'_>)> {
    let mut fields = Fields::of_json(line).ok()?;
    let name = serde_json::from_str(fields.take(TAG)?).ok()?;
    Some((name, fields))
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
pub enum DaemonLine<'a> {
    /// The JSON of an answer.
    Answer(&'a str),
    News(News),
    FailedCommand(FailedCommand),
}

impl<'a> DaemonLine<'a> {
    /// Reads a line. `key`: the key of the answer that is awaited. `None`: the daemon has sent
    /// something else.
    pub fn read(line: &'a str, key: &str) -> Option<Self> {
        let fields = Fields::of_json(line.as_bytes());
        if let Some(json) = fields.ok().and_then(|mut fields| fields.take(key)) {
            return Some(Self::Answer(json));
        }
        serde_json::from_str(line)
            .map(Self::FailedCommand)
            .or_else(|_| serde_json::from_str(line).map(Self::News))
            .ok()
    }
}
