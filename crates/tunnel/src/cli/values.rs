//! What a flag's value may be, where it is more than a word or a number.

use std::time::Duration;

use crate::measure;

/// Rounds closer than this are a flood; those farther apart than this are forgotten in between, as
/// the daemon forgets the connection.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    between(text, Duration::from_millis(10), Duration::from_secs(30))
}

pub(super) fn stream_id(text: &str) -> Result<(u64, u32), String> {
    let parse = || -> Option<(u64, u32)> {
        let (link, stream) = text.split_once('/')?;
        Some((link.parse().ok()?, stream.parse().ok()?))
    };
    parse().ok_or_else(|| "two numbers as in the list of `tunnel streams`: 3/17".to_owned())
}

pub(super) fn patience(text: &str) -> Result<Duration, String> {
    between(text, Duration::from_millis(10), measure::PATIENCE_MAX)
}

pub(super) fn span(text: &str) -> Result<Duration, String> {
    between(text, Duration::from_secs(1), measure::LONGEST)
}

fn between(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    let (least, most) = (least.as_secs_f64(), most.as_secs_f64());
    let seconds = text.parse().ok().filter(|seconds| (least..=most).contains(seconds));
    let seconds = seconds.ok_or_else(|| format!("seconds from {least} to {most}"))?;
    Ok(Duration::from_secs_f64(seconds))
}

/// Two addresses; what each may be is the configuration's to say.
pub(super) fn pair(text: &str) -> Result<String, String> {
    let (from, to) = text
        .split_once('=')
        .ok_or("two addresses with `=` in between, like tcp://:10022=tcp://127.0.0.1:22")?;
    for (side, host) in [(from, ":"), (to, "127.0.0.1:")] {
        if !side.contains("://") {
            // A port alone is meant for this machine.
            let host = if side.bytes().all(|b| b.is_ascii_digit()) { host } else { "" };
            return Err(format!("`{side}` needs a scheme in front, like tcp://{host}{side}"));
        }
    }
    Ok(text.to_owned())
}

/// A certificate cannot be called back but by leaving its authority, so none lasts for ever.
const YEARS_MAX: u8 = 30;

pub(super) fn years(text: &str) -> Result<u8, String> {
    match text.parse() {
        Ok(years @ 1..=YEARS_MAX) => Ok(years),
        _ => Err(format!("a certificate lasts 1 to {YEARS_MAX} whole years")),
    }
}

const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// A level, or directives. A word alone that is no level is a directive, too: for the part of that
/// name, which silences all others. Nobody means that.
pub(crate) fn levels(text: &str) -> Result<String, String> {
    for directive in text.split(',') {
        let (part, level) = directive.rsplit_once('=').unwrap_or(("_", directive));
        // Its own parser takes numbers, and nothing at all for `error`.
        if !LEVELS.contains(&level) {
            return Err(format!("`{level}` is no level: {}", LEVELS.join(", ")));
        }
        let is_path = |c: char| c.is_ascii_alphanumeric() || "_:".contains(c);
        if part.is_empty()
            || part.starts_with(|c: char| c.is_ascii_digit() || c == ':')
            || !part.chars().all(is_path)
        {
            return Err(format!("`{part}` is no part of this program, like link or relay::dial"));
        }
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_a_word_of_six_and_may_be_for_a_part() {
        for good in ["info", "off", "info,link=debug", "relay::dial=trace,warn"] {
            assert_eq!(levels(good).as_deref(), Ok(good));
        }
        for bad in
            ["", "INFO", "3", "loud", "link", "info,", "=info", "a b=info", "1=info", "a=b=info"]
        {
            assert!(levels(bad).is_err(), "{bad}");
        }
    }
}
