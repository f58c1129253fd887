//! The client's part: a code becomes a configuration file.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use config::{ClientFlags, Secret, Sources};
use link::client::{DialError, enroll};
use proto::greeting::{EnrolledToken, Name, Refusal, Token};
use zeroize::Zeroizing;

use super::Code;
use crate::cli::ClientArgs;
use crate::load::{self, Either, WrongConfig};
use crate::state::write_private;
use crate::term;
use crate::transports::Way;
use crate::workers::slow_runtime;

/// Where the configuration goes unless a flag says otherwise.
const FILE: &str = "client.yaml";

/// Gives the code to the server, writes what it got for it to the file of `--config`, and returns
/// the arguments of a client that was always started with that file. A file of the same client that
/// is there already is taken as it is, so that the whole command may be run again.
pub(crate) fn redeem(args: &ClientArgs, code: &str) -> anyhow::Result<ClientArgs> {
    let mut code = Code::read(code).map_err(|why| WrongConfig::one(format!("--enroll: {why}")))?;
    if !args.server.is_empty() {
        code.urls.clone_from(&args.server);
    }
    let path = args.daemon.config.clone().unwrap_or_else(|| FILE.into());
    if path.exists() {
        is_of(&path, &code.name)?;
        let at = path.display();
        term::err(format_args!("{at} is there already: the code is not used"));
        return Ok(start_with(args, path));
    }
    // What is wrong with the other flags is told before the code is spent.
    let trusted = ways(&code, args, None)?.into_iter().map(|way| (way, false));
    let pinned = code.pin.as_deref().map(|pin| ways(&code, args, Some(pin))).transpose()?;
    let pinned = pinned.into_iter().flatten().map(|way| (way, true));
    // A certificate that the system trusts is better than a pin, which may not survive its renewal.
    // Whoever has such a certificate and not the code learns nothing and is found out.
    let all: Vec<_> = if code.self_signed {
        pinned.chain(trusted).collect()
    } else {
        trusted.chain(pinned).collect()
    };
    let name = Name::new(&code.name).map_err(|why| WrongConfig::one(format!("--enroll: {why}")))?;
    let secret = Token::new(&code.secret)
        .map_err(|_| WrongConfig::one("--enroll: the code is damaged".to_owned()))?;
    let place = Reserved::new(&path)?;
    let (token, is_pinned) = slow_runtime()?.block_on(exchange(&all, &name, &secret))?;
    let pin = code.pin.as_deref().filter(|_| is_pinned);
    place.fill(&file(&code, pin, token.reveal(), args))?;
    term::err(format_args!("client `{name}` is enrolled; its configuration is {}", path.display()));
    Ok(start_with(args, path))
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

/// All flags checked as those of a client that has its token.
fn ways(code: &Code, args: &ClientArgs, pin: Option<&str>) -> anyhow::Result<Vec<Way>> {
    let flags = ClientFlags {
        server: code.urls.clone(),
        name: Some(code.name.clone()),
        token: Some(Secret::new(code.secret.clone())),
        pin: pin.map(str::to_owned).into_iter().collect(),
        publish: args.publish.clone(),
        forward: args.forward.clone(),
        connections: args.connections.map(|n| n.to_string()),
        ..ClientFlags::default()
    };
    let nothing = |_: &Path| Err(String::new());
    let sources = Sources { env: &|_| None, read: &nothing };
    let config = config::load_client(None, &flags, &sources).map_err(WrongConfig::from)?.config;
    config.servers.iter().map(|path| Way::new(path, &config.common)).collect()
}

/// The first way that leads to the server gives the token. Says whether it was one with the pin.
async fn exchange(
    ways: &[(Way, bool)],
    name: &Name,
    code: &Token,
) -> anyhow::Result<(EnrolledToken, bool)> {
    let mut failed = None;
    for (way, is_pinned) in ways {
        let path = way.path();
        let error = match enroll(&path, name.clone(), code.clone()).await {
            Ok(token) => return Ok((token, *is_pinned)),
            Err(error) => error,
        };
        if let DialError::Greet(greet) = &error
            && let Some(refusal) = greet.refusal()
        {
            bail!("{}: {}", path.url, advice(refusal));
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
    // A string of JSON is one of YAML, too.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
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
            let _ = writeln!(text, "  - {{ {left}: {}, target: {} }}", quoted(from), quoted(to));
        }
    }
    Zeroizing::new(text)
}

fn has_tls(url: &str) -> bool {
    url.starts_with("tls://") || url.starts_with("wss://")
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
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
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
