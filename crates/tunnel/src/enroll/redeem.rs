//! The client's side: exchanges a code for a configuration file.

use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::{fs, mem};

use anyhow::Context;
use config::{Endpoint, Lists, Scheme, edit, server_url};
use ops::WrongConfig;
use ops::enrol::{Allowed, Code, encrypted};
use ops::state::Room;
use ops::term::{self, Waiting};
use proto::greeting::{Name, Token};
use zeroize::Zeroizing;

use super::exchange::{Verified, exchange, start_with, ways};
use super::extend::extend;
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
const LINE_MAX: u64 = 16 << 10;

/// Sends the code to the server, writes the new configuration to the file of `--config`, and
/// returns the arguments of a client that starts with that file. If the file already exists and
/// belongs to the same client, it is used and the code is not sent. So the whole command may be run
/// again. `None`: the client already runs, and has what the code provides.
pub(crate) fn redeem(args: &ClientArgs, code: &str) -> anyhow::Result<Option<ClientArgs>> {
    let line = if code == "-" { Some(first_line(LINE_MAX)?) } else { None };
    let code = line.as_deref().unwrap_or(code);
    let mut code = Code::read(code).map_err(|why| WrongConfig::one(format!("--enroll: {why}")))?;
    choose_servers(&mut code, args);
    let path = args.daemon.config.clone().unwrap_or_else(|| FILE.into());
    // An empty file comes from an enrolment that was interrupted.
    if fs::metadata(&path).is_ok_and(|file| file.len() > 0) {
        is_of(&path, &code.name)?;
        if code.renew {
            return renew(&path, &code, args);
        }
        let at = path.display();
        term::err(format_args!(
            "{at} is there already: the code is not used (to enrol anew, move the file away or name \
             another one with --config)"
        ));
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
    choose_servers(&mut code, args);
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
    choose_servers(&mut code, args);
    let pin = code.pin.as_deref().filter(|_| code.self_signed);
    file(&code, pin, token, (args, lists, more))
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
    choose_servers(&mut code, args);
    // The empty file reserves the name for the following steps, which remove it after a failure.
    files::create_new(path).with_context(|| format!("making {}", path.display()))?;
    exchange_for_file(args, &code, path, (lists, more)).inspect_err(|_| {
        // It is removed already if the exchange has begun.
        if fs::symlink_metadata(path).is_ok_and(|file| file.len() == 0) {
            drop(fs::remove_file(path));
        }
    })
}

/// Sends the code and writes the file.
fn exchange_for_file(
    args: &ClientArgs,
    code: &Code,
    path: &Path,
    (lists, more): (&Lists, &str),
) -> anyhow::Result<()> {
    // Problems of the other flags are reported before the code is used.
    let ways = ways(code, args, Vec::new())?;
    let name = Name::new(&code.name).map_err(|why| WrongConfig::one(format!("--enroll: {why}")))?;
    let secret = Token::new(&code.secret)
        .map_err(|_| WrongConfig::one("--enroll: the code is damaged".to_owned()))?;
    // The longest text: with the pin, and with the longest token.
    let longest = file(code, code.pin.as_deref(), "", (args, lists, more))?.len() + TOKEN_MOST;
    let place = Reserved::new(path, longest)?;
    let runtime = slow_runtime()?;
    let exchanging = || runtime.block_on(exchange(&ways, &name, &secret));
    let (token, won) = Waiting::during("waiting for the server", exchanging)?;
    // Over a path without TLS, or through a reverse proxy, the server's certificate was not
    // presented. So the pin of the code is kept.
    let way = &ways[won];
    let is_seen = way.has_tls && !way.is_of_proxy;
    let pin = code.pin.as_deref().filter(|_| way.is_pinned || !is_seen);
    let pin = pin.filter(|_| args.pin.is_empty() && args.ca.is_none());
    place.fill(&file(code, pin, token.reveal(), (args, lists, more))?).with_context(|| {
        format!(
            "the token of client `{name}` is lost: ask for another code with `tunnel enroll --renew \
             {name}`"
        )
    })?;
    let rights = rights(code).map(|rights| format!(" it {rights};")).unwrap_or_default();
    let at = path.display();
    term::err(format_args!("client `{name}` is enrolled;{rights} its configuration is {at}"));
    Ok(())
}

/// The rights that the code lists. The server may have changed them since.
fn rights(code: &Code) -> Option<Allowed> {
    let rights = Allowed::of_code(code);
    (rights != Allowed::default()).then_some(rights)
}

/// Puts the addresses that the client will use into the code: those of `--server` unchanged, else
/// the encrypted addresses of the code.
fn choose_servers(code: &mut Code, args: &ClientArgs) {
    if args.server.is_empty() {
        code.urls = encrypted(mem::take(&mut code.urls));
    } else {
        // A text that is not an address is reported with its flag.
        let long =
            |text: &String| server_url(text).map_or_else(|_| text.clone(), |at| at.to_string());
        code.urls = args.server.iter().map(long).collect();
    }
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
fn file(
    code: &Code,
    pin: Option<&str>,
    token: &str,
    (args, lists, more): (&ClientArgs, &Lists, &str),
) -> anyhow::Result<Zeroizing<String>> {
    let mut text = String::from("# Made by `tunnel client --enroll`.\nservers:\n");
    for url in &code.urls {
        let sni = code.names.get(url).map(|name| format!(", sni: {}", quoted(name)));
        let pin = pin.filter(|_| is_pinned(url, code.proxied));
        let tls = pin.map(|pin| format!(", tls: {{ pin: {} }}", quoted(pin)));
        let more: String = sni.into_iter().chain(tls).collect();
        let _ = match more.as_str() {
            "" => writeln!(text, "  - {}", quoted(url)),
            more => writeln!(text, "  - {{ url: {}{more} }}", quoted(url)),
        };
    }
    let _ = writeln!(text, "name: {}\ntoken: {}", quoted(&code.name), quoted(token));
    if let Some(chosen) = Verified::of_flags(args)? {
        text.push_str(&chosen.text());
    }
    if let Some(connections) = args.connections {
        let _ = writeln!(text, "connections: {connections}");
    }
    text.push_str(more);
    Ok(Zeroizing::new(edit::publish(FILE, &text, lists).map_err(refusal)?))
}

/// Whether the pin of the server applies to this URL.
fn is_pinned(url: &str, proxied: bool) -> bool {
    url.parse::<Endpoint>()
        .is_ok_and(|Endpoint { scheme, .. }| scheme.tls && !(proxied && scheme == Scheme::WSS))
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
        let room = || -> io::Result<Room> {
            let whole = std::path::absolute(path)?;
            let (Some(folder), Some(name)) = (whole.parent(), whole.file_name()) else {
                return Err(io::ErrorKind::InvalidFilename.into());
            };
            Room::reserve(folder, &name.to_string_lossy(), size)
        };
        let room = room().with_context(|| {
            format!("making {} (the code has not been used and is still good)", path.display())
        })?;
        reserved.room = Some(room);
        Ok(reserved)
    }

    fn fill(mut self, text: &str) -> anyhow::Result<()> {
        let Some(room) = self.room.take() else { return Ok(()) };
        let filled = room.fill(text.as_bytes(), None);
        self.filled = filled.is_ok();
        filled.with_context(|| format!("writing {}", self.path.display()))
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
        }
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
            let text = file(&code(url), Some(pin), "t", nothing).unwrap();
            assert_eq!(text.contains(pin), has_tls, "{url}");
            // Of these, a reverse proxy ends TLS of a WebSocket alone.
            let proxied = Code { proxied: true, ..code(url) };
            let text = file(&proxied, Some(pin), "t", nothing).unwrap();
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
            let text = file(&code, pin, "t", (&args, &Lists::default(), "")).unwrap();
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
        let text = file(&code, None, "t", (&args, &lists, "")).unwrap();
        assert!(text.contains("\ntls: { ca: \"/etc/$$${x}/ca.pem\" }\n"), "{}", *text);
        let args = ClientArgs { pin: vec![pin.into()], ..ClientArgs::default() };
        let text = file(&code, None, "t", (&args, &lists, "")).unwrap();
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
        choose_servers(&mut code, &given(&[]));
        assert_eq!(code.urls, ["tls://a:2", "quic://a:2"]);
        let mut code = of_code();
        choose_servers(&mut code, &given(&["tcp://b:1", "tls://b:2"]));
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
            let text = file(&code(url), None, "t", (&args, &Lists::default(), "")).unwrap();
            assert!(text.contains("$${CARGO_PKG_NAME}"));
        }
    }
}
