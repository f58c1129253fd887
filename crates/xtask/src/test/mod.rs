//! `cargo xtask test`: steps in a fixed order, the cheap steps first.
//!
//! The short suite is deterministic; its first failure ends the run. The long steps depend on the
//! speed of the machine or on thousands of sockets; all of them run, whatever becomes of one, and
//! `target/long.json` says how each ended.
//!
//! | module | content |
//! |---|---|
//! | `wish` | the command line |
//! | `steps` | the short suite |
//! | `long` | the long steps |
//! | `suite`, `step` | all steps in their order; one step |
//! | `end_to_end` | the end-to-end cases with a binary |
//! | `tools` | programs and files that several steps use |
//! | `kcp_go` | the step of the workspace `crates/kcp-go` |
//! | `paths` | which steps a change is about |
//! | `beside` | the static build beside steps that wait more than they compute |
//! | `units` | the step that asks systemd about the files of `systemd/` |
//! | `advisories` | the long step that asks the RustSec database |
//! | `conformance` | the long step of the public suites for names: h2spec, testssl.sh, Autobahn |
//! | `miri` | the long step that interprets the crate with `unsafe` |
//! | `programs`, `cases` | test programs side by side; the cases of one program side by side |
//! | `record` | `target/long.json` |
//! | `timings` | the seconds of steps and tests, and the table of `README.md` |

mod advisories;
mod beside;
mod cases;
#[cfg(test)]
mod ci;
mod conformance;
mod end_to_end;
mod kcp_go;
mod long;
mod miri;
mod paths;
mod programs;
mod record;
mod step;
mod steps;
mod suite;
mod timings;
mod tools;
mod units;
mod wish;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;

use record::Record;
use step::{Lengths, Step};
use timings::Steps;
use wish::Wish;
use xtask::child::Tally;
use xtask::site::Site;
use xtask::verdict::Verdict;

/// `cargo xtask table cold|warm`.
pub(crate) fn table(args: impl Iterator<Item = String>) -> ExitCode {
    let short: Vec<_> = suite::all().filter(|step| !step.long).map(|step| step.name).collect();
    timings::main(args, &short)
}

/// Runs the steps that the arguments select. The last line is cargo's own summary, or, on failure,
/// the names of the steps that failed.
pub(crate) fn main(args: impl Iterator<Item = String>) -> ExitCode {
    let start = Instant::now();
    let read = Site::here().and_then(|site| Ok((Wish::read(args)?, site)));
    let (wish, site) = match read {
        Ok((Some(wish), site)) => (wish, site),
        Ok((None, _)) => {
            println!("{}", wish::help());
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("xtask: {error:#}");
            return ExitCode::from(2);
        }
    };
    let (chosen, left_out) = match wish.steps(&site) {
        Ok(steps) => steps,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            return ExitCode::from(2);
        }
    };
    if chosen.is_empty() {
        println!("no long step is about the changed files");
    }
    for (step, paths) in &left_out.steps {
        println!(
            "left out: {step}: since {} nothing has changed below {}",
            left_out.base,
            paths.join(", ")
        );
    }
    if !left_out.steps.is_empty() {
        println!("`cargo xtask test all` runs every short step");
    }
    let mut record = Record::new(&site, &wish);
    let (total, failed) = run_all(&site, &chosen, wish.lengths, &mut record);
    println!(
        "\ntest result: {}. {} passed; {} failed; {} ignored; 0 measured; 0 filtered out; \
         finished in {:.2}s",
        if failed.is_empty() { "ok" } else { "FAILED" },
        total.passed,
        failed.len(),
        total.ignored,
        start.elapsed().as_secs_f64(),
    );
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("FAILED: {}", failed.join(", "));
    ExitCode::FAILURE
}

/// What passed, and the names of the steps that failed; why was printed.
fn run_all(
    site: &Site,
    steps: &[&'static Step],
    lengths: Lengths,
    record: &mut Record,
) -> (Tally, Vec<&'static str>) {
    let (mut total, mut failed) = (Tally::default(), Vec::new());
    let mut ended = Steps::new(site);
    for (number, step) in steps.iter().enumerate() {
        println!("\n=== {}/{} {}: {}", number + 1, steps.len(), step.name, step.what);
        let start = Instant::now();
        let later = &steps[number + 1..];
        let ahead = steps::WAITING.contains(&step.name)
            && later.iter().any(|step| steps::STATIC.contains(&step.name));
        let begun = if ahead { steps::build_ahead(site) } else { Ok(()) };
        let verdict = begun.and_then(|()| (step.run)(site, lengths));
        let took = start.elapsed();
        let (tests, good, said) = judge(site.ci, verdict);
        println!("=== {}: {said} ({:.1} s)", step.name, took.as_secs_f64());
        total += tests;
        ended.add(step.name, took);
        if step.long {
            record.add(step.name, took.as_secs_f64(), &said);
        }
        if !good {
            failed.push(step.name);
            // The long steps do not depend on each other, and each of them takes minutes.
            if !step.long {
                break;
            }
        }
    }
    beside::end();
    ended.print();
    (total, failed)
}

/// What a step adds to the counts, whether the run may go on, and the words for the outcome. Where
/// `CI=true` a skipped step and an ignored test are failures, but not data out of reach.
fn judge(ci: bool, verdict: Result<Verdict>) -> (Tally, bool, String) {
    match verdict {
        Ok(Verdict::Passed(tests)) if ci && tests.ignored > 0 => {
            (tests, false, format!("{} tests ignored, CI allows none", tests.ignored))
        }
        Ok(Verdict::Passed(tests)) => {
            (Tally { passed: tests.passed + 1, ..tests }, true, "ok".to_owned())
        }
        Ok(Verdict::Skipped(reason)) => {
            (Tally { passed: 0, ignored: 1 }, !ci, format!("SKIP: {reason}"))
        }
        Ok(Verdict::OutOfReach(reason)) => {
            (Tally { passed: 0, ignored: 1 }, true, format!("SKIP: {reason}"))
        }
        Err(error) => (Tally::default(), false, format!("{error:#}")),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    fn passed(passed: u64, ignored: u64) -> Result<Verdict> {
        Ok(Verdict::Passed(Tally { passed, ignored }))
    }

    #[test]
    fn a_skip_and_an_ignored_test_fail_in_ci_only() {
        let skip = || Ok(Verdict::Skipped("no".into()));
        let (tests, good, said) = judge(false, skip());
        assert_eq!((tests, good), (Tally { passed: 0, ignored: 1 }, true));
        assert_eq!(said, "SKIP: no");
        assert!(!judge(true, skip()).1);
        for ci in [false, true] {
            let (tests, good, said) = judge(ci, Ok(Verdict::OutOfReach("no network".into())));
            assert_eq!((tests, good), (Tally { passed: 0, ignored: 1 }, true));
            assert_eq!(said, "SKIP: no network");
        }
        assert_eq!(judge(true, passed(3, 0)).0, Tally { passed: 4, ignored: 0 });
        assert!(judge(false, passed(3, 1)).1);
        assert!(!judge(true, passed(3, 1)).1);
    }

    #[test]
    fn a_short_step_that_fails_ends_the_run_and_a_long_step_does_not() {
        const fn step(name: &'static str, long: bool, good: bool) -> Step {
            let run: fn(&Site, Lengths) -> Result<Verdict> =
                if good { |_, _| Ok(Verdict::PASSED) } else { |_, _| bail!("no") };
            Step { name, what: "", long, run }
        }
        static BAD: Step = step("bad", false, false);
        static GOOD: Step = step("good", false, true);
        static LONG_BAD: Step = step("long-bad", true, false);
        static LONG_GOOD: Step = step("long-good", true, true);
        let folder = tempfile::tempdir().unwrap();
        let site = Site {
            root: folder.path().into(),
            target: folder.path().into(),
            tunnel: folder.path().into(),
            glibc: folder.path().into(),
            former: None,
            peers: folder.path().into(),
            ci: false,
        };
        let run = |steps: &[&'static Step]| {
            let mut record = Record::new(&site, &Wish::default());
            run_all(&site, steps, Lengths::default(), &mut record)
        };
        let (total, failed) = run(&[&GOOD, &BAD, &GOOD]);
        assert_eq!((total.passed, failed), (1, vec!["bad"]));
        let (total, failed) = run(&[&LONG_BAD, &LONG_GOOD]);
        assert_eq!((total.passed, failed), (1, vec!["long-bad"]));
        let written = std::fs::read_to_string(folder.path().join("long.json")).unwrap();
        assert!(written.contains("long-bad") && written.contains("long-good"), "{written}");
    }
}
