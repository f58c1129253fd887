//! The configuration file of the working directory, for commands without `--config`.

use std::env;
use std::path::{Path, PathBuf};

use ops::WrongConfig;

use crate::cli::{ClientArgs, ProxyArgs, ServerArgs};

/// The name of a client's file, which `tunnel client --enroll` writes.
pub(crate) const CLIENT: &str = "client.yaml";

/// The name of a server's file.
pub(crate) const SERVER: &str = "server.yaml";

/// The name of a proxy's file.
pub(crate) const PROXY: &str = "proxy.yaml";

/// The file of this name in the working directory, if there is one.
pub(crate) fn here(name: &str) -> Option<PathBuf> {
    // An unreadable file is found as well: its error is more useful than a default.
    Path::new(name).symlink_metadata().is_ok().then(|| name.into())
}

/// The error of a command that has found no file. `instead` describes the alternative.
fn nothing(names: &str, instead: &str) -> WrongConfig {
    let folder = env::current_dir().map(|folder| format!(" in {}", folder.display()));
    let folder = folder.unwrap_or_default();
    WrongConfig::one(format!("no configuration file: looked for {names}{folder} (hint: {instead})"))
}

/// The file of a client that is started without `--config`: `None` if its flags or a code describe
/// the client.
///
/// # Errors
/// There is no file, or the flags describe no client.
pub(crate) fn of_client(args: &ClientArgs) -> Result<Option<PathBuf>, WrongConfig> {
    if args.daemon.config.is_some() || args.enroll.is_some() {
        return Ok(None);
    }
    if args.server.is_empty() {
        let instead = "--config FILE; --enroll CODE for a new client; or --server, --name and \
                       --token-file for a client without a file";
        return here(CLIENT).map(Some).ok_or_else(|| nothing(CLIENT, instead));
    }
    let has_proof = args.token_file.is_some() || args.token.is_some() || args.cert.is_some();
    let missing = [("--name", args.name.is_some()), ("--token-file", has_proof)];
    let missing: Vec<_> =
        missing.into_iter().filter(|(_, is_given)| !is_given).map(|(flag, _)| flag).collect();
    if missing.is_empty() {
        return Ok(None);
    }
    let there = if here(CLIENT).is_some() {
        format!("; without --server, {CLIENT} of this folder counts")
    } else {
        String::new()
    };
    Err(WrongConfig::one(format!(
        "--server without a configuration file: missing {} (hint: or --config FILE{there})",
        missing.join(" and ")
    )))
}

/// The file of a server that is started without `--config`. `None` if its flags describe the
/// server, or there is no file: a server needs none.
pub(crate) fn of_server(args: &ServerArgs) -> Option<PathBuf> {
    let rights =
        [&args.allow_tcp, &args.allow_udp, &args.allow_http, &args.allow_tls, &args.allow_forward];
    let is_described = args.daemon.config.is_some()
        || args.name.is_some()
        || args.token.is_some()
        || args.token_file.is_some()
        || !args.listen.is_empty()
        || rights.iter().any(|given| !given.is_empty());
    if is_described { None } else { here(SERVER) }
}

/// The file of a proxy that is started without `--config`: `None` if its flags describe the proxy.
///
/// # Errors
/// There is no file, and the flags describe no proxy.
pub(crate) fn of_proxy(args: &ProxyArgs) -> Result<Option<PathBuf>, WrongConfig> {
    if args.daemon.config.is_some() || args.listen.is_some() {
        return Ok(None);
    }
    let instead = "--config FILE, or --listen and --target for a proxy without a file";
    here(PROXY).map(Some).ok_or_else(|| nothing(PROXY, instead))
}

/// The file for `tunnel check`.
///
/// # Errors
/// There is no file, or there are files of several roles.
pub(crate) fn to_check() -> Result<PathBuf, WrongConfig> {
    let names = [CLIENT, SERVER, PROXY];
    let found: Vec<_> = names.into_iter().filter(|name| here(name).is_some()).collect();
    match found[..] {
        [only] => Ok(only.into()),
        [] => Err(nothing(&format!("{CLIENT}, {SERVER} and {PROXY}"), "tunnel check FILE")),
        [.., last] => Err(WrongConfig::one(format!(
            "{} are in this folder (hint: tunnel check {last})",
            found.join(" and ")
        ))),
    }
}
