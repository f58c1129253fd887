//! The servers that an API or DNS names, while a client runs. The answers are read by the rules of
//! the client's file.

use std::path::Path;

use crate::decode::found::{answer, records};
use crate::json;
use crate::model::{FoundServers, PathDefaults, SrvName};
use crate::section::{Cx, Item, Sources};
use crate::{Loaded, Problem, Text};

/// The largest answer of an API, in bytes. 64 servers with 16 paths each fit.
pub const FOUND_MAX: usize = 256 << 10;

/// Reads the answer of an API, a document of JSON:
///
/// ```json
/// {
///   "servers": [
///     "tls://ams.example.com:7000",
///     { "name": "fra", "paths": ["quic://fra.example.com", { "url": "wss://fra.example.com/t" }] }
///   ],
///   "every": "5m"
/// }
/// ```
///
/// Servers and paths are in order of preference: at most 64 servers with at most 16 paths each. The
/// keys of a path are those of the client's file, but for the files of `tls`, and a text has no
/// variables of the environment. `defaults` applies to each path without its own settings.
///
/// # Errors
/// All problems, by key path. There is at least one server in an answer without a problem.
pub fn servers_of_answer(
    text: Text<'_>,
    defaults: &PathDefaults,
) -> Result<Loaded<FoundServers>, Vec<Problem>> {
    load(text.name, defaults, |cx| {
        let bad = |message: String, hint: &str| {
            let hint = Some(hint.to_owned());
            let (file, key_path) = (text.name.to_owned(), String::new());
            Problem { file, line: 0, column: 0, key_path, message, hint }
        };
        let refused = if text.text.len() > FOUND_MAX {
            bad(format!("more than {} KiB", FOUND_MAX >> 10), "at most 64 servers are read")
        } else {
            match json::read(text.text) {
                Ok(node) => return answer(cx, Item { node, path: String::new() }, defaults),
                Err(why) => bad(format!("not JSON: {why}"), "for example {\"servers\": [\"…\"]}"),
            }
        };
        cx.problems.borrow_mut().push(refused);
        None
    })
}

/// Reads the servers of a service in DNS, by host and port, in order of preference. Each has one
/// path: `tls://` for a name with `_tcp`, `quic://` for a name with `_udp`. The name of a server is
/// its host; the name of each of several servers at one host has the port in addition. A record
/// that cannot be a server is a warning, and so are settings of the file that do not fit it.
///
/// # Errors
/// No record can be a server.
pub fn servers_of_records(
    name: &SrvName,
    places: &[(String, u16)],
    defaults: &PathDefaults,
) -> Result<Loaded<FoundServers>, Vec<Problem>> {
    load(name.as_str(), defaults, |cx| records(cx, name, places, defaults))
}

fn load(
    file: &str,
    defaults: &PathDefaults,
    decode: impl FnOnce(&Cx<'_>) -> Option<FoundServers>,
) -> Result<Loaded<FoundServers>, Vec<Problem>> {
    // Only the variables that name proxies are known, and none of them is filled in.
    let env = |name: &str| {
        let known = defaults.environment.iter().find(|(known, _)| *known == name);
        known.map(|(_, value)| value.reveal().to_owned())
    };
    let read = |_: &Path| Err("an answer names no file of this machine".to_owned());
    let sources = Sources { env: &env, read: &read };
    let cx = Cx::new(file, &sources);
    let config = decode(&cx);
    let (problems, warnings) = (cx.problems.into_inner(), cx.warnings.into_inner());
    match config {
        Some(config) if problems.is_empty() => Ok(Loaded { config, warnings }),
        _ => Err(problems),
    }
}

#[cfg(test)]
mod tests;
