//! A configuration file as it lies on this machine: its text, the folder that its paths are
//! relative to, and the place of whatever is wrong with it.

use std::env;
use std::path::{Path, PathBuf};

use config::{Problem, Role, Sources, Text, Token};
use ops::WrongConfig;

use crate::examine::Fault;
use crate::material;

/// A key, the flag that stands for it, and whether that was given and so wins over the file.
pub(crate) type Given<'a> = (&'a str, &'a str, bool);

/// A file's text and the folder that its paths are relative to.
#[derive(Debug)]
pub(crate) struct Input {
    /// Name as given, for messages, and content.
    file: Option<(String, String)>,
    pub(crate) folder: PathBuf,
}

impl Input {
    /// Reads the file, if there is one. `instead`: what is to be its text.
    pub(crate) fn read(path: Option<&Path>, instead: Option<String>) -> Result<Self, WrongConfig> {
        // Paths of flags are absolute already, so without a file the folder does not matter.
        let Some(path) = path else { return Ok(Self { file: None, folder: PathBuf::new() }) };
        let text = instead.map_or_else(|| read(path), Ok)?;
        let absolute = absolute(path)?;
        let folder = absolute.parent().map(Path::to_owned).unwrap_or_default();
        Ok(Self { file: Some((path.display().to_string(), text)), folder })
    }

    /// Runs the parser on it, with this machine's environment and files.
    pub(crate) fn with<C>(
        &self,
        load: impl FnOnce(Option<Text<'_>>, &Sources<'_>) -> Result<C, Vec<Problem>>,
    ) -> Result<C, WrongConfig> {
        let text = self.file.as_ref().map(|(name, text)| Text { name, text });
        Ok(with_sources(&self.folder, |sources| load(text, sources))?)
    }

    /// The other role's file would have a problem for each of its keys.
    pub(crate) fn must_be(&self, wanted: Role) -> Result<(), WrongConfig> {
        let Some((name, text)) = &self.file else { return Ok(()) };
        let role = match Role::of(text) {
            Some(Role::Server) if wanted != Role::Server => "server",
            Some(Role::Client) if wanted != Role::Client => "client",
            _ => return Ok(()),
        };
        Err(WrongConfig::one(format!(
            "{name}: this is a {role}'s file (hint: tunnel {role} --config {name})"
        )))
    }

    /// Refuses with all faults without whose end nothing runs.
    pub(crate) fn refuse(&self, faults: &[Fault], given: &[Given<'_>]) -> Result<(), WrongConfig> {
        let lines = self.places(faults.iter().filter(|fault| fault.fatal), given);
        if lines.is_empty() { Ok(()) } else { Err(WrongConfig(lines)) }
    }

    /// A line for each, with its place.
    pub(crate) fn places<'f>(
        &self,
        faults: impl Iterator<Item = &'f Fault>,
        given: &[Given<'_>],
    ) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for Fault { keys, problem, .. } in faults {
            let flag = given.iter().find(|(key, _, is)| *is && keys.iter().any(|k| k == key));
            let in_file = self.file.as_ref().and_then(|(name, text)| {
                // A path of its own settings is beyond the flags, which stand for those of all.
                let keys = keys.iter().filter(|key| flag.is_none_or(|(flag, ..)| key != flag));
                let mut places = keys.filter_map(|key| Some((key, config::locate(text, key)?)));
                let (key, (line, column)) = places.next()?;
                Some(format!("{name}:{line}:{column}: {key}: {problem}"))
            });
            let line = in_file.unwrap_or_else(|| match (flag, keys.last(), &self.file) {
                (Some((_, flag, _)), ..) => format!("{flag}: {problem}"),
                (None, Some(key), Some((name, _))) => format!("{name}: {key}: {problem}"),
                (None, ..) => problem.clone(),
            });
            // Several paths to one server share their settings.
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        lines
    }

    /// The parser's warnings, and those about who may read the secrets.
    pub(crate) fn warnings(&self, found: &[Problem], tokens: &[&Token]) -> Vec<String> {
        let mut warnings: Vec<String> = found.iter().map(ToString::to_string).collect();
        let files = tokens.iter().filter_map(|t| t.file.as_ref()).map(|f| self.folder.join(f));
        // A token that came from the environment or a flag does not stand in the file.
        let holds_one = |text: &str| tokens.iter().any(|t| text.contains(t.secret.reveal()));
        let own = self.file.iter().filter(|(_, text)| holds_one(text));
        let own = own.map(|(name, _)| PathBuf::from(name));
        warnings.extend(files.chain(own).filter_map(|file| exposure(&file)));
        warnings
    }
}

/// Runs the parser with this machine's environment, and its files as seen from a folder.
pub(crate) fn with_sources<R>(folder: &Path, load: impl FnOnce(&Sources<'_>) -> R) -> R {
    let env = |name: &str| env::var(name).ok();
    let read = |path: &Path| {
        // Without the path, which may be a token in the wrong place.
        material::read_token(&folder.join(path)).map_err(|e| e.to_string())
    };
    load(&Sources { env: &env, read: &read })
}

/// What is to be said of a file with a secret that others may read.
pub(crate) fn exposure(file: &Path) -> Option<String> {
    let at = file.display();
    let text = || format!("{at} holds a token and others may read it (chmod 600)");
    material::is_exposed(file).then(text)
}

/// A configuration file's text.
pub(crate) fn read(path: &Path) -> Result<String, WrongConfig> {
    material::read_config(path)
        .map_err(|e| WrongConfig::one(format!("{}: cannot read the file: {e}", path.display())))
}

/// A path as seen from everywhere.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, WrongConfig> {
    std::path::absolute(path).map_err(|e| WrongConfig::one(format!("{}: {e}", path.display())))
}
