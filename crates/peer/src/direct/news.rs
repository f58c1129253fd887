//! Detects that the addresses of this machine have changed: another network, or a network again.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

/// The poll interval for the addresses of this machine. A poll costs 10 µs with few interfaces.
const LOOK: Duration = Duration::from_secs(5);

/// Changed addresses request a trial this long after the last requested trial. The addresses of a
/// container host change all the time.
const APART: Duration = Duration::from_secs(30);

/// When a link has last requested a trial.
#[derive(Debug, Default)]
pub(super) struct Asked(Cell<Option<Instant>>);

impl Asked {
    /// Records that a trial is requested.
    pub(super) fn note(&self) {
        self.0.set(Some(Instant::now()));
    }

    /// Waits until changed addresses of this machine justify a trial.
    pub(super) async fn other_addresses(&self) {
        self.others(addresses).await;
    }

    async fn others(&self, addresses: impl Fn() -> Option<Vec<IpAddr>>) {
        let before = addresses();
        loop {
            sleep(LOOK).await;
            let now = addresses();
            if now.is_some() && now != before {
                break;
            }
        }
        if let Some(last) = self.0.get() {
            sleep_until(last + APART).await;
        }
    }
}

/// The addresses that a path may have. `None`: the system does not report them.
fn addresses() -> Option<Vec<IpAddr>> {
    Some(usable(&net::own::addresses().ok()?))
}

fn usable(all: &[IpAddr]) -> Vec<IpAddr> {
    let is_usable = |ip: &IpAddr| punch::refusal(SocketAddr::new(*ip, 1)).is_none();
    let mut usable: Vec<_> = all.iter().copied().filter(is_usable).collect();
    usable.sort_unstable();
    usable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_the_order_of_addresses_nor_those_of_no_path_are_news() {
        let of = |all: &[&str]| {
            usable(&all.iter().map(|ip| ip.parse().unwrap()).collect::<Vec<IpAddr>>())
        };
        let before = of(&["127.0.0.1", "192.0.2.1", "10.0.0.1"]);
        assert_eq!(of(&["10.0.0.1", "192.0.2.1", "fe80::1", "169.254.7.7", "127.0.0.1"]), before);
        assert_ne!(of(&["10.0.0.2", "192.0.2.1"]), before);
    }

    #[tokio::test(start_paused = true)]
    async fn ever_other_addresses_ask_for_a_trial_each_thirty_seconds() {
        let (asked, turn) = (Asked::default(), Cell::new(0));
        let changing = || {
            turn.set(turn.get() + 1);
            Some(vec![IpAddr::from([10, 0, 0, turn.get()])])
        };
        let begin = Instant::now();
        let mut seconds = Vec::new();
        for _ in 0..3 {
            asked.others(changing).await;
            asked.note();
            seconds.push(begin.elapsed().as_secs());
        }
        assert_eq!(seconds, [5, 35, 65], "the first one is not late");
    }
}
