//! What was measured of the paths to the servers, by network. Pure: the time comes in, in seconds
//! since 1970, because the memory outlives the process.
//!
//! The memory is bounded: the least recently used network and the path without a measurement for
//! the longest time go first.

use std::time::Duration;

use net::gateway::Gateway;
use ops::status::PathFigures;
use serde::{Deserialize, Serialize};

use super::figures::{DOWN, Figures, UP, keeps_window};

/// The largest number of remembered networks. A year of travel has fewer.
const NETWORKS: usize = 32;

/// The largest number of paths of a network: 64 servers with one path each, or 4 servers with 16.
const PATHS: usize = 64;

/// The largest length of a remembered reason in bytes.
const REASON: usize = 160;

/// The version of the format.
const VERSION: u32 = 1;

/// The time for which a failed attempt marks a path as failing. Probes find out earlier that it
/// works again.
const FAILING: u64 = 24 * 60 * 60;

/// The number of packets from which a loss is told: below it the share has no meaning.
const PACKETS: u64 = 200;

/// The number of packets at which the counts are halved, so that the loss is that of the last
/// transfers.
const MANY_PACKETS: u64 = 200_000;

/// A rate loses this share of itself with each busy second that is slower: a half in 44 s of
/// transfers.
const DECAY: u64 = 64;

/// The share that a rate loses with a second of less than a quarter of the rate: the transfer is
/// slow by itself more often than the path.
const SLOW_DECAY: u64 = 1024;

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Memory {
    version: u32,
    networks: Vec<NetworkMemory>,
}

/// The paths of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct NetworkMemory {
    interface: String,
    /// The address of the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gateway: Option<String>,
    /// The hardware address of the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hardware: Option<String>,
    /// When the network was used last.
    used: u64,
    paths: Vec<PathMemory>,
}

/// A value and when it was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Dated {
    value: u64,
    at: u64,
}

/// A failed attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FailedAttempt {
    why: String,
    at: u64,
}

/// What was measured of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct PathMemory {
    server: String,
    path: String,
    /// When anything was measured last.
    at: u64,
    /// The least round trip in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    least_rtt: Option<u64>,
    /// The smoothed round trip in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    rtt: Option<Dated>,
    /// Sent packets, and those of them that were lost.
    packets: u64,
    lost: u64,
    /// The highest rates of the last transfers in bytes per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    up: Option<Dated>,
    #[serde(skip_serializing_if = "Option::is_none")]
    down: Option<Dated>,
    attempts: u64,
    failures: u64,
    /// The last attempt, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    failing: Option<FailedAttempt>,
    /// Whether a trial found another path much faster than this path with its low rate.
    policed: bool,
    /// Processor time of this end in nanoseconds for 1,024 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<Dated>,
}

impl Default for Memory {
    fn default() -> Self {
        Self { version: VERSION, networks: Vec::new() }
    }
}

impl Memory {
    /// Reads the text of the file.
    ///
    /// # Errors
    /// The text has another format, or more than a memory may have.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let memory: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if memory.version != VERSION {
            return Err(format!("its version is {}, and not {VERSION}", memory.version));
        }
        let is_large = |network: &NetworkMemory| network.paths.len() > PATHS;
        if memory.networks.len() > NETWORKS || memory.networks.iter().any(is_large) {
            return Err(format!("it has more than {NETWORKS} networks or {PATHS} paths of one"));
        }
        Ok(memory)
    }

    /// Notes that the network is in use.
    pub(super) fn enter(&mut self, network: &Gateway, now: u64) {
        if let Some(known) = self.networks.iter_mut().find(|known| known.is(network)) {
            known.used = now;
            return;
        }
        if self.networks.len() >= NETWORKS {
            let oldest = self.networks.iter().enumerate().min_by_key(|(_, known)| known.used);
            let oldest = oldest.map(|(nth, _)| nth);
            oldest.map(|nth| self.networks.swap_remove(nth));
        }
        self.networks.push(NetworkMemory::new(network, now));
    }

    /// The paths of a network.
    pub(super) fn of(&self, network: &Gateway) -> Vec<PathMemory> {
        let known = self.networks.iter().find(|known| known.is(network));
        known.map(|known| known.paths.clone()).unwrap_or_default()
    }

    /// Replaces the paths of a network.
    pub(super) fn keep(&mut self, network: &Gateway, paths: &[PathMemory], now: u64) {
        self.enter(network, now);
        if let Some(known) = self.networks.iter_mut().find(|known| known.is(network)) {
            known.paths = paths.to_vec();
        }
    }
}

impl NetworkMemory {
    fn new(network: &Gateway, used: u64) -> Self {
        let router = network.router.as_ref();
        Self {
            interface: network.interface.clone(),
            gateway: router.map(|router| router.address.to_string()),
            hardware: router.map(|router| router.hardware.clone()),
            used,
            paths: Vec::new(),
        }
    }

    fn is(&self, network: &Gateway) -> bool {
        let other = Self::new(network, 0);
        (&self.interface, &self.gateway, &self.hardware)
            == (&other.interface, &other.gateway, &other.hardware)
    }
}

/// The paths of the present network.
#[derive(Clone, Debug, Default)]
pub(super) struct Paths(pub(super) Vec<PathMemory>);

impl Paths {
    /// What is known of a path.
    pub(super) fn find(&self, server: &str, path: &str) -> Option<&PathMemory> {
        self.0.iter().find(|known| known.server == server && known.path == path)
    }

    /// The place for what is measured of a path.
    pub(super) fn place(&mut self, server: &str, path: &str, now: u64) -> Option<&mut PathMemory> {
        let known = self.0.iter().position(|known| known.server == server && known.path == path);
        let nth = known.unwrap_or_else(|| {
            if self.0.len() >= PATHS {
                let oldest = self.0.iter().enumerate().min_by_key(|(_, known)| known.at);
                let oldest = oldest.map(|(nth, _)| nth);
                oldest.map(|nth| self.0.remove(nth));
            }
            let (server, path) = (server.to_owned(), path.to_owned());
            self.0.push(PathMemory { server, path, ..PathMemory::default() });
            self.0.len() - 1
        });
        let place = self.0.get_mut(nth)?;
        place.at = now;
        Some(place)
    }
}

impl PathMemory {
    /// Records a round trip. The smoothed value moves by a quarter of the difference.
    pub(super) fn note_round_trip(&mut self, rtt: Duration, now: u64) {
        let micros = u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX).max(1);
        let value = self.rtt.map_or(micros, |rtt| rtt.value - rtt.value / 4 + micros / 4);
        self.rtt = Some(Dated { value: value.max(1), at: now });
        self.least_rtt = Some(self.least_rtt.map_or(micros, |least| least.min(micros)));
    }

    /// Records the rate of a busy second in this direction, in bytes per second.
    pub(super) fn note_rate(&mut self, direction: usize, rate: u64, now: u64) {
        let place = if direction == UP { &mut self.up } else { &mut self.down };
        let before = place.map_or(0, |known| known.value);
        let decay = if rate < before / 4 { SLOW_DECAY } else { DECAY };
        let value = rate.max(before - before.div_ceil(decay).min(before));
        *place = Some(Dated { value, at: now });
    }

    /// Records the rate that a trial found, in the place of older rates.
    pub(super) fn note_trial(&mut self, direction: usize, rate: u64, now: u64) {
        let place = if direction == UP { &mut self.up } else { &mut self.down };
        *place = Some(Dated { value: rate, at: now });
    }

    /// Records packets that were sent, and how many of them were lost.
    pub(super) fn note_packets(&mut self, sent: u64, lost: u64) {
        self.packets = self.packets.saturating_add(sent);
        self.lost = self.lost.saturating_add(lost).min(self.packets);
        while self.packets > MANY_PACKETS {
            (self.packets, self.lost) = (self.packets / 2, self.lost / 2);
        }
    }

    /// Records an attempt to connect.
    pub(super) fn note_attempt(&mut self, failed: Option<&str>, now: u64) {
        self.attempts = self.attempts.saturating_add(1);
        self.failures = self.failures.saturating_add(failed.is_some().into());
        self.failing = failed.map(|why| {
            let end = why.char_indices().map(|(at, _)| at).take_while(|at| *at <= REASON).last();
            let why = if why.len() <= REASON { why } else { &why[..end.unwrap_or(0)] };
            FailedAttempt { why: why.to_owned(), at: now }
        });
    }

    /// Records whether a trial found the path policed.
    pub(super) const fn note_policed(&mut self, policed: bool) {
        self.policed = policed;
    }

    /// Records the processor time for these bytes.
    pub(super) fn note_cpu(&mut self, time: Duration, bytes: u64, now: u64) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let each = nanos.saturating_mul(1024) / bytes.max(1);
        let value = self.cpu.map_or(each, |cpu| cpu.value - cpu.value / 8 + each / 8);
        self.cpu = Some(Dated { value, at: now });
    }

    /// The share of lost packets in millionths.
    fn loss(&self) -> Option<u64> {
        (self.packets >= PACKETS).then(|| self.lost.saturating_mul(1_000_000) / self.packets)
    }

    /// The figures by which paths are compared.
    pub(super) fn figures(&self, now: u64) -> Figures {
        let age = |at: u64| Duration::from_secs(now.saturating_sub(at));
        let rate = |rate: Option<Dated>| rate.map(|rate| (rate.value, age(rate.at)));
        let mut goodput = [None; 2];
        (goodput[UP], goodput[DOWN]) = (rate(self.up), rate(self.down));
        let recent = |failure: &FailedAttempt| now.saturating_sub(failure.at) < FAILING;
        Figures {
            rtt: self.rtt.map(|rtt| (Duration::from_micros(rtt.value), age(rtt.at))),
            goodput,
            fails: self.failing.as_ref().is_some_and(recent),
            keeps_window: keeps_window(&self.path),
        }
    }

    /// The figures for the status.
    pub(super) fn shown(&self, now: u64) -> PathFigures {
        let age = |at: u64| now.saturating_sub(at);
        PathFigures {
            path: self.path.clone(),
            age_seconds: age(self.at),
            least_rtt_micros: self.least_rtt,
            rtt_micros: self.rtt.map(|rtt| rtt.value),
            loss_millionths: self.loss(),
            up_bytes_per_second: self.up.map(|rate| rate.value),
            down_bytes_per_second: self.down.map(|rate| rate.value),
            goodput_age_seconds: self.up.into_iter().chain(self.down).map(|r| age(r.at)).min(),
            attempts: self.attempts,
            failures: self.failures,
            last_error: self.failing.as_ref().map(|failure| failure.why.clone()),
            policed: self.policed,
            cpu_nanos_per_kib: self.cpu.map(|cpu| cpu.value),
            ..PathFigures::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use net::gateway::Router;

    use super::*;

    const A: &str = "tls://a";

    fn network(nth: u8) -> Gateway {
        let hardware = format!("02:fc:00:00:00:{nth:02x}");
        let router = Router { address: "192.168.0.1".parse().unwrap(), hardware };
        Gateway { interface: "eth0".to_owned(), router: Some(router) }
    }

    #[test]
    fn a_network_is_known_again_by_its_router() {
        let (mut memory, mut paths) = (Memory::default(), Paths::default());
        let place = paths.place("fra", A, 100).unwrap();
        place.note_round_trip(Duration::from_millis(20), 100);
        place.note_rate(UP, 5_000_000, 100);
        place.note_attempt(Some("no answer"), 100);
        memory.keep(&network(1), &paths.0, 100);
        let text = serde_json::to_string(&memory).unwrap();
        let memory = Memory::read(&text).unwrap();
        assert!(memory.of(&network(2)).is_empty());
        let again = Paths(memory.of(&network(1)));
        let figures = again.find("fra", A).unwrap().figures(160);
        let minute = Duration::from_secs(60);
        assert_eq!(figures.rtt, Some((Duration::from_millis(20), minute)));
        assert_eq!(figures.goodput[UP], Some((5_000_000, minute)));
        assert!(figures.fails && figures.goodput[DOWN].is_none());
        assert!(!again.find("fra", A).unwrap().figures(100 + FAILING).fails);
        assert!(again.find("nyc", A).is_none() && again.find("fra", "tls://b").is_none());
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut memory = Memory::default();
        for nth in 0..40 {
            memory.enter(&network(nth), nth.into());
        }
        assert_eq!(memory.networks.len(), NETWORKS);
        assert!(!memory.networks.iter().any(|known| known.is(&network(7))));
        assert!(memory.networks.iter().any(|known| known.is(&network(8))));
        let mut paths = Paths::default();
        for nth in 0..80_u64 {
            let place = paths.place("a", &format!("tls://{nth}"), nth).unwrap();
            place.note_attempt(Some(&"é".repeat(10_000)), nth);
        }
        assert_eq!(paths.0.len(), PATHS);
        assert!(paths.find("a", "tls://15").is_none() && paths.find("a", "tls://16").is_some());
        for nth in 0..40 {
            memory.keep(&network(nth), &paths.0, nth.into());
        }
        let text = serde_json::to_string(&memory).unwrap();
        assert!(text.len() < 1 << 20, "{}", text.len());
        assert!(Memory::read(&text).is_ok());
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "{", "[]", "{\"version\": 2, \"networks\": []}", "{\"version\": 1}"] {
            assert!(Memory::read(text).is_err(), "{text}");
        }
        let one = "{\"interface\": \"a\", \"used\": 0, \"paths\": []}";
        let many = vec![one; NETWORKS + 1].join(",");
        assert!(Memory::read(&format!("{{\"version\": 1, \"networks\": [{many}]}}")).is_err());
    }

    #[test]
    fn a_rate_is_that_of_the_last_transfers() {
        let mut path = PathMemory::default();
        path.note_rate(DOWN, 64_000_000, 0);
        (0..44).for_each(|now| path.note_rate(DOWN, 20_000_000, now));
        let half = path.down.unwrap().value;
        assert!((30_000_000..34_000_000).contains(&half), "{half}");
        (0..44).for_each(|now| path.note_rate(DOWN, 200_000, now));
        let slow = path.down.unwrap().value;
        assert!(slow > half / 20 * 19, "a slow transfer says little: {slow}");
        path.note_trial(DOWN, 1_000_000, 9);
        assert_eq!(path.down, Some(Dated { value: 1_000_000, at: 9 }));
    }

    #[test]
    fn the_loss_is_told_from_some_packets_on_and_follows_the_path() {
        let mut path = PathMemory::default();
        path.note_packets(100, 50);
        assert_eq!(path.loss(), None);
        path.note_packets(100, 50);
        assert_eq!(path.loss(), Some(500_000));
        (0..100).for_each(|_| path.note_packets(10_000, 100));
        assert!((10_000..11_000).contains(&path.loss().unwrap()), "{:?}", path.loss());
        path.note_cpu(Duration::from_micros(2048), 1 << 20, 0);
        assert_eq!(path.cpu.map(|cpu| cpu.value), Some(2000));
    }
}
