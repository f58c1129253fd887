//! Decodes values that several sections have: ranges, lower bounds of sizes, durations, counts,
//! names, paths, switches, code points of DSCP.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use proto::Dscp;
use proto::greeting::Name;

use crate::key_table::KeyTable;
use crate::section::Section;
use crate::{BadValue, Size, Span};

/// Largest number of workers and connections. A larger number is a typing error.
const COUNT_MAX: u32 = 1024;

/// Parses a value within a range.
pub(crate) fn ranged<T>(text: &str, range: RangeInclusive<T>) -> Result<T, BadValue>
where
    T: FromStr<Err = BadValue> + PartialOrd + Display,
{
    let value: T = text.parse()?;
    if !range.contains(&value) {
        let bad = BadValue::new(format!("`{text}` is out of range"));
        return Err(bad.hint(format!("{} to {}", range.start(), range.end())));
    }
    Ok(value)
}

/// Reads the two ends of a range. The default of the first end is at most the second end.
pub(crate) fn range<K: KeyTable, T: Copy + Ord + Display>(
    s: &Section<'_>,
    (first, last): (&str, &str),
    read: impl Fn(&str) -> Result<T, BadValue>,
) -> Option<(T, T)> {
    let (min, max) = (s.value(first, &read), s.value(last, &read));
    let usual = |key| read(K::usual(key)).ok();
    let top = max.or_else(|| usual(last))?;
    let is_known = max.is_some() || !s.has(last);
    if let Some(min) = min.filter(|min| is_known && *min > top) {
        let bad = BadValue::new(format!("{min} is more than {} ({top})", s.path(last)));
        s.bad(first, bad);
    }
    Some((min.or_else(|| usual(first).map(|min| min.min(top)))?, top))
}

/// Parses a size with a lower bound.
pub(crate) fn at_least(text: &str, least: Size) -> Result<Size, BadValue> {
    let size: Size = text.parse()?;
    if size < least {
        return Err(
            BadValue::new(format!("`{text}` is too little")).hint(format!("{least} or more"))
        );
    }
    Ok(size)
}

/// Decodes the path of a file or a folder.
pub(crate) fn path(s: &Section<'_>, key: &str) -> Option<PathBuf> {
    s.value(key, path_of)
}

/// Parses the path of a file or a folder.
pub(crate) fn path_of(text: &str) -> Result<PathBuf, BadValue> {
    match text {
        "" => Err(BadValue::new("an empty path")),
        _ => Ok(PathBuf::from(text)),
    }
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

/// Parses `dscp`: a number or a name.
pub(crate) fn dscp(text: &str) -> Result<Dscp, BadValue> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let found = if is_number { text.parse().ok().and_then(Dscp::new) } else { Dscp::of_name(text) };
    found.ok_or_else(|| {
        BadValue::new(format!("`{text}` is no code point of DSCP")).hint(
            "a number from 0 to 63, or EF, VA, LE, DF, CS0 to CS7, AF11 to AF13, …, AF41 to AF43",
        )
    })
}

/// Parses the opposite of `true` or `false`.
pub(crate) fn no_switch(text: &str) -> Result<bool, BadValue> {
    switch(text).map(|is_on| !is_on)
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

/// Decodes a duration greater than 0. `None` after a problem.
pub(crate) fn positive(s: &Section<'_>, key: &str, default: Span) -> Option<Span> {
    if !s.has(key) {
        return Some(default);
    }
    s.value(key, Span::positive)
}
