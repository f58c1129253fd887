//! The access log: one line for each visitor that has left. It is the only log at level INFO with
//! visitor addresses, and it is off by default.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use anyhow::Context;
use config::AccessLog;
use ops::term::escaped;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use crate::file::LogFile;

/// The target of the lines.
pub const ACCESS: &str = "access";

/// Whether there is an access log. A stream checks this once, at its start.
static IS_ON: AtomicBool = AtomicBool::new(false);

/// The destination of the access log.
static SINK: RwLock<Option<Sink>> = RwLock::new(None);

#[derive(Debug)]
enum Sink {
    /// The log of the daemon.
    Log,
    /// A file of its own, as JSON or as text.
    File(LogFile, bool),
}

/// A visitor that has left.
#[derive(Clone, Debug)]
pub struct Access<'a> {
    /// The name of the service, or the address of the forward.
    pub service: &'a str,
    /// The client of the service, on a server.
    pub client: Option<&'a str>,
    /// The target, if this side knows it.
    pub target: Option<&'a str>,
    /// The address of the visitor.
    pub visitor: String,
    /// The bytes from the visitor to the target.
    pub bytes_in: u64,
    /// The bytes from the target to the visitor.
    pub bytes_out: u64,
    /// The time from the arrival to the end of the visitor.
    pub duration: Duration,
    /// How the connection ended.
    pub end: String,
}

/// Whether an access log is written.
#[must_use]
pub fn has_access_log() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Starts, redirects or stops the access log. The size and the number of its files are those of the
/// log file, or their defaults. `json`: the format of its own file.
///
/// # Errors
/// The file cannot be opened. The access log is unchanged in this case.
pub fn follow_access(wanted: &AccessLog, json: bool) -> anyhow::Result<()> {
    let place = match wanted {
        AccessLog::Off => None,
        AccessLog::On => Some(Sink::Log),
        AccessLog::File(settings) => {
            let file = LogFile::open(settings.clone())
                .with_context(|| format!("log.access {}", settings.path.display()))?;
            Some(Sink::File(file, json))
        }
    };
    IS_ON.store(place.is_some(), Ordering::Relaxed);
    *SINK.write().unwrap_or_else(PoisonError::into_inner) = place;
    Ok(())
}

/// Writes the line about a visitor that has left.
pub fn access(access: &Access<'_>) {
    let place = SINK.read().unwrap_or_else(PoisonError::into_inner);
    match &*place {
        None => {}
        Some(Sink::Log) => {
            let Access { service, client, target, visitor, bytes_in, bytes_out, end, .. } = access;
            tracing::info!(
                target: ACCESS,
                service, client, target, visitor, bytes_in, bytes_out,
                seconds = seconds(access),
                end,
                "visitor left"
            );
        }
        Some(Sink::File(file, json)) => {
            let line = if *json { json_line(access) } else { text_line(access) };
            // The file reports its own errors, and the line goes to standard error.
            let _ = (&mut &*file).write_all(line.as_bytes());
        }
    }
}

/// Seconds with three decimal places.
fn seconds(access: &Access<'_>) -> f64 {
    (access.duration.as_secs_f64() * 1000.0).round() / 1000.0
}

fn time() -> String {
    let mut text = String::new();
    // Writing to a `String` cannot fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    text
}

fn text_line(access: &Access<'_>) -> String {
    let mut line = format!("{} service={}", time(), escaped(access.service));
    for (name, value) in [("client", access.client), ("target", access.target)] {
        if let Some(value) = value {
            let _ = write!(line, " {name}={}", escaped(value));
        }
    }
    let Access { visitor, bytes_in, bytes_out, end, .. } = access;
    let _ = writeln!(
        line,
        " visitor={visitor} bytes_in={bytes_in} bytes_out={bytes_out} seconds={} end=\"{end}\"",
        seconds(access)
    );
    line
}

fn json_line(access: &Access<'_>) -> String {
    let Access { service, client, target, visitor, bytes_in, bytes_out, end, .. } = access;
    let mut line = serde_json::json!({
        "timestamp": time(), "target": ACCESS, "service": service, "visitor": visitor,
        "bytes_in": bytes_in, "bytes_out": bytes_out, "seconds": seconds(access), "end": end,
    });
    for (name, value) in [("client", client), ("dialled", target)] {
        if let Some(value) = value {
            line[name] = (*value).into();
        }
    }
    format!("{line}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left() -> Access<'static> {
        Access {
            service: "web\n",
            client: Some("home"),
            target: None,
            visitor: "192.0.2.1:4000".to_owned(),
            bytes_in: 78,
            bytes_out: 200,
            duration: Duration::from_micros(1_234_567),
            end: "finished".to_owned(),
        }
    }

    #[test]
    fn a_line_has_all_figures_and_no_control_character() {
        let line = text_line(&left());
        let rest = " service=web\\n client=home visitor=192.0.2.1:4000 bytes_in=78 \
                    bytes_out=200 seconds=1.235 end=\"finished\"\n";
        assert!(line.ends_with(rest) && line.lines().count() == 1, "{line}");
        let line: serde_json::Value = serde_json::from_str(&json_line(&left())).unwrap();
        assert_eq!((&line["client"], &line["seconds"]), (&"home".into(), &1.235.into()));
        assert!(line["timestamp"].as_str().unwrap().starts_with("20"), "{line}");
    }

    #[test]
    fn it_begins_moves_and_ends_with_the_settings() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("access.log");
        let (size, keep) = ("1MiB".parse().unwrap(), 1);
        let file = AccessLog::File(config::LogFile { path: path.clone(), size, keep });
        assert!(!has_access_log());
        access(&left());
        follow_access(&file, false).unwrap();
        assert!(has_access_log());
        access(&left());
        let nowhere = dir.path().join("none/access.log");
        let wrong = AccessLog::File(config::LogFile { path: nowhere, size, keep });
        assert!(follow_access(&wrong, false).is_err() && has_access_log());
        access(&left());
        follow_access(&AccessLog::Off, false).unwrap();
        access(&left());
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 2);
    }
}
