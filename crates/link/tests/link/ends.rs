//! How links end, what ends with them, and what remains.

use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use link::{End, Lease, ProcessBudget, Settings, State};
use proto::control::{ControlMessage, Register};
use proto::greeting::Features;
use proto::{Attach, CarrierNumber, LinkConfig, ResetCode, Side, Unlimited};
use tokio::runtime::Handle;
use tokio::time::Instant;
use transport::memory::MEMORY;
use transport::memory::{self, Faults};
use transport::{Carrier, Peer};

use crate::rig::{
    Appetite, Behaviour, Client, Party, Rules, Scripted, Server, couple, direct, open, path, plan,
    serve, until, virtually,
};

#[test]
fn a_restarted_server_resets_the_streams_and_has_a_new_link_at_once() {
    virtually(async {
        let (server, client, _) = couple().await;
        let near = open(&client.live().await, "a", Appetite::ALL);
        server.owner().next_tap().await;
        let begin = Instant::now();
        server.forget();
        until("a second link", || client.links.get() == 2).await;
        client.live().await;
        assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
        assert_eq!(near.reset.get(), Some(ResetCode::Shutdown));
        assert!(!near.finished.get(), "an abort, not a clean end");
    });
}

#[test]
fn a_link_without_carrier_expires_on_both_sides_and_resets_its_streams() {
    virtually(async {
        let (server, memory) = serve();
        let dialer = Scripted::new(&memory, []);
        let client = Client::start(plan(vec![path(dialer.clone(), 1)]));
        let (link, far) = (client.live().await, server.owner());
        let near = open(&link, "a", Appetite::ALL);
        let tap = far.next_tap().await;
        dialer.is_down.set(true);
        memory.breakers()[0].kill();
        let begin = Instant::now();
        until("it stalls", || far.saw(State::Stalled)).await;
        tokio::time::sleep(Duration::from_secs(59)).await;
        assert!(near.reset.get().is_none() && tap.reset.get().is_none(), "sockets stay open");
        let gone = || near.reset.get().is_some() && tap.reset.get().is_some();
        until("both expire", gone).await;
        assert!(begin.elapsed() < Duration::from_secs(62), "{:?}", begin.elapsed());
        assert!(client.owner.saw(State::Ended(End::Expired)));
        assert!(far.saw(State::Ended(End::Expired)));
        dialer.is_down.set(false);
        until("a second link", || client.links.get() == 2).await;
    });
}

#[test]
fn a_client_that_closes_its_link_ends_it_on_the_server_at_once() {
    virtually(async {
        let (server, client, _) = couple().await;
        let near = open(&client.live().await, "a", Appetite::ALL);
        let (far, begin) = (server.owner(), Instant::now());
        let tap = far.next_tap().await;
        client.stop();
        until("the server's reset", || tap.reset.get() == Some(ResetCode::Shutdown)).await;
        assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
        until("the client's reset", || near.reset.get() == Some(ResetCode::Shutdown)).await;
        assert!(server.links().is_empty());
    });
}

#[test]
fn a_client_that_says_goodbye_does_not_come_back_whenever_its_last_stream_ends() {
    for turns in 0..40 {
        virtually(async move {
            let (_server, client, _) = couple().await;
            let link = client.live().await;
            let near = open(&link, "a", Appetite::ALL);
            assert!(near.send_pattern(1000).await);
            near.abort(ResetCode::Aborted);
            near.refuse_more(ResetCode::Aborted);
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            link.say_goodbye();
            until("the end", || link.has_ended()).await;
            assert_eq!(link.ended(), Some(End::Closed), "after {turns} turns");
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert_eq!(client.links.get(), 1, "after {turns} turns");
        });
    }
}

#[test]
fn a_server_that_goes_away_keeps_its_streams_and_gets_rid_of_the_link_after_the_last() {
    virtually(async {
        let (server, client, _) = couple().await;
        let (link, far) = (client.live().await, server.owner());
        let near = open(&link, "a", Appetite::ALL);
        let tap = far.next_tap().await;
        server.link().go_away();
        until("the news", || client.owner.saw(State::GoingAway)).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(near.send_pattern(1000).await && tap.send_pattern(1000).await);
        until("the ends", || near.is_over() && tap.is_over()).await;
        tap.assert_pattern(1000);
        until("the link ends", || link.has_ended()).await;
        until("another takes its place", || client.links.get() == 2).await;
    });
}

#[test]
fn a_second_carrier_beside_the_first_takes_over_when_that_dies() {
    virtually(async {
        let settings = |side| Settings {
            side,
            config: LinkConfig::default(),
            budget: Rc::new(Unlimited),
            serial: 1,
            features: Features::OURS,
        };
        let (near, far) = (Party::new(), Party::new());
        let client = link::Link::new(settings(Side::Client), near.clone());
        let server = link::Link::new(settings(Side::Server), far.clone());
        let mut breakers = Vec::new();
        for (number, how) in [(1, Attach::New), (2, Attach::Adds), (3, Attach::Adds)] {
            let (a, b) = memory::pair(Faults::default());
            breakers.push(a.breaker());
            for (link, lane) in [(&client, a), (&server, b)] {
                let carrier = Carrier::single(nobody(), Box::new(lane));
                assert!(link.attach(CarrierNumber(number), how, carrier, BytesMut::new()));
            }
        }
        let stream = open(&client, "a", Appetite::SOME);
        let tap = far.next_tap().await;
        let (up, down) = (stream.clone(), tap.clone());
        tokio::task::spawn_local(async move { up.send_pattern(3_000_000).await });
        tokio::task::spawn_local(async move { down.send_pattern(3_000_000).await });
        tokio::time::sleep(Duration::from_millis(100)).await;
        breakers[0].kill();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!((client.carriers().len(), client.totals().2), (1, 1));
        until("the ends", || stream.is_over() && tap.is_over()).await;
        stream.assert_pattern(3_000_000);
        tap.assert_pattern(3_000_000);
        // Idle for long: the standby is asked as well.
        tokio::time::sleep(Duration::from_mins(2)).await;
        assert_eq!(client.active_carrier(), Some(CarrierNumber(3)));
        assert!(!near.saw(State::Stalled) && client.is_live());
    });
}

fn nobody() -> Peer {
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 9));
    let transport = MEMORY;
    Peer {
        address,
        transport,
        connection: None,
        watch: None,
        exporter: None,
        certificate_name: None,
        cipher: None,
        via: None,
    }
}

#[test]
fn an_older_carrier_is_not_taken() {
    virtually(async {
        let (server, client, _) = couple().await;
        let (lane, _other) = memory::pair(Faults::default());
        let carrier = Carrier::single(nobody(), Box::new(lane));
        let link = server.link();
        let how = Attach::Replaces(CarrierNumber(1));
        assert!(!link.attach(CarrierNumber(1), how, carrier, BytesMut::new()));
        assert!(link.is_live() && client.live().await.is_live());
    });
}

#[test]
fn the_budget_of_a_worker_is_whole_again_when_its_links_have_ended() {
    let process = ProcessBudget::new(64 << 20);
    virtually(async {
        let lease = Rc::new(Lease::new(process.clone()));
        let (listener, dialer) = memory::laned_network(crate::LANES);
        let rules = Rules { budget: lease.clone(), ..Rules::default() };
        let server = Server::start(vec![Box::new(listener)], rules);
        let mut clients = Vec::new();
        for _ in 0..2 {
            let mut plan = plan(vec![direct(&dialer)]);
            plan.budget = lease.clone();
            let client = Client::start(plan);
            let link = client.live().await;
            server.owner().appetite.set(Appetite::NONE);
            // One that ends, one that never does.
            for total in [1000, 3_000_000] {
                let near = open(&link, "a", Appetite::ALL);
                let tap = server.owner().next_tap().await;
                tokio::task::spawn_local(async move { near.send_pattern(total).await });
                tap.finish();
            }
            clients.push(client);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(process.left() < process.total());
        // A pump that is done drops its end.
        server.owner().taps.borrow_mut().clear();
        clients.clear();
        drop(server);
        drop(lease);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(process.left(), process.total());
    });
}

#[test]
fn a_defect_of_one_link_ends_that_link_and_no_other() {
    for behaviour in [Behaviour::Panic, Behaviour::PanicLater] {
        virtually(async {
            let (server, client, dialer) = couple().await;
            let bystander = Client::start(plan(vec![direct(&dialer)]));
            let link = bystander.live().await;
            let far = server.owner();
            let first = client.live().await;
            let neighbour = open(&first, "neighbour", Appetite::ALL);
            far.next_tap().await;
            far.behaviour.set(behaviour);
            let near = open(&first, "a", Appetite::ALL);
            assert!(near.send(b"x").await);
            until("its link ends", || far.saw(State::Ended(End::Panicked))).await;
            far.behaviour.set(Behaviour::Keep);
            until("its streams are reset", || near.is_over() && neighbour.is_over()).await;
            until("a second link", || client.links.get() == 2).await;
            let near = open(&link, "b", Appetite::ALL);
            let (sent, tap) = tokio::join!(near.send_pattern(10), far.next_tap());
            assert!(sent);
            until("the other link lives", || tap.is_over()).await;
            assert_eq!(bystander.links.get(), 1);
        });
    }
}

#[test]
fn a_defect_met_by_the_timer_ends_its_link() {
    virtually(async {
        let (server, memory) = serve();
        let dialer = Scripted::new(&memory, []);
        let client = Client::start(plan(vec![path(dialer.clone(), 1)]));
        client.live().await;
        dialer.is_down.set(true);
        memory.breakers()[0].black_hole();
        // Told by the timer when the carrier is given up.
        client.owner.panics_at.set(Some(State::Stalled));
        until("its link ends", || client.owner.saw(State::Ended(End::Panicked))).await;
        dialer.is_down.set(false);
        until("a second link", || client.links.get() == 2).await;
        drop(server);
    });
}

#[test]
fn a_link_closed_by_its_owner_amid_a_call_takes_no_more_streams() {
    virtually(async {
        let (server, client, _) = couple().await;
        let far = server.owner();
        far.behaviour.set(Behaviour::Close);
        let link = client.live().await;
        let nears: Vec<_> = (0..5).map(|_| open(&link, "a", Appetite::ALL)).collect();
        until("they are reset", || nears.iter().all(|near| near.is_over())).await;
        assert_eq!(far.opens.borrow().len(), 1);
        let weak = Rc::downgrade(&far.tap(0).unwrap());
        assert!(far.tap(0).unwrap().reset.get().is_some());
        far.taps.borrow_mut().clear();
        server.forget();
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(weak.upgrade().is_none(), "nothing holds the stream any more");
    });
}

#[test]
fn ended_links_leave_no_task_and_no_stream_behind() {
    virtually(async {
        let (server, client, dialer) = couple().await;
        client.live().await;
        let metrics = Handle::current().metrics();
        let base = metrics.num_alive_tasks();
        let mut gone = Vec::new();
        for n in 0..50 {
            let extra = Client::start(plan(vec![direct(&dialer)]));
            let link = extra.live().await;
            let near = open(&link, "a", Appetite::ALL);
            let tap = server.owner().next_tap().await;
            assert!(near.send(&[0; 100_000]).await);
            gone.push((Rc::downgrade(&near), Rc::downgrade(&tap)));
            match n % 3 {
                0 => drop(extra),
                1 => link.close(),
                _ => server.links().iter().for_each(link::Link::close),
            }
        }
        server.owner().taps.borrow_mut().clear();
        tokio::time::sleep(Duration::from_mins(5)).await;
        assert_eq!(metrics.num_alive_tasks(), base);
        server.forget();
        tokio::time::sleep(Duration::from_secs(10)).await;
        let alive = gone.iter().filter(|(a, b)| a.strong_count() + b.strong_count() > 0).count();
        assert_eq!(alive, 0);
    });
}

#[test]
fn messages_and_streams_of_a_dead_link_go_nowhere() {
    virtually(async {
        let (_server, client, _) = couple().await;
        let link = client.live().await;
        let near = open(&link, "a", Appetite::ALL);
        link.close();
        let register = ControlMessage::Register(Register::default());
        assert!(!link.send_message(&register));
        assert!(near.reset.get().is_some());
        near.finish();
        near.abort(ResetCode::Aborted);
        near.leave();
        link.close();
        assert_eq!(client.owner.count(State::Ended(End::Closed)), 1);
    });
}
