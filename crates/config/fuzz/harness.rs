//! The harness of the fuzz targets `config` and `edit`, also used by the replay of their corpora.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr};

use config::edit::{self, Action, Operation, Value};
use config::{
    ClientFlags, Loaded, Problem, ServerFlags, Sources, Text, load_client, load_grant, load_server,
};

/// A strong token that no input contains. Every `token_file` has this content.
const TOKEN: &str = "q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi";

/// The longest line of a problem in bytes: path, message and hint with 200 escaped characters each.
const LINE_MAX: usize = 8192;

/// Loads `data` as both roles. Problems must be inside the file, in its order, on one printable
/// line each, and must not contain the token. The `Debug` output of a loaded configuration must not
/// contain the token either.
pub(crate) fn fuzz(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if text.contains(TOKEN) {
        return;
    }
    let text_file = Text { name: "fuzz.yaml", text: &text };
    let file = Some(text_file);
    let env = |name: &str| match name {
        "A" => Some("a".to_owned()),
        "TUNNEL_TOKEN" => Some("Zr5Tn8Qw1Ey6Ui3Op0Asdf".to_owned()),
        _ => None,
    };
    let sources = Sources { env: &env, read: &|_| Ok(format!("{TOKEN}\n")) };
    if let Some(config) = check(&text, load_server(file, &ServerFlags::default(), &sources)) {
        assert!(!config.listen.is_empty());
        assert!(config.clients.iter().all(|c| (1..=2).contains(&c.tokens.len())));
        assert!(config.summary().iter().all(|line| !line.is_empty()));
    }
    let bind = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    if let Some(grant) = check(&text, load_grant(text_file, bind, config::CLIENT_PORTS, &sources)) {
        assert!((1..=2).contains(&grant.tokens.len()) && !grant.name.is_empty());
    }
    if let Some(config) = check(&text, load_client(file, &ClientFlags::default(), &sources)) {
        let names: BTreeSet<_> = config.services.iter().map(|s| &s.name).collect();
        assert_eq!(names.len(), config.services.len());
        assert!(config.services.iter().all(|s| s.public.is_empty() == s.private.is_some()));
        assert!(!config.servers.is_empty() || config.finds_servers().is_some());
        assert!(config.summary().iter().all(|line| !line.is_empty()));
    }
}

/// Checks the problems and warnings, and returns the configuration.
fn check<T: Debug>(text: &str, loaded: Result<Loaded<T>, Vec<Problem>>) -> Option<T> {
    let (config, said) = match loaded {
        Ok(loaded) => (Some(loaded.config), loaded.warnings),
        Err(problems) => {
            assert!(!problems.is_empty());
            (None, problems)
        }
    };
    assert!(said.is_sorted_by_key(|p| (p.line, p.column)));
    // The error for a missing key at the end of the file is beyond the last line.
    let lines = text.chars().filter(|c| matches!(c, '\n' | '\r')).count() + 2;
    for problem in said {
        assert!((1..=lines).contains(&problem.line) && problem.column > 0, "{problem}");
        let line = problem.to_string();
        assert!(!line.contains(char::is_control) && line.len() < LINE_MAX, "{line}");
        assert!(!line.contains(TOKEN), "{line}");
    }
    assert!(config.is_none() || !format!("{config:?}").contains(TOKEN));
    config
}

/// Whether the path names a list item by its `name`; a replaced item may have another name.
fn is_by_name(text: &str, path: &str) -> bool {
    let Ok(mut value) = edit::show("fuzz.yaml", text) else { return false };
    for step in path.split('/').skip(1) {
        value = match value {
            Value::List(_) if step.bytes().any(|b| !b.is_ascii_digit()) => return true,
            Value::List(items) => {
                match step.parse().ok().and_then(|n: usize| items.into_iter().nth(n)) {
                    Some(item) => item,
                    None => return false,
                }
            }
            Value::Map(entries) => {
                let step = step.replace("~1", "/").replace("~0", "~");
                match entries.into_iter().find(|(key, _)| *key == step) {
                    Some((_, value)) => value,
                    None => return false,
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => return false,
        };
    }
    false
}

/// Edits the text after the first line. The first line is the operation: `+ /path value`, `= …`
/// (replace), `- /path`, `? …` (test). An edited text must be readable, and a refusal must be one
/// printable line.
pub(crate) fn fuzz_edit(data: &[u8]) {
    let data = String::from_utf8_lossy(data);
    let (line, text) = data.split_once('\n').unwrap_or((&data, ""));
    let mut words = line.splitn(3, ' ');
    let (what, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    // The value may use the notation of the file as well.
    let value = format!("listen: {}\n", words.next().unwrap_or(""));
    let Ok(Value::Map(entries)) = edit::show("v", &value) else { return };
    let [(_, value)] = entries.as_slice() else { return };
    let action = match what {
        "+" => Action::Add(value.clone()),
        "=" => Action::Replace(value.clone()),
        "-" => Action::Remove,
        _ => Action::Test(value.clone()),
    };
    let operation = Operation { path: path.to_owned(), action };
    match edit::edit("fuzz.yaml", text, std::slice::from_ref(&operation)) {
        Ok(edited) => {
            assert!(edit::show("fuzz.yaml", &edited).is_ok(), "{edited}");
            if let Action::Add(value) | Action::Replace(value) = operation.action
                && !path.ends_with("/-")
                && !is_by_name(text, path)
            {
                let test = Operation { path: operation.path, action: Action::Test(value) };
                assert_eq!(edit::edit("", &edited, &[test]).as_deref(), Ok(&*edited));
            }
        }
        Err(why) => {
            let line = why.to_string();
            assert!(!line.contains(char::is_control) && line.len() < LINE_MAX, "{line}");
        }
    }
    if let Ok(shown) = edit::show("fuzz.yaml", text) {
        assert!(!format!("{shown:?}").contains(TOKEN));
    }
}
