//! Takes the secrets out of a configuration file. A unit with `DynamicUser` can read only files
//! that everybody can read, so tokens, keys and certificates become credentials of systemd. Values
//! of header fields and the user and password of a proxy have to come from the environment of the
//! unit.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use config::edit::{self, Action, OPERATIONS_MAX, Operation, Value};
use zeroize::Zeroizing;

use super::known::Secrets;

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
    /// The variables that the unit has to set.
    pub(super) variables: BTreeSet<String>,
}

/// A file to split, with what its variables stand for.
#[derive(Clone, Copy)]
pub(super) struct Input<'a> {
    /// The name of the file, for messages.
    pub(super) name: &'a str,
    pub(super) text: &'a str,
    /// Paths in the file are relative to this folder.
    pub(super) folder: &'a Path,
    pub(super) secrets: &'a Secrets,
    pub(super) env: &'a dyn Fn(&str) -> Option<String>,
}

/// Splits a valid configuration.
///
/// # Errors
/// A sentence about the first place that a unit cannot use.
pub(super) fn split(input: Input<'_>) -> Result<Split, String> {
    let tree = edit::tree(input.name, input.text).map_err(|why| why.to_string())?;
    let mut walk =
        Walk { input, operations: Vec::new(), credentials: Vec::new(), notes: Vec::new() };
    walk.node(&tree, "")?;
    let mut text = input.text.to_owned();
    for part in walk.operations.chunks(OPERATIONS_MAX) {
        text = edit::edit(input.name, &text, part).map_err(|why| why.to_string())?;
    }
    // A comment may contain a secret as well.
    if let Some(key) = input.secrets.left_in(&text) {
        return Err(format!(
            "{}: the secret of `{key}` stands in a second place of the file, perhaps in a comment, \
             and every user can read an installed file (hint: remove the second place)",
            input.name
        ));
    }
    let mut needed = BTreeSet::new();
    variables(&edit::tree(input.name, &text).map_err(|why| why.to_string())?, &mut needed);
    needed.remove("CREDENTIALS_DIRECTORY");
    Ok(Split { text, credentials: walk.credentials, notes: walk.notes, variables: needed })
}

/// A part of a value: text of the file, or a variable.
enum Piece<'a> {
    Plain(&'a str),
    Variable(&'a str),
}

/// The parts of a value, by the rules of the decoder: `${NAME}` is a variable, `$${` is `${`.
fn pieces(mut text: &str) -> Vec<Piece<'_>> {
    let mut found = Vec::new();
    while let Some(start) = text.find("${") {
        let (before, after) = (&text[..start], &text[start + 2..]);
        if before.ends_with('$') {
            found.push(Piece::Plain(&text[..start + 2]));
            text = after;
            continue;
        }
        found.push(Piece::Plain(before));
        let Some((name, rest)) = after.split_once('}') else { break };
        found.push(Piece::Variable(name));
        text = rest;
    }
    found.push(Piece::Plain(text));
    found
}

/// Collects the names of the variables in all values.
fn variables(node: &Value, found: &mut BTreeSet<String>) {
    match node {
        Value::List(items) => items.iter().for_each(|item| variables(item, found)),
        Value::Map(entries) => entries.iter().for_each(|(_, value)| variables(value, found)),
        Value::Text(text) => {
            found.extend(pieces(text).into_iter().filter_map(|piece| match piece {
                Piece::Variable(name) => Some(name.to_owned()),
                Piece::Plain(_) => None,
            }))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

struct Walk<'a> {
    input: Input<'a>,
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
                    return Err(self.at(&here, "the path has a variable (hint: write the path)"));
                }
                let content = fs::read(self.input.folder.join(path))
                    .map_err(|why| self.at(&here, &format!("{path}: {why}")))?;
                let file = self.credential(&here, content);
                self.push(here, Action::Replace(file));
            }
            "headers" => {
                let Value::Map(fields) = value else { return Err(self.readable(&here)) };
                let wrong = fields.iter().find(|(_, value)| !self.is_of_variables(value));
                if let Some((name, _)) = wrong {
                    return Err(self.readable(&format!("{here}/{name}")));
                }
            }
            "proxy" if !self.has_user_of_variables(value) => return Err(self.readable(&here)),
            "file" | "access" if at == "/log" && !is_switch(value) => {
                return Err(self.at(
                    &here,
                    "the unit may not write there (hint: remove the key; journalctl shows the log)",
                ));
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
        let secrets = self.input.secrets;
        let mut files = Vec::new();
        for (_, nth, token) in secrets.tokens.iter().filter(|(place, ..)| place == here) {
            let name = if *nth == 0 { here.to_owned() } else { format!("{here}/{nth}") };
            files.push(self.credential(&name, token.as_bytes().to_vec()));
        }
        match (value, files.pop()) {
            (_, None) => Err(self.at(here, "no token is known at this place")),
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

    /// The characters of a value with variables expanded, and whether each of them is in the file.
    fn expanded(&self, value: &str) -> Vec<(char, bool)> {
        let mut all = Vec::new();
        for piece in pieces(value) {
            match piece {
                Piece::Plain(text) => all.extend(text.chars().map(|c| (c, true))),
                Piece::Variable(name) => {
                    let value = Zeroizing::new((self.input.env)(name).unwrap_or_default());
                    all.extend(value.chars().map(|c| (c, false)));
                }
            }
        }
        all
    }

    fn is_of_variables(&self, value: &Value) -> bool {
        match value {
            Value::Null => true,
            Value::Text(text) => self.expanded(text).iter().all(|(_, is_in_file)| !is_in_file),
            Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Map(_) => false,
        }
    }

    /// Whether user and password of a proxy are variables. A variable may contain the `@` behind
    /// the password as well.
    fn has_user_of_variables(&self, value: &Value) -> bool {
        let Value::Text(text) = value else { return true };
        let all = self.expanded(text);
        let is = |text: &str, at: &[(char, bool)]| text.chars().eq(at.iter().map(|(c, _)| *c));
        let begin = all.windows(3).position(|at| is("://", at)).map_or(0, |at| at + 3);
        let end = all.iter().rposition(|(c, _)| *c == '@').unwrap_or(begin);
        all.get(begin..end)
            .unwrap_or_default()
            .iter()
            .all(|(c, is_in_file)| !is_in_file || *c == ':')
    }

    /// A sentence about a place of the file.
    fn at(&self, here: &str, problem: &str) -> String {
        let (name, key) = (self.input.name, dotted(here));
        match config::locate(self.input.text, &key) {
            Some((line, column)) => format!("{name}:{line}:{column}: {key}: {problem}"),
            None => format!("{name}: {key}: {problem}"),
        }
    }

    fn readable(&self, here: &str) -> String {
        let what = if here.ends_with("/proxy") { "user and password are" } else { "the value is" };
        let problem = format!(
            "{what} not from variables alone, and every user can read an installed file (hint: \
             write ${{NAME}} for the whole value, and set NAME by EnvironmentFile= in `systemctl \
             edit`)"
        );
        self.at(here, &problem)
    }
}

/// Whether the value of `log.access` names no file.
fn is_switch(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) => true,
        Value::Text(text) => text.parse::<bool>().is_ok(),
        Value::Number(_) | Value::List(_) | Value::Map(_) => false,
    }
}

/// The key of a place, as problems name keys: `servers[0].tls.key`.
pub(super) fn dotted(here: &str) -> String {
    let mut key = String::new();
    for step in here.split('/').skip(1) {
        match step.parse::<usize>() {
            Ok(index) => key.push_str(&format!("[{index}]")),
            Err(_) if key.is_empty() => key.push_str(step),
            Err(_) => key.push_str(&format!(".{step}")),
        }
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi";

    /// A secret in the environment.
    const SECRET: &str = "swordfish";

    fn env(name: &str) -> Option<String> {
        let set = [
            ("ME", "me"),
            ("PW", SECRET),
            ("PIN", "0815"),
            ("HOST", "p.example"),
            ("AT_HOST", "@p.example:1"),
            ("PROXY", "http://me:swordfish@p.example:1"),
        ];
        set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    }

    fn split_of(text: &str, folder: &Path) -> Result<Split, String> {
        let read = |path: &Path| Err(format!("{}", path.display()));
        let sources = config::Sources { env: &env, read: &read };
        let whole = Some(config::Text { name: "c.yaml", text });
        let secrets = if text.contains("listen:") {
            let loaded = config::load_server(whole, &config::ServerFlags::default(), &sources);
            Secrets::of_server(&loaded.unwrap().config)
        } else {
            let loaded = config::load_client(whole, &config::ClientFlags::default(), &sources);
            Secrets::of_client(&loaded.unwrap().config)
        };
        split(Input { name: "c.yaml", text, folder, secrets: &secrets, env: &env })
    }

    #[test]
    fn tokens_and_keys_become_credentials_and_comments_stay() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("k.pem"), "the key").unwrap();
        fs::write(dir.path().join("c.pem"), "the certificate").unwrap();
        let text = format!(
            "# at home\nservers: tls://a:1\nname: home # mine\ntoken: {TOKEN}\n\
             tls: {{ cert: c.pem, key: k.pem }}\nstate_dir: s\n"
        );
        let split = split_of(&text, dir.path()).unwrap();
        for wanted in [
            "# at home\n",
            "# mine",
            "token_file: \"${CREDENTIALS_DIRECTORY}/token\"",
            "${CREDENTIALS_DIRECTORY}/tls-key",
        ] {
            assert!(split.text.contains(wanted), "{}", split.text);
        }
        assert!(!split.text.contains(TOKEN) && !split.text.contains("state_dir"), "{}", split.text);
        let found: Vec<_> = split.credentials.iter().map(|c| (&*c.name, &**c.content)).collect();
        let pem: [(&str, &[u8]); 2] = [("tls-cert", b"the certificate"), ("tls-key", b"the key")];
        assert_eq!(found, [("token", TOKEN.as_bytes()), pem[0], pem[1]]);
        assert!(split.variables.is_empty(), "{:?}", split.variables);
    }

    /// The text of a file around one or two keys.
    fn file(keys: &str) -> String {
        let servers = if keys.contains("servers:") { "" } else { "servers: wss://a:1/t\n" };
        match keys.starts_with("auth:") {
            true => format!("{keys}\nlisten: tls://[::]:7000\n"),
            false => format!("{keys}\n{servers}name: a\ntoken: {TOKEN}\n"),
        }
    }

    #[test]
    fn a_value_that_is_not_of_variables_alone_is_refused_with_its_place() {
        for (keys, place) in [
            ("proxy: http://me:swordfish@p:1", "c.yaml:1:8: proxy: "),
            ("proxy: http://me:swordfish@${HOST}:1", "c.yaml:1:8: proxy: "),
            ("proxy: http://${ME}:swordfish@${HOST}:1", "c.yaml:1:8: proxy: "),
            ("proxy: http://swordfish:${PW}@p:1", "c.yaml:1:8: proxy: "),
            ("proxy: http://x${ME}:${PW}@p:1", "c.yaml:1:8: proxy: "),
            ("proxy: http://${ME}:swordfish$${PW}@p:1", "c.yaml:1:8: proxy: "),
            // The variable ends the password.
            ("proxy: http://${ME}:swordfish${AT_HOST}", "c.yaml:1:8: proxy: "),
            ("proxy: http://${ME}:${PW}@swordfish${AT_HOST}", "c.yaml:1:8: proxy: "),
            (
                "servers: [{ url: \"wss://a/t\", proxy: \"http://me:${PW}@p:1\" }]",
                ": servers[0].proxy: ",
            ),
            ("headers: { X-Key: swordfish }", "c.yaml:1:19: headers.X-Key: "),
            ("headers: { A: \"${PW}\", X-Key: \"swordfish${ME}\" }", ": headers.X-Key: "),
            ("headers: { X-Key: \"Bearer ${PW}\" }", ": headers.X-Key: "),
            ("headers: { X-Key: 815 }", ": headers.X-Key: "),
            ("headers: { X-Key: \"$${PW}\" }", ": headers.X-Key: "),
            (
                "servers: [{ url: \"wss://a/t\", headers: { X-Key: swordfish } }]",
                "c.yaml:1:49: servers[0].headers.X-Key: ",
            ),
            (
                "otlp: { endpoint: \"http://c:4318\", headers: { X-Key: \"${ME}swordfish\" } }",
                ": otlp.headers.X-Key: ",
            ),
            (
                "auth: { http: { url: \"https://a/\", headers: { X-Key: \"swordfish${ME}\" } } }",
                ": auth.http.headers.X-Key: ",
            ),
            ("log: { file: t.log }", "c.yaml:1:14: log.file: "),
            ("log: { access: a.log }", "c.yaml:1:16: log.access: "),
        ] {
            let why = split_of(&file(keys), Path::new("/")).unwrap_err();
            assert!(why.contains(place) && why.contains("(hint: "), "{keys}: {why}");
            assert!(!why.contains(SECRET) && !why.contains(TOKEN), "{why}");
        }
    }

    #[test]
    fn variables_stay_and_are_told() {
        for (keys, needed) in [
            ("proxy: http://${ME}:${PW}@p:1", &["ME", "PW"][..]),
            ("proxy: http://${ME}:${PW}@${HOST}:1", &["HOST", "ME", "PW"]),
            ("proxy: ${PROXY}", &["PROXY"]),
            ("proxy: http://${HOST}:1", &["HOST"]),
            ("proxy: http://p:1", &[]),
            ("proxy: none", &[]),
            ("log: { access: true }", &[]),
            ("headers: { X-Key: \"${ME}${PW}\", X-Pin: \"${PIN}\" }", &["ME", "PIN", "PW"]),
            ("auth: { http: { url: \"https://a/\", headers: { X-Key: \"${PW}\" } } }", &["PW"]),
        ] {
            let split = split_of(&file(keys), Path::new("/")).unwrap();
            assert!(split.text.starts_with(keys), "{}", split.text);
            assert!(split.variables.iter().eq(needed), "{keys}: {:?}", split.variables);
        }
    }

    #[test]
    fn a_secret_in_a_second_place_is_refused() {
        let read = "read_token: w7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi";
        let admin = format!("admin: {{ token: {}, {read} }}", TOKEN.replace('q', "z"));
        let otlp = "otlp: { endpoint: \"http://c:4318\", headers: { X-Key: \"${PW}\" } }";
        for (keys, key) in [
            (format!("# {TOKEN}"), "`token`"),
            (format!("{admin} # {}", TOKEN.replace('q', "z")), "`admin.token`"),
            (format!("{admin} # {read}"), "`admin.read_token`"),
            ("headers: { X-Key: \"${PW}\" } # it is swordfish".to_owned(), "`headers`"),
            ("headers: { X-Key: \"${PIN}\" } # it is 0815".to_owned(), "`headers`"),
            ("proxy: http://${ME}:${PW}@p:1 # swordfish".to_owned(), "`proxy`"),
            ("proxy: http://${PW}@p:1 # swordfish".to_owned(), "`proxy`"),
            (format!("{otlp} # swordfish"), "`otlp.headers`"),
            (
                "auth: { http: { url: \"https://a/\", headers: { X-Key: \"${PW}\" } } } # swordfish"
                    .to_owned(),
                "`auth.http.headers`",
            ),
        ] {
            let why = split_of(&file(&keys), Path::new("/")).unwrap_err();
            assert!(why.contains("second place") && why.contains(key), "{keys}: {why}");
            assert!(!why.contains(SECRET) && !why.contains(TOKEN), "{why}");
        }
        // A short value may be a part of a word.
        split_of(&file("headers: { X-Key: \"${PIN}\" } # 408153"), Path::new("/")).unwrap();
    }
}
