//! The configuration file as the admin API shows and changes it. The file is read at each request.
//! It is replaced as a whole, so a crash leaves either the old or the new file.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use config::edit::{self, EditError, Operation};
use ops::WrongConfig;
use ops::clients::Change;
use ops::command::Json;
use ops::revision::{Difference, NewConfig};
use ops::shown::Shown;
use ops::state::Room;
use rustix::fs::{Access, access};

use crate::input;

/// The path of the file as the user gave it.
#[derive(Clone, Debug)]
pub(crate) struct ConfigFile(pub(crate) PathBuf);

impl ConfigFile {
    pub(crate) fn show(&self) -> Result<Shown, WrongConfig> {
        let text = self.read()?;
        let config = edit::show(&self.name(), &text).map_err(|why| vec![why])?;
        let why_not = self.writable().err().map(|why| format!("{why:#}"));
        let (writable, path) = (why_not.is_none(), input::absolute(&self.0)?);
        let etag = admin::tag_of(text.as_bytes());
        let lines = edit::masked(&self.name(), &text).ok().flatten();
        let shown =
            |lines: Vec<edit::Line>| lines.iter().map(|line| line.shown.clone() + "\n").collect();
        let (config, text) = (Json(config), lines.map(shown));
        Ok(Shown { path, writable, why_not, config, etag, text, undo: false })
    }

    /// Checks that the file can be written. The error contains the reason.
    pub(crate) fn writable(&self) -> anyhow::Result<()> {
        self.place().map(drop)
    }

    pub(crate) fn read(&self) -> Result<String, WrongConfig> {
        input::read(&self.0)
    }

    /// Applies operations to a text. An operation that cannot be applied is reported like a wrong
    /// file.
    pub(crate) fn edit(&self, text: &str, operations: &[Operation]) -> anyhow::Result<String> {
        let name = self.name();
        edit::edit(&name, text, operations).map_err(|why| match why {
            EditError::Refused(why) => WrongConfig::one(format!("{name}: {why}")).into(),
            EditError::TestFailed(_) | EditError::File(_) => refusal(why),
        })
    }

    /// The text after a change of it.
    pub(crate) fn changed(&self, before: &str, change: &NewConfig) -> anyhow::Result<String> {
        let text = match change {
            NewConfig::Patch(operations) => return self.edit(before, operations),
            NewConfig::Text(text) => text,
        };
        if !text.contains(edit::SECRET) {
            return Ok(text.clone());
        }
        let name = self.name();
        let lines = edit::masked(&name, before).map_err(|why| WrongConfig::from(vec![why]))?;
        let lines = lines.unwrap_or_default();
        let restored = edit::restored(&lines, text).map_err(|line| {
            WrongConfig::one(format!(
                "{name}:{line}:1: {} stands in a changed line (hint: write the value, or leave the \
                 whole line as it was)",
                edit::SECRET
            ))
        })?;
        Ok(restored)
    }

    /// How a text differs from another, without secrets. Empty where they cannot be shown.
    pub(crate) fn difference(&self, before: &str, after: &str) -> Vec<Difference> {
        let name = self.name();
        let masked = |text| edit::masked(&name, text).ok().flatten();
        let (Some(before), Some(after)) = (masked(before), masked(after)) else {
            return Vec::new();
        };
        folded(&before, &after, &edit::compared(&before, &after))
    }

    /// The top-level keys whose values differ.
    pub(crate) fn changed_keys(&self, before: &str, after: &str) -> Vec<String> {
        edit::changed_keys(&self.name(), before, after)
    }

    /// The name in messages.
    pub(crate) fn shown_name(&self) -> String {
        self.name()
    }

    /// Changes the entry of a client in a text.
    pub(crate) fn change(&self, text: &str, asked: &Change) -> anyhow::Result<String> {
        change(&self.name(), text, asked)
    }

    /// Replaces the file by a text, and keeps its mode and owner. `before` is the text that the
    /// caller has read.
    pub(crate) fn replace(&self, before: &str, after: &str) -> anyhow::Result<()> {
        self.replace_in(self.room(0)?, before, after)
    }

    /// Reserves room on the disk for the text of the file and a number of further bytes; with 0
    /// further bytes, no room.
    pub(crate) fn room(&self, more: usize) -> anyhow::Result<Room> {
        let (target, like) = self.place()?;
        let (Some(folder), Some(name)) = (target.parent(), target.file_name()) else {
            bail!("{} is no file", target.display());
        };
        let size = usize::try_from(like.len()).unwrap_or(usize::MAX);
        let size = if more > 0 { size.saturating_add(more) } else { 0 };
        Room::reserve(folder, &name.to_string_lossy(), size)
            .with_context(|| format!("{} cannot be written", target.display()))
    }

    /// Replaces the file as [`Self::replace`], in the room of [`Self::room`].
    pub(crate) fn replace_in(&self, room: Room, before: &str, after: &str) -> anyhow::Result<()> {
        // A text that an editor has written since then must not be lost.
        ensure!(self.read()? == before, "{} has just been changed by somebody else", self.name());
        self.fill(room, after)
    }

    /// Puts a text in the place of the file, with its mode and owner.
    pub(crate) fn fill(&self, room: Room, text: &str) -> anyhow::Result<()> {
        let (target, like) = self.place()?;
        room.fill(text.as_bytes(), Some(&like))
            .with_context(|| format!("{} cannot be written", target.display()))
    }

    /// The file behind all symbolic links, if it can be written.
    fn place(&self) -> anyhow::Result<(PathBuf, Metadata)> {
        let no = || format!("{} cannot be written", self.name());
        let target = fs::canonicalize(&self.0).with_context(no)?;
        let like = fs::metadata(&target).with_context(no)?;
        ensure!(like.is_file() && target.to_str().is_some(), "{} is no file", target.display());
        // Root could write the file, but its owner has removed the write permission on purpose.
        ensure!(like.mode() & 0o200 != 0, "{}: its mode says that it is only read", no());
        let folder = target.parent().unwrap_or(&target);
        access(folder, Access::WRITE_OK | Access::EXEC_OK)
            .with_context(|| format!("{}: its folder {}", no(), folder.display()))?;
        Ok((target, like))
    }

    fn name(&self) -> String {
        self.0.display().to_string()
    }
}

/// The lines around a change that are shown.
const AROUND: usize = 3;

/// The steps as lines; unchanged lines far from a change are folded.
fn folded(before: &[edit::Line], after: &[edit::Line], steps: &[edit::Step]) -> Vec<Difference> {
    let is_change = |step: &edit::Step| !matches!(step, edit::Step::Same(..));
    let mut near = vec![false; steps.len()];
    for at in (0..steps.len()).filter(|at| is_change(&steps[*at])) {
        let end = (at + AROUND + 1).min(steps.len());
        near[at.saturating_sub(AROUND)..end].fill(true);
    }
    let mut all = Vec::new();
    for (step, is_near) in steps.iter().zip(near) {
        let line = match *step {
            edit::Step::Same(..) if !is_near => {
                if let Some(Difference::Fold { count }) = all.last_mut() {
                    *count += 1;
                } else {
                    all.push(Difference::Fold { count: 1 });
                }
                continue;
            }
            edit::Step::Same(_, at) => Difference::Same { line: after[at].shown.clone() },
            edit::Step::Added(at) => Difference::Add { line: after[at].shown.clone() },
            edit::Step::Removed(at) => Difference::Remove { line: before[at].shown.clone() },
        };
        all.push(line);
    }
    all
}

/// Changes the entry of a client in the text of the file `name`.
pub(crate) fn change(name: &str, text: &str, change: &Change) -> anyhow::Result<String> {
    let edited = match change {
        Change::Allow(order) | Change::Deny(order) => {
            let rights = edit::NewRights {
                tcp: &order.allow_tcp,
                udp: &order.allow_udp,
                http: &order.allow_http,
                tls: &order.allow_tls,
                forward: &order.allow_forward,
                visit: &order.allow_visit,
                shared: order.allow_shared,
            };
            if matches!(change, Change::Allow(_)) {
                edit::allow(name, text, &order.name, rights)
            } else {
                edit::deny(name, text, &order.name, rights)
            }
        }
        Change::Limit(order) => edit::limit(name, text, &order.name, &order.limits()),
    };
    edited.map_err(refusal)
}

pub(crate) fn refusal(why: EditError) -> anyhow::Error {
    match why {
        EditError::TestFailed(_) => why.into(),
        EditError::Refused(why) => WrongConfig::one(why).into(),
        EditError::File(problem) => WrongConfig::from(vec![problem]).into(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_file_is_replaced_behind_its_link_and_keeps_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real.yaml"), dir.path().join("link.yaml"));
        fs::write(&real, "a").unwrap();
        symlink("real.yaml", &link).unwrap();
        let file = ConfigFile(link.clone());
        for mode in [0o600, 0o640, 0o644] {
            fs::set_permissions(&real, fs::Permissions::from_mode(mode)).unwrap();
            file.replace("a", "b").unwrap();
            file.replace("b", "a").unwrap();
            assert_eq!(fs::metadata(&real).unwrap().mode() & 0o7777, mode);
        }
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);

        let error = file.replace("x", "y").unwrap_err().to_string();
        assert!(error.contains("somebody else"), "{error}");
        fs::set_permissions(&real, fs::Permissions::from_mode(0o444)).unwrap();
        let error = file.replace("a", "b").unwrap_err().to_string();
        assert!(error.contains("only read"), "{error}");
        assert_eq!(file.read().unwrap(), "a");
        let file = ConfigFile(dir.path().join("none.yaml"));
        assert!(format!("{:#}", file.replace("", "b").unwrap_err()).contains("No such file"));
    }

    #[test]
    fn it_is_shown_with_its_path_and_whether_it_can_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = ConfigFile(dir.path().join("s.yaml"));
        fs::write(&file.0, "workers: 2\n").unwrap();
        let shown = file.show().unwrap();
        assert_eq!((shown.path, shown.writable, shown.why_not), (file.0.clone(), true, None));
        fs::set_permissions(&file.0, fs::Permissions::from_mode(0o400)).unwrap();
        assert!(file.show().unwrap().why_not.unwrap().contains("only read"));
        fs::write(dir.path().join("bad.yaml"), "[").unwrap();
        let WrongConfig(problems) = ConfigFile(dir.path().join("bad.yaml")).show().unwrap_err();
        assert!(problems[0].contains("bad.yaml:1:1: the `[` that opens here"), "{problems:?}");
    }
}
