//! The services and forwards that a running client received by commands. They are kept in the state
//! directory, because a unit of systemd cannot write its configuration, and are merged with the
//! configuration at each load.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use config::edit::{list_text, publish, unpublish};
use config::{ClientConfig, Kept, Lists, Text, Trust};
use ops::WrongConfig;
use ops::state::if_there;

use crate::config_file::refusal;
use crate::input::with_sources;
use crate::kept_file;
use crate::own::state_folder;

/// The key with the entries of the configuration that commands have removed.
const WITHOUT: &str = "without";

const HEAD: &str = "# Made by `tunnel publish`, `tunnel unpublish` and `tunnel forward`.\n";

/// The file of the kept lists of one client at one server.
#[derive(Clone, Debug)]
pub(crate) struct KeptLists {
    /// The files in which the lists are kept, with equal content: one for each pin of the server,
    /// or else one for its host. While a server changes its key, a client has both pins.
    paths: Vec<PathBuf>,
    /// The files in which an earlier version, or a client with another spelling of the address,
    /// kept them.
    earlier: Vec<PathBuf>,
    /// The lists are only shown, so it does not matter which users can write the directory: the
    /// state of a unit belongs to the unit's own user.
    is_shown: bool,
}

impl KeptLists {
    /// The files of a client in the state directory `folder`. The server is part of the file's
    /// name: a service that was published at one server must not appear at another server. A pin
    /// names the server itself, while its address can be spelled in several ways.
    pub(crate) fn in_state(folder: &Path, config: &ClientConfig) -> Self {
        let place = |server: &str| folder.join(format!("client-{}@{server}.yaml", config.name));
        let (mut pins, mut hosts) = (Vec::new(), Vec::new());
        for path in config.paths() {
            if let Trust::Pins(all) = &path.trust {
                pins.extend(all.iter().map(|pin| place(&name_of(pin))));
            }
            hosts.push(place(&path.endpoint.host.to_string()));
        }
        if let Some(source) = config.finds_servers() {
            hosts.push(place(&name_of(&source)));
        }
        for paths in [&mut pins, &mut hosts] {
            let mut seen = HashSet::new();
            paths.retain(|path| seen.insert(path.clone()));
        }
        let paths =
            if pins.is_empty() { hosts.drain(..hosts.len().min(1)).collect() } else { pins };
        Self { paths, earlier: hosts, is_shown: false }
    }

    /// The file for `tunnel check`, which shows the lists.
    pub(crate) fn to_show(folder: &Path, config: &ClientConfig) -> Self {
        Self { is_shown: true, ..Self::in_state(folder, config) }
    }

    /// The file of a client of this process. `None`: the environment names no folder for state.
    pub(crate) fn of(config: &ClientConfig) -> Option<Self> {
        Some(Self::in_state(&state_folder(&config.common)?, config))
    }

    /// The file that holds the lists, or will hold them.
    pub(crate) fn path(&self) -> &Path {
        let is_there = |path: &&PathBuf| fs::symlink_metadata(path).is_ok();
        let found = self.paths.iter().chain(&self.earlier).find(is_there);
        found.or_else(|| self.paths.first()).map(PathBuf::as_path).unwrap_or_else(|| Path::new(""))
    }

    /// Stores the lists under all current names of the server. After a failure they are still read
    /// from the previous files.
    pub(crate) fn adopt(&self) {
        let is_everywhere = self.paths.iter().all(|path| path.exists());
        let text = if is_everywhere { Ok(String::new()) } else { self.read() };
        let Some(text) = text.ok().filter(|text| !text.is_empty()) else { return };
        if let Err(why) = self.write(&text) {
            tracing::debug!("the services and forwards of commands stay where they are: {why:#}");
        }
    }

    /// The text of the file; empty if there is no file.
    pub(crate) fn read(&self) -> Result<String, WrongConfig> {
        Ok(kept_file::read(self.path(), self.is_shown)?.unwrap_or_default())
    }

    /// The lists in the file. `prefix` is the `id_prefix` of the configuration.
    pub(crate) fn load(&self, prefix: Option<&str>) -> Result<Kept, WrongConfig> {
        self.parse(&self.read()?, prefix)
    }

    fn parse(&self, text: &str, prefix: Option<&str>) -> Result<Kept, WrongConfig> {
        let name = self.path().display().to_string();
        let load = |sources: &config::Sources<'_>| {
            config::load_kept(Text { name: &name, text }, prefix, sources)
        };
        Ok(with_sources(Path::new(""), load)?.config)
    }

    /// Replaces the files by a text. A text without entries removes them.
    pub(crate) fn write(&self, text: &str) -> anyhow::Result<()> {
        let is_empty = self.parse(text, None).is_ok_and(|kept| kept == Kept::default());
        let before = self.path().to_owned();
        for path in &self.paths {
            kept_file::write(path, (!is_empty).then_some(text))?;
        }
        if !self.paths.contains(&before) {
            if_there(fs::remove_file(&before))
                .with_context(|| format!("removing {}", before.display()))?;
        }
        Ok(())
    }

    /// The text with `lists` added and the entries `gone` removed. An entry that is not here
    /// belongs to the file or to a flag, and is marked as removed. Names have no prefix.
    pub(crate) fn edited(
        &self,
        text: &str,
        lists: &Lists,
        gone: &[String],
    ) -> anyhow::Result<String> {
        let name = self.path().display().to_string();
        let mut text = if text.is_empty() { HEAD.to_owned() } else { text.to_owned() };
        for what in gone {
            text = match unpublish(&name, &text, what).map_err(refusal)? {
                Some(rest) => rest,
                None => list_text(&name, &text, WITHOUT, what, true).map_err(refusal)?,
            };
        }
        let names = lists.services.iter().map(|service| service.name.clone());
        for what in names.chain(lists.forwards.iter().map(|forward| forward.listen.to_string())) {
            text = list_text(&name, &text, WITHOUT, &what, false).map_err(refusal)?;
        }
        let text = publish(&name, &text, lists).map_err(refusal)?;
        self.parse(&text, None)?;
        Ok(text)
    }

    /// The text without these entries, because the configuration file now contains them, or no
    /// longer does.
    pub(crate) fn without(&self, text: &str, entries: &[String]) -> anyhow::Result<String> {
        let name = self.path().display().to_string();
        let mut text = text.to_owned();
        for what in entries {
            text = unpublish(&name, &text, what).map_err(refusal)?.unwrap_or(text);
            text = list_text(&name, &text, WITHOUT, what, false).map_err(refusal)?;
        }
        Ok(text)
    }
}

/// A pin as part of a file's name. Base64 uses characters that are not allowed in a file name.
fn name_of(pin: &str) -> String {
    pin.trim_end_matches('=').replace(':', "-").replace('/', "_").replace('+', "-")
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

    fn one(folder: &Path) -> KeptLists {
        KeptLists { paths: vec![folder.join("c.yaml")], earlier: Vec::new(), is_shown: false }
    }

    fn client(servers: &str) -> ClientConfig {
        let sources = config::Sources { env: &|_| None, read: &|_| Err(String::new()) };
        let text = format!(
            "servers: {servers}\nname: home\ntoken: q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ\n"
        );
        let text = Some(Text { name: "c", text: &text });
        config::load_client(text, &config::ClientFlags::default(), &sources).unwrap().config
    }

    #[test]
    fn entries_belong_to_the_server_and_not_to_the_spelling_of_its_address() {
        let dir = tempfile::tempdir().unwrap();
        let [old, new] = ["A", "/"].map(|c| format!("sha256:{}=", c.repeat(42) + "A"));
        let of = |servers: &str| KeptLists::in_state(dir.path(), &client(servers));
        let pinned = |host: &str, pins: &str| {
            of(&format!("[{{ url: 'tls://{host}', tls: {{ pin: [{pins}] }} }}]"))
        };
        // An earlier version has named the file for the host.
        let plain = of("tcp://192.0.2.1");
        plain.write(&plain.edited("", &lists(&["3000"]), &[]).unwrap()).unwrap();
        pinned("192.0.2.1", &old).adopt();
        assert!(!dir.path().join("client-home@192.0.2.1.yaml").exists());
        let is_known = |kept: &KeptLists| names(&kept.load(None).unwrap()) == ["tcp-3000"];
        assert!(is_known(&pinned("a.example", &old)));
        // Another server has other entries, unless the key of the server changes.
        assert!(!is_known(&pinned("a.example", &new)));
        pinned("a.example", &format!("{old}, {new}")).adopt();
        assert!(is_known(&pinned("a.example", &new)));
        let both = pinned("a.example", &format!("{old}, {new}"));
        both.write("").unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        // Without a pin, each host among the servers names the server.
        plain.write(&plain.edited("", &lists(&["3000"]), &[]).unwrap()).unwrap();
        assert!(is_known(&of("[tcp://a.example, tcp://192.0.2.1]")));
        assert!(!is_known(&of("tcp://a.example")));
    }

    fn names(kept: &Kept) -> Vec<&str> {
        kept.lists.services.iter().map(|service| service.name.as_str()).collect()
    }

    #[test]
    fn entries_come_go_and_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let kept = one(dir.path());
        let text = kept.edited("", &lists(&["3000", "80=8080"]), &[]).unwrap();
        kept.write(&text).unwrap();
        assert_eq!(names(&kept.load(None).unwrap()), ["tcp-3000", "tcp-80"]);
        assert_eq!(names(&kept.load(Some("a")).unwrap()), ["a-tcp-3000", "a-tcp-80"]);

        // An entry that is not here is marked; an entry of this file is not.
        let gone = ["tcp-3000", "ssh", "tcp-7"].map(str::to_owned);
        let text = kept.edited(&text, &Lists::default(), &gone).unwrap();
        let now = kept.parse(&text, None).unwrap();
        assert_eq!((names(&now), now.without.as_slice()), (vec!["tcp-80"], &gone[1..]));
        let text = kept.edited(&text, &lists(&["7=8"]), &[]).unwrap();
        assert_eq!(kept.parse(&text, None).unwrap().without, ["ssh"]);

        // Nothing is left: no file is left.
        let text = kept.without(&text, &["tcp-80", "tcp-7", "ssh"].map(str::to_owned)).unwrap();
        kept.write(&text).unwrap();
        assert!(!kept.path().exists());
        assert_eq!(kept.load(None).unwrap(), Kept::default());
    }

    #[test]
    fn a_directory_that_others_may_write_adds_no_service() {
        let dir = tempfile::tempdir().unwrap();
        let kept = one(dir.path());
        kept.write(&kept.edited("", &lists(&["3000"]), &[]).unwrap()).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let why = kept.load(None).unwrap_err().to_string();
        assert!(why.contains("mode 0777"), "{why}");
        let shown = KeptLists { is_shown: true, ..kept };
        assert_eq!(names(&shown.load(None).unwrap()), ["tcp-3000"]);
    }
}
