//! Collects the parts of an instance: its configuration without secrets, its credentials, its
//! state, the units and the program.

use std::env;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::bail;
use config::secrets::Held;
use config::{ClientFlags, ServerFlags, Sources, Text};
use ops::WrongConfig;

use super::instance::{Instance, check_name, drop_in, role, unit};
use super::place::{PROGRAM, command, program, root, shared};
use super::plan::{Plan, below};
use super::secrets::{self, Credential, Split, split};
use super::{state, version};
use crate::cli::{InstallArgs, Side};
use crate::load::{self, Either};
use crate::quoted::quoted;
use crate::{first_start, found, input};

const MAIN: &str = "main";

/// The files that `tunnel install` writes, and the instance.
pub(super) fn plan(args: &InstallArgs) -> anyhow::Result<(Plan, Instance)> {
    let of_server = || found::here(found::SERVER).filter(|_| args.listen.is_empty());
    let file = match (&args.config, args.side) {
        (Some(file), _) => Some(file.clone()),
        (None, Some(Side::Server)) => of_server(),
        (None, Some(Side::Client)) => Some(found::CLIENT.into()),
        (None, None) => found::here(found::CLIENT).or_else(of_server),
    };
    let mut source = match &file {
        Some(file) => of_file(file, args.side)?,
        None => Installation::of_server(),
    };
    let name = args.name.clone().unwrap_or_else(|| source.name.clone());
    check_name(&name)?;
    let (mut plan, root) = (Plan::default(), root(&args.place));
    let given = args.state_dir.clone().or_else(|| source.state_dir.clone());
    match &source.loaded {
        Some(Either::Client(loaded)) => {
            state::add_client(&mut plan, &root, &loaded.config, given, &name)?;
        }
        Some(Either::Server(_) | Either::Proxy(_)) | None => {
            let (from, files) = state::of_server(&mut plan, given, args.place.dry_run)?;
            if file.is_none() {
                if files.is_empty() {
                    bail!(
                        "{}: no server has run with this state directory (hint: tunnel server \
                         --enroll NAME, then tunnel stop; or --state-dir, or --config)",
                        from.display()
                    );
                }
                without_a_file(&mut source, args, &files);
            }
            state::add_server(&mut plan, &root, (&from, files), &name, args.force)?;
        }
    }
    state::let_units_in(&mut plan, &root);
    let side = source.side;
    let unit = unit(side, &name);
    let input = secrets::Input {
        name: &source.shown,
        text: &source.text,
        folder: &source.folder,
        secrets: &source.secrets,
        env: &|name| env::var(name).ok(),
    };
    let Split { text, credentials, notes, variables } = split(input).map_err(WrongConfig::one)?;
    plan.notes.extend(notes);
    let etc = Path::new("/etc/tunnel");
    let mut lines = String::from("# Made by `tunnel install`.\n[Service]\n");
    loads(side, &etc.join(format!("{name}.yaml")), &text, &credentials)?;
    let mut handed = Vec::new();
    for credential in credentials {
        let path = etc.join(format!("{name}.{}", credential.name));
        let _ = writeln!(lines, "LoadCredential={}:{}", credential.name, path.display());
        plan.file(path.clone(), 0o600, credential.content.to_vec());
        handed.push((credential.name, path));
    }
    plan.file(etc.join(format!("{name}.yaml")), 0o644, text);
    plan.file(drop_in(side, &name), 0o644, lines);
    for (path, text) in shared()? {
        plan.file(path, 0o644, text);
    }
    let program = program()?;
    plan.notes.extend(version::note(&below(&root, Path::new(PROGRAM)), &program, args.force));
    plan.file(PROGRAM, 0o755, program);
    plan.commands.push(command(&["systemctl", "daemon-reload"]));
    let instance = Instance { side, name, unit, credentials: handed };
    if variables.is_empty() || instance.has_settings(&root) {
        plan.commands.push(command(&["systemctl", "enable", "--now", &instance.unit]));
    } else {
        // Without the variables the unit would not start.
        plan.commands.push(command(&["systemctl", "enable", &instance.unit]));
    }
    if !variables.is_empty() {
        let names: Vec<_> = variables.into_iter().collect();
        plan.warnings.push(format!(
            "the unit has to set {}: `systemctl edit {unit}`, [Service], Environment=NAME=VALUE, or \
             EnvironmentFile=FILE for a secret, which every user could read otherwise; then \
             `systemctl restart {unit}`",
            names.join(", "),
            unit = instance.unit
        ));
    }
    Ok((plan, instance))
}

/// Loads the configuration without secrets, before anything is written.
fn loads(side: Side, at: &Path, text: &str, credentials: &[Credential]) -> Result<(), WrongConfig> {
    let read = |path: &Path| {
        let found = credentials.iter().find(|credential| path.ends_with(&credential.name));
        let token = found.and_then(|found| std::str::from_utf8(&found.content).ok());
        token.map(|token| token.trim().to_owned()).ok_or_else(|| "no such credential".to_owned())
    };
    let env = |name: &str| match name {
        "CREDENTIALS_DIRECTORY" => Some("/run/credentials".to_owned()),
        _ => env::var(name).ok(),
    };
    let (shown, sources) = (at.display().to_string(), Sources { env: &env, read: &read });
    let text = Some(Text { name: &shown, text });
    match side {
        Side::Client => drop(config::load_client(text, &ClientFlags::default(), &sources)?),
        Side::Server => drop(config::load_server(text, &ServerFlags::default(), &sources)?),
    }
    Ok(())
}

/// The data of an installation.
struct Installation {
    side: Side,
    name: String,
    state_dir: Option<PathBuf>,
    /// The name of the file, for messages.
    shown: String,
    text: String,
    /// The model of the file, if there is a file.
    loaded: Option<Either>,
    secrets: Vec<Held>,
    folder: PathBuf,
}

impl Installation {
    /// A server that ran without a file.
    fn of_server() -> Self {
        Self {
            side: Side::Server,
            name: MAIN.to_owned(),
            state_dir: None,
            shown: String::new(),
            text: String::new(),
            loaded: None,
            secrets: Vec::new(),
            folder: PathBuf::new(),
        }
    }
}

fn of_file(file: &Path, wanted: Option<Side>) -> anyhow::Result<Installation> {
    let text = input::read(file)?;
    let folder = input::absolute(file)?.parent().map(Path::to_owned).unwrap_or_default();
    let loaded = load::file_with_certificates(file)?;
    let (side, name, common, secrets) = match &loaded {
        Either::Client(loaded) => {
            let config = &loaded.config;
            (Side::Client, config.name.clone(), &config.common, config::secrets::of_client(config))
        }
        Either::Server(loaded) => {
            let config = &loaded.config;
            (Side::Server, MAIN.to_owned(), &config.common, config::secrets::of_server(config))
        }
        Either::Proxy(_) => {
            let text = format!(
                "{}: this is a proxy's file, which needs no installation (hint: the template \
                 tunnel-proxy@.service starts it)",
                file.display()
            );
            return Err(WrongConfig::one(text).into());
        }
    };
    if wanted.is_some_and(|wanted| wanted != side) {
        let text = format!("{}: this is a {}'s file", file.display(), role(side));
        return Err(WrongConfig::one(text).into());
    }
    let (shown, state_dir) = (file.display().to_string(), common.state_dir.clone());
    Ok(Installation { side, name, state_dir, shown, text, loaded: Some(loaded), secrets, folder })
}

/// The configuration of a server that ran without a file: the defaults of its flags.
fn without_a_file(source: &mut Installation, args: &InstallArgs, state: &[(PathBuf, Vec<u8>)]) {
    let listen = if args.listen.is_empty() {
        vec![first_start::listen().to_owned()]
    } else {
        args.listen.clone()
    };
    let listen: Vec<_> = listen.iter().map(|url| quoted(url)).collect();
    source.text = format!("# Made by `tunnel install`.\nlisten: [{}]\n", listen.join(", "));
    // The token of the client that the first start made.
    let made = state.iter().filter_map(|(path, token)| {
        let name = path.to_str()?.strip_suffix(".token")?;
        (!name.contains('/')).then_some((name, std::str::from_utf8(token).ok()?.trim()))
    });
    for (i, (name, token)) in made.enumerate() {
        if i == 0 {
            source.text.push_str("clients:\n");
        }
        let _ = writeln!(
            source.text,
            "  - {{ name: {}, token: {}, allow: {{ tcp: [{ports}], udp: [{ports}] }} }}",
            quoted(name),
            quoted(token),
            ports = quoted(ops::enrol::PORTS)
        );
        source.secrets.push(Held::token(format!("/clients/{i}/token"), token));
    }
}
