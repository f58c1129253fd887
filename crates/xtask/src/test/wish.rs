//! The words behind `cargo xtask test`.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail};

use super::paths::{self, LeftOut};
use super::step::{Lengths, Step};
use super::suite::all;
use xtask::options::minutes;
use xtask::site::Site;

/// What to run.
#[derive(Debug, Default)]
pub(super) struct Wish {
    /// Steps by name; none: all of the suite.
    names: Vec<String>,
    /// Every short step, whatever has changed.
    every: bool,
    long: bool,
    /// Of the long steps those that the change since this revision touches.
    pub(super) since: Option<String>,
    pub(super) lengths: Lengths,
}

impl Wish {
    /// `None`: somebody asks for help.
    pub(super) fn read(mut args: impl Iterator<Item = String>) -> Result<Option<Self>> {
        let mut wish = Self::default();
        while let Some(word) = args.next() {
            let mut value = || args.next().with_context(|| format!("{word} wants a value"));
            match word.as_str() {
                "help" | "--help" | "-h" => return Ok(None),
                "all" => wish.every = true,
                "--long" => wish.long = true,
                "--since" => wish.since = Some(value()?),
                "--fuzz-minutes" => wish.lengths.fuzz = minutes(&word, &value()?)?,
                "--chaos-minutes" => wish.lengths.chaos = minutes(&word, &value()?)?,
                "--cluster-minutes" => wish.lengths.cluster = minutes(&word, &value()?)?,
                "--soak-minutes" => wish.lengths.soak = minutes(&word, &value()?)?,
                name if all().any(|step| step.name == name) => wish.names.push(word),
                _ => bail!("no such step or option: {word}\n\n{}", help()),
            }
        }
        if wish.since.is_some() && !(wish.long && wish.names.is_empty() && !wish.every) {
            bail!("--since REV goes with --long and without names of steps");
        }
        if wish.every && !wish.names.is_empty() {
            bail!("`all` is every short step, so it goes without names of steps");
        }
        Ok(Some(wish))
    }

    /// The steps, in their own order, and the short steps that the change is not about.
    pub(super) fn steps(&self, site: &Site) -> Result<(Vec<&'static Step>, LeftOut)> {
        if let Some(revision) = &self.since {
            let touched = paths::long_steps(&site.root, revision)?;
            let is_touched = |step: &&Step| touched.iter().any(|name| name == step.name);
            return Ok((all().filter(is_touched).collect(), LeftOut::default()));
        }
        // The continuous integration and a run with the long steps leave nothing out.
        let whole = self.every || self.long || site.ci || !self.names.is_empty();
        let left_out = if whole { LeftOut::default() } else { paths::left_out(&site.root)? };
        let wanted = |step: &&Step| {
            if self.names.is_empty() {
                self.long || !step.long
            } else {
                self.names.iter().any(|name| name == step.name)
            }
        };
        let is_in = |step: &&Step| left_out.steps.iter().all(|(name, _)| *name != step.name);
        Ok((all().filter(wanted).filter(is_in).collect(), left_out))
    }
}

pub(super) fn help() -> String {
    let mut text = "\
cargo xtask test                  the short suite without the steps that the change of this branch
                                  is not about, by crates/xtask/short.toml
cargo xtask test all              the whole short suite, as the continuous integration runs it
cargo xtask test STEP…            the named steps; what a step needs, it builds
cargo xtask test --long           the short suite, then the long steps
cargo xtask test --long --since REV
                                  the long steps that the change since the revision REV touches, by
                                  crates/xtask/long.toml; target/long.json says how they ended

  --fuzz-minutes N                time for each fuzz target [2]
  --chaos-minutes N               time for chaos, all transports together [2]
  --soak-minutes N                time for soak [20]
  --cluster-minutes N             time in which the nodes of a cluster are killed in turn [2]
  CI=true                         every short step runs; a step that cannot run here is a failure,
                                  not skipped

Steps:
"
    .to_owned();
    for step in all() {
        let when = if step.long { " (long)" } else { "" };
        // Writing into a string cannot fail.
        let _ = writeln!(text, "  {:10} {}{when}", step.name, step.what);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn read(line: &str) -> Result<Option<Wish>> {
        Wish::read(line.split_whitespace().map(str::to_owned))
    }

    fn chosen(line: &str) -> Vec<&'static str> {
        chosen_in(line, PathBuf::from("/"), false)
    }

    fn chosen_in(line: &str, root: PathBuf, ci: bool) -> Vec<&'static str> {
        let none = PathBuf::new;
        let site = Site {
            root,
            target: none(),
            tunnel: none(),
            glibc: none(),
            former: None,
            peers: none(),
            ci,
        };
        let (steps, _) = read(line).unwrap().unwrap().steps(&site).unwrap();
        steps.iter().map(|step| step.name).collect()
    }

    #[test]
    fn named_steps_run_in_their_own_order_and_long_steps_when_asked_for() {
        assert_eq!(chosen("clippy fmt"), ["fmt", "clippy"]);
        assert!(chosen("").contains(&"e2e") && !chosen("").contains(&"chaos"));
        assert_eq!(chosen("e2e chaos"), ["e2e", "chaos"], "a named step is wanted");
        assert_eq!(chosen("--long").len(), all().count(), "--long leaves nothing out");
    }

    #[test]
    fn a_run_by_hand_leaves_out_what_the_change_is_not_about_and_no_other_run_does() {
        let (folder, every) = (paths::tests::topic(), all().filter(|step| !step.long).count());
        let chosen = |line, ci| chosen_in(line, folder.path().to_owned(), ci);
        let by_hand = chosen("", false);
        assert_eq!(by_hand.len(), every - 1);
        assert!(!by_hand.contains(&"console") && by_hand.contains(&"nat"));
        assert_eq!(chosen("all", false).len(), every);
        assert_eq!(chosen("", true).len(), every);
        assert_eq!(chosen("--long", false).len(), all().count());
        assert_eq!(chosen("console", false), ["console"]);
    }

    #[test]
    fn lengths_are_read_and_nonsense_is_refused_by_name() {
        let wish = read("--long --fuzz-minutes 60 --chaos-minutes 0.5 --cluster-minutes 10")
            .unwrap()
            .unwrap();
        assert_eq!(wish.lengths, Lengths { fuzz: 60.0, chaos: 0.5, soak: 20.0, cluster: 10.0 });
        assert!(read("--help").unwrap().is_none());
        for (line, complaint) in [
            ("nonsense", "no such step or option: nonsense"),
            ("--since", "wants a value"),
            ("--since HEAD", "goes with --long"),
            ("--long --since HEAD e2e", "without names of steps"),
            ("--long --since HEAD all", "without names of steps"),
            ("all e2e", "without names of steps"),
            ("--soak-minutes soon", "not soon"),
        ] {
            let error = read(line).unwrap_err().to_string();
            assert!(error.contains(complaint), "{line}: {error}");
        }
    }
}
