//! Targets that would lead to the daemon itself: its admin API, its control socket, its state
//! folder, its configuration, its tokens and its keys. Targets that lead nowhere are reported with
//! them ([`networks`]).
//!
//! The examination of a configuration finds such targets where the configuration names them. The
//! dial and the file server refuse targets that lead there only through a link, a name or a later
//! change ([`net::guarded`], [`files::kept`]).

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use config::secrets::{Held, Holds};
use config::{ClientConfig, Common, ProxyConfig, ServerConfig, Service, Target, Token};
use net::guarded::Guard;
use ops::WrongConfig;
use ops::state::Places;

use crate::examine::Fault;
use crate::networks;

/// The alternative for the user.
const INSTEAD: &str = "(hint: ask the daemon by `tunnel` on its own machine, or its API by `ssh -L \
                       7070:127.0.0.1:7070`)";

/// Guards the state of a daemon, and records its process. Must be called before the daemon accepts
/// connections.
pub(crate) fn guard(common: &Common) {
    // A client of the control socket that is this process acts for a visitor.
    Guard::process(std::process::id()).keep();
    if let Some(folder) = state_folder(common) {
        files::kept::keep_folder(&folder);
        // A folder that does not exist yet has no socket.
        if let Ok(guard) = Guard::folder(&folder) {
            guard.keep();
        }
    }
}

/// The state directory of a daemon of this process. `None`: the environment names no folder for
/// state.
pub(crate) fn state_folder(common: &Common) -> Option<PathBuf> {
    common.state_dir.clone().or_else(|| Places::of_process().state_dir().ok())
}

/// Keeps the files of a configuration in force from being served: the file itself, tokens, keys and
/// passwords. `folder` is the folder to which the paths of tokens are relative.
pub(crate) fn keep_files<'a>(
    file: Option<&Path>,
    folder: &Path,
    tokens: &[&Token],
    secrets: &[Held],
    others: impl Iterator<Item = &'a Path>,
) {
    let of_tokens = tokens.iter().filter_map(|token| token.file.as_deref());
    let of_tokens = of_tokens.map(|path| folder.join(path));
    let all = of_tokens.chain(others.map(|path| folder.join(path)));
    all.chain(file.map(Path::to_owned)).for_each(|path| files::kept::keep(&path));
    let secrets = secrets.iter().filter(|held| held.kind == Holds::Token);
    secrets.for_each(|held| files::kept::keep_token(held.secret.reveal()));
}

/// The files of users that the services of a client name.
pub(crate) fn user_files(config: &ClientConfig) -> impl Iterator<Item = &Path> {
    let files = config.services.iter().filter_map(|service| service.user_file.as_ref());
    files.map(|file| file.path.as_path())
}

/// The targets of a client that lead to the client itself.
pub(crate) fn of_client(config: &ClientConfig) -> Vec<Fault> {
    let own = of_services(&config.services, &config.common, "services", "service");
    own.into_iter().chain(networks::of_client(config)).collect()
}

/// The targets of a proxy that lead to the proxy itself.
pub(crate) fn of_proxy(config: &ProxyConfig) -> Vec<Fault> {
    let services: Vec<_> = config.proxies.iter().map(|proxy| proxy.service.clone()).collect();
    let own = of_services(&services, &config.common, "proxies", "proxy");
    own.into_iter().chain(networks::of_proxy(config)).collect()
}

/// The default targets of a server that lead to the server itself, and the pages that are files of
/// the server.
pub(crate) fn of_server(config: &ServerConfig) -> Vec<Fault> {
    let defaults = config.listen.iter().enumerate().filter_map(|(n, at)| {
        let target = at.mux.as_ref()?.default.as_ref()?;
        let problem = problem(target, &config.common)?;
        let keys = vec![format!("listen[{n}].default"), "listen".to_owned()];
        Some(Fault { keys, problem: format!("the default target {problem}"), fatal: true })
    });
    let pages = &config.http.pages;
    let pages = [("not_found", &pages.not_found), ("unavailable", &pages.unavailable)];
    let pages = pages.into_iter().filter_map(|(key, page)| {
        let page = page.as_deref().filter(|page| files::kept::leads_to_kept(page))?;
        let problem = format!(
            "{}: it is a file of this daemon, with its configuration, a token or a key, which no \
             visitor may see",
            page.display()
        );
        Some(Fault { keys: vec![format!("http.pages.{key}")], problem, fatal: true })
    });
    defaults.chain(pages).chain(networks::of_server(config)).collect()
}

fn of_services(services: &[Service], common: &Common, key: &str, what: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (n, service) in services.iter().enumerate() {
        for (target, _) in service.targets() {
            let Some(problem) = problem(target, common) else { continue };
            let problem = format!("{what} {}: its target {problem}", service.name);
            let keys = match services.len() {
                1 => vec![format!("{key}[{n}].target"), key.to_owned()],
                // A range of ports yields several services for an entry.
                _ => vec![key.to_owned()],
            };
            faults.push(Fault { keys, problem, fatal: true });
        }
    }
    faults
}

/// Refuses services that a command adds to a client.
pub(crate) fn refuse<'a>(
    services: impl Iterator<Item = &'a Service>,
    common: &Common,
) -> Result<(), WrongConfig> {
    let mut lines = Vec::new();
    for service in services {
        let problems = service.targets().filter_map(|(target, _)| {
            problem(target, common).or_else(|| networks::unreachable(service, target))
        });
        lines.extend(problems.map(|why| format!("service {}: its target {why}", service.name)));
    }
    if lines.is_empty() { Ok(()) } else { Err(WrongConfig(lines)) }
}

/// The reason why a target leads to the daemon itself. `None`: it leads elsewhere, as far as is
/// known.
fn problem(target: &Target, common: &Common) -> Option<String> {
    let place = match target {
        Target::Unix(address) if address.abstract_name().is_none() => {
            let path = Path::new(address.place());
            let is_control = common.control.as_deref().is_some_and(|own| is_same(own, path));
            let is_below = || state_folder(common).is_some_and(|own| is_below(path, &own));
            if is_control || net::guarded::leads_to_socket(path) {
                "the control socket of this daemon"
            } else if is_below() {
                "a socket in the state folder of this daemon"
            } else {
                return None;
            }
        }
        Target::Files(dir) => {
            let is_state = state_folder(common).is_some_and(|own| is_below(dir, &own));
            if !is_state && !files::kept::leads_to_kept(dir) {
                return None;
            }
            "the state folder of this daemon, which has its tokens and keys"
        }
        target if common.admin.as_ref().is_some_and(|admin| admin.is_at(target)) => {
            "the admin API of this daemon"
        }
        Target::Unix(_)
        | Target::Tcp { .. }
        | Target::Udp { .. }
        | Target::Socks5
        | Target::HttpProxy
        | Target::Https { .. }
        | Target::H2c { .. }
        | Target::Tls { .. }
        | Target::Redirect(_)
        | Target::Private(_) => return None,
    };
    Some(format!("{target} is {place}; whoever reaches it has power over the daemon {INSTEAD}"))
}

/// Whether two paths lead to the same file, which need not exist.
fn is_same(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    match (identity(one), identity(other)) {
        (Some(one), Some(other)) => one == other,
        _ => real(one) == real(other),
    }
}

/// Whether a path leads to a folder or below it.
fn is_below(path: &Path, folder: &Path) -> bool {
    real(path).starts_with(real(folder))
        || path.ancestors().any(|above| fs::metadata(above).is_ok() && is_same(above, folder))
}

/// The path with links resolved. The last components may be missing.
fn real(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for (n, above) in path.ancestors().enumerate() {
        if let Ok(real) = fs::canonicalize(above) {
            let rest: Vec<&OsStr> = path.iter().rev().take(n).collect();
            return rest.iter().rev().fold(real, |real, name| real.join(name));
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use config::{ClientFlags, ServerFlags, Sources, Text};

    use super::*;

    const SOURCES: Sources<'_> = Sources { env: &|_| None, read: &|_| Err(String::new()) };
    const TOKEN: &str = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ";

    fn client(rest: &str) -> ClientConfig {
        let text = format!("servers: tcp://127.0.0.1:1\nname: home\ntoken: {TOKEN}\n{rest}");
        let text = Some(Text { name: "c", text: &text });
        let loaded = config::load_client(text, &ClientFlags::default(), &SOURCES);
        loaded.unwrap_or_else(|why| panic!("{rest}: {why:?}")).config
    }

    #[test]
    fn a_target_that_is_the_control_socket_or_in_the_state_folder_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        fs::create_dir_all(at("state/deep")).unwrap();
        fs::create_dir(at("www")).unwrap();
        let _sockets = ["own.sock", "other.sock"].map(|name| UnixListener::bind(at(name)).unwrap());
        symlink("own.sock", at("link.sock")).unwrap();
        symlink("state", at("folder")).unwrap();
        let common = format!("control: {}\nstate_dir: {}\n", at("own.sock"), at("state"));
        for (target, wanted) in [
            (format!("unix://{}", at("own.sock")), true),
            (format!("unix://{}", at("link.sock")), true),
            (format!("unix://{}", at("other.sock")), false),
            (format!("unix://{}", at("absent.sock")), false),
            (format!("unix://{}", at("folder/a.sock")), true),
            (format!("file://{}", at("www")), false),
            (format!("file://{}", at("state")), true),
            (format!("file://{}", at("folder/deep")), true),
            (format!("file://{}", dir.path().display()), false),
        ] {
            let public = if target.starts_with("file") { "http://a.example" } else { "tcp://:1" };
            let entry = format!("{{ name: s, public: \"{public}\", target: \"{target}\" }}");
            let config = client(&format!("{common}services: [{entry}]\n"));
            assert_eq!(!of_client(&config).is_empty(), wanted, "{target}");
            let refused = refuse(config.services.iter(), &config.common).is_err();
            assert_eq!(refused, wanted, "{target}");
        }
        // The file of a control socket that is not bound yet.
        let own = format!("control: {}\n", at("later.sock"));
        let entry =
            format!("{{ name: s, public: \"tcp://:1\", target: \"unix://{}\" }}", at("later.sock"));
        let config = client(&format!("{own}services: [{entry}]\n"));
        let faults = of_client(&config);
        assert!(faults[0].fatal && faults[0].problem.contains("service s: its target unix://"));
        assert!(faults[0].problem.contains("is the control socket of this daemon"), "{faults:?}");
    }

    #[test]
    fn a_page_that_is_a_token_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let [page, token, link] =
            ["page.html", "a.token", "link.html"].map(|name| dir.path().join(name));
        fs::write(&page, "page").unwrap();
        fs::write(&token, TOKEN).unwrap();
        symlink(&token, &link).unwrap();
        files::kept::keep(&token);
        for (path, wanted) in [(&page, false), (&token, true), (&link, true)] {
            let path = path.display();
            let text = format!(
                "listen: tcp://127.0.0.1:1\nhttp: {{ pages: {{ unavailable: \"{path}\" }} }}\n"
            );
            let text = Some(Text { name: "s", text: &text });
            let config =
                config::load_server(text, &ServerFlags::default(), &SOURCES).unwrap().config;
            assert_eq!(!of_server(&config).is_empty(), wanted, "{path}");
        }
    }

    #[test]
    fn a_default_target_that_is_the_server_itself_is_found() {
        let admin =
            format!("admin: {{ listen: \"127.0.0.1:7\", token: {TOKEN} }}\ncontrol: /x/own.sock\n");
        for (default, wanted) in [
            ("tcp://127.0.0.1:7", true),
            ("tcp://localhost.:7", true),
            ("tcp://ip6-localhost:7", true),
            ("tcp://0.0.0.0:7", true),
            ("tcp://127.0.0.1:8", false),
            ("unix:///x/own.sock", true),
            ("unix:///x/other.sock", false),
        ] {
            let text = format!(
                "listen: [{{ url: \"mux://127.0.0.1:1\", default: \"{default}\" }}]\n{admin}"
            );
            let text = Some(Text { name: "s", text: &text });
            let config =
                config::load_server(text, &ServerFlags::default(), &SOURCES).unwrap().config;
            assert_eq!(!of_server(&config).is_empty(), wanted, "{default}");
        }
    }
}
