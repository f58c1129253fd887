//! Several paths: order, head start, falling back and coming back.

use std::rc::Rc;
use std::time::Duration;

use link::Retry;
use link::client::Client as Plan;
use tokio::time::Instant;

use crate::rig::{Appetite, Client, Scripted, direct, open, path, plan, serve, until, virtually};

#[test]
fn a_path_that_does_not_answer_has_a_head_start_of_two_seconds() {
    virtually(async {
        let (_server, memory) = serve();
        let (first, second) = (Scripted::new(&memory, []), Scripted::new(&memory, []));
        first.delay.set(Duration::from_hours(1));
        let begin = Instant::now();
        let client = Client::start(plan(vec![path(first, 1), path(second, 2)]));
        client.live().await;
        let took = begin.elapsed();
        assert!((2000..=2100).contains(&took.as_millis()), "{took:?}");
        assert_eq!(*client.connected.borrow(), [(2, false)]);
        assert_eq!(client.reason(), "memory://127.0.0.1:1 did not answer within 2 s");
    });
}

#[test]
fn a_pause_between_attempts_ends_at_a_command() {
    virtually(async {
        let (server, memory) = serve();
        let only = Scripted::new(&memory, []);
        only.is_down.set(true);
        let hour = Duration::from_hours(1);
        let retry = Retry { min: hour, max: hour };
        let plan = Plan { retry, ..plan(vec![path(only.clone(), 1)]) };
        let redial = Rc::clone(&plan.redial);
        let begin = Instant::now();
        let client = Client::start(plan);
        // A link that was never connected, and a link that has lost its carrier.
        until("the first attempt", || client.failures.borrow().len() == 1).await;
        only.is_down.set(false);
        assert_eq!(redial.now(), 1);
        let link = client.live().await;
        assert_eq!(redial.now(), 0);
        tokio::time::sleep(Duration::from_secs(2)).await;
        only.is_down.set(true);
        memory.breakers()[0].kill();
        until("the second attempt", || client.failures.borrow().len() == 2).await;
        only.is_down.set(false);
        assert_eq!(redial.now(), 1);
        until("it resumes", || link.is_live()).await;
        assert!(begin.elapsed() < Duration::from_mins(1), "{:?}", begin.elapsed());
        drop(server);
    });
}

#[test]
fn a_dial_that_nobody_answers_has_another_beside_it_after_three_seconds() {
    virtually(async {
        let (_server, memory) = serve();
        let only = Scripted::new(&memory, []);
        only.silent.set(1);
        let begin = Instant::now();
        let client = Client::start(plan(vec![path(only.clone(), 1)]));
        client.live().await;
        let took = begin.elapsed();
        assert!((3000..=3100).contains(&took.as_millis()), "{took:?}");
        assert_eq!(only.dials.get(), 2);
    });
}

#[test]
fn a_refused_path_gives_way_at_once_and_the_order_is_kept() {
    virtually(async {
        let (_server, memory) = serve();
        let paths: Vec<_> = (0..3).map(|_| Scripted::new(&memory, [])).collect();
        paths[0].is_down.set(true);
        let begin = Instant::now();
        let all = paths.iter().zip(1..).map(|(one, port)| path(one.clone(), port)).collect();
        let client = Client::start(plan(all));
        client.live().await;
        assert!(begin.elapsed() < Duration::from_millis(100));
        assert_eq!(*client.connected.borrow(), [(2, false)]);
        let reason = client.reason();
        assert!(
            reason.starts_with("memory://127.0.0.1:1 failed (") && !reason.contains(":2"),
            "{reason}"
        );
        assert_eq!(paths[2].dials.get(), 0);
    });
}

#[test]
fn the_preferred_path_is_taken_back_after_a_minute_without_losing_a_byte() {
    virtually(async {
        let (server, memory) = serve();
        let (first, second) = (Scripted::new(&memory, []), Scripted::new(&memory, []));
        first.is_down.set(true);
        let client = Client::start(plan(vec![path(first.clone(), 1), path(second.clone(), 2)]));
        let (link, far) = (client.live().await, server.owner());
        let near = open(&link, "a", Appetite::SOME);
        let tap = far.next_tap().await;
        let (up, down) = (near.clone(), tap.clone());
        // 5 MB a second: two minutes and a half.
        let total = 750_000_000;
        for task in [up, down] {
            task.keeps.set(false);
            tokio::task::spawn_local(async move { task.send_pattern(total).await });
        }
        let begin = Instant::now();
        tokio::time::sleep(Duration::from_secs(70)).await;
        assert_eq!(client.connected.borrow().len(), 1);
        first.is_down.set(false);
        until("the preferred path", || client.connected.borrow().len() == 2).await;
        assert!(begin.elapsed() <= Duration::from_secs(125), "{:?}", begin.elapsed());
        assert_eq!(client.connected.borrow()[1], (1, true));
        assert_eq!(client.reason(), "this path is preferred and answers");
        until("the ends", || near.is_over() && tap.is_over()).await;
        near.assert_pattern(total);
        tap.assert_pattern(total);
        assert_eq!((client.links.get(), link.totals().2), (1, 1));
        assert!(!client.owner.saw(link::State::Stalled));
    });
}

#[test]
fn a_carrier_lost_while_a_better_path_is_tried_is_replaced_at_once() {
    virtually(async {
        let (_server, memory) = serve();
        let (first, second) = (Scripted::new(&memory, []), Scripted::new(&memory, []));
        first.is_down.set(true);
        let client = Client::start(plan(vec![path(first.clone(), 1), path(second.clone(), 2)]));
        let link = client.live().await;
        // From now on, dials over the first path hang.
        first.is_down.set(false);
        first.delay.set(Duration::from_hours(1));
        until("it is tried", || first.dials.get() == 2).await;
        memory.breakers()[0].kill();
        let begin = Instant::now();
        until("it notices", || !link.is_live()).await;
        until("it resumes", || link.is_live()).await;
        // The delay is at most the head start of the first path.
        assert!(begin.elapsed() <= Duration::from_millis(2200), "{:?}", begin.elapsed());
    });
}

#[test]
fn a_carrier_lost_after_the_path_was_changed_is_no_news() {
    virtually(async {
        let (server, memory) = serve();
        let dialer = Scripted::new(&memory, []);
        let client = Client::start(plan(vec![path(dialer.clone(), 1)]));
        let link = client.live().await;
        let tap = open(&link, "a", Appetite::ALL);
        server.owner().next_tap().await;
        memory.breakers()[0].black_hole();
        assert!(tap.send(b"x").await);
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(link.is_live());
        assert_eq!(dialer.dials.get(), 2, "one death, one new carrier");
    });
}

#[test]
fn a_losing_path_that_was_greeted_costs_the_winner_a_moment_only() {
    virtually(async {
        let (server, memory) = serve();
        let (first, second) = (Scripted::new(&memory, []), Scripted::new(&memory, []));
        let client = Client::start(plan(vec![path(first.clone(), 1), path(second.clone(), 2)]));
        let link = client.live().await;
        // Both are greeted in the same moment: one is the last for the server, and one the first
        // for the client.
        first.delay.set(Duration::from_millis(2000));
        memory.breakers()[0].kill();
        until("it notices", || !link.is_live()).await;
        let begin = Instant::now();
        until("both live", || link.is_live() && server.link().is_live()).await;
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        tokio::time::sleep(Duration::from_secs(10)).await;
        let near = open(&link, "a", Appetite::ALL);
        let (sent, tap) = tokio::join!(near.send_pattern(1000), server.owner().next_tap());
        assert!(sent);
        until("its end", || tap.is_over()).await;
        assert_eq!(client.links.get(), 1);
    });
}

#[test]
fn two_paths_greeted_at_once_leave_one_link() {
    virtually(async {
        let (server, memory) = serve();
        let (first, second) = (Scripted::new(&memory, []), Scripted::new(&memory, []));
        first.delay.set(Duration::from_secs(2));
        let client = Client::start(plan(vec![path(first, 1), path(second, 2)]));
        client.live().await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!((server.state.greeted.get(), client.links.get()), (2, 1));
        assert!(server.link().is_live() && client.live().await.is_live());
    });
}

#[test]
fn a_server_that_forgot_the_link_is_believed_over_a_path_that_is_down() {
    virtually(async {
        let (server, memory) = serve();
        let (first, second) = (Scripted::new(&memory, []), Scripted::new(&memory, []));
        let client = Client::start(plan(vec![path(first.clone(), 1), path(second.clone(), 2)]));
        client.live().await;
        first.is_down.set(true);
        server.forget();
        let begin = Instant::now();
        until("a second link", || client.links.get() == 2).await;
        assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    });
}

#[test]
fn a_server_that_drops_all_it_greeted_is_not_tried_without_pause() {
    virtually(async {
        let (server, dialer) = serve();
        server.state.drops_greeted.set(true);
        let mut plan = plan(vec![direct(&dialer)]);
        plan.retry = Retry::default();
        let _client = Client::start(plan);
        tokio::time::sleep(Duration::from_secs(30)).await;
        let greeted = server.state.greeted.get();
        assert!((10..=60).contains(&greeted), "{greeted} greetings in 30 s");
    });
}

#[test]
fn connections_that_die_young_are_not_made_without_pause() {
    virtually(async {
        let (server, memory) = serve();
        let dialer = Scripted::new(&memory, []);
        let mut plan = plan(vec![path(dialer.clone(), 1)]);
        plan.retry = Retry::default();
        let client = Client::start(plan);
        client.live().await;
        server.state.drops_greeted.set(true);
        memory.breakers()[0].kill();
        tokio::time::sleep(Duration::from_secs(30)).await;
        let dials = dialer.dials.get();
        assert!((10..=80).contains(&dials), "{dials} connections in 30 s");
        server.state.drops_greeted.set(false);
        client.live().await;
        assert_eq!(client.links.get(), 1);
    });
}
