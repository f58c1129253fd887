//! Keys that both roles have, and values that both use.

use std::path::{Path, PathBuf};

use super::keys::{LOG, WINDOW};
use super::{Item, Section, unknown};
use crate::model::{Common, KeyPair, LogFormat, LogLevel, Token};
use crate::{BadValue, Secret, Size, Span};

/// Shortest token that can hold 128 bits: 22 characters of Base64.
const TOKEN_MIN: usize = 22;

/// Fewer distinct characters than this are a pattern, not a random text.
const DISTINCT_MIN: usize = 10;

/// Longest token; keeps a file given by mistake from becoming one.
const TOKEN_MAX: usize = 256;

/// Most workers, connections and the like: more is a slip of the finger.
const COUNT_MAX: u32 = 1024;

/// A stream's window smaller than one frame would stall; larger than this is a memory bomb.
const WINDOW_RANGE: (u64, u64) = (16 << 10, 1 << 30);

pub(crate) fn common(s: &Section<'_>) -> Common {
    let window = s.section("window", &WINDOW);
    let window_of = |key, default| {
        let size: Option<Size> = window.as_ref().and_then(|w| w.value(key, window_size));
        size.unwrap_or_else(|| Size::from_bytes(default))
    };
    let (initial, max) = (window_of("initial", 256 << 10), window_of("max", 16 << 20));
    if initial > max
        && let Some(window) = &window
    {
        window.bad("initial", BadValue::new(format!("{initial} is more than window.max ({max})")));
    }
    let log = s.section("log", &LOG);
    let log = log.as_ref();
    Common {
        state_dir: path(s, "state_dir"),
        workers: count(s, "workers"),
        memory_budget: s.parse("memory_budget"),
        window_initial: initial,
        window_max: max,
        keepalive: positive(s, "keepalive", 15_000),
        resume_timeout: span(s, "resume_timeout", 60_000),
        drain_timeout: span(s, "drain_timeout", 120_000),
        log_level: log.and_then(|l| l.value("level", level)).unwrap_or(LogLevel::Info),
        log_format: log.and_then(|l| l.value("format", format)).unwrap_or(LogFormat::Text),
        control: path(s, "control"),
    }
}

fn window_size(text: &str) -> Result<Size, BadValue> {
    let size: Size = text.parse()?;
    let (min, max) = WINDOW_RANGE;
    if !(min..=max).contains(&size.bytes()) {
        return Err(BadValue::new(format!("`{text}` is out of range")).hint("16KiB to 1GiB"));
    }
    Ok(size)
}

fn level(text: &str) -> Result<LogLevel, BadValue> {
    let all = [LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug, LogLevel::Trace];
    let found = all.into_iter().find(|l| l.name() == text);
    found.ok_or_else(|| {
        unknown(&format!("level `{text}`"), text, &["error", "warn", "info", "debug", "trace"])
    })
}

fn format(text: &str) -> Result<LogFormat, BadValue> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err(unknown(&format!("format `{text}`"), text, &["text", "json"])),
    }
}

pub(crate) fn span(s: &Section<'_>, key: &str, default: u64) -> Span {
    s.parse(key).unwrap_or_else(|| Span::from_millis(default))
}

/// A duration that must not be 0.
pub(crate) fn positive(s: &Section<'_>, key: &str, default: u64) -> Span {
    let span = span(s, key, default);
    if span.duration().is_zero() {
        s.bad(key, BadValue::new("must be more than 0"));
    }
    span
}

pub(crate) fn path(s: &Section<'_>, key: &str) -> Option<PathBuf> {
    s.value(key, |text| match text {
        "" => Err(BadValue::new("an empty path")),
        _ => Ok(PathBuf::from(text)),
    })
}

/// A number of at least 1, or `auto`.
pub(crate) fn count(s: &Section<'_>, key: &str) -> Option<std::num::NonZeroUsize> {
    s.value(key, |text| {
        if text == "auto" {
            return Ok(None);
        }
        let digits = text.bytes().all(|b| b.is_ascii_digit());
        let n = text
            .parse()
            .ok()
            .filter(|n: &std::num::NonZeroUsize| digits && n.get() <= COUNT_MAX as usize);
        let bad = || {
            BadValue::new(format!("`{text}` is not a count"))
                .hint(format!("auto or 1 to {COUNT_MAX}"))
        };
        n.map(Some).ok_or_else(bad)
    })?
}

/// A name for logs, metrics and the greeting: short and without surprises.
pub(crate) fn name(text: &str) -> Result<String, BadValue> {
    let ok = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if text.is_empty() || text.len() > 64 || !text.bytes().all(ok) {
        return Err(BadValue::new(format!("`{text}` is not a name"))
            .hint("1 to 64 letters, digits, `-`, `_`, `.`"));
    }
    Ok(text.to_owned())
}

/// `cert` and `key`: both or none.
pub(crate) fn key_pair(s: &Section<'_>) -> Option<KeyPair> {
    match (path(s, "cert"), path(s, "key")) {
        (Some(cert), Some(key)) => Some(KeyPair { cert, key }),
        (Some(_), None) if s.key("key").is_none() => {
            s.bad("cert", BadValue::new("a certificate without its key").hint("add `key:`"));
            None
        }
        (None, Some(_)) if s.key("cert").is_none() => {
            s.bad("key", BadValue::new("a key without its certificate").hint("add `cert:`"));
            None
        }
        _ => None,
    }
}

/// `token` or `token_file`; at most `most` of them.
pub(crate) fn tokens(s: &Section<'_>, most: usize) -> Vec<Token> {
    let hint = "make one with `tunnel generate token`";
    let (inline, files) = (s.key("token"), s.key("token_file"));
    let (key, item) = match (inline, files) {
        (Some(_), Some(_)) => {
            s.bad(
                "token_file",
                BadValue::new("token and token_file together").hint("keep one of them"),
            );
            return Vec::new();
        }
        (Some(item), None) => ("token", item),
        (None, Some(item)) => ("token_file", item),
        (None, None) => {
            s.missing("token", &format!("{hint}, or name a file with `token_file:`"));
            return Vec::new();
        }
    };
    let items = s.cx.one_or_list(&item);
    if items.is_empty() || items.len() > most {
        let wanted = if most == 1 { "exactly one" } else { "one or two (old and new)" };
        s.bad(key, BadValue::new(format!("{} tokens, {wanted} wanted", items.len())));
    }
    items.iter().filter_map(|item| token(s, item, key == "token_file")).collect()
}

fn token(s: &Section<'_>, item: &Item, from_file: bool) -> Option<Token> {
    s.cx.value(item, |text| {
        if !from_file {
            return Ok(Token { secret: check(text)?, file: None });
        }
        let read = (s.cx.sources.read)(Path::new(text))
            .map(Secret::new)
            .map_err(|why| BadValue::new(format!("cannot read {text}: {why}")))?;
        Ok(Token { secret: check(read.reveal().trim_end())?, file: Some(PathBuf::from(text)) })
    })
}

/// The rule for tokens; the text is never repeated in a message.
fn check(text: &str) -> Result<Secret, BadValue> {
    let hint = "make one with `tunnel generate token`";
    if !text.bytes().all(|b| b.is_ascii_graphic()) || text.len() > TOKEN_MAX {
        return Err(BadValue::new(
            "not a token: visible ASCII without blanks, at most 256 characters",
        )
        .hint(hint));
    }
    let distinct: std::collections::BTreeSet<u8> = text.bytes().collect();
    if text.len() < TOKEN_MIN || distinct.len() < DISTINCT_MIN {
        return Err(BadValue::new(format!(
            "the token is too weak: at least {TOKEN_MIN} characters, {DISTINCT_MIN} of them different"
        ))
        .hint(hint));
    }
    Ok(Secret::new(text))
}
