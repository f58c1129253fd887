//! The client's side: exchanges a code for a configuration file.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufRead as _, Read as _};
use std::mem;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use config::{ClientConfig, ClientFlags, Endpoint, Lists, Secret, Sources, edit, server_url};
use link::GreetError;
use link::client::{DialError, enroll};
use node::transports::Way;
use ops::enrol::{Allowed, Code, encrypted};
use ops::state::write_private;
use ops::{WrongConfig, term};
use proto::greeting::{EnrolledToken, Name, Refusal, Token};
use zeroize::Zeroizing;

use super::extend::extend;
use super::quoted;
use super::renew::renew;
use crate::cli::ClientArgs;
use crate::config_file::refusal;
use crate::input::with_sources;
use crate::load::{self, Either};
use crate::runtime::slow_runtime;

/// The default path of the configuration.
const FILE: &str = "client.yaml";

/// Most bytes that are read of a code; longer than any code.
const LINE_MAX: u64 = 16 << 10;

/// Sends the code to the server, writes the new configuration to the file of `--config`, and
/// returns the arguments of a client that starts with that file. If the file already exists and
/// belongs to the same client, it is used and the code is not sent. So the whole command may be run
/// again.
pub(crate) fn redeem(args: &ClientArgs, code: &str) -> anyhow::Result<ClientArgs> {
    let line = if code == "-" { Some(first_line()?) } else { None };
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
        return Ok(start_with(args, path, false));
    }
    // Problems of the other flags are reported before the code is used.
    let ways = ways(&code, args)?;
    let name = Name::new(&code.name).map_err(|why| WrongConfig::one(format!("--enroll: {why}")))?;
    let secret = Token::new(&code.secret)
        .map_err(|_| WrongConfig::one("--enroll: the code is damaged".to_owned()))?;
    let lists = load::flag_lists(args)?;
    let place = Reserved::new(&path)?;
    let (token, won) = slow_runtime()?.block_on(exchange(&ways, &name, &secret))?;
    // A path without TLS has shown no certificate, so the pin of the code is kept.
    let pin = code.pin.as_deref().filter(|_| ways[won].is_pinned || !ways[won].has_tls);
    place.fill(&file(&code, pin, token.reveal(), (args, &lists))?)?;
    let rights = rights(&code).map(|rights| format!(" it {rights};")).unwrap_or_default();
    let at = path.display();
    term::err(format_args!("client `{name}` is enrolled;{rights} its configuration is {at}"));
    Ok(start_with(args, path, true))
}

/// The rights that the code tells. The server may have changed them since.
fn rights(code: &Code) -> Option<Allowed> {
    let rights = Allowed::of_code(code);
    (rights != Allowed::default()).then_some(rights)
}

/// Puts the addresses that the client will use into the code: those of `--server` as they are, else
/// the encrypted addresses of the code.
fn choose_servers(code: &mut Code, args: &ClientArgs) {
    if args.server.is_empty() {
        code.urls = encrypted(mem::take(&mut code.urls));
    } else {
        // A text that is no address is reported with its flag.
        let long =
            |text: &String| server_url(text).map_or_else(|_| text.clone(), |at| at.to_string());
        code.urls = args.server.iter().map(long).collect();
    }
}

/// The first line of standard input. An argument could be read by every user of this machine.
fn first_line() -> anyhow::Result<String> {
    let mut line = String::new();
    io::stdin().lock().take(LINE_MAX).read_line(&mut line).context("standard input")?;
    Ok(line)
}

/// Checks that the existing file belongs to this client.
fn is_of(path: &Path, name: &str) -> anyhow::Result<()> {
    let other = match load::file(path)? {
        Either::Client(loaded) if loaded.config.name == name => return Ok(()),
        Either::Client(loaded) => format!("of client `{}`", loaded.config.name),
        Either::Server(_) => "a server's".to_owned(),
    };
    let text = format!(
        "{} is there already, and is {other}, not of client `{name}` (hint: choose another file \
         with --config)",
        path.display()
    );
    Err(WrongConfig::one(text).into())
}

/// The arguments of a client that starts with the file. `fresh`: the file has just been made and has
/// all settings. The services and forwards are in the file in either case.
pub(super) fn start_with(args: &ClientArgs, path: PathBuf, fresh: bool) -> ClientArgs {
    let mut args = args.clone();
    args.daemon.config = Some(path);
    (args.enroll, args.publish, args.forward) = Default::default();
    if fresh {
        (args.connections, args.server) = Default::default();
    }
    args
}

/// A path to the server, and how its certificate is verified.
#[derive(Debug)]
pub(super) struct Candidate {
    way: Way,
    is_pinned: bool,
    has_tls: bool,
}

/// All paths, the best first. A certificate that the system trusts is better than a pin, because a
/// pin may become invalid when the certificate is renewed. This is safe: an attacker with such a
/// certificate and without the code learns nothing and is detected. If the server's certificate is
/// self-signed, the pin comes first. A path without TLS comes last.
pub(super) fn ways(code: &Code, args: &ClientArgs) -> anyhow::Result<Vec<Candidate>> {
    let mut kinds = vec![None];
    kinds.extend(code.pin.as_deref().map(Some));
    if code.self_signed {
        kinds.reverse();
    }
    let (mut found, mut failed) = (Vec::new(), None);
    for pin in kinds {
        let config = checked(code, args, pin)?;
        for path in &config.servers {
            let (has_tls, is_pinned) = (path.endpoint.scheme.tls, pin.is_some());
            // A path without TLS has no certificate, so it is needed only once.
            if !has_tls && is_pinned {
                continue;
            }
            match Way::new(path, &config.common) {
                Ok(way) => found.push(Candidate { way, is_pinned, has_tls }),
                // The usual cause is a system without authorities. The pin needs none.
                Err(why) => failed = Some(why),
            }
        }
    }
    // The sort is stable, so the order stays otherwise.
    found.sort_by_key(|candidate| !candidate.has_tls);
    match failed {
        Some(why) if found.is_empty() => Err(why),
        _ => Ok(found),
    }
}

/// Checks all flags as the flags of a client with a token.
fn checked(code: &Code, args: &ClientArgs, pin: Option<&str>) -> anyhow::Result<ClientConfig> {
    let flags = ClientFlags {
        // The author of the code must not read environment variables of this machine.
        server: code.urls.iter().map(|url| url.replace("${", "$${")).collect(),
        name: Some(code.name.replace("${", "$${")),
        token: Some(Secret::new(code.secret.clone())),
        pin: pin.map(str::to_owned).into_iter().collect(),
        publish: args.publish.clone(),
        forward: args.forward.clone(),
        connections: args.connections.map(|n| n.to_string()),
        ..ClientFlags::default()
    };
    // The environment may name a proxy.
    let load = |sources: &Sources<'_>| config::load_client(None, &flags, sources);
    Ok(with_sources(Path::new(""), load).map_err(WrongConfig::from)?.config)
}

/// Gets the token over the first path that reaches the server. Returns the token and the index of
/// the path.
pub(super) async fn exchange(
    ways: &[Candidate],
    name: &Name,
    code: &Token,
) -> anyhow::Result<(EnrolledToken, usize)> {
    let mut failed = None;
    for (index, candidate) in ways.iter().enumerate() {
        let path = candidate.way.path();
        let error = match enroll(&path, name.clone(), code.clone()).await {
            Ok(token) => return Ok((token, index)),
            Err(error) => error,
        };
        match &error {
            DialError::Greet(greet) if greet.refusal().is_some() => {
                bail!("{}: {}", path.url, greet.refusal().map(advice).unwrap_or_default());
            }
            DialError::Greet(
                GreetError::Io(_) | GreetError::Handshake(_) | GreetError::Timeout,
            ) => {
                bail!(
                    "{}: {error}. The code may be used up by that: try it once more, and if it is \
                       refused, ask for another with `tunnel enroll`",
                    path.url
                );
            }
            DialError::Greet(GreetError::Greeting(_)) | DialError::Carrier(_) => {}
        }
        // The error of the first path is reported, because the first path is the preferred path.
        failed.get_or_insert((path.url, error));
    }
    let (url, error) = failed.context("the code names no server")?;
    Err(anyhow::anyhow!("{url}: {error} (the code is still good; --server says another way there)"))
}

fn advice(refusal: Refusal) -> String {
    if refusal == Refusal::BadCredential {
        "the code is not good (any more): it lasts ten minutes, works once, and ends when the server \
         restarts; ask for another with `tunnel enroll`"
            .to_owned()
    } else if refusal == Refusal::Unavailable {
        "the server could not keep the new client; its log says why. The code is still good"
            .to_owned()
    } else {
        format!("refused: {refusal}")
    }
}

/// The text of the configuration, with all settings of the client.
fn file(
    code: &Code,
    pin: Option<&str>,
    token: &str,
    (args, lists): (&ClientArgs, &Lists),
) -> anyhow::Result<Zeroizing<String>> {
    let mut text = String::from("# Made by `tunnel client --enroll`.\nservers:\n");
    for url in &code.urls {
        let _ = match pin {
            Some(pin) if has_tls(url) => {
                writeln!(text, "  - {{ url: {}, tls: {{ pin: {} }} }}", quoted(url), quoted(pin))
            }
            _ => writeln!(text, "  - {}", quoted(url)),
        };
    }
    let _ = writeln!(text, "name: {}\ntoken: {}", quoted(&code.name), quoted(token));
    if let Some(connections) = args.connections {
        let _ = writeln!(text, "connections: {connections}");
    }
    Ok(Zeroizing::new(edit::publish(FILE, &text, lists).map_err(refusal)?))
}

fn has_tls(url: &str) -> bool {
    url.parse::<Endpoint>().is_ok_and(|endpoint| endpoint.scheme.tls)
}

/// A reserved file, which is removed on drop unless it was filled. The code must not be used before
/// it is certain that the result can be written.
#[derive(Debug)]
struct Reserved<'a> {
    path: &'a Path,
    filled: bool,
}

impl<'a> Reserved<'a> {
    fn new(path: &'a Path) -> anyhow::Result<Self> {
        files::open_or_create(path).with_context(|| format!("making {}", path.display()))?;
        Ok(Self { path, filled: false })
    }

    fn fill(mut self, text: &str) -> anyhow::Result<()> {
        let write = || -> io::Result<()> {
            let whole = std::path::absolute(self.path)?;
            let (Some(folder), Some(name)) = (whole.parent(), whole.file_name()) else {
                return Err(io::ErrorKind::InvalidFilename.into());
            };
            write_private(folder, &name.to_string_lossy(), text.as_bytes())
        };
        write().with_context(|| format!("writing {}", self.path.display()))?;
        self.filled = true;
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
    use super::*;

    fn code(url: &str) -> Code {
        Code {
            name: "home".into(),
            secret: "q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi".into(),
            pin: None,
            self_signed: false,
            renew: false,
            may: None,
            reach: None,
            urls: vec![url.to_owned()],
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
            let nothing = (&ClientArgs::default(), &Lists::default());
            let text = file(&code(url), Some(pin), "t", nothing).unwrap();
            assert_eq!(text.contains(pin), has_tls, "{url}");
        }
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
        let text = format!("{:#}", Reserved::new(&path).unwrap_err());
        assert!(text.contains("client.yaml: this is a symbolic link"), "{text}");
        assert!(!aim.exists() && fs::symlink_metadata(&path).unwrap().is_symlink());
    }

    /// Otherwise a code could send values of environment variables to its author.
    #[test]
    fn a_code_reads_nothing_of_the_environment() {
        let args = ClientArgs::default();
        // Cargo sets this variable.
        for url in ["tls://${CARGO_PKG_NAME}.example:7000", "wss://a.example/${CARGO_PKG_NAME}"] {
            assert!(checked(&code(url), &args, None).is_err(), "{url}");
            let text = file(&code(url), None, "t", (&args, &Lists::default())).unwrap();
            assert!(text.contains("$${CARGO_PKG_NAME}"));
        }
    }
}
