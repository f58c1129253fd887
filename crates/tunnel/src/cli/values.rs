//! Parsers for values of flags that are more than a word or a number.

use std::time::Duration;

/// The interval between two rounds: 10 ms to 30 s. Shorter intervals would be a flood. With longer
/// intervals, the daemon could close the control connection, which may be idle for 60 s.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    between(text, Duration::from_millis(10), Duration::from_secs(30))
}

pub(super) fn patience(text: &str) -> Result<Duration, String> {
    between(text, Duration::from_millis(10), ops::measure::PATIENCE_MAX)
}

pub(super) fn span(text: &str) -> Result<Duration, String> {
    between(text, Duration::from_secs(1), ops::measure::LONGEST)
}

/// The deadline by which the new process of an upgrade must be ready.
pub(super) fn upgrade_limit(text: &str) -> Result<Duration, String> {
    between(text, Duration::from_secs(1), Duration::from_secs(600))
}

fn between(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    let (least, most) = (least.as_secs_f64(), most.as_secs_f64());
    let seconds = text.parse().ok().filter(|seconds| (least..=most).contains(seconds));
    let seconds = seconds.ok_or_else(|| format!("seconds from {least} to {most}"))?;
    Ok(Duration::from_secs_f64(seconds))
}

/// A class of statuses, such as `4xx`.
pub(super) fn class(text: &str) -> Result<u8, String> {
    let class = text.strip_suffix("xx").and_then(|class| class.parse().ok());
    let class = class.filter(|class| (1..=5).contains(class));
    class.ok_or_else(|| "1xx, 2xx, 3xx, 4xx or 5xx".to_owned())
}

/// The address of a server. A host without a scheme gets the port of the listener later.
pub(super) fn server(text: &str) -> Result<String, String> {
    match config::server_url(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(bad) => Err(bad.line()),
    }
}

/// A target of `tunnel connect`, in its long form.
pub(super) fn target(text: &str) -> Result<String, String> {
    let target = ops::connect::target(text).map_err(|why| why.to_string())?;
    Ok(target.to_string())
}

/// Two addresses separated by `=`, or a single proxy. The decoder of the configuration checks each
/// address.
pub(super) fn forward(text: &str) -> Result<String, String> {
    if text.contains('=') || ["socks5://", "http-proxy://"].iter().any(|s| text.starts_with(s)) {
        return Ok(text.to_owned());
    }
    Err("two addresses with `=` in between, like 5203=5201 or \
         tcp://127.0.0.1:5203=tcp://10.0.0.5:5201, or a proxy: socks5://127.0.0.1:1080"
        .to_owned())
}

/// Longest lifetime of a certificate, in years. A certificate cannot be revoked except by replacing
/// its authority, so no certificate is valid forever.
const YEARS_MAX: u8 = 30;

pub(super) fn years(text: &str) -> Result<u8, String> {
    match text.parse() {
        Ok(years @ 1..=YEARS_MAX) => Ok(years),
        _ => Err(format!("a certificate lasts 1 to {YEARS_MAX} whole years")),
    }
}
