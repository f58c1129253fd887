//! The properties of the path between the ends, as options of the command line.

use std::time::Duration;

use anyhow::{Result, ensure};
use testkit::netem::{Burst, Weather};

use xtask::options::number;

/// A path with the same properties in both directions.
#[derive(Clone, Debug)]
pub(super) struct Path {
    /// Round-trip time in ms; each direction gets half of it.
    pub(super) rtt: f64,
    /// The largest random addition to the delay in each direction, in ms; the order is kept.
    pub(super) jitter: f64,
    /// Percentage of packets lost in each direction.
    pub(super) loss: f64,
    /// Losses come in runs of this number of packets on average. `None`: each packet independently.
    pub(super) burst: Option<f64>,
    /// Percentage of packets held back by up to half a round trip.
    pub(super) reorder: f64,
    /// Percentage of packets that arrive twice.
    pub(super) duplicate: f64,
    /// Mbit/s of IP packets, headers included. `None`: as fast as this machine can.
    pub(super) rate: Option<f64>,
    /// The queue in front of the bottleneck, in ms at the bottleneck's rate; further packets are
    /// dropped.
    pub(super) queue: f64,
    /// Largest packet in bytes.
    pub(super) mtu: u16,
    /// The seed of the losses: the same seed loses the same packets.
    pub(super) seed: u64,
    /// Congestion control of TCP at both ends.
    pub(super) congestion: String,
}

impl Default for Path {
    fn default() -> Self {
        Self {
            rtt: 0.0,
            jitter: 0.0,
            loss: 0.0,
            burst: None,
            reorder: 0.0,
            duplicate: 0.0,
            rate: None,
            queue: 100.0,
            mtu: 1500,
            seed: 1,
            congestion: "cubic".to_owned(),
        }
    }
}

/// Lines of the help on the options that [`Path::set`] reads.
pub(super) const HELP: &str = "
The path, of run and, but for --rtt and --loss, of all measurements:
  --rtt MS --jitter MS    round-trip time [0]; up to so much more each way, in order [0]
  --loss % --burst N      lost each way [0]; in runs of N packets on average [each for itself]
  --reorder % --duplicate %   held back by up to half the rtt [0]; arriving twice [0]
  --rate MBIT --queue MS  bottleneck each way [none] and what may wait there [100 ms of its rate]
  --mtu N --seed S        bytes, 576-65535 [1500]; the same seed loses the same packets [1]
  --congestion NAME       of TCP at both ends [cubic]
";

impl Path {
    /// Stores an option. Returns `false` if the option is not about a path.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<bool> {
        let within = |most: f64| {
            let number: f64 = number(name, value)?;
            ensure!((0.0..=most).contains(&number), "{name} is from 0 to {most}, not {value}");
            Ok(number)
        };
        match name {
            "--rtt" => self.rtt = within(10_000.0)?,
            "--jitter" => self.jitter = within(10_000.0)?,
            "--loss" => self.loss = within(99.0)?,
            "--burst" => self.burst = Some(within(1000.0)?),
            "--reorder" => self.reorder = within(100.0)?,
            "--duplicate" => self.duplicate = within(100.0)?,
            "--rate" => self.rate = Some(within(100_000.0)?).filter(|rate| *rate > 0.0),
            "--queue" => self.queue = within(10_000.0)?,
            "--mtu" => {
                self.mtu = number(name, value)?;
                ensure!(self.mtu >= 576, "--mtu is from 576 to 65535, not {value}");
            }
            "--seed" => self.seed = number(name, value)?,
            "--congestion" => self.congestion = value.to_owned(),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The weather of one direction.
    pub(super) fn weather(&self) -> Weather {
        let ms = |ms: f64| Duration::from_secs_f64(ms / 1000.0);
        let loss = self.loss / 100.0;
        let rate = self.rate.map(|megabits| (megabits * 125_000.0) as u64);
        let queue = rate.map_or(0.0, |rate| rate as f64 * self.queue / 1000.0);
        Weather {
            delay: ms(self.rtt / 2.0),
            jitter: ms(self.jitter),
            loss: if self.burst.is_some() { 0.0 } else { loss },
            burst: self.burst.map(|packets| Burst::runs(loss, packets)),
            duplicate: self.duplicate / 100.0,
            reorder: self.reorder / 100.0,
            rate,
            queue: queue as usize,
        }
    }

    /// A path with the same ends and no delay, no loss, no bottleneck.
    pub(super) fn without_trouble(&self) -> Self {
        Self {
            mtu: self.mtu,
            seed: self.seed,
            congestion: self.congestion.clone(),
            ..Self::default()
        }
    }

    /// The path in words.
    pub(super) fn describe(&self) -> String {
        let mut words = format!("rtt {} ms", self.rtt);
        let mut more = |value: f64, text: String| {
            if value > 0.0 {
                words += &text;
            }
        };
        more(self.jitter, format!(", jitter {} ms", self.jitter));
        more(self.loss, format!(", loss {} %", self.loss));
        let burst = self.burst.unwrap_or(0.0);
        more(burst, format!(" in runs of {burst}"));
        more(self.reorder, format!(", reorder {} %", self.reorder));
        more(self.duplicate, format!(", duplicate {} %", self.duplicate));
        let rate = self.rate.unwrap_or(0.0);
        more(rate, format!(", {rate} Mbit/s with a queue of {} ms", self.queue));
        format!("{words}, mtu {}, {}, seed {}", self.mtu, self.congestion, self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_one_direction_of_a_path() {
        let mut path = Path::default();
        for (name, value) in
            [("--rtt", "100"), ("--loss", "5"), ("--rate", "1000"), ("--queue", "50")]
        {
            assert!(path.set(name, value).unwrap());
        }
        let weather = path.weather();
        assert_eq!(weather.delay, Duration::from_millis(50));
        assert_eq!((weather.rate, weather.queue), (Some(125_000_000), 6_250_000));
        assert_eq!((weather.loss, weather.burst), (0.05, None));
        assert!(path.set("--burst", "4").unwrap());
        let burst = path.weather().burst.unwrap();
        assert_eq!((path.weather().loss, burst.leave), (0.0, 0.25));
    }

    #[test]
    fn nonsense_is_refused_and_other_options_are_left() {
        let mut path = Path::default();
        for (name, value) in [
            ("--loss", "100"),
            ("--rtt", "-1"),
            ("--rtt", "NaN"),
            ("--mtu", "100"),
            ("--mtu", "1e9"),
        ] {
            assert!(path.set(name, value).is_err(), "{name} {value}");
        }
        assert!(!path.set("--right", "iperf3 -s").unwrap());
    }
}
