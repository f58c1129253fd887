//! Sets the tokens and the limits in the entry of a client. The entry is found as module `allow`
//! finds it.

use std::num::NonZeroU32;

use super::allow::{edit_client, entry, key_of};
use super::value::Value;
use super::{EditError, Operation, read, refused};
use crate::Rate;

/// The limits of a client, as keys under `limits`.
pub const LIMITS: [&str; 6] = ["streams", "new_per_second", "up", "down", "ports", "hosts"];

/// The value that removes a limit.
const NONE: &str = "none";

/// Sets the tokens of the client `name`, and keeps everything else of the text. A `token_file` of
/// the entry is removed. `file` is the file's name in problems.
///
/// # Errors
/// The file has no entry of this name, or the entry cannot be edited. Then nothing is edited.
pub fn set_tokens(
    file: &str,
    text: &str,
    name: &str,
    tokens: &[&str],
) -> Result<String, EditError> {
    let tree = read(file, text).map_err(EditError::File)?;
    let (path, entry) = entry(file, &tree, name)?;
    // The file expands environment variables.
    let token = |text: &&str| Value::Text(text.replace("${", "$${"));
    let value = match tokens {
        [one] => token(one),
        several => Value::List(several.iter().map(token).collect()),
    };
    let mut operations = vec![Operation::add(format!("{path}/token"), value)];
    if key_of(entry, "token_file").is_some() {
        operations.push(Operation::remove(format!("{path}/token_file")));
    }
    edit_client(file, text, name, &operations)
}

/// Sets limits of the client `name`, and keeps everything else of the text. Each limit is a key of
/// [`LIMITS`] and a value: a number of 1 or more, for `ports` also `unlimited`, or `none`, which
/// removes the limit. `file` is the file's name in problems.
///
/// # Errors
/// A text is not a valid limit (the problem names the flag, such as `--new-per-second`), the file
/// has no entry of this name, or the entry cannot be edited. Then nothing is edited.
pub fn limit(
    file: &str,
    text: &str,
    name: &str,
    limits: &[(&str, &str)],
) -> Result<String, EditError> {
    let limits: Vec<_> =
        limits.iter().map(|(key, text)| read_limit(key, text)).collect::<Result<_, _>>()?;
    let tree = read(file, text).map_err(EditError::File)?;
    let (path, entry) = entry(file, &tree, name)?;
    let present = key_of(entry, "limits").filter(|limits| **limits != Value::Null);
    let operations: Vec<_> = match present {
        None => {
            let new = limits.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
            let new: Vec<_> = new.collect();
            let is_some = !new.is_empty();
            let all = Operation::add(format!("{path}/limits"), Value::Map(new));
            is_some.then_some(all).into_iter().collect()
        }
        Some(present) => {
            let change = |(key, value): (&str, Option<Value>)| {
                let path = format!("{path}/limits/{key}");
                match value {
                    Some(value) => Some(Operation::add(path, value)),
                    None => key_of(present, key).map(|_| Operation::remove(path)),
                }
            };
            limits.into_iter().filter_map(change).collect()
        }
    };
    edit_client(file, text, name, &operations)
}

/// The key and the value of a limit; without a value the limit is removed.
fn read_limit<'a>(key: &'a str, text: &str) -> Result<(&'a str, Option<Value>), EditError> {
    let flag = key.replace('_', "-");
    if !LIMITS.contains(&key) {
        return Err(refused(format!("--{flag}: this build has no such limit")));
    }
    let is_ports = key == "ports";
    let is_rate = ["up", "down"].contains(&key);
    match text {
        NONE => Ok((key, None)),
        _ if is_rate => match text.parse::<Rate>() {
            Ok(rate) if rate.bytes() > 0 => Ok((key, Some(Value::plain(text)))),
            Ok(_) | Err(_) => Err(refused(format!(
                "--{flag}: `{text}` is not a rate (hint: 500KB/s, 50MiB/s, or `{NONE}`)"
            ))),
        },
        "unlimited" if is_ports => Ok((key, Some(Value::Text(text.to_owned())))),
        _ if text.parse::<NonZeroU32>().is_ok() => Ok((key, Some(Value::plain(text)))),
        _ => {
            let unlimited = if is_ports { ", `unlimited`" } else { "" };
            Err(refused(format!(
                "--{flag}: `{text}` is not a limit (hint: 1 or more{unlimited}, or `{NONE}`)"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "# Made by it.\nname: \"home\"\ntoken: \"x\" # his\nallow: { tcp: 22 }\n";

    #[test]
    fn tokens_are_replaced_in_place_and_comments_stay() {
        let set = |text: &str, tokens: &[&str]| set_tokens("f.yaml", text, "home", tokens).unwrap();
        let both = OWN.replace("\"x\"", "[\"x\", \"n2\"]");
        assert_eq!(set(OWN, &["x", "n2"]), both.replace("\"x\", \"n2\"", "x, n2"));
        assert_eq!(set(&both, &["n2"]), OWN.replace("\"x\"", "n2"));
        let of_file = OWN.replace("token: \"x\" # his", "token_file: t");
        let now = set(&of_file, &["a", "b"]);
        assert!(now.contains("token: [a, b]") && !now.contains("token_file"), "{now}");
        let listed = "clients: [{ name: other, token: o }, { name: home, token: \"${T}\" }]\n";
        assert_eq!(set(listed, &["${a}"]), listed.replace("${T}", "$${a}"));
        let why = set_tokens("f.yaml", "clients: []\n", "home", &["x"]).unwrap_err().to_string();
        assert!(why.contains("f.yaml: no entry under `clients` has the name home"), "{why}");
    }

    #[test]
    fn limits_are_set_changed_and_removed_and_comments_stay() {
        let set =
            |text: &str, limits: &[(&str, &str)]| limit("f.yaml", text, "home", limits).unwrap();
        let one = format!("{OWN}limits: {{ streams: 5 }}\n");
        assert_eq!(set(OWN, &[("streams", "5")]), one);
        assert_eq!(set(OWN, &[("streams", "none")]), OWN);
        let block = format!("{OWN}limits:\n  streams: 5\n");
        assert_eq!(set(&block, &[("streams", "none")]), format!("{OWN}limits: {{}}\n"));
        let flow = format!("{OWN}limits: {{ streams: 5, ports: 3 }} # few\n");
        assert_eq!(
            set(&flow, &[("streams", "7"), ("ports", "unlimited")]),
            flow.replace('5', "7").replace("ports: 3", "ports: unlimited")
        );
        let two = set(&flow, &[("new_per_second", "20"), ("streams", "none"), ("hosts", "none")]);
        assert_eq!(two, format!("{OWN}limits: {{ ports: 3, new_per_second: 20 }} # few\n"));
        for (key, text, word) in [
            ("streams", "0", "--streams: `0` is not a limit (hint: 1 or more, or `none`)"),
            ("new_per_second", "unlimited", "--new-per-second: `unlimited`"),
            ("ports", "x", "(hint: 1 or more, `unlimited`, or `none`)"),
            ("up", "1", "--up: `1` is not a rate"),
            ("flows", "1", "--flows: this build has no such limit"),
        ] {
            let why = limit("f.yaml", OWN, "home", &[(key, text)]).unwrap_err().to_string();
            assert!(why.contains(word), "{why}");
        }
    }
}
