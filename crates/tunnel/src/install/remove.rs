//! Removes an instance.

use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, bail};
use ops::term;

use super::instance::{UNITS, check_name, drop_in, instances, list, role, template, unit};
use super::place::{PROGRAM, command, may_write, program, root, run, shared};
use super::plan::below;
use super::state;
use crate::cli::{Side, UninstallArgs};

/// Ends and removes an instance. Configuration, secrets and state are kept without `--purge`.
pub(crate) fn uninstall(args: &UninstallArgs) -> anyhow::Result<()> {
    may_write(&args.place)?;
    if let Some(name) = &args.name {
        check_name(name)?;
    }
    let root = root(&args.place);
    let installed = instances(&below(&root, Path::new(UNITS)))?;
    let (side, name) = chosen(&installed, args.side, args.name.as_deref())?;
    let unit = unit(side, &name);
    let drop_in = below(&root, &drop_in(side, &name));
    let (mut gone, mut stay) = (Vec::new(), Vec::new());
    gone.extend(drop_in.exists().then(|| drop_in.clone()));
    let own = if args.purge { &mut gone } else { &mut stay };
    let etc = below(&root, Path::new("/etc/tunnel"));
    own.extend(configuration(&etc, &name)?);
    let states = [state::of_unit(&name), Path::new("/var/lib/tunnel").join(&name)];
    for state in states.map(|state| below(&root, &state)) {
        own.extend(fs::symlink_metadata(&state).is_ok().then_some(state));
    }
    if !installed.iter().any(|other| *other != (side, name.clone())) {
        let packaged = packaged(&root);
        let texts = shared()?.into_iter().map(|(path, text)| (path, text.into_bytes()));
        for (path, content) in texts.chain([(PROGRAM.into(), program()?)]) {
            let path = below(&root, &path);
            // A modified file is not removed.
            match fs::read(&path) {
                Ok(found) if found == content && !packaged.contains(&path) => gone.push(path),
                Ok(_) => stay.push(path),
                Err(_) => {}
            }
        }
    }
    if gone.is_empty() && stay.is_empty() {
        bail!("{unit} is not installed");
    }
    let verb = if args.place.dry_run { "would remove" } else { "removed" };
    if !args.place.dry_run {
        // Systemd no longer knows an instance that was removed without `--purge`.
        if below(&root, &template(side)).exists() {
            run(&[command(&["systemctl", "disable", "--now", &unit])], &args.place)?;
        }
        if args.purge {
            state::refuse_running(&root, &name, &unit)?;
        }
    }
    // Everything is removed even if the reader of the output has gone.
    let mut printed = Ok(());
    for path in gone {
        if !args.place.dry_run {
            remove(&path).with_context(|| path.display().to_string())?;
        }
        printed = printed.and_then(|()| term::out(format_args!("{verb} {}", path.display())));
    }
    for path in stay {
        printed = printed.and_then(|()| term::out(format_args!("stays {}", path.display())));
    }
    if args.place.dry_run {
        return Ok(printed?);
    }
    // A folder that is not empty is kept: it holds other instances, or other settings of this
    // instance.
    let private = below(&root, Path::new("/var/lib/private/tunnel"));
    for folder in drop_in.parent().into_iter().chain([&*etc, &*private]) {
        drop(fs::remove_dir(folder));
    }
    run(&[command(&["systemctl", "daemon-reload"])], &args.place)?;
    Ok(printed?)
}

/// The files of the Debian package, below this root directory.
fn packaged(root: &Path) -> Vec<PathBuf> {
    let list = fs::read_to_string(below(root, Path::new("/var/lib/dpkg/info/tunnel.list")));
    list.unwrap_or_default().lines().map(|path| below(root, Path::new(path))).collect()
}

/// The instance to remove. An instance whose full name is given may have been removed without
/// `--purge`.
fn chosen(
    installed: &[(Side, String)],
    side: Option<Side>,
    name: Option<&str>,
) -> anyhow::Result<(Side, String)> {
    if let (Some(side), Some(name)) = (side, name) {
        return Ok((side, name.to_owned()));
    }
    let fits = |(s, n): &&(Side, String)| {
        side.is_none_or(|side| side == *s) && name.is_none_or(|name| name == n)
    };
    let found: Vec<_> = installed.iter().filter(fits).collect();
    let ways = |found: &[&(Side, String)]| {
        let ways = found
            .iter()
            .map(|(side, name)| format!("tunnel uninstall {} --name {name}", role(*side)));
        ways.collect::<Vec<_>>().join(", ")
    };
    match found[..] {
        [only] => Ok(only.clone()),
        [] if installed.is_empty() => bail!("no instance is installed"),
        [] => bail!(
            "no such instance is installed (hint: {})",
            ways(&installed.iter().collect::<Vec<_>>())
        ),
        _ => bail!("several instances are installed (hint: {})", ways(&found)),
    }
}

/// The files of an instance: `NAME.yaml`, and all others that begin with `NAME.`. A file of the
/// instance `a.b` is not a file of the instance `a`.
fn configuration(folder: &Path, name: &str) -> anyhow::Result<Vec<PathBuf>> {
    let all = list(folder)?;
    let file = |path: &Path| path.file_name().map(|file| file.to_string_lossy().into_owned());
    let is_of =
        |file: &str, name: &str| file.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
    let others: Vec<_> = all
        .iter()
        .filter_map(|path| Some(file(path)?.strip_suffix(".yaml")?.to_owned()))
        .filter(|other| is_of(other, name))
        .collect();
    let is_ours = |path: &PathBuf| {
        file(path).is_some_and(|file| {
            is_of(&file, name) && !others.iter().any(|other| is_of(&file, other))
        })
    };
    Ok(all.into_iter().filter(is_ours).collect())
}

fn remove(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    }
}

#[cfg(test)]
mod tests {
    use super::super::instance::DROP_IN;
    use super::*;
    use crate::cli::PlaceArgs;

    #[test]
    fn the_only_instance_is_chosen_and_several_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        let all = || instances(dir.path()).unwrap();
        let choose = |side, name| chosen(&all(), side, name).map_err(|why| why.to_string());
        assert_eq!(choose(None, None).unwrap_err(), "no instance is installed");
        let install = |unit: &str, file: &str| {
            fs::create_dir_all(dir.path().join(unit)).unwrap();
            fs::write(dir.path().join(unit).join(file), "").unwrap();
        };
        fs::write(dir.path().join("tunnel-server@.service"), "").unwrap();
        install("tunnel-server@mine.service.d", "override.conf");
        assert_eq!(choose(None, None).unwrap_err(), "no instance is installed");
        install("tunnel-server@main.service.d", DROP_IN);
        install("multi-user.target.wants", "tunnel-server@main.service");
        assert_eq!(choose(None, None).unwrap(), (Side::Server, "main".to_owned()));
        install("tunnel-client@home.service.d", DROP_IN);
        let why = choose(None, None).unwrap_err();
        for way in ["tunnel uninstall server --name main", "tunnel uninstall client --name home"] {
            assert!(why.contains(way), "{why}");
        }
        assert_eq!(choose(Some(Side::Client), None).unwrap().1, "home");
        assert_eq!(choose(None, Some("main")).unwrap().0, Side::Server);
        assert!(choose(Some(Side::Server), Some("gone")).is_ok());
        assert!(choose(None, Some("gone")).unwrap_err().contains("no such instance"));
    }

    #[test]
    fn the_program_of_a_package_stays_with_the_last_instance() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, content: &[u8]| {
            let path = below(dir.path(), Path::new(path));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, content).unwrap();
            path
        };
        let own = program().unwrap();
        let place = || PlaceArgs { root: Some(dir.path().to_owned()), dry_run: false };
        let args = || UninstallArgs { side: None, name: None, purge: true, place: place() };
        let install = || {
            write("/etc/systemd/system/tunnel-server@main.service.d/credentials.conf", b"");
            write(PROGRAM, &own)
        };
        let installed = install();
        uninstall(&args()).unwrap();
        assert!(!installed.exists(), "`tunnel install` brought it");
        write("/var/lib/dpkg/info/tunnel.list", b"/.\n/usr\n/usr/bin\n/usr/bin/tunnel\n");
        let installed = install();
        uninstall(&args()).unwrap();
        assert!(installed.exists(), "dpkg brought it");
    }

    #[test]
    fn a_file_of_a_longer_name_is_another_instance_s() {
        let dir = tempfile::tempdir().unwrap();
        for file in ["a.yaml", "a.token", "a.yaml.bak", "a.b.yaml", "a.b.token", "ab.yaml"] {
            fs::write(dir.path().join(file), "").unwrap();
        }
        let of = |name| {
            let found = configuration(dir.path(), name).unwrap();
            found.iter().map(|p| p.file_name().unwrap().display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of("a"), ["a.token", "a.yaml", "a.yaml.bak"]);
        assert_eq!(of("a.b"), ["a.b.token", "a.b.yaml"]);
    }
}
