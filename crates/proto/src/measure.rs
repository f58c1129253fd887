//! Measurements whose target is the far end itself, without a socket: `SPEC.md`, section
//! "Measurements".

use std::fmt;
use std::str::FromStr;

use bytes::{Buf, BufMut};

use crate::greeting::Name;

/// The far end of a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Measure {
    /// Returns the bytes that it receives.
    Echo,
    /// Takes bytes. At the end it reports their number and duration.
    Sink,
    /// Sends bytes for a given time. At the end it reports what blocked the sender.
    Source {
        /// The time, in milliseconds.
        millis: u32,
    },
    /// Dials the targets of a service of the far end, and reports the outcome.
    Target {
        /// The name of the service.
        service: Name,
    },
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Echo => f.write_str("echo"),
            Self::Sink => f.write_str("sink"),
            Self::Source { millis } => write!(f, "source {millis}"),
            Self::Target { service } => write!(f, "target {service}"),
        }
    }
}

/// The text is no known measurement, perhaps one of a newer peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such measurement")]
pub struct UnknownMeasure;

impl FromStr for Measure {
    type Err = UnknownMeasure;

    fn from_str(text: &str) -> Result<Self, UnknownMeasure> {
        match text {
            "echo" => Ok(Self::Echo),
            "sink" => Ok(Self::Sink),
            _ => {
                if let Some(service) = text.strip_prefix("target ") {
                    let service = service.parse().map_err(|_| UnknownMeasure)?;
                    return Ok(Self::Target { service });
                }
                let digits = text.strip_prefix("source ").ok_or(UnknownMeasure)?;
                let plain = digits.bytes().all(|b| b.is_ascii_digit());
                let millis = digits.parse().ok().filter(|_| plain).ok_or(UnknownMeasure)?;
                Ok(Self::Source { millis })
            }
        }
    }
}

/// Bytes of a [`Tally`] on the wire.
pub const TALLY: usize = 44;

/// The counters of one end of a measurement. A sink or source sends them as its last bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Payload bytes that a sink took, or a source sent.
    pub bytes: u64,
    /// Microseconds from the first to the last payload byte.
    pub micros: u64,
    /// Number of samples of the sender's state, evenly spaced.
    pub looks: u32,
    /// Samples in which the sender was blocked by credit.
    pub credit: u32,
    /// Samples in which the sender was blocked by the carrier: frames were queued for it.
    pub carrier: u32,
    /// Samples in which the sender was blocked by the memory budget.
    pub memory: u32,
    /// Maximum bytes in flight while the sender was blocked by credit: the window.
    pub window: u64,
    /// The share of time in which the thread ran or waited for a processor, in thousandths;
    /// `u32::MAX` if unknown.
    pub busy: u32,
}

impl Tally {
    /// Encodes the fields in order, as big-endian integers.
    #[must_use]
    pub fn encode(&self) -> [u8; TALLY] {
        let mut out = [0; TALLY];
        let mut at = &mut out[..];
        at.put_u64(self.bytes);
        at.put_u64(self.micros);
        at.put_u32(self.looks);
        at.put_u32(self.credit);
        at.put_u32(self.carrier);
        at.put_u32(self.memory);
        at.put_u64(self.window);
        at.put_u32(self.busy);
        out
    }

    /// Decodes a tally; every input is valid.
    #[must_use]
    pub fn decode(bytes: &[u8; TALLY]) -> Self {
        let mut at = &bytes[..];
        // Fields are evaluated in the order in which they are written here.
        Self {
            bytes: at.get_u64(),
            micros: at.get_u64(),
            looks: at.get_u32(),
            credit: at.get_u32(),
            carrier: at.get_u32(),
            memory: at.get_u32(),
            window: at.get_u64(),
            busy: at.get_u32(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_read() {
        let target = Measure::Target { service: Name::new("web").unwrap() };
        for measure in [Measure::Echo, Measure::Sink, Measure::Source { millis: 5000 }, target] {
            assert_eq!(measure.to_string().parse(), Ok(measure));
        }
        for text in ["", "Echo", "source", "source ", "source -1", "source +1", "source 4294967296"]
        {
            assert_eq!(text.parse::<Measure>(), Err(UnknownMeasure), "{text}");
        }
        let tally = Tally {
            bytes: 1,
            micros: 2,
            looks: 3,
            credit: 4,
            carrier: 5,
            memory: 6,
            window: 7,
            busy: 8,
        };
        assert_eq!(Tally::decode(&tally.encode()), tally);
    }
}
