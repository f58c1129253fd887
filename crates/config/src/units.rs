//! Durations (`10s`), sizes (`16MiB`) and rates (`50MiB/s`): integers with a unit. Other forms are
//! refused, and so is an overflow.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::BadValue;

const MILLIS: &[(&str, u64)] =
    &[("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// The longest accepted duration: 10 years. A longer duration is a mistaken unit, and the limit
/// keeps sums of durations far from overflow.
const SPAN_MAX: u64 = 10 * 366 * 86_400 * 1000;

const BYTES: &[(&str, u64)] = &[
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1000),
    ("B", 1),
];

/// A duration in milliseconds, 0 to 10 years: `250ms`, `10s`, `1m`, `2h`, `30d`; `0` needs no unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(u64);

impl Span {
    /// Makes a duration from milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(if millis > SPAN_MAX { SPAN_MAX } else { millis })
    }

    /// The duration as the type of the standard library.
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }

    /// Parses a duration greater than 0.
    pub(crate) fn positive(text: &str) -> Result<Self, BadValue> {
        match text.parse()? {
            Self(0) => Err(BadValue::new("must be more than 0")),
            span => Ok(span),
        }
    }
}

impl FromStr for Span {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let hint = "a duration is a whole number and a unit: 250ms, 10s, 1m, 2h, 30d";
        match scaled(text, MILLIS, "duration", hint)? {
            n if n > SPAN_MAX => Err(BadValue::new(format!("`{text}` is longer than ten years"))),
            n => Ok(Self(n)),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, self.0, MILLIS)
    }
}

/// A size in bytes: `1GiB`, `16MiB`, `64KiB`, `1GB`, `512B`; `0` needs no unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(u64);

impl Size {
    /// Makes a size from bytes.
    #[must_use]
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The size in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for Size {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        scaled(text, BYTES, "size", "a size is a whole number and a unit: 64KiB, 16MiB, 1GB")
            .map(Self)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, self.0, BYTES)
    }
}

/// A rate in bytes per second: a size and `/s`, such as `50MiB/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(Size);

impl Rate {
    /// Makes a rate from bytes per second.
    #[must_use]
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(Size::from_bytes(bytes))
    }

    /// The rate in bytes per second.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0.bytes()
    }
}

impl FromStr for Rate {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let hint = "a rate is a size per second: 500KB/s, 50MiB/s, 1GB/s (bytes, not bits)";
        let bad = || BadValue::new(format!("`{text}` is not a rate")).hint(hint);
        let size = text.strip_suffix("/s").ok_or_else(bad)?;
        size.parse().map(Self).map_err(|_| bad())
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", self.0)
    }
}

fn scaled(text: &str, units: &[(&str, u64)], what: &str, hint: &str) -> Result<u64, BadValue> {
    if text == "0" {
        return Ok(0);
    }
    let bad = || BadValue::new(format!("`{text}` is not a {what}")).hint(hint);
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit).ok_or_else(bad)?;
    if number.is_empty() {
        return Err(bad());
    }
    let number: Option<u64> = number.parse().ok();
    number
        .and_then(|n| n.checked_mul(*factor))
        .ok_or_else(|| BadValue::new(format!("`{text}` is too large")))
}

fn show(f: &mut fmt::Formatter<'_>, n: u64, units: &[(&str, u64)]) -> fmt::Result {
    match units.iter().find(|(_, factor)| n > 0 && n.is_multiple_of(*factor)) {
        Some((unit, factor)) => write!(f, "{}{unit}", n / factor),
        None => f.write_str("0"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_shown_duration_reads_back(ms in 0..=SPAN_MAX) {
            prop_assert_eq!(Span(ms).to_string().parse(), Ok(Span(ms)));
        }

        #[test]
        fn a_shown_size_reads_back(n: u64) {
            prop_assert_eq!(Size(n).to_string().parse(), Ok(Size(n)));
        }
    }

    #[test]
    fn a_rate_is_a_size_per_second() {
        assert_eq!("50MiB/s".parse(), Ok(Rate::from_bytes(50 << 20)));
        assert_eq!(Rate::from_bytes(50 << 20).to_string(), "50MiB/s");
        for bad in ["", "/s", "50MiB", "50MiB/m", "50Mbit/s", "50/s", "50MiB /s", "1.5MiB/s"] {
            let error = bad.parse::<Rate>().expect_err(bad);
            assert!(error.hint.is_some_and(|hint| hint.contains("50MiB/s")), "{bad}");
        }
    }

    #[test]
    fn units_are_strict_and_overflow_is_refused() {
        for bad in [
            "",
            "s",
            "10",
            "1.5s",
            "-1s",
            "10 s",
            "10S",
            "99999999999999999999s",
            "99999999h",
            "+1s",
        ] {
            assert!(bad.parse::<Span>().is_err(), "{bad}");
        }
        for bad in ["16", "MiB", "16mib", "99999999999999GiB", "1 MiB"] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
    }
}
