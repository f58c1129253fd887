//! The configuration file, as the admin API shows and changes it. The file is read at each request.
//! It is replaced as a whole, so a crash leaves either the old or the new file.

use std::fs::{self, Metadata};
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::LazyLock;

use anyhow::{Context, bail, ensure};
use config::edit::{self, EditError, Operation};
use config::secrets::Secrets;
use ops::WrongConfig;
use ops::clients::Change;
use ops::command::Json;
use ops::revision::{Difference, NewConfig};
use ops::shown::Shown;
use ops::state::Room;
use rustix::fs::{Access, access};

use crate::input::{self, secrets_of};

/// The path of the file as the user gave it.
#[derive(Clone, Debug)]
pub(crate) struct ConfigFile(pub(crate) PathBuf);

impl ConfigFile {
    pub(crate) fn show(&self) -> Result<Shown, WrongConfig> {
        let text = self.read()?;
        let config = edit::show(&self.name(), &text).map_err(|why| vec![why])?;
        let why_not = self.writable().err().map(|why| format!("{why:#}"));
        let (writable, path) = (why_not.is_none(), input::absolute(&self.0)?);
        let etag = tag_of(&text);
        let lines = edit::masked(&self.name(), &text).ok().flatten();
        let (config, text) = (Json(config), lines.map(|lines| shown(&lines)));
        Ok(Shown { path, writable, why_not, config, etag, text, undo: false })
    }

    /// Checks that the file can be written. The error contains the reason.
    pub(crate) fn writable(&self) -> anyhow::Result<()> {
        self.place().map(drop)
    }

    pub(crate) fn read(&self) -> Result<String, WrongConfig> {
        input::read(&self.0)
    }

    /// Applies operations to a text. An operation that cannot be applied is reported like an
    /// invalid file.
    pub(crate) fn edit(&self, text: &str, operations: &[Operation]) -> anyhow::Result<String> {
        let name = self.name();
        edit::edit(&name, text, operations).map_err(|why| match why {
            EditError::Refused(why) => WrongConfig::one(format!("{name}: {why}")).into(),
            EditError::TestFailed(_) | EditError::File(_) => refusal(why),
        })
    }

    /// The text after a change.
    pub(crate) fn changed(&self, before: &str, change: &NewConfig) -> anyhow::Result<String> {
        let text = match change {
            NewConfig::Patch(operations) => self.edit(before, operations)?,
            NewConfig::Text(text) => self.restored(before, text)?.text,
        };
        self.allow_variables(before, &text)?;
        Ok(text)
    }

    /// As [`Self::changed`], and how the file would differ.
    pub(crate) fn foreseen(&self, before: &str, change: &NewConfig) -> anyhow::Result<Foreseen> {
        let name = self.name();
        let masked = |text: &str| edit::masked(&name, text).ok().flatten();
        let old = masked(before);
        let (text, lines, changed) = match change {
            NewConfig::Patch(operations) => {
                let text = self.edit(before, operations)?;
                // The author of the change must not learn whether a secret in it equals the present
                // secret.
                let salted = edit::salted(&name, before, operations).map_err(refusal)?;
                let changed = edit::changed_keys(&name, before, &salted);
                (text, masked(&salted), changed)
            }
            NewConfig::Text(new) => {
                let restored = self.restored(before, new)?;
                // For the same reason, the masked texts are compared, which contain no secret.
                let changed = match &old {
                    Some(lines) => edit::changed_keys(&name, &shown(lines), new),
                    None => edit::changed_keys(&name, before, new),
                };
                (restored.text, restored.lines, changed)
            }
        };
        self.allow_variables(before, &text)?;
        let secrets = secrets_of(before).unknown_to(&words(change));
        let diff = match (&old, &lines) {
            (Some(old), Some(new)) => folded(old, new, &edit::compared(old, new), &secrets),
            _ => Vec::new(),
        };
        Ok(Foreseen { text, diff, changed })
    }

    fn restored(&self, before: &str, text: &str) -> Result<edit::Restored, WrongConfig> {
        let name = self.name();
        edit::restored(&name, before, text).map_err(|edit::Unknown(line)| {
            WrongConfig::one(format!(
                "{name}:{line}:1: {} stands in a changed line, or under another key or name than \
                 the secret (hint: write the value, or leave the whole line as it was, where it was)",
                edit::SECRET
            ))
        })
    }

    /// Refuses an environment variable that was not in the file before.
    fn allow_variables(&self, before: &str, after: &str) -> Result<(), WrongConfig> {
        match edit::added_variable(&self.name(), before, after) {
            Some(problem) => Err(vec![problem].into()),
            None => Ok(()),
        }
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

    /// Reserves disk space for the text of the file and additional bytes; with 0 additional bytes,
    /// nothing is reserved.
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

    /// Replaces the file as [`Self::replace`], using the space of [`Self::room`].
    pub(crate) fn replace_in(&self, room: Room, before: &str, after: &str) -> anyhow::Result<()> {
        // A text that an editor has written in the meantime must not be lost.
        ensure!(self.read()? == before, "{} has just been changed by somebody else", self.name());
        self.fill(room, after)
    }

    /// Replaces the file by a text, and keeps its mode and owner.
    pub(crate) fn fill(&self, room: Room, text: &str) -> anyhow::Result<()> {
        let (target, like) = self.place()?;
        room.fill(text.as_bytes(), Some(&like))
            .with_context(|| format!("{} cannot be written", target.display()))
    }

    /// The file that all symbolic links lead to, if it is writable.
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

    /// The name in messages.
    pub(crate) fn name(&self) -> String {
        self.0.display().to_string()
    }
}

/// A preview of a change of the file.
pub(crate) struct Foreseen {
    /// The text after the change.
    pub(crate) text: String,
    /// The difference between the text and the file, without secrets. Empty where that cannot be
    /// shown.
    pub(crate) diff: Vec<Difference>,
    /// The top-level keys whose values differ. A secret that comes with the change always counts as
    /// different.
    pub(crate) changed: Vec<String>,
}

fn shown(lines: &[edit::Line]) -> String {
    lines.iter().map(|line| line.shown.clone() + "\n").collect()
}

/// The texts that the author of a change knows.
fn words(change: &NewConfig) -> String {
    match change {
        NewConfig::Patch(operations) => operations.iter().map(Operation::words).collect(),
        NewConfig::Text(text) => text.clone(),
    }
}

/// The secrets of the file before and after a change, except those that its author has written.
pub(crate) fn secrets_around(before: &str, after: &str, change: &NewConfig) -> Secrets {
    let mut secrets = secrets_of(before);
    secrets.join(&secrets_of(after));
    secrets.unknown_to(&words(change))
}

/// An error text without secrets.
pub(crate) fn concealed(why: anyhow::Error, secrets: &Secrets) -> anyhow::Error {
    match why.downcast::<WrongConfig>() {
        Ok(WrongConfig(mut lines)) => {
            conceal(&mut lines, secrets);
            WrongConfig(lines).into()
        }
        Err(why) => {
            let text = format!("{why:#}");
            let hidden = secrets.hidden(&text);
            if hidden == text { why } else { anyhow::anyhow!(hidden) }
        }
    }
}

/// Hides the secrets in lines.
pub(crate) fn conceal(lines: &mut [String], secrets: &Secrets) {
    for line in lines {
        *line = secrets.hidden(line);
    }
}

/// A prefix of the text from which the entity tag is computed. A tag of the text alone would
/// confirm a guess of a password in it.
static SALT: LazyLock<[u64; 4]> = LazyLock::new(|| {
    let random = RandomState::new();
    [0, 1, 2, 3].map(|n: u64| random.hash_one(n))
});

/// The entity tag of a text of the file. It changes at each start of the process.
pub(crate) fn tag_of(text: &str) -> String {
    let salt = SALT.iter().flat_map(|word| word.to_le_bytes());
    admin::tag_of(&salt.chain(text.bytes()).collect::<Vec<_>>())
}

/// The number of lines shown around a change.
const AROUND: usize = 3;

/// The steps as lines; unchanged lines far from a change are folded. `secrets` are the secrets that
/// the author of the change does not know.
fn folded(
    before: &[edit::Line],
    after: &[edit::Line],
    steps: &[edit::Step],
    secrets: &Secrets,
) -> Vec<Difference> {
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
            edit::Step::Added(at) => Difference::Add { line: secrets.hidden(&after[at].shown) },
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
                via: &order.allow_via,
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
    fn what_a_change_would_do_is_told_without_a_secret_and_without_the_environment() {
        let token = "q7Xb2LmZ0aKc9RtYv4WnPs";
        let before = format!(
            "# swordfish\nlisten: tcp://127.0.0.1:1\nstate_dir: ${{PATH}}\nadmin:\n  listen: \
             127.0.0.1:1\n  token: {token}\nclients:\n- {{ name: a, token: \"sword:swordfish\" }}\n"
        );
        let file = ConfigFile("s.yaml".into());
        let text = |text: &str| NewConfig::Text(text.to_owned());
        let patch = |path: &str, value: &str| {
            let action = edit::Action::Replace(edit::Value::Text(value.to_owned()));
            NewConfig::Patch(vec![Operation { path: path.to_owned(), action }])
        };
        let shown = shown(&edit::masked("s.yaml", &before).unwrap().unwrap());
        for refused in [
            text("listen: tcp://127.0.0.1:1\ncontrol: |\n  token: \"(secret)\"\n"),
            text("listen: \"${PATH}\"\n"),
            patch("/control", "x${PATH}"),
            patch("/clients/a/name", "${PATH}"),
        ] {
            for why in
                [file.foreseen(&before, &refused).err(), file.changed(&before, &refused).err()]
            {
                let why = why.unwrap().to_string();
                assert!(!why.contains(token) && !why.contains("/bin"), "{why}");
            }
        }
        for kept in
            [text(&shown.replace("tcp://127.0.0.1:1", "tcp://127.0.0.1:2")), patch("/listen", "x")]
        {
            let foreseen = file.foreseen(&before, &kept).unwrap();
            assert!(foreseen.text.contains(token) && foreseen.text.contains("${PATH}"));
            let said = format!("{:?}", foreseen.diff);
            assert!(said.contains("Add") && !said.contains(token), "{said}");
            assert!(!said.contains("swordfish"), "{said}");
            assert_eq!(foreseen.changed, ["listen"]);
        }
        // A right guess of a secret looks like a wrong guess.
        for guess in [token, "Zr5Tn8Qw1Ey6Ui3Op0Asdf"] {
            let typed = shown.replacen("\"(secret)\"", guess, 1);
            for change in [patch("/admin/token", guess), text(&typed)] {
                let foreseen = file.foreseen(&before, &change).unwrap();
                assert_eq!(foreseen.changed, ["admin"]);
                let changes = |line: &&Difference| {
                    matches!(line, Difference::Add { .. } | Difference::Remove { .. })
                };
                assert_eq!(foreseen.diff.iter().filter(changes).count(), 2);
            }
        }
    }

    #[test]
    fn an_error_repeats_no_secret_and_keeps_its_kind() {
        let secrets = secrets_of("token: q7Xb2LmZ0aKc9RtYv4WnPs\n");
        let said = "s.yaml:1:1: `q7Xb2LmZ0aKc9RtYv4WnPs` is wrong";
        let why = concealed(WrongConfig::one(said.to_owned()).into(), &secrets);
        assert_eq!(why.downcast::<WrongConfig>().unwrap().0, ["s.yaml:1:1: `(secret)` is wrong"]);
        let why = concealed(anyhow::anyhow!("q7Xb2LmZ0aKc9RtYv4WnPs").context("no"), &secrets);
        assert_eq!(format!("{why:#}"), "no: (secret)");
        assert!(concealed(ops::revision::Stale.into(), &secrets).is::<ops::revision::Stale>());
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
