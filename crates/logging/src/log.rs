//! The log: standard error, a file or the journal; as text or as JSON, one line per event. A panic
//! is a log line too.

use std::env;
use std::io::{self, IsTerminal};
use std::panic;
use std::path::Path;
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
use crate::levels::{levels, present};
use crate::named::Named;
use crate::quota::Quota;
use crate::recent::Keep;

/// The environment variable with a level or with directives: `debug`, `info,link=trace`.
const VARIABLE: &str = "TUNNEL_LOG";

/// The environment variable with the name of the daemon, which prefixes each of its lines if
/// several daemons share standard error.
pub const NAME_VARIABLE: &str = "TUNNEL_NAME";

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
    /// Whether a flag or the environment variable sets the filter, which overrides the
    /// configuration file.
    pub fixed: bool,
}

/// The filter of this process, and whether it overrides the configuration file.
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

/// Whether a flag or the variable overrides the file.
fn is_fixed(flag: Option<&str>, verbose: u8, variable: Option<&str>) -> bool {
    !filter(flag, verbose, variable, Some("")).is_empty()
}

/// Checks the filter. Only the variable can cause an error, because the flag and the file were
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
        // The decoder refuses a configuration file that sets both, so the format comes from the
        // flag.
        Some(_) if settings.format == Format::Journald => {
            let text = "--log-format journald: `log.file` says that the log is a file (hint: it cannot \
                        be both; take `log.file` out, or the flag away)";
            return Err(WrongConfig::one(text.to_owned()).into());
        }
        None => layer(settings, io::stderr, journal::SOCKET.as_ref())?,
        Some(file) => {
            let open = LogFile::open(file.clone())
                .with_context(|| format!("log.file {}", file.path.display()))?;
            let file = FILE.get_or_init(|| open);
            layer(settings, move || file, journal::SOCKET.as_ref())?
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
    let Ok(filter) = present(filter).parse::<Targets>() else { return };
    // An error means that the subscriber is gone, which cannot happen: it lives as long as the
    // process.
    let _ = handle.modify(|current| *current = filter);
}

type Layered = (Box<dyn Layer<Registry> + Send + Sync>, Handle);

/// The layer that writes the lines: to `to`, or to the journal at `journal`.
fn layer<W>(settings: &Settings, to: W, journal: &Path) -> anyhow::Result<Layered>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    // `Targets` is enough. `EnvFilter` can filter by fields, but would add a regular expression
    // engine to the binary.
    let filter = present(&settings.filter)
        .parse::<Targets>()
        .with_context(|| format!("log level `{}` (try `info` or `debug`)", settings.filter))?;
    let (filter, handle) = reload::Layer::new(filter);
    // The access log has a switch of its own and no level. The quota is outermost: `filter_fn`
    // decides by levels and targets alone, and accepts every single event.
    let is_access = filter_fn(|metadata| metadata.target() == ACCESS);
    let filter = filter.or(is_access).and(Quota::new());
    let layer = tracing_subscriber::fmt::layer().with_writer(to);
    let layer = match settings.format {
        Format::Journald => native(journal)?.and_then(Keep::new()).with_filter(filter).boxed(),
        Format::Json => {
            let layer = layer.json().flatten_event(true);
            let named = |inner| Named { inner, name: name(), is_json: true };
            layer.map_event_format(named).and_then(Keep::new()).with_filter(filter).boxed()
        }
        Format::Text => {
            let layer = layer.fmt_fields(EscapedFields::default());
            let layer = layer.with_target(false).with_ansi(colours());
            if FILE.get().is_none() && journal::is_stderr() {
                // The journal adds its own time to each line.
                let prefixed = |inner| Prefixed(Named { inner, name: name(), is_json: false });
                let layer = layer.without_time().map_event_format(prefixed);
                layer.and_then(Keep::new()).with_filter(filter).boxed()
            } else {
                let named = |inner| Named { inner, name: name(), is_json: false };
                layer.map_event_format(named).and_then(Keep::new()).with_filter(filter).boxed()
            }
        }
    };
    Ok((layer, handle))
}

/// The name of this daemon, if it shares standard error with other daemons. A log file belongs to
/// one daemon.
fn name() -> Option<String> {
    if FILE.get().is_some() {
        return None;
    }
    let name = env::var(NAME_VARIABLE).ok().filter(|name| !name.is_empty());
    name.map(|name| ops::term::escaped(&name).to_string())
}

fn native(at: &Path) -> anyhow::Result<Native> {
    Native::connect(at).map_err(|why| {
        let at = at.display();
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
    use std::net::IpAddr;
    use std::os::unix::net::UnixDatagram;
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_nearest_wish_wins() {
        assert_eq!(filter(Some("warn"), 2, Some("trace"), Some("error")), "warn");
        assert_eq!(filter(None, 1, Some("trace"), Some("error")), "debug");
        assert_eq!(filter(None, 0, Some("trace"), Some("error")), "trace");
        assert_eq!(filter(None, 0, Some(""), Some("error")), "error");
        assert_eq!(filter(None, 0, None, None), "info");
    }

    /// The path of a journal where none listens.
    const NO_JOURNAL: &str = "/nowhere/journal";

    /// Held by tests that cause more lines than a quota: all of them share the count of lines that
    /// were left out.
    static FLOOD: Mutex<()> = Mutex::new(());

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
        let (layer, filter) =
            layer(&settings("info", format), move || to.clone(), NO_JOURNAL.as_ref()).unwrap();
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
        let error = layer(&settings("loud=very", Format::Text), io::stderr, NO_JOURNAL.as_ref())
            .err()
            .unwrap();
        assert!(format!("{error:#}").contains("loud=very"));
    }

    /// A client and a stranger that flood the log, and others beside them.
    fn flood(_: &Handle) {
        crate::tell_left_out();
        for n in 0..5_000 {
            tracing::info!(client = "loud", "noise {n}");
            tracing::warn!(source = %IpAddr::from([192, 0, 2, 1]), client = n, "garbage {n}");
            tracing::info!(target: ACCESS, client = "loud", "visit {n}");
            tracing::debug!(client = "calm", "not this");
        }
        tracing::info!(client = "calm", "calm");
        tracing::warn!(source = %IpAddr::from([198, 51, 100, 1]), "quiet");
        tracing::info!("of the daemon itself");
        crate::tell_left_out();
    }

    /// What every form and output must contain of [`flood`].
    fn check_flood(text: &str) {
        let count = |word: &str| text.lines().filter(|line| line.contains(word)).count();
        // A slow machine refills a few lines meanwhile.
        assert!((1_200..1_300).contains(&count("noise ")), "{}", count("noise "));
        assert!((100..110).contains(&count("garbage ")), "{}", count("garbage "));
        assert_eq!(count("visit "), 5_000, "the access log has no quota");
        let others = ["calm", "quiet", "of the daemon itself", "log lines were left out"];
        assert_eq!(others.map(|word| usize::from(count(word) > 0)), [1; 4]);
        assert_eq!(count("not this"), 0);
    }

    #[test]
    fn a_flooding_peer_writes_a_bounded_number_of_lines_in_every_form() {
        let _alone = FLOOD.lock().unwrap_or_else(PoisonError::into_inner);
        for format in [Format::Text, Format::Json] {
            check_flood(&logged(format, flood));
        }
    }

    #[test]
    fn a_flooding_peer_does_not_fill_a_file() {
        let _alone = FLOOD.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tunnel.log");
        let file = config::LogFile { path: path.clone(), size: "9MiB".parse().unwrap(), keep: 1 };
        let file: &LogFile = Box::leak(Box::new(LogFile::open(file).unwrap()));
        let (layer, filter) =
            layer(&settings("info", Format::Text), move || file, NO_JOURNAL.as_ref()).unwrap();
        tracing::subscriber::with_default(Registry::default().with(layer), || flood(&filter));
        check_flood(&std::fs::read_to_string(path).unwrap());
    }

    #[test]
    fn a_flooding_peer_does_not_fill_the_journal() {
        let _alone = FLOOD.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let journal = UnixDatagram::bind(&path).unwrap();
        journal.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let reader = thread::spawn(move || {
            let mut entries = String::new();
            let mut entry = vec![0; 1 << 16];
            while !entries.contains("MESSAGE=over") {
                let length = journal.recv(&mut entry).unwrap();
                entries.push_str(&String::from_utf8_lossy(&entry[..length]).replace('\n', " "));
                entries.push('\n');
            }
            entries
        });
        let (layer, filter) =
            layer(&settings("info", Format::Journald), io::stderr, &path).unwrap();
        tracing::subscriber::with_default(Registry::default().with(layer), || {
            flood(&filter);
            // The journal does not wait for a slow reader, and loses entries then.
            while !reader.is_finished() {
                tracing::info!("over");
                thread::sleep(Duration::from_millis(10));
            }
        });
        let text = reader.join().unwrap();
        let count = |word: &str| text.lines().filter(|line| line.contains(word)).count();
        assert!((1..1_300).contains(&count("MESSAGE=noise")), "{}", count("MESSAGE=noise"));
        assert!((1..110).contains(&count("MESSAGE=garbage")), "{}", count("MESSAGE=garbage"));
        assert!(count("MESSAGE=visit") > 0);
    }
}
