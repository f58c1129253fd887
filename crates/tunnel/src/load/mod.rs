//! Loads a checked configuration from files and flags, and reports all problems at once.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use config::{
    ClientConfig, ClientFlags, Common, Lists, Moment, ProxyConfig, ProxyFlags, Role, Secret,
    ServerConfig, ServerFlags, Service, Token, secrets,
};
use ops::state::Places;
use ops::{Loaded, WrongConfig};

use crate::cli::{ClientArgs, ProxyArgs, ServerArgs};
use crate::examine::{self, Fault};
use crate::input::{Input, absolute, read, with_sources};
use crate::kept_lists::KeptLists;
use crate::visits::KeptVisitors;
use crate::{first_start, material, own, service_options};

/// Loads a server's configuration from its flags and its file. `instead` replaces the content of
/// the file. Without a file, `made_token` is the path of the token that the first start made.
pub(crate) fn server(
    args: &ServerArgs,
    made_token: Option<&Path>,
    instead: Option<String>,
) -> Result<Loaded<ServerConfig>, WrongConfig> {
    if let Some(made) = made_token {
        // The parser would follow a symbolic link, as it does for a token file of the user.
        files::open(made).map_err(|e| WrongConfig::one(format!("{}: {e}", made.display())))?;
    }
    let alone = args.daemon.config.is_none();
    let or = |given: &[String], default: &str| {
        if alone && given.is_empty() { vec![default.to_owned()] } else { given.to_vec() }
    };
    // A user who names ports of one protocol wants no ports of the other.
    let names_ports = !args.allow_tcp.is_empty() || !args.allow_udp.is_empty();
    let ports = |given: &[String]| {
        if names_ports { given.to_vec() } else { or(given, ops::enrol::PORTS) }
    };
    let token_file = args.token_file.as_deref().or(made_token);
    let has_one = alone && has_one_client(args, made_token.is_some());
    // The flags are rights of the server's one client, or of the client that will be enrolled.
    let (allow_tcp, allow_udp, allow_forward) = if has_one || !alone {
        (ports(&args.allow_tcp), ports(&args.allow_udp), args.allow_forward.clone())
    } else {
        Default::default()
    };
    let hosts = |given: &[String]| if has_one || !alone { given.to_vec() } else { Vec::new() };
    let flags = ServerFlags {
        listen: or(&args.listen, first_start::listen()),
        public_url: args.public_url.clone(),
        name: has_one.then(|| first_start::client_name(args).to_owned()),
        token: args.token.clone().map(Secret::new),
        token_file: flag_path(token_file)?,
        allow_tcp,
        allow_udp,
        allow_http: hosts(&args.allow_http),
        allow_tls: hosts(&args.allow_tls),
        allow_forward,
        cert: flag_path(args.cert.as_deref())?,
        key: flag_path(args.key.as_deref())?,
        client_ca: flag_path(args.client_ca.as_deref())?,
        state_dir: flag_path(args.daemon.state_dir.as_deref())?,
        workers: args.daemon.workers.map(|n| n.to_string()),
        control: flag_path(args.daemon.control.as_deref())?,
        // The flag may contain directives, which only the log understands.
        log_level: None,
    };
    let is_tried = instead.is_some();
    let (mut loaded, input) = server_file(args.daemon.config.as_deref(), instead, &flags)?;
    let given = [
        ("tls.cert", "--cert", args.cert.is_some()),
        ("tls.key", "--key", args.key.is_some()),
        ("tls.client_ca", "--client-ca", args.client_ca.is_some()),
    ];
    input.refuse(&examine::server(&loaded.config), &given)?;
    tell_own(&input, &own::of_server(&loaded.config), is_tried, &mut loaded.warnings)?;
    warn_of_argument(args.token.as_deref(), &mut loaded.warnings);
    Ok(loaded)
}

/// Whether a server without a file has its own client. Otherwise clients are enrolled by codes.
pub(crate) const fn has_one_client(args: &ServerArgs, made: bool) -> bool {
    made || args.token.is_some() || args.token_file.is_some()
}

/// Loads a client's configuration from its flags and its file. `instead` replaces the content of
/// the file.
pub(crate) fn client(
    args: &ClientArgs,
    instead: Option<String>,
) -> Result<Loaded<ClientConfig>, WrongConfig> {
    let flags = ClientFlags {
        server: args.server.clone(),
        name: args.name.clone(),
        token: args.token.clone().map(Secret::new),
        token_file: flag_path(args.token_file.as_deref())?,
        pin: args.pin.clone(),
        ca: flag_path(args.ca.as_deref())?,
        cert: flag_path(args.cert.as_deref())?,
        key: flag_path(args.key.as_deref())?,
        publish: args.publish.clone(),
        options: args.settled.clone(),
        forward: args.forward.clone(),
        only: args.only,
        connections: args.connections.map(|n| n.to_string()),
        state_dir: flag_path(args.daemon.state_dir.as_deref())?,
        workers: args.daemon.workers.map(|n| n.to_string()),
        control: flag_path(args.daemon.control.as_deref())?,
        log_level: None,
    };
    let is_tried = instead.is_some();
    let (mut loaded, input) = client_file(args.daemon.config.as_deref(), instead, &flags)?;
    let given = [
        ("tls.ca", "--ca", args.ca.is_some()),
        ("tls.cert", "--cert", args.cert.is_some()),
        ("tls.key", "--key", args.key.is_some()),
    ];
    input.refuse(&examine::client(&loaded.config), &given)?;
    tell_own(&input, &own::of_client(&loaded.config), is_tried, &mut loaded.warnings)?;
    warn_of_argument(args.token.as_deref(), &mut loaded.warnings);
    loaded.warnings.extend(service_options::warning(&args.options));
    // With --only, the command line takes precedence.
    if !args.only
        && let Some(kept) = KeptLists::of(&loaded.config)
    {
        if !is_tried {
            kept.adopt();
        }
        keep(&mut loaded, &kept)?;
    }
    if loaded.config.services.iter().any(|service| service.private.is_some())
        && let Some(kept) = KeptVisitors::of(&loaded.config)
    {
        kept.join(&mut loaded.config)?;
    }
    let ClientConfig { services, forwards, .. } = &loaded.config;
    if services.is_empty() && forwards.is_empty() {
        let text = "this client has no services and no forwards yet: add them with `tunnel publish` \
                    and `tunnel forward`, or in its configuration";
        loaded.warnings.push(text.to_owned());
    }
    Ok(loaded)
}

/// Loads a proxy's configuration from its flags and its file. `instead` replaces the content of the
/// file.
pub(crate) fn proxy(
    args: &ProxyArgs,
    instead: Option<String>,
) -> Result<Loaded<ProxyConfig>, WrongConfig> {
    let flags = ProxyFlags {
        listen: args.listen.clone(),
        target: args.target.clone(),
        name: args.name.clone(),
        balance: args.balance.clone(),
        limit_connections: args.limit_connections.map(|n| n.to_string()),
        proxy_protocol: args.proxy_protocol.clone(),
        cert: flag_path(args.cert.as_deref())?,
        key: flag_path(args.key.as_deref())?,
        state_dir: flag_path(args.daemon.state_dir.as_deref())?,
        workers: args.daemon.workers.map(|n| n.to_string()),
        control: flag_path(args.daemon.control.as_deref())?,
        log_level: None,
    };
    let is_tried = instead.is_some();
    let (mut loaded, input) = proxy_file(args.daemon.config.as_deref(), instead, &flags)?;
    input.refuse(&examine::proxy(&loaded.config), &[])?;
    tell_own(&input, &own::of_proxy(&loaded.config), is_tried, &mut loaded.warnings)?;
    Ok(loaded)
}

/// Refuses a change that leads visitors to the daemon itself. At a start such a target is a
/// warning: it is never dialled, and the other targets are used.
fn tell_own(
    input: &Input,
    faults: &[Fault],
    is_tried: bool,
    warnings: &mut Vec<String>,
) -> Result<(), WrongConfig> {
    if is_tried {
        return input.refuse(faults, &[]);
    }
    warnings.extend(input.places(faults.iter(), &[]));
    Ok(())
}

/// The warnings about entries that shadow others.
pub(crate) fn shadow_warnings(config: &ClientConfig) -> impl Iterator<Item = String> {
    let text = |shadow: config::Shadow| {
        format!("{shadow} (hint: `tunnel unpublish {}` brings it back)", shadow.by)
    };
    config.shadows().into_iter().map(text)
}

/// Adds the services and forwards that commands have added.
fn keep(to: &mut Loaded<ClientConfig>, kept: &KeptLists) -> Result<(), WrongConfig> {
    let mut lists = kept.load(to.config.id_prefix.as_deref())?;
    // An expired entry does not shadow the entry of the file.
    drop(take_ended(&mut lists.lists.services));
    // An entry that a command has added must not keep the client from its start.
    let unknown = to.config.without_unknown_servers(&mut lists.lists);
    to.warnings.extend(unknown.iter().map(|bad| format!("{}: {bad}", kept.path().display())));
    to.config
        .keep(&lists)
        .map_err(|bad| WrongConfig::one(format!("{}: {bad}", kept.path().display())))?;
    to.warnings.extend(shadow_warnings(&to.config));
    if !lists.without.is_empty() {
        let what = lists.without.join(", ");
        to.warnings.push(format!(
            "left out by `tunnel unpublish`: {what} (hint: `tunnel publish` brings a service back, and \
             `tunnel unpublish --save NAME` takes it out of the file)"
        ));
    }
    Ok(())
}

/// Removes the expired services.
fn take_ended(services: &mut Vec<Service>) -> Vec<Service> {
    let now = Moment::of(SystemTime::now());
    services.extract_if(.., |service| service.until.is_some_and(|until| until <= now)).collect()
}

/// The services and forwards of the command line. Names have no prefix.
pub(crate) fn flag_lists(args: &ClientArgs) -> Result<Lists, WrongConfig> {
    let load = |sources: &config::Sources<'_>| {
        config::load_published((&args.publish, &args.settled), &args.forward, None, sources)
    };
    Ok(with_sources(Path::new(""), load)?.config)
}

/// The services of a set-up page, as [`flag_lists`]: environment variables are not expanded.
pub(crate) fn asked_lists(args: &ClientArgs) -> Result<Lists, WrongConfig> {
    let load = |sources: &config::Sources<'_>| {
        config::load_asked((&args.publish, &args.settled), &args.forward, None, sources)
    };
    Ok(with_sources(Path::new(""), load)?.config)
}

/// The configuration of a file of any role.
#[derive(Debug)]
pub(crate) enum Either {
    Server(Box<Loaded<ServerConfig>>),
    Client(Box<Loaded<ClientConfig>>),
    Proxy(Box<Loaded<ProxyConfig>>),
}

/// Loads a file without flags.
pub(crate) fn file(path: &Path) -> Result<Either, WrongConfig> {
    read_either(path).map(|(either, _)| either)
}

/// Loads a file as [`file()`] does, opens the certificates and keys that it names, and adds the
/// services and forwards that commands have added to the client of the file.
pub(crate) fn file_and_what_it_names(path: &Path) -> Result<Either, WrongConfig> {
    let mut either = file_with_certificates(path)?;
    if let Either::Client(loaded) = &mut either {
        for folder in state_folders(path, &loaded.config.common) {
            let kept = KeptLists::to_show(&folder, &loaded.config);
            keep(loaded, &kept)?;
        }
    }
    Ok(either)
}

/// Loads a file as [`file()`] does, and opens the certificates and keys that it names.
pub(crate) fn file_with_certificates(path: &Path) -> Result<Either, WrongConfig> {
    let (mut either, input) = read_either(path)?;
    let (mut faults, own, warnings) = match &mut either {
        Either::Server(loaded) => {
            let config = &loaded.config;
            (examine::server(config), own::of_server(config), &mut loaded.warnings)
        }
        Either::Client(loaded) => {
            let config = &loaded.config;
            (examine::client(config), own::of_client(config), &mut loaded.warnings)
        }
        Either::Proxy(loaded) => {
            let config = &loaded.config;
            (examine::proxy(config), own::of_proxy(config), &mut loaded.warnings)
        }
    };
    faults.extend(own);
    input.refuse(&faults, &[])?;
    warnings.extend(input.places(faults.iter(), &[]));
    Ok(either)
}

/// The folders in which a daemon that was started with the file `path` keeps its state: started
/// manually, or as an instance of systemd with the name of the file.
pub(crate) fn state_folders(path: &Path, common: &Common) -> Vec<PathBuf> {
    if let Some(given) = &common.state_dir {
        return vec![given.clone()];
    }
    let Ok(own) = Places::of_process().state_dir() else { return Vec::new() };
    let instance = path.file_stem().map(|stem| own.join(stem));
    std::iter::once(own).chain(instance).collect()
}

fn read_either(path: &Path) -> Result<(Either, Input), WrongConfig> {
    let text = read(path)?;
    let role = Role::of(&text);
    if role == Some(Role::Client) {
        let (loaded, input) = client_file(Some(path), None, &ClientFlags::default())?;
        return Ok((Either::Client(loaded.into()), input));
    }
    if role == Some(Role::Proxy) {
        let (loaded, input) = proxy_file(Some(path), None, &ProxyFlags::default())?;
        return Ok((Either::Proxy(loaded.into()), input));
    }
    let server = server_file(Some(path), None, &ServerFlags::default());
    match (role, server) {
        (Some(_), Ok((loaded, input))) => Ok((Either::Server(loaded.into()), input)),
        // The only problem of the file describes its YAML error, or that it is empty.
        (None, Err(wrong)) if !config::has_keys(&text) => Err(wrong),
        (Some(_), Err(wrong)) => Err(wrong),
        (None, _) => Err(WrongConfig::one(format!(
            "{}:1:1: neither a server's file nor a client's file (hint: a server has the keys \
             `listen` and `clients`; a client has `servers`, `services` and `forwards`; a proxy \
             has `proxies`)",
            path.display()
        ))),
    }
}

fn server_file(
    path: Option<&Path>,
    instead: Option<String>,
    flags: &ServerFlags,
) -> Result<(Loaded<ServerConfig>, Input), WrongConfig> {
    let is_tried = instead.is_some();
    let input = Input::read(path, instead)?;
    input.must_be(Role::Server)?;
    let loaded = input.with(|text, sources| config::load_server(text, flags, sources))?;
    let mut config = loaded.config;
    material::anchor_server(&mut config, &input.folder);
    let tokens = config.clients.iter().flat_map(|client| &client.tokens);
    let tokens = tokens.chain(config.cluster.iter().flat_map(|cluster| &cluster.secrets));
    let tokens: Vec<&Token> = tokens.chain(admin_tokens(&config.common)).collect();
    let keys = material::server_keys(&config);
    let held = secrets::of_server(&config);
    let warnings = input.warnings(&loaded.warnings, &tokens, &held, &keys);
    if !is_tried {
        own::keep_files(path, &input.folder, &tokens, &held, keys.iter().copied());
    }
    Ok((Loaded { config, warnings }, input))
}

fn client_file(
    path: Option<&Path>,
    instead: Option<String>,
    flags: &ClientFlags,
) -> Result<(Loaded<ClientConfig>, Input), WrongConfig> {
    let is_tried = instead.is_some();
    let input = Input::read(path, instead)?;
    input.must_be(Role::Client)?;
    let loaded = input.with(|text, sources| config::load_client(text, flags, sources))?;
    let mut config = loaded.config;
    material::anchor_client(&mut config, &input.folder);
    let tokens = config.token.iter().chain(admin_tokens(&config.common));
    let tokens: Vec<&Token> = tokens.chain(config.visit_tokens()).collect();
    let keys = material::client_keys(&config);
    let held = secrets::of_client(&config);
    let mut warnings = input.warnings(&loaded.warnings, &tokens, &held, &keys);
    if !is_tried {
        let others = keys.iter().copied().chain(own::user_files(&config));
        own::keep_files(path, &input.folder, &tokens, &held, others);
    }
    let ended = take_ended(&mut config.services).into_iter();
    warnings.extend(ended.filter_map(|service| {
        let (name, until) = (service.name, service.until?);
        Some(format!("service {name} has ended at {until} (hint: remove it, or change `until`)"))
    }));
    Ok((Loaded { config, warnings }, input))
}

fn proxy_file(
    path: Option<&Path>,
    instead: Option<String>,
    flags: &ProxyFlags,
) -> Result<(Loaded<ProxyConfig>, Input), WrongConfig> {
    let is_tried = instead.is_some();
    let input = Input::read(path, instead)?;
    input.must_be(Role::Proxy)?;
    let loaded = input.with(|text, sources| config::load_proxy(text, flags, sources))?;
    let mut config = loaded.config;
    material::anchor_proxy(&mut config, &input.folder);
    let tokens: Vec<&Token> = admin_tokens(&config.common).collect();
    let keys = material::proxy_keys(&config);
    let held = secrets::of_proxy(&config);
    let warnings = input.warnings(&loaded.warnings, &tokens, &held, &keys);
    if !is_tried {
        own::keep_files(path, &input.folder, &tokens, &held, keys.iter().copied());
    }
    Ok((Loaded { config, warnings }, input))
}

fn admin_tokens(common: &Common) -> impl Iterator<Item = &Token> {
    common.admin.iter().flat_map(|admin| std::iter::once(&admin.token).chain(&admin.read_token))
}

/// The path of a flag in absolute form. The path of a flag is relative to the working directory,
/// but a path in the configuration is relative to the file.
pub(crate) fn flag_path(path: Option<&Path>) -> Result<Option<String>, WrongConfig> {
    let Some(path) = path else { return Ok(None) };
    match absolute(path)?.into_os_string().into_string() {
        // The configuration would expand variables, but the shell has already done so.
        Ok(path) => Ok(Some(path.replace("${", "$${"))),
        Err(_) => Err(WrongConfig::one(format!("{}: not UTF-8", path.display()))),
    }
}

fn warn_of_argument(token: Option<&str>, warnings: &mut Vec<String>) {
    if token.is_some() {
        warnings.push(
            "--token: every user of this machine can read it in /proc; use --token-file".into(),
        );
    }
}
