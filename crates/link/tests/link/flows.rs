//! Flows over real tasks: both ways, under death, and at the end of their link.

use std::time::Duration;

use link::State;
use proto::{ResetCode, Target};
use transport::memory::MemoryDialer;

use crate::rig::{Appetite, Behaviour, couple, open, open_flow, until, virtually};

/// Kills the newest connection.
fn kill(dialer: &MemoryDialer) {
    dialer.breakers().last().unwrap().kill();
}

#[test]
fn datagrams_cross_both_ways_whoever_opens() {
    virtually(async {
        let (server, client, _) = couple().await;
        let links = [(client.live().await, server.owner()), (server.link(), client.owner.clone())];
        for (link, far) in &links {
            let near = open_flow(link, "dns");
            assert_eq!((near.send(b"question"), near.send(b"")), (0, 0));
            until("the flow", || far.flows.borrow().len() == 1).await;
            let tap = far.flows.borrow()[0].clone();
            until("both datagrams", || tap.count() == 2).await;
            assert_eq!(*tap.got.borrow(), [&b"question"[..], b""]);
            assert_eq!(tap.open.as_ref().unwrap().target, Target::Service("dns".to_owned()));
            for size in [1, 1_196, 1_197, 20_000, 65_507] {
                let before = near.count();
                assert_eq!(tap.send(&vec![7; size]), 0);
                until("the answer", || near.count() > before).await;
                assert_eq!(near.got.borrow().last().unwrap().len(), size);
            }
            assert_eq!((link.flow_count(), link.stream_count()), (1, 0));
            tap.close(ResetCode::Timeout);
            until("its end", || near.closed.get() == Some(ResetCode::Timeout)).await;
            assert_eq!(link.flow_count(), 0);
        }
    });
}

#[test]
fn a_dropped_inlet_closes_the_flow_and_a_refusal_has_its_reason() {
    virtually(async {
        let (server, client, _) = couple().await;
        let (link, far) = (client.live().await, server.owner());
        let near = open_flow(&link, "a");
        until("the flow", || far.flows.borrow().len() == 1).await;
        drop(near.inlet.take());
        let tap = far.flows.borrow()[0].clone();
        until("its end", || tap.closed.get() == Some(ResetCode::Aborted)).await;
        far.behaviour.set(Behaviour::Refuse);
        let refused = open_flow(&link, "b");
        until("the refusal", || refused.closed.get() == Some(ResetCode::Refused)).await;
        assert_eq!(link.flow_count() + server.link().flow_count(), 0);
    });
}

#[test]
fn flows_and_their_outlets_survive_carriers() {
    virtually(async {
        let (server, client, dialer) = couple().await;
        let (link, far) = (client.live().await, server.owner());
        let near = open_flow(&link, "game");
        assert_eq!(near.send(b"0"), 0);
        until("the flow", || far.flows.borrow().len() == 1).await;
        let tap = far.flows.borrow()[0].clone();
        for death in 1..=5_u8 {
            kill(&dialer);
            until("the loss", || !link.is_live()).await;
            assert_eq!(near.send(&[death]), 0);
            until("the next carrier", || link.is_live()).await;
            let arrived = |bytes: &[u8]| bytes == [death];
            until("what waited", || tap.got.borrow().iter().any(|b| arrived(b))).await;
            assert_eq!(tap.send(&[death]), 0);
            until("the answer", || near.got.borrow().iter().any(|b| arrived(b))).await;
        }
        assert_eq!(far.flows.borrow().len(), 1, "the flow is the same");
        assert_eq!(near.count(), 5, "nothing is doubled");
    });
}

#[test]
fn the_end_of_a_link_closes_its_flows() {
    virtually(async {
        let (server, client, _) = couple().await;
        let (link, far) = (client.live().await, server.owner());
        let near = open_flow(&link, "a");
        until("the flow", || far.flows.borrow().len() == 1).await;
        server.link().close();
        let tap = far.flows.borrow()[0].clone();
        until("both ends", || near.closed.get().is_some() && tap.closed.get().is_some()).await;
    });
}

#[test]
fn a_link_that_retires_goes_with_its_last_flow() {
    virtually(async {
        let (server, client, _) = couple().await;
        let (link, far) = (client.live().await, server.owner());
        tokio::time::sleep(Duration::from_secs(2)).await;
        let near = open_flow(&link, "a");
        until("the flow", || far.flows.borrow().len() == 1).await;
        let first = server.link();
        first.go_away();
        until("a successor", || client.links.get() == 2).await;
        tokio::time::sleep(Duration::from_mins(5)).await;
        assert!(!link.has_ended() && far.saw(State::GoingAway));
        let tap = far.flows.borrow()[0].clone();
        assert_eq!(near.send(b"still"), 0);
        until("the datagram", || tap.count() == 1).await;
        tap.close(ResetCode::Timeout);
        until("the end of the link", || link.has_ended() && first.has_ended()).await;
    });
}

#[test]
fn a_flood_of_datagrams_stops_no_stream() {
    virtually(async {
        let (server, client, _) = couple().await;
        let (link, far) = (client.live().await, server.owner());
        let flow = open_flow(&link, "flood");
        let near = open(&link, "bulk", Appetite::ALL);
        let flood = async {
            loop {
                for _ in 0..50 {
                    let _ = flow.send(&[0; 1_100]);
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let bulk = async {
            let (sent, tap) = tokio::join!(near.send_pattern(2_000_000), far.next_tap());
            assert!(sent);
            until("all bytes", || tap.count() == 2_000_000).await;
        };
        tokio::select! {
            () = bulk => {}
            () = flood => {}
        }
        until("datagrams", || far.flows.borrow().first().is_some_and(|tap| tap.count() > 100))
            .await;
    });
}

#[test]
fn datagrams_that_nobody_answers_do_not_make_a_carrier_dead() {
    virtually(async {
        let (server, client, dialer) = couple().await;
        let link = client.live().await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        let near = open_flow(&link, "log");
        for pause in [3, 30, 7, 50] {
            assert_eq!(near.send(b"line"), 0);
            tokio::time::sleep(Duration::from_secs(pause)).await;
        }
        until("the datagrams", || server.owner().flows.borrow()[0].count() == 4).await;
        assert_eq!(dialer.breakers().len(), 1, "the first carrier lives");
    });
}
