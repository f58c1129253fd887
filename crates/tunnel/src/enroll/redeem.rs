//! The client's side: exchanges a code for a configuration file.

use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::{fs, mem};

use anyhow::Context;
use config::{Endpoint, Lists, edit, server_url};
use ops::WrongConfig;
use ops::enrol::{Allowed, Code, encrypted};
use ops::state::Room;
use ops::term::{self, Waiting};
use proto::greeting::{Name, Token};
use zeroize::Zeroizing;

use super::exchange::{Candidate, Verified, exchange, is_pinned, kept_pin, start_with, ways};
use super::extend::extend;
use super::missing::add_servers;
use super::renew::{TOKEN_MOST, renew};
use crate::cli::ClientArgs;
use crate::config_file::refusal;
use crate::input::first_line;
use crate::load::{self, Either};
use crate::quoted::quoted;
use crate::runtime::slow_runtime;

/// The default path of the configuration.
const FILE: &str = "client.yaml";

/// The largest size of a code that is read, in bytes; longer than any code.
pub(crate) const LINE_MAX: u64 = 16 << 10;

/// Sends the code to the server, writes the new configuration to the file of `--config`, and
/// returns the arguments of a client that starts with that file. If the file already exists and
/// belongs to the same client, it is used and the code is not sent. So the whole command may be run
/// again. `None`: the client already runs, and has what the code provides.
pub(crate) fn redeem(args: &ClientArgs, code: &str) -> anyhow::Result<Option<ClientArgs>> {
    let line = if code == "-" { Some(first_line(LINE_MAX)?) } else { None };
    let code = line.as_deref().unwrap_or(code);
    let mut code = Code::read(code).map_err(|why| WrongConfig::one(format!("--enroll: {why}")))?;
    choose_servers(&mut code, args)?;
    let path = args.daemon.config.clone().unwrap_or_else(|| FILE.into());
    // An empty file comes from an enrolment that was interrupted.
    if fs::metadata(&path).is_ok_and(|file| file.len() > 0) {
        is_of(&path, &code.name)?;
        if code.renew {
            return renew(&path, &code, args);
        }
        if !add_servers(args, &code, &path)? {
            let at = path.display();
            term::err(format_args!(
                "{at} is there already: the code is not used (to enrol anew, move the file away or \
                 name another one with --config)"
            ));
        }
        extend(&path, args)?;
        return Ok(Some(start_with(args, path, false)));
    }
    let lists = load::flag_lists(args)?;
    exchange_for_file(args, &code, &path, (&lists, ""))?;
    Ok(Some(start_with(args, path, true)))
}

/// Enrols a visitor of a private service: as [`redeem`] does, but for a new file with these
/// services and forwards.
pub(crate) fn enroll_with(
    args: &ClientArgs,
    mut code: Code,
    path: &Path,
    lists: &Lists,
) -> anyhow::Result<()> {
    choose_servers(&mut code, args)?;
    exchange_for_file(args, &code, path, (lists, ""))
}

/// The file that [`enroll_new`] creates, with `token` as the token that the code is exchanged for.
/// Whether the file has the pin of the code is decided at the exchange, where the system may trust
/// the certificate of the server.
pub(crate) fn drafted(
    args: &ClientArgs,
    mut code: Code,
    token: &str,
    (lists, more): (&Lists, &str),
) -> anyhow::Result<Zeroizing<String>> {
    choose_servers(&mut code, args)?;
    let each = code.each().map(|code| {
        let pin = code.pin.as_deref().filter(|_| code.self_signed);
        AtServer { code, pin, token }
    });
    file(&each.collect::<Vec<_>>(), (args, lists, more))
}

/// Enrols with the code of a new client, and creates its file with these services, forwards, and
/// further lines.
///
/// # Errors
/// A file or a link with this name exists, which is left unchanged; or as [`redeem`].
pub(crate) fn enroll_new(
    args: &ClientArgs,
    mut code: Code,
    path: &Path,
    (lists, more): (&Lists, &str),
) -> anyhow::Result<()> {
    choose_servers(&mut code, args)?;
    // The empty file reserves the name for the following steps, which remove it after a failure.
    files::create_new(path).with_context(|| format!("making {}", path.display()))?;
    exchange_for_file(args, &code, path, (lists, more)).inspect_err(|_| {
        // It is removed already if the exchange has begun.
        if fs::symlink_metadata(path).is_ok_and(|file| file.len() == 0) {
            drop(fs::remove_file(path));
        }
    })
}

/// What the file of a client has of a server.
struct AtServer<'a> {
    code: &'a Code,
    pin: Option<&'a str>,
    token: &'a str,
}

/// Sends the code of each server to that server, and writes the file after each answer, because a
/// token of a server cannot be made again by the same code. Without the first server
/// nothing is written, and no other code is sent. The file lacks a further server that has not
/// taken its code.
fn exchange_for_file(
    args: &ClientArgs,
    code: &Code,
    path: &Path,
    (lists, more): (&Lists, &str),
) -> anyhow::Result<()> {
    // Problems of the other flags are reported before a code is used.
    let mut all = Vec::new();
    for code in code.each() {
        let secret = Token::new(&code.secret)
            .map_err(|_| WrongConfig::one("--enroll: the code is damaged".to_owned()))?;
        all.push((code, ways(code, args, Vec::new())?, secret));
    }
    let name = Name::new(&code.name).map_err(|why| WrongConfig::one(format!("--enroll: {why}")))?;
    // The longest text: with the pins, and with the longest tokens.
    let longest = |code| AtServer { code, pin: code.pin.as_deref(), token: "" };
    let longest: Vec<_> = code.each().map(longest).collect();
    let longest = file(&longest, (args, lists, more))?.len() + TOKEN_MOST * all.len();
    let mut place = Reserved::new(path, longest)?;
    let runtime = slow_runtime()?;
    let exchange = |code: &Code, ways: &[Candidate], secret: &Token| {
        let exchanging = || runtime.block_on(exchange(ways, &name, secret));
        let (token, won) = Waiting::during("waiting for the server", exchanging)?;
        let pin = kept_pin(code, ways.get(won), args).map(str::to_owned);
        Ok((Zeroizing::new(token.reveal().to_owned()), pin))
    };
    let write = |each: &[AtServer<'_>]| {
        let text = file(each, (args, lists, more))?;
        place.fill(&text, longest).with_context(|| {
            format!(
                "the token of client `{name}` is lost: ask for another code with `tunnel enroll \
                 --renew {name}`"
            )
        })
    };
    let missing = redeem_each(&all, exchange, write)?;
    let rights = rights(code).map(|rights| format!(" it {rights};")).unwrap_or_default();
    let at = path.display();
    term::err(format_args!("client `{name}` is enrolled;{rights} its configuration is {at}"));
    for why in missing {
        term::err(format_args!(
            "{at} lacks a server: {why:#} (hint: ask for another code there, and run the command \
             again with the code of the first server, `+` and the other code: what is missing is \
             added to {at})"
        ));
    }
    Ok(())
}

/// Exchanges the code of each server, and calls `write` with all servers so far after each answer.
/// Returns why further servers have not taken their codes.
fn redeem_each(
    all: &[(&Code, Vec<Candidate>, Token)],
    mut exchange: impl FnMut(&Code, &[Candidate], &Token) -> anyhow::Result<TokenAndPin>,
    mut write: impl FnMut(&[AtServer<'_>]) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<anyhow::Error>> {
    let (mut done, mut missing) = (Vec::new(), Vec::new());
    for (code, ways, secret) in all {
        match exchange(code, ways, secret) {
            Ok((token, pin)) => done.push((*code, pin, token)),
            Err(why) if done.is_empty() => return Err(why),
            Err(why) => {
                missing.push(why);
                continue;
            }
        }
        let each = done.iter().map(|(code, pin, token)| AtServer {
            code,
            pin: pin.as_deref(),
            token: token.as_str(),
        });
        write(&each.collect::<Vec<_>>())?;
    }
    Ok(missing)
}

/// A token, and the pin that the file has for the server.
type TokenAndPin = (Zeroizing<String>, Option<String>);

/// The rights that the code lists. The server may have changed them since.
fn rights(code: &Code) -> Option<Allowed> {
    let rights = Allowed::of_code(code);
    (rights != Allowed::default()).then_some(rights)
}

/// Puts the addresses that the client will use into the code: those of `--server` unchanged, else
/// the encrypted addresses of the code.
fn choose_servers(code: &mut Code, args: &ClientArgs) -> Result<(), WrongConfig> {
    if args.server.is_empty() {
        let others = mem::take(&mut code.others);
        code.urls = encrypted(mem::take(&mut code.urls));
        let others = others.into_iter().map(|other| Code { urls: encrypted(other.urls), ..other });
        code.others = others.collect();
    } else if !code.others.is_empty() {
        let text = "--server goes with the code of one server; the code names several (hint: say \
                    --server to `tunnel enroll` of each server)";
        return Err(WrongConfig::one(text.to_owned()));
    } else {
        // A text that is not an address is reported with its flag.
        let long =
            |text: &String| server_url(text).map_or_else(|_| text.clone(), |at| at.to_string());
        code.urls = args.server.iter().map(long).collect();
    }
    Ok(())
}

/// Checks that the existing file belongs to this client.
fn is_of(path: &Path, name: &str) -> anyhow::Result<()> {
    let other = match load::file(path)? {
        Either::Client(loaded) if loaded.config.name == name => return Ok(()),
        Either::Client(loaded) => format!("of client `{}`", loaded.config.name),
        Either::Server(_) => "a server's".to_owned(),
        Either::Proxy(_) => "a proxy's".to_owned(),
    };
    let text = format!(
        "{} is there already, and is {other}, not of client `{name}` (hint: choose another file \
         with --config)",
        path.display()
    );
    Err(WrongConfig::one(text).into())
}

/// The text of the configuration, with all settings of the client, and with the lines of `more`.
/// Several servers have a token each, and the first of them that answers has the services.
fn file(
    all: &[AtServer<'_>],
    (args, lists, more): (&ClientArgs, &Lists, &str),
) -> anyhow::Result<Zeroizing<String>> {
    let mut text = String::from("# Made by `tunnel client --enroll`.\nservers:\n");
    match all {
        // A file for a joined code may get further servers.
        [AtServer { code, pin, token }] if code.others.is_empty() => {
            for path in paths(code, *pin) {
                let _ = writeln!(text, "  - {path}");
            }
            let _ = writeln!(text, "name: {}\ntoken: {}", quoted(&code.name), quoted(token));
        }
        all => {
            let names = names(all);
            for (AtServer { code, pin, token }, name) in all.iter().zip(&names) {
                let _ = writeln!(text, "  - name: {}\n    paths:", quoted(name));
                for path in paths(code, *pin) {
                    let _ = writeln!(text, "      - {path}");
                }
                let _ = writeln!(text, "    token: {}", quoted(token));
            }
            let name = all.first().map(|one| one.code.name.as_str()).unwrap_or_default();
            let policy = if all.len() > 1 { "use: failover\n" } else { "" };
            let _ = writeln!(text, "{policy}name: {}", quoted(name));
        }
    }
    if let Some(chosen) = Verified::of_flags(args)? {
        text.push_str(&chosen.text());
    }
    if let Some(connections) = args.connections {
        let _ = writeln!(text, "connections: {connections}");
    }
    text.push_str(more);
    Ok(Zeroizing::new(edit::publish(FILE, &text, lists).map_err(refusal)?))
}

/// The paths to a server as text of the configuration.
fn paths(code: &Code, pin: Option<&str>) -> Vec<String> {
    let path = |url: &String| {
        let sni = code.names.get(url).map(|name| format!(", sni: {}", quoted(name)));
        let pin = pin.filter(|_| is_pinned(url, code.proxied));
        let tls = pin.map(|pin| format!(", tls: {{ pin: {} }}", quoted(pin)));
        let more: String = sni.into_iter().chain(tls).collect();
        match more.as_str() {
            "" => quoted(url),
            more => format!("{{ url: {}{more} }}", quoted(url)),
        }
    };
    code.urls.iter().map(path).collect()
}

/// A name for each server: the host of its first path, or a number where the host is no name or has
/// a second server.
fn names(all: &[AtServer<'_>]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (nth, AtServer { code, .. }) in all.iter().enumerate() {
        let url = code.urls.first().and_then(|url| url.parse::<Endpoint>().ok());
        let host = url.map(|url| url.host.bare()).filter(|host| Name::new(host).is_ok());
        let host = host.filter(|host| !names.contains(host));
        names.push(host.unwrap_or_else(|| format!("server-{}", nth + 1)));
    }
    names
}

/// A reserved file with disk space, which is removed on drop unless it was filled. The code must
/// not be used before the space for its result is reserved.
#[derive(Debug)]
struct Reserved<'a> {
    path: &'a Path,
    room: Option<Room>,
    filled: bool,
}

impl<'a> Reserved<'a> {
    fn new(path: &'a Path, size: usize) -> anyhow::Result<Self> {
        files::open_or_create(path).with_context(|| format!("making {}", path.display()))?;
        let mut reserved = Self { path, room: None, filled: false };
        let room = reserved.room_for(size).with_context(|| {
            format!("making {} (the code has not been used and is still good)", path.display())
        })?;
        reserved.room = Some(room);
        Ok(reserved)
    }

    fn room_for(&self, size: usize) -> io::Result<Room> {
        let whole = std::path::absolute(self.path)?;
        let (Some(folder), Some(name)) = (whole.parent(), whole.file_name()) else {
            return Err(io::ErrorKind::InvalidFilename.into());
        };
        Room::reserve(folder, &name.to_string_lossy(), size)
    }

    /// Replaces the file by `text`, and reserves `size` bytes for the next text. Without the space
    /// the next text is written without a reserve.
    fn fill(&mut self, text: &str, size: usize) -> anyhow::Result<()> {
        let writing = || format!("writing {}", self.path.display());
        let room = match self.room.take() {
            Some(room) => room,
            None => self.room_for(0).with_context(writing)?,
        };
        room.fill(text.as_bytes(), None).with_context(writing)?;
        self.filled = true;
        self.room = self.room_for(size).ok();
        Ok(())
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if !self.filled {
            drop(fs::remove_file(self.path));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::exchange::checked;
    use super::*;

    fn code(url: &str) -> Code {
        Code {
            name: "home".into(),
            secret: "q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi".into(),
            pin: None,
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

    fn of_one(
        code: &Code,
        pin: Option<&str>,
        rest: (&ClientArgs, &Lists, &str),
    ) -> Zeroizing<String> {
        file(&[AtServer { code, pin, token: "t" }], rest).unwrap()
    }

    #[test]
    fn the_file_of_a_code_for_several_servers_has_a_token_for_each_and_fails_over() {
        let tokens = [
            "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ",
            "hT4mW9cXz2QpLs7VbN0dKf6yRg3JuEa8iMoYk5C1vBs",
        ];
        let pin = "sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
        let second = Code { urls: vec!["tls://a:2".into(), "quic://a:2".into()], ..code("") };
        let all = [
            AtServer { code: &code("tls://a:1"), pin: Some(pin), token: tokens[0] },
            AtServer { code: &second, pin: None, token: tokens[1] },
            AtServer { code: &code("tls://[2001:db8::1]:7000"), pin: None, token: tokens[0] },
        ];
        let text = file(&all, (&ClientArgs::default(), &Lists::default(), "")).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("client.yaml");
        files::create_new(&path).unwrap();
        fs::write(&path, text.as_bytes()).unwrap();
        let Either::Client(loaded) = load::file(&path).unwrap() else { panic!("no client") };
        let config = loaded.config;
        assert_eq!(config.policy, config::Policy::Failover);
        let names: Vec<_> = config.servers.iter().map(|server| server.label()).collect();
        assert_eq!(names, ["a", "server-2", "server-3"]);
        assert_eq!(config.servers[1].paths.len(), 2);
        let token = |nth: usize| config.servers[nth].token.as_ref().unwrap().secret.reveal();
        assert_eq!([token(0), token(1)], tokens);
        assert_eq!(config.pins(), [pin]);
    }

    #[test]
    fn the_file_has_each_token_before_the_next_code_is_sent() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("client.yaml");
        let tokens = [
            "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ",
            "hT4mW9cXz2QpLs7VbN0dKf6yRg3JuEa8iMoYk5C1vBs",
        ];
        let mut joined = code("tls://a:1");
        joined.join(vec![code("tls://b:1"), code("tls://c:1")]).unwrap();
        let servers = || {
            let Either::Client(loaded) = load::file(&path).unwrap() else { panic!("no client") };
            loaded.config.servers.iter().map(|server| server.label()).collect::<Vec<_>>()
        };
        let secret = || Token::new(tokens[0]).unwrap();
        let all: Vec<_> = joined.each().map(|code| (code, Vec::new(), secret())).collect();
        let mut place = Reserved::new(&path, 4096).unwrap();
        let mut seen = Vec::new();
        let exchange = |code: &Code, _: &[Candidate], _: &Token| {
            match code.urls[0].as_str() {
                "tls://a:1" => return Ok((Zeroizing::new(tokens[0].to_owned()), None)),
                "tls://b:1" => seen.push(servers()),
                _ => {
                    seen.push(servers());
                    return Ok((Zeroizing::new(tokens[1].to_owned()), None));
                }
            }
            anyhow::bail!("the code is not good")
        };
        let nothing = (&ClientArgs::default(), &Lists::default(), "");
        let write = |each: &[AtServer<'_>]| place.fill(&file(each, nothing)?, 4096);
        let missing = redeem_each(&all, exchange, write).unwrap();
        assert_eq!(missing.len(), 1);
        assert_eq!(seen, [["a"], ["a"]]);
        assert_eq!(servers(), ["a", "c"]);
        drop(place);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no reserve is left");
    }

    #[test]
    fn the_addresses_of_a_flag_go_with_the_code_of_one_server() {
        let args = ClientArgs { server: vec!["tls://c:1".into()], ..ClientArgs::default() };
        let mut both = code("tls://a:1");
        both.join(vec![code("tcp://b:1")]).unwrap();
        let why = choose_servers(&mut both, &args).unwrap_err().to_string();
        assert!(why.contains("the code names several"), "{why}");
        choose_servers(&mut both, &ClientArgs::default()).unwrap();
        assert_eq!(both.others[0].urls, ["tcp://b:1"]);
    }

    #[test]
    fn the_rights_of_a_code_are_told_and_a_code_without_them_tells_none() {
        let mut code = code("tls://a:1");
        assert_eq!(rights(&code), None);
        code.may = Some("10000-10999, 22".to_owned());
        let said = rights(&code).unwrap().to_string();
        assert_eq!(said, "may publish ports 10000-10999, 22");
    }

    #[test]
    fn the_pin_stands_beside_each_way_that_has_tls() {
        let pin = "sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
        for (url, has_tls) in [
            ("tls://a:1", true),
            ("quic://a:1", true),
            ("kcp://a:1", true),
            ("wss://a/t", true),
            ("ws://a/t", false),
            ("tcp://a:1", false),
        ] {
            let nothing = (&ClientArgs::default(), &Lists::default(), "");
            let text = of_one(&code(url), Some(pin), nothing);
            assert_eq!(text.contains(pin), has_tls, "{url}");
            // Of these, a reverse proxy ends TLS of a WebSocket alone.
            let proxied = Code { proxied: true, ..code(url) };
            let text = of_one(&proxied, Some(pin), nothing);
            assert_eq!(text.contains(pin), has_tls && !url.starts_with("wss"), "{url}");
        }
    }

    #[test]
    fn the_name_of_a_certificate_stands_beside_its_url_and_is_dialled() {
        let url = "tls://192.0.2.7:7000";
        let names = [(url.to_owned(), "tunnel.example.com".to_owned())].into();
        let code = Code { names, ..code(url) };
        let pin = "sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
        let args = ClientArgs::default();
        for pin in [None, Some(pin)] {
            let text = of_one(&code, pin, (&args, &Lists::default(), ""));
            assert!(text.contains(r#"sni: "tunnel.example.com""#), "{}", *text);
            assert_eq!(text.contains("pin"), pin.is_some());
        }
        let config = checked(&code, &args, &Verified::default()).unwrap();
        assert_eq!(config.servers[0].paths[0].sni.as_deref(), Some("tunnel.example.com"));
    }

    #[test]
    fn what_a_person_has_chosen_verifies_alone_and_is_in_the_file() {
        let pin = "sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
        let code = Code { pin: Some("sha256:code".into()), ..code("tls://a:1") };
        let lists = Lists::default();
        let args = ClientArgs { ca: Some("/etc/$${x}/ca.pem".into()), ..ClientArgs::default() };
        let text = of_one(&code, None, (&args, &lists, ""));
        assert!(text.contains("\ntls: { ca: \"/etc/$$${x}/ca.pem\" }\n"), "{}", *text);
        let args = ClientArgs { pin: vec![pin.into()], ..ClientArgs::default() };
        let text = of_one(&code, None, (&args, &lists, ""));
        assert!(text.contains(&format!("\ntls: {{ pin: [\"{pin}\"] }}\n")), "{}", *text);
        let ways = ways(&code, &args, Vec::new()).unwrap();
        assert_eq!(ways.len(), 1, "neither the system nor the pin of the code");
    }

    /// A code of an older server may name plain addresses first.
    #[test]
    fn of_the_addresses_of_a_code_the_encrypted_ones_are_kept_and_those_of_a_flag_all() {
        let of_code = || Code {
            urls: ["tcp://a:1", "tls://a:2", "quic://a:2"].map(str::to_owned).into(),
            ..code("")
        };
        let given = |servers: &[&str]| ClientArgs {
            server: servers.iter().map(ToString::to_string).collect(),
            ..ClientArgs::default()
        };
        let mut code = of_code();
        choose_servers(&mut code, &given(&[])).unwrap();
        assert_eq!(code.urls, ["tls://a:2", "quic://a:2"]);
        let mut code = of_code();
        choose_servers(&mut code, &given(&["tcp://b:1", "tls://b:2"])).unwrap();
        assert_eq!(code.urls, ["tcp://b:1", "tls://b:2"]);
    }

    #[test]
    fn a_link_in_the_place_of_the_new_file_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let [path, aim] = ["client.yaml", "aim"].map(|name| dir.path().join(name));
        std::os::unix::fs::symlink(&aim, &path).unwrap();
        let text = format!("{:#}", Reserved::new(&path, 1).unwrap_err());
        assert!(text.contains("client.yaml: this is a symbolic link"), "{text}");
        assert!(!aim.exists() && fs::symlink_metadata(&path).unwrap().is_symlink());
    }

    /// Otherwise a code could send values of environment variables to its author.
    #[test]
    fn a_code_reads_nothing_of_the_environment() {
        let args = ClientArgs::default();
        // Cargo sets this variable.
        for url in ["tls://${CARGO_PKG_NAME}.example:7000", "wss://a.example/${CARGO_PKG_NAME}"] {
            assert!(checked(&code(url), &args, &Verified::default()).is_err(), "{url}");
            let text = of_one(&code(url), None, (&args, &Lists::default(), ""));
            assert!(text.contains("$${CARGO_PKG_NAME}"));
        }
    }
}
