//! Streams both ways: bytes, ends, refusals, and a slow one beside a quick one.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use link::{Link, State};
use proto::{Open, Priority, ResetCode, Target};
use testkit::origins::Pattern;
use tokio::time::Instant;
use transport::memory::Faults;
use transport::{Connector as _, Outlet};

use crate::rig::{
    Appetite, Behaviour, Client, Scripted, Server, Tap, couple, open, path, plan, serve, until,
    virtually,
};

#[test]
fn bytes_and_ends_cross_both_ways_whoever_opens() {
    virtually(async {
        let (server, client, _) = couple().await;
        let links = [(client.live().await, server.owner()), (server.link(), client.owner.clone())];
        for (link, far) in &links {
            let near = open(link, "echo", Appetite::SOME);
            let (up, down) = (1_000_000, 700_001);
            let tap = far.next_tap();
            let (sent, tap) = tokio::join!(near.send_pattern(up), tap);
            assert!(sent);
            until("its end", || tap.is_over()).await;
            // Half-closed: the other direction goes on.
            assert!(tap.send_pattern(down).await);
            until("its end", || near.is_over()).await;
            near.assert_pattern(down);
            tap.assert_pattern(up);
        }
        assert_eq!(server.owner().opens.borrow()[0].target, Target::Service("echo".to_owned()));
        for (link, _) in &links {
            until("both forget", || link.stream_count() == 0).await;
        }
    });
}

#[test]
fn early_data_travels_with_the_open() {
    virtually(async {
        let (server, client, _) = couple().await;
        let near = open(&client.live().await, "echo", Appetite::ALL);
        assert!(near.send(b"").await);
        let far = server.owner();
        let sending = near.send_pattern(10_000);
        let (sent, tap) = tokio::join!(sending, far.next_tap());
        assert!(sent);
        until("the bytes", || tap.is_over()).await;
        tap.assert_pattern(10_000);
    });
}

#[test]
fn frames_of_a_stream_that_come_together_are_handed_on_together() {
    virtually(async {
        let (server, client, _) = couple().await;
        let near = open(&client.live().await, "a", Appetite::ALL);
        let tap = server.owner().next_tap().await;
        for n in 0..1000u64 {
            assert!(near.send(Pattern.at(n, 1)).await);
        }
        until("every byte", || tap.count() == 1000).await;
        let deliveries = tap.deliveries.get();
        assert!((16..100).contains(&deliveries), "64 at most at a time: {deliveries}");
    });
}

#[test]
fn a_reset_is_a_reset_and_a_stop_stops() {
    virtually(async {
        let (server, client, _) = couple().await;
        let (link, far) = (client.live().await, server.owner());
        let near = open(&link, "a", Appetite::ALL);
        let tap = far.next_tap().await;
        assert!(near.send(b"some").await);
        near.abort(ResetCode::Aborted);
        until("the reset", || tap.reset.get() == Some(ResetCode::Aborted)).await;
        assert!(!tap.finished.get());
        // The other direction lives until it is stopped.
        assert!(tap.send(&[0; 100_000]).await);
        near.refuse_more(ResetCode::Denied);
        until("the stop", || tap.stopped.get() == Some(ResetCode::Denied)).await;
        assert!(!tap.send(b"more").await);
        until("forgotten", || link.stream_count() + server.link().stream_count() == 0).await;
    });
}

#[test]
fn a_stream_whose_pump_is_dropped_is_aborted() {
    virtually(async {
        let (server, client, _) = couple().await;
        let near = open(&client.live().await, "a", Appetite::ALL);
        let tap = server.owner().next_tap().await;
        near.leave();
        until("both ends", || tap.reset.get().is_some() && tap.stopped.get().is_some()).await;
        until("forgotten", || server.link().stream_count() == 0).await;
    });
}

/// The client's end of a stream whose two directions have ended, and which waits only for the last
/// bytes that its application has not taken. Nothing of it is left to be sent, and no timer of the
/// link is near.
async fn ended_but_not_taken(server: &Server, link: &Link) -> Rc<Tap> {
    let near = open(link, "a", Appetite::NONE);
    let (sent, far) = tokio::join!(near.send_pattern(10), server.owner().next_tap());
    assert!(sent && far.send_pattern(100).await);
    until("the ends", || near.is_over() && far.is_over()).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(link.stream_count(), 1, "its bytes wait");
    near
}

#[test]
fn a_stream_is_let_go_at_once_when_its_last_bytes_are_taken_after_its_end() {
    virtually(async {
        let (server, client, _) = couple().await;
        let link = client.live().await;
        let near = ended_but_not_taken(&server, &link).await;
        let begin = Instant::now();
        near.take_queued();
        assert_eq!(link.stream_count(), 0);
        // The test holds one reference, and the link the other one.
        until("its outlet is let go", || Rc::strong_count(&near) == 1).await;
        assert!(begin.elapsed() < Duration::from_millis(10), "{:?}", begin.elapsed());
    });
}

#[test]
fn a_stream_is_let_go_at_once_when_its_last_bytes_are_not_wanted_after_its_end() {
    virtually(async {
        let (server, client, _) = couple().await;
        let link = client.live().await;
        let near = ended_but_not_taken(&server, &link).await;
        let begin = Instant::now();
        near.refuse_more(ResetCode::Aborted);
        until("its outlet is let go", || Rc::strong_count(&near) == 1).await;
        assert!(begin.elapsed() < Duration::from_millis(10), "{:?}", begin.elapsed());
    });
}

#[test]
fn a_stalled_link_lets_a_stream_go_at_once_as_well() {
    virtually(async {
        let (server, memory) = serve();
        let dialer = Scripted::new(&memory, []);
        let client = Client::start(plan(vec![path(dialer.clone(), 1)]));
        let link = client.live().await;
        let near = ended_but_not_taken(&server, &link).await;
        dialer.is_down.set(true);
        memory.breakers()[0].kill();
        until("it stalls", || client.owner.saw(State::Stalled)).await;
        let begin = Instant::now();
        near.take_queued();
        until("its outlet is let go", || Rc::strong_count(&near) == 1).await;
        assert!(begin.elapsed() < Duration::from_millis(10), "{:?}", begin.elapsed());
    });
}

#[test]
fn a_link_that_retires_ends_at_once_when_the_last_bytes_are_taken() {
    virtually(async {
        let (server, client, _) = couple().await;
        let link = client.live().await;
        let near = ended_but_not_taken(&server, &link).await;
        server.link().go_away();
        until("a successor", || client.links.get() == 2).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(!link.has_ended(), "its bytes wait");
        let begin = Instant::now();
        near.take_queued();
        until("the link ends", || link.has_ended()).await;
        assert!(begin.elapsed() < Duration::from_millis(10), "{:?}", begin.elapsed());
    });
}

/// Opens another stream when the link lets it go.
#[derive(Debug)]
struct Opener {
    tap: Rc<Tap>,
    link: Link,
}

impl Outlet for Opener {
    fn deliver(&self, pieces: &mut VecDeque<Bytes>) -> usize {
        self.tap.deliver(pieces)
    }

    fn finish(&self) {
        Outlet::finish(&*self.tap);
    }

    fn reset(&self, code: ResetCode) {
        self.tap.reset(code);
    }

    fn stop(&self, code: ResetCode) {
        self.tap.stop(code);
    }

    fn room(&self) {
        self.tap.room();
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        open(&self.link, "next", Appetite::ALL);
    }
}

/// Here the writer is the task that reports the end: it runs before the timer task, and has nothing
/// to send until then.
#[test]
fn frames_that_an_outlet_queues_while_the_writer_tells_leave_at_once() {
    virtually(async {
        let (server, client, _) = couple().await;
        let (link, far) = (client.live().await, server.owner());
        let tap = Tap::new(Appetite::NONE);
        let target = Target::Service("first".to_owned());
        let first = Open { target, visitor: None, priority: Priority::Normal, fields: None };
        let outlet = Rc::new(Opener { tap: Rc::clone(&tap), link: link.clone() });
        tap.join(link.open(first, outlet).unwrap());
        let (sent, other) = tokio::join!(tap.send_pattern(10), far.next_tap());
        assert!(sent && other.send_pattern(100).await);
        until("the ends", || tap.is_over() && other.is_over()).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let begin = Instant::now();
        tap.take_queued();
        until("the next stream is there", || far.opens.borrow().len() == 2).await;
        assert!(begin.elapsed() < Duration::from_millis(10), "{:?}", begin.elapsed());
    });
}

#[test]
fn a_refused_stream_tells_why_and_the_next_one_is_served() {
    virtually(async {
        let (server, client, _) = couple().await;
        let (link, far) = (client.live().await, server.owner());
        far.behaviour.set(Behaviour::Refuse);
        let near = open(&link, "a", Appetite::ALL);
        until("the reason", || near.reset.get() == Some(ResetCode::Refused)).await;
        assert_eq!(near.stopped.get(), Some(ResetCode::Refused));
        far.behaviour.set(Behaviour::Keep);
        let next = open(&link, "a", Appetite::ALL);
        let tap = far.next_tap().await;
        assert!(next.send_pattern(10).await);
        until("its bytes", || tap.is_over()).await;
        until("the refused one is forgotten", || link.stream_count() == 1).await;
    });
}

#[test]
fn bytes_arrive_one_at_a_time_as_well() {
    virtually(async {
        let (server, memory) = serve();
        let dialer = Scripted::new(&memory, []);
        dialer.others.set(Faults { read_at_most: 1, ..Faults::default() });
        let client = Client::start(plan(vec![path(dialer, 1)]));
        let near = open(&client.live().await, "echo", Appetite::SOME);
        let (sent, tap) = tokio::join!(near.send_pattern(100_000), server.owner().next_tap());
        assert!(sent);
        assert!(tap.send_pattern(60_000).await);
        until("the ends", || near.is_over() && tap.is_over()).await;
        tap.assert_pattern(100_000);
        near.assert_pattern(60_000);
    });
}

/// Returns how many bytes a fast stream moves in a second, in parallel with `stuck` streams that
/// are not read. The carrier has a delay of its own: the outlets take 5 KB per millisecond.
fn quick_bytes(stuck: usize) -> u64 {
    virtually(async {
        let (server, client, _) = couple().await;
        let (link, far) = (client.live().await, server.owner());
        let mut others = Vec::new();
        for _ in 0..stuck {
            far.appetite.set(Appetite::NONE);
            let near = open(&link, "stuck", Appetite::ALL);
            let tap = far.next_tap().await;
            let sender = near.clone();
            let task = tokio::task::spawn_local(async move { sender.send_pattern(1 << 30).await });
            others.push((near, tap, task));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        far.appetite.set(Appetite::SOME);
        let near = open(&link, "quick", Appetite::ALL);
        let tap = far.next_tap().await;
        let task = tokio::task::spawn_local(async move { near.send_pattern(1 << 30).await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        for (_, tap, task) in &others {
            assert!(tap.queued_most.get() <= 256 << 10, "{tap:?}");
            task.abort();
        }
        task.abort();
        tap.count()
    })
}

#[test]
fn readers_that_never_read_do_not_hold_another_stream() {
    let (alone, beside) = (quick_bytes(0), quick_bytes(5));
    println!("alone {alone} bytes, beside five that never read {beside} bytes");
    assert!(alone > 1_000_000 && beside * 10 >= alone * 9);
}
