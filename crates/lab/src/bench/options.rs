//! The options of `cargo xtask bench`.

use anyhow::{Result, bail, ensure};

use super::case::{CASES, Case, DIRECT};
use super::network;
use xtask::options;

/// The selection of cases and systems, and the settings of a run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(super) rounds: u32,
    /// Seconds of one load in one round.
    pub(super) seconds: f64,
    pub(super) cases: Vec<&'static Case>,
    /// Names of the systems, `direct` first. Systems that are not installed are left out later.
    pub(super) systems: Vec<&'static str>,
    /// TCP's congestion control for all programs of the run, or [`network::HOST`].
    pub(super) congestion: String,
    /// Compares the figures with the floors.
    pub(super) check: bool,
    /// Fails when a figure is missing.
    pub(super) complete: bool,
    /// Keeps the results apart from the results of a full run.
    pub(super) quick: bool,
}

/// A median of fewer rounds says little on a shared machine.
const ROUNDS: u32 = 7;

/// Long enough that a 10 ms tick of processor time is a third of a percent.
const SECONDS: f64 = 3.0;

/// The cases of `--quick`: every load program runs at least once.
const QUICK_CASES: [&str; 5] =
    ["http-100", "bulk-up", "bulk-down", "connections", "echo-beside-bulk"];
const QUICK_SYSTEMS: [&str; 4] = [DIRECT, "tunnel-tcp", "tunnel-tls", "haproxy-2hop"];

impl Options {
    /// One round of one second: it shows that everything works, and its figures mean nothing.
    pub(crate) fn quick(all: &[&'static str]) -> Self {
        Self {
            rounds: 1,
            seconds: 1.0,
            cases: CASES.iter().filter(|case| QUICK_CASES.contains(&case.name)).collect(),
            systems: all.iter().copied().filter(|name| QUICK_SYSTEMS.contains(name)).collect(),
            congestion: network::DEFAULT.to_owned(),
            check: false,
            complete: false,
            quick: true,
        }
    }

    /// Reads the command line. `all` are the names of all systems, `direct` first.
    pub(crate) fn read(args: impl Iterator<Item = String>, all: &[&'static str]) -> Result<Self> {
        let is_flag = |word: &String| ["--quick", "--check", "--complete"].contains(&word.as_str());
        let (flags, rest): (Vec<_>, Vec<_>) = args.partition(is_flag);
        let given = |flag: &str| flags.iter().any(|given| given == flag);
        let mut read = if given("--quick") {
            Self::quick(all)
        } else {
            Self {
                rounds: ROUNDS,
                seconds: SECONDS,
                cases: CASES.iter().collect(),
                systems: all.to_vec(),
                congestion: network::DEFAULT.to_owned(),
                check: false,
                complete: false,
                quick: false,
            }
        };
        read.check = given("--check");
        read.complete = given("--complete");
        options::parse(rest.into_iter(), |name, value| {
            match name {
                "--rounds" => {
                    read.rounds = options::number(name, value)?;
                    ensure!((1..=1000).contains(&read.rounds), "{name} wants 1 to 1000");
                }
                "--seconds" => {
                    read.seconds = options::number(name, value)?;
                    ensure!((0.1..=600.0).contains(&read.seconds), "{name} wants 0.1 to 600");
                }
                "--congestion" => value.clone_into(&mut read.congestion),
                "--only" => {
                    let names: Vec<_> = CASES.iter().map(|case| case.name).collect();
                    let chosen = choose(value, &names, "case")?;
                    read.cases = CASES.iter().filter(|case| chosen.contains(&case.name)).collect();
                }
                "--systems" => {
                    let chosen = choose(value, all, "system")?;
                    // The other systems are measured against `direct`.
                    let wanted = |name: &&str| *name == DIRECT || chosen.contains(name);
                    read.systems = all.iter().copied().filter(wanted).collect();
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(read)
    }
}

/// Parses names separated by commas. Each name must exist.
fn choose<'a>(value: &'a str, all: &[&'static str], what: &str) -> Result<Vec<&'a str>> {
    let chosen: Vec<_> = value.split(',').collect();
    if let Some(unknown) = chosen.iter().find(|name| !all.contains(name)) {
        bail!("there is no {what} {unknown}; there are {}", all.join(", "));
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [&str; 4] = ["direct", "tunnel-tcp", "tunnel-tls", "rathole-tcp"];

    fn read(line: &str) -> Result<Options> {
        Options::read(line.split_whitespace().map(str::to_owned), &ALL)
    }

    fn cases(options: &Options) -> Vec<&str> {
        options.cases.iter().map(|case| case.name).collect()
    }

    #[test]
    fn everything_runs_unless_less_is_wanted_and_direct_always_does() {
        let all = read("").unwrap();
        assert_eq!((all.rounds, all.cases.len(), all.systems.len()), (7, CASES.len(), 4));
        assert!(!all.check && !all.quick);
        let some = read("--systems rathole-tcp,tunnel-tcp --only bulk-up,http-1 --check").unwrap();
        assert_eq!(some.systems, ["direct", "tunnel-tcp", "rathole-tcp"]);
        assert_eq!(cases(&some), ["http-1", "bulk-up"]);
        assert!(some.check);
    }

    #[test]
    fn quick_is_a_default_that_other_options_change() {
        let quick = read("--seconds 2 --quick --only http-100").unwrap();
        assert_eq!((quick.rounds, quick.seconds), (1, 2.0));
        assert_eq!(quick.systems, ["direct", "tunnel-tcp", "tunnel-tls"]);
        assert_eq!(cases(&quick), ["http-100"]);
        assert_eq!(cases(&read("--quick").unwrap()).len(), QUICK_CASES.len());
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for (line, complaint) in [
            ("--only http-99", "no case http-99; there are http-1, "),
            ("--systems pigeon", "no system pigeon"),
            ("--systems", "wants a value"),
            ("--rounds 0", "1 to 1000"),
            ("--seconds NaN", "0.1 to 600"),
            ("--fast", "--fast"),
            ("--speed 1", "no such option"),
        ] {
            let error = read(line).unwrap_err().to_string();
            assert!(error.contains(complaint), "{line}: {error}");
        }
    }
}
