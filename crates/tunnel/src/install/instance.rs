//! An installed instance: its name, its unit, and which instances there are.

use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::Context;
use ops::WrongConfig;
use ops::state::if_there;

use super::plan::below;
use crate::cli::Side;

pub(super) const UNITS: &str = "/etc/systemd/system";

pub(super) const DROP_IN: &str = "credentials.conf";

/// An installed instance.
pub(super) struct Instance {
    pub(super) side: Side,
    pub(super) name: String,
    /// The name of the unit.
    pub(super) unit: String,
    /// The names of the credentials, and their files.
    pub(super) credentials: Vec<(String, PathBuf)>,
}

impl Instance {
    /// Whether the unit has user settings (`systemctl edit`).
    pub(super) fn has_settings(&self, root: &Path) -> bool {
        let own = below(root, &drop_in(self.side, &self.name));
        let entries = own.parent().and_then(|folder| fs::read_dir(folder).ok());
        entries.into_iter().flatten().flatten().any(|entry| entry.path() != own)
    }
}

pub(super) const fn role(side: Side) -> &'static str {
    match side {
        Side::Server => "server",
        Side::Client => "client",
    }
}

/// The unit of an instance.
pub(super) fn unit(side: Side, name: &str) -> String {
    format!("tunnel-{}@{name}.service", role(side))
}

/// The drop-in file that passes the credentials.
pub(super) fn drop_in(side: Side, name: &str) -> PathBuf {
    Path::new(UNITS).join(format!("{}.d/{DROP_IN}", unit(side, name)))
}

/// The unit of all instances of a role.
pub(super) fn template(side: Side) -> PathBuf {
    Path::new(UNITS).join(format!("tunnel-{}@.service", role(side)))
}

/// Checks the name of an instance, which is a part of paths and of the unit's name.
pub(super) fn check_name(name: &str) -> Result<(), WrongConfig> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.len() <= 64
        && name.chars().all(fine)
    {
        return Ok(());
    }
    Err(WrongConfig::one(format!(
        "--name: `{name}` names no instance (hint: 1 to 64 letters, digits, `-`, `_`, `.`, the \
         first of them a letter or a digit)"
    )))
}

/// The names of the installed instances; none if the units cannot be read.
pub(crate) fn names() -> Vec<String> {
    let found = instances(Path::new(UNITS)).unwrap_or_default();
    found.into_iter().map(|(_, name)| name).collect()
}

/// The installed instances.
pub(super) fn instances(units: &Path) -> anyhow::Result<Vec<(Side, String)>> {
    let mut all = list(units)?;
    all.extend(list(&units.join("multi-user.target.wants"))?);
    let mut found: Vec<(Side, String)> = Vec::new();
    for path in all {
        let Some(file) = path.file_name().and_then(|file| file.to_str()) else { continue };
        for side in [Side::Server, Side::Client] {
            let rest = file.strip_prefix(&*format!("tunnel-{}@", role(side)));
            // `systemctl edit` makes a folder as well.
            let name = rest.and_then(|rest| {
                let ours = rest.strip_suffix(".service.d").filter(|_| path.join(DROP_IN).exists());
                ours.or_else(|| rest.strip_suffix(".service"))
            });
            let name = name.filter(|name| !name.is_empty()).map(str::to_owned);
            found.extend(name.map(|name| (side, name)).filter(|new| !found.contains(new)));
        }
    }
    Ok(found)
}

pub(super) fn list(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let read = if_there(fs::read_dir(folder)).with_context(|| folder.display().to_string())?;
    let entries = read.into_iter().flatten();
    let mut all = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    all.sort();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_of_a_file_and_of_an_instance() {
        for name in ["home", "a.b", "0-x_y"] {
            check_name(name).unwrap();
        }
        for name in ["", ".", "..", "-x", "a/b", "a b", "a@b", &"x".repeat(65)] {
            assert!(check_name(name).unwrap_err().to_string().contains("--name"), "{name}");
        }
    }
}
