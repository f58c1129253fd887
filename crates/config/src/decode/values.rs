//! Decodes values that several sections have: times, counts, names, files, HTTP header fields.

use std::collections::BTreeSet;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::rc::Rc;
use std::str::FromStr;

use proto::greeting::Name;

use super::{Item, Section, secrecy};
use crate::keys::Table;
use proto::{Bounds, Dscp, Limits};

use crate::model::{Field, FlowLimits, KeyPair};
use crate::yaml::Kind;
use crate::{BadValue, Rate, Secret, Span};

/// Largest number of workers and connections. A larger number is a typing error.
const COUNT_MAX: u32 = 1024;

/// Decodes a value, or a list of values, without those that have a problem.
pub(crate) fn entries<T: FromStr<Err = BadValue>>(s: &Section<'_>, key: &str) -> Vec<T> {
    let items = s.key(key).map(|item| s.cx.one_or_list(&item)).unwrap_or_default();
    items.iter().filter_map(|item| s.cx.value(item, str::parse)).collect()
}

/// Decodes a duration; `default` is in milliseconds.
pub(crate) fn span(s: &Section<'_>, key: &str, default: u64) -> Span {
    s.parse(key).unwrap_or_else(|| Span::from_millis(default))
}

/// Decodes a duration greater than 0; `default` is in milliseconds. `None` after a problem.
pub(crate) fn positive(s: &Section<'_>, key: &str, default: u64) -> Option<Span> {
    positive_or(s, key, Span::from_millis(default))
}

/// As [`positive`], with another form of the default.
pub(crate) fn positive_or(s: &Section<'_>, key: &str, default: Span) -> Option<Span> {
    if s.key(key).is_none() {
        return Some(default);
    }
    s.value(key, |text| match text.parse::<Span>()? {
        span if span.duration().is_zero() => Err(BadValue::new("must be more than 0")),
        span => Ok(span),
    })
}

/// Parses a limit: a number of at least 1.
pub(super) fn limit(text: &str, what: &str) -> Result<NonZeroU32, BadValue> {
    let bad = |_| BadValue::new(format!("`{text}` is not a number of {what}"));
    text.parse::<NonZeroU32>().map_err(|why| bad(why).hint("1 or more"))
}

/// Decodes the limits of streams in a `limits` section. `streams` is the key of the largest number
/// of streams; `each` are the keys of `source` and of `stream`.
pub(super) fn limits(s: &Section<'_>, streams: &str, each: [&Table; 2]) -> Limits {
    let [source, stream] = each;
    let bounds = |s: &Section<'_>, streams: &str| Bounds {
        streams: s.value(streams, |text| limit(text, streams)),
        new_per_second: s.value("new_per_second", |text| limit(text, "streams")),
        ..rates(s)
    };
    // `flow_limits` opens the section as well, and reports its problems.
    let of_source = s.key("source").and_then(|item| Section::quiet(s.cx, item));
    let has_flows = source.keys.contains(&"flows");
    let of_source = if has_flows { of_source } else { s.section("source", source) };
    Limits {
        all: bounds(s, streams),
        source: of_source.map(|own| bounds(&own, "streams")).unwrap_or_default(),
        stream: s.section("stream", stream).map(|own| rates(&own)).unwrap_or_default(),
    }
}

/// Decodes `up` and `down`.
fn rates(s: &Section<'_>) -> Bounds {
    let rate = |key| s.value(key, rate);
    Bounds { up: rate("up"), down: rate("down"), ..Bounds::default() }
}

fn rate(text: &str) -> Result<NonZeroU64, BadValue> {
    let bytes = text.parse::<Rate>()?.bytes();
    NonZeroU64::new(bytes).ok_or_else(|| {
        BadValue::new("a rate of 0 lets no byte pass").hint("remove the key for no limit")
    })
}

/// Decodes the limits of flows of a `limits` section, whose `source` has the keys of `source`.
pub(super) fn flow_limits(s: &Section<'_>, source: &Table) -> FlowLimits {
    let flows = |s: &Section<'_>| s.value("flows", |text| limit(text, "flows"));
    FlowLimits { most: flows(s), per_source: s.section("source", source).and_then(|s| flows(&s)) }
}

/// Decodes the path of a file or a folder.
pub(crate) fn path(s: &Section<'_>, key: &str) -> Option<PathBuf> {
    s.value(key, |text| match text {
        "" => Err(BadValue::new("an empty path")),
        _ => Ok(PathBuf::from(text)),
    })
}

/// Decodes a number from 1 to 1024, or `auto` (`None`).
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

/// Decodes `dscp`: a number or a name. An absent key means best effort.
pub(crate) fn dscp(s: &Section<'_>) -> Dscp {
    let read = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let found =
            if is_number { text.parse().ok().and_then(Dscp::new) } else { Dscp::of_name(text) };
        found.ok_or_else(|| {
            BadValue::new(format!("`{text}` is no code point of DSCP")).hint(
                "a number from 0 to 63, or EF, VA, LE, DF, CS0 to CS7, AF11 to AF13, …, AF41 to AF43",
            )
        })
    };
    s.value("dscp", read).unwrap_or_default()
}

/// Parses `true` or `false`.
pub(crate) fn switch(text: &str) -> Result<bool, BadValue> {
    text.parse().map_err(|_| BadValue::new(format!("`{text}` is neither true nor false")))
}

/// Parses a name by the rules of the greeting.
pub(crate) fn name(text: &str) -> Result<String, BadValue> {
    Name::new(text)
        .map(|name| name.as_str().to_owned())
        .map_err(|rule| BadValue::new(format!("`{text}` is not a name")).hint(rule.to_string()))
}

/// Decodes `cert` and `key`, which must be given together.
pub(crate) fn key_pair(s: &Section<'_>) -> Option<KeyPair> {
    match (path(s, "cert"), path(s, "key")) {
        (Some(cert), Some(key)) => Some(KeyPair { cert, key }),
        (Some(_), None) if s.key("key").is_none() => {
            let bad = BadValue::new("a certificate without its key");
            s.bad("cert", bad.hint("add `key:` or `--key`"));
            None
        }
        (None, Some(_)) if s.key("cert").is_none() => {
            let bad = BadValue::new("a key without its certificate");
            s.bad("key", bad.hint("add `cert:` or `--cert`"));
            None
        }
        _ => None,
    }
}

/// Decodes `headers`: a map of names to values.
pub(super) fn fields(s: &Section<'_>) -> Vec<Field> {
    let Some(item) = s.key("headers") else { return Vec::new() };
    let Kind::Map(entries) = &item.node.kind else {
        let _: Option<()> = s.cx.wrong_type(&item, "a map of names to values", "something else");
        return Vec::new();
    };
    let mut seen = BTreeSet::new();
    let mut fields = Vec::new();
    for entry in entries {
        let name = entry.key.clone();
        let path = format!("{}.{}", item.path, secrecy::key(&name));
        if !seen.insert(name.to_ascii_lowercase()) {
            let bad = BadValue::new("the field is given twice").hint("remove one of them");
            s.cx.problem(entry.at, &path, bad);
            continue;
        }
        let item = Item { node: Rc::clone(&entry.value), path };
        if let Some(value) = s.cx.text(&item) {
            fields.push(Field { name, value: Secret::new(value) });
        }
    }
    fields
}
