//! A link that was told to go has a successor at once, and keeps its streams until they end.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use link::{End, Link, Retry, State};
use proto::{LinkConfig, Open, Priority, StreamId, Target};
use tokio::runtime::Handle;
use tokio::time::Instant;
use transport::memory;
use transport::{Connector, Outlet};

use crate::rig::{
    Appetite, Client, Party, Rules, Scripted, Server, Tap, couple, direct, open, path, plan, serve,
    until, virtually,
};

/// What a successor may take at most: one round of dialling and greeting in memory.
const AT_ONCE: Duration = Duration::from_millis(50);

/// Older than what is too young to be replaced without a pause.
const GROWN: Duration = Duration::from_secs(2);

/// A client whose dials can be held up.
async fn scripted() -> (Server, Client, Rc<Scripted>) {
    let (server, memory) = serve();
    let dialer = Scripted::new(&memory, []);
    let client = Client::start(plan(vec![path(dialer.clone(), 1)]));
    client.live().await;
    tokio::time::sleep(GROWN).await;
    (server, client, dialer)
}

/// A stream from `link` to `far` and its two ends.
async fn stream(link: &Link, far: &Rc<Party>, name: &str) -> [Rc<Tap>; 2] {
    let near = open(link, name, Appetite::ALL);
    [near, far.next_tap().await]
}

/// Sends both ways and ends both.
async fn complete(ends: &[Rc<Tap>; 2]) {
    for tap in ends {
        assert!(tap.send_pattern(1000).await);
    }
    for tap in ends {
        until("its end", || tap.is_over()).await;
        tap.assert_pattern(1000);
    }
}

#[test]
fn a_link_told_to_go_away_has_a_successor_at_once_and_keeps_its_streams() {
    virtually(async {
        let (server, client, _) = couple().await;
        let (link, far) = (client.live().await, server.owner());
        let first = server.link();
        tokio::time::sleep(GROWN).await;
        let old = stream(&link, &far, "a").await;
        let begin = Instant::now();
        first.go_away();
        until("a successor", || client.links.get() == 2).await;
        let successor = client.live().await;
        until("the old one takes none", || link.is_going_away() && first.is_going_away()).await;
        assert!(begin.elapsed() < AT_ONCE, "{:?}", begin.elapsed());
        for owner in [&client.owner, &far] {
            assert_eq!(*owner.states.borrow(), [State::Live, State::Live, State::GoingAway]);
        }
        // New streams of both sides go over the successor.
        let second = server.newest();
        assert_ne!(second.serial(), first.serial());
        complete(&stream(&successor, &far, "b").await).await;
        complete(&stream(&second, &client.owner, "c").await).await;
        tokio::time::sleep(Duration::from_mins(5)).await;
        complete(&old).await;
        let begin = Instant::now();
        until("the old link ends on both sides", || link.has_ended() && first.has_ended()).await;
        assert!(begin.elapsed() < 2 * AT_ONCE, "{:?}", begin.elapsed());
        assert_eq!((link.ended(), first.ended()), (Some(End::Retired), Some(End::ByPeer)));
        tokio::time::sleep(Duration::from_mins(2)).await;
        assert_eq!(client.links.get(), 2);
        assert!(successor.is_live() && second.is_live());
        assert_eq!(client.connected.borrow().len(), 2, "one connection each");
    });
}

#[test]
fn until_there_is_a_successor_the_old_link_takes_the_streams_of_both_sides() {
    virtually(async {
        let (server, client, dialer) = scripted().await;
        let (link, first, far) = (client.live().await, server.link(), server.owner());
        dialer.is_down.set(true);
        first.go_away();
        for n in 0..20 {
            tokio::time::sleep(Duration::from_secs(3)).await;
            assert!(link.is_live() && !link.is_going_away(), "after {n} rounds");
            complete(&stream(&link, &far, "up").await).await;
            complete(&stream(&first, &client.owner, "down").await).await;
        }
        assert_eq!(client.links.get(), 1);
        assert!(!client.failures.borrow().is_empty());
        dialer.is_down.set(false);
        until("a successor", || client.links.get() == 2).await;
        until("the old one ends: it has no stream", || first.has_ended()).await;
        complete(&stream(&client.live().await, &far, "up").await).await;
        assert!(!far.saw(State::Stalled) && !client.owner.saw(State::Stalled));
    });
}

#[test]
fn links_whose_ids_are_used_up_replace_each_other_and_refuse_no_stream() {
    let few = LinkConfig { last_id: StreamId::new(20), ..LinkConfig::default() };
    for server_opens in [false, true] {
        virtually(async {
            let (listener, dialer) = memory::laned_network(crate::LANES);
            let mut rules = Rules::default();
            let mut plan = plan(vec![direct(&dialer)]);
            if server_opens { &mut rules.config } else { &mut plan.link }.last_id = few.last_id;
            let server = Server::start(vec![Box::new(listener)], rules);
            let client = Client::start(plan);
            client.live().await;
            let mut streams = Vec::new();
            for n in 0..105 {
                // As a session does: the newest link that takes streams, waited for if need be.
                let ready = || {
                    let newest = if server_opens { Some(server.newest()) } else { client.link() };
                    newest.filter(|link| link.is_live() && !link.is_going_away())
                };
                until("a link that takes streams", || ready().is_some()).await;
                let (link, to) = (ready().unwrap(), [&server.owner(), &client.owner]);
                streams.push(stream(&link, to[usize::from(server_opens)], &n.to_string()).await);
                assert_eq!(link.is_going_away(), n % 10 == 9, "told with the last id");
            }
            assert_eq!(client.links.get(), 11);
            for ends in &streams {
                complete(ends).await;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(server.links().len(), 1, "the others ended with their streams");
            let ends = client.owner.count(State::Ended(End::Retired));
            assert_eq!((ends, client.links.get()), (10, 11));
        });
    }
}

#[test]
fn the_opener_of_the_last_id_is_told_before_it_can_try_another() {
    virtually(async {
        let (_listener, dialer) = serve();
        let mut plan = plan(vec![direct(&dialer)]);
        plan.link.last_id = StreamId::new(2);
        let client = Client::start(plan);
        let link = client.live().await;
        let _near = open(&link, "a", Appetite::ALL);
        assert!(client.owner.saw(State::GoingAway));
        let target = Target::Service("b".to_owned());
        let wish = Open { target, visitor: None, priority: Priority::Normal, fields: None };
        let outlet: Rc<dyn Outlet> = Tap::new(Appetite::ALL);
        assert!(link.open(wish, outlet).is_err());
    });
}

#[test]
fn a_server_that_sends_every_link_away_is_dialled_with_pauses() {
    virtually(async {
        let (server, dialer) = serve();
        server.state.sends_away.set(true);
        let mut plan = plan(vec![direct(&dialer)]);
        plan.retry = Retry::default();
        let client = Client::start(plan);
        client.live().await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        // 1.5 s at most, 0.75 s at least, but for the first few.
        let links = client.links.get();
        assert!((40..90).contains(&links), "{links} links in a minute");
        assert!(server.links().len() <= 2, "without streams the old ones end");
        // Each with a stream: they are kept, and so there is an end to it.
        let mut kept = Vec::new();
        for n in 0..300 {
            let link = client.live().await;
            kept.push(stream(&link, &server.owner(), &n.to_string()).await);
            tokio::time::sleep(Duration::from_millis(500)).await;
            assert!(server.links().len() <= 17, "{}", server.links().len());
        }
        let links = client.links.get();
        tokio::time::sleep(Duration::from_mins(5)).await;
        assert_eq!(client.links.get(), links, "no more until one ends");
        server.state.sends_away.set(false);
        for ends in &kept {
            complete(ends).await;
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!((server.links().len(), client.links.get()), (1, links + 1));
    });
}

#[test]
fn a_retiring_link_that_loses_its_carrier_resumes_beside_its_successor() {
    for after in 0..12 {
        virtually(async move {
            let (server, client, memory) = couple().await;
            let (link, first, far) = (client.live().await, server.link(), server.owner());
            tokio::time::sleep(GROWN).await;
            let old = stream(&link, &far, "a").await;
            first.go_away();
            for _ in 0..after {
                tokio::task::yield_now().await;
            }
            // Before the news arrive, amid the greeting of the successor, or after it.
            memory.breakers()[0].kill();
            until("a successor", || client.links.get() == 2).await;
            let gone = || first.is_going_away() && link.is_going_away() && link.is_live();
            until("the old one is back and takes none", gone).await;
            complete(&stream(&client.live().await, &far, "b").await).await;
            complete(&old).await;
            until("it ends", || link.has_ended() && first.has_ended()).await;
            assert_eq!((link.ended(), client.links.get()), (Some(End::Retired), 2));
        });
    }
}

#[test]
fn a_retiring_link_waits_for_the_last_bytes_at_either_end() {
    for slow_server in [true, false] {
        virtually(async {
            let (server, client, _) = couple().await;
            let (link, first) = (client.live().await, server.link());
            let owners = [server.owner(), client.owner.clone()];
            let (from, to) = if slow_server { (&link, &owners[0]) } else { (&first, &owners[1]) };
            to.appetite.set(Appetite::NONE);
            let [near, tap] = stream(from, to, "a").await;
            assert!(near.send_pattern(100_000).await);
            assert!(tap.send_pattern(1000).await);
            first.go_away();
            until("a successor", || client.links.get() == 2).await;
            // The one end has forgotten the stream; the other still brings it to its target.
            tokio::time::sleep(Duration::from_mins(5)).await;
            assert!(!link.has_ended() && !first.has_ended());
            assert_eq!(tap.reset.get(), None);
            near.assert_pattern(1000);
            tap.take_queued();
            until("it ends", || link.has_ended() && first.has_ended()).await;
            tap.assert_pattern(100_000);
        });
    }
}

#[test]
fn a_goodbye_amid_the_dial_of_a_successor_ends_it() {
    virtually(async {
        let (server, client, dialer) = scripted().await;
        let (link, first) = (client.live().await, server.link());
        dialer.delay.set(Duration::from_millis(100));
        first.go_away();
        until("the dial", || dialer.dials.get() == 2).await;
        link.say_goodbye();
        until("the end", || link.has_ended() && first.has_ended()).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!((dialer.dials.get(), client.links.get()), (2, 1));
        assert!(server.links().is_empty());
    });
}

#[test]
fn a_client_on_its_way_out_makes_no_successor_and_keeps_its_streams() {
    for amid_dial in [false, true] {
        virtually(async move {
            let (listener, memory) = memory::laned_network(crate::LANES);
            let server = Server::start(vec![Box::new(listener)], Rules::default());
            let dialer = Scripted::new(&memory, []);
            let plan = plan(vec![path(dialer.clone(), 1)]);
            let leaving = plan.leaving.clone();
            let client = Client::start(plan);
            let (link, far) = (client.live().await, server.owner());
            let first = server.link();
            tokio::time::sleep(GROWN).await;
            let old = stream(&link, &far, "a").await;
            dialer.delay.set(Duration::from_millis(100));
            if amid_dial {
                first.go_away();
                until("the dial", || dialer.dials.get() == 2).await;
            }
            leaving.store(true, Ordering::Relaxed);
            first.go_away();
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert_eq!(client.links.get(), 1);
            // Its carrier is still looked after.
            memory.breakers()[0].kill();
            tokio::time::sleep(Duration::from_secs(5)).await;
            complete(&old).await;
            link.say_goodbye();
            until("the end", || link.has_ended()).await;
            tokio::time::sleep(Duration::from_secs(30)).await;
            assert_eq!(client.links.get(), 1);
            assert!(server.links().iter().all(|link| !link.is_live()));
        });
    }
}

#[test]
fn dropping_the_keeper_closes_the_retiring_links_as_well() {
    virtually(async {
        let (server, client, _) = couple().await;
        let metrics = Handle::current().metrics();
        let (link, far) = (client.live().await, server.owner());
        tokio::time::sleep(GROWN).await;
        let [near, tap] = stream(&link, &far, "a").await;
        server.link().go_away();
        until("a successor", || client.links.get() == 2).await;
        client.live().await;
        drop(client);
        until("the reset", || near.is_over() && tap.is_over()).await;
        until("all links end", || server.links().is_empty()).await;
        drop(server);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(metrics.num_alive_tasks(), 0);
    });
}
