//! Paths that fall silent: both ends must notice, and nothing may be lost.

use std::time::Duration;

use link::State;
use tokio::time::Instant;

use crate::rig::{Appetite, Client, Scripted, couple, open, path, plan, serve, until, virtually};

#[test]
fn with_data_outstanding_both_ends_notice_in_five_seconds_and_resume() {
    virtually(async {
        let (server, client, dialer) = couple().await;
        let (link, far) = (client.live().await, server.owner());
        let near = open(&link, "a", Appetite::SOME);
        let tap = far.next_tap().await;
        let (up, down) = (near.clone(), tap.clone());
        let sending = [
            tokio::task::spawn_local(async move { up.send_pattern(20_000_000).await }),
            tokio::task::spawn_local(async move { down.send_pattern(20_000_000).await }),
        ];
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(!tap.is_over(), "it is in the middle");
        let begin = Instant::now();
        dialer.breakers()[0].black_hole();
        // With one path, the probe of 3 s connects over it anew.
        let resumed = || link.totals().2 > 0 && server.link().totals().2 > 0;
        until("both resumed", resumed).await;
        assert!(begin.elapsed() <= Duration::from_secs(5), "{:?}", begin.elapsed());
        for task in sending {
            assert!(task.await.unwrap());
        }
        until("the ends", || near.is_over() && tap.is_over()).await;
        near.assert_pattern(20_000_000);
        tap.assert_pattern(20_000_000);
        assert_eq!(client.links.get(), 1);
    });
}

#[test]
fn without_another_path_both_ends_give_up_a_silent_carrier_after_five_seconds() {
    virtually(async {
        let (server, memory) = serve();
        let dialer = Scripted::new(&memory, []);
        let client = Client::start(plan(vec![path(dialer.clone(), 1)]));
        let (link, far) = (client.live().await, server.owner());
        let near = open(&link, "a", Appetite::ALL);
        let tap = far.next_tap().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        dialer.is_down.set(true);
        memory.breakers()[0].black_hole();
        let begin = Instant::now();
        assert!(near.send(b"x").await && tap.send(b"y").await);
        let stalled = || client.owner.saw(State::Stalled) && far.saw(State::Stalled);
        until("both notice", stalled).await;
        let took = begin.elapsed();
        assert!((4900..=5100).contains(&took.as_millis()), "{took:?}");
        dialer.is_down.set(false);
        until("it resumes", || link.is_live() && server.link().is_live()).await;
        near.finish();
        tap.finish();
        until("the ends", || near.is_over() && tap.is_over()).await;
        assert_eq!((near.count(), tap.count()), (1, 1));
    });
}

#[test]
fn an_idle_link_notices_in_forty_seconds() {
    virtually(async {
        let (server, memory) = serve();
        let dialer = Scripted::new(&memory, []);
        let client = Client::start(plan(vec![path(dialer.clone(), 1)]));
        client.live().await;
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!(dialer.dials.get(), 1, "idle and alive is not silent");
        dialer.is_down.set(true);
        memory.breakers()[0].black_hole();
        let begin = Instant::now();
        let far = server.owner();
        let stalled = || client.owner.saw(State::Stalled) && far.saw(State::Stalled);
        until("both notice", stalled).await;
        assert!(begin.elapsed() <= Duration::from_secs(40), "{:?}", begin.elapsed());
        dialer.is_down.set(false);
        client.live().await;
        assert_eq!(client.links.get(), 1);
    });
}

#[test]
fn the_next_path_takes_over_after_three_seconds_of_silence() {
    virtually(async {
        let (server, memory) = serve();
        let (first, second) = (Scripted::new(&memory, []), Scripted::new(&memory, []));
        let paths = vec![path(first.clone(), 1), path(second.clone(), 2)];
        let client = Client::start(plan(paths));
        let (link, far) = (client.live().await, server.owner());
        let near = open(&link, "a", Appetite::SOME);
        let tap = far.next_tap().await;
        let sender = near.clone();
        let sending =
            tokio::task::spawn_local(async move { sender.send_pattern(10_000_000).await });
        tokio::time::sleep(Duration::from_millis(500)).await;
        let begin = Instant::now();
        first.is_down.set(true);
        memory.breakers()[0].black_hole();
        until("the second path", || link.totals().2 > 0).await;
        let took = begin.elapsed();
        assert!((2900..=3300).contains(&took.as_millis()), "{took:?}");
        assert_eq!(client.connected.borrow().last(), Some(&(2, true)));
        assert_eq!(client.reason(), "memory://127.0.0.1:1 is silent");
        assert!(!client.owner.saw(State::Stalled), "it was never without a carrier");
        assert!(sending.await.unwrap());
        until("the end", || tap.is_over()).await;
        tap.assert_pattern(10_000_000);
    });
}
