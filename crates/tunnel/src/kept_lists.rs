//! The services and forwards that a running client got by commands. They are kept in the state
//! directory, because a unit of systemd cannot write its configuration, and are merged with the
//! configuration at each load.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use config::edit::{list_text, publish, unpublish};
use config::{ClientConfig, Kept, Lists, Text};
use ops::WrongConfig;
use ops::state::{Places, check_private, create_private, write_private};

use crate::config_file::refusal;
use crate::input::{read_own, with_sources};

/// The key with the entries of the configuration that commands have removed.
const WITHOUT: &str = "without";

const HEAD: &str = "# Made by `tunnel publish`, `tunnel unpublish` and `tunnel forward`.\n";

/// The file of the kept lists of one client at one server.
#[derive(Clone, Debug)]
pub(crate) struct KeptLists {
    path: PathBuf,
    /// The services and forwards of the command line, which no edit of a file removes.
    flags: Lists,
    /// The lists are only shown, so it does not matter who can write the directory: the state of a
    /// unit belongs to the unit's own user.
    is_shown: bool,
}

impl KeptLists {
    /// The file of a client in the state directory `folder`. The server's host is part of the file's
    /// name: a service that was published at one server must not appear at another server.
    pub(crate) fn in_state(folder: &Path, config: &ClientConfig, flags: Lists) -> Self {
        let host = config.servers.first().map(|path| path.endpoint.host.to_string());
        let name = format!("client-{}@{}.yaml", config.name, host.unwrap_or_default());
        Self { path: folder.join(name), flags, is_shown: false }
    }

    /// The file for `tunnel check`, which shows the lists.
    pub(crate) fn to_show(folder: &Path, config: &ClientConfig) -> Self {
        Self { is_shown: true, ..Self::in_state(folder, config, Lists::default()) }
    }

    /// The file of a client of this process. `None`: the environment names no place for state.
    pub(crate) fn of(config: &ClientConfig, flags: Lists) -> Option<Self> {
        let given = config.common.state_dir.clone();
        let folder = given.or_else(|| Places::of_process().state_dir().ok())?;
        Some(Self::in_state(&folder, config, flags))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The text of the file; empty if there is no file.
    pub(crate) fn read(&self) -> Result<String, WrongConfig> {
        match fs::symlink_metadata(&self.path) {
            // A folder into which this user cannot look has no list of this user.
            Err(e) if is_absence(&e) => return Ok(String::new()),
            _ => {}
        }
        // Whoever can write the directory could publish services of this machine.
        let folder = self.path.parent().unwrap_or(&self.path);
        if !self.is_shown {
            check_private(folder).map_err(|why| WrongConfig::one(why.to_string()))?;
        }
        read_own(&self.path)
    }

    /// The lists in the file. `prefix` is the `id_prefix` of the configuration.
    pub(crate) fn load(&self, prefix: Option<&str>) -> Result<Kept, WrongConfig> {
        self.parse(&self.read()?, prefix)
    }

    fn parse(&self, text: &str, prefix: Option<&str>) -> Result<Kept, WrongConfig> {
        let name = self.path.display().to_string();
        let load = |sources: &config::Sources<'_>| {
            config::load_kept(Text { name: &name, text }, prefix, sources)
        };
        Ok(with_sources(Path::new(""), load)?.config)
    }

    /// Replaces the file by a text. A text without entries removes the file.
    pub(crate) fn write(&self, text: &str) -> anyhow::Result<()> {
        let write = || {
            let (Some(folder), Some(name)) = (self.path.parent(), self.path.file_name()) else {
                return Err(io::ErrorKind::InvalidFilename.into());
            };
            if self.parse(text, None).is_ok_and(|kept| kept == Kept::default()) {
                return match fs::remove_file(&self.path) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
                    _ => Ok(()),
                };
            }
            create_private(folder)?;
            write_private(folder, &name.to_string_lossy(), text.as_bytes())
        };
        write().with_context(|| format!("writing {}", self.path.display()))
    }

    /// The text with `lists` added and the entries `gone` removed. `in_file` is the text of the
    /// configuration file, whose entries are marked as removed. Names have no prefix.
    pub(crate) fn edited(
        &self,
        text: &str,
        lists: &Lists,
        gone: &[String],
        in_file: &str,
    ) -> anyhow::Result<String> {
        let name = self.path.display().to_string();
        let mut text = if text.is_empty() { HEAD.to_owned() } else { text.to_owned() };
        for what in gone {
            let rest = unpublish(&name, &text, what).map_err(refusal)?;
            let was_kept = rest.is_some();
            text = rest.unwrap_or(text);
            // An entry that would have to be divided is in the file as well.
            let is_in_file = !matches!(unpublish("", in_file, what), Ok(None));
            let is_flag = self.flags.clone().remove(what);
            if !was_kept || is_in_file || is_flag {
                text = list_text(&name, &text, WITHOUT, what, true).map_err(refusal)?;
            }
        }
        let names = lists.services.iter().map(|service| service.name.clone());
        for what in names.chain(lists.forwards.iter().map(|forward| forward.listen.to_string())) {
            text = list_text(&name, &text, WITHOUT, &what, false).map_err(refusal)?;
        }
        let text = publish(&name, &text, lists).map_err(refusal)?;
        self.parse(&text, None)?;
        Ok(text)
    }

    /// The text without any trace of these entries, because the configuration file has them, or has
    /// them no more.
    pub(crate) fn without(&self, text: &str, entries: &[String]) -> anyhow::Result<String> {
        let name = self.path.display().to_string();
        let mut text = text.to_owned();
        for what in entries {
            text = unpublish(&name, &text, what).map_err(refusal)?.unwrap_or(text);
            text = list_text(&name, &text, WITHOUT, what, false).map_err(refusal)?;
        }
        Ok(text)
    }
}

fn is_absence(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    matches!(error.kind(), NotFound | NotADirectory | PermissionDenied)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn lists(publish: &[&str]) -> Lists {
        let publish: Vec<_> = publish.iter().map(ToString::to_string).collect();
        let load = |sources: &config::Sources<'_>| config::load_lists(&publish, &[], None, sources);
        with_sources(Path::new(""), load).unwrap().config
    }

    fn names(kept: &Kept) -> Vec<&str> {
        kept.lists.services.iter().map(|service| service.name.as_str()).collect()
    }

    #[test]
    fn entries_come_go_and_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let kept =
            KeptLists { path: dir.path().join("c.yaml"), flags: lists(&["7=7"]), is_shown: false };
        let file = "services: [{ name: ssh, public: 22, target: 22 }]\n";
        let text = kept.edited("", &lists(&["3000", "80=8080"]), &[], file).unwrap();
        kept.write(&text).unwrap();
        assert_eq!(names(&kept.load(None).unwrap()), ["tcp-3000", "tcp-80"]);
        assert_eq!(names(&kept.load(Some("a")).unwrap()), ["a-tcp-3000", "a-tcp-80"]);

        // An entry of the file and an entry of a flag are marked; an entry of this file is not.
        let gone = ["tcp-3000", "ssh", "tcp-7"].map(str::to_owned);
        let text = kept.edited(&text, &Lists::default(), &gone, file).unwrap();
        let now = kept.parse(&text, None).unwrap();
        assert_eq!((names(&now), now.without.as_slice()), (vec!["tcp-80"], &gone[1..]));
        let text = kept.edited(&text, &lists(&["7=8"]), &[], file).unwrap();
        assert_eq!(kept.parse(&text, None).unwrap().without, ["ssh"]);

        // Nothing is left: no file is left.
        let text = kept.without(&text, &["tcp-80", "tcp-7", "ssh"].map(str::to_owned)).unwrap();
        kept.write(&text).unwrap();
        assert!(!kept.path.exists());
        assert_eq!(kept.load(None).unwrap(), Kept::default());
    }

    #[test]
    fn a_directory_that_others_may_write_adds_no_service() {
        let dir = tempfile::tempdir().unwrap();
        let kept =
            KeptLists { path: dir.path().join("c.yaml"), flags: Lists::default(), is_shown: false };
        kept.write(&kept.edited("", &lists(&["3000"]), &[], "").unwrap()).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let why = kept.load(None).unwrap_err().to_string();
        assert!(why.contains("mode 0777"), "{why}");
        let shown = KeptLists { is_shown: true, ..kept };
        assert_eq!(names(&shown.load(None).unwrap()), ["tcp-3000"]);
    }
}
