//! Collects what belongs to an instance: its configuration without secrets, its credentials, its
//! state, the units and the program.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use config::{ClientFlags, Common, ServerFlags, Sources, Text, Token};
use ops::WrongConfig;
use ops::state::Places;
use rustix::fs::{FlockOperation, flock};
use zeroize::Zeroizing;

use super::plan::Plan;
use super::secrets::{Split, Tokens, split};
use super::{check_name, command, drop_in, root, shared, unit};
use crate::cli::{InstallArgs, Side};
use crate::enroll::quoted;
use crate::load::{self, Either};
use crate::{first_start, input};

/// The most bytes of a file of the state directory.
const STATE_FILE_MAX: u64 = 1 << 20;

const CLIENT_FILE: &str = "client.yaml";

const MAIN: &str = "main";

/// What `tunnel install` writes, and the name of the unit.
pub(super) fn plan(args: &InstallArgs) -> anyhow::Result<(Plan, String)> {
    let default = || Path::new(CLIENT_FILE).exists().then(|| PathBuf::from(CLIENT_FILE));
    let file = match (&args.config, args.side) {
        (Some(file), _) => Some(file.clone()),
        (None, Some(Side::Server)) => None,
        (None, Some(Side::Client)) => Some(CLIENT_FILE.into()),
        (None, None) => default(),
    };
    let source = match &file {
        Some(file) => of_file(file, args.side)?,
        None => Source {
            side: Side::Server,
            name: MAIN.to_owned(),
            state_dir: None,
            text: String::new(),
            tokens: Vec::new(),
            folder: PathBuf::new(),
        },
    };
    let name = args.name.clone().unwrap_or_else(|| source.name.clone());
    check_name(&name)?;
    let mut plan = Plan::default();
    let mut source = source;
    if source.side == Side::Server {
        let given = args.state_dir.clone().or_else(|| source.state_dir.clone());
        let from = given.map_or_else(|| Places::of_process().state_dir(), Ok)?;
        let state = state(&from)?;
        if file.is_none() {
            if state.is_empty() {
                bail!(
                    "{}: no server has run with this state directory (hint: tunnel server --enroll \
                     NAME, then tunnel stop; or --state-dir, or --config)",
                    from.display()
                );
            }
            without_a_file(&mut source, args, &state);
        }
        // With DynamicUser, systemd keeps the state below /var/lib/private, makes /var/lib/tunnel/NAME
        // a link to it, and gives the files to the user of the unit at each start.
        let to = Path::new("/var/lib/private/tunnel").join(&name);
        let there = super::plan::below(&root(&args.place), &to);
        let public =
            super::plan::below(&root(&args.place), &Path::new("/var/lib/tunnel").join(&name));
        if fs::symlink_metadata(&public).is_ok_and(|found| found.is_dir()) {
            bail!(
                "{}: a directory stands where systemd makes a link (hint: move it away, and name it with --state-dir)",
                public.display()
            );
        }
        if there.exists() && !args.force {
            // The state of an installed server is newer: it knows which clients were put out.
            let key = |folder: &Path| fs::read(folder.join(tls::OWN_KEY)).ok();
            if key(&there).is_some() && key(&from).is_some() && key(&there) != key(&from) {
                bail!(
                    "{}: the state of another server, with another pin (hint: --name, or --force to replace it)",
                    there.display()
                );
            }
            plan.notes.push(format!("the state in {} stays as it is", there.display()));
        } else {
            for (path, content) in state {
                plan.file(to.join(path), 0o600, content);
            }
        }
    }
    let Split { text, credentials, notes } =
        split(&source.text, &source.folder, &source.tokens).map_err(WrongConfig::one)?;
    plan.notes.extend(notes);
    let etc = Path::new("/etc/tunnel");
    let mut lines = String::from("# Made by `tunnel install`.\n[Service]\n");
    for credential in &credentials {
        let path = etc.join(format!("{name}.{}", credential.name));
        let _ = writeln!(lines, "LoadCredential={}:{}", credential.name, path.display());
        plan.file(path, 0o600, credential.content.to_vec());
    }
    let at = etc.join(format!("{name}.yaml"));
    let read = |path: &Path| {
        let file = path.file_name().and_then(|file| file.to_str()).unwrap_or_default();
        let found = credentials.iter().find(|credential| credential.name == file);
        let text = found.and_then(|found| std::str::from_utf8(&found.content).ok());
        text.map(|text| text.trim().to_owned()).ok_or_else(|| "no such credential".to_owned())
    };
    let folder = format!("/run/credentials/{}", unit(source.side, &name));
    let env = |variable: &str| {
        if variable == "CREDENTIALS_DIRECTORY" {
            Some(folder.clone())
        } else {
            std::env::var(variable).ok()
        }
    };
    let (shown, sources) = (at.display().to_string(), Sources { env: &env, read: &read });
    let whole = Some(Text { name: &shown, text: &text });
    match source.side {
        Side::Client => drop(
            config::load_client(whole, &ClientFlags::default(), &sources)
                .map_err(WrongConfig::from)?,
        ),
        Side::Server => drop(
            config::load_server(whole, &ServerFlags::default(), &sources)
                .map_err(WrongConfig::from)?,
        ),
    }
    plan.file(at, 0o644, text);
    plan.file(drop_in(source.side, &name), 0o644, lines);
    for (path, text) in shared()? {
        plan.file(path, 0o644, text);
    }
    let program = std::env::current_exe().context("the path of this program")?;
    let program = fs::read(&program).with_context(|| program.display().to_string())?;
    plan.file("/usr/bin/tunnel", 0o755, program);
    let unit = unit(source.side, &name);
    plan.commands = vec![
        command(&["systemctl", "daemon-reload"]),
        command(&["systemctl", "enable", "--now", &unit]),
    ];
    if args.force {
        plan.commands.push(command(&["systemctl", "restart", &unit]));
    }
    Ok((plan, unit))
}

struct Source {
    side: Side,
    name: String,
    state_dir: Option<PathBuf>,
    text: String,
    tokens: Tokens,
    folder: PathBuf,
}

fn of_file(file: &Path, wanted: Option<Side>) -> anyhow::Result<Source> {
    let text = input::read(file)?;
    let folder = input::absolute(file)?.parent().map(Path::to_owned).unwrap_or_default();
    let mut tokens = Tokens::new();
    let mut add = |place: String, nth: usize, token: &Token| {
        tokens.push((place, nth, Zeroizing::new(token.secret.reveal().to_owned())));
    };
    let admin = |common: &Common, add: &mut dyn FnMut(String, usize, &Token)| {
        if let Some(admin) = &common.admin {
            add("/admin/token".to_owned(), 0, &admin.token);
            admin.read_token.iter().for_each(|token| add("/admin/read_token".to_owned(), 0, token));
        }
    };
    let (side, name, state_dir) = match load::file_and_what_it_names(file)? {
        Either::Client(loaded) => {
            let config = loaded.config;
            config.token.iter().for_each(|token| add("/token".to_owned(), 0, token));
            admin(&config.common, &mut add);
            (Side::Client, config.name, None)
        }
        Either::Server(loaded) => {
            let config = loaded.config;
            for (i, client) in config.clients.iter().enumerate() {
                for (nth, token) in client.tokens.iter().enumerate() {
                    add(format!("/clients/{i}/token"), nth, token);
                }
            }
            admin(&config.common, &mut add);
            (Side::Server, MAIN.to_owned(), config.common.state_dir)
        }
    };
    if wanted.is_some_and(|wanted| wanted != side) {
        let text = format!("{}: this is a {}'s file", file.display(), super::role(side));
        return Err(WrongConfig::one(text).into());
    }
    Ok(Source { side, name, state_dir, text, tokens, folder })
}

/// The configuration of a server that ran without a file: the defaults of its flags.
fn without_a_file(source: &mut Source, args: &InstallArgs, state: &[(PathBuf, Vec<u8>)]) {
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
            "  - {{ name: {}, token: {}, allow: {{ tcp: [{}] }} }}",
            quoted(name),
            quoted(token),
            quoted(ops::enrol::PORTS)
        );
        source.tokens.push((format!("/clients/{i}/token"), 0, Zeroizing::new(token.to_owned())));
    }
}

/// The files of a state directory, which no daemon may use meanwhile. The owner may be another user
/// than root, so the directory is read and not opened as one's own.
fn state(folder: &Path) -> anyhow::Result<Vec<(PathBuf, Vec<u8>)>> {
    let lock = folder.join("lock");
    match files::open(&lock) {
        Ok(mut file) => {
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                let mut owner = String::new();
                // The message is true without the process number as well.
                drop((&mut file).take(32).read_to_string(&mut owner));
                bail!(
                    "the state directory {} belongs to a running tunnel (process {}); stop it \
                     first: tunnel stop",
                    folder.display(),
                    owner.trim()
                );
            }
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e).with_context(|| lock.display().to_string()),
    }
    let mut found = Vec::new();
    for below in ["", "clients"] {
        let read = match fs::read_dir(folder.join(below)) {
            Ok(read) => read,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(e).with_context(|| folder.join(below).display().to_string()),
        };
        for entry in read {
            let entry = entry?;
            let name = entry.file_name();
            if !entry.file_type()?.is_file()
                || name == "lock"
                || name.to_string_lossy().starts_with('.')
            {
                continue;
            }
            let content = files::read(&entry.path(), STATE_FILE_MAX);
            let content = content.with_context(|| entry.path().display().to_string())?;
            found.push((Path::new(below).join(name), content));
        }
    }
    found.sort();
    Ok(found)
}
