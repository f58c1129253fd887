//! Ten thousand kills at random moments under load.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use link::Retry;
use testkit::netem::Rng;

use crate::rig::{Appetite, Client, direct, open, plan, serve, until, virtually};

/// Kills in all.
const KILLS: usize = 10_000;

#[test]
fn ten_thousand_kills_under_load_lose_no_byte() {
    let begin = Instant::now();
    let seed = 20_261_121;
    virtually(async {
        let (server, dialer) = serve();
        let mut plan = plan(vec![direct(&dialer)]);
        plan.retry = Retry { min: Duration::from_micros(100), max: Duration::from_millis(1) };
        let client = Client::start(plan);
        let link = client.live().await;
        let far = server.owner();
        let over = Rc::new(Cell::new(false));
        let mut loads = Vec::new();
        for n in 0..4_u64 {
            // Two streams at a time each way, one after the other until the kills are over.
            let from_client = n % 2 == 0;
            let (link, far) = if from_client {
                (link.clone(), far.clone())
            } else {
                (server.link(), client.owner.clone())
            };
            let (over, mut rng) = (over.clone(), Rng::new(seed + n));
            loads.push(tokio::task::spawn_local(async move {
                let mut moved = 0;
                let mut streams = 0;
                while !over.get() {
                    let (up, down) = (rng.below(300_000), rng.below(100_000));
                    let name = format!("{n}-{streams}");
                    let near = open(&link, &name, Appetite::SOME);
                    let sending = near.send_pattern(up);
                    let answering = async {
                        let tap = loop {
                            if let Some(tap) = far.take(&name) {
                                break tap;
                            }
                            tokio::time::sleep(Duration::from_millis(1)).await;
                        };
                        assert!(tap.send_pattern(down).await);
                        tap
                    };
                    let (sent, tap) = tokio::join!(sending, answering);
                    assert!(sent);
                    until("the ends", || near.is_over() && tap.is_over()).await;
                    tap.assert_pattern(up);
                    near.assert_pattern(down);
                    moved += up + down;
                    streams += 1;
                }
                (streams, moved)
            }));
        }
        let mut rng = Rng::new(seed);
        let mut kills = 0;
        while kills < KILLS {
            tokio::time::sleep(Duration::from_micros(rng.below(10_000))).await;
            // One that is dead already does not count.
            let mut breakers = dialer.breakers();
            if breakers.len() > kills {
                breakers.pop().unwrap().kill();
                kills = breakers.len() + 1;
            }
        }
        over.set(true);
        let (mut streams, mut bytes) = (0, 0);
        for load in loads {
            let (some, moved) = load.await.unwrap();
            streams += some;
            bytes += moved;
        }
        let (_, _, resumes) = link.totals();
        println!(
            "{KILLS} kills, seed {seed}: {streams} streams, {bytes} bytes, {resumes} resumes, {} \
             connections, {:?}",
            dialer.breakers().len(),
            begin.elapsed()
        );
        assert_eq!(client.links.get(), 1, "the link lived through it all");
        assert!(streams > 100 && resumes > 1000);
        until("forgotten", || link.stream_count() + server.link().stream_count() == 0).await;
    });
}
