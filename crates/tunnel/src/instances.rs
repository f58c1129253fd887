//! `tunnel status`, `streams`, `log`, `reload` and `stop`: the search for the running
//! daemon, and the commands to it.

use std::io::{IsTerminal, stdout};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use control::{self, Denied, Found, Instance};
use ops::command::{
    Command, Kill, ListStreams, ReadStatus, Reconnect, Reload, Restart, SetLog, Stopping,
};
use ops::events::Heard;
use ops::state::Places;
use ops::status::{
    Rates, Status, Streams, Supervised, duration, render, render_left, render_streams, render_why,
};
use ops::term::{self, Screen, Waiting};
use ops::{Reconnected, Reloaded, Role};

use crate::cli::{StreamsArgs, Which};
use crate::whereabouts;

/// Moves the cursor to the upper left and erases everything below (ECMA-48: CUP, ED).
const CLEAR: &str = "\x1b[H\x1b[J";

/// Prints the status of the daemon.
pub(crate) fn status(which: &Which, json: bool, wide: bool) -> anyhow::Result<()> {
    let status = full_status(&find_supervisor(which)?)?;
    term::show(&status, json, |status| render(status, None, Screen::of_stdout(wide)))
}

/// Prints the reasons for the choice of servers and paths.
pub(crate) fn why(which: &Which) -> anyhow::Result<()> {
    let status = full_status(&find_supervisor(which)?)?;
    term::show(&status, false, |status| render_why(status, Screen::of_stdout(false)))
}

/// Prints the status of the daemon once per interval `every`. Ends when the daemon no longer
/// answers.
pub(crate) fn watch(which: &Which, json: bool, wide: bool, every: Duration) -> anyhow::Result<()> {
    let instance = find_supervisor(which)?;
    let mut before: Option<(Instant, Status)> = None;
    loop {
        let now = (Instant::now(), full_status(&instance)?);
        if json {
            term::out(serde_json::to_string(&now.1)?)?;
        } else {
            let rates = before.as_ref().map(|(at, before)| {
                Rates::between(before, &now.1, now.0.duration_since(*at).as_secs_f64())
            });
            // The window may have changed its size.
            let screen = Screen::of_stdout(wide);
            let text = render(&now.1, Some(&rates.unwrap_or_default()), screen);
            // On a terminal, each status overwrites the previous status in one write, so the screen
            // does not flicker. In a pipe, a blank line separates them.
            if stdout().is_terminal() {
                text.in_window(screen).show(CLEAR, "")?;
            } else {
                text.show("", "\n")?;
            }
        }
        before = Some(now);
        term::pause(every)?;
    }
}

/// Lists streams of the daemon, or resets the streams of `--kill`.
pub(crate) fn streams(args: &StreamsArgs) -> anyhow::Result<()> {
    let instance = find(&args.which)?;
    if args.kill.is_empty() {
        let all = ListStreams { service: args.service.clone(), limit: args.limit };
        let streams = control::ask(&instance, all)?;
        let draw = |streams: &Streams| render_streams(streams, Screen::of_stdout(args.wide));
        return term::show(&streams, args.json, draw);
    }
    let (mut unknown, mut printed) = (Vec::new(), Ok(()));
    for &number in &args.kill {
        if control::ask(&instance, Kill::from(number))? {
            // The other streams are reset even if the reader of the output has gone.
            printed = printed.and_then(|()| term::out(format_args!("{number} is reset")));
        } else {
            unknown.push(number.to_string());
        }
    }
    if !unknown.is_empty() {
        bail!("no such stream or flow (any more): {}", unknown.join(", "));
    }
    Ok(printed?)
}

/// Sets the log filter of the daemon, if a level is given, and prints the filter in force.
pub(crate) fn log(which: &Which, level: Option<String>) -> anyhow::Result<()> {
    Ok(term::out(ask(which, SetLog { filter: level })?.filter)?)
}

/// Prints the changes in the daemon, one JSON object per line, until the daemon ends.
pub(crate) fn events(which: &Which) -> anyhow::Result<()> {
    let print = |heard: &Heard| match heard {
        Heard::Event(event) => term::out(serde_json::to_string(event).unwrap_or_default()),
        Heard::Lost(count) => term::out(format_args!("{{\"kind\":\"lost\",\"count\":{count}}}")),
    };
    control::events(&find(which)?, |heard| Ok(print(heard)?))
}

/// Makes the daemon reload its configuration, and prints the result.
pub(crate) fn reload(which: &Which, json: bool) -> anyhow::Result<()> {
    let instance = find_supervisor(which)?;
    tell(&reloaded(&instance)?, json)
}

/// Makes a daemon reload its configuration.
pub(crate) fn reloaded(instance: &Instance) -> anyhow::Result<Reloaded> {
    let _waiting = Waiting::begin("waiting for the daemon to apply the configuration");
    control::ask(instance, Reload {})
}

/// Prints the outcome of a change. An item that is not in force is an error.
pub(crate) fn tell(reloaded: &Reloaded, json: bool) -> anyhow::Result<()> {
    if json {
        term::out(serde_json::to_string_pretty(reloaded)?)?;
    } else {
        for warning in &reloaded.warnings {
            term::err(format_args!("warning: {warning}"));
        }
        if reloaded.applied.is_empty() && reloaded.failed.is_empty() {
            term::out("nothing to apply")?;
        }
        for line in &reloaded.applied {
            term::out(line)?;
        }
        if !reloaded.restart.is_empty() {
            let keys = reloaded.restart.join(", ");
            term::err(format_args!("warning: changed, and waiting for a restart: {keys}"));
        }
    }
    if !reloaded.failed.is_empty() {
        bail!("not all of it is in force: {}", reloaded.failed.join("; "));
    }
    Ok(())
}

/// Ends the connections of a client, which then reconnects. `name`: the client, on a server.
pub(crate) fn reconnect(which: &Which, name: Option<String>) -> anyhow::Result<()> {
    let role = if name.is_some() { Role::Server } else { Role::Client };
    let instance = find_role(which, role)?;
    let waiting = Waiting::begin("waiting for the end of the connections");
    let Reconnected { links, looking } = control::ask(&instance, Reconnect { client: name })?;
    drop(waiting);
    if links == 0 && looking == 0 {
        bail!("no link is connected now (hint: `tunnel status` says why)");
    }
    if links > 0 {
        let links = term::count(links, "link");
        term::out(format_args!("the connections of {links} ended; the client dials anew"))?;
    }
    if looking > 0 {
        let links = term::count(looking, "link");
        term::out(format_args!("{links} without a connection: the client dials at once"))?;
    }
    Ok(())
}

/// Ends daemons of `tunnel run`, and starts them again.
pub(crate) fn restart(which: &Which, name: Option<String>, now: bool) -> anyhow::Result<()> {
    let restart = Restart { name, now };
    for name in ask_waiting(which, "waiting for the supervisor", restart)?.names {
        term::out(format_args!("{name} ends and starts again"))?;
    }
    Ok(())
}

/// The status of a daemon, with the status of each daemon of `tunnel run`.
fn full_status(instance: &Instance) -> anyhow::Result<Status> {
    let mut status = control::ask(instance, ReadStatus {})?;
    for one in &mut status.daemons {
        let (Some(pid), Some(path)) = (one.pid, &one.control) else { continue };
        let own =
            Instance::connect(path.as_ref()).and_then(|own| control::ask(&own, ReadStatus {}));
        // Another daemon may hold the socket of a daemon that could not bind it.
        one.status = own.ok().filter(|own| own.pid == pid).map(Box::new);
    }
    Ok(status)
}

/// Stops the daemon and waits for the end of its process.
pub(crate) fn stop(which: &Which, now: bool) -> anyhow::Result<()> {
    let instance = find_supervisor(which)?;
    let waiting = Waiting::begin("waiting for the end of the process");
    let begun = |stopping: Stopping| {
        waiting.say(if stopping.now {
            "stopping: the remaining streams are reset"
        } else {
            "stopping: new visitors are refused, and open streams may finish (`tunnel stop --now`, or \
             `tunnel stop` once more, resets them)"
        });
    };
    let mut said = String::new();
    let pid = control::stop(&instance, now, begun, |left| {
        let text = render_left(&left.streams);
        if left.streams.total > 0 && text != said {
            let until = left.seconds.map(|seconds| format!(", for at most {}", duration(seconds)));
            waiting.say(&format!("{text}{}", until.unwrap_or_default()));
            said = text;
        }
    });
    drop(waiting);
    Ok(term::out(format_args!("process {} has ended", pid?))?)
}

/// Asks the running daemon that has what the command needs.
pub(crate) fn ask<C: Command>(which: &Which, command: C) -> anyhow::Result<C::Answer> {
    let instance = match C::ABOUT.roles {
        [Role::Run] => find_supervisor(which),
        roles => told_how(search(which, roles)),
    };
    control::ask(&instance?, command)
}

/// As [`ask`]. A line on the terminal says what the command waits for.
pub(crate) fn ask_waiting<C: Command>(
    which: &Which,
    what: &str,
    command: C,
) -> anyhow::Result<C::Answer> {
    Waiting::during(what, || ask(which, command))
}

/// The daemon that `which` selects, or the only running daemon. The error of a user without
/// permission contains the command that works.
pub(crate) fn find(which: &Which) -> anyhow::Result<Instance> {
    told_how(search(which, &[]))
}

/// Finds the running daemon as [`find`] does. `tunnel run` stands for all its daemons.
pub(crate) fn find_supervisor(which: &Which) -> anyhow::Result<Instance> {
    if which.control.is_none() && which.config.is_none() {
        let found = control::running(&Places::of_process());
        if let Some(supervisor) = supervisor_of_all(&found.live) {
            return Ok(supervisor);
        }
    }
    if let Some(folder) = which.config.as_ref().filter(|path| path.is_dir()) {
        return supervisor_of(folder);
    }
    find(which)
}

/// Whether a daemon of `tunnel run` chose this name of its socket.
fn is_supervisor(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.split('.').next() == Some(Role::Run.name())
}

/// `tunnel run`, if it runs and all other daemons are its own.
fn supervisor_of_all(live: &[PathBuf]) -> Option<Instance> {
    let (supervisors, others): (Vec<_>, Vec<_>) = live.iter().partition(|path| is_supervisor(path));
    let [only] = supervisors[..] else { return None };
    let status = control::ask(&Instance::connect(only).ok()?, ReadStatus {}).ok()?;
    let all_own = others.into_iter().all(|path| is_of(&status.daemons, path));
    if all_own { Instance::connect(only).ok() } else { None }
}

/// Whether a socket belongs to a daemon of the supervisor. A daemon has its socket before it
/// reports the path to its supervisor, so its process id decides then. A daemon that has ended
/// since the search does not count.
fn is_of(daemons: &[Supervised], path: &Path) -> bool {
    if daemons.iter().filter_map(|one| one.control.as_ref()).any(|own| Path::new(own) == path) {
        return true;
    }
    let Ok(unknown) = Instance::connect(path) else { return true };
    let status = control::ask(&unknown, ReadStatus {});
    status.is_ok_and(|status| daemons.iter().any(|one| one.pid == Some(status.pid)))
}

/// The live supervisors with their status.
fn supervisors() -> Vec<(PathBuf, Status)> {
    let live = control::running(&Places::of_process()).live.into_iter();
    let status = |path: PathBuf| {
        let status =
            Instance::connect(&path).and_then(|one| control::ask(&one, ReadStatus {})).ok()?;
        Some((path, status))
    };
    live.filter(|path| is_supervisor(path)).filter_map(status).collect()
}

/// `tunnel run` with this folder.
fn supervisor_of(folder: &Path) -> anyhow::Result<Instance> {
    let whole = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let is_inside =
        |file: &str| Path::new(file).canonicalize().is_ok_and(|file| file.starts_with(&whole));
    let of_folder = supervisors()
        .into_iter()
        .find(|(_, status)| status.daemons.iter().any(|one| is_inside(&one.file)));
    let Some((path, _)) = of_folder else {
        bail!(
            "no `tunnel run` with the folder {} is running (hint: name its socket with --control)",
            folder.display()
        )
    };
    Instance::connect(&path)
}

/// The daemon of `tunnel run` that was started with this file. Two daemons with the same role have
/// sockets whose names do not follow from the file.
fn supervised(file: &Path) -> Option<Instance> {
    let whole = file.canonicalize().ok()?;
    let is_of_file = |other: &str| Path::new(other).canonicalize().is_ok_and(|one| one == whole);
    let daemons = supervisors().into_iter().flat_map(|(_, status)| status.daemons);
    let mut of_file = daemons.filter(|one| is_of_file(&one.file));
    of_file.find_map(|one| Instance::connect(one.control?.as_ref()).ok())
}

/// Finds the running daemon as [`find`] does. Of several daemons, only those with the role `role`
/// count, if there are any.
pub(crate) fn find_role(which: &Which, role: Role) -> anyhow::Result<Instance> {
    told_how(search(which, &[role]))
}

fn told_how(found: anyhow::Result<Instance>) -> anyhow::Result<Instance> {
    found.map_err(|error| match error.downcast::<Denied>() {
        Ok(denied) => anyhow!("{denied}; try: {}", with_sudo(std::env::args().skip(1))),
        Err(error) => error,
    })
}

/// The command line of this process, prefixed by `sudo`.
fn with_sudo(arguments: impl Iterator<Item = String>) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,".contains(c);
    let quoted = arguments.map(|word| {
        let plain = !word.is_empty() && word.chars().all(is_plain);
        if plain { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
    });
    ["sudo".to_owned(), "tunnel".to_owned()].into_iter().chain(quoted).collect::<Vec<_>>().join(" ")
}

/// The daemon that `which` selects, or the only running daemon. Of several daemons, only those with
/// one of the roles count, if there are any.
fn search(which: &Which, roles: &[Role]) -> anyhow::Result<Instance> {
    if let Some(path) = &which.control {
        return Instance::connect(path);
    }
    if let Some(file) = &which.config {
        if let Some(daemon) = supervised(file) {
            return Ok(daemon);
        }
        return Instance::connect(&whereabouts::control_of(file)?.path);
    }
    let places = Places::of_process();
    let mut running = control::running(&places);
    // A supervisor has no streams, services or links of its own.
    if running.live.iter().any(|path| !is_supervisor(path)) {
        running.live.retain(|path| !is_supervisor(path));
    }
    one_of(&of_roles(running, roles), &places.known())
}

/// The sockets whose name begins with one of the roles, like all names that a daemon chooses. All
/// sockets, if there is no such name.
fn of_roles(mut found: Found, roles: &[Role]) -> Found {
    let is_of_role = |path: &&PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| roles.iter().any(|role| name.starts_with(role.name())))
    };
    let some: Vec<_> = found.live.iter().filter(is_of_role).cloned().collect();
    if !some.is_empty() {
        found.live = some;
    }
    found
}

fn one_of(found: &Found, searched: &[PathBuf]) -> anyhow::Result<Instance> {
    // A socket shows a daemon; a folder may be empty.
    let denied =
        found.denied.iter().find(|denied| denied.is_socket).or_else(|| found.denied.first());
    match (&found.live[..], denied) {
        ([only], _) => Instance::connect(only),
        ([], Some(denied)) => Err(denied.clone().into()),
        ([], None) => {
            let searched: Vec<_> = searched.iter().map(|p| p.display().to_string()).collect();
            bail!(
                "no running tunnel found (looked in {}); name its file with --config, or its \
                 control socket with --control (a daemon with --state-dir has the socket there)",
                searched.join(", ")
            )
        }
        (several, _) => {
            let mut text = "several tunnels are running; choose one:".to_owned();
            for path in several {
                let who = Instance::connect(path)
                    .and_then(|instance| control::ask(&instance, ReadStatus {}));
                let who = who.map_or_else(
                    |e| format!("{e:#}"),
                    |s| {
                        // A server has no name.
                        let who = format!("{} {}", s.role, s.name);
                        format!("{}, process {}", who.trim_end(), s.pid)
                    },
                );
                text.push_str(&format!("\n  --control {}   {who}", path.display()));
            }
            bail!(text)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// A control socket whose daemon answers each question with this status.
    fn daemon(path: &Path, status: Status) {
        let socket = UnixListener::bind(path).unwrap();
        let answer = format!("{}\n", serde_json::json!({ "status": status }));
        thread::spawn(move || {
            for stream in socket.incoming().map_while(Result::ok) {
                let mut question = String::new();
                // A search that looks whether the socket is live asks nothing.
                if BufReader::new(&stream).read_line(&mut question).is_ok_and(|read| read > 0) {
                    let _ = (&stream).write_all(answer.as_bytes());
                }
            }
        });
    }

    #[test]
    fn a_daemon_whose_socket_its_supervisor_does_not_know_yet_is_its_own_by_its_process() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let live = |names: &[&str]| names.iter().map(|name| at(name)).collect::<Vec<_>>();
        let process = |pid| Status { pid, ..Status::default() };
        let known = |name: &str| Some(at(name).display().to_string());
        let daemons = vec![
            Supervised { pid: Some(7), control: known("proxy.sock"), ..Supervised::default() },
            Supervised { pid: Some(8), ..Supervised::default() },
        ];
        daemon(&at("run.sock"), Status { daemons, ..Status::default() });
        daemon(&at("proxy.sock"), process(7));
        daemon(&at("proxy.8.sock"), process(8));
        assert!(supervisor_of_all(&live(&["proxy.8.sock", "proxy.sock", "run.sock"])).is_some());
        // The daemon of this socket has ended since the search.
        assert!(supervisor_of_all(&live(&["proxy.6.sock", "run.sock"])).is_some());
        daemon(&at("client.sock"), process(9));
        assert!(supervisor_of_all(&live(&["client.sock", "proxy.sock", "run.sock"])).is_none());
    }

    #[test]
    fn a_command_for_one_role_finds_it_beside_the_other() {
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let both = || paths(&["/run/a/client-home.sock", "/run/server.sock"]);
        let of_role =
            |live: Vec<PathBuf>, role| of_roles(Found { live, denied: Vec::new() }, &[role]).live;
        assert_eq!(of_role(both(), Role::Client), both()[..1]);
        assert_eq!(of_role(both(), Role::Server), both()[1..]);
        assert_eq!(of_role(paths(&["/run/own.sock"]), Role::Client), paths(&["/run/own.sock"]));
    }

    #[test]
    fn one_running_instance_is_taken_none_and_several_are_explained() {
        let dir = tempfile::tempdir().unwrap();
        let bind = |name: &str| {
            let path = dir.path().join(name);
            (UnixListener::bind(&path).unwrap(), path)
        };
        let (_first, one) = bind("a.sock");
        let found = |live: &[&PathBuf]| Found {
            live: live.iter().map(|path| (*path).clone()).collect(),
            denied: Vec::new(),
        };
        assert!(one_of(&found(&[&one]), &[]).is_ok());
        let text = one_of(&found(&[]), &["/run/x".into()]).unwrap_err().to_string();
        assert!(text.contains("/run/x") && text.contains("--control"), "{text}");
        let gone = dir.path().join("gone.sock");
        let text = one_of(&found(&[&gone, &gone]), &[]).unwrap_err().to_string();
        assert_eq!(text.matches("--control").count(), 2, "{text}");
    }

    #[test]
    fn the_command_behind_sudo_is_the_command_of_the_user() {
        let words = ["allow", "home", "--forward", "10.0.0.0/8:*", "it's"];
        let shown = with_sudo(words.iter().map(ToString::to_string));
        assert_eq!(shown, r"sudo tunnel allow home --forward '10.0.0.0/8:*' 'it'\''s'");
    }
}
