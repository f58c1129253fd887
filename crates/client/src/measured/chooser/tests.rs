//! The chooser over emulated paths, in virtual time.

use super::trials::IN_VAIN;
use super::*;

const MB: u64 = 1_000_000;
const TICK: Duration = Duration::from_millis(500);

/// A path of the emulated network.
#[derive(Clone, Copy)]
struct TestLine {
    millis: u64,
    /// What the path carries, in bytes per second.
    rate: u64,
    works: bool,
}

const fn line(millis: u64, rate: u64) -> TestLine {
    TestLine { millis, rate, works: true }
}

struct TestNetwork {
    lines: Vec<TestLine>,
    /// What is known of the paths.
    figures: Vec<Figures>,
    chooser: Chooser,
    active: usize,
    now: Instant,
    start: Instant,
    /// The rate of the transfer, if there is one.
    wants: u64,
    steps: Vec<(Duration, NextStep)>,
    /// The links changed their path during the last tick.
    changed: bool,
}

impl TestNetwork {
    fn new(lines: &[TestLine]) -> Self {
        Self::knowing(lines, vec![Figures::default(); lines.len()])
    }

    fn knowing(lines: &[TestLine], figures: Vec<Figures>) -> Self {
        let now = Instant::now();
        let chooser = Chooser::new(&figures);
        let active = chooser.order(&figures)[0];
        let (lines, steps) = (lines.to_vec(), Vec::new());
        let mut world = Self {
            lines,
            figures,
            chooser,
            active,
            now,
            start: now,
            wants: 0,
            steps,
            changed: true,
        };
        world.note_rtt(active);
        world
    }

    fn note_rtt(&mut self, path: usize) {
        let rtt = Duration::from_millis(self.lines[path].millis);
        self.figures[path].rtt = Some((rtt, Duration::ZERO));
        self.figures[path].fails = false;
    }

    /// Runs for so many seconds.
    fn run(&mut self, seconds: u64) -> &mut Self {
        let end = self.now + Duration::from_secs(seconds);
        while self.now < end {
            self.now += TICK;
            for path in &mut self.figures {
                path.rtt.iter_mut().for_each(|(_, age)| *age += TICK);
                path.goodput.iter_mut().flatten().for_each(|(_, age)| *age += TICK);
            }
            let rate = self.wants.min(self.lines[self.active].rate);
            let rates = (!std::mem::take(&mut self.changed)).then_some([0, rate]);
            if rate >= BUSY && rates.is_some() {
                let known = self.figures[self.active].goodput[DOWN].map_or(0, |(rate, _)| rate);
                self.figures[self.active].goodput[DOWN] = Some((known.max(rate), Duration::ZERO));
            }
            if rate < LOADED {
                self.note_rtt(self.active);
            }
            let (paths, active) = (&self.figures, Active::One(self.active));
            let step = self.chooser.step(&SeenLinks { now: self.now, paths, active, rates });
            for TrialRate { path, direction, rate, .. } in self.chooser.take_verdicts() {
                self.figures[path].goodput[direction] = Some((rate, Duration::ZERO));
            }
            let Some(step) = step else { continue };
            self.steps.push((self.now - self.start, step));
            match step {
                NextStep::Probe(path) => {
                    let works = self.lines[path].works;
                    if works {
                        self.note_rtt(path);
                    }
                    self.figures[path].fails = !works;
                    self.chooser.probed(path, works, self.now);
                }
                NextStep::Move(path) => {
                    let works = self.lines[path].works;
                    self.figures[path].fails = !works;
                    if works {
                        (self.active, self.changed) = (path, true);
                    }
                    self.chooser.moved(path, works);
                }
            }
        }
        self
    }

    fn moves(&self) -> Vec<usize> {
        let moves = self.steps.iter().filter_map(|(_, step)| match step {
            NextStep::Move(path) => Some(*path),
            NextStep::Probe(_) => None,
        });
        moves.collect()
    }

    fn probes(&self) -> usize {
        self.steps.len() - self.moves().len()
    }

    fn why(&self) -> String {
        self.chooser.choice().unwrap().1.text(|path| format!("path {path}"))
    }
}

#[tokio::test(start_paused = true)]
async fn on_an_unknown_network_the_nearest_path_is_taken_within_ten_seconds() {
    let mut world = TestNetwork::new(&[line(80, MB), line(79, MB), line(20, MB), line(90, MB)]);
    world.run(10);
    assert_eq!((world.active, world.moves(), world.probes()), (2, vec![2], 3));
    assert_eq!(world.why(), "its round trip takes 20.0 ms, that of path 0 80.0 ms");
    world.run(500);
    assert_eq!(world.steps.len(), 4, "each path is probed once");
    world.run(3 * 600);
    assert_eq!(world.moves(), [2]);
    assert!((9..=12).contains(&world.probes()), "{:?}", world.steps);
}

#[tokio::test(start_paused = true)]
async fn a_path_that_is_only_a_little_nearer_is_not_taken() {
    let mut world = TestNetwork::new(&[line(30, MB), line(24, MB), line(21, MB)]);
    world.run(2000);
    assert!(world.moves().is_empty());
    assert_eq!(world.why(), "it is the first path that answered");
}

#[tokio::test(start_paused = true)]
async fn a_transfer_tries_each_path_once_and_stays_on_the_fastest() {
    let lines = [line(60, 3 * MB), line(60, 9 * MB), line(60, 12 * MB)];
    let mut world = TestNetwork::new(&lines);
    world.wants = 100 * MB;
    world.run(10);
    assert_eq!(world.moves(), [1, 2], "{:?}", world.steps);
    assert_eq!(world.active, 2);
    assert_eq!(world.why(), "it carried 96.0 Mbit/s, path 1 carried 72.0 Mbit/s");
    world.run(4000);
    assert_eq!(world.moves(), [1, 2]);
    // The same network again.
    let figures = world.figures.clone();
    let mut again = TestNetwork::knowing(&lines, figures);
    assert_eq!(again.active, 2, "the order is that of the memory");
    again.wants = 100 * MB;
    again.run(4000);
    assert!(again.moves().is_empty());
    assert_eq!(again.why(), "the figures of this network put it first");
}

#[tokio::test(start_paused = true)]
async fn where_all_paths_carry_as_much_the_links_go_home_and_stay() {
    let mut world = TestNetwork::new(&[line(60, 10 * MB); 3]);
    world.wants = 2 * MB;
    world.run(600);
    assert_eq!(world.moves(), [1, 2, 0]);
    assert!(world.why().starts_with("no other path was faster"), "{}", world.why());
    world.run(4000);
    assert_eq!(world.moves(), [1, 2, 0]);
}

#[tokio::test(start_paused = true)]
async fn of_paths_that_carry_as_much_the_path_that_keeps_its_speed_over_a_pause_is_taken() {
    // The last path is too far, and the third path comes behind the second path in the file.
    let lines =
        [(60, 100), (60, 93), (60, 90), (90, 93)].map(|(millis, rate)| line(millis, rate * MB));
    let figures = [false, true, true, true]
        .map(|keeps_window| Figures { keeps_window, ..Figures::default() });
    let mut world = TestNetwork::knowing(&lines, figures.to_vec());
    world.wants = 1000 * MB;
    world.run(15);
    assert_eq!(world.moves(), [1, 2, 3, 1]);
    assert_eq!(
        world.why(),
        "it keeps its speed over a pause and is about as fast: it carried 744.0 Mbit/s, path 0 carried \
         800.0 Mbit/s"
    );
    world.run(4000);
    assert_eq!(world.moves(), [1, 2, 3, 1]);
    let mut again = TestNetwork::knowing(&lines, world.figures.clone());
    assert_eq!(again.active, 1, "the memory has it first");
    again.run(4000);
    assert!(again.moves().is_empty());
}

#[test]
fn a_path_whose_probe_waited_in_a_queue_is_probed_again_when_little_is_carried() {
    let start = Instant::now();
    let rtt = Some((Duration::from_millis(20), Duration::ZERO));
    let figures = [Figures { rtt, ..Figures::default() }, Figures::default()];
    let mut chooser = Chooser::new(&[Figures::default(); 2]);
    let step = |chooser: &mut Chooser, second, rate| {
        let now = start + Duration::from_secs(second);
        let (paths, rates) = (&figures[..], Some([0, rate]));
        chooser.step(&SeenLinks { now, paths, active: Active::One(0), rates })
    };
    assert_eq!(step(&mut chooser, 0, LOADED), None);
    assert_eq!(step(&mut chooser, 1, LOADED), Some(NextStep::Probe(1)));
    chooser.probed(1, true, start);
    chooser.probe_was_in_queue(1);
    assert_eq!(step(&mut chooser, 2, LOADED), None, "each path is asked once");
    assert_eq!(step(&mut chooser, 3, 0), Some(NextStep::Probe(1)));
    chooser.probed(1, true, start + Duration::from_secs(3));
    assert_eq!(step(&mut chooser, 4, 0), None);
}

#[tokio::test(start_paused = true)]
async fn a_path_that_becomes_slow_is_left_for_a_path_that_was_faster() {
    let mut world = TestNetwork::new(&[line(60, 10 * MB), line(60, 8 * MB)]);
    world.wants = 100 * MB;
    world.run(30);
    assert_eq!((world.active, world.moves()), (0, vec![1, 0]));
    world.lines[0].rate = MB;
    world.run(1300);
    assert_eq!(world.active, 1);
    assert_eq!(world.moves(), [1, 0, 1]);
    // A transfer that is slow by itself causes few trials.
    world.wants = MB;
    world.run(12 * 3600);
    assert!(world.moves().len() < 30, "{:?}", world.steps);
}

#[tokio::test(start_paused = true)]
async fn a_trial_with_a_slow_transfer_is_repeated_when_a_transfer_is_fast() {
    let mut world = TestNetwork::new(&[line(60, 10 * MB), line(60, 90 * MB)]);
    world.wants = 20_000;
    world.run(3600);
    assert_eq!((world.active, world.moves()), (0, vec![1, 0]), "as fast as the transfer");
    world.wants = 100 * MB;
    world.run(10);
    assert_eq!(world.active, 1, "{:?}", world.steps);
}

#[tokio::test(start_paused = true)]
async fn a_transfer_that_ends_during_a_trial_brings_the_links_home() {
    let mut world = TestNetwork::new(&[line(60, 10 * MB), line(60, 20 * MB)]);
    world.run(5);
    for round in 1..=IN_VAIN {
        world.wants = 10 * MB;
        world.run(2);
        world.wants = 0;
        world.run(60);
        assert_eq!((world.active, world.moves().len()), (0, round as usize * 2));
        world.run(60 * 60 * 6);
    }
    world.wants = 10 * MB;
    world.run(2);
    world.wants = 0;
    world.run(60);
    assert_eq!(world.moves().len(), IN_VAIN as usize * 2, "three trials in vain are enough");
}

#[tokio::test(start_paused = true)]
async fn a_nearer_path_is_taken_after_a_minute_and_once_in_ten_minutes() {
    let mut world = TestNetwork::new(&[line(60, MB), line(60, MB)]);
    world.run(300);
    world.lines[0].millis = 200;
    world.run(55);
    assert!(world.moves().is_empty(), "{:?}", world.steps);
    world.run(60);
    assert_eq!(world.moves(), [1]);
    let at = world.steps.last().unwrap().0;
    (world.lines[0].millis, world.lines[1].millis) = (20, 90);
    world.run(590);
    assert_eq!(world.moves(), [1], "not before ten minutes have passed");
    world.run(800);
    assert_eq!(world.moves(), [1, 0]);
    assert!(world.steps.last().unwrap().0 - at >= PAUSE);
    // A path that is nearer for half a minute is not taken.
    world.run(700);
    world.lines[1].millis = 2;
    world.note_rtt(1);
    let probes = world.probes();
    world.run(40);
    assert!(world.probes() > probes, "the figure is confirmed");
    world.lines[1].millis = 90;
    world.run(2000);
    assert_eq!(world.moves(), [1, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_near_path_that_carries_less_is_not_taken() {
    let mut world = TestNetwork::new(&[line(80, 10 * MB), line(20, MB)]);
    world.figures[0].goodput[DOWN] = Some((10 * MB, Duration::ZERO));
    world.figures[1].goodput[DOWN] = Some((MB, Duration::ZERO));
    world.run(3000);
    assert!(world.moves().is_empty());
}

#[tokio::test(start_paused = true)]
async fn after_a_loss_the_links_return_once_the_chosen_path_works_again() {
    let mut world = TestNetwork::new(&[line(20, MB), line(60, MB)]);
    world.run(20);
    world.lines[0].works = false;
    world.figures[0].fails = true;
    (world.active, world.changed) = (1, true);
    world.run(600);
    assert!(world.moves().is_empty());
    assert_eq!(
        world.chooser.order(&world.figures),
        [1, 0],
        "a path that fails is not dialled first"
    );
    world.lines[0].works = true;
    world.run(61);
    assert_eq!((world.active, world.moves()), (0, vec![0]));
}

#[tokio::test(start_paused = true)]
async fn a_path_that_does_not_answer_delays_no_choice() {
    let dead = TestLine { works: false, ..line(10, MB) };
    let mut world = TestNetwork::new(&[line(80, MB), dead, line(20, MB)]);
    world.run(10);
    assert_eq!(world.active, 2);
    world.wants = 10 * MB;
    world.run(60);
    assert!(!world.moves().contains(&1), "a path that fails is not tried");
    // A probe without an end.
    let mut chooser = Chooser::new(&[Figures::default(); 2]);
    let rtt = |millis| Some((Duration::from_millis(millis), Duration::ZERO));
    let paths = [Figures { rtt: rtt(20), ..Figures::default() }, Figures::default()];
    let start = Instant::now();
    let mut steps = Vec::new();
    for tick in 0..40 {
        let (now, active) = (start + TICK * tick, Active::One(0));
        let seen = SeenLinks { now, paths: &paths, active, rates: Some([0; 2]) };
        steps.extend(chooser.step(&seen));
    }
    assert_eq!(steps, [NextStep::Probe(1)]);
    assert!(chooser.first.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_path_that_is_lost_in_a_trial_ends_the_trial() {
    let mut world = TestNetwork::new(&[line(60, 4 * MB), line(60, 9 * MB)]);
    world.wants = 100 * MB;
    world.run(4);
    world.lines[1].works = false;
    assert!(world.chooser.trial().is_some() || world.moves().contains(&1));
    world.run(60);
    let mut chooser = Chooser::new(&[Figures::default(); 2]);
    let paths = [Figures::default(); 2];
    let start = Instant::now();
    let step = |chooser: &mut Chooser, millis, active| {
        let now = start + Duration::from_millis(millis);
        chooser.step(&SeenLinks { now, paths: &paths, active, rates: Some([0, MB]) })
    };
    let mut steps = Vec::new();
    for tick in 0..60 {
        steps.extend(step(&mut chooser, tick * 500, Active::One(0)));
        if chooser.moving == Some(1) {
            chooser.moved(1, true);
        }
        if chooser.probing.is_some() {
            chooser.probed(1, true, start);
        }
    }
    assert_eq!(steps, [NextStep::Probe(1), NextStep::Move(1)], "the links did not come");
    assert!(chooser.trial().is_none());
}

#[tokio::test(start_paused = true)]
async fn links_on_several_paths_are_brought_together() {
    let rtt = |millis| Some((Duration::from_millis(millis), Duration::ZERO));
    let paths = [rtt(80), rtt(20)].map(|rtt| Figures { rtt, ..Figures::default() });
    let mut chooser = Chooser::new(&paths);
    let start = Instant::now();
    let mut steps = Vec::new();
    for tick in 0..30 {
        let (now, active) = (start + TICK * tick, Active::Several);
        let step = chooser.step(&SeenLinks { now, paths: &paths, active, rates: None });
        if step.is_some() {
            chooser.moved(1, false);
        }
        steps.extend(step);
    }
    assert_eq!(steps, [NextStep::Move(1); 2], "every ten seconds");
}

#[tokio::test(start_paused = true)]
async fn a_path_that_a_command_names_is_kept_for_ten_minutes() {
    let mut world = TestNetwork::new(&[line(20, 9 * MB), line(80, MB)]);
    world.run(10);
    (world.active, world.changed) = (1, true);
    world.chooser.commanded(1, world.now);
    world.wants = 10 * MB;
    world.run(590);
    assert_eq!((world.active, world.moves()), (1, Vec::new()));
    assert_eq!(world.why(), "`tunnel move` named it");
    world.run(60);
    assert_eq!(world.active, 0, "{:?}", world.steps);
}

/// What one stream carries over TLS, QUIC and KCP at 100 Mbit/s, in bytes per second: TCP by the
/// loss (Mathis), the others as measured over emulated paths (`tunnel/docs/transports.md`).
fn cell(millis: u64, loss: usize) -> [TestLine; 3] {
    const LOSS: [f64; 5] = [0.0, 0.01, 0.05, 0.1, 0.2];
    const MBIT: [[u64; 5]; 2] = [[95, 91, 86, 82, 70], [95, 93, 88, 84, 72]];
    let rtt = Duration::from_millis(millis).as_secs_f64();
    let tcp = 1448.0 / rtt * 1.22 / LOSS[loss].sqrt();
    let tcp = if tcp < 11.9e6 { tcp as u64 } else { 11_900_000 };
    let [quic, kcp] = MBIT.map(|rates| rates[loss] * MB / 8);
    [line(millis, tcp), line(millis, quic), line(millis + 1, kcp)]
}

/// The seconds of a page of 1 MB after four round trips, and of a download of 20 MB.
fn page_and_download(line: TestLine) -> f64 {
    let rtt = Duration::from_millis(line.millis).as_secs_f64();
    4.0 * rtt + 21e6 / line.rate as f64
}

#[tokio::test(start_paused = true)]
async fn ten_seconds_of_a_transfer_find_a_path_within_5_percent_of_the_best_in_each_cell() {
    for millis in [20, 60, 150, 300] {
        for loss in 0..5 {
            for order in [[0, 1, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
                for policed in [false, true] {
                    let mut lines = order.map(|nth| cell(millis, loss)[nth]);
                    // UDP is policed to 2 Mbit/s.
                    for (line, nth) in lines.iter_mut().zip(order) {
                        line.rate = if policed && nth > 0 { 250_000 } else { line.rate };
                    }
                    let mut world = TestNetwork::new(&lines);
                    world.wants = 100 * MB;
                    world.run(10);
                    let own = page_and_download(lines[world.active]);
                    let best = lines.map(page_and_download).into_iter().fold(f64::MAX, f64::min);
                    let what = format!("{millis} ms, loss {loss}, {order:?}, policed {policed}");
                    assert!(own <= best * 1.05, "{what}: {own} and not {best}");
                    assert!(world.chooser.trial().is_none(), "{what}: a trial goes on");
                    world.run(600);
                    assert_eq!(world.chooser.choice().unwrap().0, world.active, "{what}");
                }
            }
        }
    }
}
