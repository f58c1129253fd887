//! A node of a cluster that ends lets its clients go in portions, so that they do not log in at the
//! other nodes all at once. Its entrances stay open meanwhile, and it takes no further links.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use node::session::Handle;
use tokio::time::{Instant, sleep, timeout};

use crate::registry::Registry;

/// The time from one portion to the next.
const STEP: Duration = Duration::from_secs(1);

/// The poll interval for links that have gone.
const LOOK: Duration = Duration::from_millis(50);

/// The number of steps after the last portion in which the links still may go. A client that
/// reaches no other node stays, and holds up the end of this node no longer.
const STAYS: u32 = 3;

/// The number of links that are asked to go in a second: 1 % of all, and more where all have to be
/// asked within this number of seconds.
fn portion(links: usize, seconds: u64) -> usize {
    let seconds = usize::try_from(seconds).unwrap_or(usize::MAX).clamp(1, 100);
    links.div_ceil(seconds).max(1)
}

/// Asks the clients for links to other nodes, in portions. Completes when no client has a link,
/// some seconds after the last portion, and after this time in any case.
pub(crate) async fn shed(registry: &Arc<Registry>, handles: &[Handle], limit: Duration) {
    let mut asked = BTreeSet::new();
    let portion = portion(survey::links_of_clients(handles).await, limit.as_secs() / 2);
    let go = async {
        let mut silent = 0;
        while silent < STAYS {
            let (next, before) = (Instant::now() + STEP, asked.len());
            survey::retire_some(handles, &mut asked, portion).await;
            silent = if asked.len() == before { silent + 1 } else { 0 };
            while Instant::now() < next {
                registry.close_left().await;
                if survey::links_of_clients(handles).await == 0 {
                    return;
                }
                sleep(LOOK).await;
            }
        }
    };
    // Whoever has not gone by then is told so at the end of the server.
    let _ = timeout(limit, go).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_portion_is_one_percent_and_more_where_the_time_is_short() {
        assert_eq!(portion(0, 60), 1);
        assert_eq!(portion(10, 600), 1);
        assert_eq!(portion(10_000, 600), 100);
        assert_eq!(portion(10_000, 20), 500);
        assert_eq!(portion(10_000, 0), 10_000);
    }
}
