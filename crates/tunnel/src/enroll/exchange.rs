//! The exchange of a code for a token, over the first path that reaches the server.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use config::{ClientConfig, ClientFlags, Endpoint, Scheme, Secret, Sources, Trust};
use families::Way;
use link::GreetError;
use link::client::{DialError, enroll};
use ops::WrongConfig;
use ops::enrol::Code;
use proto::greeting::{EnrolledToken, Name, Refusal, Token};

use crate::cli::ClientArgs;
use crate::input::with_sources;
use crate::load::flag_path;
use crate::quoted::quoted;

/// The arguments of a client that starts with the file. `fresh`: the file was just created and
/// contains all settings. The services and forwards are in the file in either case.
pub(super) fn start_with(args: &ClientArgs, path: PathBuf, fresh: bool) -> ClientArgs {
    let mut args = args.clone();
    args.daemon.config = Some(path);
    (args.enroll, args.publish, args.forward) = Default::default();
    (args.options, args.settled) = Default::default();
    if fresh {
        (args.connections, args.server) = Default::default();
        (args.ca, args.pin) = Default::default();
    }
    args
}

/// A path to the server, and how its certificate is verified.
#[derive(Debug)]
pub(super) struct Candidate {
    way: Way,
    pub(super) is_pinned: bool,
    pub(super) has_tls: bool,
    /// The certificate belongs to the reverse proxy, whose pin is unknown.
    pub(super) is_of_proxy: bool,
}

/// How the certificate of a server may be verified.
#[derive(Clone, Debug, Default)]
pub(super) struct Verified {
    pin: Vec<String>,
    ca: Option<String>,
    /// The pin comes from the code, so it is not that of a reverse proxy.
    is_of_code: bool,
}

impl Verified {
    /// The pins or the authorities of the command line, if there are any.
    pub(super) fn of_flags(args: &ClientArgs) -> Result<Option<Self>, WrongConfig> {
        let (pin, ca) = (args.pin.clone(), flag_path(args.ca.as_deref())?);
        let is_given = !pin.is_empty() || ca.is_some();
        Ok(is_given.then_some(Self { pin, ca, is_of_code: false }))
    }

    /// The pins and the authorities of an existing configuration.
    pub(super) fn of_file(config: &ClientConfig) -> Vec<Self> {
        let mut all: Vec<&Trust> = Vec::new();
        for path in config.paths() {
            if !all.contains(&&path.trust) {
                all.push(&path.trust);
            }
        }
        let of = |trust: &Trust| match trust {
            Trust::System => None,
            Trust::Pins(pins) => Some(Self {
                pin: pins.iter().map(ToString::to_string).collect(),
                ..Self::default()
            }),
            Trust::Ca(ca) => {
                Some(Self { ca: Some(ca.to_str()?.replace("${", "$${")), ..Self::default() })
            }
        };
        all.into_iter().filter_map(of).collect()
    }

    /// The lines of a configuration for it.
    pub(super) fn text(&self) -> String {
        let ca = self
            .ca
            .iter()
            .map(|ca| format!("tls: {{ ca: {} }}\n", quoted(&ca.replace("$${", "${"))));
        let pins: Vec<_> = self.pin.iter().map(|pin| quoted(pin)).collect();
        let pins = (!pins.is_empty()).then(|| format!("tls: {{ pin: [{}] }}\n", pins.join(", ")));
        ca.chain(pins).collect()
    }
}

/// All paths, the best first. Explicit choices of the user (`--ca`, `--pin`) apply exclusively, and
/// settings in the file of the client (`of_file`) take precedence. A certificate that the system
/// trusts is better than a pin, because a pin may become invalid when the certificate is renewed.
/// This is safe: an attacker with such a certificate and without the code learns nothing and is
/// detected. If the server's certificate is self-signed, the pin comes first. A path without TLS
/// comes last.
pub(super) fn ways(
    code: &Code,
    args: &ClientArgs,
    of_file: Vec<Verified>,
) -> anyhow::Result<Vec<Candidate>> {
    let kinds = if let Some(chosen) = Verified::of_flags(args)? {
        vec![chosen]
    } else {
        let of_code =
            |pin: &String| Verified { pin: vec![pin.clone()], ca: None, is_of_code: true };
        let mut kinds = vec![Verified::default()];
        kinds.extend(code.pin.iter().map(of_code));
        if code.self_signed {
            kinds.reverse();
        }
        [of_file, kinds].concat()
    };
    let (mut found, mut failed) = (Vec::new(), None);
    for verified in kinds {
        let config = checked(code, args, &verified)?;
        for path in config.paths() {
            let (has_tls, is_pinned) = (path.endpoint.scheme.tls, verified.is_of_code);
            // A path without TLS has no certificate, and the pin does not apply to a proxy: such a
            // path is listed only once.
            let is_of_proxy = code.proxied && path.endpoint.scheme == Scheme::WSS;
            if is_pinned && (!has_tls || is_of_proxy) {
                continue;
            }
            match Way::new(path, &config.common) {
                Ok(way) => found.push(Candidate { way, is_pinned, has_tls, is_of_proxy }),
                // The usual cause is a system without authorities. The pin needs no authorities.
                Err(why) => failed = Some(why),
            }
        }
    }
    // The sort is stable, so the order is otherwise kept.
    found.sort_by_key(|candidate| !candidate.has_tls);
    match failed {
        Some(why) if found.is_empty() => Err(why),
        _ => Ok(found),
    }
}

/// Checks all flags as the flags of a client with a token.
pub(super) fn checked(
    code: &Code,
    args: &ClientArgs,
    verified: &Verified,
) -> anyhow::Result<ClientConfig> {
    let flags = ClientFlags {
        // The author of the code must not read environment variables of this machine.
        server: code.urls.iter().map(|url| url.replace("${", "$${")).collect(),
        name: Some(code.name.replace("${", "$${")),
        token: Some(Secret::new(code.secret.clone())),
        pin: verified.pin.clone(),
        ca: verified.ca.clone(),
        publish: args.publish.clone(),
        options: args.settled.clone(),
        forward: args.forward.clone(),
        connections: args.connections.map(|n| n.to_string()),
        ..ClientFlags::default()
    };
    // The environment may name a proxy.
    let load = |sources: &Sources<'_>| config::load_client(None, &flags, sources);
    let mut config = with_sources(Path::new(""), load).map_err(WrongConfig::from)?.config;
    for path in config.paths_mut() {
        path.sni = code.names.get(&path.endpoint.to_string()).cloned();
    }
    Ok(config)
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

/// Whether the pin of the server applies to this URL.
pub(super) fn is_pinned(url: &str, proxied: bool) -> bool {
    url.parse::<Endpoint>()
        .is_ok_and(|Endpoint { scheme, .. }| scheme.tls && !(proxied && scheme == Scheme::WSS))
}

/// The pin of the code that the file has, after an exchange over the path `won`. Over a path
/// without TLS, or through a reverse proxy, the certificate of the server was not presented. So the
/// pin of the code is kept.
pub(super) fn kept_pin<'a>(
    code: &'a Code,
    won: Option<&Candidate>,
    args: &ClientArgs,
) -> Option<&'a str> {
    let is_seen = won.is_some_and(|way| way.has_tls && !way.is_of_proxy);
    let is_pinned = won.is_some_and(|way| way.is_pinned);
    let pin = code.pin.as_deref().filter(|_| is_pinned || !is_seen);
    pin.filter(|_| args.pin.is_empty() && args.ca.is_none())
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
