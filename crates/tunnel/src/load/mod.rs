//! Loads a checked configuration from files and flags, and reports all problems at once.

use std::path::{Path, PathBuf};

use config::{
    ClientConfig, ClientFlags, Common, Lists, Role, Secret, ServerConfig, ServerFlags, Token,
};
use ops::state::Places;
use ops::{Loaded, WrongConfig};

use crate::cli::{ClientArgs, ServerArgs};
use crate::commands::client_instance;
use crate::input::{Input, absolute, read, with_sources};
use crate::kept_lists::KeptLists;
use crate::{examine, first_start, material};

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
    let token_file = args.token_file.as_deref().or(made_token);
    let has_one = alone && has_one_client(args, made_token.is_some());
    // The flags are rights of the server's one client, or of the client that will be enrolled.
    let (allow_tcp, allow_forward) = if has_one || !alone {
        (or(&args.allow_tcp, ops::enrol::PORTS), args.allow_forward.clone())
    } else {
        Default::default()
    };
    let flags = ServerFlags {
        listen: or(&args.listen, first_start::listen()),
        name: has_one.then(|| client_name(args).to_owned()),
        token: args.token.clone().map(Secret::new),
        token_file: flag_path(token_file)?,
        allow_tcp,
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
    let (mut loaded, input) = server_file(args.daemon.config.as_deref(), instead, &flags)?;
    let given = [
        ("tls.cert", "--cert", args.cert.is_some()),
        ("tls.key", "--key", args.key.is_some()),
        ("tls.client_ca", "--client-ca", args.client_ca.is_some()),
    ];
    input.refuse(&examine::server(&loaded.config), &given)?;
    warn_of_argument(args.token.as_deref(), &mut loaded.warnings);
    Ok(loaded)
}

/// Whether a server without a file has its own client. Otherwise clients are enrolled by codes.
pub(crate) const fn has_one_client(args: &ServerArgs, made: bool) -> bool {
    made || args.token.is_some() || args.token_file.is_some()
}

/// The name of the one client of a server without a file.
pub(crate) fn client_name(args: &ServerArgs) -> &str {
    args.name.as_deref().unwrap_or(first_start::NAME)
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
        forward: args.forward.clone(),
        only: args.only,
        connections: args.connections.map(|n| n.to_string()),
        state_dir: flag_path(args.daemon.state_dir.as_deref())?,
        workers: args.daemon.workers.map(|n| n.to_string()),
        control: flag_path(args.daemon.control.as_deref())?,
        log_level: None,
    };
    let (mut loaded, input) = client_file(args.daemon.config.as_deref(), instead, &flags)?;
    let given = [
        ("tls.ca", "--ca", args.ca.is_some()),
        ("tls.cert", "--cert", args.cert.is_some()),
        ("tls.key", "--key", args.key.is_some()),
    ];
    input.refuse(&examine::client(&loaded.config), &given)?;
    warn_of_argument(args.token.as_deref(), &mut loaded.warnings);
    // With --only, the command line has the last word.
    if !args.only
        && let Some(kept) = KeptLists::of(&loaded.config, Lists::default())
    {
        keep(&mut loaded, &kept)?;
    }
    let ClientConfig { services, forwards, .. } = &loaded.config;
    if services.is_empty() && forwards.is_empty() {
        let text = "this client has no services and no forwards yet: add them with `tunnel publish` \
                    and `tunnel forward`, or in its configuration";
        loaded.warnings.push(text.to_owned());
    }
    Ok(loaded)
}

/// Adds the services and forwards that commands have added.
fn keep(to: &mut Loaded<ClientConfig>, kept: &KeptLists) -> Result<(), WrongConfig> {
    let lists = kept.load(to.config.id_prefix.as_deref())?;
    to.config
        .keep(&lists)
        .map_err(|bad| WrongConfig::one(format!("{}: {bad}", kept.path().display())))?;
    if !lists.without.is_empty() {
        let what = lists.without.join(", ");
        to.warnings.push(format!(
            "left out by `tunnel unpublish`: {what} (hint: `tunnel publish` brings a service back, and \
             `tunnel unpublish --save NAME` takes it out of the file)"
        ));
    }
    Ok(())
}

/// The services and forwards of the command line. Names have no prefix.
pub(crate) fn flag_lists(args: &ClientArgs) -> Result<Lists, WrongConfig> {
    let load = |sources: &config::Sources<'_>| {
        config::load_lists(&args.publish, &args.forward, None, sources)
    };
    Ok(with_sources(Path::new(""), load)?)
}

/// The configuration of a file of either role.
#[derive(Debug)]
pub(crate) enum Either {
    Server(Box<Loaded<ServerConfig>>),
    Client(Box<Loaded<ClientConfig>>),
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
    let (faults, warnings) = match &mut either {
        Either::Server(loaded) => (examine::server(&loaded.config), &mut loaded.warnings),
        Either::Client(loaded) => (examine::client(&loaded.config), &mut loaded.warnings),
    };
    input.refuse(&faults, &[])?;
    warnings.extend(input.places(faults.iter(), &[]));
    Ok(either)
}

/// The folders in which a client that was started with the file `path` keeps its state: by hand, or
/// as an instance of systemd, which has the name of the file.
fn state_folders(path: &Path, common: &Common) -> Vec<PathBuf> {
    if let Some(given) = &common.state_dir {
        return vec![given.clone()];
    }
    let Ok(own) = Places::of_process().state_dir() else { return Vec::new() };
    let instance = path.file_stem().map(|stem| own.join(stem));
    std::iter::once(own).chain(instance).collect()
}

/// The keys that determine the path of a daemon's control socket.
#[derive(Debug)]
pub(crate) struct Whereabouts {
    pub(crate) control: Option<PathBuf>,
    pub(crate) state_dir: Option<PathBuf>,
    pub(crate) instance: String,
}

/// The whereabouts of a file that may have problems. `None` if they cannot be determined.
pub(crate) fn whereabouts(path: &Path) -> Option<Whereabouts> {
    let text = read(path).ok()?;
    let folder = absolute(path).ok()?.parent()?.to_owned();
    let place = |key| -> Option<Option<PathBuf>> {
        let Some(value) = config::scalar(&text, key) else { return Some(None) };
        // The environment of the daemon is not known here.
        (!value.contains("${")).then(|| Some(folder.join(value)))
    };
    let instance = match Role::of(&text)? {
        Role::Server => "server".to_owned(),
        Role::Client => client_instance(&config::scalar(&text, "name")?),
    };
    Some(Whereabouts { control: place("control")?, state_dir: place("state_dir")?, instance })
}

fn read_either(path: &Path) -> Result<(Either, Input), WrongConfig> {
    let text = read(path)?;
    let role = Role::of(&text);
    if role == Some(Role::Client) {
        let (loaded, input) = client_file(Some(path), None, &ClientFlags::default())?;
        return Ok((Either::Client(loaded.into()), input));
    }
    let server = server_file(Some(path), None, &ServerFlags::default());
    match (role, server) {
        (Some(_), Ok((loaded, input))) => Ok((Either::Server(loaded.into()), input)),
        // The one problem of the file says what is wrong with its YAML, or that it is empty.
        (None, Err(wrong)) if !config::has_keys(&text) => Err(wrong),
        (Some(_), Err(wrong)) => Err(wrong),
        (None, _) => Err(WrongConfig::one(format!(
            "{}:1:1: neither a server's file nor a client's file (hint: a server has the keys \
             `listen` and `clients`; a client has `servers`, `services` and `forwards`)",
            path.display()
        ))),
    }
}

fn server_file(
    path: Option<&Path>,
    instead: Option<String>,
    flags: &ServerFlags,
) -> Result<(Loaded<ServerConfig>, Input), WrongConfig> {
    let input = Input::read(path, instead)?;
    input.must_be(Role::Server)?;
    let loaded = input.with(|text, sources| config::load_server(text, flags, sources))?;
    let mut config = loaded.config;
    material::anchor_server(&mut config, &input.folder);
    let tokens = config.clients.iter().flat_map(|client| &client.tokens);
    let tokens: Vec<&Token> = tokens.chain(admin_tokens(&config.common)).collect();
    let keys = material::server_keys(&config);
    let warnings = input.warnings(&loaded.warnings, &tokens, &keys);
    Ok((Loaded { config, warnings }, input))
}

fn client_file(
    path: Option<&Path>,
    instead: Option<String>,
    flags: &ClientFlags,
) -> Result<(Loaded<ClientConfig>, Input), WrongConfig> {
    let input = Input::read(path, instead)?;
    input.must_be(Role::Client)?;
    let loaded = input.with(|text, sources| config::load_client(text, flags, sources))?;
    let mut config = loaded.config;
    material::anchor_client(&mut config, &input.folder);
    let tokens: Vec<&Token> = config.token.iter().chain(admin_tokens(&config.common)).collect();
    let keys = material::client_keys(&config);
    let warnings = input.warnings(&loaded.warnings, &tokens, &keys);
    Ok((Loaded { config, warnings }, input))
}

fn admin_tokens(common: &Common) -> impl Iterator<Item = &Token> {
    common.admin.iter().flat_map(|admin| std::iter::once(&admin.token).chain(&admin.read_token))
}

/// The path of a flag in absolute form. The path of a flag is relative to the working directory,
/// but a path in the configuration is relative to the file.
fn flag_path(path: Option<&Path>) -> Result<Option<String>, WrongConfig> {
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command, DaemonArgs};

    fn client_args(line: &str) -> ClientArgs {
        let Command::Client(args) = Cli::parse_from(line.split_whitespace()).command else {
            panic!("not a client: {line}")
        };
        args
    }

    #[test]
    fn a_file_finds_its_token_beside_it_and_flags_win() {
        let dir = tempfile::tempdir().unwrap();
        let token = ops::token().unwrap();
        let token_file = dir.path().join("t");
        fs::write(&token_file, format!("{token}\n")).unwrap();
        fs::set_permissions(&token_file, fs::Permissions::from_mode(0o644)).unwrap();
        let file = dir.path().join("client.yaml");
        let text = "servers: [\"tls://a.example:7000\"]\nname: home\ntoken_file: t\n\
                    tls: { ca: ca.pem }\ncontrol: c.sock\nservices:\n\
                    \x20 - { name: ssh, target: \"tcp://127.0.0.1:22\", public: \"tcp://:10022\" }\n";
        fs::write(&file, text).unwrap();
        let line = format!("tunnel client --config {} --server tcp://127.0.0.1:1", file.display());
        let Loaded { config, warnings } = client(&client_args(&line), None).unwrap();
        assert_eq!(config.token.unwrap().secret.reveal(), token);
        assert_eq!(config.servers[0].endpoint.port, 1);
        assert_eq!(config.common.control, Some(dir.path().join("c.sock")));
        assert!(warnings.iter().any(|w| w.contains("chmod 600")), "{warnings:?}");
    }

    #[test]
    fn a_readable_file_is_warned_of_only_if_the_token_stands_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let token = ops::token().unwrap();
        let file = dir.path().join("client.yaml");
        let rest = "servers: tls://a.example:7000\nname: home\n";
        let exposed = |text: &str, flags: &str| {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
            let line = format!("tunnel client --config {} {flags}", file.display());
            let Loaded { warnings, .. } = client(&client_args(&line), None).unwrap();
            warnings.iter().any(|w| w.contains("chmod 600"))
        };
        assert!(exposed(&format!("{rest}token: {token}\n"), ""));
        assert!(!exposed(rest, &format!("--token {token}")));
    }

    #[test]
    fn flags_alone_are_a_whole_configuration() {
        let token = ops::token().unwrap();
        let line = format!(
            "tunnel client --server tls://a.example:7000 --name home --token {token} \
             --publish tcp://:10022=tcp://127.0.0.1:22 \
             --forward tcp://127.0.0.1:5203=tcp://127.0.0.1:5201"
        );
        let Loaded { config, warnings } = client(&client_args(&line), None).unwrap();
        assert_eq!((config.services.len(), config.forwards.len()), (1, 1));
        assert!(warnings.iter().any(|w| w.contains("/proc")), "{warnings:?}");
    }

    #[test]
    fn a_server_without_a_file_has_one_client_with_modest_rights() {
        let dir = tempfile::tempdir().unwrap();
        let token_file = dir.path().join("home.token");
        fs::write(&token_file, ops::token().unwrap()).unwrap();
        let config = server(&ServerArgs::default(), Some(&token_file), None).unwrap().config;
        let home = &config.clients[0];
        assert_eq!((config.clients.len(), &*home.name), (1, "home"));
        assert!(home.rights.tcp.permits(config.public_bind, 10_022));
        for port in [1024, 9999, 11_000] {
            assert!(!home.rights.tcp.permits(config.public_bind, port), "{port}");
        }
        assert!(home.rights.forward.0.is_empty());
    }

    #[test]
    fn a_private_key_that_others_may_read_is_warned_of_at_start_and_by_check() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let make = |file: &str, mode| {
            fs::create_dir(at(file)).unwrap();
            tls::self_signed(&at(file), &[]).unwrap();
            let key = at(file).join("key.pem");
            fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
        };
        ["server", "hook", "one", "two"].into_iter().for_each(|name| make(name, 0o644));
        make("fine", 0o600);
        fs::write(at("t"), ops::token().unwrap()).unwrap();
        fs::set_permissions(at("t"), fs::Permissions::from_mode(0o600)).unwrap();
        let keys = |warnings: &[String]| -> Vec<String> {
            let text = "/key.pem holds a private key and others may read it (chmod 600)";
            let begin = dir.path().display().to_string() + "/";
            let names = warnings.iter().filter_map(|w| w.strip_suffix(text)?.strip_prefix(&begin));
            names.map(str::to_owned).collect()
        };
        let both = |file: &Path, warnings: Vec<String>| {
            let checked = match file_and_what_it_names(file).unwrap() {
                Either::Server(loaded) => loaded.warnings,
                Either::Client(loaded) => loaded.warnings,
            };
            assert_eq!(keys(&checked), keys(&warnings));
            keys(&warnings)
        };

        let server_file = at("server.yaml");
        let auth = "auth: { http: { url: \"https://127.0.0.1:1/\", tls: { pin: PIN, \
                    cert: hook/cert.pem, key: hook/key.pem } } }\n";
        let pin = tls::self_signed(&at("hook"), &[]).unwrap().pin().to_string();
        let auth = auth.replace("PIN", &format!("\"{pin}\""));
        let text = "listen: tls://[::]:7000\nclients: [{ name: a, token_file: t }]\n";
        let start = |name: &str, auth: &str| {
            let pair = format!("tls: {{ cert: {name}/cert.pem, key: {name}/key.pem }}\n");
            fs::write(&server_file, format!("{text}{pair}{auth}")).unwrap();
            let daemon = DaemonArgs { config: Some(server_file.clone()), ..Default::default() };
            let args = ServerArgs { daemon, ..ServerArgs::default() };
            both(&server_file, server(&args, None, None).unwrap().warnings)
        };
        assert_eq!(start("server", &auth), ["server", "hook"]);
        assert_eq!(start("fine", ""), [""; 0]);

        let client_file = at("client.yaml");
        let pair =
            |name: &str| format!("pin: \"{pin}\", cert: {name}/cert.pem, key: {name}/key.pem");
        let text = format!(
            "servers: [{{ url: \"tls://a:1\", tls: {{ {} }} }}, tls://b:1, tls://c:1]\n\
             name: home\ntoken_file: t\ntls: {{ {} }}\n",
            pair("one"),
            pair("two")
        );
        fs::write(&client_file, text).unwrap();
        let line = format!("tunnel client --config {}", client_file.display());
        let warnings = client(&client_args(&line), None).unwrap().warnings;
        // Two paths share a key, which is reported once.
        assert_eq!(both(&client_file, warnings), ["one", "two"]);
    }

    #[test]
    fn the_token_of_the_first_start_is_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let [aim, token_file] = ["aim", "home.token"].map(|name| dir.path().join(name));
        fs::write(&aim, ops::token().unwrap()).unwrap();
        symlink(&aim, &token_file).unwrap();
        let made = server(&ServerArgs::default(), Some(&token_file), None);
        let text = made.unwrap_err().to_string();
        assert!(text.contains("home.token: this is a symbolic link"), "{text}");
        // A token file that the user names may be a link.
        let args = ServerArgs { token_file: Some(token_file), ..ServerArgs::default() };
        server(&args, None, None).unwrap();
    }

    #[test]
    fn every_problem_is_said_with_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server.yaml");
        fs::write(&path, "listen: [\"tls//x\"]\nclients: []\ntypo: 1\n").unwrap();
        let text = file(&path).unwrap_err().to_string();
        assert!(text.contains("server.yaml:1:10: listen[0]"), "{text}");
        assert!(text.contains("server.yaml:3:1: typo"), "{text}");
        fs::write(&path, "listen: [\n").unwrap();
        let said = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            let WrongConfig(said) = file(&path).unwrap_err();
            assert_eq!(said.len(), 1, "{said:?}");
            said[0].split_once("server.yaml:").unwrap().1.to_owned()
        };
        for (text, start) in [
            (&b"listen: [\n"[..], "1:9: the `[` that opens here is not closed (hint: "),
            (b"workers: 1\n", "1:1: neither a server's file nor a client's file (hint: "),
            (b"", "1:1: the file has no keys (hint: "),
            (b"# only this\n", "1:1: the file has no keys (hint: "),
            (b"listen\n", "1:7: no colon behind `listen` (hint: "),
            (b"listen: a\nname: B\xe4r\n", "2:8: the byte 0xe4 is not UTF-8 (hint: "),
        ] {
            let said = said(text);
            assert!(said.starts_with(start), "{said}");
        }
        // A character that is cut where reading ends.
        fs::write(&path, "ä".repeat(config::FILE_MAX)).unwrap();
        assert!(file(&path).unwrap_err().to_string().contains("larger than 1 MiB"));
        let text = file(&dir.path().join("none")).unwrap_err().to_string();
        assert!(text.contains("none: cannot read") && text.contains("(hint: "), "{text}");
        let text = file(dir.path()).unwrap_err().to_string();
        assert!(text.contains("directory") && text.contains("(hint: "), "{text}");
    }

    #[test]
    fn a_file_of_the_other_role_is_one_problem() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("it.yaml");
        let daemon = || DaemonArgs { config: Some(path.clone()), ..DaemonArgs::default() };
        fs::write(&path, config::sample::SERVER).unwrap();
        let args = ClientArgs { daemon: daemon(), ..ClientArgs::default() };
        let WrongConfig(said) = client(&args, None).unwrap_err();
        assert!(said[0].contains("a server's file (hint: tunnel server --config "), "{said:?}");
        assert_eq!(said.len(), 1);
        fs::write(&path, config::sample::CLIENT).unwrap();
        let args = ServerArgs { daemon: daemon(), ..ServerArgs::default() };
        let WrongConfig(said) = server(&args, None, None).unwrap_err();
        assert!(said[0].contains("a client's file (hint: tunnel client --config "), "{said:?}");
        assert_eq!(said.len(), 1);
    }

    #[test]
    fn what_a_file_names_is_opened_and_told_with_its_place() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("t"), ops::token().unwrap()).unwrap();
        fs::write(dir.path().join("empty.pem"), "").unwrap();
        let path = dir.path().join("it.yaml");
        let said = |text: &str| {
            fs::write(&path, text).unwrap();
            file_and_what_it_names(&path).unwrap_err().0
        };
        let problems = said(
            "servers: [{ url: \"tls://a:1\", tls: { ca: no.pem } }, tls://b:1, tls://c:1]\n\
             name: home\ntoken_file: t\ntls: { ca: empty.pem, cert: no.crt, key: no.key }\n",
        );
        let [first, second, third, fourth] = &problems[..] else { panic!("{problems:?}") };
        assert!(first.contains("it.yaml:1:42: servers[0].tls.ca: "), "{first}");
        assert!(second.contains("it.yaml:4:12: tls.ca: "), "{second}");
        assert!(second.contains("no certificate in it"), "{second}");
        assert!(third.contains("it.yaml:4:29: tls.cert: "), "{third}");
        assert!(fourth.contains("it.yaml:4:42: tls.key: "), "{fourth}");

        for name in ["one", "two"] {
            fs::create_dir(dir.path().join(name)).unwrap();
            tls::self_signed(&dir.path().join(name), &[]).unwrap();
        }
        let server = |pair: &str| {
            format!(
                "listen: tls://[::]:7000\ntls: {pair}\nclients: [{{ name: a, token_file: t }}]\n"
            )
        };
        let pair = "{ cert: one/cert.pem, key: two/key.pem, client_ca: no.pem }";
        let problems = said(&server(pair));
        let [key, ca] = &problems[..] else { panic!("{problems:?}") };
        assert!(key.contains("it.yaml:2:33: tls.key: "), "{key}");
        assert!(key.contains("two/key.pem: the key does not belong to the certificate "), "{key}");
        assert!(ca.contains("tls.client_ca: ") && ca.contains("no.pem: No such file"), "{ca}");
        fs::write(&path, server("{ cert: one/cert.pem, key: one/key.pem }")).unwrap();
        file_and_what_it_names(&path).unwrap();
    }

    #[test]
    fn a_flag_that_names_a_wrong_file_is_the_place_of_the_problem() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("client.yaml");
        let token = ops::token().unwrap();
        fs::write(&file, "servers: tls://a:1\nname: a\ntls: { ca: b }\n").unwrap();
        let line = format!("tunnel client --config {} --token {token} --ca c", file.display());
        let said = client(&client_args(&line), None).unwrap_err().to_string();
        assert!(said.starts_with("--ca: ") && said.contains("/c: No such file"), "{said}");
    }

    #[test]
    fn the_samples_are_valid() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sample.yaml");
        for sample in [config::sample::SERVER, config::sample::CLIENT] {
            fs::write(&path, sample).unwrap();
            if let Err(wrong) = file(&path) {
                // A token in a sample would be the token of every user, so the samples have none.
                assert!(wrong.0.iter().all(|p| p.contains("token")), "{wrong}");
            }
        }
    }
}
