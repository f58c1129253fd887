//! `cargo xtask test`: steps in a fixed order, the cheap ones first. A step passes, is skipped
//! with a printed reason, or ends the run; where `CI=true` a skip ends the run, too.

mod programs;
mod steps;

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::child::Tally;
use crate::site::Site;
use steps::STEPS;

/// One thing that has to hold.
#[derive(Debug)]
struct Step {
    name: &'static str,
    what: &'static str,
    when: When,
    run: fn(&Site) -> Result<Verdict>,
}

/// In which runs a step is that nobody named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Always,
    /// Not with `--fast`: needs an optimized binary.
    Slow,
    /// Only where `CI=true`: minutes of load.
    Long,
}

/// How a step ended that did not fail.
#[derive(Debug)]
pub(crate) enum Verdict {
    Passed(Tally),
    Skipped(String),
}

/// Runs the steps the arguments select. The last line is cargo's own summary, or, on failure, the
/// name of the step that failed.
pub(crate) fn main(args: impl Iterator<Item = String>) -> ExitCode {
    let start = Instant::now();
    let mut total = Tally::default();
    let chosen = Site::here().and_then(|site| Ok((select(args, site.ci)?, site)));
    let failed = match chosen {
        Err(error) => {
            eprintln!("xtask: {error:#}");
            return ExitCode::from(2);
        }
        Ok((chosen, site)) => run_all(&site, &chosen, &mut total).err(),
    };
    println!(
        "\ntest result: {}. {} passed; {} failed; {} ignored; 0 measured; 0 filtered out; \
         finished in {:.2}s",
        if failed.is_none() { "ok" } else { "FAILED" },
        total.passed,
        u8::from(failed.is_some()),
        total.ignored,
        start.elapsed().as_secs_f64(),
    );
    let Some(step) = failed else { return ExitCode::SUCCESS };
    println!("FAILED: {step}");
    ExitCode::FAILURE
}

/// A line per step, for the help.
pub(crate) fn describe_steps() -> String {
    STEPS.iter().fold(String::new(), |mut text, step| {
        let when = match step.when {
            When::Always => "",
            When::Slow => " (not with --fast)",
            When::Long => " (with CI=true, or named)",
        };
        // Writing into a string cannot fail.
        let _ = writeln!(text, "  {:10} {}{when}", step.name, step.what);
        text
    })
}

fn select(args: impl Iterator<Item = String>, ci: bool) -> Result<Vec<&'static Step>> {
    let (mut fast, mut names) = (false, Vec::new());
    for arg in args {
        if arg == "--fast" {
            fast = true;
        } else if STEPS.iter().any(|step| step.name == arg) {
            names.push(arg);
        } else {
            bail!("no such step or option: {arg}\n\nSteps:\n{}", describe_steps());
        }
    }
    let wanted = |step: &&Step| match step.when {
        _ if !names.is_empty() => names.iter().any(|name| name == step.name),
        When::Always => true,
        When::Slow => !fast,
        When::Long => !fast && ci,
    };
    Ok(STEPS.iter().filter(wanted).collect())
}

/// Adds what passed to `total`. The error is the name of the step that failed; why was printed.
fn run_all(site: &Site, steps: &[&Step], total: &mut Tally) -> Result<(), &'static str> {
    for (number, step) in steps.iter().enumerate() {
        println!("\n=== {}/{} {}: {}", number + 1, steps.len(), step.name, step.what);
        let start = Instant::now();
        let verdict = (step.run)(site);
        let took = start.elapsed().as_secs_f64();
        match verdict {
            Ok(Verdict::Passed(tests)) if site.ci && tests.ignored > 0 => {
                println!(
                    "=== {}: {} tests ignored, CI takes none ({took:.1} s)",
                    step.name, tests.ignored
                );
                return Err(step.name);
            }
            Ok(Verdict::Passed(tests)) => {
                *total += tests;
                total.passed += 1;
                println!("=== {}: ok ({took:.1} s)", step.name);
            }
            Ok(Verdict::Skipped(reason)) => {
                println!("=== {}: SKIP: {reason} ({took:.1} s)", step.name);
                if site.ci {
                    return Err(step.name);
                }
                total.ignored += 1;
            }
            Err(error) => {
                println!("=== {}: {error:#} ({took:.1} s)", step.name);
                return Err(step.name);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn chosen(args: &[&str]) -> Vec<&'static str> {
        let steps = select(args.iter().map(ToString::to_string), false).unwrap();
        steps.iter().map(|step| step.name).collect()
    }

    fn site(ci: bool) -> Site {
        let none = PathBuf::new;
        Site { root: none(), target: none(), tunnel: none(), peers: none(), ci }
    }

    #[test]
    fn named_steps_run_in_their_own_order_and_fast_leaves_the_slow_ones_out() {
        assert_eq!(chosen(&["clippy", "fmt"]), ["fmt", "clippy"]);
        assert!(!chosen(&["--fast"]).contains(&"e2e"));
        assert!(chosen(&[]).contains(&"e2e") && !chosen(&[]).contains(&"chaos"));
        assert_eq!(chosen(&["--fast", "e2e", "chaos"]), ["e2e", "chaos"], "named is wanted");
        let everything = select([].into_iter(), true).unwrap();
        assert_eq!(everything.len(), STEPS.len(), "CI leaves nothing out");
        assert!(select(["nonsense".to_owned()].into_iter(), false).is_err());
    }

    #[test]
    fn a_skip_fails_in_ci_only_and_a_failure_names_its_step() {
        let skip = Step {
            name: "skip",
            what: "",
            when: When::Always,
            run: |_| Ok(Verdict::Skipped("no".into())),
        };
        let fail = Step { name: "fail", what: "", when: When::Always, run: |_| bail!("no") };
        let mut total = Tally::default();
        assert_eq!(run_all(&site(false), &[&skip], &mut total), Ok(()));
        assert_eq!((total.passed, total.ignored), (0, 1));
        assert_eq!(run_all(&site(true), &[&skip], &mut total), Err("skip"));
        assert_eq!(run_all(&site(false), &[&fail, &skip], &mut total), Err("fail"));
    }
}
