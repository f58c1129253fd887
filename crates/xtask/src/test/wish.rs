//! The words behind `cargo xtask test`.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail};

use super::{Step, all, long};
use xtask::options::minutes;
use xtask::site::Site;

/// How long the long steps take that can take any time, in minutes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lengths {
    /// Of each fuzz target.
    pub(super) fuzz: f64,
    pub(super) chaos: f64,
    pub(super) soak: f64,
}

impl Default for Lengths {
    fn default() -> Self {
        Self { fuzz: 2.0, chaos: 2.0, soak: 20.0 }
    }
}

/// What to run.
#[derive(Debug, Default)]
pub(super) struct Wish {
    /// Steps by name; none: all of the suite.
    names: Vec<String>,
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
                "--long" => wish.long = true,
                "--since" => wish.since = Some(value()?),
                "--fuzz-minutes" => wish.lengths.fuzz = minutes(&word, &value()?)?,
                "--chaos-minutes" => wish.lengths.chaos = minutes(&word, &value()?)?,
                "--soak-minutes" => wish.lengths.soak = minutes(&word, &value()?)?,
                name if all().any(|step| step.name == name) => wish.names.push(word),
                _ => bail!("no such step or option: {word}\n\n{}", help()),
            }
        }
        if wish.since.is_some() && !(wish.long && wish.names.is_empty()) {
            bail!("--since REV goes with --long and without names of steps");
        }
        Ok(Some(wish))
    }

    /// The steps, in their own order.
    pub(super) fn steps(&self, site: &Site) -> Result<Vec<&'static Step>> {
        if let Some(revision) = &self.since {
            let touched = long::touched(&site.root, revision)?;
            return Ok(all().filter(|step| touched.iter().any(|name| name == step.name)).collect());
        }
        let wanted = |step: &&Step| {
            if self.names.is_empty() {
                self.long || !step.long
            } else {
                self.names.iter().any(|name| name == step.name)
            }
        };
        Ok(all().filter(wanted).collect())
    }
}

pub(super) fn help() -> String {
    let mut text = "\
cargo xtask test [STEP…]          the short suite, or the named steps; what a step needs, it builds
cargo xtask test --long           the short suite, then the long steps
cargo xtask test --long --since REV
                                  the long steps that the change since the revision REV touches, by
                                  crates/xtask/long.toml; target/long.json says how they ended

  --fuzz-minutes N                time for each fuzz target [2]
  --chaos-minutes N               time for chaos, all transports together [2]
  --soak-minutes N                time for soak [20]
  CI=true                         a step that cannot run here is a failure, not skipped

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
        let none = PathBuf::new;
        let site = Site {
            root: none(),
            target: none(),
            tunnel: none(),
            glibc: none(),
            former: None,
            peers: none(),
            ci: false,
        };
        let steps = read(line).unwrap().unwrap().steps(&site).unwrap();
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
    fn lengths_are_read_and_nonsense_is_refused_by_name() {
        let wish = read("--long --fuzz-minutes 60 --chaos-minutes 0.5").unwrap().unwrap();
        assert_eq!(wish.lengths, Lengths { fuzz: 60.0, chaos: 0.5, soak: 20.0 });
        assert!(read("--help").unwrap().is_none());
        for (line, complaint) in [
            ("nonsense", "no such step or option: nonsense"),
            ("--since", "wants a value"),
            ("--since HEAD", "goes with --long"),
            ("--long --since HEAD e2e", "without names of steps"),
            ("--soak-minutes soon", "not soon"),
        ] {
            let error = read(line).unwrap_err().to_string();
            assert!(error.contains(complaint), "{line}: {error}");
        }
    }
}
