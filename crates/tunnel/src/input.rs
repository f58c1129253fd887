//! A configuration file on this machine: its text, the folder to which its paths are relative, and
//! the positions of its problems.

use std::env;
use std::io::{self, BufRead as _, Read as _};
use std::path::{Path, PathBuf};

use anyhow::Context;
use config::secrets::{Held, Holds, Secrets, stands_in};
use config::{Problem, Role, Sources, Text, Token};
use ops::WrongConfig;

use crate::examine::Fault;
use crate::material;

/// A key, its flag, and whether the flag was given and so takes precedence over the file.
pub(crate) type Given<'a> = (&'a str, &'a str, bool);

/// The text of a file, and the folder to which its paths are relative.
#[derive(Debug)]
pub(crate) struct Input {
    /// The file's name as given, for messages, and its content. `None` without a file.
    file: Option<(String, String)>,
    pub(crate) folder: PathBuf,
}

impl Input {
    /// Reads the file at `path`, if there is one. `instead` replaces the content of the file.
    pub(crate) fn read(path: Option<&Path>, instead: Option<String>) -> Result<Self, WrongConfig> {
        // Paths of flags are already absolute, so without a file the folder does not matter.
        let Some(path) = path else { return Ok(Self { file: None, folder: PathBuf::new() }) };
        let text = instead.map_or_else(|| read(path), Ok)?;
        let absolute = absolute(path)?;
        let folder = absolute.parent().map(Path::to_owned).unwrap_or_default();
        Ok(Self { file: Some((path.display().to_string(), text)), folder })
    }

    /// Parses the file with the environment and the files of this machine.
    pub(crate) fn with<C>(
        &self,
        load: impl FnOnce(Option<Text<'_>>, &Sources<'_>) -> Result<C, Vec<Problem>>,
    ) -> Result<C, WrongConfig> {
        let text = self.file.as_ref().map(|(name, text)| Text { name, text });
        Ok(with_sources(&self.folder, |sources| load(text, sources))?)
    }

    /// The files of lists of networks that the file names, even if the file has problems.
    pub(crate) fn list_files(&self) -> Vec<PathBuf> {
        let Some((_, text)) = &self.file else { return Vec::new() };
        let files = with_sources(&self.folder, |sources| config::list_files(text, sources));
        files.into_iter().map(|file| self.folder.join(file)).collect()
    }

    /// Refuses a file of another role with one problem. Otherwise the decoder would report a
    /// problem for each key of that file.
    pub(crate) fn must_be(&self, wanted: Role) -> Result<(), WrongConfig> {
        let Some((name, text)) = &self.file else { return Ok(()) };
        let role = match Role::of(text) {
            Some(Role::Server) if wanted != Role::Server => "server",
            Some(Role::Client) if wanted != Role::Client => "client",
            Some(Role::Proxy) if wanted != Role::Proxy => "proxy",
            _ => return Ok(()),
        };
        Err(WrongConfig::one(format!(
            "{name}: this is a {role}'s file (hint: tunnel {role} --config {name})"
        )))
    }

    /// Refuses the configuration if it has fatal faults. The error lists all of them.
    pub(crate) fn refuse(&self, faults: &[Fault], given: &[Given<'_>]) -> Result<(), WrongConfig> {
        let lines = self.places(faults.iter().filter(|fault| fault.fatal), given);
        if lines.is_empty() { Ok(()) } else { Err(WrongConfig(lines)) }
    }

    /// One line per fault, with its position.
    pub(crate) fn places<'f>(
        &self,
        faults: impl Iterator<Item = &'f Fault>,
        given: &[Given<'_>],
    ) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for Fault { keys, problem, .. } in faults {
            let flag = given.iter().find(|(key, _, is)| *is && keys.iter().any(|k| k == key));
            let in_file = self.file.as_ref().and_then(|(name, text)| {
                // A flag sets the key for all paths at once, and does not apply to a path with its
                // own settings.
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
            // Paths to one server may share their settings, and so their faults.
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        lines
    }

    /// The parser's warnings, and warnings about files with secrets that other users may read.
    /// `keys` are the files of private keys.
    pub(crate) fn warnings(
        &self,
        found: &[Problem],
        tokens: &[&Token],
        secrets: &[Held],
        keys: &[&Path],
    ) -> Vec<String> {
        let mut warnings: Vec<String> = found.iter().map(ToString::to_string).collect();
        let files = tokens.iter().filter_map(|t| t.file.as_ref()).map(|f| self.folder.join(f));
        warnings.extend(files.filter_map(|file| exposure(&file)));
        // A secret from the environment or from a flag is not in the text of the file.
        if let Some((name, text)) = &self.file
            && let Some(held) = secrets.iter().find(|held| stands_in(text, held.secret.reveal()))
        {
            let what = match held.kind {
                Holds::Token => "a token",
                Holds::Passwords | Holds::Url => "a password",
                Holds::Fields => "a secret header field",
                Holds::Nothing | Holds::TokenFile | Holds::KeyFile => "a secret",
            };
            warnings.extend(exposure_of(what, Path::new(name)));
        }
        for warning in keys.iter().filter_map(|file| key_exposure(file)) {
            // Several paths to a server may share a key.
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
        warnings
    }
}

/// Runs the parser with the environment of this machine. Paths of token files are relative to
/// `folder`.
pub(crate) fn with_sources<R>(folder: &Path, load: impl FnOnce(&Sources<'_>) -> R) -> R {
    let env = |name: &str| env::var(name).ok();
    let read = |path: &Path| {
        // The message does not contain the path, which may be a token under the wrong key.
        material::read_named(&folder.join(path)).map_err(|e| e.to_string())
    };
    load(&Sources { env: &env, read: &read })
}

/// The secrets of the text of a configuration, with the variables of this process.
pub(crate) fn secrets_of(text: &str) -> Secrets {
    Secrets::of_text(text, &|name| env::var(name).ok())
}

/// The warning about a file with a token, if other users may read the file.
pub(crate) fn exposure(file: &Path) -> Option<String> {
    exposure_of("a token", file)
}

/// The warning about a file with a private key, if other users may read the file.
pub(crate) fn key_exposure(file: &Path) -> Option<String> {
    exposure_of("a private key", file)
}

fn exposure_of(secret: &str, file: &Path) -> Option<String> {
    let at = file.display();
    let text = || format!("{at} holds {secret} and others may read it (chmod 600)");
    let credentials = env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    material::is_exposed(file, credentials.as_deref()).then(text)
}

/// Reads the text of a configuration file.
pub(crate) fn read(path: &Path) -> Result<String, WrongConfig> {
    text_of(path, material::read_config(path))
}

/// The first line of standard input, of at most `most` bytes. An argument could be read by every
/// user of this machine.
pub(crate) fn first_line(most: u64) -> anyhow::Result<String> {
    let mut line = String::new();
    io::stdin().lock().take(most).read_line(&mut line).context("standard input")?;
    Ok(line)
}

/// Reads the text of a configuration file that tunnel itself has made. A symbolic link is an error.
pub(crate) fn read_own(path: &Path) -> Result<String, WrongConfig> {
    text_of(path, material::read_own_config(path))
}

fn text_of(path: &Path, bytes: io::Result<Vec<u8>>) -> Result<String, WrongConfig> {
    let bytes = bytes.map_err(|e| unreadable(path, &e))?;
    if bytes.len() > config::FILE_MAX {
        // The text may end in the middle of a character. The parser refuses a text of this length.
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    Ok(config::text_of(&path.display().to_string(), bytes).map_err(|problem| vec![problem])?)
}

fn unreadable(path: &Path, error: &io::Error) -> WrongConfig {
    let hints = [
        (
            io::ErrorKind::NotFound,
            " (hint: `tunnel generate config server`, `client` or `proxy` prints a file to begin with)",
        ),
        (io::ErrorKind::IsADirectory, " (hint: name a file in the directory)"),
        (io::ErrorKind::PermissionDenied, " (hint: read the file as its owner, or with sudo)"),
    ];
    let hint = hints.iter().find(|(kind, _)| *kind == error.kind()).map_or("", |(_, hint)| hint);
    WrongConfig::one(format!("{}: cannot read the file: {error}{hint}", path.display()))
}

/// The absolute form of a path.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, WrongConfig> {
    std::path::absolute(path).map_err(|e| WrongConfig::one(format!("{}: {e}", path.display())))
}
