//! The state of an instance: its previous location, and the parts that move to the directory of the
//! unit.

use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, bail};
use config::{ClientConfig, Text};
use ops::WrongConfig;
use ops::socket_file::probe;
use ops::state::{Places, if_there};
use rustix::fs::{FlockOperation, flock};

use super::plan::{Plan, below};
use crate::input::with_sources;
use crate::kept_lists::KeptLists;

/// The largest file of the state directory, in bytes.
const FILE_MAX: u64 = 1 << 20;

const CLIENTS: &str = "clients";

/// The files of a state directory, with paths relative to it.
pub(super) type Files = Vec<(PathBuf, Vec<u8>)>;

/// The state directory of the unit. With `DynamicUser`, systemd keeps the state below
/// /var/lib/private, makes /var/lib/tunnel/NAME a link to it, and gives the files to the user of
/// the unit at each start.
pub(super) fn of_unit(name: &str) -> PathBuf {
    Path::new("/var/lib/private/tunnel").join(name)
}

/// The possible previous state directories of the daemon: the given one, or the default of this
/// process, and the default of the user who called sudo.
pub(super) fn so_far(given: Option<PathBuf>) -> anyhow::Result<Vec<PathBuf>> {
    if let Some(given) = given {
        return Ok(vec![given]);
    }
    let own = Places::of_process().state_dir()?;
    let user = env::var("SUDO_UID").ok().zip(fs::read_to_string("/etc/passwd").ok());
    let home = user.and_then(|(id, users)| home_of(&users, &id));
    let theirs = home.map(|home| home.join(".local/state/tunnel"));
    Ok(theirs.into_iter().filter(|path| *path != own).chain([own.clone()]).collect())
}

/// The home directory of a user in the text of /etc/passwd (passwd(5)).
fn home_of(users: &str, id: &str) -> Option<PathBuf> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':').skip(2);
        let is_theirs = fields.next() == Some(id);
        fields.nth(2).filter(|home| is_theirs && home.starts_with('/')).map(PathBuf::from)
    })
}

/// The state of a server, and its directory. While a daemon uses the directory, its files may
/// change: this is a note if the plan is only shown (`is_shown`), and an error otherwise.
pub(super) fn of_server(
    plan: &mut Plan,
    given: Option<PathBuf>,
    is_shown: bool,
) -> anyhow::Result<(PathBuf, Files)> {
    let folders = so_far(given)?;
    let mut found = Vec::new();
    for folder in &folders {
        if let Some(owner) = holder(folder)? {
            let why = format!(
                "the state directory {} belongs to a running tunnel (process {owner})",
                folder.display()
            );
            if !is_shown {
                bail!("{why}; stop it first: tunnel stop (hint: --dry-run works meanwhile)");
            }
            plan.notes.push(format!("{why}; before the installation: tunnel stop"));
        }
        let files = files(folder)?;
        if !files.is_empty() {
            found.push((folder.clone(), files));
        }
    }
    if found.len() > 1 {
        let names: Vec<_> = found.iter().map(|(path, _)| path.display().to_string()).collect();
        bail!("several state directories of a server: {} (hint: --state-dir)", names.join(", "));
    }
    let none = || (folders.last().cloned().unwrap_or_default(), Vec::new());
    Ok(found.pop().unwrap_or_else(none))
}

/// The files of a state directory. The owner may be a user other than root, so the directory is
/// read and not opened as the process's own.
fn files(folder: &Path) -> anyhow::Result<Files> {
    let mut found = Vec::new();
    for below in ["", CLIENTS] {
        let read = if_there(fs::read_dir(folder.join(below)))
            .with_context(|| folder.join(below).display().to_string())?;
        for entry in read.into_iter().flatten() {
            let entry = entry?;
            let (name, kind) = (entry.file_name(), entry.file_type()?);
            let text = name.to_string_lossy();
            // The lists of a client with the same directory.
            let is_of_client =
                below.is_empty() && text.starts_with("client-") && text.ends_with(".yaml");
            if !kind.is_file() || text == "lock" || text.starts_with('.') || is_of_client {
                continue;
            }
            let content = files::read(&entry.path(), FILE_MAX);
            let content = content.with_context(|| entry.path().display().to_string())?;
            found.push((Path::new(below).join(&name), content));
        }
    }
    found.sort();
    Ok(found)
}

/// The process that has locked a state directory.
fn holder(folder: &Path) -> anyhow::Result<Option<String>> {
    let lock = folder.join("lock");
    let file = if_there(files::open(&lock)).with_context(|| lock.display().to_string())?;
    let Some(mut file) = file else { return Ok(None) };
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
        return Ok(None);
    }
    let mut owner = String::new();
    // The message is also correct without the process id.
    drop((&mut file).take(32).read_to_string(&mut owner));
    Ok(Some(owner.trim().to_owned()))
}

/// Refuses to continue while the daemon of an installed instance runs.
pub(super) fn refuse_running(root: &Path, name: &str, unit: &str) -> anyhow::Result<()> {
    let why = match holder(&below(root, &of_unit(name)))? {
        Some(owner) => Some(format!("process {owner} has locked its state directory")),
        None => sockets(&below(root, &Path::new("/run/tunnel").join(name)))
            .into_iter()
            .find(|path| matches!(probe(path), Ok(true)))
            .map(|path| format!("its control socket {} answers", path.display())),
    };
    let Some(why) = why else { return Ok(()) };
    bail!("{unit} runs: {why}; nothing was changed (hint: systemctl stop {unit}, or tunnel stop)")
}

fn sockets(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| path.extension().is_some_and(|end| end == "sock")).collect()
}

/// Adds the state of a server to a plan. The state of an installed server is newer than a copy of
/// its earlier state: it knows which clients were removed. So it is kept, and the clients are kept
/// even if `force` makes a different server of the instance.
pub(super) fn add_server(
    plan: &mut Plan,
    root: &Path,
    (from, files): (&Path, Files),
    name: &str,
    force: bool,
) -> anyhow::Result<()> {
    let to = of_unit(name);
    let there = below(root, &to);
    let public = below(root, &Path::new("/var/lib/tunnel").join(name));
    if fs::symlink_metadata(&public).is_ok_and(|found| found.is_dir()) {
        bail!(
            "{}: a directory stands where systemd makes a link (hint: move it away, and name it \
             with --state-dir)",
            public.display()
        );
    }
    let key = |folder: &Path| fs::read(folder.join(tls::OWN_KEY)).ok();
    let is_other = matches!((key(&there), key(from)), (Some(old), Some(new)) if old != new);
    if is_other && !force {
        bail!(
            "{}: the state of another server, with another pin (hint: --name, or --force to \
             replace it)",
            there.display()
        );
    }
    let is_new =
        fs::read_dir(&there).is_ok_and(|mut found| found.next().is_none()) || !there.exists();
    let mut left = Vec::new();
    for (path, content) in files {
        if is_new || is_other && !path.starts_with(CLIENTS) {
            plan.file(to.join(path), 0o600, content);
        } else if !fs::read(there.join(&path)).is_ok_and(|found| found == content) {
            left.push(path.display().to_string());
        }
    }
    if !left.is_empty() {
        plan.notes.push(format!(
            "{} has a state already, which is newer; left in {}: {}",
            there.display(),
            from.display(),
            left.join(", ")
        ));
    }
    Ok(())
}

/// Adds the services and forwards to a plan that commands have added to a client.
pub(super) fn add_client(
    plan: &mut Plan,
    root: &Path,
    config: &ClientConfig,
    given: Option<PathBuf>,
    name: &str,
) -> anyhow::Result<()> {
    for folder in so_far(given)? {
        let kept = KeptLists::in_state(&folder, config);
        let content = if_there(files::read(kept.path(), FILE_MAX))
            .with_context(|| kept.path().display().to_string())?;
        let Some(content) = content else { continue };
        check(kept.path(), &content, config)?;
        let Some(file) = kept.path().file_name() else { continue };
        let to = of_unit(name).join(file);
        let there = below(root, &to);
        match fs::read(&there) {
            Ok(found) if found != content => plan.notes.push(format!(
                "{} is there already, and newer; left: {}",
                there.display(),
                kept.path().display()
            )),
            Ok(_) => {}
            Err(_) => plan.file(to, 0o600, content),
        }
        break;
    }
    Ok(())
}

/// Gives the users of units access through the folders that a daemon run by root has created only
/// for itself. The folders of the instances lie below them. File names stay hidden.
pub(super) fn let_units_in(plan: &mut Plan, root: &Path) {
    for folder in ["/var/lib/tunnel", "/run/tunnel"] {
        let found = fs::symlink_metadata(below(root, Path::new(folder)));
        let mode = found.ok().filter(fs::Metadata::is_dir).map(|found| found.mode() & 0o7777);
        if let Some(mode) = mode.filter(|mode| mode & 0o001 == 0) {
            plan.folders.push((folder.into(), mode | 0o011));
        }
    }
}

/// Whether the lists fit the configuration, as at the start of the client.
fn check(path: &Path, content: &[u8], config: &ClientConfig) -> Result<(), WrongConfig> {
    let shown = path.display().to_string();
    let text = std::str::from_utf8(content)
        .map_err(|_| WrongConfig::one(format!("{shown}: the file is not UTF-8")))?;
    let prefix = config.id_prefix.as_deref();
    let load = |sources: &config::Sources<'_>| {
        config::load_kept(Text { name: &shown, text }, prefix, sources)
    };
    let lists = with_sources(Path::new(""), load)?.config;
    let kept = config.clone().keep(&lists);
    kept.map_err(|bad| WrongConfig::one(format!("{shown}: {bad}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_home_of_the_user_who_called_sudo_is_in_the_list_of_users() {
        let users = "root:x:0:0:root:/root:/bin/bash\na:x:100:100::/home/a:/bin/sh\nb:x:1000:1::x:\n\
                     short\n";
        assert_eq!(home_of(users, "100"), Some("/home/a".into()));
        for id in ["1000", "1", "x", ""] {
            assert_eq!(home_of(users, id), None, "{id}");
        }
    }

    #[test]
    fn the_state_of_an_installed_server_wins_and_its_clients_win_always() {
        let dir = tempfile::tempdir().unwrap();
        let (root, from) = (dir.path().join("root"), dir.path().join("s"));
        let there = below(&root, &of_unit("main"));
        fs::create_dir_all(there.join(CLIENTS)).unwrap();
        fs::create_dir_all(from.join(CLIENTS)).unwrap();
        for (file, text) in [("key.pem", "k"), ("lock", "1"), ("clients/gone.yaml", "g")] {
            fs::write(from.join(file), text).unwrap();
        }
        fs::write(from.join("client-home@a.example.yaml"), "").unwrap();
        fs::write(there.join("clients/home.yaml"), "h").unwrap();
        let plan = |force| {
            let mut plan = Plan::default();
            let source = (&*from, files(&from).unwrap());
            add_server(&mut plan, &root, source, "main", force).map(|()| plan)
        };
        let paths =
            |plan: &Plan| plan.files.iter().map(|file| file.path.clone()).collect::<Vec<_>>();

        fs::write(there.join("key.pem"), "k").unwrap();
        for force in [false, true] {
            let plan = plan(force).unwrap();
            assert!(plan.files.is_empty(), "{:?}", paths(&plan));
            let [note] = &plan.notes[..] else { panic!("{:?}", plan.notes) };
            assert!(note.ends_with(": clients/gone.yaml"), "{note}");
        }
        fs::write(there.join("key.pem"), "other").unwrap();
        assert!(plan(false).unwrap_err().to_string().contains("another pin"));
        let forced = plan(true).unwrap();
        assert_eq!(paths(&forced), [of_unit("main").join("key.pem")]);
        assert!(forced.notes[0].ends_with(": clients/gone.yaml"), "{:?}", forced.notes);

        fs::remove_dir_all(&there).unwrap();
        let first = plan(false).unwrap();
        assert_eq!(paths(&first).len(), 2);
        assert!(first.notes.is_empty(), "{:?}", first.notes);
    }

    #[test]
    fn a_daemon_that_runs_is_found_by_its_lock_or_its_socket() {
        let dir = tempfile::tempdir().unwrap();
        let refused = || refuse_running(dir.path(), "main", "u.service").unwrap_err().to_string();
        refuse_running(dir.path(), "main", "u.service").unwrap();
        let state = ops::state::StateDir::open(below(dir.path(), &of_unit("main"))).unwrap();
        assert!(refused().contains(&format!("process {} has locked", std::process::id())));
        drop(state);
        refuse_running(dir.path(), "main", "u.service").unwrap();
        let run = dir.path().join("run/tunnel/main");
        fs::create_dir_all(&run).unwrap();
        let socket = std::os::unix::net::UnixListener::bind(run.join("server.sock")).unwrap();
        assert!(refused().contains("server.sock answers"), "{}", refused());
        drop(socket);
        refuse_running(dir.path(), "main", "u.service").unwrap();
    }

    #[test]
    fn a_unit_may_pass_through_the_folders_of_root() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let folder = |name: &str, mode| {
            let path = dir.path().join(name);
            fs::create_dir_all(&path).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let folders = || {
            let mut plan = Plan::default();
            let_units_in(&mut plan, dir.path());
            plan.write(dir.path(), false, || Ok(())).unwrap();
            plan.folders
        };
        assert!(folders().is_empty());
        folder("var/lib/tunnel", 0o700);
        folder("run/tunnel", 0o755);
        assert_eq!(folders(), [("/var/lib/tunnel".into(), 0o711)]);
        assert!(folders().is_empty());
    }
}
