//! The client's part: a code becomes a configuration file.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead as _, Read as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use config::{ClientConfig, ClientFlags, Endpoint, Secret, Sources};
use link::GreetError;
use link::client::{DialError, enroll};
use node::transports::Way;
use ops::enrol::Code;
use ops::state::write_private;
use ops::{WrongConfig, term};
use proto::greeting::{EnrolledToken, Name, Refusal, Token};
use zeroize::Zeroizing;

use super::quoted;
use crate::cli::ClientArgs;
use crate::input::with_sources;
use crate::load::{self, Either};
use crate::runtime::slow_runtime;

/// Where the configuration goes unless a flag says otherwise.
const FILE: &str = "client.yaml";

/// Longer than any code, in bytes.
const LINE_MAX: u64 = 16 << 10;

/// Gives the code to the server, writes what it got for it to the file of `--config`, and returns
/// the arguments of a client that was always started with that file. A file of the same client that
/// is there already is taken as it is, so that the whole command may be run again.
pub(crate) fn redeem(args: &ClientArgs, code: &str) -> anyhow::Result<ClientArgs> {
    let line = if code == "-" { Some(first_line()?) } else { None };
    let code = line.as_deref().unwrap_or(code);
    let mut code = Code::read(code).map_err(|why| WrongConfig::one(format!("--enroll: {why}")))?;
    if !args.server.is_empty() {
        code.urls.clone_from(&args.server);
    }
    let path = args.daemon.config.clone().unwrap_or_else(|| FILE.into());
    // One without a word in it is what somebody left who lost patience.
    if fs::metadata(&path).is_ok_and(|file| file.len() > 0) {
        is_of(&path, &code.name)?;
        let at = path.display();
        let flags = if has_flags(args) { ", nor what else was given here" } else { "" };
        term::err(format_args!(
            "{at} is there already: the code is not used{flags} (to use it, remove the file)"
        ));
        return Ok(start_with(args, path));
    }
    // What is wrong with the other flags is told before the code is spent.
    let ways = ways(&code, args)?;
    let name = Name::new(&code.name).map_err(|why| WrongConfig::one(format!("--enroll: {why}")))?;
    let secret = Token::new(&code.secret)
        .map_err(|_| WrongConfig::one("--enroll: the code is damaged".to_owned()))?;
    let place = Reserved::new(&path)?;
    let (token, won) = slow_runtime()?.block_on(exchange(&ways, &name, &secret))?;
    // Over a way without TLS nothing was learnt about certificates.
    let pin = code.pin.as_deref().filter(|_| ways[won].is_pinned || !ways[won].has_tls);
    place.fill(&file(&code, pin, token.reveal(), args))?;
    term::err(format_args!("client `{name}` is enrolled; its configuration is {}", path.display()));
    Ok(start_with(args, path))
}

/// Of standard input: what is an argument may be read by everybody on this machine.
fn first_line() -> anyhow::Result<String> {
    let mut line = String::new();
    io::stdin().lock().take(LINE_MAX).read_line(&mut line).context("standard input")?;
    Ok(line)
}

fn has_flags(args: &ClientArgs) -> bool {
    let lists = [&args.server, &args.publish, &args.forward];
    args.connections.is_some() || lists.iter().any(|list| !list.is_empty())
}

/// Is the file there that of this client?
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

fn start_with(args: &ClientArgs, path: PathBuf) -> ClientArgs {
    let mut args = args.clone();
    args.daemon.config = Some(path);
    // They stand in the file.
    (args.enroll, args.connections) = (None, None);
    (args.server, args.publish, args.forward) = Default::default();
    args
}

/// A way to the server, and what its certificate is compared with there.
#[derive(Debug)]
struct Candidate {
    way: Way,
    is_pinned: bool,
    has_tls: bool,
}

/// All ways, the best first. A certificate that the system trusts is better than a pin, which may
/// not survive its renewal: whoever has such a certificate and not the code learns nothing and is
/// found out. A way without TLS comes last.
fn ways(code: &Code, args: &ClientArgs) -> anyhow::Result<Vec<Candidate>> {
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
            // Once is enough where there is no certificate.
            if !has_tls && is_pinned {
                continue;
            }
            match Way::new(path, &config.common) {
                Ok(way) => found.push(Candidate { way, is_pinned, has_tls }),
                // A system without authorities, mostly; the pin needs none.
                Err(why) => failed = Some(why),
            }
        }
    }
    // Keeps the order otherwise.
    found.sort_by_key(|candidate| !candidate.has_tls);
    match failed {
        Some(why) if found.is_empty() => Err(why),
        _ => Ok(found),
    }
}

/// All flags as those of a client that has its token.
fn checked(code: &Code, args: &ClientArgs, pin: Option<&str>) -> anyhow::Result<ClientConfig> {
    let flags = ClientFlags {
        // Whoever made the code has no say over what is looked up in the environment here.
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

/// The first way that leads to the server gives the token. Says which it was.
async fn exchange(
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
        // The way that ought to have led there is the one to tell of.
        failed.get_or_insert((path.url, error));
    }
    let (url, error) = failed.context("the code names no server")?;
    Err(anyhow::anyhow!("{url}: {error} (the code is still good; --server says another way there)"))
}

fn advice(refusal: Refusal) -> String {
    if refusal == Refusal::BadCredential {
        "the code is not good (any more): it lasts ten minutes and works once; ask for another with \
         `tunnel enroll`"
            .to_owned()
    } else if refusal == Refusal::Unavailable {
        "the server could not keep the new client; its log says why. The code is still good"
            .to_owned()
    } else {
        format!("refused: {refusal}")
    }
}

/// The configuration: everything that the client needs and was given.
fn file(code: &Code, pin: Option<&str>, token: &str, args: &ClientArgs) -> Zeroizing<String> {
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
    for (key, left, pairs) in
        [("services", "public", &args.publish), ("forwards", "listen", &args.forward)]
    {
        if !pairs.is_empty() {
            let _ = writeln!(text, "{key}:");
        }
        for (from, to) in pairs.iter().filter_map(|pair| pair.split_once('=')) {
            // As on the command line, where the environment counts as well.
            let [from, to] = [from, to].map(|text| serde_json::Value::from(text).to_string());
            let _ = writeln!(text, "  - {{ {left}: {from}, target: {to} }}");
        }
    }
    Zeroizing::new(text)
}

fn has_tls(url: &str) -> bool {
    url.parse::<Endpoint>().is_ok_and(|endpoint| endpoint.scheme.tls)
}

/// A file that is there for us to fill, and goes if we do not: the code must not be spent before we
/// know that its fruit can be kept.
#[derive(Debug)]
struct Reserved<'a> {
    path: &'a Path,
    filled: bool,
}

impl<'a> Reserved<'a> {
    fn new(path: &'a Path) -> anyhow::Result<Self> {
        let made =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
        made.with_context(|| format!("making {}", path.display()))?;
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
            urls: vec![url.to_owned()],
        }
    }

    #[test]
    fn the_pin_stands_beside_each_way_that_has_tls() {
        let pin = "sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
        for (url, has_tls) in [
            ("tls://a:1", true),
            ("quic://a:1", true),
            ("wss://a/t", true),
            ("ws://a/t", false),
            ("tcp://a:1", false),
        ] {
            let text = file(&code(url), Some(pin), "t", &ClientArgs::default());
            assert_eq!(text.contains(pin), has_tls, "{url}");
        }
    }

    /// Else a code from anywhere would send what stands there to whoever made it.
    #[test]
    fn a_code_reads_nothing_of_the_environment() {
        let args = ClientArgs::default();
        // Cargo sets it.
        for url in ["tls://${CARGO_PKG_NAME}.example:7000", "wss://a.example/${CARGO_PKG_NAME}"] {
            assert!(checked(&code(url), &args, None).is_err(), "{url}");
            assert!(file(&code(url), None, "t", &args).contains("$${CARGO_PKG_NAME}"));
        }
    }
}
