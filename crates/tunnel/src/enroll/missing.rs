//! An enrolment line for several servers whose file lacks servers: an earlier run was interrupted,
//! or a server has not taken its code. The codes of the missing servers are exchanged.

use std::path::Path;

use config::edit::{Action, Operation, Value};
use config::{ClientConfig, Endpoint, Policy, server_url};
use ops::WrongConfig;
use ops::enrol::Code;
use ops::term::{self, Waiting};
use proto::greeting::{Name, Token};

use super::exchange::{exchange, is_pinned, kept_pin, ways};
use super::renew::TOKEN_MOST;
use crate::cli::ClientArgs;
use crate::config_file::ConfigFile;
use crate::load::{self, Either};
use crate::runtime::slow_runtime;

/// The token of the trial whether a server can be written, as long as any token.
const LONGEST: &str = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ";

/// Exchanges the codes of the servers that the file lacks, and adds each server to the file as soon
/// as the server has answered. Returns whether the file lacks a server that can be added to it.
pub(super) fn add_servers(args: &ClientArgs, code: &Code, path: &Path) -> anyhow::Result<bool> {
    let Either::Client(loaded) = load::file(path)? else { return Ok(false) };
    let missing = missing(&loaded.config, code);
    if missing.is_empty() {
        return Ok(false);
    }
    let file = ConfigFile(path.to_owned());
    file.writable()?;
    let name = Name::new(&code.name).map_err(|why| WrongConfig::one(format!("--enroll: {why}")))?;
    let runtime = slow_runtime()?;
    let at = path.display();
    for code in missing {
        let place = code.urls.join(", ");
        let ways = ways(code, args, Vec::new())?;
        let secret = Token::new(&code.secret)
            .map_err(|_| WrongConfig::one("--enroll: the code is damaged".to_owned()))?;
        // What cannot be written is an error before the code is used.
        let before = file.read()?;
        let longest =
            added(&file, &before, &MissingServer { code, pin: code.pin.as_deref() }, LONGEST)?;
        let room = file.room(longest.len() - before.len().min(longest.len()) + TOKEN_MOST)?;
        term::err(format_args!(
            "{at} is there already and lacks the server at {place}: its code alone is used"
        ));
        let exchanging = || runtime.block_on(exchange(&ways, &name, &secret));
        let (token, won) = match Waiting::during("waiting for the server", exchanging) {
            Ok(answer) => answer,
            Err(why) => {
                term::err(format_args!("{at} still lacks the server at {place}: {why:#}"));
                continue;
            }
        };
        let entry = MissingServer { code, pin: kept_pin(code, ways.get(won), args) };
        let after = added(&file, &before, &entry, token.reveal())?;
        file.replace_in(room, &before, &after)?;
        term::err(format_args!("client `{name}` is enrolled at {place} as well, in {at}"));
    }
    Ok(true)
}

/// The codes of a joined code whose servers the file lacks. A file whose server has no name takes
/// no further server.
fn missing<'a>(config: &ClientConfig, code: &'a Code) -> Vec<&'a Code> {
    let takes_more = config.servers.iter().all(|server| server.name.is_some());
    if code.others.is_empty() || !takes_more {
        return Vec::new();
    }
    let long = |url: &String| server_url(url).map_or_else(|_| url.clone(), |url| url.to_string());
    let has = |code: &&Code| {
        code.urls
            .iter()
            .any(|url| config.paths().any(|path| path.endpoint.to_string() == long(url)))
    };
    code.each().filter(|code| !has(code)).collect()
}

/// A server for the file.
struct MissingServer<'a> {
    code: &'a Code,
    pin: Option<&'a str>,
}

/// The text of the file with a further server. Of several servers, the first that answers has the
/// services, unless the file says otherwise.
fn added(
    file: &ConfigFile,
    text: &str,
    entry: &MissingServer<'_>,
    token: &str,
) -> anyhow::Result<String> {
    let Either::Client(loaded) = load::file(&file.0)? else {
        return Err(WrongConfig::one(format!("{} is no client's", file.0.display())).into());
    };
    let names: Vec<_> = loaded.config.servers.iter().map(|server| server.label()).collect();
    let url = entry.code.urls.first().and_then(|url| url.parse::<Endpoint>().ok());
    let host = url.map(|url| url.host.bare()).filter(|host| Name::new(host).is_ok());
    let numbers = (names.len() + 1..).map(|nth| format!("server-{nth}"));
    let mut free = host.into_iter().chain(numbers).filter(|name| !names.contains(name));
    let name = free.next().unwrap_or_default();
    let paths = entry.code.urls.iter().map(|url| {
        let mut path = vec![("url".to_owned(), plain(url))];
        if let Some(name) = entry.code.names.get(url) {
            path.push(("sni".to_owned(), plain(name)));
        }
        if let Some(pin) = entry.pin.filter(|_| is_pinned(url, entry.code.proxied)) {
            path.push(("tls".to_owned(), Value::Map(vec![("pin".to_owned(), plain(pin))])));
        }
        Value::Map(path)
    });
    let server = Value::Map(vec![
        ("name".to_owned(), plain(&name)),
        ("paths".to_owned(), Value::List(paths.collect())),
        ("token".to_owned(), plain(token)),
    ]);
    let add = |path: &str, value| Operation { path: path.to_owned(), action: Action::Add(value) };
    let mut operations = vec![add("/servers/-", server)];
    if names.len() == 1 && loaded.config.policy == Policy::All {
        operations.push(add("/use", plain("failover")));
    }
    file.edit(text, &operations)
}

/// A text of the code, whose author must not read environment variables of this machine.
fn plain(text: &str) -> Value {
    Value::Text(text.replace("${", "$${"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn code(url: &str) -> Code {
        Code {
            name: "home".into(),
            secret: LONGEST.into(),
            pin: Some("sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=".into()),
            self_signed: false,
            renew: false,
            proxied: false,
            may: None,
            reach: None,
            urls: vec![url.to_owned()],
            names: BTreeMap::new(),
            others: Vec::new(),
        }
    }

    #[test]
    fn a_server_that_the_file_lacks_is_added_with_its_token_and_the_rest_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("client.yaml");
        let text = format!(
            "# Mine.\nservers:\n  - name: a\n    paths:\n      - tls://a:1\n    token: {LONGEST}\nname: \
             home\n"
        );
        fs::write(&path, &text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let load = || {
            let Either::Client(loaded) = load::file(&path).unwrap() else { panic!("no client") };
            loaded.config
        };
        let mut joined = code("tls://a:1");
        joined.join(vec![code("tls://a:2"), code("quic://b:1")]).unwrap();
        assert!(missing(&load(), &code("tls://b:1")).is_empty(), "one code enrols nothing more");
        let urls = |codes: Vec<&Code>| -> Vec<String> {
            codes.into_iter().map(|code| code.urls[0].clone()).collect()
        };
        assert_eq!(urls(missing(&load(), &joined)), ["tls://a:2", "quic://b:1"]);
        let file = ConfigFile(path.clone());
        for code in missing(&load(), &joined) {
            let before = file.read().unwrap();
            let entry = MissingServer { code, pin: code.pin.as_deref() };
            let after = added(&file, &before, &entry, LONGEST).unwrap();
            file.replace(&before, &after).unwrap();
        }
        let config = load();
        let names: Vec<_> = config.servers.iter().map(|server| server.label()).collect();
        assert_eq!(names, ["a", "server-2", "b"]);
        assert_eq!(config.policy, Policy::Failover);
        assert_eq!(config.pins().len(), 1);
        assert!(config.servers.iter().all(|server| server.token.is_some()));
        assert!(missing(&config, &joined).is_empty());
        let now = fs::read_to_string(&path).unwrap();
        assert!(now.starts_with("# Mine.\nservers:\n  - name: a\n"), "{now}");

        // The server of another file may have no name.
        let alone = text.replace(
            "  - name: a\n    paths:\n      - tls://a:1\n    token",
            "  - tls://a:1\ntoken",
        );
        fs::write(&path, alone).unwrap();
        assert!(missing(&load(), &joined).is_empty());
    }
}
