//! Two networks: a better path, and a fallback whose carrier is the standby of the link.

use std::rc::Rc;
use std::time::Duration;

use link::client::StandbyPath;
use link::{Host, Link, Path, State};
use testkit::netem::Rng;
use tokio::sync::Notify;
use tokio::time::Instant;
use transport::memory::{self, Breaker, MemoryDialer};
use transport::{Dialled, EarlyDataFn, LocalFuture, PathDialer};

use crate::rig::{
    Appetite, Client, Rules, Scripted, Server, Tap, open, path, plan, until, virtually,
};

/// Dialling and greeting in memory, or a resume.
const AT_ONCE: Duration = Duration::from_millis(50);

/// A path that asks to be tried.
#[derive(Debug)]
struct Asking {
    host: Host,
    asks: Rc<Notify>,
}

impl PathDialer for Asking {
    fn dial(&self, say: Option<EarlyDataFn>) -> LocalFuture<'static, Dialled> {
        self.host.dial(say)
    }

    fn asks(&self) -> LocalFuture<'static, ()> {
        let asks = Rc::clone(&self.asks);
        Box::pin(async move { asks.notified().await })
    }
}

/// A network and the client's dialer of it.
struct Network {
    memory: MemoryDialer,
    dialer: Rc<Scripted>,
}

impl Network {
    fn dials(&self) -> usize {
        self.dialer.dials.get()
    }

    /// Of the newest connection.
    fn breaker(&self) -> Breaker {
        self.memory.breakers().pop().unwrap()
    }
}

struct Scene {
    server: Server,
    client: Client,
    better: Network,
    fallback: Network,
    /// The better path asks to be tried.
    asks: Rc<Notify>,
}

impl Scene {
    /// The better path does not work yet.
    fn new() -> Self {
        let (listeners, mut networks): (Vec<_>, Vec<_>) = (0..2)
            .map(|_| {
                let (listener, memory) = memory::laned_network(crate::LANES);
                let dialer = Scripted::new(&memory, []);
                (Box::new(listener) as Box<dyn transport::Listener>, Network { memory, dialer })
            })
            .unzip();
        let server = Server::start(listeners, Rules::default());
        let (fallback, better) = (networks.pop().unwrap(), networks.pop().unwrap());
        better.dialer.is_down.set(true);
        let asks = Rc::new(Notify::new());
        let host = Host { name: "127.0.0.1".to_owned(), port: 1, dialer: better.dialer.clone() };
        let dialer = Rc::new(Asking { host, asks: Rc::clone(&asks) });
        let paths = vec![
            Path { url: "memory://127.0.0.1:1".to_owned(), dialer },
            path(fallback.dialer.clone(), 2),
        ];
        let client =
            Client::start(link::client::Client { standby: StandbyPath::Last, ..plan(paths) });
        Self { server, client, better, fallback, asks }
    }

    /// Over the better path, with a standby on both ends.
    async fn settled() -> (Self, Link) {
        let scene = Self::new();
        let link = scene.client.live().await;
        scene.better.dialer.is_down.set(false);
        scene.asks.notify_one();
        scene.is_settled().await;
        (scene, link)
    }

    async fn is_settled(&self) {
        until("the better path and a standby", || {
            let link = self.client.link();
            link.is_some_and(|link| link.is_live() && link.has_standby())
                && self.server.link().has_standby()
                && self.path() == 1
        })
        .await;
    }

    /// The path of the active carrier.
    fn path(&self) -> u16 {
        self.client.connected.borrow().last().unwrap().0
    }

    async fn stream(&self, link: &Link) -> [Rc<Tap>; 2] {
        let near = open(link, "a", Appetite::SOME);
        [near, self.server.owner().next_tap().await]
    }

    fn is_calm(&self) -> bool {
        let stalled = |owner: &crate::rig::Party| owner.saw(State::Stalled);
        !stalled(&self.client.owner) && !stalled(&self.server.owner())
    }
}

#[test]
fn the_first_carrier_takes_the_fallback_at_once_and_the_better_path_is_tried_when_it_asks() {
    virtually(async {
        let begin = Instant::now();
        let scene = Scene::new();
        let link = scene.client.live().await;
        assert!(begin.elapsed() < AT_ONCE, "{:?}", begin.elapsed());
        assert_eq!((scene.path(), scene.better.dials(), link.has_standby()), (2, 1, false));
        scene.better.dialer.is_down.set(false);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(scene.better.dials(), 1);
        let begin = Instant::now();
        scene.asks.notify_one();
        scene.is_settled().await;
        assert!(begin.elapsed() < AT_ONCE, "{:?}", begin.elapsed());
        assert_eq!((scene.better.dials(), scene.fallback.dials()), (2, 2));
        assert_eq!(scene.client.reason(), "this path is preferred and answers");
        assert!(scene.is_calm() && scene.client.links.get() == 1);
    });
}

#[test]
fn the_end_of_the_carrier_behind_may_come_before_the_greeting_of_the_better_one() {
    virtually(async {
        let scene = Scene::new();
        let link = scene.client.live().await;
        scene.better.dialer.is_down.set(false);
        scene.better.dialer.delay.set(Duration::from_millis(300));
        scene.asks.notify_one();
        until("the dial", || scene.better.dials() == 2).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        scene.fallback.breaker().kill();
        until("the better path", || link.is_live() && scene.path() == 1).await;
        assert_eq!(scene.better.dials(), 2, "the attempt that was under way");
        scene.is_settled().await;
        assert_eq!(scene.fallback.dials(), 2, "the first carrier and the standby");
        assert_eq!(scene.client.links.get(), 1);
    });
}

#[test]
fn the_death_of_the_active_carrier_costs_no_dial_and_no_byte() {
    virtually(async {
        let (scene, link) = Scene::settled().await;
        let ends = scene.stream(&link).await;
        let sending = ends
            .clone()
            .map(|tap| tokio::task::spawn_local(async move { tap.send_pattern(20_000_000).await }));
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(ends.iter().all(|tap| tap.count() > 0 && !tap.is_over()), "it is in the middle");
        let (begin, resumes) = (Instant::now(), link.totals().2);
        scene.better.dialer.is_down.set(true);
        let dials = (scene.better.dials(), scene.fallback.dials());
        scene.better.breaker().kill();
        until("the standby", || link.totals().2 > resumes && scene.path() == 2).await;
        assert!(begin.elapsed() < AT_ONCE, "{:?}", begin.elapsed());
        assert_eq!((scene.better.dials(), scene.fallback.dials()), dials);
        let reason = "memory://127.0.0.1:1 is silent or lost, and a standby was ready";
        assert_eq!(scene.client.reason(), reason);
        for (sending, tap) in sending.into_iter().zip(&ends) {
            assert!(sending.await.unwrap());
            until("its end", || tap.is_over()).await;
            tap.assert_pattern(20_000_000);
        }
        assert!(scene.is_calm());
    });
}

#[test]
fn silence_of_three_seconds_moves_the_link_whichever_end_has_data_outstanding() {
    for writer in [0, 1] {
        virtually(async {
            let (scene, link) = Scene::settled().await;
            let ends = scene.stream(&link).await;
            tokio::time::sleep(Duration::from_secs(4)).await;
            scene.better.dialer.is_down.set(true);
            let (begin, resumes) = (Instant::now(), link.totals().2);
            let dials = (scene.better.dials(), scene.fallback.dials());
            scene.better.breaker().black_hole();
            assert!(ends[writer].send(b"x").await);
            until("its arrival", || ends[1 - writer].count() == 1).await;
            let took = begin.elapsed();
            assert!((3000..=3100).contains(&took.as_millis()), "{writer}: {took:?}");
            assert_eq!((scene.better.dials(), scene.fallback.dials()), dials, "{writer}");
            until("the report", || scene.path() == 2).await;
            assert_eq!(link.totals().2, resumes + 1);
            assert!(scene.is_calm(), "{writer}");
        });
    }
}

#[test]
fn an_idle_link_whose_better_path_is_silent_moves_within_forty_seconds() {
    virtually(async {
        let (scene, link) = Scene::settled().await;
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!((scene.better.dials(), scene.fallback.dials()), (2, 2), "nothing was silent");
        scene.better.dialer.is_down.set(true);
        let begin = Instant::now();
        scene.better.breaker().black_hole();
        until("the standby", || scene.path() == 2 && link.is_live()).await;
        assert!(begin.elapsed() <= Duration::from_secs(40), "{:?}", begin.elapsed());
        assert_eq!(scene.fallback.dials(), 2);
        assert!(scene.is_calm());
    });
}

#[test]
fn the_loss_of_the_standby_moves_nothing_and_it_is_dialled_anew_with_growing_pauses() {
    virtually(async {
        let (scene, link) = Scene::settled().await;
        let [near, far] = scene.stream(&link).await;
        let resumes = link.totals().2;
        tokio::time::sleep(Duration::from_secs(4)).await;
        scene.fallback.breaker().kill();
        until("another dial", || scene.fallback.dials() == 3).await;
        until("another standby", || link.has_standby() && scene.server.link().has_standby()).await;

        scene.fallback.dialer.is_down.set(true);
        scene.fallback.breaker().kill();
        tokio::time::sleep(Duration::from_mins(1)).await;
        let dials = scene.fallback.dials();
        assert!((8..=25).contains(&dials), "{dials} dials of the standby");
        scene.fallback.dialer.is_down.set(false);
        until("the standby is back", || link.has_standby()).await;
        scene.fallback.breaker().black_hole();
        tokio::time::sleep(Duration::from_secs(40)).await;
        until("a silent standby is replaced", || {
            link.has_standby() && scene.server.link().has_standby()
        })
        .await;

        assert_eq!(link.totals().2, resumes, "the streams did not move");
        assert!(near.send_pattern(1000).await && far.send_pattern(1000).await);
        until("the ends", || near.is_over() && far.is_over()).await;
        far.assert_pattern(1000);
        near.assert_pattern(1000);
        assert!(scene.is_calm() && scene.path() == 1);
    });
}

#[test]
fn a_better_path_that_fails_is_tried_with_growing_pauses_and_at_once_when_it_asks() {
    virtually(async {
        let scene = Scene::new();
        let link = scene.client.live().await;
        tokio::time::sleep(Duration::from_secs(400)).await;
        assert_eq!(*scene.client.not_better.borrow(), [5, 10, 20, 40, 80, 160, 320]);
        let dials = scene.better.dials();
        scene.asks.notify_one();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(scene.better.dials(), dials + 1);
        scene.better.dialer.is_down.set(false);
        scene.asks.notify_one();
        scene.is_settled().await;
        // Each time it is lost soon, it is tried later.
        let mut pauses = Vec::new();
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_secs(2)).await;
            scene.better.breaker().kill();
            until("the standby", || scene.path() == 2 && link.is_live()).await;
            let begin = Instant::now();
            while scene.path() == 2 {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            pauses.push(begin.elapsed().as_secs());
            scene.is_settled().await;
        }
        assert!(pauses.is_sorted(), "{pauses:?}");
    });
}

#[test]
fn a_link_that_loses_both_paths_waits_and_goes_on_over_the_first_that_answers() {
    virtually(async {
        let (scene, link) = Scene::settled().await;
        let [near, far] = scene.stream(&link).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        for network in [&scene.better, &scene.fallback] {
            network.dialer.is_down.set(true);
            network.breaker().kill();
        }
        until("no carrier", || !link.is_live()).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        scene.fallback.dialer.is_down.set(false);
        until("the fallback", || link.is_live() && scene.path() == 2).await;
        scene.better.dialer.is_down.set(false);
        scene.asks.notify_one();
        scene.is_settled().await;
        assert!(near.send_pattern(1000).await && far.send_pattern(1000).await);
        until("the ends", || near.is_over() && far.is_over()).await;
        far.assert_pattern(1000);
        near.assert_pattern(1000);
        assert_eq!(scene.client.links.get(), 1);
    });
}

/// One of the things that befall the carriers.
fn befall(scene: &Scene, rng: &mut Rng) {
    let networks = [&scene.better, &scene.fallback];
    let network = networks[usize::from(rng.chance(400))];
    match rng.below(8) {
        0..=3 => network.breaker().kill(),
        4 => network.breaker().black_hole(),
        5 => networks.iter().for_each(|network| network.breaker().kill()),
        6 => network.dialer.is_down.set(!network.dialer.is_down.get()),
        _ => scene.asks.notify_one(),
    }
}

#[test]
fn carriers_that_come_and_go_at_random_lose_no_byte() {
    let (mut events, mut resumes) = (0, 0);
    for seed in 1..=60 {
        virtually(async {
            let (scene, link) = Scene::settled().await;
            let ends = scene.stream(&link).await;
            let bytes = 5_000_000;
            let sending = ends
                .clone()
                .map(|tap| tokio::task::spawn_local(async move { tap.send_pattern(bytes).await }));
            let mut rng = Rng::new(seed);
            // The link would end after a minute without a carrier.
            let end = Instant::now() + Duration::from_secs(50);
            while Instant::now() < end && !ends.iter().all(|tap| tap.is_over()) {
                befall(&scene, &mut rng);
                events += 1;
                let pause = if rng.chance(30) { rng.below(7000) } else { rng.below(40) };
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            for network in [&scene.better, &scene.fallback] {
                network.dialer.is_down.set(false);
            }
            for (sending, tap) in sending.into_iter().zip(&ends) {
                assert!(sending.await.unwrap(), "seed {seed}");
                until("its end", || tap.is_over()).await;
                tap.assert_pattern(bytes);
            }
            scene.asks.notify_one();
            scene.is_settled().await;
            assert_eq!(scene.client.links.get(), 1, "seed {seed}");
            resumes += link.totals().2;
        });
    }
    println!("{events} events, {resumes} resumes, every byte exact");
    assert!(resumes > 300, "{resumes} resumes in {events} events");
}
