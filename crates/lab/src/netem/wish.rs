//! The command line of `cargo xtask netem`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use super::cell::MATRIX_RATE;
use super::choice;
use super::matrix::Plan;
use super::path::Path;
use super::shell::Shell;
use super::two_paths;
use xtask::options;

/// The text for `cargo xtask help`.
pub(crate) const HELP: &str = "\
cargo xtask netem [OPTION…]          one stream straight and through the tunnel, over emulated paths;
                                     the tables, also in target/netem/
cargo xtask netem case [OPTION…]     only: 100 ms, 1 Gbit/s, one stream; what it reaches within 5 s
cargo xtask netem run [OPTION…] [--right COMMAND]… -- COMMAND…
                                     a command at the left end of a path, others at the right one;
                                     NETEM_LEFT, NETEM_RIGHT are their addresses, and $NETEM_AT_RIGHT
                                     before a command takes it there
cargo xtask netem help               options and their defaults
";

/// The text for `cargo xtask netem help`, between [`HELP`] and the options that [`Path`] reads.
pub(super) const OPTIONS: &str = "
  --quick                 fewer and shorter: under a minute
  --check                 exit code 1 when a floor is missed
  --requests              the latency of requests at fixed times instead of the rate of a stream
  --visits                the first byte of visitors of private and public services, and the time
                          until two clients have a direct path; --seconds: rounds
  --paths                 a client with two paths of 50 Mbit/s: both at once, a lost path, a move
  --choice                a page and a download by `choose: measured`, and by each transport alone
  --rtt MS,… --loss %,…   instead of 20,60,150,300 and 0,0.1,1,5,10,20
  --systems NAME,…        direct,tunnel-tcp,tunnel-tls; or tunnel-ws, tunnel-wss, tunnel-quic,
                          tunnel-kcp, tunnel-peer-direct, tunnel-peer-webrtc, kcptun
  --seconds N             each measurement [5]
  --binary FILE           measured instead of a new static binary
  --minutes N             of run: its end [60]
";

/// The options without a value.
const FLAGS: [&str; 6] = ["--quick", "--check", "--requests", "--visits", "--paths", "--choice"];

/// The parsed command line.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) path: Path,
    pub(super) job: Job,
    /// The binary to measure. `None`: it is built.
    pub(super) binary: Option<PathBuf>,
    minutes: f64,
}

#[derive(Debug)]
pub(super) enum Job {
    Shell(Shell),
    Matrix(Plan),
}

impl Wish {
    pub(super) fn parse(words: &[String]) -> Result<Self> {
        match words.split_first() {
            Some((first, rest)) if first == "run" => Self::parse_shell(rest),
            Some((first, rest)) if first == "case" => Self::parse_matrix(rest, true),
            _ => Self::parse_matrix(words, false),
        }
    }

    /// The time limit of the whole command.
    pub(super) fn limit(&self) -> Duration {
        match &self.job {
            Job::Shell(_) => Duration::from_secs_f64(self.minutes * 60.0),
            Job::Matrix(plan) if plan.choice => choice::limit(plan),
            Job::Matrix(plan) if plan.paths => two_paths::limit(plan),
            Job::Matrix(plan) => plan.limit(),
        }
    }

    fn parse_shell(words: &[String]) -> Result<Self> {
        let (mut path, mut minutes, mut right) = (Path::default(), 60.0, Vec::new());
        let (words, command) = match words.iter().position(|word| word == "--") {
            Some(at) => (&words[..at], &words[at + 1..]),
            None => (words, &[][..]),
        };
        options::parse(words.iter().cloned(), |name, value| {
            match name {
                "--right" => right.push(value.to_owned()),
                "--minutes" => minutes = options::minutes(name, value)?,
                _ => return path.set(name, value),
            }
            Ok(true)
        })?;
        ensure!(!command.is_empty(), "run wants a command after --");
        let job = Job::Shell(Shell { right, command: command.to_vec() });
        Ok(Self { path, job, binary: None, minutes })
    }

    fn parse_matrix(words: &[String], only_case: bool) -> Result<Self> {
        let flag = |name: &str| words.iter().any(|word| word == name);
        let mut plan = Plan::new(flag("--quick"), only_case);
        plan.check = flag("--check");
        plan.requests = flag("--requests");
        plan.visits = flag("--visits");
        plan.paths = flag("--paths");
        plan.choice = flag("--choice");
        let rate = if plan.paths { two_paths::RATE } else { MATRIX_RATE };
        let mut path = Path { rate: Some(rate), ..Path::default() };
        let mut binary = None;
        let is_flag = |word: &String| FLAGS.contains(&word.as_str());
        let pairs = words.iter().filter(|word| !is_flag(word)).cloned();
        options::parse(pairs, |name, value| {
            match name {
                "--rtt" => plan.rtts = list(name, value, &mut path)?,
                "--loss" => plan.losses = list(name, value, &mut path)?,
                "--systems" => plan.choose(value)?,
                "--seconds" => plan.set_seconds(options::number(name, value)?)?,
                "--binary" => binary = Some(PathBuf::from(value)),
                _ => return path.set(name, value),
            }
            Ok(true)
        })?;
        Ok(Self { path, job: Job::Matrix(plan), binary, minutes: 0.0 })
    }
}

/// Numbers separated by commas. Each must be valid as an option of the path.
fn list(name: &str, value: &str, path: &mut Path) -> Result<Vec<f64>> {
    let numbers = value.split(',').map(|part| {
        path.set(name, part)?;
        options::number(name, part)
    });
    let numbers: Vec<f64> = numbers.collect::<Result<_>>()?;
    if numbers.len() > 20 {
        bail!("{name}: twenty are enough");
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Wish> {
        Wish::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_command_stays_as_it_is_and_options_stand_before_it() {
        let wish = parse("run --rtt 20 --right iperf3 -- ping --rtt").unwrap();
        let Job::Shell(shell) = wish.job else { panic!("not a shell") };
        assert_eq!(
            (shell.right, shell.command),
            (vec!["iperf3".into()], vec!["ping".into(), "--rtt".into()])
        );
        assert_eq!(wish.path.rtt, 20.0);
        for line in ["run --rtt 20", "run --", "run --nonsense 1 -- true"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_matrix_is_made_of_lists() {
        let wish = parse("--check --rtt 20,100 --loss 0.5 --rate 50").unwrap();
        let Job::Matrix(plan) = wish.job else { panic!("not a matrix") };
        assert_eq!((plan.rtts, plan.losses, plan.check), (vec![20.0, 100.0], vec![0.5], true));
        assert_eq!(wish.path.rate, Some(50.0));
        for line in ["--rtt 20,", "--loss 0,100", "--systems nonsense", "--seconds 0"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn every_measurement_is_bounded_in_time() {
        let limit = |line| parse(line).unwrap().limit();
        assert!(limit("case") < limit("--quick"));
        assert!(limit("--quick") < limit(""));
        assert!(limit("run --minutes 2 -- true") == Duration::from_secs(120));
    }
}
