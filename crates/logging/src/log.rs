//! The log: standard error, a file or the journal; as text or as JSON, one line per event. A panic
//! is a log line too.

use std::env;
use std::io::{self, IsTerminal};
use std::panic;
use std::sync::OnceLock;
use std::thread;

use anyhow::{Context, anyhow};
use ops::WrongConfig;
use tracing_subscriber::filter::{FilterExt as _, Targets, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry, reload};

use crate::access::ACCESS;
use crate::fields::EscapedFields;
use crate::file::LogFile;
use crate::journal::{self, Native, Prefixed};
use crate::levels::levels;
use crate::quota::Quota;

/// The target of audit events: accepted and refused log-ins, granted and refused rights, and
/// changes at run time.
pub const AUDIT: &str = "audit";

/// The environment variable with a level or with directives: `debug`, `info,link=trace`.
const VARIABLE: &str = "TUNNEL_LOG";

/// The form of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Text, with colours on a terminal.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
    /// Entries of systemd's journal, with fields (`journalctl LINK=3`).
    Journald,
}

/// The settings of the log, from flags, environment and file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A level or directives.
    pub filter: String,
    /// The form of the lines.
    pub format: Format,
    /// Whether a flag or the environment variable sets the filter, so that the configuration file
    /// does not count.
    pub fixed: bool,
}

/// The filter of this process, and the fixed filter, if the configuration file does not count.
static FILTER: OnceLock<(Handle, Option<String>)> = OnceLock::new();

type Handle = reload::Handle<Targets, Registry>;

impl Settings {
    /// Chooses the settings. The order of precedence is the flag, `-v`, `TUNNEL_LOG`, the file, and
    /// then `info`. `verbose` is the number of `-v`.
    ///
    /// # Errors
    /// `TUNNEL_LOG` is not a valid filter. `tracing` would accept some of these texts and silence
    /// the log.
    pub fn choose(
        flag: Option<&str>,
        verbose: u8,
        file: Option<&str>,
        format: Option<Format>,
    ) -> Result<Self, WrongConfig> {
        let variable = env::var(VARIABLE).ok();
        let variable = variable.as_deref();
        let chosen = checked(filter(flag, verbose, variable, file))?;
        let fixed = is_fixed(flag, verbose, variable);
        Ok(Self { filter: chosen, format: format.unwrap_or_default(), fixed })
    }
}

fn filter<'a>(
    flag: Option<&'a str>,
    verbose: u8,
    variable: Option<&'a str>,
    file: Option<&'a str>,
) -> &'a str {
    let verbose = match verbose {
        0 => None,
        1 => Some("debug"),
        _ => Some("trace"),
    };
    flag.or(verbose).or_else(|| variable.filter(|v| !v.is_empty())).or(file).unwrap_or("info")
}

/// Whether a flag or the variable has precedence over the file.
fn is_fixed(flag: Option<&str>, verbose: u8, variable: Option<&str>) -> bool {
    !filter(flag, verbose, variable, Some("")).is_empty()
}

/// Checks the filter. An error can only come from the variable, because the flag and the file were
/// checked when they were read.
fn checked(filter: &str) -> Result<String, WrongConfig> {
    levels(filter).map_err(|problem| WrongConfig::one(format!("{VARIABLE}: {problem}")))
}

/// The log file, if the log goes to a file.
static FILE: OnceLock<LogFile> = OnceLock::new();

/// Starts logging to a file, to standard error or to the journal. Must be called once per process.
///
/// # Errors
/// The settings conflict, the file or the journal cannot be opened, or logging was started before.
pub fn start(settings: &Settings, file: Option<&config::LogFile>) -> anyhow::Result<()> {
    let (layer, filter) = match file {
        // The decoder refuses a configuration file that says both, so the format comes from the
        // flag.
        Some(_) if settings.format == Format::Journald => {
            let text = "--log-format journald: `log.file` says that the log is a file (hint: it cannot \
                        be both; take `log.file` out, or the flag away)";
            return Err(WrongConfig::one(text.to_owned()).into());
        }
        None => layer(settings, io::stderr)?,
        Some(file) => {
            let open = LogFile::open(file.clone())
                .with_context(|| format!("log.file {}", file.path.display()))?;
            let file = FILE.get_or_init(|| open);
            layer(settings, move || file)?
        }
    };
    let subscriber = Registry::default().with(layer);
    tracing::subscriber::set_global_default(subscriber).context("logging was started twice")?;
    // `set` cannot fail here, because logging was not started before.
    let fixed = settings.fixed.then(|| settings.filter.clone());
    let _ = FILTER.set((filter, fixed));
    log_panics();
    Ok(())
}

/// The filter that is in force; `None` if logging was not started.
pub fn current() -> Option<String> {
    let (handle, _) = FILTER.get()?;
    handle.with_current(ToString::to_string).ok()
}

/// Sets the filter. `filter` must have passed [`levels`]. A reload restores the filter of the
/// configuration file.
pub fn change(filter: &str) {
    if let Some((handle, _)) = FILTER.get() {
        set(handle, filter);
    }
}

/// Applies the level of a reloaded configuration, unless a flag or the variable sets the filter.
/// Reopens the log file if another file has its name now.
pub fn follow(level: &str) {
    if let Some(Err(error)) = FILE.get().map(LogFile::follow) {
        tracing::error!(
            "the log stays in its former file, because the new file cannot be opened: {error}"
        );
    }
    if let Some((handle, fixed)) = FILTER.get() {
        set(handle, fixed.as_deref().unwrap_or(level));
    }
}

fn set(handle: &Handle, filter: &str) {
    let Ok(filter) = filter.parse::<Targets>() else { return };
    // An error means that the subscriber is gone, which cannot happen: it lives as long as the
    // process.
    let _ = handle.modify(|current| *current = filter);
}

type Layered = (Box<dyn Layer<Registry> + Send + Sync>, Handle);

fn layer<W>(settings: &Settings, to: W) -> anyhow::Result<Layered>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    // `Targets` is enough. `EnvFilter` can filter by fields, and would add a regular expression
    // engine to the binary.
    let filter = settings
        .filter
        .parse::<Targets>()
        .with_context(|| format!("log level `{}` (try `info` or `debug`)", settings.filter))?;
    let (filter, handle) = reload::Layer::new(filter);
    // The access log has a switch of its own, and its lines cost no quota.
    let is_access = filter_fn(|metadata| metadata.target() == ACCESS);
    let filter = filter.and(Quota::new()).or(is_access);
    let layer = tracing_subscriber::fmt::layer().with_writer(to);
    let layer = match settings.format {
        Format::Journald => native()?.with_filter(filter).boxed(),
        Format::Json => layer.json().flatten_event(true).with_filter(filter).boxed(),
        Format::Text => {
            let layer = layer.fmt_fields(EscapedFields::default());
            let layer = layer.with_target(false).with_ansi(colours());
            if FILE.get().is_none() && journal::is_stderr() {
                // The journal adds its own time to each line.
                layer.without_time().map_event_format(Prefixed).with_filter(filter).boxed()
            } else {
                layer.with_filter(filter).boxed()
            }
        }
    };
    Ok((layer, handle))
}

fn native() -> anyhow::Result<Native> {
    let at = journal::SOCKET;
    Native::connect(at.as_ref()).map_err(|why| {
        anyhow!(
            "log.format journald: no journal at {at}: {why} (hint: it takes a running \
             systemd-journald, in a container its socket; `text` and `json` take nothing)"
        )
    })
}

/// Whether to use colours: only on a terminal, and not if `NO_COLOR` is set (no-color.org).
fn colours() -> bool {
    FILE.get().is_none()
        && io::stderr().is_terminal()
        && env::var_os("NO_COLOR").is_none_or(|no| no.is_empty())
}

/// Logs each panic in the log's own format: a panic ends only one task, so its cause must be in the
/// log.
fn log_panics() {
    panic::set_hook(Box::new(|panic| {
        let thread = thread::current();
        let what = panic
            .payload()
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| panic.payload().downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no text");
        tracing::error!(
            thread = thread.name().unwrap_or("unnamed"),
            at = panic.location().map(tracing::field::display),
            "defect, please report: {what}"
        );
    }));
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn the_nearest_wish_wins() {
        assert_eq!(filter(Some("warn"), 2, Some("trace"), Some("error")), "warn");
        assert_eq!(filter(None, 1, Some("trace"), Some("error")), "debug");
        assert_eq!(filter(None, 0, Some("trace"), Some("error")), "trace");
        assert_eq!(filter(None, 0, Some(""), Some("error")), "error");
        assert_eq!(filter(None, 0, None, None), "info");
    }

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn settings(filter: &str, format: Format) -> Settings {
        Settings { filter: filter.into(), format, fixed: false }
    }

    fn logged(format: Format, events: impl FnOnce(&Handle)) -> String {
        let sink = Sink::default();
        let to = sink.clone();
        let (layer, filter) = layer(&settings("info", format), move || to.clone()).unwrap();
        tracing::subscriber::with_default(Registry::default().with(layer), || events(&filter));
        String::from_utf8(sink.0.lock().unwrap().clone()).unwrap()
    }

    fn two_events(_: &Handle) {
        tracing::debug!("not this");
        tracing::info!(link = 3, "up");
    }

    #[test]
    fn the_level_can_be_another_while_it_runs() {
        let text = logged(Format::Text, |filter| {
            set(filter, "debug");
            tracing::debug!("this");
            set(filter, "warn");
            tracing::info!("not this");
            set(filter, "no=level");
            tracing::warn!("as before");
        });
        assert!(text.contains("this") && text.contains("as before"), "{text}");
        assert!(!text.contains("not this"), "{text}");
    }

    #[test]
    fn the_file_has_a_say_where_nothing_stronger_has() {
        assert!(!is_fixed(None, 0, None) && !is_fixed(None, 0, Some("")));
        assert!(is_fixed(Some("info"), 0, None) && is_fixed(None, 1, None));
        assert!(is_fixed(None, 0, Some("info")));
    }

    #[test]
    fn a_variable_that_names_no_level_is_refused_unless_a_flag_wins() {
        let said = checked(filter(None, 0, Some("inof"), None)).unwrap_err().to_string();
        assert!(said.starts_with("TUNNEL_LOG: `inof` is no level: error, warn, info"), "{said}");
        checked(filter(Some("info"), 0, Some("inof"), None)).unwrap();
        checked(filter(None, 0, Some("warn,link=trace"), None)).unwrap();
    }

    #[test]
    fn json_is_one_flat_object_per_line() {
        let text = logged(Format::Json, two_events);
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&line["message"], &line["link"]), (&"up".into(), &3.into()));
        assert_eq!(line["level"], "INFO");
    }

    #[test]
    fn text_is_plain_without_colour_off_a_terminal() {
        let text = logged(Format::Text, two_events);
        assert!(text.contains("INFO up link=3"), "{text}");
        assert!(!text.contains('\u{1b}') && text.lines().count() == 1, "{text}");
    }

    #[test]
    fn a_peer_forges_no_line_and_commands_no_terminal() {
        let hostile = "x\n2026-01-01 INFO client connected\u{1b}[2J\u{202e}";
        let events = |_: &Handle| {
            tracing::info!(service = hostile, "published at {hostile}");
            tracing::info!(service = ?hostile, why = %hostile, "up");
        };
        let text = logged(Format::Text, events);
        assert_eq!(text.lines().count(), 2, "{text}");
        let is_bad = |c: char| c != '\n' && proto::text::is_forbidden(c);
        assert!(!text.contains(is_bad) && text.contains("\\u{1b}[2J"), "{text}");
        let json = logged(Format::Json, events);
        let line: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
        assert_eq!(line["service"], hostile, "JSON has its own escapes");
    }

    #[test]
    fn a_wrong_level_is_named() {
        let error = layer(&settings("loud=very", Format::Text), io::stderr).err().unwrap();
        assert!(format!("{error:#}").contains("loud=very"));
    }
}
