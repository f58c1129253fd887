//! The log: stderr or a file, for people or as JSON, one line per event, or the journal. Panics are
//! log lines too.

use std::env;
use std::io::{self, IsTerminal};
use std::panic;
use std::sync::OnceLock;
use std::thread;

use anyhow::{Context, anyhow};
use ops::WrongConfig;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry, reload};

use crate::file::LogFile;
use crate::journal::{self, Native, Prefixed};
use crate::levels::levels;

/// Target of what an auditor reads: who came in and who did not, what it may have and may not, and
/// what was changed while we run.
pub const AUDIT: &str = "audit";

/// Environment variable with a level or with directives: `debug`, `info,link=trace`.
const VARIABLE: &str = "TUNNEL_LOG";

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people; coloured on a terminal.
    #[default]
    Human,
    /// One JSON object per line.
    Json,
    /// Entries of systemd's journal, with fields (`journalctl LINK=3`).
    Journald,
}

/// What to log, put together from flags, environment and file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A level or directives.
    pub filter: String,
    /// How lines look.
    pub format: Format,
    /// The file has no say: a flag or the variable has.
    pub fixed: bool,
}

/// The filter of this process, and what it is whatever the file says.
static FILTER: OnceLock<(Handle, Option<String>)> = OnceLock::new();

type Handle = reload::Handle<Targets, Registry>;

impl Settings {
    /// The flag wins over `TUNNEL_LOG`, that over the file, that over `info`. `verbose` counts
    /// `-v`.
    ///
    /// # Errors
    /// The variable names no level: taken at its word it would silence the log.
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

/// Whether something is stronger than the file, whatever that says.
fn is_fixed(flag: Option<&str>, verbose: u8, variable: Option<&str>) -> bool {
    !filter(flag, verbose, variable, Some("")).is_empty()
}

/// What is wrong here stands in the variable: flag and file were looked at where they came in.
fn checked(filter: &str) -> Result<String, WrongConfig> {
    levels(filter).map_err(|problem| WrongConfig::one(format!("{VARIABLE}: {problem}")))
}

/// The file that the log goes to, if it is one.
static FILE: OnceLock<LogFile> = OnceLock::new();

/// Starts logging, to a file, to standard error or to the journal. Once per process.
pub fn start(settings: &Settings, file: Option<&config::LogFile>) -> anyhow::Result<()> {
    let (layer, filter) = match file {
        // A file that says both was refused.
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
    // Not set before, as logging was not started before.
    let fixed = settings.fixed.then(|| settings.filter.clone());
    let _ = FILTER.set((filter, fixed));
    log_panics();
    Ok(())
}

/// What is logged at the moment; `None` where logging was not started.
pub fn current() -> Option<String> {
    let (handle, _) = FILTER.get()?;
    handle.with_current(ToString::to_string).ok()
}

/// Logs this from now on: a level or directives that were looked at. A reload brings back what the
/// file says.
pub fn change(filter: &str) {
    if let Some((handle, _)) = FILTER.get() {
        set(handle, filter);
    }
}

/// The configuration asks for this level from now on; a flag or the variable is stronger. A log
/// that is a file goes on in the one that has its name now.
pub fn follow(level: &str) {
    if let Some(Err(error)) = FILE.get().map(LogFile::follow) {
        tracing::error!("the log goes on in the file of before: {error}");
    }
    if let Some((handle, fixed)) = FILTER.get() {
        set(handle, fixed.as_deref().unwrap_or(level));
    }
}

fn set(handle: &Handle, filter: &str) {
    let Ok(filter) = filter.parse::<Targets>() else { return };
    // Fails only when the subscriber is gone, and it is the process's.
    let _ = handle.modify(|current| *current = filter);
}

type Layered = (Box<dyn Layer<Registry> + Send + Sync>, Handle);

fn layer<W>(settings: &Settings, to: W) -> anyhow::Result<Layered>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    // Targets, not EnvFilter: filtering by fields would cost the binary a regular expression
    // engine.
    let filter = settings
        .filter
        .parse::<Targets>()
        .with_context(|| format!("log level `{}` (try `info` or `debug`)", settings.filter))?;
    let (filter, handle) = reload::Layer::new(filter);
    let layer = tracing_subscriber::fmt::layer().with_writer(to);
    let layer = match settings.format {
        Format::Journald => native()?.with_filter(filter).boxed(),
        Format::Json => layer.json().flatten_event(true).with_filter(filter).boxed(),
        Format::Human => {
            let layer = layer.with_target(false).with_ansi(colours());
            if FILE.get().is_none() && journal::is_stderr() {
                // It has a time of its own for each line.
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

/// Colours are for terminals, and for those who have not said no (no-color.org).
fn colours() -> bool {
    FILE.get().is_none()
        && io::stderr().is_terminal()
        && env::var_os("NO_COLOR").is_none_or(|no| no.is_empty())
}

/// A panic ends one task; what it was must be found in the log, in the log's own format.
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
        let text = logged(Format::Human, |filter| {
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
    fn human_is_plain_text_without_colour_off_a_terminal() {
        let text = logged(Format::Human, two_events);
        assert!(text.contains("INFO up link=3"), "{text}");
        assert!(!text.contains('\u{1b}') && text.lines().count() == 1, "{text}");
    }

    #[test]
    fn a_wrong_level_is_named() {
        let error = layer(&settings("loud=very", Format::Human), io::stderr).err().unwrap();
        assert!(format!("{error:#}").contains("loud=very"));
    }
}
