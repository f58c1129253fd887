//! Paths through another server (`via`) while the client has no link to the other server. Such a
//! path is not available, which says nothing about the network: the path comes last in the choice,
//! and is probed when the other server is there. Pure.

use super::figures::Figures;

/// Which paths to a server are available.
#[derive(Debug)]
pub(super) struct Available(Vec<bool>);

impl Available {
    /// All of `count` paths are available.
    pub(super) fn all(count: usize) -> Self {
        Self(vec![true; count])
    }

    /// Records which paths are available now, in their order. Returns those that are available
    /// again.
    pub(super) fn look(&mut self, now: impl Iterator<Item = bool>) -> Vec<usize> {
        let paths = self.0.iter_mut().zip(now).enumerate();
        let again = paths.filter_map(|(nth, (known, now))| {
            let was = std::mem::replace(known, now);
            (now && !was).then_some(nth)
        });
        again.collect()
    }

    /// Whether a path is available.
    pub(super) fn has(&self, path: usize) -> bool {
        self.0.get(path).is_none_or(|is_there| *is_there)
    }

    /// The figures for a choice among the paths.
    pub(super) fn applied_to(&self, mut figures: Vec<Figures>) -> Vec<Figures> {
        for (figures, is_there) in figures.iter_mut().zip(&self.0) {
            figures.fails |= !is_there;
        }
        figures
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::super::chooser::{Active, Chooser, NextStep, SeenLinks};
    use super::super::figures::order;
    use super::*;

    fn near(millis: u64) -> Figures {
        let rtt = Some((Duration::from_millis(millis), Duration::ZERO));
        Figures { rtt, ..Figures::default() }
    }

    #[test]
    fn a_path_comes_last_while_the_other_server_is_away_and_in_its_place_afterwards() {
        let mut available = Available::all(2);
        assert_eq!(order(&available.applied_to(vec![near(10), near(50)])), [0, 1]);
        assert!(available.look([false, true].into_iter()).is_empty());
        assert!(!available.has(0) && available.has(1));
        assert_eq!(order(&available.applied_to(vec![near(10), near(50)])), [1, 0]);
        assert!(available.look([false, true].into_iter()).is_empty());
        assert_eq!(available.look([true, true].into_iter()), [0]);
        assert!(available.look([true, true].into_iter()).is_empty(), "once");
        assert_eq!(order(&available.applied_to(vec![near(10), near(50)])), [0, 1]);
    }

    #[test]
    fn a_path_is_probed_when_it_is_available_again() {
        let start = Instant::now();
        let figures = [near(10), Figures::default()];
        let mut chooser = Chooser::new(&[Figures::default(); 2]);
        let seconds = |count| start + Duration::from_secs(count);
        let step = |chooser: &mut Chooser, now| {
            let (paths, rates) = (&figures[..], Some([0; 2]));
            chooser.step(&SeenLinks { now, paths, active: Active::One(0), rates })
        };
        // The first choice probes the path, which is not available, until its time is over.
        for second in 0..10 {
            if let Some(probe) = step(&mut chooser, seconds(second)) {
                assert_eq!(probe, NextStep::Probe(1));
                chooser.probe_was_put_off(1, seconds(second));
            }
        }
        assert_eq!(step(&mut chooser, seconds(10)), None, "the path was probed a moment ago");
        chooser.is_available_again(1, seconds(20));
        assert_eq!(step(&mut chooser, seconds(20)), Some(NextStep::Probe(1)));
    }

    #[test]
    fn the_links_return_to_the_chosen_path_when_it_is_available_again() {
        let now = Instant::now();
        let figures = [near(10), near(50)];
        let mut chooser = Chooser::new(&figures);
        let step = |chooser: &mut Chooser, now, active| {
            let (paths, rates, active) = (&figures[..], Some([0; 2]), Active::One(active));
            chooser.step(&SeenLinks { now, paths, active, rates })
        };
        step(&mut chooser, now, 0);
        while step(&mut chooser, now, 0).is_some() {}
        let second = Duration::from_secs(1);
        assert_eq!(step(&mut chooser, now + second, 1), None);
        assert_eq!(step(&mut chooser, now + second * 2, 1), None);
        chooser.is_available_again(0, now + second * 3);
        assert_eq!(step(&mut chooser, now + second * 3, 1), Some(NextStep::Probe(0)));
        chooser.probed(0, true, now + second * 3);
        assert_eq!(step(&mut chooser, now + second * 4, 1), Some(NextStep::Move(0)));
    }
}
