//! An idle daemon uses no processor time.

use std::time::Duration;

use crate::harness::{Origin, Scheme, Setup, connect};

/// Most clock ticks that an idle daemon may use in twenty seconds. 0.1 % of a core is two ticks;
/// the tests allow a few more for a ping in that time, and for a tick that is counted as a whole
/// after a short use.
const SPAN: Duration = Duration::from_secs(20);
const MOST: Duration = Duration::from_millis(50);

#[test]
fn idle_daemons_use_no_processor_with_a_hundred_idle_visitors() {
    for &scheme in Scheme::ALL {
        let origin = Origin::echo();
        let mut running = Setup::alone(scheme).service("echo", origin.port()).start();
        running.wait_echo(running.public("echo"));
        let visitors: Vec<_> = (0..100).map(|_| connect(running.public("echo"))).collect();
        // What the start and the visitors still have to do.
        std::thread::sleep(Duration::from_secs(2));
        let before = [running.server.cpu(), running.client().cpu()];
        std::thread::sleep(SPAN);
        let after = [running.server.cpu(), running.client().cpu()];
        let used = [after[0] - before[0], after[1] - before[1]];
        println!("{scheme:?}: server {:?}, client {:?} of {SPAN:?}", used[0], used[1]);
        assert!(used.iter().all(|used| *used <= MOST), "{used:?}");
        drop(visitors);
    }
}
