//! A moment in UTC, as in `until: 2026-12-01T18:00:00Z` (RFC 3339 section 5.6 with the offset `Z`
//! and whole seconds).

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::BadValue;

const DAY: u64 = 86_400;

/// The end of the year 9999, which is the last with four digits.
const LAST: u64 = 253_402_300_799;

/// Whole seconds since the start of 1970 in UTC, to the end of 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

impl Moment {
    /// The moment, truncated to the second. A clock before 1970 counts as the start of 1970.
    #[must_use]
    pub fn of(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(since.as_secs().min(LAST))
    }

    /// The moment after `time`. A fraction of a second is rounded up.
    #[must_use]
    pub fn after(self, time: Duration) -> Self {
        let seconds = time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0));
        Self(self.0.saturating_add(seconds).min(LAST))
    }

    /// The time from `now` to this moment; zero for a moment in the past.
    #[must_use]
    pub fn since(self, now: SystemTime) -> Duration {
        (UNIX_EPOCH + Duration::from_secs(self.0)).duration_since(now).unwrap_or_default()
    }
}

impl FromStr for Moment {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        read(text).ok_or_else(|| {
            BadValue::new(format!("`{text}` is no time"))
                .hint("a time is in UTC and has seconds: 2026-12-01T18:00:00Z")
        })
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut days, second) = (self.0 / DAY, self.0 % DAY);
        let mut year = 1970;
        while days >= days_of(year) {
            days -= days_of(year);
            year += 1;
        }
        let mut month = 1;
        while days >= days_in(year, month) {
            days -= days_in(year, month);
            month += 1;
        }
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", days + 1)
    }
}

fn read(text: &str) -> Option<Moment> {
    let bytes = text.as_bytes();
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':'), (19, b'Z')];
    if bytes.len() != 20 || marks.iter().any(|(at, mark)| bytes[*at] != *mark) {
        return None;
    }
    let number = |from: usize, to: usize| -> Option<u64> {
        let digits = bytes.get(from..to)?;
        digits.iter().try_fold(0, |n, b| b.is_ascii_digit().then(|| n * 10 + u64::from(b - b'0')))
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let is_date = year >= 1970 && (1..=12).contains(&month);
    if !is_date || !(1..=days_in(year, month)).contains(&day) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let days = (1970..year).map(days_of).sum::<u64>();
    let days = days + (1..month).map(|month| days_in(year, month)).sum::<u64>() + day - 1;
    Some(Moment(days * DAY + hour * 3600 + minute * 60 + second))
}

const fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400)
}

const fn days_of(year: u64) -> u64 {
    if is_leap(year) { 366 } else { 365 }
}

const fn days_in(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_moments_are_read_and_shown() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T23:59:59Z", 951_868_799),
            ("2026-12-01T18:00:00Z", 1_796_148_000),
            ("9999-12-31T23:59:59Z", LAST),
        ] {
            assert_eq!(text.parse(), Ok(Moment(seconds)), "{text}");
            assert_eq!(Moment(seconds).to_string(), text);
        }
        for bad in [
            "",
            "1h",
            "2026-12-01",
            "2026-12-01T18:00:00",
            "2026-12-01T18:00:00+01:00",
            "2026-02-29T18:00:00Z",
            "2026-13-01T18:00:00Z",
            "2026-12-01T24:00:00Z",
            "1969-12-31T23:59:59Z",
            "+026-12-01T18:00:00Z",
            "2026-12-01T18:00:0\u{e9}",
        ] {
            assert!(bad.parse::<Moment>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_time_after_a_moment_is_never_shorter_than_asked() {
        let now = Moment(10);
        assert_eq!(now.after(Duration::from_millis(1)), Moment(11));
        assert_eq!(now.after(Duration::MAX), Moment(LAST));
        let clock = UNIX_EPOCH + Duration::from_millis(10_500);
        assert_eq!(Moment::of(clock), now);
        assert_eq!(Moment(12).since(clock), Duration::from_millis(1500));
        assert_eq!(now.since(clock), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn a_shown_moment_reads_back(seconds in 0..=LAST) {
            let moment = Moment(seconds);
            prop_assert_eq!(moment.to_string().parse(), Ok(moment));
        }
    }
}
