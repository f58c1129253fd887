//! What a flag's value may be, where it is more than a word or a number.

use std::time::Duration;

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
    between(text, Duration::from_millis(10), ops::measure::PATIENCE_MAX)
}

pub(super) fn span(text: &str) -> Result<Duration, String> {
    between(text, Duration::from_secs(1), ops::measure::LONGEST)
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
