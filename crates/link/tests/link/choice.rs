//! Paths that are chosen by measurement: the order of dials, probes, and what the link leaves to
//! whoever chooses.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use link::client::{DialError, PathChoice, StandbyPath};
use link::{Link, MoveError};
use tokio::time::Instant;
use transport::Listener;
use transport::memory;

use crate::rig::{Client, Rules, Scripted, Server, path, plan, until, virtually};

/// A choice that a test makes.
#[derive(Debug, Default)]
struct Chosen {
    order: RefCell<Vec<usize>>,
    /// The attempts: path, and whether it succeeded.
    attempts: RefCell<Vec<(usize, bool)>>,
}

impl PathChoice for Chosen {
    fn order(&self) -> Vec<usize> {
        self.order.borrow().clone()
    }

    fn attempted(&self, path: usize, outcome: Result<(), &DialError>) {
        self.attempts.borrow_mut().push((path, outcome.is_ok()));
    }
}

struct Scene {
    _server: Server,
    client: Client,
    chosen: Rc<Chosen>,
    /// The paths with the ports 1, 2 and so on.
    paths: Vec<Rc<Scripted>>,
}

impl Scene {
    /// `order`: the indexes of the paths.
    fn new(count: u16, order: &[usize]) -> Self {
        Self::with(count, order, StandbyPath::Nowhere)
    }

    fn with(count: u16, order: &[usize], standby: StandbyPath) -> Self {
        let (mut listeners, mut paths, mut ways) = (Vec::new(), Vec::new(), Vec::new());
        for port in 1..=count {
            let (listener, memory) = memory::laned_network(crate::LANES);
            let dialer = Scripted::new(&memory, []);
            listeners.push(Box::new(listener) as Box<dyn Listener>);
            ways.push(path(dialer.clone(), port));
            paths.push(dialer);
        }
        let server = Server::start(listeners, Rules::default());
        let chosen = Rc::new(Chosen { order: RefCell::new(order.to_vec()), ..Chosen::default() });
        let choice = Some(Rc::clone(&chosen) as Rc<dyn PathChoice>);
        let client = Client::start(link::client::Client { choice, standby, ..plan(ways) });
        Self { _server: server, client, chosen, paths }
    }

    /// The ports of the paths so far.
    fn ports(&self) -> Vec<u16> {
        self.client.connected.borrow().iter().map(|(port, _)| *port).collect()
    }

    async fn live(&self) -> Link {
        self.client.live().await
    }
}

fn url(port: u16) -> String {
    format!("memory://127.0.0.1:{port}")
}

#[test]
fn the_paths_are_dialled_in_the_order_of_the_choice() {
    virtually(async {
        let scene = Scene::new(3, &[2, 0]);
        scene.paths[2].is_down.set(true);
        let link = scene.live().await;
        assert_eq!(scene.ports(), [1]);
        assert!(scene.client.reason().starts_with("memory://127.0.0.1:3 failed ("));
        assert_eq!(*scene.chosen.attempts.borrow(), [(2, false), (0, true)]);
        assert_eq!(scene.paths[1].dials.get(), 0);
        // The next carrier is dialled in the order that then holds.
        *scene.chosen.order.borrow_mut() = vec![1];
        link.cut();
        until("the second path", || scene.ports() == [1, 2]).await;
    });
}

#[test]
fn a_link_that_others_choose_for_returns_to_no_path_by_itself() {
    virtually(async {
        let scene = Scene::new(2, &[]);
        scene.paths[0].is_down.set(true);
        let link = scene.live().await;
        scene.paths[0].is_down.set(false);
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!((scene.ports(), scene.paths[0].dials.get()), (vec![2], 1));
        assert_eq!(link.move_to(Some(&url(1))).await.unwrap().to, url(1));
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!(scene.ports(), [2, 1]);
    });
}

#[test]
fn a_probe_measures_a_path_and_leaves_the_link_where_it_is() {
    virtually(async {
        let scene = Scene::new(3, &[]);
        let link = scene.live().await;
        let active = link.active_carrier();
        scene.paths[1].delay.set(Duration::from_secs(1));
        let begin = Instant::now();
        let rtt = link.probe(&url(2)).await.unwrap();
        assert!(rtt < Duration::from_millis(100), "the dial does not count: {rtt:?}");
        assert!(begin.elapsed() >= Duration::from_secs(1));
        assert_eq!((link.active_carrier(), link.has_standby()), (active, false));
        scene.paths[2].is_down.set(true);
        let error = link.probe(&url(3)).await.unwrap_err();
        assert!(matches!(&error, MoveError::Failed { to, .. } if *to == url(3)), "{error}");
        scene.paths[2].is_away.set(true);
        scene.paths[2].is_down.set(false);
        let error = link.probe(&url(3)).await.unwrap_err();
        assert!(matches!(&error, MoveError::Unavailable { to, .. } if *to == url(3)), "{error}");
        scene.paths[2].is_away.set(false);
        assert_eq!(link.probe(&url(9)).await, Err(MoveError::Unknown(url(9))));
        assert_eq!(*scene.chosen.attempts.borrow(), [(0, true), (1, true), (2, false), (2, false)]);
        // A path that does not answer keeps no other path from its probe.
        scene.paths[1].silent.set(2);
        let late = tokio::time::timeout(Duration::from_secs(3), link.probe(&url(2))).await;
        assert!(late.is_err());
        assert!(link.probe(&url(3)).await.is_ok());
        assert_eq!((link.active_carrier(), scene.ports()), (active, vec![1]));
        // The link moves as ever.
        assert_eq!(link.move_to(Some(&url(3))).await.unwrap().to, url(3));
        assert_eq!(scene.client.links.get(), 1);
    });
}

#[test]
fn a_probe_ends_with_the_carrier_of_the_link() {
    virtually(async {
        let scene = Scene::new(2, &[]);
        let link = scene.live().await;
        scene.paths[1].silent.set(2);
        let probe = {
            let link = link.clone();
            tokio::task::spawn_local(async move { link.probe(&url(2)).await })
        };
        tokio::time::sleep(Duration::from_millis(100)).await;
        link.cut();
        assert_eq!(probe.await.unwrap(), Err(MoveError::Interrupted));
        until("a carrier", || link.is_live()).await;
        assert_eq!(scene.ports(), [1, 1]);
    });
}

#[test]
fn a_standby_that_a_probe_replaces_is_dialled_again() {
    virtually(async {
        let scene = Scene::with(3, &[], StandbyPath::Next);
        let link = scene.live().await;
        until("a standby", || link.has_standby()).await;
        let active = link.active_carrier();
        assert!(link.probe(&url(3)).await.is_ok());
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(link.has_standby());
        assert_eq!((link.active_carrier(), scene.ports()), (active, vec![1]));
    });
}
