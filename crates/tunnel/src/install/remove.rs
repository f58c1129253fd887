//! Takes an instance away.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use ops::term;

use super::plan::below;
use super::{check_name, command, drop_in, may_write, role, root, run, shared, unit};
use crate::cli::UninstallArgs;

const UNITS: &str = "/etc/systemd/system";

/// Ends and removes an instance. Configuration, secrets and state stay without `--purge`.
pub(crate) fn uninstall(args: &UninstallArgs) -> anyhow::Result<()> {
    may_write(&args.place)?;
    let (side, name) = (args.side, args.name.as_str());
    check_name(name)?;
    let (unit, root) = (unit(side, name), root(&args.place));
    let drop_in = below(&root, &drop_in(side, name));
    let (mut gone, mut stay) = (Vec::new(), Vec::new());
    gone.extend(drop_in.exists().then(|| drop_in.clone()));
    let own = if args.purge { &mut gone } else { &mut stay };
    own.extend(configuration(&below(&root, Path::new("/etc/tunnel")), name)?);
    for state in ["/var/lib/private/tunnel", "/var/lib/tunnel"] {
        let state = below(&root, Path::new(state)).join(name);
        own.extend(fs::symlink_metadata(&state).is_ok().then_some(state));
    }
    if !others(&below(&root, Path::new(UNITS)), &unit)? {
        for (path, text) in shared()? {
            let path = below(&root, Path::new(&path));
            // A file that differs belongs to somebody else, such as a package.
            match fs::read(&path) {
                Ok(found) if found == text.as_bytes() => gone.push(path),
                Ok(_) => stay.push(path),
                Err(_) => {}
            }
        }
    }
    let binary = below(&root, Path::new("/usr/bin/tunnel"));
    stay.extend(binary.exists().then_some(binary));
    let verb = if args.place.dry_run { "would remove" } else { "removed" };
    if !args.place.dry_run {
        run(&[command(&["systemctl", "disable", "--now", &unit])], &args.place)?;
    }
    for path in gone {
        if !args.place.dry_run {
            remove(&path).with_context(|| path.display().to_string())?;
        }
        term::out(format_args!("{verb} {}", path.display()));
    }
    for path in stay {
        term::out(format_args!("stays {}", path.display()));
    }
    if args.place.dry_run {
        return Ok(());
    }
    // Fails where the user has other settings of the instance, which stay.
    drop(drop_in.parent().map(fs::remove_dir));
    run(&[command(&["systemctl", "daemon-reload"])], &args.place)
}

/// The configuration of an instance, and its secrets. The name of a credential has no dot, so a
/// file of the instance `a.b` is no file of the instance `a`.
fn configuration(folder: &Path, name: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in list(folder)? {
        let file = path.file_name().map(|file| file.to_string_lossy().into_owned());
        let rest = file.as_deref().and_then(|file| file.strip_prefix(name)?.strip_prefix('.'));
        let ends = ["yaml", "token", "key", "cert", "ca"];
        let is_ours = |rest: &str| {
            !rest.contains('.')
                && ends.iter().any(|end| {
                    rest.trim_end_matches(|c: char| c == '-' || c.is_ascii_digit()).ends_with(end)
                })
        };
        if rest.is_some_and(is_ours) {
            found.push(path);
        }
    }
    Ok(found)
}

/// Whether another instance of either role is installed or enabled.
fn others(units: &Path, unit: &str) -> anyhow::Result<bool> {
    let roles =
        [super::Side::Server, super::Side::Client].map(|side| format!("tunnel-{}@", role(side)));
    let mut all = list(units)?;
    all.extend(list(&units.join("multi-user.target.wants"))?);
    Ok(all.iter().filter_map(|path| path.file_name()?.to_str()).any(|file| {
        let is_instance =
            roles.iter().any(|role| file.starts_with(role) && file != format!("{role}.service"));
        is_instance && file.trim_end_matches(".d") != unit
    }))
}

fn list(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let read = match fs::read_dir(folder) {
        Ok(read) => read,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e).with_context(|| folder.display().to_string()),
    };
    let mut all = read.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    all.sort();
    Ok(all)
}

fn remove(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    }
}
