//! The client's side of a renewal: exchanges a code for a new token, and replaces the old token.
//! Everything else in the configuration is left unchanged.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use config::edit::{Action, Operation, Value};
use config::{ClientConfig, ServerPaths, server_url};
use control::Instance;
use ops::command::ReadStatus;
use ops::enrol::Code;
use ops::state::{Places, Room};
use ops::term::Waiting;
use ops::{Role, WrongConfig, term};
use proto::greeting::{Name, Token};

use super::exchange::{Verified, exchange, start_with, ways};
use super::extend::extend;
use crate::alone;
use crate::cli::ClientArgs;
use crate::config_file::ConfigFile;
use crate::instances::{reloaded as reload, tell};
use crate::load::{self, Either};
use crate::material::is_exposed;
use crate::runtime::slow_runtime;
use crate::whereabouts::control_of;

/// The token of the trial whether a key can be written.
const NO_TOKEN: &str = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ";

/// More bytes than any token has.
pub(super) const TOKEN_MOST: usize = 1 << 10;

/// Sends the code to the server, and writes the new token to the configuration at `path`, or to the
/// file that its `token_file` names. Returns the arguments of a client that starts with this
/// configuration. `None`: a client already runs with this configuration, and has loaded the token.
pub(super) fn renew(
    path: &Path,
    code: &Code,
    args: &ClientArgs,
) -> anyhow::Result<Option<ClientArgs>> {
    let file = ConfigFile(path.to_owned());
    let config = match load::file(path)? {
        Either::Client(loaded) => Some(loaded.config),
        Either::Server(_) | Either::Proxy(_) => None,
    };
    let (key, token_file) = place_of(config.as_ref(), code)?;
    // The code must not be used before the space for its result is reserved.
    let place = match &token_file {
        Some(named) => {
            let folder = path.parent().unwrap_or(path);
            ConfigFile(std::path::absolute(folder)?.join(named))
        }
        None => file.clone(),
    };
    place.writable()?;
    // A file without a secret may be open to others, and the token would be its first secret.
    let token_of_top = config.as_ref().and_then(|config| config.token.as_ref());
    let is_in_file = token_of_top.is_some_and(|token| token.file.is_some());
    if token_file.is_none() && is_in_file && is_exposed(path, None) {
        return Err(WrongConfig::one(format!(
            "{at} may be read by others, and the server that made the code has no `token_file` of \
             its own, so the new token would be written into {at} (hint: chmod 600 {at}, or give \
             this server a `token_file`); the code has not been used",
            at = path.display()
        ))
        .into());
    }
    if token_file.is_none() {
        // A key that cannot be written there is an error before the code is used.
        file.edit(&file.read()?, &[replacement(&key, NO_TOKEN)])?;
    }
    extend(path, args)?;
    let room = place.room(TOKEN_MOST).context("the code has not been used and is still good")?;
    let of_file = config.as_ref().map(Verified::of_file).unwrap_or_default();
    let ways = ways(code, args, of_file)?;
    let name = Name::new(&code.name).map_err(|why| WrongConfig::one(format!("--enroll: {why}")))?;
    let secret = Token::new(&code.secret)
        .map_err(|_| WrongConfig::one("--enroll: the code is damaged".to_owned()))?;
    let runtime = slow_runtime()?;
    let exchanging = || runtime.block_on(exchange(&ways, &name, &secret));
    let (token, _) = Waiting::during("waiting for the server", exchanging)?;
    let token_place = token_file.is_some().then_some(&place);
    write((&file, &key), token_place, room, token.reveal()).context(
        "the new token is lost, and the old token is still valid: ask for another code with \
         `tunnel enroll --renew`",
    )?;
    let at = path.display();
    term::err(format_args!("client `{name}` has a new token in {at}"));
    let running = config.and_then(|config| find(path, &config, args).map(|found| (config, found)));
    let Some((config, (pid, instance))) = running else {
        return Ok(Some(start_with(args, path.to_owned(), false)));
    };
    let reloaded = reload(&instance).with_context(|| {
        format!(
            "the running client (process {pid}) has not taken the token, and goes on with the old \
             one, which stays valid; try again: tunnel reload --config {at}"
        )
    })?;
    // A server whose token has changed gets new links.
    let first = if key == "/token" { "token " } else { "servers " };
    let has_changed = reloaded.applied.iter().any(|line| line.starts_with(first));
    // A client with the key `watch` may already have read the file.
    if !has_changed && !config.common.watch {
        bail!(
            "the running client (process {pid}) has another configuration file, and goes on with the \
             old token; to put the new token in force, stop it and start it with --config {at}"
        );
    }
    term::err(format_args!("the running client (process {pid}) has taken the token"));
    tell(&reloaded, false)?;
    Ok(None)
}

/// The running client of this configuration, with its process id.
fn find(path: &Path, config: &ClientConfig, args: &ClientArgs) -> Option<(u32, Instance)> {
    let given = args.daemon.control.clone();
    let place = given.or_else(|| Some(control_of(path).ok()?.path));
    let is_it = |place: &Path| {
        let status = control::ask(&Instance::connect(place).ok()?, ReadStatus {}).ok()?;
        let is_own = status.role == Role::Client && status.name == config.name;
        Some((is_own.then_some(status.pid)?, Instance::connect(place).ok()?))
    };
    place.as_deref().and_then(is_it).or_else(|| {
        let (pid, place) = alone::running(config, &Places::of_process())?;
        Some((pid, Instance::connect(&place).ok()?))
    })
}

/// The key of the token that the code renews, as a path in the file, and the file of the token, if
/// the configuration names one. Of several servers, the server that made the code has the token.
fn place_of(
    config: Option<&ClientConfig>,
    code: &Code,
) -> Result<(String, Option<PathBuf>), WrongConfig> {
    let of_top = || {
        let file = config.and_then(|config| config.token.as_ref()?.file.clone());
        ("/token".to_owned(), file)
    };
    let has_own = |config: &&ClientConfig| {
        config.servers.len() > 1 || config.servers.iter().any(|server| server.token.is_some())
    };
    let Some(config) = config.filter(has_own) else { return Ok(of_top()) };
    let long = |url: &String| server_url(url).map_or_else(|_| url.clone(), |url| url.to_string());
    let urls: Vec<_> = code.urls.iter().map(long).collect();
    let is_of = |server: &ServerPaths| {
        server.paths.iter().any(|path| urls.contains(&path.endpoint.to_string()))
    };
    let Some(nth) = config.servers.iter().position(is_of) else {
        return Err(WrongConfig::one(format!(
            "the file has several servers, and none of them is at {} (hint: name the address of \
             the server in the file by --server)",
            urls.join(", ")
        )));
    };
    let own = config.servers.get(nth).and_then(|server| server.token.as_ref());
    Ok((format!("/servers/{nth}/token"), own.and_then(|token| token.file.clone())))
}

/// The change of the file that replaces the token at this key.
fn replacement(key: &str, token: &str) -> Operation {
    let action = Action::Add(Value::Text(token.replace("${", "$${")));
    Operation { path: key.to_owned(), action }
}

/// Writes the token to `token_file`, or to its key in the configuration without one.
fn write(
    (file, key): (&ConfigFile, &str),
    token_file: Option<&ConfigFile>,
    room: Room,
    token: &str,
) -> anyhow::Result<()> {
    let Some(place) = token_file else {
        let before = file.read()?;
        let after = file.edit(&before, &[replacement(key, token)])?;
        return file.replace_in(room, &before, &after);
    };
    place.fill(room, &format!("{token}\n"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn of_several_servers_the_token_of_the_server_that_made_the_code_is_renewed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("client.yaml");
        let token = NO_TOKEN;
        let text = format!(
            "servers:\n  - {{ name: fra, paths: [tls://a:1] }} # first\n  - name: nyc\n    url: tls://b\n    \
             token: {token}\nname: home\ntoken: {token}\n"
        );
        fs::write(&path, &text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let Either::Client(loaded) = load::file(&path).unwrap() else { panic!("no client") };
        let key_of = |url: &str| {
            let mut code = Code::read(&of(url).text()).unwrap();
            code.urls = vec![url.to_owned()];
            place_of(Some(&loaded.config), &code)
        };
        assert!(
            key_of("tls://c:1").unwrap_err().to_string().contains("none of them is at tls://c")
        );
        let mut alone = loaded.config.clone();
        alone.servers.remove(0);
        let mut code = Code::read(&of("tls://b:7000").text()).unwrap();
        code.urls = vec!["tls://b:7000".to_owned()];
        assert_eq!(place_of(Some(&alone), &code).unwrap().0, "/servers/0/token");
        let file = ConfigFile(path.clone());
        for (url, key, new) in [
            ("tls://b:7000", "/servers/1/token", "new-b"),
            ("tls://a:1", "/servers/0/token", "new-a"),
        ] {
            assert_eq!(key_of(url).unwrap(), (key.to_owned(), None), "{url}");
            write((&file, key), None, file.room(TOKEN_MOST).unwrap(), new).unwrap();
        }
        let now = fs::read_to_string(&path).unwrap();
        assert!(now.contains("token: new-b\nname: home"), "{now}");
        assert!(now.contains("token: new-a } # first"), "{now}");
        assert!(now.ends_with(&format!("\ntoken: {token}\n")), "the others keep theirs: {now}");
    }

    fn of(url: &str) -> Code {
        Code {
            name: "home".to_owned(),
            secret: NO_TOKEN.to_owned(),
            pin: None,
            self_signed: false,
            renew: true,
            proxied: false,
            may: None,
            reach: None,
            urls: vec![url.to_owned()],
            names: std::collections::BTreeMap::new(),
            others: Vec::new(),
        }
    }

    #[test]
    fn the_token_is_replaced_where_it_stands_and_everything_else_stays() {
        let dir = tempfile::tempdir().unwrap();
        let [config, secret] = ["client.yaml", "t"].map(|name| dir.path().join(name));
        let text = "# Mine.\nservers: tls://a:1 # there\nname: home\ntoken: \"old\" # his\n";
        fs::write(&config, text).unwrap();
        fs::set_permissions(&config, fs::Permissions::from_mode(0o640)).unwrap();
        let file = ConfigFile(config.clone());
        write((&file, "/token"), None, file.room(TOKEN_MOST).unwrap(), "new-1").unwrap();
        assert_eq!(fs::read_to_string(&config).unwrap(), text.replace("\"old\"", "new-1"));
        assert_eq!(fs::metadata(&config).unwrap().permissions().mode() & 0o777, 0o640);

        fs::write(&secret, "old\n").unwrap();
        let place = ConfigFile(secret.clone());
        write((&file, "/token"), Some(&place), place.room(TOKEN_MOST).unwrap(), "new-2").unwrap();
        assert_eq!(fs::read_to_string(&secret).unwrap(), "new-2\n");
        assert!(!fs::read_to_string(&config).unwrap().contains("new-2"));
    }
}
