//! Several paths of one link: the standby over the next path, and moves on command.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use link::client::StandbyPath;
use link::{Link, MoveError};
use testkit::netem::Rng;
use tokio::time::Instant;
use transport::memory::{self, MemoryDialer};
use transport::{Connection, ConnectionStats, Listener, Watch};

use crate::rig::{
    Appetite, Client, Rules, Scripted, Server, Tap, open, path, plan, until, virtually,
};

/// Dialling and greeting in memory, or a resume.
const AT_ONCE: Duration = Duration::from_millis(50);

struct Scene {
    server: Server,
    client: Client,
    /// The networks behind the ports 1, 2 and so on.
    networks: Vec<(MemoryDialer, Rc<Scripted>)>,
}

impl Scene {
    fn new(count: u16, standby: StandbyPath) -> Self {
        let (mut listeners, mut networks, mut paths) = (Vec::new(), Vec::new(), Vec::new());
        for port in 1..=count {
            let (listener, memory) = memory::laned_network(crate::LANES);
            let dialer = Scripted::new(&memory, []);
            listeners.push(Box::new(listener) as Box<dyn Listener>);
            paths.push(path(dialer.clone(), port));
            networks.push((memory, dialer));
        }
        let server = Server::start(listeners, Rules::default());
        let client = Client::start(link::client::Client { standby, ..plan(paths) });
        Self { server, client, networks }
    }

    /// The port of the path of the active carrier.
    fn port(&self) -> u16 {
        self.client.connected.borrow().last().unwrap().0
    }

    fn dials(&self) -> Vec<usize> {
        self.networks.iter().map(|(_, dialer)| dialer.dials.get()).collect()
    }

    fn dials_of(&self, port: u16) -> usize {
        self.dials()[usize::from(port) - 1]
    }

    fn set_down(&self, port: u16, is_down: bool) {
        self.networks[usize::from(port) - 1].1.is_down.set(is_down);
    }

    /// Breaks the newest connection of a path.
    fn kill(&self, port: u16) {
        self.networks[usize::from(port) - 1].0.breakers().pop().unwrap().kill();
    }

    async fn has_standby(&self, port: u16) {
        until("the path and a standby on both ends", || {
            let link = self.client.link();
            link.is_some_and(|link| link.is_live() && link.has_standby())
                && self.server.link().has_standby()
                && self.port() == port
        })
        .await;
    }

    /// Begins to send in both directions of a stream.
    async fn transfer(&self, link: &Link, bytes: u64) -> Transfer {
        let near = open(link, "a", Appetite::SOME);
        let ends = [near, self.server.owner().next_tap().await];
        let sending = ends
            .clone()
            .map(|tap| tokio::task::spawn_local(async move { tap.send_pattern(bytes).await }));
        Transfer { ends, sending, bytes }
    }
}

struct Transfer {
    ends: [Rc<Tap>; 2],
    sending: [tokio::task::JoinHandle<bool>; 2],
    bytes: u64,
}

impl Transfer {
    fn is_over(&self) -> bool {
        self.ends.iter().all(|tap| tap.is_over())
    }

    async fn comes_exactly(self) {
        for (sending, tap) in self.sending.into_iter().zip(&self.ends) {
            assert!(sending.await.unwrap());
            until("its end", || tap.is_over()).await;
            tap.assert_pattern(self.bytes);
        }
    }
}

fn url(port: u16) -> String {
    format!("memory://127.0.0.1:{port}")
}

#[test]
fn the_death_of_each_path_moves_the_streams_to_the_next_path_without_a_dial() {
    virtually(async {
        let scene = Scene::new(3, StandbyPath::Next);
        let link = scene.client.live().await;
        scene.has_standby(1).await;
        assert_eq!(scene.dials(), [1, 1, 0]);
        let transfer = scene.transfer(&link, 20_000_000).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        for (dead, next) in [(1, 2), (2, 3)] {
            assert!(!transfer.is_over(), "it is in the middle");
            let (begin, dials) = (Instant::now(), scene.dials_of(next));
            scene.set_down(dead, true);
            scene.kill(dead);
            until("the next path", || link.is_live() && scene.port() == next).await;
            assert!(begin.elapsed() < AT_ONCE, "{:?}", begin.elapsed());
            assert_eq!(scene.dials_of(next), dials, "the streams did not wait for a dial");
            if next == 2 {
                scene.has_standby(2).await;
                assert_eq!(scene.dials(), [1, 1, 1], "the path behind the second path");
            }
        }
        transfer.comes_exactly().await;
        // The first path of the list is preferred again once it answers.
        scene.set_down(1, false);
        until("the first path", || scene.port() == 1).await;
        assert_eq!(scene.client.links.get(), 1);
        assert!(!scene.client.owner.saw(link::State::Stalled));
    });
}

#[test]
fn a_standby_that_takes_over_gets_a_standby_when_the_server_has_resumed() {
    virtually(async {
        let scene = Scene::new(3, StandbyPath::Next);
        let link = scene.client.live().await;
        scene.has_standby(1).await;
        scene.set_down(1, true);
        scene.networks[1].0.breakers().pop().unwrap().black_hole();
        scene.kill(1);
        until("the take-over", || scene.port() == 2).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(scene.dials_of(3), 0, "the second carrier is the standby of the server");
        until("the third path", || link.is_live() && scene.port() == 3).await;
    });
}

#[test]
fn a_standby_whose_path_fails_takes_the_path_behind_it() {
    virtually(async {
        let scene = Scene::new(4, StandbyPath::Next);
        scene.set_down(2, true);
        scene.set_down(3, true);
        scene.client.live().await;
        scene.has_standby(1).await;
        assert_eq!(scene.dials(), [1, 1, 1, 1]);
        scene.kill(1);
        until("the fourth path", || scene.port() == 4).await;
        scene.has_standby(4).await;
        assert_eq!(scene.dials(), [2, 1, 1, 1], "the first path follows the last path");
    });
}

#[test]
fn a_fifth_path_has_no_standby_but_carries_the_link_where_all_others_fail() {
    virtually(async {
        let scene = Scene::new(5, StandbyPath::Next);
        (2..=4).for_each(|port| scene.set_down(port, true));
        let link = scene.client.live().await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!((scene.dials()[4], link.has_standby()), (0, false));
        scene.set_down(1, true);
        scene.kill(1);
        until("the fifth path", || link.is_live() && scene.port() == 5).await;
        scene.set_down(3, false);
        scene.has_standby(5).await;
        scene.kill(5);
        until("the third path", || scene.port() == 3).await;
    });
}

#[test]
fn one_path_has_no_standby() {
    virtually(async {
        let scene = Scene::new(1, StandbyPath::Next);
        let link = scene.client.live().await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!((scene.dials(), link.has_standby()), (vec![1], false));
        assert_eq!(link.move_to(None).await, Err(MoveError::OnlyPath));
        assert!(link.move_to(Some(&url(1))).await.is_ok(), "it has the path already");
        let unknown = Err(MoveError::Unknown(url(9)));
        assert_eq!(link.move_to(Some(&url(9))).await, unknown);
    });
}

#[test]
fn a_link_moves_back_and_forth_on_command_under_load_and_loses_no_byte() {
    for standby in [StandbyPath::Nowhere, StandbyPath::Next] {
        virtually(async {
            let scene = Scene::new(3, standby);
            let link = scene.client.live().await;
            let transfer = scene.transfer(&link, 30_000_000).await;
            let (mut rng, mut moves) = (Rng::new(5), 0);
            while !transfer.is_over() {
                tokio::time::sleep(Duration::from_millis(rng.below(60))).await;
                let before = scene.port();
                let to = [None, Some(url(1)), Some(url(2)), Some(url(3))];
                let to = to[usize::try_from(rng.below(4)).unwrap()].clone();
                let moved = link.move_to(to.as_deref()).await.unwrap();
                assert_eq!(moved.from, url(before));
                assert_eq!(moved.to, to.unwrap_or_else(|| url(before % 3 + 1)));
                assert_eq!(moved.to, url(scene.port()));
                assert!(link.is_live() || link.active_carrier().is_some());
                moves += 1;
            }
            transfer.comes_exactly().await;
            assert!(moves > 10, "{moves} moves");
            assert_eq!(scene.client.links.get(), 1);
        });
    }
}

#[test]
fn a_standby_that_takes_over_amid_a_move_to_its_path_does_not_fail_the_move() {
    virtually(async {
        let scene = Scene::new(2, StandbyPath::Next);
        let link = scene.client.live().await;
        scene.has_standby(1).await;
        let transfer = scene.transfer(&link, 5_000_000).await;
        scene.networks[1].1.delay.set(Duration::from_millis(300));
        let moving = tokio::task::spawn_local({
            let link = link.clone();
            async move { link.move_to(Some(&url(2))).await }
        });
        tokio::time::sleep(Duration::from_millis(200)).await;
        scene.kill(1);
        until("the standby", || scene.port() == 2).await;
        let moved = moving.await.unwrap().unwrap();
        assert_eq!((moved.from, moved.to), (url(1), url(2)));
        transfer.comes_exactly().await;
        tokio::time::sleep(Duration::from_mins(5)).await;
        assert_eq!(scene.port(), 2, "the path of the command");
    });
}

#[test]
fn a_path_that_a_command_has_chosen_is_kept_until_it_is_lost() {
    virtually(async {
        let scene = Scene::new(2, StandbyPath::Nowhere);
        let link = scene.client.live().await;
        let moved = link.move_to(Some(&url(2))).await.unwrap();
        assert_eq!((moved.from, moved.to), (url(1), url(2)));
        assert_eq!(scene.client.reason(), "a command asks for this path");
        tokio::time::sleep(Duration::from_mins(30)).await;
        assert_eq!((scene.port(), scene.dials()), (2, vec![1, 1]));
        scene.kill(2);
        until("the order of the list", || link.is_live() && scene.port() == 1).await;
    });
}

#[test]
fn a_link_stays_where_it_is_when_the_path_of_the_command_fails() {
    virtually(async {
        let scene = Scene::new(2, StandbyPath::Next);
        let link = scene.client.live().await;
        scene.has_standby(1).await;
        scene.set_down(2, true);
        let transfer = scene.transfer(&link, 5_000_000).await;
        let error = link.move_to(Some(&url(2))).await.unwrap_err().to_string();
        assert!(
            error.starts_with("memory://127.0.0.1:2: ") && error.contains("refused"),
            "{error}"
        );
        assert!(scene.port() == 1 && link.is_live() && link.has_standby());
        transfer.comes_exactly().await;
        assert_eq!(link.totals().2, 0, "no resume");
    });
}

#[test]
fn a_move_of_a_link_that_loses_its_carrier_is_interrupted() {
    virtually(async {
        let scene = Scene::new(2, StandbyPath::Nowhere);
        let link = scene.client.live().await;
        scene.networks[1].1.delay.set(Duration::from_secs(5));
        let moving = tokio::task::spawn_local({
            let link = link.clone();
            async move { link.move_to(Some(&url(2))).await }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        scene.kill(1);
        assert_eq!(moving.await.unwrap(), Err(MoveError::Interrupted));
        until("the first path", || link.is_live() && scene.port() == 1).await;
        // A link without a carrier has no path to leave.
        [1, 2].into_iter().for_each(|port| scene.set_down(port, true));
        scene.kill(1);
        until("no carrier", || !link.is_live()).await;
        assert_eq!(link.move_to(None).await, Err(MoveError::Interrupted));
        link.close();
        assert_eq!(link.move_to(None).await, Err(MoveError::Interrupted));
    });
}

#[test]
fn a_path_that_is_dialled_anew_carries_the_link_before_the_former_carrier_ends() {
    virtually(async {
        let scene = Scene::new(3, StandbyPath::Nowhere);
        let link = scene.client.live().await;
        let former = link.active_carrier();
        let transfer = scene.transfer(&link, 20_000_000).await;
        let moved = link.renew_path().await.unwrap();
        assert_eq!((moved.from, moved.to), (url(1), url(1)));
        assert!(link.is_live() && link.active_carrier() != former);
        assert_eq!(scene.dials(), [2, 0, 0]);
        // The other paths follow in their order.
        [1, 2].into_iter().for_each(|port| scene.set_down(port, true));
        let moved = link.renew_path().await.unwrap();
        assert_eq!((moved.from, moved.to, scene.port()), (url(1), url(3), 3));
        let reason = scene.client.reason();
        assert!(reason.contains("127.0.0.1:1 failed (") && reason.contains("127.0.0.1:2 failed ("));
        scene.set_down(3, true);
        let active = link.active_carrier();
        let error = link.renew_path().await.unwrap_err();
        assert!(matches!(&error, MoveError::Failed { to, .. } if *to == url(2)), "{error}");
        assert!(link.is_live() && link.active_carrier() == active, "it keeps its carrier");
        transfer.comes_exactly().await;
        // No command has named the path, so the link returns to the first path.
        scene.set_down(1, false);
        tokio::time::sleep(Duration::from_mins(2)).await;
        assert_eq!(scene.port(), 1);
    });
}

#[test]
fn the_standby_of_a_carrier_that_is_ended_takes_over() {
    virtually(async {
        let scene = Scene::new(2, StandbyPath::Next);
        let link = scene.client.live().await;
        scene.has_standby(1).await;
        let transfer = scene.transfer(&link, 5_000_000).await;
        let active = link.active_carrier();
        link.end_carriers(|number, _| Some(number) != active);
        assert!(!link.has_standby() && link.active_carrier() == active);
        scene.has_standby(1).await;
        link.end_carriers(|number, _| Some(number) == active);
        until("the standby", || link.is_live() && scene.port() == 2).await;
        transfer.comes_exactly().await;
    });
}

/// Gives the connections of a path from now on this source address.
fn from(scene: &Scene, port: u16, ip: [u8; 4]) {
    let (local, remote) = ((ip, 40_000).into(), ([127, 0, 0, 1], port).into());
    scene.networks[usize::from(port) - 1].1.connection.set(Some(Connection { local, remote }));
}

const WIRE: [u8; 4] = [192, 0, 2, 1];
const RADIO: [u8; 4] = [198, 51, 100, 1];

#[test]
fn a_link_whose_source_address_is_gone_moves_at_once() {
    for standby in [StandbyPath::Nowhere, StandbyPath::Next] {
        virtually(async {
            let scene = Scene::new(2, standby);
            from(&scene, 1, WIRE);
            from(&scene, 2, RADIO);
            let link = scene.client.live().await;
            if standby == StandbyPath::Next {
                scene.has_standby(1).await;
            }
            let transfer = scene.transfer(&link, 20_000_000).await;
            tokio::time::sleep(Duration::from_secs(5)).await;
            let transfer = [transfer, scene.transfer(&link, 20_000_000).await];
            let dials = scene.dials_of(2);
            // Nothing says so to the connection.
            scene.set_down(1, true);
            scene.networks[0].0.breakers().pop().unwrap().black_hole();
            let begin = Instant::now();
            link.network_changed(|local| local.ip() != IpAddr::from(WIRE));
            until("the other path", || link.is_live() && scene.port() == 2).await;
            assert!(begin.elapsed() < AT_ONCE, "{standby:?}: {:?}", begin.elapsed());
            if standby == StandbyPath::Next {
                assert_eq!(scene.dials_of(2), dials);
            }
            for transfer in transfer {
                transfer.comes_exactly().await;
            }
        });
    }
}

/// A connection that received a packet in each millisecond, or no packet at all.
#[derive(Debug)]
struct Received(Option<Instant>);

impl Watch for Received {
    fn stats(&self) -> ConnectionStats {
        let since = self.0.map_or(Duration::ZERO, |since| since.elapsed());
        let received_packets = u64::try_from(since.as_millis()).unwrap();
        ConnectionStats { received_packets, ..ConnectionStats::default() }
    }

    fn address(&self) -> Option<SocketAddr> {
        None
    }
}

#[test]
fn a_standby_that_answers_takes_over_early_where_the_connection_receives_nothing() {
    // A connection that receives packets is slow and not dead.
    for (receives, least, most) in [(false, 200, 500), (true, 3000, 3100)] {
        virtually(async {
            let scene = Scene::new(2, StandbyPath::Next);
            let watch = Received(receives.then(Instant::now));
            *scene.networks[0].1.watch.borrow_mut() = Some(Arc::new(watch));
            let link = scene.client.live().await;
            scene.has_standby(1).await;
            tokio::time::sleep(Duration::from_secs(5)).await;
            let transfer = scene.transfer(&link, 20_000_000).await;
            scene.set_down(1, true);
            scene.networks[0].0.breakers().pop().unwrap().black_hole();
            let begin = Instant::now();
            until("the other path", || link.is_live() && scene.port() == 2).await;
            let took = begin.elapsed();
            assert!((least..most).contains(&took.as_millis()), "{took:?}");
            transfer.comes_exactly().await;
        });
    }
}

#[test]
fn a_silent_path_is_left_a_second_after_a_change_of_the_network() {
    for standby in [StandbyPath::Nowhere, StandbyPath::Next] {
        virtually(async {
            let scene = Scene::new(2, standby);
            let link = scene.client.live().await;
            tokio::time::sleep(Duration::from_secs(5)).await;
            scene.set_down(1, true);
            scene.networks[0].0.breakers().pop().unwrap().black_hole();
            let begin = Instant::now();
            link.network_changed(|_| true);
            until("the other path", || link.is_live() && scene.port() == 2).await;
            let took = begin.elapsed();
            assert!((1000..1100).contains(&took.as_millis()), "{standby:?}: {took:?}");
        });
    }
}

#[test]
fn the_only_path_is_dialled_anew_when_it_is_silent_after_a_change_of_the_network() {
    virtually(async {
        let scene = Scene::new(1, StandbyPath::Nowhere);
        let link = scene.client.live().await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        scene.networks[0].0.breakers().pop().unwrap().black_hole();
        let (begin, resumes) = (Instant::now(), link.totals().2);
        link.network_changed(|_| true);
        until("another connection", || link.totals().2 > resumes).await;
        assert!(begin.elapsed() < Duration::from_millis(1100), "{:?}", begin.elapsed());
    });
}

#[test]
fn a_path_that_answers_is_kept_after_changes_of_the_network() {
    virtually(async {
        let scene = Scene::new(2, StandbyPath::Next);
        from(&scene, 1, WIRE);
        let link = scene.client.live().await;
        scene.has_standby(1).await;
        for _ in 0..100 {
            link.network_changed(|_| true);
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        assert_eq!((link.totals().2, scene.dials(), scene.port()), (0, vec![1, 1], 1));
        // The standby whose address is gone is dialled anew.
        from(&scene, 2, RADIO);
        scene.kill(2);
        tokio::time::sleep(Duration::from_secs(1)).await;
        scene.has_standby(1).await;
        link.network_changed(|local| local.ip() != IpAddr::from(RADIO));
        until("another standby", || scene.dials() == [1, 3]).await;
        assert_eq!((link.totals().2, scene.port()), (0, 1));
    });
}

#[test]
fn a_better_path_is_tried_at_once_after_a_change_of_the_network() {
    virtually(async {
        let scene = Scene::new(2, StandbyPath::Nowhere);
        scene.set_down(1, true);
        let link = scene.client.live().await;
        assert_eq!(scene.port(), 2);
        tokio::time::sleep(Duration::from_secs(8)).await;
        scene.set_down(1, false);
        let begin = Instant::now();
        link.network_changed(|_| true);
        until("the better path", || scene.port() == 1).await;
        assert!(begin.elapsed() < AT_ONCE, "{:?}", begin.elapsed());
    });
}
