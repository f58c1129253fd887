//! Takes the secrets out of a configuration file. A unit with `DynamicUser` can read only files
//! that everybody can read, so tokens, keys and certificates become credentials of systemd.

use std::fs;
use std::path::Path;

use config::edit::{self, Action, OPERATIONS_MAX, Operation, Value};
use zeroize::Zeroizing;

/// The beginning of a credential's path in a configuration.
const FOLDER: &str = "${CREDENTIALS_DIRECTORY}/";

/// A file that systemd hands to the daemon.
#[derive(Debug)]
pub(super) struct Credential {
    /// The name below `$CREDENTIALS_DIRECTORY`: the path of the key, such as `servers-0-tls-key`.
    pub(super) name: String,
    pub(super) content: Zeroizing<Vec<u8>>,
}

/// A configuration without secrets, and its credentials.
#[derive(Debug)]
pub(super) struct Split {
    pub(super) text: String,
    pub(super) credentials: Vec<Credential>,
    /// What the new text lacks, for the user.
    pub(super) notes: Vec<String>,
}

/// The tokens of a file: the place of the key without `_file`, the index in the list, the token.
pub(super) type Tokens = Vec<(String, usize, Zeroizing<String>)>;

/// Splits a valid configuration. Paths in it are relative to `folder`.
///
/// # Errors
/// A sentence about the first place that a unit cannot use.
pub(super) fn split(text: &str, folder: &Path, tokens: &Tokens) -> Result<Split, String> {
    let tree = edit::tree("", text).map_err(|why| why.to_string())?;
    let mut walk =
        Walk { folder, tokens, operations: Vec::new(), credentials: Vec::new(), notes: Vec::new() };
    walk.node(&tree, "")?;
    let mut text = text.to_owned();
    for part in walk.operations.chunks(OPERATIONS_MAX) {
        text = edit::edit("", &text, part).map_err(|why| why.to_string())?;
    }
    // A comment may contain the token as well.
    if tokens.iter().any(|(_, _, token)| text.contains(token.as_str())) {
        return Err("a token of the file stands in a second place, perhaps in a comment: every \
                    user could read the token there (hint: remove the second place)"
            .to_owned());
    }
    Ok(Split { text, credentials: walk.credentials, notes: walk.notes })
}

struct Walk<'a> {
    folder: &'a Path,
    tokens: &'a Tokens,
    operations: Vec<Operation>,
    credentials: Vec<Credential>,
    notes: Vec<String>,
}

impl Walk<'_> {
    fn node(&mut self, node: &Value, at: &str) -> Result<(), String> {
        match node {
            Value::List(items) => items
                .iter()
                .enumerate()
                .try_for_each(|(i, item)| self.node(item, &format!("{at}/{i}"))),
            Value::Map(entries) => {
                entries.iter().try_for_each(|(key, value)| self.entry(at, key, value))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => Ok(()),
        }
    }

    fn entry(&mut self, at: &str, key: &str, value: &Value) -> Result<(), String> {
        let here = format!("{at}/{key}");
        match key {
            "token" | "read_token" => {
                let files = self.token(&here, value)?;
                self.push(here.clone(), Action::Remove);
                self.push(format!("{here}_file"), Action::Add(files));
            }
            "token_file" | "read_token_file" => {
                let files = self.token(here.trim_end_matches("_file"), value)?;
                self.push(here, Action::Replace(files));
            }
            "cert" | "key" | "ca" | "client_ca" if at.ends_with("/tls") => {
                let Value::Text(path) = value else { return Ok(()) };
                if path.contains("${") {
                    return Err(format!(
                        "{}: the path has a variable (hint: write the path)",
                        dotted(&here)
                    ));
                }
                let content = fs::read(self.folder.join(path))
                    .map_err(|why| format!("{}: {path}: {why}", dotted(&here)))?;
                let file = self.credential(&here, content);
                self.push(here, Action::Replace(file));
            }
            "headers" if !is_of_environment(value) => return Err(shown(&here)),
            "proxy" if matches!(value, Value::Text(url) if url.contains('@') && !url.contains("${")) =>
            {
                return Err(shown(&here));
            }
            "log" if matches!(value, Value::Map(keys) if keys.iter().any(|(key, _)| key == "file")) =>
            {
                return Err("log.file: the unit may not write there (hint: remove the key; \
                            journalctl shows the log)"
                    .to_owned());
            }
            "state_dir" | "control" if at.is_empty() => {
                self.notes.push(format!("{key} is left out: systemd provides the folder"));
                self.push(here, Action::Remove);
            }
            _ => return self.node(value, &here),
        }
        Ok(())
    }

    /// Makes credentials of the tokens of a key, and returns the value of the key `…_file`.
    fn token(&mut self, here: &str, value: &Value) -> Result<Value, String> {
        let tokens = self.tokens;
        let mut files = Vec::new();
        for (_, nth, token) in tokens.iter().filter(|(place, ..)| place == here) {
            let name = if *nth == 0 { here.to_owned() } else { format!("{here}/{nth}") };
            files.push(self.credential(&name, token.as_bytes().to_vec()));
        }
        match (value, files.pop()) {
            (_, None) => Err(format!("{}: no token is known at this place", dotted(here))),
            (Value::List(_), Some(last)) => {
                files.push(last);
                Ok(Value::List(files))
            }
            (_, Some(file)) => Ok(file),
        }
    }

    fn credential(&mut self, here: &str, content: Vec<u8>) -> Value {
        let name = here.trim_start_matches('/').replace(['/', '_'], "-");
        let path = Value::Text(format!("{FOLDER}{name}"));
        self.credentials.push(Credential { name, content: Zeroizing::new(content) });
        path
    }

    fn push(&mut self, path: String, action: Action) {
        self.operations.push(Operation { path, action });
    }
}

/// Whether all values of header fields come from the environment.
fn is_of_environment(value: &Value) -> bool {
    let is_variable = |value: &Value| matches!(value, Value::Text(text) if text.contains("${"));
    matches!(value, Value::Map(fields) if fields.iter().all(|(_, value)| is_variable(value)))
}

fn shown(here: &str) -> String {
    format!(
        "{}: the value may be a secret, and every user can read an installed file (hint: write \
         ${{NAME}} here, and set NAME by EnvironmentFile= in `systemctl edit`)",
        dotted(here)
    )
}

fn dotted(here: &str) -> String {
    here.trim_start_matches('/').replace('/', ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi";

    fn split_of(text: &str, folder: &Path) -> Result<Split, String> {
        let tokens = vec![("/token".to_owned(), 0, Zeroizing::new(TOKEN.to_owned()))];
        split(text, folder, &tokens)
    }

    #[test]
    fn tokens_and_keys_become_credentials_and_comments_stay() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("k.pem"), "the key").unwrap();
        let text = format!(
            "# at home\nservers: tls://a:1\nname: home # mine\ntoken: {TOKEN}\ntls: {{ key: k.pem }}\nstate_dir: s\n"
        );
        let split = split_of(&text, dir.path()).unwrap();
        assert!(
            split.text.contains("# at home\n") && split.text.contains("# mine"),
            "{}",
            split.text
        );
        assert!(
            split.text.contains("token_file: \"${CREDENTIALS_DIRECTORY}/token\""),
            "{}",
            split.text
        );
        assert!(split.text.contains("${CREDENTIALS_DIRECTORY}/tls-key"), "{}", split.text);
        assert!(!split.text.contains(TOKEN) && !split.text.contains("state_dir"), "{}", split.text);
        let found: Vec<_> = split.credentials.iter().map(|c| (&*c.name, &**c.content)).collect();
        assert_eq!(found, [("token", TOKEN.as_bytes()), ("tls-key", b"the key")]);
    }

    #[test]
    fn a_secret_that_no_credential_can_hold_is_refused() {
        let rest = format!("name: a\ntoken: {TOKEN}\n");
        for (text, place) in [
            ("servers: [{ url: \"wss://a/t\", headers: { X-Key: abc } }]\n", "servers.0.headers"),
            ("servers: tls://a:1\nproxy: http://me:pw@p:1\n", "proxy"),
            ("servers: tls://a:1\nlog: { file: t.log }\n", "log.file"),
            (&*format!("servers: tls://a:1 # {TOKEN}\n"), "second place"),
        ] {
            let why = split_of(&format!("{text}{rest}"), Path::new("/")).unwrap_err();
            assert!(why.contains(place) && !why.contains(TOKEN), "{why}");
        }
    }
}
