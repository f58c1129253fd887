//! Names that a shell completes: services, forwards, clients and installed instances. A running
//! daemon is queried for its names. Any failure yields no names, because a shell cannot show an
//! error.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap_complete::CompletionCandidate;
use clap_complete::engine::ArgValueCompleter;
use control::Instance;
use ops::Role;
use ops::command::{ListClients, ReadStatus};
use ops::state::Places;
use ops::status::Status;

use crate::{install, whereabouts};

/// The longest wait for all daemons: completion must respond at once.
const PATIENCE: Duration = Duration::from_millis(300);

/// The services and forwards of a client, by the words of `tunnel unpublish`.
pub(crate) fn published() -> ArgValueCompleter {
    of_status(&[Role::Client], names_of_services)
}

/// The services and forwards of a client, and the services of a server.
pub(crate) fn services() -> ArgValueCompleter {
    of_status(&[], names_of_services)
}

/// The clients of a server.
pub(crate) fn clients() -> ArgValueCompleter {
    completer(|| {
        ask(&[Role::Server], |instance| {
            let clients = control::ask(instance, ListClients {}).ok()?;
            Some(clients.list.into_iter().map(|client| client.name).collect())
        })
    })
}

/// The installed instances of the units.
pub(crate) fn instances() -> ArgValueCompleter {
    completer(install::names)
}

fn completer(names: impl Fn() -> Vec<String> + Send + Sync + 'static) -> ArgValueCompleter {
    ArgValueCompleter::new(move |current: &OsStr| candidates(names(), current))
}

fn candidates(mut names: Vec<String>, current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str() else { return Vec::new() };
    names.sort();
    names.dedup();
    // A name with a control character comes from a peer, and would be several names to the shell.
    names.retain(|name| name.starts_with(current) && !name.contains(char::is_control));
    names.into_iter().map(CompletionCandidate::new).collect()
}

/// What `names` finds in the status of each daemon that has one of the roles; of all daemons, if
/// there is no role.
pub(crate) fn of_status(
    roles: &'static [Role],
    names: fn(Status) -> Vec<String>,
) -> ArgValueCompleter {
    completer(move || {
        ask(roles, move |instance| Some(names(control::ask(instance, ReadStatus {}).ok()?)))
    })
}

fn names_of_services(status: Status) -> Vec<String> {
    let of = |session: ops::status::Session| {
        let services = session.services.into_iter().map(|service| service.name);
        // The name of a forward is the address of its listener.
        services.chain(session.forwards.into_iter().filter_map(listener)).collect()
    };
    status.sessions.into_iter().flat_map(|session| -> Vec<String> { of(session) }).collect()
}

/// The address of the listener of a forward.
fn listener(forward: ops::status::Service) -> Option<String> {
    forward.name.split(" -> ").next().map(str::to_owned)
}

/// The names that daemons of the roles report in time. If the command line names a daemon, only
/// this daemon is queried.
fn ask(
    roles: &'static [Role],
    names: impl Fn(&Instance) -> Option<Vec<String>> + Send + 'static,
) -> Vec<String> {
    let (to, from) = mpsc::channel();
    // A hanging daemon would block the shell. The process ends with its completions.
    thread::spawn(move || {
        for path in sockets(roles) {
            let found = Instance::connect(&path).ok().and_then(|instance| names(&instance));
            let _ = to.send(found.unwrap_or_default());
        }
    });
    let deadline = std::time::Instant::now() + PATIENCE;
    let left = || deadline.saturating_duration_since(std::time::Instant::now());
    std::iter::from_fn(|| from.recv_timeout(left()).ok()).flatten().collect()
}

/// The control sockets of the daemons that the command line selects.
fn sockets(roles: &[Role]) -> Vec<PathBuf> {
    let words: Vec<_> = std::env::args_os().collect();
    let after = |flag: &str| {
        let at = words.iter().position(|word| word == flag)?;
        words.get(at + 1).map(PathBuf::from)
    };
    if let Some(socket) = after("--control") {
        return vec![socket];
    }
    if let Some(file) = after("--config") {
        return whereabouts::control_of(&file).map(|place| place.path).into_iter().collect();
    }
    let live = control::running(&Places::of_process()).live;
    let is_meant = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        // The file of a socket begins with the name of the role, unless the user chose the file.
        let others = [Role::Server, Role::Client, Role::Proxy].into_iter();
        let mut others = others.filter(|other| !roles.is_empty() && !roles.contains(other));
        others.all(|other| !name.starts_with(other.name()))
    };
    live.into_iter().filter(is_meant).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_begin_so_are_offered_once_and_in_order() {
        let names = ["web", "ssh", "web", "wild\nname", "water"].map(str::to_owned).to_vec();
        let shown = |current: &str| {
            let all = candidates(names.clone(), OsStr::new(current));
            all.iter().map(|one| one.get_value().to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(shown("w"), ["water", "web"]);
        assert_eq!(shown(""), ["ssh", "water", "web"]);
        assert!(shown("x").is_empty());
    }
}
