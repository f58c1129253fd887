//! The visitor's side: a code becomes a forward to the private service.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use anyhow::Context;
use config::{Lists, Secret, Token, edit};
use ops::visit::VisitCode;
use ops::{Role, WrongConfig, term};

use crate::cli::{ClientArgs, DaemonArgs, VisitArgs, Which};
use crate::config_file::{ConfigFile, refusal};
use crate::enroll;
use crate::input::first_line;
use crate::instances::{find_role, reloaded, tell};
use crate::load::{self, Either};

/// The default path of the configuration.
const FILE: &str = "client.yaml";

/// The largest size of a code that is read, in bytes; longer than any code.
const LINE_MAX: u64 = 32 << 10;

/// Uses a code. Returns the arguments of the client that should start.
pub(crate) fn visit(args: &VisitArgs, code: &str) -> anyhow::Result<Option<ClientArgs>> {
    let line = if code == "-" { Some(first_line(LINE_MAX)?) } else { None };
    let code = line.as_deref().unwrap_or(code);
    let code = VisitCode::read(code).map_err(WrongConfig::one)?;
    let path = args.daemon.config.clone().unwrap_or_else(|| FILE.into());
    let client = ClientArgs {
        forward: vec![format!("{}=service://{}", listen(args)?, code.service)],
        server: args.server.clone(),
        ca: args.ca.clone(),
        pin: args.pin.clone(),
        daemon: DaemonArgs { config: Some(path.clone()), ..args.daemon.clone() },
        ..ClientArgs::default()
    };
    let mut lists = load::flag_lists(&client)?;
    for forward in &mut lists.forwards {
        forward.token = Some(Token { secret: Secret::new(code.token.clone()), file: None });
    }
    // An empty file comes from an enrolment that was interrupted.
    let is_there = fs::metadata(&path).is_ok_and(|file| file.len() > 0);
    if is_there {
        if args.ca.is_some() || !args.pin.is_empty() {
            return Err(WrongConfig::one(format!(
                "--ca and --pin are for a new file, and {} is there (hint: its `tls` says how the \
                 server is verified)",
                path.display()
            ))
            .into());
        }
        let is_running = add(&path, &code, &lists, args)?;
        return Ok((!is_running && !args.no_start).then(|| start_with(args, path)));
    }
    let Some(enrolment) = code.enrolment else {
        return Err(WrongConfig::one(format!(
            "the code is for the client `{}`, and its file {} is not here (hint: name the file with \
             --config)",
            code.visitor,
            path.display()
        ))
        .into());
    };
    enroll::enroll_with(&client, enrolment, &path, &lists)?;
    tell_forwards(&lists);
    Ok((!args.no_start).then(|| start_with(args, path)))
}

fn start_with(args: &VisitArgs, path: PathBuf) -> ClientArgs {
    let daemon = DaemonArgs { config: Some(path), ..args.daemon.clone() };
    ClientArgs { daemon, ..ClientArgs::default() }
}

/// The address of the service on this machine: the given address, or a free port. The port is kept
/// in the file.
fn listen(args: &VisitArgs) -> anyhow::Result<String> {
    if let Some(listen) = &args.listen {
        return Ok(listen.clone());
    }
    let free = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    Ok(format!("tcp://{}", free.context("a free port")?))
}

/// Adds the forward to the file of an existing client. Returns whether the client runs: then the
/// forward is active at once.
fn add(path: &Path, code: &VisitCode, lists: &Lists, args: &VisitArgs) -> anyhow::Result<bool> {
    let at = path.display();
    let other = match load::file(path)? {
        Either::Client(loaded) if loaded.config.name == code.visitor => None,
        Either::Client(loaded) => Some(loaded.config.name.clone()),
        Either::Server(_) => Some("a server".to_owned()),
        Either::Proxy(_) => Some("a proxy".to_owned()),
    };
    if let Some(other) = other {
        let service = code.service.split_once('/').map_or("SERVICE", |(_, service)| service);
        return Err(WrongConfig::one(format!(
            "the code is for the client `{}`, and {at} is of `{other}` (hint: ask for a code by \
             `tunnel visit --new {service} --for {other}`, or choose another file with --config)",
            code.visitor
        ))
        .into());
    }
    let file = ConfigFile(path.to_owned());
    file.writable()?;
    let before = file.read()?;
    let after = edit::publish(&at.to_string(), &before, lists).map_err(refusal)?;
    file.replace(&before, &after)?;
    term::err(format_args!("{at}: added the forward to service://{}", code.service));
    tell_forwards(lists);
    let which = Which { config: Some(path.to_owned()), control: args.daemon.control.clone() };
    let which = if which.control.is_some() { Which { config: None, ..which } } else { which };
    match find_role(&which, Role::Client) {
        Ok(instance) => {
            tell(&reloaded(&instance)?, false)?;
            Ok(true)
        }
        Err(_) => Ok(false),
    }
}

fn tell_forwards(lists: &Lists) {
    for forward in &lists.forwards {
        term::err(format_args!("forward {forward}"));
    }
}
