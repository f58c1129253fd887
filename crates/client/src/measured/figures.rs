//! The comparison of paths by their figures. Pure.

use std::time::Duration;

/// The directions of payload: to the server, and from it.
pub(super) const UP: usize = 0;
pub(super) const DOWN: usize = 1;

/// The least advantage of a nearer path, beside a quarter of the round trip of the other path.
const NEARER: Duration = Duration::from_millis(10);

/// The least advantage of a faster path in percent: of a path that a link moves to while another
/// path works.
pub(super) const FASTER: u64 = 25;

/// The same where no path is in use yet, or where all were tried a moment ago. Below it the order
/// of the file decides.
pub(super) const EQUAL: u64 = 5;

/// The advantage in percent up to which a path that does not keep its window ([`keeps_window`])
/// counts as equally fast as a path that keeps it: the headers of QUIC and KCP take up to 6 % more
/// of a packet than the headers of TLS over TCP.
pub(super) const HEADERS: u64 = 10;

/// What is known of a path: values with their ages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Figures {
    /// The smoothed round trip.
    pub(super) rtt: Option<(Duration, Duration)>,
    /// The rates of the last transfers by direction, in bytes per second.
    pub(super) goodput: [Option<(u64, Duration)>; 2],
    /// The last attempt failed.
    pub(super) fails: bool,
    /// A connection over the path keeps its congestion window over a pause ([`keeps_window`]).
    pub(super) keeps_window: bool,
}

/// Whether a connection over the path keeps its congestion window over a pause. A kernel takes the
/// window of a TCP connection back after a pause of a retransmission time-out (RFC 5681, section
/// 4.1), at both ends. QUIC and KCP, which run in this program, keep the window.
pub(super) fn keeps_window(path: &str) -> bool {
    ["quic://", "kcp://"].iter().any(|scheme| path.starts_with(scheme))
}

impl Figures {
    /// Whether something was measured.
    pub(super) const fn is_known(&self) -> bool {
        self.rtt.is_some() || self.goodput[UP].is_some() || self.goodput[DOWN].is_some()
    }

    /// Whether the round trip is less by 25 % and by 10 ms.
    pub(super) fn is_nearer_than(&self, other: &Self) -> bool {
        let (Some((own, _)), Some((other, _))) = (self.rtt, other.rtt) else { return false };
        own <= other / 4 * 3 && other.saturating_sub(own) >= NEARER
    }

    /// Whether a rate is higher by so many percent. A direction in which one of the paths has not
    /// carried a transfer says nothing.
    pub(super) fn is_faster_than(&self, other: &Self, percent: u64) -> bool {
        let mut both = self.goodput.iter().zip(&other.goodput);
        both.any(|(own, other)| {
            let (Some((own, _)), Some((other, _))) = (own, other) else { return false };
            is_more(*own, *other, percent)
        })
    }

    /// Whether a rate of both paths is known in a direction.
    fn compares_with(&self, other: &Self) -> bool {
        self.goodput.iter().zip(&other.goodput).any(|(own, other)| own.is_some() && other.is_some())
    }

    /// Whether the path is the better one: by the rates, where these are equal by the round trip,
    /// and then by the window after a pause. A download and the page before it wait longest for
    /// bytes.
    fn beats(&self, other: &Self, percent: u64) -> bool {
        let is_same = self.keeps_window == other.keeps_window;
        let percent = if is_same { percent } else { percent.max(HEADERS) };
        match (self.is_faster_than(other, percent), other.is_faster_than(self, percent)) {
            (true, false) => true,
            (false, true) => false,
            (true, true) => self.is_nearer_than(other),
            (false, false) => {
                let keeps = self.keeps_window && !other.keeps_window && self.compares_with(other);
                self.is_nearer_than(other) || keeps && !other.is_nearer_than(self)
            }
        }
    }
}

/// Whether a rate is higher by so many percent.
pub(super) const fn is_more(own: u64, other: u64, percent: u64) -> bool {
    own > other && own.saturating_mul(100) >= other.saturating_mul(100 + percent)
}

/// The paths in the order in which they are tried: by what is known of them. A path of which
/// nothing is known keeps its place, and paths that fail come last.
pub(super) fn order(paths: &[Figures]) -> Vec<usize> {
    let mut known: Vec<_> = (0..paths.len()).filter(|nth| paths[*nth].is_known()).collect();
    let mut sorted = Vec::with_capacity(known.len());
    while !known.is_empty() {
        // The first path that no other path beats. Of paths that beat each other in a circle, the
        // first of the file.
        let is_best = |nth: &usize| {
            let others = known.iter().filter(|other| *other != nth);
            others.clone().all(|other| !paths[*other].beats(&paths[*nth], EQUAL))
        };
        let place = known.iter().position(is_best).unwrap_or(0);
        sorted.push(known.remove(place));
    }
    let mut sorted = sorted.into_iter();
    let all = (0..paths.len()).map(|nth| {
        let known = paths[nth].is_known();
        if known { sorted.next().unwrap_or(nth) } else { nth }
    });
    let (failing, working): (Vec<_>, Vec<_>) = all.partition(|nth| paths[*nth].fails);
    working.into_iter().chain(failing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    fn path(millis: u64, down: u64) -> Figures {
        let rtt = (millis > 0).then(|| (Duration::from_millis(millis), Duration::ZERO));
        let down = (down > 0).then_some((down, Duration::ZERO));
        Figures { rtt, goodput: [None, down], ..Figures::default() }
    }

    #[test]
    fn the_paths_of_a_known_network_are_tried_by_what_is_known() {
        assert_eq!(order(&[path(0, 0); 3]), [0, 1, 2]);
        assert_eq!(order(&[path(80, 0), path(20, 0), path(0, 0)]), [1, 0, 2]);
        assert_eq!(order(&[path(80, 0), path(0, 0), path(20, 0)]), [2, 1, 0], "it keeps its place");
        assert_eq!(order(&[path(25, 0), path(20, 0)]), [0, 1], "10 ms are the least");
        assert_eq!(order(&[path(100, 0), path(80, 0)]), [0, 1], "so are 25 %");
        assert_eq!(order(&[path(20, MB), path(80, 4 * MB)]), [1, 0], "rates before round trips");
        assert_eq!(order(&[path(80, 100 * MB), path(20, 104 * MB)]), [1, 0], "equal rates");
        assert_eq!(order(&[path(20, 100 * MB), path(20, 106 * MB)]), [1, 0]);
        assert_eq!(order(&[path(20, 100 * MB), path(20, 0)]), [0, 1]);
        assert!(order(&[]).is_empty());
    }

    #[test]
    fn of_equal_paths_the_path_that_keeps_its_window_comes_first() {
        let keeping = |path: Figures| Figures { keeps_window: true, ..path };
        assert_eq!(order(&[path(20, 100 * MB), keeping(path(20, 92 * MB))]), [1, 0]);
        assert_eq!(
            order(&[path(20, 100 * MB), keeping(path(20, 90 * MB))]),
            [0, 1],
            "a faster path"
        );
        assert_eq!(order(&[path(20, 100 * MB), keeping(path(60, 100 * MB))]), [0, 1], "nearer");
        assert_eq!(order(&[path(20, 0), keeping(path(20, 100 * MB))]), [0, 1], "not compared yet");
        assert!(keeps_window("kcp://a:1") && keeps_window("quic://a"));
        assert!(!keeps_window("tls://quic.example.com") && !keeps_window("wss://a"));
    }

    #[test]
    fn a_path_that_fails_comes_last() {
        let failing = Figures { fails: true, ..path(10, 0) };
        assert_eq!(order(&[failing, path(80, 0), path(0, 0)]), [1, 2, 0]);
        assert_eq!(order(&[Figures { fails: true, ..path(0, 0) }, path(0, 0)]), [1, 0]);
    }

    #[test]
    fn a_path_that_is_faster_one_way_and_slower_the_other_way_is_not_better() {
        let of = |up, down| Figures {
            goodput: [Some((up, Duration::ZERO)), Some((down, Duration::ZERO))],
            ..Figures::default()
        };
        let (one, other) = (of(MB, 9 * MB), of(9 * MB, MB));
        assert!(!one.beats(&other, EQUAL) && !other.beats(&one, EQUAL));
        assert_eq!(order(&[one, other]), [0, 1]);
        assert_eq!(order(&[of(MB, MB), of(2 * MB, MB)]), [1, 0]);
    }
}
