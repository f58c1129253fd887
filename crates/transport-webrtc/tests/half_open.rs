//! What a hundred offers cost whose peers never come, with the limit of the defaults. The test has a
//! process of its own, because it looks at the memory of the process.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

mod setup;

use setup::{run, settings};
use transport_webrtc::{Answerer, First, Interfaces, Offerer, Peers, SignalError};

/// Offers beside each other.
const OFFERS: usize = 100;

/// Bytes of this process in memory (proc(5)).
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size()
}

#[test]
fn a_hundred_half_open_offers_cost_less_than_10_mb() {
    run(async {
        let offering = Peers::new(settings());
        let offerer = Offerer::new(&offering, First::Carrier, Interfaces::Told).await.unwrap();
        let offer = offerer.offer().to_owned();
        // What is made once is no cost of an offer.
        let peers = Peers::new(settings());
        drop(Answerer::new(&peers, &offer, Interfaces::Told).await.unwrap());
        let (before, mut answerers) = (resident(), Vec::new());
        for _ in 0..OFFERS {
            match Answerer::new(&peers, &offer, Interfaces::Told).await {
                Ok(answerer) => answerers.push(answerer),
                Err(error) => assert!(matches!(error, SignalError::Full(30)), "{error}"),
            }
        }
        let cost = resident().saturating_sub(before);
        assert!(answerers.len() >= 29, "{}", answerers.len());
        assert!(cost < 10_000_000, "{cost} bytes");
        println!("{} bytes an offer", cost / answerers.len());
    });
}
