//! Parses `--name value` and `--flag` on the command line. Invalid input is refused with the name
//! of the option and its valid values; nothing is guessed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The longest run: an hour. A longer run is a soak, not a measurement.
const SECONDS_MAX: f64 = 3600.0;

/// An error of the command line; the process exits with status 2.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// The options of one command line. A program takes the options that it knows; the remaining
/// options are unknown.
#[derive(Debug, Default)]
pub struct Words(BTreeMap<String, Option<String>>);

impl Words {
    /// Reads the words. A word of `flags` has no value; every other option has a value.
    pub fn read(args: impl IntoIterator<Item = String>, flags: &[&str]) -> Result<Self, Usage> {
        let mut words = BTreeMap::new();
        let mut args = args.into_iter();
        while let Some(name) = args.next() {
            if !name.starts_with("--") {
                return Err(Usage(format!("`{name}` is no option")));
            }
            let value = if flags.contains(&name.as_str()) {
                None
            } else {
                Some(args.next().ok_or_else(|| Usage(format!("{name} wants a value")))?)
            };
            if words.insert(name.clone(), value).is_some() {
                return Err(Usage(format!("{name} is given twice")));
            }
        }
        Ok(Self(words))
    }

    /// Checks that no unknown options remain.
    pub fn finish(self) -> Result<(), Usage> {
        match self.0.into_keys().next() {
            None => Ok(()),
            Some(name) => Err(Usage(format!("no such option: {name}"))),
        }
    }

    /// Takes a flag. Returns whether it is given.
    pub fn flag(&mut self, name: &str) -> bool {
        self.0.remove(name).is_some()
    }

    /// Whether the option is given and not yet taken.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Takes the text of an option, if it is given.
    pub fn text(&mut self, name: &str) -> Option<String> {
        self.0.remove(name).flatten()
    }

    /// Takes an address, which has no default.
    pub fn address(&mut self, name: &str) -> Result<SocketAddr, Usage> {
        let text = self.required(name)?;
        parse_address(name, &text)
    }

    /// Takes an address, if it is given.
    pub fn optional_address(&mut self, name: &str) -> Result<Option<SocketAddr>, Usage> {
        self.text(name).map(|text| parse_address(name, &text)).transpose()
    }

    /// Takes an integer within a range. Without a default, the option is required.
    pub fn number(
        &mut self,
        name: &str,
        range: RangeInclusive<usize>,
        default: Option<usize>,
    ) -> Result<usize, Usage> {
        let text = match (self.text(name), default) {
            (Some(text), _) => text,
            (None, Some(default)) => return Ok(default),
            (None, None) => return Err(Usage(format!("{name} is missing"))),
        };
        text.parse().ok().filter(|n| range.contains(n)).ok_or_else(|| {
            let (least, most) = range.into_inner();
            Usage(format!("{name} wants a number from {least} to {most}, not `{text}`"))
        })
    }

    /// Takes a number of bytes within a range, with an optional suffix KiB or MiB.
    pub fn bytes(
        &mut self,
        name: &str,
        range: RangeInclusive<usize>,
        default: usize,
    ) -> Result<usize, Usage> {
        let Some(text) = self.text(name) else { return Ok(default) };
        parse_bytes(&text).filter(|n| range.contains(n)).ok_or_else(|| {
            let (least, most) = range.into_inner();
            Usage(format!("{name} wants {least} to {most} bytes (512, 64KiB, 1MiB), not `{text}`"))
        })
    }

    /// Takes a duration in seconds, with fractions: more than zero, at most an hour.
    pub fn seconds(&mut self, name: &str, default: Option<f64>) -> Result<Duration, Usage> {
        let wrong = |text: &str| Usage(format!("{name} wants seconds, at most 3600, not `{text}`"));
        let seconds = match (self.text(name), default) {
            (Some(text), _) => text.parse().map_err(|_| wrong(&text))?,
            (None, Some(default)) => default,
            (None, None) => return Err(Usage(format!("{name} is missing"))),
        };
        // NaN is in no range.
        if (1e-3..=SECONDS_MAX).contains(&seconds) {
            Ok(Duration::from_secs_f64(seconds))
        } else {
            Err(wrong(&seconds.to_string()))
        }
    }

    /// Takes one of the given words. Without a default, the option is required.
    pub fn one_of<T: Copy>(
        &mut self,
        name: &str,
        choices: &[(&str, T)],
        default: Option<T>,
    ) -> Result<T, Usage> {
        let text = match (self.text(name), default) {
            (Some(text), _) => text,
            (None, Some(default)) => return Ok(default),
            (None, None) => return Err(Usage(format!("{name} is missing"))),
        };
        choices.iter().find(|choice| choice.0 == text).map(|choice| choice.1).ok_or_else(|| {
            let words: Vec<_> = choices.iter().map(|choice| choice.0).collect();
            Usage(format!("{name} wants {}, not `{text}`", words.join(" or ")))
        })
    }

    fn required(&mut self, name: &str) -> Result<String, Usage> {
        self.text(name).ok_or_else(|| Usage(format!("{name} is missing")))
    }
}

/// Parses an address of digits; names are not resolved.
pub(crate) fn parse_address(name: &str, text: &str) -> Result<SocketAddr, Usage> {
    text.parse()
        .map_err(|_| Usage(format!("{name} wants an address like 127.0.0.1:8080, not `{text}`")))
}

fn parse_bytes(text: &str) -> Option<usize> {
    let units = [("KiB", 1 << 10), ("MiB", 1 << 20)];
    let with_unit = units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)));
    let (digits, unit) = with_unit.unwrap_or((text, 1));
    digits.parse::<usize>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Words {
        Words::read(text.split_whitespace().map(ToOwned::to_owned), &["--http"]).unwrap()
    }

    #[test]
    fn options_are_read_in_any_order() {
        let mut words = words("--write 64KiB --http --target [::1]:80 --seconds 0.5 --streams 4");
        assert_eq!(words.address("--target").unwrap(), "[::1]:80".parse().unwrap());
        assert_eq!(words.number("--streams", 1..=16, None).unwrap(), 4);
        assert_eq!(words.bytes("--write", 1..=1 << 20, 1).unwrap(), 65_536);
        assert_eq!(words.seconds("--seconds", None).unwrap(), Duration::from_millis(500));
        assert!(words.flag("--http"));
        assert_eq!(words.number("--connections", 1..=10, Some(7)).unwrap(), 7);
        assert_eq!(words.one_of("--way", &[("up", 1), ("down", 2)], Some(2)).unwrap(), 2);
        words.finish().unwrap();
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let complaint = |text: &str, read: fn(&mut Words) -> Result<(), Usage>| {
            read(&mut words(text)).unwrap_err().to_string()
        };
        let streams = |words: &mut Words| words.number("--n", 1..=16, None).map(drop);
        assert_eq!(complaint("--n 17", streams), "--n wants a number from 1 to 16, not `17`");
        assert_eq!(complaint("--n -1", streams), "--n wants a number from 1 to 16, not `-1`");
        assert_eq!(complaint("", streams), "--n is missing");
        let seconds = |words: &mut Words| words.seconds("--s", None).map(drop);
        for text in ["--s 0", "--s NaN", "--s -1", "--s 3601", "--s soon", "--s inf"] {
            assert!(complaint(text, seconds).starts_with("--s wants seconds"), "{text}");
        }
        let bytes = |words: &mut Words| words.bytes("--b", 1..=1 << 20, 1).map(drop);
        for text in ["--b 0", "--b 2MiB", "--b 1GiB", "--b KiB", "--b 99999999999999999999KiB"] {
            assert!(complaint(text, bytes).starts_with("--b wants 1 to 1048576 bytes"), "{text}");
        }
        let address = |words: &mut Words| words.address("--a").map(drop);
        assert!(complaint("--a localhost:80", address).contains("an address like"));
        let way = |words: &mut Words| words.one_of("--w", &[("up", ()), ("down", ())], None);
        assert_eq!(complaint("--w side", way), "--w wants up or down, not `side`");
    }

    #[test]
    fn unknown_double_and_halved_options_are_refused() {
        let read = |text: &str| {
            Words::read(text.split_whitespace().map(ToOwned::to_owned), &["--http"])
                .and_then(Words::finish)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(read("--speed 3"), "no such option: --speed");
        assert_eq!(read("--seconds"), "--seconds wants a value");
        assert_eq!(read("--http --http"), "--http is given twice");
        assert_eq!(read("fast"), "`fast` is no option");
    }
}
