//! Memory that was promised to a carrier and is wanted elsewhere. Of carriers with lanes only.

use std::rc::Rc;
use std::time::Duration;

use proto::Budget;
use testkit::pair::Purse;
use transport::memory;

use crate::rig::{Appetite, Client, Rules, Server, direct, open, plan, until, virtually};

const MIB: u64 = 1 << 20;

#[test]
fn an_idle_carrier_gives_way_when_its_memory_is_wanted() {
    virtually(async {
        let purse = Purse::new(64 * MIB);
        let (listener, dialer) = memory::laned_network(crate::LANES);
        let rules = Rules { budget: Rc::new(purse.clone()), ..Rules::default() };
        let server = Server::start(vec![Box::new(listener)], rules);
        let client = Client::start(plan(vec![direct(&dialer)]));
        let (link, far) = (client.live().await, server.owner());
        let near = open(&link, "a", Appetite::SOME);
        let tap = far.next_tap().await;
        // The round trip is known by the first pings.
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert!(near.send_pattern(20 * MIB).await);
        until("every byte", || tap.is_over()).await;
        tokio::time::sleep(Duration::from_mins(10)).await;
        let idle = purse.used();
        assert!(idle > 2 * MIB, "{idle}");
        assert_eq!(link.totals().2, 0, "nobody wants it");

        purse.charge(33 * MIB);
        until("another carrier", || link.totals().2 == 1).await;
        let left = purse.used() - 33 * MIB;
        assert!(left < idle - MIB, "{left} of {idle}");
        assert!(tap.send_pattern(100_000).await);
        until("the end", || near.is_over()).await;
        tap.assert_pattern(20 * MIB);
        near.assert_pattern(100_000);
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!(link.totals().2, 1, "that was all there was to be had");
        purse.release(33 * MIB);
    });
}
