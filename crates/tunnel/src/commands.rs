//! Runs each command, from its arguments to its exit code.

use std::io::{IsTerminal, stdout};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use admin::SetUpPage;
use config::{Common, LogFormat, ServerConfig};
use logging::Format;
use net::handover;
use node::descriptors;
use ops::state::{Places, StateDir};
use ops::{Loaded, Role, Serving, term};

use crate::alone::Alone;
use crate::cli::{ClientArgs, Command, DaemonArgs, Generate, ProxyArgs, ServerArgs};
use crate::daemon::{self, Frame};
use crate::enroll::{self, Kept, NOBODY};
use crate::first_start::{self, Invitation};
use crate::generate::{self, Order};
use crate::input::{absolute, key_exposure};
use crate::upgrade::{self, Binary};
use crate::whereabouts::{client_instance, control};
use crate::{
    activation, check, clients, cluster, connect, console, cores, demo, found, importing, inherit,
    install, instances, load, measure, moving, nat, own, published, requests, runtime,
    service_options, set_up, share, supervise, targets, visits,
};

/// Runs a command. If the error is a [`ops::WrongConfig`], the configuration is invalid.
pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Server(args) => run_server(args),
        Command::Client(args) => run_client(args),
        Command::Proxy(args) => run_proxy(args),
        Command::Run(args) => supervise::run(args),
        Command::Demo { once } => run_demo(*once),
        Command::Check(args) => check::check(args),
        Command::Generate(Generate::Config { side, server, policy }) => {
            Ok(term::out(generate::sample(*side, server, *policy)?)?)
        }
        Command::Generate(Generate::Token { no_newline }) => {
            let token = ops::token()?;
            Ok(if *no_newline { term::out_bare(token) } else { term::out(token) }?)
        }
        Command::Generate(Generate::Hash { file }) => {
            Ok(term::out(generate::hash(file.as_deref())?.as_str())?)
        }
        Command::Generate(Generate::Password { user }) => {
            Ok(term::out(generate::hashed(user.as_deref())?)?)
        }
        Command::Generate(Generate::Completions { shell }) => {
            Ok(term::out_bare(generate::completions(*shell)?)?)
        }
        Command::Generate(Generate::Man { output: None }) => {
            Ok(term::out_bare(generate::man_page()?)?)
        }
        Command::Generate(Generate::Man { output: Some(folder) }) => generate::man_pages(folder),
        Command::Generate(Generate::Certs(args)) => {
            let (server, clients) = (args.server.as_slice(), args.client.as_slice());
            let (years, folder) = (args.years, &args.output);
            let (nodes, etcd) = (args.node.as_slice(), args.etcd.as_slice());
            let order = Order { server, clients, nodes, etcd, years, folder };
            Ok(term::out(generate::certs(&order)?)?)
        }
        Command::Status { which, why: true, .. } => instances::why(which),
        Command::Status { which, json, wide, watch: None, .. } => {
            instances::status(which, *json, *wide)
        }
        Command::Status { which, json, wide, watch: Some(every), .. } => {
            instances::watch(which, *json, *wide, *every)
        }
        Command::Streams(args) => instances::streams(args),
        Command::Requests(args) => requests::requests(args),
        Command::Connect(args) => connect::connect(args),
        Command::Log { level, which } => instances::log(which, level.clone()),
        Command::Enroll(args) => clients::enroll(args),
        Command::Allow(args) => clients::allow(args),
        Command::Deny(args) => clients::deny(args),
        Command::Move(args) => moving::move_links(args),
        Command::Reconnect { name, which } => instances::reconnect(which, name.clone()),
        Command::Clients(args) => clients::clients(args),
        Command::Where(args) => cluster::locate(args),
        Command::Cluster(command) => cluster::cluster(command),
        Command::Publish(args) => published::publish(args),
        Command::Share(args) => share::share(args),
        Command::Unpublish(args) => published::unpublish(args),
        Command::Forward(args) => published::forward(args),
        Command::Visit(args) => match visits::command(args)? {
            Some(client) => run_client(&client),
            None => Ok(()),
        },
        Command::Events { which } => instances::events(which),
        Command::Console(args) => console::console(args),
        Command::Reload { which, json } => instances::reload(which, *json),
        Command::Upgrade(args) => upgrade::upgrade(args),
        Command::Import(args) => importing::import(args),
        Command::Install(args) => install::install(args),
        Command::Uninstall(args) => install::uninstall(args),
        Command::Restart { name, which, now } => instances::restart(which, name.clone(), *now),
        Command::Stop { which, now } => instances::stop(which, *now),
        Command::Ping(args) => measure::ping(args),
        Command::Nat(args) => nat::nat(args),
        Command::Speedtest(args) => measure::speedtest(args),
        Command::Targets(command) => targets::run(command),
    }
}

fn run_server(args: &ServerArgs) -> anyhow::Result<()> {
    activation::take();
    let former = upgrade::inherit()?;
    // The former process has already carried out the one-time steps.
    let args = &match former {
        Some(_) => ServerArgs { enroll: None, ..args.clone() },
        None => args.clone(),
    };
    let found = found::of_server(args);
    let args = &with_file(args, found.as_deref(), |args| &mut args.daemon);
    let places = Places::of_process();
    let (mut loaded, state, token) = load_server(args, &places)?;
    if former.is_some() {
        state.check_room()?;
    }
    loaded.warnings.extend(state.warning());
    let state = Arc::new(state);
    let kept_state = Arc::clone(&state);
    let kept = Kept::in_state(state.path());
    kept.join(&mut loaded)?;
    if args.enroll.is_some() {
        // The enrolment code will let a client in, so the warning does not apply.
        loaded.warnings.retain(|warning| !warning.starts_with(NOBODY));
    }
    let speaks_tls = loaded.config.listen.iter().any(|at| at.endpoint.scheme.tls);
    if speaks_tls && loaded.config.tls.identity.is_none() {
        // A copy of the directory may have lost the mode.
        loaded.warnings.extend(key_exposure(&state.path().join(tls::OWN_KEY)));
    }
    begin(&args.daemon, &loaded.config.common, &loaded.warnings)?;
    tell_file(found.as_deref());
    let config = loaded.config;
    let control = control(&config.common, Role::Server.name(), &places)?;
    own::guard(&config.common);
    files::kept::keep_folder(state.path());
    handover::keep(state.lock())?;
    let is_next = former.is_some();
    let frame =
        Frame { control: Some(control), warnings: loaded.warnings, former, ..frame(&args.daemon) };
    let own = || families::identity::identity(&config.tls, state.path());
    let identity = speaks_tls.then(own).transpose()?;
    if let (Some(identity), None) = (&identity, &config.tls.identity) {
        tracing::info!(pin = %identity.pin(), "the server has a self-signed certificate; clients pin it");
    }
    let is_bare = !is_next && found.is_none() && set_up::is_wanted();
    let (life, mut set_up) = (frame.life.clone(), None);
    let token_file = token.as_ref().map(|(_, path)| path.clone());
    let alone =
        !is_next && args.daemon.config.is_none() && load::has_one_client(args, token.is_some());
    let invitation = alone.then(|| Invitation {
        name: first_start::client_name(args).to_owned(),
        token,
        pin: identity.as_ref().map(|identity| identity.pin().to_string()),
        rights: ordered("", args).rights(),
        public: config.public_url.clients.iter().map(ToString::to_string).collect(),
    });
    let order = args.enroll.as_ref();
    let order = order.map(|name| ordered(name, args));
    let (args, made) = (args.clone(), token_file);
    let enrolled = Arc::new(kept.clone());
    let load = Box::new(move |instead| {
        let mut loaded = load::server(&args, made.as_deref(), instead)?;
        kept.join(&mut loaded)?;
        Ok(loaded)
    });
    let source = server::ConfigSource { load, state: state.path().to_owned(), enrolled };
    let sign = is_next.then(|| state.signing()).transpose()?;
    let start = async || {
        let server = server::start(config, identity, source).await?;
        if let Some(sign) = sign {
            sign_when_serving(sign);
        }
        if let Some(order) = order {
            first_start::enroll(server.as_ref(), order).await?;
        }
        if let Some(invitation) = invitation {
            // The log contains the same information, so the server also runs without its output.
            let text = invitation.text(server.listen(), stdout().is_terminal());
            if let Err(why) = term::out(text) {
                tracing::warn!("the command for the client could not be printed: {why}");
            }
        }
        if is_bare {
            set_up = set_up::beside_server(&kept_state, life);
        }
        Ok(server as Arc<dyn Serving>)
    };
    let outcome = runtime::run(daemon::run(frame, start));
    let made = set_up.and_then(SetUpPage::end);
    // The lock of the state directory is held until here.
    drop(state);
    outcome?;
    match made {
        Some(role) => set_up::go_on_as(role),
        None => Ok(()),
    }
}

/// The token that the server has made for its client, and the file that keeps it.
type MadeToken = (String, PathBuf);

/// Reads the configuration of a server, and opens its state directory.
fn load_server(
    args: &ServerArgs,
    places: &Places,
) -> anyhow::Result<(Loaded<ServerConfig>, StateDir, Option<MadeToken>)> {
    if args.daemon.config.is_some() {
        let loaded = load::server(args, None, None)?;
        let state = open_state(&loaded.config.common, places)?;
        return Ok((loaded, state, None));
    }
    // The token is kept in the state directory, so the state directory is opened first here.
    let dir = args.daemon.state_dir.clone().map_or_else(|| places.state_dir(), Ok)?;
    let state = StateDir::open(dir)?;
    let made = if first_start::makes_a_client(args, &state)? {
        Some(first_start::token(&state, first_start::client_name(args))?)
    } else {
        None
    };
    let path = made.as_ref().map(|(_, path)| path.as_path());
    Ok((load::server(args, path, None)?, state, made))
}

/// Writes the id of this process into a lock file once this process serves. Until then the lock
/// file names the former process, which continues if this one fails.
fn sign_when_serving(sign: impl FnOnce() + Send + 'static) {
    tokio::spawn(async {
        handover::serving().await;
        sign();
    });
}

/// A new client with the rights of the flags.
fn ordered(name: &str, args: &ServerArgs) -> ops::enrol::Order {
    ops::enrol::Order::new(name, [&args.allow_tcp, &args.allow_udp], &args.allow_forward)
        .with_hosts(&args.allow_http, &args.allow_tls)
}

fn run_client(args: &ClientArgs) -> anyhow::Result<()> {
    activation::take();
    let former = upgrade::inherit()?;
    let handover_state = former.as_ref().and_then(|former| former.left.handover_state.as_deref());
    let handover_state = handover_state.map(str::parse).transpose()?;
    let args = &settled(args)?;
    let redeemed = args.enroll.as_deref().map(|code| enroll::redeem(args, code)).transpose()?;
    let args = match &redeemed {
        Some(None) => return Ok(()),
        Some(Some(redeemed)) => redeemed,
        None => args,
    };
    let found = match found::of_client(args) {
        Err(nothing) if set_up::is_wanted() => return set_up::instead(&nothing),
        found => found?,
    };
    let args = &with_file(args, found.as_deref(), |args| &mut args.daemon);
    let Loaded { config, warnings } = load::client(args, None)?;
    begin(&args.daemon, &config.common, &warnings)?;
    tell_file(found.as_deref());
    let (instance, places) = (client_instance(&config.name), Places::of_process());
    // A client without chosen folders needs none: a container image may have no writable folder.
    let is_needed = config.common.control.is_some() || config.common.state_dir.is_some();
    let control = control(&config.common, &instance, &places);
    let control = if is_needed { Some(control?) } else { control.ok() };
    own::guard(&config.common);
    let is_next = former.is_some();
    let frame = Frame { control, is_needed, warnings, former, ..frame(&args.daemon) };
    let alone = Alone::claim(&config, frame.control.as_ref(), &places, is_next)?;
    alone.lock().map(handover::keep).transpose()?;
    let sign = alone.signing()?;
    let args = args.clone();
    let shares = frame.shares.clone();
    let source: client::ConfigSource = Box::new(move |instead| {
        let mut loaded = load::client(&args, instead)?;
        shares.join(&mut loaded.config)?;
        Ok(loaded)
    });
    let start = async || {
        let client = client::start(config, source, handover_state).await?;
        if let Some(sign) = sign {
            sign_when_serving(sign);
        }
        Ok(client as Arc<dyn Serving>)
    };
    let outcome = runtime::run(daemon::run(frame, start));
    // The lock is held until here.
    drop(alone);
    outcome
}

fn run_proxy(args: &ProxyArgs) -> anyhow::Result<()> {
    activation::take();
    let former = upgrade::inherit()?;
    let found = found::of_proxy(args)?;
    let args = &with_file(args, found.as_deref(), |args| &mut args.daemon);
    let Loaded { config, warnings } = load::proxy(args, None)?;
    begin(&args.daemon, &config.common, &warnings)?;
    tell_file(found.as_deref());
    let places = Places::of_process();
    // As for a client: a proxy without chosen folders needs none.
    let is_needed = config.common.control.is_some() || config.common.state_dir.is_some();
    let control = control(&config.common, Role::Proxy.name(), &places);
    let control = if is_needed { Some(control?) } else { control.ok() };
    own::guard(&config.common);
    let frame = Frame { control, is_needed, warnings, former, ..frame(&args.daemon) };
    let args = args.clone();
    let source: proxy::ConfigSource = Box::new(move |instead| load::proxy(&args, instead));
    let start = async || Ok(proxy::start(config, source).await? as Arc<dyn Serving>);
    runtime::run(daemon::run(frame, start))
}

/// The arguments, with the options of the services resolved.
fn settled(args: &ClientArgs) -> anyhow::Result<ClientArgs> {
    let options = service_options::read_options(&args.options, args.service_name.clone())?;
    Ok(ClientArgs { settled: options.config(), ..args.clone() })
}

fn run_demo(once: bool) -> anyhow::Result<()> {
    logging::start(&logging::Settings::choose(None, 0, Some("warn"), None)?, None)?;
    cores::forbid();
    descriptors::raise_limit();
    // With `--once` the page is not opened.
    let has_page = !once && server::has_page();
    let assemble = async |origin| demo::assemble(origin, has_page).await;
    runtime::run(demo::demo(once, assemble))
}

fn frame(args: &DaemonArgs) -> Frame {
    let configuration = args.config.clone();
    let (warnings, binary) = (Vec::new(), Binary::of_process());
    let (control, shares, former, life) = Default::default();
    Frame { control, is_needed: true, warnings, shares, configuration, binary, former, life }
}

/// The arguments with the file of the folder, if that file is used.
fn with_file<A: Clone>(
    args: &A,
    found: Option<&Path>,
    daemon: impl FnOnce(&mut A) -> &mut DaemonArgs,
) -> A {
    let mut args = args.clone();
    if let Some(found) = found {
        daemon(&mut args).config = Some(found.to_owned());
    }
    args
}

/// Reports which file of the folder is used.
fn tell_file(found: Option<&Path>) {
    if let Some(found) = found {
        let path = absolute(found).unwrap_or_else(|_| found.to_owned());
        tracing::info!("the configuration is {}", path.display());
    }
}

/// Starts the log, writes the warnings, and sets the limits of the process.
fn begin(args: &DaemonArgs, common: &Common, warnings: &[String]) -> anyhow::Result<()> {
    let of_file = || match common.log_format {
        LogFormat::Text => Format::Text,
        LogFormat::Json => Format::Json,
        LogFormat::Journald => Format::Journald,
    };
    let format = args.log.log_format.map_or_else(of_file, Into::into);
    let file = Some(common.log_level.name());
    let flag = args.log.log_level.as_deref();
    let settings = logging::Settings::choose(flag, args.log.verbose, file, Some(format))?;
    logging::start(&settings, common.log_file.as_ref())?;
    logging::follow_access(&common.log_access, format == Format::Json)?;
    logging::requests::follow(common.log_requests.as_ref())?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    cores::forbid();
    descriptors::raise_limit();
    descriptors::tell_room();
    inherit::inherit()?;
    Ok(())
}

fn open_state(common: &Common, places: &Places) -> anyhow::Result<StateDir> {
    let path = common.state_dir.clone().map_or_else(|| places.state_dir(), Ok)?;
    Ok(StateDir::open(path)?)
}
