//! Removes the secrets from a configuration file. A unit with `DynamicUser` can read only
//! world-readable files, so tokens, keys and certificates become credentials of systemd. Passwords
//! and secret values of header fields must come from the environment of the unit, as must the user
//! name and the password of a proxy. `config::secrets` defines what counts as a secret.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use config::edit::{self, Action, OPERATIONS_MAX, Operation, Value};
use config::is_hashed;
use config::secrets::{Held, Holds, held_by, in_url, is_secret_field, stands_in};
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
    /// Notes for the user about parts that the new text lacks.
    pub(super) notes: Vec<String>,
    /// The variables that the unit must set.
    pub(super) variables: BTreeSet<String>,
}

/// A file to split, with the values of its variables.
#[derive(Clone, Copy)]
pub(super) struct Input<'a> {
    /// The name of the file, for messages.
    pub(super) name: &'a str,
    pub(super) text: &'a str,
    /// Paths in the file are relative to this folder.
    pub(super) folder: &'a Path,
    pub(super) secrets: &'a [Held],
    pub(super) env: &'a dyn Fn(&str) -> Option<String>,
}

/// Splits a valid configuration.
///
/// # Errors
/// A sentence about the first value that a unit cannot use.
pub(super) fn split(input: Input<'_>) -> Result<Split, String> {
    let tree = edit::tree(input.name, input.text).map_err(|why| why.to_string())?;
    let mut walk = Walk {
        input,
        operations: Vec::new(),
        credentials: Vec::new(),
        notes: Vec::new(),
        of_variables: Vec::new(),
    };
    walk.node(&tree, "")?;
    let mut text = input.text.to_owned();
    for part in walk.operations.chunks(OPERATIONS_MAX) {
        text = edit::edit(input.name, &text, part).map_err(|why| why.to_string())?;
    }
    // A comment may contain a secret as well.
    let is_hash = |held: &&Held| {
        held.kind == Holds::Passwords && is_hashed(&format!(":{}", held.secret.reveal()))
    };
    let secrets = input.secrets.iter().filter(|held| !is_hash(held));
    let secrets = secrets.map(|held| (&held.place, held.secret.reveal()));
    let of_variables = walk.of_variables.iter().map(|(place, secret)| (place, secret.as_str()));
    let left = secrets.chain(of_variables).find(|(_, secret)| stands_in(&text, secret));
    if let Some(key) = left.map(|(place, _)| dotted(place)) {
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
    /// The path and the value of each header field whose value comes from variables.
    of_variables: Vec<(String, Zeroizing<String>)>,
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
            // The short form of a forward or of a proxy: `LISTEN=TARGET`.
            Value::Text(_) if at.starts_with("/forwards/") || at.starts_with("/proxies/") => {
                foreign_socket(node).map_or(Ok(()), |problem| Err(self.at(at, problem)))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => Ok(()),
        }
    }

    fn entry(&mut self, at: &str, key: &str, value: &Value) -> Result<(), String> {
        let here = format!("{at}/{key}");
        match (held_by(key), key) {
            (Some(Holds::Token), _) => {
                let files = self.token(&here, value)?;
                self.push(here.clone(), Action::Remove);
                self.push(format!("{here}_file"), Action::Add(files));
            }
            (Some(Holds::TokenFile), _) => {
                let files = self.token(here.trim_end_matches("_file"), value)?;
                self.push(here, Action::Replace(files));
            }
            (Some(Holds::KeyFile), _)
                if at.ends_with("/tls")
                    || at.ends_with("/peers")
                    || at.starts_with("/tls_routes") =>
            {
                let Value::Text(path) = value else { return Ok(()) };
                if path.contains("${") {
                    return Err(self.at(&here, "the path has a variable (hint: write the path)"));
                }
                let content = fs::read(self.input.folder.join(path))
                    .map_err(|why| self.at(&here, &format!("{path}: {why}")))?;
                let file = self.credential(&here, content);
                self.push(here, Action::Replace(file));
            }
            (Some(Holds::Fields), _) => self.fields(&here, value)?,
            (Some(Holds::Passwords), _) => {
                let is_hash = |pair: &Value| matches!(pair, Value::Text(text) if is_hashed(text));
                let is_safe = |pair| is_hash(pair) || self.has_password_of_variables(pair);
                if !items(value).iter().all(is_safe) {
                    return Err(self.readable(&here, Part::Password));
                }
            }
            (_, "listen") if foreign_socket(value).is_some() => {
                return Err(self.at(&here, foreign_socket(value).unwrap_or_default()));
            }
            (Some(Holds::Url), "proxy") if !self.has_user_of_variables(value) => {
                return Err(self.readable(&here, Part::User));
            }
            (Some(Holds::Url), _) => self.urls(&here, value)?,
            (_, "file" | "access") if at == "/log" && !is_switch(value) => {
                return Err(self.at(
                    &here,
                    "the unit may not write there (hint: remove the key; journalctl shows the log)",
                ));
            }
            // The short form of `log.requests` is the path itself.
            (_, "requests" | "file")
                if (at == "/log" || at == "/log/requests")
                    && matches!(value, Value::Text(path) if !is_of_unit(path)) =>
            {
                return Err(self.at(
                    &here,
                    "the unit may not write there (hint: in its state directory, \
                     /var/lib/tunnel/NAME/requests.log)",
                ));
            }
            (_, "state_dir" | "control") if at.is_empty() => {
                self.notes.push(format!("{key} is left out: systemd provides the folder"));
                self.push(here, Action::Remove);
            }
            (Some(Holds::Nothing | Holds::KeyFile) | None, _) => return self.node(value, &here),
        }
        Ok(())
    }

    /// Refuses secret values of header fields that are literal in the file.
    fn fields(&mut self, here: &str, value: &Value) -> Result<(), String> {
        let Value::Map(fields) = value else {
            return Err(self.readable(here, Part::Value));
        };
        for (name, value) in fields {
            let place = format!("{here}/{name}");
            let text = match value {
                Value::Map(_) if name == "set" => {
                    self.fields(&place, value)?;
                    continue;
                }
                // The names of fields.
                Value::List(_) if name == "remove" => continue,
                Value::Null => continue,
                Value::Text(text) => text.clone(),
                Value::Bool(on) => on.to_string(),
                Value::Number(number) => number.to_string(),
                Value::List(_) | Value::Map(_) => return Err(self.readable(&place, Part::Value)),
            };
            if !is_secret_field(name, &text) {
                continue;
            }
            if !self.is_of_variables(value) {
                return Err(self.readable(&place, Part::Value));
            }
            let expanded: String = self.expanded(&text).into_iter().map(|(c, _)| c).collect();
            self.of_variables.push((here.to_owned(), Zeroizing::new(expanded)));
        }
        Ok(())
    }

    /// Refuses URLs with a literal secret.
    fn urls(&mut self, here: &str, value: &Value) -> Result<(), String> {
        for text in items(value) {
            if let Value::Text(text) = text
                && let Some(secret) = in_url(text)
                && !self.is_of_variables(&Value::Text(secret.replace(':', "")))
            {
                return Err(self.readable(here, Part::User));
            }
        }
        self.node(value, here)
    }

    /// Turns the tokens of a key into credentials, and returns the value of the key `…_file`.
    fn token(&mut self, here: &str, value: &Value) -> Result<Value, String> {
        let secrets = self.input.secrets;
        let mut files = Vec::new();
        let is_here = |held: &&Held| held.kind == Holds::Token && held.place == here;
        for held in secrets.iter().filter(is_here) {
            let name = if held.nth == 0 { here.to_owned() } else { format!("{here}/{}", held.nth) };
            files.push(self.credential(&name, held.secret.reveal().as_bytes().to_vec()));
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

    /// The characters of a value with variables expanded, and whether each of them is literal in
    /// the file.
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

    /// Whether the password of a pair `user:password` comes from variables.
    fn has_password_of_variables(&self, pair: &Value) -> bool {
        let Value::Text(text) = pair else { return matches!(pair, Value::Null) };
        let all = self.expanded(text);
        let begin = all.iter().position(|(c, _)| *c == ':').map_or(0, |at| at + 1);
        all.iter().skip(begin).all(|(_, is_in_file)| !is_in_file)
    }

    /// Whether the user name and the password of a proxy are variables. A variable may also contain
    /// the `@` after the password.
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

    /// A sentence about a position in the file.
    fn at(&self, here: &str, problem: &str) -> String {
        let (name, key) = (self.input.name, dotted(here));
        match config::locate(self.input.text, &key) {
            Some((line, column)) => format!("{name}:{line}:{column}: {key}: {problem}"),
            None => format!("{name}: {key}: {problem}"),
        }
    }

    fn readable(&self, here: &str, part: Part) -> String {
        let (what, whole) = match part {
            Part::User => ("user and password are", "each of them"),
            Part::Password => ("the password is", "the password"),
            Part::Value => ("the value is", "the whole value"),
        };
        let hash = match part {
            Part::Password => {
                "; or, for the visitors of a name, put the line in its place that `tunnel generate \
                 password USER` prints"
            }
            Part::User | Part::Value => "",
        };
        // Without --force, `systemctl edit` accepts only installed units.
        let problem = format!(
            "{what} not from variables alone, and every user can read an installed file (hint: \
             write ${{NAME}} for {whole}, and set NAME by EnvironmentFile= in `systemctl edit \
             --force`{hash})"
        );
        self.at(here, &problem)
    }
}

/// The items of a list. A single value counts as a list with one item.
fn items(value: &Value) -> &[Value] {
    if let Value::List(items) = value { items } else { std::slice::from_ref(value) }
}

/// The secret part of a value.
#[derive(Clone, Copy, Debug)]
enum Part {
    User,
    Password,
    Value,
}

/// Whether a unit of this program may write there: `ProtectSystem=strict` allows only its state
/// directory and its runtime directory.
fn is_of_unit(path: &str) -> bool {
    let own = ["/var/lib/tunnel/", "/var/lib/private/tunnel/", "/run/tunnel/"];
    own.iter().any(|folder| path.starts_with(folder)) && !path.contains("/../")
}

/// The problem of a listener at a Unix socket that a unit cannot create.
fn foreign_socket(listen: &Value) -> Option<&'static str> {
    let Value::Text(text) = listen else { return None };
    let path = text.split('=').next()?.strip_prefix("unix://")?;
    (path.starts_with('/') && !is_of_unit(path)).then_some(
        "the unit may not make a socket there (hint: in its runtime directory, \
         unix:///run/tunnel/NAME/x.sock)",
    )
}

/// Whether the value of `log.access` names no file.
fn is_switch(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) => true,
        Value::Text(text) => text.parse::<bool>().is_ok(),
        Value::Number(_) | Value::List(_) | Value::Map(_) => false,
    }
}

/// The key path of a value, as problems name keys: `servers[0].tls.key`.
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
        let read = |path: &Path| match path.ends_with("a.token") {
            true => Ok(TOKEN.replace('q', "w")),
            false => Err(format!("{}", path.display())),
        };
        let sources = config::Sources { env: &env, read: &read };
        let whole = Some(config::Text { name: "c.yaml", text });
        let secrets = if text.lines().any(|line| line.starts_with("listen:")) {
            let loaded = config::load_server(whole, &config::ServerFlags::default(), &sources);
            config::secrets::of_server(&loaded.unwrap().config)
        } else {
            let loaded = config::load_client(whole, &config::ClientFlags::default(), &sources);
            config::secrets::of_client(&loaded.unwrap().config)
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
            ("forwards: [{ listen: \"unix:///srv/a.sock\", target: 1 }]", ": forwards[0].listen: "),
            ("forwards: [\"unix:///srv/a.sock=1\"]", ": forwards[0]: "),
        ] {
            let why = split_of(&file(keys), Path::new("/")).unwrap_err();
            assert!(why.contains(place) && why.contains("(hint: "), "{keys}: {why}");
            assert!(!why.contains(SECRET) && !why.contains(TOKEN), "{why}");
        }
    }

    #[test]
    fn each_secret_becomes_a_credential_or_is_refused() {
        for example in testkit::secrets::examples(TOKEN) {
            let key = (example.section, example.key);
            match split_of(&example.text, Path::new("/")) {
                Ok(split) => {
                    assert!(!split.text.contains(TOKEN), "{key:?}: {}", split.text);
                    let has_it = |c: &Credential| {
                        c.content.windows(TOKEN.len()).any(|at| at == TOKEN.as_bytes())
                    };
                    assert!(split.credentials.iter().any(has_it), "{key:?}");
                }
                Err(why) => {
                    assert!(why.contains("every user can read"), "{key:?}: {why}");
                    assert!(!why.contains(TOKEN), "{key:?}: {why}");
                }
            }
        }
    }

    #[test]
    fn passwords_of_services_exits_and_forwards_are_of_variables() {
        let pair = |pair: &str| {
            let web = "target: \"tcp://127.0.0.1:80\", public: \"http://s.example\"";
            let of_web = format!("services: [{{ name: s, {web}, basic_auth: {pair} }}]");
            let exit = "name: e, target: socks5, public: \"tcp://:1080\"";
            let of_exit = format!("services: [{{ {exit}, basic_auth: {pair} }}]");
            let listen = "listen: \"http-proxy://127.0.0.1:1\"";
            [of_web, of_exit, format!("forwards: [{{ {listen}, basic_auth: {pair} }}]")]
        };
        for bad in [
            "\"ann:swordfish\"",
            "[\"ann:${PW}\", \"bob:swordfish\"]",
            "\"ann:x${PW}\"",
            "\"${ME}:swordfish\"",
        ] {
            for keys in pair(bad) {
                let why = split_of(&file(&keys), Path::new("/")).unwrap_err();
                assert!(why.contains("[0].basic_auth: the password is not"), "{keys}: {why}");
                assert!(!why.contains(SECRET), "{why}");
                assert!(why.contains("`tunnel generate password USER`"), "{why}");
            }
        }
        // A hash is no password.
        let hash = "\"ann:$2y$05$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC\"";
        let [keys, ..] = pair(hash);
        assert!(split_of(&file(&keys), Path::new("/")).unwrap().text.contains(&keys));
        for good in ["\"ann:${PW}\"", "[\"ann:${PW}\", \"${ME}:${PIN}\"]"] {
            for keys in pair(good) {
                let split = split_of(&file(&keys), Path::new("/")).unwrap();
                assert!(split.text.contains(&keys) && split.variables.contains("PW"), "{keys}");
            }
            let [keys, ..] = pair(good);
            let commented = format!("{keys} # it is swordfish");
            assert!(
                split_of(&file(&commented), Path::new("/")).unwrap_err().contains("second place")
            );
        }
    }

    #[test]
    fn harmless_header_fields_stay_and_secret_ones_are_of_variables() {
        let service = |keys: &str| {
            let web = "target: \"tcp://127.0.0.1:80\", public: \"http://s.example\"";
            file(&format!("services: [{{ name: s, {web}, {keys} }}]"))
        };
        for keys in [
            "response_headers: { set: { X-Frame-Options: DENY, X-Env: 5 }, remove: [Server, Cookie] }",
            "headers: { set: { X-Env: staging }, remove: Authorization }",
            "headers: { remove: [Cookie] }",
            "headers: { set: { Authorization: \"${PW}\", X-Pin: \"${PIN}\" } }",
        ] {
            let split = split_of(&service(keys), Path::new("/")).unwrap();
            assert!(split.text.contains(keys), "{}", split.text);
        }
        for (keys, place) in [
            (
                "headers: { set: { Authorization: \"Bearer swordfish\" } }",
                "headers.set.Authorization",
            ),
            ("headers: { set: { X-Env: \"swordfish-${ME}\" } }", "headers.set.X-Env"),
            ("response_headers: { set: { Set-Cookie: sid=swordfish } }", "set.Set-Cookie"),
        ] {
            let why = split_of(&service(keys), Path::new("/")).unwrap_err();
            assert!(why.contains(place) && !why.contains(SECRET), "{why}");
        }
        let in_value = service("headers: { set: { X-Up: \"${PW}\" } }")
            .replace("name: a", "name: a # swordfish");
        let why = split_of(&in_value, Path::new("/")).unwrap_err();
        assert!(why.contains("second place") && !why.contains(SECRET), "{why}");
    }

    #[test]
    fn certificates_of_published_names_become_credentials() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("k.pem"), "the key").unwrap();
        fs::write(dir.path().join("c.pem"), "the certificate").unwrap();
        let text = "listen: tls://[::]:7000\ntls_routes: { listen: \"[::]:443\", \
                    certificates: [{ cert: c.pem, key: k.pem }] }\n";
        let split = split_of(text, dir.path()).unwrap();
        let names: Vec<_> = split.credentials.iter().map(|c| &*c.name).collect();
        assert_eq!(names, ["tls-routes-certificates-0-cert", "tls-routes-certificates-0-key"]);
        assert!(split.text.contains("${CREDENTIALS_DIRECTORY}/tls-routes-certificates-0-key"));
    }

    #[test]
    fn the_files_of_a_cluster_become_credentials() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.pem", "c.pem", "k.pem"] {
            fs::write(dir.path().join(name), "swordfish").unwrap();
        }
        let text = "listen: tls://[::]:7000\ncluster: { name: c, \
                    peers: { listen: 'tls://127.0.0.1:1', ca: a.pem, cert: c.pem, key: k.pem }, \
                    directory: { etcd: 'https://a', user: u, password_file: a.token, tls: { ca: a.pem } } }\n";
        let split = split_of(text, dir.path()).unwrap();
        let names: BTreeSet<_> = split.credentials.iter().map(|c| &*c.name).collect();
        let wanted =
            ["peers-ca", "peers-cert", "peers-key", "directory-password", "directory-tls-ca"];
        assert_eq!(
            names,
            wanted.map(|name| format!("cluster-{name}")).iter().map(|n| &**n).collect()
        );
        for name in ["cluster-peers-key", "cluster-directory-password"] {
            assert!(split.text.contains(&format!("${{CREDENTIALS_DIRECTORY}}/{name}")), "{name}");
        }
    }

    #[test]
    fn a_log_of_requests_lies_where_the_unit_may_write() {
        let server = |log: &str| {
            let text =
                format!("listen: tls://127.0.0.1:1\nclients: []\nlog: {{ requests: {log} }}\n");
            split_of(&text, Path::new("/")).map(|split| split.text)
        };
        for (log, key) in [
            ("/var/log/r.log", "log.requests"),
            ("r.log", "log.requests"),
            ("{ file: /srv/r.log }", "log.requests.file"),
            ("/var/lib/tunnel/../r.log", "log.requests"),
        ] {
            let why = server(log).unwrap_err();
            assert!(why.contains(&format!(" {key}: ")) && why.contains("(hint: "), "{log}: {why}");
        }
        for log in ["/var/lib/tunnel/main/r.log", "{ file: /run/tunnel/main/r.log }"] {
            assert!(server(log).unwrap().contains("r.log"), "{log}");
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
            ("forwards: [{ listen: \"unix:///run/tunnel/main/a.sock\", target: 1 }]", &[]),
            ("forwards: [\"unix://@a=1\"]", &[]),
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
