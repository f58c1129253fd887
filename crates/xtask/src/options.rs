//! Parses `--name VALUE` on the command line, the only form of options that the commands need.

use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context as _, Result, bail};

/// Reads pairs of names and values; the last value of a name wins. `set` stores a value and returns
/// whether it knows the name.
pub fn parse(
    mut args: impl Iterator<Item = String>,
    mut set: impl FnMut(&str, &str) -> Result<bool>,
) -> Result<()> {
    while let Some(name) = args.next() {
        let value = args.next().with_context(|| format!("{name} wants a value"))?;
        if !set(&name, &value)? {
            bail!("no such option: {name}");
        }
    }
    Ok(())
}

/// Runs the command if its options were parsed. The exit status is 2 for wrong usage and 1 for a
/// failure; the last line has the reason.
pub fn then(parsed: Result<()>, command: impl FnOnce() -> Result<()>) -> ExitCode {
    if let Err(error) = parsed {
        eprintln!("xtask: {error:#}");
        return ExitCode::from(2);
    }
    match command() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("FAILED: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Parses a number of this type.
pub fn number<T: FromStr>(name: &str, value: &str) -> Result<T> {
    value.parse().ok().with_context(|| format!("{name} wants a number, not {value}"))
}

/// Parses minutes, with fractions: more than zero, at most a week.
pub fn minutes(name: &str, value: &str) -> Result<f64> {
    let minutes: f64 = number(name, value)?;
    if !(minutes > 0.0 && minutes <= 10_080.0) {
        bail!("{name} wants minutes up to a week, not {value}");
    }
    Ok(minutes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<f64> {
        let mut found = 0.0;
        parse(words.iter().map(ToString::to_string), |name, value| {
            if name == "--minutes" {
                found = minutes(name, value)?;
            }
            Ok(name == "--minutes")
        })?;
        Ok(found)
    }

    #[test]
    fn numbers_are_read_and_nonsense_is_named() {
        assert_eq!(read(&["--minutes", "0.5"]).unwrap(), 0.5);
        for (words, complaint) in [
            (&["--minutes"][..], "wants a value"),
            (&["--minutes", "soon"], "not soon"),
            (&["--minutes", "NaN"], "not NaN"),
            (&["--hours", "1"], "no such option"),
        ] {
            let error = read(words).unwrap_err().to_string();
            assert!(error.contains(complaint), "{error}");
        }
    }
}
